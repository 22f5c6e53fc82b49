"""When a summarizer that failed is asked again: after a pause that grows while it goes on failing.

Only decisions: the time, and how long pauses are, is given.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from msgspec import Struct

from lockstitch.compaction.ladder import Compaction

# Twice as long that often is longer than anybody's longest pause, and no number that overflows.
_DOUBLINGS = 64


class Pauses(Struct, frozen=True):
    """How long nobody asks, in seconds: twice as long after each failure in a row."""

    first: float = 30.0
    longest: float = 30 * 60.0

    def after(self, failures: int) -> float:
        """Return how long the pause is after so many failures in a row."""
        if failures < 1:
            return 0.0
        return min(self.first * 2.0 ** min(failures - 1, _DOUBLINGS), self.longest)


PAUSES = Pauses()


class Past(Struct, frozen=True):
    """What became of a summarizer: how often in a row it failed, and when it was asked last.

    ``since`` is in seconds since 1970, so that another process can go by it.
    """

    failures: int = 0
    since: float = 0.0

    def paused_until(self, now: float, pauses: Pauses = PAUSES) -> float | None:
        """Return when it may be asked again; None if it may be now.

        A clock that was put back ends a pause: at worst it is asked once too often.
        """
        until = self.since + pauses.after(self.failures)
        return until if self.since <= now < until else None

    def after(self, done: Compaction, now: float) -> Past:
        """Return what is known after a compaction; the same if it asked nobody.

        One answer says that it is not down: what failed before that counts no more.
        """
        if not done.asked:
            return self
        if done.rung == "summary":
            return Past(0, now)
        is_down = len(done.failures) >= done.asked
        return Past(self.failures + 1 if is_down else 1, now)


def latest(pasts: Iterable[Past], now: float) -> Past:
    """Return the last that is known; what a clock says is yet to come counts for nothing."""
    return max((past for past in pasts if past.since <= now), key=_since, default=Past())


def _since(past: Past) -> float:
    return past.since


def told(past: Past, until: float) -> str:
    """Say that a summarizer is not asked, until when, and why."""
    moment = datetime.fromtimestamp(until, UTC).isoformat(sep=" ", timespec="seconds")
    times = "once" if past.failures == 1 else f"{past.failures} times in a row"
    return f"the summarizer is paused until {moment}: it failed {times}"
