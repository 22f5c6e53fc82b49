"""Threads of a LangGraph graph as journals: what the records of one say, and what they add up to.

A thread is a session. Each ``put`` of a checkpoint and each ``put_writes`` is one record, and what
a checkpoint shares with its parent is not written again. A message is an *item*: items are numbered
in the order in which they come in the journal, and kept once. A list is stored as the change that
makes it from another list; lists are numbered in the same way. A value is coded as

- ``7`` for item 7, ``{"l": 3}`` for list 3, ``{"d": {…}}`` for a dictionary of coded values,
- ``{"j": …}`` for JSON, ``{"x": name}`` for JSON in a blob,
- ``{"t": tag, "b": base64}`` or ``{"t": tag, "x": name}`` for what only a serialiser can read,
- ``{"s": …}`` for the snapshot of a delta channel.

An item is a message as LangChain writes it (``{"type": "ai", "data": {…}}``), the change of another
item (``{"of": 7, "set": {…}}``), a task to send (``{"send": node, "arg": …}``), or coded as above.

A thread can be written again with only some of its checkpoints, and its conversation can be read
without any of LangGraph's classes.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Raw, Struct

from lockstitch.dialects.langchain import BARE, envelope_of, fields_of
from lockstitch.errors import Damaged
from lockstitch.formats.langgraph.codec import StoredMessage, Undecodable, is_message, new_codecs
from lockstitch.formats.langgraph.conversation import calls_without_result
from lockstitch.formats.langgraph.decisions import makes_due, merge_messages, sort_writes
from lockstitch.formats.langgraph.snapshot import MESSAGES, Version, is_trigger
from lockstitch.journal.events import INLINE
from lockstitch.journal.records import NEW, Head, JournalEntry, JournalRecord, blob_name
from lockstitch.session.listing import THREAD_RECORDS, ThreadConversation

_FITS = re.compile(r"[A-Za-z0-9._-]{1,118}")
_FLAT = 8
ABSENT = Raw(b"null")
NO_LIST = -1

Fetch = Callable[[list[str]], dict[str, bytes]]


def session_of(thread: str) -> str:
    """Return the name of the session that keeps a thread; an id that does not fit is hashed."""
    if _FITS.fullmatch(thread):
        return f"langgraph.{thread}"
    hashed = blake2b(thread.encode("utf-8", "surrogatepass"), digest_size=16)
    return f"langgraph-{hashed.hexdigest()}"


# What is written


class ThreadLine(Struct, frozen=True, tag_field="kind", tag="thread"):
    """The first record, which says which thread the journal is of."""

    id: str


class ListChange(Struct, frozen=True, array_like=True):
    """A list: the first ``head`` and last ``tail`` elements of another, with ``add`` in between."""

    base: int
    head: int
    tail: int
    add: tuple[Raw, ...]


class CheckpointLine(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="checkpoint"
):
    """A checkpoint, as far as it differs from its parent, if that is in the journal.

    ``values`` are coded; null says that the channel has no value any more. A channel that is not
    listed has its parent's value. ``body`` and ``meta`` differ by their first level, ``seen`` by
    node.
    """

    id: str
    ns: str = ""
    parent: str = ""
    items: tuple[Raw, ...] = ()
    lists: tuple[ListChange, ...] = ()
    values: dict[str, Raw] = {}
    versions: dict[str, Version] = {}
    unversioned: tuple[str, ...] = ()
    seen: dict[str, dict[str, Version]] = {}
    unseen: tuple[str, ...] = ()
    body: dict[str, Raw] = {}
    bodiless: tuple[str, ...] = ()
    meta: dict[str, Raw] = {}
    metaless: tuple[str, ...] = ()
    blobs: tuple[str, ...] = ()


class TaskWrite(Struct, frozen=True, array_like=True):
    """A task's write number ``index``, or a fixed number below 0 for its signals."""

    index: int
    channel: str
    value: Raw


class WritesLine(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="writes"
):
    """The writes of a task that ran from a checkpoint."""

    id: str
    ns: str = ""
    task: str = ""
    path: str = ""
    items: tuple[Raw, ...] = ()
    lists: tuple[ListChange, ...] = ()
    writes: tuple[TaskWrite, ...] = ()
    blobs: tuple[str, ...] = ()


Line = ThreadLine | CheckpointLine | WritesLine
_DECODER = msgspec.json.Decoder(Line)
_decode = msgspec.json.Decoder().decode


