"""The runs that write through a guard: what each of them may build on, and what became of it."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from lockstitch.integrations.langgraph.lineage import LIMIT, Lineage, Place, Progress

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from lockstitch.errors import Conflict
    from lockstitch.integrations.langgraph.caller import Run
    from lockstitch.integrations.langgraph.guarding.claims import Head
    from lockstitch.integrations.langgraph.guarding.forks import Branch
    from lockstitch.integrations.langgraph.guarding.steps import Write

# Seconds for which what was seen is taken to be so still. It only spares reads: whatever is put is
# looked after, too.
_MOMENT = 0.1


@dataclass(slots=True, eq=False)
class GuardedRun(Progress):
    """One run in one namespace of a thread, from its load on."""

    # How many writes of tasks hung on each checkpoint that it has loaded.
    seen: dict[Place, int] = field(default_factory=dict)
    # What it wrote on checkpoints that it had not put yet: LangGraph saves in the background.
    early: dict[Place, list[Write]] = field(default_factory=dict)
    # The tasks whose writes on a checkpoint it knows of, from its load or as its own.
    tasks: dict[Place, set[str]] = field(default_factory=dict)
    # The heads that it has loaded, and when it last saw of a checkpoint that it may build there.
    found: dict[Place, Head] = field(default_factory=dict)
    fresh: dict[Place, float] = field(default_factory=dict)
    # Whether what a task writes becomes a part of the history at once (``DeltaChannel``).
    has_deltas: bool = True
    # Whether all is stored at the end, long after it was loaded.
    is_late: bool = True
    lost: Conflict | None = None
    branch: Branch | None = None
    lock: RLock = field(default_factory=RLock)
    _turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = field(
        default_factory=WeakKeyDictionary
    )

    def saw(self, place: Place) -> None:
        """Take note that the run may build on a place, now."""
        self.fresh[place] = time.monotonic()

    def is_fresh(self, place: Place) -> bool:
        """Whether it was seen a moment ago that the run may build on a place."""
        seen = self.fresh.get(place)
        return seen is not None and time.monotonic() - seen < _MOMENT

    def learn(self, run: Run) -> None:
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


class Runs(Lineage[GuardedRun]):
    """The runs of this process, up to a number of them; safe between threads."""

    def __init__(self, limit: int = LIMIT) -> None:
        super().__init__(GuardedRun, limit)
        self._nesting = Lock()
        # The runs of subgraphs by the checkpoint of the outermost graph that they are run from.
        self._inner: OrderedDict[Place, dict[str, GuardedRun]] = OrderedDict()
        # What was put last in a thread and namespace, and counts.
        self._last: OrderedDict[Place, Place] = OrderedDict()

    def last(self, place: Place) -> Place | None:
        """Return what this process has put last where a place is, None if it has put nothing."""
        with self._nesting:
            return self._last.get(place.at(None))

    def forget(self, threads: Collection[str] | None = None) -> None:
        """Claim nothing ahead in some threads, or in any: what was put may be gone."""
        with self._nesting:
            for place in list(self._last):
                if threads is None or place.thread in threads:
                    del self._last[place]

    def wrote(self, progress: GuardedRun, place: Place, parent: Place) -> None:
        super().wrote(progress, place, parent)
        progress.saw(place)
        with self._nesting:
            self._last[place.at(None)] = place
            self._last.move_to_end(place.at(None))
            while len(self._last) > self._limit:
                self._last.popitem(last=False)

    def outermost(self, config: RunnableConfig, place: Place) -> GuardedRun | None:
        """Return the run of the graph that a subgraph's run is a part of."""
        above = _above(config, place)
        return self.writer(above) if above else None

    def nest(self, run: GuardedRun, config: RunnableConfig, place: Place) -> None:
        """Remember from which checkpoint a subgraph is run, if it is one."""
        above = _above(config, place)
        if above is None:
            return
        with self._nesting:
            self._inner.setdefault(above, {})[run.name] = run
            while len(self._inner) > self._limit:
                self._inner.popitem(last=False)

    def inner(self, above: Place) -> list[GuardedRun]:
        """Return the runs of the subgraphs that are run from a checkpoint."""
        with self._nesting:
            return list(self._inner.get(above, {}).values())

    def counts(self, place: Place) -> bool:
        """Whether a checkpoint is known to count, since a run of this process put it."""
        return self.writer(place) is not None


def _above(config: RunnableConfig, place: Place) -> Place | None:
    """Return the checkpoint of the outermost graph that a subgraph is run from."""
    above = config.get("configurable", {}).get("checkpoint_map") or {}
    return Place(place.thread, "", above[""]) if place.namespace and above.get("") else None
