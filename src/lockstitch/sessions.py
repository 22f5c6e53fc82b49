"""Stored sessions for people who call them from Python: what every command line call does.

>>> from lockstitch import sessions
>>> for report in sessions.scan():            # every agent session of this machine
...     print(report.target, report.status)
>>> sessions.repair("session.jsonl").remaining
[]
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field

from lockstitch import backups, places
from lockstitch.errors import (
    Busy,
    Conflict,
    LockstitchError,
    UnknownFormat,
    Unreadable,
    UsageError,
    reason_of,
)
from lockstitch.files import Snapshot, snapshot
from lockstitch.formats import doctor
from lockstitch.formats.base import SQLITE
from lockstitch.formats.doctor import Mended, Options
from lockstitch.formats.langgraph.postgres import KIND as POSTGRES
from lockstitch.formats.sources import (
    Opened,
    Source,
    files_below,
    found,
    glanced,
    home_places,
    sources_of,
)
from lockstitch.formats.sources import opened as opened_file
from lockstitch.repair.ledger import Change, Quarantined
from lockstitch.report import OWN, Report
from lockstitch.rules import Finding

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from lockstitch.compaction.ladder import Compaction
    from lockstitch.compaction.running import Progress, Summarize
    from lockstitch.formats.compactor import Condensed

__all__ = [
    "BUDGET",
    "Mended",
    "Opened",
    "Options",
    "Repaired",
    "Report",
    "Shorter",
    "Source",
    "applied",
    "check",
    "compact",
    "condensed",
    "copied",
    "described",
    "opened",
    "outlook",
    "paths",
    "planned",
    "repair",
    "scan",
    "scan_file",
    "shortened",
    "shorter",
    "sources",
]

# What a compacted session may have, in tokens: three fifths of a usual window.
BUDGET = 120_000

_TRIES = 5
_OWN = (
    "is a store of Lockstitch's own: its sessions are valid at every moment, so there is nothing "
    "to repair; check, show, export, checkpoints, rewind and fork take it"
)


_NEITHER = "holds neither a store of Lockstitch's own nor checkpoints of LangGraph"


class Repaired(Struct):
    """What a repair did to one session, or would do; ``backup`` says where the original is."""

    report: Report
    remaining: list[Finding] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    quarantine: list[Quarantined] = field(default_factory=list)
    backup: str | None = None
    carried: int = 0


class Shorter(Struct):
    """What a compaction did to one session, or would do; ``backup`` says where the original is.

    ``turns`` counts what the summary stands for, ``changes`` what had to be repaired first.
    """

    report: Report
    done: Compaction
    turns: int = 0
    changes: list[Change] = field(default_factory=list)
    backup: str | None = None
    carried: int = 0


def sources(  # noqa: PLR0913 - options, all by name
    target: str,
    *,
    format: str | None = None,  # noqa: A002 - the word that the command line has for it
    session: str | None = None,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
    most: int | None = None,
) -> list[Source]:
    """Give the sessions that a target names: a file, a folder, an id or its beginning.

    A database of LangGraph's in a PostgreSQL may hold millions; ``most`` are given of it.
    """
    if places.may_be(target) and format in (None, OWN) and places.place_of(target):
        raise UsageError(_OWN)
    if places.is_postgres(target):
        return list(islice(_threads(target, session), most))
    where = home or Path.home()
    return found(target, format, session, where, os.environ if environ is None else environ)


def _threads(url: str, session: str | None) -> Iterator[Source]:
    """Give the threads of LangGraph's in a PostgreSQL."""
    with psycopg_hint():
        from lockstitch.formats.langgraph.postgres import work  # noqa: PLC0415 - needs psycopg

        yield from work.sources(url, session)


@contextmanager
def psycopg_hint() -> Iterator[None]:
    """Say what to install where psycopg is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "psycopg":
            raise
        hint = "a PostgreSQL database needs: pip install 'lockstitch[postgres]'"
        raise UsageError(hint) from error


def opened(source: Source, *, follow_symlinks: bool = False) -> Opened:
    """Read a session, once, and understand it."""
    if source.kind != POSTGRES:
        return opened_file(source, follow_symlinks=follow_symlinks)
    from lockstitch.formats.langgraph.postgres import work  # noqa: PLC0415 - needs psycopg

    return Opened(source, work.opened(source))


def paths(
    targets: Iterable[str] = (),
    *,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Give the files to scan: those below the targets, or all known places of this machine."""
    given = list(targets)
    for target in given:
        if os.path.isdir(target):  # noqa: PTH112 - pathlib costs start-up time
            yield from files_below(target)
        else:
            yield target
    if not given:
        where = home or Path.home()
        yield from dict.fromkeys(home_places(where, os.environ if environ is None else environ))


