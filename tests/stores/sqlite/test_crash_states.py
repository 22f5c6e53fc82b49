"""Power loss at every step of SQLite's own writing: nothing acknowledged is lost or corrupt."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores import changes
from tests.stores.sqlite import crashes
from tests.stores.sqlite.recorder import Step

ROUNDS = int(os.environ.get("LOCKSTITCH_ROUNDS", "8"))


@pytest.fixture
def memory() -> Iterator[Path]:
    # In memory if possible: the states are made by the test, and hundreds of them are quick.
    shm = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as folder:
        yield Path(folder)


def test_in_every_crash_state_the_acknowledged_is_there(memory: Path) -> None:
    recording = crashes.recorded(memory, rounds=14)
    kinds = {(step.what, step.name) for step in recording.steps}
    assert {("sync", "sessions.db"), ("delete", "sessions.db-wal")} <= kinds
    count = unacknowledged = 0
    for state in crashes.states(recording, samples=1, seed=4):
        unacknowledged += crashes.check(state, memory / "after") > 0
        count += 1
    print(f"{len(recording.steps)} steps, {count} states, {unacknowledged} ahead of the caller")  # noqa: T201
    assert count > 300
    assert unacknowledged > 5


def test_in_every_crash_state_a_change_is_made_or_not(memory: Path) -> None:
    """Adding, replacing, removing: each is there as a whole or not at all, and nothing beside."""
    ops = changes.plan(ROUNDS)
    recording = crashes.recorded(memory, rounds=ROUNDS, kind="changed")
    assert {op.order for op in ops} == {"add", "replace", "delete"}
    count = ahead = 0
    for state in crashes.states(recording, samples=1, seed=5):
        ahead += crashes.check_plan(state, memory / "after", ops)
        count += 1
    print(f"{len(recording.steps)} steps, {count} states, {ahead} ahead of the caller")  # noqa: T201
    assert count > 10 * ROUNDS
    assert ahead > ROUNDS


def test_the_check_of_changes_finds_a_lost_commit(memory: Path) -> None:
    recording = crashes.recorded(memory, rounds=4, kind="changed")
    recording.steps = [step for step in recording.steps if step.what != "sync"]
    states = crashes.states(recording, samples=0, seed=4)
    with pytest.raises(AssertionError):
        [crashes.check_plan(state, memory / "after", changes.plan(4)) for state in states]


def test_the_check_finds_a_lost_commit(memory: Path) -> None:
    recording = crashes.recorded(memory, rounds=6)
    recording.steps = [step for step in recording.steps if step.what != "sync"]
    states = crashes.states(recording, samples=0, seed=4)
    with pytest.raises(AssertionError):
        [crashes.check(state, memory / "after") for state in states]


def test_the_disk_keeps_what_was_synced_and_no_more() -> None:
    disk = crashes.Disk({"a": b"old"})
    disk.take(Step("write", "a", 0, b"new"))
    never = crashes.random.Random(0)
    assert disk.kept(0.0, never) == {"a": b"old"}
    assert disk.kept(1.0, never) == {"a": b"new"}
    disk.take(Step("sync", "a"))
    assert disk.kept(0.0, never) == {"a": b"new"}
