"""The fast path of a projection: payloads decoded many at once, everyday replies read at once.

All of it could be read by what knows every case; what is read here is the same. Reasoning is
sealed by its issuer and stays behind. Whatever is not everyday is left to the longer way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from lockstitch.conversation.parts import ASSISTANT
from lockstitch.dialects.fast import encoded_size
from lockstitch.dialects.fitting import Ids
from lockstitch.dialects.registry import exchange_of
from lockstitch.dialects.script import (
    NeutralCall,
    NeutralResult,
    NeutralTurn,
    Piece,
    TextPiece,
    is_blank_text,
)
from lockstitch.journal.events import Event, Partial, Replied, value_of
from lockstitch.journal.records import Large
from lockstitch.journal.state import Item, Late, ModelReply

# Ids and names that every receiver takes as they are.
_PLAIN = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch


class PlainTurn(NeutralTurn):
    """A turn that every receiver takes as it is, but for ids that were used before."""


def turn_of(
    issuer: str, value: Any, results: Sequence[tuple[str, str, str, bool]]
) -> NeutralTurn | None:
    """Read a reply; None if it takes a longer look.

    ``results`` are the id and name of each call as they were noted, the text of its result, and
    whether it failed.
    """
    exchange = exchange_of(issuer)
    messages = exchange.plain_messages(value)
    if messages is None:
        return None
    try:
        words, asked = exchange.words_and_calls(messages)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None
    if len(asked) != len(results) or not (words or asked) or not all(map(_is_said, words)):
        return None
    pieces: list[Piece] = [TextPiece(text) for text in words]
    calls: list[NeutralCall] = []
    answers: list[NeutralResult] = []
    for (number, name, arguments), (known, called, text, failed) in zip(
        asked, results, strict=True
    ):
        if number != known or name != called or type(arguments) is not dict or is_blank_text(text):
            return None
        if not _PLAIN(number) or not _PLAIN(name):
            return None
        call = NeutralCall(number, name, arguments)
        calls.append(call)
        is_told = failed and exchange.marks_failures
        answers.append(NeutralResult(call, len(answers), [TextPiece(text)], is_told))
    return PlainTurn(ASSISTANT, pieces, calls, answers)


def may_stay(turns: Sequence[NeutralTurn | str], ids: Ids) -> bool:
    """Whether turns can be written as they are, and note the ids in them."""
    calls = [call.id for turn in turns if isinstance(turn, NeutralTurn) for call in turn.calls]
    if len(set(calls)) != len(calls):
        return False
    if ids.profile.ids_unique and any(call in ids.seen for call in calls):
        return False
    noted = dict.fromkeys(calls)
    ids.taken.update(noted)
    if ids.profile.ids_unique:
        ids.seen.update(noted)
    return True


def _is_said(text: Any) -> bool:
    return type(text) is str and not is_blank_text(text)


_CHUNK = 64
_REPLIES = (Replied, Partial)
_MISSING = object()
_decode = msgspec.json.Decoder(list[Any]).decode


class Values:
    """Decoded payloads; ``large`` gives those that are kept apart, one by one when asked for.

    What is given out is nobody else's, and the same until the next items come. ``is_clean`` tells
    whether all of it is text that UTF-8 can say, without a NUL. Written anew as JSON it has
    ``size`` bytes at most, and what is decoded at once ``largest``.
    """

    def __init__(self, large: Large) -> None:
        self.is_clean = True
        self.size = 0
        self.largest = 0
        self._large = large
        self._ready: dict[int, Any] = {}

    def ahead(self, items: Sequence[Item]) -> Iterator[Item]:
        """Pass items on, with what they carry decoded some items ahead."""
        for start in range(0, len(items), _CHUNK):
            chunk = items[start : start + _CHUNK]
            before = self.size
            self._ready = self._read(list(_facts(chunk)))
            self.largest = max(self.largest, self.size - before)
            yield from chunk
        self._ready = {}

    def of(self, event: Event) -> Any:
        """Decode what an event carries; None for nothing, and for what cannot be read."""
        value = self._ready.get(id(event), _MISSING)
        if value is _MISSING and event.blob:
            before = self.size
            value = self._decoded([event]).get(id(event), _MISSING)
            self.largest = max(self.largest, self.size - before)
        if value is _MISSING or (type(value) is str and isinstance(event, _REPLIES)):
            # Decode one payload in whatever way it can be read.
            self.is_clean = False
            try:
                return value_of(self._payload(event), inner=isinstance(event, _REPLIES))
            except (ValueError, RecursionError):
                return None
        return value

    def _payload(self, event: Event) -> msgspec.Raw:
        return msgspec.Raw(self._large.whole(event.blob)) if event.blob else event.payload

    def _read(self, events: list[Event]) -> dict[int, Any]:
        """Decode what events carry, small payloads together; large ones wait to be asked for."""
        return self._decoded([event for event in events if not event.blob])

    def _decoded(self, events: list[Event]) -> dict[int, Any]:
        """Decode payloads as one list; none if one of them is not to be read like that."""
        joined = b"[%b]" % b",".join(map(self._payload, events))
        try:
            values = _decode(joined)
        except (ValueError, RecursionError):
            return {}
        if len(values) != len(events):
            return {}
        # Add what is known of decoded values: a text is never longer than it was.
        # Anything else can be, a number for one, and stands here twice, since a result names its
        # call once more.
        length = len(joined)
        others = encoded_size([value for value in values if type(value) is not str])
        texts = (value for value in values if type(value) is str)
        self.is_clean = self.is_clean and others >= 0 and not any("\0" in text for text in texts)
        self.size += length + 2 * others
        return dict(zip(map(id, events), values, strict=True))


def _facts(items: Iterable[Item]) -> Iterator[Event]:
    for item in items:
        if isinstance(item, Late):
            yield item.fact
            continue
        yield item.event
        if isinstance(item, ModelReply):
            for call in item.calls:
                if call.outcome is not None:
                    yield call.outcome.fact
