"""Several workers on one run: each thread once, whoever is killed, also through a pooler."""

from __future__ import annotations

import os
import signal
import subprocess
import time

from tests.postgres_server import PATIENT, through_pooler

from . import stage

BROKEN = 240
HEALTHY = 60
# With a rest between pages, so that there is a middle of it on any machine.
SLOWLY = ("--pause", "1")
REPAIRED = "SELECT count(*), count(DISTINCT thread_id) FROM lockstitch_repairs WHERE run = 'night'"
ADDED = """
SELECT count(*), count(DISTINCT thread_id) FROM checkpoints WHERE metadata ? 'lockstitch'
"""
AT_WORK = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
"""
THERE = "SELECT count(*) FROM pg_class WHERE relname = 'lockstitch_repairs'"


def words(address: str) -> list[str]:
    """A worker's command; a claim that nobody renews is free after two seconds."""
    return ["repair", f"{address}?lease=2&{PATIENT}", "--yes", "--run", "night", "--workers", "1"]


def until_it_has_repaired(dsn: str, worker: subprocess.Popen[str], count: int) -> None:
    for _ in range(60_000):
        assert worker.poll() is None, worker.communicate()
        there = stage.ask(dsn, THERE) == [(1,)]
        if there and stage.ask(dsn, REPAIRED)[0][0] >= count:
            return
        time.sleep(0.01)
    raise AssertionError("the worker does not get on")


def put_to_sleep(dsn: str, worker: subprocess.Popen[str]) -> None:
    """Stop a worker where it is in no transaction: others would wait for what it has locked."""
    for _ in range(6_000):
        os.kill(worker.pid, signal.SIGSTOP)
        if stage.ask(dsn, AT_WORK) == [(0,)]:
            return
        os.kill(worker.pid, signal.SIGCONT)
        time.sleep(0.1)
    raise AssertionError("the worker is never at rest")


def ended(worker: subprocess.Popen[str]) -> str:
    out, err = worker.communicate(timeout=600)
    assert worker.returncode == 0, out + err
    return err


def test_three_workers_one_of_them_killed(dsn: str) -> None:
    stage.many(dsn, HEALTHY, BROKEN)
    first = stage.start(*words(dsn), *SLOWLY)
    until_it_has_repaired(dsn, first, 30)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    before = stage.ask(dsn, REPAIRED)[0][0]
    assert 0 < before < BROKEN
    others = [stage.start(*words(address)) for address in (dsn, through_pooler(dsn))]
    for worker in others:
        summary = ended(worker)
        assert "Run night is done: 300 threads: 60 ok, 240 repaired." in summary
    assert stage.ask(dsn, REPAIRED) == [(BROKEN, BROKEN)]
    assert stage.ask(dsn, ADDED) == [(BROKEN, BROKEN)]
    again = stage.run(*words(dsn))
    assert again.status == 0
    assert "Run night is done: 300 threads: 60 ok, 240 repaired." in again.err
    assert stage.ask(dsn, REPAIRED) == [(BROKEN, BROKEN)]
    assert stage.run("check", dsn).status == 0
    other = stage.run(*words(dsn), "--idle", "5")
    assert other.status == 2
    assert "begun with other options" in other.err


def test_a_worker_that_sleeps_for_too_long_does_nothing_twice(dsn: str) -> None:
    stage.many(dsn, 0, BROKEN)
    sleeper = stage.start(*words(dsn), *SLOWLY)
    until_it_has_repaired(dsn, sleeper, 20)
    put_to_sleep(dsn, sleeper)
    other = stage.start(*words(dsn))
    try:
        summary = ended(other)
    finally:
        os.kill(sleeper.pid, signal.SIGCONT)
    assert "Run night is done: 240 threads: 240 repaired." in summary
    assert "Run night is done: 240 threads: 240 repaired." in ended(sleeper)
    assert stage.ask(dsn, REPAIRED) == [(BROKEN, BROKEN)]
    assert stage.ask(dsn, ADDED) == [(BROKEN, BROKEN)]


def test_two_repairs_at_once_add_one_checkpoint(dsn: str) -> None:
    stage.many(dsn, 0, 60)
    workers = [stage.start("repair", dsn, "--yes", "--workers", "1") for _ in range(2)]
    for worker in workers:
        out, err = worker.communicate(timeout=600)
        assert worker.returncode in {0, 1}, out + err
    assert stage.ask(dsn, ADDED) == [(60, 60)]
    assert stage.ask(dsn, "SELECT count(*) FROM lockstitch_repairs") == [(60,)]
    assert stage.run("check", dsn).status == 0


def test_a_scan_is_shared_only_if_asked(dsn: str) -> None:
    stage.many(dsn, 5, 3)
    done = stage.run("scan", dsn, "--run", "look")
    assert done.status == 1
    assert "Run look is done: 8 threads: 3 broken, 5 ok." in done.err
    again = stage.run("scan", dsn, "--run", "look")
    assert again.status == 1
    assert again.out.count(": LS101") == 3
    tables = (
        "SELECT relname FROM pg_class WHERE relname ~ '^lockstitch' AND relkind = 'r' ORDER BY 1"
    )
    assert stage.ask(dsn, tables) == [("lockstitch_run_items",), ("lockstitch_runs",)]


def test_everything_works_through_a_pooler(dsn: str) -> None:
    stage.many(dsn, 5, 3)
    address = through_pooler(dsn)
    assert stage.run("scan", address).status == 1
    before = stage.content(dsn)
    assert stage.run("repair", address, "--yes").status == 0
    assert stage.run("check", address).status == 0
    assert stage.run("undo", address).status == 0
    assert stage.content(dsn) == before
