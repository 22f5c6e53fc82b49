"""Knowing an object again that was stored or handed out before, and whether it has changed since.

An object is known by its identity. Beside it stands a copy of its structure, all dictionaries and
lists in it, so that a change made in place is seen: in the last messages of a list whenever it is
stored, in all of them whenever it is read. What is not seen is a change inside an object of
another class (a tool's artefact, say): it counts as the same as long as it is the same object.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
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
# So many of a list's last objects are looked over when it is stored.
LOOKED_AT = 64
CLASSES: dict[str, type[lc.BaseMessage]] = {kind: made for made, kind in KINDS.items()}


def structure(value: Any) -> Any:
    """Copy the dictionaries, lists and tuples of a value, and nothing else."""
    kind = type(value)
    if kind is dict:
        return {name: structure(one) for name, one in value.items()}
    if kind is list:
        return [structure(one) for one in value]
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


class Known:
    """The objects of a list, and what each looked like."""

    __slots__ = ("_extras", "_faces", "are_items", "objects", "shadows")

    def __init__(self, shadows: list[Shadow]) -> None:
        self.shadows = shadows
        self.objects = [one.value for one in shadows]
        self._faces = [one.face for one in shadows]
        self._extras = [one.extra for one in shadows]
        # Only messages are handed out again; all else is read anew.
        self.are_items = all(type(one) in KINDS for one in self.objects)

    def grown(self, head: int, middle: list[Shadow], tail: int) -> Known:
        """Give the list that has others between a head and a tail of this one."""
        more, made, cut = Known(middle), Known([]), len(self.objects) - tail
        made.shadows = [*self.shadows[:head], *middle, *self.shadows[cut:]]
        made.objects = [*self.objects[:head], *more.objects, *self.objects[cut:]]
        made._faces = [*self._faces[:head], *more._faces, *self._faces[cut:]]
        made._extras = [*self._extras[:head], *more._extras, *self._extras[cut:]]
        made.are_items = more.are_items and (self.are_items or not head + tail)
        return made

    def __len__(self) -> int:
        """Count the objects."""
        return len(self.objects)

    def is_true(self, start: int, stop: int) -> bool:
        """Tell whether a part looks as it did."""
        objects = self.objects[start:stop]
        if not self.are_items:
            return all(one.is_true() for one in self.shadows[start:stop])
        faces = [one.__dict__ for one in objects]
        return _equal(faces, self._faces[start:stop]) and (
            [one.__pydantic_extra__ for one in objects] == self._extras[start:stop]
        )

    def shared(self, values: Sequence[Any]) -> tuple[int, int]:
        """Count what another list shares with this one at head and tail, unchanged since.

        Only the last ones of each are looked over for changes: this is asked at every step.
        """
        objects = self.objects
        if not objects or not values:
            return 0, 0
        if not _is_one(objects[0], values[0]) and not _is_one(objects[-1], values[-1]):
            return 0, 0
        head = common_head(objects, values)
        start = max(head - LOOKED_AT, 0)
        if not self.is_true(start, head):
            head = next(place for place in range(start, head) if not self.shadows[place].is_true())
        tail = common_tail(objects, values, head)
        size = len(objects)
        start = size - min(tail, LOOKED_AT)
        if not self.is_true(start, size):
            is_kept = [one.is_true() for one in self.shadows[start:]]
            tail = is_kept[::-1].index(False)
        return head, tail


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
