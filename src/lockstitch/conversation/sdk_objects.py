"""Convert SDK objects to plain data, and healed plain data back to objects.

``to_plain`` turns whatever stands in a list of messages into dicts, lists and scalars: the wire
form that the object's own SDK would send. It also returns the function that converts back. That
takes a healed version of the data and puts in the original objects wherever their plain form is
still the very same dict. A changed object becomes one of its class again if that class can say
exactly the same. A new message in a list of LangChain or google-genai objects becomes such an
object. Anything else stays a dict, which every SDK accepts. No original is ever changed.

A class is recognized by where it, or a base of it, was defined. Nothing is imported to read an
object, and only classes that the user's program has already loaded are instantiated.
"""

from __future__ import annotations

import dataclasses
import operator
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from enum import Enum
from functools import cache, partial
from types import MappingProxyType, NoneType
from typing import Any, NamedTuple, Protocol

import msgspec

from lockstitch.errors import UsageError

Fields = dict[str, Any]
Reader = Callable[[Any], Fields]

LANGCHAIN_CLASSES = {
    "human": "HumanMessage",
    "user": "HumanMessage",
    "ai": "AIMessage",
    "assistant": "AIMessage",
    "system": "SystemMessage",
    "developer": "SystemMessage",
    "tool": "ToolMessage",
    "function": "FunctionMessage",
    "chat": "ChatMessage",
}


@cache
def reader_of(kind: type) -> Reader | None:
    """Return the function that reads the fields of a class's objects, None if there is none."""
    homes = [f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__]
    if "langchain_core.messages.base.BaseMessage" in homes:
        return langchain_fields
    if hasattr(kind, "model_fields") and hasattr(kind, "model_validate"):
        sends_what_is_set = any(home.startswith(("anthropic.", "openai.")) for home in homes)
        return _set_fields if sends_what_is_set else _filled_fields
    if issubclass(kind, msgspec.Struct):
        return _struct_fields
    if dataclasses.is_dataclass(kind):
        return _dataclass_fields
    return dict if issubclass(kind, Mapping) else None


@cache
def is_google(kind: type) -> bool:
    """Whether a class is one of google-genai's."""
    return any(base.__module__.startswith("google.genai.") for base in kind.__mro__)


def is_langchain(kind: type) -> bool:
    """Whether a class is one of LangChain's messages."""
    return reader_of(kind) is langchain_fields


def langchain_class(message: Fields) -> type | None:
    """Return the class for a message's ``type``; None if LangChain is not loaded or has none."""
    name = str(message.get("type"))
    module = sys.modules.get("langchain_core.messages")
    found = getattr(module, LANGCHAIN_CLASSES.get(name, name), None)
    return found if isinstance(found, type) and is_langchain(found) else None


def classes_for(kind: type) -> list[type]:
    """Return the classes that can stand for one: itself, then the bases it specializes."""
    if is_google(kind):
        return [base for base in kind.__mro__ if base.__module__ == "google.genai.types"]
    if is_langchain(kind):
        known = LANGCHAIN_CLASSES.values()
        return [base for base in kind.__mro__ if base is kind or base.__name__ in known]
    return [kind]


def construct(kind: Any, data: Fields, plain: Fields) -> Any:
    """Return a validated object; ``data`` may hold objects where ``plain`` has dicts.

    Raises whatever the class raises if it does not accept these fields.
    """
    reader = reader_of(kind)
    if reader is langchain_fields:
        return kind.model_validate({key: value for key, value in data.items() if key != "type"})
    if reader is _struct_fields:
        return msgspec.convert(plain, kind)
    if reader is _dataclass_fields:
        return kind(**data)
    return kind(data) if reader is dict else kind.model_validate(data)


def langchain_fields(message: Any) -> Fields:
    """Return the fields of a LangChain message, named as in ``model_dump``, but not copied."""
    return {**vars(message), **(message.__pydantic_extra__ or {})}


def _set_fields(model: Any) -> Fields:
    hidden = _hidden_in(model)
    fields = {
        _alias(type(model), name): value
        for name, value in vars(model).items()
        if name in model.model_fields_set and name not in hidden
    }
    return {**fields, **(model.__pydantic_extra__ or {})}


def _hidden_in(model: Any) -> Collection[str]:
    """Return the fields that an SDK never sends, except those hidden only in part."""
    hidden = getattr(model, "__api_exclude__", None) or ()
    if isinstance(hidden, Mapping):
        return [name for name, inner in hidden.items() if inner is True or inner is ...]
    return tuple(hidden)


def _filled_fields(model: Any) -> Fields:
    kind: Any = type(model)
    if kind.__pydantic_decorators__.model_serializers:
        return dict(model.model_dump(mode="json", by_alias=True, exclude_none=True))
    # google-genai reads and writes Python's names; elsewhere an alias is the name on the wire
    spelled = str if is_google(kind) else partial(_alias, kind)
    fields = {spelled(name): value for name, value in vars(model).items() if value is not None}
    return {**fields, **(model.__pydantic_extra__ or {})}


