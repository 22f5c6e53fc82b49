"""What a guard does for a load, a put and a write, and for a losing run, as steps of a saver.

``guard.Guard`` is the checkpointer around this, with all methods of one. Each run that writes
through a guard is a ``GuardedRun``, which knows what the run may build on and what became of it. A
run that lost may continue in a thread of its own, a ``ForkedThread``.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import OrderedDict, deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, cast
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5
from weakref import WeakKeyDictionary

from lockstitch.errors import Conflict
from lockstitch.formats.langgraph.snapshot import ERROR, INTERRUPT
from lockstitch.integrations.langgraph import optimistic_lock, pending_writes, run_ids
from lockstitch.integrations.langgraph.optimistic_lock import id_of, strip, thread_moved
from lockstitch.integrations.langgraph.reconciler import Reconciler
from lockstitch.integrations.langgraph.report import CounterBook
from lockstitch.integrations.langgraph.run_ids import (
    LIMIT,
    GraphRun,
    RunProgress,
    RunRegistry,
    ThreadPlace,
    place_of,
    remember,
)
from lockstitch.integrations.langgraph.saver_steps import (
    PutCheckpoint,
    PutWrites,
    ReadCheckpoint,
    ReadDeltas,
    ReadHeader,
    Saver,
    Steps,
    WaitSeconds,
)

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple

    from lockstitch.integrations.langgraph.optimistic_lock import ThreadHead

_LOG = logging.getLogger("lockstitch.langgraph")
# For how many seconds an observation is assumed to be still true. This only saves reads, because
# everything is checked again after it was put.
_MOMENT = 0.1
# How often a load is tried again if others are faster, and how many forks are remembered.
_TRIES = 5
_FORKS = 1000
# The shortest and the longest pause, in seconds, while waiting for a thread.
_SHORTEST, _LONGEST = 0.01, 0.1
# The longest wait for a thread on which others go on and on, as a multiple of ``wait``.
_MOST = 10
_LOW_BITS = (1 << 62) - 1
_FORK_TASK = str(uuid5(NAMESPACE_URL, "lockstitch:langgraph:forks"))


# Runs


@dataclass(slots=True, eq=False)
class GuardedRun(RunProgress):
    """One run in one namespace of a thread, from the moment it loads a checkpoint."""

    # The number of task writes on each checkpoint when the run loaded it.
    seen: dict[ThreadPlace, int] = field(default_factory=dict)
    # What it wrote on checkpoints that it had not put yet, since LangGraph saves in the background.
    early: dict[ThreadPlace, list[PutWrites]] = field(default_factory=dict)
    # The tasks whose writes on a checkpoint the run knows, from its load or as its own.
    tasks: dict[ThreadPlace, set[str]] = field(default_factory=dict)
    # The heads that it has loaded, and when it last saw that it may build on a checkpoint.
    found: dict[ThreadPlace, ThreadHead] = field(default_factory=dict)
    fresh: dict[ThreadPlace, float] = field(default_factory=dict)
    # Whether the writes of tasks become part of the history at once (``DeltaChannel``).
    has_deltas: bool = True
    # Whether everything is stored at the end, long after it was loaded.
    is_late: bool = True
    # Whether another checkpoint certainly follows the one with the input.
    takes_input_up: bool = False
    # The thread's first checkpoint, if this run has put and claimed it without checking that it
    # counts.
    root: ThreadPlace | None = None
    lost: Conflict | None = None
    branch: ForkedThread | None = None
    lock: RLock = field(default_factory=RLock)
    _turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = field(
        default_factory=WeakKeyDictionary
    )

    def note_seen(self, place: ThreadPlace) -> None:
        """Record that the run may build on a place, as of now."""
        self.fresh[place] = time.monotonic()

    def is_fresh(self, place: ThreadPlace) -> bool:
        """Whether it was seen a moment ago that the run may build on a place."""
        seen = self.fresh.get(place)
        return seen is not None and time.monotonic() - seen < _MOMENT

    def learn(self, run: GraphRun) -> None:
        self.has_deltas = run.graph is None or bool(pending_writes.delta_channels(run.graph))
        self.is_late = run.durability == "exit"
        self.takes_input_up = run.takes_input_up

    @property
    def turn(self) -> asyncio.Lock:
        """A lock for each event loop; one that two loops share would not wake waiting tasks."""
        return self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())


class GuardedRuns(RunRegistry[GuardedRun]):
    """The latest runs of this process, up to a limit; threads may share it."""

    def __init__(self, limit: int = LIMIT) -> None:
        super().__init__(GuardedRun, limit)
        self._nesting = Lock()
        # The runs of subgraphs, by the checkpoint of the outermost graph that runs them.
        self._inner: OrderedDict[ThreadPlace, dict[str, GuardedRun]] = OrderedDict()
        # The last checkpoint that counts in each thread and namespace, of those put here.
        self._last: OrderedDict[ThreadPlace, ThreadPlace] = OrderedDict()

    def last(self, place: ThreadPlace) -> ThreadPlace | None:
        """Return what this process has put last in the thread and namespace of a place, or None."""
        with self._nesting:
            return self._last.get(place.at(None))

    def forget(self, threads: Collection[str] | None = None) -> None:
        """Forget what was put last in some threads, or in all, since it may have been deleted."""
        with self._nesting:
            for place in list(self._last):
                if threads is None or place.thread in threads:
                    del self._last[place]

    def note_last(self, place: ThreadPlace) -> None:
        """Remember what this process has put last, so that it can be claimed ahead."""
        with self._nesting:
            remember(self._last, place.at(None), place, self._limit)

    def outermost(self, config: RunnableConfig, place: ThreadPlace) -> GuardedRun | None:
        """Return the run of the outermost graph that a subgraph's run is a part of."""
        above = _above(config, place)
        return self.writer(above) if above else None

    def nest(self, run: GuardedRun, config: RunnableConfig, place: ThreadPlace) -> None:
        """Remember the checkpoint from which a subgraph is run, if this is one."""
        above = _above(config, place)
        if above is not None:
            with self._nesting:
                inner = {**self._inner.get(above, {}), run.name: run}
                remember(self._inner, above, inner, self._limit)

    def inner(self, above: ThreadPlace) -> list[GuardedRun]:
        """Return the runs of the subgraphs that are run from a checkpoint."""
        with self._nesting:
            return list(self._inner.get(above, {}).values())

    def counts(self, place: ThreadPlace) -> bool:
        """Whether a checkpoint is known to count because a run of this process put it."""
        return self.writer(place) is not None


