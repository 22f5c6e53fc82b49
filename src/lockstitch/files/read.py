"""Read what others may have written: only regular files, within a budget, in their folder.

A read would wait for a pipe in a folder, and would never end on a link to a device. So a file is
opened without waiting, its kind is read from the descriptor, and reading ends at the size that the
file reported. Running out of memory gives no error that could be caught, so the free memory is
checked first.

A path is looked up anew at every call, so anyone who may write to a folder above can put a link or
another folder in its place between two calls. A descriptor keeps its meaning: a folder is opened
once, and everything in it is done relative to that. Windows has no such calls.

Files that a program has packed with Zstandard, such as old rollouts of Codex, need the extra
``zstd``. A packed file may claim to be small and unpack to any size, so it is unpacked in small
steps, up to a limit.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from msgspec import Struct

from lockstitch.errors import Unreadable, UsageError, reason_of

if TYPE_CHECKING:
    from types import ModuleType


NOT_OFFERED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}
_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.listdir in os.supports_fd


class Folder(Struct):
    """A folder to work in; ``handle`` is None if it can only be named by its path."""

    path: Path
    handle: int | None = None

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        """Open a file in the folder."""
        path = self.path / name if self.handle is None else name
        return os.open(path, flags, mode, dir_fd=self.handle)

    def look(self, name: str) -> os.stat_result | None:
        """Return the status of a name, of a link itself; None if nothing has the name."""
        path = self.path / name if self.handle is None else name
        try:
            return os.stat(path, dir_fd=self.handle, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def remove(self, name: str) -> None:
        """Remove a name, if it is there."""
        path = self.path / name if self.handle is None else name
        with suppress(FileNotFoundError):
            os.unlink(path, dir_fd=self.handle)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, even to a name that is taken; a link is replaced, not followed."""
        names = (self.path / old, self.path / new) if self.handle is None else (old, new)
        os.replace(*names, src_dir_fd=self.handle, dst_dir_fd=self.handle)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name."""
        names = (self.path / old, self.path / new) if self.handle is None else (old, new)
        at = self.handle
        os.link(*names, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)

    def sync(self) -> None:
        """Make the names in the folder durable; Windows has no way to ask for that."""
        if sys.platform == "win32":
            return
        handle = os.open(self.path, _FLAGS) if self.handle is None else self.handle
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in NOT_OFFERED:
                raise
        finally:
            if self.handle is None:
                os.close(handle)


@contextmanager
def folder_at(path: str | Path, inside: Folder | None = None) -> Iterator[Folder]:
    """Open a folder by the path that a user gave, through whatever links are on it.

    With ``inside``, open it by its name in another folder; raises OSError if a link has that name.
    """
    found = Folder(Path(path) if inside is None else inside.path / path)
    if inside is not None and inside.handle is None:
        if not stat.S_ISDIR(found.path.lstat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    elif inside is not None:
        found.handle = os.open(path, _FLAGS | NOFOLLOW, dir_fd=inside.handle)
    elif _BY_DESCRIPTOR and sys.platform != "win32":
        try:
            found.handle = os.open(found.path, _FLAGS)
        except ValueError as error:
            raise UsageError("it is not a valid file name") from error
    try:
        yield found
    finally:
        # A later user of this object must not get the file that has the descriptor's number next.
        handle, found.handle = found.handle, None
        if handle is not None:
            os.close(handle)


def walk_folders(
    top: str, onerror: Callable[[OSError], object]
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk through a folder like ``os.walk``, which cannot go a thousand deep everywhere."""
    left = [top]
    while left:
        root = left.pop()
        inner: list[str] = []
        names: list[str] = []
        try:
            with os.scandir(root) as entries:
                for entry in entries:
                    is_folder = False
                    with suppress(OSError):
                        is_folder = entry.is_dir()
                    (inner if is_folder else names).append(entry.name)
        except OSError as error:
            onerror(error)
            continue
        yield root, inner, names
        below = (os.path.join(root, name) for name in reversed(inner))  # noqa: PTH118 - many
        left += [path for path in below if not os.path.islink(path)]  # noqa: PTH114 - as above


LIMIT = 2 << 30
VARIABLE = "LOCKSTITCH_MAX_BYTES"
FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)
# From this size on, checking the free memory costs less than it may save.
LARGE = 1 << 25
_CHUNK = 1 << 20
_UNPACKED = 1 << 28
_RATIO = 32
# The most that may be appended while a file is read, so that no file is read for ever.
_GROWTH = 1 << 26
_REFUSED_KINDS = (
    (stat.S_ISDIR, "it is a folder, not a file"),
    (
        stat.S_ISFIFO,
        "it is a pipe, not a regular file, and was not read: use - to read from a pipe",
    ),
    (stat.S_ISSOCK, "it is a socket, not a regular file, and was not read"),
    (stat.S_ISCHR, "it is a device, not a regular file, and was not read"),
    (stat.S_ISBLK, "it is a device, not a regular file, and was not read"),
)


