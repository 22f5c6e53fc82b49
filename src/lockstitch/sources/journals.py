"""Sessions in Lockstitch stores, read from outside: verified, and salvaged if damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from msgspec import Struct, field

from lockstitch.conversation.parts import repr_without
from lockstitch.dialects import ANTHROPIC, LANGCHAIN
from lockstitch.errors import Damaged, LockstitchError, Unreadable, UsageError
from lockstitch.formats.interface import NEW as NEW_RECORD
from lockstitch.formats.interface import Context, History, Transcript, new_finding, read_thread
from lockstitch.formats.repair import RepairOptions
from lockstitch.heal import check as check_list
from lockstitch.journal.events import Event, Partial, Replied, value_of
from lockstitch.journal.messages import import_events, known
from lockstitch.journal.records import NEW, JournalEntry, JournalRecord, blob_name, chain_entries
from lockstitch.journal.requests import project
from lockstitch.journal.salvage import Salvage, names_in
from lockstitch.journal.state import Fact, JournalState, JournalView, ModelReply, Spoken, fold
from lockstitch.rules import NOTE, Finding
from lockstitch.session import maintenance
from lockstitch.session.listing import (
    ThreadConversation,
    begins_thread,
    list_sessions,
    may_be_thread,
)
from lockstitch.session.maintenance import Exchanged, entries_of, is_aside, is_thread, read_salvage
from lockstitch.sources.own_stores import StorePlace, place_of
from lockstitch.sources.source import OWN, ManySource, Opened, Repaired, Report, Survey
from lockstitch.stores.addresses import public
from lockstitch.stores.base import Backend, Listed, Listing, StoreFault
from lockstitch.stores.opening import open_backend

DAMAGED = "LS611"
# A request is checked in the dialect of the last reply; in this one if there is no reply yet.
_ANY_DIALECT = ANTHROPIC
_SHOWN = 3


class Journal(Struct):
    """One session as it was read: its records, and the state they add up to.

    ``blobs`` holds the large values that its records name. ``fault`` says where the first damage
    is, or what is missing; the records are then those that can be read, with a note in place of
    each one that cannot. For a thread of LangGraph, ``thread`` is the conversation of its last
    checkpoint, and the state is made from it, up to the first damage.
    """

    session: str
    records: list[JournalRecord]
    state: JournalState
    blobs: dict[str, bytes] = field(default_factory=dict)
    fault: Finding | None = None
    thread: ThreadConversation | None = None

    __repr__ = repr_without("blobs")

    @property
    def view(self) -> JournalView:
        """The visible conversation."""
        return self.state.view

    @property
    def dialect(self) -> str:
        """The dialect of the last reply in a dialect that this version knows."""
        if self.thread is not None:
            return LANGCHAIN
        replies = (item for item in reversed(self.view.items) if isinstance(item, ModelReply))
        return next(filter(None, (known(one.event.dialect) for one in replies)), _ANY_DIALECT)

    @property
    def turns(self) -> int:
        """The number of turns in the conversation."""
        items = [item for item in self.view.items if isinstance(item, Spoken | ModelReply)]
        before = [None, *items]
        return sum(
            isinstance(item, Spoken) and not isinstance(last, Spoken)
            for last, item in zip(before, items, strict=False)
        )

    def line(self) -> list[Fact]:
        """Return the facts of the current line, oldest first."""
        return self.state.line(self.state.seq)

    def messages(self, dialect: str | None = None, model: str | None = None) -> list[Any]:
        """Return the messages of the session's request; for a thread, the messages that it has."""
        if self.thread is not None and dialect in {None, LANGCHAIN}:
            return list(self.thread.messages)
        if not self.view.items and self.view.summary is None:
            return []
        return project(self.view, dialect or self.dialect, model=model, blobs=self.blobs)

    def value(self, event: Event) -> Any:
        """Return the decoded payload of an event; None if it has none or it cannot be read."""
        raw = msgspec.Raw(self.blobs.get(event.blob, b"null")) if event.blob else event.payload
        try:
            return value_of(raw, inner=isinstance(event, Replied | Partial))
        except (ValueError, RecursionError):
            return None


def open_store(target: str) -> tuple[Backend, StorePlace]:
    """Open an existing store."""
    place = place_of(target)
    if place is None:
        raise Unreadable("it is not a Lockstitch store")
    return open_backend(place.url, create=False), place


def read(target: str, session: str | None = None) -> Journal:
    """Read one session, as far as it is intact; a store with a single session needs no name."""
    backend, place = open_store(target)
    with backend:
        name = choose_session(backend, session or place.session)
        require(backend, name)
        return journal_of(backend, name)


