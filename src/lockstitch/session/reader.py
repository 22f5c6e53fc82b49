"""A session as far as it was read: what it adds up to, and what can be asked of it.

A reader never takes the lease and never waits for a writer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from msgspec import Raw, Struct

from lockstitch.conversation.parts import MessageList, repr_without
from lockstitch.errors import Damaged, Unreadable, UsageError
from lockstitch.journal import state as journal
from lockstitch.journal.events import Event, Noted, Role, about_from, value_of
from lockstitch.journal.queries import Usage, usage_of
from lockstitch.journal.records import Head, JournalRecord, StoredLarge
from lockstitch.journal.requests import RequestCache
from lockstitch.journal.state import REPEATED, Fact, JournalState, beside, leading, texts_in
from lockstitch.session.decisions import (
    RESERVED,
    Call,
    CallRequest,
    Turn,
    call_of,
    call_requests_in,
    turn_of,
)
from lockstitch.stores.base import Backend

T = TypeVar("T")
# So many bytes of large values stay in memory.
_KEPT = 16 * 1024 * 1024


@contextmanager
def advise_repair(backend: Backend, session: str) -> Iterator[None]:
    """Add to an error about damage what can be done about it."""
    try:
        yield
    except Damaged as error:
        url = backend.url.partition("?")[0]
        raise Damaged(
            f"{error.message}. Next: `lockstitch repair {url} --session {session}` keeps "
            "everything that can be read, and the damaged session beside it"
        ).about(error.target, session) from error


LISTENING = 1.0


class Note(Struct, frozen=True):
    """A note: its name, its value, when it was written, and its record's number.

    ``at`` is milliseconds since 1970. ``is_rewound`` says that it was written before a rewind and
    is no longer in the current line.
    """

    name: str
    value: Any
    at: int
    seq: int
    is_rewound: bool = False

    __repr__ = repr_without("value")


class SessionView:
    """The records of a session that were read, added up; safe to use from several threads.

    Nothing here waits for a writer. ``asked`` is the last record that a request was made from,
    and ``spoken`` the dialect of that request.
    """

    def __init__(self, backend: Backend, session: str) -> None:
        self.backend = backend
        self.session = session
        self.state = JournalState()
        self.head = Head()
        self.asked = 0
        self.spoken = ""
        self._looking = threading.RLock()
        self._blobs: dict[str, bytes] = {}
        self._requests = RequestCache()
        self._large = StoredLarge(backend.blobs, backend.sizes, backend.ends)
        self._askings: dict[int, list[CallRequest]] = {}

    def refresh(self) -> list[Fact]:
        """Read what was added since, and return it."""
        with self._looking:
            before = self.state.seq
            self.take(self.backend.read(self.session, self.head))
            return [self.state.facts[seq] for seq in range(before + 1, self.state.seq + 1)]

    def take(self, records: Iterable[JournalRecord]) -> None:
        """Add up records that follow those before; up to a damaged one, if there is one."""
        last: JournalRecord | None = None
        apply = self.state.apply
        with self._looking:
            try:
                for last in records:
                    apply(last)
            finally:
                if last is not None:
                    self.head = Head(last.seq, last.digest, last.epoch)

    def look(self, question: Callable[[JournalState], T]) -> T:
        """Ask something of the state while nothing changes it."""
        with self._looking:
            return question(self.state)

    def request(self, dialect: str, *, model: str | None, provider: str | None) -> list[Any]:
        """Make the messages of a request from what is known now."""
        with self._looking:
            messages = self._requests.make(
                self.state.view, dialect, model=model, provider=provider, large=self._large
            )
            self.asked, self.spoken = self.state.seq, dialect
            head = leading(self.instructions, dialect)
        if not head:
            return messages
        whole = messages if isinstance(messages, MessageList) else MessageList(messages)
        whole.begin_with(head)
        return whole

    @property
    def instructions(self) -> dict[Role, str]:
        """What the model reads before the conversation, by role."""
        view = self.look(lambda state: state.view)
        return texts_in(view, lambda event: str(value_of(Raw(self.payload(event)))))

    @property
    def dialect(self) -> str:
        """The dialect that the session is led in: the last request's, else the last reply's."""
        last = self.look(lambda state: state.view.last_reply)
        return self.spoken or (last.event.dialect if last else "")

    def fetched(self, names: list[str]) -> dict[str, bytes]:
        """Return large values; they never change, so as many as are no burden are kept."""
        missing = set(names) - self._blobs.keys()
        found = self.backend.blobs(sorted(missing)) if missing else {}
        values = {name: found.get(name) or self._blobs[name] for name in names}
        if sum(map(len, values.values())) <= _KEPT:
            self._blobs = values
        return values

    def payload(self, event: Event) -> bytes:
        """Return an event's payload, wherever it is kept."""
        return self.fetched([event.blob])[event.blob] if event.blob else bytes(event.payload)

    def output(self, call: Call) -> Any:
        """Return the result of a call, decoded; None as long as there is none."""
        if not isinstance(call, Call):
            raise UsageError("output takes a call, one of session.calls")
        found = self.look(lambda state: state.view.calls.get(call.key))
        outcome = found.outcome if found else None
        return None if outcome is None else value_of(Raw(self.payload(outcome.fact)))

    def asking(self, reply: int, index: int) -> CallRequest:
        """Return what a model asked for in a call."""
        if reply not in self._askings:
            fact = self.look(lambda state: state.facts.get(reply))
            if fact is None:
                raise Unreadable(f"record {reply} is not a reply").about(session=self.session)
            self._askings[reply] = call_requests_in(fact.event, self.payload(fact.event))
        found = self._askings[reply]
        if index >= len(found):
            raise Damaged(f"record {reply} holds no call {index}").about(session=self.session)
        return found[index]

    def call(self, call: journal.CallState) -> Call:
        """Return a call as it stands, with its arguments to be read when they are asked for."""
        key = call.reply, call.index
        return call_of(call, lambda: self.asking(*key))

    def notes(self, name: str | None, *, rewound: bool) -> list[Note]:
        """Return the notes of the visible line, oldest first; with ``rewound`` also those off it.

        What is large is looked at once, and not kept in memory.
        """
        with self._looking:
            line = self.state.line(self.state.seq)
            facts = list(self.state.facts.values()) if rewound else line
        visible = {fact.seq for fact in line}
        found: list[Note] = []
        for fact in facts:
            event = fact.event
            if not isinstance(event, Noted) or event is REPEATED or event.name in RESERVED:
                continue
            if name in (None, event.name):
                value = value_of(Raw(self._payload_once(event)))
                is_rewound = fact.seq not in visible
                found.append(Note(event.name, value, fact.at, fact.seq, is_rewound))
        return found

    def usage(self) -> Usage:
        """Add up what the replies of a session cost, those that were rewound among them."""
        facts = self.look(lambda state: list(state.facts.values()))
        return usage_of(facts, self._payload_once)

    def _payload_once(self, event: Event) -> bytes:
        return self.backend.blobs([event.blob])[event.blob] if event.blob else bytes(event.payload)


