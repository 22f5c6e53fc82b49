"""``lockstitch undo`` and ``backups``: undo the last repair, and manage what repairs have kept."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from lockstitch.cli import migrate, render, terminal
from lockstitch.cli.options import (
    JSON,
    OVERWRITE,
    SESSION,
    Command,
    Operand,
    option,
    read_age,
    read_number,
)
from lockstitch.cli.targets import naming_target, write_copy
from lockstitch.cli.terminal import CLEAN, FAILED, FINDINGS, wrap_rows
from lockstitch.conversation.json_text import dump
from lockstitch.errors import LockstitchError, UnknownFormat, UsageError, reason_of
from lockstitch.files import backup as backups
from lockstitch.rules.rule import several
from lockstitch.sources import operations
from lockstitch.sources.listing import ago
from lockstitch.sources.own_stores import is_postgres
from lockstitch.sources.source import pasted
from lockstitch.sources.targets import STORE, classify, searched_folders
from lockstitch.stores.addresses import public
from lockstitch.transcript import size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lockstitch.files.backup import Backup


class UndoRequest(Struct):
    """What to undo; ``declined`` are the places that could not be read."""

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
        _decline(self.declined, place, error)


def _decline(declined: list[str], place: str, error: Exception) -> None:
    declined.append(place)
    reason = error.strerror if isinstance(error, OSError) else error
    terminal.complain(f"{render.target_name(place)}: {reason}")


def run_undo(request: UndoRequest) -> int:
    """Undo the last repair of every target, or list the backups, and return the exit status."""
    targets, session, run_id = request.targets, request.session, request.run_id
    if not targets:
        raise UsageError("nothing to undo: name a file or a folder that was repaired")
    if run_id is not None and run_id.startswith(migrate.MIGRATION) and not request.listing:
        if len(targets) > 1:
            raise UsageError("a migration is undone in one store: name one target")
        return migrate.undo(targets[0], session, run_id, as_json=request.as_json)
    if any(map(_is_repaired_store, targets)) and not request.listing:
        if len(targets) > 1:
            raise UsageError("a Lockstitch store is undone by itself: name one target")
        return _undo_store(request)
    if any(map(is_postgres, targets)):
        if request.force or len(targets) > 1:
            raise UsageError("a database is undone by itself, and never with --force")
        with naming_target(targets[0]):
            if request.listing:
                return _list_threads(request)
            try:
                return _undo_threads(request)
            except UnknownFormat:
                if classify(targets[0]) != STORE:
                    raise
        return _undo_store(request)
    if request.listing:
        return _list_kept(request)
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


# Lockstitch stores.


def _is_repaired_store(target: str) -> bool:
    """Whether a target is a Lockstitch store in which to undo a repair.

    A PostgreSQL database may hold LangGraph's checkpoints as well, and their repairs.
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
        f"{render.target_name(public(target))}:{done.session}: as it was before its repair; its "
        f"later state is kept as {done.aside}."
    )
    if request.as_json:
        fields = {"target": public(target), "session": done.session, "restored": done.session}
        terminal.emit(render.encode_json(sessions=[{**fields, "aside": done.aside, "error": None}]))
    return CLEAN


# LangGraph's threads in a PostgreSQL database.


def _list_threads(request: UndoRequest) -> int:
    """List the runs that repaired something in a database, newest first."""
    rows: list[dict[str, Any]] = []
    try:
        runs = list(operations.past_runs(request.targets[0]))
    except UnknownFormat:
        if classify(request.targets[0]) != STORE:
            raise
        runs = []
    for name, one in runs:
        status = "undone" if one.undone == one.repairs else "done"
        facts = {"target": name, "run": one.run, "time": one.made.isoformat(), "status": status}
        rows.append({**facts, "repairs": one.repairs, "undone": one.undone})
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
    terminal.note(f"Undid {several(done, 'repair')}.")
    return FAILED if failed else CLEAN


# Files and databases of other programs.


def _find_due(request: UndoRequest) -> tuple[list[Backup], list[dict[str, Any]]]:
    """Return what to restore, and the obstacles; any obstacle stops all of it."""
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
    reason = reason_of(error) if isinstance(error, OSError) else str(error)
    terminal.complain(f"{render.target_name(label)}: {reason}")
    facts = {"target": public(target), "session": session}
    return {**facts, "restored": None, "error": reason}


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
                what = f"is gone; {before} will be restored"
            else:
                changed = datetime.fromtimestamp(found.st_mtime, UTC)
                now = f"{size(found.st_size)}, last changed {changed:%Y-%m-%d %H:%M:%S} UTC"
                what = f"{now}; {before} will replace it"
        terminal.note(f"{_backup_name(backup)}: {what}")
    return terminal.confirm("Undo this?", "--yes undoes it without asking")


