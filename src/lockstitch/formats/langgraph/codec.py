"""Reads and writes stored values by their structure: nothing is imported, called or unpickled.

A value is never decoded as a whole and encoded again. Lists and maps are split into the bytes of
their elements and put together from these again, so everything that a repair does not touch stays
as it is.

LangGraph for Python writes msgpack, in which objects are extensions that name their class.
LangGraph.js writes JSON, as LangGraph for Python did before. There a message is ``{"lc": 1, "type":
"constructor", "id": [path and class], "kwargs": {fields}}``, and sets, maps, ``undefined`` and the
like are objects with ``"lc": 2``.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct, field, msgpack
from msgspec.msgpack import Ext

from lockstitch.dialects.langchain import BARE, KWARGS, envelope_of, fields_of, type_of
from lockstitch.formats import records
from lockstitch.formats.langgraph.snapshot import JSON, MSGPACK, OVERWRITE, Coded
from lockstitch.formats.records import read_json

# A value that is nested deeper is not a conversation, and costs more the deeper it is.
DEEPEST = 64
# Extensions of msgpack that contain another value.
NESTING = range(8)
REMOVED = "remove"
MESSAGE_CLASSES = {
    "human": ("human", "HumanMessage"),
    "ai": ("ai", "AIMessage"),
    "system": ("system", "SystemMessage"),
    "tool": ("tool", "ToolMessage"),
    "function": ("function", "FunctionMessage"),
    "chat": ("chat", "ChatMessage"),
    REMOVED: ("modifier", "RemoveMessage"),
}
_ROLES = frozenset({*MESSAGE_CLASSES, "user", "assistant", "developer"})
_TYPES = _ROLES | {f"{name}Chunk" for _, name in MESSAGE_CLASSES.values()}
_SHARED_DEFAULTS: dict[str, Any] = {"content": "", "additional_kwargs": {}, "response_metadata": {}}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "ai": {"tool_calls": [], "invalid_tool_calls": []},
}


_BAD = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError)


class Undecodable(ValueError):
    """A value cannot be read; the text says why, but never what the value holds."""

    @classmethod
    def after(cls, error: BaseException, coding: str) -> Undecodable:
        """Return what a decoder's error means, without its text, which may quote the value."""
        if "truncated" in str(error):
            return cls("its bytes are cut off")
        if isinstance(error, RecursionError):
            return cls("it is nested too deeply")
        return cls(f"its bytes are not valid {coding}")


class StoredMessage(Struct, eq=False):
    """A message in a channel: ``view`` is what the core sees of it, ``raw`` are its bytes.

    ``frame`` is what surrounds the fields of an object, ``fields`` the bytes of each field; a
    message that is a plain map has no frame. ``tag`` names the coding, and ``record`` and ``path``
    say where the message stands.
    """

    view: Any
    raw: bytes
    tag: str
    frame: Any = None
    fields: dict[str, bytes] = field(default_factory=dict)
    record: int = 0
    path: tuple[str | int, ...] = ()

    @property
    def id(self) -> str | None:
        """The id by which updates find the message."""
        found = fields_of(self.view).get("id") if type(self.view) is dict else None
        return found if type(found) is str and found else None

    @property
    def type(self) -> str:
        """The type of the message, as LangChain spells it."""
        return type_of(self.view) if type(self.view) is dict else ""


