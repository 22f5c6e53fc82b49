"""What the page shows, as plain values: the list of sessions, an overview of a store, a session."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from msgspec import Struct

from lockstitch import stored
from lockstitch.errors import Damaged, LockstitchError
from lockstitch.inspector import actions
from lockstitch.inspector.actions import SessionReading, Subject
from lockstitch.inspector.plans import shorten_home
from lockstitch.inspector.timeline import Row, shorten_row
from lockstitch.journal.events import Compacted, event_of
from lockstitch.journal.queries import SearchWords
from lockstitch.redaction import redact_value
from lockstitch.rules import RULES
from lockstitch.session.listing import list_sessions
from lockstitch.session.maintenance import is_aside
from lockstitch.sources import listing
from lockstitch.sources.listing import problems
from lockstitch.sources.source import OWN, Report
from lockstitch.stores import addresses
from lockstitch.stores.base import Backend, Listed, Listing

# For how many seconds a found session waits for others to be sent with it.
_PATIENCE = 0.1
# Beyond this number, they are counted and not listed.
MOST = 50_000

Event = dict[str, Any]


class CatalogEntry(Struct):
    """A session in the list: where it is, and what the list says about it."""

    subject: Subject
    row: dict[str, Any]


class Catalog:
    """All known sessions; every method but ``scan`` is called in the loop's thread."""

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
        """Return the session that a link names."""
        entry = self.entries.get(name)
        return None if entry is None else entry.subject

    @contextmanager
    def listening(self) -> Iterator[asyncio.Queue[Event]]:
        """Yield a queue with everything that is known, and then everything that is new."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        queue.put_nowait({"reset": True})
        rows = [entry.row for entry in self.entries.values()]
        # In portions, so that the page can draw the first ones early.
        for start in range(0, len(rows), 500):
            queue.put_nowait({"rows": rows[start : start + 500]})
        queue.put_nowait({"state": self.state})
        self._listeners.add(queue)
        try:
            yield queue
        finally:
            self._listeners.discard(queue)

    def broadcast(self, event: Event) -> None:
        """Send an event to every listener."""
        for queue in self._listeners:
            queue.put_nowait(event)

    def put(self, found: list[CatalogEntry]) -> None:
        """Add sessions, or what is new about them."""
        for entry in found:
            self.entries[entry.subject.id] = entry
        self.broadcast({"rows": [entry.row for entry in found]})

    def set_state(self, **facts: Any) -> None:
        """Set the progress of the scan."""
        self.state = {**self.state, **facts, "count": len(self.entries)}
        self.broadcast({"state": self.state})

    def close(self) -> None:
        """End the scan."""
        self._stop.set()

    def scan(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check all sessions in a thread of its own; pass what is found to the loop."""
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

        def finish() -> None:
            self._flush()
            self.set_state(is_done=True, error=error, left_out=left_out)

        self._later(loop, finish)

    def _later(self, loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        # After closing, the loop may be gone.
        if not self._stop.is_set():
            loop.call_soon_threadsafe(call)

    def _note(self, entry: CatalogEntry, loop: asyncio.AbstractEventLoop) -> None:
        """Keep a result for a moment, so that several are sent to the page at once."""
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
        "is_aside": summary.is_aside or (subject.is_own and is_aside(str(subject.session))),
    }


# How many sessions are searched for compactions, the last changed first.
_MOST_READ = 500
_MOST_LISTED = 100_000
_MOST_ENTRIES = 50
# How many days to show.
_FEWEST_DAYS, _MOST_DAYS = 13, 89
_COMPACTED = b'{"kind":"compacted"'


def describe_store(target: str) -> dict[str, Any]:
    """Return an overview of a store; changes nothing, and never waits for a writer."""
    backend, _ = stored.opened(target)
    with backend:
        found = list(islice(list_sessions(backend, Listing(newest=True)), _MOST_LISTED))
        made = summarize_sessions(found)
        made["compactions"] = [*islice(_compactions(backend, found[:_MOST_READ]), _MOST_ENTRIES)]
    made["read"] = min(len(found), _MOST_READ)
    return made


