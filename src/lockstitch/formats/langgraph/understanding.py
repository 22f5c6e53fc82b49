"""From a snapshot of a thread to a transcript: what a resume would send, and what is wrong.

The conversation is that of the head, with what a run was told and what its finished tasks returned
merged in, as far as LangGraph has it beside the checkpoint. Where a person is asked, all of that
is still to be used by LangGraph itself, and nothing counts as wrong that the answer will settle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from lockstitch.conversation.parts import USER
from lockstitch.dialects.langchain import LangChain, fields_of
from lockstitch.dialects.placeholders import CANCELLED, FAILED
from lockstitch.formats.base import Context, Transcript, find, warn
from lockstitch.formats.history import History
from lockstitch.formats.langgraph.beside import HIDDEN, findings_in, read_others
from lockstitch.formats.langgraph.calling import PICKLE, called
from lockstitch.formats.langgraph.coding import Item, Undecodable, coding_of, codings
from lockstitch.formats.langgraph.conversation import (
    OPAQUE,
    Reading,
    fields_in,
    is_due,
    open_calls,
    read_messages,
)
from lockstitch.formats.langgraph.failing import failures
from lockstitch.formats.langgraph.identity import doubles
from lockstitch.formats.langgraph.naming import (
    COUNTERS,
    INTERRUPT,
    NO_TASK,
    RETURN,
    START,
    is_control,
    successor,
)
from lockstitch.formats.langgraph.reducing import BrokenChain, updated
from lockstitch.formats.langgraph.safety import unsafe
from lockstitch.formats.langgraph.searching import PICKLED, field_with
from lockstitch.formats.langgraph.snapshot import Snapshot, Write
from lockstitch.formats.records import Record
from lockstitch.formats.slots import Home, enter
from lockstitch.rules import WARNING, Finding
from lockstitch.rules.rule import shown

DROPPED = "is kept in a run of a subgraph, which a new prompt drops"


def understood(
    snapshot: Snapshot,
    records: Sequence[Record],
    context: Context,
    channel: str | None = None,
    *,
    forced: bool = False,
) -> Transcript:
    """Understand one namespace of a thread; ``records`` are what the snapshot was made of.

    With ``forced``, a thread that waits for a person is understood as if it did not.
    """
    reading = Reading(snapshot, codings())
    transcript = Transcript(
        context, records, History("langchain", [], [], []), session=context.name, state=reading
    )
    transcript.forced = forced
    parts = (*snapshot.head.values.values(), *(write.value for write in snapshot.head.writes))
    transcript.size = sum(len(value.data) for value in parts)
    if snapshot.head.fault:
        _seal(transcript, "LS907", f"the checkpoint cannot be read: {snapshot.head.fault}")
        transcript.findings += [*_unsafe_values(transcript)]
        return transcript
    try:
        reading.due = tuple(name for name in snapshot.head.values if is_due(reading, name))
        read_messages(reading, channel)
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
    """Give the channel of the conversation, and the calls in it that have no real result.

    An earlier step may have left their results, which are then ``Snapshot.earlier``. None where a
    person is asked, and where nothing can be told.
    """
    reading = Reading(snapshot, codings())
    if snapshot.head.fault:
        return "", set()
    try:
        read_messages(reading, channel)
    except (BrokenChain, Undecodable, RecursionError):
        return "", set()
    if reading.channel is None or reading.asked:
        return "", set()
    return reading.channel, open_calls(reading.items, real=True)


# What is wrong


def _describe(transcript: Transcript) -> None:
    reading: Reading = transcript.state
    for item in reading.items:
        enter(transcript.history, item.view, Home(item.record, item.path))
    views = LangChain().read([item.view for item in reading.items])
    transcript.turns = sum(view.role == USER for view in views)
    still_open = open_calls(reading.base)
    transcript.waiting = not transcript.forced and _waits(reading, still_open)
    transcript.notes += _notes(reading, still_open, is_waiting=transcript.waiting)
    transcript.findings += [*_missing(transcript), *_lost(transcript)]
    if not transcript.waiting:
        transcript.findings += [*_hidden(transcript), *_doubled(transcript)]
        transcript.findings += [*_left_behind(transcript), *_unfinished(transcript)]
        read_others(reading)
        for other in reading.others:
            transcript.findings += findings_in(other, transcript)
    transcript.left = sum(lost.turns for lost in reading.snapshot.lost)
    if following(reading.snapshot.head.id) is None or _is_resumable(reading):
        transcript.sealed = True


def _is_resumable(reading: Reading) -> bool:
    """Whether a workflow broke off, which only its own input makes go on."""
    return reading.is_workflow and START in reading.snapshot.head.values


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


def _notes(reading: Reading, still_open: set[str], *, is_waiting: bool) -> Iterator[str]:
    in_use = {run.snapshot.namespace for run in reading.runs}
    below = [name for name in reading.snapshot.below if name not in in_use]
    if is_waiting:
        yield "waits for a person, and is left alone; --force-cleanup closes what waits"
    if _is_resumable(reading):
        yield "is a workflow that broke off, and is left alone: invoke(None, config) resumes it"
    elif reading.channel is None:
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
    """Name the channels beside the conversation that something waits to be written to.

    What is written to a channel that stores changes is part of every checkpoint behind it.
    """
    head = reading.snapshot.head
    start = head.values.get(START)
    begun = (fields_in(reading, start) or {}).keys() if start is not None else ()
    written = {write.channel for write in head.writes if not is_control(write.channel)}
    counted = head.metadata.get(COUNTERS)
    changes = set(counted) & head.versions.keys() if type(counted) is dict else set()
    return {*begun, *(written - changes)} - {str(reading.channel)}


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


def _hidden(transcript: Transcript) -> Iterator[Finding]:
    """What hangs on the head and a new prompt would hide: the input of its run, and results."""
    reading: Reading = transcript.state
    lacking = open_calls(reading.base, real=True)
    known = {id(item) for item in reading.base}
    begun = START in reading.snapshot.head.values
    in_runs = {id(item) for run in reading.runs for item in run.items}
    for item in reading.items:
        if id(item) in known:
            continue
        place = _place(transcript, item.record, *item.path)
        call = fields_of(item.view).get("tool_call_id")
        what = "error" if _is_failure(item) else "result"
        if id(item) in in_runs and type(call) is str:
            yield find("LS901", place, f"the {what} of call {shown(call)} {DROPPED}")
        elif id(item) in in_runs:
            yield warn("LS901", place, f"a message of type {item.type} {DROPPED}")
        elif type(call) is str and call in lacking:
            yield find("LS901", place, f"the {what} of call {shown(call)} {HIDDEN}")
        elif begun:
            yield find("LS908", place, f"a message of the input {HIDDEN}")
        else:
            yield warn("LS901", place, f"a message of type {item.type} {HIDDEN}")


def _is_failure(item: Item) -> bool:
    content = fields_of(item.view).get("content")
    return item.type == "tool" and type(content) is str and content.startswith((FAILED, CANCELLED))


def _unfinished(transcript: Transcript) -> Iterator[Finding]:
    """What finished, and only the run that it belongs to can use."""
    reading: Reading = transcript.state
    head = reading.snapshot.head
    resume = "only a resume without input finds them"
    returned = sum(write.channel == RETURN for write in head.writes)
    if returned:
        noun = "result" if returned == 1 else "results"
        text = f"{returned} {noun} of finished tasks of a function: {resume}"
        yield find("LS909", _place(transcript, head.record), text)
    for run in reading.apart:
        results = sum(item.type == "tool" for item in run.items)
        place = _place(transcript, run.snapshot.head.record)
        start = run.snapshot.head.metadata["parents"].get(reading.snapshot.namespace)
        text = (
            f"{len(run.items)} messages, {results} of them results, in the run "
            f"{shown(run.snapshot.namespace)} of a subgraph with messages of its own: {resume}, "
            f"from checkpoint {shown(start)}"
        )
        if run.items:
            yield find("LS909", place, text)


def _left_behind(transcript: Transcript) -> Iterator[Finding]:
    """Results that an earlier step left beside its checkpoint, and a prompt has hidden since."""
    reading: Reading = transcript.state
    lacking = open_calls(reading.items, real=True)
    for write in reading.snapshot.earlier if lacking else ():
        for item in _results(reading, write):
            call = fields_of(item.view).get("tool_call_id")
            if call not in lacking or call in transcript.evidence:
                continue
            transcript.evidence[call] = item.view
            text = f"the result of call {shown(call)} was left next to an earlier checkpoint"
            yield find("LS901", _place(transcript, item.record, *item.path), text)
    unanswered_calls = open_calls(reading.items) - transcript.evidence.keys()
    for stored in reading.snapshot.failed if unanswered_calls else ():
        then = Reading(structs.replace(reading.snapshot, head=stored), reading.codings)
        then.items = reading.items
        for item in failures(then, unanswered_calls):
            call = fields_of(item.view)["tool_call_id"]
            if call not in transcript.evidence:
                transcript.evidence[call] = item.view
                text = f"the error of call {shown(call)} was left next to an earlier checkpoint"
                yield find("LS901", _place(transcript, item.record), text)


def _results(reading: Reading, write: Write) -> list[Item]:
    """Return the real results that a step wrote."""
    try:
        items = [item for item in updated([], [write], reading.codings) if item.type == "tool"]
    except Undecodable:
        return []
    dialect = LangChain()
    views = dialect.read([item.view for item in items])
    return [
        item
        for item, view in zip(items, views, strict=True)
        if not any(map(dialect.is_placeholder, view.parts))
    ]


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
        if value.tag in OPAQUE:
            continue
        place = _place(transcript, record, name)
        if value.tag == PICKLE:
            told.add(PICKLED)
            yield find("LS902", place, _loading(PICKLED))
        for one, severity in unsafe(called(value.tag, value.data)).items():
            if one in told:
                continue
            told.add(one)
            text = _loading(str(one))
            if severity == WARNING:
                # Every thread of an application with classes of its own would count as broken.
                transcript.notes.append(f"channel {shown(name)}: {text}")
            else:
                yield find("LS902", place, text)
        try:
            named = coding_of(reading.codings, value).named(value.data)
        except Undecodable as error:
            if not transcript.sealed:
                yield find("LS907", place, f"channel {shown(name)} cannot be read: {error}")
            continue
        if named.fault:
            yield find("LS907", place, f"a part of channel {shown(name)}: {named.fault}", WARNING)
    yield from _outside_channels(transcript, told)


def _outside_channels(transcript: Transcript, told: set[Any]) -> Iterator[Finding]:
    """What is called by the rest of the head, and by all else that the thread has."""
    snapshot = transcript.state.snapshot
    head = snapshot.head
    harmful = {str(one) for one in told}
    whole = head.whole
    if whole is not None and whole.tag == PICKLE and PICKLED not in harmful:
        harmful.add(PICKLED)
        yield find("LS902", _place(transcript, head.record), _loading(PICKLED))
    for one, severity in unsafe(called(whole.tag, whole.data) if whole else ()).items():
        if severity != WARNING and str(one) not in harmful:
            harmful.add(str(one))
            place = _place(transcript, head.record, *field_with(one, whole))
            yield find("LS902", place, _loading(str(one)))
    for unsafe_one in snapshot.unsafe:
        is_own = unsafe_one.namespace == snapshot.namespace
        if is_own and unsafe_one.name in harmful:
            continue
        text = _loading(unsafe_one.name)
        if not is_own:
            text += f", in the namespace {shown(unsafe_one.namespace)}"
        if unsafe_one.rows > 1:
            text += f"; {unsafe_one.rows} stored values do"
        yield find("LS902", unsafe_one.place, text)


def _loading(name: str) -> str:
    if name == PICKLED:
        return f"LangGraph, where it is told to load it, loads {PICKLED}"
    return f"LangGraph imports and calls {shown(name)} when it loads this"
