"""The sessions of a store as the recorder knows them: found, read again, extended and forked.

A tree in memory says which session holds how much of a request, and what follows from that. It is
rebuilt from the records of a store, whose keys contain the hashes. ``p@HASH@LENGTH`` ends a message
of the chain, with ``@RESPONSE`` if a provider keeps the conversation under a response's id.
``i@DIGEST@…`` identifies its instructions.
"""

from __future__ import annotations

import threading
import time
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from typing import TypeVar

from msgspec import Struct

from lockstitch.errors import Busy, Damaged, Unreadable, Unsure
from lockstitch.journal.events import (
    AskedCall,
    Described,
    Ended,
    Forked,
    Instructed,
    Noted,
    Partial,
    Replied,
    event_of,
)
from lockstitch.journal.records import (
    NEW,
    Head,
    JournalEntry,
    JournalRecord,
    blob_name,
    chain_entries,
)
from lockstitch.proxy.recording.facts import HashChain, spell_hash, tag_of
from lockstitch.stores.base import Backend, Listing

# The notes that hold the fields of a request besides its messages, each labelled with its name.
FIELD = "request"
_NODE, _INSTRUCTIONS = "p@", "i@"
_QUIET = (Described, Ended, Forked, Noted)
# How many ends of messages to keep in memory, of all sessions together.
_MOST = 100_000


def node_key(end: bytes, length: int, response: str = "") -> str:
    """Return the key of the record that ends a message."""
    key = f"{_NODE}{spell_hash(end)}@{length}"
    return f"{key}@{response}" if response else key


def instructions_key(digest: str, salt: str) -> str:
    """Return the key of a record that holds the model's instructions."""
    return f"{_INSTRUCTIONS}{digest}@{salt}"


class ChainEnd(Struct, frozen=True, gc=False):
    """The end of a message: its record, and the number of links in the chain up to there."""

    seq: int
    length: int


class SessionBranch:
    """One session of the tree, as far as its records were read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.head: Head = NEW
        self.nodes: dict[bytes, ChainEnd] = {}
        self.responses: dict[str, bytes] = {}
        self.about: Described | None = None
        self._said = 0
        self._instructions: list[tuple[int, str]] = []
        self._fields: list[tuple[int, str, str]] = []
        self._calls: list[tuple[int, tuple[AskedCall, ...]]] = []

    def take(self, records: Iterable[JournalRecord]) -> list[bytes]:
        """Read more records; return the hashes that are new."""
        new: list[bytes] = []
        for record in records:
            event = event_of(record)
            if record.key.startswith(_NODE):
                _, end, length, *response = record.key.split("@")
                new.append(urlsafe_b64decode(end))
                self.nodes[new[-1]] = ChainEnd(record.seq, int(length))
                for one in response:
                    self.responses[one] = new[-1]
                self._said = record.seq
            seq = record.seq
            if isinstance(event, Described):
                self.about = event
            elif isinstance(event, Noted) and event.name == FIELD:
                self._fields.append(
                    (seq, event.label, event.blob or blob_name(bytes(event.payload)))
                )
            elif isinstance(event, Instructed):
                is_ours = record.key.startswith(_INSTRUCTIONS)
                self._instructions.append((seq, record.key.split("@")[1] if is_ours else ""))
            elif isinstance(event, Replied | Partial):
                self._calls.append((seq, event.calls))
            if not isinstance(event, _QUIET):
                self._said = seq
            self.head = Head(record.seq, record.digest, record.epoch)
        return new

    def is_free(self, seq: int) -> bool:
        """Whether nothing was said after a record."""
        return self._said <= seq

    def instructions_at(self, seq: int) -> str:
        """Return the digest of the model's instructions at a record."""
        return next((digest for at, digest in reversed(self._instructions) if at <= seq), "")

    def fields_at(self, seq: int) -> dict[str, str]:
        """Return the digests of a request's other fields at a record, by name."""
        return {label: digest for at, label, digest in self._fields if at <= seq}

    def calls_at(self, seq: int) -> list[tuple[int, int, AskedCall]]:
        """Return all calls up to a record: the reply, the index in it, and the call's names."""
        return [
            (at, index, asked)
            for at, calls in self._calls
            if at <= seq
            for index, asked in enumerate(calls)
        ]

    def fork_at(self, name: str, seq: int, head: Head) -> SessionBranch:
        """Return what a fork at a record holds."""
        fork = SessionBranch(name)
        fork.head, fork.about, fork._said = head, self.about, seq
        fork.nodes = {end: node for end, node in self.nodes.items() if node.seq <= seq}
        fork.responses = {one: end for one, end in self.responses.items() if end in fork.nodes}
        fork._instructions = [one for one in self._instructions if one[0] <= seq]
        fork._fields = [one for one in self._fields if one[0] <= seq]
        fork._calls = [one for one in self._calls if one[0] <= seq]
        return fork


