"""What tells one conversation from another: a chain of hashes over what was said in it.

Each part of a message (a text, a call, a result) is one link, and the hash of a link covers all
before it, so two requests have a hash in common exactly as far as they say the same. What clients
change between two turns of one conversation is left out: ids, cache markers, reasoning, white
space around a text, how blocks are grouped into messages, and the reminders that Claude Code adds
to the last message. This is for telling conversations apart only; what is kept is the client's.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from lockstitch.dialects.base import Dialect
from lockstitch.dialects.detect import new_dialect
from lockstitch.journal.events import Instructed, bytes_of
from lockstitch.model.parts import ASSISTANT, CALL, REASONING, RESULT, TEXT, Message, Part

_SIZE = 12
_ENCODE = msgspec.json.Encoder(order="sorted").encode
_DECODE = msgspec.json.Decoder().decode
_REMINDER = re.compile(r"\s*<system-reminder>.*</system-reminder>\s*", re.DOTALL)
# A header that Claude Code hands on inside its instructions, other in every request.
_VARYING = re.compile(r"x-anthropic-billing-header:[^\n]*\n?")
# Fields that name a part, or say how it is to be cached, and not what it says.
_UNSAID = frozenset(
    {"id", "call_id", "tool_call_id", "tool_use_id", "toolUseId", "cache_control", "status"}
)
_MARKERS = ("cachePoint",)
# So many messages are known by their bytes, whose links need not be made again.
_KNOWN = 100_000

Links = tuple[bytes, ...]


class Chain(Struct, frozen=True):
    """The hashes of a list of messages: at the end of each, and behind 1, 2, 4, 8, … links.

    ``length`` counts the links.
    """

    ends: list[bytes]
    marks: dict[int, bytes]
    length: int
    last: bytes

    def extended(self, links: Sequence[Links]) -> Chain:
        """Return the chain with more messages behind it."""
        ends, marks = list(self.ends), dict(self.marks)
        last, length = self.last, self.length
        for message in links:
            for link in message:
                last, length = _hashed(last, link), length + 1
                if length & (length - 1) == 0:
                    marks[length] = last
            ends.append(last)
        return Chain(ends, marks, length, last)


def beginning(dialect: str, told: str = "") -> Chain:
    """Return the chain before the first message; ``told`` is what else it depends on."""
    return Chain([], {}, 0, _hashed(b"", f"{dialect}\n{told}".encode()))


def _hashed(before: bytes, link: bytes) -> bytes:
    return blake2b(before + link, digest_size=_SIZE).digest()


class Linking:
    """Makes the links of messages; those that came before, byte for byte, are not read again."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Links] = OrderedDict()

    def of_raws(self, dialect: str, raws: Iterable[bytes]) -> list[Links]:
        """Return the links of messages in a request."""
        view, found = new_dialect(dialect), []
        for raw in raws:
            name = blake2b(raw, digest_size=16, person=dialect.encode()[:16]).digest()
            links = self._known.get(name)
            if links is None:
                links = links_of(view, view.read([_DECODE(raw)])[0])
                self._known[name] = links
                if len(self._known) > _KNOWN:
                    self._known.popitem(last=False)
            found.append(links)
        return found


def links_of_reply(dialect: str, messages: Sequence[Any]) -> list[Links]:
    """Return the links of a reply's messages, as they are when the client hands them back."""
    view = new_dialect(dialect)
    return [links_of(view, message) for message in view.read(messages)]


def links_of(view: Dialect, message: Message) -> Links:
    """Return the links of one message; only a reply may have none."""
    parts = [part for part in message.parts if _counts(part)]
    if message.role != ASSISTANT:
        spoken = [part for part in parts if not _is_reminder(part)]
        parts = spoken or parts
    if not parts and message.role != ASSISTANT:
        return (_written(["odd", message.role, message.raw]),)
    return tuple(_written(_said(view, message.role, part)) for part in parts)


def _counts(part: Part) -> bool:
    if part.kind == TEXT:
        return not part.text.isspace() and part.text != ""
    return part.kind != REASONING and part.flavor not in _MARKERS


def _is_reminder(part: Part) -> bool:
    return part.kind == TEXT and _REMINDER.fullmatch(part.text) is not None


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
    return {key: value for key, value in raw.items() if key not in _UNSAID}


def _written(value: Any) -> bytes:
    try:
        return _digest(_ENCODE(value))
    except (TypeError, ValueError, RecursionError, UnicodeError):
        return _digest(repr(value).encode("utf-8", "replace"))


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_SIZE).digest()


def digest_of_told(told: Iterable[Instructed]) -> str:
    """Name what a model is told before the conversation, as far as it stays between turns."""
    said = [(event.role, _VARYING.sub("", bytes_of(event.payload).decode())) for event in told]
    return _digest(_ENCODE(said)).hex()


def digest_of_field(value: bytes) -> str:
    """Name the value of a field in a request."""
    return _digest(value).hex()


def tag_of(mark: bytes) -> str:
    """Return the tag of the sessions that have a place in their chain."""
    return f"proxy:{mark.hex()}"
