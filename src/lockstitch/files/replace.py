"""Read a file once, and replace it so that nobody loses anything.

A reader sees the old file or the new one, never less, even after a crash. A line that another
program appends in the meantime gets into the new file, or the old file stays. The new file is
finished beside the old one, the two swap names in one step, and what still arrives in the old file
is carried over. Until all of that is done there is a way back: the files are swapped again, and the
old one is as whole as if nothing had happened.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path

from msgspec import Struct

from lockstitch.errors import Busy, Conflict, UsageError
from lockstitch.files import os_files, read
from lockstitch.files.read import Folder, folder_at

CHANGED = "it changed while it was being repaired; nothing was written"
GONE = "it was moved or removed while it was being repaired; nothing was written"
_NO_WAY_BACK = (
    "it changed at the very moment it was being replaced, on a file system that cannot undo "
    "that: the new content is in place, and what was read is in the backup"
)
NEWLINES = (b"\n", b"\r\n")
ENDED = (b"", b"\n")  # the last byte of content that does not end inside a line
_LIVE = 60.0  # seconds after its last change in which a file counts as in use
_HURRY = 0.02  # seconds after a swap in which to look again without a pause


class Replaced(Struct, frozen=True):
    """A finished replacement.

    ``carried`` is the number of bytes after the data that others appended in the meantime.
    ``digest`` and ``size`` are those of the whole new file, including these bytes.
    """

    path: str
    digest: str
    size: int
    carried: int
    device: int
    inode: int


class Patience(Struct, frozen=True):
    """How long to wait, in seconds.

    ``held`` and ``following`` are for a writer to finish before and after the swap, ``torn`` is for
    the rest of a torn line, and ``grace`` for writers who are about to open the old file.
    """

    held: float = 0.5
    following: float = 2.0
    torn: float = 0.25
    grace: float = 0.05
    step: float = 0.001


PATIENCE = Patience()


class Replacement(Struct, kw_only=True):
    """One replacement in progress.

    ``taken`` is how much of the old file is in the new one, and ``torn`` whether that much ends
    inside a line. ``written`` is where our last write to the new file ended, and ``ended`` whether
    that ended a line. ``size_at_swap`` is the length of the new file at the swap, ``added`` are the
    ranges in it that were taken over from the old file, and ``returned`` is how many bytes
    that others wrote to it after the swap went back to the old file.
    """

    before: Snapshot
    data: bytes
    old: os_files.OpenFile
    new: os_files.OpenFile
    patience: Patience
    folder: Folder
    watch: os_files.WriterWatch
    inode: int
    taken: int
    torn: bool
    written: int
    ended: bool
    size_at_swap: int = 0
    added: list[tuple[int, int]] = []
    reversible: bool = False
    returned: int = 0

    def catch_up(self) -> None:
        """Take over what was appended since, until a moment when nobody is writing."""
        start = time.monotonic()
        self._require_beginning()
        while True:
            grown = os_files.read_from(self.old.handle, self.taken)
            if grown:
                self._take_over(grown)
                os_files.sync_file(self.new.handle)
            held = self.watch.is_held(self.old.handle)
            late = time.monotonic() - start
            # Half a line at the end may be one that is being written now.
            age = time.time() - os.fstat(self.old.handle).st_mtime
            may_grow = self.torn and age < self.patience.torn
            if not held and (late > self.patience.held or not (grown or may_grow)):
                return
            if held and late > 2 * self.patience.held:
                raise Busy(_busy(self.old.handle))
            time.sleep(self.patience.step)

    def finish(self) -> Replaced:
        """Swap the files and carry over what still arrives in the old one, or swap them back."""
        try:
            self._require_at(self.old.name, self.before.inode)
            self.size_at_swap = self.written
            if sys.platform == "win32":
                self._replace_on_windows()
            else:
                try:
                    self.reversible = os_files.swap_names(self.folder, self.new.name, self.old.name)
                except FileNotFoundError:
                    raise Conflict(GONE) from None
                if self.reversible:
                    # another program may have replaced the file just before the swap
                    self._require_at(self.new.name, self.before.inode)
                self._follow()
                # meanwhile a program may have changed the old file, or replaced the new one
                self._require_beginning()
                self._require_at(self.old.name, self.inode)
            tail = os_files.read_from(self.new.handle, len(self.data))
            return Replaced(
                path=self.before.path,
                digest=self.before.digest_of(self.data, tail),
                size=len(self.data) + len(tail),
                carried=len(tail),
                device=self.before.device,
                inode=self.inode,
            )
        except BaseException:
            self._put_back()
            raise

    def _replace_on_windows(self) -> None:
        """Rename the new file over the old one, waiting while a program has that open.

        On Windows a rename fails as long as anyone, such as an indexer, has the file open.
        """
        self.old.close()
        self.new.close()
        deadline = time.monotonic() + self.patience.following
        while True:
            try:
                self.folder.rename(self.new.name, self.old.name)
            except PermissionError:
                if time.monotonic() > deadline:
                    raise Busy("it is open in another program; nothing was written") from None
                time.sleep(self.patience.grace)
            else:
                self.new.handle = self.folder.open(self.old.name, os_files.READING)
                return

    def _follow(self) -> None:
        """Carry over what writers append that had opened the old file before the swap."""
        start = quiet = time.monotonic()
        is_live = self.added or time.time() - os.fstat(self.old.handle).st_mtime < _LIVE
        grace = self.patience.grace if is_live else 0.0
        while True:
            held = self.watch.is_held(self.old.handle)
            grown = os_files.read_from(self.old.handle, self.taken)
            if held:  # whole lines only: the rest of the last one is still to come
                grown = grown[: grown.rfind(b"\n") + 1]
            if grown:
                if os.fstat(self.new.handle).st_size != self.written:
                    if grown[-1:] not in ENDED and self.reversible:
                        # The other half of this line may already stand in the new file.
                        raise Conflict(CHANGED)
                    self._await_line_end()
                self._take_over(grown)
            now = time.monotonic()
            quiet = now if held else quiet
            if not held and now - quiet >= grace:
                break
            if held and now - start > self.patience.following:
                raise Busy(_busy(self.old.handle))
            # Right after a swap there is no time to lose: half a line may wait for its rest.
            time.sleep(0 if now - start < _HURRY else self.patience.step)
        if self.written > self.size_at_swap:
            os_files.sync_file(self.new.handle)
        self.folder.sync()

    def _take_over(self, grown: bytes) -> None:
        """Write the next bytes of the old file to the new one, so that lines stay lines."""
        is_first = self.taken == self.before.size
        if is_first and self.torn and not grown.startswith(NEWLINES):
            raise Conflict(CHANGED)
        self.taken += len(grown)
        was_torn, self.torn = self.torn, grown[-1:] not in ENDED
        if was_torn and self.ended and is_first:
            grown = grown.removeprefix(b"\r").removeprefix(b"\n")
        elif not was_torn and not self.ended:
            grown = b"\n" + grown
        if grown:
            count = os.write(self.new.handle, grown)
            self.written = os.lseek(self.new.handle, 0, os.SEEK_CUR)
            self.added.append((self.written - count, self.written))
            if count < len(grown):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.ended = grown[-1:] in ENDED

    def _await_line_end(self) -> None:
        """Wait until those who append to the new file have finished their line."""
        deadline = time.monotonic() + self.patience.torn
        while True:
            size = os.fstat(self.new.handle).st_size
            self.ended = not size or os_files.read_from(self.new.handle, size - 1, 1) == b"\n"
            if self.ended or time.monotonic() > deadline:
                return
            time.sleep(self.patience.step)

    def _require_beginning(self) -> None:
        """Raise Conflict unless the old file still begins with what was read."""
        data = self.before.data
        for place in range(0, len(data), os_files.CHUNK):
            # A slice is copied, and still ten times faster to compare than a view of these bytes.
            known = data[place : place + os_files.CHUNK]
            if os_files.read_from(self.old.handle, place, len(known)) != known:
                raise Conflict(CHANGED)

    def _require_at(self, name: str, inode: int) -> None:
        found = self.folder.look(name)
        if found is None:
            raise Conflict(GONE)
        if (found.st_dev, found.st_ino) != (self.before.device, inode):
            raise Conflict(CHANGED)

    def is_new_at(self, name: str) -> bool:
        """Whether a name belongs to the new file; the old file's name does once it is in place."""
        found = self.folder.look(name)
        return found is not None and (found.st_dev, found.st_ino) == (
            self.before.device,
            self.inode,
        )

    def _put_back(self) -> None:
        """Swap the files back if they were swapped, as if nothing had happened."""
        if not self.is_new_at(self.old.name):
            return
        if self.folder.look(self.new.name) is None:
            raise Conflict(_NO_WAY_BACK)
        self.new.kept = True
        leaving = self.folder.open(self.old.name, os_files.READING)
        try:
            self.new.close()
            self._return_lines(leaving, self.new.name, grace=0.0)
            os_files.swap_names(self.folder, self.new.name, self.old.name)
            if self.is_new_at(self.new.name):
                self._return_lines(leaving, self.old.name, grace=self.patience.grace)
            else:  # Someone replaced the new file in this instant: theirs stays.
                os_files.swap_names(self.folder, self.new.name, self.old.name)
        finally:
            os.close(leaving)
        self.new.kept = False
        os_files.sync_file(self.old.handle)
        self.folder.sync()

    def _return_lines(self, leaving: int, target: str, *, grace: float) -> None:
        """Append to the old file what others append to the new one, until nobody does."""
        start = quiet = time.monotonic()
        while True:
            held = self.watch.is_held(leaving)
            # The lines in the new file since the swap that were not added by us.
            found = os_files.read_from(leaving)
            ends = [self.size_at_swap, *(end for _, end in self.added if end > self.size_at_swap)]
            starts = [*(begin for begin, _ in self.added if begin >= self.size_at_swap), len(found)]
            of_others = (found[end:begin] for end, begin in zip(ends, starts, strict=True))
            lines = b"".join(of_others)[self.returned :]
            if lines:
                handle = self.folder.open(target, os_files.APPENDING)
                try:
                    os_files.write_all(handle, lines)
                finally:
                    os.close(handle)
                self.returned += len(lines)
            now = time.monotonic()
            quiet = now if held or lines else quiet
            is_quiet = not (held or lines) and now - quiet >= grace
            if is_quiet or now - start > self.patience.following:
                return
            time.sleep(0 if now - start < _HURRY else self.patience.step)


