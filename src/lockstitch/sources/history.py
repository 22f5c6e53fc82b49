"""The history of a stored session: what a resume would send, and which record each part is from.

``trace_sources`` is the way back: it says of a repaired list, part by part, from which record it
is, so that a format can put it into its own records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from lockstitch.conversation.parts import Path, Place
from lockstitch.repair.draft import RepairedMessage, RepairedPart

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

    def source_of(self, part: RepairedPart) -> int:
        """Return the record that a part of a repaired message is from, ``NEW`` if from none."""
        if part.origin is None or part.origin >= len(self.sources):
            return NEW
        sources, number = self.sources[part.origin], _content_number(part.path)
        return sources[number if number is not None and number < len(sources) else 0]

    def home(self, place: Place) -> tuple[int, Path]:
        """Return the record and the path in it of a place such as ``messages.3.content.1.text``."""
        number, inner = (0, ()) if place.message is None else (place.message, place.path)
        if number >= len(self.messages):
            return (self.sources[-1][-1] if self.sources else NEW), ()
        sources, paths = self.sources[number], self.paths[number]
        if not sources:
            return NEW, ()
        part = _content_number(inner)
        if part is not None and part < len(sources):
            return sources[part], (*paths[part], *inner[2:])
        if len(sources) == 1 and paths[0][-1:] != ("content",):
            return sources[0], (*paths[0], *inner)
        return sources[0], ()


def _content_number(path: Path) -> int | None:
    """Return which element of a message's content a path leads into, None if into none."""
    number = path[1] if len(path) > 1 and path[0] == "content" else None
    return number if type(number) is int else None


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


def trace_sources(history: History, repaired: Iterable[RepairedMessage]) -> list[SourcedMessage]:
    """Say of each message of a repaired history, and of each part, from which record it is.

    Messages from behind the history, such as the prompt that a resume adds, are left out.
    """
    # origins count the stored messages only: others were put in from elsewhere
    stored = (number for number, row in enumerate(history.sources) if row != [NEW])
    counted = {number: place for place, number in enumerate(stored)}
    traced: list[SourcedMessage] = []
    for one in repaired:
        origin = one.origin
        if origin is not None and origin >= len(history.messages):
            continue
        elements = parts_of(one.message)
        if origin is not None and one.message is history.messages[origin]:
            sources = history.sources[origin]
        else:
            sources = _sources(history, one, elements)
        number = NEW if origin is None else counted.get(origin, NEW)
        traced.append(
            SourcedMessage(one.message, number, list(zip(sources, elements, strict=True)))
        )
    return traced


def _sources(history: History, one: RepairedMessage, elements: list[Any]) -> list[int]:
    """Return the record of each element of a message that was changed or made."""
    own = NEW if one.origin is None else history.sources[one.origin][0]
    if elements[0] is one.message or not one.parts:
        return [own] * len(elements)
    known = {id(part.value): part for part in one.parts if type(part.value) is not str}
    # a bare text is spelled as a block beside others: what no part is, is the next of those
    texts = iter([part for part in one.parts if type(part.value) is str])
    found = [known.get(id(element)) or next(texts, None) for element in elements]
    sources = [NEW if part is None else history.source_of(part) for part in found]
    if own != NEW and NEW in sources and set(sources).isdisjoint(history.sources[one.origin or 0]):
        # a message of which nothing is left, and which stays, keeps its record all the same
        sources[sources.index(NEW)] = own
    return sources
