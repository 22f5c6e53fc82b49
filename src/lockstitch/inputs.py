"""The one way to read a file that others may have written: a regular one, within a budget.

A pipe in a folder would be waited for, a link to a device read for ever. So a file is opened
without waiting, what it is is asked of the descriptor, and reading ends where it said it would.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from lockstitch.errors import Unreadable, UsageError, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch.folders import Folder

LIMIT = 2 << 30
VARIABLE = "LOCKSTITCH_MAX_BYTES"
FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
# From so many bytes on, a look at the memory that is left costs less than it may save.
LARGE = 1 << 25
_CHUNK = 1 << 20
_UNPACKED = 1 << 28
_RATIO = 32
# What may be appended while a file is read: no file is read for ever.
_GROWTH = 1 << 26
_KINDS = (
    (stat.S_ISDIR, "is a folder, not a file"),
    (stat.S_ISFIFO, "is a pipe, not a regular file, and was not read: give - to read from a pipe"),
    (stat.S_ISSOCK, "is a socket, not a regular file, and was not read"),
    (stat.S_ISCHR, "is a device, not a regular file, and was not read"),
    (stat.S_ISBLK, "is a device, not a regular file, and was not read"),
)


Identity = tuple[int, int]
_DATABASE = b"SQLite format 3\0"
# Descriptors that could not be closed yet, and their files.
_left: dict[int, Identity] = {}


def budget() -> int:
    """Return how many bytes one input may have: 2 GiB, or what the environment says."""
    given = os.environ.get(VARIABLE)
    if not given:
        return LIMIT
    if not given.isascii() or not given.isdecimal() or not int(given):
        raise UsageError(f"{VARIABLE} is the most bytes that one input may have, a whole number")
    return int(given)


def unpacked_budget(size: int) -> int:
    """Return how many bytes a packed input of a size may have once it is unpacked.

    256 MiB, or 32 times its size if that is more; or what the environment says.
    """
    if os.environ.get(VARIABLE):
        return budget()
    return min(LIMIT, max(_UNPACKED, size * _RATIO))


def content(path: str | os.PathLike[str]) -> bytes:
    """Return all of a regular file, through links; raises Unreadable or UsageError."""
    with opened(path) as handle:
        return read(handle)


def head(path: str | os.PathLike[str], size: int) -> bytes:
    """Return the beginning of a regular file, however long that is."""
    if _left:
        with suppress(OSError, ValueError):
            found = _identity(os.stat(path))  # noqa: PTH116 - pathlib costs start-up time
            for kept in [one for one, own in _left.items() if own == found]:
                return os.pread(kept, size, 0)
    with opened(path) as handle, told():
        # A file of /proc says that it is empty; to read it may take something away, or wait.
        return os.read(handle, size) if os.fstat(handle).st_size else b""


@contextmanager
def opened(
    path: str | os.PathLike[str], flags: int = FLAGS, folder: Folder | None = None
) -> Iterator[int]:
    """Open a regular file for reading, by its path or by its name in a folder.

    Raises Unreadable, or UsageError for a name that no file can have; both without the path.
    """
    try:
        handle = os.open(path, flags) if folder is None else folder.open(os.fspath(path), flags)
    except OSError as error:
        raise Unreadable(reason_of(error)) from error
    except ValueError as error:
        raise UsageError("is no possible name of a file") from error
    try:
        require_regular(status_of(handle))
        yield handle
    finally:
        close(handle)


def close(handle: int) -> None:
    """Close a file; not yet, if it is a database that this process has open elsewhere.

    POSIX drops all locks that a process has on a file as soon as any descriptor of it is closed,
    and SQLite knows nothing of that: its transaction would be open to every other process.
    """
    for kept, found in list(_left.items()):
        if not _is_open(found) and _left.pop(kept, None) is not None:
            os.close(kept)
    with suppress(OSError):
        found = _identity(os.fstat(handle))
        if _may_be_database(handle) and _is_open(found, handle):
            _left[handle] = found
            return
    os.close(handle)


def status_of(handle: int) -> os.stat_result:
    """Return the status of an open file; raises Unreadable."""
    with told():
        return os.fstat(handle)


def _may_be_database(handle: int) -> bool:
    try:
        has_any = os.fstat(handle).st_size
        start = os.pread(handle, len(_DATABASE), 0) if has_any else b""
    except (OSError, AttributeError):
        return False
    # one that was just made is empty
    return not start or start == _DATABASE


def _is_open(found: Identity, besides: int = -1) -> bool:
    """Whether this process has a file open by any descriptor but that one, and those left here."""
    own = {besides, *_left}
    with suppress(OSError):
        for number in map(int, os.listdir("/dev/fd")):  # noqa: PTH208 - numbers, not paths
            with suppress(OSError):
                if number not in own and _identity(os.fstat(number)) == found:
                    return True
    return False


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


def require_regular(found: os.stat_result) -> None:
    """Raise Unreadable unless this is the status of a regular file."""
    for is_kind, why in _KINDS:
        if is_kind(found.st_mode):
            raise Unreadable(why)
    if not stat.S_ISREG(found.st_mode):
        raise Unreadable("is not a regular file, and was not read")


def require_size(size: int) -> None:
    """Raise Unreadable if a file of this size is over the budget of bytes."""
    limit = budget()
    if size > limit:
        raise Unreadable(
            f"is {size} bytes, over the limit of {limit}, and was not read: "
            f"{VARIABLE} sets another limit"
        )


def require_room(size: int) -> None:
    """Raise Unreadable if so many bytes cannot be decoded in the memory that is left."""
    if size > LARGE:
        from lockstitch.memory import room  # noqa: PLC0415 - most files are small

        if size > room():
            raise Unreadable(f"is {size} bytes and needs more memory than this machine has left")


def read(handle: int) -> bytes:
    """Return all of an open regular file, which is over no budget."""
    with told():
        size = status_of(handle).st_size
        require_size(size)
        require_room(size)
        pieces: list[bytes] = []
        count = 0
        while size and (piece := os.read(handle, max(_CHUNK, size - count))):
            pieces.append(piece)
            count += len(piece)
            if count > size + _GROWTH:
                raise Unreadable("gives more bytes than it says that it has, and was not read")
        return b"".join(pieces)


def drained(stream: IO[bytes]) -> bytes:
    """Return all of a stream, such as standard input, refused as soon as it is over the budget."""
    limit = budget()
    data = bytearray()
    # Piece by piece as they come: a read that waits for all of it is deaf to Ctrl-C.
    take = getattr(stream, "read1", stream.read)
    with told():
        while piece := take(_CHUNK):
            data += piece
            if len(data) > limit:
                raise Unreadable(f"is over the limit of {limit} bytes: {VARIABLE} sets another")
            if len(data) % LARGE < len(piece):
                require_room(len(data))
    return bytes(data)


@contextmanager
def told() -> Iterator[None]:
    """Say why something cannot be read, without its name."""
    try:
        yield
    except OSError as error:
        raise Unreadable(reason_of(error)) from error