Identity = tuple[int, int]
_SQLITE_MAGIC = b"SQLite format 3\0"
# Descriptors that could not be closed yet, and their files.
_kept_open: dict[int, Identity] = {}


def byte_budget() -> int:
    """Return how many bytes one input may have: 2 GiB, or what the environment says."""
    setting = os.environ.get(VARIABLE)
    if not setting:
        return LIMIT
    if not setting.isascii() or not setting.isdecimal() or not int(setting):
        raise UsageError(
            f"{VARIABLE} must be a whole number: the most bytes that one input may have"
        )
    return int(setting)


def unpacked_budget(size: int) -> int:
    """Return how many bytes a packed input of this size may have once it is unpacked.

    That is 256 MiB, or 32 times its size if that is more, or what the environment says.
    """
    if os.environ.get(VARIABLE):
        return byte_budget()
    return min(LIMIT, max(_UNPACKED, size * _RATIO))


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return all of a regular file, following links; raise Unreadable or UsageError."""
    with open_regular(path) as handle:
        return read_all(handle)


def read_head(path: str | os.PathLike[str], size: int) -> bytes:
    """Return the beginning of a regular file of any length."""
    if _kept_open:
        with suppress(OSError, ValueError):
            found = _identity(os.stat(path))  # noqa: PTH116 - pathlib costs start-up time
            for kept in [one for one, own in _kept_open.items() if own == found]:
                return os.pread(kept, size, 0)
    with open_regular(path) as handle:
        # A file of /proc claims to be empty, and reading it may take something away, or wait.
        return os.read(handle, size) if os.fstat(handle).st_size else b""


@contextmanager
def open_regular(
    path: str | os.PathLike[str], flags: int = FLAGS, folder: Folder | None = None
) -> Iterator[int]:
    """Open a regular file for reading, by its path or by its name in a folder.

    Raises Unreadable, also if a read in the block fails, or UsageError for a name that no file can
    have. Neither names the path.
    """
    try:
        handle = os.open(path, flags) if folder is None else folder.open(os.fspath(path), flags)
    except OSError as error:
        raise Unreadable(reason_of(error)) from error
    except ValueError as error:
        raise UsageError("it is not a valid file name") from error
    try:
        mode = os.fstat(handle).st_mode
        for is_kind, why in _REFUSED_KINDS:
            if is_kind(mode):
                raise Unreadable(why)
        if not stat.S_ISREG(mode):
            raise Unreadable("it is not a regular file, and was not read")
        yield handle
    except OSError as error:
        raise Unreadable(reason_of(error)) from error
    finally:
        # POSIX drops all locks of a process on a file as soon as it closes any descriptor of that
        # file. SQLite cannot know that, so its transaction would lie open to every other process.
        # So the descriptor of a database that this process has open elsewhere is closed later.
        for kept, found in list(_kept_open.items()):
            if not _is_open(found) and _kept_open.pop(kept, None) is not None:
                os.close(kept)
        is_kept = False
        with suppress(OSError, AttributeError):
            status = os.fstat(handle)
            start = os.pread(handle, len(_SQLITE_MAGIC), 0) if status.st_size else b""
            # A database that was just made is empty.
            is_kept = start in (b"", _SQLITE_MAGIC) and _is_open(_identity(status), handle)
            if is_kept:
                _kept_open[handle] = _identity(status)
        if not is_kept:
            os.close(handle)


def _is_open(found: Identity, besides: int = -1) -> bool:
    """Whether this process has a file open by any descriptor but ``besides`` and the kept ones."""
    own = {besides, *_kept_open}
    with suppress(OSError):
        for number in map(int, os.listdir("/dev/fd")):  # noqa: PTH208 - numbers, not paths
            with suppress(OSError):
                if number not in own and _identity(os.fstat(number)) == found:
                    return True
    return False


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


def require_size(size: int) -> None:
    """Raise Unreadable if a file of this size is over the budget."""
    limit = byte_budget()
    if size > limit:
        raise Unreadable(
            f"it is {size} bytes, over the limit of {limit}, and was not read: "
            f"{VARIABLE} sets another limit"
        )


def _require_room(size: int) -> None:
    """Raise Unreadable if this many bytes cannot be decoded in the free memory."""
    if size > memory_left():
        raise Unreadable(f"it is {size} bytes and needs more memory than this machine has left")


def read_all(handle: int) -> bytes:
    """Return all of a file that :func:`open_regular` has opened; raise Unreadable over a budget."""
    size = os.fstat(handle).st_size
    require_size(size)
    if size > LARGE:
        _require_room(size)
    pieces: list[bytes] = []
    count = 0
    while size and (piece := os.read(handle, max(_CHUNK, size - count))):
        pieces.append(piece)
        count += len(piece)
        if count > size + _GROWTH:
            raise Unreadable("it returns more bytes than its size says, and was not read")
    return b"".join(pieces)


def read_stream(stream: IO[bytes]) -> bytes:
    """Return all of a stream, such as standard input; raise Unreadable if it is over the budget."""
    limit = byte_budget()
    data = bytearray()
    # Read pieces as they come: a read that waits for everything cannot be interrupted by Ctrl-C.
    take = getattr(stream, "read1", stream.read)
    with reading_errors():
        while piece := take(_CHUNK):
            data += piece
            if len(data) > limit:
                raise Unreadable(f"it is over the limit of {limit} bytes: {VARIABLE} sets another")
            if len(data) > LARGE and len(data) % LARGE < len(piece):
                _require_room(len(data))
    return bytes(data)


@contextmanager
def reading_errors() -> Iterator[None]:
    """Turn an OSError into Unreadable, with the reason but without a name."""
    try:
        yield
    except OSError as error:
        raise Unreadable(reason_of(error)) from error


# Decoded JSON of real conversations takes two to four times the bytes of its text.
FACTOR = 4


def memory_left() -> int:
    """Return the size of the largest input that this process has memory for, as far as is known."""
    left = [sys.maxsize]
    with suppress(ImportError):
        import resource  # noqa: PLC0415 - not on Windows

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            left.append(soft)
    with suppress(OSError, StopIteration):
        rows = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kilobytes = next(row.split()[1] for row in rows if row.startswith("MemAvailable:"))
        left.append(int(kilobytes) * 1024)
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit, used = (
            int((group / name).read_text(encoding="ascii"))
            for name in ("memory.max", "memory.current")
        )
        left.append(limit - used)
    return min(left) // FACTOR


ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_SUFFIX = ".zst"
# A byte unpacks to at most 32 KiB, so one step takes at most 32 MiB.
_ZSTD_STEP = 1 << 10
_WINDOW = 1 << 27
# The level that Codex uses.
_ZSTD_LEVEL = 3
_MISSING = "it is packed with Zstandard, which needs: pip install 'lockstitch[zstd]'"


class Unpacked(Struct, frozen=True):
    """The unpacked content; not ``whole`` if the file breaks off or is damaged after it."""

    data: bytes
    whole: bool


def is_packed(path: str) -> bool:
    """Whether a file is packed, judged by its name."""
    return path.endswith(ZSTD_SUFFIX)


def is_shadowed_by_plain(path: str) -> bool:
    """Whether the same file stands beside it unpacked; its program reads that instead."""
    return is_packed(path) and os.path.lexists(path.removesuffix(ZSTD_SUFFIX))


def unpack(data: bytes, limit: int | None = None) -> Unpacked:
    """Return the unpacked content; raise Unreadable if it is over the limit.

    Without a ``limit``, that of any packed input applies.
    """
    library = _zstandard()
    limit = unpacked_budget(len(data)) if limit is None else limit
    pieces: list[bytes] = []
    size = 0
    whole = False
    try:
        for piece, ended in _unpack_steps(library, (data,)):
            pieces.append(piece)
            size += len(piece)
            whole = ended
            if size > limit:
                raise Unreadable(
                    f"it is over the limit of {limit} bytes once it is unpacked: "
                    f"{VARIABLE} sets another limit"
                )
    except library.ZstdError:
        whole = False
    return Unpacked(b"".join(pieces), whole)


def unpacked_head(path: str, size: int) -> bytes:
    """Return the beginning of the unpacked content of a file."""
    library = _zstandard()
    found = b""
    with open_regular(path) as handle:
        try:
            for piece, _ in _unpack_steps(library, iter(lambda: os.read(handle, _ZSTD_STEP), b"")):
                found += piece
                if len(found) >= size:
                    break
        except library.ZstdError:
            pass
    return found[:size]


def pack(data: bytes) -> bytes:
    """Pack data as Codex does."""
    packed: bytes = _zstandard().ZstdCompressor(level=_ZSTD_LEVEL).compress(data)
    return packed


def _unpack_steps(library: ModuleType, chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Unpack frame after frame; yield each piece, and whether a frame has just ended."""
    unpacker = library.ZstdDecompressor(max_window_size=_WINDOW)
    frame = None
    for chunk in chunks:
        for at in range(0, len(chunk), _ZSTD_STEP):
            rest = chunk[at : at + _ZSTD_STEP]
            while rest:
                frame = frame or unpacker.decompressobj()
                piece = frame.decompress(rest)
                rest = frame.unused_data if frame.eof else b""
                yield piece, frame.eof and not rest
                frame = None if frame.eof else frame


def _zstandard() -> ModuleType:
    try:
        import zstandard  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise UsageError(_MISSING) from None
    return zstandard
