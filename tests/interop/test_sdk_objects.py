from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from google.genai import types as google
from langchain_core import messages as langchain

import lockstitch
from lockstitch.dialects.placeholders import UNKNOWN_OUTCOME, WAITING
from tests.oracles import problems

from .kits import (
    KITS,
    Anthropic,
    Google,
    Kit,
    LangChain,
    LangChainChunks,
    OpenAIChat,
    OpenAIResponses,
)
from .recorder import Recorder, recording


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with recording() as running:
        yield running


@pytest.fixture(params=KITS, ids=lambda kit: kit.__name__)
def kit(request: pytest.FixtureRequest, recorder: Recorder) -> Kit:
    made = request.param(recorder)
    assert isinstance(made, Kit)
    return made


def orphan(kit: Kit) -> list[Any]:
    asked, later = kit.ask("What is there?"), kit.ask("Go on.")
    return [asked, *kit.call("a", "b"), kit.result("a", "a real result"), later]


def duplicate(kit: Kit) -> list[Any]:
    twice = [kit.result("a", "a real result"), kit.result("a", "a real result")]
    return [kit.ask("What is there?"), *kit.call("a"), *twice, kit.ask("Go on.")]


def displaced(kit: Kit) -> list[Any]:
    asked, call, result = kit.ask("What is there?"), kit.call("a"), kit.result("a", "a real result")
    if kit.dialect == "openai-responses":
        # a result may come late there, but not before its call
        return [asked, result, *call, kit.ask("Go on.")]
    return [asked, *call, kit.ask("By the way."), result, kit.ask("Go on.")]


def interrupted(kit: Kit) -> list[Any]:
    return [kit.ask("What is there?"), *kit.call("a", "b")]


def answered(kit: Kit) -> list[Any]:
    return [kit.ask("What is there?"), *kit.call("a"), kit.result("a", "a real result")]


def chained(kit: Kit) -> list[Any]:
    return [*answered(kit), *kit.call("c"), kit.ask("And now?")]


BREAKS = [orphan, duplicate, displaced, interrupted, chained]


def dumped(value: Any) -> Any:
    if isinstance(value, list):
        return [dumped(item) for item in value]
    if isinstance(value, dict):
        return {key: dumped(item) for key, item in value.items()}
    return value.model_dump() if hasattr(value, "model_dump") else value


@pytest.mark.parametrize("broken", BREAKS, ids=lambda build: build.__name__)
def test_what_the_sdk_sends_of_a_healed_list_is_accepted(kit: Kit, broken: Any) -> None:
    messages = broken(kit)
    assert problems(kit.checked_as, kit.sent(messages))
    healed = lockstitch.heal(messages, kit.dialect)
    assert problems(kit.checked_as, kit.sent(healed)) == []


@pytest.mark.parametrize("broken", BREAKS, ids=lambda build: build.__name__)
def test_a_healed_list_is_in_kind(kit: Kit, broken: Any) -> None:
    messages = broken(kit)
    healed = lockstitch.heal(messages, kit.dialect)
    assert type(healed) is list
    given = {type(message) for message in messages}
    assert {type(message) for message in healed} <= given | {langchain.ToolMessage, dict}
    assert dict in given or not any(isinstance(message, dict) for message in healed)


@pytest.mark.parametrize("broken", BREAKS, ids=lambda build: build.__name__)
def test_what_the_assistant_said_comes_back_as_the_same_objects(kit: Kit, broken: Any) -> None:
    messages = broken(kit)
    said = [message for message in messages if _is_said(message)]
    assert said
    healed = {id(message) for message in lockstitch.heal(messages, kit.dialect)}
    assert all(id(message) in healed for message in said)


def _is_said(message: Any) -> bool:
    if isinstance(message, dict):
        return message.get("role") == "assistant"
    names = {getattr(message, key, None) for key in ("role", "type")}
    said = {"assistant", "model", "ai", "AIMessageChunk", "reasoning", "function_call"}
    return not names.isdisjoint(said)


