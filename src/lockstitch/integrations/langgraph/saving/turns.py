"""A thread is one run's at a time, if that is asked for: the run holds the lease of its session.

A run takes it when it begins and gives it back when it ends, which its graph announces. The store
keeps it alive meanwhile, and takes it from a process that is gone.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from lockstitch.errors import LockstitchError, Unreadable
from lockstitch.integrations.langgraph.caller import GraphRun, calling_run
from lockstitch.integrations.langgraph.run_ids import place_of
from lockstitch.integrations.langgraph.saving.errands import Errands
from lockstitch.journal.checkpoints import session_of

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from lockstitch.stores.base import Backend, Lease

_LOG = logging.getLogger("lockstitch.langgraph")
# So many may wait at once in event loops; others wait for those.
_WAITING = 64


class Turns:
    """The leases of the runs that have a turn; with a ``wait`` of 0 nobody takes one."""

    def __init__(self, backend: Backend, wait: float) -> None:
        self.leases: dict[str, Lease] = {}
        self._backend = backend
        self._wait = wait
        self._lock = Lock()
        self._seen: WeakSet[GraphRun] = WeakSet()
        self._holders: dict[str, GraphRun] = {}
        # Not those of the saver: whoever has the turn needs one of them to go on.
        self._errands = Errands(_WAITING)
        # Nor those that wait for a turn, if it is to be given back.
        self._returning = Errands(1)

    def take(self, config: RunnableConfig) -> None:
        """Wait for the turn of a run that begins with this load; raises ``Held`` in the end."""
        run = calling_run(config) if self._wait else None
        if run is None or not run.is_loading(config):
            return
        session = session_of(place_of(config).thread)
        with self._lock:
            is_due = run not in self._seen and not self._is_callers(run, session)
            self._seen.add(run)
        if not is_due:
            return
        try:
            lease = self._backend.acquire(session, wait=self._wait, create=False)
        except Unreadable:
            # A thread that is not there yet; or one that says so itself when it is read.
            return
        with self._lock:
            self.leases[session] = lease
            self._holders[session] = run
        run.ends.append(partial(self._give_back, session, lease))

    async def atake(self, config: RunnableConfig) -> None:
        """Wait for the turn, in an event loop."""
        if self._wait:
            await self._errands.run(self.take, config)

    def close(self) -> None:
        """Begin to wait no more, and give back what is to be given back."""
        self._returning.close()
        self._errands.close(wait=False)

    def _is_callers(self, run: GraphRun, session: str) -> bool:
        """Whether a run has the turn whose node calls this one: it would wait for itself."""
        holder: Any = self._holders.get(session)
        above = run.parent
        while above is not None and holder is not None:
            if above is holder:
                return True
            above = above.parent
        return False

    def _give_back(self, session: str, lease: Lease) -> None:
        with self._lock:
            if self.leases.get(session) is lease:
                del self.leases[session]
                del self._holders[session]
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._release(lease)
        else:
            self._returning.start(partial(self._release, lease))

    def _release(self, lease: Lease) -> None:
        try:
            self._backend.release(lease)
        except LockstitchError as error:
            # The turn itself is done; whoever comes next takes the lease over in its time.
            _LOG.warning("the turn on %s was not given back: %s", lease.session, error)
