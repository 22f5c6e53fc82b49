"""A small conversation in a store: words, calls, a result, a late one, a note, a second turn."""

from __future__ import annotations

from lockstitch.journal.events import Ended, Event, Noted, Started, entry_of
from lockstitch.journal.records import JournalRecord
from lockstitch.stores.base import Backend
from tests.cli.journals import AT, LARGE, finished, replied, said

LAST = 12


def conversation(*, large: bool = False) -> tuple[Event, ...]:
    return (
        said("Fix the failing test"),
        replied("I look.", ("toolu_1", "bash", {"command": "pytest"}), ("toolu_2", "read", {})),
        Started(reply=2, index=0, effect="e0"),
        finished(2, 0, "1 failed"),
        Started(reply=2, index=1, effect="e1"),
        finished(2, 1, LARGE if large else "def main(): ..."),
        replied("It is fixed."),
        Ended(),
        Noted(name="checkpoint", label="before"),
        said("Now the docs"),
        replied("Done."),
        Ended(),
    )


def talked(backend: Backend, session: str = "talk", *, large: bool = False) -> list[JournalRecord]:
    """Write it in three appends under two leases, and give its records."""
    events = conversation(large=large)
    made = [entry_of(event, f"k{n}", AT + n) for n, event in enumerate(events, 1)]
    for start, end in ((0, 4), (4, 9), (9, LAST)):
        lease = backend.acquire(session)
        backend.append(lease, made[start:end], start)
        backend.release(lease)
    return list(backend.read(session))
