"""Small graphs whose nodes do what a test tells them, also to each other's threads."""

from __future__ import annotations

from collections.abc import Callable
from operator import add
from typing import Annotated, Any, TypedDict
from uuid import UUID

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import interrupt

from lockstitch.integrations.langgraph.optimistic_lock import RUN
from tests.integrations.langgraph.savers import on

THREAD = on("shared")


class Delta(TypedDict):
    """Messages of which a checkpoint holds only what is new."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


class Notes(TypedDict):
    """Anything, one after the other."""

    notes: Annotated[list[str], add]


def later(checkpoint: str, seconds: int = 60) -> str:
    """An id of LangGraph's that is so much later than another one."""
    number = UUID(checkpoint).int
    ticks = (number >> 80 << 12 | number >> 64 & 0xFFF) + seconds * 10**7
    rest = number & ((1 << 64) - 1)
    return str(UUID(int=ticks >> 12 << 80 | 6 << 76 | (ticks & 0xFFF) << 64 | rest))


def lose(saver: Any, guard: Any) -> None:
    """Leave a checkpoint behind that is the newest, but lost."""
    head = guard.get_tuple(THREAD)
    assert head
    assert head.parent_config
    parent = saver.get_tuple(head.parent_config)
    body = {**parent.checkpoint, "id": later(head.checkpoint["id"])}
    saver.put(parent.config, body, {**parent.metadata, RUN: "late"}, {})
    claim = [("__lockstitch_claim__", {"key": 1, "name": "nobody"})]
    late = on("shared", checkpoint_ns="", checkpoint_id=body["id"])
    saver.put_writes(late, claim, "00000000-0000-5000-8000-000000000000")


def said(name: str) -> dict[str, Any]:
    """An input."""
    return {"messages": [HumanMessage(name)]}


def texts(graph: Any, config: Any = THREAD) -> list[str]:
    """The conversation of a thread, in short."""
    return [message.content for message in graph.get_state(config).values.get("messages", [])]


def chat(saver: Any, then: Callable[[], None] = lambda: None, state: Any = MessagesState) -> Any:
    """Answers, and before it does so lets something else happen; then a second node looks on."""

    def model(given: Any) -> dict[str, Any]:
        then()
        return {"messages": [AIMessage(f"done {given['messages'][-1].content}")]}

    graph = StateGraph(state)
    graph.add_node("model", model)
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    return graph.compile(checkpointer=saver)


def achat(saver: Any, then: Callable[[], Any], state: Any = MessagesState) -> Any:
    """The same, in an event loop."""

    async def model(given: Any) -> dict[str, Any]:
        await then()
        return {"messages": [AIMessage(f"done {given['messages'][-1].content}")]}

    graph = StateGraph(state)
    graph.add_node("model", model)
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    return graph.compile(checkpointer=saver)


def chain(saver: Any, *nodes: Callable[[Any], Any], **options: Any) -> Any:
    """Nodes that run one after the other and take notes."""
    graph = StateGraph(Notes)
    names = [f"node{number}" for number, _ in enumerate(nodes)]
    for name, node in zip(names, nodes, strict=True):
        graph.add_node(name, node)
    for one, next_one in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(one, next_one)
    return graph.compile(checkpointer=saver, **options)


def noting(text: str) -> Callable[[Any], Any]:
    """A node that takes a note."""
    return lambda _: {"notes": [text]}


def asking(question: str) -> Callable[[Any], Any]:
    """A node that asks a person and notes the answer."""
    return lambda _: {"notes": [f"{question}: {interrupt(question)}"]}
