"""Make a conversation one that its receiver takes: turns, pictures, ids and names."""

from __future__ import annotations

import hashlib
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
    turns = _seat_system(_speaking(turns, profile), writer)
    if profile.layout == GROUPED or profile.alternates:
        turns = _merged(turns)
    turns = _bridged(_opened(turns, profile) if opens else turns, profile)
    _seat_pictures(turns, writer, gone)
    _name_calls(turns, profile, ids or Ids(profile))
    return turns


def _speaking(turns: Iterable[NeutralTurn], profile: Profile) -> list[NeutralTurn]:
    """Drop blank texts where they are refused, and the turns that say nothing."""
    kept: list[NeutralTurn] = []
    for turn in turns:
        turn.pieces = [piece for piece in turn.pieces if not _is_refused(piece, profile)]
        if not turn.pieces and turn.role == USER and profile.rejects_text != ANYTHING:
            turn.pieces = [TextPiece(EMPTY)]
        if turn.pieces or turn.calls or turn.role == USER:
            kept.append(turn)
    return kept


def _is_refused(piece: Piece, profile: Profile) -> bool:
    if isinstance(piece, Picture) or profile.rejects_text == ANYTHING:
        return False
    return is_blank_text(piece.text) if profile.rejects_text == BLANK else not piece.text


def _seat_system(turns: list[NeutralTurn], writer: TurnWriter) -> list[NeutralTurn]:
    """Make system turns that stand where this receiver takes none the user's, with a label."""
    for number, turn in enumerate(turns):
        if turn.role == SYSTEM and not _takes_system(turns, number, writer):
            turn.role = USER
            turn.pieces = [TextPiece(SYSTEM_LABEL), *turn.pieces]
    return turns


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


def _opened(turns: list[NeutralTurn], profile: Profile) -> list[NeutralTurn]:
    """Let the user speak first where the receiver wants that."""
    first = next((number for number, turn in enumerate(turns) if turn.role != SYSTEM), None)
    if not profile.starts_with_user or first is None or turns[first].role != ASSISTANT:
        return turns
    return [*turns[:first], text_turn(USER, START), *turns[first:]]


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


def _name_calls(turns: list[NeutralTurn], profile: Profile, ids: Ids) -> None:
    """Return every call an id and a name that its receiver takes; its answer goes by the call."""
    ids.take(call.id for turn in turns for call in turn.calls)
    for turn in turns:
        ids.begin()
        for call in turn.calls:
            call.id = ids.fit(call)
            call.name = _fit_name(call.name, profile.name_pattern)


def _fit_name(name: str, pattern: str) -> str:
    if not pattern or re.fullmatch(pattern, name):
        return name
    head = re.match(pattern, _NOT_PLAIN.sub("_", name))
    return head[0] if head else UNNAMED


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
        fresh = call.id if self._may_stay(call.id) else self._mint(call.id)
        self.seen[fresh] = None
        return fresh

    def _may_stay(self, given: str) -> bool:
        profile = self.profile
        if not given or profile.native_ids:
            return bool(given)
        if given in self.seen or (profile.id_max and len(given) > profile.id_max):
            return False
        return not profile.id_pattern or bool(re.fullmatch(profile.id_pattern, given))

    def _mint(self, given: str) -> str:
        while True:
            self.minted += 1
            seed = f"{given}\0{self.minted}".encode("utf-8", "surrogatepass")
            fresh = self._shaped(hashlib.sha256(seed).hexdigest(), given or "call")
            if fresh not in self.taken:
                self.taken[fresh] = None
                return fresh

    def _shaped(self, digest: str, stem: str) -> str:
        if self.profile.id_length:
            return digest[: self.profile.id_length]
        return f"{_NOT_PLAIN.sub('_', stem)[:32]}_{digest[:12]}"
