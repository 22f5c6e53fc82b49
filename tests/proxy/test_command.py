"""The real command: one process or several, that stop when told to and come back when they die."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kinds_of_break.conversations import BROKEN
from tests.proxy import load
from tests.proxy.bodies import CASES
from tests.proxy.sending import PATIENCE, send
from tests.proxy.upstream import Upstream

MESSAGES = CASES[0]
BODY = MESSAGES.body(BROKEN[0].turns)


@contextmanager
def started(*words: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    command = [sys.executable, "-m", "lockstitch", "proxy", "--json", "--port", "0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            if process.poll() is None:
                process.kill()


def children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            words = path.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == pid and b"spawn_main" in words:
            found.append(int(path.parent.name))
    return found


def until(condition: Callable[[], object]) -> None:
    latest = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < latest
        time.sleep(0.05)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_process(upstream: Upstream, number: signal.Signals) -> None:
    with started("--upstream", upstream.url) as (process, url):
        assert send(url, MESSAGES.path, BODY).header("lockstitch-repaired") == "LS101=1"
        assert process.stdout
        said = json.loads(process.stdout.readline())["request"]
        assert (said["route"], said["repaired"]) == ("messages", {"LS101": 1})
        assert "MARK" not in json.dumps(said)
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux has them")
def test_several_processes(upstream: Upstream) -> None:
    with started("--upstream", upstream.url, "--workers", "2") as (process, url):
        first = children(process.pid)
        assert len(first) == 2
        for _ in range(8):
            assert send(url, MESSAGES.path, BODY).status == 200

        def healed() -> int:
            told = send(url, "/metrics", None, {}, "GET").data.decode()
            line = next(line for line in told.splitlines() if "repairs_total{" in line)
            return int(line.split()[-1])

        # Each says what it counted itself and what the other has written down: once both say it,
        # both have written down all, and nothing is lost with one of them.
        until(lambda: all(healed() == 8 for _ in range(40)))
        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(set(children(process.pid)) - {first[0]}) == 2)
        assert send(url, MESSAGES.path, BODY).status == 200
        process.terminate()
        assert process.wait(PATIENCE) == 0
        until(lambda: all(map(is_gone, first)))


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux has them")
def test_workers_end_with_the_one_that_started_them(upstream: Upstream) -> None:
    with started("--upstream", upstream.url, "--workers", "2") as (process, _):
        workers = children(process.pid)
        process.kill()
        process.wait(PATIENCE)
        until(lambda: all(map(is_gone, workers)))


def test_a_port_that_is_taken(upstream: Upstream) -> None:
    port = upstream.url.rpartition(":")[2]
    for more in ([], ["--workers", "2"]):
        command = [sys.executable, "-m", "lockstitch", "proxy", "--port", port, *more]
        done = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE)
        assert (done.returncode, b"the address is in use or not allowed" in done.stderr) == (
            2,
            True,
        )


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux has them")
def test_a_little_load() -> None:
    done = asyncio.run(load.run(streams=20, seconds=1.0))
    assert done.errors == []
    assert done.events == done.streams * load.EVENTS > 0
    assert done.healed
