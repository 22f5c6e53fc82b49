"""The edge to sessions in the databases of other programs: their rows, read and written.

Writing is one transaction. It first makes sure that the session is still, row for row, what was
read; each row is then changed only if it is what it is changed from; and the images of all rows
that it touches, before and after, are safe in a backup before it is final.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from lockstitch import backups
from lockstitch.errors import Busy, Conflict, Moved, Unreadable, UsageError
from lockstitch.formats import schemas
from lockstitch.formats.records import Record
from lockstitch.formats.row_images import Change, Digest, Images, digest_of, image_of
from lockstitch.formats.sqlite import (
    CHANGED,
    bound,
    checked,
    quoted,
    reading,
    said,
    slot,
    users,
    writing,
)
from lockstitch.formats.tables import (
    Columns,
    Layout,
    Row,
    RowFormat,
    Table,
    row_of,
    rows_in,
    settled,
    sorting,
)
from lockstitch.formats.untrusted import Connection, shown, tables_of
from lockstitch.manifests import Backup

COUNTERS = "sqlite_sequence"

# The end of the year 9999, in seconds: no later time is one.
_LATEST = 253_402_300_800
# The highest number that a row can have.
_LAST = (1 << 63) - 1
_DAMAGED = "is damaged so that a repair of it could not be taken back; nothing was written"
_UNWRITTEN = "; nothing was written"
_NO_ID = "its id is no text, so that nothing of it can be told from other rows"

_kept_open = threading.local()

Keep = Callable[[Images], object]

_SESSION = "CAST(?1 AS TEXT)"


class SessionRow(Struct, frozen=True):
    """A session in a database; ``updated`` is in seconds since 1970.

    ``error`` says why this one cannot be read.
    """

    id: str
    project: str | None
    updated: float
    title: str = ""
    error: str | None = None


# Reading


def tables(path: str | Path, *, follow: bool = True) -> set[str]:
    """Give the names of the tables in a database, by which its program is known."""
    with reading(path, follow=follow) as base:
        return tables_of(base)


def sessions(path: str | Path, form: Any, *, follow: bool = True) -> list[SessionRow]:
    """Give the sessions in a database, the one that was changed last first."""
    with reading(path, follow=follow) as base:
        schemas.require_known(base, checked_form(form))
        found = list(checked_form(form).listed(base))
    made = [_session_row(*row) for row in found]
    return sorted(made, key=lambda row: (-row.updated, row.id))


def _session_row(own: Any, project: Any, when: Any, title: Any) -> SessionRow:
    """Return a session as it is listed; what is odd in its row is left out."""
    is_time = isinstance(when, (int, float)) and 0 <= when < _LATEST
    return SessionRow(
        own if type(own) is str else shown(repr(own)),
        project if type(project) is str else None,
        float(when) if is_time else 0.0,
        title if type(title) is str else "",
        None if type(own) is str else _NO_ID,
    )


def load(
    path: str | Path, form: Any, session: str, *, follow: bool = True, search: bool = False
) -> list[Record]:
    """Give the rows of one session, in the order in which its program reads them.

    With ``search``, all else that the session has is looked into, too, as far as its format does.
    """
    kept: Connection | None = getattr(_kept_open, "base", None)
    if kept is not None and _kept_open.path == str(path):
        try:
            return _loaded(kept, form, session, search=search)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise said(error, str(path), kept) from error
    with reading(path, follow=follow) as base:
        return _loaded(base, form, session, search=search)


def _loaded(base: Connection, form: Any, session: str, *, search: bool) -> list[Record]:
    base.budget.renew()
    schemas.require_known(base, checked_form(form))
    base.execute("BEGIN")
    try:
        found = _rows(base, checked_form(form), session)
    finally:
        # What is read is one moment's; no moment is held for longer than one session takes.
        with suppress(sqlite3.Error):
            base.execute("ROLLBACK")
    if not found:
        raise Unreadable("holds no such session")
    if search:
        checked_form(form).search(base, found)
    return [*found]


@contextmanager
def kept_open(path: str | Path) -> Iterator[None]:
    """Let one connection read all sessions of a database that are loaded meanwhile, here."""
    with reading(path, follow=True) as base:
        _kept_open.path, _kept_open.base = str(path), base
        try:
            yield
        finally:
            _kept_open.base = None


def checked_form(form: Any) -> RowFormat:
    """Return a format that keeps its sessions in a database; raises UsageError for another."""
    if not isinstance(form, RowFormat):
        raise UsageError("is a database, which that format is not kept in")
    return form


def _rows(base: Connection, form: RowFormat, session: str) -> list[Row]:
    own = form.rows(base, session)
    return _rows_by_id(base, form.layout, session) if own is None else own


def _rows_by_id(base: Connection, layout: Layout, session: str) -> list[Row]:
    known = tables_of(base)
    found: list[Row] = []
    start = 0
    for table in layout.tables:
        if table.name not in known and table.optional:
            continue
        for rowid, columns in _selected(base, table, session):
            row = row_of(table, rowid, columns, start)
            # One more, so that no two rows begin at the same place.
            start = row.end + 1
            found.append(row)
    return found


def _selected(base: Connection, table: Table, session: str) -> list[tuple[int, Columns]]:
    """Return the rows of a session, with their numbers, in the order of its program.

    They are sorted here: SQLite would have to see all of them before it gives the first one, and
    nobody counts what it writes aside meanwhile.
    """
    names = schemas.names_of(base, table.name)
    wanted = ", ".join(map(quoted, ("rowid", *names)))
    where = f"{quoted(table.session)} = {_SESSION}"
    where += f" AND {table.where}" if table.where else ""
    query = f"SELECT {wanted} FROM {quoted(table.name)} WHERE {where}"  # noqa: S608 - quoted names
    found = [
        (rowid, dict(zip(names, columns, strict=True)))
        for rowid, *columns in base.execute(query, bound((session,)))
    ]
    return sorted(found, key=lambda row: [sorting(row[1][name]) for name in table.order])


# Writing


def repair(  # noqa: PLR0913, PLR0917 - what to write where, and how it is written down
    path: str | Path,
    form: Any,
    before: Sequence[Record],
    after: Sequence[Record],
    run: str,
    details: dict[str, Any] | None = None,
    *,
    follow: bool = False,
) -> str:
    """Save changed rows with a backup of them; gives the path of its manifest.

    Refused while another process has the database open: what looks like an open call may be at
    work there, and its result would be lost once the call counts as answered. Not so where a
    repair only adds rows, behind which a run that is still at work puts its own.
    """
    kept: list[Backup] = []
    real = checked(path, follow=follow)
    if not checked_form(form).adds:
        require_unused(real)
    first = next((row for row in before if isinstance(row, Row)), None)
    session = None if first is None else checked_form(form).session_of(first)

    def keep(images: Images) -> None:
        kept.append(backups.keep_rows(real, run, images, session=session))

    try:
        save(real, form, before, after, keep)
    except Busy:
        raise
    except Conflict as error:
        raise (Moved if checked_form(form).adds else Conflict)(str(error)) from error
    if not kept:
        raise UsageError("nothing differs, so that nothing was written")
    backup = backups.settle(kept[0], None, details or {})
    return str(backup.file.with_suffix(".json"))


def require_unused(path: str, way: str = "") -> None:
    """Raise Busy if another process has a database open, where that can be told."""
    pids = users(path)
    if pids:
        raise Busy(
            f"process {', '.join(map(str, pids))} has it open and may be at work on the session; "
            f"nothing was written: end that program first{way}"
        )


def save(  # noqa: PLR0913 - what to write where, and what to do with the images
    path: str | Path,
    form: Any,
    before: Sequence[Record],
    after: Sequence[Record],
    keep: Keep,
    *,
    follow: bool = False,
) -> Images:
    """Write the difference between two states of a session, in one transaction.

    Raises Conflict, and writes nothing, if the session is no longer what was read. ``keep`` gets
    the images of the touched rows before they are final, and must have them safe when it returns.
    """
    layout = checked_form(form).layout
    with writing(path, follow=follow) as base:
        schemas.require_writable(base, form)
        _require_same(base, form, before)
        counted = counters(base)
        changes = [applied(base, change) for change in _changes(base, layout, before, after)]
        followed = [*_followed(base, before, changes)]
        changes += counter_changes(counted, counters(base))
        images: Images = {"format": form.name, "rows": [image_of(change) for change in changes]}
        if followed:
            images["followed"] = [image_of(change) for change in followed]
        if changes:
            _require_undoable(base, form, before, images)
            keep(images)
    return images


def _require_undoable(
    base: Connection, form: RowFormat, before: Sequence[Record], images: Images
) -> None:
    """Raise Unreadable unless what was just written can be read, and taken back row for row.

    Where pages are damaged that nothing has looked at so far, this is where it shows.
    """
    from lockstitch.formats.row_undo import put_back  # noqa: PLC0415 - it builds on this module

    session = form.session_of(next(row for row in before if isinstance(row, Row)))
    _rows(base, form, session)
    base.execute("SAVEPOINT rehearsal")
    try:
        put_back(base, form, images)
        _require_same(base, form, before)
    except Conflict as error:
        raise Unreadable(_DAMAGED) from error
    finally:
        base.execute("ROLLBACK TO rehearsal")
        base.execute("RELEASE rehearsal")


def _followed(
    base: Connection, before: Sequence[Record], changes: Sequence[Change]
) -> Iterator[Change]:
    """Give the rows that a trigger of the program itself has changed in the wake of others."""
    if not base.guard.triggers:
        return
    own = {(change.table, change.before["rowid"]) for change in changes if change.before}
    for row in before:
        if isinstance(row, Row) and (row.table, row.rowid) not in own:
            now = stored(base, row.table, row.rowid)
            old = {"rowid": row.rowid, **row.stored}
            if now != old:
                yield Change(row.table, old, now)


def _require_same(base: Connection, form: RowFormat, before: Sequence[Record]) -> None:
    """Raise Conflict unless the session's rows are exactly those that were read."""
    old = [row for row in before if isinstance(row, Row)]
    if not old:
        raise UsageError("holds no rows of that session")
    now = _rows(base, form, form.session_of(old[0]))
    if [(r.table, r.rowid, r.stored) for r in now] != [(r.table, r.rowid, r.stored) for r in old]:
        raise Conflict(CHANGED)


