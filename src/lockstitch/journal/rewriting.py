"""A thread with some of its checkpoints only: its journal written anew, from what is kept."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import Raw

from lockstitch.journal.checkpoints import (
    NO_LIST,
    Begun,
    Change,
    Decoder,
    Fetch,
    Line,
    Node,
    Put,
    Thread,
    Write,
    Wrote,
)
from lockstitch.journal.events import INLINE
from lockstitch.journal.records import JournalEntry, blob_name

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def rewritten(
    thread: Thread, kept: Collection[tuple[str, str]], fetch: Fetch, at: int
) -> list[JournalEntry]:
    """Write the checkpoints that are kept, and what was written to them, in full.

    Writes whose checkpoint was never put go with the others.
    """
    copier = _Copier(thread, fetch)
    entries = [copier.entry(Begun(thread.id or ""), at)]
    order = sorted(kept, key=lambda place: _node(thread, place).seq)
    for place in order:
        entries.append(copier.entry(copier.put(place, _node(thread, place)), at))
        entries += [copier.entry(line, at) for line in copier.writes(place)]
    return entries


def _node(thread: Thread, place: tuple[str, str]) -> Node:
    return thread.spaces[place[0]][place[1]]


class _Copier:
    """Writes values anew: items and lists get new numbers, and only those that are named stay."""

    def __init__(self, thread: Thread, fetch: Fetch) -> None:
        self._thread = thread
        self._fetch = fetch
        self._decoder = Decoder(thread, fetch)
        self._items: dict[int, int] = {}
        self._lists: dict[int, int] = {}
        self._last: list[Raw] = []
        self._count = 0
        self._new_items: list[Raw] = []
        self._new_lists: list[Change] = []
        self._blobs: dict[str, bytes] = {}
        self._done: set[tuple[str, str]] = set()

    def entry(self, line: Line, at: int) -> JournalEntry:
        """Make an entry of a line, with the large values that it names."""
        self._count += 1
        blobs, self._blobs = self._blobs, {}
        return JournalEntry(f"kept-{self._count}", at, _encode(line), tuple(blobs.values()))

    def put(self, place: tuple[str, str], node: Node) -> Put:
        """Write a checkpoint; it says all that it has, so its parent plays no part."""
        values = {name: self._coded(_decode(raw)) for name, raw in node.values.items()}
        body = {name: self._coded(_decode(raw)) for name, raw in node.body.items()}
        meta = {name: self._coded(_decode(raw)) for name, raw in node.meta.items()}
        base = self._thread.node(place[0], node.parent)
        is_kept = base is not None and (place[0], node.parent) in self._done
        less = base if is_kept and base is not None else Node("", "", {}, {}, {}, {}, {})
        self._done.add(place)
        return Put(
            id=node.id,
            ns=place[0],
            parent=node.parent,
            values=values | {name: Raw(b"null") for name in less.values if name not in values},
            versions=node.versions,
            unversioned=tuple(name for name in less.versions if name not in node.versions),
            seen=node.seen,
            unseen=tuple(name for name in less.seen if name not in node.seen),
            body=body,
            bodiless=tuple(name for name in less.body if name not in body),
            meta=meta,
            metaless=tuple(name for name in less.meta if name not in meta),
            **self._taken(),
        )

    def writes(self, place: tuple[str, str]) -> list[Wrote]:
        """Write what was written to a checkpoint, task by task."""
        tasks: dict[tuple[str, str], list[Write]] = {}
        lines = []
        for one in self._thread.writes.get(place, {}).values():
            coded = self._coded(_decode(one.value))
            tasks.setdefault((one.task, one.path), []).append(Write(one.index, one.channel, coded))
        taken = self._taken()
        for (task, path), found in tasks.items():
            lines.append(
                Wrote(id=place[1], ns=place[0], task=task, path=path, writes=tuple(found), **taken)
            )
            taken = {}
        return lines

    def _taken(self) -> dict[str, Any]:
        """Return what the next line has to hold: new items, new lists, names of large values."""
        taken = {
            "items": tuple(self._new_items),
            "lists": tuple(self._new_lists),
            "blobs": tuple(self._blobs),
        }
        self._new_items, self._new_lists = [], []
        return taken

    def _coded(self, coded: Any) -> Raw:
        if isinstance(coded, int):
            return Raw(b"%d" % self._item(coded))
        if "l" in coded:
            return Raw(b'{"l":%d}' % self._list(coded["l"]))
        if "d" in coded:
            fields = {name: self._coded(one) for name, one in coded["d"].items()}
            return Raw(b'{"d":%s}' % _encode(fields))
        if "s" in coded:
            return Raw(b'{"s":%s}' % bytes(self._coded(coded["s"])))
        self._keep(coded)
        return Raw(_encode(coded))

    def _keep(self, form: dict[str, Any]) -> None:
        if "x" in form:
            self._blobs |= self._fetch([form["x"]])

    def _item(self, number: int) -> int:
        if number not in self._items:
            raw = self._form(number)
            if len(raw) > INLINE:
                name = blob_name(raw)
                self._blobs[name] = raw
                raw = _encode({"x": name})
            self._new_items.append(Raw(raw))
            self._items[number] = len(self._items)
        return self._items[number]

    def _form(self, number: int) -> bytes:
        form = self._decoder.form(number)
        fields = form.pop("fields", None)
        if "send" in form:
            form = {name: one if name == "send" else self._coded(one) for name, one in form.items()}
        self._keep(form)
        if fields:
            return self._changed(form, fields)
        return _encode(form)

    def _changed(self, form: dict[str, Any], fields: dict[str, Any]) -> bytes:
        """Write an item that only a serialiser can read, and its change behind it."""
        self._new_items.append(Raw(_encode(form)))
        base = len(self._items)
        self._items[-1 - base] = base
        return _encode({"of": base, "set": fields})

    def _list(self, number: int) -> int:
        if number not in self._lists:
            elements = [self._coded(_decode(raw)) for raw in self._thread.elements(number)]
            base = len(self._lists) - 1
            head = _common(self._last, elements) if base >= 0 else 0
            change = Change(base if head else NO_LIST, head, 0, tuple(elements[head:]))
            self._new_lists.append(change)
            self._lists[number] = base + 1
            self._last = elements
        return self._lists[number]


def _common(one: list[Raw], other: list[Raw]) -> int:
    size = min(len(one), len(other))
    return next((place for place in range(size) if one[place] != other[place]), size)
