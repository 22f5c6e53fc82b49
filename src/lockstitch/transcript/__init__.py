"""Conversations for people to read, with every call next to its result.

This package decides what is said in which order. A layout (lines of a terminal, rows of a web page)
decides what each piece looks like.
"""

from __future__ import annotations

_KILO = 1000
_BYTE_UNITS = ("B", "kB", "MB", "GB")


def size(count: float) -> str:
    """Return a number of bytes for people: ``1.4 kB``."""
    unit = 0
    while count >= _KILO and unit < len(_BYTE_UNITS) - 1:
        count /= _KILO
        unit += 1
    return f"{count:.1f} {_BYTE_UNITS[unit]}" if unit else f"{count} B"


def utc_time(at: int) -> str:
    """Return a time in milliseconds since 1970 for people, in UTC."""
    from datetime import UTC, datetime  # noqa: PLC0415 - start-up time

    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
