"""A database that is repaired while others write to it: nothing of theirs is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from langchain_core.messages import HumanMessage

from lockstitch.formats.langgraph.postgres import repairs
from lockstitch.formats.langgraph.postgres.database import Database, find_schema
from lockstitch.formats.langgraph.postgres.reading import ThreadReader
from lockstitch.formats.repair import RepairOptions
from lockstitch.sources import threads

from . import graphs, stage

if TYPE_CHECKING:
    import pytest

THREADS = 3
TURNS = 6


def test_turns_of_a_live_program_are_all_kept(dsn: str) -> None:
    stage.many(dsn, 0, 5)
    command = [sys.executable, "-m", f"{__package__}.writer", dsn, str(THREADS), str(TURNS)]
    rounds = repaired = 0
    with subprocess.Popen(command) as writer:
        try:
            while writer.poll() is None:
                done = stage.run("repair", dsn, "--yes", "--json")
                assert done.status in {0, 1}, done.err
                repaired += sum(one["outcome"] == "repaired" for one in done.sessions)
                rounds += 1
        finally:
            if sys.exception():
                writer.kill()
    assert writer.returncode == 0
    assert rounds > 1
    assert repaired >= 5 + THREADS * TURNS // 2
    for number in range(THREADS):
        with graphs.saver(dsn) as saver:
            found = graphs.graph("plain", saver).get_state(graphs.config(f"live-{number}"))
        said = [m.content for m in found.values["messages"] if isinstance(m, HumanMessage)]
        assert said == [f"please nap, turn {turn}" for turn in range(TURNS)]
        graphs.require_valid([*found.values["messages"], HumanMessage("and?")])
        assert found.next == ()


def planned(dsn: str) -> tuple[Database, ThreadReader, threads.SchemaTask]:
    """A database as a repair sees it, with its table made."""
    home = find_schema(dsn)
    database = Database(dsn, "public")
    repairs.make_repairs_table(database, home)
    task = threads.SchemaTask(dsn, dsn, home, "by-hand", RepairOptions(), plans=True, writes=True)
    return database, ThreadReader(database, home), task


def test_a_thread_that_moves_between_reading_and_writing_is_skipped(dsn: str) -> None:
    stage.templates(dsn)
    database, reader, task = planned(dsn)
    with database:
        [loaded] = reader.load([(stage.BROKEN, "")])
        with threads.SchemaWorker(task) as worker:
            stage.run("repair", dsn, "--yes", "--session", stage.BROKEN)
            before = stage.content(dsn)
            outcome = worker.work_on(loaded)
    assert outcome.went_on
    assert stage.content(dsn) == before
    assert stage.ask(dsn, "SELECT count(*) FROM lockstitch_repairs") == [(1,)]


def test_a_result_that_comes_in_the_meantime_is_noticed(dsn: str) -> None:
    stage.templates(dsn)
    database, reader, task = planned(dsn)
    with database:
        [loaded] = reader.load([(stage.BROKEN, "")])
        stage.ask(
            dsn,
            "INSERT INTO checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, "
            "channel, type, blob) VALUES (%s, '', %s, 'late', 0, 'notes', 'null', '')",
            stage.BROKEN,
            loaded.snapshot.head.id,
        )
        with threads.SchemaWorker(task) as worker:
            outcome = worker.work_on(loaded)
    assert outcome.went_on


def test_a_connection_that_is_lost_is_made_again(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the repair, and between its last statement and its end, which nobody can tell."""
    stage.many(dsn, 0, 3)
    real = Database._transaction  # noqa: SLF001 - the one door to the server
    mishaps = ["before", "", "after"]

    @contextmanager
    def cut(self: Database, *level: Any, **how: Any) -> Iterator[Any]:
        mishap = mishaps.pop(0) if mishaps and not how["read_only"] else ""
        with real(self, *level, **how) as connection:
            if mishap == "before":
                connection.close()
            yield connection
        if mishap == "after":
            raise psycopg.OperationalError("the end was not heard")

    database, _, task = planned(dsn)
    monkeypatch.setattr(Database, "_transaction", cut)
    with database:
        outcomes = [one for page in threads.work_through(task) for one in page]
    assert not mishaps
    assert [one.is_written for one in outcomes] == [True] * 3
    assert stage.ask(dsn, "SELECT count(*) FROM lockstitch_repairs") == [(3,)]
