"""The neutral view over a raw message list: messages, parts and where they stand.

A view never replaces the raw data: every part points at the raw value it was read from,
and what no edit names is handed back as the same object.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

TEXT = "text"
CALL = "call"
RESULT = "result"
REASONING = "reasoning"
MEDIA = "media"
SERVER_CALL = "server-call"
SERVER_RESULT = "server-result"
OTHER = "other"
BROKEN = "broken"

USER = "user"
ASSISTANT = "assistant"
TOOL = "tool"
SYSTEM = "system"
UNKNOWN = "unknown"

Path = tuple[str | int, ...]

UNTOUCHED = 0
COSMETIC = 1
CHANGED = 2


class Part(Struct, gc=False):
    """One block, tool call, result or item of a message.

    ``at`` is the path inside the message it was read from (``()`` when the message itself is
    the part) and ``home`` that message's index; a part that was invented has ``home`` -1.
    """

    kind: str
    raw: Any
    at: Path = ()
    home: int = -1
    id: str | None = None
    name: str | None = None
    flavor: str = ""
    text: str = ""


class Message(Struct, gc=False):
    """One raw message with its parts in wire order.

    ``index`` is its place in the original list (-1: invented).
    ``state`` says how far it differs from its raw value: ``COSMETIC`` changes are those that no
    provider binds reasoning to, such as cache markers.
    """

    raw: Any
    index: int
    role: str
    parts: list[Part]
    flaw: str = ""
    state: int = UNTOUCHED

    def touch(self, state: int = CHANGED) -> None:
        """Mark this message as different from its raw value."""
        self.state = max(self.state, state)

    def has(self, kind: str) -> bool:
        """Tell whether any part is of this kind."""
        return any(part.kind == kind for part in self.parts)


class Sorted(Struct):
    """The parts of a list of messages, by kind, in wire order."""

    calls: list[Part]
    results: list[Part]
    texts: list[Part]
    reasoning: list[Part]
    servers: list[Part]
    rest: list[Part]


def sort_parts(messages: Iterable[Message]) -> Sorted:
    """Gather the parts of all messages by kind."""
    calls: list[Part] = []
    results: list[Part] = []
    texts: list[Part] = []
    reasoning: list[Part] = []
    servers: list[Part] = []
    rest: list[Part] = []
    drawer = {
        TEXT: texts,
        CALL: calls,
        RESULT: results,
        REASONING: reasoning,
        SERVER_CALL: servers,
        SERVER_RESULT: servers,
        MEDIA: rest,
        OTHER: rest,
        BROKEN: rest,
    }
    for message in messages:
        for part in message.parts:
            drawer[part.kind].append(part)
    return Sorted(calls, results, texts, reasoning, servers, rest)


def place_of(list_key: str, index: int, at: Path = ()) -> str:
    """Name a place the way providers do: ``messages.29.content.1``."""
    return ".".join(map(str, (list_key, index, *at)))
