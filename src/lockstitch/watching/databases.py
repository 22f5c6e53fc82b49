"""A database with the sessions of a program: which of them changed since the last look."""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct, field

from lockstitch.formats.base import SQLITE
from lockstitch.formats.registry import format_named
from lockstitch.formats.sources import Source, sources_of
from lockstitch.watching.places import log_of

# Times in databases may be whole seconds: what changed so shortly before the last look counts.
_COARSE = 2.0
Stamp = tuple[int, int, int, int]


class WatchedDatabase(Struct):
    """A database and what was last seen in it."""

    path: str
    stamp: Stamp | None = None
    latest: float = 0.0
    seen: set[str] = field(default_factory=set)

    def changed(self) -> Iterator[Source]:
        """Return the sessions that changed since the last look; none if nothing was written.

        Reading a database may make and remove its log, which is no change.
        """
        stamp = _stamp(self.path)
        if stamp == self.stamp:
            return
        self.stamp = stamp
        found = sources_of(self.path)
        times = _times(self.path, found)
        since = self.latest - _COARSE
        self.latest = max(times.values(), default=self.latest)
        for source in found:
            if source.kind == SQLITE and times.get(source.session or "", 0.0) >= since:
                yield source


def _times(path: str, found: list[Source]) -> dict[str, float]:
    from lockstitch.formats import rows  # noqa: PLC0415 - sqlite3 is loaded for databases only

    if not found or found[0].kind != SQLITE:
        return {}
    return {row.id: row.updated for row in rows.sessions(path, format_named(found[0].format))}


def _stamp(path: str) -> Stamp:
    base, log = _status(path), _status(log_of(path))
    # An empty log says as little as none.
    return (*base, *(log if log[0] else (0, 0)))


def _status(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116 - asked again and again
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns
