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

from lockstitch import disk
from lockstitch.errors import Unreadable, Unsure, reason_of

Identity = tuple[int, int]
_NOWHERE: Identity = (0, 0)

# Databases whose log was taken away under a connection of this process. SQLite shares what it
# knows of a log among all connections of a process, so no new one would see what is there.
_LOST: set[Identity] = set()


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
    """Tell the size of a plain file, None if there is none; anything else there is refused."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(f"{path}: {reason_of(error)}") from error
    if stat.S_ISLNK(found.st_mode):
        raise Unreadable(f"{path}: is a symbolic link; name the file itself")
    if not stat.S_ISREG(found.st_mode):
        raise Unreadable(f"{path}: is not a plain file")
    return found.st_size


def identity(path: str) -> Identity:
    """Tell which file has a name at the moment."""
    try:
        found = os.lstat(path)
    except OSError:
        return _NOWHERE
    return found.st_dev, found.st_ino


def lose(found: Identity) -> None:
    """Remember that this process can no longer use a database."""
    _LOST.add(found)


def check_usable(path: Path) -> None:
    """Refuse a database that this process can no longer use."""
    if _LOST and identity(str(path)) in _LOST:
        raise Unsure(
            f"{path}: another program removed the database's log while it was in use; what was"
            " written last may be lost: start this process anew"
        )


def stamp(path: Path) -> tuple[int, int, int, int]:
    """Tell which file has a name, its size and when it was last written."""
    found = os.lstat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def make_folders(folder: Path) -> None:
    """Make a folder and those above it, for nobody else to read, and make their names durable."""
    if folder.is_dir():
        return
    make_folders(folder.parent)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        disk.sync_folder(folder.parent)
    except OSError as error:
        raise Unreadable(f"{folder}: cannot be made: {reason_of(error)}") from error


def check_alone(path: Path) -> None:
    """Refuse to make a database beside the log of one that is gone: SQLite would mix the two."""
    for left in (wal_of(path), path.with_name(f"{path.name}-journal")):
        if size_of(left):
            raise Unreadable(f"{left}: is left of a database that is gone; move it away first")


def create(path: Path, fill: Callable[[Path], None]) -> None:
    """Make a database under another name, private, and put it in place when it is whole."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        os.close(os.open(draft, disk.CREATING, 0o600))
        fill(draft)
        draft.replace(path)
        disk.sync_folder(path.parent)
    except OSError as error:
        raise Unreadable(f"{path}: cannot be made: {reason_of(error)}") from error
    finally:
        for name in (draft, wal_of(draft), shm_of(draft)):
            name.unlink(missing_ok=True)
