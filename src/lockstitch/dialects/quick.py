"""What can be said of a whole raw list at the speed of C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lockstitch.dialects.base import Dialect
from lockstitch.dialects.profiles import Profile
from lockstitch.model.stretches import Excerpt, excerpt

_ENCODER = msgspec.json.Encoder()
# Below this no result can be a giant one.
_UNREMARKABLE = 10 * 1024 * 1024
# So many messages are encoded at once, in memory that is at hand.
_CHUNK = 64


def encoded_size(raw: Any) -> int:
    """Give the size of a value as JSON, or -1 if it is not certainly clean text throughout."""
    try:
        encoded = _ENCODER.encode(raw)
    except (TypeError, ValueError, RecursionError, UnicodeError):
        return -1
    return -1 if b"\\u0000" in encoded else len(encoded)


def narrowed(
    dialect: Dialect,
    profile: Profile,
    raw: Sequence[Any],
    *,
    with_ends: bool = False,
    clean: bool = False,
) -> Excerpt | None:
    """Give the part of a list that needs a look, or None if all of it does.

    Only for a dialect's own profile: variants have rules the walkers do not know. ``clean`` says
    that the list is known to be clean text within all limits.
    """
    walker = None if profile.name else dialect.walker()
    if walker is None or not raw:
        return None
    found = excerpt(raw, walker, with_ends=with_ends)
    if found is None or len(found.numbers) * 2 > len(raw):
        return None
    return found if clean or _is_small(raw, profile) else None


def _is_small(raw: Sequence[Any], profile: Profile) -> bool:
    """Tell whether a list is clean text within its receiver's limit, and no message is a giant."""
    sizes = [encoded_size(raw[start : start + _CHUNK]) for start in range(0, len(raw), _CHUNK)]
    if min(sizes) < 0 or (max(sizes) > _UNREMARKABLE and _has_a_giant(raw)):
        return False
    return sum(sizes) <= max(profile.max_bytes or sum(sizes), _UNREMARKABLE)


def _has_a_giant(raw: Sequence[Any]) -> bool:
    return any(encoded_size(message) > _UNREMARKABLE for message in raw)
