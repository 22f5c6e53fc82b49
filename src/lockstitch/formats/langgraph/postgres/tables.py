"""Which tables of LangGraph's savers a PostgreSQL holds, and in which schemas.

The saver of Python makes them in the first schema of the search path, that of LangGraph.js in one
that its user names. So all schemas are looked at, unless the address names one (``?schema=name``,
or a search path in libpq's own ``options``).
"""

from __future__ import annotations

from typing import LiteralString

from msgspec import Struct
from psycopg.sql import SQL, Composable, Composed, Identifier

from lockstitch.errors import UnknownFormat, Unreadable
from lockstitch.formats.langgraph.postgres.database import Database, options_of
from lockstitch.stores.postgres.pool import Connection

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
WHERE c.relname = 'checkpoints' AND c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_'
ORDER BY n.nspname
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
        """Put the names of the tables into a statement."""
        path = SQL("task_path" if self.has_paths else "''")
        found = {name: self.table(name) for name in _NAMES}
        return SQL(statement).format(task_path=path, **found, **names)

    def table(self, name: str) -> Identifier:
        """Give a table with its schema."""
        return Identifier(self.schema, name)


_NAMES = (
    "checkpoints",
    "checkpoint_blobs",
    "checkpoint_writes",
    "lockstitch_repairs",
    "lockstitch_runs",
    "lockstitch_run_items",
)


class Found(Struct, frozen=True):
    """What a database holds: a store of Lockstitch's own, schemas of LangGraph, or both."""

    is_own: bool
    homes: tuple[Home, ...]


def found(url: str) -> Found:
    """Look what a database holds."""
    with Database(url) as database:
        return database.reading(lambda connection: _found(connection, url))


def _found(connection: Connection, url: str) -> Found:
    [(own,)] = connection.execute(_IS_OWN).fetchall()
    listed = connection.execute(_FIND).fetchall()
    options = options_of(url)
    schemas = {options.schema} if options.schema else _path(connection, options.dsn)
    homes = [
        Home(schema, has_paths=paths)
        for schema, paths, columns in listed
        if columns == _WHOLE and (schemas is None or schema in schemas)
    ]
    if listed and not homes and all(row[2] < _WHOLE for row in listed):
        raise Unreadable(
            f"{Database(url).address.url}: its checkpoints are of another shape than those of "
            "PostgresSaver: of the shallow saver, which keeps no history that a repair could hang "
            "on, or of LangGraph Platform; they are not supported"
        )
    return Found(bool(own), tuple(homes))


def _path(connection: Connection, dsn: str) -> set[str] | None:
    """Give the schemas of a search path that the address itself sets; None if it sets none."""
    if "search_path" not in dsn:
        return None
    [(schemas,)] = connection.execute("SELECT current_schemas(false)").fetchall()
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
    from urllib.parse import quote  # noqa: PLC0415 - few databases have several

    return f"{url}{'&' if '?' in url else '?'}schema={quote(schema, safe='')}"
