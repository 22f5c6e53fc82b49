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
from hashlib import blake2b
from pathlib import Path
from typing import Any

from msgspec import Struct

from lockstitch import backups
from lockstitch.errors import Busy, Conflict, UsageError
from lockstitch.formats.records import Record
from lockstitch.formats.registry import format_named
from lockstitch.formats.sqlite import (
    CHANGED,
    bound,
    checked,
    quoted,
    reading,
    said,
    slot,
    tables_of,
    text_of,
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
)
from lockstitch.manifests import Backup

_NOT_LEFT = "is no longer what the repair left; nothing was written"
_WENT_ON = "went on from what the repair left; nothing was written"
_COUNTERS = "sqlite_sequence"
_LONG = 1 << 12

_kept_open = threading.local()

Images = dict[str, Any]
Keep = Callable[[Images], object]


class SessionRow(Struct, frozen=True):
    """A session in a database; ``updated`` is in seconds since 1970."""

    id: str
    project: str | None
    updated: float
    title: str = ""


class Digest(Struct, frozen=True):
    """What stands in the image of a row that a repair adds for a value that is long.

    Nothing has to bring it back; an undo only has to know that it is still there.
    """

    hex: str


class Change(Struct, frozen=True):
    """One row before and after: None before is a new row, None after one that goes."""

    table: str
    before: Columns | None
    after: Columns | None


# Reading


def tables(path: str | Path, *, follow: bool = True) -> set[str]:
    """Give the names of the tables in a database, by which its program is known."""
    with reading(path, follow=follow) as base:
        return tables_of(base)


def sessions(path: str | Path, form: Any, *, follow: bool = True) -> list[SessionRow]:
    """Give the sessions in a database, the one that was changed last first."""
    with reading(path, follow=follow) as base:
        found = list(_checked(form).listed(base))
    made = [
        SessionRow(str(own), project, float(time or 0), str(title or ""))
        for own, project, time, title in found
    ]
    return sorted(made, key=lambda row: (-row.updated, row.id))


def load(path: str | Path, form: Any, session: str, *, follow: bool = True) -> list[Record]:
    """Give the rows of one session, in the order in which its program reads them."""
    kept: sqlite3.Connection | None = getattr(_kept_open, "base", None)
    if kept is not None and _kept_open.path == str(path):
        try:
            return _loaded(kept, form, session)
        except sqlite3.Error as error:
            raise said(error, str(path), writing=False) from error
    with reading(path, follow=follow) as base:
        return _loaded(base, form, session)


def _loaded(base: sqlite3.Connection, form: Any, session: str) -> list[Record]:
    base.execute("BEGIN")
    try:
        return [*_rows(base, _checked(form), session)]
    finally:
        # What is read is one moment's; no moment is held for longer than one session takes.
        with suppress(sqlite3.Error):
            base.execute("ROLLBACK")


@contextmanager
def kept_open(path: str | Path) -> Iterator[None]:
    """Let one connection read all sessions of a database that are loaded meanwhile, here."""
    with reading(path, follow=True) as base:
        _kept_open.path, _kept_open.base = str(path), base
        try:
            yield
        finally:
            _kept_open.base = None


def _checked(form: Any) -> RowFormat:
    if not isinstance(form, RowFormat):
        raise UsageError("is a database, which that format is not kept in")
    return form


def _rows(base: sqlite3.Connection, form: RowFormat, session: str) -> list[Row]:
    own = form.rows(base, session)
    return _rows_by_id(base, form.layout, session) if own is None else own


def _rows_by_id(base: sqlite3.Connection, layout: Layout, session: str) -> list[Row]:
    known = tables_of(base)
    found: list[Row] = []
    start = 0
    for table in layout.tables:
        if table.name not in known and table.optional:
            continue
        for names, (rowid, *columns) in _selected(base, table, session):
            row = row_of(table, rowid, dict(zip(names, columns, strict=True)), start)
            # One more, so that no two rows begin at the same place.
            start = row.end + 1
            found.append(row)
    return found