def _busy(handle: int) -> str:
    pids = os_files.holders(handle)
    who = f"process {', '.join(map(str, pids))} has" if pids else "a process has"
    return (
        f"{who} it open for writing, and would continue to write to the old file; nothing was "
        "written: end that program first, or repair a copy"
    )


BACKUPS = ".lockstitch"  # the folder for them, beside the file
_REPLACED = "it was replaced while it was being examined; nothing was written"
_EXISTS = (
    "it exists; nothing was written: choose another name for -o, or use --force to overwrite it"
)


class Snapshot(Struct, frozen=True, dict=True):
    """What was read, once: the bytes, and the status of the same open file."""

    path: str
    data: bytes
    device: int
    inode: int
    size: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int

    def __repr__(self) -> str:
        """Name the file without its content."""
        return f"Snapshot({self.path!r}, {self.size} bytes)"

    @property
    def digest(self) -> str:
        """The SHA-256 of the content."""
        return self._hashes[-1].hexdigest()

    @cached_property
    def _hashes(self) -> list[hashlib._Hash]:
        """The running hash: before the first chunk, and after each."""
        hashes = [hashlib.sha256()]
        view = memoryview(self.data)
        for start in range(0, self.size, os_files.CHUNK):
            hashes.append(hashes[-1].copy())
            hashes[-1].update(view[start : start + os_files.CHUNK])
        return hashes

    def digest_of(self, data: bytes, behind: bytes = b"") -> str:
        """Return the digest of other content, followed by ``behind``.

        The part at the start that is the same as here is not hashed again.
        """
        size, start = os_files.CHUNK, 0
        while start < self.size and data[start : start + size] == self.data[start : start + size]:
            start += size
        found = self._hashes[start // size].copy()
        found.update(memoryview(data)[start:])
        found.update(behind)
        return found.hexdigest()


def snapshot(
    path: str | Path, *, follow_symlinks: bool = False, folder: Folder | None = None
) -> Snapshot:
    """Read a whole regular file, by its path or by its name in a folder.

    Raises Unreadable or UsageError, without the path.
    """
    name = os.path.realpath(path) if follow_symlinks else os.fspath(path)
    found = None
    with suppress(OSError, ValueError):
        found = Path(name).lstat() if folder is None else folder.look(name)
    # Opening a link would only fail without saying why.
    if found is not None and stat.S_ISLNK(found.st_mode):
        raise UsageError(
            "it is a symbolic link; name the file itself, or allow it with --follow-symlinks"
        )
    with read.open_regular(name, os_files.READING, folder) as handle:
        found = os.fstat(handle)
        data = read.read_all(handle)
    return Snapshot(
        path=name,
        data=data,
        device=found.st_dev,
        inode=found.st_ino,
        size=len(data),
        mode=stat.S_IMODE(found.st_mode),
        uid=found.st_uid,
        gid=found.st_gid,
        mtime_ns=found.st_mtime_ns,
    )


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of some bytes in hexadecimal digits, as in manifests."""
    return hashlib.sha256(data).hexdigest()


def join_lines(head: bytes, tail: bytes) -> bytes:
    """Put lines after some content, so that no two records run together."""
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
    """Write a copy, as :func:`write_atomically` does, but over no file that exists.

    ``force`` allows any file except the ``sources`` of the copy, however they are spelled. Raises
    UsageError as :func:`require_new` does.
    """
    require_new(path, force=force, sources=sources)
    with naming_file(str(path)):
        if force or _status(path) is not None:
            write_atomically(path, data)
            return
        # A link to a missing file is a name that is taken, whoever put it there.
        with folder_at(Path(path).parent) as folder:
            try:
                write_file_in(folder, Path(path).name, data, new=True)
            except FileExistsError:
                raise UsageError(_EXISTS).about(path) from None


Dress = Callable[[int], object]


def write_file_in(
    folder: Folder, name: str, data: bytes, dress: Dress | None = None, *, new: bool = False
) -> None:
    """Write a whole file durably, replacing whatever has its name, even a link.

    With ``new``, raises FileExistsError if anything has its name. The file is private and our own,
    unless ``dress`` gives the open file another owner or mode.
    """
    with os_files.open_draft(folder) as draft:
        os_files.write_all(draft.handle, data)
        if dress is not None:
            dress(draft.handle)
        os_files.sync_file(draft.handle)
        draft.close()
        if new:
            try:
                folder.link(draft.name, name)
            except FileExistsError:
                raise
            except (OSError, NotImplementedError):
                # On a file system without hard links, the name is taken first and replaced at once.
                os.close(folder.open(name, os_files.CREATING))
                folder.rename(draft.name, name)
        else:
            folder.rename(draft.name, name)
    folder.sync()


def require_new(
    path: str | Path, *, force: bool = False, sources: Iterable[str | Path | int] = ()
) -> None:
    """Raise UsageError if a copy would overwrite what it is a copy of, or another file.

    A source is a path, or an open file. A device or a pipe cannot be overwritten.
    """
    if Path(os.path.realpath(path)).parent.name == BACKUPS:
        raise UsageError(
            "it is in a backup folder; nothing was written: choose another name"
        ).about(path)
    found = _status(path)
    if found is None:
        return
    if stat.S_ISDIR(found.st_mode):
        raise UsageError("it is a folder; -o takes the name of a file").about(path)
    for source in sources:
        with suppress(OSError):
            own = os.fstat(source) if isinstance(source, int) else Path(source).stat()
            if os.path.samestat(found, own) and stat.S_ISREG(found.st_mode):
                raise UsageError(
                    "it is the file that is being read; nothing was written: choose another "
                    "name for -o"
                ).about(path)
    if stat.S_ISREG(found.st_mode) and not force:
        raise UsageError(_EXISTS).about(path)


def write_atomically(path: str | Path, data: bytes) -> None:
    """Replace a file's content as a whole, durably, or raise and leave it as it was.

    The data goes to a temporary file in the same folder, which is fsynced and renamed; then the
    folder is fsynced. A new file gets mode 0600; an existing one keeps its mode and, where allowed,
    its owner. A symbolic link is followed. A device or a pipe cannot be replaced, so it is written
    to.
    """
    existing = _status(path)
    if existing and not stat.S_ISREG(existing.st_mode):
        flags = os.O_WRONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)
        handle = os.open(path, flags)
        try:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                raise UsageError(_REPLACED).about(path)
            os_files.write_all(handle, data)
        finally:
            os.close(handle)
        return
    target = Path(path).resolve()
    with folder_at(target.parent) as folder:
        found = folder.look(target.name)
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise UsageError(_REPLACED).about(path)
        write_file_in(folder, target.name, data, found and partial(os_files.adopt_owner, old=found))


def _status(path: str | Path) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UsageError("it is not a valid file name") from error


def replace(before: Snapshot, data: bytes, *, patience: Patience = PATIENCE) -> Replaced:
    """Put ``data`` in place of what was read, durably, or raise and leave the file as it is.

    Lines that others appended since the snapshot come after the data, including those that they
    still append to the old file while it is being replaced. Raises Conflict if the file changed in
    any other way (read it again and plan again), Busy if a program holds it open, and OSError if
    the disk, the folder or the owner does not allow it.
    """
    with reopen_locked(before, patience) as old:
        return old.replace(data)


class LockedFile(Struct):
    """A file that was read and then opened again, in its folder, locked against other repairs."""

    before: Snapshot
    old: os_files.OpenFile
    patience: Patience
    is_replaced: bool = False

    def replace(self, data: bytes) -> Replaced:
        """Put data in its place, as :func:`replace` does; ``is_replaced`` says if it is there."""
        os_files.remove_stale_drafts(self.old.folder)
        with os_files.open_draft(self.old.folder) as new:
            os_files.write_all(new.handle, data)
            found = os.fstat(self.old.handle)
            os_files.adopt_owner(new.handle, found, self.old.handle)
            adopted = os.fstat(new.handle)
            if adopted.st_uid != found.st_uid:
                why = "belongs to another user; repair it as that user"
                raise PermissionError(errno.EPERM, why)
            os_files.sync_file(new.handle)
            move = Replacement(
                before=self.before,
                data=data,
                old=self.old,
                new=new,
                patience=self.patience,
                folder=self.old.folder,
                watch=os_files.WriterWatch(self.old.folder),
                inode=adopted.st_ino,
                taken=self.before.size,
                torn=self.before.data[-1:] not in ENDED,
                written=len(data),
                ended=data[-1:] in ENDED,
            )
            move.catch_up()
            # Until the opposite is known: a file that is replaced must not lose its backup.
            self.is_replaced = True
            try:
                return move.finish()
            except BaseException:
                self.is_replaced = move.is_new_at(self.old.name)
                raise


@contextmanager
def naming_file(path: str) -> Iterator[None]:
    """Put the name of the user's file into every OSError, not that of the temporary one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


@contextmanager
def reopen_locked(before: Snapshot, patience: Patience = PATIENCE) -> Iterator[LockedFile]:
    """Open the same file that was read again, in its folder, locked against other repairs.

    Raises Conflict if it is no longer there, and Busy if the lock cannot be had.
    """
    path = Path(before.path)
    with naming_file(before.path), folder_at(path.parent) as folder:
        try:
            old = os_files.OpenFile(folder, path.name, folder.open(path.name, os_files.READING))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP):
                raise Conflict(GONE) from error
            raise
        try:
            found = os.fstat(old.handle)
            if (found.st_dev, found.st_ino) != (before.device, before.inode):
                raise Conflict(CHANGED)
            deadline = time.monotonic() + patience.held
            while os_files.is_locked(old.handle):
                if time.monotonic() > deadline:
                    raise Busy("it is locked by another program; nothing was written")
                time.sleep(patience.step)
            # The process that had the lock may have replaced the file.
            again = folder.look(path.name)
            if again is None or (again.st_dev, again.st_ino) != (before.device, before.inode):
                raise Conflict(CHANGED if again else GONE)
            yield LockedFile(before, old, patience)
        finally:
            old.close()
