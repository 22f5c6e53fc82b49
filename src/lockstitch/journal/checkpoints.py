"""Threads of a LangGraph graph as journals: what the records of one say, and add up to.

A thread is a session; each ``put`` of a checkpoint and each ``put_writes`` is one record, and what
a checkpoint shares with its parent is not written again. A message is an *item*, numbered in the
order in which items come in the journal, and kept once; a list is the change that makes it from
another list, numbered likewise. A value is coded as

- ``7`` for item 7, ``{"l": 3}`` for list 3, ``{"d": {…}}`` for a dictionary of coded values,
- ``{"j": …}`` for JSON, ``{"x": name}`` for JSON in a blob,
- ``{"t": tag, "b": base64}`` or ``{"t": tag, "x": name}`` for what only a serialiser can read,
- ``{"s": …}`` for the snapshot of a delta channel.

An item is a message as LangChain writes it (``{"type": "ai", "data": {…}}``), the change of another
item (``{"of": 7, "set": {…}}``), a task to send (``{"send": node, "arg": …}``), or coded as above.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Raw, Struct

from lockstitch.errors import Damaged
from lockstitch.journal.queries import Spoken, said_in
from lockstitch.journal.records import NEW, Head, JournalRecord

_FITS = re.compile(r"[A-Za-z0-9._-]{1,118}")
_FLAT = 8
ABSENT = Raw(b"null")
NO_LIST = -1

Version = str | int | float
Fetch = Callable[[list[str]], dict[str, bytes]]


def session_of(thread: str) -> str:
    """Return the name of the session that keeps a thread; ids that cannot be one are hashed."""
    if _FITS.fullmatch(thread):
        return f"langgraph.{thread}"
    hashed = blake2b(thread.encode("utf-8", "surrogatepass"), digest_size=16)
    return f"langgraph-{hashed.hexdigest()}"


def may_be_thread(session: str) -> bool:
    """Tell by its name whether a session may keep a thread."""
    return session.startswith(("langgraph.", "langgraph-"))


# What is written


class Begun(Struct, frozen=True, tag_field="kind", tag="thread"):
    """The first record: whose journal this is."""

    id: str


class Change(Struct, frozen=True, array_like=True):
    """A list: the first ``head`` and the last ``tail`` of another, with ``add`` in between."""

    base: int
    head: int
    tail: int
    add: tuple[Raw, ...]


class Put(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="checkpoint"
):
    """A checkpoint, as far as it differs from its parent, if that is in the journal.

    ``values`` are coded; null says that the channel has none any more. A channel that is not in
    there has its parent's. ``body`` and ``meta`` go by their first level, ``seen`` by node.
    """

    id: str
    ns: str = ""
    parent: str = ""
    items: tuple[Raw, ...] = ()
    lists: tuple[Change, ...] = ()
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


class Write(Struct, frozen=True, array_like=True):
    """What a task wrote: its ``index``-th write, or a fixed one below 0 for its signals."""

    index: int
    channel: str
    value: Raw


class Wrote(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="writes"):
    """The writes of a task that ran from a checkpoint."""

    id: str
    ns: str = ""
    task: str = ""
    path: str = ""
    items: tuple[Raw, ...] = ()
    lists: tuple[Change, ...] = ()
    writes: tuple[Write, ...] = ()
    blobs: tuple[str, ...] = ()


Line = Begun | Put | Wrote
_DECODER = msgspec.json.Decoder(Line)
_decode = msgspec.json.Decoder().decode
_STARTS = (b'{"kind":"thread"', b'{"kind":"checkpoint"', b'{"kind":"writes"')


def line_of(body: bytes) -> Line | None:
    """Read a record; None for one that is not about a thread."""
    if not body.startswith(_STARTS):
        return None
    try:
        line: Line = _DECODER.decode(body)
    except msgspec.MsgspecError:
        return None
    return line


def thread_spoken(
    body: bytes, may_match: Callable[[bytes], bool], payload: Callable[[str], bytes]
) -> Spoken | None:
    """Return who says what in the messages that a record brings; None if it is not of a thread.

    ``may_match`` is a quick look at its bytes, before anything is decoded.
    """
    if not body.startswith(_STARTS[1:]):
        return None
    line = line_of(body) if b'{"x":"' in body or may_match(body) else None
    if line is None or isinstance(line, Begun):
        return iter(())
    return _spoken(line.items, payload)


def _spoken(items: Iterable[Raw], payload: Callable[[str], bytes]) -> Spoken:
    for item in items:
        value = _decode(item)
        if isinstance(value, dict) and "x" in value and "t" not in value:
            value = _decode(payload(value["x"]))
        if isinstance(value, dict) and isinstance(value.get("data"), dict):
            yield from ((who, text) for _, who, text in said_in("langchain", [value]))


# What it adds up to


class Node(Struct):
    """A checkpoint with everything that it has, also from its parents."""

    id: str
    parent: str
    values: dict[str, Raw]
    versions: dict[str, Version]
    seen: dict[str, dict[str, Version]]
    body: dict[str, Raw]
    meta: dict[str, Raw]
    seq: int = 0


class Pending(Struct, frozen=True):
    """A write that waits on a checkpoint, or made the next one."""

    task: str
    path: str
    index: int
    channel: str
    value: Raw


Writes = dict[tuple[str, int], Pending]


class Thread:
    """The fold: every checkpoint of every namespace, and what was written to each."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.head: Head = NEW
        self.size = 0
        self.at = 0
        self.spaces: dict[str, dict[str, Node]] = {}
        self.writes: dict[tuple[str, str], Writes] = {}
        self.items: list[Raw] = []
        self.lists: list[Change] = []
        self.blobs: set[str] = set()
        self._latest: dict[str, str] = {}
        self._flat: OrderedDict[int, list[Raw]] = OrderedDict()

    def apply(self, record: JournalRecord) -> None:
        """Take the next record in; what is not about a thread changes nothing."""
        self.add(line_of(record.body), record.seq)
        self.size += len(record.body)
        self.at = max(self.at, record.at)
        self.head = Head(record.seq, record.digest, record.epoch)

    def add(self, line: Line | None, seq: int = 0) -> None:
        """Take in what a record says."""
        if isinstance(line, Begun):
            self.id = line.id
        elif line is not None:
            self.items += line.items
            self.lists += line.lists
            self.blobs.update(line.blobs)
            self._put(line, seq) if isinstance(line, Put) else self._wrote(line)

    def _put(self, line: Put, seq: int) -> None:
        space = self.spaces.setdefault(line.ns, {})
        base = space.get(line.parent) or _NOTHING
        versions = _changed(base.versions, line.versions, line.unversioned)
        space[line.id] = Node(
            id=line.id,
            parent=line.parent,
            values=_values(base.values, line.values, versions),
            versions=versions,
            seen=_changed(base.seen, line.seen, line.unseen),
            body=_changed(base.body, line.body, line.bodiless),
            meta=_changed(base.meta, line.meta, line.metaless),
            seq=seq,
        )
        # A clock that is behind must not hide what was built on the last checkpoint.
        if line.id > self.latest(line.ns) or line.parent == self.latest(line.ns):
            self._latest[line.ns] = line.id

    def _wrote(self, line: Wrote) -> None:
        kept = self.writes.setdefault((line.ns, line.id), {})
        for write in line.writes:
            place = (line.task, write.index)
            if write.index < 0 or place not in kept:
                kept[place] = Pending(line.task, line.path, write.index, write.channel, write.value)

    def latest(self, ns: str = "") -> str:
        """Return the id of a namespace's last checkpoint, "" without any."""
        return self._latest.get(ns, "")

    def node(self, ns: str, checkpoint: str) -> Node | None:
        """Find a checkpoint."""
        return self.spaces.get(ns, {}).get(checkpoint)

    def pending(self, ns: str, checkpoint: str) -> list[Pending]:
        """Return the writes of a checkpoint in the order in which they are applied."""
        found = self.writes.get((ns, checkpoint), {}).values()
        return sorted(found, key=lambda one: (one.path, one.task, one.index))

    def ancestors(self, ns: str, checkpoint: str) -> Iterator[Node]:
        """Return the checkpoints before one, nearest first, as far as they are there."""
        space = self.spaces.get(ns, {})
        seen = {checkpoint}
        node = space.get(checkpoint)
        while node is not None and node.parent not in seen:
            seen.add(node.parent)
            node = space.get(node.parent)
            if node is not None:
                yield node

    def elements(self, number: int) -> list[Raw]:
        """Return the coded elements of a list; not to be changed."""
        path: list[int] = []
        while number != NO_LIST and number not in self._flat:
            path.append(number)
            number = self._change(number).base
        found = list(self._flat[number]) if number != NO_LIST else []
        for step in reversed(path):
            change = self.lists[step]
            found[change.head : len(found) - change.tail] = change.add
        if path:
            self._flat[path[0]] = found
            if len(self._flat) > _FLAT:
                self._flat.popitem(last=False)
        return found

    def _change(self, number: int) -> Change:
        if not 0 <= number < len(self.lists) or self.lists[number].base >= number:
            raise Damaged(f"a checkpoint names list {number}, which the journal lacks")
        return self.lists[number]

    def item(self, number: int) -> Raw:
        """Return an item as it is written."""
        if not 0 <= number < len(self.items):
            raise Damaged(f"a checkpoint names item {number}, which the journal lacks")
        return self.items[number]


