"""``lockstitch repair``: a broken session repaired in place, with a backup and a way back."""

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
    ThreadScope,
    last_used_session,
    naming_target,
    process_threads,
    read_shard,
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
from lockstitch.sources.operations import Repaired
from lockstitch.sources.source import (
    OWN,
    POSTGRES,
    SCHEMES,
    Report,
    Source,
    pasted,
    paused_collection,
    resume_line,
    resuming,
    status_of_findings,
)
from lockstitch.sources.targets import (
    THREADS,
    classify,
    resolve,
    resolve_sources,
    searched_folders,
    session_paths,
)
from lockstitch.stores.addresses import public

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch.formats.repair import RepairPlan
    from lockstitch.journal.salvage import Salvage
    from lockstitch.rules import Finding
    from lockstitch.sources.source import Opened
    from lockstitch.sources.threads import ThreadOutcome

# So many places are named one by one.
_MOST_BACKUPS = 3


class RepairRequest(Struct, frozen=True):
    """What the command line asks for, by the names of its options; ``run`` is new for each."""

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
        """How a repair may go about it."""
        return RepairOptions(self.strategy, self.lossy, self.force_cleanup, self.notes)


def run(request: RepairRequest) -> int:
    """Repair every session that the targets name, and return the exit status."""
    if request.every and (request.targets or request.session or request.newest):
        raise UsageError("--all takes every session of this machine: give no other")
    if request.newest:
        target, session = last_used_session(next(iter(request.targets), None), request.session)
        request = structs.replace(request, targets=[target], session=session)
    if request.branch is not None and request.output is None:
        raise UsageError("--branch writes a branch as a session of its own: give -o FILE, too")
    if request.force and request.output is None:
        raise UsageError(
            "--force lets -o overwrite a file; a session that a program has open is never repaired"
        )
    targets = request.targets
    if request.shard is not None or any(target.startswith(POSTGRES) for target in targets):
        # only the database itself can say whose it is
        kinds = {classify(target, request.form) for target in targets}
        shard = read_shard(request.shard, targets, request.session, kinds == {THREADS})
        if THREADS in kinds:
            if request.output is not None or request.branch is not None or len(targets) > 1:
                raise UsageError(
                    "a database is repaired alone, where it is: without -o and --branch"
                )
            scope = ThreadScope(request.workers, request.session, shard)
            return _repair_threads(targets[0], request, scope)
    if request.every:
        request = structs.replace(request, targets=[*session_paths()])
    work = list(_find_work(request))
    if any(isinstance(found, Source) and found.kind == OWN for _, found in work):
        if len(targets) > 1:
            raise UsageError("a Lockstitch store is repaired alone: give one target")
        return _repair_store(targets[0], request)
    return _repair_sessions(work, request)


# Sessions of other programs


class SessionOutcome(Struct):
    """What became of one session, under the name that a person knows it by."""

    name: str
    done: Repaired | LockstitchError
    is_written: bool = False

    @property
    def left(self) -> list[Finding]:
        """What is wrong with the session now."""
        if isinstance(self.done, LockstitchError):
            return []
        return self.done.remaining if self.is_written else self.done.report.findings


# A session with the name that a person knows it by, or why there is none under that name.
SessionWork = tuple[str, "Source | LockstitchError"]


