"""Whoever reads gets objects of his own, and what was put stays as it was put.

LangGraph's own savers, which serialise everything, are the measure.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send, interrupt
from pydantic import BaseModel

from lockstitch.errors import Conflict
from lockstitch.integrations.langgraph import Guard, Saver

CONFIG: Any = {"configurable": {"thread_id": "1"}}
NAMED: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}


@contextmanager
def opened(kind: str, folder: Path) -> Iterator[Any]:
    """A saver of LangGraph's or of ours."""
    if kind == "memory":
        yield InMemorySaver()
    elif kind == "sqlite":
        with SqliteSaver.from_conn_string(":memory:") as theirs:
            yield theirs
    else:
        with Saver(f"sqlite:///{folder}/agent.db", allow=[Note]) as ours:
            yield Guard(ours) if kind == "guarded" else ours


KINDS = ("memory", "sqlite", "ours", "guarded")


@pytest.fixture(params=KINDS)
def any_saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with opened(request.param, tmp_path) as made:
        yield made


class Note(BaseModel):
    text: str


class State(MessagesState):
    last: BaseMessage
    book: dict[str, Any]
    notes: Annotated[list[Note], operator.add]


def spoil(value: Any) -> None:
    """Change all that can be changed in a value, in place."""
    if isinstance(value, (BaseMessage, Note)):
        spoil(value.__dict__)
    elif isinstance(value, Send):
        spoil(value.arg)
    elif isinstance(value, set):
        value.add("spoilt")
    elif isinstance(value, dict):
        for name, one in list(value.items()):
            spoil(one)
            if isinstance(one, str):
                value[name] = "spoilt"
    elif isinstance(value, (list, tuple)):
        for one in value:
            spoil(one)
        if isinstance(value, list):
            value.append("spoilt")


def reply(number: int) -> AIMessage:
    call = {"name": "f", "args": {"deep": {"er": [number]}}, "id": f"c{number}"}
    return AIMessage(
        [{"type": "text", "text": f"reply {number}"}],
        id=f"a{number}",
        tool_calls=[call],
        additional_kwargs={"more": [{"n": number}]},
    )


def result(number: int) -> ToolMessage:
    return ToolMessage("found", tool_call_id=f"c{number}", id=f"t{number}", artifact={str(number)})


def act(state: State) -> dict[str, Any]:
    number = len(state["messages"])
    answer = reply(number)
    return {
        "messages": [answer, result(number)],
        "last": answer,
        "book": {"page": [answer, {"n": number}]},
        "notes": [Note(text="first")],
    }


def graph_of(saver: Any, node: Callable[..., Any] = act) -> Any:
    return StateGraph(State).add_node("act", node).add_edge(START, "act").compile(saver)


def talk(graph: Any, turns: int = 3) -> None:
    for turn in range(turns):
        said = HumanMessage(f"turn {turn}", id=f"h{turn}")
        graph.invoke({"messages": [said]}, CONFIG, durability="sync")


def state_of(graph: Any) -> Any:
    return graph.get_state(CONFIG).values


