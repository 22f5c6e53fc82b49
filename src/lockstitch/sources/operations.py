"""Mending sessions where they are, with a backup.

Checking sessions, one by one or all that there are; nothing is changed.

Taking repairs back: those of files as a whole, those of one session or all in a database.

Sessions as the messages of a request: healed, in any dialect, without secrets if asked.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct, field, structs

from lockstitch.conversation.json_text import dump
from lockstitch.dialects import ANTHROPIC
from lockstitch.errors import (
    Busy,
    Conflict,
    LockstitchError,
    UnknownFormat,
    Unreadable,
    UsageError,
    reason_of,
)
from lockstitch.files import backup as backups
from lockstitch.files import backup as manifests
from lockstitch.files import processes, read
from lockstitch.files.backup import Backup, Declined, Undone
from lockstitch.files.replace import Snapshot, snapshot
from lockstitch.formats.langgraph.postgres import KIND as POSTGRES
from lockstitch.heal import plan_stored
from lockstitch.repair.draft import Change, Quarantined
from lockstitch.rules import Finding
from lockstitch.sources import repair as doctor
from lockstitch.sources import targets
from lockstitch.sources import targets as places
from lockstitch.sources.interface import SQLITE, Transcript
from lockstitch.sources.repair import RepairOptions, RepairPlan
from lockstitch.sources.source import (
    Opened,
    Report,
    Source,
    glance,
    is_recognized,
    open_file_source,
    parse_file,
    sources_in,
)
from lockstitch.sources.targets import open_source, psycopg_hint, resolve_sources, session_paths

if TYPE_CHECKING:
    from lockstitch.redaction import Redaction


_NEITHER = "holds neither a store of Lockstitch's own nor checkpoints of LangGraph"


def scan(targets: Iterable[str] = (), **where: Any) -> Iterator[Report]:
    """Check every session below some paths, or of this machine; other files are left out."""
    for path in session_paths(targets, **where):
        if places.is_postgres(path):
            yield from scan_database(path)
        else:
            found = scan_file(path, environ=where.get("environ"))
            yield from (report for report in found if not report.is_unknown)


def scan_database(url: str, **how: Any) -> Iterator[Report]:
    """Check the sessions in a PostgreSQL: those of a store of our own, and threads of LangGraph.

    ``how`` may say ``workers``, and which ``shard`` of the threads.
    """
    try:
        with psycopg_hint():
            from lockstitch.formats.langgraph.postgres import database, work  # noqa: PLC0415

            known = database.look_into(url)
            if known.is_own:
                yield from _check_own_store(url)
            for task in work.schema_tasks(url, places.public, known=known, **how):
                for page in work.work_through(task, how.get("workers", 1)):
                    yield from (outcome.report for outcome in page)
            if not known.is_own and not known.homes:
                raise UnknownFormat(_NEITHER)
    except LockstitchError as error:
        yield Report(places.public(url), error=str(error))


def scan_file(
    path: str, part: int = 0, parts: int = 1, *, environ: Mapping[str, str] | None = None
) -> list[Report]:
    """Check the sessions of one file; a file of a program that is not known is reported as such.

    Of a database with many sessions, several can check one part each.
    """
    try:
        if places.may_be(path) and places.place_of(path):
            return [] if part else _check_own_store(path)
        found = sources_in(path, environ=environ)
        return _checked([one for one in found if _is_in(one, part, parts)])
    except LockstitchError as error:
        is_unknown = isinstance(error, UnknownFormat)
        return [] if part else [Report(path, error=str(error), is_unknown=is_unknown)]


def _is_in(source: Source, part: int, parts: int) -> bool:
    name = (source.session or "").encode("utf-8", "surrogatepass")
    return parts == 1 or zlib.crc32(name) % parts == part


def _checked(found: list[Source]) -> list[Report]:
    """Check sessions of one file; those of a database over one connection."""
    if len(found) < 2 or found[0].kind != SQLITE:  # noqa: PLR2004 - more than one
        return [check(source) for source in found]
    from lockstitch.sources import rows  # noqa: PLC0415 - sqlite3 is loaded for databases only

    with rows.kept_open(found[0].path):
        return [check(source) for source in found]


def _check_own_store(path: str) -> list[Report]:
    from lockstitch import stored  # noqa: PLC0415 - most files are of other programs

    return list(stored.check(path))


def check(source: Source) -> Report:
    """Say what is wrong with a session; changes nothing."""
    try:
        is_base = source.error is not None or source.kind in (SQLITE, POSTGRES)
        quick = None if is_base else source.form.quick(source.path)
        if quick is not None:
            return _proven(source, quick)
    except OSError as error:
        return _unread(source, reason_of(error))
    return examined(source)[0]


def examined(source: Source) -> tuple[Report, Transcript | None]:
    """Say what is wrong with a session, without a quick pass first, and give what was read."""
    if source.error is not None:
        return _unread(source, source.error), None
    try:
        session = open_source(source, search=True) if source.kind == POSTGRES else glance(source)
        report = described(session)
        report.findings = doctor.findings_in(source.form, session.transcript)
    except LockstitchError as error:
        return _unread(source, str(error)), None
    except OSError as error:
        return _unread(source, reason_of(error)), None
    except (RecursionError, MemoryError):
        return _unread(source, "is too large or too deep"), None
    return report, session.transcript


def _unread(source: Source, error: str) -> Report:
    return Report(places.public(source.path), source.format or None, source.session, error=error)


def _proven(source: Source, quick: Any) -> Report:
    report = Report(source.path, source.format, quick.session, quick.project, quick.messages)
    report.reachable, report.dialect = quick.turns, source.form.dialect
    report.size, report.updated = _file_facts(source.path)
    return report


def described(session: Opened) -> Report:
    """Say what a session is, without judging it."""
    transcript, source = session.transcript, session.source
    if source.kind == POSTGRES:
        from lockstitch.formats.langgraph.postgres import work  # noqa: PLC0415 - needs psycopg

        return work.describe_thread(places.public(source.path), transcript)
    size, updated = _file_facts(source.path)
    if source.kind == SQLITE:
        # the file is that of others, too
        size = sum(record.size for record in transcript.records)
    return Report(
        target=source.path,
        format=source.format,
        session=transcript.session or source.session,
        project=transcript.project,
        messages=transcript.messages or len(transcript.history.messages),
        reachable=transcript.turns,
        unreachable=transcript.left,
        left=transcript.left_size,
        size=transcript.size or size,
        updated=updated,
        dialect=transcript.history.dialect,
        notes=list(transcript.notes),
    )


def _file_facts(path: str) -> tuple[int, float]:
    status = os.stat(path)  # noqa: PTH116 - pathlib costs start-up time
    return status.st_size, status.st_mtime


_TRIES = 5
_UNKNOWN_AFTER = (
    "a repair would leave so little that no program's session could be told in it; nothing was "
    "changed"
)
_NOT_ROLLED_BACK = (
    "there is no complete turn at whose end the session could go on, so nothing is rolled back: "
    "open calls are answered instead, as --strategy close does"
)
COPY = ", or give -o FILE to write a copy"
T = TypeVar("T")


class Repaired(Struct):
    """What a repair did to one session, or would do; ``backup`` says where the original is.

    ``went_on`` says that it was not done, since the session was no longer what was read.
    """

    report: Report
    remaining: list[Finding] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    quarantine: list[Quarantined] = field(default_factory=list)
    backup: str | None = None
    carried: int = 0
    went_on: bool = False


def planned(session: Opened, options: RepairOptions = RepairOptions()) -> RepairPlan:  # noqa: B008 - frozen
    """Work out the repair of a session that was read."""
    mended = doctor.plan_repair(session.source.form, session.transcript, options)
    if mended.changed and _is_unknown_after(session, mended):
        return _refused(mended)
    if options.strategy == "rollback" and mended.changed and not _is_rolled_back(mended):
        held = structs.replace(mended.before, notes=[*mended.before.notes, _NOT_ROLLED_BACK])
        return structs.replace(mended, before=held)
    return mended


def _is_rolled_back(mended: RepairPlan) -> bool:
    return any(change.action == doctor.ROLLED_BACK for change in mended.changes)


def _is_unknown_after(session: Opened, mended: RepairPlan) -> bool:
    """Whether a file would no longer be told as a session once it is repaired."""
    if session.before is None:
        return False
    after = doctor.file_bytes(mended.after)
    if is_recognized(session.source, mended.before.context.data) and not is_recognized(
        session.source, after
    ):
        return True
    try:
        parse_file(session.source, after)
    except Unreadable:
        # It is known by the place where it lies, and nothing of it is left there.
        return True
    return False


def _refused(mended: RepairPlan) -> RepairPlan:
    held = structs.replace(mended.before, notes=[*mended.before.notes, _UNKNOWN_AFTER])
    return RepairPlan(held, held, mended.findings, mended.findings, [], [])


def repair(
    source: Source | str,
    options: RepairOptions = RepairOptions(),  # noqa: B008 - frozen
    *,
    run: str | None = None,
    follow_symlinks: bool = False,
) -> Repaired:
    """Mend a session where it is, with a backup; raises Conflict if it cannot be done safely.

    A file that changes while the repair is worked out is read again and planned anew.
    """
    if isinstance(source, str):
        [source] = resolve_sources(source)
    chosen = source

    def attempt() -> Repaired:
        session = open_source(chosen, follow_symlinks=follow_symlinks)
        return applied(session, planned(session, options), run or backups.new_run())

    return until_it_stays(attempt)


def until_it_stays(attempt: Callable[[], T]) -> T:
    """Read, plan and write again while the file moves on in between, some times at most."""
    for _ in range(_TRIES - 1):
        try:
            return attempt()
        except Busy:
            raise
        except Conflict:
            continue
    return attempt()


def outlook(session: Opened, mended: RepairPlan | None) -> Repaired:
    """Say what a repair would come to, without writing it."""
    report = described(session)
    if mended is None:
        return Repaired(report)
    report.findings, report.notes = mended.findings, list(mended.before.notes)
    return Repaired(report, mended.remaining, mended.changes, mended.quarantine)


def applied(session: Opened, mended: RepairPlan, run: str) -> Repaired:
    """Write a planned repair, with its backup."""
    done = outlook(session, mended)
    if not mended.changed:
        return done
    details = {
        "codes": sorted({finding.code for finding in mended.findings}),
        "changes": msgspec.to_builtins(mended.changes),
        "quarantine": msgspec.to_builtins(mended.quarantine, builtin_types=(msgspec.Raw,)),
    }
    if session.before is None:
        done.backup = _save_rows(session.source, mended, run, details)
        return done
    data = stored_bytes(session.source, mended.after)
    done.backup, done.carried = written(session, data, run, details)
    return done


def stored_bytes(source: Source, transcript: Transcript) -> bytes:
    """Return the bytes of the file that holds a session, packed if its file is."""
    data = doctor.file_bytes(transcript)
    return read.pack(data) if read.is_packed(source.path) else data


def require_closed(session: Opened, way: str = "", *, is_named: bool = True) -> None:
    """Raise Busy if a program has a session's file open, as far as it can be asked.

    What looks like an open call may be at work there. To a database that a repair only adds to,
    nothing happens but that a thread at work gets a branch nobody goes on from; so one that is
    ``is_named`` is repaired all the same.
    """
    source, known = session.source, session.transcript
    if source.kind == SQLITE:
        from lockstitch.sources import rows  # noqa: PLC0415 - sqlite3 is loaded for databases only

        if not rows.checked_form(source.form).adds:
            rows.require_unused(source.path)
        elif not is_named:
            rows.require_unused(source.path, ", or name one thread with --session")
    if session.before is not None:
        users = source.form.users(session.before.path, known.session, known.project)
        processes.require_closed(source.form.title, users, way)


def written(
    session: Opened, data: bytes, run: str, details: dict[str, Any]
) -> tuple[str | None, int]:
    """Replace a file, with a backup; gives where that is, and how many bytes were carried over."""
    before = session.before
    if before is None:
        return None, 0
    require_closed(session, COPY)
    backup, replaced = backups.replace_with_backup(before, data, run, details)
    if not replaced.carried:
        _keep_time(before)
    return str(backup.file), replaced.carried


def _keep_time(before: Snapshot) -> None:
    """Let a session stay as old as it was: programs resume the one that was used last.

    A millisecond later than before, so that whoever remembers the old time sees the change.
    """
    later = before.mtime_ns + 1_000_000
    follows = os.utime not in os.supports_follow_symlinks
    with suppress(OSError):
        os.utime(before.path, ns=(later, later), follow_symlinks=follows)


def _save_rows(source: Source, mended: RepairPlan, run: str, details: dict[str, Any]) -> str:
    if source.kind == POSTGRES:
        from lockstitch.formats.langgraph.postgres import work  # noqa: PLC0415 - needs psycopg

        return work.store_thread(source, mended, run)
    from lockstitch.sources import rows  # noqa: PLC0415 - sqlite3 is loaded for databases only

    before, after = mended.before.records, mended.after.records
    return rows.write_rows(source.path, source.form, before, after, run, details)


def copied(session: Opened, mended: RepairPlan, path: str = "") -> bytes:
    """Return the bytes of the mended session for a file elsewhere, packed if its name says so."""
    if session.before is None:
        raise Unreadable("is in a database; a copy of one session of it cannot be written")
    data = doctor.file_bytes(mended.after)
    return read.pack(data) if read.is_packed(path) else data


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
    path, own = _path_meant(target, session)
    if os.path.isdir(path):  # noqa: PTH112 - pathlib costs start-up time
        found = [one for group in backups.list_runs(path, declined) for one in group.backups]
    else:
        found = backups.list_backups(path)
    return [
        one for one in found if run in (None, one.run) and (own is None or session_of(one) == own)
    ]


def session_of(backup: Backup) -> str | None:
    """Return the session of a database that a backup is of; None for one of a file."""
    if backup.rows is None:
        return None
    from lockstitch.sources import rows  # noqa: PLC0415 - sqlite3 is loaded for databases only

    return rows.session_of_backup(backup)


def _path_meant(target: str, session: str | None) -> tuple[str, str | None]:
    """Return the path that a target means, and the session if it means only that."""
    path = target.removeprefix(_URL) if target.startswith(_URL) else target
    if os.path.lexists(path) or os.sep in path or backups.list_backups(path):
        is_bare = os.path.islink(path) and not backups.list_backups(path)  # noqa: PTH114 - as above
        return (os.path.realpath(path) if is_bare else path), session
    [source] = resolve_sources(path)
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
            return snapshot(backup.path).data == manifests.read_original(backup)
        from lockstitch.sources import rows as row_undo  # noqa: PLC0415 - as above

        return row_undo.are_rows_undone(backup)
    return False


def require_undoable(backup: Backup, *, force: bool = False) -> None:
    """Raise what an undo with a backup would raise; changes nothing."""
    backups.find_undoable(backup.path, stem=backup.stem, force=force)
    if backup.rows is None:
        _require_file_closed(backup.path)
    else:
        _restore_rows(backup, rehearse=True)


def undo(backup: Backup, *, force: bool = False, as_run: str | None = None) -> Undone:
    """Take one repair back: a file byte for byte, the rows of a session in a database one by one.

    Raises Conflict if the session is no longer what the repair left, unless ``force`` says to keep
    that as one more backup, and Busy while a program has it open.
    """
    if backup.rows is None:
        _require_file_closed(backup.path)
    return backups.undo_backup(
        backup.path, stem=backup.stem, force=force, restore=_restore_rows, as_run=as_run
    )


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
    for task in work.schema_tasks(url, targets.public):
        try:
            with Database(task.url, task.home.schema) as database:
                for one in repairs.undo_repairs(database, task.home, session=session, run=run):
                    count += 1
                    yield task.name, one
        except UsageError as error:
            done.append(error)
    if not count:
        raise UsageError(f"{targets.public(url)}: {done[0]}")


def _restore_rows(backup: Backup, *, rehearse: bool = False) -> None:
    from lockstitch.sources import rows as row_undo  # noqa: PLC0415 - as above

    row_undo.restore_rows(backup, rehearse=rehearse)


def _require_file_closed(path: str) -> None:
    """Raise Busy if a program has a session's file open, as far as it can be asked."""
    source: Source | None = None
    with suppress(LockstitchError, OSError):
        [source] = resolve_sources(path)
    if source is None:
        return
    session = project = None
    with suppress(LockstitchError, OSError, RecursionError):
        known = open_file_source(source).transcript
        session, project = known.session, known.project
    form = source.form
    processes.require_closed(form.title, form.users(path, session, project))


