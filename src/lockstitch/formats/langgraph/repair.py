"""The repair of a stored thread: what a resume would send, what is wrong, and the new checkpoint.

The conversation is that of the head. The input of a run and what its finished tasks returned are
merged in, as far as LangGraph keeps them next to the checkpoint. If a person is being asked,
LangGraph itself will still use all of that, and nothing that the answer will resolve counts as
wrong.

The checkpoint that a repair adds after the head differs from it in two ways: in its conversation,
and in that nothing is left to run. Whatever made a node run next is removed. All other values are
the head's, byte for byte.
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
from lockstitch.formats import repair
from lockstitch.formats.interface import (
    Context,
    History,
    SourcedMessage,
    Transcript,
    new_finding,
    new_warning,
    trace_sources,
)
from lockstitch.formats.langgraph.codec import (
    StoredMessage,
    Undecodable,
    codec_of,
    new_codecs,
)
from lockstitch.formats.langgraph.conversation import (
    OPAQUE,
    BrokenChain,
    ThreadReading,
    apply_writes,
    calls_left_open,
    calls_without_result,
    failed_results,
    fields_in,
    read_messages,
    read_stored,
    read_update,
    reason_for,
)
from lockstitch.formats.langgraph.decisions import (
    add_ids,
    change_channels,
    count_steps,
    is_first_input,
    repair_metadata,
    repeated_ids,
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
    OWN,
    RETURN,
    START,
    Coded,
    RepairedCheckpoint,
    StoredCheckpoint,
    ThreadSnapshot,
    is_control,
    next_version,
    successor,
)
from lockstitch.formats.records import Record
from lockstitch.formats.write_back import MessageHome, enter_message
from lockstitch.repair.draft import Ledger
from lockstitch.rules import WARNING, Finding
from lockstitch.rules.rule import shown

HIDDEN = "is stored next to the checkpoint, where a new prompt hides it"
DROPPED = "is kept in a run of a subgraph, which a new prompt drops"
_RESUME = "only a resume without input finds them"
_SPOKEN_TO = frozenset({"human", "system"})
_TASKS_INSIDE = 4
_NOT_CARRIED = frozenset({"writes", COUNTERS})


def read_thread(
    snapshot: ThreadSnapshot,
    records: Sequence[Record],
    context: Context,
    channel: str | None = None,
    *,
    forced: bool = False,
) -> Transcript:
    """Parse one namespace of a thread; the snapshot was made from ``records``.

    With ``forced``, a thread that waits for a person is parsed as if it did not.
    """
    head = snapshot.head
    reading = ThreadReading(snapshot, new_codecs())
    transcript = Transcript(
        context, records, History(LANGCHAIN, [], [], []), session=context.name, state=reading
    )
    transcript.forced = forced
    parts = (*head.values.values(), *(write.value for write in head.writes))
    transcript.size = sum(len(value.data) for value in parts)
    code = text = ""
    try:
        if head.fault:
            code, text = "LS907", f"the checkpoint cannot be read: {head.fault}"
        else:
            read_messages(reading, channel)
    except BrokenChain as error:
        code, text = "LS904", str(error)
    except Undecodable as error:
        code, text = "LS907", f"the conversation cannot be read: {error}"
    except RecursionError:
        code, text = "LS907", "the conversation cannot be read: it is nested too deeply"
    if code:
        # It is unknown what the thread holds, so nothing is written to it.
        transcript.findings.append(new_finding(code, _place(transcript, head.record), text))
        transcript.sealed = True
    else:
        _describe_thread(transcript)
    transcript.findings += _unsafe_values(transcript)
    return transcript


def unanswered_calls(snapshot: ThreadSnapshot, channel: str | None = None) -> tuple[str, set[str]]:
    """Return the channel of the conversation, and the calls in it without a real result.

    An earlier step may have left their results, which then become ``ThreadSnapshot.earlier``. No
    calls are returned if a person is being asked, or if the conversation cannot be read.
    """
    reading = ThreadReading(snapshot, new_codecs())
    if snapshot.head.fault:
        return "", set()
    try:
        read_messages(reading, channel)
    except (BrokenChain, Undecodable, RecursionError):
        return "", set()
    if reading.channel is None or reading.is_asked:
        return "", set()
    return reading.channel, calls_without_result(reading.items, real=True)


def _place(transcript: Transcript, record: int, *steps: Any) -> str:
    found = transcript.records[record].place if transcript.records else "1"
    return ".".join((found, *map(str, steps)))


# What is wrong


def _describe_thread(transcript: Transcript) -> None:
    reading: ThreadReading = transcript.state
    snapshot, head = reading.snapshot, reading.snapshot.head
    for item in reading.items:
        enter_message(transcript.history, item.view, MessageHome(item.record, item.path))
    views = LangChain().read([item.view for item in reading.items])
    transcript.turns = sum(view.role == USER for view in views)
    still_open = calls_left_open(reading.base)
    # A run of a subgraph may ask even if the head itself does not.
    transcript.waiting = bool(reading.is_asked or reason_for(reading)) and not transcript.forced
    # A workflow that broke off continues only from its own input.
    is_resumable = reading.is_workflow and START in head.values
    if transcript.waiting:
        transcript.notes.append(
            "waits for a person, and is left alone; --force-cleanup closes what is waiting"
        )
    if is_resumable:
        transcript.notes.append(
            "is an interrupted workflow, and is left alone: invoke(None, config) resumes it"
        )
    elif reading.channel is None:
        transcript.notes.append("holds no conversation")
    if successor(head.id) is None:
        transcript.notes.append(
            "has a last checkpoint whose id is not a time, so none can be put after it"
        )
    others = _other_channels(reading)
    if others and not transcript.waiting and (reading.is_folded or still_open):
        names = ", ".join(sorted(map(shown, others)))
        transcript.notes.append(
            f"what its last step wrote to {names} is kept, but not applied by a repair"
        )
    in_use = {run.snapshot.namespace for run in reading.runs}
    below = [name for name in snapshot.below if name not in in_use]
    if below:
        noun, has = ("run", "has") if len(below) == 1 else ("runs", "have")
        transcript.notes.append(
            f"{len(below)} {noun} of subgraphs {has} checkpoints of their own, left alone"
        )
    for name in head.missing:
        place = _place(transcript, head.record, name)
        text = f"the value of channel {shown(name)} is gone"
        transcript.findings.append(new_finding("LS903", place, text))
    for lost in snapshot.lost:
        noun = "turn" if lost.turns == 1 else "turns"
        text = f"{lost.turns} {noun} up to checkpoint {shown(lost.leaf)} are on another branch"
        place = _place(transcript, head.record)
        transcript.findings.append(new_finding("LS905", place, text))
    transcript.left = sum(lost.turns for lost in snapshot.lost)
    if not transcript.waiting:
        transcript.findings += [*_find_hidden(transcript), *_find_left_behind(transcript)]
        transcript.findings += _find_unfinished(transcript)
        read_others(reading)
        for other in reading.others:
            transcript.findings += _find_in_other(other, transcript)
    if head.missing or successor(head.id) is None or is_resumable:
        transcript.sealed = True


def _other_channels(reading: ThreadReading) -> set[str]:
    """Return the other channels, besides the conversation's, with writes waiting for them.

    A write to a channel that stores changes is part of every later checkpoint, so it does not wait.
    """
    head = reading.snapshot.head
    start = head.values.get(START)
    begun = (fields_in(reading, start) or {}).keys() if start is not None else ()
    written = {write.channel for write in head.writes if not is_control(write.channel)}
    changes = head.counters.keys() & head.versions.keys()
    return {*begun, *(written - changes)} - {str(reading.channel)}


def _find_hidden(transcript: Transcript) -> Iterator[Finding]:
    """Yield what is attached to the head and a new prompt would hide, and repeated ids.

    That is the input of the head's run, and results.
    """
    reading: ThreadReading = transcript.state
    lacking = calls_left_open(reading.base, real=True)
    known = {id(item) for item in reading.base}
    begun = START in reading.snapshot.head.values
    in_runs = {id(item) for run in reading.runs for item in run.items}
    for item in reading.items:
        if id(item) in known:
            continue
        place = _place(transcript, item.record, *item.path)
        fields = fields_of(item.view)
        call, content = fields.get("tool_call_id"), fields.get("content")
        is_text = item.type == "tool" and type(content) is str
        is_error = is_text and str(content).startswith((FAILED, CANCELLED))
        what = "error" if is_error else "result"
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
    for number in repeated_ids([item.view for item in reading.items]):
        item = reading.items[number]
        place = _place(transcript, item.record, *item.path)
        yield new_finding("LS906", place, f"the id {shown(item.id)} belongs to an earlier message")


def _find_left_behind(transcript: Transcript) -> Iterator[Finding]:
    """Yield results that an earlier step left beside its checkpoint, hidden by a prompt."""
    reading: ThreadReading = transcript.state
    evidence = transcript.evidence
    dialect = LangChain()
    lacking = calls_without_result(reading.items, real=True)
    for write in reading.snapshot.earlier if lacking else ():
        try:
            found = apply_writes([], [write], reading.codings)
        except Undecodable:
            continue
        items = [item for item in found if item.type == "tool"]
        views = dialect.read([item.view for item in items])
        for item, view in zip(items, views, strict=True):
            call = fields_of(item.view).get("tool_call_id")
            is_real = not any(map(dialect.is_placeholder, view.parts))
            if is_real and call in lacking and call not in evidence:
                evidence[call] = item.view
                text = f"the result of call {shown(call)} was left next to an earlier checkpoint"
                yield new_finding("LS901", _place(transcript, item.record, *item.path), text)
    still_open = calls_without_result(reading.items) - evidence.keys()
    for stored in reading.snapshot.failed if still_open else ():
        # an error belongs to a call of its own checkpoint, so that counts as the head here
        then = ThreadReading(structs.replace(reading.snapshot, head=stored), reading.codings)
        then.items = reading.items

        def read_then(stored: StoredCheckpoint = stored) -> list[StoredMessage]:
            value = stored.values.get(str(reading.channel))
            try:
                coding = None if value is None else codec_of(new_codecs(), value)
                return read_stored(coding, value.data, 0, ()) if coding and value else []
            except Undecodable:
                return []

        for item in failed_results(then, still_open, read_then):
            call = fields_of(item.view)["tool_call_id"]
            if call not in evidence:
                evidence[call] = item.view
                text = f"the error of call {shown(call)} was left next to an earlier checkpoint"
                yield new_finding("LS901", _place(transcript, item.record), text)


def _find_unfinished(transcript: Transcript) -> Iterator[Finding]:
    """Yield what has finished, but can only be used by the run it belongs to."""
    reading: ThreadReading = transcript.state
    head = reading.snapshot.head
    returned = sum(write.channel == RETURN for write in head.writes)
    if returned:
        noun = "result" if returned == 1 else "results"
        text = f"{returned} {noun} of finished tasks of a function: {_RESUME}"
        yield new_finding("LS909", _place(transcript, head.record), text)
    for run in reading.apart:
        results = sum(item.type == "tool" for item in run.items)
        start = run.snapshot.head.metadata["parents"].get(reading.snapshot.namespace)
        text = (
            f"{len(run.items)} messages, {results} of them results, in the run "
            f"{shown(run.snapshot.namespace)} of a subgraph with messages of its own: {_RESUME}, "
            f"from checkpoint {shown(start)}"
        )
        if run.items:
            yield new_finding("LS909", _place(transcript, run.snapshot.head.record), text)


def _unsafe_values(transcript: Transcript) -> Iterator[Finding]:
    """Yield what LangGraph would import and call, and what nobody can read besides messages."""
    reading: ThreadReading = transcript.state
    head = reading.snapshot.head
    values = [(value, head.record, name) for name, value in head.values.items()]
    values += [(write.value, write.record, write.channel) for write in head.writes]
    reported: set[Any] = set()
    for value, record, name in values:
        if value.tag in OPAQUE:
            continue
        place = _place(transcript, record, name)
        if value.tag == PICKLE:
            reported.add(PICKLED)
            yield new_finding("LS902", place, _loading_text(PICKLED))
        for one, severity in unsafe_names(called_names(value.tag, value.data)).items():
            if one in reported:
                continue
            reported.add(one)
            text = _loading_text(str(one))
            if severity == WARNING:
                # Otherwise every thread of an application with its own classes would count as
                # broken.
                transcript.notes.append(f"channel {shown(name)}: {text}")
            else:
                yield new_finding("LS902", place, text)
        try:
            fault = names_in(codec_of(reading.codings, value), value.data).fault
        except Undecodable as error:
            if not transcript.sealed:
                yield new_finding("LS907", place, f"channel {shown(name)} cannot be read: {error}")
            continue
        if fault:
            yield new_finding("LS907", place, f"a part of channel {shown(name)}: {fault}", WARNING)
    yield from _unsafe_outside(transcript, {str(one) for one in reported})


def _unsafe_outside(transcript: Transcript, harmful: set[str]) -> Iterator[Finding]:
    """Yield what the rest of the head calls, and what everything else in the thread calls."""
    snapshot = transcript.state.snapshot
    head = snapshot.head
    whole = head.whole
    if whole is not None and whole.tag == PICKLE and PICKLED not in harmful:
        harmful.add(PICKLED)
        yield new_finding("LS902", _place(transcript, head.record), _loading_text(PICKLED))
    for one, severity in unsafe_names(called_names(whole.tag, whole.data) if whole else ()).items():
        if severity != WARNING and str(one) not in harmful:
            harmful.add(str(one))
            place = _place(transcript, head.record, *field_with(one, whole))
            yield new_finding("LS902", place, _loading_text(str(one)))
    for found in snapshot.unsafe:
        is_own = found.namespace == snapshot.namespace
        if is_own and found.name in harmful:
            continue
        text = _loading_text(found.name)
        if not is_own:
            text += f", in the namespace {shown(found.namespace)}"
        if found.rows > 1:
            text += f"; {found.rows} stored values do"
        yield new_finding("LS902", found.place, text)


def _loading_text(name: str) -> str:
    if name == PICKLED:
        return f"LangGraph, if it is allowed to load it, loads {PICKLED}"
    return f"LangGraph imports and calls {shown(name)} when it loads this"


# Conversations in other channels than the one that a thread is known by, such as a supervisor's.
#
# It cannot be known from outside which reducer such a channel has. So no write that waits for it is
# merged into it, except results of calls that are open in it. And a list counts as a conversation
# only if it holds nothing but message objects, and someone is spoken to in it.


def read_others(reading: ThreadReading) -> None:
    """Read every other channel of a head that holds a conversation."""
    snapshot = reading.snapshot
    reading.others = []
    for name, value in snapshot.head.values.items():
        if name == reading.channel or is_control(name):
            continue
        if value.tag in OPAQUE or value.tag != snapshot.coding:
            continue
        other = ThreadReading(snapshot, new_codecs(), name)
        try:
            coding = codec_of(other.codings, value)
            other.changes = coding.unwrap(value.data) is not value.data
            other.base = read_stored(coding, value.data, snapshot.head.record, (name,))
        except Undecodable:
            continue
        spoken_to = any(item.type in _SPOKEN_TO for item in other.base)
        if spoken_to and all(item.frame is not None for item in other.base):
            other.items = list(other.base)
            other.items += _results_for_other(other)
            reading.others.append(other)


def _results_for_other(other: ThreadReading) -> Iterator[StoredMessage]:
    """Yield the results of open calls that wait to be written to the channel."""
    lacking = calls_left_open(other.base, real=True)
    found: list[StoredMessage] = []
    for write in other.snapshot.head.writes if lacking else ():
        value = write.value
        if write.channel != other.channel or value.tag != other.snapshot.coding:
            continue
        try:
            items = read_update(codec_of(other.codings, value), value.data, write.record)
        except Undecodable:
            continue
        for item in items:
            if fields_of(item.view).get("tool_call_id") in lacking:
                del lacking[fields_of(item.view)["tool_call_id"]]
                found.append(item)
    yield from found
    yield from failed_results(other, lacking, lambda: [*other.base, *found])


def _history_of(other: ThreadReading) -> History:
    """Return the conversation of a channel with the places of its messages."""
    history = History(LANGCHAIN, [], [], [])
    for item in other.items:
        enter_message(history, item.view, MessageHome(item.record, item.path))
    return history


def _find_in_other(other: ThreadReading, transcript: Transcript) -> Iterator[Finding]:
    """Yield what is wrong with the conversation of a channel."""
    history = _history_of(other)
    for item in other.items[len(other.base) :]:
        call = shown(fields_of(item.view).get("tool_call_id"))
        text = f"the result of call {call} in channel {shown(other.channel)} {HIDDEN}"
        place = transcript.records[item.record or other.snapshot.head.record].place
        yield new_finding("LS901", place, text)
    for found in repair.plan_history(history, frozenset(), to_write=False).findings:
        yield structs.replace(found, place=repair.place_in_store(found.at, history, transcript))


def repair_other(
    other: ThreadReading, transcript: Transcript, ledger: Ledger | None = None
) -> list[SourcedMessage]:
    """Return the repaired conversation of a channel; empty if it needs or allows no repair."""
    history = _history_of(other)
    plan = repair.plan_history(history, frozenset())
    lossy = frozenset(f.code for f in plan.findings if f.lossy and f.code in repair.LOSSY)
    plan = repair.plan_history(history, lossy) if lossy else plan
    if not plan.healed or not (plan.changed or len(other.items) > len(other.base)):
        return []
    if ledger is not None:
        repair.take_over_changes(plan, history, transcript, ledger)
    return trace_sources(history, plan.repaired)


# The checkpoint after the head


def repair_checkpoint(
    transcript: Transcript, messages: Sequence[SourcedMessage], codes: Iterable[str] = ()
) -> RepairedCheckpoint | None:
    """Return the checkpoint with these messages and nothing left to run; None if it gets no id.

    The transcript comes from ``read_thread``; its own messages keep their bytes. If the head is not
    stored yet, since a repair takes several steps, it is changed instead of followed.
    """
    reading: ThreadReading = transcript.state
    head = reading.snapshot.head
    known = [found for found in head.versions.values() if isinstance(found, str | int | float)]
    try:
        new, version = successor(head.id), next_version(known)
    except (ValueError, OverflowError):
        # The versions cannot be counted up.
        return None
    is_countable = isinstance(version, str) or math.isfinite(version)
    if new is None or not is_countable or reading.channel is None:
        return None
    value = _value(reading, messages)
    if transcript.records[head.record].is_new:
        return _repair_again(reading, value, codes)
    start = _kept_input(reading, value)
    due = [name for name in reading.due if not (start and name == START)]
    changed = {reading.channel: value}
    for other in reading.others:
        if repaired := repair_other(other, transcript):
            changed[str(other.channel)] = _value(other, repaired)
    updated = {*changed, *((START,) if start else ())}
    if start is not None and start != head.values[START]:
        changed[START] = start
    values, versions = change_channels(head.values, head.versions, changed, due, version)
    body = {**head.body, "id": new, "channel_versions": versions}
    if "updated_channels" in body:
        body["updated_channels"] = sorted(updated)
    if "pending_sends" in body:
        body["pending_sends"] = []
    # Before version 4, LangGraph looks for a checkpoint's tasks among its parent's writes.
    if type(body.get("v")) is int:
        body["v"] = max(body["v"], _TASKS_INSIDE)
    counters = count_steps(head.counters, 1, {reading.channel})
    carried = {key: value for key, value in head.metadata.items() if key not in _NOT_CARRIED}
    return RepairedCheckpoint(
        new,
        head.id,
        body,
        values,
        # A live saver adds what its config says; here, the head's metadata is carried over.
        carried | repair_metadata(head.metadata, head.id, codes, counters),
        frozenset(changed),
        frozenset(due),
    )


def _kept_input(reading: ThreadReading, value: Coded) -> Coded | None:
    """Return a thread's first input to keep, with the ids of its messages; None if it is not kept.

    It may belong to a graph of states that has not taken it up, or to a workflow, which cannot be
    resumed without it. In a graph, messages that occur twice under one id are merged.
    """
    head, channel = reading.snapshot.head, str(reading.channel)
    start = head.values.get(START)
    if start is None or not is_first_input(head.versions, (w.channel for w in head.writes)):
        return None
    try:
        coding = codec_of(reading.codings, start)
        fields = coding.fields(start.data)
        old, new = coding.items(fields[channel]), coding.items(value.data)
    except (Undecodable, KeyError):
        return None
    if old is None or new is None or len(old) != len(new):
        return None
    kept: list[bytes] = []
    for own, made in zip(old, new, strict=True):
        found, known = coding.message(own), coding.message(made)
        if known is None or known.id is None:
            return None
        if found is not None and found.frame is not None:
            kept.append(own if found.id == known.id else made)
            continue
        plain = coding.plain(own) if coding.is_plain(own) else None
        if type(plain) is not dict:
            return None
        kept.append(coding.encode({**plain, "id": known.id}))
    return Coded(start.tag, coding.join_map({**fields, channel: coding.join_list(kept)}))


def _repair_again(reading: ThreadReading, value: Coded, codes: Iterable[str]) -> RepairedCheckpoint:
    head, channel = reading.snapshot.head, str(reading.channel)
    codes = sorted({*head.own.get("codes", ()), *codes})
    values = {**head.values, channel: value}
    version = head.versions.get(channel)
    gone = {name for name, own in head.versions.items() if own == version} - values.keys()
    return RepairedCheckpoint(
        head.id,
        str(head.parent),
        head.body,
        values,
        {**head.metadata, OWN: {**head.own, "codes": codes}},
        frozenset({channel}),
        frozenset(gone),
    )


def _value(reading: ThreadReading, messages: Sequence[SourcedMessage]) -> Coded:
    """Return the value of a channel with these messages, reusing the bytes of their origins."""
    coding = reading.coding
    views = add_ids([one.message for one in messages], [item.view for item in reading.base])
    written: list[bytes] = []
    for view, one in zip(views, messages, strict=True):
        origin = reading.items[one.origin] if 0 <= one.origin < len(reading.items) else None
        fits = origin is not None and origin.tag == coding.tag
        written.append(coding.write_message(view, origin if fits else None))
    whole = coding.join_list(written)
    return Coded(coding.tag, coding.wrap(whole) if reading.changes else whole)