class Codec(ABC):
    """One way to write values. If it cannot read one, it raises ``Undecodable`` and nothing else.

    ``objects`` says that new messages are objects, as they are wherever a reducer of LangGraph
    makes them, but not in a list that an application keeps as plain maps.
    """

    tag: str

    def __init__(self) -> None:
        self.objects = True

    @abstractmethod
    def fields(self, data: bytes) -> dict[str, bytes]:
        """Split a map: return the bytes of each value, by its key."""

    @abstractmethod
    def items(self, data: bytes) -> list[bytes] | None:
        """Split a list: return the bytes of its elements; None if it is not a list."""

    @abstractmethod
    def plain(self, data: bytes) -> Any:
        """Decode a value; anything in it that is not plain becomes a text that stands for it."""

    @abstractmethod
    def is_plain(self, data: bytes) -> bool:
        """Whether a value consists of maps, lists and scalars only."""

    @abstractmethod
    def message(self, data: bytes) -> StoredMessage | None:
        """Return a message; None if the value is something else."""

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Encode a value, parts of which may come from ``plain``."""

    @abstractmethod
    def write_message(self, view: Any, origin: StoredMessage | None) -> bytes:
        """Encode a message; fields that are unchanged from its origin keep their bytes."""

    def join_list(self, items: Iterable[bytes]) -> bytes:
        """Encode a list from the bytes of its elements."""
        return self._pack([Raw(item) for item in items])

    def join_map(self, fields: Mapping[str, bytes]) -> bytes:
        """Encode a map from the bytes of its values."""
        return self._pack({key: Raw(value) for key, value in fields.items()})

    @abstractmethod
    def _pack(self, value: Any) -> bytes:
        """Encode a value that contains encoded bytes."""

    def _write_fields(
        self, new: Mapping[str, Any], old: Mapping[str, Any], kept: Mapping[str, bytes]
    ) -> bytes:
        """Encode fields; those that are the same objects as before keep their bytes."""
        return self.join_map(
            {
                key: kept[key] if key in kept and old.get(key) is value else self.encode(value)
                for key, value in new.items()
            }
        )

    def _marked_value(self, fields: dict[str, bytes]) -> bytes | None:
        """Return the value of an update whose plain fields say that it replaces everything."""
        if [*fields] == [OVERWRITE]:
            return fields[OVERWRITE]
        is_marked = "type" in fields and self.plain(fields["type"]) == OVERWRITE
        return fields.get("value") if is_marked else None

    @abstractmethod
    def wrap(self, data: bytes) -> bytes:
        """Wrap a value as the full value of a channel that stores changes."""

    @abstractmethod
    def unwrap(self, data: bytes) -> bytes:
        """Remove that wrapping; return the same bytes if there is none."""

    @abstractmethod
    def replacement_in(self, data: bytes) -> bytes | None:
        """Return the value of an update that replaces what was there; None for other updates."""

    @abstractmethod
    def members(self, data: bytes) -> set[Any]:
        """Return the members of a set of texts; an empty set for any other value."""

    @abstractmethod
    def fault(self, data: bytes) -> str:
        """Return why part of a value cannot be read; empty if all of it can be."""


def is_message(fields: Any) -> bool:
    """Whether a map is the fields of a message."""
    if type(fields) is not dict or not fields.keys() & {"content", "tool_calls"}:
        return False
    kind = fields.get("type") or fields.get("role")
    return type(kind) is str and kind in _TYPES


def is_role(value: Any) -> bool:
    """Whether a word may stand before a text to say who said it."""
    return type(value) is str and value in _ROLES


def with_defaults(fields: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the fields of a new message, with the fields that every message of its kind has."""
    return {**_SHARED_DEFAULTS, **_DEFAULTS.get(kind, {}), **fields}


# LangGraph's codes for keyword arguments, Pydantic 1 and 2, and snapshots.
_KEYWORDS, _OLD_MODEL, _MODEL, _SNAPSHOT_CODE = 2, 4, 5, 7
_NESTS = frozenset({list, dict, Ext})
_OVERWRITE = ("langgraph.types", "Overwrite")
# The first bytes of lists, maps and extensions.
_LIST_CODES = frozenset({*range(0x90, 0xA0), 0xDC, 0xDD})
_MAP_CODES = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
_EXT_CODES = frozenset({*range(0xC7, 0xCA), *range(0xD4, 0xD9)})
# The fewest parts of an object: module, name and fields.
_LEAST = 3
_MSGPACK_DEFAULTS: dict[str, dict[str, Any]] = {
    "ai": {"usage_metadata": None},
    "tool": {"artifact": None},
}


class MessageFrame(Struct, frozen=True):
    """An object's extension code, its class, and what follows its fields."""

    code: int
    module: str
    name: str
    rest: tuple[Any, ...] = ()


