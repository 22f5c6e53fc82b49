"""The neutral view over a raw message list: messages, parts and where they stand.

A view never replaces the raw data: every part points at the raw value it was read from,
and what no edit names is handed back as the same object.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Self

from msgspec import Struct, structs

from lockstitch.conversation.json_text import is_index

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
        """Whether any part is of this kind."""
        return any(part.kind == kind for part in self.parts)


# What sort_parts notes beside kinds and roles: what only some rules are about.
FLAWED = "flawed"
EMPTY = "empty"
BLANK_TEXTS = "blank texts"
MARKED = "marked"
TEXT_BEHIND_CALL = "text behind a call"


class Sorted(Struct):
    """The parts of a list of messages, by kind, in wire order.

    ``signs`` says what there is anywhere: the roles, the kinds of parts, each kind with the role
    of the message that it is in, and what is odd.
    """

    signs: set[str | tuple[str, str]]
    calls: list[Part]
    results: list[Part]
    texts: list[Part]
    reasoning: list[Part]
    servers: list[Part]
    rest: list[Part]


def sort_parts(messages: Iterable[Message]) -> Sorted:
    """Gather the parts of all messages by kind, and note what there is among them."""
    signs: set[str | tuple[str, str]] = set()
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
        role = message.role
        signs.add(role)
        if message.flaw:
            signs.add(FLAWED)
        if not message.parts:
            signs.add(EMPTY)
        has_called = False
        for part in message.parts:
            kind = part.kind
            drawer[kind].append(part)
            signs.add((kind, role))
            if kind == CALL:
                has_called = True
            elif kind == TEXT:
                if has_called:
                    signs.add(TEXT_BEHIND_CALL)
                if not part.text or part.text.isspace():
                    signs.add(BLANK_TEXTS)
                if part.flavor == "bare":
                    signs.add(FLAWED)
            if type(part.raw) is dict and "cache_control" in part.raw:
                signs.add(MARKED)
    signs.update([sign[0] for sign in signs if type(sign) is tuple])
    return Sorted(signs, calls, results, texts, reasoning, servers, rest)


class Place(Struct, frozen=True, gc=False):
    """Where something is; printed the way providers do: ``messages.29.content.1``.

    ``steps`` lead there from the request, or from the store; ``message`` is the number of the
    message that it is in, None for what is in no list of messages.
    """

    steps: Path
    message: int | None = None

    @classmethod
    def in_list(cls, key: str, message: int, path: Path = ()) -> Place:
        """Return the place of a message in the list under a key, or of something inside it.

        What a repair made itself is in no message of the list, and has the number -1.
        """
        if message < 0:
            return cls((key, str(message), *path))
        return cls((key, message, *path), message)

    @classmethod
    def parse(cls, text: str) -> Place:
        """Return the place that a text names, for texts that come from elsewhere."""
        steps = tuple(int(step) if is_index(step) else step for step in text.split("."))
        number = steps[1] if len(steps) > 1 else None
        return cls(steps, number if type(number) is int and type(steps[0]) is str else None)

    @property
    def path(self) -> Path:
        """The way inside the message, or all of the way where there is none."""
        return self.steps if self.message is None else self.steps[2:]

    @property
    def order(self) -> list[tuple[int, int, str]]:
        """A key that sorts places in the order of the list: numbers by their size, then names."""
        return [(0, step, "") if type(step) is int else (1, 0, str(step)) for step in self.steps]

    def __str__(self) -> str:
        """Name the place."""
        return ".".join(map(str, self.steps))


class Placed(Struct, frozen=True, kw_only=True, dict=True):
    """What says where it is: ``place`` as text for people and JSON, ``at`` as a value for code.

    Made with a ``Place``, it keeps that; a field of its own would show in everybody's JSON.
    """

    def __post_init__(self) -> None:
        """Keep the place as a value, and its text in its field."""
        place: Any = self.place  # type: ignore[attr-defined]
        if type(place) is Place:
            self.__dict__["at"] = place
            structs.force_setattr(self, "place", str(place))

    @cached_property
    def at(self) -> Place:
        """Where it is."""
        return Place.parse(self.place)  # type: ignore[attr-defined]

    def but(self, **changes: Any) -> Self:
        """Return a copy with other fields."""
        return structs.replace(self, **{"place": self.at, **changes})
