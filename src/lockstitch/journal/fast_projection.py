"""The fast path of a projection: many payloads decoded at once, and only what is new judged.

All of it could be read by what knows every case; what is read here is the same. Reasoning is
sealed by its issuer and stays behind. Whatever is not everyday is left to the longer way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import structs

from lockstitch.conversation.parts import ASSISTANT, MEDIA, Message, sort_parts
from lockstitch.dialects.base import QuickProof
from lockstitch.dialects.fast import Excerpt, encoded_size, find_excerpt
from lockstitch.dialects.media import Image, head_of, images_in, pixels
from lockstitch.dialects.profiles import Profile, profile_named, traits_of
from lockstitch.dialects.registry import VIEWS, exchange_of, new_dialect
from lockstitch.dialects.script import (
    Ids,
    NeutralCall,
    NeutralResult,
    NeutralTurn,
    Piece,
    TextPiece,
    is_blank_text,
)
from lockstitch.heal import Original
from lockstitch.journal.events import Event, Partial, Replied, value_of
from lockstitch.journal.records import Large
from lockstitch.journal.state import Item, Late, ModelReply
from lockstitch.rules import Case, RequestContext, examine

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


# Below this no result can be a giant one, and a list has a size that everybody takes.
_UNREMARKABLE = 10 * 1024 * 1024
# So many replies are enough to tell how a list ends.
_ENOUGH = 2
_MODELS = ("assistant", "model", "ai", "function_call", "reasoning")


def is_small(profile: Profile, size: int, largest: int) -> bool:
    """Whether a list of ``size`` bytes at most is within its receiver's limit.

    No message is made of more than two parts of ``largest`` bytes, and none may be a giant.
    """
    limit = max(profile.max_bytes or size, _UNREMARKABLE)
    return size <= limit and 2 * largest <= _UNREMARKABLE


class RequestJudge:
    """Judges the requests of one receiver, each a longer one than the last.

    Once :meth:`keep_stable` knows how many messages stay as they are, only what stands behind them
    is looked at, from ``context`` on. What rules ask of a whole list is kept of those: the ids in
    them, how many images and cache markers there are, and how many bytes.
    """

    def __init__(self, name: str, model: str | None) -> None:
        self.profile = profile_named(name)
        self.name = name
        self.model = model or None
        self.stable = 0
        self.context = 0
        self.ids: set[str] = set()
        self.images = 0
        self.markers = 0
        self.size = 0
        self._is_exact = True
        self._bound: int | None = None
        self._proof: QuickProof | None = None
        self._odd: list[Message] = []

    @property
    def can_keep(self) -> bool:
        """Whether what is fine stays fine; a template counts turns from the first one."""
        return not self.profile.template

    def accepts(self, messages: list[Any], bound: int | None) -> bool:
        """Whether no rule finds anything in a list.

        ``bound`` is for one of which all that is not stable is everyday parts: a number of bytes
        that it does not exceed.
        """
        self._bound, self._proof, self._odd = bound, None, []
        if self.stable:
            new = messages[self.stable :]
            size = encoded_size(new)
            if size < 0 or not self._has_room(messages, size):
                return False
            if bound is not None and self.model is None and self._is_proven(messages, self.stable):
                return True
            return self._is_fine(messages)
        if bound is not None:
            if self._is_proven(messages, 0) and self._ends_well(messages):
                return True
            if self.has_sound_excerpt(messages):
                return True
        original = Original(messages, self.name, self.model, ())
        return original.is_proven or not examine(original.case())

    def has_sound_excerpt(self, messages: list[Any]) -> bool:
        """Whether no rule finds anything in the few places of a list that need a look.

        The list is known to be small, and clean text. False also if it needs a longer look.
        """
        profile = self.profile
        walker = None if profile.name else new_dialect(profile.dialect).walker()
        if walker is None or not messages:
            return False
        found = find_excerpt(messages, walker, with_ends=self.model is not None)
        if found is None:
            return False
        if found.numbers:
            case = _case(profile, self.model, [messages[number] for number in found.numbers], found)
            if examine(case):
                return False
            self._odd = case.messages
        self._proof = walker
        return True

    def _is_proven(self, messages: list[Any], start: int) -> bool:
        """Whether a quick walk shows that what is new is fine, wherever the list ends."""
        if self.profile.name or not messages:
            return False
        proof = VIEWS[self.profile.dialect].proof()
        is_walked = proof.run(messages, start, []) == len(messages)
        if is_walked and proof.is_sound() and self._are_new(proof.ids()):
            self._proof = proof
            return True
        return False

    def _ends_well(self, messages: list[Any]) -> bool:
        """Whether a list that is fine otherwise ends as this model wants it to."""
        if self.model is None:
            return True
        if traits_of(self.model).thought_signatures:
            return False
        start, replies = len(messages), 0
        while start > 1 and replies < _ENOUGH:
            start -= 1
            begins = _is_reply(messages[start]) and not _is_reply(messages[start - 1])
            replies += begins
        window = [messages[0], *messages[start:]] if start > 1 else messages
        return not examine(_case(self.profile, self.model, window))

    def _has_room(self, messages: list[Any], size: int) -> bool:
        """Whether a list with so many bytes more is one that the receiver takes."""
        limit = self.profile.max_bytes
        if limit and not self._is_exact and self.size + size > limit:
            self.size, self._is_exact = encoded_size(messages[: self.stable]), True
        return not limit or self.size + size <= limit

    def _is_fine(self, messages: list[Any]) -> bool:
        """Look at what is new with all the rules, and at what stands before it."""
        start = self.context
        window = [messages[0], *messages[start:]] if start else messages
        case = _case(self.profile, self.model, window)
        if examine(case):
            return False
        first = self.stable - start + 1 if start else self.stable
        new = case.messages[first:]
        return self._are_new(_ids_in(new)) and self._is_within(new)

    def _are_new(self, ids: Iterable[str]) -> bool:
        return self.ids.isdisjoint(ids)

    def _is_within(self, new: list[Message]) -> bool:
        """Whether there are no more images and markers than the receiver takes."""
        profile = self.profile
        if profile.max_markers and self.markers + _markers_in(new) > profile.max_markers:
            return False
        images = list(_images_in(new)) if profile.many_images else []
        if self.images + len(images) <= profile.many_images:
            return True
        # as long as they were few, larger ones were taken
        were_many = self.images > profile.many_images
        limit = profile.max_pixels_many
        return were_many and all(pixels(head_of(image.data)) <= limit for image in images)

    def keep_stable(self, messages: list[Any], count: int, context: int) -> None:
        """Take the first messages of the list that was accepted last as stable."""
        new = messages[self.stable : count]
        profile = self.profile
        needs_ids = profile.ids_unique or VIEWS[profile.dialect].ids_never_repeat
        if self._proof is not None:
            if needs_ids:
                self.ids.update(self._proof.ids())
                for message in messages[count:]:
                    self.ids.difference_update(self._proof.ids_in(message))
            view = self._odd
        else:
            view = new_dialect(profile.dialect).read(new)
            if needs_ids:
                self.ids.update(_ids_in(view))
        if profile.many_images:
            self.images += sum(1 for _ in _images_in(view))
        if profile.max_markers:
            self.markers += _markers_in(view)
        if not self.stable and self._bound is not None:
            self.size, self._is_exact = self._bound, False
        elif profile.max_bytes:
            self.size += encoded_size(new)
        self.stable, self.context = count, context


def _is_reply(message: Any) -> bool:
    """Whether a message, or an item, is a model's."""
    return message.get("role") in _MODELS or message.get("type") in _MODELS


def _case(
    profile: Profile, model: str | None, messages: list[Any], found: Excerpt | None = None
) -> Case:
    dialect = new_dialect(profile.dialect)
    request = RequestContext(dialect, profile, traits_of(model), model=model)
    if found is not None:
        request = structs.replace(request, numbers=found.numbers, ids=found.ids)
    return Case(request, dialect.read(messages))


def _ids_in(messages: list[Message]) -> Iterator[str]:
    """Return the ids of calls, results and whatever else has one."""
    for message in messages:
        raw = message.raw.get("id") if isinstance(message.raw, dict) else None
        if isinstance(raw, str):
            yield raw
        for part in message.parts:
            if part.id:
                yield part.id


def _images_in(messages: list[Message]) -> Iterator[Image]:
    parts = sort_parts(messages)
    media = [part for part in parts.rest if part.kind == MEDIA]
    media += [part for part in parts.results if type(part.raw.get("content")) is not str]
    for part in media:
        yield from images_in(part)


def _markers_in(messages: list[Message]) -> int:
    return sum(
        isinstance(part.raw, dict) and part.raw.get("cache_control") is not None
        for message in messages
        for part in message.parts
    )
