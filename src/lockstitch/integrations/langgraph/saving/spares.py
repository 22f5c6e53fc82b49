"""Messages that were made for somebody who has let go of them, to be given to the next reader.

To make a thousand messages anew for every run costs more than all else that a checkpointer does.
Most of them need not be: a server drops what a turn gave it long before the next turn comes, and
Python counts who holds an object. If nobody but the list kept here holds a message, nor anything in
it that could be changed, and it still looks as it did, then to hand it out again is the same as to
make an equal one. Whatever is held by anybody, or is nested too deep to tell, is made anew.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter, itemgetter
from sys import getrefcount
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage

from lockstitch.integrations.langgraph.saving.looks import Known, Look

# So many lists are kept: a thread has few runs at a time, and few channels of messages.
_LISTS = 4
_FIELDS = attrgetter("__dict__")
_EXTRAS = attrgetter("__pydantic_extra__")
_CALLS, _ARGS = itemgetter("tool_calls"), itemgetter("args")


class Spares:
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
        """Give the objects of a list that are kept, whoever has them; not to be changed."""
        return self._lists.get(number)

    def taken(self, known: Known) -> list[Any]:
        """Give objects that are nobody's and look as those of a list do; none, if there are none.

        In the place of every one that is somebody's stands an equal one, or None if only its
        stored bytes can tell what it is read as.
        """
        objects = self._lists.pop(known.number, None)
        if objects is None or not _COUNTS or not known.are(objects):
            return []
        looks = known.looks
        for place in _held(objects, known.shapes):
            objects[place] = looks[place].copy() if looks[place].is_whole else None
        return objects


def _held(objects: list[Any], shapes: dict[tuple[str, ...] | None, list[int]]) -> set[int]:
    """Tell which messages somebody else holds, or something in them, or may hold."""
    held = set(_above(objects, range(len(objects)), _BASES[0]))
    held.update(shapes.get(None, ()))
    fields = list(map(_FIELDS, objects))
    held.update(_above(fields, range(len(objects)), _BASES[1]))
    extras = list(map(_EXTRAS, objects))
    held.update(_above(extras, range(len(objects)), _BASES[2]))
    del extras
    for names, places in shapes.items():
        own = [fields[place] for place in places] if names else []
        for name in names or ():
            held.update(_above(list(map(itemgetter(name), own)), places, _BASES[3]))
        if names and "tool_calls" in names:
            held.update(_held_calls(own, places))
    return held


def _held_calls(fields: list[Any], places: list[int]) -> Iterator[int]:
    """Tell which messages have a call that somebody else holds, or its arguments."""
    lists = list(map(_CALLS, fields))
    calls = list(chain.from_iterable(lists))
    for values, base in ((calls, _BASES[4]), (list(map(_ARGS, calls)), _BASES[5])):
        owners = (at for at, one in zip(places, lists, strict=True) for _ in one)
        yield from _above(values, owners, base)


def _above(values: list[Any], owners: Iterable[int], base: int) -> list[int]:
    """Give the owners of values that are held by more than whoever is known to hold them."""
    counts = list(map(getrefcount, values))
    if max(counts, default=0) <= base:
        return []
    return [owner for owner, count in zip(owners, counts, strict=True) if count > base]


def _measured() -> list[int]:
    """Count how often what nobody else holds is held, wherever it is looked at."""
    call = {"name": "f", "args": {"n": 1}, "id": "1", "type": "tool_call"}
    samples = [HumanMessage("x"), AIMessage("x", tool_calls=[call])]
    del call
    looks = [Look(one) for one in samples]
    objects = [one.copy() for one in looks]
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
_BASES = _measured() if _COUNTS else [0] * 6
