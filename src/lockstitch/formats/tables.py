"""Rows of a database as records: one record per row, named by its table and its key.

A row's value is a dict of its columns, in which the JSON column is decoded. A change of that JSON
changes its text only at that place; all the rest keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct, field, structs

from lockstitch.conversation.json_text import dump_like, replace_list
from lockstitch.conversation.parts import Path
from lockstitch.formats.interface import SQLITE, Format
from lockstitch.formats.records import Record, amend_record, encode_record, read_json

Columns = dict[str, Any]
# A GuardedConnection of ``sqlite``, which builds on this module.
Connection = Any
# The least number that a column can hold.
_FIRST = -(1 << 63)


class ProgramTable(Struct, frozen=True):
    """A table with a program's sessions.

    ``text`` names its JSON column, ``session`` the column with the session's id, and ``order`` the
    columns by which the program sorts. With ``counted``, the last of these is a number that SQLite
    counts up. ``where`` narrows down which rows are read, and old versions may lack an ``optional``
    table.
    """

    name: str
    text: str = ""
    session: str = "session_id"
    key: str = "id"
    order: tuple[str, ...] = ("id",)
    counted: bool = False
    where: str = ""
    optional: bool = False


class TableLayout(Struct, frozen=True):
    """The tables of a program, and the query for its sessions.

    The query returns id, project, time of the last change in seconds, and title.
    """

    tables: tuple[ProgramTable, ...]
    sessions: str


class Row(Record, eq=False):
    """A row: ``stored`` has its columns as in the database, ``column`` names the JSON one.

    A row that the database does not hold yet has no ``rowid``. A row whose JSON cannot be decoded
    is not ``readable``, and has None as its JSON.
    """

    table: str = ""
    column: str = ""
    rowid: int | None = None
    stored: Columns = field(default_factory=dict)
    readable: bool = True

    @property
    def json(self) -> Any:
        """The decoded value of the JSON column."""
        return self.value.get(self.column)

    @property
    def text(self) -> str:
        """The text of the JSON column as it will be written."""
        if self.fresh is not None:
            return self.fresh.decode("utf-8", "surrogatepass")
        found = self.stored.get(self.column)
        return found if type(found) is str else ""


class RowFormat(Format):
    """A program that keeps its sessions in an SQLite database.

    If a session is more than the rows with its id, the format finds and reads it itself. ``adds``
    says that a repair only adds rows, which disturb nothing, so that the program may keep running.
    """

    kinds: tuple[str, ...] = (SQLITE,)
    layout: TableLayout
    adds: bool = False
    # The triggers that a program is known to create, by the digests of their texts.
    triggers: frozenset[str] = frozenset()

    @property
    def tables(self) -> tuple[ProgramTable, ...]:
        """All tables that are read."""
        return self.layout.tables

    def is_record(self, value: dict[str, Any]) -> bool:
        return True

    def listed(self, base: Connection) -> Iterable[tuple[Any, ...]]:
        """Return the sessions, each with its id, project, time of its last change, and title."""
        found: Iterable[tuple[Any, ...]] = base.execute(self.layout.sessions)
        return found

    def rows(self, base: Connection, session: str) -> list[Row] | None:
        """Return the rows of a session; None means those that the layout names."""
        return None

    def search(self, base: Connection, rows: list[Row]) -> None:
        """Look for anything to report in what a session has besides the rows that were read."""
        return

    def session_of(self, row: Row) -> str:
        """Return the session that a row belongs to."""
        tables = {table.name: table for table in self.layout.tables}
        return str(row.stored[tables[row.table].session])

    def is_followed(self, base: Connection, table: str, columns: Columns) -> bool:
        """Whether the program has gone on from a row that a repair added."""
        return False


def row_of(table: ProgramTable, rowid: int, stored: Columns, start: int = 0) -> Row:
    """Return the record of a stored row, as if all JSON stood in one file, here at ``start``."""
    place = f"{table.name}.{stored.get(table.key)}"
    found = stored.get(table.text, "")
    raw = found.encode("utf-8", "surrogateescape") if type(found) is str else b""
    value, readable = dict(stored), True
    codes: tuple[str, ...] = ()
    if table.text:
        try:
            value[table.text], codes = read_json(raw)
        except ValueError:
            value[table.text], readable = None, False
    return Row(
        place,
        value,
        start=start,
        end=start + len(raw),
        table=table.name,
        column=table.text,
        rowid=rowid,
        stored=stored,
        readable=readable,
        codes=codes,
    )


def new_row(table: ProgramTable, value: Columns) -> Row:
    """Return a row that the database does not hold yet; its JSON is still decoded."""
    place = f"{table.name}.{value.get(table.key, 'new')}"
    fresh = encode_record(value[table.text]) if table.text else b""
    return Row(place, value, fresh=fresh, table=table.name, column=table.text)


def put_value(row: Row, path: Path, new: Any) -> Row:
    """Return a row with another value at a path of its JSON; the rest keeps its bytes."""
    if not path:
        fresh = dump_like(row.text, new).encode() if row.readable else encode_record(new)
        return _with(row, new, fresh)
    inner = Record(row.place, row.json, fresh=row.text.encode())
    changed = amend_record(b"\n", inner, path, new)
    return _with(row, changed.value, changed.fresh)


def put_list(row: Row, new: list[Any]) -> Row:
    """Return a row whose JSON is another list; elements in both keep their bytes."""
    return _with(row, new, replace_list(row.text, (), row.json, new).encode())


def put_fields(row: Row, new: dict[str, Any]) -> Row:
    """Return a row whose JSON is another object; fields that are the same keep their bytes."""
    old = row.json
    if old.keys() - new.keys():
        return put_value(row, (), new)
    for key, value in new.items():
        if key not in old or old[key] is not value:
            row = put_value(row, (key,), value)
    return row


def _with(row: Row, value: Any, fresh: bytes | None) -> Row:
    return structs.replace(row, value={**row.value, row.column: value}, fresh=fresh, readable=True)


def columns_of(row: Row) -> Columns:
    """Return the columns of a row as they will be stored."""
    columns = {**row.stored, **{k: v for k, v in row.value.items() if k != row.column}}
    if row.fresh is not None and row.column:
        columns[row.column] = row.text
    return columns


def rows_in(records: Iterable[Record], table: str) -> list[Row]:
    """Return the rows of one table."""
    return [row for row in records if isinstance(row, Row) and row.table == table]


def number_rows(
    table: ProgramTable, rows: Sequence[Row], next_key: Callable[[], int]
) -> list[tuple[Row, Columns]]:
    """Return rows with their columns, in the order in which the program must read them.

    If the key counts up, a new row gets the next number, and so does every row after it that would
    otherwise be read before it.
    """
    placed: list[tuple[Row, Columns]] = []
    last: Columns | None = None
    for row in rows:
        columns = columns_of(row)
        if table.counted:
            is_late = last is not None and _order_of(table, columns) <= _order_of(table, last)
            if row.rowid is None or is_late:
                columns[table.key] = next_key()
                before = last or columns
                # the other sort columns must not put the row before its neighbour
                for name in table.order[:-1]:
                    columns[name] = max(columns.get(name), before.get(name), key=sorting)
            last = columns
        placed.append((row, columns))
    return placed


def _order_of(table: ProgramTable, columns: Columns) -> list[tuple[int, Any]]:
    return [sorting(columns.get(name)) for name in table.order]


def moment(value: Any, before: bool = False) -> int | float:
    """Return the time in a column, 0 if it has none, or a time just ``before`` it."""
    time = value if type(value) in (int, float) else 0
    return max(time - 1, _FIRST) if before else time


def sorting(value: Any) -> tuple[int, Any]:
    """Return the key by which SQLite sorts a value: NULL, then numbers, text, bytes."""
    if value is None:
        return 0, 0
    if isinstance(value, (int, float)):
        return 1, value
    if type(value) is str:
        return 2, value.encode("utf-8", "surrogateescape")
    return 3, value
