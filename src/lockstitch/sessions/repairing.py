"""Mending sessions where they are, with a backup."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field, structs

from lockstitch import backups
from lockstitch.errors import Busy, Conflict, Unreadable
from lockstitch.files import Snapshot
from lockstitch.formats import doctor, packed, running
from lockstitch.formats.base import SQLITE, Transcript
from lockstitch.formats.doctor import Mended, Options
from lockstitch.formats.langgraph.postgres import KIND as POSTGRES
from lockstitch.formats.sources import Opened, Source, is_told, understood
from lockstitch.repair.draft import Change, Quarantined
from lockstitch.report import Report
from lockstitch.rules import Finding
from lockstitch.sessions.checking import described
from lockstitch.sessions.finding import opened, sources

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


def planned(session: Opened, options: Options = Options()) -> Mended:  # noqa: B008 - frozen
    """Work out the repair of a session that was read."""
    mended = doctor.mend(session.source.form, session.transcript, options)
    if mended.changed and _is_unknown_after(session, mended):
        return _refused(mended)
    if options.strategy == "rollback" and mended.changed and not _is_rolled_back(mended):
        held = structs.replace(mended.before, notes=[*mended.before.notes, _NOT_ROLLED_BACK])
        return structs.replace(mended, before=held)
    return mended


def _is_rolled_back(mended: Mended) -> bool:
    return any(change.action == doctor.ROLLED_BACK for change in mended.changes)


def _is_unknown_after(session: Opened, mended: Mended) -> bool:
    """Whether a file would no longer be told as a session once it is repaired."""
    if session.before is None:
        return False
    after = doctor.bytes_of(mended.after)
    if is_told(session.source, mended.before.context.data) and not is_told(session.source, after):
        return True
    try:
        understood(session.source, after)
    except Unreadable:
        # It is known by the place where it lies, and nothing of it is left there.
        return True
    return False


def _refused(mended: Mended) -> Mended:
    held = structs.replace(mended.before, notes=[*mended.before.notes, _UNKNOWN_AFTER])
    return Mended(held, held, mended.findings, mended.findings, [], [])


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
    chosen = source

    def attempt() -> Repaired:
        session = opened(chosen, follow_symlinks=follow_symlinks)
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


def outlook(session: Opened, mended: Mended | None) -> Repaired:
    """Say what a repair would come to, without writing it."""
    report = described(session)
    if mended is None:
        return Repaired(report)
    report.findings, report.notes = mended.findings, list(mended.before.notes)
    return Repaired(report, mended.remaining, mended.changes, mended.quarantine)


def applied(session: Opened, mended: Mended, run: str) -> Repaired:
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
    data = doctor.bytes_of(transcript)
    return packed.pack(data) if packed.is_packed(source.path) else data


def require_closed(session: Opened, way: str = "", *, is_named: bool = True) -> None:
    """Raise Busy if a program has a session's file open, as far as it can be asked.

    What looks like an open call may be at work there. To a database that a repair only adds to,
    nothing happens but that a thread at work gets a branch nobody goes on from; so one that is
    ``is_named`` is repaired all the same.
    """
    source, known = session.source, session.transcript
    if source.kind == SQLITE:
        from lockstitch.formats import rows  # noqa: PLC0415 - sqlite3 is loaded for databases only

        if not rows.checked_form(source.form).adds:
            rows.require_unused(source.path)
        elif not is_named:
            rows.require_unused(source.path, ", or name one thread with --session")
    if session.before is not None:
        users = source.form.users(session.before.path, known.session, known.project)
        running.require_closed(source.form.title, users, way)


def written(
    session: Opened, data: bytes, run: str, details: dict[str, Any]
) -> tuple[str | None, int]:
    """Replace a file, with a backup; gives where that is, and how many bytes were carried over."""
    before = session.before
    if before is None:
        return None, 0
    require_closed(session, COPY)
    backup, replaced = backups.replace(before, data, run, details)
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


def _save_rows(source: Source, mended: Mended, run: str, details: dict[str, Any]) -> str:
    if source.kind == POSTGRES:
        from lockstitch.formats.langgraph.postgres import work  # noqa: PLC0415 - needs psycopg

        return work.store_thread(source, mended, run)
    from lockstitch.formats import rows  # noqa: PLC0415 - sqlite3 is loaded for databases only

    before, after = mended.before.records, mended.after.records
    return rows.repair(source.path, source.form, before, after, run, details)


def copied(session: Opened, mended: Mended, path: str = "") -> bytes:
    """Return the bytes of the mended session for a file elsewhere, packed if its name says so."""
    if session.before is None:
        raise Unreadable("is in a database; a copy of one session of it cannot be written")
    data = doctor.bytes_of(mended.after)
    return packed.pack(data) if packed.is_packed(path) else data
