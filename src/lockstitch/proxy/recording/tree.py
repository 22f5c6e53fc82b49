"""The tree of conversations: which session holds how much of a request, and what follows from it.

Everything here is memory only. It is read back from the records of a store, in whose keys the
hashes stand: ``p@HASH@LENGTH`` ends a message of the chain, with ``@RESPONSE`` where a provider
keeps the conversation under a response's id, and ``i@DIGEST@…`` says what the model is told.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from enum import Enum

from msgspec import Struct

from lockstitch.journal.events import (
    Asked,
    Described,
    Ended,
    Event,
    Forked,
    Instructed,
    Noted,
    Partial,
    Replied,
    event_of,
)
from lockstitch.journal.records import NEW, Head, Record, blob_name
from lockstitch.proxy.recording.chains import Chain, spelled

# The notes that hold the fields of a request beside its messages, each under its label.
FIELD = "request"
_NODE, _TOLD = "p@", "i@"
_QUIET = (Described, Ended, Forked, Noted)
# So many ends of messages are kept in memory, of all sessions together.
_MOST = 100_000


def node_key(end: bytes, length: int, response: str = "") -> str:
    """Return the key of the record that ends a message."""
    key = f"{_NODE}{spelled(end)}@{length}"
    return f"{key}@{response}" if response else key


def told_key(digest: str, salt: str) -> str:
    """Return the key of a record that says what the model is told."""
    return f"{_TOLD}{digest}@{salt}"


class Node(Struct, frozen=True, gc=False):
    """Where a message ends: the record, and how many links the chain has there."""

    seq: int
    length: int


class Branch:
    """One session of the tree as far as its records were read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.head: Head = NEW
        self.nodes: dict[bytes, Node] = {}
        self.responses: dict[str, bytes] = {}
        self.about: Described | None = None
        self._said = 0
        self._told: list[tuple[int, str]] = []
        self._fields: list[tuple[int, str, str]] = []
        self._calls: list[tuple[int, tuple[Asked, ...]]] = []

    def take(self, records: Iterable[Record]) -> list[bytes]:
        """Read more records; return the hashes that are new."""
        new: list[bytes] = []
        for record in records:
            event = event_of(record)
            if record.key.startswith(_NODE):
                _, end, length, *response = record.key.split("@")
                new.append(urlsafe_b64decode(end))
                self.nodes[new[-1]] = Node(record.seq, int(length))
                for one in response:
                    self.responses[one] = new[-1]
                self._said = record.seq
            self._note(record, event)
            self.head = Head(record.seq, record.digest, record.epoch)
        return new

    def _note(self, record: Record, event: Event) -> None:
        seq = record.seq
        if isinstance(event, Described):
            self.about = event
        elif isinstance(event, Noted) and event.name == FIELD:
            self._fields.append((seq, event.label, event.blob or blob_name(bytes(event.payload))))
        elif isinstance(event, Instructed):
            is_ours = record.key.startswith(_TOLD)
            self._told.append((seq, record.key.split("@")[1] if is_ours else ""))
        elif isinstance(event, Replied | Partial):
            self._calls.append((seq, event.calls))
        if not isinstance(event, _QUIET):
            self._said = seq

    def is_free(self, seq: int) -> bool:
        """Whether nothing was said behind a record."""
        return self._said <= seq

    def told_at(self, seq: int) -> str:
        """Return the digest of what the model is told at a record."""
        return next((digest for at, digest in reversed(self._told) if at <= seq), "")

    def fields_at(self, seq: int) -> dict[str, str]:
        """Return the digests of a request's other fields, by their names."""
        return {label: digest for at, label, digest in self._fields if at <= seq}

    def calls_at(self, seq: int) -> list[tuple[int, int, Asked]]:
        """Return all calls up to a record: their reply's, their number in it, their names."""
        return [
            (at, index, asked)
            for at, calls in self._calls
            if at <= seq
            for index, asked in enumerate(calls)
        ]

    def forked(self, name: str, seq: int, head: Head) -> Branch:
        """Return what a fork at a record is known to hold."""
        fork = Branch(name)
        fork.head, fork.about, fork._said = head, self.about, seq
        fork.nodes = {end: node for end, node in self.nodes.items() if node.seq <= seq}
        fork.responses = {one: end for one, end in self.responses.items() if end in fork.nodes}
        fork._told = [one for one in self._told if one[0] <= seq]
        fork._fields = [one for one in self._fields if one[0] <= seq]
        fork._calls = [one for one in self._calls if one[0] <= seq]
        return fork


