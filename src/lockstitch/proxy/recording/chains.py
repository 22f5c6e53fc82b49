"""What tells one conversation from another: a chain of hashes over what was said in it.

Each part of a message (a text, a call, a result) is one link, and the hash of a link covers all
before it, so two requests have a hash in common exactly as far as they say the same. What clients
change between two turns of one conversation is left out: ids, cache markers, reasoning, white
space around a text, how blocks are grouped into messages, and the reminders that Claude Code adds
to the last message. This is for telling conversations apart only; what is kept is the client's.
"""

from __future__ import annotations

import re
import threading
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Struct

from lockstitch.conversation.parts import ASSISTANT, CALL, REASONING, RESULT, TEXT, Message, Part
from lockstitch.dialects.base import Dialect
from lockstitch.dialects.registry import new_dialect
from lockstitch.journal.events import Instructed, bytes_of

_SIZE = 12
_ENCODE = msgspec.json.Encoder(order="sorted").encode
_DECODE = msgspec.json.Decoder().decode
_WRAPPED = re.compile(r"\s*<([\w-]+)>.*</\1>\s*", re.DOTALL)
_REMINDER = re.compile(r"\s*<system-reminder>.*</system-reminder>\s*", re.DOTALL)
# A header that Claude Code hands on inside its instructions, other in every request.
_VARYING = re.compile(r"x-anthropic-billing-header:[^\n]*\n?")
# Fields that name a part and do not say what it says.
_NAMES = frozenset({"id", "call_id", "tool_call_id", "tool_use_id", "toolUseId", "status"})
# What says how a request is to be cached: a field of a block, and a block of its own.
_MARKER, _MARKERS = "cache_control", ("cachePoint",)
# So many messages are known by their bytes, whose links need not be made again.
_KNOWN = 50_000

Links = tuple[bytes, ...]


class HashChain(Struct, frozen=True):
    """The hashes of a list of messages: at the end of each, and behind 1, 2, 4, 8, … links.

    ``lengths`` counts the links up to the end of each message; ``length`` counts all.
    """

    last: bytes
    length: int = 0
    ends: list[bytes] = []
    lengths: list[int] = []
    marks: dict[int, bytes] = {}

    def extended(self, messages: Iterable[Links]) -> HashChain:
        """Return the chain with more messages behind it."""
        ends, lengths, marks = list(self.ends), list(self.lengths), dict(self.marks)
        last, length = self.last, self.length
        for links in messages:
            for link in links:
                last, length = _hashed(last, link), length + 1
                if length & (length - 1) == 0:
                    marks[length] = last
            ends.append(last)
            lengths.append(length)
        return HashChain(last, length, ends, lengths, marks)


def beginning(dialect: str, instructions: str = "") -> HashChain:
    """Return the chain before the first message; ``told`` is what else it depends on."""
    return HashChain(_hashed(b"", f"{dialect}\n{instructions}".encode()))


def _hashed(before: bytes, link: bytes) -> bytes:
    return blake2b(before + link, digest_size=_SIZE).digest()


class Linked(NamedTuple):
    """A message of a request: who speaks, and the links that it is."""

    role: str
    links: Links


class Linking:
    """Makes the links of messages; those that came before, byte for byte, are not read again."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Linked] = OrderedDict()
        self._lock = threading.Lock()

    def of_raws(self, dialect: str, raws: Iterable[bytes]) -> list[Linked]:
        """Return the links of messages; raise ``ValueError`` for one that is no JSON."""
        view = new_dialect(dialect)
        with self._lock:
            return [self._linked(view, raw) for raw in raws]

    def _linked(self, view: Dialect, raw: bytes) -> Linked:
        name = blake2b(raw, digest_size=16, person=view.name.encode()[:16]).digest()
        linked = self._known.get(name)
        if linked is None:
            message = view.read([_DECODE(raw)])[0]
            linked = self._known[name] = Linked(message.role, links_of(view, message))
            if len(self._known) > _KNOWN:
                self._known.popitem(last=False)
        return linked


def links_of_reply(dialect: str, messages: Sequence[Any]) -> list[Links]:
    """Return the links of a reply's messages, as they are when the client hands them back."""
    view = new_dialect(dialect)
    return [links_of(view, message) for message in view.read(messages)]


