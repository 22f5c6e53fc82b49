"""One session in whatever holds it: a file, rows of a database, a thread, a Lockstitch store.

``Source`` is the interface that all of these share, and implements it for files. Opening a source
reads and parses it once. The functions of ``operations`` check, repair and write what was opened,
and need not know what kind of source it is.
"""

from __future__ import annotations

import gc
import mmap
import os
import shlex
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct, field

from lockstitch.conversation.parts import repr_without
from lockstitch.errors import LockstitchError, Unreadable, UsageError, reason_of
from lockstitch.files import os_files, read
from lockstitch.files.backup import replace_with_backup
from lockstitch.files.replace import Snapshot, snapshot
from lockstitch.formats.interface import LINES, Format, Transcript, format_named
from lockstitch.formats.records import SLIM
from lockstitch.formats.repair import RepairOptions, RepairPlan, findings_in, parse_file
from lockstitch.repair.draft import Change, Quarantined
from lockstitch.rules.rule import Finding, is_broken
from lockstitch.stores.addresses import public

if TYPE_CHECKING:
    from lockstitch.compaction.ladder import Compaction


_LARGE = 32 << 20
_RESTING = 60
COPY = ", or use -o FILE to write a copy"
# The name of the format of sessions in Lockstitch stores.
OWN = "lockstitch"
# The states in which a program resumes a session with everything that was said.
HEALTHY = ("ok", "notes")


class Report(Struct):
    """What is known about one session after a check; ``error`` says why it could not be read.

    ``reachable`` and ``unreachable`` count turns, and ``left`` the bytes of the unreachable ones,
    which a resume would drop. ``notes`` says what was left on purpose. ``records`` counts the
    records of a session in a Lockstitch store. ``is_unknown`` says that no known program writes
    such a file, so that it may contain no session at all.
    """

    target: str
    format: str | None = None
    session: str | None = None
    project: str | None = None
    messages: int = 0
    reachable: int = 0
    unreachable: int = 0
    left: int = 0
    size: int = 0
    updated: float = 0.0
    dialect: str | None = None
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: str | None = None
    records: int = 0
    is_unknown: bool = False

    @property
    def status(self) -> str:
        """The word for it in reports: ok, notes, broken or unreadable."""
        return "unreadable" if self.error is not None else status_of_findings(self.findings)


def status_of_findings(findings: Sequence[Finding]) -> str:
    """Return the word for a session with these findings: ok, notes or broken."""
    if not findings:
        return "ok"
    return "broken" if is_broken(findings) else "notes"


class Opened(Struct):
    """A session that was read; ``before`` is the state of its file, None for a database."""

    source: Source
    transcript: Transcript
    before: Snapshot | None = None

    __repr__ = repr_without("transcript")


