"""Sessions in the databases of other programs: read, write and restore their rows.

A write is one transaction. It first makes sure that the session is still, row for row, what was
read. Each row is then changed only if it has the expected content, and the images of all affected
rows, before and after, are safe in a backup before the transaction commits.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from lockstitch.errors import Busy, Conflict, Moved, UnknownFormat, Unreadable, UsageError
from lockstitch.files import backup as backups
from lockstitch.files.backup import Backup
from lockstitch.formats import sqlite
from lockstitch.formats.interface import SQLITE, Context, Transcript, format_named, recognize
from lockstitch.formats.records import Record
from lockstitch.formats.repair import RepairPlan
from lockstitch.formats.row_changes import (
    COUNTERS,
    Counts,
    Images,
    RowChange,
    apply_change,
    changes_in,
    checked_form,
    counter_changes,
    counters,
    form_of_images,
    image_of,
    is_change_undone,
    put_back,
    stored_row,
)
from lockstitch.formats.sqlite import (
    CHANGED,
    GuardedConnection,
    bind_values,
    database_users,
    explain_error,
    open_reading,
    open_writing,
    quoted,
    regular_path,
    shown_name,
    tables_of,
)
from lockstitch.formats.tables import (
    Columns,
    ProgramTable,
    Row,
    RowFormat,
    TableLayout,
    number_rows,
    row_of,
    rows_in,
    sorting,
)
from lockstitch.sources.source import Opened, Report, Source

# The end of the year 9999, in seconds; a later time is not valid.
_LATEST = 253_402_300_800
# The highest number that a row can have.
_LAST = (1 << 63) - 1
_DAMAGED = (
    "it is damaged in such a way that a repair of it could not be undone; nothing was written"
)
_UNWRITTEN = "; nothing was written"
_NO_ID = "its id is not text, so its rows cannot be told from others"

_kept_open = threading.local()

Keep = Callable[[Images], object]

_SESSION = "CAST(?1 AS TEXT)"


class ListedRow(Struct, frozen=True):
    """A session in a database; ``updated`` is in seconds since 1970.

    ``error`` says why the session cannot be read.
    """

    id: str
    project: str | None
    updated: float
    title: str = ""
    error: str | None = None


# Reading


def table_names(path: str | Path, *, follow: bool = True) -> set[str]:
    """Return the names of the tables in a database, which tell its program."""
    with open_reading(path, follow=follow) as base:
        return tables_of(base)


def list_sessions(path: str | Path, form: Any) -> list[ListedRow]:
    """Return the sessions in a database, the last changed first."""
    with open_reading(path, follow=True) as base:
        sqlite.require_known(base, checked_form(form))
        found = list(checked_form(form).listed(base))
    made = [_session_row(*row) for row in found]
    return sorted(made, key=lambda row: (-row.updated, row.id))


def _session_row(own: Any, project: Any, when: Any, title: Any) -> ListedRow:
    """Return a session for a listing; values of the wrong type in its row are left out."""
    is_time = isinstance(when, (int, float)) and 0 <= when < _LATEST
    return ListedRow(
        own if type(own) is str else shown_name(repr(own)),
        project if type(project) is str else None,
        float(when) if is_time else 0.0,
        title if type(title) is str else "",
        None if type(own) is str else _NO_ID,
    )


def load_rows(
    path: str | Path, form: Any, session: str, *, follow: bool = True, search: bool = False
) -> list[Record]:
    """Return the rows of one session, in the order in which its program reads them.

    With ``search``, the session's other rows are read, too, as far as its format does that.
    """
    kept: GuardedConnection | None = getattr(_kept_open, "base", None)
    if kept is not None and _kept_open.path == str(path):
        try:
            return _loaded(kept, form, session, search=search)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise explain_error(error, str(path), kept) from error
    with open_reading(path, follow=follow) as base:
        return _loaded(base, form, session, search=search)


def _loaded(base: GuardedConnection, form: Any, session: str, *, search: bool) -> list[Record]:
    base.budget.renew()
    sqlite.require_known(base, checked_form(form))
    # All rows of the session must come from one state.
    base.execute("BEGIN")
    try:
        found = _session_rows(base, checked_form(form), session)
    finally:
        # Each session is read from one state of the database; no state is held for longer than
        # that.
        with suppress(sqlite3.Error):
            base.execute("ROLLBACK")
    if not found:
        raise Unreadable("it holds no such session")
    if search:
        checked_form(form).search(base, found)
    return [*found]


@contextmanager
def kept_open(path: str | Path) -> Iterator[None]:
    """Let this thread read all sessions of a database over one connection during the block."""
    with open_reading(path, follow=True) as base:
        _kept_open.path, _kept_open.base = str(path), base
        try:
            yield
        finally:
            _kept_open.base = None


def _session_rows(base: GuardedConnection, form: RowFormat, session: str) -> list[Row]:
    """Return the rows of a session: those that its format selects, or all with its id."""
    own = form.rows(base, session)
    if own is not None:
        return own
    known = tables_of(base)
    found: list[Row] = []
    start = 0
    for table in form.layout.tables:
        if table.name not in known and table.optional:
            continue
        for rowid, columns in _selected(base, table, session):
            row = row_of(table, rowid, columns, start)
            # One more, so that no two rows begin at the same place.
            start = row.end + 1
            found.append(row)
    return found


def _selected(
    base: GuardedConnection, table: ProgramTable, session: str
) -> list[tuple[int, Columns]]:
    """Return the rows of a session, with their numbers, in the order of its program.

    They are sorted here, because SQLite would have to read all rows before it returns the first
    one, without limiting how much it stores meanwhile.
    """
    names = sqlite.names_of(base, table.name)
    wanted = ", ".join(map(quoted, ("rowid", *names)))
    where = f"{quoted(table.session)} = {_SESSION}"
    where += f" AND {table.where}" if table.where else ""
    query = f"SELECT {wanted} FROM {quoted(table.name)} WHERE {where}"  # noqa: S608 - quoted names
    found = [
        (rowid, dict(zip(names, columns, strict=True)))
        for rowid, *columns in base.execute(query, bind_values((session,)))
    ]
    return sorted(found, key=lambda row: [sorting(row[1][name]) for name in table.order])


class RowSource(Source, frozen=True):
    """A session in a program's SQLite database, which may hold many."""

    def open(self, *, follow_symlinks: bool = False, search: bool = False) -> Opened:
        if self.error is not None:
            raise Unreadable(self.error)
        form, name = self.form, str(self.session)
        loaded = load_rows(self.path, form, name, follow=follow_symlinks, search=search)
        return Opened(self, form.parse(loaded, Context(b"", name)))

    def glance(self) -> Opened:
        return self.open(follow_symlinks=True, search=True)

    def prove(self) -> Report | None:
        return None

    def describe(self, transcript: Transcript) -> Report:
        report = super().describe(transcript)
        # other sessions share the file, so its size says nothing
        report.size = transcript.size or sum(record.size for record in transcript.records)
        return report

    def require_closed(self, opened: Opened, way: str = "", *, is_named: bool = True) -> None:
        """Raise ``Busy`` if another process has the database open.

        If the repair only adds rows, a running thread is not affected, except that it gets a branch
        from which nobody continues. So a session that ``is_named`` is repaired all the same.
        """
        if not checked_form(self.form).adds:
            require_unused(self.path)
        elif not is_named:
            require_unused(self.path, ", or name one thread with --session")

    def write(
        self, opened: Opened, plan: RepairPlan, run: str, details: dict[str, Any]
    ) -> tuple[str | None, int]:
        before, after = plan.before.records, plan.after.records
        return write_rows(self.path, self.form, before, after, run, details), 0


