"""The doctor's rounds through a database: threads judged and mended, a page at a time.

A ``Task`` is a piece of work that any process can do: it holds an address, not a connection. What
comes back are outcomes, one for each thread and namespace that a new prompt resumes.

LangGraph's threads in a PostgreSQL, as the one doctor sees them.

The records of a thread are its head, with all that belongs to it, and a record for every write
that hangs on it. A repair adds one more: the checkpoint that will be stored.
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
from msgspec import Struct, field, structs

from lockstitch.errors import LockstitchError, Moved, Unreadable
from lockstitch.formats.langgraph.format import ThreadFormat
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
from lockstitch.formats.langgraph.snapshot import (
    RepairedCheckpoint,
    StoredCheckpoint,
    ThreadSnapshot,
    session_name,
)
from lockstitch.repair.draft import Change, Quarantined
from lockstitch.rules import Finding
from lockstitch.sources import repair
from lockstitch.sources.interface import Context, Format, Transcript
from lockstitch.sources.records import Record
from lockstitch.sources.repair import RepairOptions, RepairPlan
from lockstitch.sources.source import Report, Source
from lockstitch.stores.addresses import public


class ThreadRecord(Record, eq=False):
    """A record of a thread: the thread as it was read, a write on it, or the new checkpoint."""

    loaded: LoadedThread | None = None
    snapshot: ThreadSnapshot | None = None
    new: RepairedCheckpoint | None = None


class ThreadSource(Source, frozen=True):
    """A thread in a PostgreSQL: the path is the address of its database."""

    def __repr__(self) -> str:
        """Show the address without secrets."""
        return f"ThreadSource({public(self.path)!r}, {self.session!r})"

    @property
    def form(self) -> Format:
        """The format itself."""
        return THREADS


class PostgresThreads(ThreadFormat):
    """The threads of LangGraph's savers for PostgreSQL, of Python and of LangGraph.js."""

    name = "langgraph"
    title = "LangGraph"
    kinds: tuple[str, ...] = (KIND,)

    def claims(self, name: str, head: Any) -> bool:
        return False

    def snapshot(self, records: Sequence[Record], context: Context) -> ThreadSnapshot:
        read = next(
            one.snapshot for one in records if isinstance(one, ThreadRecord) and one.snapshot
        )
        new = new_in(records)
        if new is None:
            return read
        head = StoredCheckpoint(new.id, new.parent, new.body, new.values, new.metadata)
        head.record = len(records) - 1
        return structs.replace(read, head=head, ancestors=[read.head, *read.ancestors])

    def added(self, records: Sequence[Record], new: RepairedCheckpoint) -> list[Record]:
        kept = [one for one in records if not (isinstance(one, ThreadRecord) and one.new)]
        return [*kept, ThreadRecord(f"checkpoints.{new.id}", {"id": new.id}, fresh=b"", new=new)]


THREADS = PostgresThreads()


def new_in(records: Sequence[Record]) -> RepairedCheckpoint | None:
    """Give the checkpoint that a repair adds to some records."""
    return next((one.new for one in records if isinstance(one, ThreadRecord) and one.new), None)


def records_of(loaded: LoadedThread) -> list[Record]:
    """Give the records of a thread, each part of which is told the number of its record."""
    records: list[Record] = []
    snapshot = _number_records(loaded.snapshot, records)
    first = records[0]
    assert isinstance(first, ThreadRecord)  # noqa: S101 - the head's own
    first.loaded, first.snapshot = loaded, snapshot
    return records


def _number_records(snapshot: ThreadSnapshot, records: list[Record]) -> ThreadSnapshot:
    """Give a snapshot with the numbers of its records, which are added to those that there are."""
    head = snapshot.head
    number = len(records)
    records.append(_record(f"checkpoints.{head.id}", number))
    parts = [[*head.writes], [*snapshot.earlier]]
    for part in parts:
        for place, write in enumerate(part):
            part[place] = structs.replace(write, record=len(records))
            records.append(_record(f"checkpoint_writes.{write.task}.{write.number}", len(records)))
    failed: list[StoredCheckpoint] = []
    for one in snapshot.failed:
        writes = [structs.replace(write, record=len(records)) for write in one.writes]
        records.append(_record(f"checkpoints.{one.id}", len(records)))
        failed.append(structs.replace(one, writes=writes))
    return structs.replace(
        snapshot,
        head=structs.replace(head, writes=parts[0], record=number),
        earlier=parts[1],
        failed=failed,
        runs=[_number_records(run, records) for run in snapshot.runs],
    )


