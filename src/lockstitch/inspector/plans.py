"""Show what an action would change, side by side, so that a person can agree to it; and do it.

The actions are those of the commands: for sessions of other programs, and for sessions in
Lockstitch stores.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from difflib import SequenceMatcher
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from msgspec import Struct, field, structs

from lockstitch import stored
from lockstitch.conversation.parts import Place
from lockstitch.errors import LockstitchError, UsageError
from lockstitch.files import backup as backups
from lockstitch.files.backup import Backup
from lockstitch.formats.interface import Format
from lockstitch.formats.langgraph.postgres import KIND as POSTGRES
from lockstitch.formats.repair import RepairOptions
from lockstitch.journal.events import Rewound
from lockstitch.redaction import redact_value
from lockstitch.repair.draft import Change
from lockstitch.rules import NOTE, Finding
from lockstitch.rules.rule import several
from lockstitch.session.maintenance import is_aside
from lockstitch.sources import compaction, listing, operations
from lockstitch.sources.listing import Difference, problems
from lockstitch.sources.source import Opened, Report, Shorter, Source
from lockstitch.stored import DAMAGED, Journal
from lockstitch.transcript import size

# The rest of a plan that changes more is only counted.
MOST_RECORDS = 200
_MOST_LINES = 400
_LONGEST_LINE = 1000
_CONTEXT = 2

Line = tuple[str, str | None, str | None]


class Preview(Struct):
    """What an action is going to do; every other plan has another ``stamp``.

    ``refusal`` says why it cannot be done now. ``records`` are the changed records, side by side,
    and ``more`` says how many others there are.
    """

    action: str
    title: str
    button: str
    stamp: str = ""
    says: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    quarantine: list[dict[str, Any]] = field(default_factory=list)
    remaining: list[Finding] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    more: int = 0
    refusal: str = ""


class ActionPlan(Struct):
    """A planned action: the preview that a person is shown, and a function that does it."""

    preview: Preview
    apply: Callable[[], list[str]]


def shorten_home(path: str) -> str:
    """Return a path for people, with ``~`` for the home directory."""
    home = str(Path.home()).rstrip("/")
    return f"~{path[len(home) :]}" if home and path.startswith(f"{home}/") else path


def make_stamp(*parts: object) -> str:
    """Return a text that differs for every other plan."""
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def compare_records(found: Sequence[Difference], *, reveal: bool) -> list[dict[str, Any]]:
    """Return the first of the changed records, with their lines side by side."""
    in_order = sorted(found, key=lambda one: (Place.parse(one.place).order, one.before is None))
    shown = in_order[:MOST_RECORDS]
    values = [[_decode(one.before), _decode(one.after)] for one in shown]
    clean = values if reveal else redact_value(values)[0]
    return [
        {
            "place": one.place,
            "kind": "new" if one.before is None else "gone" if one.after is None else "changed",
            "lines": [*compare_lines(_pretty(before), _pretty(after))],
        }
        for one, (before, after) in zip(shown, clean, strict=True)
    ]


def _decode(text: str | None) -> Any:
    """Return a record's value, or its text if it is not JSON; None if there is no record."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _pretty(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return [line[:_LONGEST_LINE] for line in value.splitlines()] or [""]
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return [
        line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"
        for line in text.split("\n")
    ]


def compare_lines(before: Sequence[str], after: Sequence[str]) -> Iterator[Line]:
    """Yield lines side by side; of equal lines, only a few around the changes."""
    if not before or not after:
        kind = "old" if before else "new"
        for line in (before or after)[:_MOST_LINES]:
            yield (kind, line, None) if before else (kind, None, line)
        return
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for tag, start, stop, first, last in matcher.get_opcodes():
        if tag == "equal":
            yield from _same(before[start:stop], is_first=not start, is_last=stop == len(before))
            continue
        for old, new in zip_longest(before[start:stop], after[first:last]):
            yield ("changed" if old and new else "old" if new is None else "new"), old, new


def _same(run: Sequence[str], *, is_first: bool, is_last: bool) -> Iterator[Line]:
    head = 0 if is_first else _CONTEXT
    tail = 0 if is_last else _CONTEXT
    if len(run) <= head + tail + 1:
        yield from (("same", line, line) for line in run)
        return
    yield from (("same", line, line) for line in run[:head])
    yield "fold", str(len(run) - head - tail), None
    yield from (("same", line, line) for line in run[len(run) - tail :])


_STRATEGIES = ("close", "rollback")
_LEAST_TOKENS, _MOST_TOKENS = 1_000, 10_000_000


