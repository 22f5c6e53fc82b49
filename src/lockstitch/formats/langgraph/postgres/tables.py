"""Which tables of LangGraph's savers a PostgreSQL holds, and in which schemas.

The saver of Python makes them in the first schema of the search path, that of LangGraph.js in one
that its user names. So all schemas are looked at, unless the address names one (``?schema=name``,
or a search path in libpq's own ``options``).
"""

from __future__ import annotations

from typing import LiteralString

from msgspec import Struct
from psycopg.sql import SQL, Composable, Composed, Identifier

from lockstitch import addresses
from lockstitch.errors import UnknownFormat, Unreadable
from lockstitch.formats.langgraph.postgres.database import (
    OUR_TABLES,
    TABLES,
    Database,
    options_of,
)
from lockstitch.stores.postgres import trust
from lockstitch.stores.postgres.connections import Connection

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
# What the search path is when nobody has changed it for the transaction.
_RESET = """
SELECT set_config('search_path', reset_val, true) FROM pg_settings WHERE name = 'search_path'
"""
_IS_OWN = """
SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'lockstitch' AND c.relname = 'versions'
"""
_WHOLE = 4


class Home(Struct, frozen=True):
    """A schema with LangGraph's tables; LangGraph.js has no paths of tasks in them."""

    schema: str
    has_paths: bool = True

    def sql(self, statement: LiteralString, **names: Composable) -> Composed:
        """Put the names of the tables into a statement, to be run with values, be it none."""
        path = SQL("task_path" if self.has_paths else "''")
        # Where there are values, psycopg takes a single percent sign for the place of one.
        schema = self.schema.replace("%", "%%")
        found = {name: Identifier(schema, name) for name in (*TABLES, *OUR_TABLES)}
        return SQL(statement).format(task_path=path, **found, **names)


class Found(Struct, frozen=True):
    """What a database holds: a store of Lockstitch's own, schemas of LangGraph, or both."""

    is_own: bool
    homes: tuple[Home, ...]


def found(url: str) -> Found:
    """Look what a database holds."""
    with Database(url) as database:
        return database.looking(lambda connection: _found(connection, database))


def _found(connection: Connection, database: Database) -> Found:
    """Look what a database holds; schemas that are not to be trusted come last.

    So whoever goes through all of them has done what he can before he is told of a stranger's.
    """
    [(own,)] = connection.execute(_IS_OWN).fetchall()
    options = database.options
    listed = connection.execute(_FIND, {"schema": options.schema}).fetchall()
    schemas = {options.schema} if options.schema else _path(connection, has_one=options.has_path)
    homes = [
        Home(schema, has_paths=paths)
        for schema, paths, columns in listed
        if columns == _WHOLE and (schemas is None or schema in schemas)
    ]
    strange = {home for home in homes if _is_strange(connection, database, home)}
    homes.sort(key=lambda home: home in strange)
    if not own and len(strange) == len(homes):
        for home in homes:
            database.require_trusted(connection, home.schema, TABLES, writes=False)
    if listed and not homes and all(row[2] < _WHOLE for row in listed):
        raise Unreadable(
            f"{database.address.url}: its checkpoints are of another shape than those of "
            "PostgresSaver: of the shallow saver, which keeps no history that a repair could build "
            "on, or of LangGraph Platform; they are not supported"
        )
    return Found(bool(own), tuple(homes))


def _is_strange(connection: Connection, database: Database, home: Home) -> bool:
    wanted = trust.Wanted(home.schema, TABLES, database.options.owners)
    return bool(trust.doubts(connection, wanted))


def _path(connection: Connection, *, has_one: bool) -> set[str] | None:
    """Give the schemas of a search path that the address itself sets; None if it sets none."""
    if not has_one:
        return None
    connection.execute(_RESET)
    [(schemas,)] = connection.execute("SELECT pg_catalog.current_schemas(false)").fetchall()
    connection.execute(trust.SAFELY)
    return set(schemas)


def homes(url: str, known: Found | None = None) -> list[tuple[str, Home]]:
    """Give the schemas with LangGraph's tables, each with an address that names it."""
    made = (known or found(url)).homes
    if not made and known is None:
        schema = options_of(url).schema
        where = f"its schema {schema}" if schema else "it"
        raise UnknownFormat(
            f"{Database(url).address.url}: {where} holds no checkpoints of LangGraph: the tables "
            "checkpoints, checkpoint_blobs and checkpoint_writes are not there"
        )
    if len(made) == 1:
        return [(url, made[0])]
    return [(with_schema(url, home.schema), home) for home in made]


def home_of(url: str) -> Home:
    """Give the one schema that an address leads to."""
    [(_, home), *others] = homes(url)
    if others:
        names = ", ".join(sorted([home.schema, *(other.schema for _, other in others)]))
        raise Unreadable(f"several schemas hold checkpoints: {names}; add ?schema=NAME")
    return home


def with_schema(url: str, schema: str) -> str:
    """Give an address that names a schema."""
    return addresses.with_option(url, "schema", schema)
