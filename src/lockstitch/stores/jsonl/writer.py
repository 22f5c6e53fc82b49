"""Write a session's file as its only writer, and take it over from the last one.

The claims and locks in ``.leases`` are not needed to read a session or to keep it valid, because
the file itself says which writer counts. A claim shows that the last writer is alive, and the lock
keeps two writers from appending at the same time. A process that was stopped while it held the lock
does not block others: the lines that it writes when it wakes up come after the next writer's
opening line and do not count.
"""

from __future__ import annotations

import errno
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from lockstitch.errors import Damaged, Fenced, Held, Unsure, UsageError, Where
from lockstitch.files import os_files
from lockstitch.journal.events import about_in
from lockstitch.journal.records import START, Head, JournalEntry, JournalRecord, chain_entries
from lockstitch.stores.base import Lease, moved
from lockstitch.stores.jsonl.files import Files, write_draft
from lockstitch.stores.jsonl.log import LogState, LogWalk, append_lines, opening_line, walk_file
from lockstitch.stores.leases import (
    Holder,
    HolderSighting,
    HolderWatch,
    clock,
    is_gone,
    myself,
    now,
)

_MOST = 1 << 30
Keep = Callable[[list[bytes]], None]


class LogWriter:
    """Appends to a file under a lease; every method but ``beat`` needs the session's lock.

    After a failed write it writes nothing more: the next writer finds out what was written.
    """

    def __init__(
        self, files: Files, lease: Lease, handle: int, state: LogState, claim: OwnClaim
    ) -> None:
        self.lease = lease
        self.guard = threading.Lock()
        self._files = files
        self._handle = handle
        self._state = state
        self._claim = claim
        self._keys: list[str] = []
        self._is_unsure = False
        self._where = Where(session=lease.session)

    def append(self, entries: Sequence[JournalEntry], after: int, keep: Keep) -> Head:
        """Append entries in one write, after storing the large values that they name."""
        self.require()
        if after != self._state.seq:
            # An earlier attempt whose outcome was not reported may have written them already.
            start, keys = after - self.lease.head.seq, [entry.key for entry in entries]
            if not (after < self._state.seq and start >= 0 and self._keys[start:] == keys):
                raise moved(self._where, self._state.seq, after)
            return self._state.head
        if not entries:
            return self._state.head
        records = chain_entries(self._state.head, self.lease.epoch, entries)
        data = append_lines(records, entries)
        if len(data) > _MOST:
            raise UsageError(f"more than {_MOST} bytes at once").about(*self._where)
        with self._sure():
            keep([value for entry in entries for value in entry.blobs])
            write_once(self._handle, data)
            self._note(records, len(data))
        return self._state.head

    def replace(self, entries: Sequence[JournalEntry], after: int, keep: Keep) -> Head:
        """Replace this file by one with other records, under the same lease."""
        self.require(after)
        head = Head(0, START, self.lease.epoch)
        records = chain_entries(head, self.lease.epoch, entries)
        with self._sure():
            keep([value for entry in entries for value in entry.blobs])
            name, holder = self.lease.session, self._claim.holder
            opening = opening_line(name, self.lease.epoch, now(), holder, None)
            lines = opening + append_lines(records, entries)
            with write_draft(self._files.folder, [lines]) as draft:
                # Check again, since writing took long enough for this process to be stopped and
                # replaced.
                self._catch_up()
                draft.replace(self._files.log(name))
            handle, self._handle = self._handle, self._files.writing(name, create=False)
            os.close(handle)
            walk = LogWalk(LogState(), name)
            self._keys = []
            for whole in walk_file(walk, self._handle, os.fstat(self._handle).st_size):
                self._keys += [part.record.key for part in whole]
            self._state = walk.state
            self.lease = structs.replace(self.lease, head=head)
            self._files.forget(name)
        return self._state.head

    def remove(self) -> None:
        """Delete the file; readers that have it open notice that it is gone."""
        self.require()
        with self._sure():
            self._files.log(self.lease.session).unlink()
            os_files.sync_folder(self._files.folder)
            self._files.forget(self.lease.session)
        self._files.lock(self.lease.session).unlink(missing_ok=True)

    def require(self, after: int | None = None) -> None:
        """Raise an error if this is no longer the writer or if the records end elsewhere."""
        if self._is_unsure:
            raise Unsure("an earlier write failed; open it again").about(*self._where)
        self._catch_up()
        if after is not None and after != self._state.seq:
            raise moved(self._where, self._state.seq, after)

    @contextmanager
    def _sure(self) -> Iterator[None]:
        """Turn a failure of any kind into ``Unsure``, and stay unsure from then on."""
        self._is_unsure = True
        try:
            yield
        except OSError as error:
            raise self.spoilt(error) from error
        self._is_unsure = False

    def spoilt(self, error: OSError) -> Unsure:
        """Stop all further writes because of a failure; return the error that says so."""
        self._is_unsure = True
        reason = error.strerror or "failed"
        return Unsure(f"writing failed ({reason}); open it again").about(*self._where)

    def _note(self, records: list[JournalRecord], size: int) -> None:
        """Add new records to the state; read the file again if anything else was appended."""
        start = os.lseek(self._handle, 0, os.SEEK_CUR) - size
        if self._is_moved():
            raise Unsure("its file was replaced meanwhile; open it again").about(*self._where)
        if start != self._state.end:
            self._catch_up()
            if self._state.digest != records[-1].digest:
                raise Unsure("others wrote to its file at the same time; open it again").about(
                    *self._where
                )
            return
        self._keys += [record.key for record in records]
        last = records[-1]
        self._state = structs.replace(
            self._state,
            end=start + size,
            last=start,
            seq=last.seq,
            digest=last.digest,
            changed=last.at,
            about=about_in(record.body for record in records) or self._state.about,
        )

    def _is_moved(self) -> bool:
        """Whether the path names another file now."""
        try:
            found = os.lstat(self._files.log(self.lease.session))
        except FileNotFoundError:
            return True
        return not os.path.samestat(found, os.fstat(self._handle))

    def _catch_up(self) -> None:
        """Read what others appended; raise an error if this is no longer the writer."""
        size = os.fstat(self._handle).st_size
        if size < self._state.end or self._is_moved():
            raise Damaged("its file was replaced or cut; nothing was written to it").about(
                *self._where
            )
        walk = LogWalk(self._state, self.lease.session)
        for whole in walk_file(walk, self._handle, size):
            self._keys += [part.record.key for part in whole]
        self._state = walk.state
        if (walk.state.epoch, walk.state.token) != (self.lease.epoch, self.lease.token):
            raise Fenced("another writer took it over").about(*self._where)
        if walk.torn is not None:
            self._is_unsure = True
            raise Unsure("others wrote to its file; open it again").about(*self._where)

    def beat(self, *, if_due: bool = False) -> None:
        """Record that the holder is alive.

        A failure is ignored, since the next beat may succeed.
        """
        with suppress(OSError):
            if not if_due or self._claim.is_due():
                self._claim.beat()

    def close(self) -> None:
        """Give up the claim and close the file."""
        if self._is_unsure:
            self._claim.leave()
        else:
            self._claim.drop()
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