def sources_in_database(path: str, name: str | None = None) -> list[Source]:
    """Return the sessions in a database; raise ``UnknownFormat`` if its program is not known."""
    form = format_named(name) if name else recognize(SQLITE, path, sorted(table_names(path)))[0]
    if form is not None and SQLITE not in form.kinds:
        raise UnknownFormat("it is a database, which that format does not use")
    if form is None:
        raise UnknownFormat("it is a database, but not one of a known program")
    found = list_sessions(path, form)
    return [RowSource(path, form.name, SQLITE, row.id, row.error) for row in found]


# Writing


def write_rows(  # noqa: PLR0913, PLR0917 - what to write where, and how it is written down
    path: str | Path,
    form: Any,
    before: Sequence[Record],
    after: Sequence[Record],
    run: str,
    details: dict[str, Any] | None = None,
) -> str:
    """Write changed rows with a backup of them; return the path of the backup's manifest.

    Raises ``Busy`` while another process has the database open: a call that looks open may still be
    running there, and its result would be lost once the call counts as answered. A repair that only
    adds rows is allowed, because an active run adds its own rows after them.
    """
    kept: list[Backup] = []
    real = regular_path(path, follow=False)
    if not checked_form(form).adds:
        require_unused(real)
    first = next((row for row in before if isinstance(row, Row)), None)
    session = None if first is None else checked_form(form).session_of(first)

    def keep(images: Images) -> None:
        kept.append(backups.keep_row_images(real, run, images, session=session))

    try:
        save_rows(real, form, before, after, keep)
    except Busy:
        raise
    except Conflict as error:
        raise (Moved if checked_form(form).adds else Conflict)(str(error)) from error
    if not kept:
        raise UsageError("nothing differs, so nothing was written")
    backup = backups.finish_rows(kept[0], details or {})
    return str(backup.file.with_suffix(".json"))


