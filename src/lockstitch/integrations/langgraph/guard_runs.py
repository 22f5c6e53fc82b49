"""The runs that write through a guard: what each of them may build on, and what became of it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import TYPE_CHECKING

from lockstitch.integrations.langgraph.lineage import LIMIT, Lineage, Place, Ticket, ticket_of

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from lockstitch.errors import Conflict
    from lockstitch.integrations.langgraph.guard_forks import Branch


@dataclass(slots=True, eq=False)
class Run:
    """One run in one namespace, from its load on."""

    ticket: Ticket
    thread: str
    namespace: str
    # The writes of tasks that hung on the checkpoint when it was loaded.
    seen: int | None = None
    # Whether the run was known for one of LangGraph's when it was loaded.
    recognised: bool = False
    # The checkpoints that it has put or claimed.
    owned: set[Place] = field(default_factory=set)
    lost: Conflict | None = None
    branch: Branch | None = None
    lock: RLock = field(default_factory=RLock)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        return self.ticket.run


class Runs:
    """The runs of this process by their names, up to a number of them; safe between threads."""

    def __init__(self, lineage: Lineage, limit: int = LIMIT) -> None:
        self._lineage = lineage
        self._limit = limit
        self._lock = Lock()
        self._runs: OrderedDict[str, Run] = OrderedDict()

    def started(
        self, place: Place, *, named: bool = False, seen: int | None = None, known: bool = False
    ) -> Run:
        """Begin a run at a place that is loaded."""
        ticket = self._lineage.loaded(place, named=named)
        run = Run(ticket, place.thread, place.namespace, seen, known)
        self._keep(run)
        return run

    def writing(self, config: RunnableConfig, place: Place) -> Run | None:
        """Give the run that puts or writes; None if whoever does never loaded anything here."""
        ticket = ticket_of(config)
        run = self._get(ticket) if ticket else None
        if run is None or (run.thread, run.namespace) != (place.thread, place.namespace):
            ticket = self._lineage.last(place)
            run = self._get(ticket) if ticket else None
        if ticket is None:
            return None
        if run is None:
            run = Run(ticket, place.thread, place.namespace)
            self._keep(run)
        if place.checkpoint is None and run.owned:
            # Two runs have found the thread empty: only one of them is the one remembered.
            return self.started(place, known=True)
        return run

    def outermost(self, config: RunnableConfig, place: Place) -> Run | None:
        """Give the run of the graph that a subgraph's run is a part of."""
        above = config.get("configurable", {}).get("checkpoint_map") or {}
        if not place.namespace or not above.get(""):
            return None
        ticket = self._lineage.writer(Place(place.thread, "", above[""]))
        return self._get(ticket) if ticket else None

    def wrote(self, run: Run, place: Place) -> None:
        """Remember that a run has put a checkpoint, and that it counts."""
        run.owned.add(place)
        self._lineage.wrote(place, run.ticket)

    def counts(self, place: Place) -> bool:
        """Tell whether a checkpoint is known to count, since a run of this process put it."""
        return self._lineage.writer(place) is not None

    def _get(self, ticket: Ticket) -> Run | None:
        with self._lock:
            return self._runs.get(ticket.run)

    def _keep(self, run: Run) -> None:
        with self._lock:
            self._runs[run.name] = run
            while len(self._runs) > self._limit:
                self._runs.popitem(last=False)
