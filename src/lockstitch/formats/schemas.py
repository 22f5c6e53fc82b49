"""Whether the tables of a database are those of its program: plain ones, with plain columns.

Reading is declined where a table that is read is a view or a virtual one, or where a column that
is read would be computed. What else a later version of the program has (columns, tables, indexes)
is left alone. Writing is declined, too, where it would run anything that the program is not known
to have: a trigger, or a column that is computed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b

from lockstitch.errors import Unreadable
from lockstitch.formats.tables import RowFormat, Table
from lockstitch.formats.untrusted import Connection, shown, tables_of

_ORDINARY = 0
_SPACE = re.compile(r"\s+")
_OTHER = "has other tables or columns than are known"
_KEPT = "; nothing was written, and reading it is safe"


def names_of(base: Connection, table: str) -> list[str]:
    """Return the columns of a table that hold values; those that are computed are left out."""
    if table not in base.names:
        found = _columns(base, table)
        base.names[table] = [name for name, kind in found if kind == _ORDINARY and _is_text(name)]
    return base.names[table]


def require_known(base: Connection, form: RowFormat) -> None:
    """Raise Unreadable unless all tables that a format reads are plain ones; looks once."""
    if form.name in base.known:
        return
    known = tables_of(base)
    computed: set[tuple[str, str]] = set()
    for table in form.tables:
        if table.name not in known:
            if table.optional:
                continue
            raise Unreadable(f"{_OTHER}: there is no table {table.name}, as {form.title} has one")
        _require_plain(base, table, form)
        columns = _columns(base, table.name)
        computed |= {(table.name, name.lower()) for name, kind in columns if kind != _ORDINARY}
        _require_columns(table, [name for name, kind in columns if kind == _ORDINARY], form)
    base.guard.computed = frozenset(computed)
    base.known.add(form.name)


def _require_plain(base: Connection, table: Table, form: RowFormat) -> None:
    query = "SELECT type, rootpage, sql FROM sqlite_master WHERE lower(name) = ?"
    [(kind, page, text), *others] = base.execute(query, (table.name,)).fetchall()
    # What SQLite keeps of a plain table always begins like that; what says of itself that it
    # is one need not be.
    opening = rf"create\s+table\s+(main\s*\.\s*)?[\"'`\[]?{re.escape(table.name)}[\"'`\]]?\s*\("
    is_plain = type(page) is int and page > 0 and type(text) is str
    if kind != "table" or others or not is_plain or not re.match(opening, text, re.IGNORECASE):
        raise Unreadable(f"{_OTHER}: {table.name} is not a plain table, as that of {form.title} is")


def _require_columns(table: Table, names: list[str], form: RowFormat) -> None:
    if any(name.lower() == "rowid" for name in names):
        raise Unreadable(f"{_OTHER}: {table.name} has a column rowid, that of {form.title} not")
    wanted = (table.session, table.key, *table.order, *([table.text] if table.text else []))
    for name in wanted:
        if name not in names:
            raise Unreadable(
                f"{_OTHER}: {table.name} has no plain column {name}, as that of {form.title} has"
            )


def _columns(base: Connection, table: str) -> list[tuple[str, int]]:
    doubled = table.replace('"', '""')
    return [(row[1], row[6]) for row in base.execute(f'PRAGMA table_xinfo("{doubled}")')]


def _is_text(name: str) -> bool:
    """Whether a name can stand in a statement: one that is not UTF-8 cannot."""
    return name.isascii() or not any("\ud800" <= one <= "\udfff" for one in name)


def require_writable(base: Connection, form: RowFormat) -> None:
    """Raise Unreadable if a write to the tables of a format would run what is not known."""
    require_known(base, form)
    tables = {table.name for table in form.tables}
    allowed: set[str] = set()
    for name, text in _triggers(base, tables):
        if not _is_known(base, name, text, form.triggers):
            raise Unreadable(
                f"has a trigger {shown(name)} that is not known to be one of {form.title}, and "
                f"that a write would run{_KEPT}"
            )
        allowed.add(name.lower())
    for table in tables & tables_of(base):
        for name, kind in _columns(base, table):
            if kind != _ORDINARY or not _is_text(name):
                raise Unreadable(
                    f"has a column {shown(name)} in the table {table} that is not known to be one "
                    f"of {form.title}, and that a write would compute{_KEPT}"
                )
    if allowed:
        # They read JSON, which SQLite counts among what no schema may do unless it is trusted. No
        # function is there but SQLite's own, and no other trigger or view gets past the guard.
        base.execute("PRAGMA trusted_schema = on")
    base.guard.triggers = frozenset(allowed)


def _triggers(base: Connection, tables: Iterable[str]) -> Iterator[tuple[str, str]]:
    query = "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger'"
    for name, table, text in base.execute(query).fetchall():
        if str(table).lower() in tables:
            yield str(name), str(text)


def _is_known(base: Connection, name: str, text: str, known: frozenset[str]) -> bool:
    """Whether a trigger is, word for word, one that the program makes, and the only one so named.

    Were there a second text with its name in it, SQLite might take that for the trigger.
    """
    query = "SELECT count(*) FROM sqlite_master WHERE instr(lower(sql), lower(?))"
    [(count,)] = base.execute(query, (name,)).fetchall()
    return count == 1 and digest_of(text) in known


def digest_of(trigger: str) -> str:
    """Return what a trigger is known by: its text, whatever its spaces are."""
    text = _SPACE.sub(" ", trigger.strip().lower()).replace(
        "create trigger if not exists", "create trigger"
    )
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
