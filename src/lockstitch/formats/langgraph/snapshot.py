"""A thread as a store holds it: its last checkpoint, what hangs on it, and what a repair adds.

These types know nothing of where they are stored. A reader of some database makes a
``ThreadSnapshot`` of a thread and one namespace of it; ``repair.read_thread`` makes a transcript of
that; and ``repair.repair_checkpoint`` gives the checkpoint that a repair adds, which a writer then
stores.

What LangGraph writes under names of its own, and the order of its ids and versions, is written
down once, here: for the databases that are read from outside and for the graphs that run.
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
# What the path of a task begins with that was sent to a node.
PUSH = "__pregel_push"
SCHEDULED = "__scheduled__"
INTERRUPT = "__interrupt__"
RESUME = "__resume__"
# What a workflow of the functional API keeps for its next run, and what its finished tasks return.
PREVIOUS = "__previous__"
RETURN = "__return__"
END = "__end__"
# What stands behind ``type``, or alone, in a value that replaces what a channel holds.
OVERWRITE = "__overwrite__"
# A channel that waits for several nodes: ``join:one+other:next``.
JOIN = "join:"
# What is counted in the metadata for channels that store only changes.
COUNTERS = "counters_since_delta_snapshot"
# What a repair of ours writes into the metadata.
OWN = "lockstitch"
# What a guard of ours writes beside a checkpoint.
CLAIM = "__lockstitch_claim__"
# What else stands among the writes without being what a node returned to the state.
_MARKS = ("__no_writes__", RETURN, PREVIOUS, "__error_source_node__")
# Writes that belong to no task: the input of a run, what a ``Command`` says.
NO_TASK = "00000000-0000-0000-0000-000000000000"

# What stands between a thread and a subgraph of it, in the name of a session.
MARK = "#"
# A channel that makes one node run next: ``branch:to:next``.
BRANCH = "branch:"
_TRIGGERS = (BRANCH, "start:")
_BY_TIME = 6
_LOW = 0xFFF
_LAST = (1 << 60) - 1
# 1970 in the ticks of such an id, of 100 nanoseconds, from 1582 on; and how many a second has.
EPOCH = 0x01B21DD213814000
_TICKS = 10_000_000
_VERSION_WIDTH = 32

Version = str | int | float


def session_name(thread: str, namespace: str) -> str:
    """Name a thread; a subgraph of it stands behind a mark."""
    if not namespace:
        return thread
    return f"{thread.replace('%', '%25').replace(MARK, '%23')}{MARK}{namespace}"


def is_trigger(channel: str) -> bool:
    """Whether a value in this channel makes a node run next, in a graph of states."""
    return channel in {START, TASKS} or channel.startswith(_TRIGGERS)


def is_control(channel: str) -> bool:
    """Whether a write steers a run, and does not hold what a node returned."""
    own = (ERROR, SCHEDULED, INTERRUPT, RESUME, CLAIM, *_MARKS)
    return channel in own or is_trigger(channel)


def successor(checkpoint: str) -> str | None:
    """Return the id that sorts right behind a checkpoint's; None for the last one, or for no time.

    A repair takes this one and not that of the moment: a run that is still alive has a later id
    for whatever it writes next, so that its turn is never hidden behind a repair.
    """
    time = ticks_of(checkpoint)
    if time is None or time == _LAST or str(UUID(checkpoint)) != checkpoint:
        return None
    ticks = time + 1
    rest = UUID(checkpoint).int & ((1 << 64) - 1)
    return str(UUID(int=(ticks >> 12) << 80 | _BY_TIME << 76 | (ticks & _LOW) << 64 | rest))


def ticks_of(checkpoint: str) -> int | None:
    """Return the time in a checkpoint's id, in steps of 100 nanoseconds; None if it is no time."""
    try:
        found = UUID(checkpoint).int
    except ValueError:
        return None
    # By its digit: the ids of LangGraph.js need not have the variant that makes it a version.
    return found >> 80 << 12 | found >> 64 & _LOW if found >> 76 & 0xF == _BY_TIME else None


