"""A thread as a store holds it: its last checkpoint, its writes, and what a repair adds.

These types do not know where they are stored. A reader of some database makes a ``ThreadSnapshot``
of one namespace of a thread, ``repair.read_thread`` makes a transcript of that, and
``repair.repair_checkpoint`` returns the checkpoint that a repair adds, which a writer then stores.

LangGraph's reserved names, and the order of its ids and versions, are defined once, here, for
databases that are read from outside and for running graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

from msgspec import Struct, field

MESSAGES = "messages"
START = "__start__"
TASKS = "__pregel_tasks"
ERROR = "__error__"
# How the path of a task begins that was sent to a node.
PUSH = "__pregel_push"
SCHEDULED = "__scheduled__"
INTERRUPT = "__interrupt__"
RESUME = "__resume__"
# What a workflow of the functional API keeps for its next run, and what its finished tasks return.
PREVIOUS = "__previous__"
RETURN = "__return__"
END = "__end__"
# The value of ``type``, or the only key, in a value that replaces what a channel holds.
OVERWRITE = "__overwrite__"
# A channel that waits for several nodes: ``join:one+other:next``.
JOIN = "join:"
# The key of the metadata that counts for channels which store only changes.
COUNTERS = "counters_since_delta_snapshot"
# The key under which our repairs write into the metadata.
OWN = "lockstitch"
# The channel to which our guard writes beside a checkpoint.
CLAIM = "__lockstitch_claim__"
# Other writes that are not what a node returned to the state.
_MARKS = ("__no_writes__", RETURN, PREVIOUS, "__error_source_node__")
# The task of writes that belong to none: the input of a run, what a ``Command`` says.
NO_TASK = "00000000-0000-0000-0000-000000000000"

# Separates a thread from a subgraph of it, in the name of a session.
MARK = "#"
# A channel that makes one node run next: ``branch:to:next``.
BRANCH = "branch:"
_TRIGGERS = (BRANCH, "start:")
# The version digit of ids that begin with their time, the part of it that stands after that digit,
# and the latest such time.
_BY_TIME = 6
_LOW = 0xFFF
_LAST = (1 << 60) - 1
# 1970 in the ticks of such an id, which count 100 nanoseconds from 1582 on; and the ticks per
# second.
EPOCH = 0x01B21DD213814000
_TICKS = 10_000_000
_VERSION_WIDTH = 32

Version = str | int | float


def session_name(thread: str, namespace: str) -> str:
    """Return the name of a thread's session; a subgraph of it follows after a mark."""
    if not namespace:
        return thread
    return f"{thread.replace('%', '%25').replace(MARK, '%23')}{MARK}{namespace}"


def is_trigger(channel: str) -> bool:
    """Whether a value in this channel makes a node run next, in a graph of states."""
    return channel in {START, TASKS} or channel.startswith(_TRIGGERS)


def is_control(channel: str) -> bool:
    """Whether a write steers a run, rather than holding what a node returned."""
    own = (ERROR, SCHEDULED, INTERRUPT, RESUME, CLAIM, *_MARKS)
    return channel in own or is_trigger(channel)


def successor(checkpoint: str) -> str | None:
    """Return the id that sorts right after a checkpoint's; None if it is the last, or not a time.

    A repair uses this id, not one of the present moment. A run that is still alive has a later id
    for whatever it writes next, so its turn is never hidden behind a repair.
    """
    time = ticks_of(checkpoint)
    if time is None or time == _LAST or str(UUID(checkpoint)) != checkpoint:
        return None
    ticks = time + 1
    rest = UUID(checkpoint).int & ((1 << 64) - 1)
    return str(UUID(int=(ticks >> 12) << 80 | _BY_TIME << 76 | (ticks & _LOW) << 64 | rest))


def ticks_of(checkpoint: str) -> int | None:
    """Return the time in a checkpoint's id, in steps of 100 nanoseconds; None if it has none."""
    try:
        found = UUID(checkpoint).int
    except ValueError:
        return None
    # Check the version digit only: ids of LangGraph.js need not have the variant that makes it a
    # version.
    return found >> 80 << 12 | found >> 64 & _LOW if found >> 76 & 0xF == _BY_TIME else None


