"""From a snapshot of a thread to a transcript: what a resume would send, and what is wrong.

The conversation is that of the head, with what a run was told and what its finished tasks returned
merged in, as far as LangGraph has it beside the checkpoint. Where a person is asked, all of that
is still to be used by LangGraph itself, and nothing counts as wrong that the answer will settle.

Conversations in other channels than the one that a thread is known by, such as a supervisor's.

Which reducer such a channel has is not known from outside. So nothing that waits to be written to
it is merged into it, but for the results of calls that are open in it; and a list counts as a
conversation only if all that is in it are message objects, and somebody is spoken to in it.

The checkpoint that a repair adds behind the head of a thread.

It differs from the head in its conversation, and in that nothing is left to run: whatever made a
node run next is gone from it. All other values are the head's, byte for byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import structs

from lockstitch.conversation.parts import USER
from lockstitch.dialects import LANGCHAIN
from lockstitch.dialects.langchain import LangChain, fields_of
from lockstitch.dialects.placeholders import CANCELLED, FAILED
from lockstitch.formats.history import History, SourcedMessage, trace_sources
from lockstitch.formats.langgraph.codec import (
    Codec,
    StoredMessage,
    Undecodable,
    codec_of,
    new_codecs,
)
from lockstitch.formats.langgraph.conversation import (
    OPAQUE,
    ThreadReading,
    failed_results,
    fields_in,
    is_due,
    open_calls,
    read_messages,
)
from lockstitch.formats.langgraph.messages import add_ids, repeated_ids
from lockstitch.formats.langgraph.reducing import (
    BrokenChain,
    apply_writes,
    read_stored,
    read_update,
)
from lockstitch.formats.langgraph.safety import (
    PICKLE,
    PICKLED,
    called_names,
    field_with,
    names_in,
    unsafe_names,
)
from lockstitch.formats.langgraph.snapshot import (
    COUNTERS,
    INTERRUPT,
    NO_TASK,
    OWN,
    RETURN,
    START,
    Coded,
    RepairedCheckpoint,
    StoredCheckpoint,
    StoredWrite,
    ThreadSnapshot,
    Version,
    is_control,
    is_first_input,
    next_version,
    successor,
)
from lockstitch.repair.draft import Ledger
from lockstitch.rules import WARNING, Finding
from lockstitch.rules.rule import shown
from lockstitch.sources import repair
from lockstitch.sources.interface import Context, Transcript, new_finding, new_warning
from lockstitch.sources.records import Record
from lockstitch.sources.write_back import MessageHome, enter_message

HIDDEN = "is stored next to the checkpoint, where a new prompt hides it"
_SPOKEN_TO = frozenset({"human", "system"})


def read_others(reading: ThreadReading) -> None:
    """Read every further channel of a head that holds a conversation."""
    head = reading.snapshot.head
    names = [name for name in head.values if name != reading.channel and not is_control(name)]
    reading.others = [found for name in names if (found := _read_other(reading, name)) is not None]


def _read_other(reading: ThreadReading, name: str) -> ThreadReading | None:
    """Read one channel; None if it is no conversation."""
    snapshot = reading.snapshot
    value = snapshot.head.values[name]
    if value.tag in OPAQUE or value.tag != snapshot.coding:
        return None
    other = ThreadReading(snapshot, new_codecs(), name)
    try:
        coding = codec_of(other.codings, value)
        other.changes = coding.opened(value.data) is not value.data
        other.base = read_stored(coding, value.data, snapshot.head.record, (name,))
    except Undecodable:
        return None
    if not _is_conversation(other.base):
        return None
    other.items = list(other.base)
    other.items += _other_results(other)
    return other


def _is_conversation(items: Sequence[StoredMessage]) -> bool:
    spoken_to = any(item.type in _SPOKEN_TO for item in items)
    return spoken_to and all(item.frame is not None for item in items)


def _other_results(other: ThreadReading) -> Iterator[StoredMessage]:
    """Give the results of open calls that wait to be written to the channel."""
    lacking = open_calls(other.base, real=True)
    for write in other.snapshot.head.writes if lacking else ():
        if write.channel != other.channel or write.value.tag != other.snapshot.coding:
            continue
        try:
            items = read_update(
                codec_of(other.codings, write.value), write.value.data, write.record
            )
        except Undecodable:
            continue
        for item in items:
            if fields_of(item.view).get("tool_call_id") in lacking:
                lacking.discard(fields_of(item.view)["tool_call_id"])
                yield item
    yield from failed_results(other, lacking)


def history_of(other: ThreadReading) -> History:
    """Return the conversation of a channel with the places of its messages."""
    history = History(LANGCHAIN, [], [], [])
    for item in other.items:
        enter_message(history, item.view, MessageHome(item.record, item.path))
    return history


def findings_in(other: ThreadReading, transcript: Transcript) -> Iterator[Finding]:
    """Give what is wrong with the conversation of a channel."""
    history = history_of(other)
    head = other.snapshot.head
    for item in other.items[len(other.base) :]:
        call = shown(fields_of(item.view).get("tool_call_id"))
        text = f"the result of call {call} in channel {shown(other.channel)} {HIDDEN}"
        place = transcript.records[item.record or head.record].place
        yield new_finding("LS901", place, text)
    for found in repair.plan_history(history, frozenset()).findings:
        place = repair.place_in_store(found.place, history, transcript)
        yield structs.replace(found, place=place)


def repair_other(
    other: ThreadReading, transcript: Transcript, ledger: Ledger | None = None
) -> list[SourcedMessage]:
    """Return the conversation of a channel as it is mended; nothing if it need not or cannot be."""
    history = history_of(other)
    plan = repair.plan_history(history, frozenset())
    lossy = frozenset(f.code for f in plan.findings if f.lossy and f.code in repair.LOSSY)
    plan = repair.plan_history(history, lossy) if lossy else plan
    if not plan.healed or not (plan.changed or len(other.items) > len(other.base)):
        return []
    if ledger is not None:
        repair.take_over_changes(plan, history, transcript, ledger)
    messages: list[Any] = repair.repaired_messages(plan, history)
    return trace_sources(history, messages)


DROPPED = "is kept in a run of a subgraph, which a new prompt drops"


def read_thread(
    snapshot: ThreadSnapshot,
    records: Sequence[Record],
    context: Context,
    channel: str | None = None,
    *,
    forced: bool = False,
) -> Transcript:
    """Understand one namespace of a thread; ``records`` are what the snapshot was made of.

    With ``forced``, a thread that waits for a person is understood as if it did not.
    """
    reading = ThreadReading(snapshot, new_codecs())
    transcript = Transcript(
        context, records, History(LANGCHAIN, [], [], []), session=context.name, state=reading
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
        _describe_thread(transcript)
    transcript.findings += [*_unsafe_values(transcript)]
    return transcript


def _seal(transcript: Transcript, code: str, message: str) -> None:
    """Note what makes it impossible to tell what the thread holds: nothing is written to it."""
    head = transcript.state.snapshot.head
    transcript.findings.append(new_finding(code, _place(transcript, head.record), message))
    transcript.sealed = True


def _place(transcript: Transcript, record: int, *steps: Any) -> str:
    found = transcript.records[record].place if transcript.records else "1"
    return ".".join((found, *map(str, steps)))


def unanswered_calls(snapshot: ThreadSnapshot, channel: str | None = None) -> tuple[str, set[str]]:
    """Give the channel of the conversation, and the calls in it that have no real result.

    An earlier step may have left their results, which are then ``Snapshot.earlier``. None where a
    person is asked, and where nothing can be told.
    """
    reading = ThreadReading(snapshot, new_codecs())
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


def _describe_thread(transcript: Transcript) -> None:
    reading: ThreadReading = transcript.state
    for item in reading.items:
        enter_message(transcript.history, item.view, MessageHome(item.record, item.path))
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
    if following_id(reading.snapshot.head.id) is None or _is_resumable(reading):
        transcript.sealed = True


def _is_resumable(reading: ThreadReading) -> bool:
    """Whether a workflow broke off, which only its own input makes go on."""
    return reading.is_workflow and START in reading.snapshot.head.values


def _waits(reading: ThreadReading, still_open: set[str]) -> bool:
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


def _notes(reading: ThreadReading, still_open: set[str], *, is_waiting: bool) -> Iterator[str]:
    in_use = {run.snapshot.namespace for run in reading.runs}
    below = [name for name in reading.snapshot.below if name not in in_use]
    if is_waiting:
        yield "waits for a person, and is left alone; --force-cleanup closes what waits"
    if _is_resumable(reading):
        yield "is a workflow that broke off, and is left alone: invoke(None, config) resumes it"
    elif reading.channel is None:
        yield "holds no conversation"
    if following_id(reading.snapshot.head.id) is None:
        yield "has a last checkpoint whose id is no time, so that none can be put behind it"
    others = _others(reading)
    if others and not is_waiting and (reading.is_folded or still_open):
        names = ", ".join(sorted(map(shown, others)))
        yield f"what its last step wrote to {names} is kept, but not applied by a repair"
    if below:
        yield f"{len(below)} runs of subgraphs have checkpoints of their own, left alone"


def following_id(head: str) -> str | None:
    """Give the id of the checkpoint that a repair puts behind a head; None if there is none."""
    try:
        found = successor(head)
    except (ValueError, OverflowError):
        return None
    return found if found is not None and found > head else None


def _others(reading: ThreadReading) -> set[str]:
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
    reading: ThreadReading = transcript.state
    for name in reading.snapshot.head.missing:
        place = _place(transcript, reading.snapshot.head.record, name)
        yield new_finding("LS903", place, f"the value of channel {shown(name)} is gone")
        transcript.sealed = True


def _lost(transcript: Transcript) -> Iterator[Finding]:
    for lost in transcript.state.snapshot.lost:
        noun = "turn" if lost.turns == 1 else "turns"
        text = f"{lost.turns} {noun} up to checkpoint {shown(lost.leaf)} are on another branch"
        yield new_finding("LS905", _place(transcript, transcript.state.snapshot.head.record), text)


def _hidden(transcript: Transcript) -> Iterator[Finding]:
    """What hangs on the head and a new prompt would hide: the input of its run, and results."""
    reading: ThreadReading = transcript.state
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
            yield new_finding("LS901", place, f"the {what} of call {shown(call)} {DROPPED}")
        elif id(item) in in_runs:
            yield new_warning("LS901", place, f"a message of type {item.type} {DROPPED}")
        elif type(call) is str and call in lacking:
            yield new_finding("LS901", place, f"the {what} of call {shown(call)} {HIDDEN}")
        elif begun:
            yield new_finding("LS908", place, f"a message of the input {HIDDEN}")
        else:
            yield new_warning("LS901", place, f"a message of type {item.type} {HIDDEN}")


def _is_failure(item: StoredMessage) -> bool:
    content = fields_of(item.view).get("content")
    return item.type == "tool" and type(content) is str and content.startswith((FAILED, CANCELLED))


def _unfinished(transcript: Transcript) -> Iterator[Finding]:
    """What finished, and only the run that it belongs to can use."""
    reading: ThreadReading = transcript.state
    head = reading.snapshot.head
    resume = "only a resume without input finds them"
    returned = sum(write.channel == RETURN for write in head.writes)
    if returned:
        noun = "result" if returned == 1 else "results"
        text = f"{returned} {noun} of finished tasks of a function: {resume}"
        yield new_finding("LS909", _place(transcript, head.record), text)
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
            yield new_finding("LS909", place, text)


def _left_behind(transcript: Transcript) -> Iterator[Finding]:
    """Results that an earlier step left beside its checkpoint, and a prompt has hidden since."""
    reading: ThreadReading = transcript.state
    lacking = open_calls(reading.items, real=True)
    for write in reading.snapshot.earlier if lacking else ():
        for item in _results_in(reading, write):
            call = fields_of(item.view).get("tool_call_id")
            if call not in lacking or call in transcript.evidence:
                continue
            transcript.evidence[call] = item.view
            text = f"the result of call {shown(call)} was left next to an earlier checkpoint"
            yield new_finding("LS901", _place(transcript, item.record, *item.path), text)
    unanswered_calls = open_calls(reading.items) - transcript.evidence.keys()
    for stored in reading.snapshot.failed if unanswered_calls else ():
        then = ThreadReading(structs.replace(reading.snapshot, head=stored), reading.codings)
        then.items = reading.items
        for item in failed_results(then, unanswered_calls):
            call = fields_of(item.view)["tool_call_id"]
            if call not in transcript.evidence:
                transcript.evidence[call] = item.view
                text = f"the error of call {shown(call)} was left next to an earlier checkpoint"
                yield new_finding("LS901", _place(transcript, item.record), text)


def _results_in(reading: ThreadReading, write: StoredWrite) -> list[StoredMessage]:
    """Return the real results that a step wrote."""
    try:
        items = [item for item in apply_writes([], [write], reading.codings) if item.type == "tool"]
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
    reading: ThreadReading = transcript.state
    for number in repeated_ids([item.view for item in reading.items]):
        item = reading.items[number]
        place = _place(transcript, item.record, *item.path)
        yield new_finding("LS906", place, f"the id {shown(item.id)} belongs to a message before it")


def _unsafe_values(transcript: Transcript) -> Iterator[Finding]:
    """What LangGraph would import and call; and what nobody can read outside the conversation."""
    reading: ThreadReading = transcript.state
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
            yield new_finding("LS902", place, _loading(PICKLED))
        for one, severity in unsafe_names(called_names(value.tag, value.data)).items():
            if one in told:
                continue
            told.add(one)
            text = _loading(str(one))
            if severity == WARNING:
                # Every thread of an application with classes of its own would count as broken.
                transcript.notes.append(f"channel {shown(name)}: {text}")
            else:
                yield new_finding("LS902", place, text)
        try:
            named = names_in(codec_of(reading.codings, value), value.data)
        except Undecodable as error:
            if not transcript.sealed:
                yield new_finding("LS907", place, f"channel {shown(name)} cannot be read: {error}")
            continue
        if named.fault:
            yield new_finding(
                "LS907", place, f"a part of channel {shown(name)}: {named.fault}", WARNING
            )
    yield from _outside_channels(transcript, told)


def _outside_channels(transcript: Transcript, told: set[Any]) -> Iterator[Finding]:
    """What is called by the rest of the head, and by all else that the thread has."""
    snapshot = transcript.state.snapshot
    head = snapshot.head
    harmful = {str(one) for one in told}
    whole = head.whole
    if whole is not None and whole.tag == PICKLE and PICKLED not in harmful:
        harmful.add(PICKLED)
        yield new_finding("LS902", _place(transcript, head.record), _loading(PICKLED))
    for one, severity in unsafe_names(called_names(whole.tag, whole.data) if whole else ()).items():
        if severity != WARNING and str(one) not in harmful:
            harmful.add(str(one))
            place = _place(transcript, head.record, *field_with(one, whole))
            yield new_finding("LS902", place, _loading(str(one)))
    for unsafe_one in snapshot.unsafe:
        is_own = unsafe_one.namespace == snapshot.namespace
        if is_own and unsafe_one.name in harmful:
            continue
        text = _loading(unsafe_one.name)
        if not is_own:
            text += f", in the namespace {shown(unsafe_one.namespace)}"
        if unsafe_one.rows > 1:
            text += f"; {unsafe_one.rows} stored values do"
        yield new_finding("LS902", unsafe_one.place, text)


def _loading(name: str) -> str:
    if name == PICKLED:
        return f"LangGraph, where it is told to load it, loads {PICKLED}"
    return f"LangGraph imports and calls {shown(name)} when it loads this"


_TASKS_INSIDE = 4
_NOT_CARRIED = frozenset({"writes", COUNTERS})


def repair_checkpoint(
    transcript: Transcript, strands: Sequence[SourcedMessage], codes: Iterable[str] = ()
) -> RepairedCheckpoint | None:
    """Give the checkpoint with these messages, and nothing left to run; None if it has no id.

    The transcript is one of ``understood``; messages that are its own keep their bytes. A head
    that is not stored yet, since a repair is made in several steps, is not followed, but changed.
    """
    reading: ThreadReading = transcript.state
    head = reading.snapshot.head
    new, version = following_id(head.id), _version(head)
    if new is None or version is None or reading.channel is None:
        return None
    value = _value(reading, strands)
    if transcript.records[head.record].is_new:
        return _repair_again(reading, value, codes)
    start = _kept_input(reading, value)
    due = [name for name in reading.due if not (start and name == START)]
    values = {name: kept for name, kept in head.values.items() if name not in due}
    beside = {
        str(other.channel): _value(other, mended)
        for other in reading.others
        if (mended := repair_other(other, transcript))
    }
    changed = {reading.channel: value, **beside, **({START: start} if start else {})}
    touched = {*changed, *due} - ({START} if start == head.values.get(START) else set())
    return RepairedCheckpoint(
        new,
        head.id,
        _body(head, new, sorted(changed), dict.fromkeys(sorted(touched), version)),
        {**values, **changed},
        _metadata(reading, codes),
        frozenset(touched - set(due)),
        frozenset(due),
    )


def _kept_input(reading: ThreadReading, value: Coded) -> Coded | None:
    """Return the first input of a thread as it is kept, with the ids of its messages; None if not.

    Nobody can tell a graph of states that has not taken it up from a workflow, which cannot be
    resumed without it. In a graph, messages that come twice under one id come once.
    """
    head = reading.snapshot.head
    start = head.values.get(START)
    if start is None or not is_first_input(head.versions, (w.channel for w in head.writes)):
        return None
    try:
        coding = codec_of(reading.codings, start)
        fields = coding.fields(start.data)
        old, new = (coding.items(part) for part in (fields[str(reading.channel)], value.data))
    except (Undecodable, KeyError):
        return None
    if old is None or new is None or len(old) != len(new):
        return None
    kept = [_with_id(coding, one, other) for one, other in zip(old, new, strict=True)]
    if None in kept:
        return None
    listed = coding.listed(one for one in kept if one is not None)
    return Coded(start.tag, coding.mapped({**fields, str(reading.channel): listed}))


def _with_id(coding: Codec, given: bytes, new: bytes) -> bytes | None:
    """Return a message of an input under the id it has in the conversation; None if it has none."""
    found, known = coding.message(given), coding.message(new)
    if known is None or known.id is None:
        return None
    if found is not None and found.frame is not None:
        return given if found.id == known.id else new
    plain = coding.plain(given) if coding.is_plain(given) else None
    return coding.encoded({**plain, "id": known.id}) if type(plain) is dict else None


def _repair_again(reading: ThreadReading, value: Coded, codes: Iterable[str]) -> RepairedCheckpoint:
    head, channel = reading.snapshot.head, str(reading.channel)
    own = head.metadata.get(OWN)
    known = own if type(own) is dict else {}
    metadata = {
        **head.metadata,
        OWN: {**known, "codes": sorted({*known.get("codes", ()), *codes})},
    }
    values = {**head.values, channel: value}
    version = head.versions.get(channel)
    gone = {name for name, own in head.versions.items() if own == version} - values.keys()
    return RepairedCheckpoint(
        head.id,
        str(head.parent),
        head.body,
        values,
        metadata,
        frozenset({channel}),
        frozenset(gone),
    )


def _value(reading: ThreadReading, strands: Sequence[SourcedMessage]) -> Coded:
    coding = reading.coding
    views = [strand.message for strand in strands]
    final = add_ids(views, [item.view for item in reading.base])
    raws = [
        coding.written(view, _origin(reading, strand.origin))
        for view, strand in zip(final, strands, strict=True)
    ]
    whole = coding.listed(raws)
    return Coded(coding.tag, coding.snapshot(whole) if reading.changes else whole)


def _origin(reading: ThreadReading, number: int) -> StoredMessage | None:
    """Give the message that one was made of, if its bytes can be used."""
    if not 0 <= number < len(reading.items):
        return None
    found = reading.items[number]
    return found if found.tag == reading.coding.tag else None


def _version(head: StoredCheckpoint) -> Version | None:
    """Give the version behind all of the head's; None if they are nothing that can be counted."""
    known = [found for found in head.versions.values() if isinstance(found, str | int | float)]
    try:
        found = next_version(known)
    except (ValueError, OverflowError):
        return None
    return found if isinstance(found, str) or math.isfinite(found) else None


