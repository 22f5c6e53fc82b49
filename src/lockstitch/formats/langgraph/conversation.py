"""The conversation of a thread: that of its head, with what hangs on it merged in.

What a run was told, and what its finished tasks returned, stays beside the checkpoint until the
whole step is done.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from lockstitch.conversation.parts import CALL, RESULT
from lockstitch.dialects.langchain import LangChain
from lockstitch.formats.langgraph.coding import Coding, Item, Undecodable, coding_of
from lockstitch.formats.langgraph.failing import failures
from lockstitch.formats.langgraph.naming import (
    END,
    ERROR,
    JOIN,
    MESSAGES,
    NO_TASK,
    PREVIOUS,
    RETURN,
    START,
    TASKS,
    is_control,
    is_trigger,
    waiting,
)
from lockstitch.formats.langgraph.reducing import (
    BrokenChain,
    given,
    merged,
    replayed,
    stored_messages,
    updated,
)
from lockstitch.formats.langgraph.snapshot import OWN, TASK, Coded, Snapshot, is_begun_by, wanted

# Codings of what is no value to look into.
OPAQUE = frozenset({"null", "bytes", "bytearray", "empty"})
_NEW_NAMES = 3
_NO_TASKS = (b"", b"[]", b"\x90")


class Reading(Struct):
    """What was understood of a snapshot.

    ``base`` is the conversation in the head, ``items`` the one with all that hangs on it.
    ``changes`` says that the channel stores changes only, ``due`` names the channels that make a
    node run next. ``runs`` are those of subgraphs whose messages go on with this conversation,
    ``apart`` those of which that cannot be said. ``others`` are further channels with
    conversations of their own.
    """

    snapshot: Snapshot
    codings: dict[str, Coding]
    channel: str | None = None
    base: list[Item] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    changes: bool = False
    due: tuple[str, ...] = ()
    asked: frozenset[str] = frozenset()
    runs: list[Reading] = field(default_factory=list)
    apart: list[Reading] = field(default_factory=list)
    others: list[Reading] = field(default_factory=list)

    @property
    def coding(self) -> Coding:
        """The coding of the head."""
        return self.codings[self.snapshot.coding]

    @property
    def is_old(self) -> bool:
        """Tell checkpoints of before the names of today's channels."""
        version = self.snapshot.head.body.get("v")
        return type(version) is int and version < _NEW_NAMES

    @property
    def nodes(self) -> set[str]:
        """The nodes that have run."""
        seen = self.snapshot.head.body.get("versions_seen")
        return set(seen) if type(seen) is dict else set()

    @property
    def is_workflow(self) -> bool:
        """Whether it is surely of a function with tasks, and not of a graph with a state."""
        head = self.snapshot.head
        own = {RETURN, END, PREVIOUS}
        failed = (write.path for write in head.writes if write.channel == ERROR)
        begun = START in head.values
        return (
            bool(own & {END, PREVIOUS} & head.versions.keys())
            or (begun and any(write.channel in own for write in head.writes))
            or (begun and any(path and not path.endswith(START) for path in failed))
        )

    @property
    def is_folded(self) -> bool:
        """Tell whether anything hangs on the head that its conversation lacks."""
        return len(self.base) != len(self.items) or any(
            one is not other for one, other in zip(self.base, self.items, strict=False)
        )


def read_messages(reading: Reading, named: str | None) -> None:
    """Read the conversation of a snapshot; ``named`` is its channel, if that is known.

    Raises ``Undecodable``, or ``BrokenChain``, if it cannot be told what it is.
    """
    snapshot = reading.snapshot
    head = snapshot.head
    reading.asked = frozenset(waiting((w.task, w.channel) for w in head.writes))
    reading.channel = channel = named or _channel(reading)
    if channel is None:
        reading.items = _with_runs(reading, [])
        return
    reading.changes = channel in wanted(head)
    if reading.changes:
        reading.base = replayed(snapshot, channel, reading.codings)
    elif channel in head.values and head.values[channel].tag not in OPAQUE:
        value = head.values[channel]
        coding = coding_of(reading.codings, value)
        reading.changes = coding.opened(value.data) is not value.data
        reading.base = stored_messages(coding, value.data, head.record, (channel,))
    reading.items = _with_runs(reading, _folded(reading, channel))
    if not reading.asked:
        reading.items += failures(reading, open_calls(reading.items, real=True))


