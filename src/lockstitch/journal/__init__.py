"""The journal of a session: its events, the state they add up to, and the request they make.

>>> from lockstitch import journal
>>> for fact in store.read("ticket-42").follow(timeout=0):
...     if isinstance(fact.event, journal.Replied):
...         print(fact.seq, fact.event.model)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstitch.journal.events import (
        Approved,
        AskedCall,
        Compacted,
        Denied,
        Described,
        Ended,
        Finished,
        Forked,
        Instructed,
        Interrupted,
        Noted,
        Partial,
        Replied,
        Resumed,
        Rewound,
        Said,
        Started,
        Unknown,
        Waiting,
    )
    from lockstitch.journal.records import JournalRecord
    from lockstitch.journal.state import (
        CallOutcome,
        CallState,
        JournalState,
        JournalView,
        Late,
        ModelReply,
        Spoken,
        SummaryInForce,
    )

__all__ = [
    "Approved",
    "AskedCall",
    "CallOutcome",
    "CallState",
    "Compacted",
    "Denied",
    "Described",
    "Ended",
    "Finished",
    "Forked",
    "Instructed",
    "Interrupted",
    "JournalRecord",
    "JournalState",
    "JournalView",
    "Late",
    "ModelReply",
    "Noted",
    "Partial",
    "Replied",
    "Resumed",
    "Rewound",
    "Said",
    "Spoken",
    "Started",
    "SummaryInForce",
    "Unknown",
    "Waiting",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use: stores need the records, but not the events or the state."""
    for home in ("records", "events", "state") if name in __all__ else ():
        module = import_module(f"{__name__}.{home}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