def _repair_sessions(work: list[SessionWork], request: RepairRequest) -> int:
    """Repair sessions one by one, and return the exit status."""
    prompt = RepairPrompt()
    is_asked = not (request.yes or request.diff or request.output is not None)
    if is_asked and len(work) > 1 and terminal.can_ask():
        prompt.total = _count_questions(work, request)
    done: list[SessionOutcome] = []
    is_interrupted = False
    try:
        for name, source in work:
            if prompt.is_over and not prompt.was_alone:
                break
            if isinstance(source, LockstitchError):
                done.append(_report_failure(name, source))
                continue
            try:
                done.append(_repair_one(name, source, request, prompt))
            except Exception as error:  # noqa: BLE001 - it is said, and the rest is done
                done.append(_report_failure(name, error))
    except KeyboardInterrupt:
        # what was done before it stays in the list
        is_interrupted = True
        terminal.start_new_line()
    if request.as_json:
        terminal.emit(render.encode_json(sessions=[*map(_json_fields, done)]))
    status = _say_outcome(done, request)
    if prompt.was_alone:
        terminal.note("--yes applies this plan; at a terminal you are asked.")
    if not is_interrupted:
        return status
    left = work[len(done) :]
    for _, source in left[:1]:
        if not isinstance(source, LockstitchError) and _has_backup(source.path, request.run):
            where = pasted(source.path)
            terminal.note(f"{where} may be repaired: lockstitch undo {where} brings it back.")
    terminal.note(f"{several(len(left), 'session')} left to look at.")
    count = sum(one.is_written for one in done)
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
    """Yield the sessions that the targets name, each under the name that a person knows it by."""
    if not request.targets:
        raise UsageError("nothing to do: give a file, a folder or the id of a session")
    # a store is repaired only if it was named
    find = resolve_sources if request.every else resolve
    for target in request.targets:
        try:
            found = find(target, format=request.form, session=request.session)
        except LockstitchError as error:
            # of all files of this machine, those of other programs are nobody's business
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
    """Check sessions, and return about how many of them a person will be asked."""
    count = 0
    harmless = () if request.notes else (NOTE,)
    with ProgressBar("Checking", len(work), "sessions") as advance:
        for _, source in work:
            if not isinstance(source, LockstitchError):
                found = operations.check(source).findings
                count += any(one.fixable and one.severity not in harmless for one in found)
            advance(1)
    return count


def _report_failure(name: str, error: Exception) -> SessionOutcome:
    """Say what stood in the way of one repair."""
    if isinstance(error, LockstitchError):
        # The frames that it came through may hold a cursor, and that holds the database open.
        failure: LockstitchError = error.with_traceback(None)
        failure.__cause__ = failure.__context__ = None
    elif isinstance(error, OSError):
        failure = Unreadable(error.strerror or type(error).__name__)
    elif isinstance(error, RecursionError | MemoryError):
        failure = Unreadable("it is too large or too deep")
    else:
        failure = LockstitchError(describe_bug(error))
    terminal.complain(f"{render.target_name(name)}: {failure}")
    return SessionOutcome(public(name), failure)


def _repair_one(
    name: str, source: Source, request: RepairRequest, prompt: RepairPrompt
) -> SessionOutcome:
    """Read, plan, show, ask and write the repair of one session."""
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
            return SessionOutcome(name, operations.preview_plan(session, None), is_written=True)
        plan = operations.plan_session(session, options)
        outlook = operations.preview_plan(session, plan)
        if not plan.changed or request.diff:
            _show_plan(label, session, plan, request, is_done=False)
            return SessionOutcome(name, outlook)
        if output is not None:
            data = operations.encode_copy(session, plan, output)
            write_copy(output, data, source.path, force=request.force)
            _show_plan(label, session, plan, request, is_done=True)
            return SessionOutcome(name, outlook, is_written=True)
        # Asked before anything is shown, so that nothing is shown as done that is then refused;
        # of a file it is asked again when that is written.
        if source.session is not None or not request.yes:
            source.require_closed(session, operations.COPY, is_named=request.session is not None)
        if not request.yes:
            _show_plan(label, session, plan, request, is_done=False)
            if not prompt.wants(lambda: _show_difference(label, plan)):
                return SessionOutcome(name, outlook)
        try:
            done, had_gone_on = operations.write_repair(
                session, plan, options, request.run, follow_symlinks=request.follow_symlinks
            )
        except Moved:
            terminal.note(
                f"{render.target_name(label)}: was continued meanwhile; nothing was changed"
            )
            outlook.went_on = True
            return SessionOutcome(name, outlook)
        if had_gone_on:
            terminal.note("The session was continued meanwhile; it was read and repaired again.")
        if request.yes:
            _show_plan(label, session, plan, request, is_done=True)
        return SessionOutcome(name, done, is_written=True)


