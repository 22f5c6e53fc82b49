"""The doctor's rounds through a database: threads judged and mended, a page at a time.

A ``Task`` is a piece of work that any process can do: it holds an address, not a connection. What
comes back are outcomes, one for each thread and namespace that a new prompt resumes.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, Self, TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import Struct, field

from lockstitch.errors import LockstitchError, Moved, Unreadable
from lockstitch.formats import doctor
from lockstitch.formats.base import Transcript
from lockstitch.formats.doctor import Mended, Options
from lockstitch.formats.langgraph.postgres import KIND, Shard, repairs, threads
from lockstitch.formats.langgraph.postgres.database import Database, Gone
from lockstitch.formats.langgraph.postgres.reading import (
    PAGE,
    WHOLE_LINE,
    Key,
    Loaded,
    Reader,
    is_kept,
)
from lockstitch.formats.langgraph.postgres.tables import Found, Home, home_of, homes
from lockstitch.formats.langgraph.snapshot import session_name
from lockstitch.formats.sources import Source
from lockstitch.repair.draft import Change, Quarantined
from lockstitch.report import Report
from lockstitch.rules import Finding

# What became of a thread.
OK = "ok"
BROKEN = "broken"
REPAIRED = "repaired"
MOVED = "went on"
FAILED = "unreadable"

_AHEAD = 3

A = TypeVar("A")
R = TypeVar("R")


class Task(Struct, frozen=True):
    """What to do with the threads of one schema; ``name`` is the address without a password.

    Without ``mends`` nothing is worked out, without ``writes`` nothing is written. Threads of
    other shards are left out. ``search`` looks for values that run code in all that a thread has,
    not in its head alone.
    """

    url: str
    name: str
    home: Home
    run: str = ""
    options: Options = Options()
    mends: bool = False
    writes: bool = False
    shard: Shard = Shard()
    search: bool = False

    def __repr__(self) -> str:
        """Show the address without secrets."""
        return f"Task({self.name!r}, {self.home!r}, {self.run!r})"


class Outcome(Struct):
    """What became of one thread: its report, and what a repair did or would do."""

    key: Key
    state: str
    report: Report
    remaining: list[Finding] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    quarantine: list[Quarantined] = field(default_factory=list)
    backup: str | None = None


def tasks(
    url: str, name: Callable[[str], str], *, known: Found | None = None, **how: Any
) -> list[Task]:
    """Give the task of every schema that holds threads; ``name`` takes the password out."""
    given = {key: value for key, value in how.items() if key in Task.__struct_fields__}
    return [Task(each, name(each), home, **given) for each, home in homes(url, known)]


# One thread


def sources(url: str, session: str | None = None) -> Iterator[Source]:
    """Give the threads of a database, all or those of one name."""
    for each, home in homes(url):
        with Database(each, home.schema) as database:
            reader = Reader(database, home)
            pages = reader.pages() if session is None else iter([_named(reader, session)])
            for page in pages:
                for key in page:
                    if is_kept(key[1]):
                        name = session_name(*key)
                        yield threads.ThreadSource(each, threads.FORM.name, KIND, name)


def opened(source: Source, *, search: bool = False) -> Transcript:
    """Read one thread and understand it; ``search`` looks into all that it has."""
    home = home_of(source.path)
    with Database(source.path, home.schema) as database:
        reader = Reader(database, home, line=WHOLE_LINE)
        session = str(source.session)
        for key in found_in(reader, session):
            if session_name(*key) == session:
                for loaded in reader.loaded([key]):
                    reader.complete(loaded)
                    if search:
                        reader.search(loaded)
                    return threads.opened(loaded)
    raise Unreadable(f"there is no thread {source.session}")


def apply(source: Source, mended: Mended, run: str) -> str:
    """Store the repair of one thread; gives where it is noted. ``Moved`` if it went on."""
    new = threads.new_in(mended.after.records)
    assert new is not None  # noqa: S101 - a repair that changes nothing is not stored
    home = home_of(source.path)
    with Database(source.path, home.schema) as database:
        repairs.prepare(database, home)
        loaded = threads.loaded_of(mended.before)
        note = repairs.Note(run, details_of(mended))
        number = repairs.store(database, Reader(database, home), loaded, new, note)
    return f"{home.schema}.lockstitch_repairs {number}"


def described(name: str, transcript: Transcript) -> Report:
    """Say what a thread is, without judging it."""
    loaded = threads.loaded_of(transcript)
    return Report(
        target=name,
        format=threads.FORM.name,
        session=session_name(*loaded.key),
        messages=len(transcript.history.messages),
        reachable=transcript.turns,
        unreachable=transcript.left,
        left=transcript.left_size,
        size=loaded.size,
        updated=loaded.updated,
        dialect=transcript.history.dialect,
        notes=list(transcript.notes),
    )


def judged(name: str, loaded: Loaded) -> Outcome:
    """Say what is wrong with a thread."""
    transcript = threads.opened(loaded)
    report = described(name, transcript)
    report.findings = doctor.findings_of(threads.FORM, transcript)
    return Outcome(loaded.key, BROKEN if report.findings else OK, report)


def planned(task: Task, loaded: Loaded) -> tuple[Outcome, Mended]:
    """Work out the repair of a thread."""
    transcript = threads.opened(loaded)
    mended = doctor.mend(threads.FORM, transcript, task.options)
    report = described(task.name, transcript)
    report.findings = mended.findings
    state = BROKEN if mended.findings else OK
    made = Outcome(loaded.key, state, report, mended.remaining, mended.changes, mended.quarantine)
    return made, mended


class Worker:
    """Does tasks over one connection."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.database = Database(task.url, task.home.schema)
        self.reader = Reader(self.database, task.home)
        self.name = task.name

    def __enter__(self) -> Self:
        """Give the worker itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close its connection."""
        self.database.close()

    def each(self, keys: Sequence[Key]) -> Iterator[Outcome]:
        """Do what is to be done with some threads; one that fails does not end the others."""
        below = _below(keys)
        for loaded in self.reader.loaded([key for key in keys if is_kept(key[1])]):
            loaded.snapshot.below = below.get(loaded.key, ())
            try:
                yield self._one(loaded)
            except Gone:
                raise
            except LockstitchError as error:
                yield _failed(self._task.name, loaded.key, str(error))
            except (RecursionError, MemoryError):
                yield _failed(self._task.name, loaded.key, "is too large or too deep")

    def _one(self, loaded: Loaded) -> Outcome:
        task = self._task
        if task.search:
            self.reader.search(loaded)
        if not task.mends:
            outcome = judged(task.name, loaded)
            is_more = bool(outcome.report.findings) and self.reader.complete(loaded)
            return judged(task.name, loaded) if is_more else outcome
        outcome, mended = planned(task, loaded)
        if outcome.report.findings and self.reader.complete(loaded):
            outcome, mended = planned(task, loaded)
        new = threads.new_in(mended.after.records) if mended.changed else None
        if new is None or not task.writes:
            return outcome
        note = repairs.Note(task.run, details_of(mended))
        try:
            number = repairs.store(self.database, self.reader, loaded, new, note)
        except Moved:
            outcome.state = MOVED
            return outcome
        outcome.state = REPAIRED
        outcome.backup = f"{task.home.schema}.lockstitch_repairs {number}"
        return outcome


