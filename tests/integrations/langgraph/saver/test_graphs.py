"""Graphs of every shape, on every store, sync and async, with every durability."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

from lockstitch.integrations.langgraph import Saver
from tests.integrations.langgraph.saver.places import Where

CONFIG: Any = {"configurable": {"thread_id": "1"}}


class Talk(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    seen: Annotated[list[str], operator.add]


def child(*, persistent: bool) -> Any:
    def listen(state: Talk) -> dict[str, Any]:
        return {"seen": [f"child saw {len(state['messages'])} and {len(state['seen'])}"]}

    def ask(_state: Talk) -> dict[str, Any]:
        answer = interrupt("from below")
        return {"messages": [AIMessage(f"below: {answer}")]}

    builder = StateGraph(Talk).add_node(listen).add_node(ask)
    builder.add_edge(START, "listen").add_edge("listen", "ask")
    return builder.compile(checkpointer=True) if persistent else builder.compile()


def parent(saver: Any, *, persistent: bool) -> Any:
    builder = StateGraph(Talk).add_node("child", child(persistent=persistent))
    return builder.add_edge(START, "child").compile(checkpointer=saver)


def talked(graph: Any) -> list[Any]:
    """Three questions to a child that asks back, one of them answered anew."""
    told: list[Any] = []
    for turn in range(2):
        given = {"messages": [HumanMessage(f"turn {turn}")], "seen": []}
        graph.invoke(given, CONFIG)
        below = graph.get_state(CONFIG, subgraphs=True).tasks[0].state
        told.append((below.values["seen"], below.next))
        told.append(contents(graph.invoke(Command(resume=f"answer {turn}"), CONFIG)))
    asked = [one for one in graph.get_state_history(CONFIG) if one.next == ("child",)]
    graph.invoke(None, asked[0].config)
    told.append(contents(graph.invoke(Command(resume="another answer"), CONFIG)))
    return told


def contents(state: dict[str, Any]) -> Any:
    return [one.content for one in state["messages"]], state["seen"]


@pytest.mark.parametrize("persistent", [True, False])
def test_subgraphs(saver: Saver, persistent: bool) -> None:
    expected = talked(parent(InMemorySaver(), persistent=persistent))
    assert talked(parent(saver, persistent=persistent)) == expected


class Fan(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    done: Annotated[list[int], operator.add]


def fan(saver: Saver) -> Any:
    """Tasks that each get the whole state along, as the tools of the prebuilt agent do."""

    def spread(state: Fan) -> list[Send]:
        return [Send("work", {"n": n, "state": state}) for n in range(5)]

    async def work(arg: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"done": [arg["n"]], "messages": [AIMessage(f"{len(arg['state']['messages'])}")]}

    builder = StateGraph(Fan).add_node("work", work)
    return builder.add_conditional_edges(START, spread, ["work"]).compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_many_tasks_at_once(where: Where, durability: Any) -> None:
    saver = where.open()

    async def run() -> Any:
        graph = fan(saver)
        for turn in range(3):
            given = {"messages": [HumanMessage(f"{turn}")], "done": []}
            await graph.ainvoke(given, CONFIG, durability=durability)
        return await graph.aget_state(CONFIG)

    state = asyncio.run(run())
    assert state.values["done"] == [0, 1, 2, 3, 4] * 3
    expected = [*["0"], *["1"] * 5, *["1"], *["7"] * 5, *["2"], *["13"] * 5]
    assert [one.content for one in state.values["messages"]] == expected
    cold = fan(where.open()).get_state(CONFIG)
    assert cold.values == state.values
    assert cold.next == ()


def test_many_threads_at_once(where: Where) -> None:
    saver = where.open()

    async def talk(graph: Any, number: int) -> None:
        config: Any = {"configurable": {"thread_id": f"t{number}"}}
        for turn in range(4):
            await graph.ainvoke({"messages": [HumanMessage(f"{turn}")], "done": []}, config)

    async def run() -> None:
        graph = fan(saver)
        await asyncio.gather(*(talk(graph, number) for number in range(6)))

    asyncio.run(run())
    other = fan(where.open())
    for number in range(6):
        state = other.get_state({"configurable": {"thread_id": f"t{number}"}})
        assert len(state.values["messages"]) == 4 * 6
    listed = {one.config["configurable"]["thread_id"] for one in saver.list(None)}
    assert listed == {f"t{number}" for number in range(6)}


def test_sync_and_async_on_one_saver(saver: Saver) -> None:
    graph = parent(saver, persistent=False)

    async def run() -> None:
        async with saver:
            await graph.ainvoke({"messages": [HumanMessage("a")], "seen": []}, CONFIG)
            found = [one async for one in saver.alist(CONFIG, limit=2)]
            assert len(found) == 2
            state = await graph.aget_state(CONFIG)
            assert state.next == ("child",)
            done = await asyncio.to_thread(graph.invoke, Command(resume="x"), CONFIG)
            assert done["messages"][-1].content == "below: x"

    asyncio.run(run())
