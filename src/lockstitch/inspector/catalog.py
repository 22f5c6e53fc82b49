"""The list of sessions: filled by a scan in a thread, told to every page that looks on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from lockstitch import places, sessions
from lockstitch.errors import LockstitchError
from lockstitch.inspector import actions
from lockstitch.inspector.actions import Subject
from lockstitch.inspector.plans import shown
from lockstitch.redaction import redacted
from lockstitch.report import OWN, Report

# How many sessions go out at once, and how long the first of them may wait, in seconds.
_BATCH, _PATIENCE = 64, 0.1
# More than these are counted, and not listed.
MOST = 50_000

Event = dict[str, Any]


class Entry(Struct):
    """A session of the list: where it is, and what the list says of it."""

    subject: Subject
    row: dict[str, Any]


class Catalog:
    """All sessions that are known; every method but ``scan`` runs in the loop's thread."""

    def __init__(self, target: str | None) -> None:
        self.target = target
        self.is_store = actions.is_store(target)
        self.entries: dict[str, Entry] = {}
        self.state: Event = {"is_done": False, "count": 0, "error": "", "left_out": 0}
        self._listeners: set[asyncio.Queue[Event]] = set()
        self._stop = threading.Event()

    def find(self, name: str) -> Subject | None:
        """Return the session of a link."""
        entry = self.entries.get(name)
        return None if entry is None else entry.subject

    @contextmanager
    def listening(self) -> Iterator[asyncio.Queue[Event]]:
        """Give a queue with all that is known, and then all that is new."""
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
        """Tell every listener."""
        for queue in self._listeners:
            queue.put_nowait(event)

    def put(self, found: list[Entry]) -> None:
        """Take sessions in, or what is new of them."""
        for entry in found:
            self.entries[entry.subject.id] = entry
        self.tell({"rows": [entry.row for entry in found]})

    def set_state(self, **facts: Any) -> None:
        """Say how far the scan is."""
        self.state = {**self.state, **facts, "count": len(self.entries)}
        self.tell({"state": self.state})

    def close(self) -> None:
        """Let the scan end."""
        self._stop.set()

    def scan(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check all sessions, in a thread of its own; what is found goes to the loop."""

        def later(call: Callable[..., None], *args: Any) -> None:
            if not self._stop.is_set():
                loop.call_soon_threadsafe(call, *args)

        batch: list[Entry] = []
        since, count, error = time.monotonic(), 0, ""
        try:
            for subject, report in actions.scanned(self.target):
                if self._stop.is_set():
                    return
                count += 1
                if count <= MOST:
                    batch.append(Entry(subject, row_of(subject, report)))
                if len(batch) >= _BATCH or time.monotonic() - since > _PATIENCE:
                    later(self.put, batch)
                    batch, since = [], time.monotonic()
        except LockstitchError as failure:
            error = str(failure)
        except OSError as failure:
            error = failure.strerror or type(failure).__name__
        later(self.put, batch)
        later(lambda: self.set_state(is_done=True, error=error, left_out=max(count - MOST, 0)))


def row_of(subject: Subject, report: Report) -> dict[str, Any]:
    """Say of a session what the list shows; secrets in its first words are masked."""
    summary = sessions.summarized(report)
    is_own = report.format == OWN
    title = summary.title or (report.session if is_own else "") or ""
    [title], _ = redacted([title])
    return {
        "id": subject.id,
        "title": title,
        "program": summary.program or report.format or "unknown",
        "session": report.session or summary.session or "",
        "project": shown(report.project or ""),
        "target": shown(places.public(report.target)),
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
