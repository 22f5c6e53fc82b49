"""What OpenAI's Chat Completions API and strict servers of the same shape refuse.

With ``mistral=True`` the stricter rules of Mistral hold as well.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

from .common import filled, is_object, repeated, unsendable, unwrap

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}")

Message = dict[str, Any]


def problems(value: Any, *, mistral: bool = False) -> list[str]:
    """What the server would refuse in a list of messages or a request body."""
    messages, _ = unwrap(value, "messages")
    if not isinstance(messages, list):
        return ["messages: not a list"]
    found = list(unsendable(messages, "messages"))
    for index, message in enumerate(messages):
        found += _shape(message, f"messages.{index}")
    if any(not isinstance(message, dict) for message in messages):
        return found
    found += _pairs(messages)
    if mistral:
        found += _mistral(messages)
    return found


def _shape(message: Any, place: str) -> Iterator[str]:
    if not isinstance(message, dict):
        yield f"{place}: not an object"
        return
    role = message.get("role")
    if role not in ROLES:
        yield f"{place}.role: {role!a}"
    yield from _content_shape(message, place)
    if message.get("tool_calls") is not None:
        if role != "assistant":
            yield f"{place}: tool_calls of {role!a}"
        if message["tool_calls"] == []:
            yield f"{place}.tool_calls: [] is too short"
        if not isinstance(message["tool_calls"], list):
            yield f"{place}.tool_calls: not a list"
    for index, call in enumerate(_calls(message)):
        yield from _call_shape(call, f"{place}.tool_calls.{index}")
    if role == "tool" and not filled(message.get("tool_call_id")):
        yield f"{place}.tool_call_id: missing"


def _content_shape(message: Message, place: str) -> Iterator[str]:
    content = message.get("content")
    if content is None:
        speaks = ("tool_calls", "function_call", "refusal", "audio")
        if message.get("role") == "assistant" and any(message.get(key) for key in speaks):
            return
        if message.get("role") != "function":
            yield f"{place}.content: null"
    elif isinstance(content, list):
        if not content:
            yield f"{place}.content: empty array"
        for index, part in enumerate(content):
            if not isinstance(part, dict) or not filled(part.get("type")):
                yield f"{place}.content.{index}: not a part with a type"
            elif part["type"] == "text" and not isinstance(part.get("text"), str):
                yield f"{place}.content.{index}.text: not a string"
    elif not isinstance(content, str):
        yield f"{place}.content: neither a string nor a list"


def _calls(message: Message) -> list[Any]:
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _call_shape(call: Any, place: str) -> Iterator[str]:
    if not isinstance(call, dict):
        yield f"{place}: not an object"
        return
    if not filled(call.get("id")):
        yield f"{place}.id: missing"
    if call.get("type") == "custom":
        custom = call.get("custom")
        if not isinstance(custom, dict) or not isinstance(custom.get("input"), str):
            yield f"{place}.custom.input: not a string"
        return
    function = call.get("function")
    if not isinstance(function, dict) or not filled(function.get("name")):
        yield f"{place}.function: no name"
    elif not is_object(function.get("arguments")):
        yield f"{place}.function.arguments: not an object"


def _pairs(messages: list[Message]) -> Iterator[str]:
    """Right after an assistant message with calls: one tool message a call, nothing between."""
    calls: list[Any] = []
    answered: list[Any] = []
    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            key = message.get("tool_call_id")
            if key not in calls:
                yield f"messages.{index}: tool message without its call: {key!a}"
            elif key in answered:
                yield f"messages.{index}: second answer to {key!a}"
            answered.append(key)
            continue
        yield from _unanswered(calls, answered, f"messages.{index}")
        calls = [call.get("id") for call in _calls(message) if isinstance(call, dict)]
        answered = []
        for twice in repeated(item for item in calls if isinstance(item, str)):
            yield f"messages.{index}: call id {twice!a} twice in one message"
    yield from _unanswered(calls, answered, "the end")


def _unanswered(calls: list[Any], answered: list[Any], place: str) -> Iterator[str]:
    missing = [item for item in calls if item not in answered]
    if missing:
        yield f"{place}: calls without answers before it: {missing!a}"


def _mistral(messages: list[Message]) -> Iterator[str]:
    spoken = [message.get("role") for message in messages]
    ids = [c.get("id") for m in messages for c in _calls(m) if isinstance(c, dict)]
    for twice in repeated(item for item in ids if isinstance(item, str)):
        yield f"call id {twice!a} is not unique"
    for item in ids:
        if not isinstance(item, str) or not MISTRAL_ID.fullmatch(item):
            yield f"call id {item!a} is not nine letters or digits"
    for index, (before, role) in enumerate(itertools.pairwise(spoken), 1):
        if before == "tool" and role not in ("tool", "assistant"):
            yield f"messages.{index}: {role!a} after a tool message"
    first = next((role for role in spoken if role not in ("system", "developer")), "user")
    if first == "assistant":
        yield f"starts with {first!a}"
