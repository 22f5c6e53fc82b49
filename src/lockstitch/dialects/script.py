"""A conversation in no dialect's spelling, and how it is fitted to a receiver.

It stands between reading a list and writing one. Each dialect has a small writer in its package.
What the writers share is here, and so are the requirements for turns, pictures, ids and names.
"""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch.conversation.pairing import GROUPED
from lockstitch.conversation.parts import ASSISTANT, SYSTEM, TOOL, USER
from lockstitch.dialects.base import as_json
from lockstitch.dialects.media import head_of, pixels
from lockstitch.dialects.profiles import ANYTHING, BLANK, Profile

NOT_CARRIED = "[{what}, left out]"
UNNAMED = "unknown_tool"
# Where a system turn may stand: anywhere (for some receivers only first), nowhere in the list, or
# between the user's words and the assistant's answer.
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
        """The text that takes the picture's place where it cannot go."""
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
        """All texts of the result, one per line."""
        if len(self.pieces) == 1 and isinstance(self.pieces[0], TextPiece):
            return self.pieces[0].text
        return "\n".join(piece.text for piece in self.pieces if isinstance(piece, TextPiece))


class NeutralTurn(Struct):
    """What one side says at a time: words, then calls, then the answers to them."""

    role: str
    pieces: list[Piece]
    calls: list[NeutralCall] = []
    answers: list[NeutralResult] = []


def text_turn(role: str, text: str) -> NeutralTurn:
    """Return a turn of a single text."""
    return NeutralTurn(role, [TextPiece(text)])


def all_pictures(turns: Iterable[NeutralTurn]) -> Iterator[tuple[list[Piece], int, Picture]]:
    """Yield every picture, with the list and the slot it is in, oldest first."""
    for turn in turns:
        for pieces in (turn.pieces, *(answer.pieces for answer in turn.answers)):
            for slot, piece in enumerate(pieces):
                if isinstance(piece, Picture):
                    yield pieces, slot, piece


def join_texts(pieces: Iterable[Piece]) -> list[Piece]:
    """Join neighbouring texts, one line each."""
    whole: list[Piece] = []
    for piece in pieces:
        before = whole[-1] if whole else None
        if isinstance(piece, TextPiece) and isinstance(before, TextPiece):
            whole[-1] = TextPiece(f"{before.text}\n{piece.text}")
        else:
            whole.append(piece)
    return whole


def is_blank_text(text: str) -> bool:
    """Whether a text is empty or nothing but white space."""
    return not text or text.isspace()


def inline_size(data: str | bytes) -> str:
    """Return the size of an inline payload, in words."""
    size = len(data) if isinstance(data, bytes) else len(data.rstrip("=")) * 3 // 4
    return f"{size} bytes"


def as_object(arguments: Any) -> dict[str, Any]:
    """Return a call's arguments as an object, without losing any."""
    if isinstance(arguments, dict):
        return arguments
    return {} if arguments is None else {"arguments": arguments}


def arguments_text(arguments: Any) -> str:
    """Return a call's arguments as JSON text; what JSON cannot express becomes a text in it."""
    try:
        return msgspec.json.encode(arguments).decode()
    except (TypeError, ValueError, UnicodeError, RecursionError):
        return as_json({"arguments": as_json(arguments)})


Block = dict[str, Any]


class TurnWriter(ABC):
    """Writes turns that were fitted to a receiver.

    ``picture_roles`` may show an image inline. An image at an address also needs
    ``takes_addresses``, and an image in a failed result is shown only without
    ``failures_are_text``.
    """

    picture_roles: tuple[str, ...] = (USER, TOOL)
    takes_addresses = True
    failures_are_text = False
    system_turns = ANYWHERE

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.messages: list[Any] = []

    def write(self, turns: Iterable[NeutralTurn]) -> list[Any]:
        """Return the list of messages for these turns."""
        for turn in turns:
            self.speech(turn)
            if turn.answers:
                self.results(turn.answers)
        return self.messages

    @abstractmethod
    def speech(self, turn: NeutralTurn) -> None:
        """Write the words of a turn, and its calls."""

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
    """Base of formats in which the results of a turn stand in one user message."""

    container = "content"
    assistant = "assistant"

    def speech(self, turn: NeutralTurn) -> None:
        blocks = self.blocks(turn.pieces, turn.role) + [self.call(call) for call in turn.calls]
        self.put(self.assistant if turn.role == ASSISTANT else turn.role, blocks)

    def results(self, answers: list[NeutralResult]) -> None:
        self.messages.append({"role": USER, self.container: [self.result(a) for a in answers]})

    def put(self, role: str, blocks: list[Block]) -> None:
        """Add a message; the user's words after results go into the same message."""
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

    def result_blocks(self, answer: NeutralResult) -> list[Block]:
        """Return the payload of a result as blocks, without the blank ones."""
        pieces = join_texts(answer.pieces)
        kept = [p for p in pieces if isinstance(p, Picture) or not is_blank_text(p.text)]
        return self.blocks(kept, USER)