def _alias(kind: Any, name: str) -> str:
    field = kind.model_fields.get(name)
    return (field and (field.serialization_alias or field.alias)) or name


def _struct_fields(struct: Any) -> Fields:
    config = struct.__struct_config__
    tag = {config.tag_field: config.tag} if config.tag_field else {}
    fields = ((field, getattr(struct, field.name)) for field in msgspec.structs.fields(struct))
    return tag | {
        field.encode_name: value
        for field, value in fields
        if value is not msgspec.UNSET and not (config.omit_defaults and value == field.default)
    }


def _dataclass_fields(value: Any) -> Fields:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


Path = tuple[object, ...]

# Raw is JSON that was left as text because nothing here can read it.
_SCALARS = frozenset({str, int, float, bool, NoneType, bytes, msgspec.Raw})
_PLAIN = _SCALARS | {dict, list}
_LISTS = ("messages", "input", "contents")
_CALLS = ("tool_calls", "invalid_tool_calls")
# LangChain derives the chunks of a message from its calls.
_DERIVED = "tool_call_chunks"
# Deeper than any message format goes; it also bounds the recursion on hostile input.
_DEEPEST = 64
_UNFIT = (TypeError, ValueError, AttributeError, RecursionError, msgspec.MsgspecError)


def is_plain(value: Any) -> bool:  # noqa: C901 - nested loops over nested data
    """Whether messages and their blocks are already dicts, lists and scalars.

    Looks at the message list, or at a body and the lists in it, down to the fields of content
    blocks and the items in those. People put SDK objects no deeper than that by hand.
    """
    lists = [value]
    if type(value) is dict:
        if not _PLAIN.issuperset(map(type, value.values())):
            return False
        lists = [held for held in value.values() if type(held) is list]
    elif type(value) is not list:
        return type(value) in _SCALARS
    # bare loops: on tens of thousands of messages they beat every shorter way to say this
    for messages in lists:
        for message in messages:
            if type(message) is not dict:
                if type(message) not in _PLAIN:
                    return False
                continue
            for field in message.values():
                if type(field) is list:
                    for block in field:
                        if type(block) is not dict:
                            if type(block) not in _PLAIN:
                                return False
                            continue
                        for inner in block.values():
                            if type(inner) is list:
                                if not _PLAIN.issuperset(map(type, inner)):
                                    return False
                            elif type(inner) is not str and type(inner) not in _PLAIN:
                                return False
                elif type(field) is not str and type(field) not in _PLAIN:
                    return False
    return True


def to_plain(value: Any) -> tuple[Any, FromPlain]:
    """Return the plain form of a value, and the function that converts a healed one back.

    Plain data comes back as the same object, and plain parts of anything else keep their identity.
    Raises ``UsageError`` for an object in a message list that nothing here can read.
    """
    value = _unroll_iterators(value)
    thawing = _ToPlain()
    plain = thawing.value(value, ("messages",) if isinstance(value, Sequence | deque) else ())
    if plain is value:
        return value, as_it_is
    return plain, _FromPlainData(thawing.forms, plain).convert


def _unroll_iterators(value: Any) -> Any:
    # an iterator can be read only once, so from here on its items stand for it
    if isinstance(value, Iterator):
        return list(value)
    if type(value) is dict and any(isinstance(value.get(key), Iterator) for key in _LISTS):
        return {k: list(v) if isinstance(v, Iterator) else v for k, v in value.items()}
    return value


class FromPlain(Protocol):
    """Converts healed plain data back to the kind of objects it was made from."""

    def __call__(self, healed: Any, earlier: Mapping[int, Any] = ..., /) -> Any:
        """Return a healed value as objects of the original kind.

        ``earlier`` maps the ``id`` of each changed message and part to what it was before.
        """


def as_it_is(value: Any, _earlier: Mapping[int, Any] = MappingProxyType({})) -> Any:
    """Return plain data unchanged."""
    return value


class PlainForm(NamedTuple):
    """A plain form and the original it stands for; holding both keeps their ids from reuse."""

    plain: Any
    original: Any