def foreign_actions(found: Opened, report: Report, *, has_undo: bool) -> list[str]:
    """Return the names of the actions that are possible for a session."""
    form = found.source.form
    is_sealed = found.transcript.sealed or found.transcript.waiting
    fixable = any(one.fixable and one.severity != NOTE for one in report.findings)
    offered = {
        "repair": fixable and not is_sealed,
        "undo": has_undo,
        "compact": type(form).sorting is not Format.sorting and not is_sealed,
        "branch": type(form).fork is not Format.fork,
        "export": True,
    }
    return [action for action, can_be_done in offered.items() if can_be_done]


def plan_foreign(source: Source, action: str, options: Mapping[str, Any]) -> ActionPlan:
    """Return the plan of an action; nothing is changed."""
    known = {"repair": _plan_repair, "undo": _plan_undo, "compact": _plan_compact}
    if action not in known:
        raise UsageError("this action is not available for a session of another program")
    return known[action](source, options)


def _plan_repair(source: Source, options: Mapping[str, Any]) -> ActionPlan:
    strategy = options.get("strategy", "close")
    if strategy not in _STRATEGIES:
        raise UsageError("the strategy must be close or rollback")
    wanted = RepairOptions(strategy, lossy=options.get("lossy") is True)
    found = source.open()
    plan = operations.plan_session(found, wanted)
    outlook = operations.preview_plan(found, plan)
    different = list(listing.differences(plan))
    # the bytes that the plan is for, and what it changes
    digest = found.before.digest if found.before is not None else ""
    # The values themselves, since the repr of a record leaves out its content.
    stamp = make_stamp(digest, wanted, [structs.astuple(one) for one in different])
    made = Preview("repair", "Repair this session", "Repair", stamp)
    made.changes, made.remaining = outlook.changes, outlook.remaining
    made.quarantine = [
        {"code": one.code, "place": one.place, "size": one.size} for one in outlook.quarantine
    ]
    made.records = compare_records(different, reveal=options.get("reveal") is True)
    made.more = max(len(different) - MOST_RECORDS, 0)
    wrong = ", ".join(
        one.words for one in problems(outlook.report.findings) if one.severity != NOTE
    )
    made.says = [f"It has {wrong}." if wrong else "Nothing is wrong with it that a repair changes."]
    if different and source.kind == POSTGRES:
        made.says.append("A new checkpoint will be added; none of the present ones changes.")
    elif different:
        unit = "row" if found.before is None else "line"
        new = sum(one.before is None for one in different)
        gone = sum(one.after is None for one in different)
        deeds = {"change": len(different) - new - gone, "be added": new, "be removed": gone}
        counts = ", ".join(f"{several(n, unit)} will {deed}" for deed, n in deeds.items() if n)
        made.says += [
            f"{counts} in {shorten_home(source.path)}; everything else keeps its bytes.",
            "The original will be kept as a backup, and Undo restores it.",
        ]
        left = sum(one.severity != NOTE for one in made.remaining)
        if left:
            made.says.append(f"{several(left, 'problem')} will be left that no repair can fix.")
    if plan.changed:
        made.refusal = _in_use(found)
    else:
        made.refusal = "; ".join(plan.before.notes) or "a repair would change nothing here"

    def apply() -> list[str]:
        done = operations.write_plan(found, plan, backups.new_run())
        says = [f"Repaired: {several(len(done.changes), 'change')} made."]
        if done.backup and os.path.isabs(done.backup):  # noqa: PTH117 - as everywhere
            says.append(f"The original is kept: {shorten_home(done.backup)}")
        if done.quarantine:
            says.append(
                f"{several(len(done.quarantine), 'piece')} had to be removed and is kept with it."
            )
        return says

    return ActionPlan(made, apply)


def _in_use(found: Opened) -> str:
    try:
        found.source.require_closed(found)
    except LockstitchError as error:
        return str(error)
    return ""


def _plan_undo(source: Source, _options: Mapping[str, Any]) -> ActionPlan:
    made = Preview("undo", "Undo the last repair", "Undo")
    if source.kind == POSTGRES:
        made.says = ["The rows that the last repair of this thread added will be deleted."]
        made.stamp = make_stamp(source.session)

        def undo_thread() -> list[str]:
            done = [one for _, one in operations.undo_threads(source.path, source.session)]
            failed = next((one.error for one in done if one.error is not None), None)
            if failed is not None:
                raise UsageError(failed)
            return ["The thread is as it was before its repair."]

        return ActionPlan(made, undo_thread)
    due = operations.find_undoable(source.path, session=source.session)
    made.stamp = make_stamp([one.stem for one in due], _facts(source.path))
    made.says = [_describe_undo(one) for one in due]
    for backup in due:
        try:
            operations.require_undoable(backup)
        except LockstitchError as error:
            made.refusal = str(error)

    def undo_files() -> list[str]:
        run = backups.new_run()
        for backup in due:
            operations.undo(backup, as_run=run)
        return [f"The session is as it was before {due[-1].time:%Y-%m-%d %H:%M:%S} UTC."]

    return ActionPlan(made, undo_files)


