"""What the Anthropic Messages API refuses.

A run of assistant messages is one turn.
The message right after it must be the user's and begin with one result for each call of the turn.
Server tools are answered inside the turn; a turn at the very end may be paused and still wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .common import bad_base64_image, blank, filled, marked, repeated, unsendable, unwrap

ID = re.compile(r"[a-zA-Z0-9_-]+")
NAME_LIMIT = 200
CACHE_MARKS = 4
SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
SERVER_ANSWERS = {
    "web_search": "web_search_tool_result",
    "web_fetch": "web_fetch_tool_result",
    "code_execution": "code_execution_tool_result",
    "bash_code_execution": "bash_code_execution_tool_result",
    "text_editor_code_execution": "text_editor_code_execution_tool_result",
    "tool_search_tool_regex": "tool_search_tool_result",
    "tool_search_tool_bm25": "tool_search_tool_result",
    "advisor": "advisor_tool_result",
}
NO_CALLS = ("text", "image", "document", "search_result", "thinking", "redacted_thinking")
ONLY_ASSISTANT = ("tool_use", "thinking", "redacted_thinking", *SERVER_CALLS)

Block = dict[str, Any]


def problems(value: Any) -> list[str]:
    """What the API would refuse in a list of messages or a request body."""
    messages, body = unwrap(value, "messages")
    if not isinstance(messages, list):
        return ["messages: not a list"]
    found = list(unsendable(messages, "messages"))
    for index, message in enumerate(messages):
        last = index == len(messages) - 1
        found += _shape(message, f"messages.{index}", last)
    if any(not isinstance(message, dict) for message in messages):
        return found
    turns = [(message.get("role"), _blocks(message)) for message in messages]
    found += [
        "messages.0: starts with the assistant" for role, _ in turns[:1] if role == "assistant"
    ]
    found += _system(turns)
    found += _ids(turns)
    found += _pairs(turns)
    found += _server_pairs(turns)
    found += _cache_marks(turns, body)
    return found


def _is_server_answer(block: Block) -> bool:
    kind = block.get("type")
    return isinstance(kind, str) and kind.endswith("_tool_result")


def _blocks(message: dict[str, Any]) -> list[Block]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return [block for block in content if isinstance(block, dict)]
    return []


def _shape(message: Any, place: str, last: bool) -> Iterator[str]:
    if not isinstance(message, dict):
        yield f"{place}: not an object"
        return
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        yield f"{place}.role: {role!a}"
    # a system message may hold nothing but an option that counts from there on
    sets = role == "system" and bool(message.keys() - {"role", "content"})
    optional = sets or (last and role == "assistant")
    if isinstance(content, str):
        if blank(content) and not (optional and content == ""):
            yield f"{place}.content: blank"
    elif not isinstance(content, list):
        yield f"{place}.content: neither a string nor a list"
    elif not content and not optional:
        yield f"{place}.content: empty"
    else:
        for index, block in enumerate(content):
            yield from _block_shape(block, role, f"{place}.content.{index}")


def _block_shape(block: Any, role: Any, place: str) -> Iterator[str]:
    if not isinstance(block, dict) or not filled(block.get("type")):
        yield f"{place}: not a block with a type"
        return
    kind = block["type"]
    if role == "system" and kind not in ("text", "tool_addition", "tool_removal"):
        yield f"{place}: {kind} in a system message"
    if role != "assistant" and (kind in ONLY_ASSISTANT or _is_server_answer(block)):
        yield f"{place}: {kind} in a message of {role!a}"
    if role != "user" and kind == "tool_result":
        yield f"{place}: tool_result in a message of {role!a}"
    if kind == "text" and (not isinstance(block.get("text"), str) or blank(block["text"])):
        yield f"{place}.text: blank"
    if kind in ("tool_use", *SERVER_CALLS):
        yield from _call_shape(block, place)
    if kind == "tool_result":
        yield from _result_shape(block, place)
    if kind in ("thinking", "redacted_thinking"):
        yield from _thinking_shape(block, place)
    if kind == "image" and (wrong := bad_base64_image(block.get("source"))):
        yield f"{place}: {wrong}"


def _call_shape(block: Block, place: str) -> Iterator[str]:
    if not isinstance(block.get("id"), str) or not ID.fullmatch(block["id"]):
        yield f"{place}.id: outside the alphabet"
    if not isinstance(block.get("input"), dict):
        yield f"{place}.input: not an object"
    name = block.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= NAME_LIMIT:
        yield f"{place}.name: empty or too long"


def _result_shape(block: Block, place: str) -> Iterator[str]:
    content = block.get("content", "")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        yield f"{place}.content: neither a string nor a list"
        return
    for index, item in enumerate(content):
        if not isinstance(item, dict) or not filled(item.get("type")):
            yield f"{place}.content.{index}: not a block with a type"
        elif item["type"] == "text" and not filled(item.get("text")):
            yield f"{place}.content.{index}.text: empty"
        elif item["type"] != "text" and block.get("is_error") is True:
            yield f"{place}.content.{index}: {item['type']} in an error result"
        elif item["type"] == "image" and (wrong := bad_base64_image(item.get("source"))):
            yield f"{place}.content.{index}: {wrong}"


def _thinking_shape(block: Block, place: str) -> Iterator[str]:
    if block["type"] == "redacted_thinking":
        if not filled(block.get("data")):
            yield f"{place}: redacted thinking without data"
    elif not filled(block.get("signature")) or not isinstance(block.get("thinking"), str):
        yield f"{place}: unsigned thinking"
    if block.get("cache_control"):
        yield f"{place}: cache_control on thinking"


def _system(turns: list[tuple[Any, list[Block]]]) -> Iterator[str]:
    """A system message comes after a user turn and before an assistant turn or the end."""
    roles = [role for role, _ in turns]
    for index, role in enumerate(roles):
        if role != "system":
            continue
        before = turns[index - 1] if index else (None, [])
        paused = before[0] == "assistant" and before[1][-1:] and _waits(before[1][-1])
        if before[0] not in ("user", "system") and not paused:
            yield f"messages.{index}: system message after {before[0]!a}"
        if index + 1 < len(roles) and roles[index + 1] == "user":
            yield f"messages.{index}: system message before a user message"


def _waits(block: Block) -> bool:
    return block.get("type") in SERVER_CALLS


def _ids(turns: list[tuple[Any, list[Block]]]) -> Iterator[str]:
    calls = ("tool_use", *SERVER_CALLS)
    ids = [block.get("id") for _, blocks in turns for block in blocks if block.get("type") in calls]
    for twice in repeated(item for item in ids if isinstance(item, str)):
        yield f"call id {twice!a} is not unique"


def _pairs(turns: list[tuple[Any, list[Block]]]) -> Iterator[str]:
    open_calls: list[Any] = []
    for index, (role, blocks) in enumerate(turns):
        if role == "assistant":
            yield from _order_in_turn(blocks, bool(open_calls), f"messages.{index}")
            open_calls += [b.get("id") for b in blocks if b.get("type") == "tool_use"]
            continue
        yield from _answers(blocks, open_calls, f"messages.{index}")
        open_calls = []
    if open_calls:
        yield f"calls without results at the end: {open_calls!a}"


def _order_in_turn(blocks: list[Block], called: bool, place: str) -> Iterator[str]:
    for index, block in enumerate(blocks):
        if block.get("type") == "tool_use":
            called = True
        elif called and block.get("type") in NO_CALLS:
            yield f"{place}.content.{index}: {block.get('type')!a} after a tool_use of the turn"


def _answers(blocks: list[Block], calls: list[Any], place: str) -> Iterator[str]:
    kinds = [block.get("type") for block in blocks]
    leading = next((i for i, kind in enumerate(kinds) if kind != "tool_result"), len(kinds))
    if "tool_result" in kinds[leading:]:
        yield f"{place}: results are not first"
    ids = [block.get("tool_use_id") for block in blocks[:leading]]
    for item in ids:
        if item not in calls:
            yield f"{place}: result without a call before it: {item!a}"
    for twice in repeated(item for item in ids if isinstance(item, str)):
        yield f"{place}: several results for {twice!a}"
    missing = [item for item in calls if item not in ids]
    if missing:
        yield f"{place}: calls without results before it: {missing!a}"


def _server_pairs(turns: list[tuple[Any, list[Block]]]) -> Iterator[str]:
    """A server tool is answered in its turn, or after the client tools that the turn called."""
    waiting: dict[str, Block] = {}
    suspended: dict[str, Block] = {}
    for index, (role, blocks) in enumerate(turns):
        if role != "assistant":
            if any(block.get("type") == "tool_result" for block in blocks):
                suspended |= waiting
            else:
                yield from (f"server call {key!a} has no result in its turn" for key in waiting)
            waiting = {}
            continue
        for block in blocks:
            if _waits(block):
                waiting[str(block.get("id"))] = block
            elif _is_server_answer(block):
                key = str(block.get("tool_use_id"))
                call = waiting.pop(key, None) or suspended.pop(key, None)
                if call is None or not _fits(call, block):
                    yield f"messages.{index}: {block['type']} without its call: {key!a}"


def _fits(call: Block, answer: Block) -> bool:
    given: str = answer["type"]
    if call["type"] == "mcp_tool_use":
        return given == "mcp_tool_result"
    return given == SERVER_ANSWERS.get(str(call.get("name")), given)


def _cache_marks(turns: list[tuple[Any, list[Block]]], body: dict[str, Any]) -> Iterator[str]:
    groups = [*(blocks for _, blocks in turns), body.get("system"), body.get("tools")]
    marks = sum(marked(group, "cache_control") for group in groups)
    if marks > CACHE_MARKS:
        yield f"{marks} cache marks"