def _backup_name(backup: Backup) -> str:
    own = operations.session_of(backup)
    return render.target_name(backup.path if own is None else f"{backup.path}:{own}")


def _outcome(backup: Backup, restored: str | None = None) -> dict[str, Any]:
    facts = {"target": backup.path, "session": operations.session_of(backup)}
    return {**facts, "restored": restored, "error": None}


def _restore(due: list[Backup], *, force: bool) -> list[dict[str, Any]]:
    """Restore all of these; return the outcome for each file and each database."""
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
            terminal.note(f"{_backup_name(found[0])}: as it was before {when}.")
    return done


def _list_kept(request: UndoRequest) -> int:
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
        count = backup.manifest.before_size if backup.rows is None else backup_size(backup)
        row = f"{when}  {backup.run}  {kind:<6}  {backup.status:<10}  {count:>10}"
        own = operations.session_of(backup)
        more = "" if own is None else f"  {own}"
        record = render.target_name(str(backup.record))
        terminal.say(f"{row}  {record}{render.target_name(more)}")
    if not found:
        terminal.note("No backups.")
    return status


UNDO = Command(
    name="undo",
    run=run_undo,
    bundle=UndoRequest,
    details=(
        "Shows what will replace what, with sizes and dates, and asks first; --yes skips the "
        "question. For a folder: the last repair that touched files in it, all of them. For a "
        "database: everything that its last repair touched, or the last repair of one session "
        "(--session, or its id). Refuses if a file has changed since the repair, because its "
        "program has continued; --force restores it anyway and keeps the present state as "
        "another backup. Also refuses while a program has the session open. Backups in a folder "
        ".lockstitch that belongs to another user, or that others may write to, are not "
        "trusted. The undo of a file can itself be undone: --list names its run, and --run "
        "undoes it. In a PostgreSQL database with LangGraph's checkpoints, exactly the rows "
        "that a repair added are deleted: those of its last run, of --run NAME, or of one "
        "thread (--session). A thread that has continued since its repair is left alone and "
        "reported. In a Lockstitch store, the damaged session gets its name back, and the "
        "repaired one, with everything added since, is kept. With the --run that `migrate` "
        "printed, the threads it copied are deleted, except those used since."
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
        option("--list -l", "List the backups and change nothing.", name="listing"),
        option("--run ID", "Undo this run, as named by --list or by migrate.", name="run_id"),
        option("--force", "Restore even if the session has continued since."),
        option("--yes -y", "Undo without asking."),
        SESSION,
        JSON,
    ),
)


# How many rows of each quarantined value are shown.
_MOST_ROWS = 12


