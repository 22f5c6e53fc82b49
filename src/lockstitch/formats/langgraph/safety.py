"""What a stored value makes LangGraph import and call, and how dangerous that is.

The calls are found in the bytes of a value, even of a malformed one. A reader calls as it goes: by
the time anyone sees the result, it has called what comes before the point at which a value breaks
off, and what is under a key that occurs twice. A decoded value has lost these, so names are looked
for in the order of the bytes.

Values that run code are looked for in everything that a thread has, not only in its head. LangGraph
loads older checkpoints for time travel, forks and histories, writes along with the checkpoint that
they are attached to, and the checkpoints of subgraphs with their runs. Most of a database consists
of such rows, so their bytes are searched, and only suspicious ones are examined.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch.formats.langgraph.codec import NESTING, Codec, Undecodable, new_codecs
from lockstitch.formats.langgraph.snapshot import JSON, MSGPACK, Coded, UnsafeValue
from lockstitch.rules import ERROR, WARNING

COMPUTED = "<computed>"
# The types that LangGraph builds even in its strict mode.
SAFE = {
    "builtins": ("frozenset", "set"),
    "collections": ("deque",),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
    "ipaddress": (
        "IPv4Address",
        "IPv4Interface",
        "IPv4Network",
        "IPv6Address",
        "IPv6Interface",
        "IPv6Network",
    ),
    "langchain_core.documents.base": ("Document",),
    "langchain_core.messages.ai": ("AIMessage", "AIMessageChunk"),
    "langchain_core.messages.base": ("BaseMessage", "BaseMessageChunk"),
    "langchain_core.messages.chat": ("ChatMessage", "ChatMessageChunk"),
    "langchain_core.messages.function": ("FunctionMessage", "FunctionMessageChunk"),
    "langchain_core.messages.human": ("HumanMessage", "HumanMessageChunk"),
    "langchain_core.messages.modifier": ("RemoveMessage",),
    "langchain_core.messages.system": ("SystemMessage", "SystemMessageChunk"),
    "langchain_core.messages.tool": ("ToolMessage", "ToolMessageChunk"),
    "langgraph.store.base": ("GetOp", "Item"),
    "langgraph.types": (
        "Command",
        "Interrupt",
        "Overwrite",
        "PregelTask",
        "Send",
        "StateSnapshot",
        "TimeoutPolicy",
    ),
    "pathlib": ("Path", "PosixPath", "WindowsPath"),
    "pathlib._local": ("Path", "PosixPath", "WindowsPath"),
    "re": ("compile",),
    "uuid": ("UUID",),
    "zoneinfo": ("ZoneInfo",),
}


class CalledName(Struct, frozen=True):
    """What a stored value asks its reader to import and to call.

    The module ``COMPUTED`` stands for a name that is itself a value which has to be loaded first.
    """

    module: str
    name: str
    method: str = ""

    def __str__(self) -> str:
        """Return the name as Python writes it."""
        steps = (self.module, self.name, self.method)
        return ".".join(step for step in steps if step)


class CalledNames(Struct, frozen=True):
    """The names in a value, each once, and why a part of it could not be read, if so."""

    names: tuple[CalledName, ...] = ()
    fault: str = ""


_METHODS = frozenset({CalledName("datetime", "datetime", "fromisoformat")})


def unsafe_names(names: Iterable[CalledName]) -> dict[CalledName, str]:
    """Return the names that are not known to be harmless, each with its severity.

    A name in the standard library, a name that has to be computed first, and a name that is written
    like a function are errors. A class of an application or of a library is a warning, since only
    its owner knows what it does.
    """
    found: dict[CalledName, str] = {}
    for name in names:
        is_safe = name in _METHODS if name.method else name.name in SAFE.get(name.module, ())
        if is_safe:
            continue
        top = name.module.partition(".")[0]
        is_of_application = name.module != COMPUTED and top not in sys.stdlib_module_names
        is_class = not name.method and name.name.lstrip("_")[:1].isupper()
        found[name] = WARNING if is_of_application and is_class else ERROR
    return found


# Extensions of msgpack that name something.
METHOD = 3
NAMING = range(6)
_BAD = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError)
_JAVASCRIPT = "JavaScript"
# Methods that only build the named object.
_BUILDING = frozenset({"construct", "model_construct", "from"})
# The number of bytes after a value's first one, or the number of bytes that hold its length.
_FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_FIXED |= {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_COUNTED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_EXTENSION = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXTENSION = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_SHORT_TEXT = range(0xA0, 0xC0)
_LONGER_TEXT = 0xD9
_RESERVED = 0xC1
_NONE = -1
# LangGraph's reader, which is recursive, gets no deeper.
_DEEPEST = 1000


# msgpack


def _pack_text(text: str) -> bytes:
    return msgspec.msgpack.encode(text)


_PAIRS = b"|".join(
    re.escape(_pack_text(module) + _pack_text(name))
    for module, names in SAFE.items()
    for name in names
)
# The set of first bytes at the front makes the search fast.
_HEADER = rb"[\xc7-\xc9\xd4-\xd8](?:(?<=[\xd4-\xd8])|(?<=\xc7).|(?<=\xc8)..|(?<=\xc9)....)"
# Whatever may begin an extension that calls something, except harmless ones. A method comes after
# its arguments, so it is always examined.
_SUSPECT = re.compile(
    _HEADER + rb"(?:[\x00-\x02\x04\x05](?![\x93\x94](?:" + _PAIRS + rb"))|\x03)", re.DOTALL
)
_LISTS = range(0x93, 0xA0)
_STRETCH = 4096
# The farthest distance from its first byte at which an extension says what it calls: two texts of
# 255 bytes.
_FARTHEST = 600


def called_in_msgpack(data: bytes) -> tuple[CalledName, ...]:
    """Return everything that a reader of msgpack imports and calls, each once."""
    names: dict[CalledName, None] = {}
    if _SUSPECT.search(data) is not None:
        for code, inner in _extensions(data):
            if code in NAMING:
                names[_name(code, inner)] = None
    return tuple(names)


def may_call_in_msgpack(data: bytes, harmless: bytes = b"") -> bool:
    """Whether msgpack may call something that is an error; false only if it surely does not.

    Bytes that are at the same place in ``harmless``, which surely calls nothing, are not examined.
    """
    for start, end in _differing_stretches(data, harmless):
        at = start
        while (found := _SUSPECT.search(data, at, end + _FARTHEST)) and found.start() < end:
            at = found.start() + 1
            name = _head_of(data, found.end()) if data[found.end() - 1] != METHOD else None
            if name is None or ERROR in unsafe_names([name]).values():
                return True
    return False


def _differing_stretches(data: bytes, other: bytes) -> Iterator[tuple[int, int]]:
    """Yield the stretches in which bytes differ from others, or are followed by different ones.

    Consecutive checkpoints have the same messages at the same places, and comparing is many times
    faster than searching.
    """
    start = None
    for at in range(0, len(data), _STRETCH):
        upto = at + _STRETCH + _FARTHEST
        if data[at:upto] != other[at:upto]:
            start = at if start is None else start
        elif start is not None:
            yield start, at
            start = None
    if start is not None:
        yield start, len(data)


def _extensions(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the extensions in a value as a reader meets them, as far as the bytes make sense."""
    left = [(0, len(data), 0)]
    while left:
        at, end, depth = left.pop()
        while at < end and data[at] != _RESERVED:
            start, size, code = _measure(data, at)
            at = start + size
            if at > end:
                break
            if code in NESTING and depth < _DEEPEST:
                yield code, data[start:at]
                left.append((start, at, depth + 1))


