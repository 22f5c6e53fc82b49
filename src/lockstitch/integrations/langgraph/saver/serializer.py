"""A serializer that reads only what is known to be harmless, and names what it refuses.

LangGraph's own reader imports and calls whatever a stored value names, or, with a list of allowed
names, returns bare dictionaries for all others. Here a name that is not on the list is never
imported: the value stays as it is stored, and the error says which class to allow.

Classes that a graph's own schemas name are allowed as well. In its strict mode
(``LANGGRAPH_STRICT_MSGPACK``) LangGraph derives such a list and passes it to the checkpointer in
one method of the graph, which every run and every look at a state uses. ``connect_graphs`` wraps
that method, once in a process, so that our savers know the graphs that use them, in either mode.
The schemas are read when a class is met that is on no other list. The classes found there are part
of the program: no stored value has any influence on them.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import typing
from collections.abc import Callable, Iterable
from enum import Enum
from functools import wraps
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

import ormsgpack
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.pregel import Pregel
from langgraph.types import Send

from lockstitch.errors import Unreadable, UsageError

Name = tuple[str, ...]
_MARK = "__lockstitch_schemas__"
_CONNECTING = Lock()


def name_of(one: type) -> Name:
    """Return the name under which stored values refer to a class."""
    return one.__module__, one.__name__


class GraphSchemas:
    """The graphs that use a checkpointer, and the classes that their schemas name."""

    def __init__(self) -> None:
        self._lock = Lock()
        # The known graphs, and whether each has run.
        self._seen: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        self._unread: list[ref[Any]] = []
        self._types: dict[Name, type] = {}

    def add(self, graph: Any, *, runs: bool = False) -> None:
        """Add a graph; again when it first runs, because it is complete only then."""
        if self._seen.get(graph) in {True, runs}:
            return
        with self._lock:
            self._seen[graph] = runs
            self._unread.append(ref(graph))

    def find(self, name: Name) -> type | None:
        """Return the class with a name, if a graph's schemas name it."""
        with self._lock:
            while self._unread:
                graph = self._unread.pop()()
                for one in () if graph is None else classes_of(graph):
                    self._types[name_of(one)] = one
            return self._types.get(name)