def _changes(
    base: Connection, layout: Layout, before: Sequence[Record], after: Sequence[Record]
) -> Iterator[Change]:
    for table in layout.tables:
        old = {row.rowid: row for row in rows_in(before, table.name)}
        new = rows_in(after, table.name)
        kept = {row.rowid for row in new}
        for rowid, row in old.items():
            if rowid not in kept:
                yield Change(table.name, {"rowid": rowid, **row.stored}, None)
        if len(new) == len(old) and all(row is old.get(row.rowid) for row in new):
            continue
        for row, columns in settled(table, new, _next_key(base, table)):
            if row.rowid is None:
                yield Change(table.name, None, columns)
            elif columns != row.stored:
                rowid = columns[table.key] if table.counted else row.rowid
                image = {"rowid": row.rowid, **row.stored}
                yield Change(table.name, image, {"rowid": rowid, **columns})


def _next_key(base: Connection, table: Table) -> Callable[[], int]:
    """Give the numbers behind all that were ever given out, one after the other."""
    query = f"SELECT max(rowid) FROM {quoted(table.name)}"  # noqa: S608 - our own
    highest: int = base.execute(query).fetchone()[0] or 0
    counted = counters(base).get(table.name, (0, 0))[1]
    last = max(highest, counted if type(counted) is int else 0)

    def following() -> int:
        nonlocal last
        if last >= _LAST:
            raise Unreadable(f"has no number left for one more row of {table.name}{_UNWRITTEN}")
        last += 1
        return last

    return following