def line_of(body: bytes) -> Line | None:
    """Return a record's line; None for a record that is not about a thread."""
    if not body.startswith(THREAD_RECORDS):
        return None
    try:
        line: Line = _DECODER.decode(body)
    except msgspec.MsgspecError:
        return None
    return line


# What the records add up to


class CheckpointNode(Struct):
    """A checkpoint with everything that it has, including its parents' part."""

    id: str
    parent: str
    values: dict[str, Raw]
    versions: dict[str, Version]
    seen: dict[str, dict[str, Version]]
    body: dict[str, Raw]
    meta: dict[str, Raw]
    seq: int = 0


class PendingWrite(Struct, frozen=True):
    """A write that waits at a checkpoint, or made the next one."""

    task: str
    path: str
    index: int
    channel: str
    value: Raw


Writes = dict[tuple[str, int], PendingWrite]


class ThreadJournal:
    """The fold: every checkpoint of every namespace, and what was written to each."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.head: Head = NEW
        self.size = 0
        self.at = 0
        self.spaces: dict[str, dict[str, CheckpointNode]] = {}
        self.writes: dict[tuple[str, str], Writes] = {}
        self.items: list[Raw] = []
        self.lists: list[ListChange] = []
        self.blobs: set[str] = set()
        self._latest: dict[str, str] = {}
        self._flat: OrderedDict[int, list[Raw]] = OrderedDict()

    def apply(self, record: JournalRecord) -> None:
        """Apply the next record; one that is not about a thread only moves the head."""
        self.add(line_of(record.body), record.seq)
        self.size += len(record.body)
        self.at = max(self.at, record.at)
        self.head = Head(record.seq, record.digest, record.epoch)

    def add(self, line: Line | None, seq: int = 0) -> None:
        """Apply what a record says."""
        if isinstance(line, ThreadLine):
            self.id = line.id
        elif line is not None:
            self.items += line.items
            self.lists += line.lists
            self.blobs.update(line.blobs)
            if isinstance(line, CheckpointLine):
                self._put(line, seq)
                return
            kept = self.writes.setdefault((line.ns, line.id), {})
            for write in line.writes:
                place = (line.task, write.index)
                if write.index < 0 or place not in kept:
                    kept[place] = PendingWrite(
                        line.task, line.path, write.index, write.channel, write.value
                    )

    def _put(self, line: CheckpointLine, seq: int) -> None:
        space = self.spaces.setdefault(line.ns, {})
        base = space.get(line.parent) or NO_NODE
        versions = _change_fields(base.versions, line.versions, line.unversioned)
        values = {**base.values, **line.values}
        space[line.id] = CheckpointNode(
            id=line.id,
            parent=line.parent,
            values={name: v for name, v in values.items() if name in versions and v != ABSENT},
            versions=versions,
            seen=_change_fields(base.seen, line.seen, line.unseen),
            body=_change_fields(base.body, line.body, line.bodiless),
            meta=_change_fields(base.meta, line.meta, line.metaless),
            seq=seq,
        )
        # A clock that is behind must not hide what was built on the last checkpoint.
        if line.id > self.latest(line.ns) or line.parent == self.latest(line.ns):
            self._latest[line.ns] = line.id

    def latest(self, ns: str = "") -> str:
        """Return the id of a namespace's last checkpoint, "" if there is none."""
        return self._latest.get(ns, "")

    def node(self, ns: str, checkpoint: str) -> CheckpointNode | None:
        """Return a checkpoint, None if it is not there."""
        return self.spaces.get(ns, {}).get(checkpoint)

    def pending(self, ns: str, checkpoint: str) -> list[PendingWrite]:
        """Return the writes of a checkpoint in the order in which they are applied."""
        found = self.writes.get((ns, checkpoint), {}).values()
        return sorted(found, key=lambda one: (one.path, one.task, one.index))

    def ancestors(self, ns: str, checkpoint: str) -> Iterator[CheckpointNode]:
        """Yield the checkpoints before one, nearest first, as far as they are there."""
        space = self.spaces.get(ns, {})
        seen = {checkpoint}
        node = space.get(checkpoint)
        while node is not None and node.parent not in seen:
            seen.add(node.parent)
            node = space.get(node.parent)
            if node is not None:
                yield node

    def elements(self, number: int) -> list[Raw]:
        """Return the coded elements of a list, which must not be changed."""
        path: list[int] = []
        while number != NO_LIST and number not in self._flat:
            # A list is made from an earlier one; any other base would loop for ever.
            if not 0 <= number < len(self.lists) or self.lists[number].base >= number:
                raise Damaged(f"a checkpoint names list {number}, which the journal lacks")
            path.append(number)
            number = self.lists[number].base
        found = list(self._flat[number]) if number != NO_LIST else []
        for step in reversed(path):
            change = self.lists[step]
            found[change.head : len(found) - change.tail] = change.add
        if path:
            self._flat[path[0]] = found
            if len(self._flat) > _FLAT:
                self._flat.popitem(last=False)
        return found

    def item(self, number: int) -> Raw:
        """Return an item as it is written."""
        if not 0 <= number < len(self.items):
            raise Damaged(f"a checkpoint names item {number}, which the journal lacks")
        return self.items[number]


