"""Values on their way into a thread's journal and back: every message once, lists by what changed.

Reading gives out the same message objects again and again, each looked over before; so writing
knows them again and does not serialise what is stored already, however long the conversation is.
"""

from __future__ import annotations

from base64 import b64encode
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Send
from msgspec import Raw

from lockstitch.errors import Unreadable
from lockstitch.integrations.langgraph.saving.shadows import (
    CLASSES,
    KINDS,
    LOOKED_AT,
    Known,
    Shadow,
    structure,
)
from lockstitch.journal.checkpoints import NO_LIST, Change, Decoder, Fetch, Thread
from lockstitch.journal.events import INLINE
from lockstitch.journal.records import blob_name

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

_RECENT = 24
_TRIED = 4
_encode = msgspec.json.Encoder().encode
_NONE = Known([])


class Serializer(Protocol):
    """What turns values into bytes under a tag, and back."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Write a value."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read a value."""


class Memory:
    """The objects of a thread that are known again, by identity, by item and by list."""

    def __init__(self) -> None:
        self.items: dict[int, Shadow] = {}
        self.lists: OrderedDict[int, Known] = OrderedDict()
        self._known: dict[int, Shadow] = {}
        self._sent: OrderedDict[int, Shadow] = OrderedDict()
        self._ids: dict[tuple[str, str], int] = {}

    def shadow(self, value: Any) -> Shadow | None:
        """Give what is known of an object."""
        found = self._known.get(id(value)) or self._sent.get(id(value))
        return found if found is not None and found.value is value else None

    def named(self, kind: str, name: str | None) -> int | None:
        """Give the last item of a message with an id."""
        return self._ids.get((kind, name)) if name else None

    def keep(self, shadow: Shadow) -> Shadow:
        """Know an object from now on; a task to send only for a while."""
        if type(shadow.value) is Send:
            self._sent[id(shadow.value)] = shadow
            if len(self._sent) > _RECENT:
                self._sent.popitem(last=False)
            return shadow
        self._known[id(shadow.value)] = shadow
        self.items[shadow.item] = shadow
        if name := shadow.face.get("id"):
            place = (KINDS[type(shadow.value)], name)
            self._ids[place] = max(shadow.item, self._ids.get(place, -1))
        return shadow

    def keep_list(self, number: int, known: Known) -> None:
        """Know a list from now on, until others have taken its place."""
        self.lists[number] = known
        self.lists.move_to_end(number)
        while len(self.lists) > _RECENT:
            self.lists.popitem(last=False)


def is_plain(value: Any) -> bool:
    """Tell whether JSON gives a value back as LangGraph's own form would: no more, no less."""
    kind = type(value)
    if kind is str or value is None or kind is int or kind is bool:
        return True
    if kind is float:
        return bool(value - value == 0)
    if kind is dict:
        return all(type(name) is str and is_plain(one) for name, one in value.items())
    return (kind is list or kind is tuple) and all(map(is_plain, value))