def exported(
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
        repair = planned(stored)
        transcript = repair.after
        if repair.changes and on_heal is not None:
            on_heal(len(repair.changes))
    history = transcript.history
    messages: list[Any] = history.messages
    dialect = wanted or history.dialect
    if dialect.partition(":")[0] != history.dialect.partition(":")[0]:
        from lockstitch.dialects.render import render  # noqa: PLC0415 - few need it

        messages = render(messages, history.dialect, dialect)
    if raw:
        return messages, dialect, []
    plan = plan_stored(messages, dialect, history.model)
    return list(plan.plain), dialect, plan.remaining


def without_secrets(
    messages: list[Any], dialect: str, *, personal: bool = False
) -> tuple[list[Any], list[Redaction]]:
    """Give messages without secrets, still valid, and what was taken out of them."""
    from lockstitch.redaction import drop_broken_thinking, redact_value  # noqa: PLC0415 - as above

    clean, found = redact_value(messages, personal=personal)
    if dialect.startswith(ANTHROPIC):
        clean = drop_broken_thinking(clean, found)
    return list(plan_stored(clean, dialect, None).plain), found


def encoded(messages: Sequence[Any]) -> bytes:
    """Write a JSON list with a message a line."""
    lines = ",\n".join(dump(message) for message in messages)
    return f"[\n{lines}\n]\n".encode() if lines else b"[]\n"