def _selected(
    base: sqlite3.Connection, table: Table, session: str
) -> Iterator[tuple[list[str], tuple[Any, ...]]]:
    order = ", ".join(map(quoted, table.order))
    where = f"{quoted(table.session)} = ?" + (f" AND {table.where}" if table.where else "")
    query = f"SELECT rowid, * FROM {quoted(table.name)} WHERE {where} ORDER BY {order}"  # noqa: S608 - names of our own
    cursor = base.execute(query, (session,))
    names = [column[0] for column in cursor.description[1:]]
    for columns in cursor:
        yield names, columns


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
    work there, and its result would be lost once the call counts as answered.
    """
    kept: list[Backup] = []
    real = checked(path, follow=follow)
    _require_unused(real)
    save(real, form, before, after, lambda images: kept.append(_kept(real, run, images)))
    if not kept:
        raise UsageError("nothing differs, so that nothing was written")
    backup = backups.settle(kept[0], None, details or {})
    return str(backup.file.with_suffix(".json"))


def _require_unused(path: str) -> None:
    pids = users(path)
    if pids:
        raise Busy(
            f"process {', '.join(map(str, pids))} has it open and may be at work on the session; "
            "nothing was written: end that program first"
        )


def _kept(path: str, run: str, images: Images) -> Backup:
    return backups.keep_rows(path, run, images)


def restore(backup: Backup) -> None:
    """Take the repair of some rows back, row for row."""
    if backup.rows is None:
        raise UsageError("is the backup of a file, not of rows")
    take_back(backup.path, backup.rows)


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
    layout = _checked(form).layout
    with writing(path, follow=follow) as base:
        _require_same(base, form, before)
        counters = _counters(base)
        changes = [_applied(base, change) for change in _changes(base, layout, before, after)]
        changes += _counted(counters, _counters(base))
        images = {"format": form.name, "rows": [_image(change) for change in changes]}
        if changes:
            keep(images)
    return images


def take_back(path: str | Path, images: Images, *, follow: bool = False) -> None:
    """Put back what rows were before a repair; does nothing if that is what they are."""
    changes = [_change(image) for image in images["rows"]]
    with writing(path, follow=follow) as base:
        if all(_is_undone(base, change) for change in changes if change.table != _COUNTERS):
            return
        _require_last(base, str(images["format"]), changes)
        for change in reversed(changes):
            back = Change(change.table, change.after, change.before)
            try:
                _applied(base, back)
            except Conflict:
                if change.table != _COUNTERS:
                    raise Conflict(_NOT_LEFT) from None


def _require_last(base: sqlite3.Connection, name: str, changes: Sequence[Change]) -> None:
    """Raise Conflict if the program has gone on from a row that the repair added."""
    form = _checked(format_named(name))
    for change in changes:
        if change.before is None and change.after is not None:
            own = {key: value for key, value in change.after.items() if key != "rowid"}
            if form.is_followed(base, change.table, own):
                thread = own.get("thread_id")
                raise Conflict(f"thread {thread} {_WENT_ON}" if thread else _WENT_ON)


def _require_same(base: sqlite3.Connection, form: RowFormat, before: Sequence[Record]) -> None:
    """Raise Conflict unless the session's rows are exactly those that were read."""
    old = [row for row in before if isinstance(row, Row)]
    if not old:
        raise UsageError("holds no rows of that session")
    now = _rows(base, form, form.session_of(old[0]))
    if [(r.table, r.rowid, r.stored) for r in now] != [(r.table, r.rowid, r.stored) for r in old]:
        raise Conflict(CHANGED)