def write_once(handle: int, data: bytes) -> None:
    """Append data durably by one call.

    If that call writes only a part, the rest is never written.
    """
    if os.write(handle, data) != len(data):
        raise OSError(errno.ENOSPC, "only a part could be written")
    if sys.platform == "linux":
        os.fdatasync(handle)
    else:
        os_files.sync_file(handle)


def open_writer(files: Files, session: str, seconds: float, *, create: bool) -> LogWriter:
    """Become the writer of a session that nobody holds; the caller holds its lock.

    Raises ``Held`` if another process became the writer at the same moment, and ``OSError``.
    """
    handle = files.writing(session, create=create)
    try:
        before, holder = files.walk_to_end(session, handle), myself()
        last = files.claim(session, before.state.token)
        claim = OwnClaim(files.claim(session, holder.token), holder, seconds)
        try:
            if last.exists():
                _rewrite(files, session, handle, before.state)
            # The opening line must start a line of its own.
            line = opening_line(session, before.state.epoch + 1, now(), holder, before.torn)
            size = os.fstat(handle).st_size
            is_line = not size or os.pread(handle, 1, size - 1) == b"\n"
            # If only the newline of the last line is missing, the space keeps that line from
            # becoming valid.
            write_once(handle, (line if is_line else b" \n" + line))
            if not before.state.epoch:
                os_files.sync_folder(files.folder)
            state = files.walk_to_end(session, handle).state
        except BaseException:
            claim.leave()
            raise
        if state.token != holder.token:
            claim.drop()
            raise Held("another writer took it at the same moment").about(  # noqa: TRY301
                session=session
            )
    except BaseException:
        os.close(handle)
        raise
    for path in (last, noted_at(last)):
        with suppress(OSError):
            path.unlink(missing_ok=True)
    lease = Lease(session, state.epoch, holder.token, state.head)
    return LogWriter(files, lease, handle, state, claim)


