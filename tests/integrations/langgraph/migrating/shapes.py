"""Graphs that leave threads of every shape behind, most of them in the middle of something."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from threading import Semaphore
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel

Savers = BaseCheckpointSaver[Any]


class Order(BaseModel):
    """What an application keeps in its state."""

    name: str
    price: float = 1.0


@dataclass
class Basket:
    orders: list[Order] = field(default_factory=list)


ALLOWED = [Order, Basket]


class Broken(BaseException):
    """What ends a run as a killed process would: no node answers for it."""


class Talk(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    seen: Annotated[list[Any], operator.add]


class Shop(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    order: Order
    baskets: Annotated[list[Basket], operator.add]
    settings: dict[str, Any]


class Delta(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer, snapshot_frequency=3)]
    items: Annotated[list[Any], DeltaChannel(lambda old, new: [*(old or []), *chain(*new)])]


def on(thread: Any, **place: Any) -> Any:
    return {"configurable": {"thread_id": thread, **place}}


class Tools:
    """Tools that run side by side, of which one breaks the run off until ``is_whole``.

    LangGraph loses the result of a tool that returns while the run is being broken off, so that
    one waits for the others first.
    """

    def __init__(self) -> None:
        self.is_whole = False
        self.returned = Semaphore(0)

    def graph(self, saver: Savers) -> Any:
        def model(state: Talk) -> Any:
            last = state["messages"][-1]
            if isinstance(last, ToolMessage):
                return {"messages": [AIMessage("done", id=f"done{len(state['messages'])}")]}
            calls = [
                {
                    "name": "work",
                    "args": {"job": job},
                    "id": f"{last.id}-{job}",
                    "type": "tool_call",
                }
                for job in ("one", "stuck", "three")
            ]
            reply = AIMessage("On it.", tool_calls=calls, id=f"reply to {last.id}")
            return {"messages": [reply], "seen": [len(state["messages"])]}

        def route(state: Talk) -> Any:
            calls = state["messages"][-1].tool_calls  # type: ignore[union-attr]
            return [Send("work", {"call": call}) for call in calls] or "__end__"

        def work(state: Any) -> Any:
            call = state["call"]
            if call["args"]["job"] == "stuck" and not self.is_whole:
                for _ in range(2):
                    self.returned.acquire(timeout=20)
                time.sleep(0.1)  # what returned is stored by another thread
                raise Broken
            if not self.is_whole:
                self.returned.release()
            said = ToolMessage(f"result of {call['args']['job']}", tool_call_id=call["id"])
            return {"messages": [said.model_copy(update={"id": f"r {call['id']}"})]}

        builder = StateGraph(Talk).add_node(model).add_node(work)
        builder.add_edge(START, "model").add_conditional_edges("model", route)
        return builder.add_edge("work", "model").compile(checkpointer=saver)


def tools(saver: Savers, thread: Any) -> Any:
    """Two finished turns, and a third that was broken off in mid-tool; it goes on."""
    bench = Tools()
    bench.is_whole = True
    graph = bench.graph(saver)
    for turn in range(2):
        graph.invoke({"messages": [HumanMessage(f"turn {turn}", id=f"h{turn}")]}, on(thread))
    bench.is_whole = False
    with suppress(Broken):
        graph.invoke({"messages": [HumanMessage("turn 2", id="h2")]}, on(thread))

    def go_on(other: Savers) -> Any:
        bench.is_whole = True
        return bench.graph(other), None

    return go_on


def child(*, persistent: bool) -> Any:
    def listen(state: Talk) -> dict[str, Any]:
        return {"seen": [f"child saw {len(state['messages'])} and {len(state['seen'])}"]}

    def ask(_state: Talk) -> dict[str, Any]:
        first = interrupt({"question": "from below"})
        second = interrupt("and then")
        return {"messages": [AIMessage(f"below: {first}, {second}", id=f"{first}")]}

    builder = StateGraph(Talk).add_node(listen).add_node(ask)
    builder.add_edge(START, "listen").add_edge("listen", "ask")
    return builder.compile(checkpointer=True) if persistent else builder.compile()


def nested(*, persistent: bool) -> Callable[[Savers, Any], Any]:
    def graph_of(saver: Savers) -> Any:
        builder = StateGraph(Talk).add_node("child", child(persistent=persistent))
        return builder.add_edge(START, "child").compile(checkpointer=saver)

    def run(saver: Savers, thread: Any) -> Any:
        graph = graph_of(saver)
        graph.invoke({"messages": [HumanMessage("hi", id="h")], "seen": []}, on(thread))
        for answer in ("a", "b"):
            graph.invoke(Command(resume=answer), on(thread))
        asked = [one for one in graph.get_state_history(on(thread)) if one.next == ("child",)]
        graph.invoke(None, asked[-1].config)
        graph.invoke({"messages": [HumanMessage("again", id="h2")], "seen": []}, on(thread))
        graph.invoke(Command(resume="one of two"), on(thread))
        return lambda other: (graph_of(other), Command(resume="the last answer"))

    return run


def shop(saver: Savers, thread: Any) -> Any:
    """State of an application's own classes, at every depth, before a breakpoint."""

    def graph_of(saver: Savers) -> Any:
        def order(state: Shop) -> Any:
            number = len(state["baskets"])
            made = Order(name=f"order {number}")
            said = ToolMessage("ok", tool_call_id="x", artifact=made, id=f"t{number}")
            return {
                "order": made,
                "baskets": [Basket([made])],
                "settings": {"by": {"deep": [made, 1, True, 1.0, None]}, 7: (1, 2)},
                "messages": [said, AIMessage("ordered", id=f"a{number}")],
            }

        def pay(state: Shop) -> Any:
            return {"messages": [AIMessage(f"paid {state['order'].price}", id="paid")]}

        builder = StateGraph(Shop).add_node(order).add_node(pay)
        builder.add_edge(START, "order").add_edge("order", "pay")
        return builder.compile(checkpointer=saver, interrupt_before=["pay"])

    graph = graph_of(saver)
    for turn in range(3):
        graph.invoke({"messages": [HumanMessage("buy", id=f"h{turn}")]}, on(thread))
        if turn < 2:
            graph.invoke(None, on(thread))
    return lambda other: (graph_of(other), None)


