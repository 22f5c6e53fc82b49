"""Numbers for people: bytes, and counts with their nouns."""

from __future__ import annotations

_KILO = 1000
_UNITS = ("B", "kB", "MB", "GB")


def size(count: float) -> str:
    """A number of bytes for a person: ``1.4 kB``."""
    unit = 0
    while count >= _KILO and unit < len(_UNITS) - 1:
        count /= _KILO
        unit += 1
    return f"{count:.1f} {_UNITS[unit]}" if unit else f"{count} B"


def several(count: int, noun: str) -> str:
    """A count with its noun: ``1 line``, ``12 lines``."""
    return f"{count} {noun}{'s' * (count != 1)}"
