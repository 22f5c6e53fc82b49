"""Connections to the SQLite databases of other programs, which may be running.

A database is accessed only through SQLite. It is never opened, hashed or copied as a file, since
closing a plain file drops the locks that this process may hold on it. Reading opens it read-only.
In WAL mode that leaves an index (``-shm``) and an empty ``-wal`` behind if there were none. SQLite
itself removes them when the last connection that closes may write, so such a connection is opened
and closed here, unless the database may not be written at all. An existing log keeps its bytes; its
index, which is not data, may change. Writing never starts a checkpoint while others are connected:
SQLite before 3.51.3 may lose what another process writes in the meantime.

Nothing in such a database may run, and nothing may get large. The database brings its schema along,
and SQLite does what the schema says: it computes views and generated columns when they are read,
and runs triggers when anything is written. Its pages may also point at each other in circles, so
that a small file has endless rows. So every database of another program is opened by ``connect``
alone:

- Functions in the schema that could do anything but compute are not called (``trusted_schema``),
  and where Python offers it SQLite is in its defensive mode, with views off.
- Each statement is examined before it runs. One that would run a view or a trigger, or that
  touches anything but rows, is refused.
- What a read returns, and what it costs, is limited by the size of the file.

The tables must be plain tables with plain columns (``require_known``). Reading is declined if a
table to be read is a view or a virtual table, or if a column to be read would be computed. Anything
else that a later version of the program has (columns, tables, indexes) is left alone. Writing is
also declined if it would run anything that the program is not known to have: a trigger, or a
computed column (``require_writable``).
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from lockstitch.errors import Busy, Conflict, LockstitchError, Unreadable, UsageError, reason_of
from lockstitch.files import os_files, read
from lockstitch.formats.tables import ProgramTable, RowFormat

# A value cannot be longer than its file. But a column that was added later may have a default value
# in rows that do not hold it, and UTF-16 grows when it becomes UTF-8.
_BYTES_EACH = 4
_BYTES_MORE = 16 << 20
# No row takes less space than this.
_LEAST_ROW = 8
_ROWS_MORE = 10_000
# Limits on steps of SQLite's virtual machine, of which a row takes some dozens, and on seconds.
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
    # Rows that refer to a removed row must stay: removing them is not up to us, no more than
    # running a trigger.
    "foreign_keys = off",
    "recursive_triggers = off",
)
# Settings of a connection that Python 3.12 offers.
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
    "it returns more than a file of its size can hold ({size:,} bytes): its pages refer to each "
    "other in circles, or it was crafted to do so; nothing was changed"
)
_COSTLY = (
    "it takes more work than a database of its size ({size:,} bytes) can need, so reading was "
    "stopped; nothing was changed"
)


class ReadBudget:
    """How much may be read from a database, and at what cost, in proportion to its size.

    ``over`` says which limit was exceeded; it is empty as long as none was.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.over = ""
        self.renew()

    def renew(self) -> None:
        """Start again with a full budget, as for each session of a database with many."""
        self.size = _size_of(self._path) + _size_of(f"{self._path}-wal")
        self._bytes = self.size * _BYTES_EACH + _BYTES_MORE
        self._rows = self.size // _LEAST_ROW + _ROWS_MORE
        self._steps = self.size * _STEPS_EACH + _STEPS_MORE
        seconds = _SECONDS_MORE + _SECONDS_A_MEGABYTE * (self.size >> 20)
        # The total size to which packed values in it may unpack.
        self.unpackable = read.unpacked_budget(self.size)
        self._deadline = time.monotonic() + seconds

    @property
    def longest(self) -> int:
        """The maximum length of a value, or of a row."""
        return self.size * _BYTES_EACH + _BYTES_MORE

    def spend(self, row: tuple[Any, ...]) -> None:
        """Count a row; raise Unreadable once there is more than the file can hold."""
        self._rows -= 1
        for value in row:
            if type(value) is str or type(value) is bytes:
                self._bytes -= len(value)
        if self._bytes < 0 or self._rows < 0:
            self.over = _ENDLESS.format(size=self.size)
            raise Unreadable(self.over)

    def tick(self) -> bool:
        """Count some steps; return True to end the running statement."""
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


