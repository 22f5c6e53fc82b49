"""What happened in a conversation, line by line in plain text, for a model or for a digest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct

from lockstitch.conversation.parts import USER
from lockstitch.dialects.script import (
    NeutralCall,
    NeutralResult,
    NeutralTurn,
    Piece,
    TextPiece,
    arguments_text,
)
from lockstitch.journal.projection import each_turn
from lockstitch.journal.state import Item, View

Who = Literal["user", "assistant", "call", "result"]
_LABELS = {"user": "User", "assistant": "Assistant", "call": "Call", "result": "Result"}


class Told(Struct, frozen=True):
    """One thing that was said or done, in record ``seq``; a call has its name and arguments."""

    seq: int
    who: Who
    text: str
    name: str = ""
    arguments: Any = None
    failed: bool = False

    @property
    def label(self) -> str:
        """Who speaks, or what was called."""
        label = f"{_LABELS[self.who]} {self.name}".rstrip()
        return f"{label} (failed)" if self.failed else label


def told(view: View, items: Iterable[Item], blobs: Mapping[str, bytes] | None = None) -> list[Told]:
    """Tell what items say, in order; media are told by a note."""
    return [
        line
        for item, turns in each_turn(view, items, blobs)
        for turn in turns
        for line in _lines(item.seq, turn)
    ]


def _lines(seq: int, turn: NeutralTurn) -> Iterator[Told]:
    words = _text(turn.pieces)
    if words.strip():
        yield Told(seq, "user" if turn.role == USER else "assistant", words)
    for call in turn.calls:
        yield _called(seq, call)
    for answer in turn.answers:
        yield _answered(seq, answer)


def _called(seq: int, call: NeutralCall) -> Told:
    return Told(seq, "call", arguments_text(call.arguments), call.name, call.arguments)


def _answered(seq: int, answer: NeutralResult) -> Told:
    return Told(seq, "result", _text(answer.pieces), answer.call.name, failed=answer.failed)


def _text(pieces: Iterable[Piece]) -> str:
    return "\n".join(piece.text if isinstance(piece, TextPiece) else piece.note for piece in pieces)


def shortened(text: str, limit: int) -> str:
    """Give the beginning and the end of a text, with what is left out counted."""
    if len(text) <= limit:
        return text
    note = f" […{len(text) - limit} characters…] "
    head = max((limit - len(note)) * 2 // 3, 0)
    tail = max(limit - len(note) - head, 0)
    return text[:head] + note + text[len(text) - tail :] if limit > len(note) else text[:limit]
