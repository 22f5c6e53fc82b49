"""Lockstitch keeps LLM-agent sessions valid: it finds what broke them and mends it.

import lockstitch

messages = lockstitch.heal(messages, dialect="anthropic")   # in front of any request
"""

from lockstitch.errors import AmbiguousDialect, LockstitchError, Unhealed, Unreadable, UsageError
from lockstitch.lists import Plan, check, detect, explain, heal, plan
from lockstitch.repair.edits import Edit
from lockstitch.repair.ledger import Change, Quarantined
from lockstitch.rules import RULES, Finding, Rule

__version__ = "0.1.0"

__all__ = [
    "RULES",
    "AmbiguousDialect",
    "Change",
    "Edit",
    "Finding",
    "LockstitchError",
    "Plan",
    "Quarantined",
    "Rule",
    "Unhealed",
    "Unreadable",
    "UsageError",
    "__version__",
    "check",
    "detect",
    "explain",
    "heal",
    "plan",
]
