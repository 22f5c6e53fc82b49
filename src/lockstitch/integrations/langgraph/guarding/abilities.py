"""What a guard can do: as much as the checkpointer behind it.

LangGraph's base class has all methods, and those that a checkpointer lacks raise. Whoever wants to
know looks whether its class has one of its own, and does it another way if not: a server copies a
thread checkpoint by checkpoint. So a guard's class has only those that can be carried out.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from lockstitch.errors import UsageError

_OPTIONAL = (
    "delete_thread",
    "adelete_thread",
    "delete_for_runs",
    "adelete_for_runs",
    "copy_thread",
    "acopy_thread",
    "prune",
    "aprune",
)
_OWN = "langgraph.checkpoint."
_SHALLOW = ".shallow"


def require_history(saver: Any) -> None:
    """Raise ``UsageError`` for a checkpointer that keeps only the last checkpoint of a thread."""
    homes = [base.__module__ for base in type(saver).__mro__]
    if any(home.startswith(_OWN) and home.endswith(_SHALLOW) for home in homes):
        raise UsageError(
            f"{type(saver).__name__} keeps only the last checkpoint of a thread and writes over it:"
            " a second writer's turn is gone before anybody can see that it was there, so that a"
            " Guard cannot protect it; take PostgresSaver, with durability='exit' if a checkpoint"
            " a turn is enough, or lockstitch's Saver"
        )


def fitted(made: Any, plain: Any, saver: Any) -> Any:
    """Return the class for a guard before this checkpointer; ``plain`` has all methods."""
    lacking = tuple(
        name
        for name in _OPTIONAL
        # What a subclass has of its own, it can.
        if getattr(made, name) is getattr(plain, name) and not _has(saver, name)
    )
    return _without(made, lacking) if lacking else made


def _has(saver: Any, name: str) -> bool:
    found = getattr(saver, name, None)
    function = getattr(found, "__func__", found)
    return function is not None and function is not getattr(BaseCheckpointSaver, name, None)


@cache
def _without(made: Any, lacking: tuple[str, ...]) -> Any:
    body: dict[str, Any] = {
        name: getattr(BaseCheckpointSaver, name)
        for name in lacking
        if hasattr(BaseCheckpointSaver, name)
    }
    for name in ("__doc__", "__module__", "__qualname__"):
        body[name] = getattr(made, name)
    return type(made.__name__, (made,), body)