def _body(
    head: StoredCheckpoint, new: str, updated: list[str], versions: dict[str, Version]
) -> dict[str, Any]:
    body = {**head.body, "id": new}
    body["channel_versions"] = {**head.versions, **versions}
    if "updated_channels" in body:
        body["updated_channels"] = updated
    if "pending_sends" in body:
        body["pending_sends"] = []
    # Before 4, a checkpoint's tasks are looked for among the writes of its parent.
    if type(body.get("v")) is int:
        body["v"] = max(body["v"], _TASKS_INSIDE)
    return body


def _metadata(reading: ThreadReading, codes: Iterable[str]) -> dict[str, Any]:
    head = reading.snapshot.head
    old = head.metadata
    step = old.get("step")
    fresh = {key: value for key, value in old.items() if key not in _NOT_CARRIED}
    fresh |= {
        "source": "update",
        "step": step + 1 if type(step) is int else 0,
        "parents": old.get("parents") if type(old.get("parents")) is dict else {},
        OWN: {"repaired": head.id, "codes": sorted(set(codes))},
    }
    counters = _counters(old, reading.channel)
    return {**fresh, COUNTERS: counters} if counters else fresh


def _counters(old: dict[str, Any], channel: str | None) -> dict[str, Any]:
    """Count one more step for every channel that stores changes, but for the one stored in full."""
    found = old.get(COUNTERS)
    counters = found if type(found) is dict else {}
    return {
        name: [count[0], count[1] + 1]
        for name, count in counters.items()
        if name != channel and _is_count(count)
    }


def _is_count(value: Any) -> bool:
    return type(value) is list and [type(part) for part in value] == [int, int]
