"""Healing and fencing do not depend on who stands between a graph and its checkpointer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import warnings
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from lockstitch.errors import Conflict
from lockstitch.integrations.langgraph import Guard, Saver
from tests.integrations.langgraph.agents import ASKING, STUCK, Bench, Released, calling, result_of
from tests.integrations.langgraph.guard.graphs import THREAD, chain, chat, noting
from tests.integrations.langgraph.guard.graphs import said as says
from tests.integrations.langgraph.running.wrapped import KINDS, SHAPES, Forgetful
from tests.integrations.langgraph.scripted import Scripted

CONFIG: Any = {"configurable": {"thread_id": "1"}}


def said(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def broken(checkpointer: Any, *jobs: str, config: Any = CONFIG) -> tuple[Any, Scripted]:
    """An agent whose batch was broken off, or that waits in the middle of it."""
    model, bench = Scripted(calling(*jobs)), Bench()
    agent = create_agent(model, [bench.tool], checkpointer=checkpointer)
    store = checkpointer or config["configurable"]["__pregel_checkpointer"]
    wanted = len([job for job in jobs if job not in {STUCK, ASKING}])

    def release() -> None:
        """Break the batch off when all that can be finished is stored."""
        deadline = time.monotonic() + 60
        while stored(store, config) < wanted and time.monotonic() < deadline:
            time.sleep(0.01)
        bench.released.set()

    threading.Thread(target=release).start()
    with contextlib.suppress(Released):
        agent.invoke(said("go"), config, durability="sync")
    return agent, model


def stored(checkpointer: Any, config: Any) -> int:
    """Count the results that are stored on the last checkpoint."""
    found = checkpointer.get_tuple(config)
    writes = found.pending_writes or () if found else ()
    return sum(
        isinstance(value, list) and isinstance(value[0], ToolMessage)
        for _, channel, value in writes
        if channel == "messages"
    )


def call(agent: Any, given: Any, config: Any, *, is_awaited: bool) -> Any:
    return asyncio.run(agent.ainvoke(given, config)) if is_awaited else agent.invoke(given, config)


def results(messages: list[Any]) -> dict[str, str]:
    return {m.tool_call_id: m.content for m in messages if isinstance(m, ToolMessage)}


@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_new_message_finds_what_had_finished(shape: str, kind: str, is_awaited: bool) -> None:
    agent, model = broken(SHAPES[shape](kind), "one", "three", STUCK)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        call(agent, said("and now?"), CONFIG, is_awaited=is_awaited)
    found = results(model.sent[-1])
    assert list(found) == ["call_one", "call_three", f"call_{STUCK}"]
    assert found["call_one"] == result_of("one")
    assert "unknown" in found[f"call_{STUCK}"]


@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_question_is_answered_by_a_resume(shape: str, kind: str, is_awaited: bool) -> None:
    agent, model = broken(SHAPES[shape](kind), "one", ASKING)
    call(agent, Command(resume="yes"), CONFIG, is_awaited=is_awaited)
    found = results(model.sent[-1])
    assert found == {"call_one": result_of("one"), f"call_{ASKING}": "a person said yes"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_that_is_taken_over_is_told(shape: str, kind: str) -> None:
    checkpointer = SHAPES[shape](kind)
    other = chain(checkpointer, noting("b"))

    def first(_: Any) -> Any:
        other.invoke({"notes": []}, THREAD)
        return {"notes": ["a"]}

    graph = chain(checkpointer, first, noting("never"))
    with pytest.raises(Conflict):
        graph.invoke({"notes": []}, THREAD, durability="sync")
    assert graph.get_state(THREAD).values["notes"] == ["b"]


@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_without_a_context_it_is_said_once_and_loudly(
    kind: str, is_awaited: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model, bench = Scripted(calling("one")), Bench()
    agent = create_agent(model, [bench.tool], checkpointer=Forgetful(KINDS[kind]()))
    with (
        caplog.at_level(logging.WARNING, "lockstitch.langgraph"),
        warnings.catch_warnings(record=True) as told,
    ):
        warnings.simplefilter("always")
        for text in ("a", "b", "c"):
            call(agent, said(text), CONFIG, is_awaited=is_awaited)
    assert len([one for one in told if "reconcile(graph, config)" in str(one.message)]) == 1
    assert caplog.text.count("nothing was healed") == 1
    # It works all the same, as LangGraph's own checkpointers do.
    assert [m.content for m in model.sent[-1]][-3:] == ["b", "ok", "c"]


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_context_a_second_writer_is_found_all_the_same(kind: str) -> None:
    checkpointer = Forgetful(KINDS[kind]())
    other = chain(checkpointer, noting("b"))

    def first(_: Any) -> Any:
        other.invoke({"notes": []}, THREAD)
        return {"notes": ["a"]}

    with pytest.warns(RuntimeWarning), pytest.raises(Conflict):
        chain(checkpointer, first, noting("never")).invoke({"notes": []}, THREAD, durability="sync")


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_said_of_what_is_no_run(kind: str) -> None:
    checkpointer = KINDS[kind]()
    graph = chat(checkpointer)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        graph.update_state(THREAD, says("by hand"), as_node="__input__")
        graph.invoke(says("a"), THREAD)
        graph.update_state(THREAD, says("by hand"), as_node="__input__")
        graph.get_state(THREAD)
        # A copy of a thread, checkpoint by checkpoint, as a migration makes it.
        for saved in reversed([*checkpointer.list(THREAD)]):
            above: Any = saved.parent_config or {"configurable": {"checkpoint_ns": ""}}
            above = {"configurable": {**above["configurable"], "thread_id": "copy"}}
            checkpointer.put(above, saved.checkpoint, saved.metadata, {})


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpointer_that_is_lent_in_the_config(kind: str) -> None:
    """As a server does it: the graph itself has none."""
    lent: Any = {"configurable": {"thread_id": "1", "__pregel_checkpointer": KINDS[kind]()}}
    agent, model = broken(None, "one", STUCK, config=lent)
    agent.invoke(said("and now?"), lent)
    assert results(model.sent[-1])["call_one"] == result_of("one")


@pytest.mark.parametrize("stream", ["stream_events", "astream_events", "batch", "abatch"])
def test_every_way_to_run_a_graph_heals(stream: str) -> None:
    agent, model = broken(Guard(InMemorySaver()), "one", STUCK)

    async def awaited() -> None:
        if stream == "abatch":
            await agent.abatch([said("and now?")], CONFIG)
            return
        async for _ in agent.astream_events(said("and now?"), CONFIG, version="v2"):
            pass

    if stream == "batch":
        agent.batch([said("and now?")], CONFIG)
    elif stream == "stream_events":
        assert agent.stream_events(said("and now?"), CONFIG, version="v3").output
    else:
        asyncio.run(awaited())
    assert results(model.sent[-1])["call_one"] == result_of("one")


class Renamed(Saver):
    """Nothing of its own; only its name differs."""


def test_a_state_that_is_looked_at_is_not_healed() -> None:
    for checkpointer in (Guard(InMemorySaver()), Renamed("memory:")):
        agent, _ = broken(checkpointer, "one", ASKING)
        before = agent.get_state(CONFIG)

        def look(_: Any, agent: Any = agent, before: Any = before) -> Any:
            """Another graph, on another thread: it looks into the first one's."""
            assert agent.get_state(CONFIG).config == before.config
            return {"notes": ["looked"]}

        chain(checkpointer, look).invoke({"notes": []}, THREAD)
        assert agent.get_state(CONFIG).next == before.next == ("tools",)