def choose_session(backend: Backend, session: str | None) -> str:
    """Return the session that was named, or the only one there is."""
    if session is not None:
        return session
    first = [one.session for one in list_sessions(backend, Listing(), limit=_SHOWN + 1)]
    if not first:
        raise Unreadable("it holds no session")
    if len(first) > 1:
        more = " …" if len(first) > _SHOWN else ""
        raise UsageError(
            "it holds several sessions; name one with --session: "
            + ", ".join(first[:_SHOWN]) + more
        )  # fmt: skip
    return first[0]


def journal_of(backend: Backend, session: str) -> Journal:
    """Read a session; if it is damaged, the journal says where first."""
    journal = Journal(session, [], JournalState())
    try:
        for record in backend.read(session):
            journal.records.append(record)
            journal.state.apply(record)
    except Damaged as error:
        journal.fault = damage(len(journal.records) + 1, error.message)
        if not may_be_thread(session):
            # records after the damage are read, too, and a note replaces each record that is lost
            entries = entries_of(backend, read_salvage(backend, session))
            journal.records = chain_entries(NEW, 1, entries)
            journal.blobs = {blob_name(blob): blob for one in entries for blob in one.blobs}
            journal.state = fold(journal.records)
    if may_be_thread(session) and begins_thread(journal.records):
        return _read_thread(journal, backend)
    names = (fact.event.blob for fact in journal.state.facts.values())
    for name in dict.fromkeys(name for name in names if name):
        try:
            if name not in journal.blobs:
                journal.blobs |= backend.blobs([name])
        except Damaged as error:
            journal.fault = journal.fault or damage(0, error.message)
    return journal


def _read_thread(journal: Journal, backend: Backend) -> Journal:
    """Read a thread of LangGraph: its messages, as if they had been said one after the other."""
    for name in sorted(names_in(journal.records)):
        try:
            journal.blobs |= backend.blobs([name])
        except Damaged as error:
            journal.fault = journal.fault or damage(0, error.message)
    try:
        journal.thread = read_thread(
            journal.records, lambda names: {n: journal.blobs[n] for n in names}
        )
    except (Damaged, KeyError):
        journal.thread = ThreadConversation([], [], 0)
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
    """Return a finding for a damaged record; number 0 stands for the store itself."""
    return new_finding(DAMAGED, str(seq) if seq else "store", message)


def require(backend: Backend, session: str) -> None:
    """Raise ``Unreadable`` if there is no such session; a damaged one counts as existing."""
    with suppress(Damaged):
        if backend.head(session) is None:
            raise Unreadable(f"there is no session {session}")


class Copied(Struct, frozen=True):
    """A session that was written to another store, and how much of it was lost."""

    session: str
    records: int
    lost: int


def salvage_session(target: str, session: str | None = None) -> Salvage:
    """Read everything that can be read of a session, with a verdict on each record."""
    backend, place = open_store(target)
    with backend:
        return maintenance.read_salvage(backend, choose_session(backend, session or place.session))


def find_damaged(target: str, session: str | None = None) -> Iterator[Salvage]:
    """Yield the damaged sessions of a store, except those put aside, or only the named one."""
    backend, place = open_store(target)
    name = session or place.session
    with backend:
        names = [one.session for one in backend.sessions()] if name is None else [name]
        for one in names:
            if (name is not None or not is_aside(one)) and not _is_whole(backend, one):
                found = maintenance.read_salvage(backend, one)
                if not found.is_whole:
                    yield found


def _is_whole(backend: Backend, session: str) -> bool:
    try:
        names = names_in(backend.read(session))
        for name in names:
            backend.blobs([name])
    except Damaged:
        return False
    return True


def repair_store(target: str, session: str | None = None) -> Exchanged:
    """Rewrite a damaged session from what can be read; the damaged one is kept beside it.

    In place of each lost record stands a note with what is left of it. Raises ``UsageError`` if
    nothing is damaged, and ``Held`` if somebody writes the session.
    """
    with _writing(target, session) as (backend, name):
        return maintenance.rewrite_damaged(backend, maintenance.read_salvage(backend, name))


def can_undo(target: str) -> bool:
    """Whether a store holds a damaged session that a repair kept."""
    backend, _ = open_store(target)
    with backend:
        return any(is_aside(one.session) for one in backend.sessions())


