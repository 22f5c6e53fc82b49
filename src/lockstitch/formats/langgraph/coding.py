"""Stored values read and written by their structure: nothing is imported, called or unpickled.

A value is never decoded as a whole and encoded again. Lists and maps are taken apart into the very
bytes of what is in them, and put together again from these, so that what a repair does not touch
stays as it is, whatever it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from lockstitch.dialects.langchain import fields_of, type_of

# What is nested deeper than this is no conversation, and costs more the deeper it is.
DEEPEST = 64
# Extensions of msgpack that have a value in them.
NESTING = range(8)
REMOVED = "remove"
KINDS = {
    "human": ("human", "HumanMessage"),
    "ai": ("ai", "AIMessage"),
    "system": ("system", "SystemMessage"),
    "tool": ("tool", "ToolMessage"),
    "function": ("function", "FunctionMessage"),
    "chat": ("chat", "ChatMessage"),
    REMOVED: ("modifier", "RemoveMessage"),
}
_ROLES = frozenset({*KINDS, "user", "assistant", "developer"})
_TYPES = _ROLES | {f"{name}Chunk" for _, name in KINDS.values()}
_SHARED: dict[str, Any] = {"content": "", "additional_kwargs": {}, "response_metadata": {}}
_OWN: dict[str, dict[str, Any]] = {
    "ai": {"tool_calls": [], "invalid_tool_calls": []},
}


class Undecodable(ValueError):
    """Says in its text why a value cannot be read; never what is in it."""


class Item(Struct, eq=False):
    """A message in a channel: ``view`` is what the core sees of it, ``raw`` are its bytes.

    ``frame`` holds what is around the fields of an object, ``fields`` the bytes of each of them;
    a message that is a plain map has no frame. ``tag`` names the coding, ``record`` and ``path``
    say where it stands.
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
        """Its id, by which updates find it."""
        found = fields_of(self.view).get("id") if type(self.view) is dict else None
        return found if type(found) is str and found else None

    @property
    def type(self) -> str:
        """Its type, as LangChain spells it."""
        return type_of(self.view) if type(self.view) is dict else ""


class Coding(ABC):
    """One way to write values. What it cannot read raises ``Undecodable``, and nothing else.

    ``objects`` says that new messages are objects, as they are wherever a reducer of LangGraph
    makes them; not so in a list that an application keeps as plain maps.
    """

    tag: str

    def __init__(self) -> None:
        self.objects = True

    @abstractmethod
    def fields(self, data: bytes) -> dict[str, bytes]:
        """Take a map apart: the bytes of each value, by its key."""

    @abstractmethod
    def items(self, data: bytes) -> list[bytes] | None:
        """Take a list apart; None if it is no list."""

    @abstractmethod
    def plain(self, data: bytes) -> Any:
        """Decode a value; what is no plain value in it becomes a text that stands for it."""

    @abstractmethod
    def is_plain(self, data: bytes) -> bool:
        """Tell whether a value is made of maps, lists and scalars alone."""

    @abstractmethod
    def message(self, data: bytes) -> Item | None:
        """Read one message; None if it is something else."""

    @abstractmethod
    def encoded(self, value: Any) -> bytes:
        """Write a value of which a part may be what ``plain`` gave."""

    @abstractmethod
    def written(self, view: Any, origin: Item | None) -> bytes:
        """Write a message; fields that are those of its origin keep their bytes."""

    @abstractmethod
    def listed(self, items: Iterable[bytes]) -> bytes:
        """Put a list together."""

    @abstractmethod
    def mapped(self, fields: Mapping[str, bytes]) -> bytes:
        """Put a map together."""

    @abstractmethod
    def snapshot(self, data: bytes) -> bytes:
        """Wrap a value as the full value of a channel that stores changes."""

    @abstractmethod
    def opened(self, data: bytes) -> bytes:
        """Take that wrapping off; the same bytes if there is none."""

    @abstractmethod
    def overwriting(self, data: bytes) -> bytes | None:
        """Give the value of an update that takes the place of what there was; None for others."""

    @abstractmethod
    def members(self, data: bytes) -> set[Any]:
        """Give what is in a set of texts; nothing for any other value."""

    @abstractmethod
    def fault(self, data: bytes) -> str:
        """Return why a part of a value cannot be read; empty if all of it can be."""


def is_message(fields: Any) -> bool:
    """Tell the fields of a message from any other map."""
    if type(fields) is not dict or not fields.keys() & {"content", "tool_calls"}:
        return False
    kind = fields.get("type") or fields.get("role")
    return type(kind) is str and kind in _TYPES


def is_role(value: Any) -> bool:
    """Tell whether a word may stand before a text to say whose it is."""
    return type(value) is str and value in _ROLES


def filled(fields: dict[str, Any], kind: str) -> dict[str, Any]:
    """Give the fields of a new message with those that every message of its kind has."""
    return {**_SHARED, **_OWN.get(kind, {}), **fields}
