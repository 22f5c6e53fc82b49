"""Changes of rows: written one by one, kept as images in a backup, and taken back.

A row is changed only if it is still what the change starts from, and put back only if it is still
what the repair left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from msgspec import Struct

from lockstitch.errors import Conflict, Unreadable, UsageError
from lockstitch.formats import sqlite
from lockstitch.formats.interface import format_named
from lockstitch.formats.sqlite import (
    CHANGED,
    GuardedConnection,
    bind_values,
    quoted,
    tables_of,
    text_of,
    value_slot,
)
from lockstitch.formats.tables import Columns, RowFormat

_LONG = 1 << 12

Images = dict[str, Any]


class Digest(Struct, frozen=True):
    """Stands for a long value in the image of a row that a repair adds.

    The value never has to be restored from it; an undo only has to know that it is still there.
    """

    hex: str


class RowChange(Struct, frozen=True):
    """One row before and after; None before for a new row, None after for a deleted one."""

    table: str
    before: Columns | None
    after: Columns | None


def digest_of(value: Any) -> Digest | None:
    """Return the digest of a blob; None for any other value."""
    return Digest(blake2b(value).hexdigest()) if type(value) is bytes else None


def image_of(change: RowChange) -> dict[str, Any]:
    """Return a change as JSON values; long blobs of a new row become digests."""
    after = change.after
    if change.before is None and after is not None:
        after = {
            name: digest_of(value) if type(value) is bytes and len(value) > _LONG else value
            for name, value in after.items()
        }
    sides = {"before": change.before, "after": after}
    plain = {
        side: columns and {name: _plain_value(value) for name, value in columns.items()}
        for side, columns in sides.items()
    }
    return {"table": change.table, **plain}


def _plain_value(value: Any) -> Any:
    """Return a value as JSON; what JSON cannot hold becomes its bytes in hexadecimal."""
    if isinstance(value, Digest):
        return {"digest": value.hex}
    if type(value) is bytes:
        return {"blob": value.hex()}
    if type(value) is str and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return {"text": value.encode("utf-8", "surrogateescape").hex()}
    # in hexadecimal a float keeps every bit
    return {"real": value.hex()} if type(value) is float else value


def change_of(image: dict[str, Any]) -> RowChange:
    """Return the change that its JSON values describe."""
    before, after = (
        side if side is None else {name: _value_of_image(value) for name, value in side.items()}
        for side in (image["before"], image["after"])
    )
    return RowChange(image["table"], before, after)


def _value_of_image(value: Any) -> Any:
    if type(value) is not dict:
        return value
    [(kind, text)] = value.items()
    if kind == "digest":
        return Digest(text)
    if kind == "real":
        return float.fromhex(text)
    raw = bytes.fromhex(text)
    return raw if kind == "blob" else text_of(raw)


COUNTERS = "sqlite_sequence"


def counters(base: GuardedConnection) -> dict[str, tuple[int, Any]]:
    """Return SQLite's own counters by table, each with its row and its last number."""
    if COUNTERS not in tables_of(base):
        return {}
    found = base.execute("SELECT rowid, name, seq FROM sqlite_sequence ORDER BY rowid DESC")
    # if a table has two, SQLite uses the first
    return {name: (rowid, seq) for rowid, name, seq in found if type(name) is str}


def counter_changes(
    before: dict[str, tuple[int, Any]], after: dict[str, tuple[int, Any]]
) -> Iterator[RowChange]:
    """Yield the changes between two states of the counters."""
    for name, (rowid, seq) in after.items():
        old = before.get(name)
        image = {"rowid": rowid, "name": name}
        if old is None:
            yield RowChange(COUNTERS, None, {**image, "seq": seq})
        elif old[1] != seq or type(old[1]) is not type(seq):
            yield RowChange(COUNTERS, {**image, "seq": old[1]}, {**image, "seq": seq})


def apply_change(base: GuardedConnection, change: RowChange) -> RowChange:
    """Write a change if the row is still what it starts from; return its full image."""
    table, before, after = quoted(change.table), change.before, change.after
    if before is None and after is not None:
        names = ", ".join(map(quoted, after))
        slots = ", ".join(map(value_slot, after.values()))
        query = f"INSERT INTO {table} ({names}) VALUES ({slots})"  # noqa: S608 - quoted names
        rowid = base.execute(query, bind_values(after.values())).lastrowid
        return RowChange(change.table, None, stored_row(base, change.table, rowid))
    assert before is not None  # noqa: S101 - a change has at least one side
    before = _restore_long_values(base, change.table, before)
    match = " AND ".join(f"{quoted(n)} IS {value_slot(v)}" for n, v in before.items())
    if after is None:
        query, values = f"DELETE FROM {table} WHERE {match}", []  # noqa: S608 - quoted names
    else:
        new = {n: v for n, v in after.items() if n not in before or v != before[n]}
        sets = ", ".join(f"{quoted(n)} = {value_slot(v)}" for n, v in new.items())
        query = f"UPDATE {table} SET {sets} WHERE {match}"  # noqa: S608 - quoted names
        values = [*new.values()]
    if base.execute(query, bind_values([*values, *before.values()])).rowcount != 1:
        raise Conflict(CHANGED)
    return change


