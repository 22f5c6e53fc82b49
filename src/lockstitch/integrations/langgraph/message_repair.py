"""A conversation of LangChain messages made valid by the core, and what that took.

Ids of messages: told apart where two are the same, and derived where there is none.

Nothing is random: healing the same conversation twice gives the same ids, and the same bytes.

Replies that were cut off: what of an interrupted stream can stay in a conversation.

Text stays. A call stays only if its arguments arrived whole; a half call, what is left of a
signed thought, and a reply in which nothing arrived are taken out.

The conversation that an application holds, beside the one in its checkpoint.

Messages are matched by id, or else by what they say, in order. Never by their number: either
side may have more of them than the other.
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
from lockstitch.formats.langgraph.messages import derive_id
from lockstitch.heal import Plan, plan_stored
from lockstitch.rules import Finding
from lockstitch.sources.interface import new_finding

DUPLICATE = "LS906"


def distinct_live(
    messages: Sequence[BaseMessage],
) -> tuple[list[BaseMessage], list[Finding]]:
    """Give every message an id of its own: equal copies become one, others get a derived id."""
    seen: dict[str, BaseMessage] = {}
    kept: list[BaseMessage] = []
    findings: list[Finding] = []
    for index, message in enumerate(messages):
        old = message.id and seen.get(message.id)
        if not old:
            kept.append(message)
        else:
            findings.append(new_finding(DUPLICATE, f"messages.{index}", "an id is used twice"))
            if not is_live_copy(old, message):
                message = _rename_live(message, seen)  # noqa: PLW2901 - the one to remember
                kept.append(message)
        if message.id:
            seen.setdefault(message.id, message)
    return kept, findings


def add_live_ids(
    messages: Sequence[BaseMessage], known: Iterable[BaseMessage]
) -> list[BaseMessage]:
    """Give ids to messages that are new: derived from their call and which answer to it they are.

    Messages that were there before keep what they have.
    """
    old = {id(message) for message in known}
    taken = {message.id for message in messages if message.id}
    count: Counter[str] = Counter()
    out: list[BaseMessage] = []
    for message in messages:
        is_new = message.id is None and id(message) not in old
        if is_new or isinstance(message, ToolMessage):
            source = _live_source(message)
            count[source] += 1
            if is_new:
                fresh = derive_id(f"{source}:{count[source]}", taken)
                message = message.model_copy(update={"id": fresh})  # noqa: PLW2901 - in its place
        out.append(message)
    return out


def is_live_copy(one: BaseMessage, other: BaseMessage) -> bool:
    """Tell whether two messages say the same, whatever came with them."""
    if type(one) is not type(other) or one.content != other.content:
        return False
    fields = ("tool_calls", "invalid_tool_calls", "tool_call_id")
    return all(getattr(one, name, None) == getattr(other, name, None) for name in fields)


def _rename_live(message: BaseMessage, seen: dict[str, BaseMessage]) -> BaseMessage:
    return message.model_copy(update={"id": derive_id(f"again:{message.id}", set(seen))})


def _live_source(message: BaseMessage) -> str:
    if isinstance(message, ToolMessage):
        return f"answer:{message.tool_call_id}"
    return f"{message.type}:{message.content!r}"


HALF_CALL = "LS207"
EMPTY_REPLY = "LS401"
_TWINS = ("tool_use", "tool_call", "function_call")
_PIECES = ("input_json_delta", "tool_call_chunk")
_ENDS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")


def drop_partial(
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
        whole, found = _drop_partial_in(message, answered, f"messages.{index}")
        findings += found
        if whole is not None:
            kept.append(whole)
    return kept, findings


def _drop_partial_in(
    message: AIMessage, answered: Collection[str], place: str
) -> tuple[AIMessage | None, list[Finding]]:
    halves = {call for call in half_calls(message) if call not in answered}
    findings = [new_finding(HALF_CALL, place, "a call arrived only in part") for _ in halves]
    whole = message
    if halves or (is_cut(message) and _loose_ends(message)):
        whole = _without_halves(message, halves)
    if _is_empty(whole) and (whole is not message or not _has_ended(message)):
        findings.append(new_finding(EMPTY_REPLY, place, "nothing of a reply arrived", fixable=True))
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


def _without_halves(message: AIMessage, halves: Collection[str | None]) -> AIMessage:
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


DIALECT = LANGCHAIN


class RepairedMessages(Struct):
    """A conversation after its repair, and the counts of what was done.

    ``healed`` is False where something is left that no repair is meant for: then the messages
    are those given. Untouched messages are the very objects.
    """

    messages: list[BaseMessage]
    findings: list[Finding] = field(default_factory=list)
    healed: bool = True
    synthetic: int = 0
    partial: int = 0
    duplicates: int = 0


def repair_messages(messages: Sequence[BaseMessage]) -> RepairedMessages:
    """Make a stored conversation valid: no half call, no id twice, every call answered once."""
    whole, partial = drop_partial(messages)
    single, doubled = distinct_live(whole)
    plan: Plan = plan_stored(single, DIALECT, None)
    findings = [*partial, *doubled, *plan.findings]
    if not plan.healed:
        return RepairedMessages(list(messages), findings, healed=False)
    found = add_live_ids(plan.messages, messages)
    return RepairedMessages(
        found,
        findings,
        synthetic=_count_placeholders(found, messages),
        partial=sum(f.code in (HALF_CALL, EMPTY_REPLY) for f in partial),
        duplicates=sum(f.code == DUPLICATE for f in doubled),
    )


def is_real(message: BaseMessage) -> bool:
    """Tell a tool's own result from a text that stands for one."""
    return isinstance(message, ToolMessage) and not is_placeholder(str(message.text))


