"""Who holds a session and whether they are heard of, by this machine's clock and no other.

A holder's number changes while it is alive. It is silent when the number has stood still for the
length of its lease since it was first seen, by the clock that runs evenly on this machine: the
time of day plays no part, neither here nor elsewhere. What was seen is also noted beside the
holder's own claim, for processes that come and go: the next one on this machine goes on from there.
"""

from __future__ import annotations

import threading

import msgspec
from msgspec import Struct

from lockstitch.stores import holders

_MOST_NOTED = 16


class Sight(Struct, frozen=True, array_like=True):
    """A holder's token and number, and when they were first seen together."""

    token: str
    beats: float
    since: float


class Sighted(Struct, frozen=True):
    """What a store says of a session's holder, and what is noted beside it."""

    token: str
    holder: str
    beats: float
    term: float
    watched: str = ""


class Watching:
    """What a process has seen of the holders of sessions; safe for many threads."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._boot = holders.myself().boot
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[Sight, float]] = {}
        self._noted: dict[str, float] = {}

    def silent(self, session: str) -> tuple[str, float]:
        """Give the token and number of a holder that was silent for long enough, if one was."""
        with self._lock:
            sight, term = self._seen.get(session, (Sight("", 0, 0.0), 0.0))
        is_due = sight.token and holders.steady() >= sight.since + term
        return (sight.token, sight.beats) if is_due else ("", 0)

    def see(self, session: str, held: Sighted) -> float:
        """Note what a holder's number is now; gives for how many seconds it has to stand still."""
        now = holders.steady()
        term = held.term or self._lease_seconds
        with self._lock:
            sight, _ = self._seen.get(session, (Sight("", 0, 0.0), 0.0))
            if (sight.token, sight.beats) != (held.token, held.beats):
                sight = Sight(held.token, held.beats, now)
            noted = _noted(held.watched).get(self._boot) if self._boot else None
            if noted and (noted.token, noted.beats) == (held.token, held.beats):
                # Only the past counts: a note from the future is not of this boot's clock.
                since = min(noted.since, now)
                sight = Sight(held.token, held.beats, min(sight.since, since))
            self._seen[session] = (sight, term)
        return max(sight.since + term - now, 0.0)

    def note(self, session: str, held: Sighted) -> str:
        """Give what is to be noted in the session's row, "" if that is there or was just done."""
        now = holders.steady()
        with self._lock:
            sight, term = self._seen[session]
            others = {
                boot: one
                for boot, one in _noted(held.watched).items()
                if (one.token, one.beats) == (held.token, held.beats)
            }
            is_recent = now < self._noted.get(session, -term) + term / 3
            if not self._boot or self._boot in others or is_recent:
                return ""
            self._noted[session] = now
            kept = dict([*others.items()][-_MOST_NOTED + 1 :])
        return msgspec.json.encode({**kept, self._boot: sight}).decode()

    def forget(self, session: str) -> None:
        """Forget what was seen: the session is ours now."""
        with self._lock:
            self._seen.pop(session, None)
            self._noted.pop(session, None)


def _noted(text: str) -> dict[str, Sight]:
    try:
        return msgspec.json.decode(text.encode(), type=dict[str, Sight]) if text else {}
    except (msgspec.MsgspecError, UnicodeError):
        return {}