def _below(keys: Iterable[Key]) -> dict[Key, tuple[str, ...]]:
    """Give, by thread, the namespaces of single calls of subgraphs."""
    found: dict[Key, tuple[str, ...]] = {}
    for thread, namespace in keys:
        if not is_kept(namespace):
            found[thread, ""] = (*found.get((thread, ""), ()), namespace)
    return found


def details_of(mended: Mended) -> dict[str, Any]:
    """Say what was done, to be kept with a repair."""
    return {
        "codes": sorted({finding.code for finding in mended.findings}),
        "changes": msgspec.to_builtins(mended.changes),
    }


def _failed(name: str, key: Key, error: str) -> Outcome:
    session = session_name(*key)
    return Outcome(key, FAILED, Report(name, threads.FORM.name, session, error=error))


# Many threads


class Page(Struct, frozen=True):
    """Some threads, and what to do with them."""

    task: Task
    keys: list[Key]


def do_page(page: Page) -> list[Outcome]:
    """Do one page, in whatever process."""
    return list(_worker(page.task).each(page.keys))


def rounds(task: Task, workers: int = 1, session: str | None = None) -> Iterator[list[Outcome]]:
    """Go through all threads, or one; gives the outcomes page by page, in their order."""
    if task.writes:
        with Database(task.url, task.home.schema) as database:
            repairs.prepare(database, task.home)
    with Database(task.url, task.home.schema) as database:
        reader = Reader(database, task.home)
        if session is not None:
            keys = iter([found_in(reader, session)])
        else:
            keys = _pages_in(task.shard, reader.pages())
        yield from spread(do_page, (Page(task, page) for page in keys), workers)


def _pages_in(shard: Shard, pages: Iterator[list[Key]]) -> Iterator[list[Key]]:
    """Yield the keys of one shard, in pages as full as those of all threads are."""
    if shard.count == 1:
        yield from pages
        return
    due: list[Key] = []
    for page in pages:
        due += [key for key in page if shard.holds(key[0])]
        if len(due) >= PAGE:
            yield due
            due = []
    if due:
        yield due


def found_in(reader: Reader, session: str) -> list[Key]:
    """Give the thread of a name; or that and the namespace, if the name has one."""
    found = _named(reader, session)
    if not found:
        raise Unreadable(f"there is no thread {session}")
    return found


def _named(reader: Reader, session: str) -> list[Key]:
    found = reader.of_thread(session)
    if not found and "#" in session:
        thread, _, namespace = session.partition("#")
        found = [key for key in reader.of_thread(unquote(thread)) if key[1] == namespace]
    return found


_workers: dict[Task, Worker] = {}


def _worker(task: Task) -> Worker:
    """Give this process's worker for a task, with the connection that it has."""
    if task not in _workers:
        for old in _workers.values():
            old.__exit__()
        _workers.clear()
        _workers[task] = Worker(task)
    return _workers[task]


def spread(work: Callable[[A], R], tasks: Iterable[A], workers: int) -> Iterator[R]:
    """Do tasks in other processes, a few ahead of what was asked for; or here, if one is enough."""
    if workers == 1:
        try:
            yield from map(work, tasks)
        finally:
            for worker in _workers.values():
                worker.__exit__()
            _workers.clear()
        return
    ahead: deque[Future[R]] = deque()
    with _pool(workers) as pool:
        try:
            for task in tasks:
                ahead.append(pool.submit(work, task))
                if len(ahead) >= workers * _AHEAD:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        except BrokenProcessPool:
            raise Unreadable(
                "a worker process ended all of a sudden; what was written until then is whole, "
                "and the same command goes on from there"
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Start processes, each a fresh interpreter that leaves Ctrl-C to this one."""
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_leave_interrupts
    ) as pool:
        yield pool


def _leave_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