def address_of(picture: Picture) -> str:
    """Return a picture's address; for an inline picture, that is a data URL."""
    return picture.url or f"data:{picture.kind};base64,{picture.data}"


EMPTY = "[lockstitch] This message was empty."
START = "[lockstitch] The assistant spoke first."
BRIDGE = "[lockstitch] The tool results were received."
SYSTEM_LABEL = "[lockstitch] System message:"
_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]")


def fit_turns(
    turns: list[NeutralTurn],
    writer: TurnWriter,
    gone: list[str],
    *,
    opens: bool = True,
    ids: Ids | None = None,
) -> list[NeutralTurn]:
    """Return turns that a receiver accepts; add the places of lost pictures to ``gone``.

    Turns that do not open a list may begin with the assistant. ``ids`` holds the ids of the turns
    before them.
    """
    profile = writer.profile
    turns = _drop_silent(turns, profile)
    for number, turn in enumerate(turns):
        if turn.role == SYSTEM and not _takes_system(turns, number, writer):
            turn.role = USER
            turn.pieces = [TextPiece(SYSTEM_LABEL), *turn.pieces]
    if profile.layout == GROUPED or profile.alternates:
        turns = _merge_neighbours(turns)
    first = next((number for number, turn in enumerate(turns) if turn.role != SYSTEM), None)
    if opens and profile.starts_with_user and first is not None and turns[first].role == ASSISTANT:
        turns = [*turns[:first], text_turn(USER, START), *turns[first:]]
    turns = _add_bridges(turns, profile)
    _fit_pictures(turns, writer, gone)
    ids = ids or Ids(profile)
    ids.take(call.id for turn in turns for call in turn.calls)
    for turn in turns:
        ids.begin()
        for call in turn.calls:
            call.id = ids.fit(call)
            if profile.name_pattern and not re.fullmatch(profile.name_pattern, call.name):
                head = re.match(profile.name_pattern, _NOT_PLAIN.sub("_", call.name))
                call.name = head[0] if head else UNNAMED
    return turns


def _drop_silent(turns: Iterable[NeutralTurn], profile: Profile) -> list[NeutralTurn]:
    """Drop blank texts where they are refused, and turns that say nothing."""
    kept: list[NeutralTurn] = []
    for turn in turns:
        if profile.rejects_text != ANYTHING:
            is_refused = is_blank_text if profile.rejects_text == BLANK else operator.not_
            turn.pieces = [
                p for p in turn.pieces if isinstance(p, Picture) or not is_refused(p.text)
            ]
        if not turn.pieces and turn.role == USER and profile.rejects_text != ANYTHING:
            turn.pieces = [TextPiece(EMPTY)]
        if turn.pieces or turn.calls or turn.role == USER:
            kept.append(turn)
    return kept


def _takes_system(turns: list[NeutralTurn], number: int, writer: TurnWriter) -> bool:
    if writer.system_turns == ANYWHERE:
        return number == 0 or not writer.profile.system_first
    if not number or writer.system_turns == NEVER:
        return False
    before, behind = turns[number - 1], turns[number + 1 : number + 2]
    follows_user = before.role == USER or bool(before.answers)
    return follows_user and all(turn.role == ASSISTANT for turn in behind)


