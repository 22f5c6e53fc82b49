"""Waiting for one's turn: who begins a run while another one is under way may let that end first.

Whoever has claimed the head, or has put a checkpoint with something left to do, is taken to be
under way, for as long as something changes. Nobody can see whether he lives: after ``wait``
seconds without a change he is taken over, as he would be without waiting. The claim of a head is
the turn: of several who wait, one gets it, and the others go on waiting.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lockstitch.errors import Conflict
from lockstitch.formats.langgraph.naming import ERROR
from lockstitch.integrations.langgraph.caller import Run, is_here, is_running
from lockstitch.integrations.langgraph.guarding import claims
from lockstitch.integrations.langgraph.guarding.steps import Look, Pause, Read, Steps
from lockstitch.integrations.langgraph.lineage import place_of
from lockstitch.integrations.langgraph.repairing import pending

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple

    from lockstitch.integrations.langgraph.guarding.runs import GuardedRun, Runs

# Seconds between two looks, at first and at most.
_SHORTEST, _LONGEST = 0.01, 0.1
# A thread on which others go on and on is waited for so many times as long, and no longer.
_MOST = 10

State = tuple[str, list[str]]


def waited(
    config: RunnableConfig, run: Run, given: GuardedRun, runs: Runs, wait: float
) -> Steps[CheckpointTuple | None]:
    """Wait for the turn of a run, and claim the head for it; None if it begins without."""
    started = changed = time.monotonic()
    state: State | None = None
    pause = _SHORTEST
    while True:
        saved: CheckpointTuple | None = yield Read(config)
        found = (yield from claims.head(place_of(config), runs.counts, saved)) if saved else None
        if saved is None or found is None or claims.id_of(found.saved) != claims.id_of(saved):
            return None
        if _is_free(run, saved):
            here = place_of(config).at(claims.id_of(saved))
            try:
                seen = claims.writes_on(saved)
                yield from claims.begun(here, given.name, runs.counts, seen, found)
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
            yield Pause(min(pause * (0.5 + random.random()), wait))  # noqa: S311 - to get apart
            pause = min(pause * 1.5, _LONGEST)
            again: CheckpointTuple | None = yield Look(place_of(config).at(None).config)
            if again is None or _state(again) != state:
                break


def _state(saved: CheckpointTuple) -> State:
    return claims.id_of(saved), claims.names_of(saved)


def _is_free(run: Run, saved: CheckpointTuple) -> bool:
    """Whether nobody is under way on a head, as far as that can be seen."""
    # A graph that a node calls on its own thread would wait for itself.
    callers = {one.name for one in _callers(run)}
    holder, writer = claims.named_by(saved), claims.run_of(saved)
    if holder is not None and holder not in callers and not _is_over(holder):
        return False
    if writer is None or writer in callers or _is_over(writer):
        return True
    return not _is_under_way(run.graph, saved)


def _callers(run: Run) -> Iterator[Run]:
    above = run.parent
    while above is not None:
        yield above
        above = above.parent


def _is_over(name: str) -> bool:
    """Whether a run was one of this process, and has come to its end."""
    return is_here(name) and not is_running(name)


def _is_under_way(graph: Any, saved: CheckpointTuple) -> bool:
    """Whether something is left to do, and has neither failed nor waits for a person."""
    if not pending.triggers(saved.checkpoint["channel_values"]) or pending.asked(saved):
        return False
    if any(channel == ERROR for _, channel, _ in saved.pending_writes or ()):
        return False
    if saved.metadata.get("source") in {"update", "fork"}:
        return False
    stops = (
        getattr(graph, name, ()) for name in ("interrupt_before_nodes", "interrupt_after_nodes")
    )
    return not any(stops)
