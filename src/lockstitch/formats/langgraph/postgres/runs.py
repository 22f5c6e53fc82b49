"""A run that several workers share, on one machine or on many.

The work is dealt out in items, each a span of threads. An item is claimed for a time (a lease by
the server's clock) and claimed anew by somebody else when its worker has not been heard of for so
long: a connection or a transaction that is held would not outlive a pooler. Items are made as they
are needed, one short transaction each, from where the last one ended; so whoever is killed, and
whenever, the next one goes on. What was done with an item is stored with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from psycopg import sql
from psycopg.types.json import Jsonb

from lockstitch.errors import UsageError
from lockstitch.formats.langgraph.postgres import queries
from lockstitch.formats.langgraph.postgres.database import Database
from lockstitch.formats.langgraph.postgres.reading import Span
from lockstitch.formats.langgraph.postgres.repairs import has_table, make_tables
from lockstitch.formats.langgraph.postgres.tables import Home
from lockstitch.stores.postgres.pool import Connection

ITEM = 200
_PAGE = 200
_MAKE = """
CREATE TABLE IF NOT EXISTS {lockstitch_runs} (
    name text PRIMARY KEY,
    options jsonb NOT NULL,
    made timestamptz NOT NULL DEFAULT clock_timestamp(),
    dealt text,
    items bigint NOT NULL DEFAULT 0,
    threads bigint NOT NULL DEFAULT 0,
    is_dealt boolean NOT NULL DEFAULT false
);
CREATE TABLE IF NOT EXISTS {lockstitch_run_items} (
    run text NOT NULL,
    number bigint NOT NULL,
    behind text,
    upto text NOT NULL,
    worker text,
    until timestamptz,
    done timestamptz,
    result jsonb,
    PRIMARY KEY (run, number)
);
CREATE INDEX IF NOT EXISTS lockstitch_run_items_open
    ON {lockstitch_run_items} (run, number) WHERE done IS NULL;
"""
_BEGIN = """
INSERT INTO {lockstitch_runs} (name, options) VALUES (%(run)s, %(options)s)
ON CONFLICT (name) DO NOTHING
"""
_OPTIONS = "SELECT options FROM {lockstitch_runs} WHERE name = %(run)s"
_CLAIM = """
UPDATE {lockstitch_run_items} AS i SET worker = %(worker)s,
    until = clock_timestamp() + make_interval(secs => %(lease)s)
