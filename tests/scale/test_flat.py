"""What an operation costs does not grow with the store: counted, not timed."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lockstitch.session.store import Store
from lockstitch.stores.base import Backend, Listing
from lockstitch.stores.postgres import PostgresBackend, reading, schema
from lockstitch.stores.sqlite import SqliteBackend, connections
from tests import postgres_server

from .filling import TURN, fill, multiply, name_of

FEW, MANY = 20, 2000
SHORT, LONG = 10, 4000


Operation = Callable[[Backend], Any]


def opened(backend: Backend) -> None:
    Store(backend).session(name_of(7), create=False).close()


def appended(backend: Backend) -> None:
    with Store(backend).session(name_of(8), create=False) as session:
        session.note("one")


def listed(backend: Backend) -> None:
    after = min(map(name_of, range(FEW)))
    assert len(list(backend.sessions(after=after, limit=10))) == 10


OPERATIONS = [opened, appended, listed]


class Counted:
    """A SQLite store that counts the steps of SQLite's machine, and notes the statements."""

    def __init__(self, path: Path, sessions: int) -> None:
        with SqliteBackend(path) as backend:
            multiply(backend, sessions)
            fill(backend, "short", SHORT)
            fill(backend, "long", LONG)
        self.path = path
        self.steps = 0
        self.statements: set[str] = set()
        self.backend = SqliteBackend(path, connect=self._connect)

    def _connect(self, uri: str) -> sqlite3.Connection:
        connection = connections.connect(uri)
        connection.set_progress_handler(self._step, 1)
        connection.set_trace_callback(self.statements.add)
        return connection

    def _step(self) -> int:
        self.steps += 1
        return 0

    def cost(self, operation: Operation) -> int:
        operation(self.backend)
        before = self.steps
        operation(self.backend)
        return self.steps - before


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Counted]]:
    folder = tmp_path_factory.mktemp("scale")
    made = {count: Counted(folder / f"{count}.db", count) for count in (FEW, MANY)}
    yield made
    for counted in made.values():
        counted.backend.close()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_sqlite_takes_as_many_steps_in_a_large_store_as_in_a_small_one(
    files: dict[int, Counted], operation: Operation
) -> None:
    few, many = files[FEW].cost(operation), files[MANY].cost(operation)
    assert 0 < many <= few * 1.1 + 5


def test_sqlite_takes_as_many_steps_for_an_append_to_a_long_session(
    files: dict[int, Counted],
) -> None:
    counted = files[MANY]
    costs = []
    for name in ("short", "long"):
        with Store(counted.backend).session(name) as session:
            costs.append(counted.cost(lambda _backend, own=session: own.note("one")))
    assert 0 < costs[1] <= costs[0] * 1.1 + 5


def test_sqlite_finds_every_row_by_an_index(files: dict[int, Counted]) -> None:
    counted = files[MANY]
    for operation in OPERATIONS:
        operation(counted.backend)
    with sqlite3.connect(f"file:{counted.path}?mode=ro", uri=True) as connection:
        plans = {
            statement: [row[3] for row in connection.execute(f"explain query plan {statement}")]
            for statement in counted.statements
            if statement.startswith(("select", "update", "insert", "delete"))
        }
    connection.close()
    assert any("sessions" in statement for statement in plans)
    assert any("events" in statement for statement in plans)
    for statement, plan in plans.items():
        assert not [step for step in plan if step.startswith("SCAN")], statement


@pytest.fixture(scope="module")
def database() -> str:
    dsn = postgres_server.shared().fresh()
    with PostgresBackend(dsn) as backend:
        multiply(backend, MANY)
        fill(backend, "long", LONG)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE lockstitch.sessions, lockstitch.records")
    return dsn


def test_postgres_reads_no_table_from_end_to_end(database: str) -> None:
    before = _read_in_passing(database)
    with PostgresBackend(database) as backend:
        for operation in OPERATIONS:
            operation(backend)
        with Store(backend).session("long") as session:
            session.note("one")
    after = _read_in_passing(database)
    assert after == before


def _read_in_passing(dsn: str) -> Any:
    """How many rows were read by scans of whole tables; asked when no other connection is left."""
    server = postgres_server.shared()
    name = dsn.rpartition("/")[2]
    while (name,) in server.execute("SELECT datname FROM pg_stat_activity"):
        time.sleep(0.01)
    rows = "SELECT relname, seq_tup_read FROM pg_stat_user_tables WHERE schemaname = 'lockstitch'"
    return sorted(row for row in server.execute(rows, name) if row[0] in {"sessions", "records"})


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (schema.HEAD, (name_of(7),)),
        reading.listing(Listing(name_of(7)), 50),
        reading.listing(Listing(name_of(7), tag="x"), 50),
        (schema.READ, (1, 0, 10, 1000, 1 << 20)),
    ],
)
def test_postgres_plans_with_an_index(
    database: str, statement: str, values: tuple[Any, ...]
) -> None:
    with psycopg.connect(database) as connection:
        rows = connection.execute(f"EXPLAIN {statement}", values).fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert "Index" in plan
    assert "Seq Scan" not in plan


def test_postgres_gives_all_of_a_long_session_and_of_a_long_list(database: str) -> None:
    with PostgresBackend(database) as backend:
        assert len(list(backend.read("long"))) >= LONG // 2 * TURN
        assert len(list(backend.sessions())) == MANY + 1
