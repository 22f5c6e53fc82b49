"""What is done to whole threads: removing, pruning, copying."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import msgspec

from lockstitch.errors import Conflict, Unreadable
from lockstitch.formats.langgraph.snapshot import COUNTERS
from lockstitch.journal.checkpoints import (
    Begun,
    Node,
    Thread,
    line_of,
    may_be_thread,
    session_of,
)
from lockstitch.journal.records import NEW, JournalEntry
from lockstitch.journal.rewriting import rewritten
from lockstitch.stores.base import Backend

_FIRST = "langgraph"
Kept = set[tuple[str, str]]


def threads(backend: Backend) -> Iterator[str]:
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
    return line.id if isinstance(line, Begun) and session_of(line.id) == session else None


def delete(backend: Backend, session: str, wait: float) -> None:
    """Remove a session, if there is one."""
    try:
        lease = backend.acquire(session, wait=wait, create=False)
    except Unreadable:
        if backend.head(session) is not None:
            raise
        return
    backend.delete(lease)


def sweep(backend: Backend, border: int) -> int:
    """Remove the threads that were changed last before a moment; gives how many."""
    count = 0
    for listed in list(backend.sessions(after=_FIRST)):
        if not listed.session.startswith(_FIRST) or not may_be_thread(listed.session):
            continue
        if listed.changed < border and id_in(backend, listed.session) is not None:
            count += _swept(backend, listed.session, listed.seq)
    return count


def _swept(backend: Backend, session: str, seq: int) -> bool:
    """Remove a session that nobody holds and that has not gone on."""
    try:
        lease = backend.acquire(session, create=False)
    except (Conflict, Unreadable):
        return False
    if lease.head.seq != seq:
        backend.release(lease)
        return False
    backend.delete(lease)
    return True


def copy(backend: Backend, source: str, target: str, id_: str, wait: float) -> None:
    """Copy all records of a session into a new one, all or none."""
    if backend.head(source) is None:
        return
    if (backend.head(target) or NEW).seq:
        raise Conflict(f"thread {id_} exists; nothing was copied")
    entries = [JournalEntry("copy", 0, msgspec.json.encode(Begun(id_)))]
    for record in backend.read(source):
        line = line_of(record.body)
        if not isinstance(line, Begun):
            names = line.blobs if line is not None else ()
            blobs = tuple(backend.blobs(names).values()) if names else ()
            entries.append(JournalEntry(record.key, record.at, record.body, blobs))
    entries[0] = msgspec.structs.replace(entries[0], at=entries[-1].at)
    backend.add(target, entries, NEW, wait=wait)


def rewrite(backend: Backend, session: str, keep: Callable[[Thread], Kept], wait: float) -> None:
    """Keep some checkpoints of a thread, with their writes, and nothing else."""
    try:
        lease = backend.acquire(session, wait=wait, create=False)
    except Unreadable:
        if backend.head(session) is not None:
            raise
        return
    try:
        thread = Thread()
        at = 0
        for record in backend.read(session):
            thread.apply(record)
            at = record.at
        kept = keep(thread)
        if not kept:
            backend.delete(lease)
        elif len(kept) < sum(map(len, thread.spaces.values())):
            entries = rewritten(thread, kept, backend.blobs, at)
            backend.replace(lease, entries, thread.head.seq)
    finally:
        backend.release(lease)


def last(thread: Thread) -> Kept:
    """Give the last checkpoint of each namespace, and what its delta channels are made of."""
    kept: Kept = set()
    for space in thread.spaces:
        kept |= {(space, node) for node in _needed(thread, space, thread.latest(space))}
    return kept


def _needed(thread: Thread, space: str, checkpoint: str) -> list[str]:
    """Give a checkpoint and those before it that its values cannot be told without."""
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


def _deltas(node: Node) -> list[str]:
    """Give the delta channels of a checkpoint that have been written since their snapshot."""
    raw = node.meta.get(COUNTERS)
    coded: Any = {} if raw is None else msgspec.json.decode(raw)
    counted = coded.get("j") if isinstance(coded, dict) else None
    return list(counted) if isinstance(counted, dict) else list(node.versions) if raw else []


def of_runs(thread: Thread, runs: Collection[str], metadata: Callable[[Node], Any]) -> Kept:
    """Give the checkpoints of some runs."""
    return {
        (space, node.id)
        for space, nodes in thread.spaces.items()
        for node in nodes.values()
        if metadata(node).get("run_id") in runs
    }


def others(thread: Thread, gone: Kept) -> Kept:
    """Give all checkpoints but some."""
    every = {(space, node) for space, nodes in thread.spaces.items() for node in nodes}
    return every - gone


def require_whole(thread: Thread, gone: Kept) -> None:
    """Refuse to remove what a checkpoint that stays cannot be read without."""
    for space, checkpoint in others(thread, gone) if gone else ():
        missing = [one for one in _needed(thread, space, checkpoint) if (space, one) in gone]
        if missing:
            raise Conflict(
                f"thread {thread.id}: checkpoint {checkpoint} is made of what {missing[0]} holds"
                " (DeltaChannel); nothing was removed: prune or delete the thread instead"
            )