WHERE i.run = %(run)s AND i.number = (
    SELECT o.number FROM {lockstitch_run_items} o WHERE o.run = %(run)s AND o.done IS NULL
        AND (o.until IS NULL OR o.until < clock_timestamp())
    ORDER BY o.number LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING i.number, i.behind, i.upto
"""
_NEXT = """
SELECT dealt, items, is_dealt FROM {lockstitch_runs} WHERE name = %(run)s FOR UPDATE SKIP LOCKED
"""
_DEAL = """
INSERT INTO {lockstitch_run_items} (run, number, behind, upto, worker, until)
VALUES (%(run)s, %(number)s, %(behind)s, %(upto)s, %(worker)s,
    clock_timestamp() + make_interval(secs => %(lease)s))
"""
_DEALT = """
UPDATE {lockstitch_runs} SET dealt = %(upto)s, items = %(number)s, threads = threads + %(count)s
WHERE name = %(run)s
"""
_ALL_DEALT = "UPDATE {lockstitch_runs} SET is_dealt = true WHERE name = %(run)s"
_BEAT = """
UPDATE {lockstitch_run_items} SET until = clock_timestamp() + make_interval(secs => %(lease)s)
WHERE run = %(run)s AND number = %(number)s AND worker = %(worker)s AND done IS NULL
"""
_FINISH = """
UPDATE {lockstitch_run_items} SET done = clock_timestamp(), result = %(result)s
WHERE run = %(run)s AND number = %(number)s AND worker = %(worker)s AND done IS NULL
"""
_STATE = """
SELECT r.is_dealt, r.items, r.threads,
    (SELECT count(*) FROM {lockstitch_run_items} i WHERE i.run = r.name AND i.done IS NULL)
FROM {lockstitch_runs} r WHERE r.name = %(run)s
"""
_HAS_WORK = """
SELECT NOT r.is_dealt OR EXISTS (
    SELECT FROM {lockstitch_run_items} i WHERE i.run = r.name AND i.done IS NULL
        AND (i.until IS NULL OR i.until < clock_timestamp()))
FROM {lockstitch_runs} r WHERE r.name = %(run)s
"""
_RESULTS = """
SELECT number, result FROM {lockstitch_run_items}
WHERE run = %(run)s AND number > %(behind)s AND done IS NOT NULL ORDER BY number LIMIT %(size)s
"""
_MENDED = """
SELECT thread_id, checkpoint_ns FROM {lockstitch_repairs}
WHERE run = %(run)s AND thread_id <= %(upto)s
    AND (%(behind)s::text IS NULL OR thread_id > %(behind)s)
"""


class Item(Struct, frozen=True):
    """A span of threads that this worker has claimed."""

    number: int
    span: Span


class State(Struct, frozen=True):
    """How far a run is: whether all is dealt out, and how many items are not done."""

    is_dealt: bool
    items: int
    threads: int
    unfinished: int

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self.is_dealt and not self.unfinished


class Run:
    """One run in one schema, seen by one worker."""

    def __init__(self, database: Database, home: Home, name: str, worker: str) -> None:
        self._database = database
        self._home = home
        self._known = {"run": name, "worker": worker, "lease": database.options.lease}
        self.name = name

    def begin(self, options: dict[str, Any]) -> None:
        """Begin the run, or join it; joining with other options is a mistake."""
        make_tables(self._database, self._home, "lockstitch_run_items", self._home.sql(_MAKE))
        values = {"run": self.name, "options": Jsonb(options)}
        begun, asked = self._home.sql(_BEGIN), self._home.sql(_OPTIONS)
        self._database.settling(lambda connection: connection.execute(begun, values))
        rows = self._database.reading(lambda c: c.execute(asked, values).fetchall(), ours=True)
        if rows[0][0] != options:
            raise UsageError(
                f"the run {self.name} was begun with other options ({_told(rows[0][0])}); "
                "repeat them, or take another name"
            )

    def claim(self) -> Item | None:
        """Claim an item that is free, or deal out the next one; None if there is none now."""
        return self._database.settling(self._claim) or self._database.settling(self._deal)

    def _claim(self, connection: Connection) -> Item | None:
        for row in connection.execute(self._home.sql(_CLAIM), self._known).fetchall():
            return Item(row[0], Span(row[1], row[2]))
        return None

    def _deal(self, connection: Connection) -> Item | None:
        rows = connection.execute(self._home.sql(_NEXT), self._known).fetchall()
        if not rows or rows[0][2]:
            return None
        [(behind, items, _)] = rows
        found = self._threads_behind(connection, behind)
        if found is None:
            connection.execute(self._home.sql(_ALL_DEALT), self._known)
            return None
        upto, count = found
        values = {**self._known, "behind": behind, "upto": upto, "number": items + 1}
        values["count"] = count
        connection.execute(self._home.sql(_DEAL), values)
        connection.execute(self._home.sql(_DEALT), values)
        return Item(items + 1, Span(behind, upto))

    def _threads_behind(self, connection: Connection, behind: str | None) -> tuple[str, int] | None:
        where = queries.FIRST_OF_ALL if behind is None else queries.FIRST_THREAD_BEHIND
        first = sql.SQL(where).format(bound=sql.SQL(""))
        statement = self._home.sql(queries.THREADS, first=first)
        rows = connection.execute(statement, {"behind": behind, "size": ITEM}).fetchall()
        return (rows[0][0], rows[0][1]) if rows else None

    def beat(self, item: Item) -> bool:
        """Keep an item for longer; False if somebody else has it by now."""
        return self._change(_BEAT, {"number": item.number})

    def finish(self, item: Item, result: dict[str, Any]) -> bool:
        """Store what became of an item; False if somebody else has it by now."""
        return self._change(_FINISH, {"number": item.number, "result": Jsonb(result)})

    def _change(self, statement: Any, values: dict[str, Any]) -> bool:
        made = self._home.sql(statement)
        known = {**self._known, **values}
        return self._database.settling(lambda c: c.execute(made, known).rowcount) == 1

    def mended(self, item: Item) -> set[tuple[str, str]]:
        """Give the threads of an item that this run has repaired already."""
        values = {"run": self.name, "behind": item.span.behind, "upto": item.span.upto}

        def read(connection: Connection) -> set[tuple[str, str]]:
            if not has_table(connection, self._home, "lockstitch_repairs"):
                return set()
            rows = connection.execute(self._home.sql(_MENDED), values).fetchall()
            return {(thread, namespace) for thread, namespace in rows}

        return self._database.reading(read, ours=True)

    def state(self) -> State:
        """Say how far the run is."""
        made = self._home.sql(_STATE)
        [row] = self._database.reading(lambda c: c.execute(made, self._known).fetchall(), ours=True)
        return State(*row)

    def has_work(self) -> bool:
        """Tell whether a worker would find an item, as far as can be seen now."""
        made = self._home.sql(_HAS_WORK)
        rows = self._database.reading(lambda c: c.execute(made, self._known).fetchall(), ours=True)
        return bool(rows and rows[0][0])

    def results(self) -> Iterator[dict[str, Any]]:
        """Give what became of every item that is done, in their order."""
        made, behind = self._home.sql(_RESULTS), 0
        while True:
            values = {"run": self.name, "behind": behind, "size": _PAGE}
            rows = self._database.reading(partial(_rows, statement=made, values=values), ours=True)
            for number, result in rows:
                behind = number
                yield result
            if len(rows) < _PAGE:
                return


def _rows(
    connection: Connection, statement: sql.Composed, values: dict[str, Any]
) -> list[tuple[Any, ...]]:
    return connection.execute(statement, values).fetchall()


def _told(options: dict[str, Any]) -> str:
    return msgspec.json.encode(options).decode()