def _record(place: str, number: int) -> ThreadRecord:
    return ThreadRecord(place, {"place": place}, start=number, end=number)


def loaded_of(transcript: Transcript) -> LoadedThread:
    """Give the thread as it was read, of which a transcript was made."""
    records = transcript.records
    return next(one.loaded for one in records if isinstance(one, ThreadRecord) and one.loaded)


def parse_thread(loaded: LoadedThread) -> Transcript:
    """Understand a thread that was read."""
    context = Context(b"", session_name(*loaded.key))
    return THREADS.parse(records_of(loaded), context)


# What became of a thread.
OK = "ok"
BROKEN = "broken"
REPAIRED = "repaired"
MOVED = "went on"
FAILED = "unreadable"

_AHEAD = 3

A = TypeVar("A")
R = TypeVar("R")


class SchemaTask(Struct, frozen=True):
    """What to do with the threads of one schema; ``name`` is the address without a password.

    Without ``mends`` nothing is worked out, without ``writes`` nothing is written. Threads of
    other shards are left out. ``search`` looks for values that run code in all that a thread has,
    not in its head alone.
    """

    url: str
    name: str
    home: LangGraphSchema
    run: str = ""
    options: RepairOptions = RepairOptions()
    mends: bool = False
    writes: bool = False
    shard: Shard = Shard()
    search: bool = False

    def __repr__(self) -> str:
        """Show the address without secrets."""
        return f"Task({self.name!r}, {self.home!r}, {self.run!r})"


class ThreadOutcome(Struct):
    """What became of one thread: its report, and what a repair did or would do."""

    key: Key
    state: str
    report: Report
    remaining: list[Finding] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    quarantine: list[Quarantined] = field(default_factory=list)
    backup: str | None = None


def schema_tasks(
    url: str, name: Callable[[str], str], *, known: DatabaseContent | None = None, **how: Any
) -> list[SchemaTask]:
    """Give the task of every schema that holds threads; ``name`` takes the password out."""
    given = {key: value for key, value in how.items() if key in SchemaTask.__struct_fields__}
    return [SchemaTask(each, name(each), home, **given) for each, home in find_schemas(url, known)]


# One thread


def find_threads(url: str, session: str | None = None) -> Iterator[Source]:
    """Give the threads of a database, all or those of one name."""
    for each, home in find_schemas(url):
        with Database(each, home.schema) as database:
            reader = ThreadReader(database, home)
            pages = reader.pages() if session is None else iter([_find_keys(reader, session)])
            for page in pages:
                for key in page:
                    if is_kept(key[1]):
                        name = session_name(*key)
                        yield ThreadSource(each, THREADS.name, KIND, name)


def open_thread(source: Source, *, search: bool = False) -> Transcript:
    """Read one thread and understand it; ``search`` looks into all that it has."""
    home = find_schema(source.path)
    with Database(source.path, home.schema) as database:
        reader = ThreadReader(database, home, line=WHOLE_LINE)
        session = str(source.session)
        for key in keys_of_session(reader, session):
            if session_name(*key) == session:
                for loaded in reader.loaded([key]):
                    reader.complete(loaded)
                    if search:
                        reader.search(loaded)
                    return parse_thread(loaded)
    raise Unreadable(f"there is no thread {source.session}")


def store_thread(source: Source, mended: RepairPlan, run: str) -> str:
    """Store the repair of one thread; gives where it is noted. ``Moved`` if it went on."""
    new = new_in(mended.after.records)
    assert new is not None  # noqa: S101 - a repair that changes nothing is not stored
    home = find_schema(source.path)
    with Database(source.path, home.schema) as database:
        repairs.make_repairs_table(database, home)
        loaded = loaded_of(mended.before)
        note = repairs.RepairNote(run, details_of(mended))
        number = repairs.store_repair(database, ThreadReader(database, home), loaded, new, note)
    return f"{home.schema}.lockstitch_repairs {number}"


def describe_thread(name: str, transcript: Transcript) -> Report:
    """Say what a thread is, without judging it."""
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


def judge_thread(name: str, loaded: LoadedThread) -> ThreadOutcome:
    """Say what is wrong with a thread."""
    transcript = parse_thread(loaded)
    report = describe_thread(name, transcript)
    report.findings = repair.findings_in(THREADS, transcript)
    return ThreadOutcome(loaded.key, BROKEN if report.findings else OK, report)