def seconds_of(checkpoint: str) -> float:
    """Return when a checkpoint was made, by its id; 0 for an id without a time."""
    ticks = ticks_of(checkpoint)
    return 0.0 if ticks is None else max((ticks - EPOCH) / _TICKS, 0.0)


def next_version(versions: Iterable[Version]) -> Version:
    """Return the version after all versions of a checkpoint, written in the same way.

    The savers of LangGraph write numbers, or texts of a number with leading zeros and a fraction.
    """
    known = list(versions)
    texts = [version for version in known if isinstance(version, str)]
    if texts:
        last = max(texts)
        whole, dot, fraction = last.partition(".")
        width = max(len(whole), _VERSION_WIDTH if dot else 0)
        return f"{int(whole) + 1:0{width}}{dot}{fraction}"
    numbers = [version for version in known if not isinstance(version, str)]
    return max(numbers, default=0) + 1


MSGPACK = "msgpack"
JSON = "json"


class Coded(Struct, frozen=True):
    """A stored value: LangGraph's name for its coding, and its bytes.

    Names are ``msgpack``, ``json``, ``null``, ``bytes``, ``bytearray`` and ``pickle``, and
    ``msgpack+aes`` and the like for encrypted values.
    """

    tag: str
    data: bytes


class StoredWrite(Struct, frozen=True):
    """What a task returned for one channel; ``record`` is the number of the record it is in."""

    task: str
    path: str
    number: int
    channel: str
    value: Coded
    record: int = 0

    @property
    def order(self) -> tuple[bool, str, str, int]:
        """The key by which LangGraph sorts writes; those of no task come first."""
        return self.task != NO_TASK, self.path, self.task, self.number


class StoredCheckpoint(Struct):
    """A checkpoint: the fields of its body, with ``channel_values`` apart as ``values``.

    ``body`` holds plain values, decoded (``v``, ``ts``, ``id``, ``channel_versions``,
    ``versions_seen``, ``updated_channels`` and others); a field that is not plain stays ``Coded``.
    ``missing`` names the channels whose row is missing, in stores with a row for each. ``fault``
    says why the checkpoint cannot be decoded, and is empty if it can be. ``record`` is the number
    of the record it is in. ``writes`` are the writes attached to it, in any order. ``whole`` is the
    whole checkpoint as stored, if that is one value.
    """

    id: str
    parent: str | None = None
    body: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Coded] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    writes: list[StoredWrite] = field(default_factory=list)
    missing: tuple[str, ...] = ()
    fault: str = ""
    record: int = 0
    whole: Coded | None = None

    @property
    def versions(self) -> dict[str, Any]:
        """The versions of its channels."""
        return _fields(self.body.get("channel_versions"))

    @property
    def counters(self) -> dict[str, Any]:
        """LangGraph's counters for channels that store only changes."""
        return _fields(self.metadata.get(COUNTERS))

    @property
    def own(self) -> dict[str, Any]:
        """What one of our repairs says about it."""
        return _fields(self.metadata.get(OWN))


def _fields(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}


class LostBranch(Struct, frozen=True):
    """A branch from which the head does not descend: its last checkpoint, and its own turns."""

    leaf: str
    turns: int


class UnsafeValue(Struct, frozen=True):
    """A name that is called when a value outside the head is loaded, and its first place.

    ``rows`` counts the values in that namespace that call it.
    """

    place: str
    name: str
    namespace: str = ""
    rows: int = 1


class ThreadSnapshot(Struct):
    """One namespace of a thread: its head, and everything needed to understand it.

    ``ancestors``, nearest first, are only filled if ``wanted(head)`` names channels. They go back
    to the one that stores the last of these channels, with their writes on these channels. ``cut``
    is the id of an ancestor whose row is missing. ``earlier`` are the writes of ancestors on the
    channel of the conversation, nearest first. They are only filled if ``repair.unanswered_calls``
    names calls without a result, which may be among them. ``failed`` are ancestors with errors of
    tasks, nearest first, with these errors and the list of their tasks. ``coding`` is that of the
    head's values: ``msgpack`` from Python, ``json`` from LangGraph.js and from old versions.
    ``below`` names the namespaces of subgraphs in the same thread. ``runs`` are those begun at the
    head: runs of subgraphs that had not returned when it was left. ``unsafe`` lists unsafe values
    outside the head, if these were searched.
    """

    thread: str
    namespace: str
    head: StoredCheckpoint
    ancestors: list[StoredCheckpoint] = field(default_factory=list)
    cut: str = ""
    earlier: list[StoredWrite] = field(default_factory=list)
    failed: list[StoredCheckpoint] = field(default_factory=list)
    lost: list[LostBranch] = field(default_factory=list)
    below: tuple[str, ...] = ()
    coding: str = MSGPACK
    runs: list[ThreadSnapshot] = field(default_factory=list)
    unsafe: list[UnsafeValue] = field(default_factory=list)


