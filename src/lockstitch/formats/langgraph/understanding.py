"""From a snapshot of a thread to a transcript: what a resume would send, and what is wrong.

The conversation is that of the head, with what a run was told and what its finished tasks returned
merged in, as far as LangGraph has it beside the checkpoint. Where a person is asked, all of that
is still to be used by LangGraph itself, and nothing counts as wrong that the answer will settle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from lockstitch.dialects.langchain import LangChain, fields_of
from lockstitch.formats.base import Context, Transcript, find
from lockstitch.formats.history import History
from lockstitch.formats.langgraph.coding import Coding, Item, Undecodable, coding_of, codings
from lockstitch.formats.langgraph.identity import doubles
from lockstitch.formats.langgraph.naming import (
    INTERRUPT,
    MESSAGES,
    NO_TASK,
    START,
    TASKS,
    is_control,
    is_trigger,
    successor,
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
from lockstitch.formats.langgraph.safety import unsafe
from lockstitch.formats.langgraph.snapshot import Coded, Snapshot, Write, wanted
from lockstitch.formats.records import Record
from lockstitch.formats.slots import Home, enter
from lockstitch.model.parts import CALL, RESULT, USER
from lockstitch.rules import ERROR, WARNING, Finding
from lockstitch.rules.rule import shown

HIDDEN = "is kept beside the checkpoint, where a new prompt hides it"
_JOIN = "join:"
_NO_TASKS = (b"", b"[]", b"\x90")
_OPAQUE = frozenset({"null", "bytes", "bytearray", "empty"})


class Reading(Struct):
    """What was understood of a snapshot.

    ``base`` is the conversation in the head, ``items`` the one with all that hangs on it.
    ``changes`` says that the channel stores changes only, ``due`` names the channels that make a
    node run next.
    """

    snapshot: Snapshot
    codings: dict[str, Coding]
    channel: str | None = None
    base: list[Item] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    changes: bool = False
    due: tuple[str, ...] = ()
    asked: frozenset[str] = frozenset()

    @property
    def coding(self) -> Coding:
        """The coding of the head."""
        return self.codings[self.snapshot.coding]

    @property
    def is_folded(self) -> bool:
        """Tell whether anything hangs on the head that its conversation lacks."""
        return len(self.base) != len(self.items) or any(
            one is not other for one, other in zip(self.base, self.items, strict=False)
        )


def understood(
    snapshot: Snapshot, records: Sequence[Record], context: Context, channel: str | None = None
) -> Transcript:
    """Understand one namespace of a thread; ``records`` are what the snapshot was made of."""
    reading = Reading(snapshot, codings())
    transcript = Transcript(
        context, records, History("langchain", [], [], []), session=context.name, state=reading
    )
    parts = (*snapshot.head.values.values(), *(write.value for write in snapshot.head.writes))
    transcript.size = sum(len(value.data) for value in parts)
    if snapshot.head.fault:
        _seal(transcript, "LS907", f"the checkpoint cannot be read: {snapshot.head.fault}")
        return transcript
    try:
        reading.due = tuple(name for name in snapshot.head.values if _is_due(reading, name))
        _read_messages(reading, channel)
    except BrokenChain as error:
        _seal(transcript, "LS904", str(error))
    except Undecodable as error:
        _seal(transcript, "LS907", f"the conversation cannot be read: {error}")
    except RecursionError:
        _seal(transcript, "LS907", "the conversation cannot be read: it is nested too deep")
    else:
        _describe(transcript)
    transcript.findings += [*_unsafe_values(transcript)]
    return transcript


def _seal(transcript: Transcript, code: str, message: str) -> None:
    """Note what makes it impossible to tell what the thread holds: nothing is written to it."""
    head = transcript.state.snapshot.head
    transcript.findings.append(find(code, _place(transcript, head.record), message))
    transcript.sealed = True


def _place(transcript: Transcript, record: int, *steps: Any) -> str:
    found = transcript.records[record].place if transcript.records else "1"
    return ".".join((found, *map(str, steps)))


def unanswered(snapshot: Snapshot, channel: str | None = None) -> tuple[str, set[str]]:
    """Give the channel of the conversation, and the calls in it that have no result.

    An earlier step may have left their results, which are then ``Snapshot.earlier``. None where a
    person is asked, and where nothing can be told.
    """
    reading = Reading(snapshot, codings())
    if snapshot.head.fault:
        return "", set()
    try:
        _read_messages(reading, channel)
    except (BrokenChain, Undecodable, RecursionError):
        return "", set()
    if reading.channel is None or reading.asked:
        return "", set()
    return reading.channel, open_calls(reading.items)


# The conversation


def _read_messages(reading: Reading, named: str | None) -> None:
    snapshot = reading.snapshot
    head = snapshot.head
    reading.asked = frozenset(waiting((w.task, w.channel) for w in head.writes))
    reading.channel = channel = named or _channel(reading)
    if channel is None:
        return
    reading.changes = channel in wanted(head)
    if reading.changes:
        reading.base = replayed(snapshot, channel, reading.codings)
    elif channel in head.values and head.values[channel].tag not in _OPAQUE:
        value = head.values[channel]
        coding = coding_of(reading.codings, value)
        reading.changes = coding.opened(value.data) is not value.data
        reading.base = stored_messages(coding, value.data, head.record, (channel,))
    reading.items = _folded(reading, channel)


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

    Once the node that takes it up has returned, they are among its writes.
    """
    value = reading.snapshot.head.values.get(START)
    if value is None or any(w.channel == channel for w in reading.snapshot.head.writes):
        return None
    fields = _fields(reading, value)
    if fields is None or channel not in fields:
        return None
    return coding_of(reading.codings, value), fields[channel]


