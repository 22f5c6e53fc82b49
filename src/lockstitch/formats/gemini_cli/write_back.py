"""A chat of the Gemini CLI, turned into contents as the program does it, and written back.

A message with an id that came before replaces the earlier one, a checkpoint replaces everything,
and a rewind removes a message and all after it. On a resume, the calls of a message and their
results become contents of their own; thoughts, and what the program itself inserted, are not sent.
So a part of the repaired contents is put where the chat keeps such parts, such as a response in the
record of its call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from msgspec import Struct

from lockstitch.conversation.parts import Path
from lockstitch.dialects import GEMINI
from lockstitch.formats.interface import NEW, History, SourcedMessage, Transcript, parts_of
from lockstitch.formats.records import BOM, Record, amend_record, as_list, new_record
from lockstitch.formats.write_back import longest_kept_run, replace_list, value_at
from lockstitch.repair.draft import Ledger
from lockstitch.rules import RULES

USER, MODEL = "user", "model"
# What the program itself puts into user messages, and commands to it.
_IGNORED = ("/", "?", "<session_context>", "<hook_context>")


class ChatPlace(Struct, frozen=True):
    """Where a value stands: the number of a record and the path in it."""

    number: int
    path: Path = ()

    def at(self, *steps: str | int) -> ChatPlace:
        """Return a place further inside."""
        return ChatPlace(self.number, (*self.path, *steps))


class ChatMessage(Struct, frozen=True):
    """The latest version of a message and its place; ``first`` is the record it first came in."""

    value: dict[str, Any]
    place: ChatPlace
    first: int


def is_header(value: dict[str, Any]) -> bool:
    """Whether a record says which session this is."""
    return type(value.get("sessionId")) is str and type(value.get("projectHash")) is str


def is_message(value: Any) -> bool:
    """Whether a value is a message of a chat."""
    return type(value) is dict and type(value.get("id")) is str


def responses_in(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of a message that hold a response."""
    content = value.get("content")
    items = content if type(content) is list else [content]
    return [item for item in items if type(item) is dict and "functionResponse" in item]


