"""Channels with other things than messages in them are left alone, whoever keeps the thread."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

import lockstitch
from lockstitch.errors import UsageError
from lockstitch.integrations.langgraph import areconcile, reconcile
from tests.integrations.langgraph.reconcile.breaking import THREAD, repair_checkpoint
from tests.integrations.langgraph.savers import CHECKPOINTERS, acheckpointer, checkpointer

every_checkpointer = pytest.mark.parametrize("name", CHECKPOINTERS)


def joined(state: Any, writes: Any) -> list[Any]:
    return [*(state or []), *(item for write in writes for item in write)]


class Listed(TypedDict):
    messages: Annotated[list[Any], operator.add]


class Changes(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(joined)]


class Once(TypedDict):
    messages: Any


class Thing:
    """An object of an application's own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        raise TypeError("things are not compared")

    __hash__ = object.__hash__


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


ASKED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "t", "type": "function", "function": {"name": "x", "arguments": "{}"}}],
}
ITEMS: dict[str, Callable[[int], Any]] = {
    "dicts": lambda n: [said(f"q{n}"), ASKED],
    "texts": lambda n: [f"q{n}"],
    "pairs": lambda n: [("user", f"q{n}")],
    "others": lambda n: [None, n, 1.5],
    "mixed": lambda n: [HumanMessage(f"q{n}", id=f"m{n}"), said("x"), AIMessage("y", id=f"a{n}")],
}


class Answering:
    """A node that answers, but for one time."""

    def __init__(self, failing: int | None) -> None:
        self.failing = failing
        self.count = 0

    def __call__(self, _: Any) -> Any:
        self.count += 1
        if self.count == self.failing:
            raise TimeoutError("provider down")
        return {"messages": [{"role": "assistant", "content": "ok"}]}


def graph_of(saver: Any, state: Any, failing: int | None) -> Any:
    graph = StateGraph(state)
    graph.add_node("ask", Answering(failing))
    graph.add_edge(START, "ask")
    return graph.compile(checkpointer=saver)


def turns(graph: Any, items: Callable[[int], Any]) -> Iterator[Any]:
    for number in range(4):
        try:
            yield without_ids(graph.invoke({"messages": items(number)}, THREAD))
        except TimeoutError:
            yield "failed"
    yield without_ids(graph.get_state(THREAD).values)


def without_ids(values: Any) -> Any:
    """LangGraph makes messages of dicts in a channel of changes, with ids drawn by lot."""
    found = values["messages"]
    assert isinstance(found, list)
    return [
        item.model_copy(update={"id": None}) if isinstance(item, BaseMessage) else item
        for item in found
    ]


# In a channel of changes, LangGraph makes messages of dicts: these are understood.
STRANGE = [(Listed, kind) for kind in ITEMS]
STRANGE += [(Once, kind) for kind in ITEMS]
STRANGE += [(Changes, kind) for kind in ("texts", "pairs", "others")]


@pytest.mark.parametrize(("state", "kind"), [pair for pair in STRANGE if pair[0] is not Once])
@pytest.mark.parametrize("failing", [None, 2])
@every_checkpointer
def test_every_turn_is_as_with_the_checkpointer_of_langgraph(
    name: str, kind: str, state: Any, failing: int | None, tmp_path: Path
) -> None:
    wanted = list(turns(graph_of(InMemorySaver(), state, failing), ITEMS[kind]))
    with checkpointer(name, tmp_path) as saver:
        assert list(turns(graph_of(saver, state, failing), ITEMS[kind])) == wanted


@pytest.mark.parametrize("state", [Listed, Changes])
@every_checkpointer
def test_every_turn_is_so_in_an_event_loop(name: str, state: Any, tmp_path: Path) -> None:
    async def run() -> list[Any]:
        async with acheckpointer(name, tmp_path) as saver:
            graph = graph_of(saver, state, failing=2)
            found: list[Any] = []
            for number in range(3):
                try:
                    values = await graph.ainvoke({"messages": [said(f"q{number}")]}, THREAD)
                    found.append(without_ids(values))
                except TimeoutError:
                    found.append("failed")
            assert not (await areconcile(graph, THREAD)).changed
            return found

    wanted = graph_of(InMemorySaver(), state, failing=2)
    assert asyncio.run(run()) == list(turns(wanted, lambda n: [said(f"q{n}")]))[:3]


