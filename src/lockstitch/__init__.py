"""Lockstitch keeps LLM-agent sessions valid: it finds what broke them and mends it.

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
from lockstitch.lists import Plan, check, detect, explain, heal, plan
from lockstitch.repair.edits import Edit
from lockstitch.repair.ledger import Change, Quarantined
from lockstitch.rules import RULES, Finding, Rule

if TYPE_CHECKING:
    from lockstitch.session.aio import AsyncSession
    from lockstitch.session.aio_reader import AsyncReader
    from lockstitch.session.reader import Reader
    from lockstitch.session.signals import handle_sigterm
    from lockstitch.session.store import Store
    from lockstitch.session.sync import Session
    from lockstitch.session.tools import Later, Result, Tool, current_call

__version__ = "0.1.0"

__all__ = [
    "RULES",
    "AmbiguousDialect",
    "AsyncReader",
    "AsyncSession",
    "Busy",
    "Change",
    "Closed",
    "Conflict",
    "Damaged",
    "Edit",
    "Fenced",
    "Finding",
    "Held",
    "Later",
    "LockstitchError",
    "Moved",
    "Plan",
    "Quarantined",
    "Reader",
    "Result",
    "Rule",
    "Session",
    "Store",
    "Tool",
    "Unhealed",
    "Unmet",
    "Unreadable",
    "Unsure",
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
    "AsyncReader": "lockstitch.session.aio_reader",
    "AsyncSession": "lockstitch.session.aio",
    "Later": "lockstitch.session.tools",
    "Reader": "lockstitch.session.reader",
    "Result": "lockstitch.session.tools",
    "Session": "lockstitch.session.sync",
    "Store": "lockstitch.session.store",
    "Tool": "lockstitch.session.tools",
    "current_call": "lockstitch.session.tools",
    "handle_sigterm": "lockstitch.session.signals",
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
    return getattr(import_module(_LATER[name]), name)
