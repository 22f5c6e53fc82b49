"""Make a list of LangChain messages valid, and match it with the one that an application holds.

The text of an interrupted reply stays. A call stays only if its arguments arrived completely. An
incomplete call, an incomplete signed thought, and a reply in which nothing arrived are removed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ToolMessage,
    convert_to_messages,
    message_chunk_to_message,
    messages_from_dict,
)
from msgspec import Struct, field

from lockstitch.dialects import LANGCHAIN
from lockstitch.dialects.placeholders import is_placeholder
from lockstitch.errors import UsageError
from lockstitch.formats.interface import new_finding
from lockstitch.formats.langgraph.decisions import add_ids, make_distinct, repeated_ids
from lockstitch.repair.plan import plan_stored
from lockstitch.rules import Finding

DIALECT = LANGCHAIN
_TWINS = ("tool_use", "tool_call", "function_call")
_PIECES = ("input_json_delta", "tool_call_chunk")
_ENDS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")


class RepairedMessages(Struct):
    """A conversation after its repair, and counts of what was done.

    ``healed`` is False if something is left that no repair can fix; ``messages`` are then the
    original ones. Untouched messages are the same objects.
    """

    messages: list[BaseMessage]
    findings: list[Finding] = field(default_factory=list)
    healed: bool = True
    synthetic: int = 0
    partial: int = 0
    duplicates: int = 0


def repair_messages(messages: Sequence[BaseMessage]) -> RepairedMessages:
    """Make a stored conversation valid: no half calls, no repeated ids, one answer to each call."""
    whole, partial = drop_partial(messages)
    doubled = [
        new_finding("LS906", f"messages.{index}", "an id is used twice")
        for index in repeated_ids(whole)
    ]
    plan = plan_stored([one for _, one in make_distinct(whole)], DIALECT, None)
    findings = [*partial, *doubled, *plan.findings]
    if not plan.healed:
        return RepairedMessages(list(messages), findings, healed=False)
    found: list[BaseMessage] = add_ids(plan.messages, messages, always=True)
    known = {id(message) for message in messages}
    return RepairedMessages(
        found,
        findings,
        synthetic=sum(
            isinstance(one, ToolMessage) and id(one) not in known and not is_real(one)
            for one in found
        ),
        partial=len(partial),
        duplicates=len(doubled),
    )


def is_real(message: BaseMessage) -> bool:
    """Whether this is a tool's own result, and not a placeholder for one."""
    return isinstance(message, ToolMessage) and not is_placeholder(str(message.text))


# Replies that were cut off


def drop_partial(messages: Sequence[BaseMessage]) -> tuple[list[BaseMessage], list[Finding]]:
    """Remove what arrived only in part; a complete reply stays the same object."""
    answered = {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}
    kept: list[BaseMessage] = []
    findings: list[Finding] = []
    for index, message in enumerate(messages):
        if not isinstance(message, AIMessage):
            kept.append(message)
            continue
        place = f"messages.{index}"
        halves = {call for call in incomplete_calls(message) if call not in answered}
        text = "a call arrived only in part"
        findings += [new_finding("LS207", place, text) for _ in halves]
        whole = message
        has_ended = any(message.response_metadata.get(key) for key in _ENDS)
        is_cut = isinstance(message, AIMessageChunk) and not has_ended
        if halves or (is_cut and any(map(_is_unsigned, _blocks(message)))):
            whole = _without_incomplete(message, halves)
        if _is_empty(whole) and (whole is not message or not has_ended):
            text = "nothing arrived of a reply"
            findings.append(new_finding("LS401", place, text, fixable=True))
        else:
            kept.append(whole)
    return kept, findings


def incomplete_calls(message: AIMessage) -> set[str | None]:
    """Return the ids of the calls with incomplete arguments."""
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


def _is_unsigned(block: dict[str, Any]) -> bool:
    thought = block.get("type") == "thinking" and isinstance(block.get("thinking"), str)
    return thought and not block.get("signature")


def _without_incomplete(message: AIMessage, halves: Collection[str | None]) -> AIMessage:
    """Return a new reply: a plain message with only what arrived completely."""

    def others(calls: Iterable[Any]) -> list[Any]:
        return [one for one in calls if not isinstance(one, dict) or one.get("id") not in halves]

    def goes(block: dict[str, Any]) -> bool:
        kind = block.get("type")
        if kind in _TWINS:
            return (block.get("call_id") or block.get("id")) in halves or block.get("id") in halves
        return kind in _PIECES or _is_unsigned(block)

    changes: dict[str, Any] = {
        "tool_calls": others(message.tool_calls),
        "invalid_tool_calls": others(message.invalid_tool_calls),
    }
    if isinstance(message.content, list):
        blocks = message.content
        changes["content"] = [one for one in blocks if isinstance(one, str) or not goes(one)]
    listed = message.additional_kwargs.get("tool_calls")
    if isinstance(listed, list):
        rest = {k: v for k, v in message.additional_kwargs.items() if k != "tool_calls"}
        kept = others(listed)
        changes["additional_kwargs"] = rest | ({"tool_calls": kept} if kept else {})
    plain = message_chunk_to_message(message)
    return plain.model_copy(update=changes)  # type: ignore[return-value]


