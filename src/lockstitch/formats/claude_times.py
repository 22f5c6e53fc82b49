"""Times in a Claude Code file: older versions resume at the newest line, so they must be right."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from typing import Any

_TICK = timedelta(milliseconds=1)


def time_of(value: dict[str, Any]) -> datetime | None:
    """Give the time of a record, None if it has none that can be read."""
    stamp = value.get("timestamp")
    try:
        found = datetime.fromisoformat(stamp) if type(stamp) is str else None
    except ValueError:
        return None
    if found is not None and not MINYEAR < found.year < MAXYEAR:
        return None  # no time has a moment after it, or is one in every zone
    if found is not None and found.tzinfo is None:
        return found.replace(tzinfo=UTC)
    return found


def stamp(time: datetime) -> str:
    """Write a time as the program does."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def newest(values: Iterable[dict[str, Any]]) -> datetime | None:
    """Give the newest time among records."""
    return max((time for time in map(time_of, values) if time is not None), default=None)


def just_after(time: datetime) -> datetime:
    """Give the next moment that the program can tell from this one."""
    return time + _TICK


def just_before(time: datetime) -> datetime:
    """Give the last moment that the program can tell from this one."""
    return time - _TICK


def seconds_between(first: dict[str, Any], second: dict[str, Any]) -> float | None:
    """Return how much later the second record is than the first; None if one has no time."""
    times = time_of(first), time_of(second)
    if times[0] is None or times[1] is None:
        return None
    return (times[1] - times[0]).total_seconds()
