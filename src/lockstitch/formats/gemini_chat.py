"""A chat of the Gemini CLI, loaded and turned into contents as the program does it.

A message that comes again under its id replaces itself, a checkpoint replaces all, and a rewind
takes a message and all behind it away. On a resume the calls of a message and their results become
contents of their own; thoughts and what the program itself put in are not sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from lockstitch.conversation.parts import Path
from lockstitch.formats.history import History, parts_of
from lockstitch.formats.records import BOM, Record

USER, MODEL = "user", "model"
# What the program itself puts into the user's mouth, and commands to it.
_IGNORED = ("/", "?", "<session_context>", "<hook_context>")


class Place(Struct, frozen=True):
    """Where a value stands: the number of a record and the path in it."""

    number: int
    path: Path = ()

    def at(self, *steps: str | int) -> Place:
        """Give a place further in."""
        return Place(self.number, (*self.path, *steps))


class Message(Struct, frozen=True):
    """A message of the chat as it is last, and where; ``first`` is where it came up."""

    value: dict[str, Any]
    place: Place
    first: int


def is_header(value: dict[str, Any]) -> bool:
    """Tell whether a record says which session this is."""
    return type(value.get("sessionId")) is str and type(value.get("projectHash")) is str


def is_message(value: Any) -> bool:
    """Tell whether a value is a message of a chat."""
    return type(value) is dict and type(value.get("id")) is str


def responses_in(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the parts of a message that hold a response."""
    content = value.get("content")
    items = content if type(content) is list else [content]
    return [item for item in items if type(item) is dict and "functionResponse" in item]


class Chat:
    """The messages of a file as they are last, and the contents that a resume sends.

    ``places`` says, by identity, where each part of the contents stands; ``lost`` are the rewinds
    to messages that are not there, each with what it hid.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.about: dict[str, Any] = {}
        self.messages: dict[str, Message] = {}
        self.lost: dict[int, list[Message]] = {}
        self.copies: dict[str, list[int]] = {}
        self.places: dict[int, Place] = {}
        for number, record in enumerate(records):
            if type(record.value) is dict and record.kind != BOM:
                self._load(number, record.value)
        self.history = self._history()

    def _load(self, number: int, value: dict[str, Any]) -> None:
        if type(value.get("$rewindTo")) is str:
            self._rewind(number, value["$rewindTo"])
        elif is_message(value):
            self.copies.setdefault(value["id"], []).append(number)
            self._put(value, Place(number))
        elif type(value.get("$set")) is dict:
            update = value["$set"]
            if type(update.get("messages")) is list:
                self.messages.clear()
                self._take(update["messages"], Place(number, ("$set", "messages")))
            self._tell(update)
        elif is_header(value):
            self._tell(value)
            self._take(value.get("messages"), Place(number, ("messages",)))

    def _tell(self, update: dict[str, Any]) -> None:
        self.about |= {key: new for key, new in update.items() if key != "messages"}

    def _take(self, messages: Any, place: Place) -> None:
        for index, value in enumerate(messages if type(messages) is list else ()):
            if is_message(value):
                self._put(value, place.at(index))

    def _put(self, value: dict[str, Any], place: Place) -> None:
        before = self.messages.get(value["id"])
        first = before.first if before is not None else place.number
        self.messages[value["id"]] = Message(value, place, first)

    def _rewind(self, number: int, name: str) -> None:
        names = list(self.messages)
        if name not in self.messages and names:
            self.lost[number] = list(self.messages.values())
        start = names.index(name) if name in self.messages else 0
        for gone in names[start:]:
            del self.messages[gone]

    # What is sent.

    def _history(self) -> History:
        """Build the contents; messages of the model in a row are one, as they are sent."""
        history = History("gemini", [], [], [])
        for message in self.messages.values():
            for role, found in self._contents(message):
                sent = [(place, part) for place, part in found if not part.get("thought")]
                for place, part in sent:
                    self.places[id(part)] = place
                parts = [part for _, part in sent]
                last = history.messages[-1]["role"] if history.messages else ""
                if parts and role == last == MODEL:
                    history.messages[-1]["parts"] += parts
                elif parts:
                    history.add({"role": role, "parts": parts}, [], [])
        for number, content in enumerate(history.messages):
            places = [self.places[id(part)] for part in content["parts"]]
            places = places if len(parts_of(content)) == len(places) else places[:1]
            history.sources[number] = [place.number for place in places]
            history.paths[number] = [place.path for place in places]
        return history

    def _contents(self, message: Message) -> Iterator[tuple[str, list[tuple[Place, Any]]]]:
        kind = message.value.get("type")
        content = [*_parts(message.value.get("content"), message.place.at("content"))]
        if kind == USER and not is_ignored([part for _, part in content]):
            yield USER, content
        elif kind == "gemini":
            calls = message.value.get("toolCalls")
            calls = calls if type(calls) is list else []
            if not any("functionCall" in part or part.get("thought") for _, part in content):
                content += self._calls(calls, message.place)
            if content:
                yield MODEL, content
                results = [*self._results(calls, message.place)]
                yield USER, [found for found in results if "functionResponse" in found[1]]
                yield USER, [found for found in results if "functionResponse" not in found[1]]

    def _calls(self, calls: list[Any], place: Place) -> Iterator[tuple[Place, Any]]:
        for index, call in enumerate(calls):
            if type(call) is dict:
                fields = {key: call[key] for key in ("id", "name", "args") if key in call}
                yield place.at("toolCalls", index), {"functionCall": fields}

    def _results(self, calls: list[Any], place: Place) -> Iterator[tuple[Place, Any]]:
        for index, call in enumerate(calls):
            result = call.get("result") if type(call) is dict else None
            where = place.at("toolCalls", index, "result")
            if type(result) is str and result:
                fields = {"id": call.get("id"), "name": call.get("name")}
                yield where, {"functionResponse": {**fields, "response": {"output": result}}}
            elif result:
                yield from _parts(result, where)

    def turns(self) -> int:
        """Count what the user asked."""
        return sum(is_prompt(message.value) for message in self.messages.values())


def is_prompt(value: dict[str, Any]) -> bool:
    """Tell whether a message is something that a person asked."""
    parts = [part for _, part in _parts(value.get("content"), Place(0))]
    return value.get("type") == USER and not is_ignored(parts) and not responses_in(value)


def is_ignored(parts: Sequence[dict[str, Any]]) -> bool:
    """Tell whether the program leaves a message of the user out of what it sends."""
    if any("text" not in part for part in parts):
        return False
    text = "".join(str(part["text"]) for part in parts).strip()
    return not text or text.startswith(_IGNORED)


def _parts(content: Any, place: Place) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Give content as parts: the objects in it as they are, text as a part."""
    if type(content) is list:
        for index, item in enumerate(content):
            yield from _parts(item, place.at(index))
    elif type(content) is dict:
        yield place, content
    elif type(content) is str and content:
        yield place, {"text": content}