class SessionReadMixin:
    """What can be asked of a session at any moment, without waiting for anything but memory."""

    _view: SessionView

    def __repr__(self) -> str:
        """Name the session and say where it stands; nothing that was said is shown."""
        turn = self.turn.state
        return f"<{type(self).__name__} {self.name}: {self.seq} records, turn {turn}>"

    @property
    def name(self) -> str:
        """The session's name."""
        return self._view.session

    @property
    def seq(self) -> int:
        """The number of records, as of the last read."""
        return self._view.head.seq

    @property
    def title(self) -> str:
        """The session's title, "" if it has none."""
        return self._view.look(lambda state: about_from(state.described).title)

    @property
    def tags(self) -> tuple[str, ...]:
        """The session's tags, in order."""
        return self._view.look(lambda state: about_from(state.described).tags)

    @property
    def metadata(self) -> dict[str, Any]:
        """The session's metadata, as the caller set it."""
        return self._view.look(lambda state: about_from(state.described).metadata)

    @property
    def state(self) -> JournalState:
        """The state that the journal's events add up to."""
        return self._view.state

    @property
    def instructions(self) -> dict[Role, str]:
        """What the model reads before the conversation: texts by role, system or developer."""
        return self._view.instructions

    def system(self, dialect: str) -> Any:
        """Return the instructions that go beside the messages: Anthropic's ``system`` and the like.

        None if there are none, or if the dialect has them among its messages.
        """
        return beside(self._view.instructions, dialect)

    @property
    def items(self) -> list[journal.Item]:
        """The current conversation: what was said, what was replied, and results that came late."""
        return self._view.look(lambda state: list(state.view.items))

    @property
    def turn(self) -> Turn:
        """The last turn: open, waiting, ended or interrupted."""
        return self._view.look(lambda state: turn_of(state.view, self._view.call))

    @property
    def calls(self) -> list[Call]:
        """Every call of the conversation."""
        return self._view.look(lambda state: [*map(self._view.call, state.view.calls.values())])

    @property
    def pending(self) -> list[Call]:
        """The calls without an outcome that nobody has to act on: open, approved, started."""
        return [call for call in self.calls if not call.outcome and call.status != "waiting"]

    @property
    def waiting(self) -> list[Call]:
        """The calls that are waiting for approval."""
        return [c for c in self.calls if c.status == "waiting" and not c.is_outside]

    @property
    def expected(self) -> list[Call]:
        """The calls whose results will be delivered from outside."""
        return [c for c in self.calls if c.status == "waiting" and c.is_outside]

    @property
    def checkpoints(self) -> list[journal.Checkpoint]:
        """The checkpoints to go back to, oldest first."""
        return self._view.look(lambda state: list(state.view.checkpoints))


