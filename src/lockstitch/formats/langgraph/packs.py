"""msgpack, as LangGraph for Python writes it: objects are extensions that name their class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct, msgpack
from msgspec.msgpack import Ext

from lockstitch.dialects.langchain import BARE, envelope_of, fields_of, type_of
from lockstitch.formats.langgraph.coding import (
    DEEPEST,
    KINDS,
    NESTING,
    Coding,
    Item,
    Undecodable,
    filled,
    is_message,
)
from lockstitch.formats.langgraph.snapshot import MSGPACK, OVERWRITE

_KEYWORDS, _OLD_MODEL, _MODEL, _SNAPSHOT = 2, 4, 5, 7
_NESTS = frozenset({list, dict, Ext})
_BAD = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError)
_OVERWRITE = ("langgraph.types", "Overwrite")
# The first bytes of lists, maps and extensions.
_LIST_CODES = frozenset({*range(0x90, 0xA0), 0xDC, 0xDD})
_MAP_CODES = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
_EXT_CODES = frozenset({*range(0xC7, 0xCA), *range(0xD4, 0xD9)})
_LEAST = 3
_REST: dict[str, dict[str, Any]] = {
    "ai": {"usage_metadata": None},
    "tool": {"artifact": None},
}


class Frame(Struct, frozen=True):
    """An object's extension code, its class, and what stands behind its fields."""

    code: int
    module: str
    name: str
    rest: tuple[Any, ...] = ()


class Packs(Coding):
    """Extensions stay what they are: each is kept by its bytes, under a text that stands for it."""

    tag = MSGPACK

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[int, tuple[str, Raw]] = {}

    def fields(self, data: bytes) -> dict[str, bytes]:
        found = _decoded(data, dict[str, Raw])
        return {key: bytes(value) for key, value in found.items()}

    def items(self, data: bytes) -> list[bytes] | None:
        if not data or data[0] not in _LIST_CODES:
            return None
        return [bytes(item) for item in _decoded(data, list[Raw])]

    def plain(self, data: bytes) -> Any:
        try:
            return msgpack.decode(data, ext_hook=self._stand_in)
        except _BAD as error:
            raise Undecodable(_reason(error)) from None

    def _stand_in(self, code: int, data: memoryview) -> str:
        # A text of its own, by whose identity the bytes are found again.
        text = f"<object {code}>"
        self._kept[id(text)] = (text, Raw(msgpack.encode(Ext(code, bytes(data)))))
        return text

    def is_plain(self, data: bytes) -> bool:
        return not any(isinstance(value, Ext) for value in _walk(_decoded(data, Any)))

    def message(self, data: bytes) -> Item | None:
        found = self._object(data)
        if found is not None:
            return found
        if not data or data[0] not in _MAP_CODES:
            return None
        view = self.plain(data)
        return Item(view, data, MSGPACK, fields=self.fields(data)) if is_message(view) else None

    def _object(self, data: bytes) -> Item | None:
        found = _ext(data)
        if found is None or found.code not in (_OLD_MODEL, _MODEL):
            return None
        parts = [bytes(part) for part in _decoded(bytes(found.data), list[Raw])]
        if len(parts) < _LEAST:
            return None
        module, name, *rest = (self.plain(part) for part in (*parts[:2], *parts[3:]))
        view = self.plain(parts[2])
        if not is_message(view) or type(module) is not str or type(name) is not str:
            return None
        frame = Frame(found.code, module, name, tuple(rest))
        return Item(view, data, MSGPACK, frame, self.fields(parts[2]))

    def encoded(self, value: Any) -> bytes:
        try:
            return msgpack.encode(self._restored(value))
        except _BAD as error:
            raise Undecodable(_reason(error)) from None

    def _restored(self, value: Any) -> Any:
        if type(value) is str:
            kept = self._kept.get(id(value))
            return kept[1] if kept is not None and kept[0] is value else _writable(value)
        if type(value) is list:
            return [self._restored(item) for item in value]
        if type(value) is dict:
            return {self._restored(key): self._restored(item) for key, item in value.items()}
        return value

    def written(self, view: Any, origin: Item | None) -> bytes:
        if origin is not None and view is origin.view:
            return origin.raw
        if type(view) is not dict or (origin is None and not self.objects):
            return self.encoded(view)
        if envelope_of(view) != BARE:
            view = {**fields_of(view), "type": type_of(view)}
        kind = view.get("type")
        if origin is not None and origin.frame is None and origin.type in (kind, view.get("role")):
            return self._fields(view, origin)
        if origin is not None and origin.frame is not None and origin.type == kind:
            return _framed(origin.frame, self._fields(view, origin))
        if kind not in KINDS:
            return self.encoded(view)
        module, name = KINDS[kind]
        frame = Frame(_MODEL, f"langchain_core.messages.{module}", name, ("model_validate_json",))
        whole = {"name": None, **_REST.get(kind, {}), **filled(view, kind)}
        return _framed(frame, self.encoded(whole))

    def _fields(self, view: dict[str, Any], origin: Item) -> bytes:
        old = origin.view
        return self.mapped(
            {
                key: origin.fields[key]
                if key in origin.fields and old.get(key) is value
                else self.encoded(value)
                for key, value in view.items()
            }
        )

    def listed(self, items: Iterable[bytes]) -> bytes:
        return msgpack.encode([Raw(item) for item in items])

    def mapped(self, fields: Mapping[str, bytes]) -> bytes:
        return msgpack.encode({key: Raw(value) for key, value in fields.items()})

    def snapshot(self, data: bytes) -> bytes:
        return msgpack.encode(Ext(_SNAPSHOT, data))

    def opened(self, data: bytes) -> bytes:
        found = _ext(data)
        return bytes(found.data) if found is not None and found.code == _SNAPSHOT else data

    def overwriting(self, data: bytes) -> bytes | None:
        found = _ext(data)
        if found is not None and found.code == _KEYWORDS:
            parts = [bytes(part) for part in _decoded(bytes(found.data), list[Raw])]
            if len(parts) >= _LEAST and tuple(map(self.plain, parts[:2])) == _OVERWRITE:
                return self.fields(parts[2]).get("value")
        return _marked(self, data)

    def members(self, data: bytes) -> set[Any]:
        found = _ext(data)
        value = _decoded(bytes(found.data), Any) if found is not None and not found.code else None
        listed = value[2] if type(value) is list and len(value) == _LEAST else ()
        return {item for item in listed if type(item) is str}

    def fault(self, data: bytes) -> str:
        fault = ""
        for value in _walk(_decoded(data, Any)):
            if isinstance(value, Undecodable):
                fault = str(value)
        return fault


