"""A healed list put back where its messages stand: on lines of their own, or in a record's list.

For programs that keep the messages of a dialect as they are, in the order in which they are sent.
What keeps its order stays in its place, and what is new or moved goes behind what it follows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

from msgspec import Struct, structs

from lockstitch.conversation.json_text import dump_like
from lockstitch.conversation.json_text import replace_list as json_text_replace_list
from lockstitch.conversation.parts import Path
from lockstitch.sources.history import History, SourcedMessage, parts_of
from lockstitch.sources.interface import Transcript
from lockstitch.sources.records import Record, amend_record, record_bytes

_FRONT = -1

Make = Callable[[Any, Record], Record]


class MessageHome(Struct, frozen=True):
    """Where a message stands: the number of a record, and the path to the message in it.

    ``listed`` says that the path leads into a list, whose elements may come and go;
    ``bound`` that the record has another meaning, too, and stays when the message goes.
    """

    number: int
    path: Path = ()
    listed: bool = False
    bound: bool = False


def enter_message(history: History, message: dict[str, Any], home: MessageHome) -> None:
    """Add a message to a history, with the places of its parts."""
    parts = parts_of(message)
    whole = len(parts) == 1 and parts[0] is message
    steps: list[Path] = [()] if whole else [("content", n) for n in range(len(parts))]
    history.add(message, [home.number] * len(parts), [(*home.path, *step) for step in steps])


def longest_kept_run(origins: Sequence[int]) -> set[int]:
    """Give the positions of the longest rising run of origins: what keeps its order."""
    tails: list[int] = []
    ends: list[int] = []
    before = [_FRONT] * len(origins)
    for position, origin in enumerate(origins):
        if origin < 0:
            continue
        length = bisect_left(tails, origin)
        before[position] = ends[length - 1] if length else _FRONT
        tails[length : length + 1] = [origin]
        ends[length : length + 1] = [position]
    kept: set[int] = set()
    at = ends[-1] if ends else _FRONT
    while at != _FRONT:
        kept.add(at)
        at = before[at]
    return kept


T = TypeVar("T")


class Earlier(Generic[T]):
    """Looks for the last of some records, in the order given, that stood before another one."""

    def __init__(self, numbers: Iterable[int], values: Mapping[int, T]) -> None:
        order = list(numbers)
        old = sorted((number, place) for place, number in enumerate(order))
        self.order, self.values = order, values
        self.numbers = [number for number, _ in old]
        self.places = list(accumulate((place for _, place in old), max))

    def than(self, number: int) -> T | None:
        """Return what that record became; None if there is none."""
        at = bisect_left(self.numbers, number)
        return self.values[self.order[self.places[at - 1]]] if at else None


def place_messages(
    transcript: Transcript,
    homes: Sequence[MessageHome],
    strands: Sequence[SourcedMessage],
    make: Make,
) -> list[Record]:
    """Give the records that hold the healed messages; ``make`` makes the record of a new one."""
    return _MessagePlacement(transcript, homes, strands, make).records()


class _MessagePlacement:
    """Which message stays where, and what follows it, by the numbers of the old messages."""

    def __init__(
        self,
        transcript: Transcript,
        homes: Sequence[MessageHome],
        strands: Sequence[SourcedMessage],
        make: Make,
    ) -> None:
        self.data = transcript.context.data
        self.source = transcript.records
        self.old = transcript.history.messages
        self.homes = homes
        self.make = make
        self.kept: dict[int, Any] = {}
        self.behind: dict[int, list[tuple[int, Any]]] = {}
        stay = longest_kept_run([strand.origin for strand in strands])
        anchor = _FRONT
        for position, strand in enumerate(strands):
            if position in stay:
                anchor = strand.origin
                self.kept[anchor] = strand.message
            else:
                self.behind.setdefault(anchor, []).append((strand.origin, strand.message))

    def records(self) -> list[Record]:
        at: dict[int, list[int]] = {}
        for origin, home in enumerate(self.homes):
            at.setdefault(home.number, []).append(origin)
        out: list[Record] = []
        first = self.homes[0].number if self.homes else _FRONT
        for number, record in enumerate(self.source):
            if number == first and not self.homes[0].listed:
                out += self._fresh(_FRONT, record)
            origins = at.get(number, [])
            if not origins:
                out.append(record)
            elif self.homes[origins[0]].listed:
                out.append(self._list(record, origins))
            else:
                out += self._line(record, origins[0])
        return out

    def _fresh(self, anchor: int, near: Record) -> list[Record]:
        """Give the lines behind a message: those that moved there, and new ones."""
        return [self._made(*found, near) for found in self.behind.get(anchor, ())]

    def _made(self, origin: int, message: Any, near: Record) -> Record:
        home = self.homes[origin] if origin >= 0 else None
        if home is None or home.listed or home.bound or origin in self.kept:
            return self.make(message, near)
        moved = self._with(self.source[home.number], home, message, self.old[origin])
        return structs.replace(moved, ending=moved.ending or b"\n")

    def _values(self, anchor: int) -> list[Any]:
        return [message for _, message in self.behind.get(anchor, ())]

    def _line(self, record: Record, origin: int) -> list[Record]:
        home = self.homes[origin]
        if origin in self.kept:
            kept = [self._with(record, home, self.kept[origin], self.old[origin])]
        else:
            kept = [record] if home.bound else []
        return [*kept, *self._fresh(origin, record)]

    def _with(self, record: Record, home: MessageHome, new: Any, old: Any) -> Record:
        if new is old or home.bound:
            return record
        if home.path:
            return amend_record(self.data, record, home.path, new)
        text = record_bytes(self.data, record).decode("utf-8", "surrogatepass")
        return structs.replace(record, value=new, fresh=dump_like(text, new).encode())

    def _list(self, record: Record, origins: Sequence[int]) -> Record:
        path = self.homes[origins[0]].path[:-1]
        old = value_at(record.value, path)
        by_place = {self.homes[origin].path[-1]: origin for origin in origins}
        new: list[Any] = self._values(_FRONT) if origins[0] == 0 else []
        for place, element in enumerate(old):
            origin = by_place.get(place, _FRONT)
            if origin == _FRONT:
                new.append(element)
                continue
            new += [self.kept[origin]] if origin in self.kept else []
            new += self._values(origin)
        return replace_list(self.data, record, path, new)


def value_at(value: Any, path: Path) -> Any:
    """Give what stands at a path."""
    for step in path:
        value = value[step]
    return value


def replace_list(data: bytes, record: Record, path: Path, new: list[Any]) -> Record:
    """Give a record with another list at a path; elements that are in both keep their bytes."""
    old = value_at(record.value, path)
    if len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True)):
        return record
    text = record_bytes(data, record).decode("utf-8", "surrogatepass")
    fresh = json_text_replace_list(text, path, old, new).encode()
    return structs.replace(record, value=_with_value(record.value, path, new), fresh=fresh)


def _with_value(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    copy: Any = list(value) if type(value) is list else dict(value)
    copy[path[0]] = _with_value(value[path[0]], path[1:], new)
    return copy
