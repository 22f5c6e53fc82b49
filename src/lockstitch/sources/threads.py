"""LangGraph's threads in a PostgreSQL database: check and repair one, or all of them by pages.

A task is work that any process can do, because it holds an address and not a connection. Its
results are outcomes, one for each thread and namespace that a new prompt resumes.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain
from multiprocessing import get_context
from typing import Any, ClassVar, Self

import msgspec
from msgspec import Struct

from lockstitch.errors import LockstitchError, Moved, Unreadable, UsageError
from lockstitch.files.os_files import count_cores
from lockstitch.formats import repair
from lockstitch.formats.interface import Format, Transcript
from lockstitch.formats.langgraph.postgres import KIND, Shard, repairs
from lockstitch.formats.langgraph.postgres.database import (
    Database,
    DatabaseContent,
    LangGraphSchema,
    ServerGone,
    find_schema,
    find_schemas,
)
from lockstitch.formats.langgraph.postgres.reading import (
    PAGE,
    WHOLE_LINE,
    Key,
    LoadedThread,
    ThreadReader,
    is_kept,
)
from lockstitch.formats.langgraph.postgres.repairs import (
    THREADS,
    loaded_of,
    new_in,
    parse_thread,
)
from lockstitch.formats.langgraph.snapshot import session_name
from lockstitch.formats.repair import RepairOptions, RepairPlan
from lockstitch.sources.source import ManySource, Opened, Repaired, Report, Source, Survey
from lockstitch.stores.addresses import public

# With fewer threads, starting other processes costs more than it saves.
_WORTH_WORKERS = 2_000
# How many pages are queued for each process.
_AHEAD = 3


class ThreadSource(Source, frozen=True):
    """A thread in a PostgreSQL database; the path is the address of the database."""

    def __repr__(self) -> str:
        """Return the address without secrets."""
        return f"ThreadSource({public(self.path)!r}, {self.session!r})"

    @property
    def form(self) -> Format:
        """The format of the thread."""
        return THREADS

    def open(self, *, follow_symlinks: bool = False, search: bool = False) -> Opened:
        if self.error is not None:
            raise Unreadable(self.error)
        home, session = find_schema(self.path), str(self.session)
        with Database(self.path, home.schema) as database:
            reader = ThreadReader(database, home, line=WHOLE_LINE)
            for key in reader.of_session(session):
                if session_name(*key) == session:
                    for loaded in reader.load([key]):
                        reader.complete(loaded)
                        if search:
                            reader.search(loaded)
                        return Opened(self, parse_thread(loaded))
        raise Unreadable(f"there is no thread {self.session}")

    def glance(self) -> Opened:
        return self.open(search=True)

    def prove(self) -> Report | None:
        return None

    def describe(self, transcript: Transcript) -> Report:
        return describe_thread(public(self.path), transcript)

    def require_closed(self, opened: Opened, way: str = "", *, is_named: bool = True) -> None:
        """Do nothing: a repair only adds a checkpoint, and only if the thread has not gone on."""

    def write(
        self, opened: Opened, plan: RepairPlan, run: str, details: dict[str, Any]
    ) -> tuple[str | None, int]:
        home = find_schema(self.path)
        with Database(self.path, home.schema) as database:
            repairs.make_repairs_table(database, home)
            return _store_plan(ThreadReader(database, home), database, home, plan, run), 0


class ServerThreads(ManySource, frozen=True):
    """The threads in a PostgreSQL database, or those with one name; the path is its address.

    A repair adds a checkpoint to a thread, and is recorded in a table beside them.
    """

    noun: ClassVar[str] = "thread"
    keeps: ClassVar[str] = "still in the old checkpoint"

    def __repr__(self) -> str:
        """Return the address without secrets."""
        return f"ServerThreads({public(self.path)!r}, {self.session!r})"

    def reports(self, survey: Survey, title: str = "Checking") -> Iterator[Report]:
        try:
            yield from (one.report for one in self._work(survey, title, search=survey.search))
        except LockstitchError as error:
            yield self.unreadable(error.message_with_session)

    def repairs(
        self, options: RepairOptions, run: str, survey: Survey, *, writes: bool
    ) -> Iterator[Repaired]:
        how = {"run": run, "options": options, "plans": True, "writes": writes}
        yield from self._work(survey, "Repairing", **how)

    def copy(self, url: str) -> tuple[int, int]:
        raise UsageError("a database is repaired where it is: leave out -o and --branch")

    def undo_words(self, sessions: Sequence[str]) -> list[tuple[str, ...]]:
        return [(public(self.path),)] if sessions else []

    def _work(self, survey: Survey, title: str, **how: Any) -> Iterator[Repaired]:
        """Process the threads, schema by schema."""
        for task in schema_tasks(self.path, public, shard=Shard(*survey.shard), **how):
            total, workers = 0, 1
            if self.session is None:
                with Database(task.url, task.home.schema) as database:
                    total = ThreadReader(database, task.home).estimate() // task.shard.count
                if total >= _WORTH_WORKERS:
                    workers = survey.workers or count_cores()
            with survey.showing(title, total, "threads") as advance:
                for page in work_through(task, workers, self.session):
                    advance(len(page))
                    yield from page


class SchemaTask(Struct, frozen=True):
    """What to do with the threads of one schema; ``name`` is the address without a password.

    Without ``plans`` no repair is planned, and without ``writes`` nothing is written. Threads of
    other shards are left out. ``search`` looks for values that run code in everything that a thread
    has, not only in its head.
    """

    url: str
    name: str
    home: LangGraphSchema
    run: str = ""
    options: RepairOptions = RepairOptions()
    plans: bool = False
    writes: bool = False
    shard: Shard = Shard()
    search: bool = False

    def __repr__(self) -> str:
        """Return the address without secrets."""
        return f"SchemaTask({self.name!r}, {self.home!r}, {self.run!r})"


def schema_tasks(
    url: str, name: Callable[[str], str], *, known: DatabaseContent | None = None, **how: Any
) -> list[SchemaTask]:
    """Return a task for every schema that holds threads; ``name`` removes the password."""
    given = {key: value for key, value in how.items() if key in SchemaTask.__struct_fields__}
    return [SchemaTask(each, name(each), home, **given) for each, home in find_schemas(url, known)]


# One thread.


def find_threads(url: str, session: str | None = None) -> Iterator[Source]:
    """Yield the threads of a database, all or those with one name."""
    for each, home in find_schemas(url):
        with Database(each, home.schema) as database:
            reader = ThreadReader(database, home)
            pages = reader.pages() if session is None else iter([reader.of_session(session)])
            for key in chain.from_iterable(pages):
                if is_kept(key[1]):
                    yield ThreadSource(each, THREADS.name, KIND, session_name(*key))


def _store_plan(
    reader: ThreadReader, database: Database, home: LangGraphSchema, plan: RepairPlan, run: str
) -> str:
    """Store a planned repair.

    Return where it is recorded. Raise ``Moved`` if the thread went on.
    """
    new = new_in(plan.after.records)
    assert new is not None  # noqa: S101 - a repair that changes nothing is not stored
    codes = sorted({finding.code for finding in plan.findings})
    note = repairs.RepairNote(run, {"codes": codes, "changes": msgspec.to_builtins(plan.changes)})
    number = repairs.store_repair(database, reader, loaded_of(plan.before), new, note)
    return f"{home.schema}.lockstitch_repairs {number}"


def describe_thread(name: str, transcript: Transcript) -> Report:
    """Return a report that says what a thread is, without checking it."""
    loaded = loaded_of(transcript)
    return Report(
        target=name,
        format=THREADS.name,
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


class SchemaWorker:
    """Does a task over one connection."""

    def __init__(self, task: SchemaTask) -> None:
        self._task = task
        self._database = Database(task.url, task.home.schema)
        self._reader = ThreadReader(self._database, task.home)

    def __enter__(self) -> Self:
        """Return the worker itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close its connection."""
        self._database.close()

    def work(self, keys: Sequence[Key]) -> Iterator[Repaired]:
        """Process some threads; one that fails does not stop the others."""
        # The namespaces of subgraphs for single calls, by thread.
        below: dict[Key, tuple[str, ...]] = {}
        for thread, namespace in keys:
            if not is_kept(namespace):
                below[thread, ""] = (*below.get((thread, ""), ()), namespace)
        for loaded in self._reader.load([key for key in keys if is_kept(key[1])]):
            loaded.snapshot.below = below.get(loaded.key, ())
            try:
                yield self.work_on(loaded)
                continue
            except ServerGone:
                raise
            except LockstitchError as caught:
                error = str(caught)
            except (RecursionError, MemoryError):
                error = "it is too large or too deep"
            session = session_name(*loaded.key)
            report = Report(self._task.name, THREADS.name, session, error=error)
            yield Repaired(report)

    def work_on(self, loaded: LoadedThread) -> Repaired:
        """Check one thread; plan and store its repair, as far as the task says so."""
        task = self._task
        if task.search:
            self._reader.search(loaded)
        outcome, plan = self._judge(loaded)
        if outcome.report.findings and self._reader.complete(loaded):
            outcome, plan = self._judge(loaded)
        if plan is None or not plan.changed or not task.writes or not new_in(plan.after.records):
            return outcome
        try:
            outcome.backup = _store_plan(self._reader, self._database, task.home, plan, task.run)
        except Moved:
            outcome.went_on = True
        else:
            outcome.is_written = True
        return outcome

    def _judge(self, loaded: LoadedThread) -> tuple[Repaired, RepairPlan | None]:
        transcript = parse_thread(loaded)
        report = describe_thread(self._task.name, transcript)
        if not self._task.plans:
            report.findings = repair.findings_in(THREADS, transcript)
            return Repaired(report), None
        plan = repair.plan_repair(THREADS, transcript, self._task.options)
        report.findings = plan.findings
        return Repaired(report, plan.remaining, plan.changes, plan.quarantine), plan


# Many threads.


def work_through(
    task: SchemaTask, workers: int = 1, session: str | None = None
) -> Iterator[list[Repaired]]:
    """Process all threads, or one; yield the outcomes page by page, in order."""
    with Database(task.url, task.home.schema) as database:
        if task.writes:
            repairs.make_repairs_table(database, task.home)
        reader = ThreadReader(database, task.home)
        if session is not None:
            keys = reader.of_session(session)
            if not keys:
                raise Unreadable(f"there is no thread {session}")
            pages = iter([keys])
        else:
            pages = _pages_in(task.shard, reader.pages())
        if workers == 1:
            with SchemaWorker(task) as worker:
                for page in pages:
                    yield list(worker.work(page))
            return
        ahead: deque[Future[list[Repaired]]] = deque()
        # Each worker is a fresh interpreter that leaves Ctrl-C to this process.
        fresh = get_context("spawn")
        ignored = (signal.SIGINT, signal.SIG_IGN)
        with ProcessPoolExecutor(workers, fresh, signal.signal, ignored) as pool:
            try:
                for page in pages:
                    ahead.append(pool.submit(_work_elsewhere, task, page))
                    if len(ahead) >= workers * _AHEAD:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            except BrokenProcessPool:
                raise Unreadable(
                    "a worker process ended unexpectedly; what was written until then is "
                    "complete, and the same command continues from there"
                ) from None
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def _pages_in(shard: Shard, pages: Iterator[list[Key]]) -> Iterator[list[Key]]:
    """Yield the keys of one shard, in pages as full as those of all threads."""
    due: list[Key] = []
    for page in pages:
        due += [key for key in page if shard.holds(key[0])]
        if len(due) >= PAGE:
            yield due
            due = []
    if due:
        yield due


# In a worker process: its worker object, with the connection that it keeps.
_worker: list[SchemaWorker] = []


def _work_elsewhere(task: SchemaTask, keys: list[Key]) -> list[Repaired]:
    """Process some threads in a worker process."""
    if not _worker:
        _worker.append(SchemaWorker(task))
    return list(_worker[0].work(keys))
