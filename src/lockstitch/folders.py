"""Folders that are opened once, and everything in them done relative to that.

A path is looked up anew at every call, so that whoever may write to a folder above can put a link
or another folder in its place between two of them. A descriptor stays what it was. Windows has no
such calls; there a folder is its path.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from lockstitch.errors import UsageError

NOT_OFFERED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}
_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_EXCHANGE = 2  # RENAME_EXCHANGE
_HERE = -100  # AT_FDCWD
_BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.listdir in os.supports_fd


class Folder:
    """A folder to work in; ``handle`` is None where it can only be named by its path."""

    def __init__(self, path: Path, handle: int | None = None) -> None:
        self.path = path
        self.handle = handle

    def close(self) -> None:
        """Close the descriptor, once."""
        handle, self.handle = self.handle, None
        if handle is not None:
            os.close(handle)

    def status(self) -> os.stat_result:
        """Return the status of the folder itself."""
        return self.path.lstat() if self.handle is None else os.fstat(self.handle)

    def names(self) -> list[str]:
        """Return the names in it."""
        return os.listdir(self.path if self.handle is None else self.handle)  # noqa: PTH208

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        """Open a file in it."""
        if self.handle is None:
            return os.open(self.path / name, flags, mode)
        return os.open(name, flags, mode, dir_fd=self.handle)

    def look(self, name: str) -> os.stat_result | None:
        """Return the status of what has a name, a link itself; None if nothing has it."""
        try:
            if self.handle is None:
                return (self.path / name).lstat()
            return os.stat(name, dir_fd=self.handle, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def remove(self, name: str) -> None:
        """Remove a name, if it is there."""
        try:
            if self.handle is None:
                os.unlink(self.path / name)  # noqa: PTH108 - the other way is one with a descriptor
            else:
                os.unlink(name, dir_fd=self.handle)
        except FileNotFoundError:
            pass

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, also one that is taken; a link is replaced, not followed."""
        if self.handle is None:
            os.replace(self.path / old, self.path / new)  # noqa: PTH105 - as above
        else:
            os.replace(old, new, src_dir_fd=self.handle, dst_dir_fd=self.handle)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name."""
        if self.handle is None:
            os.link(self.path / old, self.path / new, follow_symlinks=False)
        else:
            options = {"src_dir_fd": self.handle, "dst_dir_fd": self.handle}
            os.link(old, new, follow_symlinks=False, **options)

    def exchange(self, one: str, other: str) -> bool:
        """Exchange two names in one step; False where the file system does not offer that."""
        call = None if sys.platform != "linux" else getattr(_libc(), "renameat2", None)
        if call is None:
            return False
        at = _HERE if self.handle is None else self.handle
        names = [os.fsencode(self.path / n if self.handle is None else n) for n in (one, other)]
        if call(at, names[0], at, names[1], _EXCHANGE) == 0:
            return True
        number = ctypes.get_errno()
        if number in NOT_OFFERED:
            return False
        raise OSError(number, os.strerror(number), str(self.path / other))

    def sync(self) -> None:
        """Make the names in it durable; Windows has no way to ask for that."""
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

    def make(self, name: str) -> None:
        """Make a private folder in it."""
        if self.handle is None:
            (self.path / name).mkdir(mode=0o700)
        else:
            os.mkdir(name, 0o700, dir_fd=self.handle)

    def inside(self, name: str) -> Folder:
        """Open a folder in it; raises OSError if there is none, or a link in its place."""
        if self.handle is not None:
            handle = os.open(name, _FLAGS | _NOFOLLOW, dir_fd=self.handle)
            return Folder(self.path / name, handle)
        found = (self.path / name).lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return Folder(self.path / name)


@contextmanager
def folder_at(path: str | Path) -> Iterator[Folder]:
    """Open a folder by the path that somebody named, through whatever links are on it."""
    found = Folder(Path(path))
    if _BY_DESCRIPTOR and sys.platform != "win32":
        try:
            found.handle = os.open(found.path, _FLAGS)
        except ValueError as error:
            raise UsageError("is no possible name of a file") from error
    try:
        yield found
    finally:
        found.close()


def walk(
    top: str, onerror: Callable[[OSError], object]
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk through a folder as ``os.walk`` does, which cannot go a thousand deep everywhere."""
    left = [top]
    while left:
        root = left.pop()
        inner: list[str] = []
        names: list[str] = []
        try:
            with os.scandir(root) as entries:
                for entry in entries:
                    (inner if _is_folder(entry) else names).append(entry.name)
        except OSError as error:
            onerror(error)
            continue
        yield root, inner, names
        below = (os.path.join(root, name) for name in reversed(inner))  # noqa: PTH118 - many
        left += [path for path in below if not os.path.islink(path)]  # noqa: PTH114 - as above


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
