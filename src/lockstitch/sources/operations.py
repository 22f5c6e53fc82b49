"""The operations on sessions, whatever holds them: check, repair, undo, export.

A check changes nothing. A repair is planned from a single read, and written with a backup, which an
undo restores.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import structs

from lockstitch.conversation.json_text import dump
from lockstitch.dialects import ANTHROPIC
from lockstitch.errors import (
    Busy,
    Conflict,
    LockstitchError,
    Moved,
    UnknownFormat,
    Unreadable,
    UsageError,
)
from lockstitch.files import backup as backups
from lockstitch.files import os_files, read
from lockstitch.files.backup import Backup, Declined, Undone
from lockstitch.files.replace import snapshot
from lockstitch.formats.interface import DOCUMENT, SQLITE, Transcript, is_recognized
from lockstitch.formats.repair import (
    ROLLED_BACK,
    RepairOptions,
    RepairPlan,
    file_bytes,
    parse_file,
    plan_repair,
    require_records,
)
from lockstitch.repair.plan import plan_stored
from lockstitch.rules import Finding
from lockstitch.sources.own_stores import is_postgres, psycopg_hint
from lockstitch.sources.source import COPY as COPY  # noqa: PLC0414 - asked for here, too
from lockstitch.sources.source import (
    OWN,
    Opened,
    Repaired,
    Report,
    Source,
    Survey,
    paused_collection,
)
from lockstitch.sources.targets import (
    own_source,
    resolve_sources,
    session_paths,
    sources_in_server,
    sources_of_file,
)
from lockstitch.stores import addresses

if TYPE_CHECKING:
    from lockstitch.formats.langgraph.postgres import Shard, UndoneThread
    from lockstitch.formats.langgraph.postgres.database import Database, LangGraphSchema
    from lockstitch.formats.langgraph.postgres.repairs import PastRun
    from lockstitch.redaction import Redaction


def scan(
    targets: Iterable[str] = (),
    *,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Iterator[Report]:
    """Check every session below some paths, or on this machine; other files are skipped."""
    for path in session_paths(targets, home=home, environ=environ):
        if is_postgres(path):
            yield from scan_database(path)
        else:
            found = scan_file(path, environ=environ)
            yield from (report for report in found if not report.is_unknown)


def scan_database(url: str, *, workers: int = 1, shard: Shard | None = None) -> Iterator[Report]:
    """Check the sessions in a PostgreSQL database: a Lockstitch store, and LangGraph threads.

    ``workers`` processes read the threads; with a ``shard``, only those in it.
    """
    part = (1, 1) if shard is None else (shard.number, shard.count)
    yield from scan_server(url, Survey(workers=workers, shard=part, search=False))


def scan_server(url: str, survey: Survey) -> Iterator[Report]:
    """Check everything that a PostgreSQL database holds; an obstacle is a report, too."""
    try:
        for source in sources_in_server(url):
            yield from source.reports(survey, "Scanning")
    except LockstitchError as error:
        yield Report(addresses.public(url), error=error.message_with_session)


def scan_file(
    path: str, part: int = 0, parts: int = 1, *, environ: Mapping[str, str] | None = None
) -> list[Report]:
    """Check the sessions of one file; report a file that belongs to no known program as such.

    Of a database with many sessions, several callers can check one part each.
    """
    try:
        found = sources_of_file(path, environ=environ)
        if found and found[0].kind == OWN:
            return [] if part else list(own_source(path, None).reports(Survey()))
        if parts > 1:
            names = ((one.session or "").encode("utf-8", "surrogatepass") for one in found)
            mine = [zlib.crc32(name) % parts == part for name in names]
            found = [one for one, is_mine in zip(found, mine, strict=True) if is_mine]
        if len(found) < 2 or found[0].kind != SQLITE:  # noqa: PLR2004 - more than one
            return [source.check() for source in found]
        from lockstitch.sources import rows  # noqa: PLC0415 - sqlite3 is loaded for databases only

        # the sessions of a database are checked over one connection
        with rows.kept_open(path):
            return [source.check() for source in found]
    except LockstitchError as error:
        is_unknown = isinstance(error, UnknownFormat)
        return [] if part else [Report(path, error=str(error), is_unknown=is_unknown)]


def open_source(source: Source, *, follow_symlinks: bool = False, search: bool = False) -> Opened:
    """Read a session once, and parse it; ``search`` includes everything that a database has."""
    return source.open(follow_symlinks=follow_symlinks, search=search)


def check(source: Source) -> Report:
    """Return what is wrong with a session; nothing is changed."""
    return source.check()


def examine(source: Source) -> tuple[Report, Transcript | None]:
    """Return a full report on a session, without a quick check first, and what was read."""
    return source.examine()


def describe(session: Opened) -> Report:
    """Return a report that says what a session is, without checking it."""
    return session.source.describe(session.transcript)


_TRIES = 5
_UNKNOWN_AFTER = (
    "a repair would leave so little that nothing could recognise a session in it; nothing was "
    "changed"
)
_NOT_ROLLED_BACK = (
    "the session has no complete turn to go back to, so nothing is rolled back: open calls are "
    "answered instead, as --strategy close does"
)
T = TypeVar("T")


def plan_session(session: Opened, options: RepairOptions = RepairOptions()) -> RepairPlan:  # noqa: B008 - frozen
    """Plan the repair of a session that was read."""
    with paused_collection():
        plan = plan_repair(session.source.form, session.transcript, options)
    if not plan.changed:
        return plan
    if session.before is not None:
        source, context = session.source, plan.before.context
        is_known = not is_recognized(source.form, context.name, context.data) or is_recognized(
            source.form, context.name, plan.data
        )
        try:
            if source.kind == DOCUMENT:  # a repair may have turned it into lines
                parse_file(source.form, DOCUMENT, source.path, plan.data)
            require_records(source.form, source.kind, plan.after)
        except Unreadable:
            # It is recognized only by its place, and nothing of it is left there.
            is_known = False
        if not is_known:
            held = structs.replace(plan.before, notes=[*plan.before.notes, _UNKNOWN_AFTER])
            return RepairPlan(held, held, plan.findings, plan.findings, [], [])
    is_rolled_back = any(change.action == ROLLED_BACK for change in plan.changes)
    if options.strategy == "rollback" and not is_rolled_back:
        held = structs.replace(plan.before, notes=[*plan.before.notes, _NOT_ROLLED_BACK])
        return structs.replace(plan, before=held)
    return plan


def repair(
    source: Source | str,
    options: RepairOptions = RepairOptions(),  # noqa: B008 - frozen
    *,
    run: str | None = None,
    follow_symlinks: bool = False,
) -> Repaired:
    """Repair a session in place, with a backup.

    If the file changes in the meantime, it is read and planned again. Raises ``Conflict`` if the
    repair cannot be made safely and ``Unreadable`` if the session cannot be read; then nothing was
    changed. A crash leaves either the original or the repaired session.
    """
    if isinstance(source, str):
        [source] = resolve_sources(source)
    chosen = source

    def attempt() -> Repaired:
        session = chosen.open(follow_symlinks=follow_symlinks)
        return write_plan(session, plan_session(session, options), run or backups.new_run())

    with paused_collection():
        return retry_while_changing(attempt)


def retry_while_changing(attempt: Callable[[], T]) -> T:
    """Read, plan and write again, a few times, as long as the file changes in between."""
    for _ in range(_TRIES - 1):
        try:
            return attempt()
        # Trying again does not close a program, but a file that has changed can be read again.
        except Busy:
            raise
        except Conflict:
            continue
    return attempt()


def preview_plan(session: Opened, plan: RepairPlan | None) -> Repaired:
    """Return what a repair would do, without writing it."""
    report = session.source.describe(session.transcript)
    if plan is None:
        return Repaired(report)
    report.findings, report.notes = plan.findings, list(plan.before.notes)
    return Repaired(report, plan.remaining, plan.changes, plan.quarantine)


def write_plan(
    session: Opened, plan: RepairPlan, run: str, details: Mapping[str, Any] | None = None
) -> Repaired:
    """Write a plan, with a backup that says what it was for and contains ``details``."""
    done = preview_plan(session, plan)
    if plan.changed:
        noted = {
            "codes": sorted({finding.code for finding in plan.findings}),
            "changes": msgspec.to_builtins(plan.changes),
            "quarantine": msgspec.to_builtins(plan.quarantine, builtin_types=(msgspec.Raw,)),
            **(details or {}),
        }
        done.backup, done.carried = session.source.write(session, plan, run, noted)
        done.is_written = True
    return done


def write_repair(
    session: Opened,
    plan: RepairPlan,
    options: RepairOptions = RepairOptions(),  # noqa: B008 - frozen
    run: str | None = None,
    *,
    follow_symlinks: bool = False,
) -> tuple[Repaired, bool]:
    """Write a planned repair; if the session goes on meanwhile, read and plan it again.

    Returns what was done, and whether the session had gone on.
    """
    run = run or backups.new_run()
    try:
        return write_plan(session, plan, run), False
    except (Busy, Moved):
        raise
    except Conflict:
        done = repair(session.source, options, run=run, follow_symlinks=follow_symlinks)
    return done, True


def require_closed(session: Opened, way: str = "", *, is_named: bool = True) -> None:
    """Raise ``Busy`` if a program has a session open, as far as that can be known."""
    session.source.require_closed(session, way, is_named=is_named)


def encode_copy(session: Opened, plan: RepairPlan, path: str = "") -> bytes:
    """Return the bytes of the repaired session for another file, compressed if its name says so."""
    if session.before is None:
        raise Unreadable("it is in a database; a copy of one of its sessions cannot be written")
    data = file_bytes(plan.after)
    return read.pack(data) if read.is_packed(path) else data


_NONE = "it has no backup to go back to"
_URL = "sqlite:///"


def backups_of(
    target: str,
    *,
    session: str | None = None,
    run: str | None = None,
    declined: Declined | None = None,
) -> list[Backup]:
    """Return the backups of a file or a database, or of all files below a folder, newest first.

    A target may also be the id of a session; in a database, these are the backups of that session.
    Files below a folder that cannot be read are reported to ``declined``, or raise an error without
    it.
    """
    path = target.removeprefix(_URL)
    own = session
    is_path = os.path.lexists(path) or os.sep in path
    if not is_path and not backups.list_backups(path):
        # the id of a session
        [source] = resolve_sources(path)
        path = source.path
        if source.kind == SQLITE:
            if session not in (None, source.session):
                raise UsageError(
                    "it is already the id of a session; --session is for one in a database"
                )
            own = source.session
    elif os.path.islink(path) and not backups.list_backups(path):  # noqa: PTH114 - start-up time
        path = os.path.realpath(path)
    if os.path.isdir(path):  # noqa: PTH112 - pathlib costs start-up time
        found = [one for group in backups.list_runs(path, declined) for one in group.backups]
    else:
        found = backups.list_backups(path)
    return [
        one for one in found if run in (None, one.run) and (own is None or session_of(one) == own)
    ]


def session_of(backup: Backup) -> str | None:
    """Return the session in a database that a backup is for; None for a backup of a file."""
    if backup.rows is None:
        return None
    from lockstitch.sources import rows  # noqa: PLC0415 - sqlite3 is loaded for databases only

    return rows.session_of_backup(backup)


def find_undoable(
    target: str,
    *,
    session: str | None = None,
    run: str | None = None,
    declined: Declined | None = None,
) -> list[Backup]:
    """Return the backups that an undo of a target would restore, newest first.

    That is the last repair of a file, or of one session in a database; the last repair that touched
    a database or anything below a folder; or everything of a run that was not undone yet.
    """
    found = backups_of(target, session=session, run=run, declined=declined)
    if session is not None and found == [] and os.path.isfile(target.removeprefix(_URL)):  # noqa: PTH113 - start-up time
        raise UsageError(f"{_NONE} of a session {session}; --session is for one in a database")
    due = [one for one in found if one.status != "undone" and not _is_void(one)]
    if run is None:
        due = [one for one in due if not backups.is_undo(one)]
        due = [one for one in due if one.run == due[0].run]
    if not due and run is None:
        is_undone = any(one.status == "undone" for one in found)
        raise UsageError(f"{_NONE}{': its repairs were all undone' * is_undone}")
    if not due:
        already = "; it was already" if found else ""
        raise UsageError(f"it has nothing from run {run} to undo{already}")
    # A session that one run has repaired twice is undone step by step.
    last = {(one.path, session_of(one)): one for one in reversed(due)}
    return [one for one in due if one in last.values()]


def _is_void(backup: Backup) -> bool:
    """Whether a repair was interrupted before it changed anything."""
    if backup.status != "unfinished":
        return False
    with suppress(LockstitchError, OSError):
        if backup.rows is None:
            return snapshot(backup.path).data == backups.read_original(backup)
        from lockstitch.sources import rows as row_undo  # noqa: PLC0415 - as above

        return row_undo.are_rows_undone(backup)
    return False


def require_undoable(backup: Backup, *, force: bool = False) -> None:
    """Raise the error that an undo with a backup would raise; nothing is changed."""
    backups.find_undoable(backup.path, stem=backup.stem, force=force)
    if backup.rows is None:
        _require_file_closed(backup.path)
    else:
        _restore_rows(backup, dry_run=True)


def undo(backup: Backup, *, force: bool = False, as_run: str | None = None) -> Undone:
    """Undo one repair: restore a file byte for byte, or the rows of a session one by one.

    Raises ``Conflict`` if the session is no longer what the repair left, unless ``force`` keeps
    that as one more backup, and ``Busy`` while a program has it open.
    """
    if backup.rows is None:
        _require_file_closed(backup.path)
    return backups.undo_backup(
        backup.path, stem=backup.stem, force=force, restore=_restore_rows, as_run=as_run
    )


def past_runs(url: str) -> Iterator[tuple[str, PastRun]]:
    """Yield the runs that repaired threads in a PostgreSQL database, each with its schema."""
    with psycopg_hint():
        from lockstitch.formats.langgraph.postgres import repairs  # noqa: PLC0415 - an extra

    for name, database, home in _open_schemas(url):
        for one in repairs.past_runs(database, home):
            yield name, one


def _open_schemas(url: str) -> Iterator[tuple[str, Database, LangGraphSchema]]:
    """Yield the schemas with threads in a PostgreSQL database, each with a connection."""
    with psycopg_hint():
        from lockstitch.formats.langgraph.postgres import database  # noqa: PLC0415 - an extra

    for each, home in database.find_schemas(url):
        with database.Database(each, home.schema) as connection:
            yield addresses.public(each), connection, home


def undo_threads(
    url: str, session: str | None = None, run: str | None = None
) -> Iterator[tuple[str, UndoneThread]]:
    """Undo repairs of LangGraph's threads in a PostgreSQL database: of a run, or of one thread.

    Yields the name of each schema, with what became of a thread there. Raises ``UsageError`` if
    there is nothing to undo.
    """
    with psycopg_hint():
        from lockstitch.formats.langgraph.postgres import repairs  # noqa: PLC0415 - an extra

    done: list[UsageError] = []
    count = 0
    for name, database, home in _open_schemas(url):
        try:
            for one in repairs.undo_repairs(database, home, session=session, run=run):
                count += 1
                yield name, one
        except UsageError as error:
            done.append(error)
    if not count:
        raise done[0].about(addresses.public(url))


def _restore_rows(backup: Backup, *, dry_run: bool = False) -> None:
    from lockstitch.sources import rows as row_undo  # noqa: PLC0415 - as above

    row_undo.restore_rows(backup, dry_run=dry_run)


def _require_file_closed(path: str) -> None:
    """Raise ``Busy`` if a program has a session's file open, as far as that can be known."""
    source: Source | None = None
    with suppress(LockstitchError, OSError):
        [source] = resolve_sources(path)
    if source is None:
        return
    session = project = None
    with suppress(LockstitchError, OSError, RecursionError):
        known = source.open().transcript
        session, project = known.session, known.project
    form = source.form
    os_files.require_closed(form.title, form.users(path, session, project))


