"""What Bedrock's Converse API refuses."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

from .common import blank, filled, repeated, unsendable, unwrap

ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
KINDS = (
    *("text", "image", "document", "video", "audio", "toolUse", "toolResult", "guardContent"),
    *("cachePoint", "reasoningContent", "citationsContent", "searchResult"),
)
ASSISTANT_ONLY = ("toolUse", "reasoningContent")
INVISIBLE = "cachePoint"

Block = dict[str, Any]


def problems(value: Any) -> list[str]:
    """What the API would refuse in a list of messages or a request body."""
    messages, _ = unwrap(value, "messages")
    if not isinstance(messages, list):
        return ["messages: not a list"]
    found = list(unsendable(messages, "messages"))
    for index, message in enumerate(messages):
        found += _shape(message, f"messages.{index}")
    if any(not isinstance(message, dict) for message in messages):
        return found
    found += _roles(messages)
    found += _ids(messages)
    found += _pairs(messages)
    return found


def _blocks(message: dict[str, Any]) -> list[Block]:
    content = message.get("content")
    return (
        [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    )


def _shape(message: Any, place: str) -> Iterator[str]:
    if not isinstance(message, dict):
        yield f"{place}: not an object"
        return
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        yield f"{place}.role: {role!a}"
    if not isinstance(content, list) or not content:
        yield f"{place}.content: empty"
        return
    for index, block in enumerate(content):
        yield from _block_shape(block, role, f"{place}.content.{index}")
    kinds = [key for block in _blocks(message) for key in block if block[key]]
    if "document" in kinds and "text" not in kinds:
        yield f"{place}: a document without text"


def _block_shape(block: Any, role: Any, place: str) -> Iterator[str]:
    if not isinstance(block, dict) or not block or sum(key in KINDS for key in block) > 1:
        yield f"{place}: not one block"
        return
    if "text" in block and (not isinstance(block["text"], str) or blank(block["text"])):
        yield f"{place}.text: blank"
    for kind in ASSISTANT_ONLY:
        if kind in block and role != "assistant":
            yield f"{place}: {kind} of {role!a}"
    if "toolUse" in block:
        yield from _call_shape(block["toolUse"], place)
    if "toolResult" in block:
        yield from _result_shape(block["toolResult"], role, place)
    if "reasoningContent" in block:
        yield from _reasoning_shape(block["reasoningContent"], place)


def _call_shape(call: Any, place: str) -> Iterator[str]:
    if not isinstance(call, dict):
        yield f"{place}.toolUse: not an object"
        return
    if not isinstance(call.get("toolUseId"), str) or not ID.fullmatch(call["toolUseId"]):
        yield f"{place}.toolUse.toolUseId: {call.get('toolUseId')!a}"
    if not filled(call.get("name")):
        yield f"{place}.toolUse.name: empty"
    if not isinstance(call.get("input"), dict):
        yield f"{place}.toolUse.input: not an object"


def _result_shape(result: Any, role: Any, place: str) -> Iterator[str]:
    if not isinstance(result, dict):
        yield f"{place}.toolResult: not an object"
        return
    if role != "user" and result.get("type") is None:
        yield f"{place}.toolResult: of {role!a}"
    if not isinstance(result.get("content"), list):
        yield f"{place}.toolResult.content: not a list"
        return
    for index, item in enumerate(result["content"]):
        if not isinstance(item, dict) or len(item) != 1:
            yield f"{place}.toolResult.content.{index}: not one block"
        elif "text" in item and not filled(item["text"]):
            yield f"{place}.toolResult.content.{index}.text: empty"


def _reasoning_shape(reasoning: Any, place: str) -> Iterator[str]:
    if not isinstance(reasoning, dict) or not reasoning:
        yield f"{place}.reasoningContent: empty"
    elif "reasoningText" in reasoning:
        text = reasoning["reasoningText"]
        if not isinstance(text, dict) or not filled(text.get("signature")):
            yield f"{place}.reasoningContent: unsigned"


def _roles(messages: list[dict[str, Any]]) -> Iterator[str]:
    roles = [message.get("role") for message in messages]
    for index, (one, two) in enumerate(itertools.pairwise(roles), 1):
        if one == two != "system":
            yield f"messages.{index}: {two!a} twice in a row"


def _ids(messages: list[dict[str, Any]]) -> Iterator[str]:
    ids = [key for message in messages for key in _calls(message)]
    for twice in repeated(item for item in ids if isinstance(item, str)):
        yield f"toolUseId {twice!a} is not unique"


def _calls(message: dict[str, Any]) -> list[Any]:
    calls = [block["toolUse"] for block in _blocks(message) if "toolUse" in block]
    return [c.get("toolUseId") for c in calls if isinstance(c, dict) and c.get("type") is None]


def _pairs(messages: list[dict[str, Any]]) -> Iterator[str]:
    open_calls: list[Any] = []
    for index, message in enumerate(messages):
        place = f"messages.{index}"
        results = _results(message)
        for key in results:
            if key not in open_calls:
                yield f"{place}: result without its call before it: {key!a}"
        for twice in repeated(item for item in results if isinstance(item, str)):
            yield f"{place}: several results for {twice!a}"
        missing = [key for key in open_calls if key not in results]
        if missing:
            yield f"{place}: calls without results before it: {missing!a}"
        if not _results_first(message):
            yield f"{place}: results are not first"
        open_calls = _calls(message) if message.get("role") == "assistant" else []
    if open_calls:
        yield f"calls without results at the end: {open_calls!a}"


def _results(message: dict[str, Any]) -> list[Any]:
    if message.get("role") == "assistant":
        return []
    results = [block["toolResult"] for block in _blocks(message) if "toolResult" in block]
    return [result.get("toolUseId") for result in results if isinstance(result, dict)]


def _results_first(message: dict[str, Any]) -> bool:
    kinds = ["toolResult" in block for block in _blocks(message) if INVISIBLE not in block]
    return message.get("role") == "assistant" or kinds == sorted(kinds, reverse=True)
