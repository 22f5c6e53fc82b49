"""A repaired list says where every message and every part of it came from."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import structs

import lockstitch
from lockstitch.conversation.parts import Place
from lockstitch.repair.draft import value_at


def say(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def call(name: str) -> dict[str, Any]:
    block = {"type": "tool_use", "id": name, "name": "bash", "input": {}}
    return {"role": "assistant", "content": [{"type": "text", "text": "I look."}, block]}


def result(name: str) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": name, "content": f"output of {name}"}
    return {"role": "user", "content": [block]}


def done(text: str = "Done.") -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


OPEN = [say("a"), call("one"), say("b"), done(), say("c")]
LATE = [say("a"), call("one"), done(), result("one"), done(), say("c")]
QUIET = [message for n in range(40) for message in (say(f"prompt {n}"), done(f"answer {n}"))]


@pytest.mark.parametrize("before", [QUIET, []], ids=["narrowed", "whole"])
@pytest.mark.parametrize("broken", [OPEN, LATE], ids=["open", "late"])
def test_all_that_is_not_new_stands_where_it_is_said_to_have_been(
    before: list[Any], broken: list[Any]
) -> None:
    given = [*before, *broken]
    plan = lockstitch.plan(given, "anthropic")
    assert plan.changed
    assert [one.message for one in plan.repaired] == plan.plain
    for one in plan.repaired:
        if not one.parts:
            assert one.message is given[one.origin]
        for part in one.parts:
            if part.origin is not None and part.value is not None:
                assert value_at(given[part.origin], part.path) == part.value


def test_an_answer_that_is_made_up_is_new() -> None:
    plan = lockstitch.plan(OPEN, "anthropic")
    (made,) = [part for one in plan.repaired for part in one.parts if part.origin is None]
    assert made.value["type"] == "tool_result"
    assert made.value["tool_use_id"] == "one"


def test_a_result_that_moves_keeps_its_origin() -> None:
    plan = lockstitch.plan(LATE, "anthropic")
    spoken = [one.message for one in plan.repaired]
    assert spoken[2] == LATE[3]
    assert plan.repaired[2].origin == 3
    assert [one.origin for one in plan.repaired][:2] == [0, 1]


def test_nothing_to_do_leaves_everything_where_it_is() -> None:
    plan = lockstitch.plan(QUIET, "anthropic")
    assert [one.origin for one in plan.repaired] == list(range(len(QUIET)))
    assert all(one.message is old for one, old in zip(plan.repaired, QUIET, strict=True))


def test_a_place_is_a_value_and_prints_as_ever() -> None:
    (found,) = lockstitch.check(OPEN, "anthropic")
    assert found.place == "messages.1.content.1"
    assert type(found.place) is str
    assert (found.at.message, found.at.path) == (1, ("content", 1))
    assert Place.parse(found.place) == found.at
    assert "at" not in msgspec.to_builtins(found)
    assert structs.replace(found, place=found.at, severity="note").at is found.at


RESULT = {"toolResult": {"toolUseId": "call_1", "content": [{"text": "Found."}]}}
ASKED = {"toolUse": {"toolUseId": "call_1", "name": "read", "input": {}}}
THERE = {"role": "user", "content": [{"text": "Are you there?"}]}


@pytest.mark.parametrize(
    ("first", "last", "edits"),
    [
        ([RESULT], [], [("move", "messages.0.content.1", "messages.2.content.0")]),
        ([], [RESULT], [("insert", "", "messages.2.content.0"), ("delete", "", "messages.4")]),
    ],
    ids=["before its call", "a turn late"],
)
def test_a_message_that_a_result_joins_is_still_the_one_it_was(
    first: list[Any], last: list[Any], edits: list[tuple[str, str, str]]
) -> None:
    given = [
        {"role": "user", "content": [{"text": "Look."}, *first]},
        {"role": "assistant", "content": [{"text": "I look."}, ASKED]},
        THERE,
    ]
    if last:
        given += [{"role": "assistant", "content": [{"text": "Yes."}]}]
        given += [{"role": "user", "content": last}]
    plan = lockstitch.plan(given, "bedrock")
    joined = plan.repaired[2]
    assert joined.message == {"role": "user", "content": [RESULT, *THERE["content"]]}
    assert joined.origin == 2
    assert [(edit.op, edit.source, edit.place) for edit in plan.edits] == edits
