"""What a guard does for a load, a put and a write, and for a run that lost: steps, without saver.

The face of it, with all that a checkpointer has to have, is ``guard.Guard``.

The runs that write through a guard: what each of them may build on, and what became of it.

Waiting for one's turn: who begins a run while another one is under way may let that end first.

Whoever has claimed the head, or has put a checkpoint with something left to do, is taken to be
under way, for as long as something changes. Nobody can see whether he lives: after ``wait``
seconds without a change he is taken over, as he would be without waiting. The claim of a head is
the turn: of several who wait, one gets it, and the others go on waiting.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from lockstitch.errors import Conflict
from lockstitch.formats.langgraph.snapshot import ERROR, INTERRUPT, START
from lockstitch.integrations.langgraph import caller, optimistic_lock, pending_writes
from lockstitch.integrations.langgraph.caller import GraphRun, is_here, is_running
from lockstitch.integrations.langgraph.fork_thread import Fork, ForkedThread
from lockstitch.integrations.langgraph.pending_writes import leaves_calls_open, may_be_broken
from lockstitch.integrations.langgraph.reconciler import Reconciler, reconcile_guarded
from lockstitch.integrations.langgraph.report import CounterBook
from lockstitch.integrations.langgraph.run_ids import (
    LIMIT,
    RunProgress,
    RunRegistry,
    ThreadPlace,
    place_of,
)
from lockstitch.integrations.langgraph.saver_steps import (
    PutCheckpoint,
    PutWrites,
    ReadCheckpoint,
    ReadHeader,
    Saver,
    Sleep,
    Steps,
)

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import Checkpoint, CheckpointTuple

    from lockstitch.integrations.langgraph.optimistic_lock import ThreadHead


# Seconds for which what was seen is taken to be so still. It only spares reads: whatever is put is
# looked after, too.
_MOMENT = 0.1


@dataclass(slots=True, eq=False)
class GuardedRun(RunProgress):
    """One run in one namespace of a thread, from its load on."""

    # How many writes of tasks hung on each checkpoint that it has loaded.
    seen: dict[ThreadPlace, int] = field(default_factory=dict)
    # What it wrote on checkpoints that it had not put yet: LangGraph saves in the background.
    early: dict[ThreadPlace, list[PutWrites]] = field(default_factory=dict)
    # The tasks whose writes on a checkpoint it knows of, from its load or as its own.
    tasks: dict[ThreadPlace, set[str]] = field(default_factory=dict)
    # The heads that it has loaded, and when it last saw of a checkpoint that it may build there.
    found: dict[ThreadPlace, ThreadHead] = field(default_factory=dict)
    fresh: dict[ThreadPlace, float] = field(default_factory=dict)
    # Whether what a task writes becomes a part of the history at once (``DeltaChannel``).
    has_deltas: bool = True
    # Whether all is stored at the end, long after it was loaded.
    is_late: bool = True
    lost: Conflict | None = None
    branch: ForkedThread | None = None
    lock: RLock = field(default_factory=RLock)
    _turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = field(
        default_factory=WeakKeyDictionary
    )

    def saw(self, place: ThreadPlace) -> None:
        """Take note that the run may build on a place, now."""
        self.fresh[place] = time.monotonic()

    def is_fresh(self, place: ThreadPlace) -> bool:
        """Whether it was seen a moment ago that the run may build on a place."""
        seen = self.fresh.get(place)
        return seen is not None and time.monotonic() - seen < _MOMENT

    def learn(self, run: GraphRun) -> None:
        self.has_deltas = run.graph is None or _has_deltas(run.graph)
        self.is_late = run.durability == "exit"

    @property
    def turn(self) -> asyncio.Lock:
        """One at a time in an event loop; shared by two loops, a lock would wake nobody."""
        return self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())


def _has_deltas(graph: Any) -> bool:
    return any(type(one).__name__ == "DeltaChannel" for one in graph.channels.values())


_KEEPING: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def keeps_histories(graph: Any) -> bool:
    """Whether a graph has subgraphs that keep a history of their own."""
    if graph not in _KEEPING:
        below = graph.get_subgraphs(recurse=True)
        _KEEPING[graph] = any(one.checkpointer is True for _, one in below)
    return _KEEPING[graph]


class GuardedRuns(RunRegistry[GuardedRun]):
    """The runs of this process, up to a number of them; safe between threads."""

    def __init__(self, limit: int = LIMIT) -> None:
        super().__init__(GuardedRun, limit)
        self._nesting = Lock()
        # The runs of subgraphs by the checkpoint of the outermost graph that they are run from.
        self._inner: OrderedDict[ThreadPlace, dict[str, GuardedRun]] = OrderedDict()
        # What was put last in a thread and namespace, and counts.
        self._last: OrderedDict[ThreadPlace, ThreadPlace] = OrderedDict()

    def last(self, place: ThreadPlace) -> ThreadPlace | None:
        """Return what this process has put last where a place is, None if it has put nothing."""
        with self._nesting:
            return self._last.get(place.at(None))

    def forget(self, threads: Collection[str] | None = None) -> None:
        """Claim nothing ahead in some threads, or in any: what was put may be gone."""
        with self._nesting:
            for place in list(self._last):
                if threads is None or place.thread in threads:
                    del self._last[place]

    def wrote(self, progress: GuardedRun, place: ThreadPlace, parent: ThreadPlace) -> None:
        super().wrote(progress, place, parent)
        progress.saw(place)
        with self._nesting:
            self._last[place.at(None)] = place
            self._last.move_to_end(place.at(None))
            while len(self._last) > self._limit:
                self._last.popitem(last=False)

    def outermost(self, config: RunnableConfig, place: ThreadPlace) -> GuardedRun | None:
        """Return the run of the graph that a subgraph's run is a part of."""
        above = _above(config, place)
        return self.writer(above) if above else None

    def nest(self, run: GuardedRun, config: RunnableConfig, place: ThreadPlace) -> None:
        """Remember from which checkpoint a subgraph is run, if it is one."""
        above = _above(config, place)
        if above is None:
            return
        with self._nesting:
            self._inner.setdefault(above, {})[run.name] = run
            while len(self._inner) > self._limit:
                self._inner.popitem(last=False)

    def inner(self, above: ThreadPlace) -> list[GuardedRun]:
        """Return the runs of the subgraphs that are run from a checkpoint."""
        with self._nesting:
            return list(self._inner.get(above, {}).values())

    def counts(self, place: ThreadPlace) -> bool:
        """Whether a checkpoint is known to count, since a run of this process put it."""
        return self.writer(place) is not None