def plan_thread(task: SchemaTask, loaded: LoadedThread) -> tuple[ThreadOutcome, RepairPlan]:
    """Work out the repair of a thread."""
    transcript = parse_thread(loaded)
    mended = repair.plan_repair(THREADS, transcript, task.options)
    report = describe_thread(task.name, transcript)
    report.findings = mended.findings
    state = BROKEN if mended.findings else OK
    made = ThreadOutcome(
        loaded.key, state, report, mended.remaining, mended.changes, mended.quarantine
    )
    return made, mended


class SchemaWorker:
    """Does tasks over one connection."""

    def __init__(self, task: SchemaTask) -> None:
        self._task = task
        self.database = Database(task.url, task.home.schema)
        self.reader = ThreadReader(self.database, task.home)
        self.name = task.name

    def __enter__(self) -> Self:
        """Give the worker itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close its connection."""
        self.database.close()

    def each(self, keys: Sequence[Key]) -> Iterator[ThreadOutcome]:
        """Do what is to be done with some threads; one that fails does not end the others."""
        below = _below(keys)
        for loaded in self.reader.loaded([key for key in keys if is_kept(key[1])]):
            loaded.snapshot.below = below.get(loaded.key, ())
            try:
                yield self._one(loaded)
            except ServerGone:
                raise
            except LockstitchError as error:
                yield _failed(self._task.name, loaded.key, str(error))
            except (RecursionError, MemoryError):
                yield _failed(self._task.name, loaded.key, "is too large or too deep")

    def _one(self, loaded: LoadedThread) -> ThreadOutcome:
        task = self._task
        if task.search:
            self.reader.search(loaded)
        if not task.mends:
            outcome = judge_thread(task.name, loaded)
            is_more = bool(outcome.report.findings) and self.reader.complete(loaded)
            return judge_thread(task.name, loaded) if is_more else outcome
        outcome, mended = plan_thread(task, loaded)
        if outcome.report.findings and self.reader.complete(loaded):
            outcome, mended = plan_thread(task, loaded)
        new = new_in(mended.after.records) if mended.changed else None
        if new is None or not task.writes:
            return outcome
        note = repairs.RepairNote(task.run, details_of(mended))
        try:
            number = repairs.store_repair(self.database, self.reader, loaded, new, note)
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


def details_of(mended: RepairPlan) -> dict[str, Any]:
    """Say what was done, to be kept with a repair."""
    return {
        "codes": sorted({finding.code for finding in mended.findings}),
        "changes": msgspec.to_builtins(mended.changes),
    }


def _failed(name: str, key: Key, error: str) -> ThreadOutcome:
    session = session_name(*key)
    return ThreadOutcome(key, FAILED, Report(name, THREADS.name, session, error=error))


# Many threads


class TaskPage(Struct, frozen=True):
    """Some threads, and what to do with them."""

    task: SchemaTask
    keys: list[Key]


def do_page(page: TaskPage) -> list[ThreadOutcome]:
    """Do one page, in whatever process."""
    return list(_worker(page.task).each(page.keys))


def work_through(
    task: SchemaTask, workers: int = 1, session: str | None = None
) -> Iterator[list[ThreadOutcome]]:
    """Go through all threads, or one; gives the outcomes page by page, in their order."""
    if task.writes:
        with Database(task.url, task.home.schema) as database:
            repairs.make_repairs_table(database, task.home)
    with Database(task.url, task.home.schema) as database:
        reader = ThreadReader(database, task.home)
        if session is not None:
            keys = iter([keys_of_session(reader, session)])
        else:
            keys = _pages_in(task.shard, reader.pages())
        yield from spread_work(do_page, (TaskPage(task, page) for page in keys), workers)


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


def keys_of_session(reader: ThreadReader, session: str) -> list[Key]:
    """Give the thread of a name; or that and the namespace, if the name has one."""
    found = _find_keys(reader, session)
    if not found:
        raise Unreadable(f"there is no thread {session}")
    return found


def _find_keys(reader: ThreadReader, session: str) -> list[Key]:
    found = reader.of_thread(session)
    if not found and "#" in session:
        thread, _, namespace = session.partition("#")
        found = [key for key in reader.of_thread(unquote(thread)) if key[1] == namespace]
    return found


_workers: dict[SchemaTask, SchemaWorker] = {}


def _worker(task: SchemaTask) -> SchemaWorker:
    """Give this process's worker for a task, with the connection that it has."""
    if task not in _workers:
        for old in _workers.values():
            old.__exit__()
        _workers.clear()
        _workers[task] = SchemaWorker(task)
    return _workers[task]


def spread_work(work: Callable[[A], R], tasks: Iterable[A], workers: int) -> Iterator[R]:
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
