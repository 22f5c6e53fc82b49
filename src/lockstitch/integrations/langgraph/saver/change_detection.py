"""Images of stored objects: to make equal ones of them, and to see whether one has changed.

What is kept here is never handed out. Whoever reads a message gets a new one, made from its
*image*: a copy of all dictionaries and lists in it, beside the texts and numbers that nobody can
change. Whoever writes a list writes what differs from the images of the last one: all fields of all
messages are compared in one go, so that a change made in place is seen like any other. What holds
objects of other classes (a tool's artefact, say) is serialised for that. Not seen is a change to
an equal value of another type (1 and True).

To make a thousand messages anew for every run costs more than all else that a checkpointer does.
Most need not be: a server drops the messages of a turn long before the next turn comes, and Python
counts who holds an object. If nobody but the list kept here holds a message, nor anything in it
that could be changed, and it still looks as it did, then to hand it out again is the same as to
make an equal one. Whatever somebody holds, or is nested too deep for that question, is made anew.

A thread's memory keeps all of this, so that most objects need not be serialised or read again.
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
    """Return what fills a slot of a message, as pydantic itself does where nothing is validated."""
    slots = (vars(one).get(name) for one in lc.BaseMessage.__mro__)
    made: Callable[[Any, Any], None] = next(one for one in slots if one is not None).__set__
    return made


_new = object.__new__
_set_fields = _setter("__dict__")
_set_names = _setter("__pydantic_fields_set__")
_set_extra = _setter("__pydantic_extra__")
_set_private = _setter("__pydantic_private__")


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


def _is_made_of(value: Any, kinds: frozenset[type], *containers: type) -> bool:
    kind = type(value)
    if kind in kinds:
        return True
    if kind not in containers:
        return False
    parts = [*value.keys(), *value.values()] if kind is dict else value
    return all(_is_made_of(one, kinds, *containers) for one in parts)


def _copy_plain(value: Any) -> Any:
    """Copy dictionaries and lists that hold nothing else than atoms."""
    made = value.copy()
    for place, one in made.items() if type(made) is dict else enumerate(made):
        if type(one) is dict or type(one) is list:
            made[place] = _copy_plain(one)
    return made


def _is_shallow(state: dict[str, Any], extra: Any, deep: list[str]) -> bool:
    """Whether nothing is nested in a message but calls with plain arguments."""
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
    """Digest what a value looks like now; None if that cannot be said."""
    try:
        tag, data = _FULL.dumps_typed(value)
    except Exception:  # noqa: BLE001 - whatever an application's class raises
        return None
    return blake2b(data, digest_size=16, key=tag.encode()).digest()


class _Full(JsonPlusSerializer):
    """Writes whatever can be written, and is never asked to read it."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        try:
            return super().dumps_typed(obj)
        except Exception:  # noqa: BLE001 - whatever an application's class raises
            return "pickle", pickle.dumps(obj)


_FULL = _Full()


class ObjectImage:
    """What an object looked like when it was stored; ``item`` is its number, if it has one.

    ``is_whole`` says that an equal object can be made of it, without the stored bytes; ``shape``
    names the fields with something in them that can be changed, None if that is nested deep.
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
        # If anything else in it can change than dictionaries and lists, which are compared.
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
        """What a message is called: its kind and its id."""
        kind = KINDS.get(self.kind)
        return (kind, self.state["id"]) if kind is not None and self.state.get("id") else None

    @property
    def needs_digest(self) -> bool:
        """Whether an object must be serialised to see that it still looks like this."""
        return self._digest is not None

    def matches(self, value: Any) -> bool:
        """Whether an object of the same class looks like this."""
        if self._digest is not None:
            return self._digest[0] is not None and fingerprint(value) == self._digest[0]
        if self.kind in KINDS:
            return _equal(value.__dict__, self.state) and value.__pydantic_extra__ == self.extra
        return _equal(value, self.state)

    def copy(self) -> Any:
        """Make a message that looks like this; only of a whole image."""
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
    """Images side by side, as lists that are compared in one go."""

    __slots__ = ("digested", "extras", "images", "kinds", "shapes", "states", "unread")

    def __init__(self) -> None:
        self.images: list[ObjectImage] = []
        self.kinds: list[type] = []
        self.states: list[Any] = []
        self.extras: list[Any] = []
        # Where the images are that cannot be compared so, and those that no object can be made of.
        self.digested: list[int] = []
        self.unread: list[int] = []
        self.shapes: dict[tuple[str, ...] | None, list[int]] = {}

    def extend(self, images: list[ObjectImage]) -> None:
        """Take in more; lists that are interrupted in between are never used again."""
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
    """What the objects of a stored list look like.

    A list that goes on from another one shares its beginning, so that it costs only what is new.
    """

    __slots__ = ("_shared", "_size", "are_items", "number")

    def __init__(self, number: int, images: list[ObjectImage]) -> None:
        self.number = number
        # Only messages are made anew from what is known; all else is read anew.
        self.are_items = all(one.kind in KINDS for one in images)
        self._shared = _SharedImages()
        self._shared.extend(images)
        self._size = len(images)

    @property
    def images(self) -> list[ObjectImage]:
        """What the objects look like; not to be changed."""
        return self._part(self._shared.images, 0, self._size)

    @property
    def unread(self) -> list[int]:
        """Where the messages are that only their stored bytes can be made of."""
        return [place for place in self._shared.unread if place < self._size]

    @property
    def shapes(self) -> dict[tuple[str, ...] | None, list[int]]:
        """Where the messages of each shape are; not to be changed."""
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
        """Count the objects."""
        return self._size

    def grown(self, number: int, head: int, middle: list[ObjectImage], tail: int) -> KnownList:
        """Return the list that has others between a head and a tail of this one."""
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
        """Whether objects look like those here, all of them."""
        return len(values) == self._size and self._are(values, 0)

    def end_with(self, values: list[Any]) -> bool:
        """Whether the last of these look like some objects."""
        return len(values) <= self._size and self._are(values, self._size - len(values))

    def count_shared(self, values: list[Any]) -> tuple[int, int]:
        """Count how many of a list's first and last objects look like the first and last here."""
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
        """Whether objects look like those here, from one of them on."""
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
    """Find up to where something holds, if it holds up to ``done`` at first, by halving."""
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


