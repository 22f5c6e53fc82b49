"""Salvaging the sessions of a store from outside: what is damaged, and putting it right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from lockstitch.errors import Damaged, UsageError
from lockstitch.formats.base import find
from lockstitch.journal.records import NEW
from lockstitch.journal.salvage import Salvage, Salvaged, names_in
from lockstitch.rules import NOTE, Finding
from lockstitch.session import maintenance
from lockstitch.session.listing import list_sessions
from lockstitch.session.maintenance import Exchanged, is_aside, is_thread
from lockstitch.stored.journal import DAMAGED, chosen, opened
from lockstitch.stores.base import Backend, Listing
from lockstitch.stores.opening import open_backend


class Copied(Struct, frozen=True):
    """A session that was written to another store, and how much of it was lost."""

    session: str
    records: int
    lost: int


def salvage(target: str, session: str | None = None) -> Salvage:
    """Read all that can be read of a session, and say of each record what is known of it."""
    backend, place = opened(target)
    with backend:
        return maintenance.read_salvage(backend, chosen(backend, session or place.session))


def damaged(target: str, session: str | None = None) -> Iterator[Salvage]:
    """Find the damaged sessions of a store, or the one named if it is; those put aside are not."""
    backend, place = opened(target)
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


def repair(target: str, session: str | None = None) -> Exchanged:
    """Write a damaged session anew from what can be read of it; the damaged one is kept beside it.

    Where a record is lost, a note stands in its place and keeps what is left of it. Raises
    ``UsageError`` if nothing is damaged, ``Held`` if somebody writes the session.
    """
    with _writing(target, session) as (backend, name):
        return maintenance.rewrite_damaged(backend, maintenance.read_salvage(backend, name))


def can_undo(target: str) -> bool:
    """Whether a store holds a session that a repair put aside."""
    backend, _ = opened(target)
    with backend:
        return any(is_aside(one.session) for one in backend.sessions())


def undo(target: str, session: str | None = None) -> Exchanged:
    """Take the last repair of a session back; what it has become is kept beside it."""
    with _writing(target, session) as (backend, name):
        return maintenance.undo_rewrite(backend, name)


@contextmanager
def _writing(target: str, session: str | None) -> Iterator[tuple[Backend, str]]:
    """Open an existing store for writing, and give the session that is meant."""
    backend, place = opened(target)
    with backend:
        name = session or place.session or _only(backend)
        backend.remains(name)
    with open_backend(place.url) as writable:
        yield writable, name


def _only(backend: Backend) -> str:
    """Return the only session of a store, apart from those that were put aside."""
    names = [one.session for one in list_sessions(backend, Listing()) if not is_aside(one.session)]
    return names[0] if len(names) == 1 else chosen(backend, None)


def copy(target: str, url: str) -> Iterator[Copied]:
    """Write all sessions of a store, as far as they can be read, into a new, empty one."""
    backend, _ = opened(target)
    with backend, open_backend(url) as other:
        if next(iter(other.sessions(limit=1)), None) is not None:
            raise UsageError("the store to write to holds sessions already: name a new one")
        for one in backend.sessions():
            found = maintenance.read_salvage(backend, one.session)
            entries = maintenance.entries_of(backend, found)
            other.add(one.session, entries, NEW)
            yield Copied(one.session, len(entries), len(found.holes) + len(found.lost))


def findings_of(found: Salvage) -> list[Finding]:
    """Say what is wrong with a session, record by record."""
    severity = NOTE if is_aside(found.session) else ""
    is_fixable = not ((found.holes or found.lost) and is_thread(found))
    made = [
        find(DAMAGED, _place(one), _told(one), severity, fixable=is_fixable)
        for one in found.records
        if one.proof not in {"intact", "behind"}
    ]
    for name, numbers in found.lost.items():
        told = f"the large value {name} is gone or is not what was written (checksum)"
        made.append(find(DAMAGED, str(numbers[0]), told, severity, fixable=is_fixable))
    made += [find(DAMAGED, "store", note, severity, fixable=is_fixable) for note in found.notes]
    return made


def summary_of(found: Salvage) -> str:
    """Say in one sentence what a repair keeps of a session, and what it cannot."""
    whole = sum(one.proof in {"intact", "behind", "restored"} for one in found.records)
    unproven = sum(one.proof == "unproven" for one in found.records)
    lost = sum(one.count for one in found.holes)
    restored = sum(one.proof == "restored" for one in found.records)
    parts = [f"{whole} records are what was written"]
    if found.behind:
        parts.append(f"{found.behind} of them after the damage")
    if restored:
        parts.append(f"{restored} put right again")
    if unproven:
        parts.append(f"{unproven} more can be read and not be proven")
    if lost:
        parts.append(f"{lost} lost")
    if found.lost:
        parts.append(f"{len(found.lost)} large values lost")
    return ", ".join(parts)


def _place(one: Salvaged) -> str:
    if not one.seq:
        return "store"
    return str(one.seq) if one.count == 1 else f"{one.seq}-{one.seq + one.count - 1}"


_WORDS = {
    "restored": "is not what was written, and can be put right",
    "unproven": "can be read, and not be proven",
    "damaged": "is not what was written (checksum)",
    "missing": "is missing",
}


def _told(one: Salvaged) -> str:
    if one.count > 1:
        return f"{one.count} records are missing"
    name = f"record {one.seq}" if one.seq else "a piece that belongs nowhere"
    words = _WORDS[one.proof]
    return f"{name} {words}" if one.proof == "missing" else f"{name} {words}: {one.why}"
