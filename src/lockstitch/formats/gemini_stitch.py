"""Putting healed contents into the messages of a Gemini CLI chat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from msgspec import Struct, field

from lockstitch.conversation.parts import Path
from lockstitch.formats.base import Transcript
from lockstitch.formats.gemini_chat import MODEL, USER, Chat, Message, Place
from lockstitch.formats.history import NEW, SourcedMessage
from lockstitch.formats.records import Record, amended, new_record
from lockstitch.formats.slots import relisted, steady, value_at
from lockstitch.repair.draft import Ledger
from lockstitch.rules import RULES

_GONE: Any = object()
_KINDS = ("functionCall", "functionResponse", "text")

Part = dict[str, Any]


class Slot(Struct, eq=False):
    """A part of the healed contents: where it stands (or stood, before it was rewritten)."""

    part: Part
    role: str
    place: Place | None = None
    changed: bool = False


class Lead(Struct, frozen=True):
    """A response that goes in front of what a call's record holds already."""

    part: Part


class Patch(Struct):
    """What changes in one message: values by their path in it."""

    values: dict[Path, Any] = field(default_factory=dict)


def stitch(
    transcript: Transcript, strands: Sequence[SourcedMessage], ledger: Ledger
) -> list[Record]:
    """Give the records of the file whose contents are the healed ones."""
    return _Stitcher(transcript, ledger).stitch(strands)


class _Stitcher:
    """Lays healed contents out over the messages of a chat."""

    def __init__(self, transcript: Transcript, ledger: Ledger) -> None:
        self.ledger = ledger
        self.data = transcript.context.data
        self.chat: Chat = transcript.state
        self.old = transcript.history.messages
        self.order = {id(part): n for n, part in enumerate(self._old_parts())}
        self.roles = {id(part): str(one.get("role")) for one in self.old for part in one["parts"]}
        self.owners = {message.place: message for message in self.chat.messages.values()}
        self.patches: dict[Place, Patch] = {}
        self.added: dict[Place | None, list[Part]] = {}
        self.made = 0

    def _old_parts(self) -> Iterator[Part]:
        for content in self.old:
            yield from content["parts"]

    def stitch(self, strands: Sequence[SourcedMessage]) -> list[Record]:
        kept = {id(part) for strand in strands for part in strand.message["parts"]}
        spare = [part for part in self._old_parts() if id(part) not in kept]
        slots = [slot for strand in strands for slot in self._slots(strand.message, spare)]
        self._settle(slots)
        self._sweep(slots)
        return self._file()

    # Which part stands where.

    def _slots(self, content: dict[str, Any], spare: list[Part]) -> Iterator[Slot]:
        """Give the parts of a content, those that were rewritten with the place they had."""
        role = str(content.get("role"))
        for part in content["parts"]:
            place = self.chat.places.get(id(part))
            # Nobody's words become another's: what is new in front of them is not what they were.
            same = [old for old in spare if self.roles[id(old)] == role]
            before = _before(part, same) if place is None else None
            if before is None:
                yield Slot(part, role, place)
                continue
            spare[:] = [old for old in spare if old is not before]
            self.order[id(part)] = self.order[id(before)]
            yield Slot(part, role, self.chat.places[id(before)], changed=True)

    def _settle(self, slots: Sequence[Slot]) -> None:
        """Write what changed in its place, and find a place for what is new or moved."""
        stay = steady([self.order.get(id(slot.part), NEW) for slot in slots])
        anchor: Place | None = None
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

    def _owner(self, place: Place) -> Place:
        """Give the place of the message that a part belongs to."""
        for length in range(len(place.path) + 1):
            owner = Place(place.number, place.path[:length])
            if owner in self.owners:
                return owner
        raise AssertionError("a part outside of all messages")

    def _set(self, place: Place, value: Any) -> None:
        owner = self._owner(place)
        patch = self.patches.setdefault(owner, Patch())
        path = place.path[len(owner.path) :]
        if value is not _GONE or type(patch.values.get(path)) is not Lead:
            patch.values[path] = value

    def _answer(self, slot: Slot, calls: Sequence[Slot]) -> bool:
        """Put a new response to the call that it answers: into its record, or right behind it."""
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
            if not self._is_led(place.at("result")):
                self._set(place.at("result"), Lead(slot.part))
                return True
        return False

    def _record_of(self, place: Place, asked: dict[str, Any]) -> Place | None:
        owner = self._owner(place)
        steps = place.path[len(owner.path) :]
        if steps[:1] == ("toolCalls",):
            return owner.at(*steps[:2])
        records = self.owners[owner].value.get("toolCalls")
        for index, record in enumerate(records if type(records) is list else ()):
            if type(record) is dict and _key(record) == _key(asked):
                return owner.at("toolCalls", index)
        return None

    def _is_led(self, place: Place) -> bool:
        owner = self._owner(place)
        patch = self.patches.get(owner)
        return patch is not None and place.path[len(owner.path) :] in patch.values

    def _add(self, anchor: Place | None, slot: Slot) -> None:
        """Make a message for a part that no message has a place for."""
        self.made += 1
        near = self.owners[anchor] if anchor is not None else None
        near = near or self._first()
        seed = f"lockstitch:{self.chat.about.get('sessionId')}:{self.made}"
        value: dict[str, Any] = {
            "id": str(uuid5(NAMESPACE_URL, seed.encode("utf-8", "backslashreplace").decode()))
        }
        if near is not None:
            value["timestamp"] = near.value.get("timestamp")
        kind = "gemini" if slot.role == MODEL else USER
        value |= {"type": kind, "content": [slot.part]}
        self.added.setdefault(anchor, []).append(value)

    def _sweep(self, slots: Sequence[Slot]) -> None:
        """Take out of the messages what is not among the healed contents."""
        kept = {slot.place for slot in slots if slot.place is not None}
        for part in self._old_parts():
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
            fields = patched(message.value, patch)
            if not _says(fields):
                gone |= self._removed(owner, lists)
                continue
            record = records[owner.number]
            for key, value in fields.items():
                if value is not message.value.get(key):
                    record = amended(self.data, record, (*owner.path, key), value)
            records[owner.number] = record
        behind = self._behind(lists)
        for (number, path), edits in lists.items():
            records[number] = self._relisted(records[number], path, edits)
        first = self._first()
        front = first.first if first else NEW
        out: list[Record] = []
        for number in range(len(self.chat.records)):
            out += behind.get(NEW, ()) if number == front else ()
            out += [] if number in gone else [records[number]]
            out += behind.get(number, ())
        return out

    def _first(self) -> Message | None:
        return next(iter(self.chat.messages.values()), None)

    def _removed(self, owner: Place, lists: dict[tuple[int, Path], list[Any]]) -> set[int]:
        """Take a message out: all lines with its id, or its place in a list."""
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
        """Give new lines by the line they follow; new elements of lists go to the lists."""
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

    def _relisted(self, record: Record, path: Path, edits: Sequence[tuple[Any, Any]]) -> Record:
        old = value_at(record.value, path)
        gone = {place for place, value in edits if value is _GONE}
        new = [value for place, value in edits if place == NEW]
        for index, element in enumerate(old):
            new += [] if index in gone else [element]
            new += [value for place, value in edits if place == index and value is not _GONE]
        return relisted(self.data, record, path, new)


