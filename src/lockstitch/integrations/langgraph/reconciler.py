"""A checkpoint made valid, and equal to the conversation that an application holds.

One function for every way in which a run can end early: a cancelled task, an interrupt from the
keyboard, a killed process, a stream nobody read to its end, in a chat or in a command. What is
read and written is said by one generator, which the two functions drive, one waiting, one async.

The steps of a reconciliation, without any reading or writing of its own.

What a guard does at the load of a run that brings something new: the reconciliation, guarded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID, uuid4

from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    empty_checkpoint,
)
from msgspec import Struct

from lockstitch.errors import UsageError
from lockstitch.formats.langgraph.snapshot import MESSAGES, PREVIOUS, successor
from lockstitch.integrations.langgraph import pending_writes
from lockstitch.integrations.langgraph.apply_pending import apply_pending, unfinished_tasks
from lockstitch.integrations.langgraph.checkpoint_repair import (
    HIDDEN_RESULT,
    CheckpointRepair,
    NewCheckpoint,
    report_broken,
)
from lockstitch.integrations.langgraph.optimistic_lock import strip
from lockstitch.integrations.langgraph.report import Reconciled
from lockstitch.integrations.langgraph.run_ids import ThreadPlace, place_of
from lockstitch.integrations.langgraph.saver_steps import (
    ListLatest,
    PutCheckpoint,
    ReadCheckpoint,
    ReadDeltas,
    Steps,
    header_reader,
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
Asks = Generator[Ask, Any, Reconciled]


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
        self.config = _with_address(config)
        self.channel = channel
        self.force = force
        self.graph: Any = None
        if isinstance(graph_or_saver, BaseCheckpointSaver):
            self.saver: BaseCheckpointSaver[Any] = graph_or_saver
        else:
            self.graph = _checked_graph(graph_or_saver)
            self.saver = saver or _saver_of(graph_or_saver, config)

    def steps(self, messages: Sequence[Any] | None) -> Asks:
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
        task = CheckpointRepair(
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
        if graph is not None and not task.is_workflow and pending_writes.is_busy(saved, delta):
            task.apply(apply_pending(graph, task.saved, self.saver, delta, task.brought))
        yield from self._look_back(task)
        settled = task.settled(messages, force=self.force)
        if settled is None:
            return task.report
        return (yield from self._stored(_address(config, saved), settled))

    def _bring(
        self, task: CheckpointRepair, config: RunnableConfig, graph: Any
    ) -> Generator[Ask, Any, None]:
        """Bring what unfinished subgraphs of single calls have into the conversations above them.

        Those that are at work below a checkpoint that waits for a person go on from there.
        """
        waits = bool(pending_writes.asking_tasks(task.saved)) and not self.force
        if task.is_workflow or waits or not pending_writes.triggers(task.stored):
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
            child = CheckpointRepair(
                saved,
                self.saver.get_next_version,
                delta=delta,
                workflow=None if below is None else PREVIOUS in below.channels,
            )
            yield from self._bring(child, place, below)
            if below is not None and not child.is_workflow and pending_writes.is_busy(saved, delta):
                child.apply(apply_pending(below, child.saved, self.saver, delta, child.brought))
            child.open_calls()
            for one in child.channels.values():
                one.line_up()
            given = yield from self._given(child)
            task.bring(node, space, child, given)

    def _unfinished(
        self, task: CheckpointRepair, config: RunnableConfig, graph: Any
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

    def _given(self, child: CheckpointRepair) -> Generator[Ask, Any, set[str | None]]:
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
        names = pending_writes.message_channels(values)
        return {message.id for name in names for message in pending_writes.unwrap(values[name])}

    def _look_back(self, task: CheckpointRepair) -> Generator[Ask, Any, None]:
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

    def _stored(self, config: RunnableConfig, settled: NewCheckpoint) -> Asks:
        place = _without_run(config)
        after = yield Store(place, settled.checkpoint, settled.metadata, settled.new_versions)
        settled.report.after = after
        return settled.report

    def _begun(self, config: RunnableConfig, messages: Sequence[Any]) -> Asks:
        """Make the first checkpoint of a thread of which nothing was kept."""
        first = empty_checkpoint()
        channel = self.channel or MESSAGES
        _check_channel(self.graph, channel)
        nothing = cast("CheckpointMetadata", {"step": -2})
        saved = CheckpointTuple(config, first, nothing, None, [])
        deltas = set() if self.graph is None else _deltas_of(self.graph)
        history: dict[str, Any] = {channel: {"writes": []}} if channel in deltas else {}
        next_version = self.saver.get_next_version
        task = CheckpointRepair(saved, next_version, delta=history, channel=channel)
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
            found: CheckpointTuple | None = yield Load(_address(config, saved, child))
            made: Any = found.metadata.get("lockstitch") if found else None
            if found is None or not made or made.get("repaired") != saved.checkpoint["id"]:
                break
            saved = found
        return saved

    def _delta(
        self, saved: CheckpointTuple, graph: Any
    ) -> Generator[Ask, Any, dict[str, Any] | Reconciled]:
        """Read what channels that store only changes are computed from; or say what is lost."""
        wanted = pending_writes.wanted_histories(saved, self.channel)
        if graph is not None:
            missing = _deltas_of(graph) - saved.checkpoint["channel_values"].keys()
            wanted += [
                n for n in missing & saved.checkpoint["channel_versions"].keys() if n not in wanted
            ]
        if not wanted:
            return {}
        found: dict[str, Any] = dict((yield Histories(saved.config, wanted)))
        counted = pending_writes.counters(saved.metadata)
        for name, history in found.items():
            known = pending_writes.replay(history) or []
            if "seed" in history and name not in counted:
                return report_broken("LS903", name, "its value is gone", saved, known)
            if "seed" not in history and not (yield from self._reaches_root(saved)):
                return report_broken("LS904", name, "an ancestor is gone", saved, known)
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


def _with_address(config: RunnableConfig) -> RunnableConfig:
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


def _without_run(config: RunnableConfig) -> RunnableConfig:
    """Give a config without the run's id, which a saver would write into the checkpoint.

    A run that finds a checkpoint of its own takes whatever it is given for a resume.
    """
    parts: Any = {
        part: {name: one for name, one in config[part].items() if name != "run_id"}
        for part in ("configurable", "metadata")
        if part in config
    }
    return cast("RunnableConfig", {**config, **parts})


def _address(
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
    return run_reconciler(task, messages)


def run_reconciler(task: Reconciler, messages: Sequence[Any] | None = None) -> Reconciled:
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
    return list(header_reader(saver).list(ask.config, limit=ask.limit))


async def _async_answer(saver: BaseCheckpointSaver[Any], ask: Ask) -> Any:
    try:
        if isinstance(ask, Load):
            return await saver.aget_tuple(ask.config)
        if isinstance(ask, Histories):
            return await saver.aget_delta_channel_history(config=ask.config, channels=ask.channels)
        if isinstance(ask, Store):
            return await saver.aput(ask.config, ask.checkpoint, ask.metadata, ask.new_versions)
        return [found async for found in header_reader(saver).alist(ask.config, limit=ask.limit)]
    except NotImplementedError:
        return await asyncio.to_thread(_answer, saver, ask)


_LOW = (1 << 62) - 1

Storing = Callable[[ThreadPlace, PutCheckpoint], Steps["RunnableConfig"]]


def reconcile_guarded(
    task: Reconciler, loaded: CheckpointTuple, store: Storing
) -> Steps[Reconciled]:
    """Reconcile a thread whose head is loaded already; ``store`` puts what comes out of it."""
    steps = task.steps(None)
    place = place_of(loaded.config)
    try:
        ask = next(steps)
        while True:
            if isinstance(ask, Load) and place_of(ask.config) in {place, place.at(None)}:
                ask = steps.send(strip(loaded))
            else:
                ask = steps.send((yield from _guarded_answer(ask, store)))
    except StopIteration as done:
        report: Reconciled = done.value
        return report


def _guarded_answer(ask: Ask, store: Storing) -> Steps[Any]:
    if isinstance(ask, Load):
        saved: CheckpointTuple | None = yield ReadCheckpoint(ask.config)
        return strip(saved) if saved else None
    if isinstance(ask, Histories):
        return (yield ReadDeltas(ask.config, ask.channels))
    if isinstance(ask, Store):
        ask.checkpoint["id"] = _own(ask.checkpoint["id"])
        step = PutCheckpoint(ask.config, ask.checkpoint, ask.metadata, ask.new_versions)
        return (yield from store(place_of(ask.config), step))
    return (yield ListLatest(ask.config, ask.limit))


def _own(checkpoint: str) -> str:
    """Make the id behind a head one's own: two that settle one head must not write one row."""
    try:
        number = UUID(checkpoint).int
    except ValueError:
        return checkpoint
    return str(UUID(int=number & ~_LOW | uuid4().int & _LOW))