def _restore_long_values(base: GuardedConnection, table: str, columns: Columns) -> Columns:
    """Return the columns of an image, with long values in place of their digests."""
    long = {name: value for name, value in columns.items() if isinstance(value, Digest)}
    if not long:
        return columns
    now = stored_row(base, table, columns["rowid"]) or {}
    if any(digest_of(now.get(name)) != value for name, value in long.items()):
        raise Conflict(CHANGED)
    return {**columns, **{name: now[name] for name in long}}


def stored_row(base: GuardedConnection, table: str, rowid: int | None) -> Columns | None:
    """Return a row as it is in the database; None if it does not exist."""
    names = ["rowid", *sqlite.names_of(base, table)]
    wanted = ", ".join(map(quoted, names))
    query = f"SELECT {wanted} FROM {quoted(table)} WHERE rowid = ?"  # noqa: S608 - quoted names
    found = base.execute(query, (rowid,)).fetchone()
    return None if found is None else dict(zip(names, found, strict=True))


_NOT_WRITTEN = "it has a backup of rows that no repair writes; nothing was changed"
_NOT_LEFT = "it has changed since the repair; nothing was written"
_WENT_ON = "it was continued since the repair; nothing was written"

# The number of a counter before a repair, by its table and its number after.
Counts = dict[tuple[str, int], int]


def checked_form(form: Any) -> RowFormat:
    """Return a format that keeps its sessions in a database; raise UsageError for others."""
    if not isinstance(form, RowFormat):
        raise UsageError("it is a database, which that format does not use")
    return form


def form_of_images(images: Images) -> RowFormat:
    """Return the format that images of rows belong to; raise Unreadable if it has no rows."""
    try:
        return checked_form(format_named(str(images["format"])))
    except (KeyError, UsageError):
        raise Unreadable(_NOT_WRITTEN) from None


def changes_in(images: Images, which: str = "rows") -> list[RowChange]:
    """Return the changes that images describe; raise Unreadable unless a repair could write them.

    With ``which`` as ``followed``, return those that the program's triggers made in addition. A
    manifest may come from anywhere, so it may name only tables of its program, and SQLite's
    counters of these.
    """
    known = {table.name for table in form_of_images(images).tables}
    try:
        given = images["rows"] if which == "rows" else images.get(which, ())
        found = [change_of(image) for image in given]
        counted = [side["name"] for one in found if one.table == COUNTERS for side in _sides(one)]
        rowids = [side["rowid"] for one in found for side in _sides(one)]
        is_known = {one.table for one in found} - {COUNTERS} <= known and known.issuperset(counted)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise Unreadable(_NOT_WRITTEN) from None
    if not is_known or not all(type(rowid) is int for rowid in rowids):
        raise Unreadable(_NOT_WRITTEN)
    return found


def _sides(change: RowChange) -> list[Columns]:
    return [side for side in (change.before, change.after) if side is not None]


def put_back(
    base: GuardedConnection, form: RowFormat, images: Images, passed: Counts | None = None
) -> None:
    """Put rows back, within the open transaction; see ``take_back``."""
    changes, followed = changes_in(images), changes_in(images, "followed")
    if all(is_change_undone(base, change) for change in changes if change.table != COUNTERS):
        return
    _require_last(base, form, changes)
    # The rows that the program's triggers changed, and that are still as the triggers left them.
    left = [
        change
        for change in followed
        if change.after is not None
        and change.after == stored_row(base, change.table, change.after["rowid"])
    ]
    counted = counters(base)
    for change in reversed(changes):
        if change.table != COUNTERS:
            try:
                apply_change(base, RowChange(change.table, change.after, change.before))
            except Conflict:
                raise Conflict(_NOT_LEFT) from None
    for change in left:
        # A trigger has changed the row again in the meantime.
        now = stored_row(base, change.table, (change.after or {})["rowid"])
        apply_change(base, RowChange(change.table, now, change.before))
    for change in counter_changes(counted, counters(base)):
        # Inserting a row again changes a counter, too.
        apply_change(base, RowChange(COUNTERS, change.after, change.before))
    for change in changes:
        if change.table == COUNTERS:
            _count_back(base, change, passed or {})


def _count_back(base: GuardedConnection, change: RowChange, passed: Counts) -> None:
    """Put a counter back to before all that was undone, if it has not been counted up since."""
    before = change.before
    if before is not None and type(before["seq"]) is int:
        name, count = before["name"], before["seq"]
        while passed.get((name, count), count) < count:
            count = passed[name, count]
        query = f"SELECT max(rowid) FROM {quoted(name)}"  # noqa: S608 - quoted name
        highest: int = base.execute(query).fetchone()[0] or 0
        before = {**before, "seq": count} if highest <= count else before
    with suppress(Conflict):
        apply_change(base, RowChange(COUNTERS, change.after, before))


def _require_last(base: GuardedConnection, form: RowFormat, changes: Sequence[RowChange]) -> None:
    """Raise Conflict if the program has gone on from a row that the repair added."""
    for change in changes:
        if change.before is None and change.after is not None:
            own = {key: value for key, value in change.after.items() if key != "rowid"}
            if form.is_followed(base, change.table, own):
                thread = own.get("thread_id")
                raise Conflict(_WENT_ON).about(session=thread or None)


def is_change_undone(base: GuardedConnection, change: RowChange) -> bool:
    """Whether a row is what it was before a change."""
    if change.before is None:
        return change.after is None or stored_row(base, change.table, change.after["rowid"]) is None
    return stored_row(base, change.table, change.before["rowid"]) == change.before