@pytest.mark.parametrize("broken", [orphan, duplicate, displaced], ids=lambda b: b.__name__)
def test_a_real_result_is_sent_exactly_once(kit: Kit, broken: Any) -> None:
    body = json.dumps(kit.sent(lockstitch.heal(broken(kit), kit.dialect)))
    assert body.count("a real result") == 1
    assert body.count(UNKNOWN_OUTCOME) == (1 if broken is orphan else 0)


def test_a_valid_list_comes_back_as_the_same_object(kit: Kit) -> None:
    messages = answered(kit)
    assert problems(kit.checked_as, kit.sent(messages)) == []
    assert lockstitch.heal(messages, kit.dialect) is messages
    assert lockstitch.check(messages, kit.dialect) == []


@pytest.mark.parametrize("broken", BREAKS, ids=lambda build: build.__name__)
def test_healing_changes_no_object_that_was_given(kit: Kit, broken: Any) -> None:
    messages = broken(kit)
    before = repr(messages)
    lockstitch.heal(messages, kit.dialect)
    assert repr(messages) == before


@pytest.mark.parametrize("broken", BREAKS, ids=lambda build: build.__name__)
def test_healing_twice_changes_nothing_more(kit: Kit, broken: Any) -> None:
    healed = lockstitch.heal(broken(kit), kit.dialect)
    assert lockstitch.heal(healed, kit.dialect) is healed


# LangChain itself does not take a chunk's dump for a message
@pytest.mark.parametrize("kit", [kit for kit in KITS if kit is not LangChainChunks], indirect=True)
@pytest.mark.parametrize("broken", [answered, *BREAKS], ids=lambda build: build.__name__)
def test_dumps_of_the_objects_are_accepted_too(kit: Kit, broken: Any) -> None:
    healed = lockstitch.heal(dumped(broken(kit)), kit.dialect)
    assert problems(kit.checked_as, kit.sent(healed)) == []


def test_the_dialect_is_found_by_the_objects(kit: Kit) -> None:
    assert lockstitch.detect(orphan(kit)) == kit.dialect


def test_a_tuple_comes_back_as_a_tuple(kit: Kit) -> None:
    healed = lockstitch.heal(tuple(orphan(kit)), kit.dialect)
    assert type(healed) is tuple
    assert problems(kit.checked_as, kit.sent(list(healed))) == []


def test_a_generator_comes_back_as_a_list(kit: Kit) -> None:
    for build in (orphan, answered):
        healed = lockstitch.heal((message for message in build(kit)), kit.dialect)
        assert type(healed) is list
        assert problems(kit.checked_as, kit.sent(healed)) == []


def test_a_waiting_call_is_closed_in_kind(kit: Kit) -> None:
    messages = interrupted(kit)
    ids = [str(call) for call in _ids(kit.sent(messages))]
    body = kit.sent(lockstitch.heal(messages, kit.dialect, waiting=ids))
    assert json.dumps(body).count(WAITING) == 2
    assert problems(kit.checked_as, body) == []


def _ids(value: Any) -> Iterator[Any]:
    """Give the ids of all calls in a body, whatever its format."""
    if isinstance(value, list):
        for item in value:
            yield from _ids(item)
    if isinstance(value, dict):
        if "name" in value and ("input" in value or "args" in value or "arguments" in value):
            found = [value.get(key) for key in ("call_id", "toolUseId", "id")]
            yield from [one for one in found if one][:1]
        elif "function" in value:
            yield value["id"]
        else:
            for item in value.values():
                yield from _ids(item)


# --- one SDK at a time


def test_a_whole_anthropic_request_can_be_healed_as_it_is(recorder: Recorder) -> None:
    kit = Anthropic(recorder)
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    request: dict[str, Any] = {
        "model": "m",
        "max_tokens": 9,
        "messages": orphan(kit),
        "tools": tools,
    }
    healed = lockstitch.heal(request)
    assert healed.keys() == request.keys()
    assert healed["messages"][1] is request["messages"][1]
    body = kit.sent(healed["messages"])
    assert problems("anthropic", body) == []