class Relation(Enum):
    """How a request relates to the conversations that are known."""

    NEW = "new"
    CONTINUES = "continues"
    REPEATS = "repeats"
    FORKS = "forks"


class SessionPlacement(Struct, frozen=True):
    """Where a request belongs: its session, the record it follows, and how many messages are there.

    ``head`` is the end of that session when this was decided; the decision holds only while it is
    the end. ``is_sure`` is false if another worker's session may hold more of the request.
    """

    step: Relation
    branch: SessionBranch | None = None
    head: Head = NEW
    seq: int = 0
    matched: int = 0
    is_sure: bool = False


class SessionTree:
    """The sessions that were seen lately, by the hashes in them."""

    def __init__(self, most: int = _MOST) -> None:
        self._branches: OrderedDict[str, SessionBranch] = OrderedDict()
        self._places: dict[bytes, dict[str, None]] = {}
        self._most = most
        self._count = 0

    def branch(self, name: str) -> SessionBranch | None:
        """Return a session, if it is known."""
        return self._branches.get(name)

    def learn(self, branch: SessionBranch, ends: Iterable[bytes]) -> None:
        """Add more hashes of a session; hashes that were not used lately are forgotten."""
        if self._branches.get(branch.name) is not branch:
            self.forget(branch.name)
            ends = branch.nodes
        self._branches[branch.name] = branch
        self._branches.move_to_end(branch.name)
        for end in ends:
            self._places.setdefault(end, {})[branch.name] = None
            self._count += 1
        while self._count > self._most and len(self._branches) > 1:
            self.forget(next(iter(self._branches)))

    def forget(self, name: str) -> None:
        """Forget a session."""
        branch = self._branches.pop(name, None)
        for end in branch.nodes if branch else ():
            names = self._places.get(end, {})
            if name in names:
                del names[name]
                self._count -= 1
            if not names:
                self._places.pop(end, None)

    def answered(self, response: str) -> tuple[SessionBranch, bytes] | None:
        """Return the session that holds a response, and the hash after it."""
        for branch in reversed(self._branches.values()):
            if response in branch.responses:
                return branch, branch.responses[response]
        return None

    def decide(
        self, chain: HashChain, instructions: str, replies: Sequence[bool]
    ) -> SessionPlacement:
        """Return where a request belongs; ``replies`` says which of its messages are a model's.

        It repeats a request if all of it is there under the same instructions. Otherwise the
        longest part that is there counts: if that is the end of a session, the request continues
        it, and elsewhere it is a fork. With other instructions and no reply in common, it is
        another conversation.
        """
        for matched in range(len(chain.ends), 0, -1):
            found = self._at(chain.ends[matched - 1])
            is_whole = matched == len(chain.ends)
            if is_whole or not any(replies[:matched]):
                found = [one for one in found if one[0].instructions_at(one[1]) == instructions]
            if not found:
                continue
            branch, seq = max(
                found,
                key=lambda one: (
                    one[0].is_free(one[1]),
                    one[0].instructions_at(one[1]) == instructions,
                ),
            )
            is_free = branch.is_free(seq)
            if is_whole:
                return SessionPlacement(
                    Relation.REPEATS, branch, branch.head, seq, matched, is_sure=True
                )
            step = Relation.CONTINUES if is_free else Relation.FORKS
            is_sure = is_free and not any(replies[matched:])
            return SessionPlacement(step, branch, branch.head, seq, matched, is_sure)
        return SessionPlacement(Relation.NEW)

    def _at(self, end: bytes) -> list[tuple[SessionBranch, int]]:
        """Return the sessions that have a hash, the latest first, each with its record."""
        branches = (self._branches[name] for name in reversed(self._places.get(end, {})))
        return [(branch, branch.nodes[end].seq) for branch in branches]