def scan(targets: Iterable[str] = (), **places: Any) -> Iterator[Report]:
    """Check every session below some paths, or of this machine; other files are left out."""
    for path in paths(targets, **places):
        yield from scan_database(path) if _is_postgres(path) else scan_file(path)


_is_postgres = places.is_postgres


def scan_database(url: str, **how: Any) -> Iterator[Report]:
    """Check the sessions in a PostgreSQL: those of a store of our own, and threads of LangGraph.

    ``how`` may say ``workers`` and ``pause``, for the threads.
    """
    try:
        with psycopg_hint():
            from lockstitch.formats.langgraph.postgres import tables, work  # noqa: PLC0415

            known = tables.found(url)
            if known.is_own:
                yield from _own(url)
            for task in work.tasks(url, places.public, known=known, **how):
                for page in work.rounds(task, how.get("workers", 1)):
                    yield from (outcome.report for outcome in page)
            if not known.is_own and not known.homes:
                raise UnknownFormat(_NEITHER)
    except LockstitchError as error:
        yield Report(places.public(url), error=str(error))


def scan_file(path: str, part: int = 0, parts: int = 1) -> list[Report]:
    """Check the sessions of one file; none if it belongs to no program that is known.

    Of a database with many sessions, several can check one part each.
    """
    try:
        if places.may_be(path) and places.place_of(path):
            return [] if part else _own(path)
        return _checked([one for one in sources_of(path) if _is_in(one, part, parts)])
    except UnknownFormat:
        return []
    except LockstitchError as error:
        return [] if part else [Report(path, error=str(error))]


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
        is_base = source.kind in (SQLITE, POSTGRES)
        quick = None if is_base else source.form.quick(source.path)
        if quick is not None:
            return _proven(source, quick)
        session = opened(source) if source.kind == POSTGRES else glanced(source)
        report = described(session)
        report.findings = doctor.findings_of(source.form, session.transcript)
    except LockstitchError as error:
        return _unread(source, str(error))
    except OSError as error:
        return _unread(source, reason_of(error))
    except (RecursionError, MemoryError):
        return _unread(source, "is too large or too deep")
    return report


