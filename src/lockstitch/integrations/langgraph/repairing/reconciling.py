"""A checkpoint made valid, and equal to the conversation that an application holds.

One function for every way in which a run can end early: a cancelled task, an interrupt from the
keyboard, a killed process, a stream nobody read to its end, in a chat or in a command. What is
read and written is said by one generator, which the two functions drive, one waiting, one async.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lockstitch.integrations.langgraph.guarding.looking import eyes_of
from lockstitch.integrations.langgraph.repairing.reconciler import (
    Ask,
    Histories,
    Load,
    Reconciler,
    Store,
)

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from lockstitch.integrations.langgraph.repairing.report import Reconciled


def reconcile(
    graph_or_saver: Any,
    config: RunnableConfig,
    messages: Sequence[Any] | None = None,
    force_cleanup: bool = False,
    channel: str | None = None,
) -> Reconciled:
    """Make a thread's checkpoint valid, as a new checkpoint behind it, and report.

    ``messages`` is the conversation that the application holds, if the checkpoint is to equal
    it; the report's ``messages`` are what it should hold from now on. Results of tools that had
    finished come from the pending writes. A thread that waits for a person is left alone, unless
    ``force_cleanup`` closes the question. If nothing is wrong, nothing is written. Call it when
    no run of the thread is under way.

    With a graph, what finished tasks wrote to other channels is applied by the graph's reducers,
    and subgraphs that keep a history of their own are mended, too. ``channel`` names the channel
    of the conversation, where there are several.
    """
    task = Reconciler(graph_or_saver, config, channel=channel, force=force_cleanup)
    return carried_out(task, messages)


def carried_out(task: Reconciler, messages: Sequence[Any] | None = None) -> Reconciled:
    """Perform a reconciliation with the plain methods of its saver."""
    steps = task.steps(messages)
    try:
        ask = next(steps)
        while True:
            ask = steps.send(_answer(task.saver, ask))
    except StopIteration as done:
        report: Reconciled = done.value
        return report


async def areconcile(
    graph_or_saver: Any,
    config: RunnableConfig,
    messages: Sequence[Any] | None = None,
    force_cleanup: bool = False,
    channel: str | None = None,
) -> Reconciled:
    """Do what ``reconcile`` does, in an event loop; savers that only block run in a thread."""
    task = Reconciler(graph_or_saver, config, channel=channel, force=force_cleanup)
    steps = task.steps(messages)
    try:
        ask = next(steps)
        while True:
            ask = steps.send(await _async_answer(task.saver, ask))
    except StopIteration as done:
        report: Reconciled = done.value
        return report


def _answer(saver: BaseCheckpointSaver[Any], ask: Ask) -> Any:
    if isinstance(ask, Load):
        return saver.get_tuple(ask.config)
    if isinstance(ask, Histories):
        return saver.get_delta_channel_history(config=ask.config, channels=ask.channels)
    if isinstance(ask, Store):
        return saver.put(ask.config, ask.checkpoint, ask.metadata, ask.new_versions)
    return list(eyes_of(saver).list(ask.config, limit=ask.limit))


async def _async_answer(saver: BaseCheckpointSaver[Any], ask: Ask) -> Any:
    try:
        if isinstance(ask, Load):
            return await saver.aget_tuple(ask.config)
        if isinstance(ask, Histories):
            return await saver.aget_delta_channel_history(config=ask.config, channels=ask.channels)
        if isinstance(ask, Store):
            return await saver.aput(ask.config, ask.checkpoint, ask.metadata, ask.new_versions)
        return [found async for found in eyes_of(saver).alist(ask.config, limit=ask.limit)]
    except NotImplementedError:
        return await asyncio.to_thread(_answer, saver, ask)
