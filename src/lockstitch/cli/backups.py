"""``lockstitch backups``: what repairs have kept, looked at, written out, and pruned."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from lockstitch.cli import render, terminal
from lockstitch.cli.options import JSON, OVERWRITE, Command, Operand, Option, read_age, read_number
from lockstitch.cli.targets import write_copy
from lockstitch.cli.terminal import CLEAN, FAILED, FINDINGS, wrap_rows
from lockstitch.conversation.json_text import dump
from lockstitch.errors import LockstitchError, UsageError
from lockstitch.files import backup as backups
from lockstitch.sources import operations
from lockstitch.sources.listing import ago
from lockstitch.sources.source import pasted
from lockstitch.sources.targets import searched_folders
from lockstitch.transcript import several, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lockstitch.files.backup import Backup

# Of what is in a quarantine, so many rows of each piece are shown.
_MOST_ROWS = 12


def run(  # noqa: PLR0913 - one keyword an option
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
            "--show shows one backup; --older-than and --keep delete: give one of them"
        )
    if output is not None and shown is None:
        raise UsageError("-o writes one backup to a file: name it with --show ID")
    declined: list[str] = []
    found = _find_backups(targets, declined)
    if shown is not None:
        return _show(_find_backup(found, shown), output, force=force, full=full, as_json=as_json)
    if is_pruned:
        due = select_prunable(found, time.time(), older_than, keep)
        status = _prune(due, yes=yes, as_json=as_json)
    else:
        status = _list(found, as_json=as_json)
    return FAILED if declined else status


def _find_backups(targets: list[str], declined: list[str]) -> list[Backup]:
    """Return the backups of what was named, or of all sessions of this machine, newest first."""

    def decline(place: str, error: Exception) -> None:
        declined.append(place)
        reason = error.strerror if isinstance(error, OSError) else error
        terminal.complain(f"{render.target_name(place)}: {reason}")

    kept: dict[str, Backup] = {}
    # without a target, those of the programs' folders that are there
    folders = [place for place in searched_folders() if os.path.isdir(place)]  # noqa: PTH112
    for target in targets or folders:
        for backup in operations.backups_of(target, declined=decline):
            kept[str(backup.record)] = backup
    return sorted(kept.values(), key=lambda one: one.time, reverse=True)


def backup_id(backup: Backup) -> str:
    """Return the word that names a backup: the last of its file's name."""
    return backup.stem.rpartition("-")[2]


def backup_fields(backup: Backup) -> dict[str, Any]:
    """Return a backup as programs read it."""
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


# Listing


def _list(found: Sequence[Backup], *, as_json: bool) -> int:
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
    terminal.note(f"{counts}. They hold all that the sessions held, secrets too.")
    terminal.note(f"To look at one: lockstitch backups --show {backup_id(found[0])}")
    terminal.note("To delete old ones: lockstitch backups --older-than 30d")
    return CLEAN


def listing_lines(found: Sequence[Backup], now: float) -> Iterator[str]:
    """Yield backups by the file that they are of, the one that was repaired last first."""
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
    """Return the backup that a beginning of its id names."""
    fitting = [backup for backup in found if backup_id(backup).startswith(name)]
    if len(fitting) != 1:
        many = f"{len(fitting)} backups have" if fitting else "no backup has"
        raise UsageError(
            f"{many} an id that begins with {name}: `lockstitch backups` lists them all"
        )
    return fitting[0]


# Showing one


def _show(backup: Backup, output: str | None, *, force: bool, full: bool, as_json: bool) -> int:
    if output is not None:
        if backup.rows is not None:
            raise UsageError(
                f"{pasted(str(backup.record))} holds rows of a database, not a file; "
                "`lockstitch undo` puts them back"
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
    more = "" if own is None else f" --session {own}"
    if backup.status != "undone":
        terminal.note(f"To go back to it: lockstitch undo {pasted(backup.path)}{more}")
    if backup.rows is None:
        terminal.note(
            f"To write it to a file: lockstitch backups --show {backup_id(backup)} -o FILE"
        )
    return CLEAN


def describe_backup(backup: Backup, now: float, width: int, *, full: bool = False) -> Iterator[str]:
    """Return what is known of a backup: when, of what, what was changed, and what is set aside."""
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


# Pruning


def select_prunable(
    found: Sequence[Backup], now: float, older_than: float | None, keep: int | None
) -> list[Backup]:
    """Return the backups that may go: the older ones, all but the newest of each session.

    Never one of a repair that was cut short: it may hold the only whole copy.
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


def _prune(due: list[Backup], *, yes: bool, as_json: bool) -> int:
    """Print which backups would go, ask, and delete them."""
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


COMMAND = Command(
    name="backups",
    run=run,
    details=(
        "Every repair keeps what it replaces in a folder .lockstitch beside the session, and what "
        "could not stay in a quarantine with it. Lists those of all sessions of this machine, or "
        "of the sessions, files and folders that are named. --show ID shows one: when it was made, "
        "what the repair changed, and what is in its quarantine; with -o it is written to a file. "
        "--older-than and --keep delete, after a question, what is older and all but the newest of "
        "each session; what is deleted can no longer be undone. A backup of a repair that was cut "
        "short is never deleted. Backups of another user are not touched."
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
        Option("shown", ("--show",), "Show one backup and its quarantine.", metavar="ID"),
        Option("output", ("--output", "-o"), "Write the backup to this file.", metavar="FILE"),
        OVERWRITE,
        Option(
            "older_than",
            ("--older-than",),
            "Delete backups older than this: 30d, 12h, 6w.",
            metavar="AGE",
            read=read_age,
        ),
        Option(
            "keep",
            ("--keep",),
            "Delete all but the newest N of each session.",
            metavar="N",
            read=read_number("a whole number"),
        ),
        Option("full", ("--full",), "Do not shorten what is in the quarantine."),
        Option("yes", ("--yes", "-y"), "Delete without asking."),
        JSON,
    ),
)