class Chat:
    """The latest version of a file's messages, and the contents that a resume sends.

    ``places`` maps the identity of each part of the contents to its place. ``lost`` has the rewinds
    to missing messages, each with the messages that it hid.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.about: dict[str, Any] = {}
        self.messages: dict[str, ChatMessage] = {}
        self.lost: dict[int, list[ChatMessage]] = {}
        self.copies: dict[str, list[int]] = {}
        self.places: dict[int, ChatPlace] = {}
        for number, record in enumerate(records):
            if type(record.value) is dict and record.kind != BOM:
                self._load(number, record.value)
        self.history = self._history()

    def _load(self, number: int, value: dict[str, Any]) -> None:
        if type(value.get("$rewindTo")) is str:
            self._rewind(number, value["$rewindTo"])
        elif is_message(value):
            self.copies.setdefault(value["id"], []).append(number)
            self._put(value, ChatPlace(number))
        elif type(value.get("$set")) is dict:
            update = value["$set"]
            if type(update.get("messages")) is list:
                self.messages.clear()
                self._take(update["messages"], ChatPlace(number, ("$set", "messages")))
            self.about |= {key: new for key, new in update.items() if key != "messages"}
        elif is_header(value):
            self.about |= {key: new for key, new in value.items() if key != "messages"}
            self._take(value.get("messages"), ChatPlace(number, ("messages",)))

    def _take(self, messages: Any, place: ChatPlace) -> None:
        for index, value in enumerate(as_list(messages)):
            if is_message(value):
                self._put(value, place.at(index))

    def _put(self, value: dict[str, Any], place: ChatPlace) -> None:
        before = self.messages.get(value["id"])
        first = before.first if before is not None else place.number
        self.messages[value["id"]] = ChatMessage(value, place, first)

    def _rewind(self, number: int, name: str) -> None:
        names = list(self.messages)
        if name not in self.messages and names:
            self.lost[number] = list(self.messages.values())
        start = names.index(name) if name in self.messages else 0
        for gone in names[start:]:
            del self.messages[gone]

    # What is sent.

    def _history(self) -> History:
        """Build the contents; neighbouring messages of the model are joined, as they are sent."""
        history = History(GEMINI)
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

    def _contents(self, message: ChatMessage) -> Iterator[tuple[str, list[tuple[ChatPlace, Any]]]]:
        kind = message.value.get("type")
        content = [*_parts(message.value.get("content"), message.place.at("content"))]
        if kind == USER and not is_ignored([part for _, part in content]):
            yield USER, content
        elif kind == "gemini":
            calls = message.value.get("toolCalls")
            calls = as_list(calls)
            if not any("functionCall" in part or part.get("thought") for _, part in content):
                content += self._calls(calls, message.place)
            if content:
                yield MODEL, content
                results = [*self._results(calls, message.place)]
                yield USER, [found for found in results if "functionResponse" in found[1]]
                yield USER, [found for found in results if "functionResponse" not in found[1]]

    def _calls(self, calls: list[Any], place: ChatPlace) -> Iterator[tuple[ChatPlace, Any]]:
        for index, call in enumerate(calls):
            if type(call) is dict:
                fields = {key: call[key] for key in ("id", "name", "args") if key in call}
                yield place.at("toolCalls", index), {"functionCall": fields}

    def _results(self, calls: list[Any], place: ChatPlace) -> Iterator[tuple[ChatPlace, Any]]:
        for index, call in enumerate(calls):
            result = call.get("result") if type(call) is dict else None
            where = place.at("toolCalls", index, "result")
            if type(result) is str and result:
                fields = {"id": call.get("id"), "name": call.get("name")}
                yield where, {"functionResponse": {**fields, "response": {"output": result}}}
            elif result:
                yield from _parts(result, where)

    def turns(self) -> int:
        """Return the number of prompts."""
        return sum(is_prompt(message.value) for message in self.messages.values())


def is_prompt(value: dict[str, Any]) -> bool:
    """Whether a message is something that a person asked."""
    parts = [part for _, part in _parts(value.get("content"), ChatPlace(0))]
    return value.get("type") == USER and not is_ignored(parts) and not responses_in(value)


def is_ignored(parts: Sequence[dict[str, Any]]) -> bool:
    """Whether the program leaves a user message out of what it sends."""
    if any("text" not in part for part in parts):
        return False
    text = "".join(str(part["text"]) for part in parts).strip()
    return not text or text.startswith(_IGNORED)


def _parts(content: Any, place: ChatPlace) -> Iterator[tuple[ChatPlace, dict[str, Any]]]:
    """Yield content as parts: objects as they are, and text as a text part."""
    if type(content) is list:
        for index, item in enumerate(content):
            yield from _parts(item, place.at(index))
    elif type(content) is dict:
        yield place, content
    elif type(content) is str and content:
        yield place, {"text": content}


_GONE: Any = object()
_KINDS = ("functionCall", "functionResponse", "text")

Part = dict[str, Any]


class ChatSlot(Struct, eq=False):
    """A part of the repaired contents: its place, or the place it had before it was rewritten."""

    part: Part
    role: str
    place: ChatPlace | None = None
    changed: bool = False


class Lead(Struct, frozen=True):
    """A response that goes before what a call's record already holds."""

    part: Part


