"""What belongs to a session: the sessions of its sub-agents, and results from outside.

A tool that leads a conversation of its own opens it with ``store.child(current_call())``. When the
tool runs again after a crash, it gets the same session, which goes on. What happens to the parent
happens to it: an interrupt, an outcome that is unknown for good, a compaction, a deletion.

A webhook, a queue worker or another process puts a result into the session's inbox, a journal of
its own that anybody may add to for a moment. Whoever holds the session takes it over from there,
under the same key, so it counts once however often it was handed in or taken over.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from lockstitch.errors import Moved, UsageError
from lockstitch.journal.events import Finished, Noted, as_stored, entry_of, event_of
from lockstitch.journal.records import NEW, Head, JournalRecord, check_key, inbox_of
from lockstitch.journal.state import JournalState
from lockstitch.session import decisions
from lockstitch.session.decisions import CHILD, Call
from lockstitch.session.reader import SessionView
from lockstitch.session.tool_run import make_finished
from lockstitch.session.writing import now
from lockstitch.stores.base import Backend, Listed, Listing

_NAME = re.compile(r"(?:\.\d+-\d+)+")
_PAGE = 256


class Parent(Struct, frozen=True):
    """The call that a session belongs to."""

    session: str
    reply: int
    index: int

    @property
    def child(self) -> str:
        """The name of the session that belongs to it."""
        return f"{self.session}.{self.reply}-{self.index}"


def descendants(backend: Backend, session: str) -> list[str]:
    """Name the sessions that belong to calls of a session, theirs included."""
    found: list[str] = []
    listing = Listing(f"{session}.")
    while True:
        page = list(backend.listed(listing, _PAGE))
        for one in page:
            if not one.session.startswith(f"{session}."):
                return found
            if _NAME.fullmatch(one.session.removeprefix(session)) and _is_child(backend, one):
                found.append(one.session)
        if len(page) < _PAGE:
            return found
        listing = listing.behind(page[-1])


def _is_child(backend: Backend, one: Listed) -> bool:
    """Whether a session says of itself that it is a child: anybody may choose such a name."""
    first = next(backend.read(one.session, upto=1), None)
    event = event_of(first) if first is not None else None
    return isinstance(event, Noted) and event.name == CHILD


# How long whoever delivers waits for others who are delivering to the same session.
PATIENCE = 30.0


def deliver(
    backend: Backend, session: str, which: Call | str, result: Any, *, key: str | None = None
) -> bool:
    """Put a result into a session's inbox; returns whether it is new.

    Raises ``UsageError`` if there is no such call, or another result under the same key.
    """
    seen = SessionView(backend, session)
    seen.refresh()
    event, name = delivered_outcome(seen.state, which, result, key)
    inbox = inbox_of(session)
    while True:
        records = list(backend.read(inbox)) if backend.head(inbox) is not None else []
        if _is_there(seen.state, records, name, event):
            return False
        last = records[-1] if records else None
        head = Head(last.seq, last.digest, last.epoch) if last else NEW
        try:
            backend.add(inbox, [entry_of(event, name, now())], head, wait=PATIENCE)
        except Moved:
            continue  # somebody else delivered something meanwhile
        return True


def delivered_outcome(
    state: JournalState, which: Call | str, result: Any, key: str | None
) -> tuple[Finished, str]:
    """Make the fact that a call has a result, and the key that it is known by."""
    place = find_call(state, which)
    attempts, _ = state.starts.get(place, (1, ""))
    name = f"deliver/{place[0]}-{place[1]}" if key is None else f"deliver/{check_key(key)}"
    return make_finished(place, attempts, result), check_key(name)


def find_call(state: JournalState, which: Call | str) -> decisions.Key:
    """Find a call by itself, by its idempotency key, or by an id that only one call has.

    A call that was rewound is known by its idempotency key still: its result counts if the rewind
    is taken back.
    """
    if isinstance(which, Call):
        if which.key not in state.view.calls and which.key not in state.starts:
            raise UsageError("there is no such call in this session")
        return which.key
    if not isinstance(which, str):
        raise UsageError("a call is named by itself, by its effect, or by its id")
    effects = [place for place, (_, effect) in state.starts.items() if effect == which]
    ids = [place for place, call in state.view.calls.items() if call.id == which]
    found = effects or ids
    if len(found) != 1:
        many = "several calls have" if found else "no call of this session has"
        raise UsageError(f"{many} the effect or id {which!r}: pass current_call().effect")
    return found[0]


def _is_there(state: JournalState, records: list[JournalRecord], key: str, event: Finished) -> bool:
    kept = [event_of(record) for record in records if record.key == key]
    if key in state.keys:
        kept.append(state.facts[state.keys[key]].event)
    if not kept:
        return False
    new = as_stored(event)
    if any(not decisions.is_same(before, new) for before in kept):
        raise UsageError(
            "another result was delivered under this key before: a key names one result for ever;"
            " nothing was delivered"
        )
    return True
