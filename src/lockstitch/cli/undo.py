"""``lockstitch undo``: the last repair taken back, byte for byte."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from lockstitch import sessions
from lockstitch.cli import databases, migrate, render, salvage, terminal
from lockstitch.cli.backups import backup_fields
from lockstitch.cli.parser import JSON, SESSION, Command, Operand, Option
from lockstitch.cli.targets import naming_target
from lockstitch.cli.terminal import CLEAN, FAILED, FINDINGS
from lockstitch.errors import LockstitchError, UsageError
from lockstitch.files import backup as backups
from lockstitch.sources import targets as places
from lockstitch.transcript import several, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch.files.backup import Backup


def run(  # noqa: PLR0913 - one keyword an option
    *,
    targets: list[str],
    listing: bool,
    run_id: str | None,
    force: bool,
    session: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Undo the last repair of every target, or list the backups, and return the exit status."""
    if not targets:
        raise UsageError("nothing to undo: give a file or a folder that was repaired")
    if run_id is not None and run_id.startswith(migrate.RUN) and not listing:
        if len(targets) > 1:
            raise UsageError("a migration is taken back in one store: give one target")
        return migrate.undo(targets[0], session, run_id, as_json=as_json)
    if any(salvage.takes_back(target) for target in targets) and not listing:
        salvage.require_alone(targets)
        return salvage.undo(targets[0], session, as_json=as_json)
    if any(places.is_postgres(target) for target in targets):
        if force or len(targets) > 1:
            raise UsageError("a database is taken back alone, and never by force")
        with naming_target(targets[0]):
            return _undo_database(targets[0], session, run_id, listing=listing, as_json=as_json)
    if listing:
        return _list(targets, session, run_id, as_json=as_json)
    wish = UndoRequest(session, run_id, force)
    due, refused = _find_due(targets, wish)
    is_wanted = bool(refused) or _confirm(due, yes=yes)
    done = refused or (
        _restore(due, force=force) if is_wanted else [_unchanged_fields(one) for one in due]
    )
    if as_json:
        terminal.emit(render.encode_json(sessions=done))
    if wish.declined or any(one["error"] for one in done):
        return FAILED
    return CLEAN if is_wanted else FINDINGS


class UndoRequest(Struct):
    """What is to be taken back; ``declined`` are the places that could not be looked at."""

    session: str | None
    run_id: str | None
    force: bool = False
    declined: list[str] = field(default_factory=list)

    def decline(self, place: str, error: Exception) -> None:
        """Say that a place below a folder is left out, and why."""
        self.declined.append(place)
        reason = error.strerror if isinstance(error, OSError) else error
        terminal.complain(f"{render.target_name(place)}: {reason}")


def _confirm(due: list[Backup], *, yes: bool) -> bool:
    """Show what would be replaced by what, and ask."""
    if yes:
        return True
    for backup in due:
        terminal.note(f"{_name(backup)}: {_describe_restore(backup)}")
    return terminal.confirm("Take this back?", "--yes takes it back without asking")


def _describe_restore(backup: Backup) -> str:
    """Say what stands there now and what will."""
    when = f"the repair of {backup.time:%Y-%m-%d %H:%M:%S} UTC"
    if backup.rows is not None:
        return f"{several(len(backup.rows['rows']), 'row')} will be as before {when}"
    before = f"the {size(backup.file.lstat().st_size)} of before {when}"
    try:
        found = Path(backup.path).lstat()
    except FileNotFoundError:
        return f"is gone; {before} will be brought back"
    changed = datetime.fromtimestamp(found.st_mtime, UTC)
    now = f"{size(found.st_size)}, last changed {changed:%Y-%m-%d %H:%M:%S} UTC"
    return f"{now}; {before} will take its place"


def _name(backup: Backup) -> str:
    own = sessions.session_of(backup)
    return render.target_name(backup.path if own is None else f"{backup.path}:{own}")


def _unchanged_fields(backup: Backup) -> dict[str, Any]:
    own = sessions.session_of(backup)
    return {"target": backup.path, "session": own, "restored": None, "error": None}