class GeminiWriteBack:
    """Lays repaired contents out over the messages of a chat."""

    def __init__(self, transcript: Transcript, ledger: Ledger) -> None:
        self.ledger = ledger
        self.data = transcript.context.data
        self.chat: Chat = transcript.state
        self.old = transcript.history.messages
        self.old_parts = [part for content in self.old for part in content["parts"]]
        self.order = {id(part): n for n, part in enumerate(self.old_parts)}
        self.roles = {id(part): str(one.get("role")) for one in self.old for part in one["parts"]}
        self.owners = {message.place: message for message in self.chat.messages.values()}
        # The changes in each message: new values by their path.
        self.patches: dict[ChatPlace, dict[Path, Any]] = {}
        self.added: dict[ChatPlace | None, list[Part]] = {}
        self.made = 0

    def write_back(self, repaired: Sequence[SourcedMessage]) -> list[Record]:
        """Return the records of a file with the repaired contents."""
        slots = [slot for sourced in repaired for slot in self._slots(sourced)]
        self._place_parts(slots)
        self._remove_others(slots)
        return self._file()

    # Which part stands where.

    def _slots(self, sourced: SourcedMessage) -> Iterator[ChatSlot]:
        """Yield the parts of a content; a rewritten part keeps the place it had."""
        role = str(sourced.message.get("role"))
        for part in sourced.message["parts"]:
            before = sourced.earlier.get(id(part), part)
            place = self.chat.places.get(id(before))
            if before is part or place is None or not self._can_hold(before, place, part, role):
                yield ChatSlot(part, role, self.chat.places.get(id(part)))
                continue
            self.order[id(part)] = self.order[id(before)]
            yield ChatSlot(part, role, place, changed=True)

    def _can_hold(self, before: Part, place: ChatPlace, part: Part, role: str) -> bool:
        """Whether a rewritten part can stand in its old place.

        The words of one role never become those of the other. A call's record holds a call, and its
        result only responses: the program sends these as one content, in which the provider accepts
        nothing else.
        """
        if self.roles[id(before)] != role:
            return False
        match place.path[len(self._owner(place).path) :]:
            case ("toolCalls", _):
                return "functionCall" in part
            case ("toolCalls", _, "result", *_):
                return "functionResponse" in part
        return True

    def _place_parts(self, slots: Sequence[ChatSlot]) -> None:
        """Write changed parts in their places, and find places for new and moved ones."""
        stay = longest_kept_run([self.order.get(id(slot.part), NEW) for slot in slots])
        anchor: ChatPlace | None = None
        calls = [slot for slot in slots if "functionCall" in slot.part]
        for number, slot in enumerate(slots):
            if number in stay and slot.place is not None:
                anchor = self._owner(slot.place)
                if slot.changed:
                    self._set(slot.place, slot.part)
                continue
            slot.place = None
            if not self._answer(slot, calls):
                self._add(anchor, slot)

    def _owner(self, place: ChatPlace) -> ChatPlace:
        """Return the place of the message that a part belongs to."""
        for length in range(len(place.path) + 1):
            owner = ChatPlace(place.number, place.path[:length])
            if owner in self.owners:
                return owner
        raise AssertionError("a part outside of all messages")

    def _set(self, place: ChatPlace, value: Any) -> None:
        owner = self._owner(place)
        patch = self.patches.setdefault(owner, {})
        path = place.path[len(owner.path) :]
        if value is not _GONE or type(patch.get(path)) is not Lead:
            patch[path] = value

    def _answer(self, slot: ChatSlot, calls: Sequence[ChatSlot]) -> bool:
        """Put a new response into the record of the call it answers, or right after it."""
        response = slot.part.get("functionResponse")
        if type(response) is not dict:
            return False
        for call in calls:
            asked = call.part["functionCall"]
            if call.place is None or _key(asked) != _key(response):
                continue
            place = self._record_of(call.place, asked)
            if place is None:
                self._add(self._owner(call.place), slot)
                return True
            owner = self._owner(place)
            if (*place.path[len(owner.path) :], "result") not in self.patches.get(owner, {}):
                self._set(place.at("result"), Lead(slot.part))
                return True
        return False

    def _record_of(self, place: ChatPlace, asked: dict[str, Any]) -> ChatPlace | None:
        owner = self._owner(place)
        steps = place.path[len(owner.path) :]
        if steps[:1] == ("toolCalls",):
            return owner.at(*steps[:2])
        records = self.owners[owner].value.get("toolCalls")
        for index, record in enumerate(as_list(records)):
            if type(record) is dict and _key(record) == _key(asked):
                return owner.at("toolCalls", index)
        return None

    def _add(self, anchor: ChatPlace | None, slot: ChatSlot) -> None:
        """Make a message for a part that fits into no existing message."""
        near = self.owners[anchor] if anchor is not None else None
        near = near or self._first()
        value: dict[str, Any] = {"id": self._new_id()}
        if near is not None:
            value["timestamp"] = near.value.get("timestamp")
        kind = "gemini" if slot.role == MODEL else USER
        value |= {"type": kind, "content": [slot.part]}
        self.added.setdefault(anchor, []).append(value)

    def _new_id(self) -> str:
        """Make the id of a message; one that an earlier repair made would take its place."""
        while True:
            self.made += 1
            # derived from the session, so that the same repair makes the same id
            seed = f"lockstitch:{self.chat.about.get('sessionId')}:{self.made}"
            made = str(uuid5(NAMESPACE_URL, seed.encode("utf-8", "backslashreplace").decode()))
            if made not in self.chat.messages and made not in self.chat.copies:
                return made

    def _remove_others(self, slots: Sequence[ChatSlot]) -> None:
        """Remove from the messages whatever is not among the repaired contents."""
        kept = {slot.place for slot in slots if slot.place is not None}
        for part in self.old_parts:
            place = self.chat.places[id(part)]
            if place in kept:
                continue
            self._set(place, _GONE)
            asked = part.get("functionCall")
            record = self._record_of(place, asked) if type(asked) is dict else None
            if record is not None:
                self._set(record, _GONE)

    # The file.

    def _file(self) -> list[Record]:
        lists: dict[tuple[int, Path], list[Any]] = {}
        records = dict(enumerate(self.chat.records))
        gone: set[int] = set()
        for owner, patch in self.patches.items():
            message = self.owners[owner]
            fields = patch_fields(message.value, patch)
            if not (fields.get("content") or fields.get("toolCalls")):
                gone |= self._remove_message(owner, lists)
                continue
            record = records[owner.number]
            for key, value in fields.items():
                if value is not message.value.get(key):
                    record = amend_record(self.data, record, (*owner.path, key), value)
            records[owner.number] = record
        behind = self._behind(lists)
        for (number, path), edits in lists.items():
            records[number] = self._change_list(records[number], path, edits)
        first = self._first()
        front = first.first if first else NEW
        out: list[Record] = []
        for number in range(len(self.chat.records)):
            out += behind.get(NEW, ()) if number == front else ()
            out += [] if number in gone else [records[number]]
            out += behind.get(number, ())
        return out

    def _first(self) -> ChatMessage | None:
        return next(iter(self.chat.messages.values()), None)

    def _remove_message(
        self, owner: ChatPlace, lists: dict[tuple[int, Path], list[Any]]
    ) -> set[int]:
        """Remove a message: all lines with its id, or its element in a list."""
        if not owner.path:
            copies = self.chat.copies[self.owners[owner].value["id"]]
            for number in copies:
                record = self.chat.records[number]
                self.ledger.set_aside(RULES["LS106"], record.place, record.value)
            return set(copies)
        steps = (self.chat.records[owner.number].place, *owner.path)
        place = ".".join(map(str, steps))
        self.ledger.set_aside(RULES["LS106"], place, self.owners[owner].value)
        edits = lists.setdefault((owner.number, owner.path[:-1]), [])
        edits.append((owner.path[-1], _GONE))
        return set()

    def _behind(self, lists: dict[tuple[int, Path], list[Any]]) -> dict[int, list[Record]]:
        """Return new lines by the line that they follow; add new elements of lists to ``lists``."""
        found: dict[int, list[Record]] = {}
        for anchor, values in self.added.items():
            first = self._first()
            near = anchor or (first.place if first else None)
            if near is None or not near.path:
                number = self.owners[anchor].first if anchor is not None else NEW
                found.setdefault(number, []).extend(new_record("", value) for value in values)
                continue
            at = near.path[-1] if anchor is not None else NEW
            lists.setdefault((near.number, near.path[:-1]), []).extend((at, v) for v in values)
        return found

    def _change_list(self, record: Record, path: Path, edits: Sequence[tuple[Any, Any]]) -> Record:
        old = value_at(record.value, path)
        gone = {place for place, value in edits if value is _GONE}
        new = [value for place, value in edits if place == NEW]
        for index, element in enumerate(old):
            new += [] if index in gone else [element]
            new += [value for place, value in edits if place == index and value is not _GONE]
        return replace_list(self.data, record, path, new)


