"""``python -m tests.proxy.load``: many streams at once for a while, none of which may fail.

Every stream checks that each of its events arrives before the next one is sent, and at the end the
memory of the proxy's process is compared with what it was once all streams ran.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.kinds_of_break.conversations import BROKEN, HEALTHY
from tests.proxy.bodies import EACH_DIALECT

EVENTS = 20


@dataclass
class Load:
    """What came of a run."""

    streams: int = 0
    events: int = 0
    healed: int = 0
    late: int = 0
    errors: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)


class Paced:
    """An upstream whose streams go on only when the client has what was sent before."""

    def __init__(self) -> None:
        self.arrived: dict[str, asyncio.Event] = {}
        self.url = ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        runner = web.ServerRunner(web.Server(self._handle), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        arrived = self.arrived[request.headers["x-stream"]]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(EVENTS):
            await response.write(f"data: {number}\n\n".encode())
            await asyncio.wait_for(arrived.wait(), 60)
            arrived.clear()
        await response.write_eof()
        return response


@contextlib.contextmanager
def proxied(upstream: str) -> Iterator[tuple[str, int]]:
    """Run the real command in a process of its own; give its address and its number."""
    words = ["proxy", "--json", "--port", "0", "--upstream", upstream]
    command = [sys.executable, "-m", "lockstitch", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        url = json.loads(process.stdout.readline())["url"]
        import threading

        drain = threading.Thread(target=process.stdout.read, daemon=True)
        drain.start()
        try:
            yield url, process.pid
        finally:
            process.terminate()
            drain.join()


def resident(pid: int) -> int:
    """The memory of a process, in KB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


async def _stream(number: int, url: str, paced: Paced, until: float, load: Load) -> None:
    name = str(number)
    arrived = paced.arrived[name] = asyncio.Event()
    case = EACH_DIALECT[number % len(EACH_DIALECT)]
    turns = (HEALTHY if number % 2 else BROKEN[1]).turns
    body = case.body(turns)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
        while time.monotonic() < until:
            headers = {"Content-Type": "application/json", "x-stream": name}
            async with session.post(url + case.path, data=body, headers=headers) as reply:
                if reply.status != 200:
                    load.errors.append(f"status {reply.status}")
                    return
                load.healed += "lockstitch-repaired" in reply.headers
                for event in range(EVENTS):
                    chunk = await reply.content.readuntil(b"\n\n")
                    if chunk != f"data: {event}\n\n".encode():
                        load.errors.append(f"event {event} was another one")
                        return
                    load.events += 1
                    arrived.set()
                if await reply.content.read():
                    load.errors.append("more came than was sent")
            load.streams += 1


async def run(streams: int, seconds: float) -> Load:
    """Keep so many streams going for so long."""
    load, paced = Load(), Paced()
    async with paced.running():
        with proxied(paced.url) as (url, pid):
            until = time.monotonic() + seconds
            tasks = [
                asyncio.create_task(_stream(number, url, paced, until, load))
                for number in range(streams)
            ]
            while time.monotonic() < until:
                await asyncio.sleep(seconds / 10)
                load.memory.append(resident(pid))
            for done in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(done, BaseException):
                    load.errors.append(repr(done))
    return load


def main() -> int:
    """Run as long as asked for, and print what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    load = asyncio.run(run(given.streams, given.seconds))
    memory = [f"{kb / 1024:.0f}" for kb in load.memory]
    print(f"{given.streams} at once for {given.seconds:.0f} s: {load.streams} streams")  # noqa: T201
    print(f"{load.events} events, each before the next; {load.healed} requests healed")  # noqa: T201
    print(f"memory in MB over the time: {' '.join(memory)}")  # noqa: T201
    print(f"errors: {len(load.errors)} {load.errors[:3]}")  # noqa: T201
    return 1 if load.errors else 0


if __name__ == "__main__":
    sys.exit(main())