class RepairedCheckpoint(Struct):
    """The checkpoint that a repair adds.

    ``values`` holds all its values; untouched ones are the same objects as the head's. ``changed``
    names the channels whose value is new, and ``removed`` those that only the head has; all of them
    have new versions in ``body``. ``metadata`` is plain and fits JSON.
    """

    id: str
    parent: str
    body: dict[str, Any]
    values: dict[str, Coded]
    metadata: dict[str, Any]
    changed: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()


def wanted(head: StoredCheckpoint) -> tuple[str, ...]:
    """Return the channels of a head whose value is in its ancestors: a snapshot and later writes.

    A channel with a version but without a value is either empty or such a channel; LangGraph's
    counters tell which. If it is clear which channel holds the conversation, only that one is
    returned.
    """
    if MESSAGES in head.values:
        return ()
    gone = {*head.values, *head.missing}
    names = tuple(
        name
        for name in head.counters
        if type(name) is str and name in head.versions and name not in gone and not is_control(name)
    )
    return (MESSAGES,) if MESSAGES in names else names


def holders(
    head: StoredCheckpoint, find: Callable[[str], StoredCheckpoint | None]
) -> tuple[list[StoredCheckpoint], str]:
    """Return the ancestors that hold what a head lacks, nearest first, and the id of a missing one.

    ``find`` returns a checkpoint; None if it is not there.
    """
    chain: list[StoredCheckpoint] = []
    lacking, seen, own = set(wanted(head)), {head.id}, head.parent
    while lacking and own is not None and own not in seen:
        seen.add(own)
        found = find(own)
        if found is None:
            return chain, own
        chain.append(found)
        lacking -= found.values.keys()
        own = found.parent
    return chain, ""


# Separators in the name of a subgraph's namespace: between a node and the task that runs it, and
# between a subgraph and one inside it.
TASK = ":"
WITHIN = "|"


def starts_of(head: StoredCheckpoint) -> set[str]:
    """Return the checkpoints at which a run attached to a head may have begun.

    A repair adds a checkpoint after the one that it repairs, and no run can continue from there.
    """
    repaired = head.own.get("repaired")
    return {head.id, repaired} if type(repaired) is str else {head.id}


def is_begun_by(run: Mapping[str, Any], namespace: str, checkpoint: str) -> bool:
    """Whether a run of a subgraph, by its metadata, began at a checkpoint of a namespace."""
    parents = run.get("parents")
    return isinstance(parents, dict) and parents.get(namespace) == checkpoint


def is_attached_to(run: Mapping[str, Any], namespace: str, head: StoredCheckpoint) -> bool:
    """Whether a run of a subgraph began at a head, or at the checkpoint that the head repaired."""
    return any(is_begun_by(run, namespace, one) for one in starts_of(head))


def is_run_in(own: str, namespace: str) -> bool:
    """Whether a namespace is that of a single run of a subgraph, directly inside another one."""
    inner = own.removeprefix(f"{namespace}{WITHIN}") if namespace else own
    return (
        own != namespace
        and (not namespace or inner != own)
        and (TASK in inner and WITHIN not in inner)
    )


def branches(head: str, parents: Iterable[tuple[str, str | None]]) -> list[list[str]]:
    """Return the branches from which a head does not descend, each from its last checkpoint back.

    ``parents`` are all checkpoints of one namespace, each with its parent. A branch ends where it
    joins the line of the head, or that of an earlier branch.
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
    """Return a checkpoint and its ancestors, up to one that was seen; loops end, too."""
    line: dict[str, None] = {}
    own: str | None = leaf
    while own is not None and own in known and own not in seen and own not in line:
        line[own] = None
        own = known[own]
    return list(line)
