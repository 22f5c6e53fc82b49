"""What a stored value makes LangGraph import and call, and how much that is to be feared."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from msgspec import Struct

from lockstitch.rules import ERROR, WARNING

COMPUTED = "<computed>"
# The types that LangGraph itself builds even when it is told to be strict.
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


class Name(Struct, frozen=True):
    """What a stored value asks its reader to import and to call.

    A module of ``COMPUTED`` is a name that is itself a value which has to be loaded first.
    """

    module: str
    name: str
    method: str = ""

    def __str__(self) -> str:
        """Write it as Python does."""
        steps = (self.module, self.name, self.method)
        return ".".join(step for step in steps if step)


class Named(Struct, frozen=True):
    """The names in a value, each once, and why a part of it could not be read, if so."""

    names: tuple[Name, ...] = ()
    fault: str = ""


_METHODS = frozenset({Name("datetime", "datetime", "fromisoformat")})


def unsafe(names: Iterable[Name]) -> dict[Name, str]:
    """Give the names that are not known to be harmless, each with its severity.

    A name in the standard library, one that has to be computed first, or one that is written as
    functions are, is an error; a class of an application or of a library is a warning, since only
    its owner knows what it does.
    """
    return {name: _severity(name) for name in names if not _is_safe(name)}


def _is_safe(name: Name) -> bool:
    if name.method:
        return name in _METHODS
    return name.name in SAFE.get(name.module, ())


def _severity(name: Name) -> str:
    top = name.module.partition(".")[0]
    if name.module == COMPUTED or top in sys.stdlib_module_names or name.method:
        return ERROR
    return WARNING if name.name.lstrip("_")[:1].isupper() else ERROR
