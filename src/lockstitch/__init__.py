"""Lockstitch keeps LLM-agent sessions valid: it stores them safely, and repairs broken ones.

import lockstitch

messages = lockstitch.heal(messages, dialect="anthropic")   # in front of any request

store = lockstitch.open("sqlite:///agent.db")               # or sessions that cannot break
with store.session("ticket-42") as session:
    session.say("Fix the failing test")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lockstitch.conversation.parts import Place
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
from lockstitch.heal import check, detect, explain, heal, plan
from lockstitch.repair.draft import Change, Quarantined, RepairedMessage, RepairedPart
from lockstitch.repair.edits import Edit
from lockstitch.repair.plan import Plan
from lockstitch.rules import RULES, Finding, Rule

if TYPE_CHECKING:
    from lockstitch.compaction.ladder import Compaction
    from lockstitch.compaction.plan import Cost
    from lockstitch.compaction.running import CompactOptions
    from lockstitch.dialects.exchange import Tokens
    from lockstitch.journal.events import About, Event
    from lockstitch.journal.queries import Match, Spent, Usage
    from lockstitch.journal.records import Head
    from lockstitch.journal.salvage import Salvage, Salvaged
    from lockstitch.journal.state import Checkpoint, Fact
    from lockstitch.session.async_session import (
        AsyncReader,
        AsyncSession,
        AsyncStream,
        Following,
        Opening,
    )
    from lockstitch.session.copying import Copy, Taken
    from lockstitch.session.decisions import Call, Recovered, Turn
    from lockstitch.session.maintenance import Audited, Deleted, Removal, Retention, Spared
    from lockstitch.session.reader import Note, Reader
    from lockstitch.session.replies import Stream
    from lockstitch.session.session import Session
    from lockstitch.session.store import Store
    from lockstitch.session.tool_run import Abort, CurrentCall, Later, Result, Tool, current_call
    from lockstitch.session.writing import handle_sigterm
    from lockstitch.stores.base import Listed

__version__ = "0.1.0"

__all__ = [
    "RULES",
    "Abort",
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
    "CompactOptions",
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
    "Place",
    "Plan",
    "Quarantined",
    "Reader",
    "Recovered",
    "Removal",
    "RepairedMessage",
    "RepairedPart",
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
    "Tokens",
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

# Healing a list needs none of these, so each is imported when it is first asked for.
_IMPORTED_ON_USE = {
    "Abort": "session.tool_run",
    "About": "journal.events",
    "AsyncReader": "session.async_session",
    "AsyncSession": "session.async_session",
    "AsyncStream": "session.async_session",
    "Audited": "session.maintenance",
    "Call": "session.decisions",
    "Checkpoint": "journal.state",
    "CompactOptions": "compaction.running",
    "Compaction": "compaction.ladder",
    "Copy": "session.copying",
    "Cost": "compaction.plan",
    "CurrentCall": "session.tool_run",
    "Deleted": "session.maintenance",
    "Event": "journal.events",
    "Fact": "journal.state",
    "Following": "session.async_session",
    "Head": "journal.records",
    "Later": "session.tool_run",
    "Listed": "stores.base",
    "Match": "journal.queries",
    "Note": "session.reader",
    "Opening": "session.async_session",
    "Reader": "session.reader",
    "Recovered": "session.decisions",
    "Removal": "session.maintenance",
    "Result": "session.tool_run",
    "Retention": "session.maintenance",
    "Salvage": "journal.salvage",
    "Salvaged": "journal.salvage",
    "Session": "session.session",
    "Spared": "session.maintenance",
    "Spent": "journal.queries",
    "Store": "session.store",
    "Stream": "session.replies",
    "Taken": "session.copying",
    "Tokens": "dialects.exchange",
    "Tool": "session.tool_run",
    "Turn": "session.decisions",
    "Usage": "journal.queries",
    "current_call": "session.tool_run",
    "handle_sigterm": "session.writing",
}


def open(url: str) -> "Store":  # noqa: A001 - users write lockstitch.open
    """Open a store of sessions, and create it if it does not exist yet.

    The address is ``sqlite:///agent.db`` (a path; four slashes for an absolute one),
    ``postgresql://…``, ``jsonl:///folder`` or ``memory:``.
    """
    from lockstitch.session.store import Store  # noqa: PLC0415 - as below
    from lockstitch.stores.opening import open_given  # noqa: PLC0415 - as below

    return Store(open_given(url))


def __getattr__(name: str) -> Any:
    if name not in _IMPORTED_ON_USE:
        raise AttributeError(f"module 'lockstitch' has no attribute {name!r}")
    return getattr(import_module(f"lockstitch.{_IMPORTED_ON_USE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