class SessionReads(SessionReadMixin):
    """What may take a look into the store besides, for programs that can wait for it."""

    def output(self, call: Call) -> Any:
        """Return the result of a call, decoded; None as long as there is none."""
        return self._view.output(call)

    def notes(self, name: str | None = None, *, rewound: bool = False) -> list[Note]:
        """Return the notes, or those of one name, oldest first; ``rewound`` ones only if asked."""
        return self._view.notes(name, rewound=rewound)

    def usage(self) -> Usage:
        """Add up what the replies cost, as their providers reported it; see :class:`Usage`."""
        return self._view.usage()


class Reader(SessionReads):
    """A session as of the last read; :meth:`refresh` reads what was added since."""

    def __init__(self, backend: Backend, name: str) -> None:
        self._view = SessionView(backend, name)
        with advise_repair(backend, name):
            self._view.refresh()

    def refresh(self) -> list[Fact]:
        """Read what was added since, and return it."""
        return self._view.refresh()

    def request(
        self,
        dialect: str,
        *,
        profile: str | None = None,
        model: str | None = None,
        provider: str | None = None,
    ) -> list[Any]:
        """Return the messages that the writer would send now, as of the last read."""
        name = f"{dialect}:{profile}" if profile else dialect
        return self._view.request(name, model=model, provider=provider)

    def follow(self, timeout: float | None = None) -> Iterator[Fact]:
        """Return facts as they are added; ends after ``timeout`` seconds without a new one."""
        while True:
            until = end_of(timeout)
            while (is_longer := self.listen(until)) is None:
                pass
            if not is_longer:
                return
            yield from self.refresh()

    def listen(self, until: float | None) -> bool | None:
        """Wait briefly: True if there are new records, False if the time is up, None if neither.

        It is short, so that Ctrl-C works on every system and a cancelled task does not leave a
        thread behind for long.
        """
        seen = self._view
        left = LISTENING if until is None else min(until - time.monotonic(), LISTENING)
        if seen.backend.wait(seen.session, seen.head.seq, max(left, 0.0)):
            return True
        return False if left <= 0 else None


def end_of(timeout: float | None) -> float | None:
    """Return the moment at which so many seconds are over."""
    return None if timeout is None else time.monotonic() + timeout
