"""Sessions in Lockstitch stores, for programs that look at them from outside.

>>> from lockstitch import stored
>>> for report in stored.check("sqlite:///agent.db"):      # reads everything, changes nothing
...     print(report.session, report.status)
>>> stored.repair("sqlite:///agent.db", "ticket-42")       # from what can be read of it
>>> stored.rewind("sqlite:///agent.db", "ticket-42", to=17)
>>> stored.fork("sqlite:///agent.db", "ticket-42", "ticket-42-again", at="before the refactoring")

A target is the address of a store, or its path: an SQLite database, a session's file of JSON lines,
or a folder of such files. An agent itself uses ``lockstitch.open``.
"""

from __future__ import annotations

from lockstitch.dialects import LANGCHAIN
from lockstitch.session.listing import ThreadConversation
from lockstitch.session.maintenance import Exchanged
from lockstitch.sources.journals import (
    DAMAGED,
    Copied,
    Journal,
    can_undo,
    count,
    findings_of,
    read,
    summary_of,
)
from lockstitch.sources.journals import check_store as check
from lockstitch.sources.journals import choose_session as chosen
from lockstitch.sources.journals import copy_store as copy
from lockstitch.sources.journals import find_damaged as damaged
from lockstitch.sources.journals import open_store as opened
from lockstitch.sources.journals import repair_store as repair
from lockstitch.sources.journals import salvage_session as salvage
from lockstitch.sources.journals import undo_store as undo
from lockstitch.sources.own_stores import StorePlace
from lockstitch.sources.source import Report, Shorter
from lockstitch.sources.store_operations import CopyFailed as Failed
from lockstitch.sources.store_operations import LeftBehind as Left
from lockstitch.sources.store_operations import RewindDone as Moved
from lockstitch.sources.store_operations import (
    audit,
    checkpoints,
    delete,
    fork,
    migrate,
    name_in,
    records_in,
    remove,
    retain,
    rewind,
    take_in,
    uncompact,
    vacuum,
)
from lockstitch.sources.store_operations import compact_stored as compact
from lockstitch.sources.store_operations import count_left_behind as left_behind
from lockstitch.sources.store_operations import describe_journal_compaction as shorter
from lockstitch.sources.store_operations import describe_session as found
from lockstitch.sources.store_operations import find_aim as aim
from lockstitch.sources.store_operations import preview_journal_compaction as outlook
from lockstitch.sources.store_operations import search_store as search
from lockstitch.stores.base import Backend

__all__ = [
    "DAMAGED",
    "LANGCHAIN",
    "Backend",
    "Copied",
    "Exchanged",
    "Failed",
    "Journal",
    "Left",
    "Moved",
    "Report",
    "Shorter",
    "StorePlace",
    "ThreadConversation",
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
