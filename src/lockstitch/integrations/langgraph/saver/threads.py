"""Threads in memory, as far as they are in the store: read once, then kept up to date.

All writers of a thread queue up, and the first one stores everything that is queued in one durable
step. Nobody holds a thread, except a run that has its turn. Records are added after the record that
was read last, so the second of two processes is refused, and reads the new records before it tries
again.

A thread is deleted, copied or pruned as a whole. All checkpoints of a store are listed newest first
without reading every thread. LangGraph orders checkpoints by id, and ids contain times. A store
lists its sessions by their last change, and no checkpoint of a thread is newer than that. So
threads are read one by one, the last changed first, and what was found is yielded as soon as no
remaining thread can hold anything newer. If ids are not times, all threads are read first.
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
# How many seconds to wait for a checkpoint: the minimum, the time for each message, the maximum,
# and the maximum on a machine so busy that recent checkpoints came late.
_SHORTEST, _EACH, _LONGEST, _BUSY = 0.003, 0.000_004, 0.015, 0.04
_MISSES, _AGAIN = 8, 32


class PreparedLine(Struct):
    """A record to be stored, and the encoder of its values."""

    line: Line
    encoder: ValueEncoder


Prepare = Callable[["LiveThread"], PreparedLine | None]
# The checkpoints of a thread to keep, each with its namespace.
KeptCheckpoints = set[tuple[str, str]]


class _WriteJob(CommitJob):
    """A record that a caller waits for; ``number`` says in which order it came."""

    __slots__ = ("number",)

    def __init__(self, prepare: Prepare, number: int, patience: float) -> None:
        super().__init__(prepare, patience=patience)
        self.number = number


class CommitPatience:
    """How long a task's writes wait for the checkpoint that usually follows at once.

    LangGraph hands over what a task wrote and immediately goes on to the checkpoint made from it.
    If the checkpoint comes soon, both are stored in one step. How soon it comes depends on the
    length of the conversation and on the load of the machine. If it repeatedly does not come,
    writes stop waiting for it, except for an attempt now and then.
    """

    def __init__(self) -> None:
        self._missed = 0
        self._began = 0.0
        self._late = 0.0

    def seconds(self, items: int) -> float:
        """Return how long to wait now, in a thread with this many items."""
        if self._missed > _MISSES and self._missed % _AGAIN:
            self._missed += 1
            return 0.0
        usual = min(_SHORTEST + items * _EACH, _LONGEST)
        return min(max(usual, 1.5 * self._late), _BUSY)

    def begin(self) -> None:
        """Record when a write begins to wait."""
        self._began = time.monotonic()

    def arrive(self) -> None:
        """Record when the checkpoint comes, in time or not."""
        late = time.monotonic() - self._began
        if late < 2 * _BUSY:
            self._late = max(late, 0.9 * self._late)
        self._began = 0.0

    def learn(self, *, is_met: bool) -> None:
        """Record whether it came in time."""
        self._missed = 0 if is_met else self._missed + 1


class LiveThread:
    """One thread: its journal, and the objects that were made from it."""

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
        # The prefix of record keys, which no other writer has.
        self._keys = map(f"{secrets.token_hex(8)}-{{}}".format, count(1))

    def objects(self, serde: SerializerProtocol) -> ObjectDecoder:
        """Return a decoder for the values of this thread."""
        return ObjectDecoder(self.thread, self.memory, serde, self._backend.blobs)

    def current(self) -> ThreadJournal:
        """Return the thread as it is in the store now; the caller has the lock."""
        self.catch_up()
        return self.thread

    def catch_up(self) -> None:
        """Read the new records, or everything if the records that were read are gone."""
        try:
            head = self._backend.head(self.session)
            known = self.thread.head
            self._is_read = True
            if head is None:
                self.forget()
            elif (head.seq, head.digest) != (known.seq, known.digest):
                self._read(known if head.seq > known.seq else NEW)
        except BaseException:
            # An interrupt may have come in the middle of a record, so the state cannot be used.
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
            # It was deleted or replaced while it was read.
            if not after.seq and self._backend.head(self.session) is not None:
                raise
            self.forget()
            if self._backend.head(self.session) is not None:
                self._read(NEW)
        self._is_read = True
        if self.thread.id is None and self.thread.head.seq:
            raise UsageError(f"session {self.session} is not a LangGraph thread")

    def forget(self) -> None:
        """Forget everything about the thread."""
        self.thread = ThreadJournal()
        self.memory = ThreadMemory()
        self._is_read = False

    def write(self, prepare: Prepare, *, is_patient: bool = False) -> None:
        """Store a record durably, together with all others that wait in this thread.

        With ``is_patient`` it waits a moment for another one that takes it along.
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
        """Store the records of all that wait, and end every job, whatever happens."""
        try:
            with self.lock:
                self._commits.gather(jobs)
                try:
                    # In the order of arrival, because a checkpoint is made from the writes before
                    # it.
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
                    # A run has its turn here, so the write is made under its lease.
                    self.thread.head = self._backend.append(lease, entries, before.seq)
                else:
                    self.thread.head = self._backend.add(
                        self.session, entries, before, wait=self._wait
                    )
            except Moved:
                self.forget()
            except Unsure:
                self.forget()
                # The keys, which nobody else uses, tell whether it was written.
                if self._backend.head(self.session) is not None:
                    found = {record.key for record in self._backend.read(self.session, before)}
                    if all(entry.key in found for entry in entries):
                        return
            else:
                return
        raise Conflict(f"thread {self.id}: other writers keep writing to it; nothing was written")

    def _prepare_entries(self, jobs: list[_WriteJob]) -> list[JournalEntry]:
        """Make the records of all jobs, each after the one before.

        A failure concerns one job only.
        """
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
        # The listing of all threads relies on it: nothing in a thread is newer than its last
        # record.
        self.thread.at = max(time.time_ns() // 1_000_000, made, self.thread.at)
        return JournalEntry(next(self._keys), self.thread.at, _encode(line), blobs)

    # The thread as a whole

    def delete(self) -> None:
        """Delete the thread, if it exists."""
        with self.lock:
            lease = self._acquire()
            if lease is not None:
                self._backend.delete(lease)
            self.forget()

    def keep_only(self, keep: Callable[[ThreadJournal], KeptCheckpoints]) -> None:
        """Delete everything but some checkpoints and their writes."""
        with self.lock:
            lease = self._acquire()
            if lease is not None:
                try:
                    self._rewrite(lease, keep)
                finally:
                    self._backend.release(lease)
            self.forget()

    def _acquire(self) -> Lease | None:
        """Take the lease of the session; return None if there is no session."""
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
    """The threads of a store that were used last, up to a total size of their journals."""

    def __init__(
        self,
        backend: Backend,
        wait: float,
        most: int,
        counting: CounterBook,
        leases: Mapping[str, Lease],
    ) -> None:
        self._backend = backend
        # The leases of the sessions on which a run has its turn.
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


# Which checkpoints of a thread to keep.


def last_checkpoints(thread: ThreadJournal) -> KeptCheckpoints:
    """Return the last checkpoint of each namespace, and what its delta channels consist of."""
    kept: KeptCheckpoints = set()
    for space in thread.spaces:
        kept |= {(space, node) for node in _find_needed(thread, space, thread.latest(space))}
    return kept


def _find_needed(thread: ThreadJournal, space: str, checkpoint: str) -> list[str]:
    """Return a checkpoint and the earlier ones that its values consist of."""
    node = thread.node(space, checkpoint)
    if node is None:
        return []
    needed = [checkpoint]
    # The delta channels that were written since their snapshot. If LangGraph's counters cannot be
    # read here, any channel may be one.
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
    """Return all checkpoints except some."""
    every = {(space, node) for space, nodes in thread.spaces.items() for node in nodes}
    return every - gone


def require_whole(thread: ThreadJournal, gone: KeptCheckpoints) -> None:
    """Raise ``Conflict`` if a checkpoint that stays needs one that is to be deleted."""
    for space, checkpoint in other_checkpoints(thread, gone) if gone else ():
        missing = [one for one in _find_needed(thread, space, checkpoint) if (space, one) in gone]
        if missing:
            raise Conflict(
                f"thread {thread.id}: checkpoint {checkpoint} depends on what {missing[0]} holds "
                "(DeltaChannel); nothing was removed: prune or delete the thread instead"
            )


# All threads of a store


_FIRST = "langgraph"
# A thread, one of its namespaces, and a checkpoint in that.
Spot = tuple[Any, str, str]
# The ticks in a millisecond, as the ids of checkpoints count them.
_TICKS = 10_000


def list_thread_ids(backend: Backend) -> Iterator[str]:
    """Yield the ids of all threads in a store."""
    for listed in backend.sessions(after=_FIRST):
        if not listed.session.startswith(_FIRST):
            return
        if may_be_thread(listed.session) and (id_ := id_in(backend, listed.session)) is not None:
            yield id_


def id_in(backend: Backend, session: str) -> str | None:
    """Return the id of the thread that a session holds; None if it holds none."""
    try:
        first = next(iter(backend.read(session, upto=1)), None)
    except Unreadable:
        return None
    line = None if first is None else line_of(first.body)
    return line.id if isinstance(line, ThreadLine) and session_of(line.id) == session else None


def sweep_threads(backend: Backend, border: int) -> int:
    """Delete the threads whose last change is older than a moment; return how many."""
    count = 0
    for listed in list(backend.sessions(after=_FIRST)):
        if not listed.session.startswith(_FIRST) or not may_be_thread(listed.session):
            continue
        if listed.changed >= border or id_in(backend, listed.session) is None:
            continue
        # A thread that somebody holds, or that has gone on, stays.
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
    """Return the time in a checkpoint's id, 0 if it contains none."""
    ticks = ticks_of(checkpoint)
    return 0 if ticks is None else max((ticks - EPOCH) // _TICKS, 0)


def newest_threads(backend: Backend) -> Iterator[tuple[str, int]]:
    """Yield all threads and the time of their last change, the last changed first.

    Threads that change meanwhile come at the end, unless they were yielded before.
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
    """Yield all checkpoints of some threads, newest first.

    ``spots`` returns those of one thread.
    """
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
    """An id that sorts in reverse order."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)
