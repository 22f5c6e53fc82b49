"""Quick looks at a whole raw list: its size, the stretches that need the rules, what is proven.

Walkers and proofs trade generality for speed. A list that they pass is certainly fine under the
dialect's own profile; a list that they fail goes through the full rules. A walker, on which repairs
rely, knows texts, calls and results, and nothing else. A proof is for lists that were made here
from everyday parts. It lets reasoning pass, since nothing before the reasoning is going to be
changed. Each dialect has its own in its package.

A *seam* is a message before which nothing is open: a user's prompt with every call answered. Seams
cut a list into stretches. A walker proves stretches fine; only the others, and the stretches that
share an id with them, go through the rules and the repair. Of every run of fine stretches, the
first message and the end stay in the excerpt, so that each suspect keeps its neighbours.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from lockstitch.dialects.base import Dialect, QuickProof, Walker

_ENCODER = msgspec.json.Encoder()
_PACKER = msgspec.msgpack.Encoder()
# MessagePack writes the number of items before a list, in this many bytes from ``_FEW`` items on.
_PACKED_HEAD = 3
_FEW = 16
# A byte of MessagePack takes at most this many bytes in JSON.
_LONGEST = 6
# A list below this size cannot hold a giant result.
_UNREMARKABLE = 10 * 1024 * 1024
# A list of up to this many messages is looked at as a whole.
_SHORT = 8
# This many messages are walked and then encoded while they are still in the processor's cache.
_CHUNK = 64
_LONGEST_ID = 64


class Excerpt(Struct):
    """The messages that need a look: their indices, and the runs left out between them.

    ``gaps`` maps the index before a run that was left out to the index at which the run ends.
    ``ids`` holds every id of the whole list, so that none is minted twice.
    """

    numbers: list[int]
    gaps: dict[int, int]
    ids: frozenset[str] = frozenset()


class ReceiverLimits(Protocol):
    """What a quick look needs to know of a profile: its name within the dialect, and a limit."""

    @property
    def name(self) -> str:
        """The name of a variant; empty for the dialect's own profile."""

    @property
    def max_bytes(self) -> int:
        """The most bytes that a list may have, 0 for any number."""


def narrow(
    dialect: Dialect,
    receiver: ReceiverLimits,
    raw: Sequence[Any],
    *,
    with_ends: bool = False,
    clean: bool = False,
) -> Excerpt | None:
    """Return the part of a list that needs a look, or None if all of it does.

    Only a dialect's own profile can be narrowed, since variants have rules that the walkers do not
    know. ``clean`` says that the list is known to be clean text within all limits. ``with_ends``
    asks for the first and the last stretch in any case. An excerpt without numbers says that the
    list is proven fine.
    """
    walker = dialect.walker() if dialect.walker and not receiver.name else None
    if walker is None or not raw:
        return None
    if len(raw) <= _SHORT:
        # leaving something out is not worth it: the list is fine, or all of it needs a look
        if with_ends or walker.run(raw, 0, []) < len(raw) or not walker.is_sound():
            return None
        return Excerpt([], {}) if clean or 0 <= size_bound(raw) <= _UNREMARKABLE else None
    limit = None if clean else receiver.max_bytes
    return find_excerpt(raw, walker, with_ends=with_ends, limit=limit)