def undo_store(target: str, session: str | None = None) -> Exchanged:
    """Undo the last repair of a session; the repaired session is kept beside it."""
    with _writing(target, session) as (backend, name):
        return maintenance.undo_rewrite(backend, name)


@contextmanager
def _writing(target: str, session: str | None) -> Iterator[tuple[Backend, str]]:
    """Open an existing store for writing; yield it and the session to write."""
    backend, place = open_store(target)
    with backend:
        name = session or place.session
        if name is None:
            # the only one of a store, not counting those that were put aside
            names = [one.session for one in list_sessions(backend, Listing())]
            active = [one for one in names if not is_aside(one)]
            name = active[0] if len(active) == 1 else choose_session(backend, None)
        backend.remains(name)
    with open_backend(place.url) as writable:
        yield writable, name


def copy_store(target: str, url: str) -> Iterator[Copied]:
    """Write all sessions of a store, as far as they can be read, to a new, empty store."""
    backend, _ = open_store(target)
    with backend, open_backend(url) as other:
        if next(iter(other.sessions(limit=1)), None) is not None:
            raise UsageError("the store to write to already holds sessions: name a new one")
        for one in backend.sessions():
            found = maintenance.read_salvage(backend, one.session)
            entries = maintenance.entries_of(backend, found)
            other.add(one.session, entries, NEW)
            yield Copied(one.session, len(entries), len(found.holes) + len(found.lost))


def findings_of(found: Salvage) -> list[Finding]:
    """Return what is wrong with a session, record by record."""
    severity = NOTE if is_aside(found.session) else ""
    is_fixable = not ((found.holes or found.lost) and is_thread(found))
    made: list[Finding] = []
    for one in found.records:
        if one.proof in {"intact", "behind"}:
            continue
        place = str(one.seq) if one.seq else "store"
        name = f"record {one.seq}" if one.seq else "a piece that belongs nowhere"
        message = f"{name} {_WORDS[one.proof]}"
        if one.count > 1:
            message = f"{one.count} records are missing"
            place = f"{one.seq}-{one.seq + one.count - 1}" if one.seq else place
        elif one.proof != "missing":
            message = f"{message}: {one.why}"
        made.append(new_finding(DAMAGED, place, message, severity, fixable=is_fixable))
    for name, numbers in found.lost.items():
        message = f"the large value {name} is missing or is not what was written (checksum)"
        made.append(new_finding(DAMAGED, str(numbers[0]), message, severity, fixable=is_fixable))
    made += [
        new_finding(DAMAGED, "store", note, severity, fixable=is_fixable) for note in found.notes
    ]
    return made


def summary_of(found: Salvage) -> str:
    """Return a sentence that says what a repair keeps of a session, and what it cannot."""
    whole = sum(one.proof in {"intact", "behind", "restored"} for one in found.records)
    unproven = sum(one.proof == "unproven" for one in found.records)
    lost = sum(one.count for one in found.holes)
    restored = sum(one.proof == "restored" for one in found.records)
    parts = [f"{whole} records are as they were written"]
    if found.behind:
        parts.append(f"{found.behind} of them after the damage")
    if restored:
        parts.append(f"{restored} restored")
    if unproven:
        parts.append(f"{unproven} more can be read but not verified")
    if lost:
        parts.append(f"{lost} lost")
    if found.lost:
        parts.append(f"{len(found.lost)} large values lost")
    return ", ".join(parts)


_WORDS = {
    "restored": "is not what was written, and can be restored",
    "unproven": "can be read, but not verified",
    "damaged": "is not what was written (checksum)",
    "missing": "is missing",
}


def check_store(
    target: str,
    session: str | None = None,
    *,
    dialect: str | None = None,
    model: str | None = None,
    advance: Callable[[int], object] = lambda _: None,
) -> Iterator[Report]:
    """Verify a store, or one session of it: every byte, and the request that each session gives.

    Damage that belongs to no session is a report without a session. ``advance`` gets the number of
    records as they are done. Nothing is changed, and this never waits for a writer.
    """
    backend, place = open_store(target)
    name = public(target)
    with backend:
        wanted = session or place.session
        found: Iterable[StoreFault | Listed]
        if wanted is None:
            found = backend.verify()
        else:
            require(backend, wanted)
            found = [Listed(wanted, 0, 0, 0, 0)]
        for listed, faults in _group_by_session(found):
            if listed is None:
                findings = [damage(fault.seq, fault.message) for fault in faults]
                yield Report(name, OWN, findings=findings)
                continue
            report = Report(name, OWN, listed.session, records=listed.seq)
            try:
                _judge(report, backend, faults, dialect, model)
            except LockstitchError as error:
                report.error = error.message
            yield report
            advance(max(listed.seq, report.records))