def _measure(data: bytes, at: int) -> tuple[int, int, int]:
    """Return where the content of a value begins, its length, and the code of an extension.

    The content of a list or a map is only its count; the elements follow one by one.
    """
    first = data[at]
    if first in _FIXED_EXTENSION:
        return at + 2, _FIXED_EXTENSION[first], data[at + 1] if at + 1 < len(data) else _NONE
    if first in _EXTENSION:
        start = at + 2 + _EXTENSION[first]
        code = data[start - 1] if start <= len(data) else _NONE
        return start, int.from_bytes(data[at + 1 : start - 1]), code
    if first in _COUNTED:
        start = at + 1 + _COUNTED[first]
        return start, int.from_bytes(data[at + 1 : start]), _NONE
    return at + 1, first & 0x1F if first in _SHORT_TEXT else _FIXED.get(first, 0), _NONE


def _name(code: int, data: bytes) -> CalledName:
    """Return what is called, by the rule LangGraph uses: items 0 and 1 of a list or a map."""
    try:
        value = msgspec.msgpack.decode(data)
    except _BAD:
        # LangGraph reads a value even if more bytes follow it.
        return (None if code == METHOD else _head_of(data, 0)) or CalledName(COMPUTED, "")
    parts = dict(enumerate(value)) if type(value) in (list, str) else value
    parts = parts if type(parts) is dict else {}
    module, name, method = (parts.get(place) for place in (0, 1, METHOD))
    if type(module) is not str or type(name) is not str:
        return CalledName(COMPUTED, "")
    return CalledName(module, name, str(method) if code == METHOD else "")


def _head_of(data: bytes, at: int) -> CalledName | None:
    """Return the name in the two texts at the start of a list; None if there is no such list."""
    if at >= len(data) or data[at] not in _LISTS:
        return None
    found: list[str] = []
    at += 1
    for _ in range(2):
        if at >= len(data) or not (data[at] in _SHORT_TEXT or data[at] == _LONGER_TEXT):
            return None
        start, size, _ = _measure(data, at)
        at = start + size
        try:
            found.append(data[start:at].decode())
        except UnicodeDecodeError:
            return None
    return CalledName(*found)


# JSON