def find_excerpt(
    raw: Sequence[Any], walker: Walker, *, with_ends: bool = False, limit: int | None = None
) -> Excerpt | None:
    """Return the messages of a long list that need a look; None if most of them do.

    Unless ``limit`` is None, the list must be clean text of at most so many bytes (0 for any
    number), without any giant message.
    """
    seams: list[int] = [0]
    suspects: Spans = []
    sizes: list[int] = []
    start, total = 0, len(raw)
    while start < total:
        stop = min(start - start % _CHUNK + _CHUNK, total)
        failed = walker.run(raw, start, seams, stop)
        start = stop
        if failed < stop:
            start = failed + 1
            while start < total and not walker.is_prompt(raw[start]):
                start += 1
            for number in range(seams[-1], start):
                walker.note(raw[number], number)
            suspects.append((seams[-1], start))
            seams.append(start)
        while limit is not None and len(sizes) < -(-start // _CHUNK):
            at = len(sizes) * _CHUNK
            sizes.append(size_bound(raw[at : at + _CHUNK]))
            if sizes[-1] < 0:
                return None
    if not walker.is_sound() or (limit is not None and not _fits(raw, sizes, limit)):
        return None
    if not suspects and not with_ends:
        return Excerpt([], {})
    spans = _add_related(raw, walker, seams, suspects)
    if spans is None:
        return None
    # Keep the suspects and, of each run between them, its first message and its tail.
    numbers: list[int] = []
    gaps: dict[int, int] = {}
    fine = 0
    for start, stop in [*spans, (total, total)]:
        first = max(start, fine)
        tail = first - 1
        if tail > fine and not walker.is_quiet(raw[tail]):
            tail = _stretch_at(seams, tail, total)[0]
        if tail > fine + 1:
            numbers.append(fine)
            gaps[fine] = tail
            fine = tail
        numbers += range(fine, max(stop, fine))
        fine = max(fine, stop)
    if len(numbers) * 2 > total:
        return None
    return Excerpt(numbers, gaps, frozenset(walker.ids()))


Spans = list[tuple[int, int]]


def _add_related(
    raw: Sequence[Any], walker: Walker, seams: list[int], suspects: Spans
) -> Spans | None:
    """Add the stretches that share an id with a suspect, and both ends of the list.

    Return None if several messages made a call under one of the ids.
    """
    spans = {*suspects, _stretch_at(seams, 0, len(raw)), _stretch_at(seams, len(raw) - 1, len(raw))}
    todo = list(spans)
    while todo:
        start, stop = todo.pop()
        for index in range(start, stop):
            for call in walker.ids_in(raw[index]):
                home = walker.home_of(call)
                if home == -1:
                    return None
                if home is None or start <= home < stop:
                    continue
                span = _stretch_at(seams, home, len(raw))
                if span not in spans:
                    spans.add(span)
                    todo.append(span)
    return sorted(spans)


def _stretch_at(seams: list[int], index: int, total: int) -> tuple[int, int]:
    at = bisect_right(seams, index)
    return seams[at - 1], seams[at] if at < len(seams) else total


def encoded_size(raw: Any) -> int:
    """Return the size of a value as JSON, or -1 if it is not certainly clean text throughout."""
    try:
        encoded = _ENCODER.encode(raw)
    except (TypeError, ValueError, RecursionError, UnicodeError):
        return -1
    return -1 if b"\\u0000" in encoded else len(encoded)


def size_bound(messages: Sequence[Any]) -> int:
    """Return an upper bound for the size of messages as JSON; -1 if they need a longer look.

    They do if their text is not certainly clean, or if one of them is a giant. MessagePack is twice
    as fast to write as JSON, and raises for the same text. It holds a NUL byte for every NUL in the
    text, and now and then one that belongs to a length. No byte of it takes more than six bytes in
    JSON, so the exact size is only needed if that bound is not good enough.
    """
    try:
        packed = _PACKER.encode(messages)
        # A zero byte stands for a NUL in a text, or belongs to a length. JSON spells a NUL out, so
        # it can tell.
        head = _PACKED_HEAD if len(messages) >= _FEW else 1
        if packed.find(0, head) >= 0 and b"\\u0000" in _ENCODER.encode(messages):
            return -1
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeError):
        return -1
    size = _LONGEST * len(packed)
    if size > _UNREMARKABLE:
        size = encoded_size(messages)
        if size > _UNREMARKABLE and any(encoded_size(one) > _UNREMARKABLE for one in messages):
            return -1
    return size


def _fits(raw: Sequence[Any], sizes: list[int], limit: int) -> bool:
    """Whether messages are within a limit (0 for none), given a size bound for each chunk."""
    total = sum(sizes)
    most = max(limit or total, _UNREMARKABLE)
    for number, size in enumerate(sizes):
        if size < 0:
            return False
        if total <= most:
            return True
        total += encoded_size(raw[number * _CHUNK : (number + 1) * _CHUNK]) - size
    return total <= most


def is_blank(text: Any) -> bool:
    """Whether a value is not a text, or is a text of nothing but white space."""
    return type(text) is not str or not text or text.isspace()


def is_text(text: Any) -> bool:
    """Whether a value is a text that is not empty; white space is enough."""
    return type(text) is str and text != ""


class PlainProof(QuickProof):
    """Base of most proofs: it takes one message after the other, with their ids and names."""

    def run(self, raw: Sequence[Any], start: int, seams: list[int]) -> int:
        index = start
        before: Any = raw[start - 1] if start else None
        try:
            for index in range(start, len(raw)):
                message = raw[index]
                if type(message) is not dict or not self.passes(message, before):
                    return index
                before = message
        except (KeyError, ValueError, RecursionError, TypeError, AttributeError):
            return index
        return len(raw) - 1 if self.is_open else len(raw)

    @property
    def is_open(self) -> bool:
        """Whether something is missing at the end."""
        return bool(self.waiting)

    def passes(self, message: dict[str, Any], before: Any) -> bool:
        """Whether a message is plain after the one ``before`` it, None for the first."""
        raise NotImplementedError

    def is_new(self, name: Any) -> bool:
        """Whether an id is short and was not there before; if so, record it."""
        if type(name) is not str or not name or len(name) > _LONGEST_ID or name in self.met:
            return False
        self.met[name] = len(self.met)
        return True
