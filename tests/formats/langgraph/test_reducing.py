"""Updates merged as LangGraph's own reducers merge them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph.message import REMOVE_ALL_MESSAGES, _messages_delta_reducer, add_messages
from langgraph.types import Overwrite

from lockstitch.formats.langgraph.codec import StoredMessage, Undecodable, new_codecs
from lockstitch.formats.langgraph.conversation import apply_writes, read_stored
from lockstitch.formats.langgraph.decisions import add_ids, id_of, make_distinct, repeated_ids
from lockstitch.formats.langgraph.snapshot import Coded, StoredWrite

SERDE = JsonPlusSerializer()
IDS = st.sampled_from("abcde")
MESSAGES = st.builds(HumanMessage, st.text(max_size=3), id=IDS) | st.builds(
    AIMessage, st.text(max_size=3), id=IDS
)
REMOVED = IDS.map(lambda own: RemoveMessage(id=own))
LEFT = st.lists(MESSAGES, max_size=5, unique_by=lambda message: message.id)


def coded(value: Any) -> Coded:
    return Coded(*SERDE.dumps_typed(value))


def written(*values: Any) -> list[StoredWrite]:
    return [StoredWrite("task", "", n, "messages", coded(value)) for n, value in enumerate(values)]


def merged(left: list[BaseMessage], *values: Any) -> list[BaseMessage]:
    """What these updates make of a stored list, read back by LangGraph."""
    known = new_codecs()
    base = read_stored(known["msgpack"], coded(left).data, 0, ())
    items = apply_writes(base, written(*values), known)
    return read(items)


def read(items: list[StoredMessage]) -> list[BaseMessage]:
    whole = new_codecs()["msgpack"].join_list(item.raw for item in items)
    return SERDE.loads_typed(("msgpack", whole))


# LangGraph leaves what follows the removal of all as it is: no ids are merged in that.
ANEW = LEFT.map(lambda messages: [RemoveMessage(id=REMOVE_ALL_MESSAGES), *messages])


@given(LEFT, st.lists(st.lists(MESSAGES | REMOVED, max_size=4) | ANEW, max_size=3))
def test_updates_are_merged_as_add_messages_does(
    left: list[BaseMessage], right: list[list[BaseMessage]]
) -> None:
    own: Any = left
    for update in right:
        known = {message.id for message in own}
        fresh: list[BaseMessage] = []
        for message in update:
            if not isinstance(message, RemoveMessage) or message.id in {*known, "__remove_all__"}:
                fresh.append(message)
                known.add(message.id)
        own = add_messages(own, fresh)
    assert merged(left, *right) == own


@given(LEFT, st.lists(st.lists(MESSAGES | REMOVED, max_size=4), max_size=4))
def test_updates_are_merged_as_the_reducer_of_changes_does(
    left: list[BaseMessage], right: list[list[BaseMessage]]
) -> None:
    own = left
    for update in right:
        own = _messages_delta_reducer(own, [update])
    touched = {m.id for update in right for m in update if isinstance(m, RemoveMessage)}
    made = merged(left, *right)
    assert {m.id: m for m in made} == {m.id: m for m in own}
    assert [m.id for m in made if m.id not in touched] == [m.id for m in own if m.id not in touched]


@pytest.mark.parametrize(
    "update",
    [
        HumanMessage("hi"),
        [HumanMessage("hi")],
        "hi",
        ["hi"],
        [("user", "hi")],
        {"role": "user", "content": "hi"},
        [{"type": "human", "content": "hi"}],
    ],
    ids=repr,
)
def test_every_form_of_a_message_is_taken(update: Any) -> None:
    left = [SystemMessage("be good", id="1")]
    made = merged(left, update)
    own: Any = add_messages(list(left), update)
    assert [(type(m), m.content) for m in made] == [(type(m), m.content) for m in own]


def test_an_update_in_place_of_all_is_taken_so() -> None:
    left = [HumanMessage("a", id="1")]
    new = [HumanMessage("b", id="2")]
    assert merged(left, Overwrite(new)) == new
    assert merged(left, [HumanMessage("c", id="3")], Overwrite(new)) == new


def test_writes_count_in_the_order_of_their_tasks() -> None:
    values = [
        StoredWrite("b", "~2", 0, "messages", coded([HumanMessage("last", id="3")])),
        StoredWrite("z", "~1", 1, "messages", coded([HumanMessage("then", id="2")])),
        StoredWrite("z", "~1", 0, "messages", coded([HumanMessage("first", id="1")])),
    ]
    found = read(apply_writes([], values, new_codecs()))
    assert [message.content for message in found] == ["first", "then", "last"]


@pytest.mark.parametrize("value", [[1], [{"a": 1}], 5, {"x": 1}, [["a", "b", "c"]]], ids=repr)
def test_what_is_no_message_is_said(value: Any) -> None:
    with pytest.raises(Undecodable, match="not a message"):
        apply_writes([], written(value), new_codecs())


def test_nothing_is_nothing() -> None:
    assert apply_writes([], written(None), new_codecs()) == []


# Ids


def test_messages_with_one_id_are_told_apart() -> None:
    one, other = {"type": "human", "content": "a", "id": "1"}, {"type": "ai", "content": "b"}
    views = [one, {**other, "id": "1"}, {**one}, {**other, "id": "2"}]
    assert repeated_ids(views) == [1, 2]
    made = [view for _, view in make_distinct(views)]
    assert [number for number, _ in make_distinct(views)] == [0, 1, 3]
    assert [view["content"] for view in made] == ["a", "b", "b"]
    assert made[0] is one
    assert len({view["id"] for view in made}) == len(made)
    assert [view["id"] for _, view in make_distinct(views)] == [view["id"] for view in made]


def test_only_new_messages_get_an_id_and_always_the_same() -> None:
    old = {"type": "human", "content": "a"}
    new = {"type": "tool", "content": "x", "tool_call_id": "c1"}
    with_id = {"type": "ai", "content": "b", "id": "1"}
    made = add_ids([old, with_id, new, {**new}], [old, with_id])
    assert made[:2] == [old, with_id]
    assert len({id_of(view) for view in made[1:]}) == 3
    assert made == add_ids([old, with_id, new, {**new}], [old, with_id])
    assert add_ids([old, new], [old]) == [old, new]


def test_an_answer_has_the_id_that_a_running_graph_would_give_it() -> None:
    view = {"type": "tool", "content": "x", "tool_call_id": "c1"}
    [here] = add_ids([view], [])
    [there] = add_ids([ToolMessage("x", tool_call_id="c1")], [], always=True)
    assert here["id"] == there.id