def _is_empty(message: AIMessage) -> bool:
    if message.tool_calls or message.invalid_tool_calls or any(message.additional_kwargs.values()):
        return False
    content = message.content
    for block in [content] if isinstance(content, str) else content:
        is_text = isinstance(block, str) or block.get("type") == "text"
        text = block if isinstance(block, str) else str(block.get("text", ""))
        if not is_text or text.strip():
            return False
    return True


# The conversation that an application holds


class AlignedMessages(Struct):
    """The application's conversation, as far as possible in the checkpoint's own messages."""

    messages: list[BaseMessage]
    removed: int = 0
    added: int = 0


def align(wanted: Sequence[Any], held: Sequence[BaseMessage]) -> AlignedMessages:
    """Express the application's conversation in the checkpoint's messages.

    Messages are matched by id, or else by their content, in order. They are never matched by
    number, since either side may have more of them. Matched messages keep the checkpoint's id.
    Messages that only the checkpoint has are removed, except for results of calls that stay: they
    are put at the end, and the repair moves them to their places.
    """
    try:
        mine = [_as_message(item) for item in wanted]
    except (ValueError, NotImplementedError, TypeError, KeyError):
        text = "messages must be LangChain messages, or dicts that LangChain can turn into messages"
        raise UsageError(text) from None
    places = _places_in(mine, held)
    found: list[BaseMessage] = []
    for own, at in zip(mine, places, strict=True):
        theirs = own if at is None else held[at]
        # An application may know an incomplete reply that the checkpoint does not have.
        is_part = isinstance(own, AIMessageChunk) and incomplete_calls(own)
        if own == theirs or (_key(own) == _key(theirs) and not is_part):
            found.append(theirs)
        else:
            found.append(own if own.id == theirs.id else own.model_copy(update={"id": theirs.id}))
    taken = {at for at in places if at is not None}
    found, late = _with_results(found, held, taken)
    removed = len(held) - len(taken) - late
    return AlignedMessages(add_ids(found, held, always=True), removed, places.count(None))


def _as_message(item: Any) -> BaseMessage:
    if isinstance(item, dict) and isinstance(item.get("data"), dict) and "content" not in item:
        return messages_from_dict([item])[0]
    return convert_to_messages([item])[0]


def _places_in(mine: Sequence[BaseMessage], held: Sequence[BaseMessage]) -> list[int | None]:
    """Return the place of each message in the checkpoint, None if it has none; each place once."""
    by_id: dict[str, list[int]] = {}
    for place, message in enumerate(held):
        if message.id:
            by_id.setdefault(message.id, []).append(place)
    found: list[int | None] = []
    for own in mine:
        open_places = by_id.get(own.id or "", [])
        fitting = next((at for at in open_places if _kind(held[at]) == _kind(own)), None)
        found.append(fitting)
        if fitting is not None:
            open_places.remove(fitting)
    taken = {at for at in found if at is not None}
    keys = [_key(message) for message in held]
    last = -1
    for index, own in enumerate(mine):
        if found[index] is None:
            end = next((at for at in found[index:] if at is not None), len(held))
            places = (p for p in range(last + 1, end) if p not in taken and keys[p] == _key(own))
            found[index] = next(places, None)
        if (at := found[index]) is not None:
            taken.add(at)
            last = max(last, at)
    return found


def _with_results(
    found: list[BaseMessage], held: Sequence[BaseMessage], taken: set[int]
) -> tuple[list[BaseMessage], int]:
    """Add the results that only the checkpoint has; a real result replaces a placeholder."""
    calls = Counter(call["id"] for m in found if isinstance(m, AIMessage) for call in m.tool_calls)
    real = Counter(m.tool_call_id for m in found if isinstance(m, ToolMessage) and is_real(m))
    late: dict[str, list[BaseMessage]] = {}
    for at, message in enumerate(held):
        if at in taken or not isinstance(message, ToolMessage):
            continue
        call = message.tool_call_id
        if real[call] < calls[call]:
            late.setdefault(call, []).append(message)
            real[call] += 1
    count = sum(map(len, late.values()))
    placed: list[BaseMessage] = []
    for message in found:
        is_stand_in = isinstance(message, ToolMessage) and not is_real(message)
        waiting = late.get(message.tool_call_id) if is_stand_in else None  # type: ignore[attr-defined]
        placed.append(waiting.pop(0) if waiting else message)
    return [*placed, *(message for rest in late.values() for message in rest)], count


def _kind(message: BaseMessage) -> str:
    return message.type.removesuffix("MessageChunk").lower()


def _key(message: BaseMessage) -> str:
    """Return a text that is equal for two messages that say the same."""
    content: Any = message.content
    if isinstance(content, list):
        texts = [block if isinstance(block, str) else block.get("text") for block in content]
        plain = all(isinstance(b, str) or b.get("type") == "text" for b in content)
        content = "".join(map(str, texts)) if plain else content
    calls = [
        (call.get("id"), call.get("name"), call.get("args"))
        for name in ("tool_calls", "invalid_tool_calls")
        for call in getattr(message, name, ())
    ]
    said = (_kind(message), content, calls, getattr(message, "tool_call_id", None))
    return json.dumps(said, sort_keys=True, default=repr)
