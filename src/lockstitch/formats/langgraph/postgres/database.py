"""One connection to a PostgreSQL database that others use: short transactions and clear errors.

Everything is named with its schema and every setting holds for one transaction, so a pooler that
gives each transaction another connection changes nothing. Every transaction itself makes sure that
the tables may be used, and locks them, so that none is replaced in the meantime.

The saver for Python creates its tables in the first schema of the search path, that of LangGraph.js
in a schema that its user names. So all schemas are searched, unless the address names one
(``?schema=name``, or a search path in libpq's own ``options``).

If LangGraph's own saver is used for reading, it runs without its schema in the search path.
Otherwise anyone who may create functions in that schema could have them called in place of the
server's own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, LiteralString, Self, TypeVar

import psycopg
from msgspec import Struct
from psycopg import IsolationLevel
from psycopg.sql import SQL, Composable, Composed, Identifier

from lockstitch.errors import (
    Busy,
    LockstitchError,
    Moved,
    UnknownFormat,
    Unreadable,
    Unsure,
    UsageError,
    Where,
)
from lockstitch.stores import addresses
from lockstitch.stores.postgres import trust
from lockstitch.stores.postgres.connections import (
    Connection,
    ServerAddress,
    address_of,
    is_rolled_back,
    is_worth_another_try,
)

# A statement of ours that takes longer is in someone's way.
_LIMITS = (
    "SET LOCAL statement_timeout = '60s'; SET LOCAL lock_timeout = '5s'; "
    "SET LOCAL idle_in_transaction_session_timeout = '120s'"
)
TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
# Earlier versions created lockstitch_runs and lockstitch_run_items for shared runs; these are left
# alone and never read.
OUR_TABLES = ("lockstitch_repairs",)
_TRIES = 3
# Tables that look unchanged are not checked closely again for this many seconds.
_FRESH = 60.0
_PAUSE = 0.5
_KINDS: dict[str, tuple[type[LockstitchError], str]] = {
    "25006": (UsageError, "the server is a replica or read-only; name the primary"),
    "42501": (Unreadable, "the role lacks a privilege that this needs"),
    "42P01": (Unreadable, "a table of LangGraph's checkpoints is gone"),
    "42703": (Unreadable, "a table of LangGraph's checkpoints lacks a column"),
    "23505": (Moved, "the thread was continued meanwhile"),
    "53100": (Unreadable, "the server's disk is full"),
    "53200": (Unreadable, "the server is out of memory"),
    "53300": (Busy, "the server has no connection left"),
    "55P03": (Busy, "the server gave up waiting for a lock"),
    "57014": (Busy, "the server cancelled the statement, or its time was up"),
    "40001": (Busy, "the server could not serialize it with what others wrote"),
    "40P01": (Busy, "the server broke a deadlock"),
    "XX001": (Unreadable, "the server found damaged data"),
    "XX002": (Unreadable, "the server found a damaged index"),
}

T = TypeVar("T")
Row = tuple[Any, ...]


class ServerGone(Unreadable):
    """The server cannot be reached any more, so there is no use in trying other threads."""


class DatabaseOptions(Struct, frozen=True):
    """The parts of an address that libpq does not know.

    These are a schema, and the owners whose tables are trusted.
    """

    dsn: str
    schema: str | None = None
    owners: tuple[str, ...] = ()
    has_path: bool = False

    def __repr__(self) -> str:
        """Show the address without secrets."""
        return f"DatabaseOptions({addresses.public(self.dsn)!r}, {self.schema!r})"


def parse_options(url: str) -> DatabaseOptions:
    """Split an address into the part that libpq reads and our own options."""
    found = addresses.parsed(url)
    if found is None:
        raise UsageError(addresses.UNREAD).about(addresses.public(url))
    # A lease is for a Lockstitch store in the same database; an invalid one is refused here, too.
    try:
        lease = float(found.last("lease") or 1)
    except ValueError:
        lease = 0.0
    if not 0 < lease < float("inf"):
        raise UsageError("lease must be a number of seconds greater than 0, as in lease=30")
    return DatabaseOptions(
        found.plain,
        found.last("schema") or None,
        found.all_of("owner"),
        "search_path" in found.values.get("options", ""),
    )


class Database:
    """A connection that is opened when it is needed, and opened again if it is lost.

    Without a ``schema`` it only serves to look at what the database holds.
    """

    def __init__(self, url: str, schema: str | None = None) -> None:
        self.options = parse_options(url)
        self.address: ServerAddress = address_of(self.options.dsn)
        self._schema = schema
        self._shown = addresses.public(url)
        self._known: dict[tuple[tuple[str, ...], bool], tuple[list[Row], float]] = {}
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        """Return the database itself; nothing is opened yet."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def look(self, work: Callable[[Connection], T]) -> T:
        """Run ``work`` on what the server itself knows of the database, and on no other tables."""
        return self._do(work, (), is_read=True)

    def read(self, work: Callable[[Connection], T], *, ours: bool = False) -> T:
        """Run ``work``, which only reads, in one short transaction on one state of the database.

        If the connection is lost on the way, ``work`` is run again over another one. ``ours`` says
        that our own tables are read, too.
        """
        return self._do(work, (*TABLES, *OUR_TABLES) if ours else TABLES, is_read=True)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run ``work``, which writes, in one short transaction: all of it, or nothing.

        If the connection is lost on the way, this raises ``Unsure``: the data may or may not be
        written.
        """
        return self._do(work, (*TABLES, *OUR_TABLES), is_read=False)

    def _do(self, work: Callable[[Connection], T], tables: tuple[str, ...], *, is_read: bool) -> T:
        level = IsolationLevel.REPEATABLE_READ if is_read else IsolationLevel.READ_COMMITTED
        where = self.address.url
        for tried in range(1, _TRIES + 1):
            try:
                with self._transaction(level, tables, read_only=is_read) as made:
                    return work(made)
            except psycopg.Error as error:
                if is_rolled_back(error):
                    if tried == _TRIES or not is_worth_another_try(error):
                        raise translate_sqlstate(error, where) from None
                else:
                    self.close()
                    if not is_read:
                        raise Unsure("the connection was lost in a write").about(where) from None
                    if tried == _TRIES:
                        text = "the connection was lost while reading, several times"
                        raise ServerGone(f"{text}; nothing was written").about(where) from None
            time.sleep(_PAUSE * tried)
        raise AssertionError("unreachable")

    @contextmanager
    def _transaction(
        self, level: IsolationLevel, tables: tuple[str, ...], *, read_only: bool
    ) -> Iterator[Connection]:
        connection = self._connection
        if connection is None or connection.closed:
            try:
                connection = self._connection = self.address.connect()
            except Unreadable as error:
                raise ServerGone(error.message).about(error.target) from None
        connection.isolation_level = level
        connection.read_only = read_only
        with connection.transaction():
            # Only triggers that a repair sets off may need views. Everything goes in one round
            # trip.
            first = [trust.SAFELY, _LIMITS, *([trust.NO_VIEWS] if read_only else [])]
            if not tables:
                connection.execute("; ".join(first))
                yield connection
                return
            schema = self._schema
            assert schema is not None  # noqa: S101 - reading rows takes a schema
            names = SQL(", ").join(SQL("ONLY ") + Identifier(schema, name) for name in TABLES)
            lock = SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(names)
            look = trust.look(schema, tables)
            cursor = connection.execute(SQL("; ").join([*map(SQL, first), lock, look]))
            while cursor.nextset():
                pass
            seen = cursor.fetchall()
            # Check closely only tables that were not checked a moment ago, or have changed since.
            known = self._known.get((tables, read_only))
            if known is None or known[0] != seen or time.monotonic() - known[1] > _FRESH:
                self.require_trusted(connection, schema, tables, writes=not read_only)
                self._known[tables, read_only] = (seen, time.monotonic())
            yield connection

    def require_trusted(
        self, connection: Connection, schema: str, tables: tuple[str, ...], *, writes: bool
    ) -> None:
        """Raise ``Untrusted`` if others own tables, or if some of their rows are hidden."""
        wanted = trust.Wanted(schema, tables, self.options.owners, writes)
        if found := trust.doubts(connection, wanted):
            raise trust.error_of(found, Where(self.address.url), self._shown)


def translate_sqlstate(error: psycopg.Error, where: str) -> LockstitchError:
    """Return what a reported error means; its own text may quote stored data."""
    code = error.sqlstate or ""
    kind, text = _KINDS.get(code, (Unreadable, "the server refused it"))
    return kind(f"{text} (SQLSTATE {code or 'none'}); nothing was written").about(where)


_FIND = """
SELECT n.nspname,
    EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = w.oid AND a.attname = 'task_path'),
    (SELECT count(*) FROM pg_attribute a WHERE a.atttypid IN ('text'::regtype, 'varchar'::regtype)
        AND (a.attrelid, a.attname) IN ((c.oid, 'thread_id'), (c.oid, 'checkpoint_id'),
            (b.oid, 'version'), (w.oid, 'task_id')))
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class b ON b.relnamespace = n.oid AND b.relname = 'checkpoint_blobs'
JOIN pg_class w ON w.relnamespace = n.oid AND w.relname = 'checkpoint_writes'
WHERE c.relname = 'checkpoints' AND n.nspname !~ '^pg_'
    AND (c.relkind IN ('r', 'p') OR n.nspname = %(schema)s::text)
