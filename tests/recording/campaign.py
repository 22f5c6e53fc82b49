"""Clients, a proxy with its workers and a store, all killed at random; then what is there is read.

Every request and reply that was acknowledged to a client must be shown, in a conversation of its
own, and no session may hold anything that no client sent.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import lockstitch
from lockstitch import stored
from tests.postgres_server import Server, children, free_port
from tests.proxy.upstream import Upstream, listening
from tests.recording.provider import Moody
from tests.recording.talking import spelled

Lines = tuple[str, ...]
PATIENCE = 120


@dataclass
class Report:
    """What was done and found."""

    acknowledged: set[Lines] = field(default_factory=set)
    tried: set[Lines] = field(default_factory=set)
    kills: dict[str, int] = field(default_factory=dict)
    sessions: int = 0
    missing: list[Lines] = field(default_factory=list)
    mixed: list[Lines] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {name}" for name, count in sorted(self.kills.items()))
        found = len(self.missing), len(self.mixed), len(self.faults)
        return (
            f"killed {kills}; acknowledged {len(self.acknowledged)} requests and replies;"
            f" {self.sessions} sessions; missing {found[0]}, mixed {found[1]}, faults {found[2]}"
        )

    @property
    def is_clean(self) -> bool:
        return not (self.missing or self.mixed or self.faults)


class Talking:
    """A client's process, heard line by line."""

    def __init__(self, url: str, seed: int, lines: Lines, report: Report) -> None:
        words = [sys.executable, "-m", "tests.recording.client", url, str(seed)]
        words.append(json.dumps(lines))
        self.last = lines
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._report = report
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()

    def _hear(self) -> None:
        assert self.process.stdout
        for raw in self.process.stdout:
            word, _, rest = raw.decode().partition(" ")
            if not raw.endswith(b"\n"):
                return
            lines = tuple(json.loads(rest))
            (self._report.tried if word == "try" else self._report.acknowledged).add(lines)
            self.last = lines if word == "ack" else self.last

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join(PATIENCE)
        assert self.process.stdout
        self.process.stdout.close()


class Proxying:
    """The proxy's processes, on one port."""

    def __init__(self, upstream: str, store: str, workers: int) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._words = [
            *(sys.executable, "-m", "lockstitch", "proxy", "--json", "--fail-closed"),
            *("--port", str(self.port), "--upstream", upstream, "--record", store),
            *("--workers", str(workers)),
        ]
        self.start()

    def start(self) -> None:
        nowhere = subprocess.DEVNULL
        self.process = subprocess.Popen(
            self._words, stdout=nowhere, stderr=nowhere, start_new_session=True
        )

    def kill(self) -> None:
        """End all of it at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_worker(self, choose: random.Random) -> bool:
        """End one of its workers; whether there was one."""
        found = children(self.process.pid)
        if found:
            with suppress(ProcessLookupError):
                os.kill(choose.choice(found), signal.SIGKILL)
        return bool(found)


@dataclass
class Plan:
    """How long, with whom, and what is killed."""

    store: str
    seconds: float
    clients: int = 4
    workers: int = 2
    seed: int = 1
    pause: tuple[float, float] = (0.2, 1.0)
    server: Server | None = None
    # ends early once so many kills of each kind were made, and so much was acknowledged
    enough: int = 0


def campaign(plan: Plan) -> Report:
    """Do all of it, and read what is there."""
    report = Report()
    with ExitStack() as stack:
        upstream: Upstream = stack.enter_context(listening())
        upstream.script = Moody(plan.seed)
        proxy = Proxying(upstream.url, plan.store, plan.workers)
        stack.callback(proxy.kill)
        run = _Run(plan, proxy, report)
        stack.callback(run.end_clients)
        run.until_over()
    _read(plan.store, report)
    return report


class _Run:
    def __init__(self, plan: Plan, proxy: Proxying, report: Report) -> None:
        self.plan, self.proxy, self.report = plan, proxy, report
        self.random = random.Random(plan.seed)  # noqa: S311 - to be had again
        self.seeds = iter(range(1, 1_000_000))
        self.restarts = 0
        self.clients = [self._client(()) for _ in range(plan.clients)]

    def _client(self, lines: Lines) -> Talking:
        return Talking(self.proxy.url, self.plan.seed * 1000 + next(self.seeds), lines, self.report)

    def end_clients(self) -> None:
        for client in self.clients:
            client.kill()

    def until_over(self) -> None:
        deeds: dict[str, Callable[[], bool]] = {
            "clients": self._kill_client,
            "proxies": self._kill_proxy,
        }
        if self.plan.workers > 1:
            deeds["workers"] = lambda: self.proxy.kill_worker(self.random)
        if self.plan.server is not None:
            deeds["stores"] = self._kill_store
        until = time.monotonic() + self.plan.seconds
        while time.monotonic() < until and not self._is_enough(deeds):
            before = len(self.report.acknowledged)
            time.sleep(self.random.uniform(*self.plan.pause))
            # something must go through between two kills, or nothing is shown
            while len(self.report.acknowledged) < before + 3 and time.monotonic() < until:
                time.sleep(0.05)
                self._supervise()
            most = self.plan.enough or sys.maxsize
            left = [one for one in sorted(deeds) if self.report.kills.get(one, 0) < most]
            name = self.random.choice(left)
            if deeds[name]():
                self.report.kills[name] = self.report.kills.get(name, 0) + 1

    def _supervise(self) -> None:
        """Start a proxy again that found no store when it began, as an init system would."""
        if self.proxy.process.poll() is not None:
            self.proxy.kill()
            self.proxy.start()
            self.restarts += 1

    def _is_enough(self, deeds: dict[str, Callable[[], bool]]) -> bool:
        kills = self.report.kills
        most = self.plan.enough
        return bool(most) and all(kills.get(name, 0) >= most for name in deeds)

    def _kill_client(self) -> bool:
        at = self.random.randrange(len(self.clients))
        gone = self.clients[at]
        gone.kill()
        self.clients[at] = self._client(gone.last if self.random.random() < 0.5 else ())
        return True

    def _kill_proxy(self) -> bool:
        self.proxy.kill()
        self.proxy.start()
        return True

    def _kill_store(self) -> bool:
        assert self.plan.server is not None
        self.plan.server.kill()
        time.sleep(self.random.uniform(0, 1))
        self.plan.server.start()
        return True


def _read(url: str, report: Report) -> None:
    """Compare what is in the store with what was acknowledged."""
    with lockstitch.open(url) as store:
        said = [_said(store, listed.session) for listed in store.sessions()]
    report.sessions = len(said)
    there = {lines[:n] for lines in said for n in range(1, len(lines) + 1)}
    report.missing = sorted(report.acknowledged - there)
    sent = report.tried | report.acknowledged
    known = {lines[:n] for lines in sent for n in range(len(lines) + 1)}
    # of the last reply the client may never have heard
    report.mixed = [lines for lines in said if lines not in known and lines[:-1] not in known]
    report.faults = [
        f"{one.session}: {one.status}" for one in stored.check(url) if one.status != "ok"
    ]


def _said(store: lockstitch.Store, name: str) -> Lines:
    """What a session holds; a call that nobody answered is answered on the wire only."""
    lines = list(map(spelled, store.read(name).request("openai-chat")))
    while lines and lines[-1].startswith("tool: [lockstitch]"):
        del lines[-1]
    return tuple(lines)


def sqlite_in(folder: Path) -> str:
    """The address of a store in a folder."""
    return f"sqlite:///{folder}/conversations.db"
