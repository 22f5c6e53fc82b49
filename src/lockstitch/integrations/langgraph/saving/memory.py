"""What is known of a thread's objects, so that most need not be serialised or read again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from lockstitch.integrations.langgraph.saving.looks import Known, Look
from lockstitch.integrations.langgraph.saving.spares import Spares

# So many lists are known, of those that were read or stored last.
_LISTS = 24
# So many objects that tasks wrote are known again: they are soon a part of the checkpoint, and
# LangGraph may have given them ids meanwhile.
_OBJECTS = 1024


class Memory:
    """What the items and the last lists of a thread look like."""

    def __init__(self) -> None:
        self.items: dict[int, Look] = {}
        self._ids: dict[tuple[str, str], int] = {}
        self._lists: OrderedDict[int, Known] = OrderedDict()
        self._objects: dict[str, dict[int, tuple[Any, Look]]] = {}
        self.spares = Spares()

    def keep_item(self, look: Look) -> None:
        """Know what an item looks like, from now on."""
        self.items[look.item] = look
        if name := look.name:
            self._ids[name] = max(look.item, self._ids.get(name, -1))

    def named(self, kind: str, name: str | None) -> int | None:
        """Give the last item of a message with an id."""
        return self._ids.get((kind, name)) if name else None

    def keep(self, space: str, value: Any, look: Look) -> None:
        """Know again an object that a task wrote, until the next checkpoint of its namespace."""
        kept = self._objects.setdefault(space, {})
        kept[id(value)] = (value, look)
        if len(kept) > _OBJECTS:
            del kept[next(iter(kept))]

    def drop(self, space: str) -> None:
        """Let go of what the tasks of a namespace wrote."""
        self._objects.pop(space, None)

    def look(self, space: str, value: Any) -> Look | None:
        """Give what an object looked like when it was written, if it is known."""
        found = self._objects.get(space, {}).get(id(value))
        return found[1] if found is not None and found[0] is value else None

    def keep_list(self, known: Known) -> None:
        """Know a list from now on, until others have taken its place."""
        self._lists[known.number] = known
        self._lists.move_to_end(known.number)
        if len(self._lists) > _LISTS:
            self._lists.popitem(last=False)

    def known(self, number: int) -> Known | None:
        """Give what is known of a list."""
        return self._lists.get(number)

    def last(self, most: int) -> list[Known]:
        """Give the lists that were used last, the last first."""
        return list(self._lists.values())[: -most - 1 : -1]
