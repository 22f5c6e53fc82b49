"""A ``repr`` without content: it may end up in a log, an error report, or somebody's terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Raw

_COUNTED = (list, tuple, dict, set, frozenset)


def repr_without(*hidden: str) -> Callable[[Any], str]:
    """Make the ``__repr__`` of a struct or dataclass that shows some fields by kind and size only.

    Whoever says which fields hide content keeps the others to names, numbers and places.
    """

    def show(self: Any) -> str:
        # Those of a dataclass are asked for without its module, which takes time to import.
        fields = getattr(self, "__dataclass_fields__", None)
        names = self.__struct_fields__ if fields is None else fields
        values = ((name, getattr(self, name)) for name in names)
        shown = [
            f"{name}={describe_size(value) if name in hidden else repr(value)}"
            for name, value in values
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    show.__name__ = "__repr__"
    show.__doc__ = "Show the fields; content only by its kind and size."
    return show


def describe_size(value: Any) -> str:
    """Describe a value by its kind and size."""
    if value is None or value is UNSET:
        return repr(value)
    if isinstance(value, str):
        return f"<{len(value)} characters>"
    if isinstance(value, Raw | bytes):
        return f"<{len(bytes(value))} bytes>"
    if isinstance(value, _COUNTED):
        return f"<{type(value).__name__} of {len(value)}>"
    return f"<{type(value).__name__}>"
