"""The threads of one database divided among machines, and repaired by several at once."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from lockstitch.formats.langgraph.postgres import Shard
from tests.postgres_server import PATIENT, through_pooler

from . import stage

BROKEN = 240
HEALTHY = 60
REPAIRED = "SELECT count(*), count(DISTINCT thread_id) FROM lockstitch_repairs"
ADDED = """
SELECT count(*), count(DISTINCT thread_id) FROM checkpoints WHERE metadata ? 'lockstitch'
"""
RUNS = "SELECT count(DISTINCT run) FROM lockstitch_repairs WHERE undone IS NULL"
THERE = "SELECT count(*) FROM pg_class WHERE relname = 'lockstitch_repairs'"
# What a repair added, but for what is another one at every repair: ids, versions and times.
MADE = """
SELECT c.thread_id, c.checkpoint_ns, c.metadata - 'lockstitch',
    (SELECT count(*) FROM checkpoint_blobs b WHERE b.thread_id = c.thread_id)
FROM checkpoints c WHERE c.metadata ? 'lockstitch' ORDER BY 1, 2
"""
# Tables as earlier versions made them for runs that several machines shared.
OLD_TABLES = """
CREATE TABLE lockstitch_runs (name text PRIMARY KEY, options jsonb NOT NULL);
CREATE TABLE lockstitch_run_items (run text NOT NULL, number bigint NOT NULL, result jsonb);
INSERT INTO lockstitch_runs VALUES ('night', '{"kind": "repair"}');
"""


def until_it_has_repaired(dsn: str, worker: subprocess.Popen[str], count: int) -> None:
    for _ in range(60_000):
        assert worker.poll() is None, worker.communicate()
        there = stage.ask(dsn, THERE) == [(1,)]
        if there and stage.ask(dsn, REPAIRED)[0][0] >= count:
            return
        time.sleep(0.01)
    raise AssertionError("the worker does not get on")


def ended(worker: subprocess.Popen[str]) -> str:
    out, err = worker.communicate(timeout=600)
    assert worker.returncode == 0, out + err
    return err


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_thread_is_in_exactly_one_shard(count: int) -> None:
    names = [*map(str, range(1000)), "", "ünï cödé", "a\nb", "\udcff"]
    shards = [Shard(number, count) for number in range(1, count + 1)]
    for name in names:
        assert sum(shard.holds(name) for shard in shards) == 1
    least = min(sum(map(shard.holds, names)) for shard in shards)
    assert least > len(names) / count / 2


def test_the_shards_of_a_scan_and_a_check_are_all_threads(dsn: str) -> None:
    stage.many(dsn, 210, 30)
    stage.ask(dsn, OLD_TABLES)
    for words in (["check", dsn, "--json"], ["scan", dsn, "--json"]):
        whole = {one["session"]: one for one in stage.run(*words).sessions}
        assert len(whole) == 240
        parts = [stage.run(*words, "--shard", f"{number}/3").sessions for number in (1, 2, 3)]
        assert [one for part in parts for one in part if whole[one["session"]] != one] == []
        assert sorted(one["session"] for part in parts for one in part) == sorted(whole)
        assert all(parts)


def test_a_repair_of_all_shards_is_that_of_the_whole(dsn: str) -> None:
    stage.many(dsn, 10, 30)
    before = stage.content(dsn)
    assert stage.run("repair", dsn, "--yes").status == 0
    whole = stage.ask(dsn, MADE)
    assert stage.run("undo", dsn).status == 0
    assert stage.content(dsn) == before
    for number in (1, 2, 3):
        done = stage.run("repair", dsn, "--yes", "--shard", f"{number}/3")
        assert done.status == 0
        left = stage.run("check", dsn, "--shard", f"{number}/3")
        assert left.status == 0
    assert stage.ask(dsn, MADE) == whole
    assert stage.ask(dsn, RUNS) == [(3,)]
    assert stage.run("check", dsn).status == 0
    for _ in range(3):
        assert stage.run("undo", dsn).status == 0
    assert stage.content(dsn) == before


def test_three_machines_one_of_them_killed(dsn: str) -> None:
    stage.many(dsn, HEALTHY, BROKEN)
    address = f"{dsn}?{PATIENT}"
    first = stage.start("repair", address, "--yes", "--shard", "1/2", "--workers", "1")
    until_it_has_repaired(dsn, first, 10)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    assert 0 < stage.ask(dsn, REPAIRED)[0][0] < BROKEN
    for worker in [stage.start("repair", dsn, "--yes", "--shard", f"{i}/2") for i in (1, 2)]:
        assert "Repaired" in ended(worker)
    assert stage.ask(dsn, REPAIRED) == [(BROKEN, BROKEN)]
    assert stage.ask(dsn, ADDED) == [(BROKEN, BROKEN)]
    assert "All clean." in stage.run("repair", dsn, "--yes", "--shard", "2/2").err
    assert stage.run("check", dsn).status == 0


def test_two_repairs_at_once_add_one_checkpoint(dsn: str) -> None:
    stage.many(dsn, 0, 60)
    workers = [stage.start("repair", dsn, "--yes", "--workers", "1") for _ in range(2)]
    for worker in workers:
        out, err = worker.communicate(timeout=600)
        assert worker.returncode in {0, 1}, out + err
    assert stage.ask(dsn, ADDED) == [(60, 60)]
    assert stage.ask(dsn, "SELECT count(*) FROM lockstitch_repairs") == [(60,)]
    assert stage.run("check", dsn).status == 0


@pytest.mark.parametrize("part", ["0/2", "3/2", "2", "/2", "2/", "a/b", "1/0", "-1/2", "1/2/3", ""])
def test_parts_that_there_are_not(part: str) -> None:
    for command in ("scan", "check", "repair"):
        done = stage.run(command, "postgresql://nowhere/x", f"--shard={part}")
        assert done.status == 2
        assert "--shard 2/4 is the second of four" in done.err


def test_only_threads_are_divided(dsn: str) -> None:
    stage.templates(dsn)
    for words in (
        ["scan", "--shard", "1/2"],
        ["scan", ".", "--shard", "1/2"],
        ["check", "x.jsonl", "--shard", "1/2"],
        ["repair", "x.jsonl", "--shard", "1/2"],
        ["check", dsn, "--session", stage.BROKEN, "--shard", "1/2"],
        ["repair", dsn, "--session", stage.BROKEN, "--shard", "1/2", "--yes"],
    ):
        done = stage.run(*words)
        assert done.status == 2, words
        assert "--shard divides the threads of a PostgreSQL" in done.err


@pytest.mark.parametrize("flag", ["--run", "--idle", "--pause"])
def test_options_that_are_retired(flag: str, dsn: str) -> None:
    for command in ("scan", "check", "repair"):
        for words in ([flag, "5"], [f"{flag}=5"]):
            done = stage.run(command, dsn, *words)
            assert done.status == 2
            assert f"{command} no longer has the option {flag}" in done.err
            assert "--workers N" in done.err
            assert "--shard I/N" in done.err


def test_everything_works_through_a_pooler(dsn: str) -> None:
    stage.many(dsn, 5, 3)
    address = through_pooler(dsn)
    assert stage.run("scan", address).status == 1
    assert stage.run("check", address, "--shard", "1/1").status == 1
    before = stage.content(dsn)
    assert stage.run("repair", address, "--yes").status == 0
    assert stage.run("check", address).status == 0
    assert stage.run("undo", address).status == 0
    assert stage.content(dsn) == before
