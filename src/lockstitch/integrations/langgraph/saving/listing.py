"""All checkpoints of a store, newest first, without reading every thread.

LangGraph orders checkpoints by their ids, and ids are times. A store lists its sessions by when
they were changed last, and no checkpoint of a thread is newer than that: so threads are read one
after the other, the last changed first, and what was found in them is given out as soon as no
thread that is left can hold anything newer. For ids that are no times, all threads are read first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from lockstitch.formats.langgraph.snapshot import ticks_of
from lockstitch.integrations.langgraph.saving.keeping import id_in
from lockstitch.journal.checkpoints import may_be_thread
from lockstitch.stores.base import Backend, Listing

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
    """Give all threads and when each was changed, the last changed first.

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


def newest(
    threads: Iterable[tuple[str, int]], spots: Callable[[str], Sequence[Spot]]
) -> Iterator[Spot]:
    """Give all checkpoints of some threads, newest first; ``spots`` are those of one."""
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
