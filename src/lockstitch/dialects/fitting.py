"""Make a conversation one that its receiver takes: turns, pictures, ids and names."""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Iterable

from lockstitch.conversation.pairing import GROUPED
from lockstitch.conversation.parts import ASSISTANT, SYSTEM, TOOL, USER
from lockstitch.dialects.media import head_of, pixels
from lockstitch.dialects.profiles import ANYTHING, BLANK, Profile
from lockstitch.dialects.script import (
    ANYWHERE,
    NEVER,
    UNNAMED,
    NeutralCall,
    NeutralTurn,
    Picture,
    Piece,
    TextPiece,
    TurnWriter,
    all_pictures,
    is_blank_text,
    text_turn,
)

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
    """Return turns that a receiver takes; adds the places of pictures it does not to ``gone``.

    Turns that do not open a list may begin with the assistant's; ``ids`` are those of the turns
    before them.
    """
    profile = writer.profile
    turns = _speaking(turns, profile)
    for number, turn in enumerate(turns):
        if turn.role == SYSTEM and not _takes_system(turns, number, writer):
            turn.role = USER
            turn.pieces = [TextPiece(SYSTEM_LABEL), *turn.pieces]
    if profile.layout == GROUPED or profile.alternates:
        turns = _merged(turns)
    first = next((number for number, turn in enumerate(turns) if turn.role != SYSTEM), None)
    if opens and profile.starts_with_user and first is not None and turns[first].role == ASSISTANT:
        turns = [*turns[:first], text_turn(USER, START), *turns[first:]]
    turns = _bridged(turns, profile)
    _seat_pictures(turns, writer, gone)
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


def _speaking(turns: Iterable[NeutralTurn], profile: Profile) -> list[NeutralTurn]:
    """Drop blank texts where they are refused, and the turns that say nothing."""
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


def _merged(turns: Iterable[NeutralTurn]) -> list[NeutralTurn]:
    """Merge neighbours of one role; a turn that calls ends with its answers."""
    merged: list[NeutralTurn] = []
    for turn in turns:
        before = merged[-1] if merged else None
        if before is None or before.role != turn.role or before.calls or turn.role == SYSTEM:
            merged.append(turn)
            continue
        before.pieces += turn.pieces
        before.calls, before.answers = turn.calls, turn.answers
    return merged


def _bridged(turns: list[NeutralTurn], profile: Profile) -> list[NeutralTurn]:
    """Put an assistant turn between answers and the user where the receiver wants one."""
    if profile.user_after_tool:
        return turns
    waits = (USER,) if profile.template else (USER, SYSTEM)
    bridged: list[NeutralTurn] = []
    for turn in turns:
        if bridged and bridged[-1].answers and turn.role in waits:
            bridged.append(text_turn(ASSISTANT, BRIDGE))
        bridged.append(turn)
    return bridged


def _seat_pictures(turns: list[NeutralTurn], writer: TurnWriter, gone: list[str]) -> None:
    """Put notes where this receiver takes no picture, or none as large."""
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
    """Put notes in the place of the oldest inline pictures, until that many bytes are saved."""
    for pieces, slot, picture in list(all_pictures(turns)):
        if over > 0 and picture.data:
            over -= len(picture.data) - len(picture.note)
            _note(pieces, slot, picture, gone)


class Ids:
    """Keeps ids that may stay and maps the others, never two to one.

    What was done can be taken back to a :meth:`mark`.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.taken: dict[str, None] = {}
        self.seen: dict[str, None] = {}
        self.minted = 0

    def mark(self) -> tuple[int, int, int]:
        """Return where it stands."""
        return len(self.taken), len(self.seen), self.minted

    def back_to(self, mark: tuple[int, int, int]) -> None:
        """Forget all that came behind a mark."""
        taken, seen, self.minted = mark
        while len(self.taken) > taken:
            self.taken.popitem()
        while len(self.seen) > seen:
            self.seen.popitem()

    def take(self, ids: Iterable[str]) -> None:
        """Mint none of these."""
        self.taken.update(dict.fromkeys(ids))

    def begin(self) -> None:
        """Begin a batch: some receivers want ids unique only inside one."""
        if not self.profile.ids_unique:
            self.seen = {}

    def fit(self, call: NeutralCall) -> str:
        """Return the id a call goes by."""
        profile, given = self.profile, call.id
        may_stay = bool(given)
        if given and not profile.native_ids:
            may_stay = given not in self.seen and not (
                (profile.id_max and len(given) > profile.id_max)
                or (profile.id_pattern and not re.fullmatch(profile.id_pattern, given))
            )
        fresh = given if may_stay else self._mint(given)
        self.seen[fresh] = None
        return fresh

    def _mint(self, given: str) -> str:
        while True:
            self.minted += 1
            seed = f"{given}\0{self.minted}".encode("utf-8", "surrogatepass")
            digest, length = hashlib.sha256(seed).hexdigest(), self.profile.id_length
            stem = _NOT_PLAIN.sub("_", given or "call")[:32]
            fresh = digest[:length] if length else f"{stem}_{digest[:12]}"
            if fresh not in self.taken:
                self.taken[fresh] = None
                return fresh
