"""How a server of this package runs: until a signal stops it, or beside a program.

The provider, the proxy and the inspector are each something that starts and stops; the loop
around it is the same.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol


class StartStop(Protocol):
    """Something that listens."""

    async def start(self) -> str:
        """Listen, and return the address."""

    async def stop(self) -> None:
        """Take no more requests, and release everything."""


async def until_stopped(
    server: StartStop, ready: Callable[[str], None], *, stop: asyncio.Event | None = None
) -> None:
    """Serve until a signal comes, or until ``stop`` is set; ``ready`` gets the address."""
    stop = asyncio.Event() if stop is None else stop
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
    url = await server.start()
    try:
        ready(url)
        await stop.wait()
    finally:
        await server.stop()


@contextmanager
def serving(server: StartStop) -> Iterator[str]:
    """Serve from a thread of this process for as long as the block lasts; gives the address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="lockstitch-server", daemon=True)
    thread.start()
    try:
        url = asyncio.run_coroutine_threadsafe(server.start(), loop).result()
        try:
            yield url
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