def counters(base: Connection) -> dict[str, tuple[int, Any]]:
    """Give SQLite's own counters, by table: the row they stand in, and the last number."""
    if COUNTERS not in tables_of(base):
        return {}
    found = base.execute("SELECT rowid, name, seq FROM sqlite_sequence ORDER BY rowid DESC")
    # of two for one table, SQLite takes the first
    return {name: (rowid, seq) for rowid, name, seq in found if type(name) is str}


def counter_changes(
    before: dict[str, tuple[int, Any]], after: dict[str, tuple[int, Any]]
) -> Iterator[Change]:
    """Give what is different about counters."""
    for name, (rowid, seq) in after.items():
        old = before.get(name)
        image = {"rowid": rowid, "name": name}
        if old is None:
            yield Change(COUNTERS, None, {**image, "seq": seq})
        elif old[1] != seq or type(old[1]) is not type(seq):
            yield Change(COUNTERS, {**image, "seq": old[1]}, {**image, "seq": seq})


def applied(base: Connection, change: Change) -> Change:
    """Write one change if the row is still what it is changed from, and give its full image."""
    table, before, after = quoted(change.table), change.before, change.after
    if before is None and after is not None:
        names = ", ".join(map(quoted, after))
        slots = ", ".join(map(slot, after.values()))
        query = f"INSERT INTO {table} ({names}) VALUES ({slots})"  # noqa: S608 - quoted names
        rowid = base.execute(query, bound(after.values())).lastrowid
        return Change(change.table, None, stored(base, change.table, rowid))
    assert before is not None  # noqa: S101 - a change has at least one side
    before = _whole(base, change.table, before)
    match = " AND ".join(f"{quoted(n)} IS {slot(v)}" for n, v in before.items())
    if after is None:
        query, values = f"DELETE FROM {table} WHERE {match}", []  # noqa: S608 - quoted names
    else:
        new = {n: v for n, v in after.items() if n not in before or v != before[n]}
        sets = ", ".join(f"{quoted(n)} = {slot(v)}" for n, v in new.items())
        query = f"UPDATE {table} SET {sets} WHERE {match}"  # noqa: S608 - quoted names
        values = [*new.values()]
    if base.execute(query, bound([*values, *before.values()])).rowcount != 1:
        raise Conflict(CHANGED)
    return change


def _whole(base: Connection, table: str, columns: Columns) -> Columns:
    """Give the columns of an image with the long values that it only has the digests of."""
    long = {name: value for name, value in columns.items() if isinstance(value, Digest)}
    if not long:
        return columns
    now = stored(base, table, columns["rowid"]) or {}
    if any(digest_of(now.get(name)) != value for name, value in long.items()):
        raise Conflict(CHANGED)
    return {**columns, **{name: now[name] for name in long}}


def stored(base: Connection, table: str, rowid: int | None) -> Columns | None:
    """Give a row as it is in the database; None if there is none."""
    names = ["rowid", *schemas.names_of(base, table)]
    wanted = ", ".join(map(quoted, names))
    query = f"SELECT {wanted} FROM {quoted(table)} WHERE rowid = ?"  # noqa: S608 - quoted names
    found = base.execute(query, (rowid,)).fetchone()
    return None if found is None else dict(zip(names, found, strict=True))
