"""What a guard does at the load of a run that brings something new: the reconciliation, guarded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from lockstitch.integrations.langgraph.guarding.claims import stripped
from lockstitch.integrations.langgraph.guarding.steps import History, Latest, Put, Read, Steps
from lockstitch.integrations.langgraph.lineage import Place, place_of
from lockstitch.integrations.langgraph.repairing.reconciler import (
    Ask,
    Histories,
    Load,
    Reconciler,
    Store,
)

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple

    from lockstitch.integrations.langgraph.repairing.report import Reconciled

_LOW = (1 << 62) - 1

Storing = Callable[[Place, Put], Steps["RunnableConfig"]]


def reconciled(task: Reconciler, loaded: CheckpointTuple, store: Storing) -> Steps[Reconciled]:
    """Reconcile a thread whose head is loaded already; ``store`` puts what comes out of it."""
    steps = task.steps(None)
    place = place_of(loaded.config)
    try:
        ask = next(steps)
        while True:
            if isinstance(ask, Load) and place_of(ask.config) in {place, place.at(None)}:
                ask = steps.send(stripped(loaded))
            else:
                ask = steps.send((yield from _answer(ask, store)))
    except StopIteration as done:
        report: Reconciled = done.value
        return report


def _answer(ask: Ask, store: Storing) -> Steps[Any]:
    if isinstance(ask, Load):
        saved: CheckpointTuple | None = yield Read(ask.config)
        return stripped(saved) if saved else None
    if isinstance(ask, Histories):
        return (yield History(ask.config, ask.channels))
    if isinstance(ask, Store):
        ask.checkpoint["id"] = _own(ask.checkpoint["id"])
        step = Put(ask.config, ask.checkpoint, ask.metadata, ask.new_versions)
        return (yield from store(place_of(ask.config), step))
    return (yield Latest(ask.config, ask.limit))


def _own(checkpoint: str) -> str:
    """Make the id behind a head one's own: two that settle one head must not write one row."""
    try:
        number = UUID(checkpoint).int
    except ValueError:
        return checkpoint
    return str(UUID(int=number & ~_LOW | uuid4().int & _LOW))
