"""Complete values in the wrong spelling are spelled anew, not thrown away.

Arguments are an object with some providers and JSON text with others; results are text or blocks.
A program that mixes the two up loses nothing that heal could not give back.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import lockstitch
from tests.dump import dump
from tests.healthy import anthropic, bedrock, gemini, langchain, openai_chat, openai_responses
from tests.oracles import problems

from .pairs import pairs

GIVEN = {"path": "MARK-a", "deep": [1, {"b": None}]}


def _messages(dialect: str, arguments: Any, result: Any) -> list[Any]:
    """A question, a call and its result, with these values in them whatever their type."""
    if dialect == "anthropic":
        call = {**anthropic.call("c"), "input": arguments}
        answer = anthropic.user(anthropic.result("c", result))
        return [anthropic.user("go"), anthropic.assistant(call), answer]
    if dialect == "openai-chat":
        call = openai_chat.call("c", arguments=arguments)
        speech = openai_chat.said("assistant", None, tool_calls=[call])
        return [openai_chat.said("user", "go"), speech, openai_chat.tool("c", result)]
    if dialect == "openai-responses":
        call = openai_responses.call("c", arguments=arguments)
        return [openai_responses.user("go"), call, openai_responses.output("c", result)]
    if dialect == "gemini":
        call = {"functionCall": {"name": "f", "args": arguments}}
        answer = {"functionResponse": {"name": "f", "response": result}}
        return [gemini.user("go"), gemini.model(call), gemini.user(answer)]
    if dialect == "bedrock":
        call = bedrock.call("c", input=arguments)
        answer = {"toolResult": {"toolUseId": "c", "content": result}}
        return [bedrock.user("go"), bedrock.assistant(call), bedrock.user(answer)]
    call = {"name": "f", "args": arguments, "id": "c", "type": "tool_call"}
    return [langchain.human("go"), langchain.ai("", call), langchain.tool("c", result)]


GOOD_RESULT: dict[str, Any] = {
    "anthropic": "r",
    "openai-chat": "r",
    "openai-responses": "r",
    "gemini": {"output": "r"},
    "bedrock": [{"text": "r"}],
    "langchain": "r",
}
every_dialect = pytest.mark.parametrize("dialect", GOOD_RESULT)


def _arguments(dialect: str, messages: list[Any]) -> Any:
    [(call, _)] = pairs(dialect, messages)
    value = json.loads(call)
    value = value.get("function", value)
    found = next(value[key] for key in ("input", "arguments", "args") if key in value)
    return json.loads(found) if isinstance(found, str) else found


@every_dialect
@pytest.mark.parametrize("as_text", [True, False], ids=["text", "object"])
def test_arguments_keep_their_value(dialect: str, as_text: bool) -> None:
    given = json.dumps(GIVEN) if as_text else GIVEN
    healed = lockstitch.heal(_messages(dialect, given, GOOD_RESULT[dialect]), dialect)
    assert problems(dialect, healed) == []
    assert _arguments(dialect, healed) == GIVEN


@every_dialect
@pytest.mark.parametrize(
    "result",
    [{"rows": ["MARK-b"]}, ["MARK-b"], [{"rows": "MARK-b"}], 12345, True, None],
    ids=["object", "list", "list of objects", "number", "boolean", "null"],
)
def test_results_keep_their_value(dialect: str, result: Any) -> None:
    plan = lockstitch.plan(_messages(dialect, GIVEN, result), dialect)
    assert plan.remaining == []
    assert problems(dialect, plan.messages) == []
    [(_, answer)] = pairs(dialect, plan.messages)
    for piece in ("MARK-b", "12345"):
        assert piece not in dump(result) or piece in answer