def _above(config: RunnableConfig, place: ThreadPlace) -> ThreadPlace | None:
    """Return the checkpoint of the outermost graph that a subgraph is run from."""
    above = config.get("configurable", {}).get("checkpoint_map") or {}
    return ThreadPlace(place.thread, "", above[""]) if place.namespace and above.get("") else None


# Seconds between two looks, at first and at most.
_SHORTEST, _LONGEST = 0.01, 0.1
# A thread on which others go on and on is waited for so many times as long, and no longer.
_MOST = 10

HeadState = tuple[str, list[str]]


def wait_for_turn(
    config: RunnableConfig, run: GraphRun, given: GuardedRun, runs: GuardedRuns, wait: float
) -> Steps[CheckpointTuple | None]:
    """Wait for the turn of a run, and claim the head for it; None if it begins without."""
    started = changed = time.monotonic()
    state: HeadState | None = None
    pause = _SHORTEST
    while True:
        saved: CheckpointTuple | None = yield ReadCheckpoint(config)
        found = (
            (yield from optimistic_lock.find_head(place_of(config), runs.counts, saved))
            if saved
            else None
        )
        if (
            saved is None
            or found is None
            or optimistic_lock.id_of(found.saved) != optimistic_lock.id_of(saved)
        ):
            return None
        if _is_free(run, saved):
            here = place_of(config).at(optimistic_lock.id_of(saved))
            try:
                seen = optimistic_lock.writes_on(saved)
                yield from optimistic_lock.claim_head(here, given.name, runs.counts, seen, found)
            except Conflict:
                # Another one of those who wait was quicker.
                pause = _SHORTEST
            else:
                given.owned.add(here)
                return saved
        now = time.monotonic()
        if _state(saved) != state:
            state, changed = _state(saved), now
        while state == _state(saved):
            now = time.monotonic()
            if now - changed >= wait or now - started >= wait * _MOST:
                return None
            yield Sleep(min(pause * (0.5 + random.random()), wait))  # noqa: S311 - to get apart
            pause = min(pause * 1.5, _LONGEST)
            again: CheckpointTuple | None = yield ReadHeader(place_of(config).at(None).config)
            if again is None or _state(again) != state:
                break


