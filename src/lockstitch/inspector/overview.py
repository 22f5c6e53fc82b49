"""A store of our own at a glance: sessions over time, who holds leases, sizes, compactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from lockstitch import stored
from lockstitch.errors import Damaged
from lockstitch.journal.events import Compacted, event_of
from lockstitch.session.listing import list_sessions
from lockstitch.stores.base import Backend, Listed, Listing

# Compactions are looked for in so many sessions, those that were changed last.
_MOST_READ = 500
_MOST_LISTED = 100_000
_MOST_SHOWN = 50
# How many days before the last one are shown.
_FEWEST, _MOST = 13, 89
_MARK = b'{"kind":"compacted"'


def overview(target: str) -> dict[str, Any]:
    """Read what a store holds; changes nothing, and waits for no writer."""
    backend, _ = stored.opened(target)
    with backend:
        found = list(islice(list_sessions(backend, Listing(newest=True)), _MOST_LISTED))
        made = summed_up(found)
        made["compactions"] = [*islice(_compactions(backend, found[:_MOST_READ]), _MOST_SHOWN)]
    made["read"] = min(len(found), _MOST_READ)
    return made


def summed_up(found: Sequence[Listed]) -> dict[str, Any]:
    """Count sessions, and say by whom they are held. Pure."""
    held = [one for one in found if one.holder]
    return {
        "sessions": len(found),
        "records": sum(one.seq for one in found),
        "days": days(found),
        "held": [
            {"session": one.session, "holder": one.holder, "epoch": one.epoch, "at": one.changed}
            for one in held[:_MOST_SHOWN]
        ],
        "held_in_all": len(held),
    }


def days(found: Iterable[Listed]) -> list[dict[str, Any]]:
    """Count the sessions that were begun and last changed on each day, without gaps. Pure."""
    begun = Counter(_day(one.created) for one in found if one.created)
    changed = Counter(_day(one.changed) for one in found if one.changed)
    if not begun and not changed:
        return []
    first, last = min((*begun, *changed)), max((*begun, *changed))
    first = max(min(first, last - timedelta(days=_FEWEST)), last - timedelta(days=_MOST))
    span = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    return [
        {"day": day.date().isoformat(), "begun": begun[day], "changed": changed[day]}
        for day in span
    ]


def _day(at: int) -> datetime:
    moment = datetime.fromtimestamp(at / 1000, UTC)
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _compactions(backend: Backend, found: Iterable[Listed]) -> Iterable[dict[str, Any]]:
    for one in found:
        try:
            for record in backend.read(one.session):
                event = event_of(record) if record.body.startswith(_MARK) else None
                if isinstance(event, Compacted):
                    facts = {"session": one.session, "seq": record.seq, "at": record.at}
                    yield {**facts, "through": event.through}
        except Damaged:
            continue
