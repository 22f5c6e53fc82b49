"""Calls that may wait, made from an event loop: in threads that do nothing else.

The threads that a loop has of its own run an application's functions, too. If all of those wait
for something that needs a checkpoint first, nobody would ever go on. Here a call waits only for
calls that are being carried out, never for one that has yet to find a thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from lockstitch.errors import Closed

_THREADS = 16
P = ParamSpec("P")
T = TypeVar("T")


class Errands:
    """Threads for the calls of one saver, begun as they are needed."""

    def __init__(self, threads: int = _THREADS) -> None:
        self._process = os.getpid()
        self._executor = ThreadPoolExecutor(threads, "lockstitch-saver")

    def start(self, call: Callable[[], None]) -> None:
        """Make a call in a thread, and go on."""
        self._begun(call)

    async def run(self, call: Callable[P, T], *words: P.args, **options: P.kwargs) -> T:
        """Make a call in a thread, in the context of whoever asks for it."""
        made = partial(copy_context().run, call, *words, **options)
        return await asyncio.wrap_future(self._begun(made))

    def _begun(self, made: Callable[[], T]) -> Future[T]:
        # A forked child has the pool, but none of its threads.
        if self._process != os.getpid():
            raise Closed("the saver was opened by another process, before a fork")
        try:
            return self._executor.submit(made)
        except RuntimeError as error:
            raise Closed("the saver was closed") from error

    def close(self, *, wait: bool = True) -> None:
        """Begin no more calls, and wait for those that are under way."""
        if self._process == os.getpid():
            self._executor.shutdown(wait, cancel_futures=not wait)