def deltas(saver: Savers, thread: Any) -> Any:
    """Channels of which checkpoints hold only what is new; broken off in the middle."""
    whole = [True]

    def graph_of(saver: Savers) -> Any:
        def one(_: Delta) -> Any:
            return {"messages": [AIMessage("one")], "items": [1, {"a": "b"}]}

        def two(state: Delta) -> Any:
            if not whole[0]:
                raise Broken
            return {"messages": [AIMessage(f"two of {len(state['messages'])}")], "items": [True]}

        builder = StateGraph(Delta).add_node(one).add_node(two)
        builder.add_edge(START, "one").add_edge(START, "two")
        return builder.compile(checkpointer=saver)

    graph = graph_of(saver)
    for turn in range(5):
        whole[0] = turn < 4
        with suppress(Broken):
            graph.invoke({"messages": [HumanMessage(f"turn {turn}")], "items": ["x"]}, on(thread))

    def go_on(other: Savers) -> Any:
        whole[0] = True
        return graph_of(other), None

    return go_on


def functional(saver: Savers, thread: Any) -> Any:
    """A workflow of tasks that waits for an answer, with what it saved the last time."""

    def flow_of(saver: Savers) -> Any:
        @task
        def double(number: int) -> int:
            return number * 2

        @entrypoint(checkpointer=saver)
        def flow(number: int, *, previous: Any = None) -> Any:
            done = [double(one).result() for one in range(number)]
            answer = interrupt({"so far": done, "before": previous})
            return {"done": done, "answer": answer, "before": previous}

        return flow

    flow = flow_of(saver)
    flow.invoke(3, on(thread))
    flow.invoke(Command(resume="yes"), on(thread))
    flow.invoke(4, on(thread))
    return lambda other: (flow_of(other), Command(resume="again"))


SHAPES: dict[str, Callable[[Savers, Any], Any]] = {
    "tools": tools,
    "stateful subgraph": nested(persistent=True),
    "stateless subgraph": nested(persistent=False),
    "classes": shop,
    "deltas": deltas,
    "functional": functional,
}
# Ids that are no names of sessions, and some that look like those of others.
ODD = ["", " ", "ticket#1", "a/b/../c", "élan 漢字 🙂", "x" * 300, "langgraph.1", "100%25", "'; --"]
