"""``lockstitch repair``: repair broken sessions in place, with a backup and an undo."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, structs

from lockstitch.cli import render, terminal
from lockstitch.cli.options import (
    FOLLOW,
    FORMAT,
    JSON,
    LAST,
    OVERWRITE,
    SESSION,
    SHARD,
    WORKERS,
    Command,
    Operand,
    option,
)
from lockstitch.cli.targets import (
    last_used_session,
    name_threads,
    naming_target,
    survey_of,
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
    LockstitchError,
    Moved,
    UnknownFormat,
    Unreadable,
    UsageError,
)
from lockstitch.files import backup
from lockstitch.formats.repair import RepairOptions
from lockstitch.rules import NOTE, is_broken
from lockstitch.rules.rule import several
from lockstitch.sources import operations
from lockstitch.sources.own_stores import POSTGRES, SCHEMES
from lockstitch.sources.source import (
    ManySource,
    Repaired,
    Report,
    Source,
    pasted,
    paused_collection,
    resume_line,
    resuming,
    status_of_findings,
)
from lockstitch.sources.targets import (
    resolve,
    resolve_sources,
    resolve_whole,
    searched_folders,
    session_paths,
)
from lockstitch.stores.addresses import public

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lockstitch.formats.repair import RepairPlan
    from lockstitch.rules import Finding

# How many places are named one by one.
_MOST_BACKUPS = 3


class RepairRequest(Struct, frozen=True):
    """The options on the command line, by name; ``run`` is new for each."""

    targets: list[str]
    yes: bool
    diff: bool
    output: str | None
    force: bool
    strategy: str
    lossy: bool
    force_cleanup: bool
    notes: bool
    branch: str | None
    form: str | None
    session: str | None
    follow_symlinks: bool
    workers: int | None
    shard: tuple[int, int] | None
    every: bool
    newest: bool
    as_json: bool
    run: str = field(default_factory=backup.new_run)

    @property
    def options(self) -> RepairOptions:
        """The options for planning a repair."""
        return RepairOptions(self.strategy, self.lossy, self.force_cleanup, self.notes)


def run(request: RepairRequest) -> int:
    """Repair every session that the targets name, and return the exit status."""
    if request.every and (request.targets or request.session or request.newest):
        raise UsageError("--all takes every session on this machine: do not name any")
    if request.newest:
        target, session = last_used_session(next(iter(request.targets), None), request.session)
        request = structs.replace(request, targets=[target], session=session)
    if request.branch is not None and request.output is None:
        raise UsageError(
            "--branch writes a branch as a new session: name a file for it with -o FILE"
        )
    if request.output is not None and len(request.targets) > 1:
        raise UsageError("-o takes the repaired copy of one session: name one target")
    if request.force and request.output is None:
        raise UsageError(
            "--force lets -o overwrite a file; a session that a program has open is never repaired"
        )
    targets, part, whole = request.targets, request.shard, None
    if part is not None or any(target.startswith(POSTGRES) for target in targets):
        # only the database itself can tell whose it is
        are_threads = part is not None and name_threads(targets, request.form, request.session)
        survey_of(request.workers, part, targets, are_threads=are_threads)
        found = (resolve_whole(one, request.form, request.session) for one in targets)
        whole = next(filter(None, found), None)
    if request.every:
        request = structs.replace(request, targets=[*session_paths()])
    work = list(_find_work(request)) if whole is None else []
    whole = next((source for _, source in work if isinstance(source, ManySource)), whole)
    if whole is None:
        return _repair_each(work, request)
    if len(targets) > 1:
        raise UsageError("a store or a database is repaired by itself: name one target")
    with naming_target(targets[0]):
        return _repair_whole(whole, request)


# Sessions in files and databases of programs.


# A session with the name that a person knows, or why there is none with that name.
SessionWork = tuple[str, "Source | LockstitchError"]


def _repair_each(work: list[SessionWork], request: RepairRequest) -> int:
    """Repair sessions one by one, and return the exit status."""
    prompt = RepairPrompt()
    is_asked = not (request.yes or request.diff or request.output is not None)
    if is_asked and len(work) > 1 and terminal.can_ask():
        prompt.total = _count_questions(work, request)
    done: list[tuple[str, Repaired]] = []
    is_interrupted = False
    try:
        for name, source in work:
            if prompt.is_over and not prompt.was_alone:
                break
            try:
                if isinstance(source, LockstitchError):
                    raise source  # noqa: TRY301 - said as what goes wrong later is
                done.append((name, _repair_one(name, source, request, prompt)))
            except Exception as error:  # noqa: BLE001 - it is said, and the rest is done
                done.append((name, _report_failure(name, error)))
    except KeyboardInterrupt:
        # what was done before the failure stays in the list
        is_interrupted = True
        terminal.start_new_line()
    if request.as_json:
        fields = [{**_json_fields(one), "target": public(name)} for name, one in done]
        terminal.emit(render.encode_json(sessions=fields))
    status = _say_outcome([one for _, one in done], request)
    if prompt.was_alone:
        terminal.note("--yes applies this plan; at a terminal you are asked.")
    if not is_interrupted:
        return status
    left = work[len(done) :]
    for _, source in left[:1]:
        if not isinstance(source, LockstitchError) and _has_backup(source.path, request.run):
            where = pasted(source.path)
            terminal.note(f"{where} may have been repaired: lockstitch undo {where} restores it.")
    terminal.note(f"{several(len(left), 'session')} not yet looked at.")
    count = sum(one.is_written for _, one in done)
    before = f"{several(count, 'session')} had been repaired before." if count else ""
    terminal.complain(f"interrupted. {before or 'Nothing was changed.'}")
    return INTERRUPTED


def _has_backup(path: str, run: str) -> bool:
    """Whether a run has made a backup of a file."""
    try:
        return bool(operations.backups_of(path, run=run))
    except (LockstitchError, OSError):
        return False


def _find_work(request: RepairRequest) -> Iterator[SessionWork]:
    """Yield the sessions that the targets name, each with the name that a person knows."""
    if not request.targets:
        raise UsageError("nothing to do: name a file, a folder or a session id")
    # a store is repaired only if it was named
    find = resolve_sources if request.every else resolve
    for target in request.targets:
        try:
            found = find(target, format=request.form, session=request.session)
        except LockstitchError as error:
            # if the whole machine is searched, files of other programs are ignored
            if not (request.every and isinstance(error, UnknownFormat)):
                yield target, error
            continue
        if not found:
            yield target, Unreadable("it holds no session")
        if request.output is not None and len(found) > 1:
            name = render.target_name(target)
            raise UsageError(f"it holds {len(found)} sessions; -o takes one").about(name)
        for source in found:
            is_only = len(found) == 1 and source.error is None
            yield (target if is_only else source.path), source


def _count_questions(work: list[SessionWork], request: RepairRequest) -> int:
    """Check sessions; return the approximate number that a person will be asked about."""
    count = 0
    harmless = () if request.notes else (NOTE,)
    with ProgressBar("Checking", len(work), "sessions") as advance:
        for _, source in work:
            if not isinstance(source, LockstitchError):
                found = operations.check(source).findings
                count += any(one.fixable and one.severity not in harmless for one in found)
            advance(1)
    return count


def _report_failure(name: str, error: Exception) -> Repaired:
    """Print why one repair failed, and return that as its outcome."""
    if isinstance(error, LockstitchError):
        # The frames of the traceback may hold a cursor, which keeps the database open.
        failure: LockstitchError = error.with_traceback(None)
        failure.__cause__ = failure.__context__ = None
    elif isinstance(error, OSError):
        failure = Unreadable(error.strerror or type(error).__name__)
    elif isinstance(error, RecursionError | MemoryError):
        failure = Unreadable("it is too large or too deep")
    else:
        failure = LockstitchError(describe_bug(error))
    terminal.complain(f"{render.target_name(name)}: {failure}")
    return Repaired(Report(public(name), error=str(failure)))


def _repair_one(
    name: str, source: Source, request: RepairRequest, prompt: RepairPrompt
) -> Repaired:
    """Read, plan, show, confirm and write the repair of one session."""
    options, output = request.options, request.output
    label = render.session_name(name, source.format, source.session)
    with paused_collection():
        session = source.open(follow_symlinks=request.follow_symlinks)
        if output is not None and not request.diff:
            write_copy(output, None, source.path, force=request.force)
        if request.branch is not None:
            data = source.form.fork(session.transcript, request.branch)
            write_copy(str(output), data, source.path, force=request.force)
            where = render.target_name(str(output))
            terminal.note(f"Wrote the branch from line {request.branch} to {where}.")
            outlook = operations.preview_plan(session, None)
            outlook.is_written = True
            return outlook
        plan = operations.plan_session(session, options)
        outlook = operations.preview_plan(session, plan)

        def show(*, is_done: bool) -> None:
            if not request.as_json:
                keeps = "kept with the backup" if is_done else "to be kept with the backup"
                keeps = keeps if output is None else "stays in the original only"
                difference = plan if request.diff else None
                _show_repaired(label, outlook, keeps, is_done=is_done, difference=difference)

        if not plan.changed or request.diff:
            show(is_done=False)
            return outlook
        if output is not None:
            data = operations.encode_copy(session, plan, output)
            write_copy(output, data, source.path, force=request.force)
            show(is_done=True)
            outlook.is_written = True
            return outlook
        # Checked before anything is shown, so that nothing is shown as done and then refused. For a
        # file it is checked again when the file is written.
        if source.session is not None or not request.yes:
            source.require_closed(session, operations.COPY, is_named=request.session is not None)
        if not request.yes:
            show(is_done=False)
            if not prompt.wants(lambda: _show_difference(label, plan)):
                return outlook
        try:
            done, had_gone_on = operations.write_repair(
                session, plan, options, request.run, follow_symlinks=request.follow_symlinks
            )
        except Moved:
            terminal.note(
                f"{render.target_name(label)}: was continued meanwhile; nothing was changed"
            )
            outlook.went_on = True
            return outlook
        if had_gone_on:
            terminal.note("The session was continued meanwhile; it was read and repaired again.")
        if request.yes:
            show(is_done=True)
        return done


def _show_repaired(
    name: str, done: Repaired, keeps: str, *, is_done: bool, difference: RepairPlan | None = None
) -> None:
    """Print what was done to a session, or what would be done, and which of the two it is.

    ``keeps`` says where removed values are kept; with a plan in ``difference``, its difference is
    shown, too.
    """
    report, shown = done.report, render.target_name(name)
    if report.error is not None:
        terminal.complain(f"{shown}: {report.error}")
    if not done.went_on:
        if done.changes and not is_done:
            terminal.note(f"{shown}: {render.PLANNED}")
        if difference is not None:
            _show_difference(name, difference)
        for line in render.describe_changes(name, done.changes, is_done=is_done):
            terminal.note(line)
        for kept in done.quarantine:
            terminal.note(render.describe_quarantined(name, kept, keeps))
    for found in report.findings if done.went_on else done.remaining:
        terminal.note(render.describe_finding(name, str(report.dialect), found))
    for note in report.notes:
        terminal.note(f"{shown}: note: {terminal.escape_controls(note)}")
    if done.went_on:
        terminal.note(f"{shown}: was continued meanwhile; it was left alone")


def _show_difference(name: str, plan: RepairPlan) -> None:
    for line in render.difference_lines(plan, name):
        terminal.say(line)


def _json_fields(done: Repaired) -> dict[str, Any]:
    return {
        **render.report_fields(done.report),
        "status": "unreadable" if done.report.error else status_of_findings(done.left),
        "edits": done.changes,
        "quarantine": [{"code": q.code, "place": q.place, "size": q.size} for q in done.quarantine],
        "backup": done.backup,
        "remaining": done.remaining,
        "applied": done.is_written,
        "outcome": done.outcome,
    }


def _say_outcome(done: list[Repaired], request: RepairRequest) -> int:
    """Print the outcome of all, how to undo it and how to go on; return the exit status."""
    repaired = [one for one in done if one.report.error is None]
    kept, here = [one for one in repaired if one.backup], render.current_folder()
    paths = [one.report.target for one in kept]
    # looking up the folders of all programs is slow, so do it only if they may have to be named
    known = searched_folders() if len(paths) > _MOST_BACKUPS else []
    places = undo_places(paths, request.targets, known)
    findings = [found for one in repaired for found in one.report.findings]
    left = [found for one in repaired for found in one.left]
    count = sum(one.is_written for one in done)
    said, still = render.count_findings(findings), render.count_findings(left)
    if count:
        terminal.note(f"Repaired {several(count, 'session')}; {said or 'no findings'} before.")
    elif repaired and not findings:
        terminal.note("All clean. Nothing was changed.")
    elif repaired and not is_broken(findings):
        terminal.note(f"Healthy with notes: {said}, nothing broken, nothing changed.")
    elif not request.diff:
        terminal.note("Nothing was changed.")
    if kept and not request.as_json:
        for one in kept[:_MOST_BACKUPS]:
            terminal.note(f"Backup: {pasted(str(one.backup))}")
        if len(kept) > _MOST_BACKUPS:
            terminal.note(f"And {several(len(kept) - _MOST_BACKUPS, 'more backup')}.")
        pieces = sum(len(one.quarantine) for one in kept)
        if pieces:
            terminal.note(f"What was quarantined ({several(pieces, 'piece')}) is kept with it.")
    if left and count:
        terminal.note(f"Left: {still}.")
    if kept and not request.as_json:
        what = "it" if len(kept) == 1 else f"all {len(kept)}"
        terminal.note(f"To undo {what}: lockstitch undo {' '.join(map(pasted, places))}")
        if len(kept) == 1:
            report = kept[0].report
            _, words, is_local = resuming(report.format, report.session, report.target)
            folder = report.project if is_local else None
            line = resume_line(words, folder, here)
            if line:
                terminal.note(f"To resume it: {line}")
    if len(repaired) < len(done):
        return FAILED
    return FINDINGS if status_of_findings(left) == "broken" else CLEAN


def undo_places(paths: list[str], named: list[str], known: list[str]) -> list[str]:
    """Return as few places as possible that name all these files for an undo.

    Places that a person gave come first, then the files themselves, then the folders of programs.
    """
    covered: dict[str, set[str]] = {}
    for place in (*named, *known):
        start = place.rstrip(os.sep) + os.sep
        covered[place] = {one for one in paths if one == place or one.startswith(start)}
    used = [place for place in named if covered[place]]
    is_all = {*paths} == {path for place in used for path in covered[place]}
    if is_all and len(used) <= _MOST_BACKUPS:
        return used
    files = [*dict.fromkeys(paths)]
    roots = [root for root in known if covered[root]]
    is_short = len(files) <= _MOST_BACKUPS or not roots
    return files if is_short else roots


# Stores and databases of threads.


class RepairTally(Struct):
    """Counts repairs one by one, because there may be millions."""

    total: int = 0
    repaired: int = 0
    failed: int = 0
    went_on: int = 0
    due: int = 0
    found: int = 0
    left: dict[str, Finding] = field(default_factory=dict)
    # the first sessions that were repaired
    sessions: list[str] = field(default_factory=list)

    def count(self, done: Iterable[Repaired]) -> Iterator[Repaired]:
        """Yield the same repairs, and count them."""
        for one in done:
            self.total += 1
            self.repaired += one.is_written
            self.failed += one.report.error is not None
            self.went_on += one.went_on
            self.due += any(finding.fixable for finding in one.left)
            self.found += len(one.report.findings)
            # one finding of each severity is enough for the exit status
            self.left |= {finding.severity: finding for finding in one.left}
            if one.is_written and len(self.sessions) < _MOST_BACKUPS:
                self.sessions.append(str(one.report.session))
            yield one


def _repair_whole(source: ManySource, request: RepairRequest) -> int:
    """Repair the sessions of a store or a database, after one question; return the exit status."""
    if request.branch is not None:
        raise UsageError("--branch is for the sessions of other programs, in files")
    if request.output is not None:
        output = request.output
        count, lost = source.copy(output if output.startswith(SCHEMES) else f"sqlite:///{output}")
        wrote = f"Wrote {several(count, source.noun)} to {render.target_name(output)}"
        terminal.note(f"{wrote}; {lost} pieces lost.")
        return CLEAN
    tally = RepairTally()
    survey = survey_of(request.workers, request.shard, request.targets, are_threads=True)
    writes = request.yes and not request.diff
    repairs = source.repairs(request.options, request.run, survey, writes=writes)

    def shown() -> Iterator[dict[str, Any]]:
        for one in tally.count(repairs):
            if not request.as_json:
                name = render.report_name(one.report)
                _show_repaired(name, one, source.keeps, is_done=one.is_written)
            yield _json_fields(one)

    for piece in render.stream_json(shown()):
        if request.as_json:
            terminal.emit(piece)
    if tally.repaired:
        terminal.note(f"Repaired {tally.repaired} of {several(tally.total, source.noun)}.")
        for words in source.undo_words(tally.sessions):
            terminal.note(f"To undo it: lockstitch undo {' '.join(map(pasted, words))}")
    elif not tally.found and not tally.failed:
        terminal.note("All clean.")
    if tally.went_on:
        terminal.note(f"Left alone: {several(tally.went_on, source.noun)} (continued meanwhile).")
    is_asked = tally.due and not (request.yes or request.diff or request.as_json)
    if is_asked and terminal.confirm("Apply this? It can be undone.", "--yes applies this plan"):
        return _repair_whole(source, structs.replace(request, yes=True))
    if tally.failed:
        return FAILED
    return FINDINGS if is_broken([*tally.left.values()]) else CLEAN


COMMAND = Command(
    name="repair",
    run=run,
    bundle=RepairRequest,
    details=(
        "Shows what would be done and asks first; --yes skips the question, --diff only shows "
        "the lines that would change, -o writes a repaired copy instead. The original is kept "
        "in a folder .lockstitch beside the session, and `lockstitch undo` restores it byte for "
        "byte. A session that its program has open is not repaired: a call that looks lost may "
        "still be running. A LangGraph thread named with --session is repaired even in a "
        "database that is open: it is written only if it has not changed since it was read, and "
        'is otherwise reported as "went on". Lines that a program appends meanwhile are carried '
        "over. Real results are looked for wherever they may have survived before a neutral one "
        "is written. In a PostgreSQL database with LangGraph's checkpoints, a repair adds one "
        "checkpoint to a thread and changes none; a thread that is continued meanwhile is left "
        "alone. What was added is recorded in a table lockstitch_repairs in the same schema. A "
        "damaged session in a Lockstitch store is rebuilt from everything that can be read, "
        "with a note in place of what cannot; the damaged one is kept beside it. -o copies "
        "everything that can be read into a new store."
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
    operand=Operand("targets", "TARGET", "Files, folders, session ids or a database.", many=True),
    options=(
        option("--yes -y", "Repair without asking."),
        option("--all -a", "Take all sessions on this machine.", name="every"),
        LAST,
        option("--diff", "Only show the lines that would change."),
        option("--output -o FILE", "Write a repaired copy here."),
        OVERWRITE,
        option(
            "--strategy HOW",
            "close: answer open calls; rollback: go back to the last complete turn.",
            choices=("close", "rollback"),
            default="close",
        ),
        option("--lossy", "Allow repairs that remove something, such as broken images."),
        option(
            "--force-cleanup",
            "If findings remain: go back to the last state that is proven valid.",
        ),
        option("--notes", "Also repair harmless findings: sessions that have notes only."),
        option(
            "--branch LINE",
            "Write the branch that starts at this line as a new session (with -o).",
        ),
        FORMAT,
        SESSION,
        FOLLOW,
        WORKERS,
        SHARD,
        JSON,
    ),
)