def _state(saved: CheckpointTuple) -> HeadState:
    return optimistic_lock.id_of(saved), optimistic_lock.names_of(saved)


def _is_free(run: GraphRun, saved: CheckpointTuple) -> bool:
    """Whether nobody is under way on a head, as far as that can be seen."""
    # A graph that a node calls on its own thread would wait for itself.
    callers = {one.name for one in _callers(run)}
    holder, writer = optimistic_lock.named_by(saved), optimistic_lock.run_of(saved)
    if holder is not None and holder not in callers and not _is_over(holder):
        return False
    if writer is None or writer in callers or _is_over(writer):
        return True
    return not _is_under_way(run.graph, saved)


def _callers(run: GraphRun) -> Iterator[GraphRun]:
    above = run.parent
    while above is not None:
        yield above
        above = above.parent


def _is_over(name: str) -> bool:
    """Whether a run was one of this process, and has come to its end."""
    return is_here(name) and not is_running(name)


def _is_under_way(graph: Any, saved: CheckpointTuple) -> bool:
    """Whether something is left to do, and has neither failed nor waits for a person."""
    if not pending_writes.triggers(
        saved.checkpoint["channel_values"]
    ) or pending_writes.asking_tasks(saved):
        return False
    if any(channel == ERROR for _, channel, _ in saved.pending_writes or ()):
        return False
    if saved.metadata.get("source") in {"update", "fork"}:
        return False
    stops = (
        getattr(graph, name, ()) for name in ("interrupt_before_nodes", "interrupt_after_nodes")
    )
    return not any(stops)


_LOG = logging.getLogger("lockstitch.langgraph")
_TRIES = 5
_FORKS = 1000