def _changes(
    base: sqlite3.Connection, layout: Layout, before: Sequence[Record], after: Sequence[Record]
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


def _next_key(base: sqlite3.Connection, table: Table) -> Callable[[], int]:
    """Give the numbers behind all that were ever given out, one after the other."""
    query = f"SELECT max(rowid) FROM {quoted(table.name)}"  # noqa: S608 - our own
    highest: int = base.execute(query).fetchone()[0] or 0
    last = max(highest, _counters(base).get(table.name, (0, 0))[1])

    def following() -> int:
        nonlocal last
        last += 1
        return last

    return following


def _counters(base: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    """Give SQLite's own counters, by table: the row they stand in, and the last number."""
    if _COUNTERS not in tables_of(base):
        return {}
    found = base.execute("SELECT rowid, name, seq FROM sqlite_sequence")
    return {name: (rowid, seq) for rowid, name, seq in found}


def _counted(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]
) -> Iterator[Change]:
    for name, (rowid, seq) in after.items():
        old = before.get(name)
        if old is not None and old[1] != seq:
            image = {"rowid": rowid, "name": name}
            yield Change(_COUNTERS, {**image, "seq": old[1]}, {**image, "seq": seq})


def _applied(base: sqlite3.Connection, change: Change) -> Change:
    """Write one change if the row is still what it is changed from, and give its full image."""
    table, before, after = quoted(change.table), change.before, change.after
    if before is None and after is not None:
        names = ", ".join(map(quoted, after))
        slots = ", ".join(map(slot, after.values()))
        query = f"INSERT INTO {table} ({names}) VALUES ({slots})"  # noqa: S608 - quoted names
        rowid = base.execute(query, bound(after.values())).lastrowid
        return Change(change.table, None, _stored(base, change.table, rowid))
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


def _whole(base: sqlite3.Connection, table: str, columns: Columns) -> Columns:
    """Give the columns of an image with the long values that it only has the digests of."""
    long = {name: value for name, value in columns.items() if isinstance(value, Digest)}
    if not long:
        return columns
    now = _stored(base, table, columns["rowid"]) or {}
    if any(_digest(now.get(name)) != value for name, value in long.items()):
        raise Conflict(CHANGED)
    return {**columns, **{name: now[name] for name in long}}


def _digest(value: Any) -> Digest | None:
    return Digest(blake2b(value).hexdigest()) if type(value) is bytes else None


def _stored(base: sqlite3.Connection, table: str, rowid: int | None) -> Columns | None:
    """Give a row as it is in the database; None if there is none."""
    query = f"SELECT rowid, * FROM {quoted(table)} WHERE rowid = ?"  # noqa: S608 - quoted name
    cursor = base.execute(query, (rowid,))
    found = cursor.fetchone()
    names = ["rowid", *(column[0] for column in cursor.description[1:])]
    return None if found is None else dict(zip(names, found, strict=True))


def _is_undone(base: sqlite3.Connection, change: Change) -> bool:
    if change.before is None:
        return change.after is None or _stored(base, change.table, change.after["rowid"]) is None
    return _stored(base, change.table, change.before["rowid"]) == change.before


# Images: rows as JSON values


def _image(change: Change) -> dict[str, Any]:
    after = change.after
    if change.before is None and after is not None:
        after = {name: _brief(value) for name, value in after.items()}
    sides = {"before": change.before, "after": after}
    return {"table": change.table, **{k: _plain(v) for k, v in sides.items()}}


def _brief(value: Any) -> Any:
    return _digest(value) if type(value) is bytes and len(value) > _LONG else value


def _plain(columns: Columns | None) -> Columns | None:
    """Write columns as JSON values: what JSON cannot hold becomes its bytes in hexadecimal."""
    if columns is None:
        return None
    return {name: _plain_value(value) for name, value in columns.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, Digest):
        return {"digest": value.hex}
    if type(value) is bytes:
        return {"blob": value.hex()}
    if type(value) is str and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return {"text": value.encode("utf-8", "surrogateescape").hex()}
    return {"real": value.hex()} if type(value) is float else value


def _change(image: dict[str, Any]) -> Change:
    return Change(image["table"], _columns(image["before"]), _columns(image["after"]))


def _columns(image: Columns | None) -> Columns | None:
    if image is None:
        return None
    return {name: _value(value) for name, value in image.items()}


def _value(value: Any) -> Any:
    if type(value) is not dict:
        return value
    [(kind, text)] = value.items()
    if kind == "digest":
        return Digest(text)
    if kind == "real":
        return float.fromhex(text)
    raw = bytes.fromhex(text)
    return raw if kind == "blob" else text_of(raw)
