"""Lockstitch keeps LLM-agent sessions valid: it stores them safely, and repairs broken ones.

import lockstitch

messages = lockstitch.heal(messages, dialect="anthropic")   # in front of any request

store = lockstitch.open("sqlite:///agent.db")               # or sessions that cannot break
with store.session("ticket-42") as session:
    session.say("Fix the failing test")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lockstitch.errors import (
    AmbiguousDialect,
    Busy,
    Closed,
    Conflict,
    Damaged,
    Fenced,
    Held,
    LockstitchError,
    Moved,
    Unhealed,
    Unmet,
    Unreadable,
    Unsure,
    UsageError,
)
from lockstitch.heal import Plan, check, detect, explain, heal, plan
from lockstitch.repair.draft import Change, Quarantined
from lockstitch.repair.edits import Edit
from lockstitch.rules import RULES, Finding, Rule

if TYPE_CHECKING:
    from lockstitch.compaction.ladder import Compaction
    from lockstitch.compaction.plan import Cost
    from lockstitch.journal.about import About
    from lockstitch.journal.events import Event
    from lockstitch.journal.fold import Fact
    from lockstitch.journal.records import Head
    from lockstitch.journal.salvage import Salvage, Salvaged
    from lockstitch.journal.searching import Match
    from lockstitch.journal.state import Checkpoint
    from lockstitch.journal.usage import Spent, Usage
    from lockstitch.session.aio import AsyncSession, Opening
    from lockstitch.session.aio_reader import AsyncReader, Following
    from lockstitch.session.aio_streaming import AsyncStream
    from lockstitch.session.auditing import Audited, Removal
    from lockstitch.session.calls import Call, Recovered, Turn
    from lockstitch.session.copying import Copy
    from lockstitch.session.importing import Taken
    from lockstitch.session.reader import Reader
    from lockstitch.session.removing import Deleted
    from lockstitch.session.retaining import Retention, Spared
    from lockstitch.session.signals import handle_sigterm
    from lockstitch.session.store import Store
    from lockstitch.session.streaming import Stream
    from lockstitch.session.sync import Session
    from lockstitch.session.telling import Note
    from lockstitch.session.tools import CurrentCall, Later, Result, Tool, current_call
    from lockstitch.stores.base import Listed

__version__ = "0.1.0"

__all__ = [
    "RULES",
    "About",
    "AmbiguousDialect",
    "AsyncReader",
    "AsyncSession",
    "AsyncStream",
    "Audited",
    "Busy",
    "Call",
    "Change",
    "Checkpoint",
    "Closed",
    "Compaction",
    "Conflict",
    "Copy",
    "Cost",
    "CurrentCall",
    "Damaged",
    "Deleted",
    "Edit",
    "Event",
    "Fact",
    "Fenced",
    "Finding",
    "Following",
    "Head",
    "Held",
    "Later",
    "Listed",
    "LockstitchError",
    "Match",
    "Moved",
    "Note",
    "Opening",
    "Plan",
    "Quarantined",
    "Reader",
    "Recovered",
    "Removal",
    "Result",
    "Retention",
    "Rule",
    "Salvage",
    "Salvaged",
    "Session",
    "Spared",
    "Spent",
    "Store",
    "Stream",
    "Taken",
    "Tool",
    "Turn",
    "Unhealed",
    "Unmet",
    "Unreadable",
    "Unsure",
    "Usage",
    "UsageError",
    "__version__",
    "check",
    "current_call",
    "detect",
    "explain",
    "handle_sigterm",
    "heal",
    "open",
    "plan",
]

# Healing a list needs none of these, so they are loaded when somebody asks.
_LATER = {
    "About": "journal.about",
    "AsyncReader": "session.aio_reader",
    "AsyncSession": "session.aio",
    "AsyncStream": "session.aio_streaming",
    "Audited": "session.auditing",
    "Call": "session.calls",
    "Checkpoint": "journal.state",
    "Compaction": "compaction.ladder",
    "Copy": "session.copying",
    "Cost": "compaction.plan",
    "CurrentCall": "session.tools",
    "Deleted": "session.removing",
    "Event": "journal.events",
    "Fact": "journal.fold",
    "Following": "session.aio_reader",
    "Head": "journal.records",
    "Later": "session.tools",
    "Listed": "stores.base",
    "Match": "journal.searching",
    "Note": "session.telling",
    "Opening": "session.aio",
    "Reader": "session.reader",
    "Recovered": "session.calls",
    "Removal": "session.auditing",
    "Result": "session.tools",
    "Retention": "session.retaining",
    "Salvage": "journal.salvage",
    "Salvaged": "journal.salvage",
    "Session": "session.sync",
    "Spared": "session.retaining",
    "Spent": "journal.usage",
    "Store": "session.store",
    "Stream": "session.streaming",
    "Taken": "session.importing",
    "Tool": "session.tools",
    "Turn": "session.calls",
    "Usage": "journal.usage",
    "current_call": "session.tools",
    "handle_sigterm": "session.signals",
}


def open(url: str) -> "Store":  # noqa: A001 - what one does with a store
    """Open a store of sessions, made if it is not there yet.

    ``sqlite:///agent.db`` (a path; four slashes for an absolute one), ``postgresql://…``,
    ``jsonl:///folder`` or ``memory:``.
    """
    from lockstitch.session.store import Store  # noqa: PLC0415 - as below
    from lockstitch.stores.opening import open_given  # noqa: PLC0415 - as below

    return Store(open_given(url))


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'lockstitch' has no attribute {name!r}")
    return getattr(import_module(f"lockstitch.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
