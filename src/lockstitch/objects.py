"""Objects of SDKs: their fields as the SDK would send them, and objects made of such fields.

A class is known by where it, or a base of it, was defined: nothing is imported to read an object,
and only a class that the user's program has loaded already can be made an object of.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from typing import Any

import msgspec

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
    """Choose how to read the fields of an object of this class; None if it has none to read."""
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
    """Tell whether a class is one of google-genai's."""
    return any(base.__module__.startswith("google.genai.") for base in kind.__mro__)


def is_langchain(kind: type) -> bool:
    """Tell whether a class is one of LangChain's messages."""
    return reader_of(kind) is langchain_fields


def langchain_class(message: Fields) -> type | None:
    """Find the class for a message by its ``type``, if LangChain is loaded and has one."""
    name = str(message.get("type"))
    module = sys.modules.get("langchain_core.messages")
    found = getattr(module, LANGCHAIN_CLASSES.get(name, name), None)
    return found if isinstance(found, type) and is_langchain(found) else None


def classes_for(kind: type) -> list[type]:
    """Give the classes that can stand for one: itself, then what it is a special case of."""
    if is_google(kind):
        return [base for base in kind.__mro__ if base.__module__ == "google.genai.types"]
    if is_langchain(kind):
        known = LANGCHAIN_CLASSES.values()
        return [base for base in kind.__mro__ if base is kind or base.__name__ in known]
    return [kind]


def construct(kind: Any, data: Fields, plain: Fields) -> Any:
    """Make a validated object of a class; ``data`` may hold objects where ``plain`` has dicts.

    Raises whatever the class raises when it does not take these fields.
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
    """Give the fields of a LangChain message, as ``model_dump`` names them, but not copied."""
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
    """Name the fields that an SDK never sends, but not those of which only a part stays home."""
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
