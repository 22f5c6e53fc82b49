"""Killed with -9: what finished is in the next request, what ran is unknown, the rest is said."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lockstitch.dialects.placeholders import NOT_STARTED, UNKNOWN_OUTCOME, WAITING
from lockstitch.session.store import Store
from lockstitch.session.tool_run import Tool, current_call
from lockstitch.stores.sqlite import SqliteBackend

from .talk import DIALECTS, asks, faults, results, says, texts

BOTH = pytest.mark.parametrize("dialect", ["anthropic", "openai-chat"])


@contextmanager
def agent(folder: Path, mode: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """An agent that is killed with -9 at the end of the block."""
    command = [sys.executable, "-m", "tests.session.agent", mode, str(folder), *arguments]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(60)
        assert child.stdout
        child.stdout.close()


def heard(child: subprocess.Popen[str], *words: str) -> None:
    """Wait until an agent has said these words, in any order."""
    missing = list(words)
    assert child.stdout
    for line in child.stdout:
        if line.strip() in missing:
            missing.remove(line.strip())
        if not missing:
            return
    raise AssertionError("the agent died")


@contextmanager
def reopened(folder: Path) -> Iterator[Any]:
    with Store(SqliteBackend(folder / "agent.db")) as store, store.session("s") as session:
        for dialect in DIALECTS:
            assert faults(dialect, session.request(dialect)) == []
        yield session
        for dialect in DIALECTS:
            assert faults(dialect, session.request(dialect)) == []


@BOTH
def test_two_results_survive_the_third_is_unknown(tmp_path: Path, dialect: str) -> None:
    with agent(tmp_path, "parallel", dialect) as child:
        heard(child, "running", "two done")
    with reopened(tmp_path) as session:
        shown = results(session.request("openai-chat"))
        assert shown == {"c1": "quick 1", "c2": "quick 2", "c3": UNKNOWN_OUTCOME}
        assert [c.id for c in session.recovered.finished] == ["c1", "c2"]
        assert [c.id for c in session.recovered.unknown] == ["c3"]
        assert session.recovered.never_started == ()
        assert session.recovered
        assert session.turn.state == "open"
        assert session.run_tools({"quick": str, "slow": str}) == []
        session.say("Go on")
        session.record(says(dialect, "Fine."))
    with reopened(tmp_path) as session:
        assert not session.recovered
        assert texts(session.request("openai-chat"), "user")[-1] == "Go on"


@BOTH
def test_a_call_in_the_queue_never_started_and_can_still_run(tmp_path: Path, dialect: str) -> None:
    with agent(tmp_path, "queued", dialect) as child:
        heard(child, "running")
    with reopened(tmp_path) as session:
        shown = results(session.request("openai-chat"))
        assert shown == {"c1": "quick 1", "c2": UNKNOWN_OUTCOME, "c3": NOT_STARTED}
        assert [c.id for c in session.recovered.never_started] == ["c3"]
        (call,) = session.run_tools({"quick": lambda n: n, "slow": lambda n: n})
        assert (call.id, call.outcome) == ("c3", "ok")


def test_killed_between_the_reply_and_the_tools(tmp_path: Path) -> None:
    with agent(tmp_path, "unstarted", "anthropic") as child:
        heard(child, "recorded")
    with reopened(tmp_path) as session:
        assert [c.id for c in session.recovered.never_started] == ["c1", "c2"]
        assert set(results(session.request("openai-chat")).values()) == {NOT_STARTED}
        done = session.run_tools({"quick": lambda n: n})
        assert [c.outcome for c in done] == ["ok", "ok"]


def test_what_may_be_repeated_is_run_again_with_its_key_and_nothing_else(tmp_path: Path) -> None:
    for attempt in (1, 2):
        with agent(tmp_path, "repeated", "anthropic") as child:
            heard(child, *["running"] * (2 if attempt == 1 else 1))
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    mine = [line for line in ran if line[0] == "1"]
    assert [line[2] for line in mine] == ["1", "2"]
    assert len({line[1] for line in mine}) == 1
    assert [line[2] for line in ran if line[0] == "2"] == ["1"]
    seen: list[tuple[str, int]] = []

    def again(n: int) -> int:
        seen.append((current_call().effect, current_call().attempt))
        return n

    with reopened(tmp_path) as session:
        tools = {"slow": Tool(again, repeatable=True), "once": again}
        (call,) = session.run_tools(tools)
        assert (call.id, call.outcome, call.attempts) == ("c1", "ok", 3)
        assert seen == [(mine[0][1], 3)]
        assert session.run_tools(tools) == []
        assert results(session.request("openai-chat")) == {"c1": "1", "c2": UNKNOWN_OUTCOME}


def test_what_waits_goes_on_waiting(tmp_path: Path) -> None:
    with agent(tmp_path, "waiting", "anthropic") as child:
        heard(child, "waiting")
    with reopened(tmp_path) as session:
        assert not session.recovered
        assert session.turn.state == "waiting"
        assert results(session.request("openai-chat"))["c1"] == WAITING
        session.approve("c1")
    with reopened(tmp_path) as session:
        assert session.turn.state == "open"
        (call,) = session.run_tools({"quick": lambda n: f"ran {n}"})
        assert call.outcome == "ok"
        assert results(session.request("openai-chat")) == {"c1": "ran 1", "c2": "quick 2"}
        assert session.record(says("anthropic")).state == "ended"


@BOTH
def test_a_stream_keeps_what_had_closed(tmp_path: Path, dialect: str) -> None:
    with agent(tmp_path, "streamed", dialect) as child:
        heard(child, "streaming")
    with reopened(tmp_path) as session:
        assert session.recovered.interrupted
        assert session.recovered.unknown == session.recovered.never_started == ()
        assert session.turn.is_open
        assert texts(session.request("openai-chat"), "assistant") == [], "it is asked for again"
        assert session.pending == []
        assert session.run_tools({"quick": lambda n: n}) == []
        session.say("Again")
        messages = session.request("openai-chat")
        assert texts(messages, "assistant") == ["Let me see."]
        assert results(messages) == {"c1": NOT_STARTED}
        session.record(asks(dialect, ("c9", "quick", {"n": 9})))
        assert [c.id for c in session.run_tools({"quick": lambda n: n})] == ["c9"]
