"""Threads in memory, as far as they are in the store: read once, then kept up to date.

Everybody who writes to a thread queues up, and whoever comes first stores all that has queued up
in one durable step. Nobody holds a thread, but a run that has its turn: what is added is added
behind the very record that was read last, so that the second of two processes is refused and reads
again what is new.

A thread is removed, copied, or pruned as a whole. All checkpoints of a store are listed newest
first, without reading every thread: LangGraph orders checkpoints by their ids, and ids are times. A
store lists its sessions by when they were changed last, and no checkpoint of a thread is newer than
that. So threads are read one after the other, the last changed first, and what was found in them is
yielded as soon as no thread that is left can hold anything newer. Where ids are no times, all
threads are read first.
"""

from __future__ import annotations

import heapq
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from lockstitch.errors import Conflict, Damaged, Moved, Unreadable, Unsure, UsageError, Where
from lockstitch.formats.langgraph.journal import (
    CheckpointLine,
    Line,
    ThreadJournal,
    ThreadLine,
    line_of,
    rewrite_thread,
    session_of,
)
from lockstitch.formats.langgraph.snapshot import COUNTERS, EPOCH, ticks_of
from lockstitch.integrations.langgraph.report import CounterBook
from lockstitch.integrations.langgraph.saver.change_detection import ThreadMemory
from lockstitch.integrations.langgraph.saver.codec import ObjectDecoder, ValueEncoder
from lockstitch.journal.records import NEW, Head, JournalEntry
from lockstitch.session.listing import may_be_thread
from lockstitch.stores.base import Backend, Lease, Listing
from lockstitch.stores.group_commit import CommitJob, GroupCommit, own_copy

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

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
# The checkpoints that a thread keeps, each with its namespace.
KeptCheckpoints = set[tuple[str, str]]


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
        self._commits = GroupCommit(self._commit, Where(f"thread {id_}"))
        self._arrivals = count()
        self._is_read = False
        # Keys of records: no other writer has this beginning.
        self._keys = map(f"{secrets.token_hex(8)}-{{}}".format, count(1))

    def objects(self, serde: SerializerProtocol) -> ObjectDecoder:
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
            raise UsageError(f"session {self.session} is not a LangGraph thread")

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
                    text = "a write was interrupted: read the thread again"
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
            entries = self._prepare_entries(jobs)
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
                # Whether it was written is known by its keys, which are nobody else's.
                if self._backend.head(self.session) is not None:
                    found = {record.key for record in self._backend.read(self.session, before)}
                    if all(entry.key in found for entry in entries):
                        return
            else:
                return
        raise Conflict(f"thread {self.id}: other writers keep writing to it; nothing was written")

    def _prepare_entries(self, jobs: list[_WriteJob]) -> list[JournalEntry]:
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

    # The thread as a whole

    def delete(self) -> None:
        """Remove the thread, if there is one."""
        with self.lock:
            lease = self._acquire()
            if lease is not None:
                self._backend.delete(lease)
            self.forget()

    def keep_only(self, keep: Callable[[ThreadJournal], KeptCheckpoints]) -> None:
        """Keep some checkpoints, with their writes, and nothing else."""
        with self.lock:
            lease = self._acquire()
            if lease is not None:
                try:
                    self._rewrite(lease, keep)
                finally:
                    self._backend.release(lease)
            self.forget()

    def _acquire(self) -> Lease | None:
        """Take the lease of the session; None if there is no session."""
        try:
            return self._backend.acquire(self.session, wait=self._wait, create=False)
        except Unreadable:
            if self._backend.head(self.session) is not None:
                raise
            return None

    def _rewrite(self, lease: Lease, keep: Callable[[ThreadJournal], KeptCheckpoints]) -> None:
        thread = ThreadJournal()
        at = 0
        for record in self._backend.read(self.session):
            thread.apply(record)
            at = record.at
        kept = keep(thread)
        if not kept:
            self._backend.delete(lease)
        elif len(kept) < sum(map(len, thread.spaces.values())):
            entries = rewrite_thread(thread, kept, self._backend.blobs, at)
            self._backend.replace(lease, entries, thread.head.seq)

    def copy_to(self, target: LiveThread) -> None:
        """Copy all records into a new thread, all or none."""
        if self._backend.head(self.session) is None:
            return
        if (self._backend.head(target.session) or NEW).seq:
            raise Conflict(f"thread {target.id} exists; nothing was copied")
        entries = [JournalEntry("copy", 0, _encode(ThreadLine(target.id)))]
        for record in self._backend.read(self.session):
            line = line_of(record.body)
            if not isinstance(line, ThreadLine):
                names = line.blobs if line is not None else ()
                blobs = tuple(self._backend.blobs(names).values()) if names else ()
                entries.append(JournalEntry(record.key, record.at, record.body, blobs))
        entries[0] = msgspec.structs.replace(entries[0], at=entries[-1].at)
        self._backend.add(target.session, entries, NEW, wait=self._wait)


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
            size = sum(one.thread.size for one in self._kept.values())
            while len(self._kept) > 1 and (size > self._most or len(self._kept) > _THREADS):
                size -= self._kept.popitem(last=False)[1].thread.size
            return live


# Which checkpoints of a thread stay