def require_unused(path: str, way: str = "") -> None:
    """Raise ``Busy`` if another process has a database open, as far as that can be known."""
    pids = database_users(path)
    if pids:
        raise Busy(
            f"process {', '.join(map(str, pids))} has it open and may be working on the session; "
            f"nothing was written: end that program first{way}"
        )


def save_rows(  # noqa: PLR0913 - what to write where, and what to do with the images
    path: str | Path,
    form: Any,
    before: Sequence[Record],
    after: Sequence[Record],
    keep: Keep,
    *,
    follow: bool = False,
) -> Images:
    """Write the difference between two states of a session, in one transaction.

    Raises ``Conflict``, and writes nothing, if the session is no longer what was read. ``keep``
    gets the images of the changed rows before the commit, and must have stored them when it
    returns.
    """
    layout = checked_form(form).layout
    with open_writing(path, follow=follow) as base:
        sqlite.require_writable(base, form)
        _require_same(base, form, before)
        counted = counters(base)
        changes = [apply_change(base, change) for change in _changes(base, layout, before, after)]
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
    base: GuardedConnection, form: RowFormat, before: Sequence[Record], images: Images
) -> None:
    """Raise ``Unreadable`` unless the rows just written can be read and restored one by one.

    This detects damaged pages that nothing has read so far.
    """
    session = form.session_of(next(row for row in before if isinstance(row, Row)))
    _session_rows(base, form, session)
    # Try the undo inside the transaction, and roll that back.
    base.execute("SAVEPOINT trial")
    try:
        put_back(base, form, images)
        _require_same(base, form, before)
    except Conflict as error:
        raise Unreadable(_DAMAGED) from error
    finally:
        base.execute("ROLLBACK TO trial")
        base.execute("RELEASE trial")


def _followed(
    base: GuardedConnection, before: Sequence[Record], changes: Sequence[RowChange]
) -> Iterator[RowChange]:
    """Yield the rows that a trigger of the program has changed as a consequence of our changes."""
    if not base.guard.triggers:
        return
    own = {(change.table, change.before["rowid"]) for change in changes if change.before}
    for row in before:
        if isinstance(row, Row) and (row.table, row.rowid) not in own:
            now = stored_row(base, row.table, row.rowid)
            old = {"rowid": row.rowid, **row.stored}
            if now != old:
                yield RowChange(row.table, old, now)


def _require_same(base: GuardedConnection, form: RowFormat, before: Sequence[Record]) -> None:
    """Raise ``Conflict`` unless the session's rows are exactly those that were read."""
    old = [row for row in before if isinstance(row, Row)]
    if not old:
        raise UsageError("it holds no rows of that session")
    # Rows that were added since count, too, so read the session again instead of these rows.
    now = _session_rows(base, form, form.session_of(old[0]))
    if [(r.table, r.rowid, r.stored) for r in now] != [(r.table, r.rowid, r.stored) for r in old]:
        raise Conflict(CHANGED)


def _changes(
    base: GuardedConnection, layout: TableLayout, before: Sequence[Record], after: Sequence[Record]
) -> Iterator[RowChange]:
    for table in layout.tables:
        old = {row.rowid: row for row in rows_in(before, table.name)}
        new = rows_in(after, table.name)
        kept = {row.rowid for row in new}
        for rowid, row in old.items():
            if rowid not in kept:
                yield RowChange(table.name, {"rowid": rowid, **row.stored}, None)
        if len(new) == len(old) and all(row is old.get(row.rowid) for row in new):
            continue
        for row, columns in number_rows(table, new, _next_key(base, table)):
            if row.rowid is None:
                yield RowChange(table.name, None, columns)
            elif columns != row.stored:
                rowid = columns[table.key] if table.counted else row.rowid
                image = {"rowid": row.rowid, **row.stored}
                yield RowChange(table.name, image, {"rowid": rowid, **columns})


