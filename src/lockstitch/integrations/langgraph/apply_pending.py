"""Run a graph's own reducers on a copy of a checkpoint: finished tasks count, the rest is dropped.

LangGraph can do that itself (``update_state(config, None, as_node=END)``), but it stores every step
under a new id. Here it works on a checkpointer in memory that holds one checkpoint, so that the
outcome can be repaired and stored as a single checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import END
from langgraph.types import StateUpdate

from lockstitch.formats.langgraph.decisions import count_steps
from lockstitch.formats.langgraph.snapshot import INTERRUPT, START
from lockstitch.integrations.langgraph import pending_writes
from lockstitch.integrations.langgraph.checkpoint_repair import AppliedPending

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

_LOG = logging.getLogger("lockstitch.langgraph")
_CHECKPOINTER = "__pregel_checkpointer"
_MOST_STEPS = 8
DeltaHistories = Mapping[str, Mapping[str, Any]]


class CheckpointCopy(BaseCheckpointSaver[Any]):
    """A checkpointer in memory that starts with one checkpoint of another checkpointer."""

    def __init__(
        self, saved: CheckpointTuple, real: BaseCheckpointSaver[Any], histories: DeltaHistories
    ) -> None:
        super().__init__(serde=real.serde)
        self.saved = saved
        self.real = real
        self.histories = histories
        self.line = [saved]

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        wanted = config["configurable"].get("checkpoint_id")
        for found in reversed(self.line):
            if not wanted or found.checkpoint["id"] == wanted:
                own = _copy_checkpoint(found.checkpoint)
                writes = list(found.pending_writes or ())
                return CheckpointTuple(
                    found.config, own, found.metadata, found.parent_config, writes
                )
        return None

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: Any, new_versions: Any
    ) -> RunnableConfig:
        place = {**config["configurable"], "checkpoint_id": checkpoint["id"]}
        made: RunnableConfig = {"configurable": place}
        self.line.append(CheckpointTuple(made, checkpoint, metadata, config, []))
        return made

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        for found in self.line:
            if found.checkpoint["id"] == config["configurable"].get("checkpoint_id"):
                new = [(task_id, channel, value) for channel, value in writes]
                cast("list[Any]", found.pending_writes).extend(new)

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.real.get_next_version(current, channel)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        if config["configurable"].get("checkpoint_id") == self.saved.checkpoint["id"]:
            return {name: self.histories.get(name, {"writes": []}) for name in channels}
        own = super().get_delta_channel_history(config=config, channels=channels)
        found: dict[str, Any] = dict(own)
        for name, history in own.items():
            # The history from before the first checkpoint comes first, unless a later one has the
            # whole value.
            if "seed" not in history and name in self.histories:
                before = self.histories[name]
                found[name] = {**before, "writes": [*before["writes"], *history["writes"]]}
        return found

    @property
    def config(self) -> RunnableConfig:
        """The config that makes a graph work on the last checkpoint here."""
        return {"configurable": {**self.line[-1].config["configurable"], _CHECKPOINTER: self}}


def unfinished_tasks(
    graph: Any, saved: CheckpointTuple, real: BaseCheckpointSaver[Any], histories: DeltaHistories
) -> list[tuple[str, str]]:
    """Return the node and the id of every task of a checkpoint that has not returned anything."""
    returned = {task for task, _, _ in pending_writes.work_on(saved).returned}
    try:
        found = graph.get_state(CheckpointCopy(saved, real, histories).config).tasks
    except Exception as error:  # noqa: BLE001 - the graph's own code, and any version of it
        _LOG.warning(
            "the tasks of the checkpoint are not known: the graph raised %s", type(error).__name__
        )
        return []
    return [(task.name, task.id) for task in found if task.id not in returned]


def apply_pending(
    graph: Any,
    saved: CheckpointTuple,
    real: BaseCheckpointSaver[Any],
    histories: DeltaHistories,
    brought: Sequence[tuple[str, dict[str, Any]]] = (),
) -> AppliedPending | None:
    """Return what a graph makes of a checkpoint; None if the graph, as it is now, cannot read it.

    ``brought`` is what to assume that unfinished nodes have returned.
    """
    own = saved._replace(pending_writes=list(saved.pending_writes or ()))
    stage = CheckpointCopy(own, real, histories)
    deltas = frozenset(pending_writes.delta_channels(graph))
    try:
        first = graph.get_state(stage.config)
        due: tuple[str, ...] = first.next
        paused = bool(due) and _is_at_breakpoint(graph, saved, due)
        closes = paused or bool(pending_writes.work_on(saved).asking)
        due = _apply_finished(graph, stage, due, closes=closes or bool(brought))
        if brought:
            updates = [StateUpdate(values, node) for node, values in brought]
            graph.bulk_update_state(stage.config, [updates])
            due = () if closes else graph.get_state(stage.config).next
        values = _values_of(graph, stage)
    except Exception as error:  # noqa: BLE001 - the graph's own code, and any version of it
        _LOG.warning(
            "the graph cannot process its own checkpoint (%s): only its messages are repaired, "
            "and its breakpoints are not known",
            type(error).__name__,
        )
        return None
    last = stage.line[-1]
    whole, held = (
        {name: pending_writes.unwrap(value) for name, value in one["channel_values"].items()}
        for one in (last.checkpoint, saved.checkpoint)
    )
    whole |= values
    held |= first.values if isinstance(first.values, dict) else {"__root__": first.values}
    # Store these channels whole: otherwise they need the intermediate steps, which are dropped.
    checkpoint = _copy_checkpoint(last.checkpoint)
    versions, old = checkpoint["channel_versions"], saved.checkpoint["channel_versions"]
    written = {name for _, name, _ in saved.pending_writes or ()}
    changed = {
        name
        for name in deltas & whole.keys() & versions.keys()
        if name in written or versions[name] != old.get(name)
    }
    for name in changed:
        checkpoint["channel_values"][name] = _DeltaSnapshot(whole[name])
    counters = count_steps(pending_writes.counters(last.metadata), 0, changed)
    return AppliedPending(checkpoint, counters, whole, held, deltas, due, paused)


def _apply_finished(
    graph: Any, stage: CheckpointCopy, due: tuple[str, ...], *, closes: bool
) -> tuple[str, ...]:
    """Take up a pending input, apply the finished tasks, and drop the rest.

    Returns the nodes that are due then. These follow finished tools, or tools that are dropped
    because their calls get an answer, or they were due already and have nothing to do with calls.
    With ``closes`` no node that waits for a person stays due.
    """
    saved = stage.saved
    begun = saved.checkpoint["channel_values"].get(START)
    work = pending_writes.work_on(saved)
    has_writes = bool(work.returned or work.commands)
    if begun is not None and not work.returned:
        graph.update_state(stage.config, begun, as_node=START)
        due, has_writes = graph.get_state(stage.config).next, False
    dropped: tuple[str, ...] = ()
    for _ in range(_MOST_STEPS):
        if not (due or stage.line[-1].pending_writes):
            return _due_behind(graph, stage, dropped)
        values = _values_of(graph, stage)
        if not (has_writes or closes or pending_writes.ends_with_calls(values)):
            return due
        asked = _open_calls(values)
        graph.update_state(stage.config, None, as_node=END)
        dropped, due = due, graph.get_state(stage.config).next
        has_writes = not _open_calls(_values_of(graph, stage)) <= asked
        if due and not has_writes and not closes:
            return due
    return ()


def _due_behind(graph: Any, stage: CheckpointCopy, dropped: tuple[str, ...]) -> tuple[str, ...]:
    """Make the nodes due that follow a node with dropped tasks, as far as that is known."""
    if len(set(dropped)) != 1:
        return ()
    length = len(stage.line)
    due: tuple[str, ...] = ()
    try:
        graph.update_state(stage.config, None, as_node=dropped[0])
        due = graph.get_state(stage.config).next
    except Exception as error:  # noqa: BLE001 - the graph's own routing, on a turn that has no end
        _LOG.info(
            "what follows %r is not known: the graph raised %s",
            dropped[0],
            type(error).__name__,
        )
    if not due or dropped[0] in due:
        del stage.line[length:]
        return ()
    return due


def _values_of(graph: Any, stage: CheckpointCopy) -> dict[str, Any]:
    values = graph.get_state(stage.config).values
    return values if isinstance(values, dict) else {"__root__": values}


def _open_calls(values: Mapping[str, Any]) -> set[pending_writes.AskedCall]:
    names = pending_writes.message_channels(values)
    return {asked for name in names for asked in pending_writes.unanswered(values[name])}


def _is_at_breakpoint(graph: Any, saved: CheckpointTuple, due: Sequence[str]) -> bool:
    """Whether a graph stops at this checkpoint so that a person can look."""
    seen = saved.checkpoint["versions_seen"]
    looked = seen.get(INTERRUPT, {})
    versions: Mapping[str, Any] = saved.checkpoint["channel_versions"]
    is_new = any(name not in looked or one > looked[name] for name, one in versions.items())
    if pending_writes.work_on(saved).has_run or not is_new:
        return False
    # The nodes that ran last are those that have seen the latest version.
    latest = {
        node: max(found.values())
        for node, found in seen.items()
        if found and not node.startswith("__")
    }
    last = [node for node, version in latest.items() if version == max(latest.values())]
    stops = ((graph.interrupt_before_nodes, due), (graph.interrupt_after_nodes, last))
    return any(
        bool(nodes) if listed == "*" else not set(listed).isdisjoint(nodes)
        for listed, nodes in stops
    )


def _copy_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    """Return a copy of the parts that LangGraph changes in place when it applies writes."""
    own = {
        "channel_values": dict(checkpoint["channel_values"]),
        "channel_versions": dict(checkpoint["channel_versions"]),
        "versions_seen": {node: dict(one) for node, one in checkpoint["versions_seen"].items()},
    }
    return cast("Checkpoint", {**checkpoint, **own})