def _undo_database(
    target: str, session: str | None, run_id: str | None, *, listing: bool, as_json: bool
) -> int:
    """Undo the repairs of threads in a database, or list them, and return the exit status."""
    if listing:
        found = databases.past(target)
        if as_json:
            terminal.emit(render.encode_json(backups=found))
        for one in found if not as_json else ():
            counts = f"{one['repairs']:>10} repaired  {one['undone']:>10} undone"
            terminal.say(
                f"{one['time'][:19]}  {one['run']}  {counts}  {render.target_name(one['target'])}"
            )
        if not found and not as_json:
            terminal.note("No repairs.")
        return CLEAN
    done = failed = 0

    def each() -> Iterator[dict[str, Any]]:
        nonlocal done, failed
        for one in databases.undo(target, session, run_id):
            done += one["error"] is None
            failed += one["error"] is not None
            yield one

    for piece in render.stream_json(each()):
        if as_json:
            terminal.emit(piece)
    terminal.note(f"Took {several(done, 'repair')} back.")
    return FAILED if failed else CLEAN


def _find_due(targets: list[str], wish: UndoRequest) -> tuple[list[Backup], list[dict[str, Any]]]:
    """What is to be restored, and what stands against it; nothing is undone if anything does."""
    due: list[Backup] = []
    refused: list[dict[str, Any]] = []
    for target in targets:
        try:
            due += sessions.undoable(
                target, session=wish.session, run=wish.run_id, declined=wish.decline
            )
        except (LockstitchError, OSError) as error:
            refused.append(_report_failure(target, wish.session, error))
    for backup in due:
        try:
            sessions.require_undoable(backup, force=wish.force)
        except (LockstitchError, OSError) as error:
            refused.append(_report_failure(backup.path, sessions.session_of(backup), error))
    return due, refused


def _report_failure(target: str, session: str | None, error: Exception) -> dict[str, Any]:
    shown = render.target_name(
        target if session is None else render.SessionName(f"{places.public(target)}:{session}")
    )
    terminal.complain(f"{shown}: {error}")
    name = places.public(target)
    return {"target": name, "session": session, "restored": None, "error": str(error)}


def _restore(due: list[Backup], *, force: bool) -> list[dict[str, Any]]:
    """Restore all of these, and say what became of each file and each database."""
    as_run = backups.new_run()
    done: list[dict[str, Any]] = []
    restored: dict[str, list[Backup]] = {}
    for backup in due:
        own = sessions.session_of(backup)
        try:
            sessions.undo(backup, force=force, as_run=as_run)
        except (LockstitchError, OSError) as error:
            done.append(_report_failure(backup.path, own, error))
            continue
        restored.setdefault(backup.path, []).append(backup)
        facts = {"target": backup.path, "session": own}
        done.append({**facts, "restored": backup.stem, "error": None})
    for path, found in restored.items():
        when = f"{found[-1].time:%Y-%m-%d %H:%M:%S}"
        if len(found) > 1:
            terminal.note(
                f"{render.target_name(path)}: {len(found)} sessions as they were before {when}."
            )
        else:
            terminal.note(f"{_name(found[0])}: as it was before {when}.")
    return done


def _list(targets: list[str], session: str | None, run_id: str | None, *, as_json: bool) -> int:
    wish = UndoRequest(session, run_id)
    found = [
        backup
        for target in targets
        for backup in sessions.backups_of(
            target, session=session, run=run_id, declined=wish.decline
        )
    ]
    status = FAILED if wish.declined else CLEAN
    if as_json:
        terminal.emit(render.encode_json(backups=[backup_fields(backup) for backup in found]))
        return status
    for backup in found:
        count = backup.manifest.before_size
        when = f"{backup.time:%Y-%m-%d %H:%M:%S}"
        kind = "undo" if backups.is_undo(backup) else "repair"
        row = f"{when}  {backup.run}  {kind:<6}  {backup.status:<10}  {count:>10}"
        own = sessions.session_of(backup)
        more = "" if own is None else f"  {own}"
        terminal.say(f"{row}  {render.target_name(str(backup.record))}{render.target_name(more)}")
    if not found:
        terminal.note("No backups.")
    return status


COMMAND = Command(
    name="undo",
    group="sessions",
    run=run,
    summary="Take the last repair of a session back, byte for byte.",
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
