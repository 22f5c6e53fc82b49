"""Objects that are changed in place, by nodes or by who reads: what is stored, and what is not."""

from __future__ import annotations

import copy
import operator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

from lockstitch.integrations.langgraph import Saver

CONFIG: Any = {"configurable": {"thread_id": "1"}}


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[Any], operator.add]
    book: dict[str, Any]


def rename(message: Any) -> None:
    message.content = "changed"


def nest(message: Any) -> None:
    message.additional_kwargs["deep"] = {"er": [1]}


def recall(message: Any) -> None:
    message.tool_calls[0]["args"]["n"] = 99


def enlarge(message: Any) -> None:
    message.something_else = {"new": True}


def rename_block(message: Any) -> None:
    message.content = [{"type": "text", "text": "a"}]
    message.content[0]["text"] = "b"


CHANGES = [rename, nest, recall, enlarge, rename_block]


def talk(saver: Any, change: Any, at: int) -> list[Any]:
    """Ten turns; in the eighth a message is changed in place, while another one is added."""

    def act(state: State) -> dict[str, Any]:
        if len(state["messages"]) == 15:
            change(state["messages"][at])
            state["log"][0]["touched"] = True
        number = len(state["messages"])
        calls = [{"name": "f", "args": {"n": number}, "id": f"c{number}"}]
        said = AIMessage(f"reply {number}", id=f"a{number}", tool_calls=calls)
        return {"messages": [said], "log": [{"n": number}], "book": {str(number): number}}

    graph = StateGraph(State).add_node(act).add_edge(START, "act").compile(checkpointer=saver)
    for turn in range(10):
        given = {"messages": [HumanMessage(f"turn {turn}", id=f"h{turn}")], "log": [], "book": {}}
        graph.invoke(given, CONFIG, durability="sync")
    return [one.values for one in graph.get_state_history(CONFIG)]


@pytest.mark.parametrize("at", [1, -2])
@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_a_change_is_stored_as_it_would_be_if_all_were_serialised(
    path: Path, change: Any, at: int
) -> None:
    expected = talk(InMemorySaver(), change, at)
    with Saver(f"sqlite:///{path}", reconcile=False) as saver:
        assert talk(saver, change, at) == expected
    with Saver(f"sqlite:///{path}") as cold:
        graph = StateGraph(State).add_node("act", lambda _state: None).add_edge(START, "act")
        found = [one.values for one in graph.compile(cold).get_state_history(CONFIG)]
    assert found == expected


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_what_a_reader_does_to_a_message_is_not_seen_by_the_next(quick: Saver, change: Any) -> None:
    # Copies: the very objects that were handed out are handed out again.
    expected = copy.deepcopy(talk(quick, lambda _message: None, 1)[0])
    first = quick.get_tuple(CONFIG)
    assert first is not None
    values = first.checkpoint["channel_values"]
    for message in values["messages"][1::2]:
        change(message)
    values["messages"].pop()
    values["log"][0].clear()
    values["book"]["more"] = 1
    second = quick.get_tuple(CONFIG)
    assert second is not None
    assert second.checkpoint["channel_values"]["messages"] == expected["messages"]
    assert second.checkpoint["channel_values"]["log"] == expected["log"]
    assert second.checkpoint["channel_values"]["book"] == expected["book"]


def long_talk(saver: Any, change: Any) -> list[Any]:
    """A hundred messages and more; the first one is changed in place, more than once."""

    def act(state: State) -> dict[str, Any]:
        if len(state["messages"]) in {133, 135}:
            change(state["messages"][1])
            state["log"][0]["touched"] = len(state["messages"])
        number = len(state["messages"])
        return {"messages": [AIMessage("reply", id=f"a{number}")], "log": [{"n": number}]}

    graph = StateGraph(State).add_node(act).add_edge(START, "act").compile(checkpointer=saver)
    calls = [{"name": "f", "args": {"n": 0}, "id": "c"}]
    first: list[Any] = [HumanMessage("x", id="0"), AIMessage("y", id="1", tool_calls=calls)]
    many = [*first, *(HumanMessage("x" * number, id=f"{number}") for number in range(2, 130))]
    for turn in range(3):
        said = [HumanMessage("turn", id=f"h{turn}")]
        given = {"messages": said if turn else [*many, *said], "log": [], "book": {}}
        graph.invoke(given, CONFIG, durability="sync")
    return [one.values for one in graph.get_state_history(CONFIG)]


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_a_change_far_behind_the_end_is_stored_as_well(path: Path, change: Any) -> None:
    expected = long_talk(InMemorySaver(), change)
    with Saver(f"sqlite:///{path}", reconcile=False) as saver:
        assert long_talk(saver, change) == expected
        items = len(saver._threads.get("1").thread.items)  # noqa: SLF001
    # What was changed, and nothing else, is there twice.
    assert items <= 130 + 3 * 3 + 4


def test_equal_copies_are_stored_once(quick: Saver) -> None:
    """A graph whose nodes copy every message makes new objects; the journal does not grow."""

    def act(state: State) -> dict[str, Any]:
        copies = copy.deepcopy(state["messages"])
        return {"messages": [*copies, AIMessage("x" * 1000, id=f"a{len(copies)}")]}

    graph = StateGraph(State).add_node(act).add_edge(START, "act").compile(checkpointer=quick)
    sizes = []
    for turn in range(12):
        graph.invoke(
            {"messages": [HumanMessage("y", id=f"h{turn}")], "log": [], "book": {}}, CONFIG
        )
        live = quick._threads.get("1")  # noqa: SLF001
        sizes.append(live.thread.size)
    grown = [after - before for before, after in pairwise(sizes)]
    assert max(grown) < 2 * min(grown) + 600