ORDER BY n.nspname
"""
# The search path before anyone changes it for the transaction.
_RESET = """
SELECT set_config('search_path', reset_val, true) FROM pg_settings WHERE name = 'search_path'
"""
_IS_OWN = """
SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'lockstitch' AND c.relname = 'versions'
"""
_WHOLE = 4


class LangGraphSchema(Struct, frozen=True):
    """A schema with LangGraph's tables; those of LangGraph.js have no paths of tasks."""

    schema: str
    has_paths: bool = True

    def sql(self, statement: LiteralString, **names: Composable) -> Composed:
        """Put the names of the tables into a statement that is run with values (maybe none)."""
        path = SQL("task_path" if self.has_paths else "''")
        # In a statement with values, psycopg reads a single percent sign as a placeholder.
        schema = self.schema.replace("%", "%%")
        found = {name: Identifier(schema, name) for name in (*TABLES, *OUR_TABLES)}
        return SQL(statement).format(task_path=path, **found, **names)


class DatabaseContent(Struct, frozen=True):
    """What a database holds: a Lockstitch store, schemas of LangGraph, or both."""

    is_own: bool
    homes: tuple[LangGraphSchema, ...]


def look_into(url: str) -> DatabaseContent:
    """Return what a database holds; schemas that cannot be trusted come last.

    So a caller that goes through all of them has done everything possible before the first error.
    """
    with Database(url) as database:
        return database.look(lambda connection: _look_into(connection, database))