NO_NODE = CheckpointNode("", "", {}, {}, {}, {}, {})


def _change_fields(
    base: dict[str, Any], more: dict[str, Any], less: Iterable[str]
) -> dict[str, Any]:
    if not more and not less:
        return base
    made = {**base, **more}
    for name in less:
        made.pop(name, None)
    return made


# Reading values


class OpaqueValue(Struct, frozen=True):
    """A value that only the serialiser with this tag can read."""

    tag: str
    data: bytes


class ValueDecoder:
    """Reads coded values, as far as that needs nothing but JSON.

    Messages are returned in LangChain's envelope, everything else as it is written.
    """

    def __init__(self, thread: ThreadJournal, fetch: Fetch) -> None:
        self.thread = thread
        self._fetch = fetch

    def value(self, raw: Raw) -> Any:
        """Return a coded value, decoded."""
        return self.coded(_decode(raw))

    def coded(self, coded: Any) -> Any:
        """Return a coded value, decoded, after its JSON was parsed."""
        if isinstance(coded, int):
            return self.item(coded)
        if "j" in coded:
            return coded["j"]
        if "l" in coded:
            return self.list(coded["l"])
        if "d" in coded:
            return {name: self.coded(value) for name, value in coded["d"].items()}
        if "s" in coded:
            return self.snapshot(self.coded(coded["s"]))
        data = self.blob(coded["x"]) if "x" in coded else b64decode(coded["b"])
        return self.opaque(coded["t"], data) if "t" in coded else _decode(data)

    def blob(self, name: str) -> bytes:
        """Return a large value."""
        return self._fetch([name])[name]

    def list(self, number: int) -> list[Any]:
        """Return a list, decoded."""
        return [self.value(raw) for raw in self.thread.elements(number)]

    def item(self, number: int) -> Any:
        """Return an item, decoded."""
        form = self.form(number)
        return self.opaque(form["t"], self._bytes(form)) if "t" in form else form

    def form(self, number: int) -> dict[str, Any]:
        """Return an item in full, with all changes made."""
        changes = []
        form = self._plain(number)
        while "of" in form:
            changes.append(form)
            form = self._plain(form["of"])
        for change in reversed(changes):
            if "data" in form:
                data = {**form["data"], **change["set"]}
                for name in change.get("not", ()):
                    data.pop(name, None)
                form = {**form, "data": data}
            else:
                form = {**form, "fields": {**form.get("fields", {}), **change["set"]}}
        return form

    def _plain(self, number: int) -> dict[str, Any]:
        form: dict[str, Any] = _decode(self.thread.item(number))
        return _decode(self.blob(form["x"])) if "x" in form and "t" not in form else form

    def _bytes(self, form: dict[str, Any]) -> bytes:
        return self.blob(form["x"]) if "x" in form else b64decode(form["b"])

    def opaque(self, tag: str, data: bytes) -> Any:
        """Return what a serialiser wrote."""
        return OpaqueValue(tag, data)

    def snapshot(self, value: Any) -> Any:
        """Return the snapshot of a delta channel."""
        return value


# Writing a thread again

_encode = msgspec.json.Encoder().encode


def rewrite_thread(
    thread: ThreadJournal, kept: Collection[tuple[str, str]], fetch: Fetch, at: int
) -> list[JournalEntry]:
    """Return entries for the checkpoints to keep, and for their writes, in full.

    Writes whose checkpoint was never put are dropped, like all the others.
    """
    copier = _JournalCopier(thread, fetch)
    entries = [copier.entry(ThreadLine(thread.id or ""), at)]
    found = [(thread.spaces[space][own], (space, own)) for space, own in kept]
    for node, place in sorted(found, key=lambda one: one[0].seq):
        entries.append(copier.entry(copier.put(place, node), at))
        entries += [copier.entry(line, at) for line in copier.writes(place)]
    return entries


