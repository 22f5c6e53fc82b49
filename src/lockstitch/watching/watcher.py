"""What is done when: a change is looked at, a session at rest is judged, told and repaired.

A call that is open at the end of a session may be at work. It is told only when the session was
not written to for a while and no program has it open; what no further line will take away is told
at once. Time comes in from outside, and nothing here waits.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter

from msgspec import Struct, field, structs

from lockstitch import sessions
from lockstitch.errors import Busy, Conflict, LockstitchError, UnknownFormat
from lockstitch.formats.base import SQLITE
from lockstitch.formats.sources import Source, sources_of
from lockstitch.report import HEALTHY as HEALTHY_STATES
from lockstitch.report import Report
from lockstitch.rules import NOTE, Finding
from lockstitch.watching.databases import WatchedDatabase
from lockstitch.watching.events import BROKEN, HEALTHY, REFUSED, REPAIRED, Notice, command_for
from lockstitch.watching.followed import Followed
from lockstitch.watching.tails import OPEN, SUSPECT

# How long a database is let alone after a change before it is looked into.
PAUSE = 2.0
# A whole file is read again only after so many times as long as that took the last time.
_RARELY = 20
# How often a program is looked for that has a session open: at first, and at last.
_FIRST_ASK, _LAST_ASK, _SLOWER = 2.0, 30.0, 1.5
# So many sessions are kept in mind; one that rests longest is forgotten, and read anew.
_MOST = 256
_DATABASES = (".db", ".sqlite", ".sqlite3")


class WatchedSession(Struct):
    """A session that changed: when, and when it has to be looked at again."""

    followed: Followed
    changed: float
    wake: float
    is_new: bool = True
    ask: float = _FIRST_ASK
    not_before: float = -math.inf
    told: Counter[str] = field(default_factory=Counter)


class Watcher:
    """Everything that is followed; ``clock`` gives seconds that only go up."""

    def __init__(
        self,
        clock: Callable[[], float],
        environ: Mapping[str, str],
        *,
        idle: float,
        repair: bool = False,
    ) -> None:
        self._clock = clock
        self._environ = environ
        self._idle = idle
        self._repair = repair
        self._entries: dict[tuple[str, str | None], WatchedSession] = {}
        self._bases: dict[str, tuple[WatchedDatabase, float]] = {}

    @property
    def wake(self) -> float:
        """When there is something to do; infinite if not before the next change."""
        times = [entry.wake for entry in self._entries.values()]
        return min([*times, *(due for _, due in self._bases.values())], default=math.inf)

    @property
    def read(self) -> int:
        """How many bytes of files were read so far."""
        return sum(entry.followed.read for entry in self._entries.values())

    def note(self, path: str, ago: float = 0.0) -> None:
        """Take note of a file that changed, so many seconds ago."""
        now = self._clock()
        if path.endswith(_DATABASES):
            base, _ = self._bases.get(path, (WatchedDatabase(path), 0.0))
            self._bases[path] = base, now + PAUSE
            return
        entry = self._entries.get((path, None))
        if entry is not None:
            entry.changed, entry.wake, entry.is_new = now - ago, now, True
            return
        try:
            found = sources_of(path, environ=self._environ)
        except UnknownFormat:
            return
        except LockstitchError:
            # It is gone, or somebody replaces it just now; the next change is told again.
            return
        for source in found:
            self._follow(source, now - ago)

    def _follow(self, source: Source, changed: float) -> None:
        key = (source.path, source.session)
        entry = self._entries.pop(key, None) or WatchedSession(Followed(source), changed, 0.0)
        entry.changed, entry.wake, entry.is_new = changed, self._clock(), True
        if source.kind == SQLITE:
            entry.followed.report = None
        self._entries[key] = entry
        for old in list(self._entries)[: max(len(self._entries) - _MOST, 0)]:
            if self._entries[old].wake == math.inf and not self._entries[old].told:
                del self._entries[old]

    def due(self) -> Iterator[Notice]:
        """Do what is due by now, and give what is to be told."""
        now = self._clock()
        for path, (base, when) in list(self._bases.items()):
            if when <= now:
                self._bases[path] = base, math.inf
                self._look_into(base, now)
        for key, entry in list(self._entries.items()):
            if entry.wake > now:
                continue
            try:
                yield from self._step(entry, now)
            except (LockstitchError, OSError):
                # What vanished or cannot be read just now is looked at when it changes again.
                self._entries.pop(key, None)

    def _look_into(self, base: WatchedDatabase, now: float) -> None:
        try:
            changed = list(base.changed())
        except LockstitchError:
            return
        for source in changed:
            self._follow(source, now)

    def _step(self, entry: WatchedSession, now: float) -> Iterator[Notice]:
        followed = entry.followed
        if entry.is_new:
            if followed.look() == SUSPECT and now < entry.not_before:
                entry.wake = entry.not_before
                return
            entry.is_new, entry.ask = False, _FIRST_ASK
            if followed.state == SUSPECT:
                yield from self._whole(entry, now, followed.examine)
            is_waited_for = followed.state == OPEN or followed.is_unsure or entry.told
            entry.wake = entry.changed + self._idle if is_waited_for else math.inf
            return
        if followed.is_unsure or (entry.told and followed.report is None):
            yield from self._whole(entry, now, followed.understand)
        if followed.state == OPEN and is_in_use(followed):
            entry.wake = now + entry.ask
            entry.ask = min(entry.ask * _SLOWER, _LAST_ASK)
            return
        entry.wake = math.inf
        if followed.state == OPEN:
            report = followed.at_rest()
            yield from _told(entry, report, report.findings)
            if self._repair and report.status == "broken":
                yield from self._repaired(entry, report, now)

    def _whole(
        self, entry: WatchedSession, now: float, read: Callable[[], object]
    ) -> Iterator[Notice]:
        """Read all of a session, and tell what no further line will take away."""
        begun = perf_counter()
        read()
        entry.not_before = now + _RARELY * (perf_counter() - begun)
        report = entry.followed.report
        if report is not None and report.error is None:
            yield from _told(entry, report, entry.followed.settled)

    def _repaired(self, entry: WatchedSession, report: Report, now: float) -> Iterator[Notice]:
        source = entry.followed.source
        event = Notice(REFUSED, report, command_for("repair", report, source))
        try:
            session = sessions.opened(source)
            sessions.require_closed(session, is_named=False)
            done = sessions.repair(source)
        except (Busy, Conflict):
            entry.wake = now + max(entry.ask, self._idle)
            return
        except LockstitchError as error:
            event.reason = str(error)
            yield event
            return
        entry.told = _codes(done.remaining)
        if done.backup is None:
            event.reason = "; ".join(done.report.notes) or "a repair would change nothing"
            yield event
            return
        left = structs.replace(done.report, findings=done.remaining)
        way_back = command_for("undo", report, source)
        yield Notice(REPAIRED, left, way_back, backup=done.backup)


def is_in_use(followed: Followed) -> bool:
    """Whether a program has a session open, as far as can be told."""
    source = followed.source
    if source.kind == SQLITE:
        from lockstitch.formats.sqlite import users  # noqa: PLC0415 - sqlite3 for databases only

        return bool(users(os.path.realpath(source.path)))
    return any(source.form.users(source.path, followed.session, followed.project))


def _codes(findings: list[Finding]) -> Counter[str]:
    return Counter(found.code for found in findings if found.severity != NOTE)


def _told(entry: WatchedSession, report: Report, findings: list[Finding]) -> Iterator[Notice]:
    """Tell what is wrong with a session, unless it was told before, or that nothing is any more."""
    codes = _codes(findings) if report.error is None else Counter(("unreadable",))
    if codes - entry.told:
        entry.told = codes
        shown = structs.replace(report, findings=[one for one in findings if one.severity != NOTE])
        yield Notice(BROKEN, shown, command_for("repair", report, entry.followed.source))
    elif entry.told and report.status in HEALTHY_STATES:
        entry.told = Counter()
        yield Notice(HEALTHY, report, "")
