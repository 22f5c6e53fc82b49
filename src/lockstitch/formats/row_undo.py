"""Repairs of rows taken back: each row only if it is still what the repair left."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lockstitch import backups
from lockstitch.errors import Busy, Conflict, Unreadable, UsageError
from lockstitch.formats import schemas
from lockstitch.formats.registry import format_named
from lockstitch.formats.row_images import Change, Images, change_of
from lockstitch.formats.rows import (
    COUNTERS,
    applied,
    checked_form,
    counter_changes,
    counters,
    require_unused,
    stored,
)
from lockstitch.formats.sqlite import quoted, reading, writing
from lockstitch.formats.tables import Columns, Row, RowFormat
from lockstitch.formats.untrusted import Connection
from lockstitch.manifests import Backup

_NOT_WRITTEN = "has a backup of rows that is not one which a repair writes; nothing was changed"
_NOT_LEFT = "is no longer what the repair left; nothing was written"
_WENT_ON = "went on from what the repair left; nothing was written"

# What a counter was before a repair, by its table and what it was after that.
Counts = dict[tuple[str, int], int]


def session_of(backup: Backup) -> str | None:
    """Return the session whose rows a backup holds; older backups do not name it themselves."""
    if backup.manifest.session is not None or backup.rows is None:
        return backup.manifest.session
    try:
        form, changes = _form(backup.rows), changes_in(backup.rows)
    except Unreadable:
        return None
    for change in changes:
        columns = change.before or change.after or {}
        with suppress(KeyError, TypeError, ValueError):
            return form.session_of(Row("", None, table=change.table, stored=columns))
    return None


def _form(images: Images) -> RowFormat:
    try:
        return checked_form(format_named(str(images["format"])))
    except (KeyError, UsageError):
        raise Unreadable(_NOT_WRITTEN) from None


def changes_in(images: Images, which: str = "rows") -> list[Change]:
    """Return the changes that images stand for; Unreadable if no repair writes such ones.

    ``followed`` are those that triggers of the program made besides. A manifest may come from
    anywhere. It names tables of its program, and SQLite's counters of those, and nothing else in
    a database.
    """
    known = {table.name for table in _form(images).tables}
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


def _sides(change: Change) -> list[Columns]:
    return [side for side in (change.before, change.after) if side is not None]


def restore(backup: Backup, *, rehearse: bool = False) -> None:
    """Take the repair of some rows back, row for row; or only find out whether that can be done.

    Raises Conflict if they are no longer what the repair left, and Busy while another process
    has the database open: it may have gone on from them without having written that yet.
    """
    if backup.rows is None:
        raise UsageError("is the backup of a file, not of rows")
    require_unused(backup.path)
    try:
        take_back(backup.path, backup.rows, _passed_counts(backup), rehearse=rehearse)
    except Conflict as error:
        later = _later(backup)
        if later is None or isinstance(error, Busy):
            raise
        raise Conflict(f"{error}: it was repaired again, take run {later} back first") from error


def is_undone(backup: Backup) -> bool:
    """Whether all rows of a backup are as they were before, as if nothing had been repaired."""
    with reading(backup.path, follow=False) as base:
        if backup.rows is not None:
            schemas.require_known(base, _form(backup.rows))
        return all(_is_undone(base, change) for change in _changes_in(backup))


def _changes_in(backup: Backup) -> list[Change]:
    """Return the changes of a program's own rows that a backup is of."""
    return [one for one in changes_in(backup.rows or {}) if one.table != COUNTERS]


def _later(backup: Backup) -> str | None:
    """Return the run of the last repair of the same session since, if it is in force."""
    own = session_of(backup)
    for other in backups.listed(backup.path):
        if other.stem == backup.stem:
            return None
        if other.status != "undone" and session_of(other) == own:
            return other.run
    return None


