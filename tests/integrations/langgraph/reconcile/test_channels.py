"""Every channel that holds messages, in every namespace of a thread."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.types import Send

import lockstitch
from lockstitch.dialects.placeholders import is_placeholder
from lockstitch.integrations.langgraph import areconcile, reconcile
from tests.integrations.langgraph.agents import (
    JOBS,
    Bench,
    Released,
    calling,
)
from tests.integrations.langgraph.reconcile.breaking import FINISHED, THREAD, asked, texts
from tests.integrations.langgraph.savers import (
    CHECKPOINTERS,
    REPAIRING,
    acheckpointer,
    checkpointer,
    on,
)

every_checkpointer = pytest.mark.parametrize("name", CHECKPOINTERS)
both_sources = pytest.mark.parametrize("source", ["graph", "saver"])
FIRST = "messages"
SECOND = "supervisor_messages"


class Two(TypedDict):
    """A conversation with the user, and one with a supervisor."""

    messages: Annotated[list[AnyMessage], add_messages]
    supervisor_messages: Annotated[list[AnyMessage], add_messages]


class TwoOfChanges(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    supervisor_messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


class Unnamed(TypedDict):
    """Two conversations, of which none is called messages."""

    left: Annotated[list[AnyMessage], add_messages]
    right: Annotated[list[AnyMessage], add_messages]


STATES = {"plain": Two, "changes": TwoOfChanges}


def working(saver: Any, bench: Bench, state: Any = Two, channel: str = SECOND) -> Any:
    """A graph whose tools are called and answered in a channel of their own."""
    ids = {"count": 0}

    def ask(_: Any) -> Any:
        ids["count"] += 1
        calls = calling(*JOBS) if ids["count"] == 1 else AIMessage("Done.")
        return {channel: [calls]}

    def route(given: Any) -> Any:
        return [Send("tools", call) for call in given[channel][-1].tool_calls]

    def work(call: Any) -> Any:
        text = bench.work(call["args"]["job"])
        return {channel: [ToolMessage(text, tool_call_id=call["id"])]}

    graph = StateGraph(state)
    graph.add_node("ask", ask)
    graph.add_node("tools", work)
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", route, ["tools"])
    return graph.compile(checkpointer=saver)


def break_off(
    graph: Any, bench: Bench, given: Any, channel: str = SECOND, config: Any = THREAD
) -> None:
    """Run until all but one of the tools have finished, and end the run there."""
    saver = graph.checkpointer

    def release() -> None:
        bench.stuck.wait(60)
        _until(saver, config, channel, len(FINISHED))
        bench.released.set()

    watcher = threading.Thread(target=release)
    watcher.start()
    with suppress(Released):
        graph.invoke(given, THREAD)
    watcher.join()


def _until(saver: Any, config: Any, channel: str, count: int) -> None:
    for _ in range(3000):
        saved = saver.get_tuple(config)
        if saved and sum(name == channel for _, name, _ in saved.pending_writes) >= count:
            return
        threading.Event().wait(0.01)
    raise AssertionError("the tools never finished")


SAID = {FIRST: [HumanMessage("Go.")], SECOND: [HumanMessage("Plan it.")]}


@pytest.mark.parametrize("state", STATES)
@both_sources
@every_checkpointer
def test_a_second_channel_is_healed_too(name: str, source: str, state: str, tmp_path: Path) -> None:
    with checkpointer(name, tmp_path) as saver:
        bench = Bench()
        graph = working(saver, bench, STATES[state])
        break_off(graph, bench, SAID)
        count = len(list(saver.list(THREAD)))
        report = reconcile(graph if source == "graph" else saver, THREAD)
        assert report.changed
        assert (report.channel, [m.text for m in report.messages]) == (FIRST, ["Go."])
        assert {one.name: (one.changed, one.results, one.synthetic) for one in report.channels} == {
            FIRST: (False, 0, 0),
            SECOND: (True, 2, 1),
        }
        assert (report.results, report.synthetic, report.namespace) == (2, 1, "")
        assert len(list(saver.list(THREAD))) == count + 1
        stored = graph.get_state(THREAD).values[SECOND]
        assert lockstitch.check(stored, "langchain") == []
        assert [is_placeholder(text) for text in texts(stored)] == [False, True, False]
        again = reconcile(graph if source == "graph" else saver, THREAD)
        assert not again.changed


@every_checkpointer
def test_a_second_channel_is_healed_in_an_event_loop(name: str, tmp_path: Path) -> None:
    async def run() -> Any:
        async with acheckpointer(name, tmp_path) as saver:
            graph = working(saver, Bench())
            await graph.aupdate_state(THREAD, {**SAID, SECOND: [calling("one")]}, as_node="tools")
            report = await areconcile(graph, THREAD)
            return report, (await graph.aget_state(THREAD)).values

    report, values = asyncio.run(run())
    assert report.synthetic == 1
    assert lockstitch.check(values[SECOND], "langchain") == []


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", REPAIRING)
def test_a_new_message_finds_both_valid(name: str, state: str, tmp_path: Path) -> None:
    with checkpointer(name, tmp_path) as saver:
        bench = Bench()
        graph = working(saver, bench, STATES[state])
        break_off(graph, bench, SAID)
        graph.invoke(asked("And now?"), THREAD)
        stored = graph.get_state(THREAD).values[SECOND]
        assert lockstitch.check(stored, "langchain") == []
        assert [is_placeholder(text) for text in texts(stored)] == [False, True, False]


@pytest.mark.parametrize("name", REPAIRING)
def test_calls_that_a_run_ended_with_are_answered_in_every_channel(
    name: str, tmp_path: Path
) -> None:
    """Nothing is pending here, and no node is due: the run just ended so."""
    with checkpointer(name, tmp_path) as saver:
        graph = StateGraph(Two)
        graph.add_node(
            "ask", lambda given: {} if len(given[FIRST]) > 1 else {SECOND: [calling("x")]}
        )
        graph.add_edge(START, "ask")
        made = graph.compile(checkpointer=saver)
        made.invoke(SAID, THREAD)
        made.invoke(asked("And now?"), THREAD)
        assert lockstitch.check(made.get_state(THREAD).values[SECOND], "langchain") == []


@both_sources
@every_checkpointer
def test_two_channels_of_which_none_has_the_usual_name(
    name: str, source: str, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        bench = Bench()
        graph = working(saver, bench, Unnamed, "right")
        break_off(
            graph, bench, {"left": [HumanMessage("a")], "right": [HumanMessage("b")]}, "right"
        )
        report = reconcile(graph if source == "graph" else saver, THREAD)
        assert report.channel is None
        assert report.changed
        assert [one.name for one in report.channels if one.changed] == ["right"]
        assert lockstitch.check(graph.get_state(THREAD).values["right"], "langchain") == []


def helped(saver: Any, bench: Bench, *, forgiving: bool = False, in_tool: bool = False) -> Any:
    """A graph with a subgraph that keeps two channels of its own."""
    inner = working(True, bench)

    def hand_over(given: Any) -> Any:
        with suppress(Released if forgiving else KeyboardInterrupt):
            inner.invoke({**SAID, FIRST: [HumanMessage(given[FIRST][-1].text)]})
        return {FIRST: [AIMessage("Told.")]}

    class Outer(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]

    graph = StateGraph(Outer)
    held = {"it": hand_over}

    def call_it(given: Any) -> Any:
        """LangGraph finds a subgraph in a function's closure, but not in what that holds."""
        return held["it"](given)

    graph.add_node("helper", call_it if in_tool else hand_over)
    graph.add_edge(START, "helper")
    return graph.compile(checkpointer=saver)


