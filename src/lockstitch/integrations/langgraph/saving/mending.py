"""A run that brings a new message finds a valid conversation, whatever the last one left behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lockstitch.integrations.langgraph.caller import announcing
from lockstitch.integrations.langgraph.pending_writes import may_be_broken
from lockstitch.integrations.langgraph.reconciler import Reconciler, run_reconciler

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple

    from lockstitch.integrations.langgraph.report import Reconciled


def mended(saver: Any, graph: Any, saved: CheckpointTuple) -> Reconciled | None:
    """Reconcile a thread before a run begins on it with something new; None if all is well."""
    if not (may_be_broken(saved) or any(map(may_be_broken, _subgraphs(saver, saved)))):
        return None
    conf = saved.config["configurable"]
    names = ("thread_id", "checkpoint_ns")
    config: RunnableConfig = {"configurable": {name: conf[name] for name in names}}
    # LangGraph drops whatever waits for a person when something new is said.
    task = Reconciler(graph, config, channel=None, force=True, saver=saver)
    with announcing(None):
        report = run_reconciler(task)
    return report if report.changed else None


def _subgraphs(saver: Any, saved: CheckpointTuple) -> Iterator[CheckpointTuple]:
    """Give the heads of the subgraphs of a thread that keep a history of their own."""
    thread = saved.config["configurable"]["thread_id"]
    for name in saver.namespaces(thread):
        if name and ":" not in name:
            place = {"thread_id": thread, "checkpoint_ns": name}
            yield from saver.list({"configurable": place}, limit=1)
