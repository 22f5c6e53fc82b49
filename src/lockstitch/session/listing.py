"""Which sessions a store holds: page by page, or by what was said in them.

Journals that belong to a session, or to the store itself, are no sessions of anybody's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Literal, get_args

from lockstitch.errors import Damaged, Unreadable, UsageError
from lockstitch.journal.queries import Match, SearchWords, SessionSearch
from lockstitch.journal.records import inbox_of, is_inbox
from lockstitch.journal.threads import thread_spoken
from lockstitch.session.children import descendants
from lockstitch.stores.base import LATEST, Backend, Listed, Listing

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


Order = Literal["name", "changed"]
_PAGE = 256
_FEW = 8


def listing_of(
    order: str, after: Listed | str, tag: str, changed_after: datetime | int | None
) -> Listing:
    """Make sense of what a caller wants to have listed; raises ``UsageError``."""
    if order not in get_args(Order):
        raise UsageError("sessions are listed in the order of 'name' or 'changed'")
    since = -LATEST if changed_after is None else _moment(changed_after)
    is_newest = order == "changed"
    cursor = after.cursor if isinstance(after, Listed) else after
    if not cursor:
        return Listing(newest=is_newest, tag=tag, since=since)
    changed, slash, name = cursor.rpartition("/")
    if slash:
        try:
            return Listing(name, int(changed), is_newest, tag, since)
        except ValueError:
            pass
    elif not is_newest:
        return Listing(name, tag=tag, since=since)
    raise UsageError("after is the last session of the page before, or its cursor")


def _moment(changed_after: datetime | int) -> int:
    if isinstance(changed_after, datetime):
        return round(changed_after.timestamp() * 1000)
    if isinstance(changed_after, bool) or not isinstance(changed_after, int):
        raise UsageError("changed_after is a date, or a number of milliseconds since 1970")
    return changed_after


def list_sessions(
    backend: Backend, listing: Listing, title: str = "", limit: int | None = None
) -> Iterator[Listed]:
    """Return sessions, at most so many, without those that are the store's own."""
    wanted = title.casefold()
    left = LATEST if limit is None else limit
    while left > 0:
        # a few more than are wanted, since some may be the store's own
        size = _PAGE if wanted else min(left + _FEW, _PAGE)
        found = list(backend.listed(listing, size))
        for one in found:
            if left and not is_internal(one.session) and wanted in one.title.casefold():
                yield one
                left -= 1
        if len(found) < size:
            return
        listing = listing.behind(found[-1])


def search_store(
    backend: Backend,
    text: str,
    limit: int | None = None,
    listing: Listing | None = None,
    advance: Callable[[Listed], object] = lambda _: None,
) -> Iterator[Match]:
    """Find records, those of the sessions first that were changed last.

    One record is in memory at a time. What is damaged is passed by, and said in the end.
    """
    words = SearchWords(text)
    return _searched(backend, words, limit, listing or Listing(newest=True), advance)


def _searched(
    backend: Backend,
    words: SearchWords,
    limit: int | None,
    listing: Listing,
    advance: Callable[[Listed], object],
) -> Iterator[Match]:
    left = -1 if limit is None else limit
    damaged: list[Damaged] = []
    for one in list_sessions(backend, listing):
        if left == 0:
            return
        for match in search_session(backend, one.session, words, damaged):
            yield match
            left -= 1
            if left == 0:
                return
        advance(one)
    if damaged:
        more = f" (and {len(damaged) - 1} more)" if damaged[1:] else ""
        raise Damaged(
            f"{damaged[0]}{more}: all that can be read was searched; `lockstitch check` says what"
            " cannot"
        )


def search_session(
    backend: Backend, session: str, words: SearchWords, damaged: list[Damaged]
) -> Iterator[Match]:
    """Find records of one session; what damage hides is added to ``damaged``."""

    def payload(name: str) -> bytes:
        try:
            return backend.blobs([name])[name]
        except Damaged as error:
            damaged.append(error)
            return b"null"

    search = SessionSearch(session, words, payload, thread_spoken)
    try:
        for record in backend.read(session):
            match = search.look(record)
            if match is not None:
                yield match
    except Damaged as error:
        damaged.append(error)
    except Unreadable:
        if backend.head(session) is not None:
            raise
        return  # it was removed meanwhile
    yield from search.rest()
