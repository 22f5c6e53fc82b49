"""The files of a SQLite store: their names, whose they may be, and whether they are still there.

No function here opens a database that SQLite may have open in this process: closing such a file
would drop SQLite's locks on it, and acknowledged commits with them.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import stat
import struct
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from lockstitch.errors import Unreadable, Unsure, reason_of
from lockstitch.files import os_files

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
            f"{path}: is a hard link, one of {count} names of the same file, and SQLite corrupts"
            " a database that is used under two names; nothing was changed. Make it a file of its"
            f" own: remove the other names (find FOLDER -samefile {path.name} lists them), or put"
            " a copy in its place while no program has it open"
        )


def is_writable(path: Path) -> bool:
    """Whether this process may write to a database that is there, and to the files beside it."""
    if not _may_write(path):
        return False
    beside = (wal_of(path), shm_of(path), lock_of(path))
    return _may_write(path.parent) or all(map(_may_write, beside))


def _may_write(path: Path) -> bool:
    """Ask the system, for whom the process acts: it knows of read-only file systems, too."""
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def identity(path: str) -> Identity:
    """Tell which file has a name at the moment."""
    try:
        found = os.lstat(path)
    except OSError:
        return _NOWHERE
    return found.st_dev, found.st_ino


class WatchedName:
    """Tells which file has a name, again and again, and does not look at its times.

    Since Linux 6.13, a file whose times were looked at gets finer ones with the next write, and a
    sync then waits for the file system's journal, too: it takes a third longer. Used by one thread
    at a time.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._found = ctypes.create_string_buffer(_STATX_SIZE)
        call = _statx()
        name = os.fsencode(path)
        self._ask = call and partial(call, _HERE, name, _NO_LINKS, _INODE, self._found)

    def identity(self) -> Identity:
        """Tell which file has the name at the moment."""
        if self._ask is None or self._ask() != 0:
            return identity(self._path)
        number, major, minor = _PARTS.unpack_from(self._found, _START)
        return os.makedev(major, minor), number


_STATX_SIZE = 256
_HERE = -100  # AT_FDCWD
_NO_LINKS = 0x100  # AT_SYMLINK_NOFOLLOW
_INODE = 0x100  # STATX_INO
# Where a struct statx has the inode's number, and both halves of its device's.
_START = 32
_PARTS = struct.Struct("=Q96xII")


@cache
def _statx() -> Callable[..., int] | None:
    """Give Linux's call that looks at no more of a file than is asked for, None without one."""
    if sys.platform != "linux":
        return None
    try:
        call: Callable[..., int] = ctypes.CDLL(None).statx
    except (OSError, AttributeError):
        return None
    return call


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
        os_files.sync_folder(folder.parent)
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
        os.close(os.open(draft, os_files.CREATING, 0o600))
        fill(draft)
        draft.replace(path)
        os_files.sync_folder(path.parent)
    except OSError as error:
        raise Unreadable(f"{path}: cannot be made: {reason_of(error)}") from error
    finally:
        for name in (draft, wal_of(draft), shm_of(draft)):
            name.unlink(missing_ok=True)
