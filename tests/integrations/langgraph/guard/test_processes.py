"""Real processes that have turns on one thread: nothing that was reported as done is missing."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from lockstitch.integrations.langgraph.guard import Guard
from tests.integrations.langgraph.guard.processes import history, kept, raced, workers
from tests.integrations.langgraph.guard.worker import THREAD, graph_of
from tests.integrations.langgraph.savers import SAVERS, address_of

STORES = ("sqlite", "postgres")


def _turn(store: str, address: str, name: str) -> None:
    with SAVERS[store](address) as saver:
        graph_of(Guard(saver)).invoke({"messages": [HumanMessage(name)]}, THREAD)


@pytest.mark.parametrize("store", STORES)
def test_two_processes_of_forty_turns_that_try_again_keep_all_eighty(
    store: str, tmp_path: Path
) -> None:
    address = address_of(store, tmp_path)
    said = raced(store, address, 2, 40, retry=True)
    assert len(said["ok"]) == 80
    assert kept(history(store, address)) == set(said["ok"])


@pytest.mark.parametrize("store", STORES)
def test_every_turn_is_kept_or_raises(store: str, tmp_path: Path) -> None:
    address = address_of(store, tmp_path)
    said = raced(store, address, 2, 15)
    assert len(said["ok"]) + len(said["conflict"]) == 30
    # Of a turn that was taken over, what had been answered by then is in the history, too.
    assert kept(history(store, address)) >= set(said["ok"])


def test_without_a_guard_turns_are_lost_without_an_error(tmp_path: Path) -> None:
    for attempt in range(5):
        address = str(tmp_path / f"{attempt}.db")
        said = raced("sqlite", address, 2, 20, guard=False)
        assert len(said["ok"]) == 40
        if len(kept(history("sqlite", address, guard=False))) < 40:
            return
    raise AssertionError("two processes never met")


@pytest.mark.parametrize(
    ("store", "more"),
    [
        ("sqlite", {"durability": "async"}),
        ("postgres", {"async": True}),
        ("sqlite", {"async": True}),
    ],
)
def test_three_processes(store: str, more: dict[str, Any], tmp_path: Path) -> None:
    address = address_of(store, tmp_path)
    said = raced(store, address, 3, 6, retry=True, **more)
    assert len(said["ok"]) == 18
    assert kept(history(store, address)) == set(said["ok"])


@pytest.mark.parametrize("store", STORES)
def test_a_process_that_is_killed_between_put_and_giving_up(store: str, tmp_path: Path) -> None:
    address = address_of(store, tmp_path)
    _turn(store, address, "before")
    # Its last checkpoint is put behind the turn of another, and it dies before it sees that.
    places = [["put", "before", 3], ["put", "behind", 3]]
    options = {"store": store, "address": address, "name": "killed", "turns": 1, "halt": places}
    with workers(options) as (worker,):
        worker.go()
        worker.until("here")
        _turn(store, address, "meanwhile")
        worker.go()
        worker.until("here")
        worker.kill()
    with SAVERS[store](address) as saver:
        stored = [saved.checkpoint for saved in saver.list(THREAD)]
    assert any("done killed-0" in str(each) for each in stored)
    assert "meanwhile" in kept(history(store, address))
    _turn(store, address, "after")
    assert kept(history(store, address)) >= {"before", "meanwhile", "after"}


@pytest.mark.parametrize(
    "place", [["put", "before", 1], ["put", "behind", 1], ["put_writes", "behind", 1]]
)
def test_a_process_that_is_killed_anywhere_blocks_nobody(place: list[Any], tmp_path: Path) -> None:
    address = address_of("sqlite", tmp_path)
    _turn("sqlite", address, "before")
    options = {"store": "sqlite", "address": address, "name": "k", "turns": 1, "halt": [place]}
    with workers(options) as (worker,):
        worker.go()
        worker.until("here")
        worker.kill()
    _turn("sqlite", address, "after")
    assert {"before", "after"} <= kept(history("sqlite", address))


def _freeze_between_writes(worker: Any, store: str, address: str) -> None:
    """Freeze a worker at a moment when LangGraph's own thread has no database in hand."""
    worker.freeze()
    while store == "sqlite" and not _is_free(address):
        worker.thaw()
        time.sleep(0.02)
        worker.freeze()


def _is_free(address: str) -> bool:
    with closing(sqlite3.connect(address, timeout=1)) as base:
        try:
            base.execute("begin immediate")
        except sqlite3.OperationalError:
            return False
    return True


@pytest.mark.parametrize("store", STORES)
def test_a_run_that_slept_over_the_turn_of_another(store: str, tmp_path: Path) -> None:
    address = address_of(store, tmp_path)
    _turn(store, address, "before")
    options = {"store": store, "address": address, "name": "asleep", "turns": 1, "halt": ["model"]}
    with workers(options) as (worker,):
        worker.go()
        worker.until("here")
        _freeze_between_writes(worker, store, address)
        _turn(store, address, "meanwhile")
        worker.thaw()
        worker.go()
        assert worker.rest() == ["again", "conflict asleep-0"]
    assert kept(history(store, address)) == {"before", "meanwhile"}


# Waiting


@pytest.mark.parametrize(
    ("store", "more"),
    [
        ("sqlite", {}),
        ("postgres", {}),
        ("postgres", {"async": True}),
        ("sqlite", {"durability": "exit"}),
    ],
)
def test_processes_that_wait_for_their_turns_are_rarely_refused(
    store: str, more: dict[str, Any], tmp_path: Path
) -> None:
    address = address_of(store, tmp_path)
    _turn(store, address, "before")
    said = raced(store, address, 4, 8, retry=True, wait=30.0, **more)
    print(store, more, len(said["again"]), "conflicts")  # noqa: T201 - figures of the report
    assert len(said["ok"]) == 32
    messages = history(store, address)
    assert kept(messages) == {"before", *said["ok"]}
    # Nothing was refused, so nothing was asked twice.
    assert len(said["again"]) <= 3
    assert len(messages) <= 2 * (33 + len(said["again"]))


@pytest.mark.parametrize("place", ["model", ["put_writes", "behind", 1], ["put", "behind", 1]])
def test_a_process_that_is_killed_is_waited_for_no_longer_than_said(
    place: Any, tmp_path: Path
) -> None:
    address = address_of("sqlite", tmp_path)
    _turn("sqlite", address, "before")
    options = {"store": "sqlite", "address": address, "name": "k", "turns": 1, "halt": [place]}
    with workers({**options, "wait": 1.0}) as (worker,):
        worker.go()
        worker.until("here")
        worker.kill()
    with SAVERS["sqlite"](address) as saver:
        graph = graph_of(Guard(saver, wait=1.0))
        for name in ("after", "again"):
            graph.invoke({"messages": [HumanMessage(name)]}, THREAD)
    assert {"before", "after", "again"} <= kept(history("sqlite", address))


def test_who_waits_goes_behind_the_one_who_was_there(tmp_path: Path) -> None:
    address = address_of("sqlite", tmp_path)
    _turn("sqlite", address, "before")
    options = {"store": "sqlite", "address": address, "turns": 1, "wait": 60.0}
    slow, quick = {**options, "name": "slow", "halt": ["model"]}, {**options, "name": "quick"}
    with workers(slow, quick) as (one, two):
        one.go()
        one.until("here")
        two.go()
        assert not two.pipe.poll(0.5)
        one.go()
        assert one.rest() == ["ok slow-0"]
        assert two.rest() == ["ok quick-0"]
    told = [message.content for message in history("sqlite", address)]
    assert told[2:] == ["slow-0", "done slow-0", "quick-0", "done quick-0"]