def _above(config: RunnableConfig, place: ThreadPlace) -> ThreadPlace | None:
    """Return the checkpoint of the outermost graph that runs a subgraph."""
    above = config.get("configurable", {}).get("checkpoint_map") or {}
    return ThreadPlace(place.thread, "", above[""]) if place.namespace and above.get("") else None


_KEEPING: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def _keeps_histories(graph: Any) -> bool:
    """Whether a graph has subgraphs that keep their own history."""
    if graph not in _KEEPING:
        below = graph.get_subgraphs(recurse=True)
        _KEEPING[graph] = any(one.checkpointer is True for _, one in below)
    return _KEEPING[graph]


# What is done for these runs.


class Guarding:
    """The threads of a saver, the runs on them, and the operations on both."""

    def __init__(
        self,
        saver: Saver,
        *,
        on_conflict: str,
        reconcile: bool,
        channel: str | None,
        wait: float = 0.0,
    ) -> None:
        self.saver = saver
        self.on_conflict = on_conflict
        self.forks: deque[Fork] = deque(maxlen=_FORKS)
        self.runs = GuardedRuns()
        self.counting = CounterBook()
        self._reconcile = reconcile
        self._channel = channel
        self._wait = wait

    def load(self, config: RunnableConfig) -> Steps[CheckpointTuple | None]:
        """Load the checkpoint that a config names, or the head, repaired if something new comes."""
        run = self.runs.begins(config)
        load = self._load_by_id if place_of(config).checkpoint else self._load_head
        for rest in reversed(range(_TRIES)):
            try:
                return (yield from load(config, run))
            except Conflict:
                # Another run was faster with the same checkpoint: read what it has made of it.
                if not rest:
                    raise
                self.counting.retry()
        raise AssertionError

    def _load_head(
        self, config: RunnableConfig, run: GraphRun | None
    ) -> Steps[CheckpointTuple | None]:
        place = place_of(config)
        saved: CheckpointTuple | None = None
        guess: ThreadPlace | None = None
        if run is not None and self._wait:
            progress = self.runs.of(run, place)
            saved = yield from wait_for_turn(config, run, progress, self.runs, self._wait)
        elif run is not None:
            # Claim what this process has put last, before loading; the load shows whether that is
            # the head.
            progress, guess = self.runs.of(run, place), self.runs.last(place)
            guess = None if run.durability == "exit" else guess
            if guess is not None:
                here = replace(guess, more=place.more)
                yield optimistic_lock.claim_ahead(here, progress.name)
        if saved is None:
            saved = yield ReadCheckpoint(config)
        found = None
        if saved is not None:
            found = yield from optimistic_lock.find_head(place, self.runs.counts, saved)
        if saved is None or found is None:
            self.runs.note_load(config, place, is_head=True).note_seen(place)
            return None
        run_ids.follow(found.newest)
        here = place.at(id_of(found.saved))
        if id_of(saved) != id_of(found.saved):
            # Only the header was read. Read it whole, with the config that a saver gives for the
            # newest.
            saved = yield ReadCheckpoint(here.config)
            if saved is None:
                raise thread_moved(place, None)
            saved = saved._replace(config=replace(here, more={}).config)
        progress = self._note_load(config, here, saved, is_head=True)
        if progress.is_announced and here not in progress.fresh:
            progress.found[here] = optimistic_lock.outline(found)
        progress.note_seen(here)
        if guess is not None and optimistic_lock.is_claimed(guess, saved, progress.name):
            progress.owned.add(here)
        if run is None or not self._reconcile or not run.brings_input(config, saved):
            return strip(saved)
        # What this process put itself need not be read in full.
        is_own = self.runs.counts(here) and not _keeps_histories(run.graph)
        if is_own and not pending_writes.may_be_broken(strip(saved)):
            return strip(saved)
        return (yield from self._reconcile_for(config, saved, run.graph, is_head=True))

    def _load_by_id(
        self, config: RunnableConfig, run: GraphRun | None
    ) -> Steps[CheckpointTuple | None]:
        place = place_of(config)
        found = yield from optimistic_lock.find_head(place, self.runs.counts)
        saved: CheckpointTuple | None = yield ReadCheckpoint(config)
        if found:
            run_ids.follow(found.newest)
        if saved is None:
            self.runs.note_load(config, place, is_head=False)
            return None
        is_head = found is not None and id_of(saved) == id_of(found.saved)
        self._note_load(config, place, saved, is_head=is_head)
        if run and self._reconcile and run.brings_input(config, saved):
            return (yield from self._reconcile_for(config, saved, run.graph, is_head=is_head))
        return strip(saved)

    def _note_load(
        self, config: RunnableConfig, here: ThreadPlace, saved: CheckpointTuple, *, is_head: bool
    ) -> GuardedRun:
        """Record a checkpoint that was handed out; later loads by the same run only look."""
        run = self.runs.note_load(config, here, is_head=is_head)
        run.seen.setdefault(here, optimistic_lock.writes_on(saved))
        run.tasks.setdefault(here, {task for task, _, _ in saved.pending_writes or ()})
        return run

    def _reconcile_for(
        self, config: RunnableConfig, saved: CheckpointTuple, graph: Any, *, is_head: bool
    ) -> Steps[CheckpointTuple]:
        """Return what a run with new input begins on: a reconciled checkpoint or the loaded one."""
        place = place_of(config)
        here = place.at(id_of(saved))
        run = self._note_load(config, here, saved, is_head=is_head)

        def store(step: PutCheckpoint) -> Steps[RunnableConfig]:
            # Two runs that reconcile the same head must not write the same row.
            with suppress(ValueError):
                number = UUID(step.checkpoint["id"]).int & ~_LOW_BITS
                # The id keeps its place in the order, and no other run can make the same one.
                step.checkpoint["id"] = str(UUID(int=number | uuid4().int & _LOW_BITS))
            where = place_of(step.config)
            own = run if where == here else self.runs.note_load(where.config, where, is_head=True)
            return (yield from self._put_guarded(own, where, step))

        loaded = saved if is_head else pending_writes.without_input(saved)
        task = Reconciler(
            graph,
            # A config with its id would mean the past, whose subgraphs LangGraph leaves alone.
            place.at(None).config if is_head else here.config,
            channel=self._channel,
            force=True,
            saver=self.saver,
            loaded=loaded._replace(config=here.config),
            store=store,
        )
        report = yield from task.steps(None)
        if not report.changed or report.after is None:
            return strip(saved)
        after = place.at(place_of(report.after).checkpoint)
        new: CheckpointTuple | None = yield ReadCheckpoint(after.config)
        if new is None:
            raise thread_moved(here, None)
        run_ids.follow(id_of(new))
        self.counting.heal(report)
        _LOG.info("thread %r was repaired before a new input: %s", place.thread, id_of(new))
        return strip(new)

    def store(self, run: GuardedRun, step: PutCheckpoint | PutWrites) -> Steps[Any]:
        """Store what a run writes where it may build, or on the run's branch."""
        return self._put(run, step) if isinstance(step, PutCheckpoint) else self._write(run, step)

    def _put(self, run: GuardedRun, step: PutCheckpoint) -> Steps[RunnableConfig]:
        config, place = step.config, place_of(step.config)
        self.runs.note_input(run if self._reconcile else None, place, step.metadata)
        branch = self._branch_of(run, config, place)
        if branch is None:
            try:
                written = yield from self._put_guarded(run, place, step)
            except Conflict as error:
                branch = yield from self._give_way(run, config, place, error)
            else:
                run.stored = step.checkpoint["id"]
                return written
        signed = replace(step, metadata=optimistic_lock.sign(step.metadata, run.name))
        written = yield from branch.put(place, signed, run.tasks.get(place, ()))
        here = place.at(step.checkpoint["id"])
        for write in run.early.pop(here, ()):
            yield from branch.write(here, write, ())
        yield from self._copy_subgraphs(branch, here)
        return written

    def _put_guarded(
        self, run: GuardedRun, place: ThreadPlace, step: PutCheckpoint
    ) -> Steps[RunnableConfig]:
        here = place.at(step.checkpoint["id"])
        made = replace(step, metadata=optimistic_lock.sign(step.metadata, run.name))
        if place.checkpoint and step.checkpoint["id"] <= place.checkpoint:
            raise optimistic_lock.clock_behind(place, step.checkpoint["id"])
        is_branch = run.is_branch(place) or step.metadata.get("source") == "fork"
        is_followed = False
        written: RunnableConfig
        if place not in run.owned and is_branch:
            written = yield from optimistic_lock.put_fork(place, made, run.name)
        elif place.checkpoint is None:
            is_input = step.metadata.get("source") == "input" and not place.namespace
            is_followed = is_input and run.takes_input_up
            written = yield from optimistic_lock.put_first(
                place,
                made,
                run.name,
                self.runs.counts,
                is_fresh=run.is_fresh(place),
                is_followed=is_followed,
            )
        else:
            yield from self._secure(run, place)
            written = yield from optimistic_lock.put(place, made, run.name, run.tasks.get(place))
        run.root = here if is_followed else None
        self.runs.note_put(run, here, place, counts=not is_followed)
        run.note_seen(here)
        if not is_followed:
            self.runs.note_last(here)
        run.early.pop(here, None)
        return written

    def _secure(self, run: GuardedRun, place: ThreadPlace) -> Steps[None]:
        """Make sure that a run may build on a place, or claim it.

        Recent checks are not repeated.
        """
        if place not in run.owned:
            is_sure = run.is_fresh(place) and not run.is_late
            found = run.found.pop(place, None) if is_sure else None
            seen = run.seen.get(place)
            yield from optimistic_lock.claim_head(place, run.name, self.runs.counts, seen, found)
            run.owned.add(place)
        elif run.is_late or not run.is_fresh(place):
            yield from optimistic_lock.check_claim(place, run.name)
        run.note_seen(place)

    def _write(self, run: GuardedRun, step: PutWrites) -> Steps[None]:
        """Store the writes of a run's task.

        The first ones on a head that it loaded claim the head.
        """
        config, place = step.config, place_of(step.config)
        branch = self._branch_of(run, config, place)
        if branch is None:
            try:
                if not run.is_branch(place):
                    is_sure = place in run.owned and not run.has_deltas and run.is_fresh(place)
                    asks = any(channel == INTERRUPT for channel, _ in step.writes)
                    # Most writes need no check before them, because the next put is checked.
                    if asks or not is_sure:
                        run.fresh.pop(place, None)
                        yield from self._secure(run, place)
                elif place not in run.seen:
                    run.early.setdefault(place, []).append(step)
                yield step
                run.tasks.setdefault(place, set()).add(step.task)
            except Conflict as error:
                branch = yield from self._give_way(run, config, place, error)
            else:
                return
        yield from branch.write(place, step, run.tasks.get(place, ()))
        yield from self._copy_subgraphs(branch, place)

    def _copy_subgraphs(self, branch: ForkedThread, place: ThreadPlace) -> Steps[None]:
        """Copy the state of a checkpoint's subgraphs, which would start over in the fork."""
        for inner in self.runs.inner(place):
            put = [one for one in inner.owned if one.checkpoint]
            if inner.branch is None and put:
                inner.branch = branch
                last = max(put, key=lambda one: one.checkpoint or "")
                yield from branch.copy(last, inner.tasks.get(last, ()))

    def _branch_of(
        self, run: GuardedRun, config: RunnableConfig, place: ThreadPlace
    ) -> ForkedThread | None:
        """Return the branch of a run, or None if it has not lost.

        Raise an error if it may not go on.
        """
        if self.on_conflict == "fork":
            self.runs.nest(run, config, place)
        if run.branch is None and (outer := self.runs.outermost(config, place)):
            run.branch = outer.branch
        if run.lost:
            raise type(run.lost)(*run.lost.args)
        return run.branch

    def _give_way(
        self, run: GuardedRun, config: RunnableConfig, place: ThreadPlace, error: Conflict
    ) -> Steps[ForkedThread]:
        """Let a losing run continue in a thread of its own, or end it with ``Conflict``."""
        origin = place.checkpoint
        if run.root is not None:
            root: CheckpointTuple | None = yield ReadHeader(run.root.config)
            if root is not None and optimistic_lock.is_lost(root):
                # It lost the thread at its beginning, so nothing of its turn is in the thread.
                error = optimistic_lock.turn_lost(place.at(None), id_of(root))
                run.stored = origin = None
        outer = self.runs.outermost(config, place) if place.namespace else run
        error = run.describe(error)
        if self.on_conflict == "raise" or outer is None:
            run.lost = error
            self.counting.conflict()
            _LOG.warning("%s", error)
            raise error
        if outer.branch is None:
            self.counting.conflict()
            name = f"{place.thread}-fork-{outer.name[-12:]}"
            outer.branch = ForkedThread(name, self.saver.get_next_version)
            self.forks.append(Fork(place.thread, name, origin, str(error)))
            _LOG.warning("%s; it continues in thread %r", error, name)
        run.branch = outer.branch
        return run.branch