def summarize_sessions(found: Sequence[Listed]) -> dict[str, Any]:
    """Count sessions, and those held by each holder. Pure."""
    held = [one for one in found if one.holder]
    return {
        "sessions": len(found),
        "records": sum(one.seq for one in found),
        "days": count_by_day(found),
        "held": [
            {"session": one.session, "holder": one.holder, "epoch": one.epoch, "at": one.changed}
            for one in held[:_MOST_ENTRIES]
        ],
        "held_in_all": len(held),
    }


def count_by_day(found: Iterable[Listed]) -> list[dict[str, Any]]:
    """Count the sessions created and last changed on each day, without gaps. Pure."""
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


_MOST_SHOWN = 500
_MOST_MATCHES = 500
_KEPT = 4


class SessionPage(Struct):
    """A session as of one read; every other read has another ``version``."""

    version: int
    reading: SessionReading
    masked: list[Row]

    def rows(self, *, reveal: bool) -> list[Row]:
        """Return the rows; secrets are masked unless ``reveal`` is true."""
        return self.reading.timeline.rows if reveal else self.masked


class SessionPageCache:
    """The sessions that were viewed last, so that a page of rows need not be read again."""

    def __init__(self) -> None:
        self._views: OrderedDict[str, SessionPage] = OrderedDict()
        self._numbers = itertools.count(1)

    def read(self, subject: Subject) -> SessionPage:
        """Read a session now."""
        reading = actions.read_session(subject)
        masked, _ = redact_value(reading.timeline.rows)
        view = self._views[subject.id] = SessionPage(next(self._numbers), reading, masked)
        self._views.move_to_end(subject.id)
        while len(self._views) > _KEPT:
            self._views.popitem(last=False)
        return view

    def view(self, subject: Subject, version: int) -> SessionPage | None:
        """Return a session as of the read with a number; None if that is too long ago."""
        found = self._views.get(subject.id)
        return found if found is not None and found.version == version else None


def describe_page(view: SessionPage, row: dict[str, Any]) -> dict[str, Any]:
    """Return everything about a session except its rows."""
    report, made = view.reading.report, view.reading.timeline
    marks = [[found.severity, made.row_of(found.place)] for found in report.findings[:_MOST_SHOWN]]
    return {
        "row": row,
        "version": view.version,
        "error": report.error or "",
        "dialect": report.dialect or "",
        "notes": report.notes,
        "count": len(made.rows),
        "turns": sum("turn" in one for one in made.rows),
        "asides": made.asides,
        "problems": [_problem(view, one) for one in problems(report.findings)],
        "marks": [mark for mark in marks if mark[1] is not None],
        "actions": view.reading.actions,
    }


def _problem(view: SessionPage, problem: Any) -> dict[str, Any]:
    rule = RULES[problem.findings[0].code]
    return {
        "severity": problem.severity,
        "words": problem.words,
        "meaning": problem.meaning,
        "refusal": problem.refusal,
        "cure": problem.cure,
        "is_fixable": problem.is_fixable,
        "code": rule.code,
        "name": rule.name,
        "what": rule.what,
        "cause": rule.cause,
        "repair": rule.repair,
        "findings": [
            {
                "code": found.code,
                "place": found.place,
                "message": found.message,
                "fixable": found.fixable,
                "row": view.reading.timeline.row_of(found.place),
            }
            for found in problem.findings[:_MOST_SHOWN]
        ],
        "more": max(len(problem.findings) - _MOST_SHOWN, 0),
    }


def slice_rows(rows: Sequence[Row], start: int, stop: int, *, full: bool) -> list[Row]:
    """Return some rows by number; long texts are cut unless ``full`` is true."""
    chosen = rows[max(start, 0) : stop]
    numbered = [{**row, "at": start + number} for number, row in enumerate(chosen)]
    return [shorten_row(row, full=full) for row in numbered]


def find_matches(rows: Sequence[Row], text: str) -> dict[str, Any]:
    """Return the numbers of the rows that contain all words of a text."""
    words = SearchWords(text)
    found = [
        number
        for number, row in enumerate(rows)
        if words.are_in("\n".join(_texts_in(row["parts"])))
    ]
    return {"rows": found[:_MOST_MATCHES], "count": len(found)}


def _texts_in(value: Any) -> Iterator[str]:
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            left += value.values() if isinstance(value, dict) else value
