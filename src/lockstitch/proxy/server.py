"""The sockets of the proxy: serve in this thread, in a background thread, or from worker processes.

Workers are processes that share one port; a supervisor restarts those that die.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import ssl
import tempfile
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import aiohttp
import msgspec
from aiohttp import web
from msgspec import Struct, structs

from lockstitch.errors import UsageError
from lockstitch.files.os_files import start_moment
from lockstitch.provider import listen, port_is_taken, serving, until_stopped
from lockstitch.proxy import Settings, check_settings, credentials_in
from lockstitch.proxy.forwarding import Log, Metrics, Proxy, ProxyEvent
from lockstitch.proxy.http import spell_counts

if TYPE_CHECKING:
    from lockstitch.proxy.recording import StoreRecorder

_LOGGER = logging.getLogger("lockstitch.proxy")
_LONGEST_LINE = 64 << 10
_MOST_HEADERS = 256
_BUFFER = 1 << 20
# Options of mallopt(3) by number: M_TRIM_THRESHOLD, M_TOP_PAD and M_MMAP_THRESHOLD.
_KEPT = {-1: 64 << 20, -2: 4 << 20, -3: 32 << 20}

Connect = Callable[[], Awaitable["StoreRecorder"]]
Stop = Callable[[], None]


def describe_event(event: ProxyEvent) -> str:
    """Return a line on one request: what was done where, but never what it said."""
    words = (
        f"{event.route} {event.status}",
        event.repaired and f"repaired {spell_counts(event.repaired)}",
        event.left and f"left {spell_counts(event.left)}",
        event.places and f"at {', '.join(event.places)}",
        event.retried and "(sent again after a refusal)",
        event.error and f"error: {event.error}",
    )
    return " ".join(str(word) for word in words if word)


def is_notable(event: ProxyEvent) -> bool:
    """Whether there is more to say about a request than that it passed."""
    return bool(event.repaired or event.left or event.error)


def _log_event(event: ProxyEvent) -> None:
    if is_notable(event):
        _LOGGER.log(logging.WARNING if event.error else logging.INFO, "%s", describe_event(event))


def recorder_at(url: str) -> Connect:
    """Return a function that opens the recorder for conversations in a store."""

    async def connect() -> StoreRecorder:
        from lockstitch.proxy.recording import open_recorder  # noqa: PLC0415 - few record

        return await asyncio.to_thread(open_recorder, url)

    return connect


def running(
    settings: Settings, *, log: Log = _log_event, connect: Connect | None = None
) -> AbstractContextManager[str]:
    """Serve from a thread of this process during the block; yield the address.

    ``connect`` opens the recorder that keeps the conversations, if there is to be one. Port 0 takes
    a free port. Requests that are still running at the end may finish within the settings'
    ``grace``.
    """
    return serving(Served(check_settings(settings), log, connect))


def serve(
    settings: Settings,
    ready: Callable[[str], None],
    *,
    log: Log = _log_event,
    connect: Connect | None = None,
) -> None:
    """Serve until a signal stops the process (SIGINT, SIGTERM); ``ready`` gets the address."""
    keep_memory()
    asyncio.run(until_stopped(Served(check_settings(settings), log, connect), ready))


def keep_memory() -> None:
    """Make the C library keep some freed memory for the next large body.

    Otherwise it returns and requests the memory for each body, which takes as long as checking it.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for option, size in _KEPT.items():
            library.mallopt(option, size)


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
        self.recorder: StoreRecorder | None = None
        self.session: aiohttp.ClientSession | None = None
        self.runner: web.ServerRunner | None = None
        self.proxy: Proxy | None = None

    async def start(self) -> str:
        """Listen, and return the address."""
        settings = self.settings
        self.recorder = None if self.connect is None else await self.connect()
        # Clients share nothing in these connections. Certificates are verified, cookies are not
        # kept, and proxies in the environment are ignored: they would see the keys, and a variable
        # that was set for another program would decide where conversations go. An upstream's
        # ``proxy`` names one on purpose.
        connector = aiohttp.TCPConnector(
            limit=0, ssl=ssl.create_default_context(), keepalive_timeout=15
        )
        timeout = aiohttp.ClientTimeout(
            total=None,
            sock_connect=settings.connect_timeout,
            connect=settings.connect_timeout,
            sock_read=settings.idle_timeout,
        )
        self.session = aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            read_bufsize=_BUFFER,
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_LINE,
        )
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
        host, port = settings.host, settings.port
        try:
            return await listen(self.runner, host, port, is_shared=self.shared_port)
        except OSError as error:
            await self.stop()
            raise port_is_taken(f"{host} port {port}") from error

    async def stop(self) -> None:
        """Accept no more requests, let the running ones finish, and release everything."""
        if self.runner is not None:
            for site in list(self.runner.sites):
                await site.stop()
            # requests that were accepted just before appear a few steps later, and have to be
            # closed
            await _run_pending()
            await self.runner.cleanup()
        if self.proxy is not None and self.proxy.keeping:
            await asyncio.wait(self.proxy.keeping, timeout=self.settings.grace)
        if self.session is not None:
            await self.session.close()
        if self.recorder is not None:
            await self.recorder.close()
        # the loop closes transports one step after it was asked to
        await _run_pending()


async def _run_pending() -> None:
    """Let the loop run what it has postponed."""
    for _ in range(5):
        await asyncio.sleep(0)