def connect_graphs() -> None:
    """Make graphs register with our checkpointers when they use them."""

    def wrap_init(real: Callable[..., None]) -> Callable[..., None]:
        @wraps(real)
        def __init__(self: Any, *args: Any, **options: Any) -> None:  # noqa: N807 - it stands for it
            real(self, *args, **options)
            add(self.checkpointer, self, runs=False)

        return __init__

    def wrap_use(real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        def _apply_checkpointer_allowlist(self: Any, checkpointer: Any) -> Any:
            add(checkpointer, self, runs=True)
            return real(self, checkpointer)

        return _apply_checkpointer_allowlist

    def add(checkpointer: Any, graph: Any, *, runs: bool) -> None:
        # A guard passes on to the saver that it guards.
        known = getattr(checkpointer, "schemas", None)
        if isinstance(known, GraphSchemas):
            known.add(graph, runs=runs)

    with _CONNECTING:
        for name, wrap in (("__init__", wrap_init), ("_apply_checkpointer_allowlist", wrap_use)):
            real = getattr(Pregel, name, None)
            if real is not None and not getattr(real, _MARK, False):
                made = wrap(real)
                setattr(made, _MARK, True)
                setattr(Pregel, name, made)


def classes_of(graph: Any) -> set[type]:
    """Return the classes that the schemas of a graph and of its subgraphs name."""
    found: set[type] = set()
    seen: list[Any] = []
    for one in (graph, *(inner for _, inner in graph.get_subgraphs(recurse=True))):
        builder = getattr(one, "builder", None)
        nodes = getattr(builder, "nodes", {}).values()
        channels = getattr(one, "channels", {}).values()
        for schema in (
            *getattr(builder, "schemas", ()),
            *(getattr(node, "input_schema", None) for node in nodes),
            *(getattr(c, name, None) for c in channels for name in ("ValueType", "UpdateType")),
        ):
            _collect(schema, found, seen)
    return found


def _collect(one: Any, found: set[type], seen: list[Any]) -> None:
    """Add the classes that a type consists of; a type that is not understood adds none."""
    if any(one is other for other in seen):
        return
    seen.append(one)
    if isinstance(one, type) and (_is_built(one) or hasattr(one, "__required_keys__")):
        if _is_built(one):
            found.add(one)
        module = sys.modules.get(one.__module__)
        try:
            space = vars(module) if module else None
            hints = typing.get_type_hints(one, space, dict(vars(one)), include_extras=True)
            fields = list(hints.values())
        except Exception:  # noqa: BLE001 - an annotation that names what is not there
            models = getattr(one, "model_fields", {}).values()
            fields = [field.annotation for field in models if not isinstance(field.annotation, str)]
        for inner in fields:
            _collect(inner, found, seen)
    # The types in its annotation: of a union, a list, an alias.
    parts: tuple[Any, ...]
    if isinstance(one, TypeVar):
        parts = (one.__bound__, *one.__constraints__)
    elif hasattr(one, "__supertype__"):
        parts = (one.__supertype__,)
    else:
        origin = typing.get_origin(one)
        parts = (origin, getattr(one, "__value__", None), *typing.get_args(one))
        parts = () if origin is typing.Literal else parts
    for inner in parts:
        _collect(inner, found, seen)


def _is_built(one: type) -> bool:
    """Whether values of a class are stored under the name of the class."""
    if issubclass(one, Enum) or dataclasses.is_dataclass(one):
        return True
    # Models of pydantic 2 and 1, and of attrs.
    if any(hasattr(one, name) for name in ("model_fields", "__fields__", "__attrs_attrs__")):
        return True
    return issubclass(one, tuple) and hasattr(one, "_fields")


_NAMED = range(jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG, jsonplus.EXT_PYDANTIC_V2 + 1)
_TAGS = frozenset({"null", "bytes", "bytearray", "msgpack"})


class SafeSerializer(JsonPlusSerializer):
    """LangGraph's serializer, limited to types that are known as safe or were allowed.

    Allowed are the types that were named, and all types in the schemas of its graphs.
    """

    def __init__(
        self, allow: Iterable[Name | type] = (), schemas: GraphSchemas | None = None
    ) -> None:
        self.allowed = frozenset(_name_of(one) for one in allow)
        self.schemas = schemas or GraphSchemas()
        super().__init__(allowed_msgpack_modules=tuple(self.allowed) or None)

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[Name | type]) -> SafeSerializer:
        """Return a serializer that allows more types."""
        more = self.allowed | {_name_of(one) for one in extra_allowlist}
        return self if more == self.allowed else SafeSerializer(more, self.schemas)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Write a value; raise ``UsageError`` if it could not be read back."""
        tag, data = super().dumps_typed(obj)
        if tag == "msgpack":
            for name in names_in(data):
                if not self._is_allowed(name):
                    raise UsageError(f"{_refusal(name)}; nothing was written")
        return tag, data

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read a value; raise ``Unreadable`` if it names a class that is not allowed."""
        tag, raw = data
        if tag != "msgpack":
            if tag not in _TAGS:
                raise Unreadable(f"a value is stored as {tag!r}, which is never read here")
            return super().loads_typed(data)
        problems: list[Exception] = []

        def hook(code: int, inner: bytes) -> Any:
            try:
                value = ormsgpack.unpackb(inner, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
                return self._build(code, value)
            except Exception as error:
                problems.append(error)
                raise

        try:
            return ormsgpack.unpackb(raw, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
        except ValueError as error:
            # The reader hides errors that its hook raises.
            damaged = Unreadable(f"a stored value cannot be decoded ({error})")
            raise problems[0] if problems else damaged from None

    def _is_allowed(self, name: Name) -> bool:
        if len(name) > 2:  # noqa: PLR2004 - module, class and method
            return name in SAFE_MSGPACK_METHODS
        if name in SAFE_MSGPACK_TYPES or name in self.allowed:
            return True
        return self.schemas.find(name) is not None

    def _build(self, code: int, inner: Any) -> Any:
        if code == jsonplus.EXT_DELTA_SNAPSHOT:
            return _DeltaSnapshot(inner)
        if code == jsonplus.EXT_NUMPY_ARRAY:
            kind, shape, order, data = inner
            numpy = importlib.import_module("numpy")
            return numpy.frombuffer(data, dtype=numpy.dtype(kind)).reshape(shape, order=order)
        if code not in _NAMED:
            raise Unreadable(f"a value is stored in an unknown form ({code})")
        name = _named(code, inner)
        if not self._is_allowed(name):
            raise Unreadable(f"{_refusal(name)}; the stored value was left as it is")
        try:
            return self._construct(code, inner)
        except Exception as error:
            raise Unreadable(
                f"a stored {'.'.join(name)} cannot be built ({type(error).__name__}): the class "
                "has changed or is gone; the stored value was left as it is"
            ) from error

    def _construct(self, code: int, inner: Any) -> Any:
        """Build an object of an allowed class."""
        module, name, value = inner[:3]
        if (module, name) == ("langgraph.types", "Send"):
            return Send(*value) if len(value) == 2 else Send(*value[:2], timeout=value[2])  # noqa: PLR2004
        # A class that a schema names exists, even if only inside a function.
        derived = self.schemas.find((module, name))
        if derived is not None:
            made: Any = getattr(sys.modules.get(module), name, derived)
        else:
            made = getattr(importlib.import_module(module), name)
        if code == jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG:
            return made(value)
        if code == jsonplus.EXT_CONSTRUCTOR_POS_ARGS:
            return made(*value)
        if code == jsonplus.EXT_CONSTRUCTOR_KW_ARGS:
            return made(**value)
        if code == jsonplus.EXT_METHOD_SINGLE_ARG:
            return getattr(made, inner[3])(value)
        try:
            return made(**value)
        except Exception:  # noqa: BLE001 - whatever a model's validators raise
            # It was valid when it was stored, so it is not validated again.
            build = made.construct if code == jsonplus.EXT_PYDANTIC_V1 else made.model_construct
            return build(**value)


def names_in(data: bytes) -> list[Name]:
    """Return the names in a stored value, module and class (and method), without importing them."""
    found: list[Name] = []

    def hook(code: int, inner: bytes) -> Any:
        value = ormsgpack.unpackb(inner, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
        if code in _NAMED:
            found.append(_named(code, value))
        # Hashable, so that it can be the key of a dictionary or in a set.
        return None

    ormsgpack.unpackb(data, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
    return found


def _named(code: int, inner: Any) -> Name:
    module, name = str(inner[0]), str(inner[1])
    has_method = code == jsonplus.EXT_METHOD_SINGLE_ARG
    return (module, name, str(inner[3])) if has_method else (module, name)


def _refusal(name: Name) -> str:
    module, kind = name[:2]
    return (
        f"a value holds a {'.'.join(name)}, which may not be built from a checkpoint; to allow "
        f"it: Saver(url, allow=[({module!r}, {kind!r})]), or pass the class itself, or name it "
        "in the graph's schemas"
    )


def _name_of(one: object) -> Name:
    if isinstance(one, type):
        return name_of(one)
    if isinstance(one, tuple) and one and all(isinstance(part, str) for part in one):
        return one
    raise UsageError("allow must name classes: the class itself, or (module, name)")