def _rewrite(files: Files, session: str, handle: int, state: LogState) -> None:
    """Write the last append again, the same bytes in the same place.

    If its writer did not end well, its fsync may have failed. The system may then treat the bytes
    as clean although they never reached the disk; writing them again makes the next fsync store
    them. Only the last append can need this, since each earlier one was synced before the next.
    """
    if state.end == state.last:
        return
    other = os.open(files.log(session), os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        place = state.last
        while place < state.end and os.path.samestat(os.fstat(other), os.fstat(handle)):
            data = os.pread(handle, min(1 << 20, state.end - place), place)
            place += os.pwrite(other, data, place)
    finally:
        os.close(other)


if sys.platform != "win32":
    import fcntl

_SIZE = 512
_STEPS = (0.0005, 0.001, 0.002, 0.005, 0.01)
_WRITING = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


class Claim(Struct, frozen=True):
    """A holder, for how long it may be silent, and the time on its clock when that ends."""

    holder: Holder
    seconds: float
    deadline: float


class OwnClaim:
    """The claim of a writer in this process: a file of its own, which a crash leaves behind."""

    def __init__(self, path: Path, holder: Holder, seconds: float) -> None:
        self.path = path
        self._claim = Claim(holder, seconds, 0.0)
        self._guard = threading.Lock()
        self._handle = os.open(path, _WRITING | os.O_CREAT | os.O_EXCL, 0o600)
        self.beat()

    @property
    def holder(self) -> Holder:
        """The holder that the claim names."""
        return self._claim.holder

    def beat(self) -> None:
        """Record that the holder is alive.

        Written in place, so that a full disk does not matter.
        """
        with self._guard:
            if self._handle >= 0:
                self._claim = structs.replace(self._claim, deadline=clock() + self._claim.seconds)
                os.pwrite(self._handle, msgspec.json.encode(self._claim).ljust(_SIZE), 0)

    def is_due(self) -> bool:
        """Whether a third of the permitted silence has passed."""
        return clock() > self._claim.deadline - self._claim.seconds * 2 / 3

    def drop(self) -> None:
        """Give up the claim, and delete its file, because everything written is durable."""
        self._close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def leave(self) -> None:
        """Give up the claim but keep its file, because something may not be durable."""
        self._claim = structs.replace(self._claim, seconds=-clock())
        with suppress(OSError):
            self.beat()
        self._close()

    def _close(self) -> None:
        with self._guard:
            handle, self._handle = self._handle, -1
            if handle >= 0:
                os.close(handle)


def read_claim(path: Path) -> Claim | None:
    """Return the claim of a writer; None if there is none or it cannot be read."""
    for step in _STEPS:
        try:
            return msgspec.json.decode(path.read_bytes(), type=Claim)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError:
            time.sleep(step)  # The holder may have been writing it at that moment.
    return None


class ClaimWatch:
    """Decides whether the holders of claims are alive; watches those of other boots for changes."""

    def __init__(self, seconds: float) -> None:
        self._here = myself()
        self._watching = HolderWatch(seconds)

    def is_alive(self, claim: Claim, path: Path) -> bool:
        """Whether the holder of the claim at ``path`` may still be alive."""
        holder = claim.holder
        if is_gone(holder):
            return False
        if holder.boot == self._here.boot:
            # A deadline further away than this was set before the clock restarted.
            return 0 < claim.deadline - clock() <= claim.seconds + 1
        beside, noted = noted_at(path), ""
        with suppress(OSError):
            noted = beside.read_text("ascii", "replace")
        seen = HolderSighting(holder.token, "", claim.deadline, claim.seconds, noted)
        left = self._watching.see(holder.token, seen)
        if left and (note := self._watching.note(holder.token, seen)):
            # If this fails, the next process has to start watching from scratch.
            with suppress(OSError):
                beside.write_text(note, "ascii")
        return left > 0


def noted_at(path: Path) -> Path:
    """Return the path of the file beside a claim that says when the holder was last seen."""
    return path.with_name(f"{path.name}.seen")


@contextmanager
def hold_lock(path: Path, pass_by: Callable[[float], bool]) -> Iterator[None]:
    """Hold the lock of a session; while waiting, call ``pass_by`` with the seconds waited.

    ``pass_by`` may raise an error, or return True: then a new lock replaces the old one.
    """
    handle = _take_lock(path, pass_by)
    try:
        yield
    finally:
        with suppress(OSError):
            # A child forked meanwhile shares the open file, so closing it would not unlock it.
            fcntl.flock(handle, fcntl.LOCK_UN)
        with suppress(OSError):
            os.close(handle)


def _take_lock(path: Path, pass_by: Callable[[float], bool]) -> int:
    start = time.monotonic()
    for count in range(sys.maxsize):
        handle = os.open(path, _WRITING | os.O_CREAT, 0o600)
        if not os_files.is_locked(handle):
            # If the path now names another file, this lock protects nothing.
            with suppress(FileNotFoundError):
                if os.path.samestat(path.lstat(), os.fstat(handle)):
                    return handle
        os.close(handle)
        if pass_by(time.monotonic() - start):
            break
        time.sleep(_STEPS[min(count, len(_STEPS) - 1)])
    # The holder of the lock is stuck: a new lock takes the place of its lock.
    draft = path.with_name(f"{os_files.PREFIX}{secrets.token_hex(16)}{os_files.SUFFIX}")
    handle = os.open(draft, _WRITING | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os_files.is_locked(handle)
        draft.replace(path)
    except BaseException:
        os.close(handle)
        draft.unlink(missing_ok=True)
        raise
    return handle
