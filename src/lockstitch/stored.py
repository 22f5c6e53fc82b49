"""Sessions in stores of Lockstitch's own, for people who look at them from outside.

>>> from lockstitch import stored
>>> for report in stored.check("sqlite:///agent.db"):      # reads everything, changes nothing
...     print(report.session, report.status)
>>> stored.rewind("sqlite:///agent.db", "ticket-42", to=17)
>>> stored.fork("sqlite:///agent.db", "ticket-42", "ticket-42-again", at="before the refactoring")

A target is the address of a store, or the path of one: an SQLite database, a session's file of
lines, a folder of such files. An agent itself works with ``lockstitch.open``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct, field, structs

from lockstitch.compaction.counting import calibrated
from lockstitch.compaction.ladder import Compaction, Task, ladder
from lockstitch.compaction.running import Clock, Summarize, quiet, run
from lockstitch.errors import Damaged, LockstitchError, Unreadable, UsageError
from lockstitch.formats.base import find
from lockstitch.formats.langgraph.journaled import Conversation, conversation
from lockstitch.journal.answers import known
from lockstitch.journal.checkpoints import Begun, Thread, line_of, may_be_thread
from lockstitch.journal.events import Event, Forked, Partial, Replied, Rewound, value_of
from lockstitch.journal.fold import Fact, State
from lockstitch.journal.importing import imported
from lockstitch.journal.projection import project
from lockstitch.journal.records import NEW, Entry, Record, chained
from lockstitch.journal.state import Checkpoint, Reply, Spoken, View
from lockstitch.lists import check as check_list
from lockstitch.places import Place, brief, place_of, public
from lockstitch.report import OWN, Report
from lockstitch.rules import Finding
from lockstitch.session import core
from lockstitch.session.compacting import Wish
from lockstitch.session.forking import forked
from lockstitch.session.reader import Reader
from lockstitch.session.sync import Session
from lockstitch.sessions import Shorter
from lockstitch.stores.base import Backend, Fault, Listed
from lockstitch.stores.opening import open_backend

DAMAGED = "LS611"
# A request is checked in the dialect of who replied last; before the first reply in this one.
_ANY_DIALECT = "anthropic"
LANGCHAIN = "langchain"
_SHOWN = 3


class Journal(Struct):
    """One session as it was read: its records, and what they add up to.

    ``blobs`` holds the large values that its records name. ``fault`` says where reading had to
    stop, or what is missing; the state is then that of the records before. In a thread of
    LangGraph, ``thread`` is the conversation of its last checkpoint, and the state is made of it.
    """

    session: str
    records: list[Record]
    state: State
    blobs: dict[str, bytes] = field(default_factory=dict)
    fault: Finding | None = None
    thread: Conversation | None = None

    @property
    def view(self) -> View:
        """The conversation along the visible line."""
        return self.state.view

    @property
    def dialect(self) -> str:
        """The dialect of the last reply that this version knows."""
        if self.thread is not None:
            return LANGCHAIN
        replies = (item for item in reversed(self.view.items) if isinstance(item, Reply))
        return next(filter(None, (known(one.event.dialect) for one in replies)), _ANY_DIALECT)

    @property
    def turns(self) -> int:
        """How many turns the conversation has."""
        items = [item for item in self.view.items if isinstance(item, Spoken | Reply)]
        before = [None, *items]
        return sum(
            isinstance(item, Spoken) and not isinstance(last, Spoken)
            for last, item in zip(before, items, strict=False)
        )

    def line(self) -> list[Fact]:
        """Give the facts of the visible line, oldest first."""
        return self.state.line(self.state.seq)

    def messages(self, dialect: str | None = None, model: str | None = None) -> list[Any]:
        """Give the messages of the request that the session makes; of a thread, those it has."""
        if self.thread is not None and dialect in {None, LANGCHAIN}:
            return list(self.thread.messages)
        if not self.view.items and self.view.summary is None:
            return []
        return project(self.view, dialect or self.dialect, model=model, blobs=self.blobs)

    def value(self, event: Event) -> Any:
        """Decode what an event carries; None for nothing, and for what cannot be read."""
        raw = msgspec.Raw(self.blobs.get(event.blob, b"null")) if event.blob else event.payload
        try:
            return value_of(raw, inner=isinstance(event, Replied | Partial))
        except (ValueError, RecursionError):
            return None


# Reading


def opened(target: str) -> tuple[Backend, Place]:
    """Open an existing store."""
    place = place_of(target)
    if place is None:
        raise Unreadable("is no store of Lockstitch's own")
    return open_backend(place.url, create=False), place


def read(target: str, session: str | None = None) -> Journal:
    """Read one session, as far as it is whole; the only one of a store needs no name."""
    backend, place = opened(target)
    with backend:
        name = chosen(backend, session or place.session)
        _require(backend, name)
        journal = _journal(backend, name)
    if journal.fault is not None:
        message = brief(journal.fault.message, target, name)
        journal.fault = structs.replace(journal.fault, message=message)
    return journal


def chosen(backend: Backend, session: str | None) -> str:
    """Give the session that is meant: the one named, or the only one there is."""
    if session is not None:
        return session
    first = [listed.session for listed in backend.sessions(limit=_SHOWN + 1)]
    if not first:
        raise Unreadable("holds no session")
    if len(first) > 1:
        more = " …" if len(first) > _SHOWN else ""
        raise UsageError(
            "holds several sessions; name one with --session: "
            + ", ".join(first[:_SHOWN]) + more
        )  # fmt: skip
    return first[0]


def _journal(backend: Backend, session: str) -> Journal:
    journal = Journal(session, [], State())
    thread = Thread()
    try:
        for record in backend.read(session):
            journal.records.append(record)
            journal.state.apply(record)
            if may_be_thread(session):
                thread.apply(record)
    except Damaged as error:
        journal.fault = _damage(len(journal.records) + 1, str(error))
    if thread.id is not None:
        return _threaded(journal, thread, backend)
    names = (fact.event.blob for fact in journal.state.facts.values())
    for name in dict.fromkeys(name for name in names if name):
        try:
            journal.blobs |= backend.blobs([name])
        except Damaged as error:
            journal.fault = journal.fault or _damage(0, str(error))
    return journal


def _threaded(journal: Journal, thread: Thread, backend: Backend) -> Journal:
    """Read a thread of LangGraph: its messages, as if they had been said one after the other."""
    for name in sorted(thread.blobs):
        try:
            journal.blobs |= backend.blobs([name])
        except Damaged as error:
            journal.fault = journal.fault or _damage(0, str(error))
    try:
        journal.thread = conversation(thread, lambda names: {n: journal.blobs[n] for n in names})
    except (Damaged, KeyError):
        journal.thread = Conversation([], [], 0)
    journal.state = State()
    events = imported(journal.thread.messages, LANGCHAIN).events
    at = journal.records[-1].at
    entries = (Entry(str(n), at, msgspec.json.encode(event)) for n, event in enumerate(events, 1))
    for record in chained(NEW, 1, entries):
        journal.state.apply(record)
    return journal


def _damage(seq: int, message: str) -> Finding:
    return find(DAMAGED, str(seq) if seq else "store", message)


# Checking


def check(
    target: str,
    session: str | None = None,
    *,
    dialect: str | None = None,
    model: str | None = None,
    advance: Callable[[int], object] = lambda _: None,
) -> Iterator[Report]:
    """Verify a store, or one session of it: every byte, and the request that each session makes.

    What is wrong with no session in particular is a report without a session. ``advance`` is told
    the number of records as they are done. Nothing is changed, and no writer is waited for.
    """
    backend, place = opened(target)
    name = public(target)
    with backend:
        wanted = session or place.session
        found = backend.verify() if wanted is None else _alone(backend, wanted)
        for listed, faults in _grouped(found):
            if listed is None:
                findings = [_damage(fault.seq, fault.message) for fault in faults]
                yield _brief(Report(name, OWN, findings=findings), target)
                continue
            report = _judged(name, backend, listed, faults, dialect, model)
            yield _brief(report, target)
            advance(max(listed.seq, report.records))


def count(target: str, session: str | None = None) -> int:
    """Count the records that a check is going to read."""
    backend, place = opened(target)
    with backend:
        wanted = session or place.session
        if wanted is None:
            return sum(listed.seq for listed in backend.sessions())
        with suppress(Damaged):
            head = backend.head(wanted)
            return head.seq if head else 0
    return 0


def _alone(backend: Backend, session: str) -> Iterator[Listed]:
    _require(backend, session)
    yield Listed(session, 0, 0, 0, 0)


def _brief(report: Report, target: str) -> Report:
    """Leave the names out of what is said that stand before it."""
    session = report.session or ""
    report.findings = [
        structs.replace(found, message=brief(found.message, target, session))
        for found in report.findings
    ]
    report.error = None if report.error is None else brief(report.error, target, session)
    return report


def _grouped(found: Iterable[Fault | Listed]) -> Iterator[tuple[Listed | None, list[Fault]]]:
    """Give every session with the faults in it; those of the store itself come apart, last."""
    faults: dict[str, list[Fault]] = {}
    for one in found:
        if isinstance(one, Fault):
            faults.setdefault(one.session, []).append(one)
        else:
            yield one, faults.pop(one.session, [])
    left = [fault for group in faults.values() for fault in group]
    if left:
        yield None, left


def _judged(  # noqa: PLR0913, PLR0917 - one step of a check
    target: str,
    backend: Backend,
    listed: Listed,
    faults: list[Fault],
    dialect: str | None,
    model: str | None,
) -> Report:
    report = Report(target, OWN, listed.session, records=listed.seq)
    try:
        journal = _journal(backend, listed.session)
        report.findings = [_damage(fault.seq, fault.message) for fault in faults]
        if journal.fault is not None and not faults:
            report.findings.append(journal.fault)
        _describe(report, journal)
        report.dialect = dialect or journal.dialect
        messages = journal.messages(dialect, model)
        report.messages = len(messages)
        judged = messages if journal.thread is None or dialect else journal.thread.settled
        report.findings += check_list(judged, report.dialect, model=model) if judged else []
    except LockstitchError as error:
        report.error = str(error)
    return report


def _describe(report: Report, journal: Journal) -> None:
    report.records = len(journal.records)
    report.reachable = journal.turns
    report.size = sum(len(record.body) for record in journal.records)
    report.size += sum(map(len, journal.blobs.values()))
    report.updated = journal.records[-1].at / 1000 if journal.records else 0.0


# Going back, and branching off


class Moved(Struct, frozen=True):
    """A session that was taken back: from which record to which, and where it ends now."""

    session: str
    was: int
    to: int
    seq: int


def checkpoints(target: str, session: str | None = None) -> list[Checkpoint]:
    """List the places to go back to, oldest first; each of them can be named by its ``seq``."""
    return list(read(target, session).view.checkpoints)


class Left(Struct, frozen=True):
    """How much of a conversation a rewind takes out of it."""

    turns: int
    replies: int
    calls: int


def aim(journal: Journal, to: int | str | None) -> int:
    """Tell which record a rewind would lead to, as :func:`rewind` finds it."""
    if to is not None:
        return core.place(journal.state, to)
    [event] = core.undone(journal.state)
    assert isinstance(event, Rewound)  # noqa: S101 - that is what undoing one is
    return event.to


def left_behind(journal: Journal, to: int) -> Left:
    """Count what of the conversation is not in it any more after a rewind to a record."""
    kept = {fact.seq for fact in journal.state.line(to)}
    gone = [item for item in journal.view.items if item.seq not in kept]
    replies = [item for item in gone if isinstance(item, Reply)]
    calls = sum(len(reply.calls) for reply in replies)
    return Left(sum(isinstance(item, Spoken) for item in gone), len(replies), calls)


def rewind(
    target: str,
    session: str | None = None,
    *,
    to: int | str | None = None,
    wait: float = 0.0,
) -> Moved:
    """Go back to a record, or to the checkpoint with a label; without ``to`` undo the last rewind.

    It is one more fact in the journal: nothing is deleted. Raises ``Held`` if another writer has
    the session for longer than ``wait`` seconds.
    """
    place, name = _existing(target, session)
    with open_backend(place.url) as backend:
        with Session(backend, name, wait=wait, create=False) as opened:
            was = opened.seq
            opened.undo_rewind() if to is None else opened.rewind(to)
            fact = opened.state.facts[was + 1]
        return Moved(name, was, fact.parent, fact.seq)


def outlook(journal: Journal, budget: int, most_bytes: int | None = None) -> Compaction:
    """Say what a compaction would come to without a model; nothing is written."""
    view, dialect = journal.view, journal.dialect
    counter = calibrated(view, dialect, journal.blobs)
    room = Wish(budget, most_bytes).budget
    task = Task(view, dialect, room, journal.blobs, has_model=False, counter=counter)
    return run(ladder(task), None, Clock(0.0, None), keep=lambda *_: None, on_progress=quiet)


def shorter(target: str, journal: Journal, done: Compaction) -> Shorter:
    """Say of a compaction how many turns its summary is for."""
    view = journal.view if done.event is None else journal.state.snapshot(done.event)
    hidden = [item for item in view.items if done.event and view.hides(item.seq)]
    turns = sum(isinstance(item, Spoken) for item in hidden)
    return Shorter(Report(public(target), OWN, journal.session), done, turns)


def compact(
    target: str, session: str | None = None, summarize: Summarize | None = None, **options: Any
) -> Shorter:
    """Compact a session as ``Session.compact`` does, with its options; one more record says so."""
    place, name = _existing(target, session)
    with open_backend(place.url) as backend, Session(backend, name, create=False) as opened:
        done = opened.compact(summarize, **options)
    journal = read(target, name)
    hidden = [item for item in journal.view.items if done.event and journal.view.hides(item.seq)]
    turns = sum(isinstance(item, Spoken) for item in hidden)
    return Shorter(Report(public(target), OWN, name), done, turns)


def uncompact(target: str, session: str | None = None) -> str:
    """Take every compaction of a session back; gives its name."""
    place, name = _existing(target, session)
    with open_backend(place.url) as backend, Session(backend, name, create=False) as opened:
        opened.uncompact()
    return name


def fork(target: str, session: str | None, new: str, *, at: int | str | None = None) -> int:
    """Make a new session of another one's first records, up to a record or a label; gives how many.

    The other one may have a writer: it is only read.
    """
    place, name = _existing(target, session)
    with open_backend(place.url) as backend:
        forked(backend, name, new, at)
        facts = Reader(backend, new).state.facts.values()
        return [fact.event.at for fact in facts if isinstance(fact.event, Forked)][-1]


def name_in(target: str, session: str | None = None) -> str:
    """Give the name of the session that is meant: the one named, or the only one there is."""
    return _existing(target, session)[1]


def _existing(target: str, session: str | None) -> tuple[Place, str]:
    """Make sure that a session is there before its store is opened for writing."""
    backend, place = opened(target)
    with backend:
        name = chosen(backend, session or place.session)
        _require(backend, name)
        _refuse_thread(backend, name)
    return place, name


def _refuse_thread(backend: Backend, session: str) -> None:
    with suppress(Damaged):
        first = next(iter(backend.read(session, upto=1)), None) if may_be_thread(session) else None
        if first is not None and isinstance(line_of(first.body), Begun):
            raise UsageError(
                "is a thread of LangGraph: its graph goes back and branches off"
                " (get_state_history, update_state), and its saver copies it (copy_thread)"
            )


def _require(backend: Backend, session: str) -> None:
    with suppress(Damaged):
        if backend.head(session) is None:
            raise Unreadable(f"there is no session {session}")
