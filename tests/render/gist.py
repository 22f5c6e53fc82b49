"""What a list says, whatever its dialect: who said what, which call got which result.

Read through the dialect's view and the engine's pairing, which have tests of their own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

import lockstitch
from lockstitch.conversation.pairing import pair_messages
from lockstitch.conversation.parts import TEXT, Part
from lockstitch.dialects.base import Dialect
from lockstitch.dialects.profiles import new_dialect
from tests.property.strategies import HISTORIES

LIST_KEYS = {"openai-responses": "input", "gemini": "contents"}


@dataclass(frozen=True, slots=True)
class Gist:
    """Texts with their role, and (name, arguments, result's text) of every call, in order."""

    texts: list[tuple[str, str]]
    calls: list[tuple[str | None, Any, str | None]]


def gist(messages: list[Any], dialect: str) -> Gist:
    view = new_dialect(dialect.partition(":")[0])
    read = view.read(messages)
    paired = pair_messages(read, view.layout, view)
    texts = [
        (message.role, part.text.strip())
        for message in read
        for part in message.parts
        if part.kind == TEXT and part.text.strip()
    ]
    calls = []
    for one in paired.calls:
        result = None if one.answer is None else view.result_text(one.answer.part).strip()
        calls.append((one.part.name, arguments(view, one.part), result))
    return Gist(texts, calls)


def arguments(view: Dialect, call: Part) -> Any:
    """A call's arguments as an object; those that are none by nature are not compared."""
    value = view.arguments(call)
    if value is UNSET:
        return {} if view.name == "gemini" else None
    if isinstance(value, str):
        # Text may spell a NUL that no object may hold.
        value = json.loads(value.replace("\\u0000", "\ufffd"))
    if isinstance(value, dict):
        return value
    return {} if value is None else {"arguments": value}


def histories(dialect: str) -> dict[str, list[Any]]:
    """The lists of a dialect that are valid without a body around them."""
    key = LIST_KEYS.get(dialect, "messages")
    found = {
        name: value.get(key) if isinstance(value, dict) else value
        for name, value in HISTORIES[dialect].items()
    }
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, list) and not lockstitch.check(value, dialect)
    }