def _merge_neighbours(turns: Iterable[NeutralTurn]) -> list[NeutralTurn]:
    """Merge neighbouring turns of one role; a turn with calls ends with its answers."""
    merged: list[NeutralTurn] = []
    for turn in turns:
        before = merged[-1] if merged else None
        if before is None or before.role != turn.role or before.calls or turn.role == SYSTEM:
            merged.append(turn)
            continue
        before.pieces += turn.pieces
        before.calls, before.answers = turn.calls, turn.answers
    return merged


def _add_bridges(turns: list[NeutralTurn], profile: Profile) -> list[NeutralTurn]:
    """Insert an assistant turn between answers and the user if the receiver wants one."""
    if profile.user_after_tool:
        return turns
    waits = (USER,) if profile.template else (USER, SYSTEM)
    bridged: list[NeutralTurn] = []
    for turn in turns:
        if bridged and bridged[-1].answers and turn.role in waits:
            bridged.append(text_turn(ASSISTANT, BRIDGE))
        bridged.append(turn)
    return bridged


def _fit_pictures(turns: list[NeutralTurn], writer: TurnWriter, gone: list[str]) -> None:
    """Replace pictures by notes if the receiver takes none there, or none as large."""
    profile = writer.profile
    seats = writer.picture_roles
    for turn in turns:
        if turn.role not in seats:
            _note_all([turn.pieces], gone)
        blind = [
            answer.pieces
            for answer in turn.answers
            if TOOL not in seats or (answer.failed and writer.failures_are_text)
        ]
        _note_all(blind, gone)
    inline = sum(bool(picture.data) for _, _, picture in all_pictures(turns))
    many = profile.many_images and inline > profile.many_images
    limit = profile.max_pixels_many if many else profile.max_pixels
    for pieces, slot, picture in list(all_pictures(turns)):
        too_large = bool(limit) and pixels(head_of(picture.data)) > limit
        if (not writer.takes_addresses) if picture.url else too_large:
            _note(pieces, slot, picture, gone)


def _note_all(lists: Iterable[list[Piece]], gone: list[str]) -> None:
    for pieces in lists:
        for slot, piece in enumerate(pieces):
            if isinstance(piece, Picture):
                _note(pieces, slot, piece, gone)


def _note(pieces: list[Piece], slot: int, picture: Picture, gone: list[str]) -> None:
    pieces[slot] = TextPiece(picture.note)
    gone.append(picture.place)


def drop_pictures(turns: list[NeutralTurn], over: int, gone: list[str]) -> None:
    """Replace the oldest inline pictures by notes until ``over`` bytes are saved."""
    for pieces, slot, picture in list(all_pictures(turns)):
        if over > 0 and picture.data:
            over -= len(picture.data) - len(picture.note)
            _note(pieces, slot, picture, gone)


class Ids:
    """Keeps ids that may stay and maps the others, never two to one.

    Everything done since a :meth:`mark` can be taken back.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.taken: dict[str, None] = {}
        self.seen: dict[str, None] = {}
        self.minted = 0

    def mark(self) -> tuple[int, int, int]:
        """Return a mark of the current state."""
        return len(self.taken), len(self.seen), self.minted

    def back_to(self, mark: tuple[int, int, int]) -> None:
        """Forget everything since a mark."""
        taken, seen, self.minted = mark
        while len(self.taken) > taken:
            self.taken.popitem()
        while len(self.seen) > seen:
            self.seen.popitem()

    def take(self, ids: Iterable[str]) -> None:
        """Reserve these ids, so that none of them is minted."""
        self.taken.update(dict.fromkeys(ids))

    def begin(self) -> None:
        """Begin a batch: some receivers want ids to be unique only inside one."""
        if not self.profile.ids_unique:
            self.seen = {}

    def fit(self, call: NeutralCall) -> str:
        """Return the id that a call gets."""
        profile, old = self.profile, call.id
        may_stay = bool(old)
        if old and not profile.native_ids:
            may_stay = old not in self.seen and not (
                (profile.id_max and len(old) > profile.id_max)
                or (profile.id_pattern and not re.fullmatch(profile.id_pattern, old))
            )
        fresh = old if may_stay else self._mint(old)
        self.seen[fresh] = None
        return fresh

    def _mint(self, old: str) -> str:
        while True:
            self.minted += 1
            fresh = self.profile.new_id(old or "call", f"{old}\0{self.minted}")
            if fresh not in self.taken:
                self.taken[fresh] = None
                return fresh
