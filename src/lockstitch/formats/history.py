"""The history of a stored session: what a resume would send, and which record each part is from.

``weave`` is the way back: it takes the healed list apart and says, part by part, from which record
it is, so that a format can put it into its own records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from lockstitch.conversation.json_text import is_index
from lockstitch.conversation.parts import Path

NEW = -1
LOST, LEFT, COMPACTED = "lost", "left", "compacted"


class History(Struct):
    """Messages in a dialect; ``sources`` gives, part by part, the number of a part's record.

    A part is an element of a message's content list, or the whole of a message whose content is
    no list. ``paths`` says where in the record the part stands. ``body`` is the request around the
    messages, where what is stored is one.
    """

    dialect: str
    messages: list[dict[str, Any]]
    sources: list[list[int]]
    paths: list[list[Path]]
    model: str | None = None
    body: dict[str, Any] | None = None

    def add(self, message: dict[str, Any], sources: list[int], paths: list[Path]) -> None:
        """Add a message with the homes of its parts."""
        self.messages.append(message)
        self.sources.append(sources)
        self.paths.append(paths)

    def home(self, place: str) -> tuple[int, Path]:
        """Give the record and the path in it of a place such as ``messages.3.content.1.text``."""
        steps = place.split(".")[1:]
        number = int(steps[0]) if steps and is_index(steps[0]) else 0
        if number >= len(self.messages):
            return (self.sources[-1][-1] if self.sources else NEW), ()
        sources, paths = self.sources[number], self.paths[number]
        if not sources:
            return NEW, ()
        inner = steps[1:]
        if len(inner) > 1 and inner[0] == "content" and is_index(inner[1]):
            part = int(inner[1])
            if part < len(sources):
                return sources[part], (*paths[part], *inner[2:])
        if len(sources) == 1 and paths[0][-1:] != ("content",):
            return sources[0], (*paths[0], *inner)
        return sources[0], ()


class Aside(Struct):
    """A piece of the conversation that stands in the store and that a resume does not send.

    ``kind`` says why: ``LOST`` although nobody gave it up, ``LEFT`` on purpose, or ``COMPACTED``,
    since a summary stands for it; ``reason`` says it in words. ``first`` is its first record,
    ``behind`` the record of the conversation that it hangs on, -1 where it stands before all of it.
    """

    kind: str
    first: int
    behind: int
    history: History
    reason: str


class SourcedMessage(Struct):
    """One healed message: its parts, each with the record it came from (``NEW``: from none)."""

    message: dict[str, Any]
    origin: int
    parts: list[tuple[int, Any]]


def parts_of(message: Any) -> list[Any]:
    """Give the parts of a message: the blocks of its content, or the message itself."""
    content = message.get("content") if type(message) is dict else None
    return content if type(content) is list and content else [message]


def trace_sources(history: History, healed: list[dict[str, Any]]) -> list[SourcedMessage]:
    """Say for each healed message which one it was, and for each part from which record it is.

    What is the same object is the same part; what is left over on both sides of the same message
    is paired in order, because a repair rewrites a part where it stands.
    """
    homes = {
        id(part): source
        for message, sources in zip(history.messages, history.sources, strict=True)
        for part, source in zip(parts_of(message), sources, strict=True)
    }
    origins = _origins(history, healed)
    kept = {id(part) for message in healed for part in parts_of(message)}
    strands: list[SourcedMessage] = []
    taken: set[int] = set()
    for message, origin in zip(healed, origins, strict=True):
        spare = _spare(history, origin, kept) if origin not in taken else iter(())
        taken.add(origin)
        parts = [
            (homes[id(part)] if id(part) in homes else next(spare, NEW), part)
            for part in parts_of(message)
        ]
        strands.append(SourcedMessage(message, origin, parts))
    return _counted(strands, history)


def _counted(strands: list[SourcedMessage], history: History) -> list[SourcedMessage]:
    """Count origins over the stored messages only: others were put in from elsewhere."""
    stored = (number for number, row in enumerate(history.sources) if row != [NEW])
    numbers = {number: place for place, number in enumerate(stored)}
    for strand in strands:
        strand.origin = numbers.get(strand.origin, NEW)
    return strands


def _spare(history: History, origin: int, kept: set[int]) -> Iterator[int]:
    """Give the records of a message's parts that are gone from the healed list."""
    if origin < 0:
        return
    parts = parts_of(history.messages[origin])
    for part, source in zip(parts, history.sources[origin], strict=True):
        if id(part) not in kept:
            yield source


def _origins(history: History, healed: list[dict[str, Any]]) -> list[int]:
    """Find each healed message in the original: itself, or the one its parts are from."""
    where = {id(message): number for number, message in enumerate(history.messages)}
    for number, message in enumerate(history.messages):
        where |= {id(part): number for part in parts_of(message)}
    origins = [_origin(message, history, where) for message in healed]
    _pair_leftovers(origins, healed, history)
    return origins


def _origin(message: dict[str, Any], history: History, where: dict[int, int]) -> int:
    if id(message) in where:
        return where[id(message)]
    found = [where[id(part)] for part in parts_of(message) if id(part) in where]
    return next((n for n in found if _shape(history.messages[n]) == _shape(message)), NEW)


def _shape(message: Any) -> tuple[Any, Any] | None:
    return (message.get("role"), message.get("type")) if type(message) is dict else None


def _pair_leftovers(origins: list[int], healed: list[dict[str, Any]], history: History) -> None:
    """Pair messages rewritten as a whole with those that are gone, between the same neighbours."""
    known = set(origins)
    gone: dict[str, list[int]] = {}
    for number, message in enumerate(history.messages):
        if number not in known:
            gone.setdefault(repr(_shape(message)), []).append(number)
    afters = [len(history.messages)] * len(healed)
    for place in range(len(healed) - 2, -1, -1):
        behind = origins[place + 1]
        afters[place] = behind if behind >= 0 else afters[place + 1]
    last = -1
    for place, message in enumerate(healed):
        if origins[place] < 0:
            alike = gone.get(repr(_shape(message)), [])
            at = bisect_right(alike, last)
            if at == len(alike) or alike[at] >= afters[place]:
                continue
            origins[place] = alike[at]
        last = origins[place]