def _fields(reading: Reading, value: Coded) -> dict[str, bytes] | None:
    if value.tag in _OPAQUE:
        return None
    try:
        return coding_of(reading.codings, value).fields(value.data)
    except Undecodable:
        return None


def _channel(reading: Reading) -> str | None:
    """Find the channel of the conversation: the one that is named so, or the only one of its kind.

    Raises Undecodable if the channel of that name is there, but cannot be read at all.
    """
    head = reading.snapshot.head
    value = head.values.get(MESSAGES)
    if value is not None and value.tag not in _OPAQUE:
        coding = coding_of(reading.codings, value)
        if coding.items(coding.opened(value.data)) is not None:
            return MESSAGES
    written = {write.channel for write in head.writes}
    start = head.values.get(START)
    begun = (_fields(reading, start) or {}) if start is not None else {}
    if value is None and (MESSAGES in {*written, *wanted(head), *begun}):
        return MESSAGES
    holding = [name for name in head.values if not is_control(name) and _holds(reading, name)]
    return holding[0] if len(holding) == 1 else None


def _holds(reading: Reading, channel: str) -> bool:
    """Tell whether the first thing in a channel's list is a message."""
    value = reading.snapshot.head.values[channel]
    try:
        coding = coding_of(reading.codings, value)
        items = coding.items(coding.opened(value.data)) or []
        return bool(items) and coding.message(items[0]) is not None
    except Undecodable:
        return False


def _is_due(reading: Reading, name: str) -> bool:
    """Tell whether a channel makes a node run next: an edge from several, once all have come."""
    value = reading.snapshot.head.values[name]
    if name == TASKS:
        return value.data not in _NO_TASKS
    if name.startswith(_JOIN) and value.tag not in _OPAQUE:
        nodes = set(name.removeprefix(_JOIN).rsplit(":", 1)[0].split("+"))
        return coding_of(reading.codings, value).members(value.data) == nodes
    return is_trigger(name)


# What is wrong


def _describe(transcript: Transcript) -> None:
    reading: Reading = transcript.state
    for item in reading.items:
        enter(transcript.history, item.view, Home(item.record, item.path))
    views = LangChain().read([item.view for item in reading.items])
    transcript.turns = sum(view.role == USER for view in views)
    still_open = open_calls(reading.base)
    transcript.waiting = _waits(reading, still_open)
    transcript.notes += _notes(reading, still_open, is_waiting=transcript.waiting)
    transcript.findings += [*_missing(transcript), *_lost(transcript)]
    if not transcript.waiting:
        transcript.findings += [*_hidden(transcript, still_open), *_doubled(transcript)]
        transcript.findings += [*_left_behind(transcript)]
    transcript.left = sum(lost.turns for lost in reading.snapshot.lost)
    if following(reading.snapshot.head.id) is None:
        transcript.sealed = True


def _waits(reading: Reading, still_open: set[str]) -> bool:
    """Tell whether the thread stands still because a person is asked.

    A breakpoint leaves no trace of its own; a thread that was resumed before, and that stands
    before a batch of which nothing has run, may stand at one.
    """
    if reading.asked:
        return True
    head = reading.snapshot.head
    seen = head.body.get("versions_seen")
    was_resumed = type(seen) is dict and INTERRUPT in seen
    ran = any(write.task != NO_TASK for write in head.writes)
    return was_resumed and bool(reading.due) and not ran and bool(still_open)


def open_calls(items: Sequence[Item]) -> set[str]:
    """Give the ids of the calls in a conversation that have no answer in it."""
    calls: set[str] = set()
    answered: set[str] = set()
    for message in LangChain().read([item.view for item in items]):
        for part in message.parts:
            if part.id and part.kind in (CALL, RESULT):
                (calls if part.kind == CALL else answered).add(part.id)
    return calls - answered


