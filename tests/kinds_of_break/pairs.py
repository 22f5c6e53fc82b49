"""Which result answers which call, in messages that an oracle has found clean.

In a clean list this is simple, so it needs nothing of the engine's pairing.
"""

from __future__ import annotations

import itertools
from typing import Any

from tests.dump import dump
from tests.oracles.langchain import calls_of, plain

Pair = tuple[str, str]


def pairs(dialect: str, messages: list[Any]) -> list[Pair]:
    """(call, result) as text, for every call in *messages*."""
    return _READERS[dialect.partition(":")[0]](messages)


def calls(dialect: str, messages: list[Any]) -> list[str]:
    """Every call in clean *messages*, as text."""
    return [call for call, _ in pairs(dialect, messages)]


def _blocks(message: Any, kind: str) -> list[Any]:
    content = message["content"]
    if isinstance(content, str):
        return []
    return [block for block in content if block.get("type") == kind]


def _anthropic(messages: list[Any]) -> list[Pair]:
    found: list[Pair] = []
    uses: list[Any] = []
    for message in messages:
        if message["role"] == "assistant":
            uses += _blocks(message, "tool_use")
            continue
        results = {r["tool_use_id"]: r for r in _blocks(message, "tool_result")}
        found += [(dump(use), dump(results[use["id"]])) for use in uses]
        uses = []
    return found


def _openai_chat(messages: list[Any]) -> list[Pair]:
    found: list[Pair] = []
    open_calls: dict[Any, Any] = {}
    for message in messages:
        if message["role"] == "tool":
            found.append((dump(open_calls[message["tool_call_id"]]), dump(message)))
        else:
            open_calls = {call["id"]: call for call in message.get("tool_calls") or []}
    return found


def _openai_responses(items: list[Any]) -> list[Pair]:
    found: list[Pair] = []
    open_calls: dict[Any, Any] = {}
    for item in items:
        kind, key = item.get("type", ""), item.get("call_id") or item.get("id")
        if kind.endswith("_call") and "call_id" in item:
            open_calls[key] = item
        elif kind.endswith("_call_output") and key in open_calls:
            found.append((dump(open_calls[key]), dump(item)))
    return found


def _parts(content: Any, *keys: str) -> list[Any]:
    return [part[key] for part in content["parts"] for key in keys if part.get(key) is not None]


def _gemini(contents: list[Any]) -> list[Pair]:
    found: list[Pair] = []
    for call_turn, answer_turn in itertools.pairwise(contents):
        open_calls = _parts(call_turn, "functionCall", "function_call")
        for response in _parts(answer_turn, "functionResponse", "function_response"):
            call = _gemini_call(open_calls, response)
            open_calls.remove(call)
            found.append((dump(call), dump(response)))
    return found


def _gemini_call(open_calls: list[Any], response: Any) -> Any:
    by_id = [c for c in open_calls if c.get("id") and c["id"] == response.get("id")]
    by_name = [c for c in open_calls if c["name"] == response["name"]]
    return (by_id or by_name)[0]


def _bedrock(messages: list[Any]) -> list[Pair]:
    found: list[Pair] = []
    for call_turn, answer_turn in itertools.pairwise(messages):
        uses = [b["toolUse"] for b in call_turn["content"] if "toolUse" in b]
        answers = [b["toolResult"] for b in answer_turn["content"] if "toolResult" in b]
        results = {result["toolUseId"]: result for result in answers}
        client = [use for use in uses if use.get("type") is None]
        found += [(dump(use), dump(results[use["toolUseId"]])) for use in client]
    return found


def _langchain(messages: list[Any]) -> list[Pair]:
    found: list[Pair] = []
    open_calls: dict[Any, Any] = {}
    for message in map(plain, messages):
        if message["type"] == "tool":
            found.append((dump(open_calls[message["tool_call_id"]]), dump(message)))
        else:
            own = calls_of(message) if message["type"] == "ai" else []
            open_calls = {call["id"]: call for call in own}
    return found


_READERS = {
    "anthropic": _anthropic,
    "openai-chat": _openai_chat,
    "openai-responses": _openai_responses,
    "gemini": _gemini,
    "bedrock": _bedrock,
    "langchain": _langchain,
}
