"""The one writer of a session: its lease, and the facts it adds.

Signals: holding back what they raise until a write is done, and why they end something.
"""

from __future__ import annotations

import secrets
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, Self

from msgspec import Struct

from lockstitch.errors import Busy, Closed, LockstitchError, Unsure, UsageError
from lockstitch.journal.events import Event, Replied, entry_of
from lockstitch.journal.records import Head, JournalEntry, JournalRecord, chain_entries, check_key
from lockstitch.journal.state import JournalState
from lockstitch.session.decisions import free_key, reply_events
from lockstitch.session.reader import SessionView
from lockstitch.stores.base import Backend, Lease

PATIENCE = 5.0
_HELD_BACK = (signal.SIGINT, signal.SIGTERM)
_TERMINATED = threading.Event()
Handler = Callable[[int, FrameType | None], Any]


def handle_sigterm() -> None:
    """Let SIGTERM end this program in order, as Ctrl-C does, with exit status 143.

    Tools that run are told to abort, every call has an outcome, and leases are given back. But
    nobody said that the turn should end: it stays open, and the same program goes on with it when
    it is started again. For synchronous programs and asyncio; call it in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("handle_sigterm() sets a signal handler: call it in the main thread")
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, _frame: FrameType | None) -> None:
    _TERMINATED.set()
    raise SystemExit(128 + number)


def reason_of(error: BaseException) -> str:
    """Name what an exception breaks work off with.

    When a program is being terminated, asyncio cancels its tasks: that is the exit, too.
    """
    if isinstance(error, KeyboardInterrupt):
        return "user"
    if isinstance(error, SystemExit | GeneratorExit) or _TERMINATED.is_set():
        return "exit"
    return "error" if isinstance(error, Exception) else "cancelled"


class DeferredSignals:
    """For the length of a block, Ctrl-C interrupts nothing; at its end it does. So does SIGTERM.

    The handler that was in force is called at once, so that whatever it sets is set; only what it
    raises is kept back, and ``wake`` is called. Who presses again after ``PATIENCE`` seconds, the
    store being stuck, gets through. Outside of the main thread, where signals raise nothing, and
    inside another such block this does nothing.
    """

    def __init__(self, wake: Callable[[], None] | None = None) -> None:
        self.raised: BaseException | None = None
        self._wake = wake
        self._old: dict[int, Handler] = {}
        self._since = 0.0

    def __enter__(self) -> Self:
        """Go in."""
        if threading.current_thread() is threading.main_thread():
            for number in _HELD_BACK:
                old = signal.getsignal(number)
                if callable(old) and not isinstance(
                    getattr(old, "__self__", None), DeferredSignals
                ):
                    self._old[number] = old
                    signal.signal(number, self._came)
        return self

    def _came(self, number: int, frame: FrameType | None) -> None:
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

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        """Go out, whatever happened."""
        for number, old in self._old.items():
            signal.signal(number, old)
        if self.raised is not None and error is not self.raised:
            raise self.raised.with_traceback(None)


_LONGEST_KEY = 100
Decide = Callable[[JournalState], Sequence[Event]]


def new_name() -> str:
    """Make a name that nothing else has: an entry's key, a stream's, an effect's."""
    return secrets.token_hex(12)


def named_key(kind: str, key: str | None) -> str:
    """Return the key that an entry is kept under; "" if the caller gave none."""
    if key is None:
        return ""
    if len(check_key(key)) > _LONGEST_KEY:
        raise UsageError(f"a key has at most {_LONGEST_KEY} characters here")
    return f"{kind}/{key}"


