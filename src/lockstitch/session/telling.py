"""What a session can tell of itself beside the conversation: its notes, and what it cost."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct

from lockstitch.journal.events import Event, Noted, value_of
from lockstitch.journal.fold import REPEATED, Fact, State
from lockstitch.journal.usage import Usage, usage_of
from lockstitch.session.core import RESERVED
from lockstitch.session.reading import Seen


class Note(Struct, frozen=True):
    """A note of the caller's: its name, its value, when it was written, and its record's number.

    ``at`` is milliseconds since 1970. ``is_rewound`` says that a rewind has left it behind.
    """

    name: str
    value: Any
    at: int
    seq: int
    is_rewound: bool = False


def notes(seen: Seen, name: str | None = None, *, rewound: bool = False) -> list[Note]:
    """Return the notes of the visible line, oldest first; with ``rewound`` also those off it."""
    found, visible = seen.look(lambda state: _noted(state, name, rewound=rewound))
    return [
        Note(
            event.name,
            value_of(Raw(_payload(seen, event))),
            fact.at,
            fact.seq,
            fact.seq not in visible,
        )
        for fact, event in found
    ]


def _noted(
    state: State, name: str | None, *, rewound: bool
) -> tuple[list[tuple[Fact, Noted]], set[int]]:
    line = state.line(state.seq)
    facts = list(state.facts.values()) if rewound else line
    found = [
        (fact, fact.event)
        for fact in facts
        if isinstance(fact.event, Noted)
        and fact.event is not REPEATED
        and fact.event.name not in RESERVED
        and name in (None, fact.event.name)
    ]
    return found, {fact.seq for fact in line}


def usage(seen: Seen) -> Usage:
    """Add up what the replies of a session cost, those that were rewound among them."""
    facts = seen.look(lambda state: list(state.facts.values()))
    return usage_of(facts, lambda event: _payload(seen, event))


def _payload(seen: Seen, event: Event) -> bytes:
    """Return what an event carries; a large value is looked at once, and not kept in memory."""
    if not event.blob:
        return bytes(event.payload)
    return seen.backend.blobs([event.blob])[event.blob]