class Source(Struct, frozen=True):
    """One session and where it is: a path, its format, and its id if the path holds many.

    ``error`` says why a file among others could not be read; its format may then be unknown. This
    class is a session in a file of its own; subclasses override what differs for theirs.
    """

    path: str
    format: str
    kind: str
    session: str | None = None
    error: str | None = None

    @property
    def form(self) -> Format:
        """The format of the session."""
        return format_named(self.format)

    def open(self, *, follow_symlinks: bool = False, search: bool = False) -> Opened:
        """Read the session once, and parse it.

        ``search`` includes everything that a database has.
        """
        if self.error is not None:
            raise Unreadable(self.error)
        form, before = self.form, snapshot(self.path, follow_symlinks=follow_symlinks)
        with paused_collection():
            return Opened(self, parse_file(form, self.kind, self.path, before.data), before)

    def glance(self) -> Opened:
        """Read the session for a check; of a large file, only what a check needs."""
        if self.error is not None:
            raise Unreadable(self.error)
        status = os.stat(self.path)  # noqa: PTH116 - pathlib costs start-up time
        is_plain = self.kind == LINES and not read.is_packed(self.path)
        if not is_plain or status.st_size <= _LARGE:
            return self.open(follow_symlinks=True, search=True)
        with read.open_regular(self.path) as handle:
            data: Any
            # If another program truncates a mapped file, this process is killed, so the file must
            # be at rest.
            if time.time() - status.st_mtime > _RESTING:
                read.require_size(os.fstat(handle).st_size)
                data = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
            else:
                data = read.read_all(handle)
        transcript = parse_file(self.form, self.kind, self.path, data, self.form.slim(data))
        records = transcript.records
        numbers = {number for row in transcript.history.sources for number in row}
        if any(SLIM in records[number].value for number in numbers):
            # of some records that are sent, only the links were read
            transcript = parse_file(self.form, self.kind, self.path, data)
        return Opened(self, transcript)

    def prove(self) -> Report | None:
        """Return the report on a session that a quick check proves healthy.

        None if it proves nothing.
        """
        quick = self.form.quick(self.path)
        if quick is None:
            return None
        report = Report(self.path, self.format, quick.session, quick.project, quick.messages)
        report.reachable, report.dialect = quick.turns, self.form.dialect
        status = os.stat(self.path)  # noqa: PTH116 - pathlib costs start-up time
        report.size, report.updated = status.st_size, status.st_mtime
        return report

    def check(self) -> Report:
        """Return what is wrong with the session; nothing is changed."""
        try:
            report = None if self.error is not None else self.prove()
        except OSError as error:
            return self.unreadable(reason_of(error))
        return report or self.examine()[0]

    def reports(self, survey: Survey, title: str = "Checking") -> Iterator[Report]:
        """Yield the reports on all sessions that this source stands for."""
        yield self.check()

    def examine(self) -> tuple[Report, Transcript | None]:
        """Return a full report on the session, without a quick check first, and what was read."""
        try:
            with paused_collection():
                opened = self.glance()
                report = self.describe(opened.transcript)
                report.findings = findings_in(self.form, opened.transcript)
        except LockstitchError as error:
            return self.unreadable(str(error)), None
        except OSError as error:
            return self.unreadable(reason_of(error)), None
        except (RecursionError, MemoryError):
            return self.unreadable("is too large or too deep"), None
        return report, opened.transcript

    def unreadable(self, error: str) -> Report:
        """Return the report on a session that cannot be read."""
        return Report(public(self.path), self.format or None, self.session, error=error)

    def describe(self, transcript: Transcript) -> Report:
        """Return a report that says what the session is, without checking it."""
        status = os.stat(self.path)  # noqa: PTH116 - pathlib costs start-up time
        return Report(
            target=self.path,
            format=self.format,
            session=transcript.session or self.session,
            project=transcript.project,
            messages=transcript.messages or len(transcript.history.messages),
            reachable=transcript.turns,
            unreachable=transcript.left,
            left=transcript.left_size,
            size=transcript.size or status.st_size,
            updated=status.st_mtime,
            dialect=transcript.history.dialect,
            notes=list(transcript.notes),
        )

    def require_closed(self, opened: Opened, way: str = "", *, is_named: bool = True) -> None:
        """Raise ``Busy`` if a program has the session open, as far as that can be known.

        A call that looks open may be running there. ``way`` says what else can be done, and
        ``is_named`` that a person named this very session.
        """
        known, form = opened.transcript, self.form
        path = opened.before.path if opened.before else self.path
        users = list(form.users(path, known.session, known.project))
        os_files.require_closed(form.title, users, way)

    def write(
        self, opened: Opened, plan: RepairPlan, run: str, details: dict[str, Any]
    ) -> tuple[str | None, int]:
        """Write a plan with a backup; return the backup's path, and how many bytes others added."""
        before = opened.before
        if before is None:
            raise UsageError("only a part of it was read, so nothing can replace it")
        self.require_closed(opened, COPY)
        data = read.pack(plan.data) if read.is_packed(self.path) else plan.data
        backup, replaced = replace_with_backup(before, data, run, details)
        kept = str(backup.file)
        if not replaced.carried:
            _keep_time(before)
        return kept, replaced.carried


class Repaired(Struct):
    """What a repair did to one session, or would do; ``backup`` says where the original is.

    ``went_on`` says that nothing was done because the session was no longer what was read.
    """

    report: Report
    remaining: list[Finding] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    quarantine: list[Quarantined] = field(default_factory=list)
    backup: str | None = None
    carried: int = 0
    went_on: bool = False
    is_written: bool = False

    @property
    def left(self) -> list[Finding]:
        """What is wrong with the session now."""
        if self.report.error is not None:
            return []
        return self.remaining if self.is_written else self.report.findings

    @property
    def outcome(self) -> str:
        """The word for it in reports: repaired, went on, broken, ok or unreadable."""
        if self.report.error is not None:
            return "unreadable"
        if self.is_written:
            return "repaired"
        if self.went_on:
            return "went on"
        return "broken" if is_broken(self.report.findings) else "ok"