class Guarding:
    """The threads of a saver, the runs on them, and what is done for those."""

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

    def loaded(self, config: RunnableConfig) -> Steps[CheckpointTuple | None]:
        """Give the checkpoint that a config names, or the head; settled, if something new comes."""
        run = self.runs.begins(config)
        for rest in reversed(range(_TRIES)):
            try:
                return (yield from self._loaded_once(config, run))
            except Conflict:
                # Somebody was quicker with the same checkpoint: what he made of it is read next.
                if not rest:
                    raise
                self.counting.retry()
        raise AssertionError

    def _loaded_once(
        self, config: RunnableConfig, run: caller.GraphRun | None
    ) -> Steps[CheckpointTuple | None]:
        place = place_of(config)
        if place.checkpoint:
            return (yield from self._loaded_by_id(config, run))
        saved, guess = yield from self._claimed(config, run)
        if saved is None:
            saved = yield ReadCheckpoint(config)
        found = (
            yield from optimistic_lock.find_head(place, self.runs.counts, saved)
            if saved
            else _find_nothing()
        )
        if found is None:
            self.runs.loaded(config, place, is_head=True).saw(place)
            return None
        caller.follow(found.newest)
        if saved is None or optimistic_lock.id_of(saved) != optimistic_lock.id_of(found.saved):
            saved = yield from _read_whole(place, found.saved)
        if saved is None:
            raise optimistic_lock.thread_moved(place, None)
        here = place.at(optimistic_lock.id_of(saved))
        given = self._given(config, here, saved, is_head=True)
        if given.is_announced and here not in given.fresh:
            given.found[here] = optimistic_lock.outline(found)
        given.saw(here)
        if guess is not None and optimistic_lock.is_claimed(guess, saved, given.name):
            given.owned.add(here)
        made = None
        if run and run.brings_input(config, saved) and self._may_need(run, here, saved):
            made = yield from self._settled(config, saved, run.graph, is_head=True)
        return made or optimistic_lock.strip(saved)

    def _may_need(self, run: caller.GraphRun, here: ThreadPlace, saved: CheckpointTuple) -> bool:
        """Whether a head may have to be reconciled; one of this process is only looked over."""
        if not self._reconcile:
            return False
        is_own = self.runs.counts(here) and not keeps_histories(run.graph)
        return not is_own or may_be_broken(optimistic_lock.strip(saved))

    def _loaded_by_id(
        self, config: RunnableConfig, run: caller.GraphRun | None
    ) -> Steps[CheckpointTuple | None]:
        place = place_of(config)
        found = yield from optimistic_lock.find_head(place, self.runs.counts)
        saved: CheckpointTuple | None = yield ReadCheckpoint(config)
        if found:
            caller.follow(found.newest)
        if saved is None:
            self.runs.loaded(config, place, is_head=False)
            return None
        is_head = found is not None and optimistic_lock.id_of(saved) == optimistic_lock.id_of(
            found.saved
        )
        self._given(config, place, saved, is_head=is_head)
        made = None
        if run and self._reconcile and run.brings_input(config, saved):
            made = yield from self._settled(config, saved, run.graph, is_head=is_head)
        return made or optimistic_lock.strip(saved)

    def _claimed(
        self, config: RunnableConfig, run: caller.GraphRun | None
    ) -> Steps[tuple[CheckpointTuple | None, ThreadPlace | None]]:
        """Claim the head before a run begins: what is claimed, if it was read, and the place.

        Without waiting, what this process has put last is claimed, as the load will tell.
        """
        place = place_of(config)
        if run is None:
            return None, None
        given = self.runs.of(run, place)
        if self._wait:
            return (yield from wait_for_turn(config, run, given, self.runs, self._wait)), None
        last = self.runs.last(place)
        if last is None or run.durability == "exit":
            return None, None
        yield optimistic_lock.claim_ahead(replace(last, more=place.more), given.name)
        return None, last

    def _given(
        self, config: RunnableConfig, here: ThreadPlace, saved: CheckpointTuple, *, is_head: bool
    ) -> GuardedRun:
        """Take note of what is handed out: only the first time counts, others only look on."""
        run = self.runs.loaded(config, here, is_head=is_head)
        run.seen.setdefault(here, optimistic_lock.writes_on(saved))
        run.tasks.setdefault(here, {task for task, _, _ in saved.pending_writes or ()})
        return run

    def _settled(
        self, config: RunnableConfig, saved: CheckpointTuple, graph: Any, *, is_head: bool
    ) -> Steps[CheckpointTuple | None]:
        """Reconcile before a new input; None if there was nothing to do."""
        place = place_of(config)
        here = place.at(optimistic_lock.id_of(saved))
        run = self._given(config, here, saved, is_head=is_head)

        def store(where: ThreadPlace, step: PutCheckpoint) -> Steps[RunnableConfig]:
            own = run if where == here else self.runs.loaded(where.config, where, is_head=True)
            return (yield from self._guarded(own, where, step))

        # Named by its id it would be one of the past, whose subgraphs are left alone.
        asked = place.at(None).config if is_head else here.config
        task = Reconciler(graph, asked, channel=self._channel, force=True, saver=self.saver)
        loaded = saved if is_head else _without_input(saved)
        report = yield from reconcile_guarded(task, loaded._replace(config=here.config), store)
        if not report.changed or report.after is None:
            return None
        new: CheckpointTuple | None = yield ReadCheckpoint(
            place.at(place_of(report.after).checkpoint).config
        )
        if new is None:
            raise optimistic_lock.thread_moved(here, None)
        caller.follow(optimistic_lock.id_of(new))
        self.counting.heal(report)
        _LOG.info(
            "thread %r was settled before a new input: %s", place.thread, optimistic_lock.id_of(new)
        )
        return optimistic_lock.strip(new)

    def looked(self, config: RunnableConfig | None) -> None:
        """Take note of a look into the history."""
        if config is not None:
            self.runs.looked(config)

    def put(
        self, run: GuardedRun, config: RunnableConfig, step: PutCheckpoint
    ) -> Steps[RunnableConfig]:
        """Put a checkpoint of a run, where that may build, or on the branch that it is on."""
        place = place_of(config)
        self.runs.note_input(run if self._reconcile else None, place, step.metadata)
        branch = self._branch(run, config, place)
        if branch is None:
            try:
                written = yield from self._guarded(run, place, step)
            except Conflict as error:
                branch = self._gone_on(run, config, place, error)
            else:
                run.stored = step.checkpoint["id"]
                return written
        signed = optimistic_lock.sign(step.metadata, run.name)
        made = PutCheckpoint(step.config, step.checkpoint, signed, step.versions)
        written = yield from branch.put(place, made, run.tasks.get(place, ()))
        here = place.at(step.checkpoint["id"])
        for write in run.early.pop(here, ()):
            yield from branch.write(here, write, ())
        yield from self._taken_along(branch, here)
        return written

    def _guarded(
        self, run: GuardedRun, place: ThreadPlace, step: PutCheckpoint
    ) -> Steps[RunnableConfig]:
        checkpoint = step.checkpoint["id"]
        signed = optimistic_lock.sign(step.metadata, run.name)
        made = PutCheckpoint(step.config, step.checkpoint, signed, step.versions)
        if place.checkpoint and checkpoint <= place.checkpoint:
            raise optimistic_lock.clock_behind(place, checkpoint)
        is_branch = run.is_branch(place) or step.metadata.get("source") == "fork"
        written: RunnableConfig
        if place not in run.owned and is_branch:
            written = yield from optimistic_lock.put_fork(place, made, run.name)
        elif place.checkpoint is None:
            is_fresh = run.is_fresh(place)
            counts = self.runs.counts
            written = yield from optimistic_lock.put_first(
                place, made, run.name, counts, is_fresh=is_fresh
            )
        else:
            yield from self._may_write(run, place)
            written = yield from optimistic_lock.put(place, made, run.name, run.tasks.get(place))
        self.runs.wrote(run, place.at(checkpoint), place)
        run.early.pop(place.at(checkpoint), None)
        return written

    def _may_write(self, run: GuardedRun, place: ThreadPlace) -> Steps[None]:
        """See that a run may build on a place, or claim it; what it saw a moment ago, it knows."""
        if place not in run.owned:
            is_sure = run.is_fresh(place) and not run.is_late
            found = run.found.pop(place, None) if is_sure else None
            seen = run.seen.get(place)
            yield from optimistic_lock.claim_head(place, run.name, self.runs.counts, seen, found)
            run.owned.add(place)
        elif run.is_late or not run.is_fresh(place):
            yield from optimistic_lock.check_claim(place, run.name)
        run.saw(place)

    def _must_look(self, run: GuardedRun, place: ThreadPlace, step: PutWrites) -> bool:
        """Whether a write needs a look before it: most are followed by one, at the next put."""
        if place not in run.owned or run.has_deltas or not run.is_fresh(place):
            return True
        return any(channel == INTERRUPT for channel, _ in step.writes)

    def written(self, run: GuardedRun, config: RunnableConfig, step: PutWrites) -> Steps[None]:
        """Store writes of a run's task; the first ones on a head that it loaded claim that."""
        place = place_of(config)
        branch = self._branch(run, config, place)
        if branch is None:
            try:
                if not run.is_branch(place):
                    if self._must_look(run, place, step):
                        run.fresh.pop(place, None)
                        yield from self._may_write(run, place)
                elif place not in run.seen:
                    run.early.setdefault(place, []).append(step)
                yield step
                run.tasks.setdefault(place, set()).add(step.task)
            except Conflict as error:
                branch = self._gone_on(run, config, place, error)
            else:
                return
        yield from branch.write(place, step, run.tasks.get(place, ()))
        yield from self._taken_along(branch, place)

    def _taken_along(self, branch: ForkedThread, place: ThreadPlace) -> Steps[None]:
        """Copy where the subgraphs of a checkpoint stand, or they would begin anew in the fork."""
        for inner in self.runs.inner(place):
            put = [one for one in inner.owned if one.checkpoint]
            if inner.branch is None and put:
                inner.branch = branch
                last = max(put, key=lambda one: one.checkpoint or "")
                yield from branch.copied(last, inner.tasks.get(last, ()))

    def _branch(
        self, run: GuardedRun, config: RunnableConfig, place: ThreadPlace
    ) -> ForkedThread | None:
        """Give the branch that a run is on, None if it has lost nothing; raises if it may not."""
        if self.on_conflict == "fork":
            self.runs.nest(run, config, place)
        if run.branch is None and (outer := self.runs.outermost(config, place)):
            run.branch = outer.branch
        if run.lost:
            raise type(run.lost)(*run.lost.args)
        return run.branch

    def _gone_on(
        self, run: GuardedRun, config: RunnableConfig, place: ThreadPlace, error: Conflict
    ) -> ForkedThread:
        """Let a run that lost go on in a thread of its own, or end it."""
        outer = self.runs.outermost(config, place) if place.namespace else run
        error = run.told(error)
        if self.on_conflict == "raise" or outer is None:
            run.lost = error
            self.counting.conflict()
            _LOG.warning("%s", error)
            raise error
        if outer.branch is None:
            self.counting.conflict()
            name = f"{place.thread}-fork-{outer.name[-12:]}"
            outer.branch = ForkedThread(name, self.saver.get_next_version)
            self.forks.append(Fork(place.thread, name, place.checkpoint, str(error)))
            _LOG.warning("%s; it goes on in thread %r", error, name)
        run.branch = outer.branch
        return run.branch


def _find_nothing() -> Steps[None]:
    """Find no head where there is no checkpoint."""
    return
    yield  # type: ignore[unreachable]


def _read_whole(place: ThreadPlace, head: CheckpointTuple) -> Steps[CheckpointTuple | None]:
    """Read a head that was looked at, with the config that a saver gives to its newest one."""
    here = place.at(optimistic_lock.id_of(head))
    saved: CheckpointTuple | None = yield ReadCheckpoint(here.config)
    return saved._replace(config=replace(here, more={}).config) if saved else None


def _without_input(saved: CheckpointTuple) -> CheckpointTuple:
    """Give a checkpoint of the past without what a run began or went on with there.

    Whoever goes back to it with something else to say has put that in its place. Only results of
    calls that are open there are still wanted.
    """
    values = {k: v for k, v in saved.checkpoint["channel_values"].items() if k != START}
    checkpoint: Checkpoint = {**saved.checkpoint, "channel_values": values}
    wants_results = saved.metadata.get("source") != "input" and leaves_calls_open(values)
    return saved if wants_results else saved._replace(checkpoint=checkpoint, pending_writes=[])
