"""The one writer of a session: holds the lease, adds events, and defers signals during writes."""

from __future__ import annotations

import secrets
import signal
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import Any, Self

from msgspec import Raw, Struct, structs

from lockstitch.errors import Busy, Closed, LockstitchError, Unsure, UsageError, Where
from lockstitch.journal.events import Ended, Event, Replied, entry_of, event_of
from lockstitch.journal.records import (
    NEW,
    Head,
    JournalEntry,
    JournalRecord,
    chain_entries,
    check_key,
    inbox_of,
)
from lockstitch.journal.state import JournalState
from lockstitch.session.decisions import free_key
from lockstitch.session.reader import SessionView
from lockstitch.stores.base import Backend, Lease
from lockstitch.stores.group_commit import CommitJob, GroupCommit
from lockstitch.stores.leases import now

PATIENCE = 5.0
_HELD_BACK = (signal.SIGINT, signal.SIGTERM)
_TERMINATED = threading.Event()
Handler = Callable[[int, FrameType | None], Any]


def handle_sigterm() -> None:
    """Make SIGTERM end this program in order, as Ctrl-C does, with exit status 143.

    Running tools get their abort signal, their calls get an outcome, and leases are released. The
    turn stays open, because nobody asked for it to end: the same program continues it when it is
    started again. Works for synchronous programs and asyncio. Raises ``UsageError`` outside the
    main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("handle_sigterm() sets a signal handler: call it in the main thread")
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, _frame: FrameType | None) -> None:
    _TERMINATED.set()
    raise SystemExit(128 + number)


def reason_of(error: BaseException) -> str:
    """Return the reason to record when an exception ends the work.

    asyncio cancels its tasks when the program is being terminated; then the reason is the exit.
    """
    if isinstance(error, KeyboardInterrupt):
        return "user"
    if isinstance(error, SystemExit | GeneratorExit) or _TERMINATED.is_set():
        return "exit"
    return "error" if isinstance(error, Exception) else "cancelled"


class DeferredSignals:
    """Defers what Ctrl-C and SIGTERM raise until the end of a block.

    The handler that was in force is called at once, so that anything it sets is set. Only an
    exception that it raises is held back, and ``wake`` is called. If the store hangs, a second
    Ctrl-C more than ``PATIENCE`` seconds later gets through. Outside the main thread, where signals
    raise nothing, and inside another such block this does nothing.
    """

    def __init__(self, wake: Callable[[], None] | None = None) -> None:
        self.raised: BaseException | None = None
        self._wake = wake
        self._old: dict[int, Handler] = {}
        self._since = 0.0

    def __enter__(self) -> Self:
        """Replace the signal handlers."""
        if threading.current_thread() is threading.main_thread():
            for number in _HELD_BACK:
                old = signal.getsignal(number)
                if callable(old) and not isinstance(
                    getattr(old, "__self__", None), DeferredSignals
                ):
                    self._old[number] = old
                    signal.signal(number, self._handle_signal)
        return self

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        old = self._old.get(number)
        if old is None:
            return
        try:
            old(number, frame)
        except BaseException as error:
            now = time.monotonic()
            if self.raised is None:
                self.raised, self._since = error, now
            elif now - self._since > PATIENCE:
                raise
            if self._wake is not None:
                self._wake()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Restore the signal handlers, and raise what was held back."""
        for number, old in self._old.items():
            signal.signal(number, old)
        if self.raised is not None and error is not self.raised:
            raise self.raised.with_traceback(None)


_LONGEST_KEY = 100
Decide = Callable[[JournalState], Sequence[Event]]


def new_name() -> str:
    """Return a random name, for the key of an entry, for a stream or for an effect."""
    return secrets.token_hex(12)


def named_key(kind: str, key: str | None) -> str:
    """Return the key to store an entry under; "" if the caller gave none."""
    if key is None:
        return ""
    if len(check_key(key)) > _LONGEST_KEY:
        raise UsageError(f"a key may have at most {_LONGEST_KEY} characters here")
    return f"{kind}/{key}"


class _TornWrite(Struct):
    """A write after ``head`` that was begun and may not have ended."""

    jobs: list[CommitJob]
    entries: list[list[JournalEntry]]
    head: Head