_MESSAGE = rb"""
"lc"\s*:\s*1\s*,\s*"type"\s*:\s*"constructor"\s*,\s*"id"\s*:\s*\[\s*"langchain(?:_core)?"
(?:\s*,\s*"\w+")*\s*,\s*"\w*Message(?:Chunk)?"\s*\]
|"lc"\s*:\s*2\s*,\s*"type"\s*:\s*"undefined"
"""
_HARMLESS = re.compile(_MESSAGE, re.VERBOSE)
# Keys of objects that call something; letters that are written as numbers; other encodings.
_KEYS = re.compile(rb'"lc"|"id"\s*:\s*[\[{]|\\u00[67]|\x00')
_CALLS = 2


def may_call_in_json(data: bytes) -> bool:
    """Whether JSON may call anything; false only if it surely does not."""
    if _KEYS.search(data) is None:
        return False
    return _KEYS.search(_HARMLESS.sub(b" ", data)) is not None


def called_in_json(data: bytes) -> tuple[CalledName, ...]:
    """Return everything that a reader of JSON imports and calls, each once."""
    names: dict[CalledName, None] = {}

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if found.get("lc") == _CALLS and found.get("type") == "constructor":
            names.update(dict.fromkeys(_names_of_path(found.get("id"), found.get("method"))))
        return found

    if may_call_in_json(data):
        with suppress(ValueError, RecursionError, MemoryError):
            # The same parser that LangGraph uses: it sees keys that occur twice, or what is cut
            # off.
            json.loads(data, object_pairs_hook=look)
    return tuple(names)


def _names_of_path(path: Any, method: Any) -> Iterator[CalledName]:
    """Yield what an object names; LangGraph.js also has single words that it knows itself."""
    steps = list(path) if isinstance(path, list | dict | str) else []
    methods = [one for one in (method if isinstance(method, list) else [method]) if one]
    methods = [one for one in methods if one not in _BUILDING]
    if len(steps) == 1 and methods:
        yield CalledName(_JAVASCRIPT, str(steps[0]), str(methods[0]))
    if len(steps) <= 1:
        return
    if not all(type(step) is str for step in steps):
        yield CalledName(COMPUTED, "")
        return
    module, name = ".".join(steps[:-1]), steps[-1]
    yield from (CalledName(module, name, str(one)) for one in methods or [""])


# Both

PICKLE = "pickle"


def called_names(tag: str, data: bytes) -> tuple[CalledName, ...]:
    """Return what a value in any coding calls; nothing for a coding that no reader decodes."""
    if tag == MSGPACK:
        return called_in_msgpack(data)
    return called_in_json(data) if tag == JSON else ()


def may_call(tag: str, data: bytes, harmless: bytes = b"") -> bool:
    """Whether a value may call something that is an error; false only if it surely does not.

    ``harmless`` is a similar value of the same tag that surely does not.
    """
    if tag == MSGPACK:
        return may_call_in_msgpack(data, harmless)
    return tag == PICKLE or (tag == JSON and may_call_in_json(data))


def names_in(coding: Codec, data: bytes) -> CalledNames:
    """Return everything that a reader would import and call, however deep it is hidden."""
    if coding.tag == JSON and not may_call_in_json(data):
        return CalledNames()
    fault = coding.fault(data)
    return CalledNames(called_names(coding.tag, data), fault)


PICKLED = "a pickle, which can hold any code"


class KeptValue(Struct, frozen=True):
    """A value somewhere in a thread, with its row and its namespace."""

    place: str
    namespace: str
    value: Coded


def find_unsafe(values: Iterable[KeptValue]) -> list[UnsafeValue]:
    """Return what runs code: each called name once per namespace, at its first place."""
    found: dict[tuple[str, str], list[str]] = {}
    harmless: dict[str, bytes] = {}
    for one in values:
        tag, data = one.value.tag, one.value.data
        if not may_call(tag, data, harmless.get(tag, b"")):
            harmless[tag] = data
            continue
        if tag == PICKLE:
            found.setdefault((one.namespace, PICKLED), []).append(one.place)
            continue
        for name, severity in unsafe_names(called_names(tag, data)).items():
            if severity == ERROR:
                place = ".".join((one.place, *field_with(name, one.value)))
                found.setdefault((one.namespace, str(name)), []).append(place)
    return [
        UnsafeValue(places[0], name, namespace, len(places))
        for (namespace, name), places in found.items()
    ]


def field_with(name: object, value: Coded) -> tuple[str, ...]:
    """Return the path to the checkpoint field that calls something; empty if it is hidden."""
    try:
        coding = new_codecs()[value.tag]
        fields = coding.fields(value.data)
        for field, data in fields.items():
            if name in called_names(value.tag, data):
                inner = coding.fields(data) if field == "channel_values" else {}
                steps = [
                    key for key, part in inner.items() if name in called_names(value.tag, part)
                ]
                return (field, *steps[:1])
    except Undecodable:
        pass
    return ()