class _JournalCopier:
    """Writes values again: items and lists get new numbers, and only used ones stay."""

    def __init__(self, thread: ThreadJournal, fetch: Fetch) -> None:
        self._thread = thread
        self._fetch = fetch
        self._decoder = ValueDecoder(thread, fetch)
        self._items: dict[int, int] = {}
        self._lists: dict[int, int] = {}
        self._last: list[Raw] = []
        self._count = 0
        self._new_items: list[Raw] = []
        self._new_lists: list[ListChange] = []
        self._blobs: dict[str, bytes] = {}
        self._done: set[tuple[str, str]] = set()

    def entry(self, line: Line, at: int) -> JournalEntry:
        """Return an entry for a line, with the large values that it names."""
        self._count += 1
        blobs, self._blobs = self._blobs, {}
        return JournalEntry(f"kept-{self._count}", at, _encode(line), tuple(blobs.values()))

    def put(self, place: tuple[str, str], node: CheckpointNode) -> CheckpointLine:
        """Return the line of a checkpoint with all that it has, whatever its parent has."""
        values = {name: self._recode(_decode(raw)) for name, raw in node.values.items()}
        body = {name: self._recode(_decode(raw)) for name, raw in node.body.items()}
        meta = {name: self._recode(_decode(raw)) for name, raw in node.meta.items()}
        base = self._thread.node(place[0], node.parent)
        is_kept = base is not None and (place[0], node.parent) in self._done
        less = base if is_kept and base is not None else NO_NODE
        self._done.add(place)
        return CheckpointLine(
            id=node.id,
            ns=place[0],
            parent=node.parent,
            values=values | {name: ABSENT for name in less.values if name not in values},
            versions=node.versions,
            unversioned=tuple(name for name in less.versions if name not in node.versions),
            seen=node.seen,
            unseen=tuple(name for name in less.seen if name not in node.seen),
            body=body,
            bodiless=tuple(name for name in less.body if name not in body),
            meta=meta,
            metaless=tuple(name for name in less.meta if name not in meta),
            **self._take_new_parts(),
        )

    def writes(self, place: tuple[str, str]) -> list[WritesLine]:
        """Return the lines of a checkpoint's writes, task by task."""
        tasks: dict[tuple[str, str], list[TaskWrite]] = {}
        lines = []
        for one in self._thread.writes.get(place, {}).values():
            coded = self._recode(_decode(one.value))
            tasks.setdefault((one.task, one.path), []).append(
                TaskWrite(one.index, one.channel, coded)
            )
        taken = self._take_new_parts()
        space, own = place
        for (task, path), found in tasks.items():
            writes = tuple(found)
            lines.append(WritesLine(id=own, ns=space, task=task, path=path, writes=writes, **taken))
            taken = {}
        return lines

    def _take_new_parts(self) -> dict[str, Any]:
        """Return what the next line has to hold: new items and lists, names of large values."""
        taken = {
            "items": tuple(self._new_items),
            "lists": tuple(self._new_lists),
            "blobs": tuple(self._blobs),
        }
        self._new_items, self._new_lists = [], []
        return taken

    def _recode(self, coded: Any) -> Raw:
        if isinstance(coded, int):
            return Raw(b"%d" % self._item(coded))
        if "l" in coded:
            return Raw(b'{"l":%d}' % self._list(coded["l"]))
        if "d" in coded:
            fields = {name: self._recode(one) for name, one in coded["d"].items()}
            return Raw(b'{"d":%s}' % _encode(fields))
        if "s" in coded:
            return Raw(b'{"s":%s}' % bytes(self._recode(coded["s"])))
        self._keep(coded)
        return Raw(_encode(coded))

    def _keep(self, form: dict[str, Any]) -> None:
        if "x" in form:
            self._blobs |= self._fetch([form["x"]])

    def _item(self, number: int) -> int:
        if number in self._items:
            return self._items[number]
        form = self._decoder.form(number)
        fields = form.pop("fields", None)
        if "send" in form:
            form = {
                name: one if name == "send" else self._recode(one) for name, one in form.items()
            }
        self._keep(form)
        if fields:
            # A value that only a serialiser can read is written first, and its change after it.
            self._new_items.append(Raw(_encode(form)))
            base = len(self._items)
            self._items[-1 - base] = base
            form = {"of": base, "set": fields}
        raw = _encode(form)
        if len(raw) > INLINE:
            name = blob_name(raw)
            self._blobs[name] = raw
            raw = _encode({"x": name})
        self._new_items.append(Raw(raw))
        self._items[number] = len(self._items)
        return self._items[number]

    def _list(self, number: int) -> int:
        if number not in self._lists:
            elements = [self._recode(_decode(raw)) for raw in self._thread.elements(number)]
            base = len(self._lists) - 1
            pairs = enumerate(zip(self._last, elements, strict=False))
            shorter = min(len(self._last), len(elements))
            head = next((place for place, (old, new) in pairs if old != new), shorter)
            change = ListChange(base if head else NO_LIST, head, 0, tuple(elements[head:]))
            self._new_lists.append(change)
            self._lists[number] = base + 1
            self._last = elements
        return self._lists[number]


