"""Actions on sessions of other programs, as ``repair``, ``undo`` and ``compact`` do them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from lockstitch import backups, sessions
from lockstitch.errors import LockstitchError, UsageError
from lockstitch.formats.base import Format
from lockstitch.formats.langgraph.postgres import KIND as POSTGRES
from lockstitch.formats.sources import Opened, Source
from lockstitch.inspector.plans import MOST_RECORDS, Plan, Preview, compared, kept, shown, stamp_of
from lockstitch.manifests import Backup
from lockstitch.measures import several, size
from lockstitch.report import Report
from lockstitch.rules import NOTE
from lockstitch.sessions import Options
from lockstitch.sessions.summary import problems

_STRATEGIES = ("close", "rollback")
_LEAST, _MOST = 1_000, 10_000_000


def actions(found: Opened, report: Report, *, has_undo: bool) -> list[str]:
    """Name what can be done with a session."""
    form = found.source.form
    is_sealed = found.transcript.sealed or found.transcript.waiting
    fixable = any(one.fixable and one.severity != NOTE for one in report.findings)
    named = ["repair"] if fixable and not is_sealed else []
    named += ["undo"] if has_undo else []
    named += ["compact"] if type(form).sorting is not Format.sorting and not is_sealed else []
    named += ["branch"] if type(form).fork is not Format.fork else []
    return [*named, "export"]


def planned(source: Source, action: str, options: Mapping[str, Any]) -> Plan:
    """Work an action out; changes nothing."""
    known = {"repair": _repair, "undo": _undo, "compact": _compact}
    if action not in known:
        raise UsageError("this action is not known for a session of another program")
    return known[action](source, options)


def _repair(source: Source, options: Mapping[str, Any]) -> Plan:
    strategy = options.get("strategy", "close")
    if strategy not in _STRATEGIES:
        raise UsageError("the strategy is close or rollback")
    wanted = Options(strategy, lossy=options.get("lossy") is True)
    found = sessions.opened(source)
    mended = sessions.planned(found, wanted)
    outlook = sessions.outlook(found, mended)
    different = list(sessions.differences(mended))
    made = Preview("repair", "Repair this session", "Repair", _stamp(found, wanted, different))
    made.changes, made.remaining = outlook.changes, outlook.remaining
    made.quarantine = kept(outlook.quarantine)
    made.records = compared(different, reveal=options.get("reveal") is True)
    made.more = max(len(different) - MOST_RECORDS, 0)
    made.says = [*_said_of_repair(found, outlook.report, different, made)]
    if not mended.changed:
        made.refusal = "; ".join(mended.before.notes) or "there is nothing that a repair changes"
    else:
        made.refusal = _in_use(found)
    return Plan(made, lambda: _repaired(sessions.applied(found, mended, backups.new_run())))


def _stamp(found: Opened, wanted: object, different: list[sessions.Difference]) -> str:
    """Tell a plan from every other: by the bytes that it is for, or by what it changes."""
    before = found.before.digest if found.before is not None else ""
    return stamp_of(before, wanted, different)


def _said_of_repair(
    found: Opened, report: Report, different: list[sessions.Difference], made: Preview
) -> Iterator[str]:
    wrong = ", ".join(one.words for one in problems(report.findings) if one.severity != NOTE)
    yield f"It has {wrong}." if wrong else "Nothing is wrong with it that a repair changes."
    if not different:
        return
    if found.source.kind == POSTGRES:
        yield "A new checkpoint will be added; none of the present ones changes."
        return
    yield f"{_counted(different, found)} in {shown(found.source.path)}; all else keeps its bytes."
    yield "The original will be kept as a backup, and Undo brings it back."
    left = [one for one in made.remaining if one.severity != NOTE]
    if left:
        yield f"{several(len(left), 'problem')} will be left that no repair can take away."


def _counted(different: list[sessions.Difference], found: Opened) -> str:
    """Count what changes: ``1 line will change, 2 lines will be added``."""
    unit = "row" if found.before is None else "line"
    new = sum(one.before is None for one in different)
    gone = sum(one.after is None for one in different)
    counts = ((len(different) - new - gone, "change"), (new, "be added"), (gone, "be taken out"))
    return ", ".join(f"{several(count, unit)} will {deed}" for count, deed in counts if count)


def _in_use(found: Opened) -> str:
    try:
        sessions.require_closed(found)
    except LockstitchError as error:
        return str(error)
    return ""


def _repaired(done: sessions.Repaired) -> list[str]:
    says = [f"Repaired: {several(len(done.changes), 'change')} made."]
    if done.backup and os.path.isabs(done.backup):  # noqa: PTH117 - as everywhere
        says.append(f"The original is kept: {shown(done.backup)}")
    if done.quarantine:
        says.append(f"{several(len(done.quarantine), 'piece')} had to go and is kept with it.")
    return says


def _undo(source: Source, _options: Mapping[str, Any]) -> Plan:
    made = Preview("undo", "Take the last repair back", "Undo")
    if source.kind == POSTGRES:
        made.says = ["The rows that the last repair of this thread added will be deleted."]
        made.stamp = stamp_of(source.session)
        return Plan(made, lambda: _undone_threads(source))
    due = sessions.undoable(source.path, session=source.session)
    made.stamp = stamp_of([one.stem for one in due], _facts(source.path))
    made.says = [_prospect(one) for one in due]
    for backup in due:
        try:
            sessions.require_undoable(backup)
        except LockstitchError as error:
            made.refusal = str(error)
    return Plan(made, lambda: _undone(due))


def _facts(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116 - as everywhere
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _prospect(backup: Backup) -> str:
    """Say what stands there now and what will."""
    when = f"the repair of {backup.time:%Y-%m-%d %H:%M:%S} UTC"
    if backup.rows is not None:
        return f"{several(len(backup.rows['rows']), 'row')} will be as before {when}."
    now, changed = _facts(backup.path)
    moment = datetime.fromtimestamp(changed / 1e9, UTC)
    return (
        f"The file of {size(now)}, last changed {moment:%Y-%m-%d %H:%M:%S} UTC, will be replaced "
        f"by the {size(backup.file.lstat().st_size)} of before {when}, byte for byte."
    )


def _undone(due: list[Backup]) -> list[str]:
    run = backups.new_run()
    for backup in due:
        sessions.undo(backup, as_run=run)
    return [f"The session is as it was before {due[-1].time:%Y-%m-%d %H:%M:%S} UTC."]


def _undone_threads(source: Source) -> list[str]:
    done = [one for _, one in sessions.undo_threads(source.path, source.session)]
    failed = next((one.error for one in done if one.error is not None), None)
    if failed is not None:
        raise UsageError(failed)
    return ["The thread is as it was before its repair."]


def _compact(source: Source, options: Mapping[str, Any]) -> Plan:
    budget = budget_in(options)
    found = sessions.opened(source)
    condensed = sessions.condensed(found, budget=budget)
    outlook = sessions.shorter(found, condensed)
    before, after = outlook.done.before, outlook.done.after
    digest = found.before.digest if found.before is not None else ""
    made = Preview("compact", "Make this session shorter", "Compact", stamp_of(digest, budget))
    if outlook.done.event is None:
        made.refusal = f"it is within the budget, with {before.tokens} of {budget} tokens"
        return Plan(made, list)
    made.says = [
        f"About {before.tokens} tokens will become {after.tokens}: {said_of(outlook)}.",
        "The last turns stay as they are. No model is asked: a digest of what was said and done "
        "takes the place of the first turns.",
        "The original will be kept as a backup, and Undo brings it back.",
    ]
    made.changes = outlook.changes
    made.refusal = _in_use(found)
    return Plan(made, lambda: _shortened(sessions.shortened(found, condensed, backups.new_run())))


def budget_in(options: Mapping[str, Any]) -> int:
    """Read how many tokens a compacted session may have."""
    budget = options.get("budget", sessions.BUDGET)
    if not isinstance(budget, int) or not _LEAST <= budget <= _MOST:
        raise UsageError(f"the budget is a number of tokens from {_LEAST} to {_MOST}")
    return budget


def said_of(outlook: sessions.Shorter) -> str:
    """Say how a session was made shorter, or would be."""
    if outlook.turns:
        return f"a digest takes the place of {several(outlook.turns, 'turn')}"
    return "old results are shortened"


def _shortened(done: sessions.Shorter) -> list[str]:
    says = [f"Compacted: {done.done.before.tokens} tokens became about {done.done.after.tokens}."]
    return says + ([f"The original is kept: {shown(done.backup)}"] if done.backup else [])
