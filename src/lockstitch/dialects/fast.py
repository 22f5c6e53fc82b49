"""Quick looks at a whole raw list: its size, the stretches that need the rules, what is proven.

Walkers and proofs trade generality for speed: what they pass is certainly fine under the dialect's
own profile, what they fail goes through the full rules. A walker, which a repair goes by, knows
texts, calls and results, nothing else. A proof is for lists that were made here from everyday
parts, and lets reasoning pass, since nothing is going to be changed before it. Each dialect has
its own in its package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from lockstitch.conversation.narrowing import Excerpt, find_excerpt
from lockstitch.dialects.base import Dialect
from lockstitch.dialects.profiles import Profile

_ENCODER = msgspec.json.Encoder()
_PACKER = msgspec.msgpack.Encoder()
# The number of messages in a chunk stands before them, in so many bytes.
_PACKED_HEAD = 3
_LONGEST = 6
# Below this no result can be a giant one.
_UNREMARKABLE = 10 * 1024 * 1024
# Up to so many messages a list is looked at as a whole.
_SHORT = 8
# So many messages are encoded at once, in memory that is at hand.
_CHUNK = 64
_LONGEST_ID = 64
PLAIN_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def encoded_size(raw: Any) -> int:
    """Return the size of a value as JSON, or -1 if it is not certainly clean text throughout."""
    try:
        encoded = _ENCODER.encode(raw)
    except (TypeError, ValueError, RecursionError, UnicodeError):
        return -1
    return -1 if b"\\u0000" in encoded else len(encoded)


def narrow(
    dialect: Dialect,
    profile: Profile,
    raw: Sequence[Any],
    *,
    with_ends: bool = False,
    clean: bool = False,
) -> Excerpt | None:
    """Return the part of a list that needs a look, or None if all of it does.

    Only for a dialect's own profile: variants have rules the walkers do not know. ``clean`` says
    that the list is known to be clean text within all limits.
    """
    walker = None if profile.name else dialect.walker()
    if walker is None or not raw:
        return None
    if len(raw) > _SHORT:
        found = find_excerpt(raw, walker, with_ends=with_ends)
    else:
        # of a short list nothing worth it can be left out: it is fine, or all of it needs a look
        is_fine = not with_ends and walker.run(raw, 0, []) == len(raw) and walker.is_sound()
        found = Excerpt([], {}) if is_fine else None
    if found is None or len(found.numbers) * 2 > len(raw):
        return None
    return found if clean or _is_small(raw, profile) else None


def _is_small(raw: Sequence[Any], profile: Profile) -> bool:
    """Whether a list is clean text within its receiver's limit, and no message is a giant.

    MessagePack is twice as fast to write as JSON, and raises for the same text. It holds a NUL for
    every one in the text, and now and then one that only counts something. No byte of it takes
    more than six in JSON: the exact size is asked for only until that bound is good enough.
    """
    chunks = [raw[start : start + _CHUNK] for start in range(0, len(raw), _CHUNK)]
    sizes: list[int] = []
    for chunk in chunks:
        try:
            packed = _PACKER.encode(chunk)
            # A zero byte is in a text, or in the length of something: JSON spells the first out.
            if packed.find(0, _PACKED_HEAD) >= 0 and b"\\u0000" in _ENCODER.encode(chunk):
                return False
        except (TypeError, ValueError, OverflowError, RecursionError, UnicodeError):
            return False
        size = _LONGEST * len(packed)
        if size > _UNREMARKABLE:
            size = encoded_size(chunk)
            if size > _UNREMARKABLE and any(encoded_size(one) > _UNREMARKABLE for one in chunk):
                return False
        sizes.append(size)
    most = max(profile.max_bytes or sum(sizes), _UNREMARKABLE)
    total = sum(sizes)
    for chunk, size in zip(chunks, sizes, strict=True):
        if total <= most:
            return True
        total += encoded_size(chunk) - size
    return total <= most


def is_blank(text: Any) -> bool:
    """Whether this is not a text with something in it."""
    return type(text) is not str or not text or text.isspace()


def is_text(text: Any) -> bool:
    """Whether this is a text with something in it, if only white space."""
    return type(text) is str and text != ""


class PlainProof:
    """What most proofs share: one message after the other, ids and names."""

    def __init__(self) -> None:
        self.seen: dict[str, None] = {}
        self.names: set[str] = set()
        self.waiting: list[Any] = []

    def run(self, raw: Sequence[Any], start: int, seams: list[int]) -> int:
        """Walk from a place at which nothing is open to the first message that is not plain."""
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

    def ids_in(self, message: Any) -> Iterable[str]:
        """Return the ids in a message; what has none to keep gives none."""
        return ()

    def is_sound(self) -> bool:
        """Whether all names are ones that everybody takes."""
        return all(PLAIN_NAME.fullmatch(name) for name in self.names)

    def ids(self) -> Iterable[str]:
        """Return every id that may not come again."""
        return self.seen

    def is_new(self, name: Any) -> bool:
        """Whether an id is a short one that was not there before, and note it."""
        if type(name) is not str or not name or len(name) > _LONGEST_ID or name in self.seen:
            return False
        self.seen[name] = None
        return True
