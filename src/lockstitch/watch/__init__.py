"""Check sessions while their programs write them; only appended bytes are read.

This module decides when to do what: look at a change, and check, report and repair a session at
rest.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

from msgspec import Struct, field, structs

from lockstitch.errors import Busy, Conflict, LockstitchError, UsageError
from lockstitch.formats.interface import SQLITE, format_named
from lockstitch.rules import ERROR, NOTE, Finding
from lockstitch.sources import operations
from lockstitch.sources.own_stores import DATABASES
from lockstitch.sources.source import HEALTHY as HEALTHY_STATES
from lockstitch.sources.source import Report, Source
from lockstitch.sources.targets import sources_in
from lockstitch.watch.changes import Changes, SessionPlace, log_of
from lockstitch.watch.followed import OPEN_TAIL, SUSPECT_TAIL, Followed

BROKEN, REPAIRED, REFUSED, HEALTHY = "broken", "repaired", "refused", "healthy"


class Notice(Struct):
    """Something to report: a session is broken, was repaired, could not be, or is healthy again.

    ``command`` is what a person may paste next; the findings of ``report`` are those that are left.
    Neither contains anything that was said in the session.
    """

    kind: str
    report: Report
    command: str
    backup: str | None = None
    reason: str = ""

    @property
    def codes(self) -> list[str]:
        """The codes of the findings, without repeats."""
        return sorted({found.code for found in self.report.findings})


def command_for(verb: str, report: Report, source: Source) -> str:
    """Return a shell command that repairs a session, or undoes that."""
    words = ["lockstitch", verb, source.path]
    if source.kind == SQLITE and report.session is not None:
        words += ["--session", report.session]
    return shlex.join(words)


def describe_notice(event: Notice) -> str:
    """Return a sentence on what happened to a session, without naming it."""
    if event.kind == HEALTHY:
        return "nothing is wrong with it any longer."
    if event.kind == REPAIRED:
        left = f" Left: {', '.join(event.codes)}." if event.codes else ""
        return f"repaired; the original is kept in {event.backup}.{left}"
    if event.kind == REFUSED:
        return f"not repaired: {event.reason}"
    if event.report.error is not None:
        return f"cannot be read: it {event.report.error}"
    findings = sorted(event.report.findings, key=lambda found: found.severity != ERROR)
    first = findings[0]
    more = len(findings) - 1
    rest = f", and {more} more" if more else ""
    return f"broken: {first.message} ({first.code} at {first.place}{rest})"


def notice_fields(event: Notice) -> dict[str, Any]:
    """Return the fields of a notice for another program, besides the session itself."""
    fields: dict[str, Any] = {
        "event": event.kind,
        "said": describe_notice(event),
        "command": event.command,
    }
    if event.backup is not None:
        fields["backup"] = event.backup
    if event.reason:
        fields["reason"] = event.reason
    return fields


_NO_DESKTOP = "--notify needs notify-send (on Linux) or osascript (on macOS), and finds neither"
_SCRIPT = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)
_PATIENCE = 60
Complain = Callable[[str], None]


def find_notifier() -> list[str]:
    """Return the command that shows a desktop notice; raise ``UsageError`` if there is none."""
    found = shutil.which("notify-send")
    if found:
        return [found, "--app-name=lockstitch", "--"]
    found = shutil.which("osascript")
    if found:
        return [found, *(word for line in _SCRIPT for word in ("-e", line))]
    raise UsageError(_NO_DESKTOP)


def parse_command(text: str) -> list[str]:
    """Return the words of a command as a shell splits them; raise ``UsageError`` if it cannot."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(
            f"--exec takes a command, and this one cannot be parsed: {error}"
        ) from error
    if not words or shutil.which(words[0]) is None:
        raise UsageError(f"--exec: there is no command {words[0] if words else text!r}")
    return words


