"""The leases this process holds on sessions of one store, and who else may hold one."""

from __future__ import annotations

import threading

from msgspec import Struct
from msgspec.structs import replace

from lockstitch.journal.records import Head
from lockstitch.stores import holders
from lockstitch.stores.holders import Holder
from lockstitch.stores.sqlite.pieces import Tail
from lockstitch.stores.sqlite.rows import SessionRow


class Hold(Struct):
    """A lease of ours; ``head`` is where its session stood after our last write.

    ``tail`` is where the next record goes behind the one with a digest, None if that has to be
    looked up.
    """

    number: int
    session: str
    epoch: int
    token: str
    generation: int
    head: Head
    tail: tuple[bytes, Tail] | None = None


class Leases:
    """All leases taken through one store."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._me = holders.myself()
        self._guard = threading.Lock()
        self._live: dict[str, Hold] = {}
        self._given: set[str] = set()

    def add(self, hold: Hold) -> None:
        """Keep a lease that was taken."""
        with self._guard:
            self._live[hold.token] = hold
            self._given.add(hold.token)

    def get(self, token: str) -> Hold | None:
        """Find a lease that was neither given back nor found taken over."""
        return self._live.get(token)

    def live(self) -> list[Hold]:
        """List those."""
        with self._guard:
            return list(self._live.values())

    def drop(self, token: str) -> Hold | None:
        """Stop keeping one of them."""
        with self._guard:
            return self._live.pop(token, None)

    def forget(self, token: str) -> None:
        """Forget one of them that is no longer in the store."""
        with self._guard:
            self._given.discard(token)

    def drop_all(self) -> list[Hold]:
        """Stop keeping all of them."""
        with self._guard:
            dropped, self._live = list(self._live.values()), {}
        return dropped

    def holder(self, hold: Hold) -> Holder:
        """Describe the holder of a lease of ours."""
        return replace(self._me, token=hold.token)

    def deadline(self) -> float:
        """Say until when a lease counts that was heard of now."""
        return holders.clock() + self.seconds

    def is_held(self, row: SessionRow, generation: int) -> bool:
        """Whether a session's holder may still be there."""
        holder = row.holder
        if holder is None:
            return False
        with self._guard:
            if holder.token in self._given:
                hold = self._live.get(holder.token)
                return hold is not None and hold.generation == generation
        # Processes of another boot cannot share a log with this one: they are gone or elsewhere.
        is_elsewhere = holder.boot and self._me.boot and holder.boot != self._me.boot
        if is_elsewhere or holders.is_gone(holder):
            return False
        # A deadline further away than the lease is long was set before the clock began anew.
        return 0 < row.deadline - holders.clock() <= row.term + 1
