"""The conversation of a thread: that of its head, with its pending writes merged in.

The input of a run, what its finished tasks returned, and the errors of others stay beside the
checkpoint until the whole step is done. Updates are merged over stored messages as LangGraph's own
reducers do it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid5

import msgspec
from msgspec import Struct, field
from msgspec.msgpack import Ext

from lockstitch.conversation.json_text import is_index
from lockstitch.conversation.parts import CALL, RESULT
from lockstitch.dialects.langchain import LangChain
from lockstitch.dialects.placeholders import CANCELLED, FAILED
from lockstitch.formats.langgraph.codec import Codec, StoredMessage, Undecodable, codec_of, is_role
from lockstitch.formats.langgraph.decisions import (
    PendingWork,
    call_in,
    error_text,
    failed_calls,
    fold_updates,
    is_workflow,
    makes_due,
    merge_messages,
    open_calls,
    reason_to_wait,
    sort_writes,
)
from lockstitch.formats.langgraph.snapshot import (
    JSON,
    MESSAGES,
    OWN,
    PREVIOUS,
    PUSH,
    START,
    TASK,
    TASKS,
    WITHIN,
    Coded,
    StoredCheckpoint,
    StoredWrite,
    ThreadSnapshot,
    is_begun_by,
    is_control,
    wanted,
)

_PAIR = 2
_EMPTY = frozenset({"null", "empty"})


class BrokenChain(ValueError):
    """Says which checkpoint or write is missing from a chain of changes."""


def apply_writes(
    left: Sequence[StoredMessage], writes: Iterable[StoredWrite], codings: Mapping[str, Codec]
) -> list[StoredMessage]:
    """Merge writes in the order in which LangGraph applies them."""
    updates: list[tuple[bool, list[StoredMessage]]] = []
    for write in sorted(writes, key=lambda write: write.order):
        if write.value.tag not in _EMPTY:
            coding = codec_of(codings, write.value)
            instead = coding.replacement_in(write.value.data)
            data = write.value.data if instead is None else instead
            updates.append((instead is not None, read_update(coding, data, write.record)))
    return fold_updates(left, updates)


def read_update(
    coding: Codec, data: bytes, record: int, path: tuple[str | int, ...] = ()
) -> list[StoredMessage]:
    """Return the messages of an update: one or a list, in any form that a reducer accepts.

    A value that is not a message yet becomes one, as the reducer would make it.
    """
    parts = coding.items(data)
    found: list[StoredMessage] = []
    for number, part in enumerate([data] if parts is None else parts):
        item = coding.message(part)
        if item is None or (item.frame is None and coding.objects):
            value = coding.plain(part)
            if value is None:
                continue
            view = _coerce(value)
            if view is not None and coding.is_plain(part):
                raw = coding.write_message(view, None)
                item = coding.message(raw) or StoredMessage(view, raw, coding.tag)
            elif item is None:
                raise Undecodable("it holds something that is not a message")
        item.record, item.path = record, (*path, number)
        found.append(item)
    return found


def _coerce(value: Any) -> dict[str, Any] | None:
    """Return a message made from a text, from a role and a text, or from a map with a role."""
    # LangChain does this for a live graph, but makes objects, and may not be installed here.
    if type(value) is str:
        return {"content": value, "type": "human"}
    if type(value) is list and len(value) == _PAIR and is_role(value[0]):
        return {"content": value[1], "type": _TYPES.get(value[0], value[0])}
    if type(value) is not dict or "tool_calls" in value:
        return None
    kind = str(value.get("role") or value.get("type"))
    rest = {key: part for key, part in value.items() if key not in ("role", "type")}
    return {**rest, "type": _TYPES.get(kind, kind)} if is_role(kind) else None


_TYPES = {"user": "human", "assistant": "ai", "developer": "system"}


def read_stored(
    coding: Codec, data: bytes, record: int, path: tuple[str | int, ...]
) -> list[StoredMessage]:
    """Return the messages of a channel with a conversation; raise Undecodable for anything else."""
    whole = coding.unwrap(data)
    parts = coding.items(whole)
    if parts is None:
        if coding.plain(whole) is None:
            return []
        raise Undecodable("it is not a list of messages")
    found: list[StoredMessage] = []
    for number, part in enumerate(parts):
        item = coding.message(part)
        if item is None:
            raise Undecodable("it holds something that is not a message")
        item.record, item.path = record, (*path, number)
        found.append(item)
    coding.objects = not found or any(item.frame is not None for item in found)
    return found


def replay_channel(
    snapshot: ThreadSnapshot, channel: str, codings: Mapping[str, Codec]
) -> list[StoredMessage]:
    """Compute a conversation that is stored as changes, starting from its last full value.

    Raises ``BrokenChain`` if one of the ancestors that make up the value is missing.
    """
    # Nearest first.
    chain: list[StoredCheckpoint] = []
    for stored in snapshot.ancestors:
        if stored.fault:
            raise Undecodable(stored.fault)
        chain.append(stored)
        if channel in stored.values:
            break
    if not chain or (channel not in chain[-1].values and snapshot.cut):
        gone = snapshot.cut or snapshot.head.parent
        raise BrokenChain(f"checkpoint {gone or 'before it'} is gone")
    changes = [[one for one in stored.writes if one.channel == channel] for stored in chain]
    for child, parent, writes in zip([snapshot.head, *chain], chain, changes, strict=False):
        if child.versions.get(channel) != parent.versions.get(channel) and not writes:
            raise BrokenChain(f"what was written after checkpoint {parent.id} is gone")
    items: list[StoredMessage] = []
    if channel in chain[-1].values:
        seed = chain[-1].values[channel]
        items = read_stored(codec_of(codings, seed), seed.data, chain[-1].record, (channel,))
    for writes in reversed(changes):
        items = apply_writes(items, writes, codings)
    return items


# Codings of values that are not decoded.
OPAQUE = frozenset({"null", "bytes", "bytearray", "empty"})
_NEW_NAMES = 3
_NO_TASKS = (b"", b"[]", b"\x90")
# The longest text of an error, in characters.
_LONGEST = 10_000


class ThreadReading(Struct):
    """What was read from a snapshot.

    ``base`` is the conversation in the head, and ``items`` the same with all pending writes merged
    in. ``changes`` says that the channel stores only changes, and ``due`` names the channels that
    make a node run next. ``runs`` are those of subgraphs whose messages continue this conversation,
    ``apart`` those of which that is unknown. ``others`` are further channels with conversations of
    their own.
    """

    snapshot: ThreadSnapshot
    codings: dict[str, Codec]
    channel: str | None = None
    base: list[StoredMessage] = field(default_factory=list)
    items: list[StoredMessage] = field(default_factory=list)
    changes: bool = False
    due: tuple[str, ...] = ()
    is_asked: bool = False
    runs: list[ThreadReading] = field(default_factory=list)
    apart: list[ThreadReading] = field(default_factory=list)
    others: list[ThreadReading] = field(default_factory=list)

    @property
    def coding(self) -> Codec:
        """The coding of the head."""
        return self.codings[self.snapshot.coding]

    @property
    def is_workflow(self) -> bool:
        """Whether this is surely a function with tasks, and not a graph with a state."""
        head = self.snapshot.head
        writes = ((write.channel, write.path) for write in head.writes)
        return is_workflow(head.versions, head.values, writes)

    @property
    def work(self) -> PendingWork[StoredWrite]:
        """The writes attached to the head, sorted by kind."""
        writes = self.snapshot.head.writes
        return sort_writes((write.task, write.channel, write) for write in writes)

    @property
    def is_folded(self) -> bool:
        """Whether anything is attached to the head that its conversation lacks."""
        return len(self.base) != len(self.items) or any(
            one is not other for one, other in zip(self.base, self.items, strict=False)
        )


def read_messages(reading: ThreadReading, named: str | None) -> None:
    """Read the conversation of a snapshot; ``named`` is its channel, if that is known.

    Raises ``Undecodable``, or ``BrokenChain``, if nobody can say what it is.
    """
    snapshot = reading.snapshot
    head = snapshot.head
    reading.due = tuple(name for name in head.values if is_due(reading, name))
    reading.is_asked = bool(reading.work.asking)
    reading.channel = channel = named or _channel(reading)
    if channel is None:
        reading.items = _merge_runs(reading, [])
        return
    reading.changes = channel in wanted(head)
    if reading.changes:
        reading.base = replay_channel(snapshot, channel, reading.codings)
    elif channel in head.values and head.values[channel].tag not in OPAQUE:
        value = head.values[channel]
        coding = codec_of(reading.codings, value)
        reading.changes = coding.unwrap(value.data) is not value.data
        reading.base = read_stored(coding, value.data, head.record, (channel,))
    reading.items = _merge_runs(reading, _merge_pending(reading, channel))
    if not reading.is_asked:
        # By ids only: an error that answers the last call of a turn would make a rollback keep the
        # turn.
        lacking = calls_without_result(reading.items, real=True)
        reading.items += failed_results(reading, lacking, reading.items.copy)


def _merge_runs(reading: ThreadReading, items: list[StoredMessage]) -> list[StoredMessage]:
    """Merge the messages of subgraph runs that had not returned, as their nodes would return them.

    Such a run was given the conversation, or its end, and continues it under the same ids. If it
    was given something else, only its node knows what it returns. Messages that a repair has
    brought in already are not brought in again.
    """
    returned = {task for task, _, _ in reading.work.returned}
    for snapshot in reading.snapshot.runs:
        if snapshot.namespace.rpartition(TASK)[2] in returned:
            continue
        run = ThreadReading(snapshot, reading.codings)
        try:
            read_messages(run, None if reading.channel is None else reading.channel)
        except (BrokenChain, Undecodable):
            run.items = []
        reading.is_asked |= run.is_asked or bool(reason_for(run))
        known = {item.id for item in items if item.id is not None}
        goes_on = bool(run.items) and run.items[0].id in known
        if not goes_on or run.snapshot.coding != reading.snapshot.coding:
            reading.apart.append(run)
        elif is_begun_by(
            snapshot.head.metadata, reading.snapshot.namespace, reading.snapshot.head.id
        ):
            reading.runs.append(run)
            items = merge_messages(items, run.items)
    return items


def reason_for(reading: ThreadReading) -> str:
    """Return what a thread waits for a person at; see ``decisions.reason_to_wait``."""
    head = reading.snapshot.head
    return reason_to_wait(
        reading.work,
        head.body.get("versions_seen"),
        is_due=bool(reading.due),
        has_open_calls=lambda: bool(calls_left_open(reading.base)),
    )


def _merge_pending(reading: ThreadReading, channel: str) -> list[StoredMessage]:
    """Merge what is attached to the head: the input of its run, then what its tasks returned."""
    head = reading.snapshot.head
    items = list(reading.base)
    on_channel = [write for write in head.writes if write.channel == channel]
    start = head.values.get(START)
    # Once the node that takes an input up has returned, its messages are among the writes. And a
    # repair that keeps an input has put them into the conversation.
    if start is not None and not on_channel and OWN not in head.metadata:
        data = (fields_in(reading, start) or {}).get(channel)
        if data is not None:
            coding = codec_of(reading.codings, start)
            items = merge_messages(items, read_update(coding, data, head.record, (START, channel)))
    return apply_writes(items, on_channel, reading.codings)


def fields_in(reading: ThreadReading, value: Coded) -> dict[str, bytes] | None:
    """Split a value that should be a map; return None if it is not."""
    if value.tag in OPAQUE:
        return None
    try:
        return codec_of(reading.codings, value).fields(value.data)
    except Undecodable:
        return None


def _channel(reading: ThreadReading) -> str | None:
    """Return the channel of the conversation: the one with the usual name, or the first that fits.

    Raises Undecodable if the channel with that name exists, but cannot be read at all.
    """
    head = reading.snapshot.head
    if reading.is_workflow:
        return PREVIOUS if PREVIOUS in head.values and _holds(reading, PREVIOUS) else None
    value = head.values.get(MESSAGES)
    if value is not None and value.tag not in OPAQUE:
        coding = codec_of(reading.codings, value)
        items = coding.items(coding.unwrap(value.data))
        if items is not None and all(coding.message(item) is not None for item in items):
            return MESSAGES
    written = {write.channel for write in head.writes}
    start = head.values.get(START)
    begun = (fields_in(reading, start) or {}) if start is not None else {}
    if value is None and (MESSAGES in {*written, *wanted(head), *begun}):
        return MESSAGES
    holding = [name for name in head.values if not is_control(name) and _holds(reading, name)]
    return holding[0] if holding else None


def _holds(reading: ThreadReading, channel: str) -> bool:
    """Whether a channel holds a list of messages and nothing else."""
    value = reading.snapshot.head.values[channel]
    try:
        coding = codec_of(reading.codings, value)
        items = coding.items(coding.unwrap(value.data)) or []
        return bool(items) and all(coding.message(item) is not None for item in items)
    except Undecodable:
        return False


def is_due(reading: ThreadReading, name: str) -> bool:
    """Whether a channel makes a node run next; an edge from several does once all have arrived.

    In old checkpoints, a finished node leaves its name in a channel of that name, which makes the
    next nodes run.
    """
    value = reading.snapshot.head.values[name]

    def members() -> set[Any]:
        readable = value.tag not in OPAQUE
        return codec_of(reading.codings, value).members(value.data) if readable else set()

    if makes_due(name, lambda: value.data not in _NO_TASKS, members):
        return True
    body = reading.snapshot.head.body
    version, seen = body.get("v"), body.get("versions_seen")
    is_old = type(version) is int and version < _NEW_NAMES
    if is_old and value.tag not in OPAQUE and type(seen) is dict and name in seen:
        return value.data == codec_of(reading.codings, value).encode(name)
    return False


def calls_without_result(items: Sequence[StoredMessage], *, real: bool = False) -> set[str]:
    """Return the ids of calls without an answer anywhere in a conversation.

    This is for a search by ids alone: beside an ancestor, nobody knows which of two replies a call
    was in. With ``real``, a placeholder is not an answer.
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


