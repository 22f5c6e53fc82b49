"""What the proxy adds to a request: the time beside going to the same upstream directly.

    python benchmarks/proxy.py                       # prints a table
    python benchmarks/proxy.py --keep                # and writes benchmarks/results/DATE-proxy.json
    python benchmarks/proxy.py --litellm PYTHON      # beside LiteLLM's proxy, in that Python

Everything runs on this machine, each server in a process of its own; the reply is a stream of 50
events. The variants take turns, so that a busy machine is busy for all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import urlsplit

RESULTS = Path(__file__).parent / "results"
PATH = "/v1/messages"
OK = 200
SHORTEST = 8
SIZES = {"10 KB": 10_000, "1 MB": 1_000_000}
UPSTREAM = """
import asyncio
from aiohttp import web

START = b'event: message_start\\ndata: {"type":"message_start","message":{"id":"m",' \\
    b'"type":"message","role":"assistant","model":"m","content":[],' \\
    b'"stop_reason":null,"stop_sequence":null,' \\
    b'"usage":{"input_tokens":1,"output_tokens":1}}}\\n\\n'
OPEN = b'event: content_block_start\\ndata: {"type":"content_block_start","index":0,' \\
    b'"content_block":{"type":"text","text":""}}\\n\\n'
DELTA = b'event: content_block_delta\\ndata: {"type":"content_block_delta","index":0,' \\
    b'"delta":{"type":"text_delta","text":"word "}}\\n\\n'
CLOSE = b'event: content_block_stop\\ndata: {"type":"content_block_stop","index":0}\\n\\n'
LAST = b'event: message_delta\\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn",' \\
    b'"stop_sequence":null},"usage":{"output_tokens":50}}\\n\\n'
STOP = b'event: message_stop\\ndata: {"type":"message_stop"}\\n\\n'

async def handle(request):
    async for _ in request.content.iter_any():
        pass
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in (START, OPEN, *[DELTA] * 46, CLOSE, LAST, STOP):
        await response.write(event)
    await response.write_eof()
    return response