# Waiting for one's turn


def wait_for_turn(
    config: RunnableConfig, run: GraphRun, progress: GuardedRun, runs: GuardedRuns, wait: float
) -> Steps[CheckpointTuple | None]:
    """Wait for the turn of a run and claim the head for it.

    Return None if it begins without a turn.

    A run that has claimed the head, or has put a checkpoint with something left to do, is assumed
    to be active as long as something changes. Whether it is alive is unknown: after ``wait``
    seconds without a change it is taken over, as it would be without waiting. The claim of a head
    is the turn: one of several waiting runs gets it, and the others keep waiting.
    """

    def state_of(one: CheckpointTuple) -> tuple[str, list[str]]:
        return id_of(one), optimistic_lock.names_of(one)

    started = changed = time.monotonic()
    state: tuple[str, list[str]] | None = None
    pause = _SHORTEST
    place = place_of(config)
    while True:
        saved: CheckpointTuple | None = yield ReadCheckpoint(config)
        if saved is None:
            return None
        found = yield from optimistic_lock.find_head(place, runs.counts, saved)
        if found is None or id_of(found.saved) != id_of(saved):
            return None
        if _is_free(run, saved):
            here = place.at(id_of(saved))
            seen = optimistic_lock.writes_on(saved)
            try:
                yield from optimistic_lock.claim_head(here, progress.name, runs.counts, seen, found)
            except Conflict:
                # Another waiting run was faster.
                pause = _SHORTEST
            else:
                progress.owned.add(here)
                return saved
        now = time.monotonic()
        if state_of(saved) != state:
            state, changed = state_of(saved), now
        while True:
            now = time.monotonic()
            if now - changed >= wait or now - started >= wait * _MOST:
                return None
            yield WaitSeconds(min(pause * (0.5 + random.random()), wait))  # noqa: S311 - to get apart
            pause = min(pause * 1.5, _LONGEST)
            again: CheckpointTuple | None = yield ReadHeader(place.at(None).config)
            if again is None or state_of(again) != state:
                break


