"""One session of a store, as it was read."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct, field, structs

from lockstitch.errors import Damaged, Unreadable, UsageError
from lockstitch.formats.base import find
from lockstitch.formats.langgraph.journal import ThreadJournal, may_be_thread
from lockstitch.formats.langgraph.journal_messages import JournalConversation, read_conversation
from lockstitch.journal.events import Event, Partial, Replied, value_of
from lockstitch.journal.importing import import_events
from lockstitch.journal.projection import project
from lockstitch.journal.records import NEW, JournalEntry, JournalRecord, blob_name, chain_entries
from lockstitch.journal.results import known
from lockstitch.journal.state import Fact, JournalState, JournalView, ModelReply, Spoken, fold
from lockstitch.places import Place, brief, place_of
from lockstitch.rules import Finding
from lockstitch.session.listing import list_sessions
from lockstitch.session.maintenance import entries_of, read_salvage
from lockstitch.stores.base import Backend, Listing
from lockstitch.stores.opening import open_backend

DAMAGED = "LS611"
# A request is checked in the dialect of who replied last; before the first reply in this one.
_ANY_DIALECT = "anthropic"
LANGCHAIN = "langchain"
_SHOWN = 3


class Journal(Struct):
    """One session as it was read: its records, and what they add up to.

    ``blobs`` holds the large values that its records name. ``fault`` says where the first damage
    is, or what is missing: then the records are those that can be read, with a note in the place
    of each one that cannot. In a thread of LangGraph, ``thread`` is the conversation of its last
    checkpoint, and the state is made of it, up to the first damage.
    """

    session: str
    records: list[JournalRecord]
    state: JournalState
    blobs: dict[str, bytes] = field(default_factory=dict)
    fault: Finding | None = None
    thread: JournalConversation | None = None

    @property
    def view(self) -> JournalView:
        """The conversation along the visible line."""
        return self.state.view

    @property
    def dialect(self) -> str:
        """The dialect of the last reply that this version knows."""
        if self.thread is not None:
            return LANGCHAIN
        replies = (item for item in reversed(self.view.items) if isinstance(item, ModelReply))
        return next(filter(None, (known(one.event.dialect) for one in replies)), _ANY_DIALECT)

    @property
    def turns(self) -> int:
        """How many turns the conversation has."""
        items = [item for item in self.view.items if isinstance(item, Spoken | ModelReply)]
        before = [None, *items]
        return sum(
            isinstance(item, Spoken) and not isinstance(last, Spoken)
            for last, item in zip(before, items, strict=False)
        )

    def line(self) -> list[Fact]:
        """Return the facts of the visible line, oldest first."""
        return self.state.line(self.state.seq)

    def messages(self, dialect: str | None = None, model: str | None = None) -> list[Any]:
        """Return the messages of the request that the session makes; of a thread, those it has."""
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


def opened(target: str) -> tuple[Backend, Place]:
    """Open an existing store."""
    place = place_of(target)
    if place is None:
        raise Unreadable("is not a store of Lockstitch's own")
    return open_backend(place.url, create=False), place


def read(target: str, session: str | None = None) -> Journal:
    """Read one session, as far as it is whole; the only one of a store needs no name."""
    backend, place = opened(target)
    with backend:
        name = chosen(backend, session or place.session)
        require(backend, name)
        journal = journal_of(backend, name)
    if journal.fault is not None:
        message = brief(journal.fault.message, target, name)
        journal.fault = structs.replace(journal.fault, message=message)
    return journal


def chosen(backend: Backend, session: str | None) -> str:
    """Return the session that is meant: the one named, or the only one there is."""
    if session is not None:
        return session
    first = [one.session for one in list_sessions(backend, Listing(), limit=_SHOWN + 1)]
    if not first:
        raise Unreadable("holds no session")
    if len(first) > 1:
        more = " …" if len(first) > _SHOWN else ""
        raise UsageError(
            "holds several sessions; name one with --session: "
            + ", ".join(first[:_SHOWN]) + more
        )  # fmt: skip
    return first[0]


def journal_of(backend: Backend, session: str) -> Journal:
    """Read a session up to the first damage, which the journal then names."""
    journal = Journal(session, [], JournalState())
    thread = ThreadJournal()
    try:
        for record in backend.read(session):
            journal.records.append(record)
            journal.state.apply(record)
            if may_be_thread(session):
                thread.apply(record)
    except Damaged as error:
        journal.fault = damage(len(journal.records) + 1, str(error))
        if thread.id is None and not may_be_thread(session):
            journal.records, journal.blobs = _salvaged(backend, session)
            journal.state = fold(journal.records)
    if thread.id is not None:
        return _threaded(journal, thread, backend)
    names = (fact.event.blob for fact in journal.state.facts.values())
    for name in dict.fromkeys(name for name in names if name):
        try:
            if name not in journal.blobs:
                journal.blobs |= backend.blobs([name])
        except Damaged as error:
            journal.fault = journal.fault or damage(0, str(error))
    return journal


def _salvaged(backend: Backend, session: str) -> tuple[list[JournalRecord], dict[str, bytes]]:
    """Read what stands behind damage, too; a note stands for each record that is lost."""
    entries = entries_of(backend, read_salvage(backend, session))
    return chain_entries(NEW, 1, entries), {blob_name(b): b for one in entries for b in one.blobs}


def _threaded(journal: Journal, thread: ThreadJournal, backend: Backend) -> Journal:
    """Read a thread of LangGraph: its messages, as if they had been said one after the other."""
    for name in sorted(thread.blobs):
        try:
            journal.blobs |= backend.blobs([name])
        except Damaged as error:
            journal.fault = journal.fault or damage(0, str(error))
    try:
        journal.thread = read_conversation(
            thread, lambda names: {n: journal.blobs[n] for n in names}
        )
    except (Damaged, KeyError):
        journal.thread = JournalConversation([], [], 0)
    journal.state = JournalState()
    events = import_events(journal.thread.messages, LANGCHAIN).events
    at = journal.records[-1].at
    entries = (
        JournalEntry(str(n), at, msgspec.json.encode(event)) for n, event in enumerate(events, 1)
    )
    for record in chain_entries(NEW, 1, entries):
        journal.state.apply(record)
    return journal


def damage(seq: int, message: str) -> Finding:
    """Make a finding of a damaged record; number 0 stands for the store itself."""
    return find(DAMAGED, str(seq) if seq else "store", message)


def require(backend: Backend, session: str) -> None:
    """Raise ``Unreadable`` if there is no such session; a damaged one is there."""
    with suppress(Damaged):
        if backend.head(session) is None:
            raise Unreadable(f"there is no session {session}")
