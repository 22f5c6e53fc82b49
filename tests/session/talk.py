"""Replies as providers send them, and what of a request the tests look at."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import lockstitch
from tests.oracles import problems

DIALECTS = ("anthropic", "openai-chat", "openai-responses", "gemini", "bedrock", "langchain")
Asked = tuple[str, str, dict[str, Any]]


def asks(dialect: str, *calls: Asked, text: str = "Let me see.") -> dict[str, Any]:
    """A reply that asks for tools: an id, a name and arguments each."""
    return _WRITERS[dialect](text, calls)


def says(dialect: str, text: str = "Done.") -> dict[str, Any]:
    """A reply that asks for nothing."""
    return _WRITERS[dialect](text, ())


def _anthropic(text: str, calls: Iterable[Asked]) -> dict[str, Any]:
    blocks: list[Any] = [{"type": "text", "text": text}]
    blocks += [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a in calls]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": blocks,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _openai_chat(text: str, calls: Iterable[Asked]) -> dict[str, Any]:
    asked = [
        {"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
        for i, n, a in calls
    ]
    message = {"role": "assistant", "content": text, "refusal": None}
    if asked:
        message["tool_calls"] = asked  # type: ignore[assignment]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if asked else "stop"}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5.2",
        "choices": [choice],
    }


def _openai_responses(text: str, calls: Iterable[Asked]) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    output: list[Any] = [
        {"type": "message", "id": "m1", "role": "assistant", "status": "completed",
         "content": content},
    ]  # fmt: skip
    output += [
        {"type": "function_call", "id": f"fc_{i}", "call_id": i, "name": n,
         "arguments": json.dumps(a), "status": "completed"}
        for i, n, a in calls
    ]  # fmt: skip
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "gpt-5.2",
        "output": output,
    }


def _gemini(text: str, calls: Iterable[Asked]) -> dict[str, Any]:
    parts: list[Any] = [{"text": text}]
    parts += [{"functionCall": {"id": i, "name": n, "args": a}} for i, n, a in calls]
    content = {"role": "model", "parts": parts}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "modelVersion": "gemini-2.5-pro",
    }


_WRITERS = {
    "anthropic": _anthropic,
    "openai-chat": _openai_chat,
    "openai-responses": _openai_responses,
    "gemini": _gemini,
}


def results(messages: list[Any]) -> dict[str, str]:
    """What an OpenAI Chat request answers each call with, by the call's id."""
    return {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}


def texts(messages: list[Any], role: str) -> list[str]:
    """What somebody says in an OpenAI Chat request."""
    return [m["content"] for m in messages if m["role"] == role and m["content"]]


def faults(dialect: str, messages: list[Any]) -> list[str]:
    """What this project's rules and an independent validator have against a request."""
    return [*map(str, lockstitch.check(messages, dialect=dialect)), *problems(dialect, messages)]
