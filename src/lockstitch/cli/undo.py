"""``lockstitch undo``: the last repair taken back, byte for byte."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from lockstitch.cli import migrate, render, terminal
from lockstitch.cli.backups import backup_fields
from lockstitch.cli.options import JSON, SESSION, Command, Operand, Option
from lockstitch.cli.targets import naming_target, schema_tasks
from lockstitch.cli.terminal import CLEAN, FAILED, FINDINGS
from lockstitch.errors import LockstitchError, UsageError
from lockstitch.files import backup as backups
from lockstitch.sources import operations
from lockstitch.sources.source import is_postgres
from lockstitch.sources.targets import STORE, classify
from lockstitch.stores.addresses import public
from lockstitch.transcript import several, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch.files.backup import Backup


class UndoRequest(Struct):
    """What is to be taken back; ``declined`` are the places that could not be looked at."""

    targets: list[str]
    listing: bool
    run_id: str | None
    force: bool
    session: str | None
    yes: bool
    as_json: bool
    declined: list[str] = field(default_factory=list)

    def decline(self, place: str, error: Exception) -> None:
        """Print that a place below a folder is left out, and why."""
        self.declined.append(place)
        reason = error.strerror if isinstance(error, OSError) else error
        terminal.complain(f"{render.target_name(place)}: {reason}")


def run(request: UndoRequest) -> int:
    """Undo the last repair of every target, or list the backups, and return the exit status."""
    targets, session, run_id = request.targets, request.session, request.run_id
    if not targets:
        raise UsageError("nothing to undo: give a file or a folder that was repaired")
    if run_id is not None and run_id.startswith(migrate.RUN) and not request.listing:
        if len(targets) > 1:
            raise UsageError("a migration is taken back in one store: give one target")
        return migrate.undo(targets[0], session, run_id, as_json=request.as_json)
    if any(map(_is_repaired_store, targets)) and not request.listing:
        if len(targets) > 1:
            raise UsageError("a store of Lockstitch's own is repaired alone: give one target")
        return _undo_store(request)
    if any(map(is_postgres, targets)):
        if request.force or len(targets) > 1:
            raise UsageError("a database is taken back alone, and never by force")
        with naming_target(targets[0]):
            return _list_threads(request) if request.listing else _undo_threads(request)
    if request.listing:
        return _list(request)
    due, refused = _find_due(request)
    is_wanted = bool(refused) or request.yes or _confirm(due)
    done = refused
    if not refused:
        done = _restore(due, force=request.force) if is_wanted else [_outcome(one) for one in due]
    if request.as_json:
        terminal.emit(render.encode_json(sessions=done))
    if request.declined or any(one["error"] for one in done):
        return FAILED
    return CLEAN if is_wanted else FINDINGS


# Stores of our own


def _is_repaired_store(target: str) -> bool:
    """Whether a target is a store of Lockstitch's own to take a repair back in.

    A PostgreSQL may hold LangGraph's checkpoints as well, and their repairs.
    """
    from lockstitch import stored

    is_store = classify(target) == STORE
    return is_store and (not is_postgres(target) or stored.can_undo(target))


def _undo_store(request: UndoRequest) -> int:
    from lockstitch import stored

    [target] = request.targets
    with naming_target(target):
        done = stored.undo(target, request.session)
    terminal.note(
        f"{render.target_name(public(target))}:{done.session}: as it was before its repair; what "
        f"it had become is kept as {done.aside}."
    )
    if request.as_json:
        fields = {"target": public(target), "session": done.session, "restored": done.session}
        terminal.emit(render.encode_json(sessions=[{**fields, "aside": done.aside, "error": None}]))
    return CLEAN


# Threads of LangGraph's in a PostgreSQL


def _list_threads(request: UndoRequest) -> int:
    """List the runs that repaired something in a database, newest first."""
    from lockstitch.formats.langgraph.postgres import repairs
    from lockstitch.formats.langgraph.postgres.database import Database

    rows: list[dict[str, Any]] = []
    for task in schema_tasks(request.targets[0]):
        with Database(task.url, task.home.schema) as database:
            for one in repairs.past_runs(database, task.home):
                status = "undone" if one.undone == one.repairs else "done"
                facts = {"target": task.name, "run": one.run, "time": one.made.isoformat()}
                counts = {"repairs": one.repairs, "undone": one.undone}
                rows.append({**facts, "status": status, **counts})
    if request.as_json:
        terminal.emit(render.encode_json(backups=rows))
        return CLEAN
    for row in rows:
        counted = f"{row['repairs']:>10} repaired  {row['undone']:>10} undone"
        name = render.target_name(row["target"])
        terminal.say(f"{row['time'][:19]}  {row['run']}  {counted}  {name}")
    if not rows:
        terminal.note("No repairs.")
    return CLEAN


def _undo_threads(request: UndoRequest) -> int:
    """Undo the repairs of threads in a database, and return the exit status."""
    done = failed = 0

    def undo() -> Iterator[dict[str, Any]]:
        nonlocal done, failed
        undone = operations.undo_threads(request.targets[0], request.session, request.run_id)
        for name, one in undone:
            label = render.SessionName(f"{name}:{one.session}")
            done += one.error is None
            failed += one.error is not None
            if one.error is not None:
                terminal.complain(f"{render.target_name(label)}: {one.error}")
            restored = None if one.error else one.session
            yield {"target": str(label), "restored": restored, "error": one.error}

    for piece in render.stream_json(undo()):
        if request.as_json:
            terminal.emit(piece)
    terminal.note(f"Took {several(done, 'repair')} back.")
    return FAILED if failed else CLEAN


# Files and databases of other programs


def _find_due(request: UndoRequest) -> tuple[list[Backup], list[dict[str, Any]]]:
    """Return what is to be restored, and what stands against it; anything stops all of it."""
    due: list[Backup] = []
    refused: list[dict[str, Any]] = []
    for target in request.targets:
        try:
            due += operations.find_undoable(
                target, session=request.session, run=request.run_id, declined=request.decline
            )
        except (LockstitchError, OSError) as error:
            refused.append(_report_failure(target, request.session, error))
    for backup in due:
        try:
            operations.require_undoable(backup, force=request.force)
        except (LockstitchError, OSError) as error:
            refused.append(_report_failure(backup.path, operations.session_of(backup), error))
    return due, refused


def _report_failure(target: str, session: str | None, error: Exception) -> dict[str, Any]:
    label = target if session is None else render.SessionName(f"{public(target)}:{session}")
    terminal.complain(f"{render.target_name(label)}: {error}")
    facts = {"target": public(target), "session": session}
    return {**facts, "restored": None, "error": str(error)}


def _confirm(due: list[Backup]) -> bool:
    """Show what would be replaced by what, and ask."""
    for backup in due:
        when = f"the repair of {backup.time:%Y-%m-%d %H:%M:%S} UTC"
        if backup.rows is not None:
            what = f"{several(len(backup.rows['rows']), 'row')} will be as before {when}"
        else:
            before = f"the {size(backup.file.lstat().st_size)} of before {when}"
            try:
                found = Path(backup.path).lstat()
            except FileNotFoundError:
                what = f"is gone; {before} will be brought back"
            else:
                changed = datetime.fromtimestamp(found.st_mtime, UTC)
                now = f"{size(found.st_size)}, last changed {changed:%Y-%m-%d %H:%M:%S} UTC"
                what = f"{now}; {before} will take its place"
        terminal.note(f"{_name(backup)}: {what}")
    return terminal.confirm("Take this back?", "--yes takes it back without asking")


def _name(backup: Backup) -> str:
    own = operations.session_of(backup)
    return render.target_name(backup.path if own is None else f"{backup.path}:{own}")


def _outcome(backup: Backup, restored: str | None = None) -> dict[str, Any]:
    facts = {"target": backup.path, "session": operations.session_of(backup)}
    return {**facts, "restored": restored, "error": None}


def _restore(due: list[Backup], *, force: bool) -> list[dict[str, Any]]:
    """Restore all of these, and return what became of each file and each database."""
    as_run = backups.new_run()
    done: list[dict[str, Any]] = []
    restored: dict[str, list[Backup]] = {}
    for backup in due:
        try:
            operations.undo(backup, force=force, as_run=as_run)
        except (LockstitchError, OSError) as error:
            done.append(_report_failure(backup.path, operations.session_of(backup), error))
        else:
            restored.setdefault(backup.path, []).append(backup)
            done.append(_outcome(backup, backup.stem))
    for path, found in restored.items():
        when = f"{found[-1].time:%Y-%m-%d %H:%M:%S}"
        if len(found) > 1:
            name = render.target_name(path)
            terminal.note(f"{name}: {len(found)} sessions as they were before {when}.")
        else:
            terminal.note(f"{_name(found[0])}: as it was before {when}.")
    return done


def _list(request: UndoRequest) -> int:
    found = [
        backup
        for target in request.targets
        for backup in operations.backups_of(
            target, session=request.session, run=request.run_id, declined=request.decline
        )
    ]
    status = FAILED if request.declined else CLEAN
    if request.as_json:
        terminal.emit(render.encode_json(backups=[backup_fields(backup) for backup in found]))
        return status
    for backup in found:
        when = f"{backup.time:%Y-%m-%d %H:%M:%S}"
        kind = "undo" if backups.is_undo(backup) else "repair"
        count = backup.manifest.before_size
        row = f"{when}  {backup.run}  {kind:<6}  {backup.status:<10}  {count:>10}"
        own = operations.session_of(backup)
        more = "" if own is None else f"  {own}"
        record = render.target_name(str(backup.record))
        terminal.say(f"{row}  {record}{render.target_name(more)}")
    if not found:
        terminal.note("No backups.")
    return status


COMMAND = Command(
    name="undo",
    run=run,
    bundle=UndoRequest,
    details=(
        "Shows what will replace what, with sizes and dates, and asks; --yes does not "
        "ask. For a folder: the last repair that touched files in it, all of them. For a database: "
        "all that its last repair touched, or the last repair of one session (--session, or its "
        "id). Refuses if a file is no longer what the repair left, because its program has gone "
        "on; --force restores it anyway and keeps the present state as another backup. Refuses, "
        "too, while a program has the session open. Backups in a folder .lockstitch that belongs "
        "to another user, or that others may write to, are not believed. The undo of a file can "
        "itself be undone: --list names its run, and --run takes it back. In a PostgreSQL with "
        "LangGraph's "
        "checkpoints, exactly the rows that a repair added are deleted: those of its last run, of "
        "--run NAME, or of one thread (--session). A thread that has continued since its repair is "
        "left alone and reported. In a store of Lockstitch's own, the damaged session is back "
        "under its name, and what the repair and its program made of it is kept. The --run "
        "that `migrate` printed takes away the threads it copied, but for those in use since."
    ),
    examples=(
        "lockstitch undo session.jsonl",
        "lockstitch undo ~/.claude/projects",
        "lockstitch undo --list session.jsonl",
        "lockstitch undo ~/.local/share/opencode/opencode.db --session ses_42",
        "lockstitch undo sqlite:///agent.db --session ticket-42",
        "lockstitch undo postgresql://localhost/agents --session ticket-42",
        "lockstitch undo sqlite:///agent.db --run migrate-6c1f0a2b9d",
    ),
    operand=Operand("targets", "TARGET", "Files, folders or session ids.", many=True),
    options=(
        Option("listing", ("--list", "-l"), "List the backups and change nothing."),
        Option("run_id", ("--run",), "Undo this run of --list, or of migrate.", metavar="ID"),
        Option("force", ("--force",), "Restore even if the session has gone on since."),
        Option("yes", ("--yes", "-y"), "Take it back without asking."),
        SESSION,
        JSON,
    ),
)