class StatementGuard:
    """Examines each statement before it runs, and refuses anything but access to rows.

    ``triggers`` may run, since their program created them. ``computed`` are the columns, by table,
    that SQLite would compute. All of these are in lower case. ``refused`` says what was refused.
    """

    def __init__(self, *, writes: bool) -> None:
        self._actions = _WRITES if writes else _READS
        self.triggers: frozenset[str] = frozenset()
        self.computed: frozenset[tuple[str, str]] = frozenset()
        self.refused = ""

    def __call__(
        self, action: int, first: str | None, second: str | None, _: str | None, inner: str | None
    ) -> int:
        """Return whether a step of a statement is allowed; ``inner`` is a trigger or a view."""
        if inner is not None and inner.lower() not in self.triggers:
            self.refused = f"a view or a trigger {shown_name(inner)}"
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_READ:
            if ((first or "").lower(), (second or "").lower()) in self.computed:
                self.refused = f"a computed column {shown_name(first)}.{shown_name(second)}"
                return sqlite3.SQLITE_DENY
        elif action == sqlite3.SQLITE_PRAGMA:
            return sqlite3.SQLITE_OK if first in _PRAGMAS else sqlite3.SQLITE_DENY
        elif action == sqlite3.SQLITE_FUNCTION and second == "load_extension":
            return sqlite3.SQLITE_DENY
        elif action == sqlite3.SQLITE_UPDATE and first == "sqlite_master":
            # SQLite asks this before it declares json_each; it lets nobody change that table.
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_OK if action in self._actions else sqlite3.SQLITE_DENY


def shown_name(name: str | None) -> str:
    """Return a name from a database for a message: short, and without control characters."""
    text = "".join(one if one.isprintable() else "?" for one in name or "")
    return text if len(text) <= 60 else f"{text[:60]}…"  # noqa: PLR2004 - enough to find it


class Cursor(sqlite3.Cursor):
    """A cursor that counts every row it returns."""

    def __init__(self, base: GuardedConnection) -> None:
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


class GuardedConnection(sqlite3.Connection):
    """A connection to a database that someone else made."""

    budget: ReadBudget
    guard: StatementGuard

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # What is known of its schema: the formats whose tables it has, and the columns of tables.
        self.known: set[str] = set()
        self.names: dict[str, list[str]] = {}

    def cursor(self, factory: Any = Cursor) -> Any:
        """Return a cursor that counts rows."""
        return super().cursor(factory)

    def execute(self, statement: str, values: Any = (), /) -> sqlite3.Cursor:
        """Run a statement with such a cursor; SQLite's own method would not count."""
        cursor: sqlite3.Cursor = self.cursor()
        return cursor.execute(statement, values)

    @property
    def reason(self) -> str:
        """Why we refused or ended a statement; empty if we did not."""
        if self.budget.over:
            return self.budget.over
        return (
            (f"has {self.guard.refused} where a plain table is expected")
            if self.guard.refused
            else ""
        )


def connect(path: str, wait: float, *, writes: bool = False) -> GuardedConnection:
    """Open a database that someone else made."""
    uri = f"{Path(path).absolute().as_uri()}?mode={'rw' if writes else 'ro'}"
    base = sqlite3.connect(
        uri, uri=True, timeout=wait, isolation_level=None, factory=GuardedConnection
    )
    try:
        # All of this comes before the first statement, which reads the schema.
        base.budget = ReadBudget(path)
        base.guard = StatementGuard(writes=writes)
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
    except BaseException:
        base.close()
        raise
    return base


def tables_of(base: GuardedConnection) -> set[str]:
    """Return the names of the tables in a database."""
    found = base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {name for (name,) in found if type(name) is str}


def text_of(raw: bytes) -> str:
    """Decode text so that exactly the same bytes can be written again."""
    return raw.decode("utf-8", "surrogateescape")


READ_WAIT = 5.0
WRITE_WAIT = 10.0

CHANGED = "it was continued meanwhile; nothing was written"
# The errors that SQLite reports if we refused or ended a statement.
_OURS = {"SQLITE_AUTH", "SQLITE_INTERRUPT", "SQLITE_ERROR"}
_OTHERS = "its tables or columns are not the known ones"
_UNREADABLE = {
    "NOTADB": "it is not an SQLite database, or is encrypted",
    "CORRUPT": "it is damaged: SQLite cannot read all of its pages",
    "NO_TEXT": "it is damaged: names in its schema are not text",
    "TOOBIG": "it holds a value that is longer than the file itself",
    "NOMEM": "it takes more memory than there is",
}


@contextmanager
def open_reading(path: str | Path, *, follow: bool) -> Iterator[GuardedConnection]:
    """Yield a connection that cannot write; raise Unreadable if SQLite cannot read the file."""
    real = regular_path(path, follow=follow)
    is_bare = not os.path.lexists(f"{real}-wal")
    base = None
    try:
        base = connect(real, READ_WAIT)
        yield base
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise explain_error(error, real, base) from error
    finally:
        if base is not None:
            base.close()
        if is_bare:
            _tidy(real)


