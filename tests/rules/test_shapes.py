"""Shapes that went out as they are, or vanished: found, healed once, and nothing of them lost."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage, convert_to_messages

import lockstitch
from lockstitch.dialects.placeholders import is_placeholder
from tests.dump import dump
from tests.oracles import problems
from tests.property.strategies import LANGCHAIN_FORMS

pytestmark = pytest.mark.filterwarnings("error")

ASKED = {"role": "user", "content": "Look."}
CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"q": "KEPT"}'}}
ANSWER = {"role": "tool", "tool_call_id": "c1", "content": "found"}


def healed_once(messages: list[Any], dialect: str) -> list[Any]:
    """Heal a list, and see that once is enough."""
    plan = lockstitch.plan(messages, dialect)
    assert plan.remaining == []
    assert problems(dialect, plan.messages) == []
    assert lockstitch.heal(plan.messages, dialect) is plan.messages
    assert not lockstitch.rules.is_broken(lockstitch.check(plan.messages, dialect))
    return list(plan.messages)


def codes(messages: list[Any], dialect: str) -> set[str]:
    return {finding.code for finding in lockstitch.check(messages, dialect)}


def test_calls_in_a_tool_message_that_answers_nothing() -> None:
    messages = [ASKED, {"role": "tool", "content": "said", "tool_calls": [CALL]}]
    assert codes(messages, "openai-chat") == {"LS103", "LS413"}
    _, text, calls, answer = healed_once(messages, "openai-chat")
    assert (text["role"], "said" in text["content"]) == ("user", True)
    assert calls["tool_calls"] == [CALL]
    assert is_placeholder(answer["content"])


def test_calls_in_the_message_that_answers_them() -> None:
    messages = [ASKED, {**ANSWER, "tool_calls": [CALL]}]
    _, calls, answer = healed_once(messages, "openai-chat")
    assert (calls["role"], calls["tool_calls"], answer) == ("assistant", [CALL], ANSWER)


def test_a_copy_of_the_calls_in_their_result_goes() -> None:
    said = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    messages = [ASKED, said, {**ANSWER, "tool_calls": [CALL]}]
    assert codes(messages, "openai-chat") == {"LS413"}
    assert healed_once(messages, "openai-chat") == [ASKED, said, ANSWER]


def test_a_batch_is_not_torn_by_calls_in_one_of_its_results() -> None:
    other = {**CALL, "id": "c2"}
    said = {"role": "assistant", "content": "", "tool_calls": [CALL, other]}
    late = {**CALL, "id": "c3"}
    second = {**ANSWER, "tool_call_id": "c2"}
    messages = [ASKED, said, {**ANSWER, "tool_calls": [late]}, second]
    healed = healed_once(messages, "openai-chat")
    assert healed[:4] == [ASKED, said, ANSWER, second]
    assert healed[4]["tool_calls"] == [late]


def test_what_is_no_call_in_a_tool_message_is_set_aside() -> None:
    messages = [ASKED, {**ANSWER, "tool_calls": [{"stray": "KEPT"}, 7]}]
    plan = lockstitch.plan(messages, "openai-chat")
    assert "KEPT" in dump(plan.quarantine)
    healed_once(messages, "openai-chat")


@pytest.mark.parametrize("form", LANGCHAIN_FORMS)
def test_calls_in_a_tool_message_of_langchain(form: Any) -> None:
    call = {"name": "ls", "args": {"q": "KEPT"}, "id": "c1", "type": "tool_call"}
    tool = {"type": "tool", "content": "said", "tool_call_id": "none", "tool_calls": [call]}
    messages = form([{"type": "human", "content": "Look."}, tool])
    assert codes(messages, "langchain") == {"LS103", "LS413"}
    assert "KEPT" in dump(healed_once(messages, "langchain"))


def test_a_nameless_call_of_langchain_becomes_one_that_langchain_takes() -> None:
    messages = [
        {"type": "human", "content": "a"},
        {"type": "ai", "content": "", "tool_calls": [{}]},
    ]
    assert "LS210" in codes(messages, "langchain")
    _, made, answer = convert_to_messages(healed_once(messages, "langchain"))
    assert isinstance(made, AIMessage)
    assert isinstance(answer, ToolMessage)
    assert [(call["name"], call["args"]) for call in made.tool_calls] == [("unknown_tool", {})]
    assert answer.tool_call_id == made.tool_calls[0]["id"]


def test_a_nameless_call_gets_the_name_of_its_copy() -> None:
    block = {"type": "tool_use", "id": "c1", "name": "ls", "input": {}}
    call = {"args": {}, "id": "c1", "type": "tool_call"}
    reply = {"type": "ai", "content": [block], "tool_calls": [call]}
    healed = healed_once([{"type": "human", "content": "a"}, reply], "langchain")
    assert healed[1]["tool_calls"][0]["name"] == "ls"


@pytest.mark.parametrize(
    ("text", "healed"),
    [
        ("", "{}"),
        ("null", "{}"),
        ('"{\\"q\\": 1}"', '{"q":1}'),
        ("[]", "{}"),
        ("3", "{}"),
        ('["KEPT"]', "{}"),
    ],
)
def test_arguments_that_are_no_object(text: str, healed: str) -> None:
    item = {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": text}
    result = {"type": "function_call_output", "call_id": "c1", "output": "found"}
    messages = [ASKED, item, result]
    assert codes(messages, "openai-responses") == {"LS207"}
    assert healed_once(messages, "openai-responses")[1]["arguments"] == healed
    plan = lockstitch.plan(messages, "openai-responses")
    assert ("KEPT" in text) == ("KEPT" in dump(plan.quarantine))


def test_lone_reasoning_with_half_a_character() -> None:
    summary = [{"type": "summary_text", "text": "KEPT \ud83d"}]
    lone = {"type": "reasoning", "id": "rs_1", "summary": summary}
    spoken = {"type": "message", "role": "assistant", "id": "msg_1", "content": "There."}
    assert healed_once([ASKED, lone, ASKED], "openai-responses") == [ASKED, ASKED]
    assert healed_once([ASKED, lone], "openai-responses") == [ASKED]
    led = healed_once([ASKED, lone, spoken], "openai-responses")
    assert led == [ASKED, {key: value for key, value in spoken.items() if key != "id"}]
    quarantine = lockstitch.plan([ASKED, lone, ASKED], "openai-responses").quarantine
    assert "KEPT" in str([kept.value for kept in quarantine])


@pytest.mark.parametrize("dialect", ["openai-responses", "openai-chat"])
def test_a_name_with_nul_and_nothing_under_it(dialect: str) -> None:
    healed = healed_once([{**ASKED, "metadata": {"a\x00": None}}], dialect)
    assert healed == [{**ASKED, "metadata": {"a\ufffd": None}}]


def test_lone_reasoning_without_an_id_is_fine() -> None:
    lone = {"type": "reasoning", "summary": [], "encrypted_content": "abc"}
    messages = [ASKED, lone, ASKED]
    assert lockstitch.check(messages, "openai-responses") == []
    assert lockstitch.heal(messages, "openai-responses") is messages


def test_an_empty_text_block_in_a_result_keeps_what_stands_beside_it() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "x", "input": {}}
    blocks = [{"type": "text"}, {"type": "text", "value": "KEPT"}, {"type": "text", "text": "too"}]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": blocks}
    messages = [
        ASKED,
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    assert codes(messages, "anthropic") == {"LS416"}
    healed = healed_once(messages, "anthropic")[2]["content"][0]["content"]
    assert [block["text"] for block in healed] == ['{"type":"text","value":"KEPT"}', "too"]