class MsgpackCodec(Codec):
    """Keeps extensions as they are: each keeps its bytes, with a text that stands for it."""

    tag = MSGPACK

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[int, tuple[str, Raw]] = {}

    def fields(self, data: bytes) -> dict[str, bytes]:
        found = _decode(data, dict[str, Raw])
        return {key: bytes(value) for key, value in found.items()}

    def items(self, data: bytes) -> list[bytes] | None:
        if not data or data[0] not in _LIST_CODES:
            return None
        return [bytes(item) for item in _decode(data, list[Raw])]

    def plain(self, data: bytes) -> Any:
        def stand_in(code: int, data: memoryview) -> str:
            # A new text object, by whose identity the bytes are found again.
            text = f"<object {code}>"
            self._kept[id(text)] = (text, Raw(msgpack.encode(Ext(code, bytes(data)))))
            return text

        try:
            return msgpack.decode(data, ext_hook=stand_in)
        except _BAD as error:
            raise Undecodable.after(error, "msgpack") from None

    def is_plain(self, data: bytes) -> bool:
        return not any(isinstance(value, Ext) for value in _walk(_decode(data, Any)))

    def message(self, data: bytes) -> StoredMessage | None:
        if data and data[0] in _MAP_CODES:
            view = self.plain(data)
            if is_message(view):
                return StoredMessage(view, data, MSGPACK, fields=self.fields(data))
            return None
        found = _ext(data)
        if found is None or found.code not in (_OLD_MODEL, _MODEL):
            return None
        parts = [bytes(part) for part in _decode(bytes(found.data), list[Raw])]
        if len(parts) < _LEAST:
            return None
        module, name, *rest = (self.plain(part) for part in (*parts[:2], *parts[3:]))
        view = self.plain(parts[2])
        if not is_message(view) or type(module) is not str or type(name) is not str:
            return None
        frame = MessageFrame(found.code, module, name, tuple(rest))
        return StoredMessage(view, data, MSGPACK, frame, self.fields(parts[2]))

    def encode(self, value: Any) -> bytes:
        try:
            return msgpack.encode(self._restore(value))
        except _BAD as error:
            raise Undecodable.after(error, "msgpack") from None

    def _restore(self, value: Any) -> Any:
        if type(value) is str:
            kept = self._kept.get(id(value))
            if kept is not None and kept[0] is value:
                return kept[1]
            # Half a character, which JSON may hold but msgpack cannot, becomes a replacement mark.
            return value if value.isascii() else value.encode("utf-8", "replace").decode()
        if type(value) is list:
            return [self._restore(item) for item in value]
        if type(value) is dict:
            return {self._restore(key): self._restore(item) for key, item in value.items()}
        return value

    def write_message(self, view: Any, origin: StoredMessage | None) -> bytes:
        if origin is not None and view is origin.view:
            return origin.raw
        if type(view) is not dict or (origin is None and not self.objects):
            return self.encode(view)
        if envelope_of(view) != BARE:
            view = {**fields_of(view), "type": type_of(view)}
        kind = view.get("type")
        if origin is not None and origin.frame is None and origin.type in (kind, view.get("role")):
            return self._write_fields(view, origin.view, origin.fields)
        if origin is not None and origin.frame is not None and origin.type == kind:
            return _write_object(origin.frame, self._write_fields(view, origin.view, origin.fields))
        if kind not in MESSAGE_CLASSES:
            return self.encode(view)
        module, name = MESSAGE_CLASSES[kind]
        frame = MessageFrame(
            _MODEL, f"langchain_core.messages.{module}", name, ("model_validate_json",)
        )
        whole = {"name": None, **_MSGPACK_DEFAULTS.get(kind, {}), **with_defaults(view, kind)}
        return _write_object(frame, self.encode(whole))

    def _pack(self, value: Any) -> bytes:
        return msgpack.encode(value)

    def wrap(self, data: bytes) -> bytes:
        return msgpack.encode(Ext(_SNAPSHOT_CODE, data))

    def unwrap(self, data: bytes) -> bytes:
        found = _ext(data)
        return bytes(found.data) if found is not None and found.code == _SNAPSHOT_CODE else data

    def replacement_in(self, data: bytes) -> bytes | None:
        found = _ext(data)
        if found is not None and found.code == _KEYWORDS:
            parts = [bytes(part) for part in _decode(bytes(found.data), list[Raw])]
            if len(parts) >= _LEAST and tuple(map(self.plain, parts[:2])) == _OVERWRITE:
                return self.fields(parts[2]).get("value")
        if not data or data[0] not in _MAP_CODES:
            return None
        try:
            fields = self.fields(data)
        except Undecodable:
            return None
        return self._marked_value(fields)

    def members(self, data: bytes) -> set[Any]:
        found = _ext(data)
        value = _decode(bytes(found.data), Any) if found is not None and not found.code else None
        listed = value[2] if type(value) is list and len(value) == _LEAST else ()
        return {item for item in listed if type(item) is str}

    def fault(self, data: bytes) -> str:
        fault = ""
        for value in _walk(_decode(data, Any)):
            if isinstance(value, Undecodable):
                fault = str(value)
        return fault