@contextmanager
def open_writing(path: str | Path, *, follow: bool) -> Iterator[GuardedConnection]:
    """Yield a connection inside a transaction, which the end of the block commits as a whole."""
    real = regular_path(path, follow=follow)
    base = None
    try:
        base = connect(real, WRITE_WAIT, writes=True)
        base.execute("PRAGMA synchronous = FULL")
        base.execute("PRAGMA wal_autocheckpoint = 0")
        base.execute("BEGIN IMMEDIATE")
        yield base
        base.execute("COMMIT")
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise explain_error(error, real, base, writing=True) from error
    except OverflowError as error:
        raise Unreadable(
            "it already uses the highest number that there is; nothing was written"
        ) from (error)
    finally:
        if base is not None:
            with suppress(sqlite3.Error):
                if base.in_transaction:
                    base.execute("ROLLBACK")
            base.close()


def regular_path(path: str | Path, *, follow: bool) -> str:
    """Return the path of a regular file; a link is only followed with ``follow``."""
    real = os.path.realpath(path) if follow else os.fspath(path)
    try:
        found = os.lstat(real)
    except OSError as error:
        raise Unreadable(reason_of(error)) from error
    except ValueError as error:
        raise UsageError("it is not a valid file name") from error
    if stat.S_ISLNK(found.st_mode):
        raise UsageError(
            "it is a symbolic link; name the file itself, or allow it with --follow-symlinks"
        )
    if not stat.S_ISREG(found.st_mode):
        raise UsageError("it is not a regular file")
    return real


def database_users(path: str) -> list[int]:
    """Return the other processes that have a database open for writing, if that can be known."""
    if sys.platform == "darwin":
        return [pid for pid in os_files.openers(path) if pid != os.getpid()]
    if sys.platform != "linux":
        return []
    # O_PATH reads nothing, and closing such a handle leaves all locks alone.
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return [pid for pid in os_files.holders(handle) if pid != os.getpid()]
    finally:
        os.close(handle)


def _tidy(path: str) -> None:
    """Let SQLite remove the empty log and its index, which reading leaves behind."""
    # SQLite's message about a damaged schema may itself not be text.
    with suppress(OSError, sqlite3.Error, UnicodeDecodeError, Unreadable):
        if Path(f"{path}-wal").stat().st_size or not os.access(path, os.W_OK):
            return
        base = connect(path, 0, writes=True)
        try:
            tables_of(base)
        finally:
            base.close()


def explain_error(
    error: sqlite3.Error | UnicodeDecodeError,
    path: str,
    base: GuardedConnection | None,
    *,
    writing: bool = False,
) -> Exception:
    """Return an error that tells the user what SQLite's error means."""
    name = getattr(error, "sqlite_errorname", None) or ""
    done = "; nothing was written" if writing else ""
    if base is not None and base.reason and name in _OURS:
        return Unreadable(f"{base.reason}{'' if 'nothing was' in base.reason else done}")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        kind: type[LockstitchError] = Busy if writing else Unreadable
        return kind(f"it is locked by another program, which is writing to it{done}")
    if isinstance(error, UnicodeDecodeError):
        # SQLite tries to name what it cannot read, and that name is not text.
        return Unreadable(f"{_UNREADABLE['NO_TEXT']}{done}")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        if writing and name == "SQLITE_READONLY" and os.access(path, os.W_OK):
            return Unreadable(f"it can only be read, according to its first page{done}")
        if writing:
            return PermissionError(errno.EACCES, "cannot be written to", path)
        return Unreadable(
            "it cannot be opened: SQLite needs to write next to it, or its program must finish "
            "a transaction that a crash interrupted"
        )
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        code = errno.ENOSPC if "FULL" in name else errno.EIO
        return OSError(code, f"{os.strerror(code)}{done}", path)
    if name.startswith("SQLITE_CONSTRAINT"):
        return Conflict(CHANGED)
    why = _UNREADABLE.get(name.partition("_")[2].partition("_")[0], _OTHERS)
    return Unreadable(f"{why}{done}")