def links_of(view: Dialect, message: Message) -> Links:
    """Return the links of one message; only a reply may have none."""
    parts = [
        part
        for part in message.parts
        if (
            not part.text.isspace() and part.text != ""
            if part.kind == TEXT
            else part.kind != REASONING and part.flavor not in _MARKERS
        )
    ]
    if message.role != ASSISTANT:
        spoken = [part for part in parts if not _is_reminder(part)]
        parts = spoken or parts
    if not parts and message.role != ASSISTANT:
        return (_written(["odd", message.role, message.raw]),)
    return tuple(_written(_said(view, message.role, part)) for part in parts)


def _is_reminder(part: Part) -> bool:
    """Whether a part is a note that Claude Code puts beside what the user says."""
    return part.kind == TEXT and _REMINDER.fullmatch(part.text) is not None


def is_wrapped(part: Part) -> bool:
    """Whether a text stands in a tag as a whole: a program says it in the user's name."""
    return _WRAPPED.fullmatch(part.text) is not None


def _said(view: Dialect, role: str, part: Part) -> list[Any]:
    """Return what a part says, whatever it is called by."""
    if part.kind == TEXT:
        return [role, part.text.strip()]
    if part.kind == CALL:
        return [CALL, part.name, _arguments(view.arguments(part), part.raw)]
    if part.kind == RESULT:
        media = [_named_by_nobody(media.raw) for media in view.result_media(part)]
        return [RESULT, view.result_text(part).strip(), media]
    return [role, part.kind, _named_by_nobody(part.raw)]


def _arguments(given: Any, raw: Any) -> Any:
    """Return a call's arguments, however they are spelled."""
    if given is UNSET:
        return _named_by_nobody(raw)
    if isinstance(given, str):
        try:
            return _DECODE(given) if given.strip() else {}
        except (ValueError, RecursionError):
            return given
    return given or {}


def _named_by_nobody(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    return {key: value for key, value in raw.items() if key not in _NAMES and key != _MARKER}


def _written(value: Any) -> bytes:
    try:
        return _digest(_ENCODE(value))
    except (TypeError, ValueError, RecursionError, UnicodeError):
        return _digest(repr(value).encode("utf-8", "replace"))


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_SIZE).digest()


def without_markers(message: Any) -> Any:
    """Return a message without what only says how its request is to be cached.

    A request may have four of these, and a conversation has them from every turn.
    """
    key = "parts" if isinstance(message, dict) and "parts" in message else "content"
    blocks = message.get(key) if isinstance(message, dict) else None
    if not isinstance(blocks, list):
        return message
    kept: list[Any] = []
    for block in blocks:
        if isinstance(block, dict) and any(marker in block for marker in _MARKERS):
            continue
        if isinstance(block, dict) and _MARKER in block:
            block = {name: value for name, value in block.items() if name != _MARKER}  # noqa: PLW2901
        kept.append(block)
    return {**message, key: kept}


def digest_of_instructions(instructions: Sequence[Instructed]) -> str:
    """Name what a model is told before the conversation, as far as it stays; "" for nothing."""
    if not instructions:
        return ""
    said = [
        (event.role, _VARYING.sub("", bytes_of(event.payload).decode())) for event in instructions
    ]
    return _digest(_ENCODE(said)).hex()


def digest_of_response(response: str) -> str:
    """Name a response by its id."""
    return _digest(response.encode("utf-8", "replace")).hex()


def tag_of(mark: bytes) -> str:
    """Return the tag of the sessions that have a place in their chain."""
    return f"proxy:{spell_hash(mark)}"


def spell_hash(end: bytes) -> str:
    """Spell a hash in few characters."""
    return urlsafe_b64encode(end).decode()
