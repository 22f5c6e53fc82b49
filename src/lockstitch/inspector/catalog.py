"""The list of sessions: filled by a scan in a thread, sent to every page that looks on.

And a store of our own at a glance: sessions over time, who holds leases, sizes, compactions.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from msgspec import Struct

from lockstitch import stored
from lockstitch.errors import Damaged, LockstitchError
from lockstitch.inspector import actions
from lockstitch.inspector.actions import Subject
from lockstitch.inspector.plans import shorten_home
from lockstitch.journal.events import Compacted, event_of
from lockstitch.redaction import redact_value
from lockstitch.session.listing import list_sessions
from lockstitch.sources import listing
from lockstitch.sources.source import OWN, Report
from lockstitch.stores import addresses
from lockstitch.stores.base import Backend, Listed, Listing

# How long a session that was found waits for others to be told with, in seconds.
_PATIENCE = 0.1
# More than these are counted, and not listed.
MOST = 50_000

Event = dict[str, Any]


class CatalogEntry(Struct):
    """A session of the list: where it is, and what the list says of it."""

    subject: Subject
    row: dict[str, Any]


class Catalog:
    """All sessions that are known; all but ``scan`` is called in the loop's thread."""

    def __init__(self, target: str | None) -> None:
        self.target = target
        self.is_store = actions.is_store(target)
        self.entries: dict[str, CatalogEntry] = {}
        self.state: Event = {"is_done": False, "count": 0, "error": "", "left_out": 0}
        self._listeners: set[asyncio.Queue[Event]] = set()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._found: list[CatalogEntry] = []

    def find(self, name: str) -> Subject | None:
        """Return the session of a link."""
        entry = self.entries.get(name)
        return None if entry is None else entry.subject

    @contextmanager
    def listening(self) -> Iterator[asyncio.Queue[Event]]:
        """Return a queue with all that is known, and then all that is new."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        queue.put_nowait({"reset": True})
        rows = [entry.row for entry in self.entries.values()]
        for start in range(0, len(rows), 500):
            queue.put_nowait({"rows": rows[start : start + 500]})
        queue.put_nowait({"state": self.state})
        self._listeners.add(queue)
        try:
            yield queue
        finally:
            self._listeners.discard(queue)

    def tell(self, event: Event) -> None:
        """Send an event to every listener."""
        for queue in self._listeners:
            queue.put_nowait(event)

    def put(self, found: list[CatalogEntry]) -> None:
        """Take sessions in, or what is new of them."""
        for entry in found:
            self.entries[entry.subject.id] = entry
        self.tell({"rows": [entry.row for entry in found]})

    def set_state(self, **facts: Any) -> None:
        """Set how far the scan is."""
        self.state = {**self.state, **facts, "count": len(self.entries)}
        self.tell({"state": self.state})

    def close(self) -> None:
        """Let the scan end."""
        self._stop.set()

    def scan(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check all sessions, in a thread of its own; what is found goes to the loop."""
        count, error = 0, ""
        try:
            for subject, report in actions.scan(self.target):
                if self._stop.is_set():
                    return
                count += 1
                if count <= MOST:
                    self._note(CatalogEntry(subject, list_row(subject, report)), loop)
        except LockstitchError as failure:
            error = str(failure)
        except OSError as failure:
            error = failure.strerror or type(failure).__name__
        left_out = max(count - MOST, 0)
        self._later(loop, lambda: self._end(error=error, left_out=left_out))

    def _later(self, loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        if not self._stop.is_set():
            loop.call_soon_threadsafe(call)

    def _note(self, entry: CatalogEntry, loop: asyncio.AbstractEventLoop) -> None:
        """Keep what was found for a moment: a page is told of several at once."""
        with self._lock:
            self._found.append(entry)
            is_first = len(self._found) == 1
        if is_first:
            self._later(loop, lambda: loop.call_later(_PATIENCE, self._flush))

    def _flush(self) -> None:
        with self._lock:
            found, self._found = self._found, []
        if found:
            self.put(found)

    def _end(self, **facts: Any) -> None:
        self._flush()
        self.set_state(is_done=True, **facts)


def list_row(subject: Subject, report: Report) -> dict[str, Any]:
    """Return what the list shows of a session; secrets in its first words are masked."""
    summary = listing.summarize(report)
    is_own = report.format == OWN
    title = summary.title or (report.session if is_own else "") or ""
    [title], _ = redact_value([title])
    return {
        "id": subject.id,
        "title": title,
        "program": summary.program or report.format or "unknown",
        "session": report.session or summary.session or "",
        "project": shorten_home(report.project or ""),
        "target": shorten_home(addresses.public(report.target)),
        "updated": report.updated,
        "size": report.size,
        "messages": report.messages,
        "turns": report.reachable,
        "dropped": report.unreachable,
        "records": report.records,
        "level": summary.level,
        "state": summary.state,
        "notes": len(report.findings) if report.status == "notes" else 0,
        "resume": summary.resume_line(),
        "is_own": is_own,
        "is_aside": summary.is_aside or actions.is_put_aside(subject),
    }


# Compactions are looked for in so many sessions, those that were changed last.
_MOST_READ = 500
_MOST_LISTED = 100_000
_MOST_SHOWN = 50
# How many days before the last one are shown.
_FEWEST_DAYS, _MOST_DAYS = 13, 89
_COMPACTED = b'{"kind":"compacted"'


def describe_store(target: str) -> dict[str, Any]:
    """Read what a store holds; changes nothing, and waits for no writer."""
    backend, _ = stored.opened(target)
    with backend:
        found = list(islice(list_sessions(backend, Listing(newest=True)), _MOST_LISTED))
        made = summarize_sessions(found)
        made["compactions"] = [*islice(_compactions(backend, found[:_MOST_READ]), _MOST_SHOWN)]
    made["read"] = min(len(found), _MOST_READ)
    return made


def summarize_sessions(found: Sequence[Listed]) -> dict[str, Any]:
    """Count sessions, and say by whom they are held. Pure."""
    held = [one for one in found if one.holder]
    return {
        "sessions": len(found),
        "records": sum(one.seq for one in found),
        "days": count_by_day(found),
        "held": [
            {"session": one.session, "holder": one.holder, "epoch": one.epoch, "at": one.changed}
            for one in held[:_MOST_SHOWN]
        ],
        "held_in_all": len(held),
    }


def count_by_day(found: Iterable[Listed]) -> list[dict[str, Any]]:
    """Count the sessions that were begun and last changed on each day, without gaps. Pure."""
    begun = Counter(_day(one.created) for one in found if one.created)
    changed = Counter(_day(one.changed) for one in found if one.changed)
    if not begun and not changed:
        return []
    first, last = min((*begun, *changed)), max((*begun, *changed))
    first = max(min(first, last - timedelta(days=_FEWEST_DAYS)), last - timedelta(days=_MOST_DAYS))
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
                event = event_of(record) if record.body.startswith(_COMPACTED) else None
                if isinstance(event, Compacted):
                    facts = {"session": one.session, "seq": record.seq, "at": record.at}
                    yield {**facts, "through": event.through}
        except Damaged:
            continue
