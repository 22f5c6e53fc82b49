"""Quick looks at a whole raw list: its size, the stretches that need the rules, what is proven.

Walkers and proofs trade generality for speed: what they pass is certainly fine under the dialect's
own profile, what they fail goes through the full rules. A walker, which a repair goes by, knows
texts, calls and results, nothing else. A proof is for lists that were made here from everyday
parts, and lets reasoning pass, since nothing is going to be changed before it. Each dialect has
its own in its package.

A *seam* is a message before which nothing is open: a user's prompt with every call answered.
Seams cut a list into stretches; a walker proves stretches fine, and only the others, with the
neighbours that share an id with them, go through the rules and the repair. Of every run of fine
stretches the first message and the end stay in the excerpt, so that each suspect keeps its
neighbours.
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
# The number of messages in a chunk stands before them, in so many bytes if there are many.
_PACKED_HEAD = 3
_FEW = 16
_LONGEST = 6
# Below this no result can be a giant one.
_UNREMARKABLE = 10 * 1024 * 1024
# Up to so many messages a list is looked at as a whole.
_SHORT = 8
# So many messages are walked over and then encoded, while they are still in the processor's cache.
_CHUNK = 64
_LONGEST_ID = 64


class Excerpt(Struct):
    """The messages that need a look: their indices, and the runs left out between them.

    ``gaps`` maps the index behind which a run was left out to the run's end; ``ids`` holds every
    id of the whole list, so that none is minted twice.
    """

    numbers: list[int]
    gaps: dict[int, int]
    ids: frozenset[str] = frozenset()


class ReceiverLimits(Protocol):
    """What a quick look has to know of a profile: its name within the dialect, and a limit."""

    @property
    def name(self) -> str:
        """The name of a variant; empty for the dialect's own profile."""

    @property
    def max_bytes(self) -> int:
        """How many bytes a list may have, 0 for any number."""


def narrow(
    dialect: Dialect,
    receiver: ReceiverLimits,
    raw: Sequence[Any],
    *,
    with_ends: bool = False,
    clean: bool = False,
) -> Excerpt | None:
    """Return the part of a list that needs a look, or None if all of it does.

    Only for a dialect's own profile: variants have rules the walkers do not know. ``clean`` says
    that the list is known to be clean text within all limits; ``with_ends`` asks for the first and
    the last stretch in any case. An excerpt without numbers says that the list is proven fine.
    """
    walker = dialect.walker() if dialect.walker and not receiver.name else None
    if walker is None or not raw:
        return None
    if len(raw) <= _SHORT:
        # nothing worth it can be left out: the list is fine, or all of it needs a look
        if with_ends or walker.run(raw, 0, []) < len(raw) or not walker.is_sound():
            return None
        return Excerpt([], {}) if clean or 0 <= size_bound(raw) <= _UNREMARKABLE else None
    limit = None if clean else receiver.max_bytes
    return find_excerpt(raw, walker, with_ends=with_ends, limit=limit)


def find_excerpt(
    raw: Sequence[Any], walker: Walker, *, with_ends: bool = False, limit: int | None = None
) -> Excerpt | None:
    """Return the messages of a long list that need a look; None if that is most of them.

    Where there is a ``limit``, 0 for none, the list has to be clean text of so many bytes at most,
    without any giant.
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
    spans = _with_kin(raw, walker, seams, suspects)
    if spans is None:
        return None
    # Take the suspects and, of each run between them, its first message and its tail.
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


def _with_kin(
    raw: Sequence[Any], walker: Walker, seams: list[int], suspects: Spans
) -> Spans | None:
    """Add the stretches that share an id with a suspect, and the two ends of the list."""
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
    """Return how many bytes of JSON messages take at most; -1 for what needs a longer look.

    That is text which is not certainly clean, and a message that is a giant. MessagePack is twice
    as fast to write as JSON, and raises for the same text. It holds a NUL for every one in the
    text, and now and then one that only counts something. No byte of it takes more than six in
    JSON: the exact size is asked for only until that bound is good enough.
    """
    try:
        packed = _PACKER.encode(messages)
        # A zero byte is in a text, or in the length of something: JSON spells the first out.
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
    """Whether messages, with a bound for the size of each chunk, are within a limit, 0 for none."""
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
    """Whether this is not a text with something in it."""
    return type(text) is not str or not text or text.isspace()


def is_text(text: Any) -> bool:
    """Whether this is a text with something in it, if only white space."""
    return type(text) is str and text != ""


class PlainProof(QuickProof):
    """What most proofs share: one message after the other, ids and names."""

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
        """Whether a message is plain behind another one, None for the first."""
        raise NotImplementedError

    def is_new(self, name: Any) -> bool:
        """Whether an id is a short one that was not there before, and note it."""
        if type(name) is not str or not name or len(name) > _LONGEST_ID or name in self.met:
            return False
        self.met[name] = len(self.met)
        return True
