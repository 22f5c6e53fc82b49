"""A conversation in no dialect's spelling: what stands between reading a list and writing one.

Each dialect has a small writer in its package; what the writers share is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch.conversation.parts import ASSISTANT, TOOL, USER
from lockstitch.dialects.base import as_json
from lockstitch.dialects.profiles import Profile

NOT_CARRIED = "[{what}, left out]"
UNNAMED = "unknown_tool"
# Where a system turn may stand: anywhere (some receivers: only first), nowhere in the list, or
# between what the user says and what the assistant answers.
ANYWHERE, NEVER, BEHIND_USER = "anywhere", "never", "behind-user"


class TextPiece(Struct):
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


Piece = TextPiece | Picture


class NeutralCall(Struct):
    """A tool call; ``arguments`` is the decoded value, an object nearly always."""

    id: str
    name: str
    arguments: Any


class NeutralResult(Struct):
    """The result of a call; ``order`` is its rank among all results of the conversation."""

    call: NeutralCall
    order: int
    pieces: list[Piece]
    failed: bool = False

    @property
    def text(self) -> str:
        """All its words."""
        if len(self.pieces) == 1 and isinstance(self.pieces[0], TextPiece):
            return self.pieces[0].text
        return "\n".join(piece.text for piece in self.pieces if isinstance(piece, TextPiece))


class NeutralTurn(Struct):
    """What one side says at a time; calls stand behind the words, their answers behind the calls.

    ``zone`` tells which batch the calls belong to.
    """

    role: str
    pieces: list[Piece]
    calls: list[NeutralCall] = []
    answers: list[NeutralResult] = []
    zone: int = -1


def text_turn(role: str, text: str) -> NeutralTurn:
    """Make a turn of nothing but words."""
    return NeutralTurn(role, [TextPiece(text)])


def all_pictures(turns: Iterable[NeutralTurn]) -> Iterator[tuple[list[Piece], int, Picture]]:
    """Return every picture with the list and the slot it stands in, oldest first."""
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
        if isinstance(piece, TextPiece) and isinstance(before, TextPiece):
            whole[-1] = TextPiece(f"{before.text}\n{piece.text}")
        else:
            whole.append(piece)
    return whole


def is_blank_text(text: str) -> bool:
    """Whether a text has nothing to read in it."""
    return not text or text.isspace()


def inline_size(data: str | bytes) -> str:
    """Return how much an inline payload weighs, in words."""
    size = len(data) if isinstance(data, bytes) else len(data.rstrip("=")) * 3 // 4
    return f"{size} bytes"


def as_object(arguments: Any) -> dict[str, Any]:
    """Return a call's arguments as an object, all of them."""
    if isinstance(arguments, dict):
        return arguments
    return {} if arguments is None else {"arguments": arguments}


def arguments_text(arguments: Any) -> str:
    """Return a call's arguments as JSON text; what JSON cannot say is told in a text inside it."""
    try:
        return msgspec.json.encode(arguments).decode()
    except (TypeError, ValueError, UnicodeError, RecursionError):
        return as_json({"arguments": as_json(arguments)})


Block = dict[str, Any]


class TurnWriter(ABC):
    """Writes turns that were fitted to a receiver.

    ``picture_roles`` may show an image inline; by its address only where ``takes_addresses`` is
    set, and in a failed result only where that is not ``failures_are_text``.
    """

    picture_roles: tuple[str, ...] = (USER, TOOL)
    takes_addresses = True
    failures_are_text = False
    system_turns = ANYWHERE

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.messages: list[Any] = []

    def write(self, turns: Iterable[NeutralTurn]) -> list[Any]:
        """Return the list."""
        for turn in turns:
            self.speech(turn)
            if turn.answers:
                self.results(turn.answers)
        return self.messages

    @abstractmethod
    def speech(self, turn: NeutralTurn) -> None:
        """Write what is said in a turn, and its calls."""

    @abstractmethod
    def results(self, answers: list[NeutralResult]) -> None:
        """Write the results of a turn's calls."""

    @abstractmethod
    def block(self, piece: Piece, role: str) -> Block:
        """Write one piece for a message of this role."""

    def blocks(self, pieces: Iterable[Piece], role: str) -> list[Block]:
        """Write pieces."""
        return [self.block(piece, role) for piece in pieces]

    def content(self, pieces: list[Piece], role: str) -> Any:
        """Write content: one text is a string, anything else a list of blocks."""
        if not pieces:
            return ""
        alone = pieces[0] if len(pieces) == 1 else None
        return alone.text if isinstance(alone, TextPiece) else self.blocks(pieces, role)

    def arguments(self, call: NeutralCall) -> str:
        """Write a call's arguments as JSON text."""
        return arguments_text(as_object(call.arguments))


class GroupedWriter(TurnWriter):
    """Shared by formats in which the results of a turn stand in one message of the user."""

    container = "content"
    assistant = "assistant"

    def speech(self, turn: NeutralTurn) -> None:
        blocks = self.blocks(turn.pieces, turn.role) + [self.call(call) for call in turn.calls]
        self.put(self.assistant if turn.role == ASSISTANT else turn.role, blocks)

    def results(self, answers: list[NeutralResult]) -> None:
        self.messages.append({"role": USER, self.container: [self.result(a) for a in answers]})

    def put(self, role: str, blocks: list[Block]) -> None:
        """Add a message; what the user says behind results stands in their message."""
        before = self.messages[-1] if self.messages else None
        if before is not None and before["role"] == role == USER:
            before[self.container] += blocks
        else:
            self.messages.append({"role": role, self.container: blocks})

    @abstractmethod
    def call(self, call: NeutralCall) -> Block:
        """Write a call."""

    @abstractmethod
    def result(self, answer: NeutralResult) -> Block:
        """Write a result."""

    def shown(self, answer: NeutralResult) -> list[Block]:
        """Write what a result carries as blocks, without the blank ones."""
        pieces = joined(answer.pieces)
        kept = [p for p in pieces if isinstance(p, Picture) or not is_blank_text(p.text)]
        return self.blocks(kept, USER)


def address_of(picture: Picture) -> str:
    """Return a picture's address, which for an inline one is a data URL."""
    return picture.url or f"data:{picture.kind};base64,{picture.data}"