def _show_plan(
    name: str, session: Opened, plan: RepairPlan, request: RepairRequest, *, is_done: bool
) -> None:
    """Print what was done, or what would be, and say which of the two it is."""
    if request.as_json:
        return
    if plan.changes and not is_done:
        terminal.note(f"{render.target_name(name)}: {render.PLANNED}")
    if request.diff:
        _show_difference(name, plan)
    for line in render.describe_changes(name, plan.changes, is_done=is_done):
        terminal.note(line)
    where = "kept with the backup" if is_done else "to be kept with the backup"
    where = where if request.output is None else "stays in the original only"
    for kept in plan.quarantine:
        terminal.note(render.describe_quarantined(name, kept, where))
    dialect = str(session.transcript.history.dialect)
    for found in plan.remaining:
        terminal.note(render.describe_finding(name, dialect, found))
    for note in plan.before.notes:
        terminal.note(f"{render.target_name(name)}: note: {terminal.escape_controls(note)}")


def _show_difference(name: str, plan: RepairPlan) -> None:
    for line in render.difference_lines(plan, name):
        terminal.say(line)


def _json_fields(outcome: SessionOutcome) -> dict[str, Any]:
    done = outcome.done
    if isinstance(done, LockstitchError):
        fields = render.report_fields(Report(outcome.name, error=str(done)))
        rest: dict[str, Any] = {
            "edits": [],
            "backup": None,
            "remaining": [],
            "outcome": "unreadable",
        }
        return {**fields, **rest}
    done.report.target = outcome.name
    fields = render.report_fields(done.report)
    fields["status"] = status_of_findings(outcome.left)
    state = "broken" if is_broken(done.report.findings) else "ok"
    state = "repaired" if outcome.is_written else "went on" if done.went_on else state
    return {
        **fields,
        "edits": done.changes,
        "quarantine": [{"code": q.code, "place": q.place, "size": q.size} for q in done.quarantine],
        "backup": done.backup,
        "remaining": done.remaining,
        "applied": outcome.is_written,
        "outcome": state,
    }


