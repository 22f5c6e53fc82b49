"""A store of plain files, one for each session, for people who want to grep.

``<session>.jsonl`` has one line of JSON for each record, and lines are only ever appended; ``log``
says which lines count. Large values are in ``blobs``, records shared by forks are in ``bases``, and
``.leases`` shows which writers are alive.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from msgspec import structs

from lockstitch.errors import (
    Busy,
    Closed,
    Fenced,
    Held,
    LockstitchError,
    Unreadable,
    Unsure,
    UsageError,
    Where,
    reason_of,
)
from lockstitch.journal.events import about_of
from lockstitch.journal.records import (
    NEW,
    Head,
    JournalEntry,
    JournalRecord,
    blob_name,
    check_session_name,
)
from lockstitch.journal.salvage import Remains
from lockstitch.stores.addresses import encoded_path
from lockstitch.stores.base import (
    LATEST,
    LEASE_SECONDS,
    VACUUM_SECONDS,
    Backend,
    IncomingSession,
    Lease,
    Listed,
    Listing,
    StoreFault,
    arrange,
    check_lease_seconds,
    require_lines,
)
from lockstitch.stores.jsonl.files import Files, exchange_files, remains
from lockstitch.stores.jsonl.forks import Blobs, fork_file, keep_shared, receive_file
from lockstitch.stores.jsonl.writer import (
    ClaimWatch,
    LogWriter,
    hold_lock,
    open_writer,
    read_claim,
)
from lockstitch.stores.leases import Heartbeat

_GRACE = 1.0
_STEPS = (0.002, 0.005, 0.01, 0.02, 0.05)


class JsonlBackend(Backend):
    """Sessions as files of JSON lines in a folder, for all processes of one machine."""

    def __init__(self, folder: str | Path, *, lease_seconds: float = LEASE_SECONDS) -> None:
        if sys.platform == "win32":
            raise UsageError("a store of lines needs locks that Windows lacks; use sqlite:///")
        check_lease_seconds(lease_seconds)
        self.folder = Path(os.path.abspath(folder))  # noqa: PTH100, a link in it stays one
        self.url = f"jsonl:///{encoded_path(self.folder)}"
        self._files = Files(self.folder)
        self._blobs = Blobs(self._files)
        self._watch = ClaimWatch(lease_seconds)
        self._lease_seconds = lease_seconds
        self._grace = min(_GRACE, lease_seconds)
        self._pid = os.getpid()
        self._is_closed = False
        self._guard = threading.Lock()
        self._writers: dict[str, LogWriter] = {}
        self._heart = Heartbeat(self._beat, lease_seconds / 3)
        try:
            if not self.folder.is_dir():
                self._files.ensure(self.folder)
        except OSError as error:
            raise Unreadable(f"it cannot be created: {reason_of(error)}").about(
                self.folder
            ) from error

    def acquire(self, session: str, *, wait: float = 0.0, create: bool = True) -> Lease:
        self._require_open()
        check_session_name(session)
        deadline = time.monotonic() + wait
        for count in range(sys.maxsize):
            try:
                return self._take_lease(session, create=create)
            except Held:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
            time.sleep(min(left, _STEPS[min(count, len(_STEPS) - 1)]))
            self._require_open()
        raise AssertionError

    def _take_lease(self, session: str, *, create: bool) -> Lease:
        if not create and not self._files.exists(session):
            raise Unreadable(f"it does not exist in {self.folder}").about(session=session)
        with _unsure_if_failed("it could not be taken ({})", session):
            self._require_free(session)
            self._files.ensure(self.folder)
            self._files.ensure(self._files.leases)
            if self._blobs.is_unfinished():
                with self._blobs.alone(self._is_stuck):
                    pass

            def passes(waited: float) -> bool:
                # A holder that is silent while the lock is taken may have been stopped while it had
                # the lock.
                self._require_free(session)
                return waited > self._grace

            with hold_lock(self._files.lock(session), passes):
                self._require_free(session)
                writer = open_writer(self._files, session, self._lease_seconds, create=create)
        with self._guard:
            if self._is_closed:
                writer.close()
                self._require_open()
            self._writers[writer.lease.token] = writer
            self._heart.start()
        return writer.lease

    def _require_free(self, session: str) -> None:
        holder = self._holder(session)
        if holder:
            raise Held(f"{holder} holds it").about(session=session)

    def _holder(self, session: str) -> str:
        """Return the name of the living holder of a session, "" if there is none."""
        if not self._files.exists(session):
            return ""
        state = self._files.state(session)
        path = self._files.claim(session, state.token)
        claim = read_claim(path) if state.token else None
        return claim.holder.label if claim and self._watch.is_alive(claim, path) else ""

    def release(self, lease: Lease) -> None:
        if os.getpid() != self._pid:
            return
        with self._guard:
            writer = self._writers.pop(lease.token, None)
            if not self._writers:
                self._heart.stop()
        if writer:
            with writer.guard:
                writer.close()

    def append(self, lease: Lease, entries: Sequence[JournalEntry], after: int) -> Head:
        self._require_open()
        require_lines(entries)
        writer = self._writer(lease)
        lock = self._files.lock(lease.session)
        has_blobs = any(entry.blobs for entry in entries)
        with writer.guard:
            self._require_open()
            try:
                with (
                    hold_lock(lock, self._is_stuck),
                    self._blobs.alone(self._is_stuck) if has_blobs else nullcontext(),
                ):
                    head = writer.append(entries, after, self._blobs.keep)
            except OSError as error:
                raise writer.spoilt(error) from error
            writer.beat(if_due=True)
        return head

    def replace(self, lease: Lease, entries: Sequence[JournalEntry], after: int) -> Head:
        self._require_open()
        require_lines(entries)
        with self._removing(lease) as writer:
            kept = {blob_name(value) for entry in entries for value in entry.blobs}
            with self._blobs.dropping(self._files.only_in(lease.session) - kept):
                head = writer.replace(entries, after, self._blobs.keep)
            self._blobs.drop_bases()
        return head

    def delete(self, lease: Lease) -> None:
        self._require_open()
        with self._removing(lease) as writer:
            with self._blobs.dropping(self._files.only_in(lease.session)):
                writer.remove()
            self._blobs.drop_bases()
        self.release(lease)

    @contextmanager
    def _removing(self, lease: Lease) -> Iterator[LogWriter]:
        """Lock a session's file and all large values."""
        writer = self._writer(lease)
        with writer.guard:
            self._require_open()
            try:
                with (
                    hold_lock(self._files.lock(lease.session), self._is_stuck),
                    self._blobs.alone(self._is_stuck),
                ):
                    self._files.tidy()
                    writer.require()
                    keep_shared(self._files, lease.session)
                    yield writer
            except OSError as error:
                raise writer.spoilt(error) from error

    def _is_stuck(self, waited: float) -> bool:
        return waited > self._lease_seconds

    def _writer(self, lease: Lease) -> LogWriter:
        writer = self._writers.get(lease.token)
        if writer is None or writer.lease.epoch != lease.epoch:
            raise Fenced("this lease was released").about(session=lease.session)
        return writer

    def read(
        self, session: str, after: Head = NEW, upto: int | None = None
    ) -> Iterator[JournalRecord]:
        self._require_open()
        return self._records(session, after, upto)

    def _records(self, session: str, after: Head, upto: int | None) -> Iterator[JournalRecord]:
        for whole in self._files.appends(session, after):
            for part in whole:
                if part.record.seq > after.seq and (upto is None or part.record.seq <= upto):
                    yield part.record
            if upto is not None and whole[-1].record.seq >= upto:
                return

    def head(self, session: str) -> Head | None:
        self._require_open()
        if not self._files.exists(session):
            return None
        return self._files.state(session).head

    def blobs(self, names: Iterable[str]) -> dict[str, bytes]:
        self._require_open()
        return self._blobs.give(names, Where(str(self._files.blobs)))

    def listed(self, listing: Listing, limit: int | None = None) -> Iterator[Listed]:
        self._require_open()
        names = self._files.sessions()
        if listing.newest or listing.tag or listing.since > -LATEST:
            return iter(arrange(map(self._listed, names), listing)[:limit])
        chosen = [name for name in names if name > listing.name]
        return (self._listed(name) for name in chosen[:limit])

    def _listed(self, session: str) -> Listed:
        """Describe a session for a listing; if it is damaged, up to the damage."""
        try:
            state = self._files.state(session)
            holder = self._holder(session)
        except (LockstitchError, OSError):
            seq = epoch = made = changed = 0
            with suppress(LockstitchError):
                for record in self._records(session, NEW, None):
                    seq, epoch, changed = record.seq, record.epoch, record.at
                    made = made or changed
            return Listed(session, seq, epoch, made, changed)
        head = (session, state.seq, state.epoch, state.made, state.changed, holder)
        return Listed(*head, *structs.astuple(about_of(state.about)))

    def fork(self, source: str, upto: int, target: str) -> Head:
        self._require_open()
        check_session_name(target)
        with _unsure_if_failed("forking failed ({}); try again", target):
            self._files.ensure(self.folder)
            # The lock on large values keeps others from deleting the source, and the values it
            # names, before the copy names them.
            with self._blobs.alone(self._is_stuck):
                return fork_file(self._files, source, upto, target)

    def receive(self, incoming: IncomingSession) -> Head:
        self._require_open()
        session = check_session_name(incoming.session)
        with _unsure_if_failed("copying it failed ({}); try again", session):
            self._files.ensure(self.folder)
            with self._blobs.alone(self._is_stuck):
                if not incoming.is_there(self.head(session)):
                    receive_file(self._files, self._blobs, incoming)
                # another process may have stored it at the same moment
                incoming.is_there(self.head(session))
                return self._files.state(session).head

    def remains(self, session: str) -> Remains:
        self._require_open()
        return remains(self._files, session)

    def exchange(self, session: str, aside: str, successor: str, stamp: str = "") -> None:
        self._require_open()
        check_session_name(aside)
        for name in (session, successor):
            if not self._files.exists(name):
                raise Unreadable(f"it does not exist in {self.folder}").about(session=name)
        if self._files.exists(aside):
            raise Held("it already exists").about(session=aside)
        self._files.ensure(self._files.leases)
        with (
            _unsure_if_failed("renaming failed ({}); try again", session),
            hold_lock(self._files.lock(session), self._is_stuck),
            hold_lock(self._files.lock(successor), self._is_stuck),
        ):
            for name in (session, successor):
                self._require_unclaimed(name)
            exchange_files(self._files, session, aside, successor, stamp)

    def _require_unclaimed(self, session: str) -> None:
        """Raise ``Held`` if a session has a living writer; its file may be damaged."""
        for path in self._files.leases.glob(f"{session}.*"):
            is_claim = path.suffix != ".lock" and path.stem == session
            claim = read_claim(path) if is_claim else None
            if claim and self._watch.is_alive(claim, path):
                raise Held(f"{claim.holder.label} holds it").about(session=session)

    def wait(self, session: str, after: int, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        size = -1
        for count in range(sys.maxsize):
            self._require_open()
            found = 0
            with suppress(OSError):
                found = self._files.log(session).stat().st_size
            if found != size and (self.head(session) or NEW).seq > after:
                return True
            size = found
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, _STEPS[min(count // 20, len(_STEPS) - 1)]))
        raise AssertionError

    def verify(self) -> Iterator[StoreFault | Listed]:
        self._require_open()
        for session in self._files.sessions():
            # Read a session from its first byte, and every large value that it names.
            seq = 0
            self._files.forget(session)
            try:
                for whole in self._files.appends(session):
                    for part in whole:
                        for name in part.blobs:
                            if not self._blobs.exists(name):
                                yield StoreFault(
                                    session, part.record.seq, f"the large value {name} is missing"
                                )
                        seq = part.record.seq
            except LockstitchError as error:
                # A fault in another file, such as a base, is reported with the name of that file.
                message = error.message if error.session else str(error)
                yield StoreFault(session, seq + 1, message)
            yield self._listed(session)
        yield from self._blobs.faults(Where(str(self._files.blobs)))

    def vacuum(self, *, wait: float = VACUUM_SECONDS) -> int:
        self._require_open()
        until = time.monotonic() + wait
        try:
            before = self._files.size()

            def passes(waited: float) -> bool:
                if not self._is_stuck(waited) and time.monotonic() > until:
                    raise Busy(
                        "another process keeps the large values locked; nothing was changed: "
                        "try again"
                    ).about(self.folder)
                return self._is_stuck(waited)

            with self._blobs.alone(passes):
                self._files.tidy()
                self._blobs.drop_bases()
                self._blobs.drop_unnamed()
            return max(before - self._files.size(), 0)
        except OSError as error:
            raise Unreadable(f"it cannot be cleaned up: {reason_of(error)}").about(
                self.folder
            ) from error

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._guard:
            self._is_closed = True
            writers = list(self._writers.values())
            self._writers.clear()
        self._heart.stop(wait=True)
        for writer in writers:
            with writer.guard:
                writer.close()

    def _beat(self) -> None:
        for writer in list(self._writers.values()):
            writer.beat()

    def _require_open(self) -> None:
        if self._is_closed:
            raise Closed("the store was closed").about(self.url)
        if os.getpid() != self._pid:
            raise Closed("it belongs to the process that this one was forked from").about(self.url)


@contextmanager
def _unsure_if_failed(text: str, session: str) -> Iterator[None]:
    """Turn an ``OSError`` into ``Unsure``; its ``text`` has a placeholder for the reason."""
    try:
        yield
    except OSError as error:
        raise Unsure(text.format(error.strerror or "failed")).about(session=session) from error
