"""The runs that write through a guard: what each of them may build on, and what became of it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from lockstitch.integrations.langgraph.lineage import Lineage, Place, Ticket, ticket_of

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from lockstitch.errors import Conflict
    from lockstitch.integrations.langgraph.guarding.forks import Branch
    from lockstitch.integrations.langgraph.guarding.steps import Write

# A run that is forgotten claims its own checkpoint anew when it goes on.
RUNS = 5_000
# The run that found its thread empty, so that there was no config to put a ticket in: what it
# saves in the background runs in a copy of the context in which it was loaded.
_EMPTY: ContextVar[str] = ContextVar("lockstitch_run", default="")


@dataclass(slots=True, eq=False)
class Run:
    """One run in one namespace, from its load on."""

    ticket: Ticket
    # Where it was loaded.
    start: Place
    # The writes of tasks that hung on the checkpoint when it was loaded.
    seen: int | None = None
    # Whether the run was known for one of LangGraph's when it was loaded.
    recognised: bool = False
    # The checkpoints that it has put or claimed.
    owned: set[Place] = field(default_factory=set)
    # What it wrote on checkpoints that it had not put yet: LangGraph saves in the background.
    early: dict[Place, list[Write]] = field(default_factory=dict)
    # The tasks whose writes on a checkpoint it knows of, from its load or as its own.
    tasks: dict[Place, set[str]] = field(default_factory=dict)
    lost: Conflict | None = None
    branch: Branch | None = None
    lock: RLock = field(default_factory=RLock)
    _turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = field(
        default_factory=WeakKeyDictionary
    )

    @property
    def name(self) -> str:
        return self.ticket.run

    @property
    def turn(self) -> asyncio.Lock:
        """One at a time in an event loop; shared by two loops, a lock would wake nobody."""
        return self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    def is_of(self, place: Place) -> bool:
        """Tell whether a place is in the thread and namespace of this run."""
        return (self.start.thread, self.start.namespace) == (place.thread, place.namespace)


class Runs:
    """The runs of this process by their names, up to a number of them; safe between threads."""

    def __init__(self, lineage: Lineage, limit: int = RUNS) -> None:
        self._lineage = lineage
        self._limit = limit
        self._lock = Lock()
        self._runs: OrderedDict[str, Run] = OrderedDict()
        # The runs of subgraphs by the checkpoint of the outermost graph that they are run from.
        self._inner: OrderedDict[Place, dict[str, Run]] = OrderedDict()

    def started(
        self, place: Place, *, named: bool = False, seen: int | None = None, known: bool = False
    ) -> Run:
        """Begin a run at a place that is loaded."""
        ticket = self._lineage.loaded(place, named=named)
        run = Run(ticket, place, seen, known)
        self._keep(run)
        if place.checkpoint is None:
            _EMPTY.set(run.name)
        return run

    def writing(self, config: RunnableConfig, place: Place) -> Run | None:
        """Give the run that puts or writes; None if whoever does never loaded anything here."""
        for ticket in self._tickets(config, place):
            run = self._get(ticket)
            if run is None:
                run = Run(ticket, place)
                self._keep(run)
            if run.is_of(place):
                # Two runs have found a thread empty, but only one of them can be remembered.
                another = place.checkpoint is None and run.owned
                return self.started(place, known=True) if another else run
        return None

    def _tickets(self, config: RunnableConfig, place: Place) -> Iterator[Ticket]:
        if ticket := ticket_of(config):
            yield ticket
        if ticket := self._lineage.writer(place):
            yield ticket
        if run := self._runs.get(_EMPTY.get()):
            yield run.ticket
        if ticket := self._lineage.last(place):
            yield ticket

    def outermost(self, config: RunnableConfig, place: Place) -> Run | None:
        """Give the run of the graph that a subgraph's run is a part of."""
        above = _above(config, place)
        ticket = self._lineage.writer(above) if above else None
        return self._get(ticket) if ticket else None

    def nest(self, run: Run, config: RunnableConfig, place: Place) -> None:
        """Remember from which checkpoint a subgraph is run, if it is one."""
        above = _above(config, place)
        if above is None:
            return
        with self._lock:
            self._inner.setdefault(above, {})[run.name] = run
            while len(self._inner) > self._limit:
                self._inner.popitem(last=False)

    def inner(self, above: Place) -> list[Run]:
        """Give the runs of the subgraphs that are run from a checkpoint."""
        with self._lock:
            return list(self._inner.get(above, {}).values())

    def wrote(self, run: Run, place: Place) -> None:
        """Remember that a run has put a checkpoint, and that it counts."""
        run.owned.add(place)
        self._lineage.wrote(place, run.ticket)

    def counts(self, place: Place) -> bool:
        """Tell whether a checkpoint is known to count, since a run of this process put it."""
        return self._lineage.writer(place) is not None

    def _get(self, ticket: Ticket) -> Run | None:
        with self._lock:
            run = self._runs.get(ticket.run)
            if run:
                self._runs.move_to_end(run.name)
            return run

    def _keep(self, run: Run) -> None:
        with self._lock:
            self._runs[run.name] = run
            while len(self._runs) > self._limit:
                self._runs.popitem(last=False)


def _above(config: RunnableConfig, place: Place) -> Place | None:
    """Give the checkpoint of the outermost graph that a subgraph is run from."""
    above = config.get("configurable", {}).get("checkpoint_map") or {}
    return Place(place.thread, "", above[""]) if place.namespace and above.get("") else None