class Encoder:
    """Codes the values of one record; ``settle`` makes what was met known, once it is stored."""

    def __init__(self, objects: Objects, *, plain: bool) -> None:
        self._objects = objects
        self._thread = objects.thread
        self._memory = objects.memory
        self._serde = objects.serde
        self._plain = plain
        self._reader = Decoder(objects.thread, _no_blobs)
        self._fresh: list[Shadow] = []
        self._met: dict[int, Shadow] = {}
        self._lists: dict[int, Known] = {}
        # Whether no node has run since what is stored was read.
        self.is_untouched = False
        self.items: list[Raw] = []
        self.lists: list[Change] = []
        self.blobs: dict[str, bytes] = {}

    def settle(self) -> None:
        """Know from now on what was coded."""
        for shadow in self._fresh:
            self._memory.keep(shadow)
        for number, known in self._lists.items():
            self._memory.keep_list(number, known)

    def value(self, value: Any, base: int = NO_LIST, *, channel: bool = False) -> Raw:
        """Code a value; a list as the change of another, of ``base`` if that is worth it."""
        kind = type(value)
        if kind is list and value and (channel or not self._is_json(value)):
            return Raw(b'{"l":%d}' % self.listed(value, base))
        if kind is _DeltaSnapshot:
            return Raw(b'{"s":%s}' % bytes(self.value(value.value, base, channel=True)))
        if kind in KINDS or kind is Send:
            return Raw(b"%d" % self._item(value))
        if kind is dict and self._has_items(value):
            fields = {name: self.value(one) for name, one in value.items()}
            return Raw(b'{"d":%s}' % _encode(fields))
        return self._whole(value)

    def _is_json(self, value: Any) -> bool:
        return self._plain and is_plain(value)

    def _has_items(self, value: dict[Any, Any]) -> bool:
        """Tell whether a dictionary holds messages that are worth looking for."""
        return all(type(name) is str for name in value) and any(
            type(one) in KINDS or type(one) is Send or (type(one) is list and _holds_items(one))
            or (type(one) is dict and self._has_items(one))
            for one in value.values()
        )  # fmt: skip

    def _whole(self, value: Any) -> Raw:
        if self._is_json(value):
            data = _json(value)
            if data is not None:
                return Raw(b'{"j":%s}' % data) if len(data) <= INLINE else self._large(data)
        return self._opaque(value)

    def _large(self, data: bytes) -> Raw:
        name = blob_name(data)
        self.blobs[name] = data
        return Raw(b'{"x":"%s"}' % name.encode())

    def _opaque(self, value: Any) -> Raw:
        tag, data = self._serde.dumps_typed(value)
        if len(data) <= INLINE:
            return Raw(_encode({"t": tag, "b": b64encode(data).decode()}))
        name = blob_name(data)
        self.blobs[name] = bytes(data)
        return Raw(_encode({"t": tag, "x": name}))

    # Lists.

    def listed(self, values: Sequence[Any], base: int) -> int:
        """Code a list; gives its number."""
        if base != NO_LIST and base not in self._memory.lists:
            with suppress(Unreadable):
                self._objects.list(base)
        number, head, tail = self._nearest(values, base)
        known = self._known_list(number)
        end = len(values) - tail
        if number != NO_LIST and head == end == len(known):
            return number
        added = tuple(self.value(one) for one in values[head:end])
        change = Change(number, head, tail, added)
        self.lists.append(change)
        made = len(self._thread.lists) + len(self.lists) - 1
        middle = [self._shadow(one) for one in values[head:end]]
        self._lists[made] = known.grown(head, middle, tail)
        return made

    def _nearest(self, values: Sequence[Any], base: int) -> tuple[int, int, int]:
        """Find the list that most is shared with, and how much: its head and its tail."""
        best = (NO_LIST, 0, 0)
        for number in self._candidates(base):
            known = self._known_list(number)
            head, tail = known.shared(values)
            if head + tail > best[1] + best[2]:
                best = (number, head, tail)
            if head == len(known) <= len(values):
                break
        number, head, tail = best
        most = LOOKED_AT if self.is_untouched else None
        head, tail = self._known_list(number).unchanged(head, tail, most)
        return (number, head, tail) if head + tail else (NO_LIST, 0, 0)

    def _candidates(self, base: int) -> list[int]:
        own = list(self._lists)[::-1]
        recent = list(self._memory.lists)[: -_TRIED - 1 : -1]
        found = [base, *own, *recent] if base in self._memory.lists else [*own, *recent]
        return list(dict.fromkeys(found))

    def _known_list(self, number: int) -> Known:
        return self._lists.get(number) or self._memory.lists.get(number) or _NONE

    def _shadow(self, value: Any) -> Shadow:
        known = self._met.get(id(value)) or self._memory.shadow(value)
        return known if known is not None and known.value is value else Shadow(value)

    # Items.

    def _item(self, value: Any) -> int:
        known = self._met.get(id(value)) or self._memory.shadow(value)
        if known is not None and known.value is value and known.item >= 0 and _is_true(known):
            return known.item
        shadow = Shadow(value)
        if type(value) is Send:
            shadow.face = structure(value.arg)
            raw = self._send(value)
        else:
            found = self._message(value, shadow, known)
            if isinstance(found, int):
                shadow.item = found
                return self._meet(shadow)
            raw = found
        self.items.append(self._fitting(raw))
        shadow.item = len(self._thread.items) + len(self.items) - 1
        return self._meet(shadow)

    def _meet(self, shadow: Shadow) -> int:
        self._met[id(shadow.value)] = shadow
        self._fresh.append(shadow)
        return shadow.item

    def _fitting(self, raw: Raw) -> Raw:
        return raw if len(bytes(raw)) <= INLINE else self._large(bytes(raw))

    def _send(self, value: Send) -> Raw:
        form: dict[str, Any] = {"send": value.node, "arg": self.value(value.arg)}
        if getattr(value, "timeout", None) is not None:
            form["timeout"] = self._opaque(value.timeout)
        return Raw(_encode(form))

    def _message(self, value: BaseMessage, shadow: Shadow, known: Shadow | None) -> Raw | int:
        """Code a message in full or as a change; a number if it is there already."""
        kind = KINDS[type(value)]
        data = {**shadow.face, **(shadow.extra or {})}
        if known is not None and known.item >= 0 and known.extra == shadow.extra:
            change = self._change(known.face, shadow.face, known.item)
            if change is not None:
                return change
        if not self._is_json(data) or (whole := _json({"type": kind, "data": data})) is None:
            return self._opaque(value)
        item = self._memory.named(kind, value.id)
        old = None if item is None else self._data(item, kind)
        if item is None or old is None:
            return Raw(whole)
        if _json(old) == _json(data):
            return item
        change = self._change(old, data, item)
        is_short = change is not None and len(bytes(change)) < len(whole) // 2
        return change if change is not None and is_short else Raw(whole)

    def _data(self, item: int, kind: str) -> dict[str, Any] | None:
        try:
            form = self._reader.form(item)
        except Unreadable:
            return None
        data: dict[str, Any] | None = form.get("data")
        return data if form.get("type") == kind else None

    def _change(self, old: dict[str, Any], new: dict[str, Any], item: int) -> Raw | None:
        """Code what makes a message from another; None if that cannot be told in JSON."""
        fields = {
            name: one for name, one in new.items() if name not in old or not _same(old[name], one)
        }
        gone = [name for name in old if name not in new]
        form: dict[str, Any] = {"of": item, "set": fields}
        if gone:
            form["not"] = gone
        data = _json(form) if self._is_json(fields) else None
        return None if data is None else Raw(data)


