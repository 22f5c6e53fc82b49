"""What LangChain's integrations or the providers behind them refuse.

Takes messages as objects and in the three forms they are stored in.
Calls that LangChain could not parse are sent as calls by its integrations, so they count as calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .common import filled, is_json, is_object, repeated, unsendable, unwrap

TYPES = {
    "HumanMessage": "human",
    "AIMessage": "ai",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "function",
    "ChatMessage": "chat",
}
ROLES = ("human", "ai", "system", "tool", "function", "chat", "developer", "remove")
SAME = {"user": "human", "assistant": "ai"}

Message = dict[str, Any]


def plain(message: Any) -> Any:
    """The message as one flat dict with a ``type``, whichever form it came in."""
    if hasattr(message, "model_dump"):
        message = message.model_dump()
    if isinstance(message, str):
        return {"type": "human", "content": message}
    if not isinstance(message, dict):
        return None
    if isinstance(message.get("data"), dict) and "content" not in message:
        inner = message["data"].get("type")
        outer = message.get("type")
        kind = inner if isinstance(inner, str) else outer
        message = {**message, **message["data"], "type": kind}
    elif message.get("lc") == 1 and isinstance(message.get("kwargs"), dict):
        path = message.get("id")
        name = str(path[-1]) if isinstance(path, list) and path else ""
        kind = TYPES.get(name.removesuffix("Chunk"))
        message = {**message["kwargs"], "type": kind}
    kind = message.get("type")
    kind = kind if isinstance(kind, str) else message.get("role")
    kind = kind.removesuffix("MessageChunk").lower() if isinstance(kind, str) else kind
    return {**message, "type": SAME.get(kind, kind) if isinstance(kind, str) else kind}


def problems(value: Any) -> list[str]:
    """What would be refused in a list of messages or a state with ``messages``."""
    messages, _ = unwrap(value, "messages")
    if not isinstance(messages, list):
        return ["messages: not a list"]
    flat = [plain(message) for message in messages]
    found = list(unsendable(flat, "messages"))
    for index, message in enumerate(flat):
        found += _shape(message, f"messages.{index}")
    if any(message is None for message in flat):
        return found
    found += _pairs(flat)
    return found


def calls_of(message: Message) -> list[Any]:
    """Every call of an AI message that an integration would send."""
    calls = _list(message, "tool_calls") + _list(message, "invalid_tool_calls")
    if calls:
        return calls
    extra = message.get("additional_kwargs")
    return _list(extra, "tool_calls") if isinstance(extra, dict) else []


def _list(holder: dict[str, Any], key: str) -> list[Any]:
    return holder[key] if isinstance(holder.get(key), list) else []


def _shape(message: Any, place: str) -> Iterator[str]:
    if message is None:
        yield f"{place}: not a message"
        return
    kind = message.get("type")
    if kind not in ROLES:
        yield f"{place}.type: {kind!a}"
    if not isinstance(message.get("content"), str | list) and kind != "remove":
        yield f"{place}.content: neither a string nor a list"
    for index, block in enumerate(_list(message, "content")):
        if not _is_block(block):
            yield f"{place}.content.{index}: not a block with a type"
    if kind == "tool" and not filled(message.get("tool_call_id")):
        yield f"{place}.tool_call_id: missing"
    if kind == "tool" and message.get("tool_calls"):
        yield f"{place}: tool_calls of a tool"
    if kind == "ai":
        yield from _calls_shape(message, place)


def _is_block(block: Any) -> bool:
    if isinstance(block, dict) and block.get("type") == "text":
        return isinstance(block.get("text"), str)
    return isinstance(block, str) or (isinstance(block, dict) and filled(block.get("type")))


def _calls_shape(message: Message, place: str) -> Iterator[str]:
    for index, call in enumerate(_list(message, "tool_calls")):
        if wrong := _call_fault(call):
            yield f"{place}.tool_calls.{index}: {wrong}"
    for index, call in enumerate(_list(message, "invalid_tool_calls")):
        if not isinstance(call, dict) or not is_json(call.get("args")):
            yield f"{place}.invalid_tool_calls.{index}.args: not JSON"
    called = [call.get("id") for call in calls_of(message) if isinstance(call, dict)]
    for block in _list(message, "content"):
        if isinstance(block, dict) and block.get("type") == "tool_use":
            if block.get("id") not in called:
                yield f"{place}: a call in the content that is not in tool_calls"
            if isinstance(block.get("input"), str) and not is_json(block["input"] or "{}"):
                yield f"{place}: a call in the content with a broken input"


def _call_fault(call: Any) -> str:
    if not isinstance(call, dict) or not filled(call.get("id")):
        return "no id"
    if not _has_arguments(call):
        return "no readable arguments"
    return "" if filled((call.get("function") or call).get("name")) else "no name"


def _has_arguments(call: dict[str, Any]) -> bool:
    """A call may also be written as OpenAI has it."""
    function = call.get("function")
    if isinstance(function, dict) and "args" not in call:
        return is_object(function.get("arguments"))
    return isinstance(call.get("args"), dict)


def _pairs(messages: list[Message]) -> Iterator[str]:
    calls: list[Any] = []
    answered: list[Any] = []
    for index, message in enumerate(messages):
        if message.get("type") == "tool":
            key = message.get("tool_call_id")
            if key not in calls:
                yield f"messages.{index}: tool message without its call: {key!a}"
            elif key in answered:
                yield f"messages.{index}: second answer to {key!a}"
            answered.append(key)
            continue
        yield from _unanswered(calls, answered, f"messages.{index}")
        own = calls_of(message) if message.get("type") == "ai" else []
        calls, answered = [call.get("id") for call in own if isinstance(call, dict)], []
        for twice in repeated(item for item in calls if isinstance(item, str)):
            yield f"messages.{index}: call id {twice!a} twice in one message"
    yield from _unanswered(calls, answered, "the end")


def _unanswered(calls: list[Any], answered: list[Any], place: str) -> Iterator[str]:
    missing = [item for item in calls if item not in answered]
    if missing:
        yield f"{place}: calls without answers before it: {missing!a}"
