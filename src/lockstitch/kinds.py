"""SDK objects to plain data, and healed plain data back in kind.

``thaw`` turns whatever stands in a list of messages into dicts, lists and scalars: the wire form
that the object's own SDK would send. It also gives ``freeze``, which takes a healed version of that
data and puts the original objects back wherever their plain form is still the very same dict.
A changed object becomes one of its class again if that class can say exactly the same; a new
message in a list of LangChain or google-genai objects becomes such an object; anything else is a
dict, which every SDK accepts. No original is ever changed.
"""

from __future__ import annotations

import operator
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from enum import Enum
from types import NoneType
from typing import Any, NamedTuple

import msgspec

from lockstitch.errors import UsageError
from lockstitch.objects import (
    LANGCHAIN_CLASSES,
    classes_for,
    construct,
    is_google,
    is_langchain,
    langchain_class,
    reader_of,
)

Freeze = Callable[[Any], Any]
Path = tuple[object, ...]

# Raw is JSON that was left as text, since nothing here can read it.
_SCALARS = frozenset({str, int, float, bool, NoneType, bytes, msgspec.Raw})
_PLAIN = _SCALARS | {dict, list}
_LISTS = ("messages", "input", "contents")
_CALLS = ("tool_calls", "invalid_tool_calls")
# LangChain derives the chunks of a message from its calls.
_DERIVED = "tool_call_chunks"
# Deeper than any message format goes; it also bounds the recursion on hostile input.
_DEEPEST = 64
_UNFIT = (TypeError, ValueError, AttributeError, RecursionError, msgspec.MsgspecError)


def is_plain(value: Any) -> bool:
    """Tell whether messages and their blocks are dicts, lists and scalars already.

    Looks at the message list, or at a body and the lists in it, down to the fields of content
    blocks and the items in those, which is as deep as SDK objects are put by hand.
    """
    if type(value) is list:
        return _is_plain_list(value)
    if type(value) is not dict:
        return type(value) in _SCALARS
    return _PLAIN.issuperset(map(type, value.values())) and all(
        _is_plain_list(part) for part in value.values() if type(part) is list
    )


def _is_plain_list(messages: list[Any]) -> bool:
    # bare loops: on tens of thousands of messages they beat every shorter way to say this
    for message in messages:
        if type(message) is dict:
            for value in message.values():
                if type(value) is list:
                    if not _are_plain_blocks(value):
                        return False
                elif type(value) is not str and type(value) not in _PLAIN:
                    return False
        elif type(message) not in _PLAIN:
            return False
    return True


def _are_plain_blocks(blocks: list[Any]) -> bool:
    for block in blocks:
        if type(block) is dict:
            for value in block.values():
                if type(value) is list:
                    if not _PLAIN.issuperset(map(type, value)):
                        return False
                elif type(value) is not str and type(value) not in _PLAIN:
                    return False
        elif type(block) not in _PLAIN:
            return False
    return True


def thaw(value: Any) -> tuple[Any, Freeze]:
    """Give a value's plain form, and the function that turns a healed one back in kind.

    Plain data comes back as the same object, plain parts of anything else keep their identity.
    Raises ``UsageError`` for an object in a message list that nothing here can read.
    """
    value = _unrolled(value)
    thawing = _Thaw()
    plain = thawing.value(value, ("messages",) if isinstance(value, Sequence | deque) else ())
    if plain is value:
        return value, _as_it_is
    return plain, _Freezer(thawing.origins, plain).freeze


def _unrolled(value: Any) -> Any:
    # an iterator can be read only once, so from here on its items are what was given
    if isinstance(value, Iterator):
        return list(value)
    if type(value) is dict and any(isinstance(value.get(key), Iterator) for key in _LISTS):
        return {k: list(v) if isinstance(v, Iterator) else v for k, v in value.items()}
    return value


def _as_it_is(value: Any) -> Any:
    return value