class _ToPlain:
    """One walk from objects to plain data, which records the origin of every container."""

    def __init__(self) -> None:
        self.forms: dict[int, PlainForm] = {}
        self._seen: dict[int, PlainForm] = {}

    def value(self, value: Any, at: Path) -> Any:
        """Return the plain form of a value that stands at this path."""
        if type(value) in _SCALARS or len(at) > _DEEPEST:
            return value
        if id(value) in self._seen:
            return self._seen[id(value)].plain
        # until its plain form is known, a value that contains itself stands for itself
        self._seen[id(value)] = PlainForm(value, value)
        plain = self._convert(value, at)
        self._seen[id(value)] = PlainForm(plain, value)
        if type(plain) in (dict, list):
            self.forms[id(plain)] = PlainForm(plain, value)
        return plain

    def _convert(self, value: Any, at: Path) -> Any:
        if type(value) is dict:
            values = self._values(value, at)
            return value if all(map(operator.is_, value.values(), values.values())) else values
        if type(value) is list:
            items = self._items(value, at)
            return value if all(map(operator.is_, value, items)) else items
        kind: type = type(value)
        reader = reader_of(kind)
        if reader is None:
            return self._convert_other(value, at)
        fields = reader(value)
        # LangChain keeps more than its plain fields (artifacts, metadata), but never sends it
        return fields if is_langchain(kind) else self._values(fields, at)

    def _convert_other(self, value: Any, at: Path) -> Any:
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, Sequence | deque) and not isinstance(value, str | bytes):
            match value, at:
                case (str(role), content), (key, int()) if (
                    type(value) is tuple and key in _LISTS and role in LANGCHAIN_CLASSES
                ):
                    return {"type": role, "content": self.value(content, (*at, "content"))}
            return self._items(value, at)
        if isinstance(value, str | int | float | bytes) or not at or at[0] not in _LISTS:
            return value
        kind = type(value)
        raise UsageError(
            f"cannot read the {kind.__module__}.{kind.__qualname__} at {'.'.join(map(str, at))}: "
            "pass plain data or a message object of an SDK"
        )

    def _values(self, fields: Mapping[Any, Any], at: Path) -> dict[Any, Any]:
        return {
            key: part if type(part) in _SCALARS else self.value(part, (*at, key))
            for key, part in fields.items()
        }

    def _items(self, items: Iterable[Any], at: Path) -> list[Any]:
        return [self.value(item, (*at, index)) for index, item in enumerate(items)]


class _FromPlainData:
    """Converts healed plain data back, guided by the plain data it was healed from."""

    def __init__(self, forms: dict[int, PlainForm], plain: Any) -> None:
        self._forms = forms
        self._plain = plain
        self._earlier: Mapping[int, Any] = {}

    def convert(self, healed: Any, earlier: Mapping[int, Any] = MappingProxyType({})) -> Any:
        """Return a healed value as objects of the kind that it was made from."""
        self._earlier = earlier
        return self._value(healed, self._plain)

    def _value(self, new: Any, old: Any) -> Any:
        if id(new) in self._forms:
            return self._forms[id(new)].original
        if new is old or type(new) not in (dict, list):
            return new
        return self._dict(new, old) if type(new) is dict else self._list(new, old)

    def _original(self, plain: Any) -> Any:
        form = self._forms.get(id(plain))
        return plain if form is None else form.original

    def _dict(self, new: dict[Any, Any], old: Any) -> Any:
        before = old if type(old) is dict else {}
        data = {key: self._value(value, before.get(key)) for key, value in new.items()}
        original = self._original(old)
        if type(old) is dict and type(original) is not dict:
            return _remake(original, data, new)
        return new if all(map(operator.is_, new.values(), data.values())) else data

    def _list(self, new: list[Any], old: Any) -> Any:
        before = old if type(old) is list else []
        # the class of the list's objects, of which new messages are made, too
        kinds: Iterator[type] = (type(self._original(item)) for item in before)
        kin = next((k for k in kinds if is_google(k) or is_langchain(k) or k is tuple), None)
        # an item without a recorded origin is the one at its index if the list kept its length
        places = before if len(before) == len(new) else [None] * len(new)
        items: list[Any] = []
        for item, here in zip(new, places, strict=True):
            was = self._earlier.get(id(item), here)
            made = self._value(item, was)
            if kin is not None and was is None and type(made) is dict:
                made = _make(kin if is_google(kin) else langchain_class(item), made, item)
            items.append(made)
        if type(old) is list and type(self._original(old)) is not list:
            kind = type(self._original(old))
            try:
                return kind(items)
            except TypeError:
                return items
        return new if all(map(operator.is_, new, items)) else items


def _remake(original: Any, data: dict[Any, Any], new: dict[Any, Any]) -> Any:
    """Return a changed object as one of its class, or as a dict if that cannot say it."""
    if isinstance(original, tuple):
        brief = new.keys() == {"type", "content"}
        return (new["type"], data["content"]) if brief else _make(langchain_class(new), data, new)
    kind: type | None = type(original)
    if is_langchain(type(original)):
        kind = type(original) if new.get("type") == original.type else langchain_class(new)
        if any(new.get(key) is not getattr(original, key, None) for key in _CALLS):
            data = {key: value for key, value in data.items() if key != _DERIVED}
    return _make(kind, data, new)


def _make(kind: type | None, data: dict[Any, Any], new: dict[Any, Any]) -> Any:
    """Return an object of a class that says exactly the same, or else the dict."""
    for option in () if kind is None else classes_for(kind):
        try:
            made = construct(option, data, new)
            said = _ToPlain().value(made, ())
            wanted = {**new, "type": said["type"]} if is_langchain(option) else new
            if _same(said, wanted):
                return made
        except _UNFIT:
            continue
    return data


def _same(said: Any, wanted: Any) -> bool:
    if type(wanted) is dict:
        return isinstance(said, dict) and all(
            _same(said.get(key), value) for key, value in wanted.items() if key != _DERIVED
        )
    if type(wanted) is list:
        return isinstance(said, list) and len(said) == len(wanted) and all(map(_same, said, wanted))
    return bool(said == wanted)
