"""Which strings of a JSON value are content, and how a value is rebuilt with others in place."""

from __future__ import annotations

import json
import operator
import re
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch.redaction.names import kind_of
from lockstitch.redaction.spans import spans

# A path is a chain from the inside out, (outer, step): most are never written down.
Trail = tuple[Any, Any] | None

# Fields that name, address or sign things, wherever a program and not a tool wrote them.
_STRUCTURE = re.compile(
    r"(?:.*_)?(?:id|uuid)|.*[a-z](?:Id|ID|Uuid|UUID)"
    r"|type|role|name|model|model_name|modelVersion|status|timestamp|created_at|updated_at"
    r"|signature|thoughtSignature|thought_signature|encrypted_\w+|redactedContent"
    r"|media_type|mimeType|mime_type|bytes|base64|file_data"
)
_MEDIA_LABELS = ("media_type", "mimeType", "mime_type")
_DATA_URL = re.compile(r"data:[^,\s]{0,100};base64,[A-Za-z0-9+/=_-]*+$")
# Fields whose object is what a tool was given or gave: there, every field is content.
_FREE = frozenset(
    {"input", "args", "arguments", "response", "json", "action", "operation", "artifact"}
    | {"toolUseResult", "details", "structuredContent", "structured_content"}
)
_JSON_TEXT = ("arguments", "args")
_SHORTEST = 4
_UNSURE = (ArithmeticError, TypeError, ValueError, RecursionError)


class Slot(Struct):
    """One string of content.

    ``kind`` is the kind of secret its field says it is; ``is_id`` says that it may look random
    and be none; ``signed`` says that a signature beside it vouches for it; ``old`` is what it was.
    Once it is found to hold JSON, ``is_folded`` is false and the slots inside count instead.
    """

    text: str
    trail: Trail
    kind: str | None
    is_id: bool
    signed: bool
    old: str
    is_folded: bool = True

    @property
    def place(self) -> str:
        """Its place, as rules name places: ``3.content.1.text``."""
        return ".".join(map(str, filter(_is_named, steps_of(self.trail))))


class Nest(Struct):
    """A string that holds JSON: its place, the text, and what it decodes to."""

    trail: Trail
    text: str
    value: Any


class Contents:
    """Everything in a value that may hold a secret: slots, strings of JSON, and odd keys."""

    def __init__(self, value: Any, place: str) -> None:
        self.slots: list[Slot] = []
        self.nests: list[Nest] = []
        self.keys: set[str] = set()
        self._fields: set[Any] = set()
        self._value(value, "", (None, place), free=False, signed=False)

    def _value(self, value: Any, key: str, trail: Trail, *, free: bool, signed: bool) -> None:
        """Gather from one value; ``free`` says that a tool, not a format, decided on fields."""
        kind = type(value)
        if kind is str:
            if len(value) >= _SHORTEST and (free or not _is_structure(key)):
                self._string(value, key, trail, signed=signed)
        elif kind is dict:
            self._object(value, trail, free=free or key in _FREE)
        elif kind is list:
            for number, item in enumerate(value):
                name = key if type(item) is str else ""
                self._value(item, name, (trail, number), free=free, signed=False)

    def _object(self, fields: dict[str, Any], trail: Trail, *, free: bool) -> None:
        signed = not free and bool(fields.get("signature"))
        if not self._fields.issuperset(fields):
            found = {
                key for key in fields if type(key) is str and spans(key, named=False, random=False)
            }
            self._fields.update(fields)
            self.keys |= found
        for key, value in fields.items():
            if key != "data" or type(value) is dict or not _is_media(fields, free=free):
                name = key if type(key) is str else ""
                self._value(value, name, (trail, key), free=free, signed=signed)

    def _string(self, text: str, key: str, trail: Trail, *, signed: bool) -> None:
        if _DATA_URL.match(text) or (key in _JSON_TEXT and self._nested(text, trail)):
            return
        is_id = _is_structure(key)
        kind = None if is_id else kind_of(key)
        self.slots.append(Slot(text, trail, kind, is_id, signed, text))

    def _nested(self, text: str, trail: Trail) -> bool:
        value = json_in(text)
        if value is None:
            return False
        self.nests.append(Nest(trail, text, value))
        self._value(value, "", trail, free=True, signed=False)
        return True

    def unfold(self, slot: Slot) -> list[Slot] | None:
        """Give the slots in a text that is JSON, so that it stays JSON; None if it is not."""
        first = len(self.slots)
        if not slot.is_folded or not self._nested(slot.text, slot.trail):
            return None
        slot.is_folded = False
        return self.slots[first:]

    def rebuilt(self, value: Any, names: dict[str, str]) -> Any:
        """Give the value with the texts that the slots have now, and other names for some keys.

        The same object if nothing changed.
        """
        changes = [
            (slot.trail, slot.text)
            for slot in self.slots
            if slot.is_folded and slot.text is not slot.old
        ]
        if not changes and not names:
            return value
        inside: dict[int, dict[Trail, str]] = {id(nest.trail): {} for nest in self.nests}
        outside: dict[Trail, str] = {}
        for trail, text in changes:
            _home(trail, inside, outside)[trail] = text
        # An inner nest stands behind the one around it.
        for nest in reversed(self.nests):
            inner = inside[id(nest.trail)]
            new = with_texts(nest.value, inner, len(steps_of(nest.trail)))
            new = _renamed(new, names) if names else new
            if new is not nest.value:
                _home(nest.trail, inside, outside)[nest.trail] = _as_json(new, nest.text)
        new = with_texts(value, outside, 1)
        return _renamed(new, names) if names else new


