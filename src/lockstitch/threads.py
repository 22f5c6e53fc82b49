"""Work that may wait, done beside an event loop; asyncio and trio alike, through anyio."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Generic, TypeVar

import anyio
import anyio.lowlevel

T = TypeVar("T")

PATIENCE = 5.0
# How often a task looks by itself whether its work is done.
GLANCE = 0.5
# Threads that write what must not be lost if the program ends while they do.
_WRITING: set[threading.Thread] = set()


@atexit.register
def _see_through() -> None:
    """Let writes that were begun come to their end, however often somebody presses Ctrl-C."""
    end = time.monotonic() + PATIENCE
    for thread in list(_WRITING):
        while thread.is_alive() and time.monotonic() < end:
            with suppress(KeyboardInterrupt):
                thread.join(end - time.monotonic())


class _Work(Generic[T]):
    """A function on its way through a thread of its own, which no exit of the program waits for."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._native: Any = anyio.lowlevel.current_token().native_token
        self._told = anyio.Event()
        self._context = copy_context()
        self._lock = threading.Lock()
        self._left: Callable[[T], None] | None = None
        self._is_done = False
        self._result: list[T] = []
        self._error: BaseException | None = None

    def start(self, *, insist: bool = False) -> None:
        target = self._context.run
        name = "lockstitch work"
        thread = threading.Thread(target=target, args=(self._run,), name=name, daemon=True)
        if insist:
            _WRITING.add(thread)
        thread.start()

    def _run(self) -> None:
        try:
            self._do()
        finally:
            _WRITING.discard(threading.current_thread())

    def _do(self) -> None:
        try:
            self._result.append(self._function())
        except BaseException as error:  # noqa: BLE001 - raised where the result is waited for
            self._error = error
        with self._lock:
            self._is_done = True
            left = self._left
        if left is not None and self._result:
            left(self._result[0])
        # asyncio's loop has the one, trio's token the other; either may be gone by now
        soon = getattr(self._native, "call_soon_threadsafe", None) or self._native.run_sync_soon
        with suppress(Exception):
            soon(self._told.set)

    async def wait(self) -> None:
        """Wait for its end.

        The word of it can get lost: a second Ctrl-C may strike the very callback that brings it.
        """
        while not self._told.is_set():
            with anyio.move_on_after(GLANCE):
                await self._told.wait()
            if self._is_done:
                return

    def leave(self, undo: Callable[[T], None]) -> None:
        """Wait no longer; what still comes of it is undone."""
        with self._lock:
            if not self._is_done:
                self._left = undo
                return
        if self._result:
            undo(self._result[0])

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result[0]


async def through(function: Callable[[], T], *, insist: bool = False) -> T:
    """Do something to its end, whatever is cancelled meanwhile; then the cancellation goes on.

    Without ``insist`` a task that is cancelled already does not begin with it.
    """
    if not insist:
        await anyio.lowlevel.checkpoint_if_cancelled()
    work = _Work(function)
    work.start(insist=insist)
    caught: BaseException | None = None
    with anyio.CancelScope(shield=True):
        while True:
            try:
                await work.wait()
                break
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - asyncio's own cancel minds no shield
                caught = caught or error
    if caught is not None:
        raise caught
    return work.result()


async def unless_cancelled(function: Callable[[], T], undo: Callable[[T], None]) -> T:
    """Do something that may take long; if it is cancelled, what still comes of it is undone."""
    work = _Work(function)
    work.start()
    try:
        await work.wait()
    except BaseException:
        work.leave(undo)
        raise
    return work.result()