def _with_runs(reading: Reading, items: list[Item]) -> list[Item]:
    """Merge the messages of runs of subgraphs that had not returned, as their nodes return them.

    Such a run was given the conversation, or its end, and goes on with it under the same ids. One
    that was given something else returns what only its node knows. What a repair has brought in
    already is not brought in again.
    """
    returned = {w.task for w in reading.snapshot.head.writes if not is_control(w.channel)}
    for snapshot in reading.snapshot.runs:
        if snapshot.namespace.rpartition(TASK)[2] in returned:
            continue
        run = Reading(snapshot, reading.codings)
        try:
            read_messages(run, None if reading.channel is None else reading.channel)
        except (BrokenChain, Undecodable):
            run.items = []
        reading.asked |= run.asked
        known = {item.id for item in items if item.id is not None}
        goes_on = bool(run.items) and run.items[0].id in known
        if not goes_on or run.snapshot.coding != reading.snapshot.coding:
            reading.apart.append(run)
        elif is_begun_by(snapshot.head, reading.snapshot.namespace, reading.snapshot.head.id):
            reading.runs.append(run)
            items = merged(items, run.items)
    return items


def _folded(reading: Reading, channel: str) -> list[Item]:
    """Merge what hangs on the head: the input of its run, then what its tasks returned."""
    head = reading.snapshot.head
    items = list(reading.base)
    start = _start(reading, channel)
    if start is not None:
        coding, data = start
        items = merged(items, given(coding, data, head.record, (START, channel)))
    on_channel = [write for write in head.writes if write.channel == channel]
    said = [write for write in on_channel if write.task == NO_TASK]
    returned = [write for write in on_channel if write.task != NO_TASK]
    return updated(updated(items, said, reading.codings), returned, reading.codings)


def _start(reading: Reading, channel: str) -> tuple[Coding, bytes] | None:
    """Give the messages of an input that no node has taken up yet.

    Once the node that takes it up has returned, they are among its writes; and a repair that keeps
    an input has put them into the conversation.
    """
    value = reading.snapshot.head.values.get(START)
    if (
        value is None
        or OWN in reading.snapshot.head.metadata
        or any(w.channel == channel for w in reading.snapshot.head.writes)
    ):
        return None
    fields = fields_in(reading, value)
    if fields is None or channel not in fields:
        return None
    return coding_of(reading.codings, value), fields[channel]


def fields_in(reading: Reading, value: Coded) -> dict[str, bytes] | None:
    """Take a value apart that should be a map; None if it is none."""
    if value.tag in OPAQUE:
        return None
    try:
        return coding_of(reading.codings, value).fields(value.data)
    except Undecodable:
        return None


def _channel(reading: Reading) -> str | None:
    """Find the channel of the conversation: the one that is named so, or the first of its kind.

    Raises Undecodable if the channel of that name is there, but cannot be read at all.
    """
    head = reading.snapshot.head
    if reading.is_workflow:
        return PREVIOUS if PREVIOUS in head.values and _holds(reading, PREVIOUS) else None
    value = head.values.get(MESSAGES)
    if value is not None and value.tag not in OPAQUE:
        coding = coding_of(reading.codings, value)
        items = coding.items(coding.opened(value.data))
        if items is not None and all(coding.message(item) is not None for item in items):
            return MESSAGES
    written = {write.channel for write in head.writes}
    start = head.values.get(START)
    begun = (fields_in(reading, start) or {}) if start is not None else {}
    if value is None and (MESSAGES in {*written, *wanted(head), *begun}):
        return MESSAGES
    holding = [name for name in head.values if not is_control(name) and _holds(reading, name)]
    return holding[0] if holding else None


def _holds(reading: Reading, channel: str) -> bool:
    """Whether a channel holds a list of messages, and nothing else."""
    value = reading.snapshot.head.values[channel]
    try:
        coding = coding_of(reading.codings, value)
        items = coding.items(coding.opened(value.data)) or []
        return bool(items) and all(coding.message(item) is not None for item in items)
    except Undecodable:
        return False


def is_due(reading: Reading, name: str) -> bool:
    """Tell whether a channel makes a node run next: an edge from several, once all have come.

    In old checkpoints a node that has run stands under its own name for those behind it.
    """
    value = reading.snapshot.head.values[name]
    if name == TASKS:
        return value.data not in _NO_TASKS
    if is_trigger(name) or value.tag in OPAQUE:
        return is_trigger(name)
    if name.startswith(JOIN):
        nodes = set(name.removeprefix(JOIN).rsplit(":", 1)[0].split("+"))
        return coding_of(reading.codings, value).members(value.data) == nodes
    if reading.is_old and name in reading.nodes:
        return value.data == coding_of(reading.codings, value).encoded(name)
    return False


def open_calls(items: Sequence[Item], *, real: bool = False) -> set[str]:
    """Give the ids of the calls in a conversation that have no answer in it.

    With ``real`` a placeholder is no answer.
    """
    calls: set[str] = set()
    answered: set[str] = set()
    dialect = LangChain()
    for message in dialect.read([item.view for item in items]):
        for part in message.parts:
            if part.id and part.kind == CALL:
                calls.add(part.id)
            elif part.id and part.kind == RESULT and not (real and dialect.is_placeholder(part)):
                answered.add(part.id)
    return calls - answered