def _facts(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116 - as everywhere
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _describe_undo(backup: Backup) -> str:
    """Return a text that says what is there now and what will be."""
    when = f"the repair of {backup.time:%Y-%m-%d %H:%M:%S} UTC"
    if backup.rows is not None:
        return f"{several(len(backup.rows['rows']), 'row')} will be as before {when}."
    now, changed = _facts(backup.path)
    moment = datetime.fromtimestamp(changed / 1e9, UTC)
    return (
        f"The file of {size(now)}, last changed {moment:%Y-%m-%d %H:%M:%S} UTC, will be replaced "
        f"by the {size(backup.file.lstat().st_size)} from before {when}, byte for byte."
    )


def _preview_compaction(outlook: Shorter, budget: int, stamp: str, *says: str) -> Preview:
    """Return a preview of a compaction, also if there is nothing to do."""
    before, after = outlook.done.before, outlook.done.after
    made = Preview("compact", "Make this session shorter", "Compact", stamp)
    if outlook.done.event is None:
        made.refusal = f"it is within the budget, with {before.tokens} of {budget} tokens"
        return made
    how = "old results are shortened"
    if outlook.turns:
        how = f"a digest replaces {several(outlook.turns, 'turn')}"
    made.says = [f"About {before.tokens} tokens will become {after.tokens}: {how}.", *says]
    made.changes = outlook.changes
    return made


def _describe_compaction(done: Shorter) -> list[str]:
    before, after = done.done.before, done.done.after
    says = [f"Compacted: {before.tokens} tokens became about {after.tokens}."]
    if done.backup:
        says.append(f"The original is kept: {shorten_home(done.backup)}")
    return says


def _plan_compact(source: Source, options: Mapping[str, Any]) -> ActionPlan:
    budget = parse_budget(options)
    found = source.open()
    condensed = compaction.plan_compaction(found, budget=budget)
    outlook = compaction.preview_compaction(found, condensed)
    digest = found.before.digest if found.before is not None else ""
    made = _preview_compaction(
        outlook,
        budget,
        make_stamp(digest, budget),
        "The last turns stay as they are. No model is asked: a digest of what was said and done "
        "replaces the first turns.",
        "The original will be kept as a backup, and Undo restores it.",
    )
    made.refusal = made.refusal or _in_use(found)
    return ActionPlan(
        made,
        lambda: _describe_compaction(
            compaction.write_compaction(found, condensed, backups.new_run())
        ),
    )


def parse_budget(options: Mapping[str, Any]) -> int:
    """Return how many tokens a compacted session may have."""
    budget = options.get("budget", compaction.BUDGET)
    if not isinstance(budget, int) or not _LEAST_TOKENS <= budget <= _MOST_TOKENS:
        raise UsageError(
            f"the budget must be a number of tokens from {_LEAST_TOKENS} to {_MOST_TOKENS}"
        )
    return budget


def own_actions(target: str, journal: Journal, report: Report) -> list[str]:
    """Return the names of the actions that are possible for a session."""
    if is_aside(journal.session):
        return ["export"]
    if any(one.code == DAMAGED for one in report.findings):
        return ["repair", "export"]
    with stored.opened(target)[0] as backend:
        kept = backend.sessions(after=journal.session)
        was_repaired = any(
            is_aside(one.session) and one.session.rpartition(".")[0] == journal.session
            for one in kept
        )
    named = ["undo"] if was_repaired else []
    if journal.thread is not None:
        return [*named, "export"]
    last = journal.state.facts.get(journal.state.seq)
    named += ["unrewind"] if last is not None and isinstance(last.event, Rewound) else []
    named += ["uncompact"] if journal.view.summary is not None else []
    return [*named, "rewind", "fork", "compact", "export"]


def plan_own(target: str, session: str, action: str, options: Mapping[str, Any]) -> ActionPlan:
    """Return the plan of an action; nothing is changed."""
    known: dict[str, Callable[..., ActionPlan]] = {
        "repair": _plan_own_repair,
        "undo": _plan_own_undo,
        "rewind": _plan_rewind,
        "unrewind": partial(_plan_rewind, is_back=True),
        "fork": _plan_fork,
        "compact": _plan_own_compact,
        "uncompact": _plan_uncompact,
    }
    if action not in known:
        raise UsageError("this action is not available for a session of a store")
    return known[action](target, session, options)


def _plan_own_repair(target: str, session: str, _options: Mapping[str, Any]) -> ActionPlan:
    found = stored.salvage(target, session)
    findings = stored.findings_of(found)
    made = Preview("repair", "Rebuild this session", "Repair", make_stamp(findings))
    made.says = [
        f"{stored.summary_of(found)}.",
        "The session will be rebuilt from everything that can be read of it, with a note in "
        "place of what cannot. The damaged one will be kept beside it, and Undo restores it.",
    ]
    made.refusal = "" if findings else "nothing of it is damaged"
    said = "Repaired. The damaged session is kept as"
    return ActionPlan(made, lambda: [f"{said} {stored.repair(target, session).aside}."])


def _plan_own_undo(target: str, session: str, _options: Mapping[str, Any]) -> ActionPlan:
    made = Preview("undo", "Undo the last repair", "Undo", make_stamp(_end(target, session)))
    made.says = [
        "The damaged session will have its name again; the repaired one, with everything added "
        "since, will be kept beside it."
    ]
    said = "The session is as it was before its repair; its later state is kept as"
    return ActionPlan(made, lambda: [f"{said} {stored.undo(target, session).aside}."])


def _end(target: str, session: str) -> tuple[int, int]:
    """Return where a session ends, which any change of it moves."""
    found = stored.found(target, session)
    return found.seq, found.changed


def _read_place(options: Mapping[str, Any]) -> int | str:
    place = options.get("to")
    if isinstance(place, bool) or not isinstance(place, int | str) or place == "":
        raise UsageError("name a record by its number, or a checkpoint by its label")
    return place


def _plan_rewind(
    target: str, session: str, options: Mapping[str, Any], *, is_back: bool = False
) -> ActionPlan:
    """Plan a rewind, or with ``is_back`` the undo of the last one."""
    place = None if is_back else _read_place(options)
    journal = stored.read(target, session)
    aim, end = stored.aim(journal, place), journal.state.seq
    made = Preview("rewind", "Go back to an earlier point", "Go back", make_stamp(end, aim))
    if is_back:
        made = Preview("unrewind", "Undo the last rewind", "Take back", made.stamp)
    left = stored.left_behind(journal, aim)
    what = "Nothing leaves the conversation; what an earlier rewind removed is back."
    if left != stored.Left(0, 0, 0):
        replies = f"{left.replies} {'reply' if left.replies == 1 else 'replies'}"
        parts = [several(left.turns, "turn"), replies, several(left.calls, "call")]
        what = f"{', '.join(parts)} will leave the conversation."
    made.says = [
        f"The session will continue from record {aim}; it ends at record {end} now.",
        what,
        "It is one more record: nothing is deleted, and it can be undone.",
    ]

    def apply() -> list[str]:
        moved = stored.rewind(target, session, to=None if is_back else aim)
        if is_back:
            return [f"The rewind is undone: the session continues from record {moved.to}."]
        return [f"The session continues from record {moved.to}. Nothing was deleted."]

    return ActionPlan(made, apply)


def _plan_fork(target: str, session: str, options: Mapping[str, Any]) -> ActionPlan:
    new, at = options.get("name"), options.get("to")
    made = Preview("fork", "Make a new session from this one", "Fork")
    if not isinstance(new, str) or not new.strip():
        made.refusal = "give the new session a name"
        return ActionPlan(made, list)
    journal = stored.read(target, session)
    upto = None if at is None else stored.aim(journal, _read_place(options))
    made.stamp = make_stamp(new, upto, journal.state.seq if upto is None else 0)
    what = "all its records" if upto is None else f"its records up to {upto}"
    made.says = [
        f"A new session {new} will be made in the same store, with {what}.",
        f"{session} is only read and stays as it is.",
    ]
    try:
        stored.found(target, new)
        made.refusal = f"there is already a session {new}: choose another name"
    except UsageError as error:
        made.refusal = str(error)
    except LockstitchError:
        pass  # the name is free

    def apply() -> list[str]:
        count = stored.fork(target, session, new, at=upto)
        return [f"Made {new} of the first {count} records of {session}."]

    return ActionPlan(made, apply)


def _plan_own_compact(target: str, session: str, options: Mapping[str, Any]) -> ActionPlan:
    budget = parse_budget(options)
    journal = stored.read(target, session)
    outlook = stored.shorter(target, journal, stored.outlook(journal, budget))
    made = _preview_compaction(
        outlook,
        budget,
        make_stamp(journal.state.seq, budget),
        "No model is asked. It is one more record: the original stays readable, and the "
        "compaction can be undone.",
    )
    return ActionPlan(
        made, lambda: _describe_compaction(stored.compact(target, session, budget=budget))
    )


def _plan_uncompact(target: str, session: str, _options: Mapping[str, Any]) -> ActionPlan:
    made = Preview("uncompact", "Undo the compaction", "Take back")
    made.stamp = make_stamp(_end(target, session))
    made.says = ["The whole conversation will be sent again. It is one more record."]

    def apply() -> list[str]:
        stored.uncompact(target, session)
        return ["The whole conversation is sent again."]

    return ActionPlan(made, apply)
