"""Checks over a whole raw list at the speed of C, for the case that nothing is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

_ENCODER = msgspec.json.Encoder()
_PLAIN_IDS = re.compile(r"[a-zA-Z0-9_-]*")
_PLAIN_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# Below this total no single result can be a giant one, and no byte limit is near.
_UNREMARKABLE = 10 * 1024 * 1024


def is_unremarkable(raw: Any) -> bool:
    """Tell whether a list certainly holds no NUL, no lone surrogate and not too many bytes."""
    return 0 <= encoded_size(raw) <= _UNREMARKABLE


def encoded_size(raw: Any) -> int:
    """Give the size of a value as JSON, or -1 if it is not certainly clean text throughout."""
    try:
        encoded = _ENCODER.encode(raw)
    except (TypeError, ValueError, RecursionError, UnicodeError):
        return -1
    return -1 if b"\\u0000" in encoded else len(encoded)


def are_plain_ids(ids: Iterable[str]) -> bool:
    """Tell whether ids are non-empty and fit Anthropic's alphabet."""
    return "" not in ids and _PLAIN_IDS.fullmatch("".join(ids)) is not None


def are_plain_names(names: Iterable[str]) -> bool:
    """Tell whether tool names fit every provider's pattern."""
    return all(_PLAIN_NAME.fullmatch(name) for name in names)