HELPER = on("a thread", checkpoint_ns="helper")


@pytest.mark.parametrize("in_tool", [False, True])
@both_sources
@every_checkpointer
def test_the_channels_of_a_subgraph_with_a_memory(
    name: str, source: str, in_tool: bool, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        bench = Bench()
        graph = helped(saver, bench, in_tool=in_tool)
        break_off(graph, bench, asked("Go."), config=HELPER)
        report = reconcile(graph if source == "graph" else saver, THREAD)
        (below,) = report.subgraphs
        assert (below.namespace, below.changed, below.results) == ("helper", True, 2)
        assert [one.name for one in below.channels if one.changed] == [SECOND]
        stored = saver.get_tuple(HELPER).checkpoint["channel_values"][SECOND]
        assert lockstitch.check(stored, "langchain") == []


@pytest.mark.parametrize("forgiving", [False, True])
@pytest.mark.parametrize("name", REPAIRING)
def test_a_subgraph_is_valid_before_a_new_message(
    name: str, forgiving: bool, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        bench = Bench()
        graph = helped(saver, bench, forgiving=forgiving)
        break_off(graph, bench, asked("Go."), config=HELPER)
        graph.invoke(asked("And now?"), THREAD)
        stored = saver.get_tuple(HELPER).checkpoint["channel_values"][SECOND]
        assert lockstitch.check(stored, "langchain") == []
        assert [is_placeholder(text) for text in texts(stored)] == [False, True, False]