def count(target: str, session: str | None = None) -> int:
    """Return the number of records that a check will read."""
    backend, place = open_store(target)
    with backend:
        wanted = session or place.session
        if wanted is None:
            return sum(listed.seq for listed in backend.sessions())
        with suppress(Damaged):
            head = backend.head(wanted)
            return head.seq if head else 0
    return 0


def _group_by_session(
    found: Iterable[StoreFault | Listed],
) -> Iterator[tuple[Listed | None, list[StoreFault]]]:
    """Yield every session with its faults; faults of the store itself come last."""
    faults: dict[str, list[StoreFault]] = {}
    for one in found:
        if isinstance(one, StoreFault):
            faults.setdefault(one.session, []).append(one)
        else:
            yield one, faults.pop(one.session, [])
    left = [fault for group in faults.values() for fault in group]
    if left:
        yield None, left


def _judge(
    report: Report,
    backend: Backend,
    faults: list[StoreFault],
    dialect: str | None,
    model: str | None,
) -> None:
    """Add to a session's report its damaged records, and what is wrong with its request."""
    session = str(report.session)
    journal = journal_of(backend, session)
    if faults or journal.fault is not None:
        salvage = read_salvage(backend, session)
        if salvage.is_whole:
            report.findings = [damage(fault.seq, fault.message) for fault in faults]
        else:
            kept = f"{summary_of(salvage)}; `lockstitch repair` keeps everything that can be read"
            report.notes.append(kept)
            report.findings = findings_of(salvage)
    report.records, report.reachable = len(journal.records), journal.turns
    report.size = sum(len(record.body) for record in journal.records)
    report.size += sum(map(len, journal.blobs.values()))
    report.updated = journal.records[-1].at / 1000 if journal.records else 0.0
    report.dialect = dialect or journal.dialect
    messages = journal.messages(dialect, model)
    report.messages = len(messages)
    judged = messages if journal.thread is None or dialect else journal.thread.settled
    report.findings += check_list(judged, report.dialect, model=model) if judged else []


class StoreSource(ManySource, frozen=True):
    """A Lockstitch store, or one session in it; its path may be an address.

    A session is read as the request that it makes. A repair rewrites a damaged session from what
    can be read and keeps the damaged one beside it, where ``undo_store`` finds it.
    """

    def open(self, *, follow_symlinks: bool = False, search: bool = False) -> Opened:
        journal = read(self.path, self.session)
        messages = journal.messages()
        nowhere = [[NEW_RECORD] for _ in messages]
        history = History(journal.dialect, messages, nowhere, [[()] for _ in messages])
        known = Transcript(Context(name=journal.session), [], history, session=journal.session)
        known.turns = journal.turns
        return Opened(self, known)

    def check(self) -> Report:
        return next(iter(self.reports(Survey())))

    def examine(self) -> tuple[Report, Transcript | None]:
        return self.check(), None

    def reports(self, survey: Survey, title: str = "Checking") -> Iterator[Report]:
        if survey.shard[0] > 1:
            return  # a store is not divided, so the first part includes all of it
        asked = {"dialect": survey.dialect, "model": survey.model}
        try:
            total = 0 if survey.bar is None else count(self.path, self.session)
            with survey.showing(title, total, "records") as advance:
                yield from check_store(self.path, self.session, advance=advance, **asked)
        except LockstitchError as error:
            yield Report(public(self.path), OWN, error=error.message_with_session)

    def repairs(
        self, options: RepairOptions, run: str, survey: Survey, *, writes: bool
    ) -> Iterator[Repaired]:
        for found in list(find_damaged(self.path, self.session)):
            findings = findings_of(found)
            report = Report(public(self.path), OWN, found.session, findings=findings)
            done = Repaired(report, findings)
            if writes:
                try:
                    done.backup = repair_store(self.path, found.session).aside
                except LockstitchError as error:
                    report.error = error.message
                else:
                    done.remaining, done.is_written = [], True
            report.notes = [summary_of(found)]
            if done.is_written:
                report.notes += [f"repaired; the damaged one is kept as {done.backup}"]
            yield done

    def copy(self, url: str) -> tuple[int, int]:
        copies = list(copy_store(self.path, url))
        return len(copies), sum(one.lost for one in copies)

    def undo_words(self, sessions: Sequence[str]) -> list[tuple[str, ...]]:
        return [(public(self.path), "--session", one) for one in sessions]