def calls_left_open(
    items: Sequence[StoredMessage], *, real: bool = False, at_end: bool = False
) -> dict[str, str | None]:
    """Return the calls that no later result answers; see ``decisions.open_calls``.

    With ``real``, a placeholder is not an answer.
    """
    dialect = LangChain()

    def steps() -> Iterator[tuple[str | None, bool, list[str]]]:
        views = dialect.read([item.view for item in items])
        for item, view in zip(items, views, strict=True):
            if item.type != "tool":
                yield item.id, False, [one.id for one in view.parts if one.kind == CALL and one.id]
            results = [one for one in view.parts if one.kind == RESULT]
            if results:
                counted = (one.id for one in results if not (real and dialect.is_placeholder(one)))
                yield item.id, True, [one for one in counted if one]

    return open_calls(steps(), at_end=at_end)


# Calls that failed. LangGraph stores what a task raised, and under which task; the list of tasks in
# the checkpoint says which call that was.


def failed_results(
    reading: ThreadReading, lacking: Collection[str], items: Callable[[], Sequence[StoredMessage]]
) -> Iterator[StoredMessage]:
    """Yield messages with the error of each call that failed and lacks a result.

    ``items`` returns the conversation of the step that failed.
    """
    errors = reading.work.errors
    if not errors or not lacking:
        return
    views = LangChain().read([item.view for item in reading.items])
    parts = [part for view in views for part in view.parts if part.kind == CALL]
    tools = {part.id: part.name for part in parts if part.id and part.name}
    sent = [*_sent_tasks(reading.snapshot.head.values.get(TASKS))]

    def at_end() -> Collection[str]:
        # A task that was sent something had one call, even if the list of tasks is gone. If one
        # task had several calls, nothing is said, since it is unknown which of them failed.
        is_sent = any(write.path.startswith(f"~{PUSH}") for _, _, write in errors)
        calls = {} if is_sent else calls_left_open(items(), real=True, at_end=True)
        return calls if len(calls) == 1 else ()

    found = failed_calls(
        errors,
        [call_in(arg) for _, arg in sent],
        lambda _, write, number: _is_task(reading, write, number, sent[number][0]),
        at_end,
    )
    for call, write in found.items():
        try:
            value = codec_of(reading.codings, write.value).plain(write.value.data)
        except Undecodable:
            continue
        if type(value) is dict:
            value = ": ".join(str(value[key]) for key in ("name", "message") if value.get(key))
        if call in lacking and type(value) is str and value:
            error = error_text(value)
            view = {
                "type": "tool",
                "content": CANCELLED if error is None else f"{FAILED} {error[:_LONGEST]}",
                "tool_call_id": call,
                "name": tools.get(call),
                "status": "error",
            }
            raw = reading.coding.write_message(view, None)
            item = reading.coding.message(raw) or StoredMessage(view, raw, reading.coding.tag)
            item.record = write.record
            yield item


