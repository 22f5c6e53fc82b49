"""Sessions in stores of Lockstitch's own, for people who look at them from outside.

>>> from lockstitch import stored
>>> for report in stored.check("sqlite:///agent.db"):      # reads everything, changes nothing
...     print(report.session, report.status)
>>> stored.repair("sqlite:///agent.db", "ticket-42")       # from what can be read of it
>>> stored.rewind("sqlite:///agent.db", "ticket-42", to=17)
>>> stored.fork("sqlite:///agent.db", "ticket-42", "ticket-42-again", at="before the refactoring")

A target is the address of a store, or the path of one: an SQLite database, a session's file of
lines, a folder of such files. An agent itself works with ``lockstitch.open``.
"""

from __future__ import annotations

from lockstitch.stored.changing import (
    Left,
    Moved,
    aim,
    checkpoints,
    compact,
    fork,
    left_behind,
    name_in,
    outlook,
    rewind,
    shorter,
    uncompact,
)
from lockstitch.stored.checking import check, count
from lockstitch.stored.journal import DAMAGED, LANGCHAIN, Journal, chosen, opened, read
from lockstitch.stored.salvaging import (
    Copied,
    copy,
    damaged,
    findings_of,
    repair,
    salvage,
    summary_of,
    undo,
)

__all__ = [
    "DAMAGED",
    "LANGCHAIN",
    "Copied",
    "Journal",
    "Left",
    "Moved",
    "aim",
    "check",
    "checkpoints",
    "chosen",
    "compact",
    "copy",
    "count",
    "damaged",
    "findings_of",
    "fork",
    "left_behind",
    "name_in",
    "opened",
    "outlook",
    "read",
    "repair",
    "rewind",
    "salvage",
    "shorter",
    "summary_of",
    "uncompact",
    "undo",
]
