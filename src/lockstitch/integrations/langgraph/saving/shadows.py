"""Knowing an object again that was stored or handed out before, and whether it has changed since.

An object is known by its identity. Beside it stands a copy of its structure, all dictionaries and
lists in it, so that a change made in place is seen: in all messages of a list, whose fields are
compared in one go, whenever it is read, and whenever it is stored after a node has run; in the
last ones, if only LangGraph itself has been at work since it was read. What is not seen is a
change inside an object of another class (a tool's artefact, say): it counts as the same as long
as it is the same object; and one to an equal value of another type (1 and True).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, is_
from typing import Any

from langchain_core import messages as lc

# Only these very classes: an application's own subclass goes through the serialiser.
KINDS: dict[type[lc.BaseMessage], str] = {
    lc.AIMessage: "ai",
    lc.HumanMessage: "human",
    lc.SystemMessage: "system",
    lc.ToolMessage: "tool",
    lc.FunctionMessage: "function",
    lc.ChatMessage: "chat",
    lc.RemoveMessage: "remove",
    lc.AIMessageChunk: "AIMessageChunk",
    lc.HumanMessageChunk: "HumanMessageChunk",
    lc.SystemMessageChunk: "SystemMessageChunk",
    lc.ToolMessageChunk: "ToolMessageChunk",
    lc.FunctionMessageChunk: "FunctionMessageChunk",
    lc.ChatMessageChunk: "ChatMessageChunk",
}
CLASSES: dict[str, type[lc.BaseMessage]] = {kind: made for made, kind in KINDS.items()}


# So many of a list's last objects are looked over when no node has run since it was read.
LOOKED_AT = 64
_NO_FIELDS: dict[str, Any] = {}
_NO_VALUES: list[Any] = []


def structure(value: Any) -> Any:
    """Copy the dictionaries, lists and tuples of a value, and nothing else."""
    kind = type(value)
    # Most are empty, and all of those are one: what is compared often should be small.
    if kind is dict:
        return {name: structure(one) for name, one in value.items()} if value else _NO_FIELDS
    if kind is list:
        return [structure(one) for one in value] if value else _NO_VALUES
    if kind is tuple:
        return tuple(structure(one) for one in value)
    return value


class Shadow:
    """What an object looked like when it was stored or handed out; ``item`` is its number."""

    __slots__ = ("extra", "face", "item", "value")

    def __init__(self, value: Any, item: int = -1) -> None:
        self.value = value
        self.item = item
        if type(value) in KINDS:
            self.face = structure(value.__dict__)
            self.extra = structure(value.__pydantic_extra__)
        else:
            self.face = structure(value)
            self.extra = None

    def is_true(self) -> bool:
        """Tell whether the object still looks like that."""
        value = self.value
        if type(value) in KINDS:
            return _equal(value.__dict__, self.face) and value.__pydantic_extra__ == self.extra
        return _equal(value, self.face)


_FIELDS = attrgetter("__dict__")
_EXTRAS = attrgetter("__pydantic_extra__")


class _Trunk:
    """Objects side by side with where they keep their fields, and what those looked like."""

    __slots__ = ("extras", "faces", "fields", "more", "objects", "shadows")

    def __init__(self) -> None:
        self.shadows: list[Shadow] = []
        self.objects: list[Any] = []
        # The same dictionaries as long as a message lives.
        self.fields: list[dict[str, Any]] = []
        self.more: list[dict[str, Any] | None] = []
        self.faces: list[Any] = []
        self.extras: list[Any] = []

    def extend(self, shadows: list[Shadow], *, are_items: bool) -> None:
        """Take in more; lists that are interrupted in between are never used again."""
        added = [one.value for one in shadows]
        if are_items:
            self.fields += map(_FIELDS, added)
            self.more += map(_EXTRAS, added)
        self.faces += [one.face for one in shadows]
        self.extras += [one.extra for one in shadows]
        self.shadows += shadows
        self.objects += added


class Known:
    """The objects of a list, and what each looked like.

    A list that goes on from another one shares its beginning, so that it costs only what is new.
    """

    __slots__ = ("_size", "_trunk", "are_items")

    def __init__(self, shadows: list[Shadow]) -> None:
        # Only messages are handed out again; all else is read anew.
        self.are_items = all(type(one.value) in KINDS for one in shadows)
        self._trunk = _Trunk()
        self._trunk.extend(shadows, are_items=self.are_items)
        self._size = len(shadows)

    @property
    def objects(self) -> list[Any]:
        """The objects; not to be changed."""
        return self._part(self._trunk.objects)

    def _part(self, values: list[Any]) -> list[Any]:
        return values if len(values) == self._size else values[: self._size]

    def grown(self, head: int, middle: list[Shadow], tail: int) -> Known:
        """Give the list that has others between a head and a tail of this one."""
        is_end = head == self._size == len(self._trunk.objects) and not tail
        are_items = self.are_items and all(type(one.value) in KINDS for one in middle)
        if not is_end or are_items != self.are_items or not head:
            shadows = self._trunk.shadows
            return Known([*shadows[:head], *middle, *shadows[self._size - tail : self._size]])
        made = Known([])
        made.are_items = are_items
        made._trunk = self._trunk
        made._trunk.extend(middle, are_items=are_items)
        made._size = self._size + len(middle)
        return made

    def __len__(self) -> int:
        """Count the objects."""
        return self._size

    def is_true(self) -> bool:
        """Tell whether all of it looks as it did."""
        if not self.are_items:
            return all(one.is_true() for one in self._part(self._trunk.shadows))
        return self._looks(self._part(self._trunk.fields))

    def is_same(self) -> bool:
        """Tell it for what is handed out: that nobody has put other fields in their place, too."""
        return self._looks(list(map(_FIELDS, self.objects)))

    def _looks(self, fields: list[dict[str, Any]]) -> bool:
        trunk, part = self._trunk, self._part
        return _equal(fields, part(trunk.faces)) and _equal(part(trunk.more), part(trunk.extras))

    def shared(self, values: Sequence[Any]) -> tuple[int, int]:
        """Count what another list shares with this one at head and tail, changed or not."""
        objects = self.objects
        if not objects or not values:
            return 0, 0
        if not _is_one(objects[0], values[0]) and not _is_one(objects[-1], values[-1]):
            return 0, 0
        head = common_head(objects, values)
        return head, common_tail(objects, values, head)

    def unchanged(self, head: int, tail: int, most: int | None = None) -> tuple[int, int]:
        """Count how much of a head and a tail looks as it did, as far as it is looked over.

        ``most`` is how many of the last objects of each are, if not all of them.
        """
        if most is None and self.is_true():
            return head, tail
        size, shadows = self._size, self._trunk.shadows
        first = 0 if most is None else max(head - most, 0)
        last = tail if most is None else min(tail, most)
        changed = (place for place in range(first, head) if not shadows[place].is_true())
        kept = next(changed, head)
        changed = (place for place in range(last) if not shadows[size - 1 - place].is_true())
        return kept, next(changed, tail)


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - an application's own comparison
        return False


def common_head(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Count the first objects that two lists share."""
    size = min(len(one), len(other))
    if all(map(is_, one, other)):
        return size
    places = (place for place in range(size) if not _is_one(one[place], other[place]))
    return next(places, size)


def common_tail(one: Sequence[Any], other: Sequence[Any], head: int) -> int:
    """Count the last objects that two lists share behind their common head."""
    most = min(len(one), len(other)) - head
    count = 0
    while count < most and _is_one(one[-1 - count], other[-1 - count]):
        count += 1
    return count


_SCALARS = (str, int, float, bool)


def _is_one(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and type(one) in _SCALARS and one == other)
