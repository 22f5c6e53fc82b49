"""Threads in memory, as far as they are in the store: read once, then kept up to date.

Everybody who writes to a thread queues up, and whoever comes first stores all that has queued up
in one durable step. Nobody holds a thread, but a run that has its turn: what is added is added
behind the very record that was read last, so that of two processes the second one is told and
reads again what is new.

A thread is one run's at a time, if that is asked for: the run holds the lease of its session from
its begin to its end, which its graph announces. The store keeps the lease alive meanwhile, and
takes it from a process that is gone.

Calls from an event loop are made in threads that do nothing else. The threads that a loop has of
its own run an application's functions, too: if all of those waited for something that needs a
checkpoint first, nobody would ever go on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from itertools import count
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from weakref import WeakSet

import msgspec
from msgspec import Struct

from lockstitch.errors import (
    Closed,
    Conflict,
    Damaged,
    LockstitchError,
    Moved,
    Unreadable,
    Unsure,
    UsageError,
)
from lockstitch.formats.langgraph.journal import (
    CheckpointLine,
    Line,
    ThreadJournal,
    ThreadLine,
    session_of,
)
from lockstitch.integrations.langgraph.report import CounterBook
from lockstitch.integrations.langgraph.run_ids import GraphRun, calling_run, place_of
from lockstitch.integrations.langgraph.saver.change_detection import ThreadMemory
from lockstitch.integrations.langgraph.saver.codec import ObjectDecoder, Serializer, ValueEncoder
from lockstitch.integrations.langgraph.saver.maintenance import milliseconds_of
from lockstitch.journal.records import NEW, Head, JournalEntry
from lockstitch.stores.base import Backend, Lease
from lockstitch.stores.group_commit import CommitJob, GroupCommit, own_copy

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig


_TRIES = 8
_THREADS = 256
_encode = msgspec.json.Encoder().encode
# Seconds that are waited for a checkpoint: at least, for each message, at most; and at most on a
# machine that has so much to do that it came late the last times.
_SHORTEST, _EACH, _LONGEST, _BUSY = 0.003, 0.000_004, 0.015, 0.04
_MISSES, _AGAIN = 8, 32


class PreparedLine(Struct):
    """A record that is to be stored, and who coded its values."""

    line: Line
    encoder: ValueEncoder


Prepare = Callable[["LiveThread"], PreparedLine | None]


class _WriteJob(CommitJob):
    """A record that somebody waits for; ``number`` says when it came."""

    __slots__ = ("number",)

    def __init__(self, prepare: Prepare, number: int, patience: float) -> None:
        super().__init__(prepare, patience=patience)
        self.number = number


class CommitPatience:
    """How long what a task wrote waits for the checkpoint that mostly comes right behind it.

    LangGraph hands over what a task wrote and goes on at once to the checkpoint that is made of
    it: both are stored in one step, if the second comes soon. How soon depends on how long the
    conversation is, and on how busy the machine is. If it does not come, again and again, it is
    not waited for any more, but for a try now and then.
    """

    def __init__(self) -> None:
        self._missed = 0
        self._began = 0.0
        self._late = 0.0

    def seconds(self, items: int) -> float:
        """Return how long to wait now, in a thread with so many items."""
        if self._missed > _MISSES and self._missed % _AGAIN:
            self._missed += 1
            return 0.0
        usual = min(_SHORTEST + items * _EACH, _LONGEST)
        return min(max(usual, 1.5 * self._late), _BUSY)

    def begin(self) -> None:
        """Take note of when something begins to wait."""
        self._began = time.monotonic()

    def arrive(self) -> None:
        """Take note of when the checkpoint comes, in time or not."""
        late = time.monotonic() - self._began
        if late < 2 * _BUSY:
            self._late = max(late, 0.9 * self._late)
        self._began = 0.0

    def learn(self, *, is_met: bool) -> None:
        """Take note of whether it came."""
        self._missed = 0 if is_met else self._missed + 1


class LiveThread:
    """One thread: what its journal says, and the objects that were made of it."""

    def __init__(
        self,
        backend: Backend,
        id_: str,
        wait: float,
        counting: CounterBook,
        leases: Mapping[str, Lease],
    ) -> None:
        self.id = id_
        self.session = session_of(id_)
        self.lock = threading.RLock()
        self.thread = ThreadJournal()
        self.memory = ThreadMemory()
        self._backend = backend
        self._wait = wait
        self._counting = counting
        self._leases = leases
        self.patience = CommitPatience()
        self._commits = GroupCommit(self._commit, f"thread {id_}")
        self._arrivals = count()
        self._is_read = False
        # Keys of records: no other writer has this beginning.
        self._keys = map(f"{secrets.token_hex(8)}-{{}}".format, count(1))

    def objects(self, serde: Serializer) -> ObjectDecoder:
        """Return what reads the values of this thread."""
        return ObjectDecoder(self.thread, self.memory, serde, self._backend.blobs)

    def current(self) -> ThreadJournal:
        """Return the thread as it is in the store now; whoever asks has the lock."""
        self.catch_up()
        return self.thread

    def catch_up(self) -> None:
        """Read what is new; all of it, if what was read is there no more."""
        try:
            head = self._backend.head(self.session)
            known = self.thread.head
            self._is_read = True
            if head is None:
                self.forget()
            elif (head.seq, head.digest) != (known.seq, known.digest):
                self._read(known if head.seq > known.seq else NEW)
        except BaseException:
            # An interrupt may have come in the middle of a record: nothing is built on that.
            self.forget()
            raise

    def _read(self, after: Head) -> None:
        if not after.seq:
            self.forget()
        try:
            for record in self._backend.read(self.session, after):
                self.thread.apply(record)
        except Damaged:
            if not after.seq:
                raise
            self._read(NEW)
        except Unreadable:
            # It was removed or replaced while it was read.
            if not after.seq and self._backend.head(self.session) is not None:
                raise
            self.forget()
            if self._backend.head(self.session) is not None:
                self._read(NEW)
        self._is_read = True
        if self.thread.id is None and self.thread.head.seq:
            raise UsageError(f"session {self.session} is not a thread of LangGraph")

    def forget(self) -> None:
        """Know nothing of the thread any more."""
        self.thread = ThreadJournal()
        self.memory = ThreadMemory()
        self._is_read = False

    def write(self, prepare: Prepare, *, is_patient: bool = False) -> None:
        """Store a record durably, with whatever else waits to be stored in this thread.

        ``is_patient`` has it wait a moment for another one that takes it along.
        """
        seconds = 0.0
        if is_patient:
            seconds = self.patience.seconds(len(self.thread.items))
            self.patience.begin()
        else:
            self.patience.arrive()
        job = _WriteJob(prepare, next(self._arrivals), seconds)
        try:
            self._commits.finish(job)
        except Conflict:
            self._counting.conflict()
            raise
        finally:
            if seconds:
                self.patience.learn(is_met=not job.has_led)

    def _commit(self, jobs: list[Any]) -> None:
        """Store the records of all who wait, and end every job, whatever happens."""
        try:
            with self.lock:
                self._commits.gather(jobs)
                try:
                    # In the order in which they came: a checkpoint is made of the writes before it.
                    self._store(sorted(jobs, key=attrgetter("number")))
                except BaseException:
                    self.forget()
                    raise
        except BaseException as error:
            for job in jobs:
                if isinstance(error, Exception):
                    job.error = job.error or own_copy(error)
                else:
                    text = "a write was broken off: read the thread again"
                    job.error = job.error or Unsure(text)
            if not isinstance(error, Exception):
                raise
        finally:
            for job in jobs:
                job.end()

    def _store(self, jobs: list[_WriteJob]) -> None:
        for tried in range(_TRIES):
            if tried:
                self._counting.retry()
            if not self._is_read:
                self.catch_up()
            before = self.thread.head
            entries = self._prepared(jobs)
            if not entries:
                return
            try:
                lease = self._leases.get(self.session)
                if lease is not None:
                    # A run has its turn here: what is written meanwhile is written for it.
                    self.thread.head = self._backend.append(lease, entries, before.seq)
                else:
                    self.thread.head = self._backend.add(
                        self.session, entries, before, wait=self._wait
                    )
            except Moved:
                self.forget()
            except Unsure:
                self.forget()
                if self._are_there(entries, before):
                    return
            else:
                return
        raise Conflict(f"thread {self.id}: others write to it again and again; nothing was written")

    def _prepared(self, jobs: list[_WriteJob]) -> list[JournalEntry]:
        """Make records of all jobs, each on top of the one before; what fails, fails alone."""
        entries: list[JournalEntry] = []
        for job in jobs:
            try:
                prepared = job.run(self) if job.error is None else None
            except Exception as error:  # noqa: BLE001 - it is raised where it belongs
                job.error = error
                continue
            if prepared is None:
                continue
            if self.thread.id is None:
                begun = ThreadLine(self.id)
                self.thread.add(begun)
                entries.append(self._entry(begun, ()))
            body = self._entry(prepared.line, tuple(prepared.encoder.blobs.values()))
            self.thread.add(prepared.line, self.thread.head.seq + len(entries) + 1)
            self.thread.size += len(body.body)
            prepared.encoder.remember()
            entries.append(body)
        return entries

    def _entry(self, line: Line, blobs: tuple[bytes, ...]) -> JournalEntry:
        made = milliseconds_of(line.id) if isinstance(line, CheckpointLine) else 0
        # A list of all threads relies on it: nothing in a thread is newer than its last record.
        self.thread.at = max(time.time_ns() // 1_000_000, made, self.thread.at)
        return JournalEntry(next(self._keys), self.thread.at, _encode(line), blobs)

    def _are_there(self, entries: list[JournalEntry], before: Head) -> bool:
        """Whether a write of unknown outcome is in the store."""
        if self._backend.head(self.session) is None:
            return False
        found = {record.key for record in self._backend.read(self.session, before)}
        return all(entry.key in found for entry in entries)


class LiveThreads:
    """The threads of a store that were used last, up to a number of bytes of their journals."""

    def __init__(
        self,
        backend: Backend,
        wait: float,
        most: int,
        counting: CounterBook,
        leases: Mapping[str, Lease],
    ) -> None:
        self._backend = backend
        # Of the sessions on which a run has its turn.
        self._leases = leases
        self._wait = wait
        self._counting = counting
        self._most = most
        self._guard = threading.Lock()
        self._kept: OrderedDict[str, LiveThread] = OrderedDict()

    def get(self, thread: str) -> LiveThread:
        """Return a thread, which need not exist."""
        with self._guard:
            live = self._kept.get(thread)
            if live is None:
                live = LiveThread(self._backend, thread, self._wait, self._counting, self._leases)
                self._kept[thread] = live
            self._kept.move_to_end(thread)
            self._shrink()
            return live

    def _shrink(self) -> None:
        size = sum(live.thread.size for live in self._kept.values())
        while len(self._kept) > 1 and (size > self._most or len(self._kept) > _THREADS):
            _, live = self._kept.popitem(last=False)
            size -= live.thread.size


_MOST_THREADS = 16
P = ParamSpec("P")
T = TypeVar("T")


class CallExecutor:
    """Threads for the calls of one saver, begun as they are needed."""

    def __init__(self, threads: int = _MOST_THREADS) -> None:
        self._process = os.getpid()
        self._executor = ThreadPoolExecutor(threads, "lockstitch-saver")

    def start(self, call: Callable[[], None]) -> None:
        """Make a call in a thread, and go on."""
        self._begun(call)

    async def run(self, call: Callable[P, T], *words: P.args, **options: P.kwargs) -> T:
        """Make a call in a thread, in the context of whoever asks for it."""
        made = partial(copy_context().run, call, *words, **options)
        return await asyncio.wrap_future(self._begun(made))

    def _begun(self, made: Callable[[], T]) -> Future[T]:
        # A forked child has the pool, but none of its threads.
        if self._process != os.getpid():
            raise Closed("the saver was opened by another process, before a fork")
        try:
            return self._executor.submit(made)
        except RuntimeError as error:
            raise Closed("the saver was closed") from error

    def close(self, *, wait: bool = True) -> None:
        """Begin no more calls, and wait for those that are under way."""
        if self._process == os.getpid():
            self._executor.shutdown(wait, cancel_futures=not wait)


_LOG = logging.getLogger("lockstitch.langgraph")
# So many may wait at once in event loops; others wait for those.
_WAITING = 64


class RunTurns:
    """The leases of the runs that have a turn; with a ``wait`` of 0 nobody takes one."""

    def __init__(self, backend: Backend, wait: float) -> None:
        self.leases: dict[str, Lease] = {}
        self._backend = backend
        self._wait = wait
        self._lock = Lock()
        self._seen: WeakSet[GraphRun] = WeakSet()
        self._holders: dict[str, GraphRun] = {}
        # Not those of the saver: whoever has the turn needs one of them to go on.
        self._executor = CallExecutor(_WAITING)
        # Nor those that wait for a turn, if it is to be given back.
        self._returning = CallExecutor(1)

    def take(self, config: RunnableConfig) -> None:
        """Wait for the turn of a run that begins with this load; raises ``Held`` in the end."""
        run = calling_run(config) if self._wait else None
        if run is None or not run.is_loading(config):
            return
        session = session_of(place_of(config).thread)
        with self._lock:
            is_due = run not in self._seen and not self._is_callers(run, session)
            self._seen.add(run)
        if not is_due:
            return
        try:
            lease = self._backend.acquire(session, wait=self._wait, create=False)
        except Unreadable:
            # A thread that is not there yet; or one that says so itself when it is read.
            return
        with self._lock:
            self.leases[session] = lease
            self._holders[session] = run
        run.ends.append(partial(self._give_back, session, lease))

    async def atake(self, config: RunnableConfig) -> None:
        """Wait for the turn, in an event loop."""
        if self._wait:
            await self._executor.run(self.take, config)

    def close(self) -> None:
        """Begin to wait no more, and return back what is to be given back."""
        self._returning.close()
        self._executor.close(wait=False)

    def _is_callers(self, run: GraphRun, session: str) -> bool:
        """Whether a run has the turn whose node calls this one: it would wait for itself."""
        holder: Any = self._holders.get(session)
        above = run.parent
        while above is not None and holder is not None:
            if above is holder:
                return True
            above = above.parent
        return False

    def _give_back(self, session: str, lease: Lease) -> None:
        with self._lock:
            if self.leases.get(session) is lease:
                del self.leases[session]
                del self._holders[session]
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._release(lease)
        else:
            self._returning.start(partial(self._release, lease))

    def _release(self, lease: Lease) -> None:
        try:
            self._backend.release(lease)
        except LockstitchError as error:
            # The turn itself is done; whoever comes next takes the lease over in its time.
            _LOG.warning("the turn on %s was not given back: %s", lease.session, error)