async def main():
    runner = web.ServerRunner(web.Server(handle), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def body(size: int, *, broken: bool) -> bytes:
    """A conversation of about so many bytes; a broken one lacks a result early on."""
    messages: list[Any] = []
    while len(messages) < SHORTEST or len(json.dumps(messages[-4:])) * len(messages) / 4 < size:
        turn = len(messages) // 4
        call = {"type": "tool_use", "id": f"toolu_{turn:05}", "name": "bash", "input": {"n": turn}}
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": "out " * 350}
        messages += [
            {"role": "user", "content": f"Please do step {turn}."},
            {"role": "assistant", "content": [{"type": "text", "text": "Sure."}, call]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
        ]
    if broken:
        del messages[2]
    messages.append({"role": "user", "content": "And now?"})
    tools = [{"name": "bash", "input_schema": {"type": "object"}}]
    request = {"model": "claude-sonnet-5", "max_tokens": 99, "stream": True, "tools": tools}
    return json.dumps({**request, "messages": messages}).encode()


@contextlib.contextmanager
def process(*command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server in a process of its own."""
    made = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        env={**os.environ, **environment},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield made
    finally:
        made.terminate()
        made.wait()


@contextlib.contextmanager
def upstream() -> Iterator[str]:
    """Run what answers every request with the same stream."""
    with process(sys.executable, "-c", UPSTREAM) as made:
        yield f"http://127.0.0.1:{int(first_line(made))}"


def first_line(made: subprocess.Popen[bytes]) -> bytes:
    """Return what a server says first, and see to it that the rest does not fill its pipe."""
    if made.stdout is None:
        raise SystemExit("a server says nothing")
    said = made.stdout.readline()
    threading.Thread(target=made.stdout.read, daemon=True).start()
    return said


@contextlib.contextmanager
def ours(url: str) -> Iterator[str]:
    """Run our proxy, as its command does."""
    words = ["-m", "lockstitch", "proxy", "--json", "--port", "0", "--upstream", url]
    with process(sys.executable, *words) as made:
        yield json.loads(first_line(made))["url"]


@contextlib.contextmanager
def litellm(python: str, url: str) -> Iterator[str]:
    """LiteLLM's proxy, with the upstream as the one place its model is at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    model = {
        "model_name": "claude-sonnet-5",
        "litellm_params": {
            "model": "anthropic/claude-sonnet-5",
            "api_base": url,
            "api_key": "none",
        },
    }
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(json.dumps({"model_list": [model]}))
        command = [str(Path(python).with_name("litellm")), "--config", str(config)]
        quiet = {
            "LITELLM_LOG": "ERROR",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        }
        with process(*command, "--port", str(port), **quiet) as made:
            threading.Thread(target=first_line, args=(made,), daemon=True).start()
            _wait_for(port)
            yield f"http://127.0.0.1:{port}"


def _wait_for(port: int) -> None:
    latest = time.monotonic() + 180
    while time.monotonic() < latest:
        try:
            with contextlib.closing(HTTPConnection(f"127.0.0.1:{port}", timeout=5)) as connection:
                connection.request("GET", "/health/liveliness")
                if connection.getresponse().status == OK:
                    return
        except OSError:
            time.sleep(0.5)
    raise SystemExit("LiteLLM's proxy did not start")


class Variant:
    """A way to the upstream, and how long requests took on it."""

    def __init__(self, name: str, url: str, data: bytes) -> None:
        self.name = name
        self.data = data
        self.connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
        self.times: list[float] = []

    def ask(self, *, counts: bool) -> None:
        """Send the request once, and read all of the reply."""
        headers = {"Content-Type": "application/json", "anthropic-version": "2023-06-01"}
        began = time.perf_counter()
        self.connection.request("POST", PATH, self.data, {**headers, "x-api-key": "none"})
        answer = self.connection.getresponse()
        text = answer.read()
        took = time.perf_counter() - began
        healed = answer.headers.get("lockstitch-repaired") is not None
        if answer.status != OK or b"message_stop" not in text or healed != ("healed" in self.name):
            raise SystemExit(f"{self.name}: status {answer.status}, {text[:300]!r}")
        if counts:
            self.times.append(took)


def measure(ways: dict[str, tuple[str, bool]], size: int, rounds: int) -> dict[str, list[float]]:
    """Return the times of every variant, which take turns."""
    variants = [
        Variant(name, url, body(size, broken=broken)) for name, (url, broken) in ways.items()
    ]
    for number in range(rounds + rounds // 10 + 3):
        for variant in variants:
            variant.ask(counts=number >= rounds // 10 + 3)
    return {variant.name: variant.times for variant in variants}


def summary(times: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Return p50 and p99 of every variant in milliseconds, and what they add to direct ones."""

    def at(values: list[float], percent: int) -> float:
        return quantiles(values, n=100)[percent - 1] * 1000

    direct = times["direct"]
    return [
        {
            "variant": name,
            "p50_ms": round(at(values, 50), 2),
            "p99_ms": round(at(values, 99), 2),
            "added_p50_ms": round(at(values, 50) - at(direct, 50), 2),
            "added_p99_ms": round(at(values, 99) - at(direct, 99), 2),
        }
        for name, values in times.items()
    ]


def main() -> None:
    """Measure, print a table, and keep it if asked to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--litellm", metavar="PYTHON")
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        url = stack.enter_context(upstream())
        mine = stack.enter_context(ours(url))
        ways = {
            "direct": (url, False),
            "lockstitch, untouched": (mine, False),
            "lockstitch, healed": (mine, True),
        }
        if given.litellm:
            ways["LiteLLM, untouched"] = stack.enter_context(litellm(given.litellm, url)), False
        for name, size in SIZES.items():
            rows = summary(measure(ways, size, given.rounds))
            found[name] = rows
            print(f"\n{name:24} {'p50':>8} {'p99':>8} {'added p50':>10} {'added p99':>10}  ms")
            for row in rows:
                shown = (row["p50_ms"], row["p99_ms"], row["added_p50_ms"], row["added_p99_ms"])
                print(f"{row['variant']:24} {shown[0]:8} {shown[1]:8} {shown[2]:10} {shown[3]:10}")
    if given.keep:
        today = datetime.now(UTC).date().isoformat()
        about = {"python": platform.python_version(), "rounds": given.rounds, "results": found}
        (RESULTS / f"{today}-proxy.json").write_text(json.dumps(about, indent=2) + "\n")


if __name__ == "__main__":
    main()
