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
way takes it over, since nobody can know whether the other still lives. How that is decided stands
in ``guard_claims``. A branch that was asked for (a ``checkpoint_id``, ``update_state`` on an old
checkpoint) is none of this. Every writer of a thread needs a guard; readers do not.

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
import logging
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

from langgraph.checkpoint.base import BaseCheckpointSaver

from lockstitch.errors import Conflict, UsageError
from lockstitch.integrations.langgraph import guard_claims as claims
from lockstitch.integrations.langgraph.guard_caller import Caller, brings_input, follow, loading_run
from lockstitch.integrations.langgraph.guard_forks import Branch, Fork
from lockstitch.integrations.langgraph.guard_looking import eyes_of
from lockstitch.integrations.langgraph.guard_runs import Run, Runs
from lockstitch.integrations.langgraph.guard_settling import reconciled
from lockstitch.integrations.langgraph.guard_steps import (
    Put,
    Read,
    Saver,
    Steps,
    Write,
    acarried_out,
    carried_out,
)
from lockstitch.integrations.langgraph.lineage import Lineage, Place, place_of, ticketed
from lockstitch.integrations.langgraph.reconciler import Reconciler

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

_LOG = logging.getLogger("lockstitch.langgraph")
_TRIES = 5
_FORKS = 1000

OnConflict = Literal["raise", "fork"]


