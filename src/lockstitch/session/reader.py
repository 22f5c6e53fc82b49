"""Read a session: the state of its records so far, and the questions that can be asked of it.

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
# How many bytes of large values are kept in memory.
_KEPT = 16 * 1024 * 1024


@contextmanager
def advise_repair(backend: Backend, session: str) -> Iterator[None]:
    """Add to a ``Damaged`` error which command repairs the session."""
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
    """A caller's note: its name and value, when it was written, and the number of its record.

    ``at`` is milliseconds since 1970. ``is_rewound`` says that a rewind has gone back past it.
    """

    name: str
    value: Any
    at: int
    seq: int
    is_rewound: bool = False

    __repr__ = repr_without("value")


class SessionView:
    """The state of the records of a session that were read; threads may share it.

    Nothing here waits for a writer. ``asked`` is the last record that a request was made from, and
    ``spoken`` the dialect of that request.
    """

    def __init__(self, backend: Backend, session: str) -> None:
        self.backend = backend
        self.session = session
        self.state = JournalState()
        self.head = Head()
        self.asked = 0
        self.spoken = ""
        # Reentrant, because reading a request or a note looks at the state as well.
        self._looking = threading.RLock()
        self._blobs: dict[str, bytes] = {}
        self._requests = RequestCache()
        self._large = StoredLarge(backend.blobs, backend.sizes, backend.ends)
        self._askings: dict[int, list[CallRequest]] = {}

    def refresh(self) -> list[Fact]:
        """Read the records added since the last time; return their facts."""
        with self._looking:
            before = self.state.seq
            self.take(self.backend.read(self.session, self.head))
            return [self.state.facts[seq] for seq in range(before + 1, self.state.seq + 1)]

    def take(self, records: Iterable[JournalRecord]) -> None:
        """Add the next records to the state; if one is damaged, those before it are added."""
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
        """Return the answer to a question about the state, which does not change meanwhile."""
        with self._looking:
            return question(self.state)

    def request(self, dialect: str, *, model: str | None, provider: str | None) -> list[Any]:
        """Return the messages of a request made from the current state."""
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
        """The instructions that the model reads before the conversation, by role."""
        view = self.look(lambda state: state.view)
        return texts_in(view, lambda event: str(value_of(Raw(self.payload(event)))))

    @property
    def dialect(self) -> str:
        """The dialect of the last request or, if there was none, of the last reply."""
        last = self.look(lambda state: state.view.last_reply)
        return self.spoken or (last.event.dialect if last else "")

    def fetched(self, names: list[str]) -> dict[str, bytes]:
        """Return large values; they never change, so some are kept in memory."""
        missing = set(names) - self._blobs.keys()
        found = self.backend.blobs(sorted(missing)) if missing else {}
        values = {name: found.get(name) or self._blobs[name] for name in names}
        if sum(map(len, values.values())) <= _KEPT:
            self._blobs = values
        return values

    def payload(self, event: Event) -> bytes:
        """Return an event's payload, wherever it is stored."""
        return self.fetched([event.blob])[event.blob] if event.blob else bytes(event.payload)

    def output(self, call: Call) -> Any:
        """Return the decoded output of a call; None while it has no outcome."""
        if not isinstance(call, Call):
            raise UsageError("output takes a call, one of session.calls")
        found = self.look(lambda state: state.view.calls.get(call.key))
        outcome = found.outcome if found else None
        return None if outcome is None else value_of(Raw(self.payload(outcome.fact)))

    def asking(self, reply: int, index: int) -> CallRequest:
        """Return the tool and the arguments that a call asks for."""
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
        """Return a call in its current state; its arguments are read on first access."""
        key = call.reply, call.index
        return call_of(call, lambda: self.asking(*key))

    def notes(self, name: str | None, *, rewound: bool) -> list[Note]:
        """Return the caller's notes on the visible line, oldest first.

        With ``rewound`` all of them.

        Large values are not kept in memory.
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
        """Return the costs of all replies of the session, including those that were rewound."""
        facts = self.look(lambda state: list(state.facts.values()))
        return usage_of(facts, self._payload_once)

    def _payload_once(self, event: Event) -> bytes:
        return self.backend.blobs([event.blob])[event.blob] if event.blob else bytes(event.payload)


class SessionReadMixin:
    """What a session tells from memory: its state, calls, turn and description."""

    _view: SessionView

    def __repr__(self) -> str:
        """Return the session's name and state, but nothing of what was said."""
        turn = self.turn.state
        return f"<{type(self).__name__} {self.name}: {self.seq} records, turn {turn}>"

    @property
    def name(self) -> str:
        """The session's name."""
        return self._view.session

    @property
    def seq(self) -> int:
        """The number of records that have been read."""
        return self._view.head.seq

    @property
    def title(self) -> str:
        """The title of the session, "" if it has none."""
        return self._view.look(lambda state: about_from(state.described).title)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the session, in order."""
        return self._view.look(lambda state: about_from(state.described).tags)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata that the caller stored with the session."""
        return self._view.look(lambda state: about_from(state.described).metadata)

    @property
    def state(self) -> JournalState:
        """The complete state that the journal adds up to."""
        return self._view.state

    @property
    def instructions(self) -> dict[Role, str]:
        """The instructions that the model reads before the conversation, by role."""
        return self._view.instructions

    def system(self, dialect: str) -> Any:
        """Return the instructions as the parameter that Anthropic, Gemini or Bedrock expect.

        None if there are no instructions, or if the dialect has them among the messages.
        """
        return beside(self._view.instructions, dialect)

    @property
    def items(self) -> list[journal.Item]:
        """The visible conversation: what was said, what was replied, and results that came late."""
        return self._view.look(lambda state: list(state.view.items))

    @property
    def turn(self) -> Turn:
        """The last turn, which is open, waiting, ended or interrupted."""
        return self._view.look(lambda state: turn_of(state.view, self._view.call))

    @property
    def calls(self) -> list[Call]:
        """All calls of the conversation."""
        return self._view.look(lambda state: [*map(self._view.call, state.view.calls.values())])

    @property
    def pending(self) -> list[Call]:
        """The calls without an outcome that wait for nobody: open, approved or started."""
        return [call for call in self.calls if not call.outcome and call.status != "waiting"]

    @property
    def waiting(self) -> list[Call]:
        """The calls that wait for approval."""
        return [c for c in self.calls if c.status == "waiting" and not c.is_outside]

    @property
    def expected(self) -> list[Call]:
        """The calls whose results somebody else will deliver."""
        return [c for c in self.calls if c.status == "waiting" and c.is_outside]

    @property
    def checkpoints(self) -> list[journal.Checkpoint]:
        """The checkpoints to go back to, oldest first."""
        return self._view.look(lambda state: list(state.view.checkpoints))