# The conversation of a thread

_NOTHING_SENT = (b'{"j":[]}', b'{"j":null}')


def read_conversation(records: Iterable[JournalRecord], fetch: Fetch) -> ThreadConversation:
    """Return the messages of a thread, in LangChain's envelopes."""
    thread = ThreadJournal()
    for record in records:
        thread.apply(record)
    count = sum(map(len, thread.spaces.values()))
    node = thread.node("", thread.latest())
    if node is None:
        return ThreadConversation([], [], count)
    reader = _MessageDecoder(thread, fetch)
    items = reader.messages(node)
    judged = items
    work = sort_writes((one.task, one.channel, one.value) for one in thread.pending("", node.id))

    def is_due(channel: str, value: Raw) -> bool:
        return makes_due(channel, lambda: bytes(value) not in _NOTHING_SENT, set)

    if work.asking or any(is_due(*one) for one in node.values.items()):
        # Work is left to do, so the last calls are open on purpose if some have no result yet.
        asking = calls_without_result(items)
        for place, one in enumerate(items):
            calls = fields_of(one.view).get("tool_calls") or []
            ids = {call["id"] for call in calls if isinstance(call, dict) and call.get("id")}
            if one.type in {"ai", "AIMessageChunk"} and asking & ids:
                judged = items[:place]
                break
    return ThreadConversation([one.view for one in items], [one.view for one in judged], count)


class _MessageDecoder(ValueDecoder):
    """Reads messages, even those that only msgpack could hold."""

    def __init__(self, thread: ThreadJournal, fetch: Fetch) -> None:
        super().__init__(thread, fetch)
        self._codings = new_codecs()

    def item(self, number: int) -> Any:
        form = self.form(number)
        if "t" not in form:
            return form
        found = self.opaque(form["t"], self._bytes(form))
        if isinstance(found, dict) and (fields := form.get("fields")):
            return {**found, **fields}
        return found

    def opaque(self, tag: str, data: bytes) -> Any:
        try:
            found = self._codings[tag].message(data) if tag in self._codings else None
        except Undecodable:
            found = None
        return OpaqueValue(tag, data) if found is None else found.view

    def messages(self, node: CheckpointNode) -> list[StoredMessage]:
        """Return the conversation of a checkpoint, with what was written to it."""
        channel = MESSAGES
        if channel not in node.versions:
            # Otherwise use the only channel that may hold it.
            fitting = [
                name
                for name, raw in node.values.items()
                if not is_trigger(name)
                and isinstance(value := self.value(raw), list)
                and value
                and all(map(_is_message, value))
            ]
            if len(fitting) != 1:
                return []
            [channel] = fitting
        # A channel that is stored as changes is built from its ancestors.
        line = [node]
        if channel not in node.values:
            for one in self.thread.ancestors("", node.id):
                line.append(one)
                if channel in one.values:
                    break
        stored = line[-1].values.get(channel)
        found = [] if stored is None else _messages(self.value(stored))
        for one in reversed(line):
            for write in self.thread.pending("", one.id):
                if write.channel == channel:
                    found = merge_messages(found, _messages(self.value(write.value)))
        return found


def _messages(value: Any) -> list[StoredMessage]:
    values: Iterable[Any] = value if isinstance(value, list) else [value]
    return [StoredMessage(one, b"", "") for one in values if _is_message(one)]


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return envelope_of(value) != BARE or is_message(fields_of(value))