class EventCommands:
    """Runs a command for every event, one after the other, beside everything else."""

    def __init__(self, complain: Complain) -> None:
        self._complain = complain
        self._pool = ThreadPoolExecutor(1)

    def notify(self, command: list[str], event: Notice) -> None:
        """Show a desktop notice."""
        title = f"{event.report.format or 'Session'}: {event.kind}"
        text = f"{event.report.target}: {describe_notice(event)}"
        self._pool.submit(self._run, [*command, title, text], b"", {})

    def run(self, command: list[str], event: Notice, document: bytes) -> None:
        """Run a command with the event on its standard input and in its environment."""
        variables = {
            "LOCKSTITCH_EVENT": event.kind,
            "LOCKSTITCH_TARGET": event.report.target,
            "LOCKSTITCH_FORMAT": event.report.format or "",
            "LOCKSTITCH_SESSION": event.report.session or "",
            "LOCKSTITCH_CODES": " ".join(event.codes),
            "LOCKSTITCH_SAID": describe_notice(event),
            "LOCKSTITCH_COMMAND": event.command,
        }
        # A variable of the environment cannot contain NUL, and neither can a file name.
        variables = {name: text.replace("\0", "") for name, text in variables.items()}
        self._pool.submit(self._run, command, document, variables)

    def close(self) -> None:
        """Wait for the commands that were started."""
        self._pool.shutdown()

    def _run(self, command: list[str], document: bytes, variables: Mapping[str, str]) -> None:
        try:
            done = subprocess.run(  # noqa: S603 - the command that a person gave
                command,
                input=document,
                env={**os.environ, **variables},
                timeout=_PATIENCE,
                stdout=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self._complain(f"{command[0]} took more than {_PATIENCE} s and was stopped")
        except OSError as error:
            self._complain(f"{command[0]} could not be run: {error.strerror}")
        else:
            if done.returncode:
                self._complain(f"{command[0]} ended with status {done.returncode}")


# Times in databases may be whole seconds, so changes this shortly before the last look count, too.
_COARSE = 2.0
Stamp = tuple[int, int, int, int]


class WatchedDatabase(Struct):
    """A database and what was last seen in it."""

    path: str
    stamp: Stamp | None = None
    latest: float = 0.0
    seen: set[str] = field(default_factory=set)

    def changed(self) -> Iterator[Source]:
        """Yield the sessions that changed since the last look; none if nothing was written.

        Reading a database may create and delete its log, which does not count as a change.
        """
        base, log = _status(self.path), _status(log_of(self.path))
        # An empty log means as little as none.
        stamp = (*base, *(log if log[0] else (0, 0)))
        if stamp == self.stamp:
            return
        self.stamp = stamp
        found = sources_in(self.path)
        times: dict[str, float] = {}
        if found and found[0].kind == SQLITE:
            from lockstitch.sources import rows  # noqa: PLC0415 - sqlite3 is loaded for databases only

            listed = rows.list_sessions(self.path, format_named(found[0].format))
            times = {row.id: row.updated for row in listed}
        since = self.latest - _COARSE
        self.latest = max(times.values(), default=self.latest)
        for source in found:
            if source.kind == SQLITE and times.get(source.session or "", 0.0) >= since:
                yield source


def _status(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116 - asked again and again
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


# How long to leave a database alone after a change, before reading it.
PAUSE = 2.0
# A whole file is read again only after this many times as long as the last read took.
_RARELY = 20
# How often to look for a program that has a session open: at first, and later at most.
_FIRST_ASK, _LAST_ASK, _SLOWER = 2.0, 30.0, 1.5
# How many sessions to remember; the one unchanged for the longest time is forgotten, and read
# again.
_MOST = 256


class WatchedSession(Struct):
    """A session that changed: when it did, and when to look at it again."""

    followed: Followed
    changed: float
    wake: float
    is_new: bool = True
    ask: float = _FIRST_ASK
    not_before: float = -math.inf
    reported: Counter[str] = field(default_factory=Counter)


class Watcher:
    """All watched sessions; ``clock`` returns seconds that never go back."""

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
        """When there is something to do; infinite if nothing is due before the next change."""
        times = [entry.wake for entry in self._entries.values()]
        return min([*times, *(due for _, due in self._bases.values())], default=math.inf)

    @property
    def read(self) -> int:
        """The number of bytes of files that were read so far."""
        return sum(entry.followed.read for entry in self._entries.values())

    def note(self, path: str, ago: float = 0.0) -> None:
        """Record that a file changed this many seconds ago."""
        now = self._clock()
        if path.endswith(DATABASES):
            base, _ = self._bases.get(path, (WatchedDatabase(path), 0.0))
            self._bases[path] = base, now + PAUSE
            return
        entry = self._entries.get((path, None))
        if entry is not None:
            entry.changed, entry.wake, entry.is_new = now - ago, now, True
            return
        try:
            found = sources_in(path, environ=self._environ)
        except LockstitchError:
            # It belongs to no known program, is gone, or is just being replaced; the next change
            # leads here again.
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
            # A session with something due, or reported as broken, must not be forgotten.
            if self._entries[old].wake == math.inf and not self._entries[old].reported:
                del self._entries[old]

    def due(self) -> Iterator[Notice]:
        """Do what is due now; yield the notices."""
        now = self._clock()
        for path, (base, when) in list(self._bases.items()):
            if when <= now:
                self._bases[path] = base, math.inf
                try:
                    changed = list(base.changed())
                except LockstitchError:
                    continue
                for source in changed:
                    self._follow(source, now)
        for key, entry in list(self._entries.items()):
            if entry.wake > now:
                continue
            try:
                yield from self._step(entry, now)
            except (LockstitchError, OSError):
                # A session that has vanished or cannot be read now is looked at when it changes
                # again.
                self._entries.pop(key, None)

    def _step(self, entry: WatchedSession, now: float) -> Iterator[Notice]:
        followed = entry.followed
        if entry.is_new:
            if followed.look() == SUSPECT_TAIL and now < entry.not_before:
                entry.wake = entry.not_before
                return
            entry.is_new, entry.ask = False, _FIRST_ASK
            if followed.state == SUSPECT_TAIL:
                yield from self._whole(entry, now, followed.examine)
            is_waited_for = followed.state == OPEN_TAIL or followed.is_unsure or entry.reported
            entry.wake = entry.changed + self._idle if is_waited_for else math.inf
            return
        if followed.is_unsure or (entry.reported and followed.report is None):
            yield from self._whole(entry, now, followed.understand)
        if followed.state == OPEN_TAIL and is_in_use(followed):
            entry.wake = now + entry.ask
            entry.ask = min(entry.ask * _SLOWER, _LAST_ASK)
            return
        entry.wake = math.inf
        if followed.state == OPEN_TAIL:
            report = followed.at_rest()
            yield from _report_change(entry, report, report.findings)
            if self._repair and report.status == "broken":
                yield from self._repair_session(entry, report, now)

    def _whole(
        self, entry: WatchedSession, now: float, read: Callable[[], object]
    ) -> Iterator[Notice]:
        """Read an entire session, and report findings that no further line can resolve."""
        begun = perf_counter()
        read()
        entry.not_before = now + _RARELY * (perf_counter() - begun)
        report = entry.followed.report
        if report is not None and report.error is None:
            yield from _report_change(entry, report, entry.followed.final)

    def _repair_session(
        self, entry: WatchedSession, report: Report, now: float
    ) -> Iterator[Notice]:
        source = entry.followed.source
        event = Notice(REFUSED, report, command_for("repair", report, source))
        try:
            session = source.open()
            session.source.require_closed(session, is_named=False)
            done = operations.repair(source)
        except (Busy, Conflict):
            entry.wake = now + max(entry.ask, self._idle)
            return
        except LockstitchError as error:
            event.reason = str(error)
            yield event
            return
        entry.reported = _codes(done.remaining)
        if done.backup is None:
            event.reason = "; ".join(done.report.notes) or "a repair would change nothing"
            yield event
            return
        left = structs.replace(done.report, findings=done.remaining)
        way_back = command_for("undo", report, source)
        yield Notice(REPAIRED, left, way_back, backup=done.backup)


def is_in_use(followed: Followed) -> bool:
    """Whether a program has a session open, as far as that can be known."""
    source = followed.source
    if source.kind == SQLITE:
        from lockstitch.formats.sqlite import database_users  # noqa: PLC0415 - sqlite3 for databases only

        return bool(database_users(os.path.realpath(source.path)))
    return any(source.form.users(source.path, followed.session, followed.project))


def _codes(findings: list[Finding]) -> Counter[str]:
    return Counter(found.code for found in findings if found.severity != NOTE)


def _report_change(
    entry: WatchedSession, report: Report, findings: list[Finding]
) -> Iterator[Notice]:
    """Yield a notice of what has changed: new findings, or that there are none any more."""
    codes = _codes(findings) if report.error is None else Counter(("unreadable",))
    if codes - entry.reported:
        entry.reported = codes
        shown = structs.replace(report, findings=[one for one in findings if one.severity != NOTE])
        yield Notice(BROKEN, shown, command_for("repair", report, entry.followed.source))
    elif entry.reported and report.status in HEALTHY_STATES:
        entry.reported = Counter()
        yield Notice(HEALTHY, report, "")


# How often to look for folders that did not exist, in seconds.
_ROUND = 30.0
# A session written this shortly before the start is treated as if it had just changed.
_RECENT = 3600.0


class WatchStart(Struct):
    """What a watch found when it started."""

    folders: list[str]
    sessions: int


class WatchLoop:
    """A watch over some places that runs until it is told to end."""

    def __init__(self, places: Sequence[SessionPlace], watcher: Watcher) -> None:
        self._places = places
        self._watcher = watcher
        self._changes: Changes | None = None
        self._is_over = False

    def end(self) -> None:
        """Make the watch end soon; may be called from a signal handler."""
        self._is_over = True
        if self._changes is not None:
            self._changes.end()

    def run(self, started: Callable[[WatchStart], None], report: Callable[[Notice], None]) -> None:
        """Watch until the end."""
        since = time.time() - _RECENT
        is_first = True
        while not self._is_over:
            # before it is watched: what these changes do not tell is found by its time
            until = time.time()
            with Changes(self._places) as changes:
                self._changes = changes
                try:
                    found = self._note_recent(since)
                    if is_first:
                        started(found)
                    is_first, since = False, until
                    self._follow(changes, report)
                finally:
                    self._changes = None

    def _note_recent(self, since: float) -> WatchStart:
        """Record what was written recently, and count the sessions."""
        files = {path for place in self._places for path in place.files()}
        now = time.time()
        for path in files:
            try:
                changed = os.stat(path).st_mtime  # noqa: PTH116 - there may be thousands
            except OSError:
                continue
            if changed >= since:
                self._watcher.note(path, max(now - changed, 0.0))
        folders = sorted({one.folder for one in self._places if os.path.isdir(one.folder)})  # noqa: PTH112
        return WatchStart(folders, len(files))

    def _follow(self, changes: Changes, report: Callable[[Notice], None]) -> None:
        """Watch these folders, until the end or until other folders have to be watched."""
        while not self._is_over:
            for event in self._watcher.due():
                report(event)
            until = min(self._watcher.wake - time.monotonic(), _ROUND)
            found = changes.wait(max(until, 0.0))
            if found is None or changes.is_stale:
                return
            for path in sorted(found):
                self._watcher.note(path)
