"""Images of stored objects, used to make equal objects and to see whether an object has changed.

What is kept here is never handed out. A reader of a message gets a new object made from its
*image*: a copy of all dictionaries and lists in it, sharing the texts and numbers, which nobody can
change. When a list is written, only its differences from the images of the last list are stored.
All fields of all messages are compared at once, so a change made in place is noticed like any
other. Values of other classes (a tool's artifact, say) are serialized for that. A change to an
equal value of another type (1 and True) is not noticed.

Making a thousand messages anew for every run would cost more than everything else that a
checkpointer does. Most need not be made: a server drops the messages of a turn long before the next
turn, and Python counts the references to an object. If only the list that is kept here refers to a
message, and to everything in it that could be changed, and the message still equals its image, then
handing it out again is the same as making an equal one. A message that somebody else holds, or that
is nested too deep to tell, is made anew.

A thread's memory keeps all of this, so that most objects need not be serialized or read again.
"""

from __future__ import annotations

import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from hashlib import blake2b
from itertools import chain
from operator import attrgetter, itemgetter
from sys import getrefcount
from typing import Any
from uuid import UUID

from langchain_core import messages as lc
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

# Exactly these classes: an application's own subclass goes through the serializer.
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


_NO_FIELDS: dict[str, Any] = {}
_NO_VALUES: list[Any] = []
_ATOMS: frozenset[type] = frozenset({str, int, float, bool, type(None)})
_UNCHANGING: frozenset[type] = _ATOMS | {
    bytes,
    complex,
    Decimal,
    UUID,
    date,
    datetime,
    time,
    timedelta,
}


def _setter(name: str) -> Callable[[Any, Any], None]:
    """Return a function that sets a slot of a message, as pydantic does without validation."""
    slots = (vars(one).get(name) for one in lc.BaseMessage.__mro__)
    made: Callable[[Any, Any], None] = next(one for one in slots if one is not None).__set__
    return made


_new = object.__new__
_set_fields = _setter("__dict__")
_set_names = _setter("__pydantic_fields_set__")
_set_extra = _setter("__pydantic_extra__")
_set_private = _setter("__pydantic_private__")


def structure(value: Any) -> Any:
    """Return a copy of a value in which dictionaries, lists and tuples are new."""
    kind = type(value)
    # Most are empty, and sharing one empty value makes comparisons faster.
    if kind is dict:
        return {name: structure(one) for name, one in value.items()} if value else _NO_FIELDS
    if kind is list:
        return [structure(one) for one in value] if value else _NO_VALUES
    if kind is tuple:
        return tuple(structure(one) for one in value)
    return value


def _is_made_of(value: Any, kinds: frozenset[type], *containers: type) -> bool:
    kind = type(value)
    if kind in kinds:
        return True
    if kind not in containers:
        return False
    parts = [*value.keys(), *value.values()] if kind is dict else value
    return all(_is_made_of(one, kinds, *containers) for one in parts)


def _copy_plain(value: Any) -> Any:
    """Return a copy of dictionaries and lists that contain nothing but atoms."""
    made = value.copy()
    for place, one in made.items() if type(made) is dict else enumerate(made):
        if type(one) is dict or type(one) is list:
            made[place] = _copy_plain(one)
    return made


def _is_shallow(state: dict[str, Any], extra: Any, deep: list[str]) -> bool:
    """Whether nothing is nested in a message except calls with plain arguments."""
    if extra != {} or deep not in ([], ["tool_calls"]):
        return False
    calls = state["tool_calls"] if deep else ()
    flat = (_ATOMS | {dict}).issuperset
    return all(
        type(call) is dict
        and type(call.get("args")) is dict
        and sum(type(one) is dict for one in call.values()) == 1
        and flat(map(type, call.values()))
        and _ATOMS.issuperset(map(type, call["args"].values()))
        for call in calls
    )


def fingerprint(value: Any) -> bytes | None:
    """Return a digest of a value as it is now; None if that is not possible."""
    try:
        tag, data = _FULL.dumps_typed(value)
    except Exception:  # noqa: BLE001 - whatever an application's class raises
        return None
    return blake2b(data, digest_size=16, key=tag.encode()).digest()