def export(
    stored: Opened,
    wanted: str | None,
    *,
    raw: bool = False,
    on_heal: Callable[[int], None] | None = None,
) -> tuple[list[Any], str, list[Finding]]:
    """Return the messages of a session in a dialect, that dialect, and what is still wrong.

    ``on_heal`` is called with the number of changes if the session had to be healed.
    """
    transcript = stored.transcript
    if not raw:
        plan = plan_session(stored)
        transcript = plan.after
        if plan.changes and on_heal is not None:
            on_heal(len(plan.changes))
    history = transcript.history
    messages: list[Any] = history.messages
    dialect = wanted or history.dialect
    if dialect.partition(":")[0] != history.dialect.partition(":")[0]:
        from lockstitch.dialects.render import render  # noqa: PLC0415 - few need it

        messages = render(messages, history.dialect, dialect)
    if raw:
        return messages, dialect, []
    healed = plan_stored(messages, dialect, history.model)
    return list(healed.plain), dialect, healed.remaining


def remove_secrets(
    messages: list[Any], dialect: str, *, personal: bool = False
) -> tuple[list[Any], list[Redaction]]:
    """Return messages without secrets, still valid, and the list of what was removed."""
    from lockstitch.redaction import drop_broken_thinking, redact_value  # noqa: PLC0415 - as above

    clean, found = redact_value(messages, personal=personal)
    if dialect.startswith(ANTHROPIC):
        clean = drop_broken_thinking(clean, found)
    return list(plan_stored(clean, dialect, None).plain), found


def encode_messages(messages: Sequence[Any]) -> bytes:
    """Return a JSON list with one message on each line."""
    lines = ",\n".join(dump(message) for message in messages)
    return f"[\n{lines}\n]\n".encode() if lines else b"[]\n"