def run_backups(  # noqa: PLR0913 - one keyword an option
    *,
    targets: list[str],
    shown: str | None,
    output: str | None,
    force: bool,
    older_than: float | None,
    keep: int | None,
    full: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """List, show or prune backups, and return the exit status."""
    is_pruned = older_than is not None or keep is not None
    if shown is not None and is_pruned:
        raise UsageError(
            "--show shows one backup; --older-than and --keep delete: use one or the other"
        )
    if output is not None and shown is None:
        raise UsageError("-o writes one backup to a file: name it with --show ID")
    declined: list[str] = []
    found = _find_backups(targets, declined)
    if shown is not None:
        return _show_backup(
            _find_backup(found, shown), output, force=force, full=full, as_json=as_json
        )
    if is_pruned:
        due = select_prunable(found, time.time(), older_than, keep)
        status = _prune_backups(due, yes=yes, as_json=as_json)
    else:
        status = _list_all(found, targets, as_json=as_json)
    return FAILED if declined else status


def _find_backups(targets: list[str], declined: list[str]) -> list[Backup]:
    """Return the backups of the named targets, or of all sessions of this machine, newest first."""
    kept: dict[str, Backup] = {}
    # without a target, those in the programs' existing folders
    folders = [place for place in searched_folders() if os.path.isdir(place)]  # noqa: PTH112
    for target in targets or folders:
        for backup in operations.backups_of(target, declined=partial(_decline, declined)):
            kept[str(backup.record)] = backup
    return sorted(kept.values(), key=lambda one: one.time, reverse=True)


def backup_id(backup: Backup) -> str:
    """Return the word that names a backup: the last part of its file's name."""
    return backup.stem.rpartition("-")[2]


def backup_fields(backup: Backup) -> dict[str, Any]:
    """Return the fields of a backup for programs."""
    return {
        "target": backup.path,
        "session": operations.session_of(backup),
        "backup": str(backup.record),
        "id": backup_id(backup),
        "time": backup.time.isoformat(),
        "status": backup.status,
        "kind": "undo" if backups.is_undo(backup) else "repair",
        "run": backup.run,
        "size": backup_size(backup),
        "codes": backup.manifest.details.get("codes", []),
        "quarantine": len(_quarantine(backup)),
    }


def backup_size(backup: Backup) -> int:
    """Return how many bytes a backup takes on the disk."""
    count = 0
    for file in {backup.file, backup.file.with_suffix(".json")}:
        try:
            count += file.lstat().st_size
        except OSError:
            continue
    return count


def _quarantine(backup: Backup) -> list[dict[str, Any]]:
    found = backup.manifest.details.get("quarantine")
    return [one for one in found if type(one) is dict] if type(found) is list else []


# Listing.


def _list_all(found: Sequence[Backup], targets: Sequence[str], *, as_json: bool) -> int:
    if as_json:
        terminal.emit(render.encode_json(backups=[backup_fields(backup) for backup in found]))
        return CLEAN
    for line in listing_lines(found, time.time()):
        terminal.say(line)
    if not found:
        terminal.note("No backups were found.")
        return CLEAN
    files = len({backup.path for backup in found})
    total = size(sum(map(backup_size, found)))
    counts = f"{several(len(found), 'backup')} of {several(files, 'file')}, {total}"
    terminal.note(f"{counts}. They hold everything that the sessions held, including secrets.")
    command = " ".join(["lockstitch backups", *map(pasted, targets)])
    terminal.note(f"To look at one: {command} --show {backup_id(found[0])}")
    terminal.note(f"To delete old ones: {command} --older-than 30d")
    return CLEAN


def listing_lines(found: Sequence[Backup], now: float) -> Iterator[str]:
    """Yield backups grouped by file, the last repaired first."""
    groups: dict[str, list[Backup]] = {}
    for backup in found:
        groups.setdefault(backup.path, []).append(backup)
    for path, group in groups.items():
        yield terminal.paint(pasted(path), "bold")
        for backup in group:
            kind = "undo" if backups.is_undo(backup) else "repair"
            facts = [kind, *([backup.status] if backup.status != "done" else [])]
            facts += [size(backup_size(backup))]
            own = operations.session_of(backup)
            facts += [terminal.escape_controls(own)] if own else []
            aside = len(_quarantine(backup))
            facts += [f"{several(aside, 'piece')} in quarantine"] if aside else []
            age = ago(now - backup.time.timestamp())
            yield f"  {backup_id(backup)}  {age}: {', '.join(facts)}"


def _find_backup(found: Sequence[Backup], name: str) -> Backup:
    """Return the backup whose id begins with ``name``."""
    fitting = [backup for backup in found if backup_id(backup).startswith(name)]
    if len(fitting) != 1:
        many = f"{len(fitting)} backups have" if fitting else "no backup has"
        raise UsageError(
            f"{many} an id that begins with {name}: `lockstitch backups` lists them all"
        )
    return fitting[0]


# Showing one.


def _show_backup(
    backup: Backup, output: str | None, *, force: bool, full: bool, as_json: bool
) -> int:
    if output is not None:
        if backup.rows is not None:
            raise UsageError(
                f"{pasted(str(backup.record))} holds rows of a database, not a file; `lockstitch "
                "undo` puts them back"
            )
        write_copy(output, backups.read_original(backup), backup.path, force=force)
        terminal.note(f"Wrote {render.target_name(output)}.")
        return CLEAN
    if as_json:
        details = backup.manifest.details
        changes, aside = details.get("changes", []), _quarantine(backup)
        terminal.emit(
            render.encode_json(**{**backup_fields(backup), "changes": changes, "quarantine": aside})
        )
        return CLEAN
    for line in describe_backup(backup, time.time(), terminal.width(), full=full):
        terminal.say(line)
    own = operations.session_of(backup)
    more = "" if own is None else f" --session {pasted(own)}"
    # what an undo has kept is found only by its run
    more += f" --run {backup.run}" if backups.is_undo(backup) else ""
    where = pasted(backup.path)
    if backup.status != "undone":
        terminal.note(f"To go back to it: lockstitch undo {where}{more}")
    if backup.rows is None:
        show = f"lockstitch backups {where} --show {backup_id(backup)} -o FILE"
        terminal.note(f"To write it to a file: {show}")
    return CLEAN


def describe_backup(backup: Backup, now: float, width: int, *, full: bool = False) -> Iterator[str]:
    """Yield what is known about a backup: when, of what, what changed, and what was removed."""
    yield terminal.paint(pasted(backup.path), "bold")
    kind = "an undo" if backups.is_undo(backup) else "a repair"
    age = ago(now - backup.time.timestamp())
    yield f"kept by {kind}, {age} ({backup.time:%Y-%m-%d %H:%M:%S} UTC), {backup.status}"
    yield f"{size(backup_size(backup))} in {pasted(str(backup.record))}"
    changes = backup.manifest.details.get("changes")
    for made in changes if type(changes) is list else ():
        if type(made) is dict:
            words = (
                f"{made.get('place')}: {made.get('code')} {made.get('action')}: {made.get('note')}"
            )
            yield f"  {terminal.escape_controls(words)}"
    for kept in _quarantine(backup):
        yield terminal.paint(
            terminal.escape_controls(f"quarantined from {kept.get('place')} ({kept.get('code')}):"),
            "yellow",
        )
        value = kept.get("value")
        words = value if type(value) is str else dump(value)
        for row in wrap_rows(words, max(width - 4, 20), None if full else _MOST_ROWS):
            yield f"    {row}"


# Pruning.


def select_prunable(
    found: Sequence[Backup], now: float, older_than: float | None, keep: int | None
) -> list[Backup]:
    """Return the backups that may be deleted: older ones, or all but the newest of each session.

    A backup of a repair that was interrupted is never among them: it may hold the only whole copy.
    """
    counts: dict[tuple[str, str | None], int] = {}
    due: list[Backup] = []
    for backup in sorted(found, key=lambda one: one.time, reverse=True):
        own = (backup.path, operations.session_of(backup))
        counts[own] = counts.get(own, 0) + 1
        is_old = older_than is None or now - backup.time.timestamp() > older_than
        is_spare = keep is None or counts[own] > keep
        if is_old and is_spare and backup.status != "unfinished":
            due.append(backup)
    return due


def _prune_backups(due: list[Backup], *, yes: bool, as_json: bool) -> int:
    """Print which backups would be deleted, ask, and delete them."""
    gone: list[Backup] = []
    failed = 0
    fields = [backup_fields(backup) for backup in due]
    if due and not as_json:
        for line in listing_lines(due, time.time()):
            terminal.say(line)
    total = size(sum(one["size"] for one in fields))
    question = f"Delete {several(len(due), 'backup')} ({total}) for good?"
    is_wanted = bool(due) and (yes or terminal.confirm(question, "--yes deletes without asking"))
    for backup in due if is_wanted else ():
        try:
            backups.delete_backup(backup)
            gone.append(backup)
        except (LockstitchError, OSError) as error:
            failed += 1
            terminal.complain(f"{render.target_name(str(backup.record))}: {error}")
    if as_json:
        names = {backup.stem for backup in gone}
        for backup, one in zip(due, fields, strict=True):
            one["deleted"] = backup.stem in names
        terminal.emit(render.encode_json(backups=fields))
    if gone:
        terminal.note(f"Deleted {several(len(gone), 'backup')}.")
    elif not due:
        terminal.note("No backup is that old. Nothing was changed.")
    if failed:
        return FAILED
    return CLEAN if is_wanted or not due else FINDINGS


BACKUPS = Command(
    name="backups",
    run=run_backups,
    details=(
        "Every repair keeps what it replaces in a folder .lockstitch beside the session, along "
        "with a quarantine of what had to be removed. Lists the backups of all sessions on this "
        "machine, or of the sessions, files and folders that you name. --show ID shows one: "
        "when it was made, what the repair changed, and what is in its quarantine; with -o it "
        "is written to a file. --older-than and --keep delete backups that are older, or all "
        "but the newest of each session, after asking; what is deleted can no longer be undone. "
        "The backup of a repair that was interrupted is never deleted. Other users' backups are "
        "not touched."
    ),
    examples=(
        "lockstitch backups",
        "lockstitch backups ~/.claude/projects",
        "lockstitch backups --show 5762332d57dd",
        "lockstitch backups --show 5762332d57dd -o before.jsonl",
        "lockstitch backups --older-than 30d --keep 1",
    ),
    operand=Operand("targets", "TARGET", "Files, folders or session ids.", many=True),
    options=(
        option("--show ID", "Show one backup and its quarantine.", name="shown"),
        option("--output -o FILE", "Write the backup to this file."),
        OVERWRITE,
        option("--older-than AGE", "Delete backups older than this: 30d, 12h, 6w.", read=read_age),
        option(
            "--keep N",
            "Delete all but the newest N of each session.",
            read=read_number("a whole number"),
        ),
        option("--full", "Show the quarantine in full."),
        option("--yes -y", "Delete without asking."),
        JSON,
    ),
)