T = TypeVar("T")
# How long to wait for a store that cannot be reached, and for a session that somebody holds.
PATIENCE = 30.0
_PAUSE = 0.2
_HELD = 0.5
# How many sessions with the same beginning to examine, the last changed first.
_ALIKE = 32


class Keeper:
    """A store and what is known about it; threads may share it.

    Nothing is locked while a model thinks: a write names the record that it follows, and raises
    ``Moved`` if somebody else was faster, in this process or another.
    """

    def __init__(self, backend: Backend, *, patience: float = PATIENCE) -> None:
        self.backend = backend
        self._tree = SessionTree()
        self._patience = patience
        self._lock = threading.Lock()

    def patiently(self, work: Callable[[], T]) -> T:
        """Repeat work while the store cannot be reached; the work must start from what is there."""
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
                    self._tree = SessionTree()
                time.sleep(_PAUSE)

    def decide(
        self, chain: HashChain, instructions: str, replies: Sequence[bool]
    ) -> SessionPlacement:
        """Return where a request belongs, by what is known."""
        with self._lock:
            return self._tree.decide(chain, instructions, replies)

    def look(self, chain: HashChain) -> None:
        """Read the store's sessions that share a beginning with a request, the longest first."""
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

    def answered(self, response: str, tag: str) -> tuple[SessionBranch, bytes] | None:
        """Return the session that holds a provider's response, and the hash after it."""
        with self._lock:
            found = self._tree.answered(response)
        if found is None and self._look_for(tag):
            with self._lock:
                found = self._tree.answered(response)
        return found

    def branch(self, name: str) -> SessionBranch | None:
        """Return a session, read from the store if it is not known; None if it is gone."""
        return self._known(name) or self.refresh(name)

    def _known(self, name: str) -> SessionBranch | None:
        with self._lock:
            return self._tree.branch(name)

    def refresh(self, name: str) -> SessionBranch | None:
        """Read what was added to a session; return None if it is gone or damaged."""
        branch = self._known(name) or SessionBranch(name)
        head = self.backend.head(name)
        records: list[JournalRecord] | None = None
        if head is not None and head.seq >= branch.head.seq:
            with suppress(Damaged):
                records = list(self.backend.read(name, branch.head))
        with self._lock:
            if records is None:
                self._tree.forget(name)
                return None
            # another thread may have read some of them in the meantime
            fresh = [record for record in records if record.seq > branch.head.seq]
            self._tree.learn(branch, branch.take(fresh))
        return branch

    def free_end(self, branch: SessionBranch, seq: int) -> Head | None:
        """Return the end of a session, if nothing was said in it after a record."""
        with self._lock:
            return branch.head if branch.is_free(seq) else None

    def add(self, branch: SessionBranch, entries: Sequence[JournalEntry], after: Head) -> int:
        """Add entries at the end of a session; return the number of the last record.

        Raises ``Moved`` if somebody has added something since, and ``Held`` if somebody is doing
        so.
        """
        head = self.backend.add(branch.name, entries, after, wait=_HELD)
        with self._lock:
            if branch.head.seq == after.seq:
                self._tree.learn(branch, branch.take(chain_entries(after, head.epoch, entries)))
        return head.seq

    def fork(self, source: SessionBranch, seq: int, name: str) -> SessionBranch:
        """Fork a session at a record; nobody else knows the fork until something is added to it."""
        head = self.backend.fork(source.name, seq, name)
        with self._lock:
            return source.fork_at(name, seq, head)
