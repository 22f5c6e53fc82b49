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
from lockstitch.stored.operating import (
    Failed,
    audit,
    delete,
    found,
    migrate,
    records_in,
    remove,
    retain,
    search,
    take_in,
    vacuum,
)
from lockstitch.stored.salvaging import (
    Copied,
    can_undo,
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
    "Failed",
    "Journal",
    "Left",
    "Moved",
    "aim",
    "audit",
    "can_undo",
    "check",
    "checkpoints",
    "chosen",
    "compact",
    "copy",
    "count",
    "damaged",
    "delete",
    "findings_of",
    "fork",
    "found",
    "left_behind",
    "migrate",
    "name_in",
    "opened",
    "outlook",
    "read",
    "records_in",
    "remove",
    "repair",
    "retain",
    "rewind",
    "salvage",
    "search",
    "shorter",
    "summary_of",
    "take_in",
    "uncompact",
    "undo",
    "vacuum",
]
