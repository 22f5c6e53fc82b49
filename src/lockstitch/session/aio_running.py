"""Running tools from an event loop: async ones as tasks, the others in threads."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel

from lockstitch.errors import LockstitchError
from lockstitch.session.batch import Batch
from lockstitch.session.running import GLANCE, Abort, in_thread
from lockstitch.session.signals import reason_of
from lockstitch.session.tools import Job
from lockstitch.threads import through


class AsyncWatch:
    """One run of tools, watched by the calling task until every call has an outcome."""

    def __init__(self, batch: Batch, abort: Abort | None) -> None:
        self._batch = batch
        self._abort = abort
        self._news = anyio.Event()
        self._soon = _soon()
        batch.wake = lambda: self._soon(self._hear)

    def _hear(self) -> None:
        self._news.set()

    async def run(self) -> None:
        """Run to the end, or to what interrupts: then every call has an outcome all the same."""
        try:
            async with anyio.create_task_group() as group:
                await self._watched(group)
                group.cancel_scope.cancel()
        except BaseExceptionGroup as error:
            # one task failed, and one error is what a caller can act on
            raise error.exceptions[0] from None

    async def _watched(self, group: Any) -> None:
        try:
            if not self._is_aborted():
                self._launch(group, await through(self._batch.begin))
            while self._batch.is_busy() and not self._is_aborted():
                await self._step(group)
        except LockstitchError:
            self._batch.stop()
            raise
        except BaseException as error:
            reason = reason_of(error)
            with suppress(LockstitchError):
                await through(lambda: self._batch.break_off(reason), insist=True)
            raise
        if self._is_aborted():
            await through(lambda: self._batch.break_off("aborted"), insist=True)

    def _is_aborted(self) -> bool:
        return self._abort is not None and self._abort.is_set()

    async def _step(self, group: Any) -> None:
        with anyio.move_on_after(math.inf if self._abort is None else GLANCE):
            await self._news.wait()
        self._news = anyio.Event()
        self._launch(group, await through(self._batch.more))

    def _launch(self, group: Any, jobs: list[Job]) -> None:
        for job in jobs:
            group.start_soon(self._call, job)

    async def _call(self, job: Job) -> None:
        """See one call through; it ends in silence, for what is cancelled the watch knows."""
        try:
            with anyio.move_on_after(job.timeout) as limit:
                await (self._awaited(job) if job.tool.is_async else self._apart(job))
            if limit.cancelled_caught:
                await through(lambda: self._batch.time_out(job), insist=True)
        except LockstitchError:
            pass  # the batch keeps it, and the watch raises it
        except anyio.get_cancelled_exc_class() as error:
            await self._cancelled(job, error)
        finally:
            self._hear()

    async def _awaited(self, job: Job) -> None:
        outcome = await job.run_async()
        await through(lambda: self._batch.finish(job, outcome), insist=True)

    async def _apart(self, job: Job) -> None:
        done = anyio.Event()

        in_thread(self._batch, job, lambda: self._soon(done.set))
        await done.wait()

    async def _cancelled(self, job: Job, error: BaseException) -> None:
        """A tool that was cancelled by nobody here has an outcome of its own making.

        When the program is being terminated, it has none: what can be repeated is run again.
        """
        if not self._batch.is_stopped and reason_of(error) != "exit":
            await through(lambda: self._batch.cancel(job), insist=True)


def _soon() -> Any:
    """Return what calls a function in this event loop from any thread, while there is one."""
    native: Any = anyio.lowlevel.current_token().native_token
    call = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon

    def soon(function: Any, *arguments: Any) -> None:
        with suppress(Exception):
            call(function, *arguments)

    return soon