def _next_key(base: GuardedConnection, table: ProgramTable) -> Callable[[], int]:
    """Return a function that returns unused row numbers, each higher than all used so far."""
    query = f"SELECT max(rowid) FROM {quoted(table.name)}"  # noqa: S608 - our own
    highest: int = base.execute(query).fetchone()[0] or 0
    # SQLite's counter remembers rows that were deleted; their numbers must not be reused.
    counted = counters(base).get(table.name, (0, 0))[1]
    last = max(highest, counted if type(counted) is int else 0)

    def following() -> int:
        nonlocal last
        if last >= _LAST:
            raise Unreadable(f"it has no number left for one more row of {table.name}{_UNWRITTEN}")
        last += 1
        return last

    return following


def session_of_backup(backup: Backup) -> str | None:
    """Return the session whose rows a backup holds; older backups do not name it themselves."""
    if backup.manifest.session is not None or backup.rows is None:
        return backup.manifest.session
    try:
        form, changes = form_of_images(backup.rows), changes_in(backup.rows)
    except Unreadable:
        return None
    for change in changes:
        columns = change.before or change.after or {}
        with suppress(KeyError, TypeError, ValueError):
            return form.session_of(Row("", None, table=change.table, stored=columns))
    return None


def restore_rows(backup: Backup, *, dry_run: bool = False) -> None:
    """Undo the repair of some rows, row for row; with ``dry_run`` only check that it is possible.

    Raises ``Conflict`` if the rows are no longer what the repair left, and ``Busy`` while another
    process has the database open, because it may have continued from them without having written
    that yet.
    """
    if backup.rows is None:
        raise UsageError("it is the backup of a file, not of rows")
    require_unused(backup.path)
    try:
        take_back(backup.path, backup.rows, _passed_counts(backup), dry_run=dry_run)
    except Conflict as error:
        later = _later(backup)
        if later is None or isinstance(error, Busy):
            raise
        raise Conflict(f"{error}: it was repaired again, so undo run {later} first") from error


def are_rows_undone(backup: Backup) -> bool:
    """Whether all rows of a backup are as they were before the repair."""
    with open_reading(backup.path, follow=False) as base:
        if backup.rows is not None:
            sqlite.require_known(base, form_of_images(backup.rows))
        changes = changes_in(backup.rows or {})
        return all(is_change_undone(base, one) for one in changes if one.table != COUNTERS)


def _later(backup: Backup) -> str | None:
    """Return the run of the session's last later repair, if that is still in effect."""
    own = session_of_backup(backup)
    for other in backups.list_backups(backup.path):
        if other.stem == backup.stem:
            return None
        if other.status != "undone" and session_of_backup(other) == own:
            return other.run
    return None


def _passed_counts(backup: Backup) -> Counts:
    """Return the counters that other repairs passed on to this one, as they had found them.

    Sessions share SQLite's counters. An undo of any repair but the last one leaves them as they
    are, and the undo of the last one then restores what was there before all of these repairs.
    """
    return {
        (change.before["name"], change.after["seq"]): change.before["seq"]
        for other in backups.list_backups(backup.path)
        if other.status == "undone" and other.rows is not None
        for change in changes_in(other.rows)
        if change.table == COUNTERS
        and change.before
        and change.after
        and type(change.before["seq"]) is int
    }


class _RolledBack(Exception):
    """Everything could be restored, but nothing shall be."""


def take_back(
    path: str | Path,
    images: Images,
    passed: Counts | None = None,
    *,
    dry_run: bool = False,
) -> None:
    """Restore rows to what they were before a repair; do nothing if they are that already.

    ``passed`` are counters that other, undone repairs passed on to this one. With ``dry_run`` it
    raises what it would raise, and changes nothing.
    """
    form = form_of_images(images)
    with suppress(_RolledBack), open_writing(path, follow=False) as base:
        sqlite.require_writable(base, form)
        put_back(base, form, images, passed)
        if dry_run:
            raise _RolledBack
