"""A guard before any checkpointer: no turn is lost without an error, no turn begins on a wreck.

``Guard(saver)`` is a checkpointer that stores in another one, whatever it is, and adds two things.

**It reconciles.** LangGraph throws away what a stopped run left open when a new message comes:
finished results stay hidden, calls stay without an answer, and the provider rejects the request.
A guard settles the checkpoint first, as a new one behind it, and gives LangGraph that. A run that
goes on (``invoke(None)``, ``Command(resume=…)``) gets what is there, so that a pending approval
stays pending and a finished task is not run again.

**It detects a second writer.** What a run writes must build on the head of the thread, as it was
loaded or as the run itself has made it. Otherwise, with ``on_conflict="raise"``, the run ends with
``Conflict``; with ``"fork"`` it goes on in a thread of its own, ``<thread>-fork-<id>``, which the
log and ``Guard.forks`` name. The newer run has the thread: one that begins while another is under
way takes it over, since nobody can know whether the other still lives, or waits (``waiting``). How
that is decided stands in ``claims``. A branch that was asked for (a ``checkpoint_id``,
``update_state`` on an old checkpoint) is none of this. Every writer of a thread needs a guard;
readers do not.

When a conflict is raised, always out of ``invoke``, ``stream`` and their async twins:

============  =====================================  =========================================
durability    raised                                 stored of the run that lost
============  =====================================  =========================================
``"sync"``    after the step in which it was found   the steps before the other one began
``"async"``   at the end of the run, at the latest   the steps before the other one began
``"exit"``    at the end of the run                  nothing: the run that ends first has it
============  =====================================  =========================================

If a run fails with an error of its own, that one is raised, and the conflict is only logged.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, Self

from langgraph.checkpoint.base import BaseCheckpointSaver
from msgspec import structs

from lockstitch.errors import Conflict, UsageError
from lockstitch.integrations.langgraph.caller import announce
from lockstitch.integrations.langgraph.counting import Counters
from lockstitch.integrations.langgraph.guarding import claims
from lockstitch.integrations.langgraph.guarding.abilities import fitted, require_history
from lockstitch.integrations.langgraph.guarding.forks import Fork
from lockstitch.integrations.langgraph.guarding.looking import eyes_of
from lockstitch.integrations.langgraph.guarding.protocol import Guarding
from lockstitch.integrations.langgraph.guarding.steps import (
    Put,
    Read,
    Saver,
    Steps,
    Write,
    acarried_out,
    carried_out,
)
from lockstitch.integrations.langgraph.lineage import Place

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol


OnConflict = Literal["raise", "fork"]


class Guard(BaseCheckpointSaver[Any]):
    """A checkpointer that stores in another one, and guards its threads.

    ``wait`` is for how many seconds a run that is under way may give no sign of life before another
    one takes the thread over; with 0 that is done at once.
    ``reconcile=False`` leaves out the settling at load, ``channel`` names the one that holds the
    conversation if it cannot be told. Whatever a checkpointer has besides, the guard has, too, and
    what it lacks (``copy_thread``, ``prune``, ``delete_for_runs``), the class of the guard lacks.
    """

    def __new__(cls, saver: Saver | None = None, **_options: Any) -> Self:
        """Make a guard that can do what its checkpointer can; a copy of one has its class."""
        made: type[Self] = cls if saver is None else fitted(cls, Guard, saver)
        return super().__new__(made)

    def __init__(
        self,
        saver: Saver,
        *,
        on_conflict: OnConflict = "raise",
        reconcile: bool = True,
        channel: str | None = None,
        wait: float = 0.0,
    ) -> None:
        if isinstance(saver, Guard) or not isinstance(saver, BaseCheckpointSaver):
            raise UsageError("a Guard is put before a checkpointer, once")
        if on_conflict not in {"raise", "fork"}:
            raise UsageError("on_conflict is 'raise' or 'fork'")
        if wait < 0:
            raise UsageError("wait is a number of seconds, 0 for not waiting")
        require_history(saver)
        announce()
        self.saver = saver
        self._guarding = Guarding(
            saver, on_conflict=on_conflict, reconcile=reconcile, channel=channel, wait=wait
        )
        self._eyes = eyes_of(saver)
        self._paths = "task_path" in signature(saver.put_writes).parameters

    @property
    def forks(self) -> deque[Fork]:
        """Where runs that lost went on, the last of them."""
        return self._guarding.forks

    @property
    def counters(self) -> Counters:
        """What this guard has healed and refused so far, and tried again with its saver."""
        own = self._guarding.counting.counters()
        behind = getattr(self.saver, "counters", None)
        if not isinstance(behind, Counters):
            return own
        return structs.replace(own, retries=own.retries + behind.retries)

    def __getattr__(self, name: str) -> Any:
        """Give what only the checkpointer behind has."""
        if name == "saver" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(self.saver, name)

    @property
    def serde(self) -> SerializerProtocol:
        """The serializer of the checkpointer behind."""
        return self.saver.serde

    @serde.setter
    def serde(self, serde: SerializerProtocol) -> None:
        self.saver.serde = serde
        self._eyes = eyes_of(self.saver)

    @property
    def config_specs(self) -> list[Any]:
        """The options of the checkpointer behind."""
        return self.saver.config_specs

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.saver.get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Guard:
        saver = self.saver.with_allowlist(extra_allowlist)
        if saver is self.saver:
            return self
        clone = copy.copy(self)
        clone.saver = saver
        clone._eyes = eyes_of(saver)  # noqa: SLF001 - it is one of ours
        return clone

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return carried_out(self.saver, self._guarding.loaded(config), self._eyes)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await acarried_out(self.saver, self._guarding.loaded(config), self._eyes)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the name is LangGraph's
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        self._guarding.looked(config)
        for saved in self.saver.list(config, filter=filter, before=before, limit=limit):
            yield claims.stripped(saved)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the name is LangGraph's
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        self._guarding.looked(config)
        found = self.saver.alist(config, filter=filter, before=before, limit=limit)
        async for saved in found:
            yield claims.stripped(saved)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self.saver.get_delta_channel_history(config=config, channels=channels)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await self.saver.aget_delta_channel_history(config=config, channels=channels)

    # Writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        run = self._guarding.runs.writing(config, is_put=True)
        step = Put(config, checkpoint, metadata, new_versions)
        if run is None:
            return step.done(self.saver)
        with run.lock:
            return carried_out(self.saver, self._guarding.put(run, config, step), self._eyes)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        run = self._guarding.runs.writing(config, is_put=True)
        step = Put(config, checkpoint, metadata, new_versions)
        if run is None:
            return await step.adone(self.saver)
        async with run.turn:
            return await acarried_out(self.saver, self._guarding.put(run, config, step), self._eyes)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        run = self._guarding.runs.writing(config)
        step = self._write(config, writes, task_id, task_path)
        if run is None:
            step.done(self.saver)
            return
        with run.lock:
            carried_out(self.saver, self._guarding.written(run, config, step), self._eyes)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        run = self._guarding.runs.writing(config)
        step = self._write(config, writes, task_id, task_path)
        if run is None:
            await step.adone(self.saver)
            return
        async with run.turn:
            await acarried_out(self.saver, self._guarding.written(run, config, step), self._eyes)

    # Housekeeping

    def delete_thread(self, thread_id: str) -> None:
        self._guarding.runs.forget([str(thread_id)])
        self.saver.delete_thread(thread_id)

    async def adelete_thread(self, thread_id: str) -> None:
        self._guarding.runs.forget([str(thread_id)])
        await self.saver.adelete_thread(thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._guarding.runs.forget()
        self.saver.delete_for_runs(run_ids)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._guarding.runs.forget()
        await self.saver.adelete_for_runs(run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.saver.copy_thread(source_thread_id, target_thread_id)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self.saver.acopy_thread(source_thread_id, target_thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prune; a Conflict, before anything is, if the newest checkpoint of a thread lost."""
        if strategy == "keep_latest":
            for thread in thread_ids:
                carried_out(self.saver, _prunable(Place(thread, "", None)))
        self._guarding.runs.forget([*map(str, thread_ids)])
        self.saver.prune(thread_ids, strategy=strategy)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prune; a Conflict, before anything is, if the newest checkpoint of a thread lost."""
        if strategy == "keep_latest":
            for thread in thread_ids:
                await acarried_out(self.saver, _prunable(Place(thread, "", None)))
        self._guarding.runs.forget([*map(str, thread_ids)])
        await self.saver.aprune(thread_ids, strategy=strategy)

    def _write(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> Write:
        return Write(config, writes, task, (path,) if self._paths else ())


def _prunable(place: Place) -> Steps[None]:
    newest: CheckpointTuple | None = yield Read(place.config)
    found = yield from claims.head(place)
    if newest and found and claims.id_of(newest) != claims.id_of(found.saved):
        raise Conflict(
            f"the newest checkpoint of thread {place.thread!r} is one that lost against "
            f"{claims.id_of(found.saved)}, which pruning would remove; nothing was pruned: let "
            f"one turn pass first"
        )