class Origin(NamedTuple):
    """A plain form and the original it stands for; holding both keeps their ids from reuse."""

    plain: Any
    original: Any


class _Thaw:
    """One walk from objects to plain data; every container in the result gets its origin."""

    def __init__(self) -> None:
        self.origins: dict[int, Origin] = {}
        self._seen: dict[int, Origin] = {}

    def value(self, value: Any, at: Path) -> Any:
        """Give the plain form of a value that stands at this place."""
        if type(value) in _SCALARS or len(at) > _DEEPEST:
            return value
        if id(value) in self._seen:
            return self._seen[id(value)].plain
        # until it is known, a value that contains itself is its own plain form
        self._seen[id(value)] = Origin(value, value)
        plain = self._converted(value, at)
        self._seen[id(value)] = Origin(plain, value)
        if type(plain) in (dict, list):
            self.origins[id(plain)] = Origin(plain, value)
        return plain

    def _converted(self, value: Any, at: Path) -> Any:
        if type(value) is dict:
            values = self._values(value, at)
            return value if all(map(operator.is_, value.values(), values.values())) else values
        if type(value) is list:
            items = self._items(value, at)
            return value if all(map(operator.is_, value, items)) else items
        kind: type = type(value)
        reader = reader_of(kind)
        if reader is None:
            return self._other(value, at)
        fields = reader(value)
        # what LangChain keeps besides its plain fields (artifacts, metadata) it never sends
        return fields if is_langchain(kind) else self._values(fields, at)

    def _other(self, value: Any, at: Path) -> Any:
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, Sequence | deque) and not isinstance(value, str | bytes):
            return self._sequence(value, at)
        if isinstance(value, str | int | float | bytes) or not at or at[0] not in _LISTS:
            return value
        kind = type(value)
        raise UsageError(
            f"cannot read the {kind.__module__}.{kind.__qualname__} at {'.'.join(map(str, at))}: "
            "give plain data or a message object of an SDK"
        )

    def _sequence(self, value: Iterable[Any], at: Path) -> Any:
        match value, at:
            case (str(role), content), (key, int()) if (
                type(value) is tuple and key in _LISTS and role in LANGCHAIN_CLASSES
            ):
                return {"type": role, "content": self.value(content, (*at, "content"))}
        return self._items(value, at)

    def _values(self, fields: Mapping[Any, Any], at: Path) -> dict[Any, Any]:
        return {
            key: part if type(part) in _SCALARS else self.value(part, (*at, key))
            for key, part in fields.items()
        }

    def _items(self, items: Iterable[Any], at: Path) -> list[Any]:
        return [self.value(item, (*at, index)) for index, item in enumerate(items)]


class _Freezer:
    """Turns healed plain data back, guided by the plain data it was healed from."""

    def __init__(self, origins: dict[int, Origin], plain: Any) -> None:
        self._origins = origins
        self._plain = plain

    def freeze(self, healed: Any) -> Any:
        """Give a healed value in the kind of the value that was thawed."""
        return self._value(healed, self._plain)

    def _value(self, new: Any, old: Any) -> Any:
        if id(new) in self._origins:
            return self._origins[id(new)].original
        if new is old or type(new) not in (dict, list):
            return new
        return self._dict(new, old) if type(new) is dict else self._list(new, old)

    def _original(self, plain: Any) -> Any:
        origin = self._origins.get(id(plain))
        return plain if origin is None else origin.original

    def _dict(self, new: dict[Any, Any], old: Any) -> Any:
        before = old if type(old) is dict else {}
        data = {key: self._value(value, before.get(key)) for key, value in new.items()}
        original = self._original(old)
        if type(old) is dict and type(original) is not dict:
            return _remade(original, data, new)
        return new if all(map(operator.is_, new.values(), data.values())) else data

    def _list(self, new: list[Any], old: Any) -> Any:
        before = old if type(old) is list else []
        partners = _partners(new, before)
        kin = self._kin(before)
        items = [self._item(item, partners.get(id(item)), kin) for item in new]
        if type(old) is list and type(self._original(old)) is not list:
            return _gathered(type(self._original(old)), items)
        return new if all(map(operator.is_, new, items)) else items

    def _item(self, new: Any, old: Any, kin: type | None) -> Any:
        frozen = self._value(new, old)
        if kin is None or old is not None or type(frozen) is not dict:
            return frozen
        return _made(kin if is_google(kin) else langchain_class(new), frozen, new)

    def _kin(self, items: list[Any]) -> type | None:
        """Find the class whose objects a list holds, if new items should be objects as well."""
        for item in items:
            kind: type = type(self._original(item))
            if is_google(kind) or is_langchain(kind) or kind is tuple:
                return kind
        return None


