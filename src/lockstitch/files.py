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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from lockstitch import disk, inputs
from lockstitch.errors import Busy, Conflict, UsageError
from lockstitch.folders import Folder, folder_at
from lockstitch.moves import CHANGED, GONE, NEWLINES, PATIENCE, Move, Patience, Replaced

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


def snapshot(
    path: str | Path, *, follow_symlinks: bool = False, folder: Folder | None = None
) -> Snapshot:
    """Read a regular file as a whole, by its path or by its name in a folder.

    Raises Unreadable or UsageError, without the path.
    """
    name = os.path.realpath(path) if follow_symlinks else os.fspath(path)
    _require_no_link(name, folder)
    with inputs.opened(name, disk.READING, folder) as handle:
        found = inputs.status_of(handle)
        data = inputs.read(handle)
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


def _require_no_link(name: str, folder: Folder | None) -> None:
    """Say so where it is a link; opening it would only say that it cannot be opened."""
    found = None
    with suppress(OSError, ValueError):
        found = Path(name).lstat() if folder is None else folder.look(name)
    if found is not None and stat.S_ISLNK(found.st_mode):
        raise UsageError(
            "is a symbolic link; name the file itself, or allow it with --follow-symlinks"
        )


def digest_of(data: bytes) -> str:
    """The name of some bytes in manifests: SHA-256, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


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
        if force or _status(path) is not None:
            write_atomically(path, data)
            return
        # A link to a file that is not there is a name that is taken, whoever put it there.
        with folder_at(Path(path).parent) as folder:
            try:
                create_in(folder, Path(path).name, data)
            except FileExistsError:
                raise UsageError(_EXISTS.format(path)) from None


Dress = Callable[[int], object]


def create_in(folder: Folder, name: str, data: bytes, dress: Dress | None = None) -> None:
    """Write a new file as a whole, durably; raises FileExistsError if anything has its name.

    It is private and our own, unless ``dress`` gives the open file another owner or mode.
    """
    with disk.draft(folder) as new:
        _fill(new, data, dress)
        disk.place(new, name)
    folder.sync()


def write_in(folder: Folder, name: str, data: bytes, dress: Dress | None = None) -> None:
    """Write a file as :func:`create_in` does, in the place of what has its name: of a link, too."""
    with disk.draft(folder) as new:
        _fill(new, data, dress)
        folder.rename(new.name, name)
    folder.sync()


def _fill(new: disk.Open, data: bytes, dress: Dress | None) -> None:
    disk.write(new.handle, data)
    if dress is not None:
        dress(new.handle)
    disk.sync(new.handle)
    new.close()


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
        _pour(path, data)
        return
    target = Path(path).resolve()
    with folder_at(target.parent) as folder:
        found = folder.look(target.name)
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise UsageError(f"{path}: was replaced while it was looked at; nothing was written")
        write_in(folder, target.name, data, found and partial(disk.adopt, old=found))


def _pour(path: str | Path, data: bytes) -> None:
    """Write to a device or a pipe; a file that has come in its place is left alone."""
    handle = os.open(path, os.O_WRONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0))
    try:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            raise UsageError(f"{path}: was replaced while it was looked at; nothing was written")
        disk.write(handle, data)
    finally:
        os.close(handle)


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
    with reopened(before, patience) as old:
        return old.replace(data)


class Reopened:
    """A file that was read and is open once more, in its folder, locked against other repairs."""

    def __init__(self, before: Snapshot, old: disk.Open, patience: Patience) -> None:
        self.before = before
        self.old = old
        self.patience = patience
        self.is_replaced = False

    @property
    def folder(self) -> Folder:
        """The folder that it is in."""
        return self.old.folder

    def replace(self, data: bytes) -> Replaced:
        """Put data in its place, as :func:`replace` says; ``is_replaced`` tells if it is there."""
        disk.tidy(self.old.folder)
        with blaming(self.before.path), disk.draft(self.old.folder) as new:
            move = Move(self.before, data, self.old, new, self.patience)
            move.fill()
            move.catch_up()
            # Until it is known that it is not: what is replaced must not lose its backup.
            self.is_replaced = True
            try:
                return move.finish()
            except BaseException:
                self.is_replaced = move.is_in_place()
                raise


@contextmanager
def blaming(path: str) -> Iterator[None]:
    """Name the file the user knows in every failure: the temporary one means nothing to them."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


@contextmanager
def reopened(before: Snapshot, patience: Patience = PATIENCE) -> Iterator[Reopened]:
    """Open the very file that was read once more, in its folder, locked against other repairs.

    Raises Conflict if it is no longer there, and Busy if the lock is not to be had.
    """
    path = Path(before.path)
    with blaming(before.path), folder_at(path.parent) as folder:
        try:
            old = disk.Open(folder, path.name, folder.open(path.name, disk.READING))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP):
                raise Conflict(GONE) from error
            raise
        try:
            found = os.fstat(old.handle)
            if (found.st_dev, found.st_ino) != (before.device, before.inode):
                raise Conflict(CHANGED)
            deadline = time.monotonic() + patience.held
            while disk.is_locked(old.handle):
                if time.monotonic() > deadline:
                    raise Busy("is locked by another program; nothing was written")
                time.sleep(patience.step)
            # Who had the lock may have replaced it.
            again = folder.look(path.name)
            if again is None or (again.st_dev, again.st_ino) != (before.device, before.inode):
                raise Conflict(CHANGED if again else GONE)
            yield Reopened(before, old, patience)
        finally:
            old.close()