_SPAWN = get_context("spawn")
_EVERY = 1.0
# A worker that dies at once, again and again, is not restarted more often than this.
_PAUSE = 1.0


class WorkerJob(Struct, frozen=True):
    """What a worker needs to know, in a form that can be sent to another process."""

    settings: Settings
    log: Log
    connect: Callable[[Settings], Connect | None]
    folder: str


def serve_from_workers(
    settings: Settings,
    ready: Callable[[str], None],
    *,
    log: Log,
    connect: Callable[[Settings], Connect | None],
) -> None:
    """Serve from ``settings.workers`` processes until a signal comes; ``ready`` gets the address.

    ``log`` and ``connect`` must be functions of a module, so that every process can import them.
    """
    settings = check_settings(settings)
    if not hasattr(socket, "SO_REUSEPORT"):
        raise UsageError("this system does not let processes share a port: leave out --workers")
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with (
        socket.socket(family, socket.SOCK_STREAM) as held,
        tempfile.TemporaryDirectory(prefix="lockstitch-") as folder,
    ):
        try:
            # bound without listening, so that the port is known and stays this proxy's
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            held.bind((settings.host, settings.port))
        except OSError as error:
            raise port_is_taken(f"{settings.host} port {settings.port}") from error
        port = held.getsockname()[1]
        job = WorkerJob(structs.replace(settings, port=port), log, connect, folder)
        _Supervisor(job, ready).run()


class _WorkerProcess(Struct):
    """A process, the pipe on which it reports its address, and when it was started."""

    process: SpawnProcess
    line: Connection
    since: float


class _Supervisor:
    """Starts workers, restarts those that die, and stops all of them at the end."""

    def __init__(self, job: WorkerJob, ready: Callable[[str], None]) -> None:
        self.job = job
        self.ready = ready
        self.is_stopping = threading.Event()
        self.reader, self.writer = _SPAWN.Pipe(duplex=False)

    def run(self) -> None:
        """Supervise until a signal comes."""
        before = {
            number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)
        }
        workers = [self._start_worker() for _ in range(self.job.settings.workers)]
        try:
            self._announce(workers)
            while not self.is_stopping.is_set():
                wait([self.reader, *(one.process.sentinel for one in workers)], timeout=_EVERY)
                for number, one in enumerate(workers):
                    if not one.process.is_alive() and not self.is_stopping.is_set():
                        self.is_stopping.wait(max(0.0, one.since + _PAUSE - monotonic()))
                        workers[number] = self._start_worker()
        finally:
            self._end_workers(workers)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, *_: object) -> None:
        self.is_stopping.set()
        self.writer.send_bytes(b"stop")

    def _start_worker(self) -> _WorkerProcess:
        mine, its = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_run_worker, args=(self.job, its))
        process.start()
        its.close()
        return _WorkerProcess(process, mine, monotonic())

    def _announce(self, workers: list[_WorkerProcess]) -> None:
        """Wait until all listen, and report that once; if one cannot start, stop everything."""
        said = ""
        for one in workers:
            while not one.line.poll(0.1):
                if self.is_stopping.is_set():
                    return
            try:
                said = one.line.recv_bytes().decode()
            except EOFError:
                raise UsageError(
                    "a worker of the proxy could not be started: run it without --workers to "
                    "see why"
                ) from None
        self.ready(said)

    def _end_workers(self, workers: list[_WorkerProcess]) -> None:
        for one in workers:
            if one.process.is_alive():
                one.process.terminate()
        latest = monotonic() + self.job.settings.grace + 5
        for one in workers:
            one.process.join(max(0.0, latest - monotonic()))
            if one.process.is_alive():
                one.process.kill()
                one.process.join()
            one.line.close()
        self.reader.close()
        self.writer.close()


def _run_worker(job: WorkerJob, line: Connection) -> None:
    """Serve in a process of its own until a signal comes or its parent process has ended."""
    keep_memory()
    asyncio.run(_serve_worker(job, line))


async def _serve_worker(job: WorkerJob, line: Connection) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    served = Served(job.settings, job.log, job.connect(job.settings), shared_port=True)
    path = Path(job.folder) / str(os.getpid())

    async def publish() -> None:
        """Write the counters now and then, for the process that is asked for all of them."""
        said = b""
        while True:
            if served.proxy is not None:
                served.proxy.siblings = lambda: _read_counts(path)
                counts = msgspec.json.encode(served.proxy.counted)
                if counts != said:
                    _write_counts(served, path)
                    said = counts
            await asyncio.sleep(_EVERY)

    publishing = asyncio.ensure_future(publish())

    def ready(url: str) -> None:
        line.send_bytes(url.encode())
        # the other end closes when the parent process ends, for whatever reason
        loop.add_reader(line.fileno(), stop.set)

    try:
        await until_stopped(served, ready, stop=stop)
    finally:
        publishing.cancel()
        _write_counts(served, path)


def _write_counts(served: Served, path: Path) -> None:
    if served.proxy is None:
        return
    fresh = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        fresh.write_bytes(msgspec.json.encode(served.proxy.counted))
        fresh.replace(path)


def _read_counts(own: Path) -> list[Metrics]:
    """Return the counters of the other processes, including those that have ended."""
    found: list[Metrics] = []
    for path in own.parent.iterdir():
        if path == own or not path.name.isdecimal():
            continue
        counted = msgspec.json.decode(path.read_bytes(), type=Metrics)
        if start_moment(int(path.name)) == "":
            counted.running = 0
        found.append(counted)
    return found
