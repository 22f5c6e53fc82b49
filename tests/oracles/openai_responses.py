"""What OpenAI's Responses API refuses in its input items.

An output may stand anywhere after its call; the call's kind decides the output's type.
When the request leans on state that the server keeps, the call of an output may be there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .common import filled, is_object, repeated, unsendable, unwrap

LIMIT = 64
OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
}
CALL_OF = {output: call for call, output in OUTPUTS.items()}
PREFIXES = {"function_call": "fc", "custom_tool_call": "ctc", "reasoning": "rs"}
TEXTS = ("input_text", "output_text", "text")
ROLES = ("user", "assistant", "system", "developer")

Item = dict[str, Any]


def problems(value: Any) -> list[str]:
    """What the API would refuse in a list of items or a request body."""
    items, body = unwrap(value, "input")
    if isinstance(items, str):
        return list(unsendable(items, "input"))
    if not isinstance(items, list):
        return ["input: not a list"]
    found = list(unsendable(items, "input"))
    for index, item in enumerate(items):
        found += _shape(item, f"input.{index}")
    if any(not isinstance(item, dict) for item in items):
        return found
    stored = bool(body.get("previous_response_id") or body.get("conversation"))
    found += _item_ids(items)
    found += _pairs(items, stored or any(_kind(i) == "item_reference" for i in items))
    found += _reasoning(items)
    return found


def _kind(item: Item) -> str:
    kind = item.get("type")
    if kind is None:
        return "message" if "role" in item else "item_reference"
    return kind if isinstance(kind, str) else "not a string"


def _key(item: Item) -> Any:
    """The id that ties call and output; the output of a local shell call may have only ``id``."""
    if _kind(item) == "local_shell_call_output" and item.get("call_id") is None:
        return item.get("id")
    return item.get("call_id")


def _shape(item: Any, place: str) -> Iterator[str]:
    if not isinstance(item, dict):
        yield f"{place}: not an object"
        return
    kind = _kind(item)
    if kind == "not a string":
        yield f"{place}.type: not a string"
    elif kind == "message":
        yield from _message_shape(item, place)
    elif kind == "item_reference" and not filled(item.get("id")):
        yield f"{place}: says neither what it is nor what it refers to"
    elif kind in OUTPUTS or kind in CALL_OF:
        yield from _call_shape(item, place)
    elif kind == "reasoning":
        yield from _summary_shape(item.get("summary"), f"{place}.summary")


def _call_shape(item: Item, place: str) -> Iterator[str]:
    kind = _kind(item)
    if not filled(_key(item)):
        yield f"{place}.call_id: missing"
    elif len(_key(item)) > LIMIT:
        yield f"{place}.call_id: longer than {LIMIT}"
    if kind == "function_call" and not filled(item.get("name")):
        yield f"{place}.name: missing"
    if kind == "function_call" and not is_object(item.get("arguments")):
        yield f"{place}.arguments: not an object"
    if kind == "function_call_output":
        yield from _parts_shape(item.get("output"), f"{place}.output")


def _summary_shape(summary: Any, place: str) -> Iterator[str]:
    if not isinstance(summary, list):
        yield f"{place}: missing"
        return
    for index, part in enumerate(summary):
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            yield f"{place}.{index}: no text"


def _message_shape(item: Item, place: str) -> Iterator[str]:
    if item.get("role") not in ROLES:
        yield f"{place}.role: {item.get('role')!a}"
    yield from _parts_shape(item.get("content"), f"{place}.content")


def _parts_shape(content: Any, place: str) -> Iterator[str]:
    if not isinstance(content, str | list):
        yield f"{place}: neither a string nor a list"
        return
    for index, part in enumerate(content if isinstance(content, list) else []):
        if not isinstance(part, dict) or not filled(part.get("type")):
            yield f"{place}.{index}: not a part with a type"
        elif part["type"] in TEXTS and not isinstance(part.get("text"), str):
            yield f"{place}.{index}.text: missing"


def _item_ids(items: list[Item]) -> Iterator[str]:
    ids = [item["id"] for item in items if isinstance(item.get("id"), str)]
    for twice in repeated(ids):
        yield f"item id {twice!a} is not unique"
    for index, item in enumerate(items):
        own = item.get("id")
        if not isinstance(own, str) or _kind(item) == "local_shell_call_output":
            continue
        if len(own) > LIMIT:
            yield f"input.{index}.id: longer than {LIMIT}"
        prefix = PREFIXES.get(_kind(item), "")
        if _kind(item) == "message" and item.get("role") == "assistant":
            prefix = "msg"
        if not own.startswith(prefix):
            yield f"input.{index}.id: does not begin with {prefix}"


def _pairs(items: list[Item], stored: bool) -> Iterator[str]:
    calls: dict[Any, str] = {}
    answered: set[Any] = set()
    for index, item in enumerate(items):
        kind, key = _kind(item), _key(item)
        if not isinstance(key, str):
            continue
        if kind in OUTPUTS:
            if key in calls:
                yield f"input.{index}: call_id {key!a} is not unique"
            calls[key] = kind
        elif kind in CALL_OF:
            if key in answered:
                yield f"input.{index}: second output for {key!a}"
            elif key not in calls and not stored:
                yield f"input.{index}: output without its call before it: {key!a}"
            elif key in calls and not _fits(calls[key], kind):
                yield f"input.{index}: {kind} for a {calls[key]}"
            answered.add(key)
    missing = [key for key in calls if key not in answered]
    if missing:
        yield f"calls without outputs: {missing!a}"


def _fits(call: str, output: str) -> bool:
    """Codex answers its local shell with the output of a function, and that is taken."""
    return OUTPUTS[call] == output or (call, output) == ("local_shell_call", "function_call_output")


def _reasoning(items: list[Item]) -> Iterator[str]:
    """A reasoning item is followed by what it led to: more reasoning, a call or the answer.

    One that is sent without an id asks for nothing.
    """
    for index, item in enumerate(items):
        if _kind(item) != "reasoning" or item.get("id") is None:
            continue
        if index + 1 == len(items) or _is_client_input(items[index + 1]):
            yield f"input.{index}: reasoning without its following item"


def _is_client_input(item: Item) -> bool:
    kind = _kind(item)
    return item.get("role") != "assistant" if kind == "message" else kind in CALL_OF
