"""What is done to whole threads: removing, pruning, copying, listing.

All checkpoints of a store are listed newest first, without reading every thread. LangGraph orders
checkpoints by their ids, and ids are times. A store lists its sessions by when they were changed
last, and no checkpoint of a thread is newer than that: so threads are read one after the other, the
last changed first, and what was found in them is yielded as soon as no thread that is left can hold
anything newer. For ids that are no times, all threads are read first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from lockstitch.errors import Conflict, Unreadable
from lockstitch.formats.langgraph.journal import (
    CheckpointNode,
    ThreadJournal,
    ThreadLine,
    line_of,
    rewrite_thread,
    session_of,
)
from lockstitch.formats.langgraph.snapshot import COUNTERS, ticks_of
from lockstitch.journal.records import NEW, JournalEntry
from lockstitch.session.listing import may_be_thread
from lockstitch.stores.base import Backend, Listing

_FIRST = "langgraph"
KeptCheckpoints = set[tuple[str, str]]


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


def delete_thread(backend: Backend, session: str, wait: float) -> None:
    """Remove a session, if there is one."""
    try:
        lease = backend.acquire(session, wait=wait, create=False)
    except Unreadable:
        if backend.head(session) is not None:
            raise
        return
    backend.delete(lease)


def sweep_threads(backend: Backend, border: int) -> int:
    """Remove the threads that were changed last before a moment; returns how many."""
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


def copy_thread(backend: Backend, source: str, target: str, id_: str, wait: float) -> None:
    """Copy all records of a session into a new one, all or none."""
    if backend.head(source) is None:
        return
    if (backend.head(target) or NEW).seq:
        raise Conflict(f"thread {id_} exists; nothing was copied")
    entries = [JournalEntry("copy", 0, msgspec.json.encode(ThreadLine(id_)))]
    for record in backend.read(source):
        line = line_of(record.body)
        if not isinstance(line, ThreadLine):
            names = line.blobs if line is not None else ()
            blobs = tuple(backend.blobs(names).values()) if names else ()
            entries.append(JournalEntry(record.key, record.at, record.body, blobs))
    entries[0] = msgspec.structs.replace(entries[0], at=entries[-1].at)
    backend.add(target, entries, NEW, wait=wait)


def prune_thread(
    backend: Backend, session: str, keep: Callable[[ThreadJournal], KeptCheckpoints], wait: float
) -> None:
    """Keep some checkpoints of a thread, with their writes, and nothing else."""
    try:
        lease = backend.acquire(session, wait=wait, create=False)
    except Unreadable:
        if backend.head(session) is not None:
            raise
        return
    try:
        thread = ThreadJournal()
        at = 0
        for record in backend.read(session):
            thread.apply(record)
            at = record.at
        kept = keep(thread)
        if not kept:
            backend.delete(lease)
        elif len(kept) < sum(map(len, thread.spaces.values())):
            entries = rewrite_thread(thread, kept, backend.blobs, at)
            backend.replace(lease, entries, thread.head.seq)
    finally:
        backend.release(lease)


def last_checkpoints(thread: ThreadJournal) -> KeptCheckpoints:
    """Return the last checkpoint of each namespace, and what its delta channels are made of."""
    kept: KeptCheckpoints = set()
    for space in thread.spaces:
        kept |= {(space, node) for node in _needed(thread, space, thread.latest(space))}
    return kept


def _needed(thread: ThreadJournal, space: str, checkpoint: str) -> list[str]:
    """Return a checkpoint and those before it that its values cannot be told without."""
    node = thread.node(space, checkpoint)
    if node is None:
        return []
    needed = [checkpoint]
    open_ = {name for name in _deltas(node) if name not in node.values}
    for one in thread.ancestors(space, checkpoint) if open_ else ():
        needed.append(one.id)
        open_ -= set(one.values)
        if not open_:
            break
    return needed


def _deltas(node: CheckpointNode) -> list[str]:
    """Return the delta channels of a checkpoint that have been written since their snapshot."""
    raw = node.meta.get(COUNTERS)
    coded: Any = {} if raw is None else msgspec.json.decode(raw)
    counted = coded.get("j") if isinstance(coded, dict) else None
    return list(counted) if isinstance(counted, dict) else list(node.versions) if raw else []


def other_checkpoints(thread: ThreadJournal, gone: KeptCheckpoints) -> KeptCheckpoints:
    """Return all checkpoints but some."""
    every = {(space, node) for space, nodes in thread.spaces.items() for node in nodes}
    return every - gone


def require_whole(thread: ThreadJournal, gone: KeptCheckpoints) -> None:
    """Refuse to remove what a checkpoint that stays cannot be read without."""
    for space, checkpoint in other_checkpoints(thread, gone) if gone else ():
        missing = [one for one in _needed(thread, space, checkpoint) if (space, one) in gone]
        if missing:
            raise Conflict(
                f"thread {thread.id}: checkpoint {checkpoint} is made of what {missing[0]} holds"
                " (DeltaChannel); nothing was removed: prune or delete the thread instead"
            )


# A thread, a namespace in it, and a checkpoint in that.
Spot = tuple[Any, str, str]
# In the ticks of an id, of 100 nanoseconds, from 1582 on.
_EPOCH = 0x01B21DD213814000
_TICKS = 10_000


def milliseconds_of(checkpoint: str) -> int:
    """Return when a checkpoint was made, as its id tells it; 0 if it does not."""
    ticks = ticks_of(checkpoint)
    return 0 if ticks is None else max((ticks - _EPOCH) // _TICKS, 0)


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
        border = (changed + 1) * _TICKS + _EPOCH
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
