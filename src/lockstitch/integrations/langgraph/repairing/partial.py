"""Replies that were cut off: what of an interrupted stream can stay in a conversation.

Text stays. A call stays only if its arguments arrived whole; a half call, what is left of a
signed thought, and a reply in which nothing arrived are taken out.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ToolMessage,
    message_chunk_to_message,
)

from lockstitch.formats.base import find
from lockstitch.rules import Finding

HALF_CALL = "LS207"
EMPTY_REPLY = "LS401"
_TWINS = ("tool_use", "tool_call", "function_call")
_PIECES = ("input_json_delta", "tool_call_chunk")
_ENDS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")


def completed(
    messages: Sequence[BaseMessage],
) -> tuple[list[BaseMessage], list[Finding]]:
    """Give the messages without what arrived only in part; a reply that is whole is the object."""
    answered = {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}
    kept: list[BaseMessage] = []
    findings: list[Finding] = []
    for index, message in enumerate(messages):
        if not isinstance(message, AIMessage):
            kept.append(message)
            continue
        whole, found = _completed(message, answered, f"messages.{index}")
        findings += found
        if whole is not None:
            kept.append(whole)
    return kept, findings


def _completed(
    message: AIMessage, answered: Collection[str], place: str
) -> tuple[AIMessage | None, list[Finding]]:
    halves = {call for call in half_calls(message) if call not in answered}
    findings = [find(HALF_CALL, place, "a call arrived only in part") for _ in halves]
    whole = message
    if halves or (is_cut(message) and _loose_ends(message)):
        whole = _without(message, halves)
    if _is_empty(whole) and (whole is not message or not _has_ended(message)):
        findings.append(find(EMPTY_REPLY, place, "nothing of a reply arrived", fixable=True))
        return None, findings
    return whole, findings


def half_calls(message: AIMessage) -> set[str | None]:
    """Give the ids of the calls whose arguments are not whole."""
    halves = {call.get("id") for call in message.invalid_tool_calls}
    chunks = message.tool_call_chunks if isinstance(message, AIMessageChunk) else ()
    halves |= {chunk.get("id") for chunk in chunks if not _is_whole(chunk.get("args"))}
    for block in _blocks(message):
        if block.get("type") in _TWINS and "partial_json" in block:
            if not _is_whole(block["partial_json"]):
                halves.add(block.get("id"))
        elif block.get("type") == "input_json_delta":
            halves.add(None)
    return halves


def is_cut(message: AIMessage) -> bool:
    """Tell whether a reply is what had arrived of a stream when it was broken off."""
    return isinstance(message, AIMessageChunk) and not _has_ended(message)


def _has_ended(message: AIMessage) -> bool:
    return any(message.response_metadata.get(key) for key in _ENDS)


def _blocks(message: BaseMessage) -> list[dict[str, Any]]:
    content = message.content
    return [block for block in content if isinstance(block, dict)] if type(content) is list else []


def _is_whole(arguments: object) -> bool:
    if isinstance(arguments, dict):
        return True
    try:
        return isinstance(json.loads(arguments if isinstance(arguments, str) else ""), dict)
    except (ValueError, RecursionError):
        return arguments == "" or arguments is None


def _loose_ends(message: AIMessage) -> bool:
    return any(_is_unsigned(block) for block in _blocks(message))


def _is_unsigned(block: dict[str, Any]) -> bool:
    thought = block.get("type") == "thinking" and isinstance(block.get("thinking"), str)
    return thought and not block.get("signature")


def _without(message: AIMessage, halves: Collection[str | None]) -> AIMessage:
    """Make the reply anew: a plain message that has only what arrived whole."""
    plain = message_chunk_to_message(message)
    changes: dict[str, Any] = {
        "tool_calls": _others(message.tool_calls, halves),
        "invalid_tool_calls": _others(message.invalid_tool_calls, halves),
    }
    if isinstance(message.content, list):
        changes["content"] = [
            block for block in message.content if isinstance(block, str) or not _goes(block, halves)
        ]
    listed = message.additional_kwargs.get("tool_calls")
    if isinstance(listed, list):
        rest = {k: v for k, v in message.additional_kwargs.items() if k != "tool_calls"}
        kept = _others(listed, halves)
        changes["additional_kwargs"] = rest | ({"tool_calls": kept} if kept else {})
    return plain.model_copy(update=changes)  # type: ignore[return-value]


def _others(calls: Iterable[Any], halves: Collection[str | None]) -> list[Any]:
    return [call for call in calls if not isinstance(call, dict) or call.get("id") not in halves]


def _goes(block: dict[str, Any], halves: Collection[str | None]) -> bool:
    kind = block.get("type")
    if kind in _TWINS:
        return (block.get("call_id") or block.get("id")) in halves or block.get("id") in halves
    return kind in _PIECES or _is_unsigned(block)


def _is_empty(message: AIMessage) -> bool:
    if message.tool_calls or message.invalid_tool_calls:
        return False
    if any(message.additional_kwargs.values()):
        return False
    content = message.content
    if isinstance(content, str):
        return not content.strip()
    return all(_is_blank(block) for block in content)


def _is_blank(block: str | dict[str, Any]) -> bool:
    if isinstance(block, str):
        return not block.strip()
    return block.get("type") == "text" and not str(block.get("text", "")).strip()
