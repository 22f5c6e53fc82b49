"""Many threads: every statement finds its rows by an index, and memory stays flat."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from psycopg.sql import SQL

from lockstitch.formats.langgraph.postgres.database import Database, find_schema
from lockstitch.formats.langgraph.postgres.reading import ThreadReader
from tests.postgres_server import shared

from . import scale, stage

THREADS = 2_200
FEW = 400


@pytest.fixture(scope="module")
def full() -> str:
    """A database with many threads."""
    dsn = shared().fresh()
    stage.many(dsn, THREADS - 20, 20)
    return dsn


class Explaining:
    """A connection that shows how the server goes about every statement before it is run."""

    def __init__(self, connection: Any, seen: list[str]) -> None:
        self.connection = connection
        self.seen = seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def execute(self, statement: Any, values: Any = None, **how: Any) -> Any:
        words = statement if isinstance(statement, str) else statement.as_string(None)
        if "CREATE TABLE" not in words:
            text = SQL("EXPLAIN ") + (SQL(statement) if type(statement) is str else statement)
            plan = self.connection.execute(text, values).fetchall()
            self.seen.append("\n".join(row[0] for row in plan))
        return self.connection.execute(statement, values, **how)


def ours(plan: str) -> bool:
    return "checkpoint" in plan and "pg_class" not in plan


def scans(plan: str) -> Iterator[str]:
    for line in plan.splitlines():
        if found := re.search(r"((?:Seq|Index|Index Only|Bitmap Heap) Scan)\b.* on (\S+)", line):
            yield f"{found[1]} on {found[2]}"


def test_all_rows_are_found_by_the_primary_keys(full: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    connect = Database._transaction  # noqa: SLF001 - the one door to the server

    def explained(self: Database, *level: Any, **how: Any) -> Any:
        made = connect(self, *level, **how)
        return _wrapped(made, seen)

    monkeypatch.setattr(Database, "_transaction", explained)
    with Database(full, "public") as database:
        reader = ThreadReader(database, find_schema(full))
        pages = reader.pages(size=50)
        keys = next(pages)
        next(pages)
        broken = [one for one in reader.load(keys) if one.key[0].startswith("broken")]
        assert reader.complete(broken[0])
        assert reader.of_session("healthy-00000100") == [("healthy-00000100", "")]
    plans = [plan for plan in seen if ours(plan)]
    assert len(plans) > 7
    found = {scan for plan in plans for scan in scans(plan)}
    bad = {scan for scan in found if not scan.startswith("Index") and "lockstitch" not in scan}
    assert not bad, bad
    for table in stage.TABLES:
        assert any(f" on {table}" in scan for scan in found), table


@contextmanager
def _wrapped(manager: Any, seen: list[str]) -> Iterator[Any]:
    with manager as connection:
        yield Explaining(connection, seen)


def test_memory_stays_flat_and_processes_share_the_threads(full: str) -> None:
    few = shared().fresh()
    stage.many(few, FEW - 20, 20)
    small = scale.measured("check", few, "--json", "--workers", "1")
    large = scale.measured("check", full, "--json", "--workers", "2")
    assert (small["status"], large["status"]) == (1, 1)
    assert large["megabytes"] < small["megabytes"] + 15
    names = [one["session"] for one in json.loads(large["out"])["sessions"]]
    assert len(names) == THREADS
    assert names == sorted(set(names))


def test_large_threads_are_read_one_after_the_other(dsn: str, monkeypatch: Any) -> None:
    stage.many(dsn, 30, 0)
    groups: list[int] = []
    real = ThreadReader._fill  # noqa: SLF001 - what is held at a time

    def counted(self: ThreadReader, connection: Any, heads: Any) -> Any:
        groups.append(len(heads))
        return real(self, connection, heads)

    monkeypatch.setattr("lockstitch.formats.langgraph.postgres.reading.GROUP", 1000)
    monkeypatch.setattr(ThreadReader, "_fill", counted)
    with Database(dsn, "public") as database:
        reader = ThreadReader(database, find_schema(dsn))
        [page] = reader.pages()
        assert len(list(reader.load(page))) == 30
    assert max(groups) < 5