def now() -> int:
    """Return the time of day, as records have it: milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class _Order:
    """Something to be added: facts as they are, or what a decision makes of the state then."""

    def __init__(self, decide: Decide | None, events: Sequence[Event], key: str) -> None:
        self.decide = decide
        self.events = events
        self.key = key
        self.is_plain = decide is None and not key
        self.is_done = False
        self.error: Exception | None = None
        self.records: list[JournalRecord] = []

    def entries(self, state: JournalState) -> list[JournalEntry]:
        events = self.events if self.decide is None else self.decide(state)
        event = events[0] if events else None
        first = free_key(state, self.key, event) if self.key else new_name()
        if not first:
            return []
        at = now()
        keys = [first, *(new_name() for _ in events)]
        return [entry_of(event, key, at) for event, key in zip(events, keys, strict=False)]

    def result(self) -> list[JournalRecord]:
        if self.error is not None:
            raise self.error
        return self.records


class _Torn(Struct):
    """A write that was begun, behind a head, and is not known to be done."""

    orders: list[_Order]
    entries: list[list[JournalEntry]]
    head: Head


class SessionWriter(SessionView):
    """Adds facts to a session, for all threads, in one order; what is in memory is in the store.

    Facts that come in while others are being written go together in one write. After ``Unsure``,
    ``Fenced`` or ``Moved`` nothing more is written: the session has to be opened again.
    """

    def __init__(self, backend: Backend, lease: Lease) -> None:
        super().__init__(backend, lease.session)
        self.lease = lease
        self.take(backend.read(lease.session, upto=lease.head.seq))
        self._writing = threading.Lock()
        self._owner = 0
        self._orders: deque[_Order] = deque()
        self._torn: _Torn | None = None
        self._broken: LockstitchError | None = None
        # The streams that are being read into the session.
        self.streams: list[Any] = []
        self._watch: weakref.finalize[Any, Any] | None = None

    def add(self, *events: Event, key: str = "") -> list[JournalRecord]:
        """Add facts, durably, all or none; under a key that is there already, nothing."""
        return self._ordered(_Order(None, events, key))

    def decide(self, decide: Decide, key: str = "") -> list[JournalRecord]:
        """Add what ``decide`` makes of the state as it is once it is this one's turn."""
        return self._ordered(_Order(decide, (), key))

    def last_request(self) -> int:
        """Return the record that the last request was made from, once: a reply answers one request.

        0 if nobody knows: no request was made here since the last reply, or only before the turn
        began, as somebody does who just looks.
        """
        asked, self.asked = self.asked, 0
        began = self.look(lambda state: state.view.turn)
        return asked if asked >= began else 0

    def add_reply(self, event: Replied, key: str | None = None) -> None:
        """Add a reply; one that asks for nothing ends the turn."""
        self.add(*reply_events(event), key=named_key("reply", key))

    def _ordered(self, order: _Order) -> list[JournalRecord]:
        self._require_no_write_of_mine()
        with DeferredSignals():
            self._orders.append(order)
            with self._writing:
                self._owner = threading.get_ident()
                try:
                    self._write_until(order)
                finally:
                    self._owner = 0
        return order.result()

    def _require_no_write_of_mine(self) -> None:
        if self._owner == threading.get_ident():
            raise UsageError(
                f"session {self.session}: called from inside a write of its own; a signal handler"
                " should set a flag or raise"
            )

    def _write_until(self, order: _Order) -> None:
        self._settle()
        while not order.is_done:
            if not self._orders:
                # an exception in another thread tore it away before it was looked at
                self._orders.append(order)
            self._write(self._next())

    def _next(self) -> list[_Order]:
        """Take the next order, and with plain facts all plain ones right behind it."""
        taken = [self._orders.popleft()]
        if taken[0].is_plain:
            while self._orders and self._orders[0].is_plain:
                taken.append(self._orders.popleft())
        return taken

    def _write(self, orders: list[_Order]) -> None:
        try:
            self._require_open()
            entries = [self.look(order.entries) for order in orders]
        except Exception as error:  # noqa: BLE001 - every order gets an answer, in its own thread
            self._refuse(orders, error)
            return
        self._torn = _Torn(orders, entries, self.head)
        self._settle()

    def _settle(self) -> None:
        """Write what is to be written; also what an exception tore away from before it was done.

        The store knows entries by their keys: what is there already counts as done.
        """
        if self._torn is None:
            return
        try:
            records = self._appended(self._torn)
        except Exception as error:  # noqa: BLE001 - as above
            known = self._known(error)
            self._break(known)
            self._refuse(self._torn.orders, known)
        else:
            self.take(records)
            self._answer(self._torn, records)
        self._torn = None

    def _appended(self, torn: _Torn) -> list[JournalRecord]:
        entries = [entry for mine in torn.entries for entry in mine]
        if not entries:
            return []
        records = chain_entries(torn.head, self.lease.epoch, entries)
        head = self.backend.append(self.lease, entries, torn.head.seq)
        if (head.seq, head.digest) != (records[-1].seq, records[-1].digest):
            raise Unsure(f"session {self.session}: the store is not where it should be")
        return records

    def _answer(self, torn: _Torn, records: list[JournalRecord]) -> None:
        begin = 0
        for order, mine in zip(torn.orders, torn.entries, strict=True):
            order.records = records[begin : begin + len(mine)]
            order.is_done = True
            begin += len(mine)

    def _refuse(self, orders: list[_Order], error: Exception) -> None:
        for order in orders:
            order.error, order.is_done = error, True

    def _known(self, error: Exception) -> LockstitchError:
        """Return an error of ours; from any other nobody can tell what was written."""
        if isinstance(error, LockstitchError):
            return error
        kind = type(error).__name__
        made = Unsure(f"session {self.session}: a write failed ({kind}); open it again")
        made.__cause__ = error
        return made

    def _break(self, error: LockstitchError) -> None:
        # those two say that nothing was written, and that the store is as it was
        if not isinstance(error, UsageError | Busy):
            self._broken = error

    def _require_open(self) -> None:
        if self._broken is None:
            return
        raise type(self._broken)(
            f"session {self.session}: nothing more can be written here ({self._broken});"
            " open it again: what was acknowledged is there, and a key is never kept twice"
        )

    @property
    def is_writable(self) -> bool:
        """Whether facts can still be added."""
        return self._broken is None

    def watch(self, owner: object) -> None:
        """Give the lease back also when its owner is gone without having closed it.

        That is found out in the middle of anything, so it is done in a thread of its own.
        """
        self._watch = weakref.finalize(owner, _let_go, self.backend, self.lease)
        self._watch.atexit = False

    def close(self) -> None:
        """Give the lease back; what comes later is refused."""
        self._require_no_write_of_mine()
        with self._writing:
            self._settle()
            if self._broken is None:
                self._broken = Closed("it was closed")
        if self._watch is not None:
            self._watch.detach()
        self.backend.release(self.lease)


def _let_go(backend: Backend, lease: Lease) -> None:
    threading.Thread(target=backend.release, args=(lease,), daemon=True).start()
