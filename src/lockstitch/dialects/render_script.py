"""A conversation in no dialect's spelling: what stands between reading a list and writing one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch.dialects.base import as_json

NOT_CARRIED = "[{what}, left out]"
UNNAMED = "unknown_tool"


class Words(Struct):
    """A text."""

    text: str


class Picture(Struct, kw_only=True):
    """An image, inline (``kind`` and base64 ``data``) or at an address; ``place`` is its origin."""

    place: str
    kind: str = ""
    data: str = ""
    url: str = ""

    @property
    def note(self) -> str:
        """What stands in its place where it cannot go."""
        what = f"image at {self.url}" if self.url else f"{self.kind}, {inline_size(self.data)}"
        return NOT_CARRIED.format(what=what)


Piece = Words | Picture


class Call(Struct):
    """A tool call; ``arguments`` is the decoded value, an object nearly always."""

    id: str
    name: str
    arguments: Any


class Answer(Struct):
    """The result of a call; ``order`` is its rank among all results of the conversation."""

    call: Call
    order: int
    pieces: list[Piece]
    failed: bool = False

    @property
    def text(self) -> str:
        """All its words."""
        if len(self.pieces) == 1 and isinstance(self.pieces[0], Words):
            return self.pieces[0].text
        return "\n".join(piece.text for piece in self.pieces if isinstance(piece, Words))


class Turn(Struct):
    """What one side says at a time; calls stand behind the words, their answers behind the calls.

    ``zone`` tells which batch the calls belong to.
    """

    role: str
    pieces: list[Piece]
    calls: list[Call] = []
    answers: list[Answer] = []
    zone: int = -1


def said(role: str, text: str) -> Turn:
    """Make a turn of nothing but words."""
    return Turn(role, [Words(text)])


def all_pictures(turns: Iterable[Turn]) -> Iterator[tuple[list[Piece], int, Picture]]:
    """Give every picture with the list and the slot it stands in, oldest first."""
    for turn in turns:
        for pieces in (turn.pieces, *(answer.pieces for answer in turn.answers)):
            for slot, piece in enumerate(pieces):
                if isinstance(piece, Picture):
                    yield pieces, slot, piece


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Join words that follow each other, one line each."""
    whole: list[Piece] = []
    for piece in pieces:
        before = whole[-1] if whole else None
        if isinstance(piece, Words) and isinstance(before, Words):
            whole[-1] = Words(f"{before.text}\n{piece.text}")
        else:
            whole.append(piece)
    return whole


def is_blank(text: str) -> bool:
    """Tell whether a text has nothing to read in it."""
    return not text or text.isspace()


def inline_size(data: str | bytes) -> str:
    """Say how much an inline payload weighs."""
    size = len(data) if isinstance(data, bytes) else len(data.rstrip("=")) * 3 // 4
    return f"{size} bytes"


def as_object(arguments: Any) -> dict[str, Any]:
    """Give a call's arguments as an object, all of them."""
    if isinstance(arguments, dict):
        return arguments
    return {} if arguments is None else {"arguments": arguments}


def arguments_text(arguments: Any) -> str:
    """Give a call's arguments as JSON text; what JSON cannot say is told in a text inside it."""
    try:
        return msgspec.json.encode(arguments).decode()
    except (TypeError, ValueError, UnicodeError, RecursionError):
        return as_json({"arguments": as_json(arguments)})
