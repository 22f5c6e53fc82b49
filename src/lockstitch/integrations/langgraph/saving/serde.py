"""Reading back only what is known to be harmless, and saying so loudly where it is not.

LangGraph's own reader imports and calls whatever a stored value names, or with a list of allowed
names hands out bare dictionaries for all others. Here a name outside the list is never imported:
the value stays as it is stored, and whoever reads it is told which class to allow.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Send

from lockstitch.errors import Unreadable, UsageError
from lockstitch.integrations.langgraph.saving.schemas import Name, Schemas, name_of

_NAMED = range(jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG, jsonplus.EXT_PYDANTIC_V2 + 1)
_TAGS = frozenset({"null", "bytes", "bytearray", "msgpack"})


class SafeSerializer(JsonPlusSerializer):
    """LangGraph's serialiser, for the types that it knows as safe and those that are allowed.

    Allowed are the ones that were named, and all that the schemas of its graphs name.
    """

    def __init__(self, allow: Iterable[Name | type] = (), schemas: Schemas | None = None) -> None:
        self.allowed = frozenset(_name_of(one) for one in allow)
        self.schemas = schemas or Schemas()
        super().__init__(allowed_msgpack_modules=tuple(self.allowed) or None)

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[Name | type]) -> SafeSerializer:
        """Give a serialiser that allows more."""
        more = self.allowed | {_name_of(one) for one in extra_allowlist}
        return self if more == self.allowed else SafeSerializer(more, self.schemas)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Write a value; raises ``UsageError`` for one that could not be read back."""
        tag, data = super().dumps_typed(obj)
        if tag == "msgpack":
            for name in names_in(data):
                if not self._is_allowed(name):
                    raise UsageError(f"{_refusal(name)}; nothing was written")
        return tag, data

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read a value; raises ``Unreadable`` if it names a class that is not allowed."""
        tag, raw = data
        if tag != "msgpack":
            if tag not in _TAGS:
                raise Unreadable(f"a value is stored as {tag!r}, which is never read here")
            return super().loads_typed(data)
        problems: list[Exception] = []
        try:
            return ormsgpack.unpackb(
                raw, ext_hook=self._hook(problems), option=ormsgpack.OPT_NON_STR_KEYS
            )
        except ValueError as error:
            # The reader hides what its hook raised.
            raise problems[0] if problems else _unreadable(error) from None

    def _is_allowed(self, name: Name) -> bool:
        if len(name) > 2:  # noqa: PLR2004 - module, class and method
            return name in SAFE_MSGPACK_METHODS
        if name in SAFE_MSGPACK_TYPES or name in self.allowed:
            return True
        return self.schemas.find(name) is not None

    def _hook(self, problems: list[Exception]) -> Callable[[int, bytes], Any]:
        def hook(code: int, data: bytes) -> Any:
            try:
                inner = ormsgpack.unpackb(data, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
                return self._built(code, inner)
            except Exception as error:
                problems.append(error)
                raise

        return hook

    def _built(self, code: int, inner: Any) -> Any:
        if code == jsonplus.EXT_DELTA_SNAPSHOT:
            return _DeltaSnapshot(inner)
        if code == jsonplus.EXT_NUMPY_ARRAY:
            return _array(*inner)
        if code not in _NAMED:
            raise Unreadable(f"a value is stored in a form that nobody here knows ({code})")
        name = _named(code, inner)
        if not self._is_allowed(name):
            raise Unreadable(f"{_refusal(name)}; the stored value was left as it is")
        try:
            return self._constructed(code, inner)
        except Exception as error:
            raise Unreadable(
                f"a stored {'.'.join(name)} cannot be built ({type(error).__name__}):"
                " the class has changed or gone; the stored value was left as it is"
            ) from error

    def _constructed(self, code: int, inner: Any) -> Any:
        """Build an object of an allowed class."""
        module, name, value = inner[:3]
        if (module, name) == ("langgraph.types", "Send"):
            return Send(*value) if len(value) == 2 else Send(*value[:2], timeout=value[2])  # noqa: PLR2004
        made = self._class(module, name)
        if code == jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG:
            return made(value)
        if code == jsonplus.EXT_CONSTRUCTOR_POS_ARGS:
            return made(*value)
        if code == jsonplus.EXT_CONSTRUCTOR_KW_ARGS:
            return made(**value)
        if code == jsonplus.EXT_METHOD_SINGLE_ARG:
            return getattr(made, inner[3])(value)
        return _model(code, made, value)

    def _class(self, module: str, name: str) -> Any:
        """Give an allowed class; one that a schema names is there, if only in a function."""
        derived = self.schemas.find((module, name))
        if derived is not None:
            return getattr(sys.modules.get(module), name, derived)
        return getattr(importlib.import_module(module), name)


def names_in(data: bytes) -> list[Name]:
    """List what a stored value names, module and class (and method), without importing it."""
    found: list[Name] = []

    def hook(code: int, inner: bytes) -> Any:
        value = ormsgpack.unpackb(inner, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
        if code in _NAMED:
            found.append(_named(code, value))
        # What is hashable may be the key of a dictionary or stand in a set.
        return None

    ormsgpack.unpackb(data, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
    return found


def _named(code: int, inner: Any) -> Name:
    module, name = str(inner[0]), str(inner[1])
    has_method = code == jsonplus.EXT_METHOD_SINGLE_ARG
    return (module, name, str(inner[3])) if has_method else (module, name)


def _model(code: int, made: Any, fields: dict[str, Any]) -> Any:
    """Build a pydantic model; what was valid when it was stored is taken as it is."""
    try:
        return made(**fields)
    except Exception:  # noqa: BLE001 - whatever its validators raise
        build = made.construct if code == jsonplus.EXT_PYDANTIC_V1 else made.model_construct
        return build(**fields)


def _array(kind: str, shape: Any, order: Any, data: Any) -> Any:
    numpy = importlib.import_module("numpy")
    return numpy.frombuffer(data, dtype=numpy.dtype(kind)).reshape(shape, order=order)


def _refusal(name: Name) -> str:
    module, kind = name[:2]
    return (
        f"a value holds a {'.'.join(name)}, which is not allowed to be built from a checkpoint;"
        f" to allow it: Saver(url, allow=[({module!r}, {kind!r})]), or the class itself, or name it"
        " in the graph's schemas"
    )


def _unreadable(error: ValueError) -> Unreadable:
    return Unreadable(f"a stored value cannot be decoded ({error})")


def _name_of(one: object) -> Name:
    if isinstance(one, type):
        return name_of(one)
    if isinstance(one, tuple) and one and all(isinstance(part, str) for part in one):
        return one
    raise UsageError("allow names classes: the class itself, or (module, name)")
