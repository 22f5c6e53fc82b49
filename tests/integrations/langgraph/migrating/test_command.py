"""``lockstitch migrate`` with a database of LangGraph's savers, and the undo that it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockstitch.integrations.langgraph import Saver
from tests.inprocess import command
from tests.integrations.langgraph.migrating.shapes import SHAPES
from tests.integrations.langgraph.migrating.test_again import KINDS, filled, sessions
from tests.integrations.langgraph.migrating.test_migrating import assert_same
from tests.integrations.langgraph.savers import SAVERS


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/agent.db"


def lockstitch(*words: str) -> tuple[int, str, str]:
    done = command(*words)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("kind", KINDS)
def test_the_command(tmp_path: Path, target: str, kind: str) -> None:
    address = filled(kind, tmp_path, "a", "b")
    status, out, err = lockstitch("migrate", address, target, "--dry-run")
    assert (status, out) == (0, "")
    assert "Would copy 2 threads" in err
    status, out, err = lockstitch("migrate", address, target, "--session", "a", "--json")
    told_ = json.loads(out)
    assert status == 0
    assert [(one["session"], one["name"], one["state"]) for one in told_["sessions"]] == [
        ("a", "langgraph.a", "copied")
    ]
    undo = f"lockstitch undo {target} --run {told_['run']}"
    assert f"To undo it: {undo}" in err
    status, _, err = lockstitch("migrate", address, target)
    assert status == 0
    assert "Copied 1 thread" in err
    assert "1 thread: had been copied before." in err
    assert lockstitch(*undo.split()[1:], "--session", "b")[0] == 0
    assert list(sessions(target)) == ["langgraph.a"]
    status, out, err = lockstitch(*undo.split()[1:], "--json")
    [row] = json.loads(out)["sessions"]
    assert (row["session"], row["restored"], row["error"]) == ("a", "a", None)
    assert "Removed 1 thread again." in err
    assert sessions(target) == {}
    status, _, err = lockstitch(*undo.split()[1:])
    assert (status, "holds nothing from" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--session", "nothing"), "there is no thread nothing"),
        (("--session", "a", "--as", "b"), "keeps its id"),
        (("--format", "lockstitch"), "is not a Lockstitch store"),
    ],
)
def test_what_the_command_refuses(
    tmp_path: Path, target: str, words: tuple[str, ...], said: str
) -> None:
    address = filled("sqlite", tmp_path, "a")
    status, _, err = lockstitch("migrate", address, target, *words)
    assert (status, said in err) == (2, True), err
    assert not (tmp_path / "agent.db").exists()


def test_a_thread_that_failed_is_named(tmp_path: Path, target: str) -> None:
    address = filled("sqlite", tmp_path, "a", "b")
    with Saver(target) as new:
        SHAPES["deltas"](new, "a")
    status, out, err = lockstitch("migrate", address, target, "--json")
    assert status == 2
    assert [("error" in one) for one in json.loads(out)["sessions"]] == [True, False]
    assert f"{address}:a: " in err


def test_into_the_same_postgresql(tmp_path: Path) -> None:
    """The tables of both stand side by side, and the command can be given again."""
    address = filled("postgres", tmp_path, "a", "b")
    assert lockstitch("migrate", address, address)[0] == 0
    status, _, err = lockstitch("migrate", address, address)
    assert (status, "2 threads: had been copied before." in err) == (0, True)
    with SAVERS["postgres"](address) as old, Saver(address) as new:
        assert_same(old, new, "a")
    other = f"sqlite:///{tmp_path}/other.db"
    status, _, err = lockstitch("migrate", address, other, "--format", "langgraph")
    assert (status, "Copied 2 threads" in err) == (0, True)
