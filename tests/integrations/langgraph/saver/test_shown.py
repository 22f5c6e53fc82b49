"""Threads seen from outside: ``lockstitch check``, ``show`` and ``export`` on the saver's store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage, messages_from_dict

from lockstitch import stored
from lockstitch.errors import Damaged, UsageError
from lockstitch.integrations.langgraph import Saver
from tests.integrations.langgraph.saver.programs import CONFIG as ODD
from tests.integrations.langgraph.saver.programs import built
from tests.integrations.langgraph.saver.worker import answering
from tests.sessions.command import run as lockstitch
from tests.stores.sqlite.spoiling import spoil

CONFIG: Any = {"configurable": {"thread_id": "ticket-42"}}


@pytest.fixture
def url(path: Path) -> str:
    with Saver(f"sqlite:///{path}") as saver:
        graph = answering(saver)
        for turn in range(3):
            graph.invoke({"messages": [HumanMessage(f"turn {turn}", id=str(turn))]}, CONFIG)
        delta = built(saver, delta=True)
        orders = [("call", 1), ("say", 2), ("remove", 0)]
        delta.invoke({"todo": orders, "messages": [HumanMessage("delta", id="d")]}, ODD)
        delta.invoke({"todo": [("ask", 1)], "messages": [HumanMessage("go", id="g")]}, ODD)
    return f"sqlite:///{path}"


def test_threads_are_clean(url: str) -> None:
    reports = list(stored.check(url))
    assert [(one.session or "")[:10] for one in reports] == ["langgraph.", "langgraph-"]
    assert [one.status for one in reports] == ["ok", "ok"]
    assert [one.messages for one in reports] == [6, 4]
    assert lockstitch("check", url).returncode == 0


def test_the_messages_are_those_of_the_graph(url: str) -> None:
    journal = stored.read(url, "langgraph.ticket-42")
    assert journal.dialect == "langchain"
    with Saver(url) as saver:
        state = answering(saver).get_state(CONFIG)
        assert messages_from_dict(journal.messages()) == state.values["messages"]
        odd = next(one.session for one in stored.check(url) if one.session != journal.session)
        expected = built(saver, delta=True).get_state(ODD).values["messages"]
        assert messages_from_dict(stored.read(url, odd).messages()) == expected
    shown = lockstitch("show", url, "--session", "langgraph.ticket-42")
    assert "turn 2" in shown.stdout
    assert "reply to turn 2" in shown.stdout
    exported = lockstitch("export", url, "--session", "langgraph.ticket-42")
    assert json.loads(exported.stdout) == journal.messages()
    other = lockstitch("export", "--to", "anthropic", url, "--session", "langgraph.ticket-42")
    assert json.loads(other.stdout)[0]["role"] == "user"


def test_a_thread_is_not_taken_back_from_outside(url: str) -> None:
    for move in (
        lambda: stored.rewind(url, "langgraph.ticket-42", to=2),
        lambda: stored.fork(url, "langgraph.ticket-42", "new"),
    ):
        with pytest.raises(UsageError, match="LangGraph"):
            move()


def test_a_flipped_bit_is_found(url: str, path: Path) -> None:
    spoil(path, "langgraph.ticket-42", 7, lambda data: data.replace(b"turn 1", b"turn 7"))
    statuses = {one.session: one.status for one in stored.check(url)}
    assert statuses["langgraph.ticket-42"] == "broken"
    with Saver(url) as saver, pytest.raises(Damaged):
        saver.get_tuple(CONFIG)


def test_a_message_that_only_msgpack_can_hold_is_shown(path: Path) -> None:
    with Saver(f"sqlite:///{path}") as saver:
        graph = answering(saver)
        odd = ToolMessage("found", tool_call_id="c", artifact={1, 2}, id="t")
        graph.invoke({"messages": [HumanMessage("x", id="h"), odd]}, CONFIG)
    journal = stored.read(f"sqlite:///{path}")
    contents = [one.get("data", one)["content"] for one in journal.messages()]
    assert contents == ["x", "found", "reply to found"]