_NOTHING = Node("", "", {}, {}, {}, {}, {})


def _changed(base: dict[str, Any], more: dict[str, Any], less: Iterable[str]) -> dict[str, Any]:
    if not more and not less:
        return base
    made = {**base, **more}
    for name in less:
        made.pop(name, None)
    return made


def _values(
    base: dict[str, Raw], more: dict[str, Raw], versions: dict[str, Version]
) -> dict[str, Raw]:
    """Return the values of all channels that have a version and a value."""
    merged = {**base, **more}
    return {name: value for name, value in merged.items() if name in versions and value != ABSENT}


# Reading values


class Opaque(Struct, frozen=True):
    """A value that only the serialiser with this tag can read."""

    tag: str
    data: bytes


class Decoder:
    """Reads coded values, as far as that needs nothing but JSON.

    Messages are given in LangChain's envelope, the rest as it is written.
    """

    def __init__(self, thread: Thread, fetch: Fetch) -> None:
        self.thread = thread
        self._fetch = fetch

    def value(self, raw: Raw) -> Any:
        """Read a coded value."""
        return self.coded(_decode(raw))

    def coded(self, coded: Any) -> Any:
        """Read a coded value that was taken out of its JSON."""
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
        """Read a large value."""
        return self._fetch([name])[name]

    def list(self, number: int) -> list[Any]:
        """Read a list."""
        return [self.value(raw) for raw in self.thread.elements(number)]

    def item(self, number: int) -> Any:
        """Read an item."""
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
            form = _patched(form, change)
        return form

    def _plain(self, number: int) -> dict[str, Any]:
        form: dict[str, Any] = _decode(self.thread.item(number))
        return _decode(self.blob(form["x"])) if "x" in form and "t" not in form else form

    def _bytes(self, form: dict[str, Any]) -> bytes:
        return self.blob(form["x"]) if "x" in form else b64decode(form["b"])

    def opaque(self, tag: str, data: bytes) -> Any:
        """Read what a serialiser wrote."""
        return Opaque(tag, data)

    def snapshot(self, value: Any) -> Any:
        """Read the snapshot of a delta channel."""
        return value


def _patched(form: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    if "data" in form:
        data = {**form["data"], **change["set"]}
        for name in change.get("not", ()):
            data.pop(name, None)
        return {**form, "data": data}
    return {**form, "fields": {**form.get("fields", {}), **change["set"]}}
