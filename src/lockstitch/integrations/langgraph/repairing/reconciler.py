"""The steps of a reconciliation, without any reading or writing of its own."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    empty_checkpoint,
)
from msgspec import Struct

from lockstitch.errors import UsageError
from lockstitch.formats.langgraph.naming import MESSAGES, PREVIOUS, successor
from lockstitch.integrations.langgraph.repairing import pending
from lockstitch.integrations.langgraph.repairing.rehearsal import rehearsed, unfinished_tasks
from lockstitch.integrations.langgraph.repairing.report import Reconciled
from lockstitch.integrations.langgraph.repairing.settling import (
    HIDDEN_RESULT,
    Settled,
    Settling,
    broken,
)

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

_LOG = logging.getLogger("lockstitch.langgraph")
_PARTS = "|"
_TASK = ":"
_RECENT = 1000
_FURTHEST = 100


class Load(Struct):
    """Asks for a checkpoint: the one that is named, or the last."""

    config: RunnableConfig


class Histories(Struct):
    """Asks for what is needed to compute channels that store only changes."""

    config: RunnableConfig
    channels: list[str]


class Latest(Struct):
    """Asks for the last checkpoints of all namespaces of a thread."""

    config: RunnableConfig
    limit: int


class Store(Struct):
    """Asks to put a checkpoint."""

    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    new_versions: Any


Ask = Load | Histories | Latest | Store
Steps = Generator[Ask, Any, Reconciled]


class Reconciler:
    """One thread and its checkpointer, with the graph if it was given."""

    def __init__(
        self,
        graph_or_saver: Any,
        config: RunnableConfig,
        *,
        channel: str | None,
        force: bool,
        saver: BaseCheckpointSaver[Any] | None = None,
    ) -> None:
        self.config = _addressed(config)
        self.channel = channel
        self.force = force
        self.graph: Any = None
        if isinstance(graph_or_saver, BaseCheckpointSaver):
            self.saver: BaseCheckpointSaver[Any] = graph_or_saver
        else:
            self.graph = _checked_graph(graph_or_saver)
            self.saver = saver or _saver_of(graph_or_saver, config)

    def steps(self, messages: Sequence[Any] | None) -> Steps:
        """Mend the namespace that was named, and then those of its subgraphs.

        Subgraphs stay as they are where the graph waits for a person, or a checkpoint of the past
        is named: they go on from there.
        """
        _check_messages(messages)
        if self.channel is not None:
            _check_channel(self.graph, self.channel)
        space = self.config["configurable"]["checkpoint_ns"]
        report = yield from self._mended(self.config, self._graph_at(space), messages)
        if report is None:
            return Reconciled()
        for finding in report.findings if self.force else ():
            if finding.code == HIDDEN_RESULT and not finding.fixable:
                thread = self.config["configurable"]["thread_id"]
                _LOG.warning("thread %r: %s", thread, finding.message)
        is_past = bool(self.config["configurable"].get("checkpoint_id"))
        if space or is_past or (report.waiting and not self.force):
            return report
        for below in (yield from self._spaces(report)):
            found = yield from self._mended(_at(self.config, below), self._graph_at(below), None)
            if found is not None:
                report.subgraphs.append(found)
        return report

    def _mended(
        self, config: RunnableConfig, graph: Any, messages: Sequence[Any] | None
    ) -> Generator[Ask, Any, Reconciled | None]:
        saved: CheckpointTuple | None = yield Load(config)
        if saved is None:
            if messages is None:
                return None
            return (yield from self._begun(config, messages))
        if config["configurable"].get("checkpoint_id"):
            saved = yield from self._latest_repair(config, saved)
        delta = yield from self._delta(saved, graph)
        if isinstance(delta, Reconciled):
            return delta
        task = Settling(
            saved,
            self.saver.get_next_version,
            delta=delta,
            channel=self.channel,
            workflow=None if graph is None else PREVIOUS in graph.channels,
        )
        if messages is not None:
            _check_channel(graph, task.main or MESSAGES)
        # A run that goes on from a checkpoint of the past has its subgraphs begin anew.
        if not config["configurable"].get("checkpoint_id"):
            yield from self._bring(task, config, graph)
        if graph is not None and not task.is_workflow and pending.is_busy(saved, delta):
            task.apply(rehearsed(graph, task.saved, self.saver, delta, task.brought))
        yield from self._look_back(task)
        settled = task.settled(messages, force=self.force)
        if settled is None:
            return task.report
        return (yield from self._stored(_merged(config, saved), settled))

    def _bring(
        self, task: Settling, config: RunnableConfig, graph: Any
    ) -> Generator[Ask, Any, None]:
        """Bring what unfinished subgraphs of single calls have into the conversations above them.

        Those that are at work below a checkpoint that waits for a person go on from there.
        """
        waits = bool(pending.asked(task.saved)) and not self.force
        if task.is_workflow or waits or not pending.triggers(task.stored):
            return
        for node, space in (yield from self._unfinished(task, config, graph)):
            place = _at(config, space)
            saved: CheckpointTuple | None = yield Load(place)
            if saved is None:
                continue
            below = self._graph_at(space)
            delta = yield from self._delta(saved, below)
            if isinstance(delta, Reconciled):
                continue
            child = Settling(
                saved,
                self.saver.get_next_version,
                delta=delta,
                workflow=None if below is None else PREVIOUS in below.channels,
            )
            yield from self._bring(child, place, below)
            if below is not None and not child.is_workflow and pending.is_busy(saved, delta):
                child.apply(rehearsed(below, child.saved, self.saver, delta, child.brought))
            child.open_calls()
            for one in child.channels.values():
                one.line_up()
            given = yield from self._given(child)
            task.bring(node, space, child, given)

    def _unfinished(
        self, task: Settling, config: RunnableConfig, graph: Any
    ) -> Generator[Ask, Any, list[tuple[str, str]]]:
        """Give the node and the namespace of every unfinished task that may be a subgraph."""
        space = config["configurable"]["checkpoint_ns"]
        above = f"{space}{_PARTS}" if space else ""
        if graph is not None:
            tasks = unfinished_tasks(graph, task.saved, self.saver, task.delta)
            return [(node, f"{above}{node}{_TASK}{one}") for node, one in tasks]
        returned = {one for one, _, _ in task.finished}
        thread = {"thread_id": config["configurable"]["thread_id"]}
        found: dict[str, str] = {}
        for one in (yield Latest({"configurable": thread}, _RECENT)):
            name = one.config["configurable"].get("checkpoint_ns", "")
            node, is_task, number = name.removeprefix(above).partition(_TASK)
            is_below = name.startswith(above) and is_task and _PARTS not in number
            parents = one.metadata.get("parents") or {}
            of_head = parents.get(space) == task.saved.checkpoint["id"]
            if is_below and of_head and number not in returned:
                found[name] = node
        return [(node, name) for name, node in sorted(found.items())]

    def _given(self, child: Settling) -> Generator[Ask, Any, set[str | None]]:
        """Give the ids of the messages that a subgraph began with; none if that is not there."""
        found, seen = child.saved, 0
        while int(found.metadata.get("step", 0)) > 0 and seen < _FURTHEST:
            above: CheckpointTuple | None = None
            if found.parent_config is not None:
                above = yield Load(found.parent_config)
            if above is None:
                return set()
            found, seen = above, seen + 1
        values = found.checkpoint["channel_values"]
        names = pending.message_channels(values)
        return {message.id for name in names for message in pending.opened(values[name])}

    def _look_back(self, task: Settling) -> Generator[Ask, Any, None]:
        """Look beside the ancestors for results of calls that are open.

        A message that came after the interrupt has left them there: it made a new checkpoint.
        """
        calls, seen, above = task.open_calls(), {task.saved.checkpoint["id"]}, task.saved
        while calls and above.parent_config is not None and len(seen) < _FURTHEST:
            found: CheckpointTuple | None = yield Load(above.parent_config)
            if found is None or found.checkpoint["id"] in seen:
                return
            above = found
            seen.add(found.checkpoint["id"])
            task.take(found, calls)

    def _stored(self, config: RunnableConfig, settled: Settled) -> Steps:
        place = _of_no_run(config)
        after = yield Store(place, settled.checkpoint, settled.metadata, settled.new_versions)
        settled.report.after = after
        return settled.report

    def _begun(self, config: RunnableConfig, messages: Sequence[Any]) -> Steps:
        """Make the first checkpoint of a thread of which nothing was kept."""
        first = empty_checkpoint()
        channel = self.channel or MESSAGES
        _check_channel(self.graph, channel)
        nothing = cast("CheckpointMetadata", {"step": -2})
        saved = CheckpointTuple(config, first, nothing, None, [])
        deltas = set() if self.graph is None else _deltas_of(self.graph)
        history: dict[str, Any] = {channel: {"writes": []}} if channel in deltas else {}
        next_version = self.saver.get_next_version
        task = Settling(saved, next_version, delta=history, channel=channel)
        settled = task.settled(messages, force=self.force)
        task.report.before = None
        if settled is None:
            return task.report
        return (yield from self._stored(config, settled))

    def _latest_repair(
        self, config: RunnableConfig, saved: CheckpointTuple
    ) -> Generator[Ask, Any, CheckpointTuple]:
        """Go on to what an earlier call made of a checkpoint that is named."""
        while child := successor(saved.checkpoint["id"]):
            found: CheckpointTuple | None = yield Load(_merged(config, saved, child))
            made: Any = found.metadata.get("lockstitch") if found else None
            if found is None or not made or made.get("repaired") != saved.checkpoint["id"]:
                break
            saved = found
        return saved

    def _delta(
        self, saved: CheckpointTuple, graph: Any
    ) -> Generator[Ask, Any, dict[str, Any] | Reconciled]:
        """Read what channels that store only changes are computed from; or say what is lost."""
        wanted = pending.wanted_histories(saved, self.channel)
        if graph is not None:
            missing = _deltas_of(graph) - saved.checkpoint["channel_values"].keys()
            wanted += [
                n for n in missing & saved.checkpoint["channel_versions"].keys() if n not in wanted
            ]
        if not wanted:
            return {}
        found: dict[str, Any] = dict((yield Histories(saved.config, wanted)))
        counted = pending.counters(saved.metadata)
        for name, history in found.items():
            known = pending.replayed(history) or []
            if "seed" in history and name not in counted:
                return broken("LS903", name, "its value is gone", saved, known)
            if "seed" not in history and not (yield from self._reaches_root(saved)):
                return broken("LS904", name, "an ancestor is gone", saved, known)
        return found

    def _reaches_root(self, saved: CheckpointTuple) -> Generator[Ask, Any, bool]:
        """Tell whether all ancestors of a checkpoint are there."""
        found: CheckpointTuple | None = saved
        while found is not None and found.parent_config is not None:
            found = yield Load(found.parent_config)
        return found is not None

    def _spaces(self, report: Reconciled) -> Generator[Ask, Any, list[str]]:
        """Name the subgraphs of the thread that keep a history of their own.

        A graph does not know those that its nodes call by themselves: they are found in the
        thread. Before every new message that is too much, where nothing is wrong above them.
        """
        known = [] if self.graph is None else list(_subgraphs(self.graph))
        names = {name for name, below in known if below.checkpointer is True}
        if self.graph is None or not self.force or report.changed or report.next:
            place = {"thread_id": self.config["configurable"]["thread_id"]}
            recent = yield Latest({"configurable": place}, _RECENT)
            found = {one.config["configurable"].get("checkpoint_ns", "") for one in recent}
            names |= {name for name in found if name and _TASK not in name}
        return sorted(names)

    def _graph_at(self, space: str) -> Any:
        if self.graph is None or not space:
            return self.graph
        plain = _PARTS.join(part.split(_TASK)[0] for part in space.split(_PARTS))
        return next((below for name, below in _subgraphs(self.graph) if name == plain), None)


def _subgraphs(graph: Any) -> Iterator[tuple[str, Any]]:
    found: Iterator[tuple[str, Any]] = graph.get_subgraphs(recurse=True)
    return found


def _deltas_of(graph: Any) -> set[str]:
    channels = graph.channels.items()
    return {name for name, spec in channels if type(spec).__name__ == "DeltaChannel"}


def _addressed(config: RunnableConfig) -> RunnableConfig:
    given: object = config
    place = dict(config.get("configurable") or {}) if isinstance(given, dict) else {}
    if place.get("thread_id") is None:
        raise UsageError("the config names no thread: {'configurable': {'thread_id': …}}")
    place["thread_id"] = str(place["thread_id"])
    place.setdefault("checkpoint_ns", "")
    return cast("RunnableConfig", {**config, "configurable": place})


def _at(config: RunnableConfig, space: str) -> RunnableConfig:
    place = {k: v for k, v in config["configurable"].items() if k != "checkpoint_id"}
    made = {**config, "configurable": {**place, "checkpoint_ns": space}}
    return cast("RunnableConfig", made)


def _of_no_run(config: RunnableConfig) -> RunnableConfig:
    """Give a config without the run's id, which a saver would write into the checkpoint.

    A run that finds a checkpoint of its own takes whatever it is given for a resume.
    """
    parts: Any = {
        part: {name: one for name, one in config[part].items() if name != "run_id"}
        for part in ("configurable", "metadata")
        if part in config
    }
    return cast("RunnableConfig", {**config, **parts})


def _merged(
    config: RunnableConfig, saved: CheckpointTuple, checkpoint: str | None = None
) -> RunnableConfig:
    """Address a checkpoint as LangGraph does: all that the caller configured, and its place."""
    place = {**config["configurable"], **saved.config["configurable"]}
    place |= {"checkpoint_id": checkpoint or saved.checkpoint["id"]}
    return cast("RunnableConfig", {**config, "configurable": place})


def _checked_graph(graph: Any) -> Any:
    if not all(hasattr(graph, name) for name in ("get_state", "update_state", "channels")):
        raise UsageError("reconcile takes a compiled graph or a checkpointer")
    return graph


def _check_messages(messages: object) -> None:
    """Raise ``UsageError`` for what is no conversation: a text is a sequence, too."""
    is_list = isinstance(messages, Sequence) and not isinstance(messages, str | bytes)
    if messages is not None and not is_list:
        raise UsageError("messages is the list of messages that the application holds")


def _check_channel(graph: Any, channel: str) -> None:
    if graph is not None and channel not in graph.channels:
        raise UsageError(f"this graph has no channel {channel!r}: name its conversation's channel")


def _saver_of(graph: Any, config: RunnableConfig) -> BaseCheckpointSaver[Any]:
    """Find a graph's checkpointer, as the graph itself would: it may narrow what is loaded."""
    resolve = getattr(graph, "_resolve_checkpointer", None)
    found = graph.checkpointer if resolve is None else resolve(config)
    if not isinstance(found, BaseCheckpointSaver):
        raise UsageError("this graph has no checkpointer, so that there is nothing to reconcile")
    return found
