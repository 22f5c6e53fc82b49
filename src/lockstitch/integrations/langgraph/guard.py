"""A guard around any checkpointer: runs begin on a valid thread, and no turn is lost silently.

``Guard(saver)`` is a checkpointer that stores in another one, whatever it is, and adds two things.

**It reconciles.** When a new message comes, LangGraph throws away what a stopped run left open:
finished results stay hidden, calls stay without an answer, and the provider rejects the request. A
guard first stores a repaired checkpoint after the old one, and gives that to LangGraph. A run that
continues (``invoke(None)``, ``Command(resume=…)``) gets the thread as it is, so that a pending
approval stays pending and a finished task does not run again.

**It detects a second writer.** What a run writes must build on the head of the thread, as the run
has loaded or made it. Otherwise, with ``on_conflict="raise"``, the run ends with ``Conflict``; with
``"fork"`` it continues in a thread of its own, ``<thread>-fork-<id>``, named in the log and in
``Guard.forks``. The newer run gets the thread: a run that begins while another one is active takes
the thread over, because nobody can know whether the other one is still alive, or waits first
(``wait``). ``optimistic_lock`` explains how that is decided. A branch that was asked for (a
``checkpoint_id``, ``update_state`` on an old checkpoint) is not a conflict. Every writer of a
thread needs a guard; readers do not.

A conflict is always raised out of ``invoke``, ``stream`` and their async twins:

============ ===================================== =========================================
durability raised stored of the run that lost ============ =====================================
========================================= ``"sync"`` after the step in which it was found the steps
before the other one began ``"async"`` at the end of the run, at the latest the steps before the
other one began ``"exit"`` at the end of the run nothing: the run that ends first has it
============ ===================================== =========================================

If a run fails with an error of its own, that error is raised, and the conflict is only logged.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

from langgraph.checkpoint.base import BaseCheckpointSaver
from msgspec import structs

from lockstitch.errors import Conflict, UsageError
from lockstitch.integrations.langgraph.guarded_runs import Fork, Guarding
from lockstitch.integrations.langgraph.optimistic_lock import find_head, id_of, strip
from lockstitch.integrations.langgraph.report import Counters
from lockstitch.integrations.langgraph.run_ids import ThreadPlace, announce
from lockstitch.integrations.langgraph.saver_steps import (
    PutCheckpoint,
    PutWrites,
    ReadCheckpoint,
    Saver,
    Steps,
    aperform,
    header_reader,
    perform,
)

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
    """A checkpointer around another one that repairs broken threads and detects second writers.

    Use it in place of the checkpointer: ``builder.compile(checkpointer=Guard(saver))``. After a
    crash, an interrupt or a cancelled run, the next run with a new message begins on a repaired
    checkpoint, with the results of the tools that had finished. A run whose thread was continued by
    somebody else ends with ``Conflict``, whose ``kept`` says how much of its turn is stored, or
    with ``on_conflict="fork"`` continues in a new thread, which :attr:`forks` lists.

    ``wait`` is how many seconds an active run may show no sign of life before another one takes its
    thread over; with 0 that happens at once. ``reconcile=False`` turns off the repair, and
    ``channel`` names the channel of the conversation if there are several. The guard has every
    other method and attribute of its checkpointer, and lacks ``copy_thread``, ``prune`` and
    ``delete_for_runs`` if the checkpointer lacks them. Raises ``UsageError`` for a checkpointer
    that cannot be guarded.
    """

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
            raise UsageError("a Guard can be put before a checkpointer only once")
        if on_conflict not in {"raise", "fork"}:
            raise UsageError("on_conflict must be 'raise' or 'fork'")
        if wait < 0:
            raise UsageError("wait must be a number of seconds; 0 means no waiting")
        homes = [base.__module__ for base in type(saver).__mro__]
        if any(home.startswith(_LANGGRAPH) and home.endswith(".shallow") for home in homes):
            raise UsageError(
                f"{type(saver).__name__} keeps only the last checkpoint of a thread and "
                "overwrites it: a second writer's turn is gone before anybody can notice it, so "
                "a Guard cannot protect it. Use PostgresSaver, with durability='exit' if one "
                "checkpoint per turn is enough, or lockstitch's Saver"
            )
        announce()
        # Set on the instance, because a subclass may have other bases as well.
        self.__class__ = _class_for(type(self), saver)
        self.saver = saver
        self._guarding = Guarding(
            saver, on_conflict=on_conflict, reconcile=reconcile, channel=channel, wait=wait
        )
        self._headers = header_reader(saver)
        self._paths = "task_path" in signature(saver.put_writes).parameters

    def __repr__(self) -> str:
        """Return the checkpointer that it guards, but nothing of a thread."""
        return f"<{type(self).__name__} before {type(self.saver).__name__}>"

    @property
    def forks(self) -> deque[Fork]:
        """The threads in which losing runs have continued, the latest at the end."""
        return self._guarding.forks

    @property
    def counters(self) -> Counters:
        """What this guard has healed, refused and retried so far."""
        own = self._guarding.counting.counters()
        behind = getattr(self.saver, "counters", None)
        if not isinstance(behind, Counters):
            return own
        return structs.replace(own, retries=own.retries + behind.retries)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that only the guarded checkpointer has."""
        if name == "saver" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(self.saver, name)

    @property
    def serde(self) -> SerializerProtocol:
        """The serializer of the guarded checkpointer."""
        return self.saver.serde

    @serde.setter
    def serde(self, serde: SerializerProtocol) -> None:
        self.saver.serde = serde
        self._headers = header_reader(self.saver)

    @property
    def config_specs(self) -> list[Any]:
        """The options of the guarded checkpointer."""
        return self.saver.config_specs

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.saver.get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Guard:
        saver = self.saver.with_allowlist(extra_allowlist)
        if saver is self.saver:
            return self
        clone = copy.copy(self)
        clone.saver = saver
        clone._headers = header_reader(saver)  # noqa: SLF001 - it is one of ours
        return clone

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return perform(self.saver, self._guarding.load(config), self._headers)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await aperform(self.saver, self._guarding.load(config), self._headers)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the name is LangGraph's
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        if config is not None:
            self._guarding.runs.note_look(config)
        for saved in self.saver.list(config, filter=filter, before=before, limit=limit):
            yield strip(saved)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the name is LangGraph's
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        if config is not None:
            self._guarding.runs.note_look(config)
        found = self.saver.alist(config, filter=filter, before=before, limit=limit)
        async for saved in found:
            yield strip(saved)

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
        written: RunnableConfig
        written = self._store(PutCheckpoint(config, checkpoint, metadata, new_versions))
        return written

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        written: RunnableConfig
        written = await self._astore(PutCheckpoint(config, checkpoint, metadata, new_versions))
        return written

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self._store(PutWrites(config, writes, task_id, (task_path,) if self._paths else ()))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        path = (task_path,) if self._paths else ()
        await self._astore(PutWrites(config, writes, task_id, path))

    def _store(self, step: PutCheckpoint | PutWrites) -> Any:
        """Store what a run writes, one write at a time; writes without a run are passed on."""
        run = self._guarding.runs.find_writer(step.config, is_put=isinstance(step, PutCheckpoint))
        if run is None:
            return step.done(self.saver)
        with run.lock:
            return perform(self.saver, self._guarding.store(run, step), self._headers)

    async def _astore(self, step: PutCheckpoint | PutWrites) -> Any:
        run = self._guarding.runs.find_writer(step.config, is_put=isinstance(step, PutCheckpoint))
        if run is None:
            return await step.adone(self.saver)
        async with run.turn:
            return await aperform(self.saver, self._guarding.store(run, step), self._headers)

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
        """Prune threads.

        Raise ``Conflict`` before that if a thread's newest checkpoint has lost.
        """
        perform(self.saver, self._prepare_pruning(thread_ids, strategy))
        self.saver.prune(thread_ids, strategy=strategy)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prune threads.

        Raise ``Conflict`` before that if a thread's newest checkpoint has lost.
        """
        await aperform(self.saver, self._prepare_pruning(thread_ids, strategy))
        await self.saver.aprune(thread_ids, strategy=strategy)

    def _prepare_pruning(self, threads: Sequence[str], strategy: str) -> Steps[None]:
        for thread in threads if strategy == "keep_latest" else ():
            place = ThreadPlace(thread, "", None)
            newest: CheckpointTuple | None = yield ReadCheckpoint(place.config)
            found = yield from find_head(place)
            if newest and found and id_of(newest) != id_of(found.saved):
                raise Conflict(
                    f"the newest checkpoint of thread {thread!r} is one that lost against "
                    f"{id_of(found.saved)}, which pruning would remove; nothing was pruned: run "
                    "one more turn first"
                )
        self._guarding.runs.forget([*map(str, threads)])


# LangGraph's base class has all methods, and those that a checkpointer lacks raise. A caller such
# as LangGraph Server looks whether the class overrides a method and otherwise does without, for
# example by copying a thread checkpoint by checkpoint. So a guard's class has only methods that
# work.

_LANGGRAPH = "langgraph.checkpoint."
_OPTIONAL = (
    "delete_thread",
    "adelete_thread",
    "delete_for_runs",
    "adelete_for_runs",
    "copy_thread",
    "acopy_thread",
    "prune",
    "aprune",
)


def _class_for(made: Any, saver: Any) -> Any:
    """Return the class for a guard around this checkpointer."""

    def has(name: str) -> bool:
        found = getattr(saver, name, None)
        function = getattr(found, "__func__", found)
        return function is not None and function is not getattr(BaseCheckpointSaver, name, None)

    # A method that the subclass defines itself always works.
    inherited = [name for name in _OPTIONAL if getattr(made, name) is getattr(Guard, name)]
    lacking = tuple(name for name in inherited if not has(name))
    return _class_without(made, lacking) if lacking else made


@cache
def _class_without(made: Any, lacking: tuple[str, ...]) -> Any:
    body: dict[str, Any] = {
        name: getattr(BaseCheckpointSaver, name)
        for name in lacking
        if hasattr(BaseCheckpointSaver, name)
    }
    for name in ("__doc__", "__module__", "__qualname__"):
        body[name] = getattr(made, name)
    return type(made.__name__, (made,), body)