def _marked(coding: Coding, data: bytes) -> bytes | None:
    """Give the value of an update that says in plain fields that it takes the place of all."""
    if not data or data[0] not in _MAP_CODES:
        return None
    try:
        fields = coding.fields(data)
    except Undecodable:
        return None
    if [*fields] == [OVERWRITE]:
        return fields[OVERWRITE]
    is_marked = "type" in fields and coding.plain(fields["type"]) == OVERWRITE
    return fields.get("value") if is_marked else None


def _framed(frame: Frame, fields: bytes) -> bytes:
    return msgpack.encode(
        Ext(frame.code, msgpack.encode([frame.module, frame.name, Raw(fields), *frame.rest]))
    )


def _ext(data: bytes) -> Ext | None:
    if not data or data[0] not in _EXT_CODES:
        return None
    found = _decoded(data, Any)
    return found if isinstance(found, Ext) else None


def _walk(value: Any) -> Iterator[Any]:
    """Give a value and all in it, with what extensions hold and call; never deeper than is sane.

    A part that cannot be read is given as the error, since LangGraph passes over it as well.
    """
    stack: list[tuple[Any, int]] = [(value, 0)]
    while stack:
        found, depth = stack.pop()
        yield found
        if type(found) is list:
            stack += [(item, depth) for item in found if type(item) in _NESTS]
        elif type(found) is dict:
            stack += [(item, depth) for item in found.values() if type(item) in _NESTS]
        elif isinstance(found, Ext) and found.code in NESTING:
            stack.append((_unwrapped(found, depth), depth + 1))


def _unwrapped(found: Ext, depth: int) -> Any:
    if depth == DEEPEST:
        return Undecodable("it is nested too deep")
    try:
        return _decoded(bytes(found.data), Any)
    except Undecodable as error:
        return error


def _decoded(data: bytes, kind: Any) -> Any:
    try:
        return msgpack.decode(data, type=kind)
    except _BAD as error:
        raise Undecodable(_reason(error)) from None


def _reason(error: BaseException) -> str:
    if "truncated" in str(error):
        return "its bytes are cut off"
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return "its bytes are no valid msgpack"


def _writable(text: str) -> str:
    """Give a text that msgpack can hold; half a character, which JSON may have, becomes a mark."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()
