"""The sessions of other programs, from Python: the same operations as the commands.

>>> from lockstitch import sessions
>>> for report in sessions.scan():            # every agent session of this machine
...     print(report.target, report.status)
>>> sessions.repair("session.jsonl").remaining
[]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from lockstitch.compaction.running import CompactLimits
from lockstitch.files.backup import Backup, Manifest, Undone
from lockstitch.files.replace import Snapshot
from lockstitch.formats.compaction import Condensed
from lockstitch.formats.interface import Format, Transcript
from lockstitch.formats.langgraph.postgres import Shard, UndoneThread
from lockstitch.formats.repair import RepairOptions as Options
from lockstitch.formats.repair import RepairPlan as Mended
from lockstitch.journal.queries import SearchWords
from lockstitch.sources import listing, operations
from lockstitch.sources.compaction import BUDGET, compact
from lockstitch.sources.compaction import plan_compaction as condensed
from lockstitch.sources.compaction import preview_compaction as shorter
from lockstitch.sources.compaction import write_compaction as shortened
from lockstitch.sources.listing import (
    Difference,
    Summaries,
    search,
)
from lockstitch.sources.listing import SessionSummary as Summary
from lockstitch.sources.listing import summarize as summarized
from lockstitch.sources.listing import summarize_files as listed
from lockstitch.sources.operations import (
    COPY,
    backups_of,
    check,
    repair,
    require_closed,
    require_undoable,
    scan,
    scan_database,
    scan_file,
    session_of,
    undo,
    undo_threads,
)
from lockstitch.sources.operations import describe as described
from lockstitch.sources.operations import encode_messages as encoded
from lockstitch.sources.operations import examine as examined
from lockstitch.sources.operations import export as exported
from lockstitch.sources.operations import find_undoable as undoable
from lockstitch.sources.operations import open_source as opened
from lockstitch.sources.operations import plan_session as planned
from lockstitch.sources.operations import remove_secrets as without_secrets
from lockstitch.sources.own_stores import psycopg_hint
from lockstitch.sources.source import Opened, Repaired, Report, Shorter, Source, Survey
from lockstitch.sources.targets import resolve_sources as sources
from lockstitch.sources.targets import searched_folders as searched
from lockstitch.sources.targets import session_paths as paths

if TYPE_CHECKING:
    from lockstitch.redaction import Redaction

__all__ = [
    "BUDGET",
    "COPY",
    "Backup",
    "CompactLimits",
    "Condensed",
    "Difference",
    "Format",
    "Manifest",
    "Mended",
    "Opened",
    "Options",
    "Redaction",
    "Repaired",
    "Report",
    "SearchWords",
    "Shard",
    "Shorter",
    "Snapshot",
    "Source",
    "Summaries",
    "Summary",
    "Survey",
    "Transcript",
    "Undone",
    "UndoneThread",
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


_Parameters = ParamSpec("_Parameters")
_Outcome = TypeVar("_Outcome")


def _also_mended(function: Callable[_Parameters, _Outcome]) -> Callable[_Parameters, _Outcome]:
    """Return a function that also accepts its ``plan`` under the former name ``mended``."""

    @wraps(function)
    def called(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Outcome:
        if "mended" in kwargs:
            kwargs["plan"] = kwargs.pop("mended")
        return function(*args, **kwargs)

    return called


applied = _also_mended(operations.write_plan)
copied = _also_mended(operations.encode_copy)
differences = _also_mended(listing.differences)
outlook = _also_mended(operations.preview_plan)


def __getattr__(name: str) -> Any:
    if name == "Redaction":
        # Its patterns take time to compile, and most programs do not look for secrets.
        from lockstitch.redaction import Redaction  # noqa: PLC0415 - as above

        return Redaction
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