def _is_true(known: Shadow) -> bool:
    if type(known.value) is Send:
        try:
            return bool(known.value.arg == known.face)
        except Exception:  # noqa: BLE001 - an application's own comparison
            return False
    return known.is_true()


def _holds_items(values: list[Any]) -> bool:
    return any(type(one) in KINDS or type(one) is Send for one in values)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    return type(one) is type(other) and is_plain(one) and is_plain(other) and (
        _json(one) == _json(other)
    )  # fmt: skip


def _json(value: Any) -> bytes | None:
    try:
        return _encode(value)
    except (UnicodeEncodeError, RecursionError):
        return None


def _no_blobs(_names: list[str]) -> dict[str, bytes]:
    raise Unreadable("large values are not compared")


class Objects(Decoder):
    """Reads coded values as objects; messages are those that are known, if they are unchanged."""

    def __init__(self, thread: Thread, memory: Memory, serde: Serializer, fetch: Fetch) -> None:
        super().__init__(thread, fetch)
        self.memory = memory
        self.serde = serde

    def list(self, number: int) -> list[Any]:
        known = self.memory.lists.get(number)
        if known is not None and known.are_items and known.is_same():
            self.memory.lists.move_to_end(number)
            return known.objects.copy()
        values = super().list(number)
        known = Known([self.memory.shadow(one) or Shadow(one) for one in values])
        self.memory.keep_list(number, known)
        return values

    def item(self, number: int) -> Any:
        shadow = self.memory.items.get(number)
        if shadow is not None and type(shadow.value) in KINDS and shadow.is_true():
            return shadow.value
        form = self.form(number)
        if "send" in form:
            return self._send(form)
        value = self._built(form)
        if type(value) in KINDS:
            self.memory.keep(Shadow(value, number))
        return value

    def _send(self, form: dict[str, Any]) -> Send:
        arg = self.coded(form["arg"])
        if "timeout" in form:
            return Send(form["send"], arg, timeout=self.coded(form["timeout"]))
        return Send(form["send"], arg)

    def _built(self, form: dict[str, Any]) -> Any:
        if "data" in form:
            made = CLASSES.get(form["type"])
            if made is None:
                raise Unreadable(f"a stored message is of a type that is not known: {form['type']}")
            return made(**form["data"])
        value = self.opaque(form["t"], self._bytes(form))
        fields = form.get("fields")
        return value.model_copy(update=fields) if fields else value

    def opaque(self, tag: str, data: bytes) -> Any:
        return self.serde.loads_typed((tag, data))

    def snapshot(self, value: Any) -> Any:
        return _DeltaSnapshot(value)