class _WriteOnlySerializer(JsonPlusSerializer):
    """A serializer that writes any value and is never used to read one."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        try:
            return super().dumps_typed(obj)
        except Exception:  # noqa: BLE001 - whatever an application's class raises
            return "pickle", pickle.dumps(obj)


_FULL = _WriteOnlySerializer()


class ObjectImage:
    """An object as it was when it was stored; ``item`` is its number, if it has one.

    ``is_whole`` says that an equal object can be made from the image, without the stored bytes.
    ``shape`` names the fields that contain something that can be changed, None if that is nested
    deep.
    """

    __slots__ = (
        "_deep",
        "_dicts",
        "_digest",
        "_lists",
        "_names",
        "extra",
        "is_whole",
        "item",
        "kind",
        "shape",
        "state",
    )  # fmt: skip

    def __init__(self, value: Any, item: int = -1) -> None:
        self.item = item
        self.kind = type(value)
        self._digest: tuple[bytes | None] | None = None
        self.extra = None
        self.is_whole = False
        self.shape: tuple[str, ...] | None = None
        if self.kind in KINDS:
            self.state = structure(value.__dict__)
            self.extra = structure(value.__pydantic_extra__)
            parts = [self.state, self.extra]
            self.is_whole = all(_is_made_of(one, _ATOMS, dict, list) for one in parts)
        else:
            self.state = structure(value)
            parts = [self.state]
        # Set if something in it can change besides the dictionaries and lists, which are compared.
        is_fixed = all(_is_made_of(one, _UNCHANGING, dict, list, tuple) for one in parts)
        if not self.is_whole and not is_fixed:
            self._digest = (fingerprint(value),)
        if self.is_whole:
            self._names = set(self.state) | set(self.extra or ())
            nested = [name for name, one in self.state.items() if type(one) in {dict, list}]
            self._dicts = [name for name in nested if self.state[name] == {}]
            self._lists = [name for name in nested if self.state[name] == []]
            self._deep = [name for name in nested if self.state[name]]
            if _is_shallow(self.state, self.extra, self._deep):
                self.shape = tuple(nested)

    @property
    def name(self) -> tuple[str, str] | None:
        """The kind and the id of a message."""
        kind = KINDS.get(self.kind)
        return (kind, self.state["id"]) if kind is not None and self.state.get("id") else None

    @property
    def needs_digest(self) -> bool:
        """Whether an object must be serialized in order to compare it with this image."""
        return self._digest is not None

    def matches(self, value: Any) -> bool:
        """Whether an object of the same class equals this image."""
        if self._digest is not None:
            return self._digest[0] is not None and fingerprint(value) == self._digest[0]
        if self.kind in KINDS:
            return _equal(value.__dict__, self.state) and value.__pydantic_extra__ == self.extra
        return _equal(value, self.state)

    def copy(self) -> Any:
        """Return a new message equal to this image, which must be whole."""
        fields = self.state.copy()
        for name in self._dicts:
            fields[name] = {}
        for name in self._lists:
            fields[name] = []
        for name in self._deep:
            fields[name] = _copy_plain(fields[name])
        made = _new(self.kind)
        _set_fields(made, fields)
        _set_names(made, self._names.copy())
        _set_extra(made, None if self.extra is None else _copy_plain(self.extra))
        _set_private(made, None)
        return made


_FIELDS = attrgetter("__dict__")
_EXTRAS = attrgetter("__pydantic_extra__")


class _SharedImages:
    """Images in parallel lists, which are compared at once."""

    __slots__ = ("digested", "extras", "images", "kinds", "shapes", "states", "unread")

    def __init__(self) -> None:
        self.images: list[ObjectImage] = []
        self.kinds: list[type] = []
        self.states: list[Any] = []
        self.extras: list[Any] = []
        # The places of images that cannot be compared at once, and of those that no object can be
        # made from.
        self.digested: list[int] = []
        self.unread: list[int] = []
        self.shapes: dict[tuple[str, ...] | None, list[int]] = {}

    def extend(self, images: list[ObjectImage]) -> None:
        """Add images; lists that an exception leaves incomplete are never used again."""
        done = len(self.images)
        self.kinds += [one.kind for one in images]
        self.states += [None if one.needs_digest else one.state for one in images]
        self.extras += [None if one.needs_digest else one.extra for one in images]
        for place, one in enumerate(images, done):
            self.shapes.setdefault(one.shape, []).append(place)
            if one.needs_digest:
                self.digested.append(place)
            if not one.is_whole:
                self.unread.append(place)
        self.images += images


class KnownList:
    """The images of the objects in a stored list.

    A list that extends another one shares its beginning, so it costs only what is new.
    """

    __slots__ = ("_shared", "_size", "are_items", "number")

    def __init__(self, number: int, images: list[ObjectImage]) -> None:
        self.number = number
        # Only messages are made from images; everything else is read again.
        self.are_items = all(one.kind in KINDS for one in images)
        self._shared = _SharedImages()
        self._shared.extend(images)
        self._size = len(images)

    @property
    def images(self) -> list[ObjectImage]:
        """The images of the objects; must not be changed."""
        return self._part(self._shared.images, 0, self._size)

    @property
    def unread(self) -> list[int]:
        """The places of messages that can be made only from their stored bytes."""
        return [place for place in self._shared.unread if place < self._size]

    @property
    def shapes(self) -> dict[tuple[str, ...] | None, list[int]]:
        """The places of the messages of each shape; must not be changed."""
        found = self._shared.shapes
        if self._size == len(self._shared.images):
            return found
        return {
            shape: [place for place in places if place < self._size]
            for shape, places in found.items()
        }

    @staticmethod
    def _part(values: list[Any], first: int, end: int) -> list[Any]:
        return values if not first and len(values) == end else values[first:end]

    def __len__(self) -> int:
        """Return the number of objects."""
        return self._size

    def grown(self, number: int, head: int, middle: list[ObjectImage], tail: int) -> KnownList:
        """Return a list that has new images between a head and a tail of this one."""
        shared = self._shared
        is_end = head == self._size == len(shared.images) and not tail
        are_items = self.are_items and all(one.kind in KINDS for one in middle)
        if not is_end or are_items != self.are_items or not head:
            end = shared.images[self._size - tail : self._size]
            return KnownList(number, [*shared.images[:head], *middle, *end])
        made = KnownList(number, [])
        made.are_items = are_items
        made._shared = shared
        made._shared.extend(middle)
        made._size = self._size + len(middle)
        return made

    def are(self, values: list[Any]) -> bool:
        """Whether all of these objects equal the images here."""
        return len(values) == self._size and self._are(values, 0)

    def end_with(self, values: list[Any]) -> bool:
        """Whether the last images here equal these objects."""
        return len(values) <= self._size and self._are(values, self._size - len(values))

    def count_shared(self, values: list[Any]) -> tuple[int, int]:
        """Return how many of the first and last objects equal the first and last images here."""
        size, most = self._size, min(self._size, len(values))
        if not most or not (self._are(values[:1], 0) or self._are(values[-1:], size - 1)):
            return 0, 0
        head = _greatest(most, lambda end, done: self._are(values[done:end], done))
        last = len(values)
        return head, _greatest(
            most - head,
            lambda end, done: self._are(values[last - end : last - done], size - end),
        )

    def _are(self, values: list[Any], first: int) -> bool:
        """Whether objects equal the images here, beginning with number ``first``."""
        shared, end = self._shared, first + len(values)
        if list(map(type, values)) != self._part(shared.kinds, first, end):
            return False
        digested = [place for place in shared.digested if first <= place < end]
        if self.are_items:
            fields, extras = list(map(_FIELDS, values)), list(map(_EXTRAS, values))
            for place in digested:
                fields[place - first] = extras[place - first] = None
            is_equal = _equal(fields, self._part(shared.states, first, end)) and _equal(
                extras, self._part(shared.extras, first, end)
            )
        else:
            compared = values.copy() if digested else values
            for place in digested:
                compared[place - first] = None
            is_equal = _equal(compared, self._part(shared.states, first, end))
        return is_equal and all(
            shared.images[place].matches(values[place - first]) for place in digested
        )


def _greatest(most: int, are: Callable[[int, int], bool]) -> int:
    """Return the greatest number up to which a condition holds, found by bisection."""
    if are(most, 0):
        return most
    done, end = 0, most
    while end - done > 1:
        middle = (done + end) // 2
        if are(middle, done):
            done = middle
        else:
            end = middle
    return done


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - an application's own comparison
        return False


# How many lists to keep: a thread has few runs at a time, and few channels of messages.
_LISTS = 4
_CALLS, _ARGS = itemgetter("tool_calls"), itemgetter("args")


class ReusableObjects:
    """The objects of the lists that were handed out or stored last."""

    def __init__(self) -> None:
        self._lists: OrderedDict[int, list[Any]] = OrderedDict()

    def keep(self, number: int, objects: list[Any]) -> None:
        """Keep the objects of a list in place of the list that it extends."""
        for known, kept in list(self._lists.items()):
            if known == number or (kept and objects and kept[0] is objects[0]):
                del self._lists[known]
        self._lists[number] = objects
        if len(self._lists) > _LISTS:
            self._lists.popitem(last=False)

    def get(self, number: int) -> list[Any] | None:
        """Return the kept objects of a list, whoever holds them; they must not be changed."""
        return self._lists.get(number)

    def take(self, known: KnownList) -> list[Any]:
        """Return objects that nobody else holds and that equal a list's; none if there are none.

        In place of an object that somebody holds there is an equal one, or None if only its stored
        bytes tell what it is.
        """
        objects = self._lists.pop(known.number, None)
        if objects is None or not _COUNTS or not known.are(objects):
            return []
        images = known.images
        for place in _find_held(objects, known.shapes):
            objects[place] = images[place].copy() if images[place].is_whole else None
        return objects


def _find_held(objects: list[Any], shapes: dict[tuple[str, ...] | None, list[int]]) -> set[int]:
    """Return the numbers of messages that somebody else holds, or may hold, wholly or in part."""
    held = set(_owners_of_held(objects, range(len(objects)), _BASES[0]))
    held.update(shapes.get(None, ()))
    fields = list(map(_FIELDS, objects))
    held.update(_owners_of_held(fields, range(len(objects)), _BASES[1]))
    extras = list(map(_EXTRAS, objects))
    held.update(_owners_of_held(extras, range(len(objects)), _BASES[2]))
    del extras
    for names, places in shapes.items():
        own = [fields[place] for place in places] if names else []
        for name in names or ():
            held.update(_owners_of_held(list(map(itemgetter(name), own)), places, _BASES[3]))
        if names and "tool_calls" in names:
            lists = list(map(_CALLS, own))
            calls = list(chain.from_iterable(lists))
            for values, base in ((calls, _BASES[4]), (list(map(_ARGS, calls)), _BASES[5])):
                owners = (at for at, one in zip(places, lists, strict=True) for _ in one)
                held.update(_owners_of_held(values, owners, base))
    return held


def _owners_of_held(values: list[Any], owners: Iterable[int], base: int) -> list[int]:
    """Return the owners of values that have more references than the known ones."""
    counts = list(map(getrefcount, values))
    if max(counts, default=0) <= base:
        return []
    return [owner for owner, count in zip(owners, counts, strict=True) if count > base]


def _measure_counts() -> list[int]:
    """Return the reference counts that an object has when nobody else holds it."""
    call = {"name": "f", "args": {"n": 1}, "id": "1", "type": "tool_call"}
    samples = [HumanMessage("x"), AIMessage("x", tool_calls=[call])]
    del call
    images = [ObjectImage(one) for one in samples]
    objects = [one.copy() for one in images]
    del samples
    found = [max(map(getrefcount, objects))]
    fields = list(map(_FIELDS, objects))
    found.append(max(list(map(getrefcount, fields))))
    extras = list(map(_EXTRAS, objects))
    found.append(max(list(map(getrefcount, extras))))
    del extras
    own = [fields[1]]
    found.append(max(list(map(getrefcount, list(map(itemgetter("additional_kwargs"), own))))))
    lists = list(map(_CALLS, own))
    calls = list(chain.from_iterable(lists))
    found.append(max(list(map(getrefcount, calls))))
    found.append(max(list(map(getrefcount, list(map(_ARGS, calls))))))
    return found


# Only if every reference is counted, and at once.
_is_locked = getattr(sys, "_is_gil_enabled", lambda: True)
_COUNTS = sys.implementation.name == "cpython" and bool(_is_locked())
_BASES = _measure_counts() if _COUNTS else [0] * 6


# How many lists to remember, of those that were read or stored last.
_KEPT_LISTS = 24
# How many stored objects to recognize: what a task wrote soon becomes part of the checkpoint, and
# LangGraph may have given it an id meanwhile.
_OBJECTS = 1024


class ThreadMemory:
    """The images of the items and of the last lists of a thread."""

    def __init__(self) -> None:
        self.items: dict[int, ObjectImage] = {}
        self._ids: dict[tuple[str, str], int] = {}
        self._lists: OrderedDict[int, KnownList] = OrderedDict()
        self._objects: dict[str, dict[int, tuple[Any, ObjectImage]]] = {}
        self.reusable = ReusableObjects()

    def keep_item(self, image: ObjectImage) -> None:
        """Remember the image of an item."""
        self.items[image.item] = image
        if name := image.name:
            self._ids[name] = max(image.item, self._ids.get(name, -1))

    def named(self, kind: str, name: str | None) -> int | None:
        """Return the last item that is a message of this kind and id."""
        return self._ids.get((kind, name)) if name else None

    def keep(self, space: str, value: Any, image: ObjectImage) -> None:
        """Recognize a stored object until the next checkpoint of its namespace."""
        kept = self._objects.setdefault(space, {})
        kept[id(value)] = (value, image)
        if len(kept) > _OBJECTS:
            del kept[next(iter(kept))]

    def drop(self, space: str) -> None:
        """Forget the objects of a namespace."""
        self._objects.pop(space, None)

    def image_of(self, space: str, value: Any) -> ObjectImage | None:
        """Return the image of an object as it was when it was stored, if it is remembered."""
        found = self._objects.get(space, {}).get(id(value))
        return found[1] if found is not None and found[0] is value else None

    def keep_list(self, known: KnownList) -> None:
        """Remember a list until others have taken its place."""
        self._lists[known.number] = known
        self._lists.move_to_end(known.number)
        if len(self._lists) > _KEPT_LISTS:
            self._lists.popitem(last=False)

    def known(self, number: int) -> KnownList | None:
        """Return what is known of a list."""
        return self._lists.get(number)

    def last(self, most: int) -> list[KnownList]:
        """Return the lists that were used last, the latest first."""
        return list(self._lists.values())[: -most - 1 : -1]
