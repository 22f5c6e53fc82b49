"""Make a checkpoint valid, and equal to the conversation that an application holds.

This is one function for all ways in which a run can end early: a cancelled task, Ctrl-C, a killed
process, a stream that nobody read to its end. One generator of steps, ``Reconciler.steps``, says
what to read and write. ``reconcile`` and ``areconcile`` perform these steps, and so does a guard
when a run with new input loads its thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    CheckpointMetadata,
    CheckpointTuple,
    empty_checkpoint,
)

from lockstitch.conversation.steps import adrive, drive
from lockstitch.errors import UsageError
from lockstitch.formats.langgraph.snapshot import (
    MESSAGES,
    PREVIOUS,
    TASK,
    WITHIN,
    is_begun_by,
    is_run_in,
    successor,
)
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
from lockstitch.integrations.langgraph.run_ids import place_of
from lockstitch.integrations.langgraph.saver_steps import (
    ListHeaders,
    PutCheckpoint,
    ReadCheckpoint,
    ReadDeltas,
    SaverStep,
    Steps,
    header_reader,
)

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.pregel import Pregel

_LOG = logging.getLogger("lockstitch.langgraph")
_RECENT = 1000
_FURTHEST = 100

StoreCheckpoint = Callable[[PutCheckpoint], Steps["RunnableConfig"]]


def reconcile(
    graph_or_saver: Pregel[Any, Any, Any, Any] | BaseCheckpointSaver[Any],
    config: RunnableConfig,
    messages: Sequence[Any] | None = None,
    force_cleanup: bool = False,
    channel: str | None = None,
) -> Reconciled:
    """Make a thread valid after an interrupted run, by a new checkpoint after the last.

    Return a report.

    ``messages`` is the conversation that the application holds, if the checkpoint is to equal it;
    the report's ``messages`` are what the application should hold from now on. Results of tools
    that had finished are taken from the pending writes. A thread that waits for a person is left
    alone, unless ``force_cleanup`` closes the question. If nothing is wrong, nothing is written.
    Call it while no run of the thread is active; repeating it, also after a crash, does no harm.

    With a graph, its reducers apply what finished tasks wrote to other channels, and subgraphs that
    keep their own history are repaired, too. ``channel`` names the channel of the conversation if
    there are several. Raises ``UsageError`` if the graph has no checkpointer or no such channel.
    """
    task = Reconciler(graph_or_saver, config, channel=channel, force=force_cleanup)
    return run_reconciler(task, messages)


def run_reconciler(task: Reconciler, messages: Sequence[Any] | None = None) -> Reconciled:
    """Perform a reconciliation with the synchronous methods of its saver."""
    return drive(task.steps(messages), lambda step: step.done(task.saver_for(step)))


async def areconcile(
    graph_or_saver: Pregel[Any, Any, Any, Any] | BaseCheckpointSaver[Any],
    config: RunnableConfig,
    messages: Sequence[Any] | None = None,
    force_cleanup: bool = False,
    channel: str | None = None,
) -> Reconciled:
    """Do what :func:`reconcile` does, in an event loop.

    Savers without async methods run in a thread.
    """
    task = Reconciler(graph_or_saver, config, channel=channel, force=force_cleanup)

    async def done(step: SaverStep) -> Any:
        try:
            return await step.adone(task.saver_for(step))
        except NotImplementedError:
            return await asyncio.to_thread(step.done, task.saver_for(step))

    return await adrive(task.steps(messages), done)


class Reconciler:
    """One thread and its checkpointer, with the graph if it was given.

    A guard passes the head in ``loaded``, and stores the outcome with ``store``.
    """

    def __init__(  # noqa: PLR0913 - by name
        self,
        graph_or_saver: Pregel[Any, Any, Any, Any] | BaseCheckpointSaver[Any],
        config: RunnableConfig,
        *,
        channel: str | None,
        force: bool,
        saver: BaseCheckpointSaver[Any] | None = None,
        loaded: CheckpointTuple | None = None,
        store: StoreCheckpoint | None = None,
    ) -> None:
        raw: object = config
        place = dict(config.get("configurable") or {}) if isinstance(raw, dict) else {}
        if place.get("thread_id") is None:
            raise UsageError("the config names no thread: {'configurable': {'thread_id': …}}")
        place["thread_id"] = str(place["thread_id"])
        place.setdefault("checkpoint_ns", "")
        self.config = cast("RunnableConfig", {**config, "configurable": place})
        self.channel = channel
        self.force = force
        self.graph: Any = None
        self._loaded = loaded
        self._store = store
        if isinstance(graph_or_saver, BaseCheckpointSaver):
            self.saver: BaseCheckpointSaver[Any] = graph_or_saver
            return
        self.graph = graph_or_saver
        if not all(hasattr(self.graph, name) for name in ("get_state", "update_state", "channels")):
            raise UsageError("reconcile takes a compiled graph or a checkpointer")
        # The graph's own way to find its checkpointer, which may restrict the classes to load.
        resolve = getattr(self.graph, "_resolve_checkpointer", None)
        found = saver or (self.graph.checkpointer if resolve is None else resolve(config))
        if not isinstance(found, BaseCheckpointSaver):
            raise UsageError("this graph has no checkpointer, so there is nothing to reconcile")
        self.saver = found

    def saver_for(self, step: SaverStep) -> BaseCheckpointSaver[Any]:
        """Return the saver that is best at performing a step."""
        return header_reader(self.saver) if step.looks else self.saver

    def steps(self, messages: Sequence[Any] | None) -> Steps[Reconciled]:
        """Repair the namespace in the config, and then those of its subgraphs.

        Subgraphs stay as they are if the graph waits for a person, or if the config names a past
        checkpoint: they continue from there.
        """
        raw: object = messages
        # A string is a sequence, too.
        is_list = isinstance(raw, Sequence) and not isinstance(raw, str | bytes)
        if raw is not None and not is_list:
            raise UsageError("messages must be the list of messages that the application holds")
        if self.channel is not None:
            _check_channel(self.graph, self.channel)
        space = self.config["configurable"]["checkpoint_ns"]
        report = yield from self._repair(self.config, self._graph_at(space), messages)
        if report is None:
            return Reconciled()
        thread = self.config["configurable"]["thread_id"]
        for finding in report.findings if self.force else ():
            if finding.code == HIDDEN_RESULT and not finding.fixable:
                _LOG.warning("thread %r: %s", thread, finding.message)
        is_past = bool(self.config["configurable"].get("checkpoint_id"))
        if space or is_past or (report.waiting and not self.force):
            return report
        # Subgraphs that keep their own history. The graph does not know those that its nodes call
        # themselves, so they are searched in the thread. A guard skips that search before every new
        # message as long as nothing is wrong above them.
        known = () if self.graph is None else _subgraphs(self.graph)
        names = {name for name, below in known if below.checkpointer is True}
        if self.graph is None or not self.force or report.changed or report.next:
            recent = yield ListHeaders({"configurable": {"thread_id": thread}}, _RECENT)
            found = {one.config["configurable"].get("checkpoint_ns", "") for one in recent}
            names |= {name for name in found if name and TASK not in name}
        for name in sorted(names):
            below = yield from self._repair(_at(self.config, name), self._graph_at(name), None)
            if below is not None:
                report.subgraphs.append(below)
        return report

    def _load(self, config: RunnableConfig) -> Steps[CheckpointTuple | None]:
        """Read a checkpoint; when a guard asks, without what the guard has added."""
        if self._loaded is not None:
            place = place_of(self._loaded.config)
            if place_of(config) in {place, place.at(None)}:
                return strip(self._loaded)
        saved: CheckpointTuple | None = yield ReadCheckpoint(config)
        return strip(saved) if saved is not None and self._store else saved

    def _repair(
        self, config: RunnableConfig, graph: Any, messages: Sequence[Any] | None
    ) -> Steps[Reconciled | None]:
        saved = yield from self._load(config)
        is_past = bool(config["configurable"].get("checkpoint_id"))
        if saved is None:
            return None if messages is None else (yield from self._begin(config, messages))
        # Continue from what an earlier call made of the named checkpoint.
        while is_past and (child := successor(saved.checkpoint["id"])):
            found = yield from self._load(_address(config, saved, child))
            made: Any = found.metadata.get("lockstitch") if found else None
            if found is None or not made or made.get("repaired") != saved.checkpoint["id"]:
                break
            saved = found
        task = yield from self._open(saved, graph, self.channel)
        if isinstance(task, Reconciled):
            return task
        if messages is not None:
            _check_channel(graph, task.main or MESSAGES)
        # When a run continues from a past checkpoint, its subgraphs start over.
        if not is_past:
            yield from self._take_over_subgraphs(task, config, graph)
        self._apply(task, graph)
        yield from self._search_ancestors(task)
        new = task.new_checkpoint(messages, force=self.force)
        if new is None:
            return task.report
        return (yield from self._put(_address(config, saved), new))

    def _apply(self, task: CheckpointRepair, graph: Any) -> None:
        """Let the graph itself apply what is pending on a checkpoint, if anything is."""
        if graph is None or task.is_workflow or not pending_writes.is_busy(task.saved, task.delta):
            return
        task.apply(apply_pending(graph, task.saved, self.saver, task.delta, task.brought))

    def _begin(self, config: RunnableConfig, messages: Sequence[Any]) -> Steps[Reconciled]:
        """Make the first checkpoint of a thread of which nothing was stored."""
        channel = self.channel or MESSAGES
        _check_channel(self.graph, channel)
        nothing = cast("CheckpointMetadata", {"step": -2})
        saved = CheckpointTuple(config, empty_checkpoint(), nothing, None, [])
        is_delta = self.graph is not None and channel in pending_writes.delta_channels(self.graph)
        history: dict[str, Any] = {channel: {"writes": []}} if is_delta else {}
        task = CheckpointRepair(saved, self.saver.get_next_version, delta=history, channel=channel)
        new = task.new_checkpoint(messages, force=self.force)
        task.report.before = None
        return task.report if new is None else (yield from self._put(config, new))

    def _put(self, config: RunnableConfig, new: NewCheckpoint) -> Steps[Reconciled]:
        """Store a checkpoint without the run's id, which a saver would write into it.

        A run that finds a checkpoint with its own id treats any input as a resume.
        """
        parts: Any = {
            part: {name: one for name, one in config[part].items() if name != "run_id"}
            for part in ("configurable", "metadata")
            if part in config
        }
        place = cast("RunnableConfig", {**config, **parts})
        step = PutCheckpoint(place, new.checkpoint, new.metadata, new.new_versions)
        new.report.after = (yield from self._store(step)) if self._store else (yield step)
        return new.report

    def _take_over_subgraphs(
        self, task: CheckpointRepair, config: RunnableConfig, graph: Any
    ) -> Steps[None]:
        """Merge what unfinished subgraphs of single calls have into the conversations above them.

        Subgraphs below a checkpoint that waits for a person are left alone, because they continue.
        """
        waits = bool(task.work.asking) and not self.force
        if task.is_workflow or waits or not pending_writes.triggers(task.stored):
            return
        children: list[tuple[str, str, CheckpointRepair]] = []
        for node, space in (yield from self._unfinished(task, config, graph)):
            place = _at(config, space)
            saved = yield from self._load(place)
            if saved is None:
                continue
            below = self._graph_at(space)
            child = yield from self._open(saved, below)
            if isinstance(child, Reconciled):
                continue
            yield from self._take_over_subgraphs(child, place, below)
            self._apply(child, below)
            task.paused_below = task.paused_below or child.reason_to_wait()
            child.open_calls()
            for one in child.channels.values():
                one.align()
            children.append((node, space, child))
        if task.paused_below and not self.force:
            return
        for node, space, child in children:
            initial = yield from self._initial_ids(child)
            task.take_over(node, space, child, initial)

    def _unfinished(
        self, task: CheckpointRepair, config: RunnableConfig, graph: Any
    ) -> Steps[list[tuple[str, str]]]:
        """Return the node and the namespace of every unfinished task that may be a subgraph."""
        space = config["configurable"]["checkpoint_ns"]
        above = f"{space}{WITHIN}" if space else ""
        if graph is not None:
            tasks = unfinished_tasks(graph, task.saved, self.saver, task.delta)
            return [(node, f"{above}{node}{TASK}{one}") for node, one in tasks]
        returned = {one for one, _, _ in task.work.returned}
        thread = {"thread_id": config["configurable"]["thread_id"]}
        found: dict[str, str] = {}
        for one in (yield ListHeaders({"configurable": thread}, _RECENT)):
            name = one.config["configurable"].get("checkpoint_ns", "")
            node, _, number = name.removeprefix(above).partition(TASK)
            of_head = is_begun_by(one.metadata, space, task.saved.checkpoint["id"])
            if is_run_in(name, space) and of_head and number not in returned:
                found[name] = node
        return [(node, name) for name, node in sorted(found.items())]

    def _initial_ids(self, child: CheckpointRepair) -> Steps[set[str | None]]:
        """Return the ids of the messages that a subgraph began with.

        None if they are not stored.
        """
        found, seen = child.saved, 0
        while int(found.metadata.get("step", 0)) > 0 and seen < _FURTHEST:
            if found.parent_config is None:
                return set()
            above = yield from self._load(found.parent_config)
            if above is None:
                return set()
            found, seen = above, seen + 1
        values = found.checkpoint["channel_values"]
        names = pending_writes.message_channels(values)
        return {message.id for name in names for message in pending_writes.unwrap(values[name])}

    def _search_ancestors(self, task: CheckpointRepair) -> Steps[None]:
        """Search beside the ancestors for results of open calls.

        A message that came after an interrupt made a new checkpoint and left such results there.
        """
        calls, seen, above = task.open_calls(), {task.saved.checkpoint["id"]}, task.saved
        while calls and above.parent_config is not None and len(seen) < _FURTHEST:
            found = yield from self._load(above.parent_config)
            if found is None or found.checkpoint["id"] in seen:
                return
            above = found
            seen.add(found.checkpoint["id"])
            task.take(found, calls)

    def _open(
        self, saved: CheckpointTuple, graph: Any, channel: str | None = None
    ) -> Steps[CheckpointRepair | Reconciled]:
        """Read the history of channels that store only changes; if it is lost, return a report."""
        wanted = pending_writes.wanted_histories(saved, self.channel)
        if graph is not None:
            stored = saved.checkpoint["channel_values"].keys()
            missing = pending_writes.delta_channels(graph) - stored
            versions = saved.checkpoint["channel_versions"].keys()
            wanted += [name for name in missing & versions if name not in wanted]
        found: dict[str, Any] = {}
        if wanted:
            found |= yield ReadDeltas(saved.config, wanted)
        counted = pending_writes.counters(saved.metadata)
        for name, history in found.items():
            known = pending_writes.replay(history) or []
            if "seed" in history and name not in counted:
                return report_broken("LS903", name, "its value is missing", saved, known)
            root: CheckpointTuple | None = saved
            while "seed" not in history and root is not None and root.parent_config is not None:
                root = yield from self._load(root.parent_config)
            if root is None:
                return report_broken("LS904", name, "an ancestor is missing", saved, known)
        return CheckpointRepair(
            saved,
            self.saver.get_next_version,
            delta=found,
            channel=channel,
            workflow=None if graph is None else PREVIOUS in graph.channels,
        )

    def _graph_at(self, space: str) -> Any:
        if self.graph is None or not space:
            return self.graph
        plain = WITHIN.join(part.split(TASK)[0] for part in space.split(WITHIN))
        return next((below for name, below in _subgraphs(self.graph) if name == plain), None)


def _subgraphs(graph: Any) -> Iterator[tuple[str, Any]]:
    found: Iterator[tuple[str, Any]] = graph.get_subgraphs(recurse=True)
    return found


def _at(config: RunnableConfig, space: str) -> RunnableConfig:
    place = {k: v for k, v in config["configurable"].items() if k != "checkpoint_id"}
    made = {**config, "configurable": {**place, "checkpoint_ns": space}}
    return cast("RunnableConfig", made)


def _address(
    config: RunnableConfig, saved: CheckpointTuple, checkpoint: str | None = None
) -> RunnableConfig:
    """Return a config for a checkpoint as LangGraph makes it: the caller's, with the place set."""
    place = {**config["configurable"], **saved.config["configurable"]}
    place |= {"checkpoint_id": checkpoint or saved.checkpoint["id"]}
    return cast("RunnableConfig", {**config, "configurable": place})


def _check_channel(graph: Any, channel: str) -> None:
    if graph is not None and channel not in graph.channels:
        raise UsageError(
            f"this graph has no channel {channel!r}: name the channel of its conversation"
        )
