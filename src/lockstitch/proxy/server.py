"""The sockets of the proxy: serving until told to stop, in this thread or beside it."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import aiohttp
from aiohttp import web

from lockstitch.errors import UsageError
from lockstitch.proxy.forwarding import Event, Log, Proxy
from lockstitch.proxy.headers import spelled
from lockstitch.proxy.interfaces import Recorder
from lockstitch.proxy.settings import Settings, checked
from lockstitch.proxy.signing import credentials_in

_LOGGER = logging.getLogger("lockstitch.proxy")
_LONGEST_LINE = 64 << 10
_MOST_HEADERS = 256
_BUFFER = 1 << 20
# Options of mallopt(3) by their numbers: M_TRIM_THRESHOLD, M_TOP_PAD and M_MMAP_THRESHOLD.
_KEPT = {-1: 64 << 20, -2: 4 << 20, -3: 32 << 20}

Connect = Callable[[], Awaitable[Recorder]]
Stop = Callable[[], None]


def told(event: Event) -> str:
    """Return a line on one request: what was done where, never what it said."""
    words = [event.route, str(event.status)]
    if event.repaired:
        words.append(f"repaired {spelled(event.repaired)}")
    if event.left:
        words.append(f"left {spelled(event.left)}")
    if event.places:
        words.append(f"at {', '.join(event.places)}")
    if event.retried:
        words.append("(sent once more after a refusal)")
    if event.error:
        words.append(f"error: {event.error}")
    return " ".join(words)


def is_notable(event: Event) -> bool:
    """Whether there is more to tell of a request than that it passed."""
    return bool(event.repaired or event.left or event.error)


def _logged(event: Event) -> None:
    if is_notable(event):
        _LOGGER.log(logging.WARNING if event.error else logging.INFO, "%s", told(event))


def recorder_at(url: str) -> Connect:
    """Return what opens the recorder that keeps conversations in a store."""

    async def connect() -> Recorder:
        from lockstitch.proxy.recording.recorder import open_recorder  # noqa: PLC0415 - few record

        return await asyncio.to_thread(open_recorder, url)

    return connect


@contextmanager
def running(
    settings: Settings, *, log: Log = _logged, connect: Connect | None = None
) -> Iterator[str]:
    """Serve from a thread of this process for as long as the block lasts; gives the address.

    ``connect`` opens the recorder that keeps the conversations, if there is to be one; port 0
    takes a free one. What still runs at the end is given the settings' ``grace`` to finish.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="lockstitch-proxy", daemon=True)
    thread.start()
    try:
        served = Served(checked(settings), log, connect)
        url = asyncio.run_coroutine_threadsafe(served.start(), loop).result()
        try:
            yield url
        finally:
            asyncio.run_coroutine_threadsafe(served.stop(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def serve(
    settings: Settings,
    ready: Callable[[str], None],
    *,
    log: Log = _logged,
    connect: Connect | None = None,
) -> None:
    """Serve until the process is told to stop (SIGINT, SIGTERM); ``ready`` is told the address."""
    keep_memory()
    asyncio.run(until_stopped(Served(checked(settings), log, connect), ready))


def keep_memory() -> None:
    """Tell the C library to keep some memory that was freed, for the next large body.

    It would give it back and fetch it again for each: that takes as long as to check the body.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for option, size in _KEPT.items():
            library.mallopt(option, size)


async def until_stopped(
    served: Served, ready: Callable[[str], None], *, stop: asyncio.Event | None = None
) -> None:
    """Serve until a signal comes, or until ``stop`` is set; ``ready`` is told the address."""
    stop = asyncio.Event() if stop is None else stop
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
    url = await served.start()
    try:
        ready(url)
        await stop.wait()
    finally:
        await served.stop()


class Served:
    """A proxy with its sockets, its connections to upstreams and its recorder."""

    def __init__(
        self, settings: Settings, log: Log, connect: Connect | None, *, shared_port: bool = False
    ) -> None:
        self.settings = settings
        self.shared_port = shared_port
        self.log = log
        self.connect = connect
        signs = any(upstream.sign for upstream in settings.upstreams)
        self.keys = credentials_in(os.environ) if signs else None
        self.recorder: Recorder | None = None
        self.session: aiohttp.ClientSession | None = None
        self.runner: web.ServerRunner | None = None
        self.proxy: Proxy | None = None

    async def start(self) -> str:
        """Listen, and return the address."""
        settings = self.settings
        self.recorder = None if self.connect is None else await self.connect()
        self.session = _session(settings)
        self.proxy = Proxy(settings, self.session, self.log, self.recorder, self.keys)
        server = web.Server(
            self.proxy.handle,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=settings.client_timeout,
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_LINE,
            max_headers=_MOST_HEADERS,
            read_bufsize=_BUFFER,
        )
        self.runner = web.ServerRunner(server, shutdown_timeout=settings.grace)
        await self.runner.setup()
        site = web.TCPSite(
            self.runner, settings.host, settings.port, reuse_port=self.shared_port or None
        )
        try:
            await site.start()
        except OSError as error:
            await self.stop()
            raise UsageError(
                f"cannot listen on {settings.host} port {settings.port}: it is taken or not allowed"
            ) from error
        port = self.runner.addresses[0][1]
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        return f"http://{host}:{port}"

    async def stop(self) -> None:
        """Take no more requests, let those that run finish, and release everything."""
        if self.runner is not None:
            for site in list(self.runner.sites):
                await site.stop()
            # those that were accepted just before are there a few steps later, and to be closed
            await _settled()
            await self.runner.cleanup()
        if self.proxy is not None and self.proxy.keeping:
            await asyncio.wait(self.proxy.keeping, timeout=self.settings.grace)
        if self.session is not None:
            await self.session.close()
        if self.recorder is not None:
            await self.recorder.close()
        # transports are closed by the loop, a step after they were told to be
        await _settled()


async def _settled() -> None:
    """Let the loop do what it has put off."""
    for _ in range(5):
        await asyncio.sleep(0)


def _session(settings: Settings) -> aiohttp.ClientSession:
    """Return what talks to the upstreams: nothing in it is shared between clients.

    Certificates are verified, cookies are not kept, and proxies that the environment names are
    not taken: they would see the keys, and a variable that was set for another program would
    decide where conversations go. An upstream's ``proxy`` names one on purpose.
    """
    connector = aiohttp.TCPConnector(
        limit=0, ssl=ssl.create_default_context(), keepalive_timeout=15
    )
    timeout = aiohttp.ClientTimeout(
        total=None,
        sock_connect=settings.connect_timeout,
        connect=settings.connect_timeout,
        sock_read=settings.idle_timeout,
    )
    return aiohttp.ClientSession(
        connector=connector,
        timeout=timeout,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        read_bufsize=_BUFFER,
        max_line_size=_LONGEST_LINE,
        max_field_size=_LONGEST_LINE,
    )