# So many lists are kept: a thread has few runs at a time, and few channels of messages.
_LISTS = 4
_CALLS, _ARGS = itemgetter("tool_calls"), itemgetter("args")


class ReusableObjects:
    """The objects of the lists that were given out or stored last."""

    def __init__(self) -> None:
        self._lists: OrderedDict[int, list[Any]] = OrderedDict()

    def keep(self, number: int, objects: list[Any]) -> None:
        """Keep the objects of a list, in the place of one that it goes on from."""
        for known, kept in list(self._lists.items()):
            if known == number or (kept and objects and kept[0] is objects[0]):
                del self._lists[known]
        self._lists[number] = objects
        if len(self._lists) > _LISTS:
            self._lists.popitem(last=False)

    def get(self, number: int) -> list[Any] | None:
        """Return the objects of a list that are kept, whoever has them; not to be changed."""
        return self._lists.get(number)

    def take(self, known: KnownList) -> list[Any]:
        """Return objects that are nobody's and look as those of a list do; none, if there are none.

        In the place of every one that is somebody's stands an equal one, or None if only its
        stored bytes say what it is read as.
        """
        objects = self._lists.pop(known.number, None)
        if objects is None or not _COUNTS or not known.are(objects):
            return []
        images = known.images
        for place in _find_held(objects, known.shapes):
            objects[place] = images[place].copy() if images[place].is_whole else None
        return objects


def _find_held(objects: list[Any], shapes: dict[tuple[str, ...] | None, list[int]]) -> set[int]:
    """Return which messages somebody else holds, or something in them, or may hold."""
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
    """Return the owners of values that are held by more than whoever is known to hold them."""
    counts = list(map(getrefcount, values))
    if max(counts, default=0) <= base:
        return []
    return [owner for owner, count in zip(owners, counts, strict=True) if count > base]


def _measure_counts() -> list[int]:
    """Count how often what nobody else holds is held, wherever it is looked at."""
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


# Only where every reference is counted, at once.
_is_locked = getattr(sys, "_is_gil_enabled", lambda: True)
_COUNTS = sys.implementation.name == "cpython" and bool(_is_locked())
_BASES = _measure_counts() if _COUNTS else [0] * 6


# So many lists are known, of those that were read or stored last.
_KEPT_LISTS = 24
# So many objects are known again that were stored last: what a task wrote is soon a part of the
# checkpoint, and LangGraph may have given it an id meanwhile.
_OBJECTS = 1024


class ThreadMemory:
    """What the items and the last lists of a thread look like."""

    def __init__(self) -> None:
        self.items: dict[int, ObjectImage] = {}
        self._ids: dict[tuple[str, str], int] = {}
        self._lists: OrderedDict[int, KnownList] = OrderedDict()
        self._objects: dict[str, dict[int, tuple[Any, ObjectImage]]] = {}
        self.reusable = ReusableObjects()

    def keep_item(self, image: ObjectImage) -> None:
        """Know what an item looks like, from now on."""
        self.items[image.item] = image
        if name := image.name:
            self._ids[name] = max(image.item, self._ids.get(name, -1))

    def named(self, kind: str, name: str | None) -> int | None:
        """Return the last item of a message with an id."""
        return self._ids.get((kind, name)) if name else None

    def keep(self, space: str, value: Any, image: ObjectImage) -> None:
        """Know again an object that was stored, until the next checkpoint of its namespace."""
        kept = self._objects.setdefault(space, {})
        kept[id(value)] = (value, image)
        if len(kept) > _OBJECTS:
            del kept[next(iter(kept))]

    def drop(self, space: str) -> None:
        """Let go of the objects of a namespace."""
        self._objects.pop(space, None)

    def image_of(self, space: str, value: Any) -> ObjectImage | None:
        """Return what an object looked like when it was stored, if it is known."""
        found = self._objects.get(space, {}).get(id(value))
        return found[1] if found is not None and found[0] is value else None

    def keep_list(self, known: KnownList) -> None:
        """Know a list from now on, until others have taken its place."""
        self._lists[known.number] = known
        self._lists.move_to_end(known.number)
        if len(self._lists) > _KEPT_LISTS:
            self._lists.popitem(last=False)

    def known(self, number: int) -> KnownList | None:
        """Return what is known of a list."""
        return self._lists.get(number)

    def last(self, most: int) -> list[KnownList]:
        """Return the lists that were used last, the last first."""
        return list(self._lists.values())[: -most - 1 : -1]
