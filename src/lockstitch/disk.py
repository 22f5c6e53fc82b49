"""What the operating system offers for safe files: drafts, swapping, syncing, who is writing.

Every function is one small step without a policy of its own; ``files`` decides.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

if sys.platform != "win32":
    import fcntl

PREFIX = ".lockstitch-"
SUFFIX = ".tmp"
STALE = 3600.0
CHUNK = 1 << 20

_BINARY = getattr(os, "O_BINARY", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
READING = (
    os.O_RDONLY
    | _BINARY
    | _CLOEXEC
    | _NOFOLLOW
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)
CREATING = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | _BINARY | _CLOEXEC | _NOFOLLOW
APPENDING = os.O_WRONLY | os.O_APPEND | _BINARY | _CLOEXEC | _NOFOLLOW

_HERE = -100  # AT_FDCWD
_EXCHANGE = 2  # RENAME_EXCHANGE
_NOT_OFFERED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}


class Open:
    """An open file and its name; ``kept`` says that the name of a draft must not be removed."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self.handle = handle
        self.kept = False

    def close(self) -> None:
        """Close the handle, once."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            os.close(handle)


@contextmanager
def draft(folder: Path) -> Iterator[Open]:
    """Create a private temporary file; whatever has its name in the end is removed."""
    made = Open(_new_name(folder), -1)
    try:
        made.handle = os.open(made.path, CREATING, 0o600)
        yield made
    finally:
        made.close()
        if not made.kept:
            made.path.unlink(missing_ok=True)


def _new_name(folder: Path) -> Path:
    return folder / f"{PREFIX}{secrets.token_hex(16)}{SUFFIX}"


def tidy(folder: Path, now: float | None = None) -> int:
    """Remove the drafts that killed processes of this user left behind; returns how many."""
    limit = (time.time() if now is None else now) - STALE
    removed = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.name.endswith(SUFFIX):
                removed += _removed_if_stale(entry, limit)
    return removed


def _removed_if_stale(entry: os.DirEntry[str], limit: float) -> bool:
    # ctime, because a draft that took part in a swap has the mtime of the file it replaced.
    try:
        found = entry.stat(follow_symlinks=False)
        if found.st_ctime < limit and stat.S_ISREG(found.st_mode) and _is_ours(found):
            Path(entry.path).unlink()
            return True
    except OSError:
        return False
    return False


def _is_ours(found: os.stat_result) -> bool:
    return os.name == "nt" or found.st_uid == os.geteuid()


def read(handle: int, start: int = 0) -> bytes:
    """Everything in an open file from a place on."""
    pieces = []
    while piece := _read_at(handle, start):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def begins_with(handle: int, data: bytes) -> bool:
    """Whether an open file begins with these bytes."""
    view = memoryview(data)
    place = 0
    while place < len(data):
        piece = _read_at(handle, place, min(CHUNK, len(data) - place))
        if not piece or piece != view[place : place + len(piece)]:
            return False
        place += len(piece)
    return True


def ends_line(handle: int) -> bool:
    """Whether an open file is empty or ends with a newline."""
    size = os.fstat(handle).st_size
    return not size or _read_at(handle, size - 1, 1) == b"\n"


def _read_at(handle: int, start: int, count: int = CHUNK) -> bytes:
    if sys.platform == "win32":
        os.lseek(handle, start, os.SEEK_SET)
        return os.read(handle, count)
    return os.pread(handle, count, start)


def write(handle: int, data: bytes) -> None:
    """Write all of it, or raise."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def append(path: Path, data: bytes) -> None:
    """Add to the end of a file, as any other program would."""
    handle = os.open(path, APPENDING)
    try:
        write(handle, data)
    finally:
        os.close(handle)


def adopt(handle: int, old: os.stat_result, source: int | None = None) -> None:
    """Give a new file the owner, the access list and the mode of an old one, where allowed.

    The mode comes last, because a change of owner clears bits of it.
    """
    if sys.platform == "win32":
        return
    try:
        os.fchown(handle, old.st_uid, old.st_gid)
    except OSError:
        with suppress(OSError):
            os.fchown(handle, -1, old.st_gid)
    if source is not None:
        _adopt_attributes(handle, source)
    os.fchmod(handle, stat.S_IMODE(old.st_mode))


def _adopt_attributes(handle: int, source: int) -> None:
    """Copy extended attributes; without its access list a mode would mean something else."""
    if sys.platform != "linux":
        return
    with suppress(OSError):
        wanted = set(os.listxattr(source))
        for name in set(os.listxattr(handle)) - wanted:
            with suppress(OSError):
                os.removexattr(handle, name)
        for name in wanted:
            with suppress(OSError):
                os.setxattr(handle, name, os.getxattr(source, name))


