"""Listing the sessions of a store, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Literal, get_args

from lockstitch.errors import UsageError
from lockstitch.session.companions import is_internal
from lockstitch.stores.base import LATEST, Backend, Listed, Listing

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


def listed(
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