def _is_free(run: GraphRun, saved: CheckpointTuple) -> bool:
    """Whether no run is active on a head, as far as that can be seen."""
    # Otherwise a graph that a node calls on its own thread would wait for itself.
    callers: set[str] = set()
    above = run.parent
    while above is not None:
        callers.add(above.name)
        above = above.parent

    def is_over(name: str) -> bool:
        return name in callers or (run_ids.is_here(name) and not run_ids.is_running(name))

    holder, writer = optimistic_lock.named_by(saved), optimistic_lock.run_of(saved)
    if holder is not None and not is_over(holder):
        return False
    if writer is None or is_over(writer):
        return True
    # A run is active if something is left to do that has not failed and does not wait for a person.
    is_due = pending_writes.triggers(saved.checkpoint["channel_values"])
    if not is_due or pending_writes.work_on(saved).asking:
        return True
    if any(channel == ERROR for _, channel, _ in saved.pending_writes or ()):
        return True
    if saved.metadata.get("source") in {"update", "fork"}:
        return True
    stops = ("interrupt_before_nodes", "interrupt_after_nodes")
    return any(getattr(run.graph, name, ()) for name in stops)


# A thread of its own for a run that lost


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork: where a run continued that lost against another writer."""

    thread: str
    fork: str
    # The checkpoint that both runs have built on; None if both have begun the thread.
    checkpoint: str | None
    reason: str


@dataclass(slots=True)
class ForkedThread:
    """The thread that one losing run continues in.

    Each checkpoint it builds on is copied there once.
    """

    thread: str
    next_version: Any
    _there: set[ThreadPlace] = field(default_factory=set)

    def put(
        self, place: ThreadPlace, step: PutCheckpoint, tasks: Collection[str]
    ) -> Steps[RunnableConfig]:
        """Put a checkpoint into the branch; ``tasks`` have written on the one before."""
        yield from self.copy(place, tasks)
        here = replace(place, thread=self.thread)
        written: RunnableConfig = yield replace(step, config=self._within(step.config))
        self._there.add(here.at(step.checkpoint["id"]))
        return written

    def write(self, place: ThreadPlace, step: PutWrites, tasks: Collection[str]) -> Steps[None]:
        """Store writes on a checkpoint of the branch, on which ``tasks`` have written."""
        yield from self.copy(place, tasks)
        yield replace(step, config=self._within(step.config))

    def _within(self, config: RunnableConfig) -> RunnableConfig:
        conf = {**config.get("configurable", {}), "thread_id": self.thread}
        return cast("RunnableConfig", {**config, "configurable": conf})

    def copy(self, place: ThreadPlace, tasks: Collection[str]) -> Steps[None]:
        """Copy a checkpoint into the branch with all its values, as the first one there.

        ``tasks`` are the tasks whose writes on it the run knows; others have built on it meanwhile.
        """
        here = replace(place, thread=self.thread)
        if place.checkpoint is None or here in self._there:
            return
        saved: CheckpointTuple | None = yield ReadCheckpoint(place.config)
        if saved is not None:
            known = [write for write in saved.pending_writes or () if write[0] in tasks]
            saved = strip(saved._replace(pending_writes=known))
            above = yield from self._copy_deltas(here, place, saved)
            versions = dict(saved.checkpoint["channel_versions"])
            yield PutCheckpoint(above.config, saved.checkpoint, saved.metadata, versions)
            writes: dict[str, list[tuple[str, Any]]] = {}
            for task, channel, value in saved.pending_writes or ():
                writes.setdefault(task, []).append((channel, value))
            for task, own in writes.items():
                yield PutWrites(here.config, own, task)
        self._there.add(here)

    def _copy_deltas(
        self, here: ThreadPlace, place: ThreadPlace, saved: CheckpointTuple
    ) -> Steps[ThreadPlace]:
        """Store the contents of channels that keep only changes in one checkpoint before it."""
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
        made = {
            **body,
            "id": root.checkpoint,
            "channel_values": seeds,
            "channel_versions": versions,
            "versions_seen": {},
            "updated_channels": None,
        }
        step = int(saved.metadata.get("step", -1)) - 1
        metadata = cast("CheckpointMetadata", {"source": "fork", "step": step, "parents": {}})
        yield PutCheckpoint(here.at(None).config, cast("Checkpoint", made), metadata, versions)
        if writes:
            yield PutWrites(root.config, writes, _FORK_TASK)
        return root