READERS: dict[str, Callable[[Any], list[Any]]] = {
    "get_state": lambda graph: [graph.get_state(CONFIG).values],
    "history": lambda graph: [one.values for one in graph.get_state_history(CONFIG)],
    "get_tuple": lambda graph: [
        graph.checkpointer.get_tuple(CONFIG).checkpoint["channel_values"],
        graph.checkpointer.get_tuple(CONFIG).pending_writes,
        graph.checkpointer.get_tuple(CONFIG).metadata,
    ],
    "list": lambda graph: [
        part
        for one in graph.checkpointer.list(CONFIG)
        for part in (one.checkpoint["channel_values"], one.pending_writes, one.metadata)
    ],
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_what_a_reader_changes_nobody_else_gets(any_saver: Any, read: Any) -> None:
    graph = graph_of(any_saver)
    talk(graph)
    expected = [repr(one) for one in read(graph)]
    kept = read(graph)
    for value in read(graph):
        spoil(value)
    assert [repr(one) for one in kept] == expected
    assert [repr(one) for one in read(graph)] == expected
    talk(graph, 1)
    assert "spoilt" not in repr([read(graph), state_of(graph)])


def test_a_reader_does_not_reach_into_a_running_turn(any_saver: Any) -> None:
    waits, goes_on = threading.Event(), threading.Event()
    got: list[str] = []

    def wait(state: MessagesState) -> dict[str, Any]:
        if len(state["messages"]) > 2:
            waits.set()
            goes_on.wait(20)
        return {"messages": [AIMessage("waited")]}

    def model(state: MessagesState) -> dict[str, Any]:
        got[:] = [str(one.content) for one in state["messages"]]
        return {"messages": [AIMessage("answered")]}

    built = StateGraph(MessagesState).add_node(wait).add_node(model)
    graph = built.add_edge(START, "wait").add_edge("wait", "model").compile(any_saver)
    graph.invoke({"messages": [HumanMessage("a long text")]}, CONFIG)
    second = {"messages": [HumanMessage("second")]}
    run = threading.Thread(target=graph.invoke, args=(second, CONFIG))
    run.start()
    assert waits.wait(20)
    for message in state_of(graph)["messages"]:
        message.content = message.content[:1]
    goes_on.set()
    run.join()
    expected = ["a long text", "waited", "answered", "second", "waited"]
    assert got == expected
    assert [one.content for one in state_of(graph)["messages"]] == [*expected, "answered"]


def test_runs_at_once_on_two_branches_do_not_share_objects(any_saver: Any) -> None:
    started = threading.Barrier(2)
    seen: dict[str, list[Any]] = {}

    def touch(state: State) -> dict[str, Any]:
        who = str(state["messages"][-1].content)
        if who in {"one", "two"}:
            started.wait(20)
            state["messages"][0].additional_kwargs["by"] = who
            started.wait(20)
            seen[who] = [one.additional_kwargs.get("by") for one in state["messages"]]
        return {"messages": [AIMessage("done")]}

    graph = graph_of(any_saver, touch)
    talk(graph, 2)
    # Not the head, which only one of them could have.
    base = [one for one in graph.get_state_history(CONFIG) if not one.next][1].config

    def go_on(who: str) -> None:
        with suppress(Conflict):
            graph.invoke({"messages": [HumanMessage(who)]}, base)

    runs = [threading.Thread(target=go_on, args=(who,)) for who in ("one", "two")]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert {who: found[0] for who, found in seen.items()} == {"one": "one", "two": "two"}


def test_what_the_application_changes_after_a_put_is_not_stored(any_saver: Any) -> None:
    said = reply(1)
    channels: dict[str, Any] = {
        "messages": [said, result(1)],
        "last": said,
        "pair": (said, [said]),
        "send": [Send("act", {"messages": [said]})],
        "snapshot": _DeltaSnapshot([said]),
    }
    checkpoint: Any = {
        **empty_checkpoint(),
        "channel_values": channels,
        "channel_versions": dict.fromkeys(channels, 1),
    }
    metadata: Any = {"source": "loop", "step": 0, "book": {"page": [1]}}
    stored = any_saver.put(NAMED, checkpoint, metadata, dict.fromkeys(channels, 1))
    written = reply(2)
    any_saver.put_writes(stored, [("messages", [written]), ("book", {"m": written})], "task")

    def read() -> str:
        found = any_saver.get_tuple(CONFIG)
        values = found.checkpoint["channel_values"]
        values = {**values, "snapshot": values["snapshot"].value}
        return repr((values, found.pending_writes, found.metadata))

    before = read()
    for value in [said, written, metadata, *channels.values()]:
        spoil(value)
    assert "spoilt" not in before
    assert read() == before


def test_what_waits_for_a_person_is_not_changed_by_who_looks(any_saver: Any) -> None:
    def ask(state: State) -> dict[str, Any]:
        answer = interrupt({"calls": state["messages"][-1]})
        return {"messages": [AIMessage(str(answer))]}

    graph = graph_of(any_saver, ask)
    graph.invoke({"messages": [reply(1)]}, CONFIG)
    for _ in range(2):
        waiting = graph.get_state(CONFIG).interrupts[0].value
        assert "spoilt" not in repr(waiting)
        spoil(waiting)


def appended(held: list[BaseMessage], more: list[Any]) -> list[BaseMessage]:
    return [*held, *(one for given in more for one in given)]


class Deltas(TypedDict):
    messages: Annotated[list[BaseMessage], DeltaChannel(appended, snapshot_frequency=3)]


def test_a_delta_channel_is_read_by_each_anew(any_saver: Any) -> None:
    built = StateGraph(Deltas).add_node("act", lambda s: {"messages": [reply(len(s["messages"]))]})
    graph = built.add_edge(START, "act").compile(any_saver)
    for turn in range(5):
        graph.invoke({"messages": [HumanMessage("x", id=f"h{turn}")]}, CONFIG)
        expected = repr(state_of(graph))
        spoil(state_of(graph))
        assert repr(state_of(graph)) == expected
    assert "spoilt" not in expected


def changed_inside(saver: Any) -> list[Any]:
    """A node changes what is inside objects of other classes, in place."""

    def change(state: State) -> dict[str, Any]:
        if len(state["messages"]) > 4:
            state["messages"][2].artifact.add("changed")
            state["notes"][0].text = "changed"
        return act(state)

    graph = graph_of(saver, change)
    talk(graph)
    return [one.values for one in graph.get_state_history(CONFIG)]


def test_a_change_inside_an_artefact_is_stored(any_saver: Any) -> None:
    with opened("memory", Path()) as theirs:
        assert changed_inside(any_saver) == changed_inside(theirs)


def test_a_serialiser_of_ones_own_says_what_is_read(tmp_path: Path) -> None:
    """What it makes of a value is what readers get, also right after it was written."""

    class Shouting:
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            return "shout", inner.dumps_typed(obj)[1]

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            value = inner.loads_typed(("msgpack", data[1]))
            if isinstance(value, BaseMessage):
                value.content = str(value.content).upper()
            return value

    inner = InMemorySaver().serde
    with Saver(f"sqlite:///{tmp_path}/a.db", serde=Shouting()) as saver:
        graph = StateGraph(MessagesState).add_node("act", lambda _: None).add_edge(START, "act")
        built = graph.compile(saver)
        built.invoke({"messages": [HumanMessage("quiet", id="1")]}, CONFIG)
        assert [one.content for one in state_of(built)["messages"]] == ["QUIET"]


HOLDS: dict[str, Callable[[Any], Any]] = {
    "the message": lambda message: message,
    "its fields": lambda message: message.__dict__,
    "its metadata": lambda message: message.response_metadata,
    "its further fields": lambda message: message.__pydantic_extra__,
    "its calls": lambda message: message.tool_calls,
    "a call": lambda message: message.tool_calls[0],
    "the arguments of a call": lambda message: message.tool_calls[0]["args"],
    "a way to it": lambda message: message.response_metadata.setdefault,
}


@pytest.mark.parametrize("hold", HOLDS.values(), ids=HOLDS)
def test_what_somebody_still_holds_a_part_of_is_given_to_nobody_else(
    quick: Saver, hold: Callable[[Any], Any]
) -> None:
    """A message whose reader is gone may be given out again, but not while a part of it is held."""

    def say(state: MessagesState) -> dict[str, Any]:
        number = len(state["messages"])
        call = {"name": "f", "args": {"n": number}, "id": f"c{number}"}
        return {"messages": [AIMessage("said", id=f"a{number}", tool_calls=[call])]}

    graph = StateGraph(MessagesState).add_node(say).add_edge(START, "say").compile(quick)
    talk(graph)
    expected = repr(state_of(graph))
    held = hold(state_of(graph)["messages"][1])
    again = state_of(graph)
    if callable(held):
        held("spoilt", True)
    else:
        spoil(held)
    assert repr(again) == expected
    assert repr(state_of(graph)) == expected
    talk(graph, 1)
    assert "spoilt" not in repr(state_of(graph))


def test_what_nobody_holds_is_not_made_again(quick: Saver) -> None:
    graph = graph_of(quick)
    talk(graph)
    places = [id(one) for one in state_of(graph)["messages"] if isinstance(one, HumanMessage)]
    again = state_of(graph)["messages"]
    assert [id(one) for one in again if isinstance(one, HumanMessage)] == places
    other = state_of(graph)["messages"]
    assert not {id(one) for one in other} & {id(one) for one in again}
