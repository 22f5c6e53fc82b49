"""Keep LangGraph's checkpoints valid: repair them, guard them, or store them in Lockstitch.

``reconcile`` and ``areconcile`` make a thread's checkpoint valid after a run was interrupted in any
way. ``HealMiddleware`` and ``heal_hook`` heal what is sent to the model. ``Guard`` wraps a
checkpointer, ``Saver`` is one, and ``migrate`` copies the threads of LangGraph's own savers into
it. Each name is loaded on first use, so a missing package matters only then.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstitch.integrations.langgraph.guard import Guard
    from lockstitch.integrations.langgraph.guarded_runs import Fork
    from lockstitch.integrations.langgraph.hooks import heal_hook
    from lockstitch.integrations.langgraph.middleware import HealMiddleware
    from lockstitch.integrations.langgraph.migration import Migrated, Migration, migrate
    from lockstitch.integrations.langgraph.reconciler import areconcile, reconcile
    from lockstitch.integrations.langgraph.report import Counters, Reconciled, ReconciledChannel
    from lockstitch.integrations.langgraph.saver import Saver

__all__ = [
    "Counters",
    "Fork",
    "Guard",
    "HealMiddleware",
    "Migrated",
    "Migration",
    "Reconciled",
    "ReconciledChannel",
    "Saver",
    "areconcile",
    "heal_hook",
    "migrate",
    "reconcile",
]
_HOMES = {
    "Counters": "report",
    "Fork": "guarded_runs",
    "Guard": "guard",
    "HealMiddleware": "middleware",
    "Migrated": "migration",
    "Migration": "migration",
    "Reconciled": "report",
    "ReconciledChannel": "report",
    "Saver": "saver",
    "areconcile": "reconciler",
    "heal_hook": "hooks",
    "migrate": "migration",
    "reconcile": "reconciler",
}
_NEEDS = {
    "langchain": "HealMiddleware needs LangChain: pip install 'lockstitch[langgraph]' langchain",
    "langgraph": "this needs LangGraph: pip install 'lockstitch[langgraph]'",
    "langchain_core": "this needs LangGraph: pip install 'lockstitch[langgraph]'",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        text = _NEEDS.get((error.name or "").partition(".")[0])
        if text is None:
            raise
        raise ImportError(text, name=error.name) from error
    return getattr(home, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