def quoted(name: str) -> str:
    """Quote the name of a table or a column for a query."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def value_slot(value: Any) -> str:
    """Return the placeholder for a value in a query."""
    return "CAST(? AS TEXT)" if type(value) is str else "?"


def bind_values(values: Iterable[Any]) -> list[Any]:
    """Return values as SQLite gets them: text as its bytes, which need not be UTF-8."""
    return [v.encode("utf-8", "surrogateescape") if type(v) is str else v for v in values]


_ORDINARY = 0
_SPACE = re.compile(r"\s+")
_OTHER = "its tables or columns are not the known ones"
_KEPT = "; nothing was written, and reading it is safe"


def names_of(base: GuardedConnection, table: str) -> list[str]:
    """Return the columns of a table that hold values, not those that are computed."""
    if table not in base.names:
        found = _columns(base, table)
        base.names[table] = [name for name, kind in found if kind == _ORDINARY and _is_text(name)]
    return base.names[table]


def require_known(base: GuardedConnection, form: RowFormat) -> None:
    """Raise Unreadable unless all tables that a format reads are plain; checks only once."""
    if form.name in base.known:
        return
    known = tables_of(base)
    computed: set[tuple[str, str]] = set()
    for table in form.tables:
        if table.name not in known:
            if table.optional:
                continue
            raise Unreadable(f"{_OTHER}: there is no table {table.name}, which {form.title} has")
        _require_plain(base, table, form)
        columns = _columns(base, table.name)
        computed |= {(table.name, name.lower()) for name, kind in columns if kind != _ORDINARY}
        names = [name for name, kind in columns if kind == _ORDINARY]
        if any(name.lower() == "rowid" for name in names):
            raise Unreadable(
                f"{_OTHER}: {table.name} has a column rowid, which that of {form.title} does not"
            )
        wanted = (table.session, table.key, *table.order, *([table.text] if table.text else []))
        lacking = next((name for name in wanted if name not in names), None)
        if lacking is not None:
            raise Unreadable(
                f"{_OTHER}: {table.name} has no plain column {lacking}, which that of "
                f"{form.title} has"
            )
    base.guard.computed = frozenset(computed)
    base.known.add(form.name)


def _require_plain(base: GuardedConnection, table: ProgramTable, form: RowFormat) -> None:
    query = "SELECT type, rootpage, sql FROM sqlite_master WHERE lower(name) = ?"
    [(kind, page, text), *others] = base.execute(query, (table.name,)).fetchall()
    # The stored text of a plain table always begins like this. Its type column alone proves
    # nothing, since anyone can have written it.
    opening = rf"create\s+table\s+(main\s*\.\s*)?[\"'`\[]?{re.escape(table.name)}[\"'`\]]?\s*\("
    is_plain = type(page) is int and page > 0 and type(text) is str
    if kind != "table" or others or not is_plain or not re.match(opening, text, re.IGNORECASE):
        raise Unreadable(f"{_OTHER}: {table.name} is not a plain table, as it is in {form.title}")


def _columns(base: GuardedConnection, table: str) -> list[tuple[str, int]]:
    doubled = table.replace('"', '""')
    return [(row[1], row[6]) for row in base.execute(f'PRAGMA table_xinfo("{doubled}")')]


def _is_text(name: str) -> bool:
    """Whether a name can be part of a statement, which it cannot unless it is UTF-8."""
    return name.isascii() or not any("\ud800" <= one <= "\udfff" for one in name)


def require_writable(base: GuardedConnection, form: RowFormat) -> None:
    """Raise Unreadable if a write to a format's tables would run anything unknown."""
    require_known(base, form)
    tables = {table.name for table in form.tables}
    allowed: set[str] = set()
    query = "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger'"
    for trigger, table_name, text in base.execute(query).fetchall():
        if str(table_name).lower() not in tables:
            continue
        name = str(trigger)
        if not _is_known(base, name, str(text), form.triggers):
            raise Unreadable(
                f"it has a trigger {shown_name(name)} that is not known to belong to "
                f"{form.title}, and that a write would run{_KEPT}"
            )
        allowed.add(name.lower())
    for table in tables & tables_of(base):
        for name, kind in _columns(base, table):
            if kind != _ORDINARY or not _is_text(name):
                raise Unreadable(
                    f"it has a column {shown_name(name)} in the table {table} that is not known "
                    f"to belong to {form.title}, and that a write would compute{_KEPT}"
                )
    if allowed:
        # These triggers read JSON, which SQLite allows only a trusted schema to do. The only
        # functions are SQLite's own, and no other trigger or view gets past the guard.
        base.execute("PRAGMA trusted_schema = on")
    base.guard.triggers = frozenset(allowed)


def _is_known(base: GuardedConnection, name: str, text: str, known: frozenset[str]) -> bool:
    """Whether a trigger is, word for word, one of the program's, and the only one with its name.

    If a second text contained its name, SQLite might take that for the trigger.
    """
    query = "SELECT count(*) FROM sqlite_master WHERE instr(lower(sql), lower(?))"
    [(count,)] = base.execute(query, (name,)).fetchall()
    return count == 1 and digest_of(text) in known


def digest_of(trigger: str) -> str:
    """Return the digest of a trigger's text, in which white space does not count."""
    text = _SPACE.sub(" ", trigger.strip().lower()).replace(
        "create trigger if not exists", "create trigger"
    )
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
