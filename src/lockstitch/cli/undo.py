"""``lockstitch undo``: the last repair taken back, byte for byte."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from lockstitch import backups, places
from lockstitch.cli import CLEAN, FAILED, databases, terminal, text
from lockstitch.cli.arguments import JSON, SESSION, Command, Operand, Option
from lockstitch.cli.rows import several
from lockstitch.cli.targets import told
from lockstitch.errors import LockstitchError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch.manifests import Backup


def run(  # noqa: PLR0913 - one keyword an option
    *,
    targets: list[str],
    listing: bool,
    run_id: str | None,
    force: bool,
    session: str | None,
    yes: bool,  # noqa: ARG001 - as other commands take it; an undo asks nothing
    as_json: bool,
) -> int:
    """Undo the last repair of every target, or list the backups, and return the exit status."""
    if not targets:
        raise UsageError("nothing to undo: give a file or a folder that was repaired")
    if any(places.is_postgres(target) for target in targets):
        if force or len(targets) > 1:
            raise UsageError("a database is taken back alone, and never by force")
        with told(targets[0]):
            return _database(targets[0], session, run_id, listing=listing, as_json=as_json)
    if session is not None:
        raise UsageError("--session is for threads in a PostgreSQL")
    paths = [path for target in targets for path in _paths(target, run_id)]
    if listing:
        return _list(paths, as_json)
    paths = [(path, run_id or found) for path, found in paths]
    as_run = backups.new_run()
    said: set[str] = set()
    done = _refused(paths, force) or [_undone(*path, as_run, said, force=force) for path in paths]
    if as_json:
        from lockstitch.cli import machine

        terminal.emit(machine.encode(sessions=done))
    return FAILED if any(one["error"] for one in done) else CLEAN


def _database(
    target: str, session: str | None, run_id: str | None, *, listing: bool, as_json: bool
) -> int:
    """Undo the repairs of threads in a database, or list them, and return the exit status."""
    from lockstitch.cli import machine

    if listing:
        found = databases.past(target)
        if as_json:
            terminal.emit(machine.encode(backups=found))
        for one in found if not as_json else ():
            counts = f"{one['repairs']:>10} repaired  {one['undone']:>10} undone"
            terminal.say(f"{one['time'][:19]}  {one['run']}  {counts}  {text.shown(one['target'])}")
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

    for piece in machine.joined(each()):
        if as_json:
            terminal.emit(piece)
    terminal.note(f"Took {several(done, 'repair')} back.")
    return FAILED if failed else CLEAN


def _paths(target: str, run_id: str | None) -> Iterator[tuple[str, str | None]]:
    """The files that one target means: itself, or those of the newest repair below a folder.

    A database stands there once for every session of it that the repair has mended.
    """
    if not os.path.isdir(target):  # noqa: PTH112 - pathlib costs start-up time
        path = _resolved(target)
        due = [one for one in backups.listed(path) if one.status != "undone" and not _is_undo(one)]
        wanted = run_id or (due[0].run if due else None)
        rows = [one for one in due if one.rows is not None and one.run == wanted]
        if not rows:
            yield path, None
        yield from ((path, one.run) for one in rows)
        return
    for found in backups.runs(target):
        due = [one for one in found.backups if one.status != "undone" and not _is_undo(one)]
        if due:
            yield from ((one.path, found.id) for one in due)
            return
    raise UsageError(f"{target}: holds no backup to go back to")


def _is_undo(backup: Backup) -> bool:
    return backup.manifest.of is not None


def _resolved(target: str) -> str:
    """A path, or the file of the session that an id names."""
    if os.path.lexists(target) or os.sep in target:
        return target
    from lockstitch.cli.targets import one

    return one(target, None, None).path


def _refused(paths: list[tuple[str, str | None]], force: bool) -> list[dict[str, Any]]:
    """What stands against undoing all of these; nothing is undone if anything does."""
    refused: list[dict[str, Any]] = []
    for path, run_id in paths:
        try:
            backups.ready(path, run=run_id, force=force)
        except (LockstitchError, OSError) as error:
            terminal.complain(f"{text.shown(path)}: {error}")
            refused.append({"target": path, "restored": None, "error": str(error)})
    return refused


def _undone(
    path: str, run_id: str | None, as_run: str, said: set[str], *, force: bool
) -> dict[str, Any]:
    try:
        undone = backups.undo(path, run=run_id, force=force, restore=_restore, as_run=as_run)
    except (LockstitchError, OSError) as error:
        terminal.complain(f"{text.shown(path)}: {error}")
        return {"target": path, "restored": None, "error": str(error)}
    line = f"{text.shown(path)}: as it was before {undone.restored.time:%Y-%m-%d %H:%M:%S}."
    # A database stands here once for every session in it.
    if undone.restored.rows is None or path not in said:
        terminal.note(line)
    said.add(path)
    return {"target": path, "restored": undone.restored.stem, "error": None}


def _restore(backup: Backup) -> None:
    from lockstitch.formats import rows

    rows.restore(backup)


def _list(paths: list[tuple[str, str | None]], as_json: bool) -> int:
    found = [backup for path, _ in paths for backup in backups.listed(path)]
    if as_json:
        from lockstitch.cli import machine

        terminal.emit(machine.encode(backups=[_fields(backup) for backup in found]))
        return CLEAN
    for backup in found:
        size = backup.manifest.before_size
        when = f"{backup.time:%Y-%m-%d %H:%M:%S}"
        row = f"{when}  {backup.run}  {backup.status:<10}  {size:>10}"
        terminal.say(f"{row}  {text.shown(str(backup.file))}")
    if not found:
        terminal.note("No backups.")
    return CLEAN


def _fields(backup: Backup) -> dict[str, Any]:
    return {
        "target": backup.path,
        "backup": str(backup.file),
        "time": backup.time.isoformat(),
        "status": backup.status,
        "run": backup.run,
        "codes": backup.manifest.details.get("codes", []),
    }


COMMAND = Command(
    name="undo",
    run=run,
    summary="Take the last repair of a session back, byte for byte.",
    details=(
        "For a folder: the last repair that touched files in it, all of them. Refuses if a file is "
        "no longer what the repair left, because its program has gone on; --force restores it "
        "anyway and keeps the present state as another backup. An undo can itself be undone: "
        "--list names its run, and --run takes it back. In a PostgreSQL with LangGraph's "
        "checkpoints, exactly the rows that a repair added are deleted: those of its last run, of "
        "--run NAME, or of one thread (--session). A thread that has gone on from its repair is "
        "left alone, and said."
    ),
    examples=(
        "lockstitch undo session.jsonl",
        "lockstitch undo ~/.claude/projects",
        "lockstitch undo --list session.jsonl",
        "lockstitch undo postgresql://localhost/agents --session ticket-42",
    ),
    operand=Operand("targets", "TARGET", "Files, folders or session ids.", many=True),
    options=(
        Option("listing", ("--list", "-l"), "List the backups and change nothing."),
        Option("run_id", ("--run",), "Undo this run of --list, such as an undo.", metavar="ID"),
        Option("force", ("--force",), "Restore even if the session has gone on since."),
        Option("yes", ("--yes", "-y"), "Taken as by other commands; nothing is asked here."),
        SESSION,
        JSON,
    ),
)
