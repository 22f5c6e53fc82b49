"""Running tools in threads, and keeping watch over them from the thread that asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Protocol

from lockstitch.errors import LockstitchError
from lockstitch.session.batch import Batch
from lockstitch.session.signals import Deferred, reason_of
from lockstitch.session.tools import Job

# How often an abort signal is looked at, and how long a wait may last that nothing interrupts.
GLANCE = 0.05
LONGEST = 1.0


class Abort(Protocol):
    """Anything that can be asked whether it is set: an event of threading, asyncio or anyio."""

    def is_set(self) -> bool:
        """Whether to stop."""
        ...


def in_thread(batch: Batch, job: Job, tell: Callable[[], None]) -> None:
    """Run a call in a thread of its own, which also writes its outcome.

    A thread cannot be ended from outside, so it is one that no exit of the program waits for.
    """

    def work() -> None:
        try:
            batch.finish_alone(job, job.run())
        finally:
            tell()

    name = f"lockstitch tool {job.call.name}"
    threading.Thread(target=copy_context().run, args=(work,), name=name, daemon=True).start()


class Watch:
    """One run of tools, watched by the calling thread until every call has an outcome."""

    def __init__(self, batch: Batch, abort: Abort | None) -> None:
        self._batch = batch
        self._abort = abort
        self._news: SimpleQueue[None] = SimpleQueue()
        self._watched: list[Job] = []
        batch.wake = lambda: self._news.put(None)

    def run(self) -> None:
        """Run to the end, or to what interrupts: then every call has an outcome all the same."""
        with Deferred(self._batch.wake) as held:
            try:
                if not self._is_to_stop(held):
                    self._launch(self._batch.begin())
                while self._batch.is_busy() and not self._is_to_stop(held):
                    self._step()
            except BaseException as error:
                self._give_up(error)
                raise
            if self._is_to_stop(held):
                self._batch.break_off(reason_of(held.raised) if held.raised else "aborted")

    def _is_to_stop(self, held: Deferred) -> bool:
        return held.raised is not None or (self._abort is not None and self._abort.is_set())

    def _launch(self, jobs: list[Job]) -> None:
        for job in jobs:
            job.deadline = time.monotonic() + job.timeout if job.timeout else job.deadline
            self._watched.append(job)
            in_thread(self._batch, job, self._batch.wake)

    def _step(self) -> None:
        self._hear()
        for job in [job for job in self._watched if job.deadline <= time.monotonic()]:
            self._watched.remove(job)
            if job.key in self._batch.live:
                self._batch.time_out(job)
        self._launch(self._batch.more())

    def _hear(self) -> None:
        """Wait until a call is done, its time is up, or it is time to look at the abort signal."""
        longest = LONGEST if self._abort is None else GLANCE
        first = min((job.deadline for job in self._watched), default=longest + time.monotonic())
        wait = min(max(first - time.monotonic(), 0.0), longest)
        with suppress(Empty):
            self._news.get(timeout=wait)

    def _give_up(self, error: BaseException) -> None:
        """Close what can be closed; where the store is the trouble, opening it again does."""
        if isinstance(error, LockstitchError):
            self._batch.stop()
            return
        with suppress(LockstitchError):
            self._batch.break_off(reason_of(error))