def last_checkpoints(thread: ThreadJournal) -> KeptCheckpoints:
    """Return the last checkpoint of each namespace, and what its delta channels are made of."""
    kept: KeptCheckpoints = set()
    for space in thread.spaces:
        kept |= {(space, node) for node in _find_needed(thread, space, thread.latest(space))}
    return kept


def _find_needed(thread: ThreadJournal, space: str, checkpoint: str) -> list[str]:
    """Return a checkpoint and those before it that its values are made of."""
    node = thread.node(space, checkpoint)
    if node is None:
        return []
    needed = [checkpoint]
    # The delta channels that have been written since their snapshot; if what LangGraph counts
    # cannot be read here, any channel may be one.
    raw = node.meta.get(COUNTERS)
    coded: Any = {} if raw is None else msgspec.json.decode(raw)
    counted = coded.get("j") if isinstance(coded, dict) else None
    deltas: Iterable[str] = node.versions if raw else ()
    if isinstance(counted, dict):
        deltas = counted
    lacking = set(deltas) - node.values.keys()
    for one in thread.ancestors(space, checkpoint) if lacking else ():
        needed.append(one.id)
        lacking -= one.values.keys()
        if not lacking:
            break
    return needed


def other_checkpoints(thread: ThreadJournal, gone: KeptCheckpoints) -> KeptCheckpoints:
    """Return all checkpoints but some."""
    every = {(space, node) for space, nodes in thread.spaces.items() for node in nodes}
    return every - gone


def require_whole(thread: ThreadJournal, gone: KeptCheckpoints) -> None:
    """Refuse to remove what a checkpoint that stays cannot be read without."""
    for space, checkpoint in other_checkpoints(thread, gone) if gone else ():
        missing = [one for one in _find_needed(thread, space, checkpoint) if (space, one) in gone]
        if missing:
            raise Conflict(
                f"thread {thread.id}: checkpoint {checkpoint} depends on what {missing[0]} holds "
                "(DeltaChannel); nothing was removed: prune or delete the thread instead"
            )


# All threads of a store


_FIRST = "langgraph"
# A thread, a namespace in it, and a checkpoint in that.
Spot = tuple[Any, str, str]
# In a millisecond, of those that the ids of checkpoints are counted in.
_TICKS = 10_000


def list_thread_ids(backend: Backend) -> Iterator[str]:
    """List the ids of all threads in a store."""
    for listed in backend.sessions(after=_FIRST):
        if not listed.session.startswith(_FIRST):
            return
        if may_be_thread(listed.session) and (id_ := id_in(backend, listed.session)) is not None:
            yield id_


def id_in(backend: Backend, session: str) -> str | None:
    """Return the id of the thread that a session keeps; None if it keeps none."""
    try:
        first = next(iter(backend.read(session, upto=1)), None)
    except Unreadable:
        return None
    line = None if first is None else line_of(first.body)
    return line.id if isinstance(line, ThreadLine) and session_of(line.id) == session else None


def sweep_threads(backend: Backend, border: int) -> int:
    """Remove the threads that were changed last before a moment, and return how many."""
    count = 0
    for listed in list(backend.sessions(after=_FIRST)):
        if not listed.session.startswith(_FIRST) or not may_be_thread(listed.session):
            continue
        if listed.changed >= border or id_in(backend, listed.session) is None:
            continue
        # One that somebody holds, or that has gone on, stays.
        try:
            lease = backend.acquire(listed.session, create=False)
        except (Conflict, Unreadable):
            continue
        if lease.head.seq != listed.seq:
            backend.release(lease)
            continue
        backend.delete(lease)
        count += 1
    return count


def milliseconds_of(checkpoint: str) -> int:
    """Return when a checkpoint was made, as its id says; 0 if it does not."""
    ticks = ticks_of(checkpoint)
    return 0 if ticks is None else max((ticks - EPOCH) // _TICKS, 0)


def newest_threads(backend: Backend) -> Iterator[tuple[str, int]]:
    """Return all threads and when each was changed, the last changed first.

    Those that are changed meanwhile come at the end, if they have not come before.
    """
    seen: set[str] = set()
    is_new = True
    while is_new:
        is_new = False
        for listed in backend.listed(Listing(newest=True)):
            if listed.session in seen:
                continue
            seen.add(listed.session)
            is_new = True
            thread = id_in(backend, listed.session) if may_be_thread(listed.session) else None
            if thread is not None:
                yield thread, listed.changed


def newest_checkpoints(
    threads: Iterable[tuple[str, int]], spots: Callable[[str], Sequence[Spot]]
) -> Iterator[Spot]:
    """Return all checkpoints of some threads, newest first; ``spots`` are those of one."""
    found: list[tuple[_Descending, int, Spot]] = []
    count = 0
    for thread, changed in threads:
        border = (changed + 1) * _TICKS + EPOCH
        while found and (ticks_of(found[0][2][2]) or 0) >= border:
            yield heapq.heappop(found)[2]
        for spot in spots(thread):
            count += 1
            heapq.heappush(found, (_Descending(spot[2]), count, spot))
    while found:
        yield heapq.heappop(found)[2]


class _Descending(str):
    """An id that sorts before smaller ones."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)
