"""Reading a file once and replacing it so that nobody loses anything.

A reader, or a crash, sees the old file or the new one, never less; and a line that another
program appends meanwhile is in the new file, or the old file stays.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from lockstitch import disk
from lockstitch.errors import Busy, Conflict, Unreadable, UsageError, reason_of
from lockstitch.moves import GONE, NEWLINES, PATIENCE, Move, Patience, Replaced

BACKUPS = ".lockstitch"  # the folder for them, beside the file
_EXISTS = "{}: exists; nothing was written: give another name to -o, or --force to overwrite it"


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
        if not Path(name).is_symlink():
            return os.open(name, disk.READING)
    except OSError as error:
        raise Unreadable(reason_of(error)) from error
    except ValueError as error:
        raise UsageError("is no possible name of a file") from error
    raise UsageError("is a symbolic link; name the file itself, or allow it with --follow-symlinks")


def _require_regular(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise UsageError("is a folder, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise UsageError("is not a regular file")


def joined(head: bytes, tail: bytes) -> bytes:
    """Put lines behind some content, so that no two records are glued together."""
    if not head or not tail or head.endswith(b"\n"):
        return head + tail
    return head + tail if tail.startswith(NEWLINES) else b"".join((head, b"\n", tail))


def write_new(
    path: str | Path,
    data: bytes,
    *,
    force: bool = False,
    sources: Iterable[str | Path | int] = (),
) -> None:
    """Write a copy of something, as :func:`write_atomically` does, over no file that exists.

    ``force`` allows that for any file but the ``sources`` that the copy is of, however they are
    spelled. Raises UsageError as :func:`require_new` does.
    """
    require_new(path, force=force, sources=sources)
    with blaming(str(path)):
        if force or os.path.lexists(path):
            write_atomically(path, data)
            return
        target = Path(path).resolve()
        with disk.draft(target.parent) as new:
            disk.write(new.handle, data)
            disk.sync(new.handle)
            new.close()
            try:
                disk.place(new, target)
            except FileExistsError:
                raise UsageError(_EXISTS.format(path)) from None
        disk.sync_folder(target.parent)


def require_new(
    path: str | Path, *, force: bool = False, sources: Iterable[str | Path | int] = ()
) -> None:
    """Raise UsageError if a copy would be written over what it is of, or over another file.

    A source is a path, or an open file. A device or a pipe is nothing that could be overwritten.
    """
    if Path(os.path.realpath(path)).parent.name == BACKUPS:
        raise UsageError(f"{path}: is among the backups; nothing was written: give another name")
    found = _status(path)
    if found is None:
        return
    if stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{path}: is a folder; -o takes the name of a file")
    for source in sources:
        with suppress(OSError):
            own = os.fstat(source) if isinstance(source, int) else Path(source).stat()
            if os.path.samestat(found, own) and stat.S_ISREG(found.st_mode):
                raise UsageError(
                    f"{path}: is what is read; nothing was written: give another name to -o"
                )
    if stat.S_ISREG(found.st_mode) and not force:
        raise UsageError(_EXISTS.format(path))


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
    target = Path(path).resolve()
    with disk.draft(target.parent) as new:
        disk.write(new.handle, data)
        if existing:
            disk.adopt(new.handle, existing)
        disk.sync(new.handle)
        new.close()
        new.path.replace(target)
    disk.sync_folder(target.parent)


def _status(path: str | Path) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UsageError("is no possible name of a file") from error


def replace(before: Snapshot, data: bytes, *, patience: Patience = PATIENCE) -> Replaced:
    """Put ``data`` in place of what was read, durably, or raise and leave the file as it is.

    What others appended since the snapshot stands behind the data, also what they still append
    to the old file while it is being replaced. Raises Conflict if the file changed in any other
    way (read it again and plan again), Busy if a program holds it open, OSError if the disk,
    the folder or the owner does not allow it.
    """
    folder = Path(before.path).parent
    disk.tidy(folder)
    with blaming(before.path), _reopened(before, patience) as old, disk.draft(folder) as new:
        move = Move(before, data, old, new, patience)
        move.fill()
        move.catch_up()
        return move.finish()


@contextmanager
def blaming(path: str) -> Iterator[None]:
    """Name the file the user knows in every failure: the temporary one means nothing to them."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


@contextmanager
def _reopened(before: Snapshot, patience: Patience) -> Iterator[disk.Open]:
    """Open the file that was read once more, locked against other repairs."""
    try:
        old = disk.Open(Path(before.path), os.open(before.path, disk.READING))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            raise Conflict(GONE) from error
        raise
    try:
        deadline = time.monotonic() + patience.held
        while disk.is_locked(old.handle):
            if time.monotonic() > deadline:
                raise Busy("is locked by another program; nothing was written")
            time.sleep(patience.step)
        yield old
    finally:
        old.close()
