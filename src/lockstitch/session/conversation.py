"""What both twins of a session do with the store; the calls may wait, so async runs them apart."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import structs

from lockstitch.compaction.options import Wish
from lockstitch.errors import Busy, Held, LockstitchError, UsageError
from lockstitch.journal.about import About, checked_tags, told
from lockstitch.journal.events import (
    Compacted,
    Event,
    Finished,
    Instructed,
    Noted,
    Rewound,
    Role,
    Said,
    as_stored,
    text_payload,
)
from lockstitch.journal.fold import State
from lockstitch.journal.instructions import ROLES
from lockstitch.journal.projection import wanted
from lockstitch.journal.records import checked_name
from lockstitch.journal.state import Checkpoint
from lockstitch.session import core
from lockstitch.session.batch import Batch
from lockstitch.session.calls import Call, Recovered, Turn
from lockstitch.session.children import Parent
from lockstitch.session.compacting import Compacting, is_over
from lockstitch.session.content import json_payload, said_payload
from lockstitch.session.delivering import Inbox, outcome_of
from lockstitch.session.reading import Readable, advised
from lockstitch.session.received import received
from lockstitch.session.signals import Deferred, reason_of
from lockstitch.session.tools import Tool
from lockstitch.session.writing import Writer, named_key
from lockstitch.stores.base import Backend

MOMENT = 0.25
# How long one look for what others delivered lasts, so that an approval is seen soon, too.
LISTENING = 0.25


class Opened:
    """The sessions that are open in this process, so that a parent finds its children."""

    def __init__(self) -> None:
        self._found: weakref.WeakValueDictionary[tuple[int, str], Conversation]
        self._found = weakref.WeakValueDictionary()

    def add(self, backend: Backend, name: str, conversation: Conversation) -> None:
        """Remember a session as long as somebody holds it."""
        self._found[id(backend), name] = conversation

    def children(
        self, backend: Backend, session: str, calls: Iterable[tuple[int, int]]
    ) -> list[Conversation]:
        """Return the open sessions that belong to some calls of a session."""
        names = [Parent(session, *call).child for call in calls]
        found = (self._found.get((id(backend), name)) for name in names)
        return [one for one in found if one is not None]


OPENED = Opened()


class Conversation(Readable):
    """An open session: the lease is held, and what a crash left open was concluded."""

    def __init__(
        self,
        backend: Backend,
        name: str,
        *,
        wait: float,
        create: bool,
        parent: Parent | None = None,
    ) -> None:
        self.batches: set[Batch] = set()
        self._said_before: list[Said] = []
        checked_name(name)
        until = time.monotonic() + checked_wait(wait)
        while not self._is_opened(backend, name, until, create=create):
            pass
        OPENED.add(backend, name, self)
        if parent is not None and not self.seq:
            self.writer.add(Noted(name=core.CHILD, payload=json_payload(parent)))

    def _is_opened(self, backend: Backend, name: str, until: float, *, create: bool) -> bool:
        """Try for a moment; Ctrl-C comes through between two tries, never with a lease in hand."""
        left = until - time.monotonic()
        with Deferred(), advised(backend, name):
            try:
                lease = backend.acquire(name, wait=min(max(left, 0.0), MOMENT), create=create)
            except (Busy, Held):
                if time.monotonic() >= until:
                    raise
                return False
            try:
                self.writer = self._seen = Writer(backend, lease)
                self.recovered = self._recover()
                self._said_before = self.writer.look(core.words_of_turn)
                self._inbox = Inbox(self.writer)
                self._inbox.take_over()
            except BaseException:
                backend.release(lease)
                raise
            self.writer.watch(self)
        return True

    def _recover(self) -> Recovered:
        is_left_open = self.writer.look(core.is_left_open)
        facts = self.writer.look(core.recovery)
        if not facts and not is_left_open:
            return Recovered()
        if facts:
            self.writer.add(*facts)
        ended = [fact for fact in facts if isinstance(fact, Finished)]
        ran = {(fact.reply, fact.index) for fact in ended if fact.outcome == "unknown"}
        return self.writer.look(lambda state: self._left(state, ran, is_left_open=is_left_open))

    def _left(self, state: State, ran: set[core.Key], *, is_left_open: bool) -> Recovered:
        batch = [self.writer.call(call) for call in state.view.batch if core.asks(state.view)]
        ran |= {call.key for call in batch if call.outcome == "unknown" and not call.is_real}
        return Recovered(
            finished=tuple(call for call in batch if call.outcome and call.is_real),
            unknown=tuple(self.writer.call(state.view.calls[key]) for key in sorted(ran)),
            never_started=tuple(call for call in batch if call.status == "open"),
            interrupted=is_left_open,
        )

    def say(self, content: Any, *, dialect: str = "", key: str | None = None) -> Turn:
        said = Said(payload=said_payload(content, dialect), dialect=dialect)
        if key is not None or not self._is_said_before(said):
            self.writer.add(said, key=named_key("say", key))
        return self.turn

    def instruct(self, text: str, *, role: Role = "system") -> None:
        if role not in ROLES or not isinstance(text, str):
            raise UsageError("instructions are a text of the system or the developer")
        if self.writer.instructions.get(role, "") != text:
            self.writer.add(Instructed(payload=text_payload(text), role=role))

    def _is_said_before(self, said: Said) -> bool:
        """Whether the same program, started again, says what opened the turn that is still open.

        A program that was given no key repeats its words in their order; with the first other
        words it has gone on.
        """
        before, self._said_before = self._said_before, []
        is_open = self.writer.look(lambda state: bool(state.view.turn))
        if not before or not is_open or as_stored(said) != before[0]:
            return False
        self._said_before = before[1:]
        return True

    def record(
        self,
        reply: Any,
        dialect: str | None = None,
        *,
        provider: str | None = None,
        model: str | None = None,
        key: str | None = None,
    ) -> Turn:
        likely = self.writer.dialect
        event = received(reply, dialect, provider=provider, model=model, likely=likely)
        self.writer.add_reply(structs.replace(event, after=self.writer.last_request()), key)
        return self.turn

    def request(
        self,
        dialect: str,
        *,
        profile: str | None = None,
        model: str | None = None,
        provider: str | None = None,
    ) -> list[Any]:
        name = f"{dialect}:{profile}" if profile else dialect
        self._inbox.take_over()
        return self.writer.request(name, model=model, provider=provider)

    def batch(
        self, tools: Mapping[str, Tool], *, timeout: float | None, max_parallel: int | None
    ) -> Batch:
        """Look at the calls that could run now, those among them that others delivered for."""
        self._inbox.take_over()
        batch = Batch(self.writer, tools, timeout=timeout, max_parallel=max_parallel)
        batch.interrupt_children = self._interrupt_children
        self._leave_children(batch.lost)
        return batch

    def _interrupt_children(self, reason: str) -> None:
        for child in self.children:
            child.interrupt(reason)

    @property
    def children(self) -> list[Conversation]:
        """The sessions of sub-agents that calls which run now hold open in this process."""
        return OPENED.children(self.writer.backend, self.name, self._live())

    def _leave_children(self, calls: list[core.Key]) -> None:
        """End what sub-agents were doing for calls that nobody is going to run again."""
        backend = self.writer.backend
        for call in calls:
            name = Parent(self.name, *call).child
            if backend.head(name) is None:
                continue
            with suppress(Held):  # somebody leads it still
                child = Conversation(backend, name, wait=0.0, create=False)
                if child.turn.state in ("open", "waiting"):
                    child._leave_children([c.key for c in child.calls])
                    child.interrupt("parent")
                child.close()

    def deliver(self, which: Call | str, result: Any, *, key: str | None = None) -> Turn:
        event, name = self.writer.look(lambda state: outcome_of(state, which, result, key))
        self.writer.add(event, key=name)
        return self.turn

    def listen(self, until: float | None) -> Turn | None:
        """Wait for a short stretch; returns the turn once it does not wait, or the time is up."""
        self._inbox.take_over()
        left = LISTENING if until is None else min(until - time.monotonic(), LISTENING)
        turn = self.turn
        if turn.state != "waiting" or left <= 0:
            return turn
        self._inbox.wait(left)
        return None

    def interrupt(self, reason: str = "user") -> Turn:
        self._interrupt_children(reason)
        self.writer.decide(lambda state: core.interrupted(state, reason, self._live()))
        self._stop()
        return self.turn

    def resume(self) -> Turn:
        self.writer.decide(core.resumed)
        return self.turn

    def _live(self) -> set[core.Key]:
        return {key for batch in list(self.batches) for key in batch.live}

    def _stop(self) -> None:
        for batch in list(self.batches):
            batch.stop()

    def approve(self, call: Call | str) -> Call:
        return self._decided(call, None, allow=True)

    def deny(self, call: Call | str, reason: str | None = None) -> Call:
        return self._decided(call, reason, allow=False)

    def _decided(self, which: Call | str, reason: str | None, *, allow: bool) -> Call:
        found: list[core.Key] = []

        def decide(state: State) -> list[Event]:
            call = core.waiting_call(state, which)
            found.append((call.reply, call.index))
            return core.decided(call, reason, allow=allow)

        self.writer.decide(decide)
        return self.writer.look(lambda state: self.writer.call(state.view.calls[found[0]]))

    def note(self, name: str, value: Any = None, *, key: str | None = None) -> int:
        if not name or name in core.RESERVED:
            raise UsageError(f"a note has a name, other than {' and '.join(core.RESERVED)}")
        event = Noted(name=name, payload=json_payload(value))
        added = self.writer.add(event, key=named_key("note", key))
        return added[0].seq if added else self.seq

    def describe(
        self,
        title: str | None,
        tags: Iterable[str] | None,
        metadata: Mapping[str, Any] | None,
    ) -> About:
        given = None if tags is None else checked_tags(tags)
        self.writer.decide(lambda state: core.described(state, title, given, metadata))
        return self.writer.look(lambda state: told(state.described))

    def checkpoint(self, label: str) -> int:
        return self.writer.add(core.checkpointed(label))[0].seq

    def rewind(self, to: Checkpoint | str | int, reason: str = "") -> Turn:
        return self._rewound(lambda state: [Rewound(to=core.place(state, to), reason=reason)])

    def undo_rewind(self) -> Turn:
        return self._rewound(core.undone)

    def revert_interrupted(self) -> Turn:
        return self._rewound(core.reverted)

    def _rewound(self, decide: Callable[[State], Sequence[Event]]) -> Turn:
        self.writer.decide(decide)
        self.writer.asked = 0
        for batch in list(self.batches):
            batch.abandon()
        live = self._live()
        if self.writer.look(lambda state: core.orphaned(state, live)):
            self.writer.decide(lambda state: core.orphaned(state, live))
        return self.turn

    def compacting(self, wish: Wish, summarize: Callable[[str], Any] | None) -> Compacting:
        return Compacting(self.writer, wish, summarize)

    def uncompact(self) -> None:
        self.writer.add(Compacted())

    def is_over(self, wish: Wish, messages: list[Any]) -> bool:
        """Whether a request is over a budget, and this a moment to compact."""

        def asked(state: State) -> bool:
            blobs = self.writer.fetched(wanted(state.view))
            return is_over(wish, state.view, messages, blobs)

        return self.writer.look(asked)

    def long_children(self, wish: Wish) -> list[Conversation]:
        """Return the sessions of sub-agents that are over a budget, too."""
        found: list[Conversation] = []
        for child in self.children:
            writer = child.writer
            dialect = wish.dialect or writer.dialect or "anthropic"
            if child.is_over(wish, writer.request(dialect, model=None, provider=None)):
                found.append(child)
        return found

    def output(self, call: Call) -> Any:
        return self.writer.output(call)

    def close(self, error: BaseException | None = None) -> None:
        """Leave: on purpose, or because of an exception, which breaks the turn off."""
        with Deferred():
            try:
                if self.writer.is_writable:
                    self._leave(error)
            except LockstitchError:
                # What could not be written is concluded by whoever opens the session next.
                if error is None:
                    raise
            finally:
                self.writer.close()
                self._stop()

    def _leave(self, error: BaseException | None) -> None:
        for stream in list(self.writer.streams):
            stream.settle(error)
        live = self._live()
        if error is None and not live:
            # a courtesy to whoever opens it next: nothing is lost without it
            with suppress(LockstitchError):
                self.writer.decide(core.pause)
            return
        reason = reason_of(error) if error else "closed"
        self.writer.decide(lambda state: core.broken_off(state, reason, live))


def checked_wait(seconds: object) -> float:
    """Give a number of seconds to wait back if it is one."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise UsageError("wait is a number of seconds")
    return seconds