# Shows progress: how much is done, how much there is, and in which unit.
Bar = Callable[[str, int, str], AbstractContextManager[Callable[[int], object]]]


class Survey(Struct, frozen=True):
    """Options for going through the many sessions of a store or a database.

    ``workers`` processes read threads, by default one for each processor, and only those in a
    ``shard`` if it is given. ``search`` also looks for damage in older checkpoints. Requests of a
    store are made for a ``dialect`` and a ``model``.
    """

    dialect: str | None = None
    model: str | None = None
    search: bool = True
    workers: int | None = None
    shard: tuple[int, int] = (1, 1)
    bar: Bar | None = None

    @contextmanager
    def showing(self, title: str, total: int, unit: str) -> Iterator[Callable[[int], object]]:
        """Show the progress, if that is wanted."""
        if self.bar is None:
            yield lambda _: None
            return
        with self.bar(title, total, unit) as advance:
            yield advance


class ManySource(Source, frozen=True):
    """A store or a database whose sessions are processed one after the other, or one of them.

    There may be millions, so reports and repairs are yielded as they come.
    """

    # The word for one of its sessions, and for where a repair keeps what it removes.
    noun: ClassVar[str] = "session"
    keeps: ClassVar[str] = "still in the original"

    @abstractmethod
    def repairs(
        self, options: RepairOptions, run: str, survey: Survey, *, writes: bool
    ) -> Iterator[Repaired]:
        """Plan the repair of each session that needs one; with ``writes``, write it."""

    @abstractmethod
    def copy(self, url: str) -> tuple[int, int]:
        """Write everything readable to a new store.

        Return how many sessions, and how much was lost.
        """

    @abstractmethod
    def undo_words(self, sessions: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the arguments of ``lockstitch undo`` that undo the repair of some sessions."""


class Shorter(Struct):
    """What a compaction did to one session, or would do; ``backup`` says where the original is.

    ``turns`` counts the turns that the summary replaces, ``changes`` what had to be repaired first.
    """

    report: Report
    done: Compaction
    turns: int = 0
    changes: list[Change] = field(default_factory=list)
    backup: str | None = None
    carried: int = 0


@contextmanager
def paused_collection() -> Iterator[None]:
    """Pause Python's garbage collector during the block.

    The data of a session contains no cycles, and searching for them again and again, as more and
    more objects are made, takes a quarter of the time for a large session. Objects made meanwhile
    are then marked as old, so that they are not all searched as soon as the block ends.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():  # keep frozen what the program itself froze
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _keep_time(before: Snapshot) -> None:
    """Keep the time of a session's file, because programs resume the one that was used last.

    The file gets a time one millisecond later, so that a program which remembers the old time sees
    the change.
    """
    later = before.mtime_ns + 1_000_000
    follows = os.utime not in os.supports_follow_symlinks
    with suppress(OSError):
        os.utime(before.path, ns=(later, later), follow_symlinks=follows)


def pasted(path: str, home: str | None = None) -> str:
    """Return a path quoted for a shell, with ``~`` for the home directory."""
    own = os.path.expanduser("~") if home is None else home  # noqa: PTH111 - start-up time
    if own and own != os.sep and path.startswith(own.rstrip(os.sep) + os.sep):
        rest = path[len(own.rstrip(os.sep)) + 1 :]
        return f"~/{shlex.quote(rest)}" if rest else "~"
    return shlex.quote(path)


def resume_line(words: Sequence[str], folder: str | None, here: str) -> str:
    """Return a shell command for these words, which first changes to another folder if needed."""
    line = shlex.join(words)
    return f"cd {pasted(folder)} && {line}" if line and folder and folder != here else line


def resuming(form: str | None, session: str | None, path: str) -> tuple[str, tuple[str, ...], bool]:
    """Return a program's name, the words that resume a session, and whether the folder matters."""
    if not form or form == OWN:
        return ("Lockstitch" if form else ""), (), False
    try:
        known = format_named(form)
    except LockstitchError:
        return form, (), False
    filled = {"{id}": known.resumed_as(path, session) or "", "{path}": path}
    words = tuple(filled.get(word, word) for word in known.resume)
    return known.title, words if all(words) else (), known.is_local