class SessionReads(SessionReadMixin):
    """The questions that may read from the store, for programs that can wait for it."""

    def output(self, call: Call) -> Any:
        """Return the decoded output of a call; None while it has no outcome."""
        return self._view.output(call)

    def notes(self, name: str | None = None, *, rewound: bool = False) -> list[Note]:
        """Return all notes, or those with a name, oldest first.

        ``rewound`` includes rewound ones.
        """
        return self._view.notes(name, rewound=rewound)

    def usage(self) -> Usage:
        """Return what the replies cost, as reported by their providers; see :class:`Usage`."""
        return self._view.usage()


class Reader(SessionReads):
    """A session open for reading, as of the last read; :meth:`refresh` reads what was added.

    Get one from :meth:`Store.read`. It takes no lease, never waits for a writer and changes
    nothing, so any number of programs may read a session that another one writes. Reading raises
    ``Damaged`` if a record is not what was written, and ``Unreadable`` if the session does not
    exist.
    """

    def __init__(self, backend: Backend, name: str) -> None:
        self._view = SessionView(backend, name)
        with advise_repair(backend, name):
            self._view.refresh()

    def refresh(self) -> list[Fact]:
        """Read the records added since the last time; return their facts."""
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
        """Yield facts as they are added; stop after ``timeout`` seconds without a new one."""
        while True:
            until = end_of(timeout)
            while (is_longer := self.listen(until)) is None:
                pass
            if not is_longer:
                return
            yield from self.refresh()

    def listen(self, until: float | None) -> bool | None:
        """Wait briefly: return True for new records, False when the time is up, None otherwise.

        The wait is short so that Ctrl-C works on every system, and so that a cancelled task does
        not leave a thread behind for long.
        """
        seen = self._view
        left = LISTENING if until is None else min(until - time.monotonic(), LISTENING)
        if seen.backend.wait(seen.session, seen.head.seq, max(left, 0.0)):
            return True
        return False if left <= 0 else None


def end_of(timeout: float | None) -> float | None:
    """Return the time at which a timeout ends; None for no timeout."""
    return None if timeout is None else time.monotonic() + timeout
