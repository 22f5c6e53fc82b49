"""What can be read of a damaged session, and writing it anew in its place.

The damaged session is kept under another name, ``<session>.damaged-1``, as it was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

from msgspec import Struct

from lockstitch.conversation.json_text import is_index
from lockstitch.errors import Damaged, Unreadable, Unsure, UsageError
from lockstitch.journal.checkpoints import Begun, line_of, may_be_thread
from lockstitch.journal.rebuilding import names_in, rebuilt
from lockstitch.journal.records import NEW, Entry
from lockstitch.journal.salvage import Salvage, judged, without_holes
from lockstitch.stores.base import Backend

_ASIDE = re.compile(r"\.(damaged|repaired)-\d+")
_LONGEST = 128
_ROOM = 16


class Exchanged(Struct, frozen=True):
    """A session that was put in the place of another one, which is called ``aside`` now."""

    session: str
    aside: str


def is_aside(session: str) -> bool:
    """Whether a session was put aside by a repair, or by taking one back."""
    end = session.rpartition(".")[2]
    return bool(_ASIDE.fullmatch(f".{end}"))


def salvage(backend: Backend, session: str) -> Salvage:
    """Read all that can be read of a session, and say of each record what is known of it."""
    remains = backend.remains(session)
    records, notes = judged(remains)
    lost = {
        name: numbers
        for name, numbers in names_in(without_holes(records)).items()
        if not _fetched(backend, [name])
    }
    return Salvage(session, records, lost, (*remains.notes, *notes), remains.stamp)


def entries_of(backend: Backend, found: Salvage) -> list[Entry]:
    """Make the entries with which a session is written anew."""
    names = names_in(without_holes(found.records))
    return rebuilt(found, _fetched(backend, names))


def _fetched(backend: Backend, names: Iterable[str]) -> dict[str, bytes]:
    values: dict[str, bytes] = {}
    for name in names:
        with suppress(Damaged):
            values |= backend.blobs([name])
    return values


def repaired(backend: Backend, found: Salvage) -> Exchanged:
    """Write a session anew, and keep the damaged one beside it, both or none.

    Raises ``Held`` if somebody writes it, and ``Moved`` if it went on since it was read.
    """
    session = found.session
    if found.is_whole:
        raise UsageError(f"session {session}: every record is what was written; nothing to repair")
    if (found.holes or found.lost) and is_thread(found):
        raise UsageError(
            f"session {session}: is a thread of LangGraph, and what is lost of it may be part of"
            " every later checkpoint: restore a backup, or delete the thread"
        )
    fresh = _named(session, "salvaged")
    entries = entries_of(backend, found)
    try:
        _remove(backend, fresh)
        backend.add(fresh, entries, NEW)
        aside = _free(backend, session, "damaged")
        backend.exchange(session, aside, fresh, found.stamp)
    except (Unsure, Damaged) as error:
        url = backend.url.partition("?")[0]
        raise Damaged(
            f"session {session}: cannot be written anew where it is ({error}). Next: `lockstitch"
            f" repair {url} -o NEW` writes all that can be read into a new store"
        ) from error
    return Exchanged(session, aside)


def is_thread(found: Salvage) -> bool:
    """Whether a session keeps a thread of LangGraph."""
    if not may_be_thread(found.session):
        return False
    return any(isinstance(line_of(one.body), Begun) for one in without_holes(found.records))


def taken_back(backend: Backend, session: str) -> Exchanged:
    """Take the last repair of a session back; what it has become is kept beside it."""
    last = _last(backend, session, "damaged")
    if not last:
        raise UsageError(f"session {session}: no repair is known that could be taken back")
    aside = _free(backend, session, "repaired")
    backend.exchange(session, aside, f"{_named(session, 'damaged')}-{last}")
    return Exchanged(session, aside)


def _remove(backend: Backend, session: str) -> None:
    """Remove what a repair left that did not come to its end."""
    with suppress(Unreadable):
        backend.delete(backend.acquire(session, create=False))


def _named(session: str, end: str) -> str:
    return f"{session[: _LONGEST - _ROOM - 4]}.{end}"


def _free(backend: Backend, session: str, word: str) -> str:
    return f"{_named(session, word)}-{_last(backend, session, word) + 1}"


def _last(backend: Backend, session: str, word: str) -> int:
    """Return the highest number of the sessions that were put aside, 0 for none."""
    start = f"{_named(session, word)}-"
    numbers = [0]
    for listed in backend.sessions(after=session):
        end = listed.session.removeprefix(start)
        if listed.session.startswith(start) and is_index(end):
            numbers.append(int(end))
        elif listed.session > f"{start}~":
            break
    return max(numbers)
