"""The files of a SQLite store: their names, whose they may be, and whether they are still there.

No function here opens a database that SQLite may have open in this process: closing such a file
would drop SQLite's locks on it, and acknowledged commits with them.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from lockstitch.errors import Unreadable, reason_of
from lockstitch.files import os_files


def wal_of(path: Path) -> Path:
    """Name the file that SQLite writes commits to."""
    return path.with_name(f"{path.name}-wal")


def shm_of(path: Path) -> Path:
    """Name the file by which processes that use the store know of each other."""
    return path.with_name(f"{path.name}-shm")


def lock_of(path: Path) -> Path:
    """Name the lock file."""
    return path.with_name(f"{path.name}-lock")


def size_of(path: Path) -> int | None:
    """Return the size of a plain file, None if there is none; anything else there is refused."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(f"{reason_of(error)}").about(path) from error
    if stat.S_ISLNK(found.st_mode):
        raise Unreadable("it is a symbolic link; name the file itself").about(path)
    if not stat.S_ISREG(found.st_mode):
        raise Unreadable("it is not a plain file").about(path)
    return found.st_size


def check_one_name(path: Path) -> None:
    """Refuse a database with a second name: SQLite keeps its log and its locks by name.

    Under the other name it would be read without what is in the log, and a write there would
    corrupt it.
    """
    try:
        count = os.lstat(path).st_nlink
    except OSError:
        return
    if count > 1:
        raise Unreadable(
            f"it is a hard link, one of {count} names of the same file, and SQLite corrupts"
            " a database that is used under two names; nothing was changed. Make it a file of its"
            f" own: remove the other names (find FOLDER -samefile {path.name} lists them), or put"
            " a copy in its place while no program has it open"
        ).about(path)


def is_writable(path: Path) -> bool:
    """Whether this process may write to a database that is there, and to the files beside it."""
    if not _may_write(path):
        return False
    beside = (wal_of(path), shm_of(path), lock_of(path))
    return _may_write(path.parent) or all(map(_may_write, beside))


def _may_write(path: Path) -> bool:
    """Ask the system, for whom the process acts: it knows of read-only file systems, too."""
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def make_folders(folder: Path) -> None:
    """Make a folder and those above it, for nobody else to read, and make their names durable."""
    if folder.is_dir():
        return
    make_folders(folder.parent)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        os_files.sync_folder(folder.parent)
    except OSError as error:
        raise Unreadable(f"the folder {folder} cannot be made: {reason_of(error)}") from error


def check_alone(path: Path) -> None:
    """Refuse to make a database beside the log of one that is gone: SQLite would mix the two."""
    for left in (wal_of(path), path.with_name(f"{path.name}-journal")):
        if size_of(left):
            raise Unreadable(
                f"{left.name} is left of a database that is gone; move it away first"
            ).about(path)


def create(path: Path, fill: Callable[[Path], None]) -> None:
    """Make a database under another name, private, and put it in place when it is whole."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        os.close(os.open(draft, os_files.CREATING, 0o600))
        fill(draft)
        draft.replace(path)
        os_files.sync_folder(path.parent)
    except OSError as error:
        raise Unreadable(f"it cannot be made: {reason_of(error)}").about(path) from error
    finally:
        for name in (draft, wal_of(draft), shm_of(draft)):
            name.unlink(missing_ok=True)
