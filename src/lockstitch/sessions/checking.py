"""Checking sessions, one by one or all that there are; nothing is changed."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lockstitch import places
from lockstitch.errors import LockstitchError, UnknownFormat, reason_of
from lockstitch.formats import doctor
from lockstitch.formats.base import SQLITE, Transcript
from lockstitch.formats.langgraph.postgres import KIND as POSTGRES
from lockstitch.formats.sources import Opened, Source, glanced, sources_of
from lockstitch.report import Report
from lockstitch.sessions.finding import opened, paths, psycopg_hint

_NEITHER = "holds neither a store of Lockstitch's own nor checkpoints of LangGraph"


def scan(targets: Iterable[str] = (), **where: Any) -> Iterator[Report]:
    """Check every session below some paths, or of this machine; other files are left out."""
    for path in paths(targets, **where):
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
                yield from _own(url)
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
            return [] if part else _own(path)
        found = sources_of(path, environ=environ)
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
    from lockstitch.formats import rows  # noqa: PLC0415 - sqlite3 is loaded for databases only

    with rows.kept_open(found[0].path):
        return [check(source) for source in found]


def _own(path: str) -> list[Report]:
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
        session = opened(source, search=True) if source.kind == POSTGRES else glanced(source)
        report = described(session)
        report.findings = doctor.findings_of(source.form, session.transcript)
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