def _count_placeholders(messages: Sequence[BaseMessage], given: Sequence[BaseMessage]) -> int:
    known = {id(message) for message in given}
    return sum(
        isinstance(message, ToolMessage) and id(message) not in known and not is_real(message)
        for message in messages
    )


class AlignedMessages(Struct):
    """The application's conversation, as far as possible in the checkpoint's own messages."""

    messages: list[BaseMessage]
    removed: int = 0
    added: int = 0


def align(given: Sequence[Any], held: Sequence[BaseMessage]) -> AlignedMessages:
    """Express the application's conversation in the checkpoint's messages.

    What both have keeps the checkpoint's id. What only the checkpoint has goes, but for results
    of calls that stay: they come behind, for the core to put them into place.
    """
    mine = as_messages(given)
    pairs = _pairs(mine, held)
    found = [_choose(own, held[at] if at is not None else None) for own, at in pairs]
    taken = {at for _, at in pairs if at is not None}
    found, late = _with_results(found, held, taken)
    messages = add_live_ids(found, [*held])
    removed = len(held) - len(taken) - late
    return AlignedMessages(messages, removed, sum(at is None for _, at in pairs))


def as_messages(given: Sequence[Any]) -> list[BaseMessage]:
    """Make messages of objects, of LangChain's dicts or of OpenAI's."""
    try:
        return [_as_message(item) for item in given]
    except (ValueError, NotImplementedError, TypeError, KeyError):
        text = "messages takes LangChain messages, or dicts that LangChain can make messages of"
        raise UsageError(text) from None


def _as_message(item: Any) -> BaseMessage:
    if isinstance(item, dict) and isinstance(item.get("data"), dict) and "content" not in item:
        return messages_from_dict([item])[0]
    return convert_to_messages([item])[0]


def _pairs(
    mine: Sequence[BaseMessage], held: Sequence[BaseMessage]
) -> list[tuple[BaseMessage, int | None]]:
    """Give each message its place in the checkpoint, if it has one; each place at most once."""
    found = _by_id(mine, held)
    taken = {at for at in found if at is not None}
    keys = [_key(message) for message in held]
    last = -1
    for index, own in enumerate(mine):
        if found[index] is None:
            end = next((at for at in found[index:] if at is not None), len(held))
            places = (p for p in range(last + 1, end) if p not in taken and keys[p] == _key(own))
            found[index] = next(places, None)
        at = found[index]
        if at is not None:
            taken.add(at)
            last = max(last, at)
    return list(zip(mine, found, strict=True))


def _by_id(mine: Sequence[BaseMessage], held: Sequence[BaseMessage]) -> list[int | None]:
    places: dict[str, list[int]] = {}
    for at, message in enumerate(held):
        if message.id:
            places.setdefault(message.id, []).append(at)
    found: list[int | None] = []
    for own in mine:
        open_places = places.get(own.id or "", [])
        fits = [at for at in open_places if _kind(held[at]) == _kind(own)]
        found.append(fits[0] if fits else None)
        if fits:
            open_places.remove(fits[0])
    return found


def _choose(own: BaseMessage, held: BaseMessage | None) -> BaseMessage:
    """Take the checkpoint's message where both say the same, else the application's words.

    An application may know what the checkpoint does not: that a reply arrived only in part.
    """
    if held is None:
        return own
    is_part = isinstance(own, AIMessageChunk) and half_calls(own)
    if own == held or (_key(own) == _key(held) and not is_part):
        return held
    return own if own.id == held.id else own.model_copy(update={"id": held.id})


def _with_results(
    found: list[BaseMessage], held: Sequence[BaseMessage], taken: set[int]
) -> tuple[list[BaseMessage], int]:
    """Add the results that only the checkpoint has; one beats a text that stands for a result."""
    calls = Counter(call["id"] for m in found if isinstance(m, AIMessage) for call in m.tool_calls)
    real = Counter(m.tool_call_id for m in found if isinstance(m, ToolMessage) and is_real(m))
    late: dict[str, list[ToolMessage]] = {}
    for at, message in enumerate(held):
        if at in taken or not isinstance(message, ToolMessage):
            continue
        call = message.tool_call_id
        if real[call] < calls[call]:
            late.setdefault(call, []).append(message)
            real[call] += 1
    count = sum(map(len, late.values()))
    placed = [_in_place_of(message, late) for message in found]
    return [*placed, *(message for rest in late.values() for message in rest)], count


def _in_place_of(message: BaseMessage, late: dict[str, list[ToolMessage]]) -> BaseMessage:
    """Give the real result for a text that stands for one, if there is one."""
    if not isinstance(message, ToolMessage) or is_real(message):
        return message
    waiting = late.get(message.tool_call_id)
    return waiting.pop(0) if waiting else message


def _kind(message: BaseMessage) -> str:
    return message.type.removesuffix("MessageChunk").lower()


def _key(message: BaseMessage) -> str:
    """Tell what a message says, in a form in which two that say the same are equal."""
    calls = [
        (call.get("id"), call.get("name"), call.get("args"))
        for name in ("tool_calls", "invalid_tool_calls")
        for call in getattr(message, name, ())
    ]
    said = (_kind(message), _content(message), calls, getattr(message, "tool_call_id", None))
    return json.dumps(said, sort_keys=True, default=repr)


def _content(message: BaseMessage) -> Any:
    content = message.content
    if not isinstance(content, list):
        return content
    texts = [block if isinstance(block, str) else block.get("text") for block in content]
    plain = all(isinstance(b, str) or b.get("type") == "text" for b in content)
    return "".join(map(str, texts)) if plain else content