def _partners(new: list[Any], old: list[Any]) -> dict[int, Any]:
    """Find what each item was before: itself, or the lost item that it seems a changed copy of.

    A wrong guess costs no more than the item's class: what it says is never taken from a partner.
    """
    kept = {id(item) for item in new}
    partners = {id(item): item for item in old if id(item) in kept}
    lost = [item for item in old if id(item) not in kept and type(item) is dict]
    fresh = [item for item in new if type(item) is dict and id(item) not in partners]
    owners = {(_sign(item), id(part)): item for item in lost for part in _inner(item)}
    for item in fresh:
        shared = (owners.get((_sign(item), id(part))) for part in _inner(item))
        partners[id(item)] = next(filter(None, shared), None)
    taken = {id(partner) for partner in partners.values()}
    free: defaultdict[Path, deque[Any]] = defaultdict(deque)
    for item in lost:
        if id(item) not in taken:
            free[_sign(item)].append(item)
    for item in fresh:
        if partners[id(item)] is None and free[_sign(item)]:
            partners[id(item)] = free[_sign(item)].popleft()
    return partners


def _sign(item: dict[Any, Any]) -> Path:
    return str(item.get("role")), str(item.get("type"))


def _inner(item: dict[Any, Any]) -> Iterator[Any]:
    """Give the containers in a message or block: a changed copy still shares most of them."""
    for part in item.values():
        if type(part) in (dict, list):
            yield part
        if type(part) is list:
            yield from (inner for inner in part if type(inner) is dict)


def _remade(original: Any, data: dict[Any, Any], new: dict[Any, Any]) -> Any:
    """Make a changed object again: of the same class, or as a dict if that cannot say it."""
    if isinstance(original, tuple):
        brief = new.keys() == {"type", "content"}
        return (new["type"], data["content"]) if brief else _made(langchain_class(new), data, new)
    kind: type | None = type(original)
    if is_langchain(type(original)):
        kind = type(original) if new.get("type") == original.type else langchain_class(new)
        if any(new.get(key) is not getattr(original, key, None) for key in _CALLS):
            data = {key: value for key, value in data.items() if key != _DERIVED}
    return _made(kind, data, new)


def _made(kind: type | None, data: dict[Any, Any], new: dict[Any, Any]) -> Any:
    """Make an object of a class, checked to say exactly the same, or else leave the dict."""
    for option in () if kind is None else classes_for(kind):
        try:
            made = construct(option, data, new)
            said = _Thaw().value(made, ())
            meant = {**new, "type": said["type"]} if is_langchain(option) else new
            if _says(said, meant):
                return made
        except _UNFIT:
            continue
    return data


def _says(said: Any, meant: Any) -> bool:
    if type(meant) is dict:
        return isinstance(said, dict) and all(
            _says(said.get(key), value) for key, value in meant.items() if key != _DERIVED
        )
    if type(meant) is list:
        return isinstance(said, list) and len(said) == len(meant) and all(map(_says, said, meant))
    return bool(said == meant)


def _gathered(kind: Any, items: list[Any]) -> Any:
    try:
        return kind(items)
    except TypeError:
        return items
