"""Several processes that share one port, and one that starts them anew when they die."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from time import monotonic

import msgspec
from msgspec import Struct, structs

from lockstitch.errors import UsageError
from lockstitch.processes import start
from lockstitch.proxy.forwarding import Log
from lockstitch.proxy.metrics import Metrics
from lockstitch.proxy.server import Connect, Served, keep_memory, until_stopped
from lockstitch.proxy.settings import Settings, checked

_SPAWN = get_context("spawn")
_TELLING = 1.0
# One that dies at once, again and again, is not started more often than this.
_PAUSE = 1.0


class Job(Struct, frozen=True):
    """What a worker is told: all of it can be sent to another process."""

    settings: Settings
    log: Log
    connect: Callable[[Settings], Connect | None]
    folder: str


def serve(
    settings: Settings,
    ready: Callable[[str], None],
    *,
    log: Log,
    connect: Callable[[Settings], Connect | None],
) -> None:
    """Serve from ``settings.workers`` processes until told to stop; ``ready`` is told the address.

    ``log`` and ``connect`` are functions of a module, so that every process can find them.
    """
    settings = checked(settings)
    if not hasattr(socket, "SO_REUSEPORT"):
        raise UsageError("this system does not let processes share a port: leave --workers out")
    with _held_port(settings) as held, tempfile.TemporaryDirectory(prefix="lockstitch-") as folder:
        port = held.getsockname()[1]
        job = Job(structs.replace(settings, port=port), log, connect, folder)
        _Supervisor(job, ready).run()


def _held_port(settings: Settings) -> socket.socket:
    """Hold the port, without listening on it, so that it is known and stays this proxy's."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((settings.host, settings.port))
    except OSError as error:
        held.close()
        where = f"{settings.host} port {settings.port}"
        raise UsageError(f"cannot listen on {where}: it is taken or not allowed") from error
    return held


class _Worker(Struct):
    """A process, the line on which it says its address, and when it was started."""

    process: SpawnProcess
    line: Connection
    since: float


class _Supervisor:
    """Starts workers, starts those that died anew, and takes them all down at the end."""

    def __init__(self, job: Job, ready: Callable[[str], None]) -> None:
        self.job = job
        self.ready = ready
        self.is_stopping = threading.Event()
        self.reader, self.writer = _SPAWN.Pipe(duplex=False)

    def run(self) -> None:
        """Supervise until a signal comes."""
        before = {
            number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)
        }
        workers = [self._started() for _ in range(self.job.settings.workers)]
        try:
            self._tell(workers)
            while not self.is_stopping.is_set():
                wait([self.reader, *(one.process.sentinel for one in workers)], timeout=_TELLING)
                for number, one in enumerate(workers):
                    if not one.process.is_alive() and not self.is_stopping.is_set():
                        self.is_stopping.wait(max(0.0, one.since + _PAUSE - monotonic()))
                        workers[number] = self._started()
        finally:
            self._end(workers)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, *_: object) -> None:
        self.is_stopping.set()
        self.writer.send_bytes(b"stop")

    def _started(self) -> _Worker:
        mine, its = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_work, args=(self.job, its))
        process.start()
        its.close()
        return _Worker(process, mine, monotonic())

    def _tell(self, workers: list[_Worker]) -> None:
        """Wait until all listen, and say so once; one that cannot start ends everything."""
        said = ""
        for one in workers:
            while not one.line.poll(0.1):
                if self.is_stopping.is_set():
                    return
            try:
                said = one.line.recv_bytes().decode()
            except EOFError:
                raise UsageError("a worker could not be started") from None
        self.ready(said)

    def _end(self, workers: list[_Worker]) -> None:
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


def _work(job: Job, line: Connection) -> None:
    """Serve in a process of its own, until it is told to stop or whoever started it is gone."""
    keep_memory()
    asyncio.run(_served(job, line))


async def _served(job: Job, line: Connection) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    served = Served(job.settings, job.log, job.connect(job.settings), shared_port=True)
    path = Path(job.folder) / str(os.getpid())
    telling = asyncio.ensure_future(_tell_always(served, path))

    def ready(url: str) -> None:
        line.send_bytes(url.encode())
        # the other end closes when its process ends, however that comes about
        loop.add_reader(line.fileno(), stop.set)

    try:
        await until_stopped(served, ready, stop=stop)
    finally:
        telling.cancel()
        _write(served, path)


async def _tell_always(served: Served, path: Path) -> None:
    """Write what was counted now and then, for the process that is asked for all of it."""
    said = b""
    while True:
        if served.proxy is not None:
            served.proxy.siblings = lambda: _read(path)
            told = msgspec.json.encode(served.proxy.counted)
            if told != said:
                _write(served, path)
                said = told
        await asyncio.sleep(_TELLING)


def _write(served: Served, path: Path) -> None:
    if served.proxy is None:
        return
    fresh = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        fresh.write_bytes(msgspec.json.encode(served.proxy.counted))
        fresh.replace(path)


def _read(own: Path) -> list[Metrics]:
    """Return what the other processes have counted, those that are gone included."""
    found: list[Metrics] = []
    for path in own.parent.iterdir():
        if path == own or not path.name.isdecimal():
            continue
        counted = msgspec.json.decode(path.read_bytes(), type=Metrics)
        if start(int(path.name)) == "":
            counted.running = 0
        found.append(counted)
    return found
