"""Journals that belong to a session, or to the store itself, and are no sessions of anybody's."""

from __future__ import annotations

from lockstitch.errors import UsageError
from lockstitch.journal.records import inbox_of, is_inbox
from lockstitch.session.children import descendants
from lockstitch.stores.base import Backend

# Where a store writes down what was removed from it, and why.
AUDIT = "lockstitch.audit"


def is_internal(name: object) -> bool:
    """Whether a name is of a journal that no listing shows and nobody opens as a session."""
    return name == AUDIT or (isinstance(name, str) and is_inbox(name))


def refuse_internal(name: str) -> None:
    """Raise ``UsageError`` for a name that is not anybody's to give, open or remove."""
    if is_internal(name):
        raise UsageError(f"{name} is where the store keeps records of its own: give another name")


def companions(backend: Backend, name: str) -> list[str]:
    """Return the names of journals that go where a session goes: it is removed or copied with them.

    Each begins with the name of its session, so that its name in a copy can be told.
    """
    sessions = [name, *descendants(backend, name)]
    inboxes = [inbox_of(one) for one in sessions]
    return sessions[1:] + [inbox for inbox in inboxes if backend.head(inbox) is not None]
