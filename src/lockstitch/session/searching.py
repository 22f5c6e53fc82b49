"""Finding sessions of a store by what was said in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lockstitch.errors import Damaged, Unreadable
from lockstitch.journal.checkpoints import thread_spoken
from lockstitch.journal.searching import Match, Search, Words
from lockstitch.session.listing import listed
from lockstitch.stores.base import Backend, Listed, Listing


def searched(
    backend: Backend,
    text: str,
    limit: int | None = None,
    listing: Listing | None = None,
    advance: Callable[[Listed], object] = lambda _: None,
) -> Iterator[Match]:
    """Find records, those of the sessions first that were changed last.

    One record is in memory at a time. What is damaged is passed by, and said in the end.
    """
    words = Words(text)
    return _searched(backend, words, limit, listing or Listing(newest=True), advance)


def _searched(
    backend: Backend,
    words: Words,
    limit: int | None,
    listing: Listing,
    advance: Callable[[Listed], object],
) -> Iterator[Match]:
    left = -1 if limit is None else limit
    damaged: list[Damaged] = []
    for one in listed(backend, listing):
        if left == 0:
            return
        for match in session_searched(backend, one.session, words, damaged):
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


def session_searched(
    backend: Backend, session: str, words: Words, damaged: list[Damaged]
) -> Iterator[Match]:
    """Find records of one session; what damage hides is added to ``damaged``."""

    def payload(name: str) -> bytes:
        try:
            return backend.blobs([name])[name]
        except Damaged as error:
            damaged.append(error)
            return b"null"

    search = Search(session, words, payload, thread_spoken)
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
