"""Taking repairs back: those of files as a whole, those of one session or all in a database."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from lockstitch import backups, manifests, places
from lockstitch.backups import Declined, Undone
from lockstitch.errors import LockstitchError, UsageError
from lockstitch.files import snapshot
from lockstitch.formats import running
from lockstitch.formats.base import SQLITE
from lockstitch.formats.sources import Source, opened
from lockstitch.manifests import Backup
from lockstitch.sessions.finding import psycopg_hint, sources

_NONE = "has no backup to go back to"
_URL = "sqlite:///"


def backups_of(
    target: str,
    *,
    session: str | None = None,
    run: str | None = None,
    declined: Declined | None = None,
) -> list[Backup]:
    """Return the backups of a file or a database, or of all below a folder, newest first.

    A target may be the id of a session, too; of a database, its backups are those of that session.
    What is below a folder and cannot be looked at is told to ``declined``, or else raised.
    """
    path, own = _place(target, session)
    if os.path.isdir(path):  # noqa: PTH112 - pathlib costs start-up time
        found = [one for group in backups.runs(path, declined) for one in group.backups]
    else:
        found = backups.listed(path)
    return [
        one for one in found if run in (None, one.run) and (own is None or session_of(one) == own)
    ]


def session_of(backup: Backup) -> str | None:
    """Return the session of a database that a backup is of; None for one of a file."""
    if backup.rows is None:
        return None
    from lockstitch.formats import row_undo  # noqa: PLC0415 - sqlite3 is loaded for databases only

    return row_undo.session_of(backup)


def _place(target: str, session: str | None) -> tuple[str, str | None]:
    """Return the path that a target means, and the session if it means only that."""
    path = target.removeprefix(_URL) if target.startswith(_URL) else target
    if os.path.lexists(path) or os.sep in path or backups.listed(path):
        is_bare = os.path.islink(path) and not backups.listed(path)  # noqa: PTH114 - as above
        return (os.path.realpath(path) if is_bare else path), session
    [source] = sources(path)
    if source.kind != SQLITE:
        return source.path, session
    if session not in (None, source.session):
        raise UsageError("is the id of a session already; --session is for one in a database")
    return source.path, source.session


def undoable(
    target: str,
    *,
    session: str | None = None,
    run: str | None = None,
    declined: Declined | None = None,
) -> list[Backup]:
    """Return the backups that an undo of a target would restore, newest first.

    That is the last repair of a file or of one session in a database, the last one that touched
    a database or anything below a folder, or whatever of a run was not taken back yet.
    """
    found = backups_of(target, session=session, run=run, declined=declined)
    if session is not None and found == [] and _is_file(target):
        raise UsageError(f"{_NONE} of a session {session}; --session is for one in a database")
    due = [one for one in found if one.status != "undone" and not _is_void(one)]
    if run is None:
        due = [one for one in due if not backups.is_undo(one)]
        due = [one for one in due if one.run == due[0].run]
    if not due:
        raise UsageError(_why_not(found, run))
    # A session that one run has repaired twice goes back step by step.
    last = {(one.path, session_of(one)): one for one in reversed(due)}
    return [one for one in due if one in last.values()]


def _is_file(target: str) -> bool:
    return os.path.isfile(target.removeprefix(_URL))  # noqa: PTH113 - pathlib costs start-up time


def _why_not(found: Sequence[Backup], run: str | None) -> str:
    if run is None:
        is_undone = any(one.status == "undone" for one in found)
        return f"{_NONE}{': its repairs were all taken back' * is_undone}"
    return f"has nothing of run {run} to take back" + ("; it was already" if found else "")


def _is_void(backup: Backup) -> bool:
    """Whether a repair was cut short before it changed anything."""
    if backup.status != "unfinished":
        return False
    with suppress(LockstitchError, OSError):
        if backup.rows is None:
            return snapshot(backup.path).data == manifests.saved(backup)
        from lockstitch.formats import row_undo  # noqa: PLC0415 - as above

        return row_undo.is_undone(backup)
    return False


def require_undoable(backup: Backup, *, force: bool = False) -> None:
    """Raise what an undo with a backup would raise; changes nothing."""
    backups.ready(backup.path, stem=backup.stem, force=force)
    if backup.rows is None:
        _require_closed(backup.path)
    else:
        _restore(backup, rehearse=True)


def undo(backup: Backup, *, force: bool = False, as_run: str | None = None) -> Undone:
    """Take one repair back: a file byte for byte, the rows of a session in a database one by one.

    Raises Conflict if the session is no longer what the repair left, unless ``force`` says to keep
    that as one more backup, and Busy while a program has it open.
    """
    if backup.rows is None:
        _require_closed(backup.path)
    return backups.undo(backup.path, stem=backup.stem, force=force, restore=_restore, as_run=as_run)


def undo_threads(
    url: str, session: str | None = None, run: str | None = None
) -> Iterator[tuple[str, Any]]:
    """Take repairs of LangGraph's threads in a PostgreSQL back: of a run, or of one thread.

    Gives the name of each schema with what became of a thread there. Raises ``UsageError`` if
    there is nothing to take back.
    """
    with psycopg_hint():
        from lockstitch.formats.langgraph.postgres import repairs, work  # noqa: PLC0415 - as above
        from lockstitch.formats.langgraph.postgres.database import Database  # noqa: PLC0415

    done: list[UsageError] = []
    count = 0
    for task in work.schema_tasks(url, places.public):
        try:
            with Database(task.url, task.home.schema) as database:
                for one in repairs.undo_repairs(database, task.home, session=session, run=run):
                    count += 1
                    yield task.name, one
        except UsageError as error:
            done.append(error)
    if not count:
        raise UsageError(f"{places.public(url)}: {done[0]}")


def _restore(backup: Backup, *, rehearse: bool = False) -> None:
    from lockstitch.formats import row_undo  # noqa: PLC0415 - as above

    row_undo.restore(backup, rehearse=rehearse)


def _require_closed(path: str) -> None:
    """Raise Busy if a program has a session's file open, as far as it can be asked."""
    source: Source | None = None
    with suppress(LockstitchError, OSError):
        [source] = sources(path)
    if source is None:
        return
    session = project = None
    with suppress(LockstitchError, OSError, RecursionError):
        known = opened(source).transcript
        session, project = known.session, known.project
    form = source.form
    running.require_closed(form.title, form.users(path, session, project))
