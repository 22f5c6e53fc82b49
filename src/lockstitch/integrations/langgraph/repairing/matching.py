"""The conversation that an application holds, beside the one in its checkpoint.

Messages are matched by id, or else by what they say, in order. Never by their number: either
side may have more of them than the other.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ToolMessage,
    convert_to_messages,
    messages_from_dict,
)
from msgspec import Struct

from lockstitch.errors import UsageError
from lockstitch.integrations.langgraph.repairing.healing import is_real
from lockstitch.integrations.langgraph.repairing.identity import named
from lockstitch.integrations.langgraph.repairing.partial import half_calls


class Aligned(Struct):
    """The application's conversation, as far as possible in the checkpoint's own messages."""

    messages: list[BaseMessage]
    removed: int = 0
    added: int = 0


def aligned(given: Sequence[Any], held: Sequence[BaseMessage]) -> Aligned:
    """Express the application's conversation in the checkpoint's messages.

    What both have keeps the checkpoint's id. What only the checkpoint has goes, but for results
    of calls that stay: they come behind, for the core to put them into place.
    """
    mine = as_messages(given)
    pairs = _pairs(mine, held)
    found = [_merged(own, held[at] if at is not None else None) for own, at in pairs]
    taken = {at for _, at in pairs if at is not None}
    found, late = _with_results(found, held, taken)
    messages = named(found, [*held])
    removed = len(held) - len(taken) - late
    return Aligned(messages, removed, sum(at is None for _, at in pairs))


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


def _merged(own: BaseMessage, held: BaseMessage | None) -> BaseMessage:
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