class SessionWriter(SessionView):
    """Adds events to a session in one order for all threads.

    Memory never holds more than the store.

    Events that arrive during a write are written together in the next one. After the store has
    refused a write with anything but ``Busy`` or ``UsageError``, nothing more is written: the
    session has to be opened again.
    """

    def __init__(self, backend: Backend, lease: Lease) -> None:
        super().__init__(backend, lease.session)
        self.lease = lease
        self.take(backend.read(lease.session, upto=lease.head.seq))
        self._commits = GroupCommit(self._commit, Where(session=lease.session))
        self._torn: _TornWrite | None = None
        self._broken: LockstitchError | None = None
        # The recorders of the streams that are being read into the session.
        self.streams: list[Any] = []
        self._watch: weakref.finalize[Any, Any] | None = None

    def add(self, *events: Event, key: str = "") -> list[JournalRecord]:
        """Add events durably, all or none; add nothing if the key exists already."""
        return self.decide(lambda _: events, key, alone=bool(key))

    def decide(self, decide: Decide, key: str = "", *, alone: bool = True) -> list[JournalRecord]:
        """Add the events that ``decide`` makes of the state once it is this caller's turn.

        That state includes every earlier write, so these events are not written in one batch with
        others.
        """
        with DeferredSignals():
            records: list[JournalRecord] = self._commits.do(
                partial(self._entries, decide, key), alone=alone
            )
        return records

    def last_request(self) -> int:
        """Return the record that the last request was made from, and forget it.

        A reply answers one request, so this returns 0 the next time. It also returns 0 if the
        request is older than the turn: then somebody only looked at it.
        """
        asked, self.asked = self.asked, 0
        began = self.look(lambda state: state.view.turn)
        return asked if asked >= began else 0

    def add_reply(self, event: Replied, key: str | None = None) -> None:
        """Add a reply; a reply without calls ends the turn."""
        events = [event] if event.calls else [event, Ended()]
        self.add(*events, key=named_key("reply", key))

    def _entries(self, decide: Decide, key: str, state: JournalState) -> list[JournalEntry]:
        if self._broken is not None:
            raise type(self._broken)(
                f"nothing more can be written here ({self._broken.message}); open it again: what "
                "was acknowledged is there, and a key is never kept twice"
            ).about(session=self.session)
        events = decide(state)
        first = free_key(state, key, events[0] if events else None) if key else new_name()
        if not first:
            return []
        at = now()
        # The caller's key belongs to the first event; all of them are written, or none.
        keys = [first, *(new_name() for _ in events)]
        return [entry_of(event, key, at) for event, key in zip(events, keys, strict=False)]

    def _commit(self, jobs: list[CommitJob]) -> None:
        try:
            self._write_torn()
            self._commits.gather(jobs)
            fresh = [job for job in jobs if not job.is_done]
            try:
                entries = [self.look(job.run) for job in fresh]
            except Exception as error:  # noqa: BLE001 - every job gets an answer, in its own thread
                for job in fresh:
                    job.end(error)
                return
            self._torn = _TornWrite(fresh, entries, self.head)
            self._write_torn()
        except BaseException:
            # The next caller finishes the interrupted write, and wakes the threads that wait for
            # it.
            self._commits.put_back(jobs)
            raise

    def _write_torn(self) -> None:
        """Write the pending entries; also those of a write that an exception interrupted.

        The store recognizes entries by their keys, so an entry that is already there is not added
        again.
        """
        torn = self._torn
        if torn is None:
            return
        entries = [entry for mine in torn.entries for entry in mine]
        try:
            # The checksums are computed here and in the store. If they differ, memory and store
            # differ, and nothing more is written.
            records = chain_entries(torn.head, self.lease.epoch, entries)
            if entries:
                head = self.backend.append(self.lease, entries, torn.head.seq)
                if (head.seq, head.digest) != (records[-1].seq, records[-1].digest):
                    raise Unsure(  # noqa: TRY301 - a write that failed, as any other
                        "the store is not where it should be"
                    ).about(session=self.session)
        except Exception as error:  # noqa: BLE001 - as above
            known = error if isinstance(error, LockstitchError) else None
            if known is None:
                kind = type(error).__name__
                known = Unsure(f"a write failed ({kind}); open it again").about(
                    session=self.session
                )
                known.__cause__ = error
            # These two errors say that nothing was written, and that the store is as it was.
            if not isinstance(known, UsageError | Busy):
                self._broken = known
            for job in torn.jobs:
                job.end(known)
        else:
            self.take(records)
            begin = 0
            for job, mine in zip(torn.jobs, torn.entries, strict=True):
                job.result = records[begin : begin + len(mine)]
                begin += len(mine)
                job.end()
        self._torn = None

    @property
    def is_writable(self) -> bool:
        """Whether events can still be added."""
        return self._broken is None

    def watch(self, owner: object) -> None:
        """Release the lease also if ``owner`` is garbage collected without having been closed.

        Garbage collection may happen anywhere, even inside the store, so a thread does the release.
        """
        self._watch = weakref.finalize(owner, _release_later, self.backend, self.lease)
        self._watch.atexit = False

    def close(self) -> None:
        """Release the lease; refuse all later events."""

        def refuse(_: JournalState) -> list[JournalEntry]:
            self._broken = self._broken or Closed("it was closed")
            return []

        self._commits.do(refuse, alone=True)
        if self._watch is not None:
            self._watch.detach()
        self.backend.release(self.lease)


def _release_later(backend: Backend, lease: Lease) -> None:
    threading.Thread(target=backend.release, args=(lease,), daemon=True).start()


def _unless_known(event: Event, key: str, state: JournalState) -> list[Event]:
    return [] if key in state.keys else [event]


class Inbox:
    """Takes over the results that others delivered to a session."""

    def __init__(self, writer: SessionWriter) -> None:
        self._writer = writer
        self._name = inbox_of(writer.session)
        self._taken = NEW

    def take_over(self) -> None:
        """Add the results delivered since the last time to the session, each of them once."""
        backend = self._writer.backend
        head = backend.head(self._name)
        if head is None or head.seq <= self._taken.seq:
            return
        for record in backend.read(self._name, self._taken):
            event = event_of(record)
            if event.blob:
                large = backend.blobs([event.blob])[event.blob]
                event = structs.replace(event, payload=Raw(large), blob="")
            self._writer.decide(partial(_unless_known, event, record.key), record.key)
            self._taken = Head(record.seq, record.digest, record.epoch)

    def wait(self, seconds: float) -> None:
        """Wait until something is delivered, but at most this many seconds."""
        self._writer.backend.wait(self._name, self._taken.seq, seconds)
