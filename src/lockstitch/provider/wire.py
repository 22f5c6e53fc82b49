"""What the APIs have in common: how a request is answered, streamed and refused."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Any, ClassVar

from msgspec import Struct

from lockstitch.provider.faults import MISSING, REPEATED, SAME
from lockstitch.provider.replies import Reply

ANSWER, STREAM, COUNT = "answer", "stream", "count"
INVALID = 400
_PIECE = 12
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class ApiRoute(Struct, frozen=True):
    """One address of an API, as a pattern, and what is asked for there.

    With ``ANSWER`` the body may still ask for a stream. A ``{model}`` in the pattern names the
    model where the body does not.
    """

    path: str
    asks: str = ANSWER


class RequestAddress(Struct, frozen=True):
    """Where a request came, and what that says of it.

    ``framing`` is how a stream shall be framed, where the address of the request chooses.
    """

    path: str
    asks: str = ANSWER
    model: str = ""
    framing: str = ""


class ErrorReply(Struct, frozen=True):
    """The body of an error and the headers that go with it."""

    body: dict[str, Any]
    headers: dict[str, str] = {}


class AnsweredTurn(Struct, frozen=True):
    """One accepted request and the answer to it."""

    body: Mapping[str, Any]
    reply: Reply
    at: RequestAddress
    ident: str
    created: int
    input_tokens: int
    ids: str = ""

    @property
    def model(self) -> str:
        """The model the answer claims to come from: the one that was asked for."""
        return self.at.model or str(self.body["model"])

    def call_id(self, key: str, prefix: str, number: int) -> dict[str, str]:
        """Return the id of one of its calls under a key; nothing where ids shall be missing."""
        if self.ids == MISSING:
            return {}
        ident = "0" * len(self.ident) if self.ids == REPEATED else self.ident
        return {key: f"{prefix}{ident}{0 if self.ids == SAME else number:02}"}

    @property
    def signature(self) -> str:
        """A signature for the thinking in the answer."""
        return b64encode(self.ident.encode()).decode()

    @property
    def output_tokens(self) -> int:
        """About how many tokens the answer has."""
        said = len(self.reply.text) + sum(len(json_of(call.arguments)) for call in self.reply.calls)
        return 1 + said // 4


class Wire(ABC):
    """One API: its addresses, what it needs in a body, and its shapes.

    ``paths`` matches every path that belongs to the API, also those without a route.
    """

    dialect: ClassVar[str]
    routes: ClassVar[tuple[ApiRoute, ...]]
    paths: ClassVar[re.Pattern[str]]
    required: ClassVar[tuple[str, ...]]
    list_key: ClassVar[str]
    # What the API says with a status that is no fault of the request.
    failures: ClassVar[dict[int, str]]
    # Whether a text may stand in the place of the list.
    takes_text: ClassVar[bool] = False

    @abstractmethod
    def tools(self, body: Mapping[str, Any]) -> set[str]:
        """Return the names of the tools that a request offers."""

    @abstractmethod
    def whole(self, turn: AnsweredTurn) -> dict[str, Any]:
        """Return the answer in one piece."""

    @abstractmethod
    def stream(self, turn: AnsweredTurn) -> Iterator[bytes]:
        """Return the answer event by event."""

    @abstractmethod
    def refusal(self, status: int, text: str, ident: str) -> ErrorReply:
        """Return an error as the API spells it."""

    def failure(self, status: int) -> str:
        """Return what the API says when it fails with a status."""
        return self.failures.get(status) or _PHRASES.get(status, "Error")

    @abstractmethod
    def lacks(self, field: str) -> str:
        """Return what the API says when a required field is not there."""

    @abstractmethod
    def not_json(self) -> str:
        """Return what the API says to a body that is not a JSON object."""

    def counted(self, tokens: int) -> dict[str, Any]:
        """Return the answer to a request that asks for the number of its tokens only."""
        return {"input_tokens": tokens}

    def request_in(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the request in a body; a request for a count may be wrapped."""
        return body

    def media_type(self, at: RequestAddress) -> str:
        """Return the content type of a stream."""
        return "text/event-stream"


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


def sse_event(data: Mapping[str, Any]) -> bytes:
    """One server-sent event, named after its type."""
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def tool_names(tools: Any, *path: str) -> set[str]:
    """Return the names under a path in each of some declared tools."""
    found = set()
    for tool in tools if isinstance(tools, list) else ():
        value = tool
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, str):
            found.add(value)
    return found