def test_an_anthropic_call_that_gets_another_id_stays_an_object(recorder: Recorder) -> None:
    kit = Anthropic(recorder)
    [said] = kit.call("a")
    said["content"][1] = said["content"][1].model_copy(update={"id": "bad id!"})
    result = kit.result("a", "a real result")
    result["content"][0]["tool_use_id"] = "bad id!"
    healed = lockstitch.heal([kit.ask("What is there?"), said, result, kit.ask("Go on.")])
    assert healed[1]["content"][0] is said["content"][0]
    assert type(healed[1]["content"][1]) is type(said["content"][1])
    body = kit.sent(healed)
    assert problems("anthropic", body) == []
    assert "a real result" in json.dumps(body)


def test_calls_of_a_reply_in_a_message_param_are_read(recorder: Recorder) -> None:
    kit = OpenAIChat(recorder)
    [reply] = kit.call("a", "b")
    said = {"role": "assistant", "content": None, "tool_calls": reply.tool_calls}
    messages = [kit.ask("What is there?"), said, kit.result("b", "a real result")]
    healed = lockstitch.heal(messages, "openai-chat")
    assert healed[1] is said
    assert problems("openai-chat", kit.sent(healed)) == []


def test_an_output_put_back_as_input_item_by_item_is_healed(recorder: Recorder) -> None:
    kit = OpenAIResponses(recorder)
    output = kit.call("a")
    healed = lockstitch.heal([kit.ask("What is there?"), *output])
    assert [type(item) for item in healed[1:3]] == [type(item) for item in output]
    assert healed[3]["type"] == "function_call_output"
    assert problems("openai-responses", kit.sent(healed)) == []


def test_a_signature_reaches_google_byte_for_byte(recorder: Recorder) -> None:
    kit = Google(recorder)
    before = kit.sent(orphan(kit))["contents"][1]
    assert kit.sent(lockstitch.heal(orphan(kit)))["contents"][1] == before


def test_google_parts_in_dicts_are_healed_in_kind(recorder: Recorder) -> None:
    kit = Google(recorder)
    call = google.Part(function_call=google.FunctionCall(name="look", args={}))
    messages = [
        {"role": "user", "parts": [google.Part(text="What is there?")]},
        {"role": "model", "parts": [call]},
    ]
    healed = lockstitch.heal(messages, "gemini")
    assert healed[1] is messages[1]
    assert problems("gemini", kit.sent(healed)) == []


def test_every_way_to_write_a_langchain_message_can_stand_in_one_list(recorder: Recorder) -> None:
    kit = LangChain(recorder)
    messages = ["What is there?", ("system", "Be brief."), *kit.call("a"), ("human", "Go on.")]
    healed = lockstitch.heal(messages, "langchain")
    assert healed[2] is messages[2]
    assert healed[3] == langchain.ToolMessage(
        UNKNOWN_OUTCOME, tool_call_id="a", name="look", status="error"
    )
    assert problems("openai-chat", kit.sent(healed)) == []


def test_a_state_of_langgraph_is_healed_where_it_stands(recorder: Recorder) -> None:
    kit = LangChain(recorder)
    state = {"messages": orphan(kit), "remaining_steps": 3, "scratch": object()}
    healed = lockstitch.heal(state, "langchain")
    assert healed["scratch"] is state["scratch"]
    assert problems("openai-chat", kit.sent(healed["messages"])) == []


def test_what_a_tool_kept_beside_its_result_survives_a_move(recorder: Recorder) -> None:
    kit = LangChain(recorder)
    artifact = object()
    late = langchain.ToolMessage("out", tool_call_id="a", artifact=artifact)
    messages = [kit.ask("What is there?"), *kit.call("a"), kit.ask("By the way."), late]
    healed = lockstitch.heal(messages, "langchain")
    assert healed[2] is late
    assert healed[2].artifact is artifact


def test_an_object_of_no_known_kind_is_refused_with_its_place() -> None:
    with pytest.raises(lockstitch.UsageError, match=r"builtins\.object at messages\.1\.content\.0"):
        lockstitch.heal(
            [{"role": "user", "content": "hi"}, {"role": "user", "content": [object()]}],
            "anthropic",
        )