class Step(Enum):
    """What a request is to the conversations there are."""

    NEW = "new"
    CONTINUES = "continues"
    REPEATS = "repeats"
    FORKS = "forks"


class Decision(Struct, frozen=True):
    """What a request is: of which session, from which record, how many of its messages are there.

    ``head`` is where that session ended when this was decided: it holds only behind that.
    ``is_sure`` is false where another worker's session may hold more of the request.
    """

    step: Step
    branch: Branch | None = None
    head: Head = NEW
    seq: int = 0
    matched: int = 0
    is_sure: bool = False


class Tree:
    """The sessions that were seen lately, by the hashes in them."""

    def __init__(self, most: int = _MOST) -> None:
        self._branches: OrderedDict[str, Branch] = OrderedDict()
        self._places: dict[bytes, dict[str, None]] = {}
        self._most = most
        self._count = 0

    def branch(self, name: str) -> Branch | None:
        """Return a session, if it is known."""
        return self._branches.get(name)

    def learn(self, branch: Branch, ends: Iterable[bytes]) -> None:
        """Know a session by some more hashes; those that nobody asked for lately are forgotten."""
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
        """Know a session no more."""
        branch = self._branches.pop(name, None)
        for end in branch.nodes if branch else ():
            names = self._places.get(end, {})
            if name in names:
                del names[name]
                self._count -= 1
            if not names:
                self._places.pop(end, None)

    def answered(self, response: str) -> tuple[Branch, bytes] | None:
        """Return the session that holds a response, and the hash behind that."""
        for branch in reversed(self._branches.values()):
            if response in branch.responses:
                return branch, branch.responses[response]
        return None

    def decide(self, chain: Chain, told: str, replies: Sequence[bool]) -> Decision:
        """Say what a request is; ``replies`` tells which of its messages are a model's.

        It repeats a request if all of it is there under the same instructions. Else the longest
        part that is there counts: where that is the end of a session, the request continues it,
        and elsewhere it is a fork. Without a reply in common, other instructions make another
        conversation.
        """
        for matched in range(len(chain.ends), 0, -1):
            found = self._at(chain.ends[matched - 1])
            is_whole = matched == len(chain.ends)
            if is_whole or not any(replies[:matched]):
                found = [one for one in found if one[0].told_at(one[1]) == told]
            if not found:
                continue
            branch, seq = max(found, key=lambda one: _fitness(one[0], one[1], told))
            is_free = branch.is_free(seq)
            if is_whole:
                return Decision(Step.REPEATS, branch, branch.head, seq, matched, is_sure=True)
            step = Step.CONTINUES if is_free else Step.FORKS
            is_sure = is_free and not any(replies[matched:])
            return Decision(step, branch, branch.head, seq, matched, is_sure)
        return Decision(Step.NEW)

    def _at(self, end: bytes) -> list[tuple[Branch, int]]:
        """Return the sessions that have a hash, the latest first, each with its record."""
        branches = (self._branches[name] for name in reversed(self._places.get(end, {})))
        return [(branch, branch.nodes[end].seq) for branch in branches]


def _fitness(branch: Branch, seq: int, told: str) -> tuple[bool, bool]:
    return branch.is_free(seq), branch.told_at(seq) == told
