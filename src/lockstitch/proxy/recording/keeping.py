"""The sessions of a store as the recorder knows them: found, read again, added to and forked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from lockstitch.errors import Busy, Damaged, Unreadable, Unsure
from lockstitch.journal.records import Entry, Head, chained
from lockstitch.proxy.recording.chains import Chain, tag_of
from lockstitch.proxy.recording.tree import Branch, Decision, Tree
from lockstitch.stores.base import Backend, Listing

T = TypeVar("T")
# How long a store that is away is waited for, and a session that somebody holds.
PATIENCE = 30.0
_PAUSE = 0.2
_HELD = 0.5
# So many sessions with the same beginning are looked at, those that were changed last.
_ALIKE = 32


class Keeper:
    """A store and what is known of it, for many threads.

    Nothing is locked while a model thinks: a write names the record that it stands behind, and
    raises ``Moved`` if somebody else was there first, in this process or another.
    """

    def __init__(self, backend: Backend, *, patience: float = PATIENCE) -> None:
        self.backend = backend
        self._tree = Tree()
        self._patience = patience
        self._lock = threading.Lock()

    def patiently(self, work: Callable[[], T]) -> T:
        """Do something again while the store is away; it has to begin with what is there."""
        until = time.monotonic() + self._patience
        while True:
            try:
                return work()
            except Damaged:
                raise
            except (Unsure, Busy, Unreadable):
                if time.monotonic() >= until:
                    raise
                with self._lock:
                    self._tree = Tree()
                time.sleep(_PAUSE)

    def decide(self, chain: Chain, told: str, replies: Sequence[bool]) -> Decision:
        """Say what a request is, by what is known."""
        with self._lock:
            return self._tree.decide(chain, told, replies)

    def look(self, chain: Chain) -> None:
        """Learn of the sessions in the store that begin as a request does, the longest first."""
        for length in sorted(chain.marks, reverse=True):
            if self._look_for(tag_of(chain.marks[length])):
                return

    def _look_for(self, tag: str) -> bool:
        found = list(self.backend.listed(Listing(newest=True, tag=tag), _ALIKE))
        for listed in found:
            branch = self._known(listed.session)
            if branch is None or branch.head.seq != listed.seq:
                self.refresh(listed.session)
        return bool(found)

    def answered(self, response: str, tag: str) -> tuple[Branch, bytes] | None:
        """Return the session that holds a response of the provider's, and the hash behind it."""
        with self._lock:
            found = self._tree.answered(response)
        if found is None and self._look_for(tag):
            with self._lock:
                found = self._tree.answered(response)
        return found

    def branch(self, name: str) -> Branch | None:
        """Return a session, read from the store if it is not known; None if it is gone."""
        return self._known(name) or self.refresh(name)

    def _known(self, name: str) -> Branch | None:
        with self._lock:
            return self._tree.branch(name)

    def refresh(self, name: str) -> Branch | None:
        """Read what was added to a session; None if it is gone or damaged."""
        branch = self._known(name) or Branch(name)
        head = self.backend.head(name)
        if head is None or head.seq < branch.head.seq:
            self._forget(name)
            return None
        try:
            records = list(self.backend.read(name, branch.head))
        except Damaged:
            self._forget(name)
            return None
        with self._lock:
            # another thread may have read some of them meanwhile
            fresh = [record for record in records if record.seq > branch.head.seq]
            self._tree.learn(branch, branch.take(fresh))
        return branch

    def _forget(self, name: str) -> None:
        with self._lock:
            self._tree.forget(name)

    def free_end(self, branch: Branch, seq: int) -> Head | None:
        """Return where a session ends, if nothing was said in it behind a record."""
        with self._lock:
            return branch.head if branch.is_free(seq) else None

    def add(self, branch: Branch, entries: Sequence[Entry], after: Head) -> int:
        """Add to a session where it ended; return the number of the last record.

        Raises ``Moved`` if somebody added something since, and ``Held`` if they are at it.
        """
        head = self.backend.add(branch.name, entries, after, wait=_HELD)
        with self._lock:
            if branch.head.seq == after.seq:
                self._tree.learn(branch, branch.take(chained(after, head.epoch, entries)))
        return head.seq

    def fork(self, source: Branch, seq: int, name: str) -> Branch:
        """Make a fork of a session at a record; nobody else knows it until something is added."""
        head = self.backend.fork(source.name, seq, name)
        with self._lock:
            return source.forked(name, seq, head)