class Guard(BaseCheckpointSaver[Any]):
    """A checkpointer that stores in another one, and guards its threads.

    ``reconcile=False`` leaves out the settling at load, ``channel`` names the one that holds the
    conversation if it cannot be told. Whatever a checkpointer has besides, the guard has, too.
    """

    def __init__(
        self,
        saver: Saver,
        *,
        on_conflict: OnConflict = "raise",
        reconcile: bool = True,
        channel: str | None = None,
    ) -> None:
        if isinstance(saver, Guard) or not isinstance(saver, BaseCheckpointSaver):
            raise UsageError("a Guard is put before a checkpointer, once")
        if on_conflict not in {"raise", "fork"}:
            raise UsageError("on_conflict is 'raise' or 'fork'")
        self.saver = saver
        self.on_conflict = on_conflict
        self.forks: deque[Fork] = deque(maxlen=_FORKS)
        self._reconcile = reconcile
        self._channel = channel
        self._runs = Runs(Lineage())
        self._warned: set[str] = set()
        self._eyes = eyes_of(saver)
        self._paths = "task_path" in signature(saver.put_writes).parameters

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
        caller = loading_run(self)
        return carried_out(self.saver, self._loaded(config, caller), self._eyes)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        caller = loading_run(self)
        return await acarried_out(self.saver, self._loaded(config, caller), self._eyes)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the name is LangGraph's
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
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
        run = self._runs.writing(config, place_of(config))
        step = Put(ticketed(config, None), checkpoint, metadata, new_versions)
        if run is None:
            return step.done(self.saver)
        with run.lock:
            return carried_out(self.saver, self._put(run, config, step), self._eyes)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        run = self._runs.writing(config, place_of(config))
        step = Put(ticketed(config, None), checkpoint, metadata, new_versions)
        if run is None:
            return await step.adone(self.saver)
        async with run.turn:
            return await acarried_out(self.saver, self._put(run, config, step), self._eyes)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        run = self._runs.writing(config, place_of(config))
        step = self._write(config, writes, task_id, task_path)
        if run is None:
            step.done(self.saver)
            return
        with run.lock:
            carried_out(self.saver, self._written(run, config, step), self._eyes)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        run = self._runs.writing(config, place_of(config))
        step = self._write(config, writes, task_id, task_path)
        if run is None:
            await step.adone(self.saver)
            return
        async with run.turn:
            await acarried_out(self.saver, self._written(run, config, step), self._eyes)

    # Housekeeping

    def delete_thread(self, thread_id: str) -> None:
        self.saver.delete_thread(thread_id)

    async def adelete_thread(self, thread_id: str) -> None:
        await self.saver.adelete_thread(thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.saver.delete_for_runs(run_ids)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
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
        self.saver.prune(thread_ids, strategy=strategy)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prune; a Conflict, before anything is, if the newest checkpoint of a thread lost."""
        if strategy == "keep_latest":
            for thread in thread_ids:
                await acarried_out(self.saver, _prunable(Place(thread, "", None)))
        await self.saver.aprune(thread_ids, strategy=strategy)

    # What is done for a load

    def _loaded(self, config: RunnableConfig, caller: Caller) -> Steps[CheckpointTuple | None]:
        for rest in reversed(range(_TRIES)):
            try:
                return (yield from self._loaded_once(config, caller))
            except Conflict:
                # Somebody was quicker with the same checkpoint: what he made of it is read next.
                if not rest:
                    raise
        raise AssertionError

    def _loaded_once(self, config: RunnableConfig, caller: Caller) -> Steps[CheckpointTuple | None]:
        place = place_of(config)
        found = yield from claims.head(place, self._runs.counts)
        head = found.saved if found else None
        saved: CheckpointTuple | None = None
        if place.checkpoint:
            saved = yield Read(ticketed(config, None))
        elif head:
            saved = yield Read(place.at(claims.id_of(head)).config)
        if found:
            follow(found.newest)
        named = place.checkpoint is not None and (
            head is None or saved is None or claims.id_of(saved) != claims.id_of(head)
        )
        made: CheckpointTuple | None = None
        if saved and self._reconcile and caller.loop and brings_input(caller.loop, saved):
            made = yield from self._settled(place, saved, caller, named=named)
        if made:
            return made
        if caller.looks:
            return claims.stripped(saved) if saved else None
        return self._handed_out(place, saved, named=named, known=caller.recognised)

    def _handed_out(
        self, place: Place, saved: CheckpointTuple | None, *, named: bool, known: bool
    ) -> CheckpointTuple | None:
        if saved is None:
            self._runs.started(place, named=named, known=known)
            return None
        here, seen = place.at(claims.id_of(saved)), claims.writes_on(saved)
        run = self._runs.started(here, named=named, seen=seen, known=known)
        run.tasks[here] = {task for task, _, _ in saved.pending_writes or ()}
        return _for(run, saved)

    def _settled(
        self, place: Place, saved: CheckpointTuple, caller: Caller, *, named: bool
    ) -> Steps[CheckpointTuple | None]:
        """Reconcile before a new input; None if there was nothing to do."""
        here, seen = place.at(claims.id_of(saved)), claims.writes_on(saved)
        run = self._runs.started(here, named=named, seen=seen, known=True)

        def store(where: Place, step: Put) -> Steps[RunnableConfig]:
            own = run if where == here else self._runs.started(where, known=True)
            return (yield from self._guarded(own, where, step))

        graph = caller.graph or self
        task = Reconciler(graph, here.config, channel=self._channel, force=True)
        report = yield from reconciled(task, saved._replace(config=here.config), store)
        if not report.changed or report.after is None:
            return None
        new: CheckpointTuple | None = yield Read(place.at(place_of(report.after).checkpoint).config)
        if new is None:
            raise claims.moved(here, None)
        follow(claims.id_of(new))
        _LOG.info("thread %r was settled before a new input: %s", place.thread, claims.id_of(new))
        return _for(run, new)

    # What is done for a write

    def _put(self, run: Run, config: RunnableConfig, step: Put) -> Steps[RunnableConfig]:
        place = place_of(config)
        self._note_caller(run, step)
        branch = self._branch(run, config, place)
        if branch is None:
            try:
                return (yield from self._guarded(run, place, step))
            except Conflict as error:
                branch = self._gone_on(run, config, place, error)
        signed = claims.signed(step.metadata, run.name)
        made = Put(step.config, step.checkpoint, signed, step.versions)
        written = yield from branch.put(place, made, run.tasks.get(place, ()))
        here = place.at(step.checkpoint["id"])
        for write in run.early.pop(here, ()):
            yield from branch.write(here, write, ())
        return written

    def _guarded(self, run: Run, place: Place, step: Put) -> Steps[RunnableConfig]:
        checkpoint = step.checkpoint["id"]
        signed = claims.signed(step.metadata, run.name)
        made = Put(step.config, step.checkpoint, signed, step.versions)
        if place.checkpoint and checkpoint <= place.checkpoint:
            raise claims.behind(place, checkpoint)
        asked_for = run.ticket.named or step.metadata.get("source") == "fork"
        written: RunnableConfig
        if place not in run.owned and asked_for:
            written = yield from claims.put_fork(place, made, run.name)
        elif place.checkpoint is None:
            written = yield from claims.put_first(place, made, run.name, self._runs.counts)
        else:
            yield from self._may_write(run, place)
            written = yield from claims.put(place, made, run.name)
        self._runs.wrote(run, place.at(checkpoint))
        run.early.pop(place.at(checkpoint), None)
        return written

    def _may_write(self, run: Run, place: Place) -> Steps[None]:
        if place in run.owned:
            yield from claims.checked(place, run.name)
        else:
            seen = run.seen if place == run.start else None
            yield from claims.begun(place, run.name, self._runs.counts, seen)
            run.owned.add(place)

    def _written(self, run: Run, config: RunnableConfig, step: Write) -> Steps[None]:
        place = place_of(config)
        branch = self._branch(run, config, place)
        if branch is None:
            try:
                if place in run.owned or (place == run.start and not run.ticket.named):
                    yield from self._may_write(run, place)
                elif place != run.start:
                    run.early.setdefault(place, []).append(step)
                yield step
                run.tasks.setdefault(place, set()).add(step.task)
            except Conflict as error:
                branch = self._gone_on(run, config, place, error)
            else:
                return
        yield from branch.write(place, step, run.tasks.get(place, ()))

    def _write(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> Write:
        return Write(ticketed(config, None), writes, task, (path,) if self._paths else ())

    # What is done for a run that lost

    def _branch(self, run: Run, config: RunnableConfig, place: Place) -> Branch | None:
        """Give the branch that a run is on, None if it has lost nothing; raises if it may not."""
        if run.branch is None and (outer := self._runs.outermost(config, place)):
            run.branch = outer.branch
        if run.lost:
            raise Conflict(*run.lost.args)
        return run.branch

    def _gone_on(self, run: Run, config: RunnableConfig, place: Place, error: Conflict) -> Branch:
        """Let a run that lost go on in a thread of its own, or end it."""
        outer = self._runs.outermost(config, place) if place.namespace else run
        if self.on_conflict == "raise" or outer is None:
            run.lost = error
            _LOG.warning("%s", error)
            raise error
        if outer.branch is None:
            name = f"{place.thread}-fork-{outer.name[:12]}"
            outer.branch = Branch(name, self.saver.get_next_version)
            self.forks.append(Fork(place.thread, name, place.checkpoint, str(error)))
            _LOG.warning("%s; it goes on in thread %r", error, name)
        run.branch = outer.branch
        return run.branch

    def _note_caller(self, run: Run, step: Put) -> None:
        fresh = step.metadata.get("source") == "input" and not run.start.namespace
        if fresh and not run.recognised and self._reconcile and "caller" not in self._warned:
            self._warned.add("caller")
            _LOG.warning(
                "this version of LangGraph loads checkpoints in a way that is not known: Guard "
                "does not reconcile before a new input; call reconcile() yourself"
            )


def _for(run: Run, saved: CheckpointTuple) -> CheckpointTuple:
    """Give a checkpoint as a run is to see it: with its ticket, without what guards add."""
    clean = claims.stripped(saved)
    return clean._replace(config=ticketed(clean.config, run.ticket))


def _prunable(place: Place) -> Steps[None]:
    newest: CheckpointTuple | None = yield Read(place.config)
    found = yield from claims.head(place)
    if newest and found and claims.id_of(newest) != claims.id_of(found.saved):
        raise Conflict(
            f"the newest checkpoint of thread {place.thread!r} is one that lost against "
            f"{claims.id_of(found.saved)}, which pruning would remove; nothing was pruned: let "
            f"one turn pass first"
        )