def _write_object(frame: MessageFrame, fields: bytes) -> bytes:
    return msgpack.encode(
        Ext(frame.code, msgpack.encode([frame.module, frame.name, Raw(fields), *frame.rest]))
    )


def _ext(data: bytes) -> Ext | None:
    if not data or data[0] not in _EXT_CODES:
        return None
    found = _decode(data, Any)
    return found if isinstance(found, Ext) else None


def _walk(value: Any) -> Iterator[Any]:
    """Yield a value and everything in it, including what extensions contain, down to a limit.

    A part that cannot be read is yielded as the error, since LangGraph skips it as well.
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
            try:
                if depth == DEEPEST:
                    raise Undecodable("it is nested too deeply")  # noqa: TRY301
                stack.append((_decode(bytes(found.data), Any), depth + 1))
            except Undecodable as error:
                stack.append((error, depth + 1))


def _decode(data: bytes, kind: Any) -> Any:
    try:
        return msgpack.decode(data, type=kind)
    except _BAD as error:
        raise Undecodable.after(error, "msgpack") from None


_SNAPSHOT_TYPE = "delta_snapshot"
_ENGINE = 2
_DECODER = json.JSONDecoder()
# The only path by which LangGraph.js finds its messages.
_PATH = ["langchain_core", "messages"]


class JsonCodec(Codec):
    """Values are plain JSON throughout, so a text stands for itself."""

    tag = JSON

    def __init__(self) -> None:
        super().__init__()
        self._path: list[str] = []

    def fields(self, data: bytes) -> dict[str, bytes]:
        try:
            found = msgspec.json.decode(data, type=dict[str, Raw])
        except _BAD:
            return _slice_json(data, "{")
        return {key: bytes(value) for key, value in found.items()}

    def items(self, data: bytes) -> list[bytes] | None:
        if data.lstrip()[:1] != b"[":
            return None
        try:
            return [bytes(item) for item in msgspec.json.decode(data, type=list[Raw])]
        except _BAD:
            return list(_slice_json(data, "[").values())

    def plain(self, data: bytes) -> Any:
        try:
            value, codes = read_json(data)
        except _BAD as error:
            raise Undecodable.after(error, "JSON") from None
        if codes:
            raise Undecodable("it holds a value that is too long or too deep to be read here")
        return value

    def is_plain(self, data: bytes) -> bool:
        return True

    def message(self, data: bytes) -> StoredMessage | None:
        if data.lstrip()[:1] != b"{":
            return None
        view = self.plain(data)
        if envelope_of(view) != KWARGS:
            if is_message(view):
                return StoredMessage(view, data, JSON, fields=self.fields(data))
            return None
        if not type_of(view):
            return None
        fields = self.fields(data)
        self._path = self._path or [str(step) for step in view["id"][:-1]]
        return StoredMessage(view, data, JSON, fields, self.fields(fields[KWARGS]))

    def encode(self, value: Any) -> bytes:
        try:
            return records.encode_record(value)
        except _BAD as error:
            raise Undecodable.after(error, "JSON") from None

    def write_message(self, view: Any, origin: StoredMessage | None) -> bytes:
        if origin is not None and view is origin.view:
            return origin.raw
        if type(view) is not dict:
            return self.encode(view)
        kind = type_of(view)
        if origin is not None and origin.type == kind:
            if envelope_of(view) != KWARGS or origin.frame is None:
                return self._write_fields(view, origin.view, origin.fields)
            inner = self._write_fields(view[KWARGS], origin.view[KWARGS], origin.fields)
            outer = {KWARGS: inner}
            for key, value in view.items():
                if key != KWARGS:
                    is_same = origin.view.get(key) is value and key in origin.frame
                    outer[key] = origin.frame[key] if is_same else self.encode(value)
            return self.join_map({key: outer[key] for key in view})
        if self.objects and kind in MESSAGE_CLASSES:
            # Write it like its neighbours, so that their reader finds it.
            fields = {key: value for key, value in fields_of(view).items() if key != "type"}
            path = [*(self._path or _PATH), MESSAGE_CLASSES[kind][1]]
            whole = with_defaults(fields, kind)
            view = {"lc": 1, "type": "constructor", "id": path, KWARGS: whole}
        return self.encode(view)

    def _pack(self, value: Any) -> bytes:
        return msgspec.json.encode(value)

    def wrap(self, data: bytes) -> bytes:
        return msgspec.json.encode({"lc": _ENGINE, "type": _SNAPSHOT_TYPE, "value": Raw(data)})

    def unwrap(self, data: bytes) -> bytes:
        if _SNAPSHOT_TYPE.encode() not in data[:60]:
            return data
        fields = self.fields(data)
        kind = {key: self.plain(fields[key]) for key in ("lc", "type") if key in fields}
        is_one = kind == {"lc": _ENGINE, "type": _SNAPSHOT_TYPE} and "value" in fields
        return fields["value"] if is_one else data

    def replacement_in(self, data: bytes) -> bytes | None:
        if data.lstrip()[:1] != b"{" or OVERWRITE.encode() not in data:
            return None
        return self._marked_value(self.fields(data))

    def members(self, data: bytes) -> set[Any]:
        found = self.plain(data)
        if type(found) is dict and found.get("lc") == _ENGINE:
            found = (found.get("args") or [None])[0]
        return {item for item in found if type(item) is str} if type(found) is list else set()

    def fault(self, data: bytes) -> str:
        self.plain(data)
        return ""


def _slice_json(data: bytes, opening: str) -> dict[str, bytes]:
    """Split JSON that the quick way refuses: texts with half a character, as JavaScript writes.

    The members are returned by their keys, those of a list by their numbers.
    """
    text = ""

    def skip(at: int, mark: str = "") -> int:
        """Return where the next token starts, after a mark that has to be here."""
        found = re.compile(rf"[ \t\r\n]*{re.escape(mark)}[ \t\r\n]*").match(text, at)
        if found is None:
            raise ValueError("not valid JSON")
        return found.end()

    members: dict[str, bytes] = {}
    try:
        text = data.decode()
        at = skip(0, opening)
        closing = "}" if opening == "{" else "]"
        number = 0
        while text[at : at + 1] != closing:
            at = skip(at, ",") if number else at
            key: Any = str(number)
            if opening == "{":
                key, at = _DECODER.raw_decode(text, at)
                at = skip(at, ":")
            _, end = _DECODER.raw_decode(text, at)
            members[key] = text[at:end].encode()
            number += 1
            at = skip(end)
        if skip(at + 1) < len(text):
            raise ValueError("more than one value")
    except _BAD as error:
        raise Undecodable.after(error, "JSON") from None
    return members


def new_codecs() -> dict[str, Codec]:
    """Return new instances of the known codings, by LangGraph's name; each thread needs its own."""
    return {MSGPACK: MsgpackCodec(), JSON: JsonCodec()}


def codec_of(known: Mapping[str, Codec], value: Coded) -> Codec:
    """Return the coding of a value; raise Undecodable with the reason if there is none."""
    if value.tag in known:
        return known[value.tag]
    if "+" in value.tag:
        raise Undecodable("it is encrypted")
    if value.tag == "pickle":
        raise Undecodable("it is pickled, and loading that would run code")
    raise Undecodable("its encoding is not known")
