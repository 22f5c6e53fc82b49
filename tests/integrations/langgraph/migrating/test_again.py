"""A migration that is broken off, given again, done while others write, and taken back."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.types import Interrupt, Send

from lockstitch.errors import LockstitchError
from lockstitch.formats.langgraph.journal import ThreadJournal
from lockstitch.integrations.langgraph import Saver, migrate
from lockstitch.stores.opening import open_backend
from tests.inprocess import command
from tests.integrations.langgraph.migrating.shapes import SHAPES, Tools, on
from tests.integrations.langgraph.migrating.test_migrating import assert_same, told
from tests.integrations.langgraph.savers import SAVERS, address_of, sqlite
from tests.postgres_server import shared

KINDS = ["sqlite", "postgres"]


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/agent.db"


def filled(kind: str, folder: Path, *threads: str) -> str:
    address = address_of(kind, folder)
    with SAVERS[kind](address) as old:
        for thread in threads:
            SHAPES["tools"](old, thread)
    return address


def states(address: str, target: str, **options: Any) -> dict[str, str]:
    return {one.thread: one.state for one in migrate(address, target, **options).threads}


def sessions(target: str) -> dict[str, list[str]]:
    """The keys of all records of a store."""
    with open_backend(target, create=False) as store:
        return {
            one.session: [record.key for record in store.read(one.session)]
            for one in store.sessions()
        }


def undone(target: str, run: str) -> int:
    return command("undo", target, "--run", run).returncode


# Killed


@pytest.mark.parametrize("kind", KINDS)
def test_killed_and_given_again(tmp_path: Path, kind: str) -> None:
    threads = [f"t{number}" for number in range(6)]
    address = filled(kind, tmp_path, *threads)
    target = f"sqlite:///{tmp_path}/agent.db" if kind == "sqlite" else shared().fresh()
    cuts = 0
    for round_ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", SLOWLY, address, target],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        # So many checkpoints of this round have been read when the end comes.
        for _ in range(3 + 25 * round_):
            if not process.stdout.readline():
                break
        process.send_signal(signal.SIGKILL)
        cuts += process.wait(60) == -signal.SIGKILL
        process.stdout.close()
        found = sessions(target) if round_ else {}
        assert all(len(keys) == len(set(keys)) for keys in found.values())
    assert cuts >= 2
    done = migrate(address, target)
    assert {one.state for one in done.threads} <= {"copied", "there"}
    assert all(one.state == "there" for one in migrate(address, target).threads)
    with SAVERS[kind](address) as old, Saver(target) as new:
        for thread in threads:
            assert_same(old, new, thread)
        assert len(told(new, None)) == len(told(old, None))
    assert undone(target, done.run) == 0
    assert sessions(target) == {}


SLOWLY = """
import sys
from lockstitch.integrations.langgraph import migrate
migrate(*sys.argv[1:], advance=lambda _: print("one", flush=True))
"""


# Others write meanwhile


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_that_goes_on_meanwhile(tmp_path: Path, target: str, kind: str) -> None:
    address = filled(kind, tmp_path, "a", "b", "c")
    bench = Tools()
    bench.is_whole = True
    seen: list[int] = []

    def meanwhile(_: int) -> None:
        seen.append(1)
        if len(seen) == 2:
            # In the middle of the first thread, which is read as it stood before.
            with SAVERS[kind](address) as old:
                bench.graph(old).invoke({"messages": [HumanMessage("more", id="m")]}, on("a"))
                bench.graph(old).invoke({"messages": [HumanMessage("new", id="n")]}, on("d"))

    with SAVERS[kind](address) as old:
        before = told(old, on("a"))
    done = {one.thread: one for one in migrate(address, target, advance=meanwhile).threads}
    assert {name: (one.state, one.moved) for name, one in done.items()} == {
        "a": ("copied", True),
        "b": ("copied", False),
        "c": ("copied", False),
        "d": ("left", True),
    }
    with Saver(target) as new:
        assert told(new, on("a")) == before
    assert states(address, target) == {"a": "copied", "b": "there", "c": "there", "d": "copied"}
    with SAVERS[kind](address) as old, Saver(target) as new:
        for thread in "abcd":
            assert_same(old, new, thread)
    assert set(states(address, target).values()) == {"there"}


def test_late_writes_come_along(tmp_path: Path, target: str) -> None:
    address = filled("sqlite", tmp_path, "a")
    assert states(address, target) == {"a": "copied"}
    with sqlite(address) as old:
        head = old.get_tuple(on("a"))
        old.put_writes(head.config, [("seen", ["late"])], "late task")
    assert states(address, target) == {"a": "copied"}
    with sqlite(address) as old, Saver(target) as new:
        assert_same(old, new, "a")


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_source_has_written_anew_comes_along(
    tmp_path: Path, target: str, kind: str
) -> None:
    """Signals and checkpoints under a key that was there before."""
    address = address_of(kind, tmp_path)
    with SAVERS[kind](address) as old:
        first = empty_checkpoint()
        config = old.put(on("1", checkpoint_ns=""), first, {"step": -1}, {})
        old.put_writes(config, [("__resume__", ["one"])], "task")
        assert states(address, target) == {"1": "copied"}
        old.put_writes(config, [("__resume__", ["one", "two"])], "task")
        assert states(address, target) == {"1": "copied"}
        old.put(on("1", checkpoint_ns=""), first, {"step": 5}, {})
        assert states(address, target) == {"1": "copied"}
        assert states(address, target) == {"1": "there"}
        with Saver(target) as new:
            assert_same(old, new, "1")


def test_a_copy_in_use_is_left_alone(tmp_path: Path, target: str) -> None:
    address = filled("sqlite", tmp_path, "a", "b")
    done = migrate(address, target)
    bench = Tools()
    bench.is_whole = True
    with Saver(target) as new:
        bench.graph(new).invoke(None, on("a"))
        kept = told(new, on("a"))
    assert states(address, target) == {"a": "gone on", "b": "there"}
    with sqlite(address) as old:
        bench.graph(old).invoke(None, on("a"))
    [failed, _] = migrate(address, target).threads
    assert failed.state == "failed"
    assert "both it and its copy have been continued" in str(failed.error)
    assert undone(target, done.run) == 2
    with Saver(target) as new:
        assert told(new, on("a")) == kept
        assert told(new, on("b")) == []


def test_what_came_later_is_taken_back_with_the_rest(tmp_path: Path, target: str) -> None:
    """Two databases into one store: each is taken back by itself."""
    first = filled("sqlite", tmp_path, "a")
    folder = tmp_path / "other"
    folder.mkdir()
    second = filled("sqlite", folder, "b")
    runs = [migrate(one, target).run for one in (first, second)]
    assert len(set(runs)) == 2
    assert undone(target, runs[0]) == 0
    assert list(sessions(target)) == ["langgraph.b"]
    assert states(first, target) == {"a": "copied"}


def test_another_thread_with_the_same_id(tmp_path: Path, target: str) -> None:
    address = filled("sqlite", tmp_path, "a", "b")
    with Saver(target) as new:
        SHAPES["deltas"](new, "a")
        kept = told(new, on("a"))
    [failed, done] = migrate(address, target).threads
    assert (failed.state, done.state) == ("failed", "copied")
    assert "has this id" in str(failed.error)
    with Saver(target) as new:
        assert told(new, on("a")) == kept


# Nothing is written that should not be


@pytest.mark.parametrize("kind", KINDS)
def test_the_source_is_never_written(tmp_path: Path, target: str, kind: str) -> None:
    address = filled(kind, tmp_path, "a", "b")
    before = digest(address) if kind == "sqlite" else rows(address)
    migrate(address, target, dry_run=True)
    migrate(address, target)
    assert (digest(address) if kind == "sqlite" else rows(address)) == before
    if kind == "sqlite":
        assert not Path(f"{address}-wal").exists()


def digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def rows(address: str) -> Any:
    with psycopg.connect(address) as base:
        return [
            base.execute(f"SELECT xmin, ctid, t FROM {table} t ORDER BY t::text").fetchall()  # type: ignore[arg-type]  # noqa: S608
            for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
        ]


def test_a_dry_run_writes_nothing(tmp_path: Path, target: str) -> None:
    address = filled("sqlite", tmp_path, "a", "b")
    assert states(address, target, dry_run=True) == {"a": "copied", "b": "copied"}
    assert not (tmp_path / "agent.db").exists()
    migrate(address, target, thread="a")
    kept = sessions(target)
    assert states(address, target, dry_run=True) == {"a": "there", "b": "copied"}
    assert sessions(target) == kept


@pytest.mark.parametrize(
    "damage",
    [
        "checkpoint = x'c1'",
        "checkpoint = x'80'",
        "checkpoint = x'01'",
        "metadata = 'no JSON'",
        "type = 'something'",
    ],
)
def test_a_damaged_thread_does_not_keep_the_others(
    tmp_path: Path, target: str, damage: str
) -> None:
    address = filled("sqlite", tmp_path, "a", "b")
    with sqlite(address) as old:
        old.conn.execute(f"UPDATE checkpoints SET {damage} WHERE thread_id = 'a'")  # noqa: S608
        old.conn.execute(
            "INSERT INTO checkpoints SELECT CAST(x'ff' AS TEXT), checkpoint_ns,"
            " checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints"
            " WHERE thread_id = 'b'"
        )
        old.conn.commit()
    [failed, done, odd] = migrate(address, target).threads
    assert (failed.state, done.state, odd.state) == ("failed", "copied", "failed")
    assert list(sessions(target)) == ["langgraph.b"]


def test_what_cannot_be_kept_as_it_is_is_not_copied(tmp_path: Path, target: str) -> None:
    """A value of a channel without a version, which no graph writes."""
    address = address_of("sqlite", tmp_path)
    with sqlite(address) as old:
        checkpoint = {**empty_checkpoint(), "channel_values": {"x": 1}}
        old.put(on("a", checkpoint_ns=""), checkpoint, {}, {})  # type: ignore[arg-type]
    [failed] = migrate(address, target).threads
    assert "cannot be kept as it is: its state would differ" in str(failed.error)
    assert sessions(target) == {}


# Rows that no ordinary run leaves


@pytest.mark.parametrize("kind", KINDS)
def test_indexes_of_writes_and_writes_without_a_checkpoint(
    tmp_path: Path, target: str, kind: str
) -> None:
    address = address_of(kind, tmp_path)
    mixed = [("a", 1), ("__interrupt__", [Interrupt("?", id="i")]), ("b", 2), ("c", {1, 2})]
    with SAVERS[kind](address) as old:
        config = old.put(on("1", checkpoint_ns=""), empty_checkpoint(), {"step": -1}, {})
        old.put_writes(config, mixed, "task", "~path")
        old.put_writes(config, [("b", "x"), ("__error__", "e")], "other", "~earlier path")
        lost = on("1", checkpoint_ns="", checkpoint_id="0000")
        old.put_writes(lost, [("a", "lost")], "t")
        assert states(address, target) == {"1": "copied"}
        with Saver(target) as new:
            assert_same(old, new, "1")
    with open_backend(target, create=False) as store:
        thread = ThreadJournal()
        for record in store.read("langgraph.1"):
            thread.apply(record)
    head = config["configurable"]["checkpoint_id"]
    kept = {key: (one.path, one.channel) for key, one in thread.writes["", head].items()}
    assert kept == {
        ("task", 0): ("~path", "a"),
        ("task", -3): ("~path", "__interrupt__"),
        ("task", 2): ("~path", "b"),
        ("task", 3): ("~path", "c"),
        ("other", 0): ("~earlier path", "b"),
        ("other", -1): ("~earlier path", "__error__"),
    }
    assert ("t", 0) in thread.writes["", "0000"]


def test_sends_of_an_earlier_version(tmp_path: Path, target: str) -> None:
    """Before version 4 what was sent stood with the parent; LangGraph brings it along."""
    address = address_of("postgres", tmp_path)
    with SAVERS["postgres"](address) as old:
        first = {**empty_checkpoint(), "v": 3}
        config = old.put(on("1", checkpoint_ns=""), first, {}, {})
        old.put_writes(config, [("__pregel_tasks", Send("node", {"n": 1}))], "task")
        second = {**empty_checkpoint(), "v": 3, "channel_versions": {"x": "1"}}
        old.put(config, second, {}, {"x": "1"})
        assert old.get_tuple(on("1")).checkpoint["channel_values"]["__pregel_tasks"]
        assert states(address, target) == {"1": "copied"}
        with Saver(target) as new:
            assert_same(old, new, "1")


def test_not_into_itself(tmp_path: Path) -> None:
    address = filled("sqlite", tmp_path, "a")
    before = digest(address)
    with pytest.raises(LockstitchError):
        migrate(address, f"sqlite:///{address}")
    assert digest(address) == before