def _unread(source: Source, error: str) -> Report:
    return Report(places.public(source.path), source.format, source.session, error=error)


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

        return work.described(places.public(source.path), transcript)
    size, updated = _file_facts(source.path)
    return Report(
        target=source.path,
        format=source.format,
        session=transcript.session or source.session,
        project=transcript.project,
        messages=len(transcript.history.messages),
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


def planned(session: Opened, options: Options = Options()) -> Mended:  # noqa: B008 - frozen
    """Work out the repair of a session that was read."""
    return doctor.mend(session.source.form, session.transcript, options)


def repair(
    source: Source | str,
    options: Options = Options(),  # noqa: B008 - frozen
    *,
    run: str | None = None,
    follow_symlinks: bool = False,
) -> Repaired:
    """Mend a session where it is, with a backup; raises Conflict if it cannot be done safely.

    A file that changes while the repair is worked out is read again and planned anew.
    """
    if isinstance(source, str):
        [source] = sources(source)
    for attempt in range(1, _TRIES + 1):
        session = opened(source, follow_symlinks=follow_symlinks)
        try:
            return applied(session, planned(session, options), run or backups.new_run())
        except Busy:
            raise
        except Conflict:
            if attempt == _TRIES:
                raise
    raise AssertionError("unreachable")


def outlook(session: Opened, mended: Mended | None) -> Repaired:
    """Say what a repair would come to, without writing it."""
    report = described(session)
    if mended is None:
        return Repaired(report)
    report.findings = mended.findings
    return Repaired(report, mended.remaining, mended.changes, mended.quarantine)


def applied(session: Opened, mended: Mended, run: str) -> Repaired:
    """Write a planned repair, with its backup."""
    done = outlook(session, mended)
    if not mended.changed:
        return done
    details = {
        "codes": sorted({finding.code for finding in mended.findings}),
        "changes": msgspec.to_builtins(mended.changes),
        "quarantine": msgspec.to_builtins(mended.quarantine),
    }
    if session.before is None:
        done.backup = _save_rows(session.source, mended, run, details)
        return done
    data = doctor.bytes_of(mended.after)
    backup, replaced = backups.replace(session.before, data, run, details)
    done.backup, done.carried = str(backup.file), replaced.carried
    if not replaced.carried:
        _keep_time(session.before)
    return done


def _keep_time(before: Snapshot) -> None:
    """Let a session stay as old as it was: programs resume the one that was used last.

    A millisecond later than before, so that whoever remembers the old time sees the change.
    """
    later = before.mtime_ns + 1_000_000
    with suppress(OSError):
        os.utime(before.path, ns=(later, later))


def _save_rows(source: Source, mended: Mended, run: str, details: dict[str, Any]) -> str:
    if source.kind == POSTGRES:
        from lockstitch.formats.langgraph.postgres import work  # noqa: PLC0415 - needs psycopg

        return work.apply(source, mended, run)
    from lockstitch.formats import rows  # noqa: PLC0415 - sqlite3 is loaded for databases only

    before, after = mended.before.records, mended.after.records
    return rows.repair(source.path, source.form, before, after, run, details)


def copied(session: Opened, mended: Mended) -> bytes:
    """Give the bytes of the mended session, to be written elsewhere."""
    if session.before is None:
        raise Unreadable("is in a database; a copy of one session of it cannot be written")
    return doctor.bytes_of(mended.after)


def compact(  # noqa: PLR0913 - options, all by name
    source: Source | str,
    summarize: Summarize | None = None,
    *,
    budget: int = BUDGET,
    most_bytes: int | None = None,
    deadline: float = 60.0,
    call_timeout: float | None = None,
    session: str | None = None,
    on_progress: Progress | None = None,
    run: str | None = None,
    follow_symlinks: bool = False,
) -> Shorter:
    """Make a session shorter where it is, as its program does, with a backup.

    ``summarize`` is a function from a prompt to a summary; without it, and when it fails, a digest
    of what was said and done stands in. Raises ``Unmet`` if ``budget`` tokens, or ``most_bytes``
    bytes, cannot be met, and ``Conflict`` if it cannot be written safely; nothing is written then.
    A session in a store of Lockstitch's own is compacted by one more record.
    """
    options: dict[str, Any] = {
        "budget": budget,
        "most_bytes": most_bytes,
        "deadline": deadline,
        "call_timeout": call_timeout,
        "on_progress": on_progress,
    }
    if isinstance(source, str):
        if places.may_be(source) and places.place_of(source):
            from lockstitch import stored  # noqa: PLC0415 - most sessions are of other programs

            return stored.compact(source, session, summarize, **options)
        [source] = sources(source, session=session)
    known: dict[str, str] = {}
    for attempt in range(1, _TRIES + 1):
        opened_now = opened(source, follow_symlinks=follow_symlinks)
        made = condensed(opened_now, summarize, known=known, **options)
        try:
            return shortened(opened_now, made, run or backups.new_run())
        except Busy:
            raise
        except Conflict:
            if attempt == _TRIES:
                raise
    raise AssertionError("unreachable")


def condensed(  # noqa: PLR0913 - options, all by name
    session: Opened,
    summarize: Summarize | None = None,
    *,
    budget: int = BUDGET,
    most_bytes: int | None = None,
    deadline: float = 60.0,
    call_timeout: float | None = None,
    on_progress: Progress | None = None,
    known: MutableMapping[str, str] | None = None,
) -> Condensed:
    """Work out the compaction of a session that was read; ``known`` keeps answers of the model."""
    from lockstitch.compaction.plan import Budget  # noqa: PLC0415 - few commands need it
    from lockstitch.compaction.running import Clock, quiet  # noqa: PLC0415 - as above
    from lockstitch.formats import compactor  # noqa: PLC0415 - as above

    if budget < 1 or (most_bytes is not None and most_bytes < 1):
        raise UsageError("a budget is 1 token or more, and 1 byte or more")
    try:
        room = Budget(budget, most_bytes or 0)
        draft = compactor.drafted(session.source.form, session.transcript, room)
        answers = {} if known is None else known
        clock = Clock(deadline, call_timeout)
        return compactor.condensed(draft, summarize, clock, answers, on_progress or quiet)
    except (RecursionError, MemoryError):
        raise Unreadable("is too large or too deep") from None


def shorter(session: Opened, made: Condensed) -> Shorter:
    """Say what a compaction would come to, without writing it."""
    changes = list(made.draft.mended.changes) if made.changed else []
    return Shorter(described(session), made.left.done, made.left.turns, changes)


def shortened(session: Opened, made: Condensed, run: str) -> Shorter:
    """Write a compaction, with its backup; Conflict if the session has gone on since."""
    done = shorter(session, made)
    if not made.changed or session.before is None:
        return done
    before = session.before
    if snapshot(before.path).digest != before.digest:
        raise Conflict("has gone on since it was read; nothing was written")
    details = {
        "codes": sorted({finding.code for finding in made.draft.mended.findings}),
        "changes": msgspec.to_builtins(done.changes),
        "quarantine": msgspec.to_builtins(made.draft.mended.quarantine),
        "compaction": {"rung": done.done.rung, "turns": done.turns},
    }
    backup, replaced = backups.replace(before, doctor.bytes_of(made.after), run, details)
    done.backup, done.carried = str(backup.file), replaced.carried
    if not replaced.carried:
        _keep_time(before)
    return done