def _notes(reading: Reading, still_open: set[str], *, is_waiting: bool) -> Iterator[str]:
    below = reading.snapshot.below
    if is_waiting:
        yield "waits for a person, and is left alone; --force-cleanup closes what waits"
    if reading.channel is None:
        yield "holds no conversation"
    if following(reading.snapshot.head.id) is None:
        yield "has a last checkpoint whose id is no time, so that none can be put behind it"
    others = _others(reading)
    if others and not is_waiting and (reading.is_folded or still_open):
        names = ", ".join(sorted(map(shown, others)))
        yield f"what its last step wrote to {names} is kept, but not applied by a repair"
    if below:
        yield f"{len(below)} runs of subgraphs have checkpoints of their own, left alone"


def following(head: str) -> str | None:
    """Give the id of the checkpoint that a repair puts behind a head; None if there is none."""
    try:
        found = successor(head)
    except (ValueError, OverflowError):
        return None
    return found if found is not None and found > head else None


def _others(reading: Reading) -> set[str]:
    """Name the channels beside the conversation that something waits to be written to."""
    head = reading.snapshot.head
    start = head.values.get(START)
    begun = (_fields(reading, start) or {}).keys() if start is not None else ()
    written = (write.channel for write in head.writes if not is_control(write.channel))
    return {*begun, *written} - {str(reading.channel)}


def _missing(transcript: Transcript) -> Iterator[Finding]:
    reading: Reading = transcript.state
    for name in reading.snapshot.head.missing:
        place = _place(transcript, reading.snapshot.head.record, name)
        yield find("LS903", place, f"the value of channel {shown(name)} is gone")
        transcript.sealed = True


def _lost(transcript: Transcript) -> Iterator[Finding]:
    for lost in transcript.state.snapshot.lost:
        noun = "turn" if lost.turns == 1 else "turns"
        text = f"{lost.turns} {noun} up to checkpoint {shown(lost.leaf)} are on another branch"
        yield find("LS905", _place(transcript, transcript.state.snapshot.head.record), text)


def _hidden(transcript: Transcript, still_open: set[str]) -> Iterator[Finding]:
    """What hangs on the head and a new prompt would hide; an error where it leaves calls open."""
    reading: Reading = transcript.state
    known = {id(item) for item in reading.base}
    for item in reading.items:
        if id(item) in known:
            continue
        call = fields_of(item.view).get("tool_call_id")
        answers = type(call) is str and call in still_open
        what = f"the result of call {shown(call)}" if answers else f"a message of type {item.type}"
        text = f"{what} {HIDDEN}"
        place = _place(transcript, item.record, *item.path)
        yield find("LS901", place, text, ERROR if answers else WARNING)


def _left_behind(transcript: Transcript) -> Iterator[Finding]:
    """Results that an earlier step left beside its checkpoint, and a prompt has hidden since."""
    reading: Reading = transcript.state
    lacking = open_calls(reading.items)
    for write in reading.snapshot.earlier if lacking else ():
        for item in _results(reading, write):
            call = fields_of(item.view).get("tool_call_id")
            if call not in lacking or call in transcript.evidence:
                continue
            transcript.evidence[call] = item.view
            text = f"the result of call {shown(call)} was left beside an earlier checkpoint"
            yield find("LS901", _place(transcript, item.record, *item.path), text)


def _results(reading: Reading, write: Write) -> list[Item]:
    try:
        return [item for item in updated([], [write], reading.codings) if item.type == "tool"]
    except Undecodable:
        return []


def _doubled(transcript: Transcript) -> Iterator[Finding]:
    reading: Reading = transcript.state
    for number in doubles([item.view for item in reading.items]):
        item = reading.items[number]
        place = _place(transcript, item.record, *item.path)
        yield find("LS906", place, f"the id {shown(item.id)} belongs to a message before it")


def _unsafe_values(transcript: Transcript) -> Iterator[Finding]:
    """What LangGraph would import and call; and what nobody can read outside the conversation."""
    reading: Reading = transcript.state
    head = reading.snapshot.head
    values = [(value, head.record, name) for name, value in head.values.items()]
    values += [(write.value, write.record, write.channel) for write in head.writes]
    told: set[Any] = set()
    for value, record, name in values:
        if value.tag in _OPAQUE:
            continue
        place = _place(transcript, record, name)
        try:
            named = coding_of(reading.codings, value).named(value.data)
        except Undecodable as error:
            if not transcript.sealed:
                yield find("LS907", place, f"channel {shown(name)} cannot be read: {error}")
            continue
        if named.fault:
            yield find("LS907", place, f"a part of channel {shown(name)}: {named.fault}", WARNING)
        for one, severity in unsafe(named.names).items():
            if one not in told:
                told.add(one)
                text = f"LangGraph imports and calls {shown(str(one))} when it loads this"
                yield find("LS902", place, text, severity)
