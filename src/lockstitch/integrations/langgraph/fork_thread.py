"""A thread of its own for a run that lost, so that it can go on without being in the way."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast
from uuid import NAMESPACE_URL, uuid5

from lockstitch.integrations.langgraph.optimistic_lock import strip
from lockstitch.integrations.langgraph.run_ids import ThreadPlace, place_of
from lockstitch.integrations.langgraph.saver_steps import (
    PutCheckpoint,
    PutWrites,
    ReadCheckpoint,
    ReadDeltas,
    Steps,
)

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple

_TASK = str(uuid5(NAMESPACE_URL, "lockstitch:langgraph:forks"))


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a run went on that lost against another writer."""

    thread: str
    fork: str
    # The checkpoint that both have built on; None if both have begun the thread.
    checkpoint: str | None
    reason: str


@dataclass(slots=True)
class ForkedThread:
    """The thread that one run goes on in; a checkpoint that it builds on is copied there once."""

    thread: str
    next_version: Any
    _there: set[ThreadPlace] = field(default_factory=set)

    def put(
        self, place: ThreadPlace, step: PutCheckpoint, tasks: Collection[str]
    ) -> Steps[RunnableConfig]:
        """Put a checkpoint into the branch instead; ``tasks`` have written on the one before."""
        yield from self.copied(place, tasks)
        here = replace(place, thread=self.thread)
        written: RunnableConfig = yield replace(step, config=_within(step.config, self.thread))
        self._there.add(here.at(step.checkpoint["id"]))
        return written

    def write(self, place: ThreadPlace, step: PutWrites, tasks: Collection[str]) -> Steps[None]:
        """Store writes on a checkpoint of the branch instead, on which ``tasks`` have written."""
        yield from self.copied(place, tasks)
        yield replace(step, config=_within(step.config, self.thread))

    def copied(self, place: ThreadPlace, tasks: Collection[str]) -> Steps[None]:
        """Have a checkpoint in the branch, with what ``tasks`` have written on it."""
        here = replace(place, thread=self.thread)
        if place.checkpoint is None or here in self._there:
            return
        saved: CheckpointTuple | None = yield ReadCheckpoint(place.config)
        if saved is not None:
            yield from self._copy(here, place, _known(saved, tasks))
        self._there.add(here)

    def _copy(self, here: ThreadPlace, place: ThreadPlace, saved: CheckpointTuple) -> Steps[None]:
        """Store a checkpoint with all its values as the first of the branch."""
        above = yield from self._roots(here, place, saved)
        versions = dict(saved.checkpoint["channel_versions"])
        yield PutCheckpoint(above.config, saved.checkpoint, saved.metadata, versions)
        tasks: dict[str, list[tuple[str, Any]]] = {}
        for task, channel, value in saved.pending_writes or ():
            tasks.setdefault(task, []).append((channel, value))
        for task, writes in tasks.items():
            yield PutWrites(here.config, writes, task)

    def _roots(
        self, here: ThreadPlace, place: ThreadPlace, saved: CheckpointTuple
    ) -> Steps[ThreadPlace]:
        """Store what channels that keep only changes have collected, in one checkpoint above."""
        above = saved.parent_config
        body = saved.checkpoint
        missing = [name for name in body["channel_versions"] if name not in body["channel_values"]]
        if above is None or not missing:
            return here.at(None)
        found: Mapping[str, Any] = yield ReadDeltas(place.config, missing)
        seeds = {name: history["seed"] for name, history in found.items() if "seed" in history}
        writes = [(name, value) for name, each in found.items() for _, _, value in each["writes"]]
        if not seeds and not writes:
            return here.at(None)
        root = here.at(place_of(above).checkpoint)
        versions = {name: self.next_version(None, None) for name in seeds}
        body = _bare(saved, root, seeds, versions)
        yield PutCheckpoint(here.at(None).config, body, _origin(saved), versions)
        if writes:
            yield PutWrites(root.config, writes, _TASK)
        return root


def _known(saved: CheckpointTuple, tasks: Collection[str]) -> CheckpointTuple:
    """Give a checkpoint without the writes of whoever else has built on it meanwhile."""
    writes = [write for write in saved.pending_writes or () if write[0] in tasks]
    return strip(saved)._replace(pending_writes=writes)


def _bare(
    saved: CheckpointTuple, root: ThreadPlace, values: dict[str, Any], versions: dict[str, Any]
) -> Checkpoint:
    body = {
        **saved.checkpoint,
        "id": root.checkpoint,
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {},
        "updated_channels": None,
    }
    return cast("Checkpoint", body)


def _origin(saved: CheckpointTuple) -> CheckpointMetadata:
    found = {"source": "fork", "step": int(saved.metadata.get("step", -1)) - 1, "parents": {}}
    return cast("CheckpointMetadata", found)


def _within(config: RunnableConfig, thread: str) -> RunnableConfig:
    conf = {**config.get("configurable", {}), "thread_id": thread}
    return cast("RunnableConfig", {**config, "configurable": conf})
