"""LangGraph's checkpoints in a PostgreSQL: read gently, repaired by one more row, taken back."""

from __future__ import annotations

import zlib

from msgspec import Struct

# The kind of a store with a PostgreSQL address.
KIND = "postgresql"


class UndoneThread(Struct, frozen=True):
    """A thread whose repair was undone, or ``error``, which says why it was not."""

    session: str
    error: str | None = None


class Shard(Struct, frozen=True):
    """One of ``count`` parts of all threads, counted from 1; each thread is in exactly one.

    The id of a thread alone decides which one, so machines that work on different shards need not
    know of each other. A thread and its namespaces are in the same shard.
    """

    number: int = 1
    count: int = 1

    def holds(self, thread: str) -> bool:
        """Whether a thread is in this shard."""
        return zlib.crc32(thread.encode("utf-8", "surrogatepass")) % self.count == self.number - 1
