"""Sessions of sub-agents: each belongs to the call that started it, and is named by it.

A tool that leads a conversation of its own opens it with ``store.child(current_call())``. When the
tool runs again after a crash, it gets the same session, which goes on. What happens to the parent
happens to it: an interrupt, an outcome that is unknown for good, a compaction, a deletion.
"""

from __future__ import annotations

import re

from msgspec import Struct

from lockstitch.journal.events import Noted, event_of
from lockstitch.session.core import CHILD
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