def _say_outcome(done: list[SessionOutcome], request: RepairRequest) -> int:
    """Print what became of all, how it is undone and how to go on; return the exit status."""
    repaired = [one.done for one in done if not isinstance(one.done, LockstitchError)]
    findings = [found for one in repaired for found in one.report.findings]
    left = [found for outcome in done for found in outcome.left]
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
    kept, here = [one for one in repaired if one.backup], render.current_folder()
    if kept and not request.as_json:
        paths = [one.report.target for one in kept]
        # the folders of all programs are looked up only if they may have to be named
        known = searched_folders() if len(paths) > _MOST_BACKUPS else []
        places = undo_places(paths, request.targets, known)
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
    """Return the fewest places to name for an undo of all these files.

    What a person gave counts first, then the files themselves, then the folders of programs.
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


# Threads of LangGraph's in a PostgreSQL


def _repair_threads(target: str, request: RepairRequest, scope: ThreadScope) -> int:
    """Repair the threads of a database, and return the exit status."""
    states: dict[str, int] = {}
    found = left = failed = planned = 0

    def repair() -> Iterator[dict[str, Any]]:
        nonlocal found, left, failed, planned
        how: dict[str, Any] = {"plans": True, "writes": request.yes and not request.diff}
        how |= {"run": request.run, "options": request.options}
        for one in process_threads(target, scope, "Repairing", **how):
            states[one.state] = states.get(one.state, 0) + 1
            is_written = one.state == "repaired"
            found += len(one.report.findings)
            left += len(one.remaining if is_written else one.report.findings)
            failed += one.report.error is not None
            planned += bool(one.changes)
            if not request.as_json:
                _show_thread(one)
            done = Repaired(one.report, one.remaining, one.changes, one.quarantine, one.backup)
            fields = _json_fields(SessionOutcome(one.report.target, done, is_written))
            yield {**fields, "outcome": one.state}

    with naming_target(target):
        for piece in render.stream_json(repair()):
            if request.as_json:
                terminal.emit(piece)
    if states.get("repaired"):
        total = several(sum(states.values()), "thread")
        terminal.note(f"Repaired {states['repaired']} of {total}.")
        terminal.note(f"To undo it: lockstitch undo {pasted(public(target))}")
    elif not found and not failed:
        terminal.note("All clean.")
    if states.get("went on"):
        terminal.note(f"Left alone: {several(states['went on'], 'thread')} (went on).")
    is_asked = planned and not (request.yes or request.diff or request.as_json)
    if is_asked and terminal.confirm("Apply this? It can be undone.", "--yes applies this plan"):
        return _repair_threads(target, structs.replace(request, yes=True), scope)
    return FAILED if failed else FINDINGS if left else CLEAN


def _show_thread(outcome: ThreadOutcome) -> None:
    name = render.report_name(outcome.report)
    shown = render.target_name(name)
    if outcome.report.error is not None:
        terminal.complain(f"{shown}: {outcome.report.error}")
    is_left = outcome.state == "went on"
    if outcome.changes and outcome.state == "broken":
        terminal.note(f"{shown}: {render.PLANNED}")
    for made in () if is_left else outcome.changes:
        terminal.note(render.describe_change(name, made))
    for kept in () if is_left else outcome.quarantine:
        where = "still in the old checkpoint"
        terminal.note(render.describe_quarantined(name, kept, where))
    for found in outcome.report.findings if is_left else outcome.remaining:
        terminal.note(render.describe_finding(name, str(outcome.report.dialect), found))
    for note in outcome.report.notes:
        terminal.note(f"{shown}: note: {note}")
    if is_left:
        terminal.note(f"{shown}: went on meanwhile; it was left alone")


# Stores of our own


def _repair_store(target: str, request: RepairRequest) -> int:
    """Repair the damaged sessions of a store, and return the exit status."""
    from lockstitch import stored

    if request.output is not None:
        output = request.output
        url = output if output.startswith(SCHEMES) else f"sqlite:///{output}"
        with naming_target(target):
            copies = list(stored.copy(target, url))
        count, lost = several(len(copies), "session"), sum(one.lost for one in copies)
        terminal.note(f"Wrote {count} to {render.target_name(output)}; {lost} pieces lost.")
        return CLEAN
    with naming_target(target):
        found = list(stored.damaged(target, request.session))
    for one in found:
        name = render.session_name(public(target), OWN, one.session)
        for finding in stored.findings_of(one):
            terminal.note(render.describe_finding(name, "", finding))
        terminal.note(f"{render.target_name(name)}: {stored.summary_of(one)}.")
    if not found:
        terminal.note("All clean.")
    writes = bool(found) and not request.diff and request.yes
    if found and not (request.diff or request.yes or request.as_json):
        question = "Rewrite what can be read? The damaged session is kept next to it."
        writes = terminal.confirm(question, "--yes applies this plan")
    done = [_rewrite_session(target, one, writes=writes) for one in found]
    if request.as_json:
        terminal.emit(render.encode_json(sessions=done))
    if any(one["error"] for one in done):
        return FAILED
    return CLEAN if all(one["applied"] for one in done) else FINDINGS


def _rewrite_session(target: str, found: Salvage, *, writes: bool) -> dict[str, Any]:
    """Write one session anew, if that is wanted, and return what became of it."""
    from lockstitch import stored

    findings = stored.findings_of(found)
    report = Report(public(target), OWN, found.session, findings=findings)
    name = render.target_name(render.report_name(report))
    fields: dict[str, Any] = {"edits": [], "backup": None, "applied": False, "error": None}
    left = findings
    if writes:
        try:
            done = stored.repair(target, found.session)
        except LockstitchError as error:
            report.error = fields["error"] = error.message
            terminal.complain(f"{name}: {report.error}")
        else:
            left = []
            fields |= {"backup": done.aside, "applied": True}
            terminal.note(f"{name}: repaired; the damaged one is kept as {done.aside}.")
            again = f"{pasted(public(target))} --session {pasted(found.session)}"
            terminal.note(f"To undo it: lockstitch undo {again}")
    return {**render.report_fields(report), **fields, "remaining": left}


COMMAND = Command(
    name="repair",
    run=run,
    bundle=RepairRequest,
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
        "lockstitch_repairs in the same schema. A damaged session in a Lockstitch store "
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
        option("--yes -y", "Apply without asking."),
        option("--all -a", "Take all sessions of this machine.", name="every"),
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
        option("--lossy", "Allow fixes that take something away, such as broken images."),
        option(
            "--force-cleanup",
            "If anything is left: go back to the last state that is proven valid.",
        ),
        option("--notes", "Repair what harms nobody, too: a session with notes only."),
        option(
            "--branch LINE",
            "Write the branch that starts at this line as a session of its own (with -o).",
        ),
        FORMAT,
        SESSION,
        FOLLOW,
        WORKERS,
        SHARD,
        JSON,
    ),
)