def _key(named: dict[str, Any]) -> Any:
    """Return what a call and its response have in common."""
    name = named.get("id")
    return name if type(name) is str else (named.get("name"),)


def patch_fields(message: dict[str, Any], patch: dict[Path, Any]) -> dict[str, Any]:
    """Return the content and calls of a message with some values changed or removed."""
    fields: dict[str, Any] = {}
    for key in ("content", "toolCalls"):
        inside = {path[1:]: value for path, value in patch.items() if path[0] == key}
        if key in message:
            fields[key] = _apply_edits(message[key], inside)
    return {key: ("" if value is _GONE else value) for key, value in fields.items()}


def _apply_edits(value: Any, edits: dict[Path, Any]) -> Any:
    if not edits:
        return value
    if () in edits:
        inside = _apply_edits(value, {path: new for path, new in edits.items() if path})
        return _spell_like(inside, edits[()])
    if type(value) is list:
        new = [_apply_edits(item, _below(edits, index)) for index, item in enumerate(value)]
        return [item for item in new if item is not _GONE]
    fields = dict(value)
    for key in {path[0] for path in edits}:
        new = _apply_edits(value.get(key), _below(edits, key))
        fields.pop(str(key), None)
        fields |= {} if new is _GONE else {key: new}
    return fields


def _below(edits: dict[Path, Any], step: str | int) -> dict[Path, Any]:
    return {path[1:]: value for path, value in edits.items() if path[0] == step}


def _spell_like(old: Any, new: Any) -> Any:
    """Return a part in the spelling of its place: text as text, a call as its record."""
    if type(new) is Lead:
        return [new.part, *as_list(old)]
    if type(new) is not dict:
        return new
    if type(old) is str and type(new.get("text")) is str:
        return new["text"]
    if type(old) is dict and "functionCall" in new and not any(key in old for key in _KINDS):
        return {**old, **new["functionCall"]}
    return new
