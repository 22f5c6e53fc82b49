"""Databases that somebody else made, opened so that nothing in them runs and nothing gets large.

A database brings its schema along, and SQLite does what stands there: views and generated columns
are computed when they are read, triggers run when anything is written. And its pages may point at
each other in circles, so that a small file has rows without end. So every database of another
program is opened by ``connect`` alone:

- Functions in the schema that could do anything but compute are not called (``trusted_schema``),
  and where Python offers it SQLite is in its defensive mode, with views off.
- Each statement is looked at before it runs: one that would run a view or a trigger, or that
  touches anything but rows, is refused.
- What a read gives, and what it costs, is held against the size of the file.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from lockstitch import inputs
from lockstitch.errors import Unreadable

# A value cannot be longer than its file; a column that was added later may have a default value
# in rows that do not hold it, and UTF-16 becomes longer as UTF-8.
_BYTES_EACH = 4
_BYTES_MORE = 16 << 20
# No row takes less room than this.
_LEAST_ROW = 8
_ROWS_MORE = 10_000
# Steps of SQLite's virtual machine, of which a row takes some dozens, and seconds.
_TICK = 10_000
_STEPS_EACH = 200
_STEPS_MORE = 50_000_000
_SECONDS_MORE = 60.0
_SECONDS_A_MEGABYTE = 2.0

_LIMITS = {
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1 << 20,
    sqlite3.SQLITE_LIMIT_COLUMN: 500,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 8,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 100_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 32,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 2000,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_READS = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_TRANSACTION,
    }
)
_WRITES = _READS | {
    sqlite3.SQLITE_INSERT,
    sqlite3.SQLITE_UPDATE,
    sqlite3.SQLITE_DELETE,
    sqlite3.SQLITE_SAVEPOINT,
}
_PRAGMAS = frozenset(
    {
        "application_id", "busy_timeout", "cell_size_check", "database_list", "foreign_keys",
        "mmap_size", "query_only", "recursive_triggers", "synchronous", "table_info",
        "table_xinfo", "trusted_schema", "user_version", "wal_autocheckpoint",
    }
)  # fmt: skip
_SETTINGS = (
    "trusted_schema = off",
    "cell_size_check = on",
    "mmap_size = 0",
    # What hangs on a row is no more ours to remove than what a trigger would do.
    "foreign_keys = off",
    "recursive_triggers = off",
)
# What Python 3.12 lets a program say to a connection.
_CONFIGURED = {
    "SQLITE_DBCONFIG_DEFENSIVE": True,
    "SQLITE_DBCONFIG_TRUSTED_SCHEMA": False,
    "SQLITE_DBCONFIG_ENABLE_VIEW": False,
    "SQLITE_DBCONFIG_ENABLE_FKEY": False,
    "SQLITE_DBCONFIG_WRITABLE_SCHEMA": False,
    "SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION": False,
    "SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER": False,
}
_ENDLESS = (
    "gives more than a file of its size can hold ({size:,} bytes): its pages point at each other "
    "in circles, or it was made to do so; nothing was changed"
)
_COSTLY = (
    "takes more work than a database of its size ({size:,} bytes) can need, so that reading was "
    "ended; nothing was changed"
)


class Budget:
    """What may be read of a database, and at what cost; all of it is held against its size.

    ``over`` says what was too much, and is empty as long as nothing was.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.over = ""
        self.renew()

    def renew(self) -> None:
        """Begin anew, as for each session of a database with many."""
        self.size = _size_of(self._path) + _size_of(f"{self._path}-wal")
        self._bytes = self.size * _BYTES_EACH + _BYTES_MORE
        self._rows = self.size // _LEAST_ROW + _ROWS_MORE
        self._steps = self.size * _STEPS_EACH + _STEPS_MORE
        seconds = _SECONDS_MORE + _SECONDS_A_MEGABYTE * (self.size >> 20)
        # What is packed in it may unpack to so much in all.
        self.unpackable = inputs.unpacked_budget(self.size)
        self._deadline = time.monotonic() + seconds

    @property
    def longest(self) -> int:
        """How long a value may be, and a row."""
        return self.size * _BYTES_EACH + _BYTES_MORE

    def spend(self, row: tuple[Any, ...]) -> None:
        """Count a row; raises Unreadable once it is more than the file can hold."""
        self._rows -= 1
        for value in row:
            if type(value) is str or type(value) is bytes:
                self._bytes -= len(value)
        if self._bytes < 0 or self._rows < 0:
            self.over = _ENDLESS.format(size=self.size)
            raise Unreadable(self.over)

    def tick(self) -> bool:
        """Count some steps; True ends the statement that is running."""
        self._steps -= _TICK
        if self._steps < 0 or time.monotonic() > self._deadline:
            self.over = _COSTLY.format(size=self.size)
            return True
        return False


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - for each session
    except OSError:
        return 0


