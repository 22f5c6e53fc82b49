"""A thread as a store holds it: its last checkpoint, what hangs on it, and what a repair adds.

These types know nothing of where they are stored. A reader of some database makes a ``Snapshot``
of a thread and one namespace of it; ``understanding.understood`` makes a transcript of that; and
``settling.settled`` gives the checkpoint that a repair adds, which a writer then stores. The one
doctor of all formats calls them through ``thread.ThreadFormat``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field

from lockstitch.formats.langgraph.naming import COUNTERS, MESSAGES, is_control

MSGPACK = "msgpack"
JSON = "json"


class Coded(Struct, frozen=True):
    """A stored value: LangGraph's name for its coding, and its bytes.

    Names are ``msgpack`` and ``json``, ``null``, ``bytes``, ``bytearray``, ``pickle``, and, for
    what is encrypted, ``msgpack+aes`` and the like.
    """

    tag: str
    data: bytes


class Write(Struct, frozen=True):
    """What a task returned for one channel; ``record`` is the number of the record it is in."""

    task: str
    path: str
    number: int
    channel: str
    value: Coded
    record: int = 0

    @property
    def order(self) -> tuple[str, str, int]:
        """What LangGraph sorts writes by."""
        return self.path, self.task, self.number


class Stored(Struct):
    """A checkpoint: the fields of its body without ``channel_values``, which are ``values``.

    ``body`` holds plain values, decoded (``v``, ``ts``, ``id``, ``channel_versions``,
    ``versions_seen``, ``updated_channels`` and what else there is); a field that is no plain value
    stays ``Coded``. ``missing`` names the channels whose row is gone, where a store has a row for
    each. ``fault`` says why it cannot be decoded, and is empty if it can. ``record`` is the number
    of the record it is in. ``writes`` are those that hang on it, in any order. ``whole`` is all of
    it as it is stored, where that is one value.
    """

    id: str
    parent: str | None = None
    body: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Coded] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    missing: tuple[str, ...] = ()
    fault: str = ""
    record: int = 0
    whole: Coded | None = None

    @property
    def versions(self) -> dict[str, Any]:
        """The versions of its channels."""
        found = self.body.get("channel_versions")
        return found if type(found) is dict else {}


class Lost(Struct, frozen=True):
    """A branch that the head does not descend from: its last checkpoint, and its own turns."""

    leaf: str
    turns: int


class Unsafe(Struct, frozen=True):
    """Something that is called when a value outside the head is loaded, and where it is first.

    ``rows`` counts the values of that namespace that call it.
    """

    place: str
    name: str
    namespace: str = ""
    rows: int = 1


class Snapshot(Struct):
    """One namespace of a thread: its head, and all that is needed to understand it.

    ``ancestors`` are given, nearest first, only where ``wanted(head)`` names channels: up to the
    one that stores the last of these channels, with their writes on these channels. ``cut`` is the
    id of an ancestor whose row is gone. ``earlier`` are the writes of ancestors on the channel of
    the conversation, nearest first; they are given only where ``understanding.unanswered`` names
    calls that have no result, which may be among them; ``failed`` are ancestors on which errors of
    tasks hang, nearest first, with these and the list of their tasks. ``coding`` is that of the
    head's values: ``msgpack`` from Python, ``json`` from LangGraph.js and from old versions.
    ``below`` names the namespaces of subgraphs in the same thread. ``runs`` are those of them that
    hang on the head: runs of subgraphs that had not returned when it was left. ``unsafe`` is what
    was found outside the head, where that was searched.
    """

    thread: str
    namespace: str
    head: Stored
    ancestors: list[Stored] = field(default_factory=list)
    cut: str = ""
    earlier: list[Write] = field(default_factory=list)
    failed: list[Stored] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    below: tuple[str, ...] = ()
    coding: str = MSGPACK
    runs: list[Snapshot] = field(default_factory=list)
    unsafe: list[Unsafe] = field(default_factory=list)


class Settled(Struct):
    """The checkpoint that a repair adds.

    ``values`` holds all its values: those that are untouched are the very objects of the head's.
    ``changed`` names the channels whose value is new, ``removed`` those that the head has and this
    one has not; all of them have new versions in ``body``. ``metadata`` is plain and fits JSON.
    """

    id: str
    parent: str
    body: dict[str, Any]
    values: dict[str, Coded]
    metadata: dict[str, Any]
    changed: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()


def wanted(head: Stored) -> tuple[str, ...]:
    """Give the channels of a head whose value its ancestors hold: a snapshot, and writes on it.

    A channel that has a version, but no value, is either empty or such a channel; which of them
    it is, is told by what LangGraph counts for it. Only the conversation is wanted, if it is clear
    which channel that is.
    """
    if MESSAGES in head.values:
        return ()
    counted = head.metadata.get(COUNTERS)
    known = counted if type(counted) is dict else {}
    names = tuple(name for name in known if _is_lacking(head, name))
    return (MESSAGES,) if MESSAGES in names else names


def _is_lacking(head: Stored, name: Any) -> bool:
    return (
        type(name) is str
        and name in head.versions
        and name not in head.values
        and name not in head.missing
        and not is_control(name)
    )


OWN = "lockstitch"
# What stands between a node and the task that runs it, in the name of a subgraph's namespace, and
# between a subgraph and one within it.
TASK = ":"
WITHIN = "|"


def starts_of(head: Stored) -> set[str]:
    """Return the checkpoints that a run which hangs on a head may have begun at.

    A repair puts a checkpoint behind the one that it mends, and no run can go on from there.
    """
    own = head.metadata.get(OWN)
    repaired = own.get("repaired") if type(own) is dict else None
    return {head.id, repaired} if type(repaired) is str else {head.id}


def is_begun_by(run: Stored, namespace: str, checkpoint: str) -> bool:
    """Whether a run of a subgraph was begun at a checkpoint of a namespace."""
    parents = run.metadata.get("parents")
    return type(parents) is dict and parents.get(namespace) == checkpoint


def hangs_on(run: Stored, namespace: str, head: Stored) -> bool:
    """Whether a run of a subgraph hangs on a head, or on what a repair has put that behind."""
    return any(is_begun_by(run, namespace, one) for one in starts_of(head))


def is_run_in(own: str, namespace: str) -> bool:
    """Whether a namespace is that of a single run of a subgraph, right within another one."""
    inner = own.removeprefix(f"{namespace}{WITHIN}") if namespace else own
    return (
        own != namespace
        and (not namespace or inner != own)
        and (TASK in inner and WITHIN not in inner)
    )


def branches(head: str, parents: Iterable[tuple[str, str | None]]) -> list[list[str]]:
    """Give the branches that a head does not descend from, each from its last checkpoint back.

    ``parents`` are all checkpoints of one namespace, with what they hang on. A branch ends where
    it leaves the line of the head, or that of a branch that was given before.
    """
    known = dict(parents)
    seen = set(_line(head, known, set()))
    inner = {parent for own, parent in known.items() if own != parent}
    found: list[list[str]] = []
    for leaf in sorted(known.keys() - inner - seen, reverse=True):
        line = _line(leaf, known, seen)
        seen.update(line)
        found.append(line)
    return found


def _line(leaf: str, known: dict[str, str | None], seen: set[str]) -> list[str]:
    """Give a checkpoint and those it hangs on, up to one that was seen; loops end, too."""
    line: dict[str, None] = {}
    own: str | None = leaf
    while own is not None and own in known and own not in seen and own not in line:
        line[own] = None
        own = known[own]
    return list(line)