def _look_into(connection: Connection, database: Database) -> DatabaseContent:
    [(own,)] = connection.execute(_IS_OWN).fetchall()
    options = database.options
    listed = connection.execute(_FIND, {"schema": options.schema}).fetchall()
    schemas = {options.schema} if options.schema else None
    if schemas is None and options.has_path:
        # The schemas of a search path that the address itself sets.
        connection.execute(_RESET)
        [(path,)] = connection.execute("SELECT pg_catalog.current_schemas(false)").fetchall()
        connection.execute(trust.SAFELY)
        schemas = set(path)
    homes = [
        LangGraphSchema(schema, has_paths=paths)
        for schema, paths, columns in listed
        if columns == _WHOLE and (schemas is None or schema in schemas)
    ]
    strange = {
        home
        for home in homes
        if trust.doubts(connection, trust.Wanted(home.schema, TABLES, options.owners))
    }
    homes.sort(key=lambda home: home in strange)
    if not own and len(strange) == len(homes):
        for home in homes:
            database.require_trusted(connection, home.schema, TABLES, writes=False)
    if listed and not homes and all(row[2] < _WHOLE for row in listed):
        raise Unreadable(
            "its checkpoints do not have the form of PostgresSaver's: they come from the "
            "shallow saver, which keeps no history that a repair could build on, or from "
            "LangGraph Platform; neither is supported"
        ).about(database.address.url)
    return DatabaseContent(bool(own), tuple(homes))


def find_schemas(
    url: str, known: DatabaseContent | None = None
) -> list[tuple[str, LangGraphSchema]]:
    """Return the schemas with LangGraph's tables, each with an address that names it."""
    made = (known or look_into(url)).homes
    if not made and known is None:
        schema = parse_options(url).schema
        where = f"its schema {schema}" if schema else "it"
        raise UnknownFormat(
            f"{where} holds no LangGraph checkpoints: it lacks the tables checkpoints, "
            "checkpoint_blobs and checkpoint_writes"
        ).about(Database(url).address.url)
    if len(made) == 1:
        return [(url, made[0])]
    return [(addresses.with_option(url, "schema", home.schema), home) for home in made]


def find_schema(url: str) -> LangGraphSchema:
    """Return the one schema that an address leads to; raise Unreadable if there are several."""
    [(_, home), *others] = find_schemas(url)
    if others:
        names = ", ".join(sorted([home.schema, *(other.schema for _, other in others)]))
        raise Unreadable(f"several schemas hold checkpoints: {names}; add ?schema=NAME")
    return home


_TABLE = re.compile(r"(\b(?:from|join)\s+)(checkpoint(?:s|_blobs|_writes))\b", re.IGNORECASE)


def qualifying_cursor(schema: str) -> Any:
    """Return a cursor class that puts the schema before the names of the saver's tables."""
    name = Identifier(schema).as_string()

    class Qualifying(psycopg.Cursor[Any]):
        """Runs statements in which tables have no schema."""

        def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
            if isinstance(query, str):
                place = name if params is None else name.replace("%", "%%")
                query = _TABLE.sub(lambda found: f"{found[1]}{place}.{found[2]}", query)
            return super().execute(query, params, **options)

    return Qualifying