@pytest.mark.parametrize(("state", "kind"), STRANGE)
@every_checkpointer
def test_what_is_not_understood_is_left_alone_and_said(
    name: str, kind: str, state: Any, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        graph = graph_of(saver, state, failing=2)
        seen = list(turns(graph, ITEMS[kind]))
        before = list(saver.list(THREAD))
        for source in (graph, saver):
            report = reconcile(source, THREAD)
            assert (report.changed, report.healed, report.synthetic) == (False, True, 0)
            assert report.unread == ("messages",)
            with pytest.raises(UsageError, match="not hold a list of messages"):
                reconcile(source, THREAD, [HumanMessage("mine")])
        assert list(saver.list(THREAD)) == before
        assert without_ids(graph.get_state(THREAD).values) == seen[-1]


class Both(TypedDict):
    talk: Annotated[list[AnyMessage], add_messages]
    messages: Annotated[list[Any], operator.add]
    notes: Any


CALLS: Any = [{"name": "x", "args": {}, "id": "t", "type": "tool_call"}]
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "id", "type", "x"]), inner, max_size=3
        )
        | st.tuples(inner, inner)
    ),
    max_leaves=6,
)
roles = st.sampled_from([said("q"), ASKED, ("user", "q"), {"role": "tool", "tool_call_id": "t"}])
messages = st.sampled_from(
    [
        HumanMessage("q", id="1"),
        AIMessage("a", id="2", tool_calls=CALLS),
        ToolMessage("r", tool_call_id="t", id="3"),
        HumanMessage("no id"),
    ]
)
items = st.one_of(plain, roles, messages, st.just(Thing("one")))
values = st.one_of(items, st.lists(items, max_size=4), st.lists(messages, min_size=1, max_size=4))
names = st.sampled_from(["messages", "talk", "items", "__root__", "__start__", "branch:to:x"])
writes = st.lists(
    st.tuples(
        st.sampled_from(["one", "two", "00000000-0000-0000-0000-000000000000"]),
        st.sampled_from(["messages", "talk", "items", "__error__", "__return__", "branch:to:x"]),
        values,
    ),
    max_size=4,
)


def is_conversation(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, BaseMessage) for item in value)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(names, values, max_size=4), writes, st.booleans())
def test_whatever_a_checkpoint_holds_nothing_is_raised_and_nothing_strange_touched(
    held: dict[str, Any], written: list[Any], force: bool
) -> None:
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = dict(held)
    checkpoint["channel_versions"] = dict.fromkeys(held, 1)
    saved = CheckpointTuple(
        {
            "configurable": {
                "thread_id": "1",
                "checkpoint_ns": "",
                "checkpoint_id": checkpoint["id"],
            }
        },
        checkpoint,
        {"step": 1, "source": "loop", "parents": {}},
        None,
        written,
    )
    found = repair_checkpoint(saved, force=force, next_version=lambda last, _: (last or 0) + 1)
    if found is None:
        return
    new = found.checkpoint["channel_values"]
    for name, value in held.items():
        if name == "__start__":
            assert name not in new
        elif name == "branch:to:x":
            written_to = [one for _, at, one in written if at == name]
            assert name not in new or any(new[name] is one for one in (value, *written_to))
        elif not is_conversation(value):
            assert new[name] is value or (value is None and is_conversation(new[name]))
    for one in found.report.channels:
        kept = new[one.name]
        assert is_conversation(kept) or (kept is None and not one.messages)
        assert lockstitch.check(kept or [], "langchain") == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(plain, roles, messages), min_size=1, max_size=4), plain)
def test_a_graph_keeps_what_is_beside_a_conversation_that_is_healed(
    strange: list[Any], note: Any
) -> None:
    graph = StateGraph(Both)
    graph.add_node("ask", lambda _: {"talk": [AIMessage("a", id="2", tool_calls=CALLS)]})
    graph.add_edge(START, "ask")
    made = graph.compile(checkpointer=InMemorySaver())
    made.invoke({"talk": [HumanMessage("q")], "messages": strange, "notes": note}, THREAD)
    before = made.get_state(THREAD).values
    report = reconcile(made, THREAD)
    after = made.get_state(THREAD).values
    assert report.changed
    assert [message.type for message in after["talk"]] == ["human", "ai", "tool"]
    assert after.get("notes") == before.get("notes")
    if not is_conversation(strange):
        assert after["messages"] == before["messages"]
        assert type(after["messages"][0]) is type(before["messages"][0])
