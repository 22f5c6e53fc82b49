"""What the three APIs have in common: how a request is answered, streamed and refused."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, ClassVar

from msgspec import Struct

from lockstitch.provider.replies import Reply

INVALID = "invalid_request_error"
_PIECE = 12


class Turn(Struct, frozen=True):
    """One accepted request and the answer to it."""

    body: Mapping[str, Any]
    reply: Reply
    ident: str
    created: int
    tokens: int

    @property
    def model(self) -> str:
        """The model the answer claims to come from: the one that was asked for."""
        return str(self.body["model"])

    @property
    def spoken(self) -> int:
        """About how many tokens the answer has."""
        said = len(self.reply.text) + sum(len(json_of(call.arguments)) for call in self.reply.calls)
        return 1 + said // 4


class Wire(ABC):
    """One API: its path, what it needs in a body, and its shapes."""

    dialect: ClassVar[str]
    path: ClassVar[str]
    required: ClassVar[tuple[str, ...]]
    list_key: ClassVar[str]

    @abstractmethod
    def tools(self, body: Mapping[str, Any]) -> set[str]:
        """The names of the tools that a request offers."""

    @abstractmethod
    def whole(self, turn: Turn) -> dict[str, Any]:
        """The answer in one piece."""

    @abstractmethod
    def stream(self, turn: Turn) -> Iterator[bytes]:
        """The answer as server-sent events."""

    @abstractmethod
    def refusal(self, kind: str, text: str, ident: str) -> dict[str, Any]:
        """The body of an error."""

    @abstractmethod
    def lacks(self, field: str) -> str:
        """What the API says when a required field is not there."""

    @abstractmethod
    def not_json(self) -> str:
        """What the API says to a body that is not a JSON object."""


def ident_of(data: bytes) -> str:
    """A name for a request and for all that answers it.

    Made from the body, so that the same run gives the same ids, and a history that has grown
    never meets an id that is already in it.
    """
    return sha256(data).hexdigest()[:24]


def tokens_in(data: bytes) -> int:
    """About how many tokens a body has."""
    return 1 + len(data) // 4


def json_of(arguments: dict[str, Any]) -> str:
    """The arguments of a call as the text they travel in."""
    return json.dumps(arguments, ensure_ascii=False)


def pieces(text: str) -> Iterator[str]:
    """Text in the bits a stream delivers it in."""
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]


def event(data: Mapping[str, Any]) -> bytes:
    """One server-sent event, named after its type."""
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def names(tools: Any, *path: str) -> set[str]:
    """The names under a path in each of some declared tools."""
    found = set()
    for tool in tools if isinstance(tools, list) else ():
        value = tool
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, str):
            found.add(value)
    return found
