"""The classes that a graph's own schemas name: what its checkpoints may be made of.

LangGraph derives such a list when it is told to be strict (``LANGGRAPH_STRICT_MSGPACK``), and hands
it to the checkpointer in one method of a graph, through which every run and every look at a state
goes. ``connect`` wraps that method, once in a process, so that a saver of ours knows the graphs
that use it, strict or not. Their schemas are read when a class is met that is on no other list, and
what is found there are classes that the program has: no stored value has any part in it.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import wraps
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

from langgraph.pregel import Pregel

Name = tuple[str, ...]
_MARK = "__lockstitch_schemas__"
_CONNECTING = Lock()


def name_of(one: type) -> Name:
    """Return how a stored value names a class."""
    return one.__module__, one.__name__


class Schemas:
    """The graphs that use a checkpointer, and the classes that their schemas name."""

    def __init__(self) -> None:
        self._lock = Lock()
        # Which graphs are known, and whether they ran.
        self._seen: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        self._unread: list[ref[Any]] = []
        self._types: dict[Name, type] = {}

    def add(self, graph: Any, *, runs: bool = False) -> None:
        """Know a graph; once more when it runs for the first time, since it is complete then."""
        if self._seen.get(graph) in {True, runs}:
            return
        with self._lock:
            self._seen[graph] = runs
            self._unread.append(ref(graph))

    def find(self, name: Name) -> type | None:
        """Return the class of that name, if a graph's schemas name it."""
        with self._lock:
            while self._unread:
                graph = self._unread.pop()()
                for one in () if graph is None else classes_of(graph):
                    self._types[name_of(one)] = one
            return self._types.get(name)


def connect() -> None:
    """Have graphs make themselves known to the checkpointers of ours that they use."""
    with _CONNECTING:
        for name, wrapped in (("__init__", _made), ("_apply_checkpointer_allowlist", _used)):
            real = getattr(Pregel, name, None)
            if real is not None and not getattr(real, _MARK, False):
                made = wrapped(real)
                setattr(made, _MARK, True)
                setattr(Pregel, name, made)


def _made(real: Callable[..., None]) -> Callable[..., None]:
    @wraps(real)
    def __init__(self: Any, *given: Any, **options: Any) -> None:  # noqa: N807 - it stands for it
        real(self, *given, **options)
        _add(self.checkpointer, self, runs=False)

    return __init__


def _used(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def _apply_checkpointer_allowlist(self: Any, checkpointer: Any) -> Any:
        _add(checkpointer, self, runs=True)
        return real(self, checkpointer)

    return _apply_checkpointer_allowlist


def _add(checkpointer: Any, graph: Any, *, runs: bool) -> None:
    # A guard gives what the saver behind it has.
    known = getattr(checkpointer, "schemas", None)
    if isinstance(known, Schemas):
        known.add(graph, runs=runs)


def classes_of(graph: Any) -> set[type]:
    """Return the classes that the schemas of a graph name, with those of its subgraphs."""
    found: set[type] = set()
    seen: list[Any] = []
    for one in (graph, *(inner for _, inner in graph.get_subgraphs(recurse=True))):
        for schema in _schemas(one):
            _collect(schema, found, seen)
    return found


def _schemas(graph: Any) -> Iterator[Any]:
    builder = getattr(graph, "builder", None)
    yield from getattr(builder, "schemas", ())
    for node in getattr(builder, "nodes", {}).values():
        yield getattr(node, "input_schema", None)
    for channel in getattr(graph, "channels", {}).values():
        for name in ("ValueType", "UpdateType"):
            yield getattr(channel, name, None)


def _collect(one: Any, found: set[type], seen: list[Any]) -> None:
    """Find the classes that a type is made of; what is not understood names none."""
    if any(one is other for other in seen):
        return
    seen.append(one)
    if isinstance(one, type):
        if _is_built(one):
            found.add(one)
        if _is_built(one) or hasattr(one, "__required_keys__"):
            for inner in _fields(one):
                _collect(inner, found, seen)
    for inner in _parts(one):
        _collect(inner, found, seen)


def _is_built(one: type) -> bool:
    """Tell whether values of a class are stored under its name."""
    if issubclass(one, Enum) or dataclasses.is_dataclass(one):
        return True
    # Models of pydantic, old and new, and of attrs.
    if any(hasattr(one, name) for name in ("model_fields", "__fields__", "__attrs_attrs__")):
        return True
    return issubclass(one, tuple) and hasattr(one, "_fields")


def _parts(one: Any) -> Iterable[Any]:
    """Give the types that a type is written with: of a union, a list, an alias."""
    if isinstance(one, TypeVar):
        return (one.__bound__, *one.__constraints__)
    if hasattr(one, "__supertype__"):
        return (one.__supertype__,)
    origin = typing.get_origin(one)
    if origin is typing.Literal:
        return ()
    alias = getattr(one, "__value__", None)
    return (origin, alias, *typing.get_args(one))


def _fields(one: type) -> list[Any]:
    module = sys.modules.get(one.__module__)
    try:
        space = vars(module) if module else None
        hints = typing.get_type_hints(one, space, dict(vars(one)), include_extras=True)
    except Exception:  # noqa: BLE001 - an annotation that names what is not there
        models = getattr(one, "model_fields", {}).values()
        return [field.annotation for field in models if not isinstance(field.annotation, str)]
    return list(hints.values())
