"""Looking after stores from outside: removing, searching, copying, and taking sessions in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

from msgspec import Struct

from lockstitch.errors import Conflict, Damaged, Unreadable, UsageError
from lockstitch.journal.queries import Match, SearchWords
from lockstitch.places import SCHEMES, Place, place_of
from lockstitch.session.copying import Copy, Taken, copy_session, import_messages
from lockstitch.session.listing import list_sessions, search_session, search_store
from lockstitch.session.maintenance import (
    Audited,
    Deleted,
    Removal,
    Retention,
    Spared,
    delete_with_reason,
    remove_planned,
)
from lockstitch.session.store import Store
from lockstitch.stored.journal import chosen, opened, require
from lockstitch.stores.base import Backend, Listed, Listing
from lockstitch.stores.opening import KNOWN, open_backend

Advance = Callable[[int], object]


class Failed(Struct, frozen=True):
    """A session that could not be copied, and why."""

    session: str
    error: str


def address_of(target: str) -> str:
    """Return the address of a store to write to, which need not be there yet."""
    if target.startswith(SCHEMES):
        return target
    place = place_of(target)
    if place is None:
        raise UsageError(f"is not a store; write its address: {KNOWN.rpartition(' or ')[0]}")
    return place.url


def _place(target: str) -> Place:
    """Make sure that a store is there before it is opened for writing."""
    backend, place = opened(target)
    backend.close()
    return place


def found(target: str, session: str | None = None) -> Listed:
    """Describe the session that is meant: the one named, or the only one there is."""
    backend, place = opened(target)
    with backend:
        name = chosen(backend, session or place.session)
        require(backend, name)
        head = backend.head(name)
        seq = head.seq if head else 0
        near = backend.listed(Listing(name=_before(name)), 1)
        return next((one for one in near if one.session == name), Listed(name, seq, 0, 0, 0))


def _before(name: str) -> str:
    """Return a text behind which a name comes first: its last character is one smaller."""
    return f"{name[:-1]}{chr(ord(name[-1]) - 1)}\x7f"


def delete(
    target: str, session: str | None = None, *, wait: float = 0.0, reason: str | None = None
) -> Deleted:
    """Remove a session for good, as ``Store.delete`` does; with a reason it is written down."""
    name = found(target, session).session
    with open_backend(_place(target).url) as backend:
        return delete_with_reason(backend, name, wait, reason)


def vacuum(target: str) -> int:
    """Give the room of what was removed back, as ``Store.vacuum`` does; returns the bytes freed."""
    with open_backend(_place(target).url) as backend:
        return backend.vacuum()


def retain(  # noqa: PLR0913 - options, all by name
    target: str,
    *,
    older_than: timedelta | float | None = None,
    keep: int | None = None,
    tags: Iterable[str] = (),
    including_open: bool = False,
    dry_run: bool = False,
) -> Retention:
    """Remove old sessions, or all but the newest, as ``Store.retain`` does."""
    place = _place(target)
    with Store(open_backend(place.url, create=not dry_run)) as store:
        return store.retain(
            older_than=older_than,
            keep=keep,
            tags=tags,
            including_open=including_open,
            dry_run=dry_run,
        )


def remove(
    target: str, planned: Iterable[Removal], advance: Advance = lambda _: None
) -> Iterator[Removal | Spared]:
    """Remove the sessions that a dry run of :func:`retain` named, unless they changed since."""
    with open_backend(_place(target).url) as backend:
        for removal in planned:
            yield remove_planned(backend, removal)
            advance(1)


def audit(target: str) -> list[Audited]:
    """Return the removals that were written down, oldest first."""
    backend, _ = opened(target)
    with Store(backend) as store:
        return list(store.audit())


def search(
    target: str,
    words: str,
    session: str | None = None,
    *,
    limit: int | None = None,
    advance: Advance = lambda _: None,
) -> Iterator[Match]:
    """Find records of a store, or of one session, as ``Store.search`` does."""
    backend, place = opened(target)
    name = session or place.session
    with backend:
        if name is None:
            yield from search_store(backend, words, limit, advance=lambda one: advance(one.seq))
            return
        require(backend, name)
        yield from _searched_one(backend, name, words, limit)


def _searched_one(backend: Backend, name: str, words: str, limit: int | None) -> Iterator[Match]:
    damaged: list[Damaged] = []
    for number, match in enumerate(search_session(backend, name, SearchWords(words), damaged), 1):
        yield match
        if number == limit:
            return
    if damaged:
        raise damaged[0]


def records_in(target: str, session: str | None = None) -> int:
    """Count the records that are going to be read."""
    backend, place = opened(target)
    with backend:
        name = session or place.session
        if name is None:
            return sum(one.seq for one in list_sessions(backend, Listing()))
        head = backend.head(name)
        return head.seq if head else 0


def migrate(
    source: str,
    target: str,
    session: str | None = None,
    *,
    name: str | None = None,
    advance: Advance = lambda _: None,
) -> Iterator[Copy | Failed]:
    """Copy one session of a store, or all, into another one, as ``Store.copy`` does.

    The source stays as it is. What is there already is not copied again, so that it can be done
    again after anything; one that cannot be copied does not keep the others.
    """
    url = address_of(target)
    backend, place = opened(source)
    wanted = session or place.session
    with backend:
        if wanted is not None:
            require(backend, wanted)
            with open_backend(url) as other:
                yield copy_session(backend, wanted, other, name, advance)
            return
        if name is not None:
            raise UsageError("another name is for one session: name it, too")
        with open_backend(url) as other:
            for one in list_sessions(backend, Listing()):
                try:
                    yield copy_session(backend, one.session, other, None, advance)
                except (Conflict, Unreadable, UsageError) as error:
                    yield Failed(one.session, str(error))


def take_in(
    target: str, name: str, messages: Any, dialect: str | None = None, *, system: Any = None
) -> Taken:
    """Make a session of a message list, as ``Store.import_messages`` does."""
    with open_backend(address_of(target)) as backend:
        return import_messages(backend, name, messages, dialect, system)