class Guard:
    """Looks at each statement before it runs, and refuses what is more than rows.

    ``triggers`` are those that may run since their program made them, ``computed`` the columns
    that SQLite would compute, by table; all of them in lower case. ``refused`` says what was.
    """

    def __init__(self, *, writes: bool) -> None:
        self._actions = _WRITES if writes else _READS
        self.triggers: frozenset[str] = frozenset()
        self.computed: frozenset[tuple[str, str]] = frozenset()
        self.refused = ""

    def __call__(
        self, action: int, first: str | None, second: str | None, _: str | None, inner: str | None
    ) -> int:
        """Return whether a step of a statement may be taken; ``inner`` is a trigger or a view."""
        if inner is not None and inner.lower() not in self.triggers:
            self.refused = f"a view or a trigger {shown(inner)}"
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_READ:
            if ((first or "").lower(), (second or "").lower()) in self.computed:
                self.refused = f"a computed column {shown(first)}.{shown(second)}"
                return sqlite3.SQLITE_DENY
        elif action == sqlite3.SQLITE_PRAGMA:
            return sqlite3.SQLITE_OK if first in _PRAGMAS else sqlite3.SQLITE_DENY
        elif action == sqlite3.SQLITE_FUNCTION and second == "load_extension":
            return sqlite3.SQLITE_DENY
        elif action == sqlite3.SQLITE_UPDATE and first == "sqlite_master":
            # So SQLite asks before it declares json_each; it lets nobody change that table.
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_OK if action in self._actions else sqlite3.SQLITE_DENY


def shown(name: str | None) -> str:
    """Return a name from a database for a message: short, and without control characters."""
    text = "".join(one if one.isprintable() else "?" for one in name or "")
    return text if len(text) <= 60 else f"{text[:60]}…"  # noqa: PLR2004 - enough to find it


class Cursor(sqlite3.Cursor):
    """Counts every row that it gives."""

    def __init__(self, base: Connection) -> None:
        super().__init__(base)
        self._budget = base.budget

    def __next__(self) -> Any:
        """Return the next row."""
        row = super().__next__()
        self._budget.spend(row)
        return row

    def fetchone(self) -> Any:
        row = super().fetchone()
        if row is not None:
            self._budget.spend(row)
        return row

    def fetchmany(self, size: int | None = None) -> list[Any]:
        found: list[Any] = []
        for row in self:
            found.append(row)
            if len(found) >= (size or self.arraysize):
                break
        return found

    def fetchall(self) -> list[Any]:
        return list(self)


class Connection(sqlite3.Connection):
    """A connection to a database that somebody else made."""

    budget: Budget
    guard: Guard

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        # What was found out about its schema: formats whose tables it has, and their columns.
        self.known: set[str] = set()
        self.names: dict[str, list[str]] = {}

    def cursor(self, factory: Any = Cursor) -> Any:
        """Return a cursor that counts."""
        return super().cursor(factory)

    def execute(self, statement: str, values: Any = (), /) -> sqlite3.Cursor:
        """Run a statement by such a cursor; SQLite's own would not count."""
        cursor: sqlite3.Cursor = self.cursor()
        return cursor.execute(statement, values)

    @property
    def reason(self) -> str:
        """Why a statement was refused or ended by us; empty if it was not."""
        if self.budget.over:
            return self.budget.over
        return f"has {self.guard.refused} where a plain table belongs" if self.guard.refused else ""


def connect(path: str, wait: float, *, writes: bool = False) -> Connection:
    """Open a database that somebody else made."""
    uri = f"{Path(path).absolute().as_uri()}?mode={'rw' if writes else 'ro'}"
    base = sqlite3.connect(uri, uri=True, timeout=wait, isolation_level=None, factory=Connection)
    try:
        return _set_up(base, path, writes=writes)
    except BaseException:
        base.close()
        raise


def _set_up(base: Connection, path: str, *, writes: bool) -> Connection:
    # All of it before the first statement, which reads the schema.
    base.budget = Budget(path)
    base.guard = Guard(writes=writes)
    base.text_factory = text_of
    for limit, most in _LIMITS.items():
        base.setlimit(limit, most)
    base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(base.budget.longest, (1 << 31) - 1))
    if hasattr(base, "setconfig"):  # Python 3.12
        for name, value in _CONFIGURED.items():
            base.setconfig(getattr(sqlite3, name), value)
    base.set_progress_handler(base.budget.tick, _TICK)
    base.set_authorizer(base.guard)
    for setting in (*_SETTINGS, *(() if writes else ("query_only = on",))):
        base.execute(f"PRAGMA {setting}").close()
    return base


def tables_of(base: Connection) -> set[str]:
    """Return the names of the tables in a database."""
    found = base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {name for (name,) in found if type(name) is str}


def text_of(raw: bytes) -> str:
    """Read text so that its very bytes can be written again."""
    return raw.decode("utf-8", "surrogateescape")
