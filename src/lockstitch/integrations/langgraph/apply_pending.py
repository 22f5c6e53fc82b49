"""A graph's own reducers, tried on a copy: finished tasks count, the rest is dropped.

LangGraph can do that by itself (``update_state(config, None, as_node=END)``), but it stores every
step of it, under an id of the moment. Here it works on a checkpointer in memory that holds one
checkpoint, so that the outcome can be healed and stored as one.
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

from lockstitch.formats.langgraph.snapshot import COUNTERS, INTERRUPT, START
from lockstitch.integrations.langgraph import pending_writes
from lockstitch.integrations.langgraph.checkpoint_repair import AppliedPending

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

_LOG = logging.getLogger("lockstitch.langgraph")
_LENT = "__pregel_checkpointer"
_MOST_STEPS = 8
DeltaHistories = Mapping[str, Mapping[str, Any]]


class CheckpointCopy(BaseCheckpointSaver[Any]):
    """A checkpointer in memory that begins with one checkpoint of another one."""

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
                writes = list(found.pending_writes or ())
                return CheckpointTuple(
                    found.config,
                    _copy_checkpoint(found.checkpoint),
                    found.metadata,
                    found.parent_config,
                    writes,
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
        return {name: self._behind(name, history) for name, history in own.items()}

    def _behind(self, name: str, history: Any) -> Any:
        """Put what came before the first checkpoint in front, if nothing since has it whole."""
        if "seed" in history or name not in self.histories:
            return history
        before = self.histories[name]
        return {**before, "writes": [*before["writes"], *history["writes"]]}


def unfinished_tasks(
    graph: Any, saved: CheckpointTuple, real: BaseCheckpointSaver[Any], histories: DeltaHistories
) -> list[tuple[str, str]]:
    """Give the node and the id of every task of a checkpoint that has returned nothing."""
    stage = CheckpointCopy(saved, real, histories)
    returned = {task for task, _, _ in pending_writes.finished_writes(saved)}
    try:
        found = graph.get_state(_config(stage)).tasks
    except Exception as error:  # noqa: BLE001 - the graph's own code, and any version of it
        _LOG.warning("the tasks of the checkpoint cannot be told: %s", type(error).__name__)
        return []
    return [(task.name, task.id) for task in found if task.id not in returned]


def apply_pending(
    graph: Any,
    saved: CheckpointTuple,
    real: BaseCheckpointSaver[Any],
    histories: DeltaHistories,
    brought: Sequence[tuple[str, dict[str, Any]]] = (),
) -> AppliedPending | None:
    """Give what a graph makes of a checkpoint; None if the graph as it is now cannot take it.

    ``brought`` is what nodes that have not finished are to be taken to have returned.
    """
    stage = CheckpointCopy(
        saved._replace(pending_writes=list(saved.pending_writes or ())), real, histories
    )
    deltas = frozenset(k for k, v in graph.channels.items() if type(v).__name__ == "DeltaChannel")
    try:
        first = graph.get_state(_config(stage))
        due = first.next
        paused = bool(due) and _stops_at(graph, saved, due)
        closes = paused or bool(pending_writes.asking_tasks(saved))
        due = _play(graph, stage, due, closes=closes or bool(brought))
        if brought:
            updates = [StateUpdate(values, node) for node, values in brought]
            graph.bulk_update_state(_config(stage), [updates])
            due = () if closes else _next_of(graph, stage)
        values = graph.get_state(_config(stage)).values
    except Exception as error:  # noqa: BLE001 - the graph's own code, and any version of it
        _LOG.warning(
            "the graph cannot take up its own checkpoint (%s): only its messages are mended, and "
            "its breakpoints are not known",
            type(error).__name__,
        )
        return None
    last = stage.line[-1]
    whole = {**_unwrapped_values(last.checkpoint), **_by_channel(values)}
    held = {**_unwrapped_values(saved.checkpoint), **_by_channel(first.values)}
    checkpoint, metadata = _stored_whole(saved, last, whole, deltas)
    return AppliedPending(checkpoint, metadata, whole, held, deltas, due, paused)


def _by_channel(values: Any) -> dict[str, Any]:
    return values if isinstance(values, dict) else {"__root__": values}


def _unwrapped_values(checkpoint: Checkpoint) -> dict[str, Any]:
    found: Mapping[str, Any] = checkpoint["channel_values"]
    return {name: pending_writes.unwrap(value) for name, value in found.items()}


def _play(
    graph: Any, stage: CheckpointCopy, due: tuple[str, ...], *, closes: bool
) -> tuple[str, ...]:
    """Take up an input that was not taken up, apply what is finished, and drop the rest.

    Gives the nodes that are due then: what comes behind finished tools, or behind those that are
    dropped because their calls get an answer, or what was due and has nothing to do with calls.
    With ``closes`` nothing that waits for a person stays due.
    """
    saved = stage.saved
    begun = saved.checkpoint["channel_values"].get(START)
    has_writes = bool(pending_writes.finished_writes(saved) or pending_writes.command_writes(saved))
    if begun is not None and not pending_writes.finished_writes(saved):
        graph.update_state(_config(stage), begun, as_node=START)
        due, has_writes = _next_of(graph, stage), False
    dropped: tuple[str, ...] = ()
    for _ in range(_MOST_STEPS):
        if not (due or stage.line[-1].pending_writes):
            return _behind(graph, stage, dropped)
        values = _values_of(graph, stage)
        if not (has_writes or closes or pending_writes.ends_with_calls(values)):
            return due
        asked = _open_calls(values)
        graph.update_state(_config(stage), None, as_node=END)
        dropped, due = due, _next_of(graph, stage)
        has_writes = not _open_calls(_values_of(graph, stage)) <= asked
        if due and not has_writes and not closes:
            return due
    return ()


def _behind(graph: Any, stage: CheckpointCopy, dropped: tuple[str, ...]) -> tuple[str, ...]:
    """Make due what comes behind a node whose tasks were dropped; nothing if it cannot be told."""
    if len(set(dropped)) != 1:
        return ()
    length = len(stage.line)
    try:
        graph.update_state(_config(stage), None, as_node=dropped[0])
        due = _next_of(graph, stage)
    except Exception as error:  # noqa: BLE001 - the graph's own routing, on a turn that has no end
        _LOG.info("what comes behind %r cannot be told: %s", dropped[0], type(error).__name__)
        due = ()
    if not due or dropped[0] in due:
        del stage.line[length:]
        return ()
    return due


def _values_of(graph: Any, stage: CheckpointCopy) -> dict[str, Any]:
    return _by_channel(graph.get_state(_config(stage)).values)


def _open_calls(values: Mapping[str, Any]) -> set[pending_writes.AskedCall]:
    names = pending_writes.message_channels(values)
    return {asked for name in names for asked in pending_writes.unanswered(values[name])}


def _next_of(graph: Any, stage: CheckpointCopy) -> tuple[str, ...]:
    found: tuple[str, ...] = graph.get_state(_config(stage)).next
    return found


def _config(stage: CheckpointCopy) -> RunnableConfig:
    return {"configurable": {**stage.line[-1].config["configurable"], _LENT: stage}}


def _stops_at(graph: Any, saved: CheckpointTuple, due: Sequence[str]) -> bool:
    """Tell whether a graph stops at this checkpoint to let a person look."""
    if pending_writes.has_run(saved) or not _is_news(saved):
        return False
    before, after = graph.interrupt_before_nodes, graph.interrupt_after_nodes
    return _names(before, due) or _names(after, _last_of(saved))


def _names(listed: str | Sequence[str], nodes: Sequence[str]) -> bool:
    return bool(nodes) if listed == "*" else not set(listed).isdisjoint(nodes)


def _is_news(saved: CheckpointTuple) -> bool:
    seen = saved.checkpoint["versions_seen"].get(INTERRUPT, {})
    versions: Mapping[str, Any] = saved.checkpoint["channel_versions"]
    return any(name not in seen or version > seen[name] for name, version in versions.items())


def _last_of(saved: CheckpointTuple) -> list[str]:
    """Give the nodes that ran last: those that have seen the latest version."""
    seen = saved.checkpoint["versions_seen"]
    latest = {
        node: max(found.values())
        for node, found in seen.items()
        if found and not node.startswith("__")
    }
    return [node for node, version in latest.items() if version == max(latest.values())]


def _copy_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    """Copy what LangGraph changes in place when it applies writes."""
    seen = {node: dict(found) for node, found in checkpoint["versions_seen"].items()}
    own = {
        "channel_values": dict(checkpoint["channel_values"]),
        "channel_versions": dict(checkpoint["channel_versions"]),
        "versions_seen": seen,
    }
    return cast("Checkpoint", {**checkpoint, **own})


def _stored_whole(
    saved: CheckpointTuple,
    last: CheckpointTuple,
    values: Mapping[str, Any],
    deltas: frozenset[str],
) -> tuple[Checkpoint, Any]:
    """Store the channels whole that otherwise would need the steps in between, which go."""
    checkpoint = _copy_checkpoint(last.checkpoint)
    old = saved.checkpoint["channel_versions"]
    written = {name for _, name, _ in saved.pending_writes or ()}
    whole = {
        name
        for name in deltas & values.keys() & checkpoint["channel_versions"].keys()
        if name in written or checkpoint["channel_versions"][name] != old.get(name)
    }
    for name in whole:
        checkpoint["channel_values"][name] = _DeltaSnapshot(values[name])
    known = pending_writes.counters(last.metadata)
    rest = {name: count for name, count in known.items() if name not in whole}
    return checkpoint, {**last.metadata, COUNTERS: rest}