def sync(handle: int) -> None:
    """Make the content of an open file durable."""
    if sys.platform == "darwin":
        # There fsync leaves the data in the cache of the drive.
        with suppress(OSError):
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
            return
    os.fsync(handle)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; Windows has no way to ask for that."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY | _CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NOT_OFFERED:
            raise
    finally:
        os.close(handle)


def is_locked(handle: int) -> bool:
    """Try to lock an open file against other repairs; whether somebody else has the lock."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def place(new: Open, target: Path) -> None:
    """Give a draft its name, which must be free; raises FileExistsError if it is not."""
    try:
        os.link(new.path, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):
        # A file system without second names: the name is taken first, and replaced at once.
        os.close(os.open(target, CREATING, 0o600))
        new.path.replace(target)


def swap(new: Path, target: Path) -> bool:
    """Put ``new`` in place of ``target`` in one step, so that ``new`` then names what was there.

    Where the file system cannot exchange two names, a second name keeps the old file; where it
    knows no second names either, the old file is gone and the answer is False.
    """
    if _exchanged(new, target):
        return True
    aside = new.with_suffix(f".old{SUFFIX}")
    try:
        os.link(target, aside, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except (OSError, NotImplementedError):
        new.replace(target)
        return False
    try:
        new.replace(target)
        aside.replace(new)
    finally:
        aside.unlink(missing_ok=True)
    return True


def _exchanged(one: Path, other: Path) -> bool:
    call = None if sys.platform != "linux" else getattr(_libc(), "renameat2", None)
    if call is None:
        return False
    if call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NOT_OFFERED:
        return False
    raise OSError(number, os.strerror(number), str(other))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


class Watch:
    """Whether anybody has a file open for writing, for the files of one folder.

    Linux knows it for all users and containers: it grants a read lease only on a file without
    writers. The lease is given back at once; whoever opens the file in that instant waits for
    it. Where leases mean nothing (network file systems, macOS), the list of processes has to do.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.leases: bool | None = None

    def is_held(self, handle: int) -> bool:
        """Whether a file, open here for reading only, is open for writing anywhere now."""
        if is_leased(handle):
            return False
        if self.leases is None:
            self.leases = self._grants_leases()
        return self.leases or bool(holders(handle))

    def _grants_leases(self) -> bool:
        """Whether a new file, which nobody can have open for writing, gets a lease here."""
        path = _new_name(self.folder)
        handle = os.open(path, (CREATING & ~os.O_RDWR) | os.O_RDONLY, 0o600)
        try:
            return is_leased(handle)
        finally:
            os.close(handle)
            path.unlink(missing_ok=True)


def is_leased(handle: int) -> bool:
    """Whether a file, open here for reading only, could be leased for a moment."""
    if sys.platform != "linux":
        return False
    try:
        # The signal of a broken lease is by default one that ends the process.
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    return True


def holders(handle: int) -> list[int]:
    """The processes that have an open file open for writing, as far as this user may look."""
    pids: list[int] = []
    if sys.platform == "linux":
        found = os.fstat(handle)
        pids = [int(one.name) for one in Path("/proc").glob("[0-9]*") if _writes(one, found)]
    elif sys.platform == "darwin":
        path = fcntl.fcntl(handle, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")
        pids = openers(os.fsdecode(path))
    return pids


def openers(path: str) -> list[int]:
    """The processes that have a file open for writing, by its name, which is not opened here."""
    return writers_of(_lsof(path))


def _lsof(path: str) -> str:
    """What ``lsof`` says of a file: macOS has neither leases nor a table of processes."""
    command = ["/usr/sbin/lsof", "-w", "-F", "pa", "--", path]
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")


def writers_of(listing: str) -> list[int]:
    """The processes in a listing (``p`` and a number, then ``a`` and r, w or u for both)."""
    pids: list[int] = []
    pid = 0
    for line in listing.splitlines():
        if line.startswith("p"):
            pid = int(line[1:])
        elif line.startswith("a") and line[1:] in ("w", "u") and pid not in pids:
            pids.append(pid)
    return pids


def _writes(process: Path, file: os.stat_result) -> bool:
    try:
        return any(_is_writing(process, one, file) for one in (process / "fd").iterdir())
    except OSError:
        return False


def _is_writing(process: Path, descriptor: Path, file: os.stat_result) -> bool:
    with suppress(OSError):
        found = descriptor.stat()
        if (found.st_dev, found.st_ino) == (file.st_dev, file.st_ino):
            lines = (process / "fdinfo" / descriptor.name).read_text("ascii").splitlines()
            flags = next(line for line in lines if line.startswith("flags:"))
            return int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False
