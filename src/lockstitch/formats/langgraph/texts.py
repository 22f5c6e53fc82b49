"""JSON, as LangGraph.js writes it, and as LangGraph for Python did before it took msgpack.

A message is ``{"lc": 1, "type": "constructor", "id": [path and class], "kwargs": {fields}}``.
Sets, maps, ``undefined`` and the like are objects with ``"lc": 2``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from lockstitch.dialects.langchain import KWARGS, envelope_of, fields_of, type_of
from lockstitch.formats import records
from lockstitch.formats.langgraph import packs
from lockstitch.formats.langgraph.coding import (
    KINDS,
    Coding,
    Item,
    Undecodable,
    filled,
    is_message,
)
from lockstitch.formats.langgraph.snapshot import JSON, MSGPACK, OVERWRITE, Coded
from lockstitch.formats.lines import reading

_BAD = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError)
_SNAPSHOT = "delta_snapshot"
_ENGINE = 2
_SPACE = " \t\r\n"
_DECODER = json.JSONDecoder()
# The only path that LangGraph.js finds its messages by.
_PATH = ["langchain_core", "messages"]


class Texts(Coding):
    """Values are plain JSON throughout, so that a text stands for itself."""

    tag = JSON

    def __init__(self) -> None:
        super().__init__()
        self._path: list[str] = []

    def fields(self, data: bytes) -> dict[str, bytes]:
        try:
            found = msgspec.json.decode(data, type=dict[str, Raw])
        except _BAD:
            return _sliced(data, "{")
        return {key: bytes(value) for key, value in found.items()}

    def items(self, data: bytes) -> list[bytes] | None:
        if data.lstrip()[:1] != b"[":
            return None
        try:
            return [bytes(item) for item in msgspec.json.decode(data, type=list[Raw])]
        except _BAD:
            return list(_sliced(data, "[").values())

    def plain(self, data: bytes) -> Any:
        try:
            value, codes = reading(data)
        except _BAD as error:
            raise Undecodable(_reason(error)) from None
        if codes:
            raise Undecodable("it holds a value that is too long or too deep to be read here")
        return value

    def is_plain(self, data: bytes) -> bool:
        return True

    def message(self, data: bytes) -> Item | None:
        if data.lstrip()[:1] != b"{":
            return None
        view = self.plain(data)
        if envelope_of(view) != KWARGS:
            return Item(view, data, JSON, fields=self.fields(data)) if is_message(view) else None
        if not type_of(view):
            return None
        fields = self.fields(data)
        self._path = self._path or [str(step) for step in view["id"][:-1]]
        return Item(view, data, JSON, fields, self.fields(fields[KWARGS]))

    def encoded(self, value: Any) -> bytes:
        try:
            return records.encode(value)
        except _BAD as error:
            raise Undecodable(_reason(error)) from None

    def written(self, view: Any, origin: Item | None) -> bytes:
        if origin is not None and view is origin.view:
            return origin.raw
        if type(view) is not dict:
            return self.encoded(view)
        if origin is not None and origin.type == type_of(view):
            return self._again(view, origin)
        return self.encoded(self._enveloped(view) if self.objects else view)

    def _again(self, view: dict[str, Any], origin: Item) -> bytes:
        if envelope_of(view) != KWARGS or origin.frame is None:
            return self._fields(view, origin.view, origin.fields)
        inner = self._fields(view[KWARGS], origin.view[KWARGS], origin.fields)
        rest = {key: value for key, value in view.items() if key != KWARGS}
        outer = {**view, **{key: Raw(self._one(rest, origin, key)) for key in rest}}
        return msgspec.json.encode({**outer, KWARGS: Raw(inner)})

    def _one(self, rest: dict[str, Any], origin: Item, key: str) -> bytes:
        same = origin.view.get(key) is rest[key] and key in origin.frame
        return origin.frame[key] if same else self.encoded(rest[key])

    def _fields(self, new: dict[str, Any], old: dict[str, Any], kept: dict[str, bytes]) -> bytes:
        return self.mapped(
            {
                key: kept[key] if key in kept and old.get(key) is value else self.encoded(value)
                for key, value in new.items()
            }
        )

    def _enveloped(self, view: dict[str, Any]) -> dict[str, Any]:
        """Write a new message as its neighbours are written, so that their reader finds it."""
        kind = type_of(view)
        if kind not in KINDS:
            return view
        fields = {key: value for key, value in fields_of(view).items() if key != "type"}
        path = [*(self._path or _PATH), KINDS[kind][1]]
        return {"lc": 1, "type": "constructor", "id": path, KWARGS: filled(fields, kind)}

    def listed(self, items: Iterable[bytes]) -> bytes:
        return msgspec.json.encode([Raw(item) for item in items])

    def mapped(self, fields: Mapping[str, bytes]) -> bytes:
        return msgspec.json.encode({key: Raw(value) for key, value in fields.items()})

    def snapshot(self, data: bytes) -> bytes:
        return msgspec.json.encode({"lc": _ENGINE, "type": _SNAPSHOT, "value": Raw(data)})

    def opened(self, data: bytes) -> bytes:
        if _SNAPSHOT.encode() not in data[:60]:
            return data
        fields = self.fields(data)
        kind = {key: self.plain(fields[key]) for key in ("lc", "type") if key in fields}
        is_one = kind == {"lc": _ENGINE, "type": _SNAPSHOT} and "value" in fields
        return fields["value"] if is_one else data

    def overwriting(self, data: bytes) -> bytes | None:
        if data.lstrip()[:1] != b"{" or OVERWRITE.encode() not in data:
            return None
        fields = self.fields(data)
        if [*fields] == [OVERWRITE]:
            return fields[OVERWRITE]
        is_marked = "type" in fields and self.plain(fields["type"]) == OVERWRITE
        return fields.get("value") if is_marked else None

    def members(self, data: bytes) -> set[Any]:
        found = self.plain(data)
        if type(found) is dict and found.get("lc") == _ENGINE:
            found = (found.get("args") or [None])[0]
        return {item for item in found if type(item) is str} if type(found) is list else set()

    def fault(self, data: bytes) -> str:
        self.plain(data)
        return ""


def _sliced(data: bytes, opening: str) -> dict[str, bytes]:
    """Take apart what the quick way refuses: texts with half a character, as JavaScript has."""
    try:
        text = data.decode()
        return {key: text[start:end].encode() for key, start, end in _spans(text, opening)}
    except _BAD as error:
        raise Undecodable(_reason(error)) from None


def _spans(text: str, opening: str) -> Iterator[tuple[str, int, int]]:
    """Give the key, or the number, of each member with the place of its value."""
    at = _behind(text, 0, opening)
    closing = "}" if opening == "{" else "]"
    number = 0
    while text[at : at + 1] != closing:
        at = _behind(text, at, ",") if number else at
        key: Any = str(number)
        if opening == "{":
            key, at = _DECODER.raw_decode(text, at)
            at = _behind(text, at, ":")
        _, end = _DECODER.raw_decode(text, at)
        yield key, at, end
        number += 1
        at = _skipped(text, end)
    if text[at + 1 :].strip(_SPACE):
        raise ValueError("more than one value")


def _behind(text: str, at: int, mark: str) -> int:
    at = _skipped(text, at)
    if text[at : at + 1] != mark:
        raise ValueError("no valid JSON")
    return _skipped(text, at + 1)


def _skipped(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def _reason(error: BaseException) -> str:
    if "truncated" in str(error):
        return "its bytes are cut off"
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return "its bytes are no valid JSON"


def codings() -> dict[str, Coding]:
    """Give the known codings, by LangGraph's name for them; fresh ones for each thread."""
    return {MSGPACK: packs.Packs(), JSON: Texts()}


def coding_of(known: Mapping[str, Coding], value: Coded) -> Coding:
    """Give the coding of a value, or say why there is none."""
    if value.tag in known:
        return known[value.tag]
    if "+" in value.tag:
        raise Undecodable("it is encrypted")
    if value.tag == "pickle":
        raise Undecodable("it is pickled, and loading that would run code")
    raise Undecodable("its coding is not known")
