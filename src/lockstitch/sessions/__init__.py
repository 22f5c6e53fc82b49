"""Stored sessions for people who call them from Python: what every command line call does.

>>> from lockstitch import sessions
>>> for report in sessions.scan():            # every agent session of this machine
...     print(report.target, report.status)
>>> sessions.repair("session.jsonl").remaining
[]
"""

from __future__ import annotations

from lockstitch.backups import Undone
from lockstitch.formats.doctor import Mended, Options
from lockstitch.formats.sources import Opened, Source
from lockstitch.report import Report
from lockstitch.sessions.checking import check, described, examined, scan, scan_database, scan_file
from lockstitch.sessions.compacting import (
    BUDGET,
    Shorter,
    compact,
    condensed,
    shortened,
    shorter,
)
from lockstitch.sessions.differing import Difference, differences
from lockstitch.sessions.exporting import encoded, exported, without_secrets
from lockstitch.sessions.finding import opened, paths, psycopg_hint, searched, sources
from lockstitch.sessions.listing import Summaries, listed, summarized
from lockstitch.sessions.repairing import (
    COPY,
    Repaired,
    applied,
    copied,
    outlook,
    planned,
    repair,
    require_closed,
)
from lockstitch.sessions.searching import search
from lockstitch.sessions.summary import Summary
from lockstitch.sessions.undoing import (
    backups_of,
    require_undoable,
    session_of,
    undo,
    undo_threads,
    undoable,
)

__all__ = [
    "BUDGET",
    "COPY",
    "Difference",
    "Mended",
    "Opened",
    "Options",
    "Repaired",
    "Report",
    "Shorter",
    "Source",
    "Summaries",
    "Summary",
    "Undone",
    "applied",
    "backups_of",
    "check",
    "compact",
    "condensed",
    "copied",
    "described",
    "differences",
    "encoded",
    "examined",
    "exported",
    "listed",
    "opened",
    "outlook",
    "paths",
    "planned",
    "psycopg_hint",
    "repair",
    "require_closed",
    "require_undoable",
    "scan",
    "scan_database",
    "scan_file",
    "search",
    "searched",
    "session_of",
    "shortened",
    "shorter",
    "sources",
    "summarized",
    "undo",
    "undo_threads",
    "undoable",
    "without_secrets",
]
