"""What a guard does for a load, a put and a write, and for a run that lost: steps, without saver.

The face of it, with all that a checkpointer has to have, is ``guard.Guard``.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from lockstitch.errors import Conflict
from lockstitch.formats.langgraph.naming import START
from lockstitch.integrations.langgraph.caller import Caller, brings_input, follow
from lockstitch.integrations.langgraph.guarding import claims
from lockstitch.integrations.langgraph.guarding.forks import Branch, Fork
from lockstitch.integrations.langgraph.guarding.runs import Run, Runs
from lockstitch.integrations.langgraph.guarding.settling import reconciled
from lockstitch.integrations.langgraph.guarding.steps import Put, Read, Saver, Steps, Write
from lockstitch.integrations.langgraph.lineage import Lineage, Place, place_of, ticketed
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
        self, saver: Saver, *, on_conflict: str, reconcile: bool, channel: str | None
    ) -> None:
        self.saver = saver
        self.on_conflict = on_conflict
        self.forks: deque[Fork] = deque(maxlen=_FORKS)
        self.runs = Runs(Lineage())
        self._reconcile = reconcile
        self._channel = channel
        self._warned: set[str] = set()

    def loaded(self, config: RunnableConfig, caller: Caller) -> Steps[CheckpointTuple | None]:
        """Give the checkpoint that a config names, or the head; settled, if something new comes."""
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
        found = yield from claims.head(place, self.runs.counts)
        head = found.saved if found else None
        saved: CheckpointTuple | None = None
        if place.checkpoint:
            saved = yield Read(ticketed(config, None))
        elif head:
            saved = yield from _whole(place, head)
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
            self.runs.started(place, named=named, known=known)
            return None
        here, seen = place.at(claims.id_of(saved)), claims.writes_on(saved)
        run = self.runs.started(here, named=named, seen=seen, known=known)
        run.tasks[here] = {task for task, _, _ in saved.pending_writes or ()}
        return _for(run, saved)

    def _settled(
        self, place: Place, saved: CheckpointTuple, caller: Caller, *, named: bool
    ) -> Steps[CheckpointTuple | None]:
        """Reconcile before a new input; None if there was nothing to do."""
        here, seen = place.at(claims.id_of(saved)), claims.writes_on(saved)
        run = self.runs.started(here, named=named, seen=seen, known=True)

        def store(where: Place, step: Put) -> Steps[RunnableConfig]:
            own = run if where == here else self.runs.started(where, known=True)
            return (yield from self._guarded(own, where, step))

        graph = caller.graph or self.saver
        # Named by its id it would be one of the past, whose subgraphs are left alone.
        config = here.config if named else place.at(None).config
        task = Reconciler(graph, config, channel=self._channel, force=True)
        loaded = _of_the_past(saved) if named else saved
        report = yield from reconciled(task, loaded._replace(config=here.config), store)
        if not report.changed or report.after is None:
            return None
        new: CheckpointTuple | None = yield Read(place.at(place_of(report.after).checkpoint).config)
        if new is None:
            raise claims.moved(here, None)
        follow(claims.id_of(new))
        _LOG.info("thread %r was settled before a new input: %s", place.thread, claims.id_of(new))
        return _for(run, new)

    def put(self, run: Run, config: RunnableConfig, step: Put) -> Steps[RunnableConfig]:
        """Put a checkpoint of a run, where that may build, or on the branch that it is on."""
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
        yield from self._taken_along(branch, here)
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
            written = yield from claims.put_first(place, made, run.name, self.runs.counts)
        else:
            yield from self._may_write(run, place)
            written = yield from claims.put(place, made, run.name, run.tasks.get(place))
        self.runs.wrote(run, place.at(checkpoint))
        run.early.pop(place.at(checkpoint), None)
        return written

    def _may_write(self, run: Run, place: Place) -> Steps[None]:
        if place in run.owned:
            yield from claims.checked(place, run.name)
        else:
            seen = run.seen if place == run.start else None
            yield from claims.begun(place, run.name, self.runs.counts, seen)
            run.owned.add(place)

    def written(self, run: Run, config: RunnableConfig, step: Write) -> Steps[None]:
        """Store writes of a run's task; the first ones on a head that it loaded claim that."""
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
        yield from self._taken_along(branch, place)

    def _taken_along(self, branch: Branch, place: Place) -> Steps[None]:
        """Copy where the subgraphs of a checkpoint stand, or they would begin anew in the fork."""
        for inner in self.runs.inner(place):
            put = [one for one in inner.owned if one.checkpoint]
            if inner.branch is None and put:
                inner.branch = branch
                last = max(put, key=lambda one: one.checkpoint or "")
                yield from branch.copied(last, inner.tasks.get(last, ()))

    def _branch(self, run: Run, config: RunnableConfig, place: Place) -> Branch | None:
        """Give the branch that a run is on, None if it has lost nothing; raises if it may not."""
        if self.on_conflict == "fork":
            self.runs.nest(run, config, place)
        if run.branch is None and (outer := self.runs.outermost(config, place)):
            run.branch = outer.branch
        if run.lost:
            raise Conflict(*run.lost.args)
        return run.branch

    def _gone_on(self, run: Run, config: RunnableConfig, place: Place, error: Conflict) -> Branch:
        """Let a run that lost go on in a thread of its own, or end it."""
        outer = self.runs.outermost(config, place) if place.namespace else run
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


def _whole(place: Place, head: CheckpointTuple) -> Steps[CheckpointTuple | None]:
    """Read a head that was looked at, with the config that a saver gives to its newest one."""
    here = place.at(claims.id_of(head))
    saved: CheckpointTuple | None = yield Read(here.config)
    return saved._replace(config=replace(here, more={}).config) if saved else None


def _for(run: Run, saved: CheckpointTuple) -> CheckpointTuple:
    """Give a checkpoint as a run is to see it: with its ticket, without what guards add."""
    clean = claims.stripped(saved)
    return clean._replace(config=ticketed(clean.config, run.ticket))


def _of_the_past(saved: CheckpointTuple) -> CheckpointTuple:
    """Give a checkpoint of the past without what a run began or went on with there.

    Whoever goes back to it with something else to say has put that in its place. Only results of
    calls that are open there are still wanted.
    """
    values = {k: v for k, v in saved.checkpoint["channel_values"].items() if k != START}
    checkpoint: Checkpoint = {**saved.checkpoint, "channel_values": values}
    wants_results = saved.metadata.get("source") != "input" and leaves_calls_open(values)
    return saved if wants_results else saved._replace(checkpoint=checkpoint, pending_writes=[])