def _passed_counts(backup: Backup) -> Counts:
    """Return the counts that other repairs passed on to this one's, and that they had found.

    Sessions share SQLite's counters: an undo that is not of the last repair leaves them as they
    are, and the undo of the last one then puts back what was there before both.
    """
    return {
        (change.before["name"], change.after["seq"]): change.before["seq"]
        for other in backups.listed(backup.path)
        if other.status == "undone" and other.rows is not None
        for change in changes_in(other.rows)
        if change.table == COUNTERS
        and change.before
        and change.after
        and type(change.before["seq"]) is int
    }


class _Rehearsed(Exception):
    """Everything could be taken back, and nothing is to be."""


def take_back(
    path: str | Path,
    images: Images,
    passed: Counts | None = None,
    *,
    follow: bool = False,
    rehearse: bool = False,
) -> None:
    """Put back what rows were before a repair; does nothing if that is what they are.

    ``passed`` are counts that repairs which were undone since have left to this one's. To
    ``rehearse`` is to raise what it would raise, and to change nothing.
    """
    form = _form(images)
    with suppress(_Rehearsed), writing(path, follow=follow) as base:
        schemas.require_writable(base, form)
        put_back(base, form, images, passed)
        if rehearse:
            raise _Rehearsed


def put_back(
    base: Connection, form: RowFormat, images: Images, passed: Counts | None = None
) -> None:
    """Put rows back within the transaction that is open; see ``take_back``."""
    changes, followed = changes_in(images), changes_in(images, "followed")
    if all(_is_undone(base, change) for change in changes if change.table != COUNTERS):
        return
    _require_last(base, form, changes)
    left = [change for change in followed if _is_left(base, change)]
    counted = counters(base)
    for change in reversed(changes):
        if change.table != COUNTERS:
            _put_back(base, change)
    for change in left:
        # A trigger of the program has changed it once more meanwhile.
        now = stored(base, change.table, (change.after or {})["rowid"])
        applied(base, Change(change.table, now, change.before))
    for change in counter_changes(counted, counters(base)):
        # A row that is put in again counts, too.
        applied(base, Change(COUNTERS, change.after, change.before))
    for change in changes:
        if change.table == COUNTERS:
            _count_back(base, change, passed or {})


def _is_left(base: Connection, change: Change) -> bool:
    """Whether a row that a trigger of the program changed is what it was after the repair."""
    return change.after is not None and change.after == stored(
        base, change.table, change.after["rowid"]
    )


def _put_back(base: Connection, change: Change) -> None:
    try:
        applied(base, Change(change.table, change.after, change.before))
    except Conflict:
        raise Conflict(_NOT_LEFT) from None


def _count_back(base: Connection, change: Change, passed: Counts) -> None:
    """Put a counter back if nobody has counted on: to what it was before all that was undone."""
    before = change.before
    if before is not None and type(before["seq"]) is int:
        name, count = before["name"], before["seq"]
        while passed.get((name, count), count) < count:
            count = passed[name, count]
        query = f"SELECT max(rowid) FROM {quoted(name)}"  # noqa: S608 - quoted name
        highest: int = base.execute(query).fetchone()[0] or 0
        before = {**before, "seq": count} if highest <= count else before
    with suppress(Conflict):
        applied(base, Change(COUNTERS, change.after, before))


def _require_last(base: Connection, form: RowFormat, changes: Sequence[Change]) -> None:
    """Raise Conflict if the program has gone on from a row that the repair added."""
    for change in changes:
        if change.before is None and change.after is not None:
            own = {key: value for key, value in change.after.items() if key != "rowid"}
            if form.is_followed(base, change.table, own):
                thread = own.get("thread_id")
                raise Conflict(f"thread {thread} {_WENT_ON}" if thread else _WENT_ON)


def _is_undone(base: Connection, change: Change) -> bool:
    if change.before is None:
        return change.after is None or stored(base, change.table, change.after["rowid"]) is None
    return stored(base, change.table, change.before["rowid"]) == change.before