def _key(named: dict[str, Any]) -> Any:
    """Give by what a call and its response know each other."""
    name = named.get("id")
    return name if type(name) is str else (named.get("name"),)


def _before(part: Part, spare: Sequence[Part]) -> Part | None:
    """Give the part that another one was rewritten from: of its kind, or text from a response."""
    kind = next((key for key in _KINDS if key in part), "")
    for old in spare:
        if kind == "functionResponse" and kind in old and _same(part[kind], old[kind]):
            return old
        if kind != "functionResponse" and kind in old:
            return old
        if kind == "text" and "functionResponse" in old:
            return old
    return None


def _same(one: Any, other: Any) -> bool:
    return type(one) is dict and type(other) is dict and _key(one) == _key(other)


def patched(message: dict[str, Any], patch: Patch) -> dict[str, Any]:
    """Give the content and the calls of a message with some values changed or gone."""
    fields: dict[str, Any] = {}
    for key in ("content", "toolCalls"):
        inside = {path[1:]: value for path, value in patch.values.items() if path[0] == key}
        if key in message:
            fields[key] = _changed(message[key], inside)
    return {key: ("" if value is _GONE else value) for key, value in fields.items()}


def _changed(value: Any, edits: dict[Path, Any]) -> Any:
    if not edits:
        return value
    if () in edits:
        inside = _changed(value, {path: new for path, new in edits.items() if path})
        return _spelled(inside, edits[()])
    if type(value) is list:
        new = [_changed(item, _below(edits, index)) for index, item in enumerate(value)]
        return [item for item in new if item is not _GONE]
    fields = dict(value)
    for key in {path[0] for path in edits}:
        new = _changed(value.get(key), _below(edits, key))
        fields.pop(str(key), None)
        fields |= {} if new is _GONE else {key: new}
    return fields


def _below(edits: dict[Path, Any], step: str | int) -> dict[Path, Any]:
    return {path[1:]: value for path, value in edits.items() if path[0] == step}


def _spelled(old: Any, new: Any) -> Any:
    """Spell a part as the place has it that it goes to: text as text, a call as its record."""
    if type(new) is Lead:
        return [new.part, *(old if type(old) is list else ())]
    if type(new) is not dict:
        return new
    if type(old) is str and type(new.get("text")) is str:
        return new["text"]
    if type(old) is dict and "functionCall" in new and not any(key in old for key in _KINDS):
        return {**old, **new["functionCall"]}
    return new


def _says(fields: dict[str, Any]) -> bool:
    return bool(fields.get("content")) or bool(fields.get("toolCalls"))
