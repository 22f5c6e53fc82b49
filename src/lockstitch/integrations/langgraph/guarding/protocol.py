"""What a guard does for a load, a put and a write, and for a run that lost: steps, without saver.

The face of it, with all that a checkpointer has to have, is ``guard.Guard``.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lockstitch.errors import Conflict
from lockstitch.formats.langgraph.naming import INTERRUPT, START
from lockstitch.integrations.langgraph import caller
from lockstitch.integrations.langgraph.counting import Counting
from lockstitch.integrations.langgraph.guarding import claims
from lockstitch.integrations.langgraph.guarding.forks import Branch, Fork
from lockstitch.integrations.langgraph.guarding.runs import GuardedRun, Runs
from lockstitch.integrations.langgraph.guarding.settling import reconciled
from lockstitch.integrations.langgraph.guarding.steps import Put, Read, Saver, Steps, Write
from lockstitch.integrations.langgraph.guarding.waiting import waited
from lockstitch.integrations.langgraph.lineage import Place, place_of
from lockstitch.integrations.langgraph.repairing.pending import leaves_calls_open
from lockstitch.integrations.langgraph.repairing.reconciler import Reconciler

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import Checkpoint, CheckpointTuple

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
        self.runs = Runs()
        self.counting = Counting()
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
        self, config: RunnableConfig, run: caller.Run | None
    ) -> Steps[CheckpointTuple | None]:
        place = place_of(config)
        if place.checkpoint:
            return (yield from self._loaded_by_id(config, run))
        saved, guess = yield from self._claimed(config, run)
        if saved is None:
            saved = yield Read(config)
        found = yield from claims.head(place, self.runs.counts, saved) if saved else _nothing()
        if found is None:
            self.runs.loaded(config, place, is_head=True).saw(place)
            return None
        caller.follow(found.newest)
        if saved is None or claims.id_of(saved) != claims.id_of(found.saved):
            saved = yield from _whole(place, found.saved)
        if saved is None:
            raise claims.moved(place, None)
        here = place.at(claims.id_of(saved))
        given = self._given(config, here, saved, is_head=True)
        if given.is_announced and here not in given.fresh:
            given.found[here] = claims.outlined(found)
        given.saw(here)
        if guess is not None and claims.is_claimed(guess, saved, given.name):
            given.owned.add(here)
        made = None
        if run and self._reconcile and run.brings_input(config, saved):
            made = yield from self._settled(config, saved, run.graph, is_head=True)
        return made or claims.stripped(saved)

    def _loaded_by_id(
        self, config: RunnableConfig, run: caller.Run | None
    ) -> Steps[CheckpointTuple | None]:
        place = place_of(config)
        found = yield from claims.head(place, self.runs.counts)
        saved: CheckpointTuple | None = yield Read(config)
        if found:
            caller.follow(found.newest)
        if saved is None:
            self.runs.loaded(config, place, is_head=False)
            return None
        is_head = found is not None and claims.id_of(saved) == claims.id_of(found.saved)
        self._given(config, place, saved, is_head=is_head)
        made = None
        if run and self._reconcile and run.brings_input(config, saved):
            made = yield from self._settled(config, saved, run.graph, is_head=is_head)
        return made or claims.stripped(saved)

    def _claimed(
        self, config: RunnableConfig, run: caller.Run | None
    ) -> Steps[tuple[CheckpointTuple | None, Place | None]]:
        """Claim the head before a run begins: what is claimed, if it was read, and the place.

        Without waiting, what this process has put last is claimed, as the load will tell.
        """
        place = place_of(config)
        if run is None:
            return None, None
        given = self.runs.of(run, place)
        if self._wait:
            return (yield from waited(config, run, given, self.runs, self._wait)), None
        last = self.runs.last(place)
        if last is None or run.durability == "exit":
            return None, None
        yield claims.ahead(replace(last, more=place.more), given.name)
        return None, last

    def _given(
        self, config: RunnableConfig, here: Place, saved: CheckpointTuple, *, is_head: bool
    ) -> GuardedRun:
        """Take note of what is handed out: only the first time counts, others only look on."""
        run = self.runs.loaded(config, here, is_head=is_head)
        run.seen.setdefault(here, claims.writes_on(saved))
        run.tasks.setdefault(here, {task for task, _, _ in saved.pending_writes or ()})
        return run

    def _settled(
        self, config: RunnableConfig, saved: CheckpointTuple, graph: Any, *, is_head: bool
    ) -> Steps[CheckpointTuple | None]:
        """Reconcile before a new input; None if there was nothing to do."""
        place = place_of(config)
        here = place.at(claims.id_of(saved))
        run = self._given(config, here, saved, is_head=is_head)

        def store(where: Place, step: Put) -> Steps[RunnableConfig]:
            own = run if where == here else self.runs.loaded(where.config, where, is_head=True)
            return (yield from self._guarded(own, where, step))

        # Named by its id it would be one of the past, whose subgraphs are left alone.
        asked = place.at(None).config if is_head else here.config
        task = Reconciler(graph, asked, channel=self._channel, force=True, saver=self.saver)
        loaded = saved if is_head else _of_the_past(saved)
        report = yield from reconciled(task, loaded._replace(config=here.config), store)
        if not report.changed or report.after is None:
            return None
        new: CheckpointTuple | None = yield Read(place.at(place_of(report.after).checkpoint).config)
        if new is None:
            raise claims.moved(here, None)
        caller.follow(claims.id_of(new))
        self.counting.heal(report)
        _LOG.info("thread %r was settled before a new input: %s", place.thread, claims.id_of(new))
        return claims.stripped(new)

    def looked(self, config: RunnableConfig | None) -> None:
        """Take note of a look into the history."""
        if config is not None:
            self.runs.looked(config)

    def put(self, run: GuardedRun, config: RunnableConfig, step: Put) -> Steps[RunnableConfig]:
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
        signed = claims.signed(step.metadata, run.name)
        made = Put(step.config, step.checkpoint, signed, step.versions)
        written = yield from branch.put(place, made, run.tasks.get(place, ()))
        here = place.at(step.checkpoint["id"])
        for write in run.early.pop(here, ()):
            yield from branch.write(here, write, ())
        yield from self._taken_along(branch, here)
        return written

    def _guarded(self, run: GuardedRun, place: Place, step: Put) -> Steps[RunnableConfig]:
        checkpoint = step.checkpoint["id"]
        signed = claims.signed(step.metadata, run.name)
        made = Put(step.config, step.checkpoint, signed, step.versions)
        if place.checkpoint and checkpoint <= place.checkpoint:
            raise claims.behind(place, checkpoint)
        is_branch = run.is_branch(place) or step.metadata.get("source") == "fork"
        written: RunnableConfig
        if place not in run.owned and is_branch:
            written = yield from claims.put_fork(place, made, run.name)
        elif place.checkpoint is None:
            is_fresh = run.is_fresh(place)
            counts = self.runs.counts
            written = yield from claims.put_first(place, made, run.name, counts, is_fresh=is_fresh)
        else:
            yield from self._may_write(run, place)
            written = yield from claims.put(place, made, run.name, run.tasks.get(place))
        self.runs.wrote(run, place.at(checkpoint), place)
        run.early.pop(place.at(checkpoint), None)
        return written

    def _may_write(self, run: GuardedRun, place: Place) -> Steps[None]:
        """See that a run may build on a place, or claim it; what it saw a moment ago, it knows."""
        if place not in run.owned:
            is_sure = run.is_fresh(place) and not run.is_late
            found = run.found.pop(place, None) if is_sure else None
            seen = run.seen.get(place)
            yield from claims.begun(place, run.name, self.runs.counts, seen, found)
            run.owned.add(place)
        elif run.is_late or not run.is_fresh(place):
            yield from claims.checked(place, run.name)
        run.saw(place)

    def _must_look(self, run: GuardedRun, place: Place, step: Write) -> bool:
        """Whether a write needs a look before it: most are followed by one, at the next put."""
        if place not in run.owned or run.has_deltas or not run.is_fresh(place):
            return True
        return any(channel == INTERRUPT for channel, _ in step.writes)

    def written(self, run: GuardedRun, config: RunnableConfig, step: Write) -> Steps[None]:
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

    def _taken_along(self, branch: Branch, place: Place) -> Steps[None]:
        """Copy where the subgraphs of a checkpoint stand, or they would begin anew in the fork."""
        for inner in self.runs.inner(place):
            put = [one for one in inner.owned if one.checkpoint]
            if inner.branch is None and put:
                inner.branch = branch
                last = max(put, key=lambda one: one.checkpoint or "")
                yield from branch.copied(last, inner.tasks.get(last, ()))

    def _branch(self, run: GuardedRun, config: RunnableConfig, place: Place) -> Branch | None:
        """Give the branch that a run is on, None if it has lost nothing; raises if it may not."""
        if self.on_conflict == "fork":
            self.runs.nest(run, config, place)
        if run.branch is None and (outer := self.runs.outermost(config, place)):
            run.branch = outer.branch
        if run.lost:
            raise type(run.lost)(*run.lost.args)
        return run.branch

    def _gone_on(
        self, run: GuardedRun, config: RunnableConfig, place: Place, error: Conflict
    ) -> Branch:
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
            outer.branch = Branch(name, self.saver.get_next_version)
            self.forks.append(Fork(place.thread, name, place.checkpoint, str(error)))
            _LOG.warning("%s; it goes on in thread %r", error, name)
        run.branch = outer.branch
        return run.branch


def _nothing() -> Steps[None]:
    """Find no head where there is no checkpoint."""
    return
    yield  # type: ignore[unreachable]


def _whole(place: Place, head: CheckpointTuple) -> Steps[CheckpointTuple | None]:
    """Read a head that was looked at, with the config that a saver gives to its newest one."""
    here = place.at(claims.id_of(head))
    saved: CheckpointTuple | None = yield Read(here.config)
    return saved._replace(config=replace(here, more={}).config) if saved else None


def _of_the_past(saved: CheckpointTuple) -> CheckpointTuple:
    """Give a checkpoint of the past without what a run began or went on with there.

    Whoever goes back to it with something else to say has put that in its place. Only results of
    calls that are open there are still wanted.
    """
    values = {k: v for k, v in saved.checkpoint["channel_values"].items() if k != START}
    checkpoint: Checkpoint = {**saved.checkpoint, "channel_values": values}
    wants_results = saved.metadata.get("source") != "input" and leaves_calls_open(values)
    return saved if wants_results else saved._replace(checkpoint=checkpoint, pending_writes=[])