def seconds_of(checkpoint: str) -> float:
    """Return when a checkpoint was made, as its id says; 0 for an id that is no time."""
    ticks = ticks_of(checkpoint)
    return 0.0 if ticks is None else max((ticks - EPOCH) / _TICKS, 0.0)


def next_version(versions: Iterable[Version]) -> Version:
    """Return the version behind all versions of a checkpoint, in the way in which they are written.

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

    Names are ``msgpack`` and ``json``, ``null``, ``bytes``, ``bytearray``, ``pickle``, and, for
    what is encrypted, ``msgpack+aes`` and the like.
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
        """What LangGraph sorts writes by; what no task wrote comes first."""
        return self.task != NO_TASK, self.path, self.task, self.number


class StoredCheckpoint(Struct):
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
        """What LangGraph counts for channels that store only changes."""
        return _fields(self.metadata.get(COUNTERS))

    @property
    def own(self) -> dict[str, Any]:
        """What a repair of ours says of it."""
        return _fields(self.metadata.get(OWN))


def _fields(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}


class LostBranch(Struct, frozen=True):
    """A branch that the head does not descend from: its last checkpoint, and its own turns."""

    leaf: str
    turns: int


class UnsafeValue(Struct, frozen=True):
    """Something that is called when a value outside the head is loaded, and where it is first.

    ``rows`` counts the values of that namespace that call it.
    """

    place: str
    name: str
    namespace: str = ""
    rows: int = 1


class ThreadSnapshot(Struct):
    """One namespace of a thread: its head, and all that is needed to understand it.

    ``ancestors`` are there, nearest first, only where ``wanted(head)`` names channels: up to the
    one that stores the last of these channels, with their writes on these channels. ``cut`` is the
    id of an ancestor whose row is gone. ``earlier`` are the writes of ancestors on the channel of
    the conversation, nearest first; they are there only where ``repair.unanswered_calls`` names
    calls that have no result, which may be among them; ``failed`` are ancestors on which errors of
    tasks hang, nearest first, with these and the list of their tasks. ``coding`` is that of the
    head's values: ``msgpack`` from Python, ``json`` from LangGraph.js and from old versions.
    ``below`` names the namespaces of subgraphs in the same thread. ``runs`` are those of them that
    hang on the head: runs of subgraphs that had not returned when it was left. ``unsafe`` is what
    was found outside the head, where that was searched.
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


def wanted(head: StoredCheckpoint) -> tuple[str, ...]:
    """Return the channels of a head whose value its ancestors hold: a snapshot, and writes on it.

    A channel that has a version, but no value, is either empty or such a channel; which of them
    it is, what LangGraph counts for it says. Only the conversation is wanted, if it is clear
    which channel that is.
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
    """Return the ancestors that hold what a head lacks, nearest first, and which of them is gone.

    ``find`` reads a checkpoint; None if it is not there.
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


# What stands between a node and the task that runs it, in the name of a subgraph's namespace, and
# between a subgraph and one within it.
TASK = ":"
WITHIN = "|"


def starts_of(head: StoredCheckpoint) -> set[str]:
    """Return the checkpoints that a run which hangs on a head may have begun at.

    A repair puts a checkpoint behind the one that it repairs, and no run can go on from there.
    """
    repaired = head.own.get("repaired")
    return {head.id, repaired} if type(repaired) is str else {head.id}


def is_begun_by(run: Mapping[str, Any], namespace: str, checkpoint: str) -> bool:
    """Whether a run of a subgraph, by its metadata, was begun at a checkpoint of a namespace."""
    parents = run.get("parents")
    return isinstance(parents, dict) and parents.get(namespace) == checkpoint


def hangs_on(run: Mapping[str, Any], namespace: str, head: StoredCheckpoint) -> bool:
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
    """Return the branches that a head does not descend from, each from its last checkpoint back.

    ``parents`` are all checkpoints of one namespace, with what they hang on. A branch ends where
    it leaves the line of the head, or that of a branch before it.
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
    """Return a checkpoint and those it hangs on, up to one that was seen; loops end, too."""
    line: dict[str, None] = {}
    own: str | None = leaf
    while own is not None and own in known and own not in seen and own not in line:
        line[own] = None
        own = known[own]
    return list(line)
