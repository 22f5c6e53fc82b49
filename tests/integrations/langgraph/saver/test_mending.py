"""A new message after whatever broke a run off: the thread is mended before it is taken up."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.types import Command

from lockstitch.integrations.langgraph import Saver
from tests.integrations.langgraph.agents import ASKING, STUCK, Bench, Released, calling, result_of
from tests.integrations.langgraph.scripted import Scripted

CONFIG: Any = {"configurable": {"thread_id": "1"}}


def said(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def results(messages: list[Any]) -> dict[str, str]:
    return {m.tool_call_id: m.content for m in messages if isinstance(m, ToolMessage)}


def broken(saver: Saver, *jobs: str) -> tuple[Any, Scripted]:
    """An agent whose batch was broken off, or that waits in the middle of it."""
    model, bench = Scripted(calling(*jobs)), Bench()
    bench.released.set()
    agent = create_agent(model, [bench.tool], checkpointer=saver)
    with contextlib.suppress(Released):
        agent.invoke(said("go"), CONFIG, durability="sync")
    return agent, model


@pytest.fixture
def saver(tmp_path: Path) -> Any:
    with Saver(f"sqlite:///{tmp_path / 'agent.db'}") as made:
        yield made


@pytest.mark.parametrize("awaited", [False, True])
def test_finished_results_are_in_the_next_request(saver: Saver, awaited: bool) -> None:
    agent, model = broken(saver, "one", "three", STUCK)
    if awaited:
        asyncio.run(agent.ainvoke(said("and now?"), CONFIG))
    else:
        agent.invoke(said("and now?"), CONFIG)
    found = results(model.sent[-1])
    assert list(found) == ["call_one", "call_three", f"call_{STUCK}"]
    assert found["call_one"] == result_of("one")
    assert "unknown" in found[f"call_{STUCK}"]


def test_what_waits_is_answered_when_something_new_is_said(saver: Saver) -> None:
    agent, model = broken(saver, "one", ASKING)
    assert agent.get_state(CONFIG).next
    agent.invoke(said("never mind"), CONFIG)
    assert set(results(model.sent[-1])) == {"call_one", f"call_{ASKING}"}
    assert agent.get_state(CONFIG).next == ()


def test_what_waits_is_resumed(saver: Saver) -> None:
    agent, model = broken(saver, "one", ASKING)
    agent.invoke(Command(resume="yes"), CONFIG)
    found = results(model.sent[-1])
    assert found == {"call_one": result_of("one"), f"call_{ASKING}": "a person said yes"}


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    with Saver(f"sqlite:///{tmp_path / 'agent.db'}", reconcile=False) as saver:
        agent, model = broken(saver, "one", STUCK)
        agent.invoke(said("and now?"), CONFIG)
    assert results(model.sent[-1]) == {}
