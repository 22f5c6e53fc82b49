"""``lockstitch repair``: a broken session repaired in place, with a backup and a way back.

What became of a repair, for a person: how many, what is left, how to undo it, how to go on.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from lockstitch import sessions
from lockstitch.cli import databases, render, salvage, terminal
from lockstitch.cli import render as plans
from lockstitch.cli.parser import (
    FOLLOW,
    FORMAT,
    JSON,
    LAST,
    OVERWRITE,
    SESSION,
    Command,
    Operand,
    Option,
)
from lockstitch.cli.targets import (
    current_folder,
    find_each,
    last_used_session,
    naming_target,
    write_copy,
)
from lockstitch.cli.terminal import (
    CLEAN,
    FAILED,
    FINDINGS,
    INTERRUPTED,
    ProgressBar,
    RepairPrompt,
    describe_bug,
)
from lockstitch.errors import (
    Busy,
    Conflict,
    LockstitchError,
    Moved,
    UnknownFormat,
    Unreadable,
    UsageError,
)
from lockstitch.files import backup
from lockstitch.rules import NOTE, is_broken
from lockstitch.sources.listing import summary_of_report
from lockstitch.sources.repair import RepairOptions
from lockstitch.sources.targets import pasted, public
from lockstitch.transcript import several

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lockstitch.rules import Finding
    from lockstitch.sessions import Repaired
    from lockstitch.sources.repair import RepairPlan
    from lockstitch.sources.source import Opened, Report, Source


# So many places are named one by one.
_MOST_BACKUPS = 3


def say_outcome(
    repaired: list[tuple[Repaired, bool]],
    findings: list[Finding],
    left: list[Finding],
    *,
    only_shown: bool,
    is_quiet: bool,
) -> None:
    """Say what became of some sessions; nothing was written if they were ``only_shown``."""
    written = [outcome for outcome, was_written in repaired if was_written]
    if written:
        before = render.count_findings(findings) or "no findings"
        terminal.note(f"Repaired {several(len(written), 'session')}; {before} before.")
    elif repaired and not findings:
        terminal.note("All clean. Nothing was changed.")
    elif repaired and not is_broken(findings):
        said = render.count_findings(findings)
        terminal.note(f"Healthy with notes: {said}, nothing broken, nothing changed.")
    elif not only_shown:
        terminal.note("Nothing was changed.")
    kept = [outcome for outcome in written if outcome.backup]
    if kept and not is_quiet:
        for outcome in kept[:_MOST_BACKUPS]:
            terminal.note(f"Backup: {pasted(str(outcome.backup))}")
        if len(kept) > _MOST_BACKUPS:
            terminal.note(f"And {several(len(kept) - _MOST_BACKUPS, 'more backup')}.")
        pieces = sum(len(outcome.quarantine) for outcome in kept)
        if pieces:
            terminal.note(f"What was quarantined ({several(pieces, 'piece')}) is kept with it.")
    if left and written:
        terminal.note(f"Left: {render.count_findings(left)}.")


def say_next_step(reports: list[Report], targets: list[str]) -> None:
    """Say how repairs are undone, and how a session that was repaired is resumed."""
    if not reports:
        return
    places = undo_places([report.target for report in reports], targets, sessions.searched())
    what = "it" if len(reports) == 1 else f"all {len(reports)}"
    terminal.note(f"To undo {what}: lockstitch undo {' '.join(map(pasted, places))}")
    if len(reports) == 1:
        line = summary_of_report(reports[0]).resume_line(current_folder())
        if line:
            terminal.note(f"To resume it: {line}")


def undo_places(paths: list[str], given: list[str], known: list[str]) -> list[str]:
    """Return the fewest places that an undo of all these files can be given.

    What a person gave counts first, then the files themselves, then the folders of programs.
    """
    named = [place for place in given if any(_is_below(path, place) for path in paths)]
    is_all = all(any(_is_below(path, place) for place in named) for path in paths)
    if is_all and len(named) <= _MOST_BACKUPS:
        return named
    files = [*dict.fromkeys(paths)]
    roots = [root for root in known if any(_is_below(path, root) for path in files)]
    is_short = len(files) <= _MOST_BACKUPS or not roots
    return files if is_short else roots


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip(os.sep) + os.sep)


class RepairRequest(Struct, frozen=True):
    """How the command was asked to go about it."""

    options: RepairOptions
    run: str
    yes: bool
    diff: bool
    output: str | None
    force: bool
    branch: str | None
    follow: bool
    quiet: bool
    is_named: bool = False


def run(  # noqa: PLR0913 - one keyword an option
    *,
    targets: list[str],
    yes: bool,
    diff: bool,
    output: str | None,
    force: bool,
    strategy: str,
    lossy: bool,
    force_cleanup: bool,
    notes: bool,
    branch: str | None,
    form: str | None,
    session: str | None,
    follow_symlinks: bool,
    workers: str | None,
    shard: str | None,
    every: bool,
    newest: bool,
    as_json: bool,
) -> int:
    """Repair every session that the targets name, and return the exit status."""
    if every and (targets or session or newest):
        raise UsageError("--all takes every session of this machine: give no other")
    if newest:
        target, session = last_used_session(targets[0] if targets else None, session)
        targets = [target]
    if branch is not None and output is None:
        raise UsageError("--branch writes a branch as a session of its own: give -o FILE, too")
    if force and output is None:
        raise UsageError(
            "--force lets -o overwrite a file; a session that a program has open is never repaired"
        )
    options = RepairOptions(strategy, lossy, force_cleanup, notes)
    part = databases.shard_of(shard, targets, form, session)
    if any(databases.is_meant(target, form) for target in targets):
        if output is not None or branch is not None or len(targets) > 1:
            raise UsageError("a database is repaired alone, where it is: without -o and --branch")
        count = databases.number(workers)
        wish = databases.Wish(options, yes, diff, as_json, count, session, part)
        return _repair_database(targets[0], wish)
    if any(salvage.is_store(target, form) for target in targets):
        salvage.require_alone(targets)
        how_far = salvage.SalvageOptions(yes, diff, as_json, output)
        return salvage.repair(targets[0], session, how_far)
    run = backup.new_run()
    how = RepairRequest(
        options, run, yes, diff, output, force, branch, follow_symlinks, quiet=as_json
    )
    how = structs.replace(how, is_named=session is not None)
    if every:
        targets = [*sessions.paths()]
    return _repair_all(_find_work(targets, form, session, how, skip=every), targets, how)


def _repair_all(work: Iterable[SessionWork], targets: list[str], how: RepairRequest) -> int:
    """Repair sessions one by one, and return the exit status."""
    work = list(work)
    asking = RepairPrompt(_count_questions(work, how))
    done: list[SessionOutcome] = []
    is_broken_off = False
    try:
        done.extend(_repair_each(work, how, asking))
    except KeyboardInterrupt:
        # what was done before it stays in the list
        is_broken_off = True
        terminal.start_new_line()
    if how.quiet:
        terminal.emit(render.encode_json(sessions=[_json_fields(*one) for one in done]))
    status = _exit_status(done, how, targets)
    if asking.was_alone:
        terminal.note("--yes applies this plan; at a terminal you are asked.")
    return _interrupted(done, work[len(done) :], how) if is_broken_off else status


def _interrupted(done: list[SessionOutcome], left: list[SessionWork], how: RepairRequest) -> int:
    """Say what had been done, what had not, and whether the one in hand has a backup already."""
    for _, source in left[:1]:
        if not isinstance(source, LockstitchError) and backups_of_run(source.path, how.run):
            where = pasted(source.path)
            terminal.note(f"{where} may be repaired: lockstitch undo {where} brings it back.")
    terminal.note(f"{several(len(left), 'session')} left to look at.")
    count = sum(written for _, _, written in done)
    before = f"{several(count, 'session')} had been repaired before." if count else ""
    terminal.complain(f"interrupted. {before or 'Nothing was changed.'}")
    return INTERRUPTED


def backups_of_run(path: str, run: str) -> bool:
    """Whether a run has made a backup of a file."""
    try:
        return bool(sessions.backups_of(path, run=run))
    except (LockstitchError, OSError):
        return False


def _repair_database(target: str, wish: databases.Wish) -> int:
    """Repair the threads of a database, and return the exit status."""
    done = databases.Mending()
    with naming_target(target):
        if wish.quiet:
            _emit_database(target, wish, done)
        else:
            for outcome in databases.repair(target, wish):
                done.add(outcome)
    databases.say_mended(target, done)
    if _confirm_database(done, wish):
        return _repair_database(target, structs.replace(wish, yes=True))
    return databases.mended_status(done)


def _confirm_database(done: databases.Mending, wish: databases.Wish) -> bool:
    if wish.yes or wish.diff or wish.quiet or not done.planned:
        return False
    return terminal.confirm("Apply this? It can be undone.", "--yes applies this plan")


def _emit_database(target: str, wish: databases.Wish, done: databases.Mending) -> None:
    """Print the JSON of a repair thread by thread."""

    def each() -> Iterator[dict[str, Any]]:
        for outcome in databases.repair(target, wish):
            done.add(outcome)
            written = outcome.state == "repaired"
            made = sessions.Repaired(
                outcome.report,
                outcome.remaining,
                outcome.changes,
                outcome.quarantine,
                outcome.backup,
            )
            yield {**_json_fields(outcome.report.target, made, written), "outcome": outcome.state}

    for piece in render.stream_json(each()):
        terminal.emit(piece)


SessionOutcome = tuple[str, "Repaired | LockstitchError", bool]
# A session to be looked at under the name it was given, or why there is none.
SessionWork = tuple[str, "Source | LockstitchError"]


def _find_work(
    targets: list[str], form: str | None, session: str | None, how: RepairRequest, *, skip: bool
) -> Iterator[SessionWork]:
    """Give the sessions that the targets name, each with the name that it is spoken of by.

    ``skip`` passes over files of programs that are not known.
    """
    for target, found in find_each(targets, form, session):
        if isinstance(found, LockstitchError):
            if not (skip and isinstance(found, UnknownFormat)):
                yield target, found
            continue
        if how.output is not None and len(found) > 1:
            raise UsageError(
                f"{render.target_name(target)}: holds {len(found)} sessions; -o takes one"
            )
        for source in found:
            is_only = len(found) == 1 and source.error is None
            yield (target if is_only else source.path), source


def _repair_each(
    work: Iterable[SessionWork], how: RepairRequest, asking: RepairPrompt
) -> Iterator[SessionOutcome]:
    for name, source in work:
        if asking.is_over and not asking.was_alone:
            return
        if isinstance(source, LockstitchError):
            yield _report_failure(name, source)
            continue
        try:
            yield _repair_one(name, source, how, asking)
        except LockstitchError as error:
            yield _report_failure(name, error)
        except OSError as error:
            yield _report_failure(name, Unreadable(error.strerror or type(error).__name__))
        except (RecursionError, MemoryError):
            yield _report_failure(name, Unreadable("is too large or too deep"))
        except Exception as error:  # noqa: BLE001 - said as any other, and the rest is done
            yield _report_failure(name, LockstitchError(describe_bug(error)))


def _count_questions(work: list[SessionWork], how: RepairRequest) -> int:
    """Count the sessions that a person will be asked about."""
    if how.yes or how.diff or how.output is not None or len(work) == 1 or not terminal.can_ask():
        return 1
    count = 0
    with ProgressBar("Checking", len(work), "sessions") as advance:
        for _, source in work:
            if not isinstance(source, LockstitchError):
                found = sessions.check(source).findings
                harmless = () if how.options.notes else (NOTE,)
                count += any(one.fixable and one.severity not in harmless for one in found)
            advance(1)
    return count


def _report_failure(target: str, error: LockstitchError) -> SessionOutcome:
    terminal.complain(f"{render.target_name(target)}: {error}")
    return public(target), error, False


def _repair_one(
    name: str, source: Source, how: RepairRequest, asking: RepairPrompt
) -> SessionOutcome:
    """Plan, show, ask and write the repair of one session."""
    session = sessions.opened(source, follow_symlinks=how.follow)
    if how.output is not None and not how.diff:
        write_copy(how.output, None, source.path, force=how.force)
    if how.branch is not None:
        return _write_branch(name, session, how)
    mended = sessions.planned(session, how.options)
    outlook = sessions.outlook(session, mended)
    label = render.session_name(name, source.format, source.session)
    if not mended.changed or how.diff:
        _show_plan(label, session, mended, how, is_done=False)
        return name, outlook, False
    if how.output is not None:
        data = sessions.copied(session, mended, how.output)
        write_copy(how.output, data, source.path, force=how.force)
        _show_plan(label, session, mended, how, is_done=True)
        return name, outlook, True
    # Asked before anything is shown: nothing is told as done that is then refused.
    sessions.require_closed(session, sessions.COPY, is_named=how.is_named)
    if not how.yes:
        _show_plan(label, session, mended, how, is_done=False)
        if not asking.wants(lambda: _show_difference(label, mended)):
            return name, outlook, False
    try:
        done = _write_repair(session, mended, how)
    except Moved:
        terminal.note(f"{render.target_name(label)}: was continued meanwhile; nothing was changed")
        outlook.went_on = True
        return name, outlook, False
    if how.yes:
        _show_plan(label, session, mended, how, is_done=True)
    return name, done, True


def _write_repair(session: Opened, mended: RepairPlan, how: RepairRequest) -> Repaired:
    try:
        return sessions.applied(session, mended, how.run)
    except (Busy, Moved):
        raise
    except Conflict:
        again = sessions.repair(
            session.source, how.options, run=how.run, follow_symlinks=how.follow
        )
        terminal.note("The session was continued meanwhile; it was read and repaired again.")
        return again


def _write_branch(name: str, session: Opened, how: RepairRequest) -> SessionOutcome:
    data = session.source.form.fork(session.transcript, str(how.branch))
    write_copy(str(how.output), data, session.source.path, force=how.force)
    outlook = sessions.outlook(session, None)
    terminal.note(
        f"Wrote the branch from line {how.branch} to {render.target_name(str(how.output))}."
    )
    return name, outlook, True


def _show_plan(
    name: str, session: Opened, mended: RepairPlan, how: RepairRequest, *, is_done: bool
) -> None:
    """Print what was done, or what would be, and say which of the two it is."""
    if how.quiet:
        return
    if mended.changes and not is_done:
        terminal.note(f"{render.target_name(name)}: {render.PLANNED}")
    if how.diff:
        _show_difference(name, mended)
    for line in plans.describe_changes(name, mended.changes, is_done=is_done):
        terminal.note(line)
    where = "kept with the backup" if is_done else "to be kept with the backup"
    where = where if how.output is None else "stays in the original only"
    for kept in mended.quarantine:
        terminal.note(render.describe_quarantined(name, kept, sys.stderr, where))
    for found in mended.remaining:
        terminal.note(
            render.describe_finding(
                name, str(session.transcript.history.dialect), found, sys.stderr
            )
        )
    for note in mended.before.notes:
        terminal.note(f"{render.target_name(name)}: note: {terminal.escape_controls(note)}")


def _show_difference(name: str, mended: RepairPlan) -> None:
    from lockstitch.cli.render import difference_lines

    for line in difference_lines(mended, name):
        terminal.say(line)


def _json_fields(name: str, outcome: Repaired | LockstitchError, written: bool) -> dict[str, Any]:
    from lockstitch.sources.source import Report, status_of_findings

    if isinstance(outcome, LockstitchError):
        report = Report(name, error=str(outcome))
        rest: dict[str, Any] = {
            "edits": [],
            "backup": None,
            "remaining": [],
            "outcome": "unreadable",
        }
        return {**render.report_fields(report), **rest}
    outcome.report.target = name
    fields = render.report_fields(outcome.report)
    left = outcome.remaining if written else outcome.report.findings
    fields["status"] = status_of_findings(left)
    quarantine = [{"code": q.code, "place": q.place, "size": q.size} for q in outcome.quarantine]
    return {
        **fields,
        "edits": outcome.changes,
        "quarantine": quarantine,
        "backup": outcome.backup,
        "remaining": outcome.remaining,
        "applied": written,
        "outcome": _outcome(outcome, written),
    }


def _outcome(made: Repaired, written: bool) -> str:
    """Say in a word what became of a session, as the threads of a PostgreSQL are spoken of."""
    if written:
        return "repaired"
    if made.went_on:
        return "went on"
    return "broken" if is_broken(made.report.findings) else "ok"


def _exit_status(done: list[SessionOutcome], how: RepairRequest, targets: list[str]) -> int:
    repaired = [
        (outcome, written)
        for _, outcome, written in done
        if not isinstance(outcome, LockstitchError)
    ]
    findings = [found for outcome, _ in repaired for found in outcome.report.findings]
    left = [f for o, written in repaired for f in (o.remaining if written else o.report.findings)]
    say_outcome(repaired, findings, left, only_shown=how.diff, is_quiet=how.quiet)
    if not how.quiet:
        say_next_step([o.report for o, written in repaired if written and o.backup], targets)
    if len(repaired) < len(done):
        return FAILED
    return FINDINGS if is_broken(left) else CLEAN


COMMAND = Command(
    name="repair",
    group="sessions",
    run=run,
    summary="Repair broken sessions in place: planned, shown, backed up, undoable.",
    details=(
        "Shows what would be done and asks; --yes does not ask, --diff only shows the lines that "
        "change, -o writes a repaired copy instead. The original is kept in a folder .lockstitch "
        "beside the session, and `lockstitch undo` brings it back byte for byte. A session that "
        "its program has open is not repaired: a call that looks lost may be at work. A thread of "
        "LangGraph's that --session names is, also in a database that is open: it is written only "
        'if it is still what was read, and else reported as "went on". Lines that '
        "are appended meanwhile all the same are carried over. Real results are looked for "
        "everywhere they may have survived before a neutral one is written. In a PostgreSQL with "
        "LangGraph's "
        "checkpoints, a repair adds one more checkpoint to a thread and changes none; a thread "
        "that goes on meanwhile is left alone. What was added is noted in a table "
        "lockstitch_repairs in the same schema. A damaged session in a store of Lockstitch's own "
        "is written anew from all that can be read, with a note in the place of what cannot; the "
        "damaged one is kept beside it. -o copies all that can be read into a new store."
    ),
    examples=(
        "lockstitch repair session.jsonl",
        "lockstitch repair --last",
        "lockstitch repair --all",
        "lockstitch repair --yes ~/.claude/projects",
        "lockstitch repair session.jsonl --diff",
        "lockstitch repair session.jsonl -o repaired.jsonl",
        "lockstitch repair session.jsonl --strategy rollback --yes",
        "lockstitch repair session.jsonl --branch 57 -o other-branch.jsonl",
        "lockstitch repair sqlite:///agent.db --session ticket-42",
        "lockstitch repair checkpoints.db --session ticket-42 --yes --json",
        "lockstitch repair agent.db -o rescued.db",
        "lockstitch repair postgresql://localhost/agents --session ticket-42",
        "lockstitch repair postgresql://localhost/agents --yes --workers 4",
        "lockstitch repair postgresql://localhost/agents --yes --shard 1/3   # 2/3, 3/3 elsewhere",
    ),
    operand=Operand("targets", "TARGET", "Files, folders, ids or a database.", many=True),
    options=(
        Option("yes", ("--yes", "-y"), "Apply without asking."),
        Option("every", ("--all", "-a"), "Take all sessions of this machine."),
        LAST,
        Option("diff", ("--diff",), "Only show the lines that would change."),
        Option("output", ("--output", "-o"), "Write a repaired copy here.", metavar="FILE"),
        OVERWRITE,
        Option(
            "strategy",
            ("--strategy",),
            "close: answer open calls; rollback: go back to the last complete turn.",
            metavar="HOW",
            choices=("close", "rollback"),
            default="close",
        ),
        Option(
            "lossy", ("--lossy",), "Allow fixes that take something away, such as broken images."
        ),
        Option(
            "force_cleanup",
            ("--force-cleanup",),
            "If anything is left: go back to the last state that is proven valid.",
        ),
        Option("notes", ("--notes",), "Repair what harms nobody, too: a session with notes only."),
        Option(
            "branch",
            ("--branch",),
            "Write the branch that starts at this line as a session of its own (with -o).",
            metavar="LINE",
        ),
        FORMAT,
        SESSION,
        FOLLOW,
        databases.WORKERS,
        databases.SHARD,
        JSON,
    ),
)
