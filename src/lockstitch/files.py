"""Reading a file once and replacing it so that nobody loses anything.

A reader, or a crash, sees the old file or the new one, never less; and a line that another
program appends meanwhile is in the new file, or the old file stays.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from lockstitch import disk
from lockstitch.errors import Busy, Conflict, Unreadable, UsageError

_REASONS = {
    errno.ENOENT: "no such file",
    errno.ENOTDIR: "no such file",
    errno.EACCES: "permission denied",
}
_NEWLINES = (b"\n", b"\r\n")
_CHANGED = "changed while it was being repaired; nothing was written"


class Snapshot(Struct, frozen=True):
    """What was read, once: the bytes and the status of the very same open file."""

    path: str
    data: bytes
    device: int
    inode: int
    size: int
    digest: str
    mode: int
    uid: int
    gid: int
    mtime_ns: int

    def __repr__(self) -> str:
        """Name the file without its content."""
        return f"Snapshot({self.path!r}, {self.size} bytes)"


class Replaced(Struct, frozen=True):
    """A finished replacement.

    ``carried`` is how many bytes stand behind the data because others appended them meanwhile;
    ``digest`` and ``size`` are of the whole new file, these bytes included.
    """

    path: str
    digest: str
    size: int
    carried: int
    device: int
    inode: int


class Patience(Struct, frozen=True):
    """How long to wait, in seconds: for a writer to finish before and after the replacement,
    for the rest of a torn line, for stragglers that are about to open the old file.
    """

    held: float = 0.5
    following: float = 2.0
    torn: float = 0.25
    grace: float = 0.05
    step: float = 0.001


PATIENCE = Patience()
_LIVE = 60.0  # seconds after its last change in which a file counts as in use


def snapshot(path: str | Path, *, follow_symlinks: bool = False) -> Snapshot:
    """Read a regular file as a whole; raises Unreadable or UsageError, without the path."""
    name = os.path.realpath(path) if follow_symlinks else os.fspath(path)
    handle = _open(name)
    try:
        found = os.fstat(handle)
        _require_regular(found)
        data = disk.read(handle)
    except OSError as error:
        raise Unreadable(error.strerror or "cannot be read") from error
    finally:
        os.close(handle)
    return Snapshot(
        path=name,
        data=data,
        device=found.st_dev,
        inode=found.st_ino,
        size=len(data),
        digest=digest_of(data),
        mode=stat.S_IMODE(found.st_mode),
        uid=found.st_uid,
        gid=found.st_gid,
        mtime_ns=found.st_mtime_ns,
    )


def digest_of(data: bytes) -> str:
    """The name of some bytes in manifests: SHA-256, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _open(name: str) -> int:
    try:
        if os.path.islink(name):
            raise UsageError(
                "is a symbolic link; name the file itself, or allow it with --follow-symlinks"
            )
        return os.open(name, disk.READING)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or "cannot be read")
        raise Unreadable(reason) from error
    except ValueError as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError("is no possible name of a file") from error


def _require_regular(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise UsageError("is a folder, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise UsageError("is not a regular file")


def joined(head: bytes, tail: bytes) -> bytes:
    """Put lines behind some content, so that no two records are glued together."""
    if not head or not tail or head.endswith(b"\n"):
        return head + tail
    return head + tail if tail.startswith(_NEWLINES) else b"".join((head, b"\n", tail))


def write_atomically(path: str | Path, data: bytes) -> None:
    """Replace a file's content as a whole, durably, or raise and leave it as it was.

    The data goes to a temporary file in the same folder, is fsynced, renamed, and the folder is
    fsynced. A new file gets mode 0600; an existing one keeps its mode and, where allowed, its
    owner. A symbolic link is followed; a device or a pipe cannot be replaced and is written to.
    """
    existing = _status(path)
    if existing and not stat.S_ISREG(existing.st_mode):
        Path(path).write_bytes(data)
        return
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    with disk.draft(folder) as new:
        disk.write(new.handle, data)
        if existing:
            disk.adopt(new.handle, existing)
        os.fsync(new.handle)
        new.close()
        os.replace(new.path, target)
    disk.sync_folder(folder)


def _status(path: str | Path) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except FileNotFoundError:
        return None


def replace(before: Snapshot, data: bytes, *, patience: Patience = PATIENCE) -> Replaced:
    """Put ``data`` in place of what was read, durably, or raise and leave the file as it is.

    What others appended since the snapshot stands behind the data, also what they still append
    to the old file while it is being replaced. Raises Conflict if the file changed in any other
    way (read it again and plan again), Busy if a program holds it open, OSError if the disk,
    the folder or the owner does not allow it.
    """
    folder = os.path.dirname(before.path) or "."
    disk.tidy(folder)
    with _blaming(before.path), _reopened(before) as old, disk.draft(folder) as new:
        move = _Move(before, data, old, new, patience)
        move.fill()
        move.catch_up()
        if sys.platform == "win32":
            return move.finish_on_windows()
        return move.finish()


@contextmanager
def _blaming(path: str) -> Iterator[None]:
    """Name the file the user knows in every failure: the temporary one means nothing to them."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


@contextmanager
def _reopened(before: Snapshot) -> Iterator[int]:
    try:
        handle = os.open(before.path, disk.READING)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            raise Conflict("was moved or removed while it was being repaired; nothing was written") from error
        raise
    try:
        if not _is(os.fstat(handle), before):
            raise Conflict("was replaced while it was being repaired; nothing was written")
        yield handle
    finally:
        os.close(handle)


def _is(found: os.stat_result, file: Snapshot) -> bool:
    return (found.st_dev, found.st_ino) == (file.device, file.inode)


class _Move:
    """One replacement on its way.

    ``taken`` is how much of the old file is in the new one, and ``torn`` whether that much ends
    inside a line; ``written`` is how long the new file was when it was last written to by us,
    and ``ended`` whether that ended a line. ``carried`` are the pieces added since the swap.
    """

    def __init__(
        self, before: Snapshot, data: bytes, old: int, new: disk.Draft, patience: Patience
    ) -> None:
        self.before = before
        self.data = data
        self.old = old
        self.new = new
        self.patience = patience
        self.taken = before.size
        self.torn = _is_torn(before.data)
        self.ended = not _is_torn(data)
        self.written = len(data)
        self.carried: list[bytes] = []
        self.swapped = False