def _home(
    trail: Trail, inside: dict[int, dict[Trail, str]], outside: dict[Trail, str]
) -> dict[Trail, str]:
    """Give the changes of the innermost nest that a place is in."""
    around: Trail = trail[0] if trail else None
    while around is not None and id(around) not in inside:
        around = around[0]
    return outside if around is None else inside[id(around)]


def with_texts(value: Any, changes: dict[Trail, str], depth: int) -> Any:
    """Copy a value with other texts at some places, sharing everything else.

    The first ``depth`` steps of a place lead to the value itself.
    """
    tree: dict[Any, Any] = {}
    for trail, text in changes.items():
        steps = steps_of(trail)[depth:]
        if not steps:
            return text
        branch = tree
        for step in steps[:-1]:
            branch = branch.setdefault(step, {})
        branch[steps[-1]] = text
    return _grafted(value, tree) if tree else value


def _grafted(value: Any, tree: dict[Any, Any]) -> Any:
    copy = value.copy()
    for step, branch in tree.items():
        copy[step] = branch if type(branch) is str else _grafted(value[step], branch)
    return copy


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Copy a value with some keys renamed, wherever they stand; share what has none of them."""
    if isinstance(value, dict):
        new = {names.get(key, key): _renamed(inner, names) for key, inner in value.items()}
        is_same = names.keys().isdisjoint(value) and all(new[key] is value[key] for key in value)
        return value if is_same else new
    if isinstance(value, list):
        items = [_renamed(item, names) for item in value]
        is_same = all(map(operator.is_, items, value))
        return value if is_same else items
    return value


def _is_named(step: Any) -> bool:
    return not (isinstance(step, str) and step == "")


def steps_of(trail: Trail) -> list[Any]:
    """Give the steps of a path from the outside in."""
    steps: list[Any] = []
    while trail is not None:
        trail, step = trail
        steps.append(step)
    return steps[::-1]


def json_in(text: str) -> Any:
    """Give the object or list that a text is the JSON of, None if it is not JSON."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return msgspec.json.decode(text)
    except _UNSURE:
        return None


def _as_json(value: Any, like: str) -> str:
    """Write a value as JSON, as wide as a text that it takes the place of."""
    indent = 2 if "\n" in like else 0 if '": ' in like else -1
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=indent).decode()
    except _UNSURE:
        return json.dumps(value, ensure_ascii=False)


@lru_cache(4096)
def _is_structure(key: str) -> bool:
    return _STRUCTURE.fullmatch(key) is not None


def _is_media(fields: dict[str, Any], *, free: bool) -> bool:
    """Tell whether ``data`` is a picture, a sound, a file, or reasoning nobody can read."""
    if any(label in fields for label in _MEDIA_LABELS):
        return True
    return not free and ("format" in fields or fields.get("type") == "redacted_thinking")