def _is_task(reading: ThreadReading, write: StoredWrite, number: int, node: str) -> bool:
    """Whether a write belongs to the task with that number; LangGraph.js only has the task's id."""
    if write.path:
        steps = write.path.removeprefix("~").split(", ")
        return (
            steps[0] == PUSH and len(steps) > 1 and is_index(steps[1]) and int(steps[1]) == number
        )
    head, space = reading.snapshot.head, reading.snapshot.namespace
    step = head.metadata.get("step")
    try:
        start = UUID(head.id)
    except ValueError:
        return False
    within = f"{space}{WITHIN}{node}" if space else node
    words = [within, str(step + 1 if type(step) is int else 0), node, PUSH, str(number)]
    name = json.dumps(words, separators=(",", ":"), ensure_ascii=False)
    return str(uuid5(start, name)) == write.task


def _sent_tasks(value: Coded | None) -> Iterator[tuple[str, Any]]:
    """Yield the node and the argument of every task in the list of a head."""
    try:
        if value is None:
            return
        is_text = value.tag == JSON
        found = msgspec.json.decode(value.data) if is_text else msgspec.msgpack.decode(value.data)
        for one in found if type(found) is list else ():
            if is_text:
                yield str(one["node"]), one.get("args", one.get("arg"))
            elif isinstance(one, Ext):
                _, _, [node, arg, *_] = msgspec.msgpack.decode(bytes(one.data))
                yield str(node), arg
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return
