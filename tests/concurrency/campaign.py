"""Many workers on few sessions, and somebody who stops, kills and disconnects them.

``campaign`` runs to the end of every worker's turns and gives a report: what happened how often,
and every fault that the history shows.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lockstitch
from lockstitch.errors import Unreadable
from lockstitch.journal.projection import wanted_blobs
from lockstitch.journal.records import JournalRecord
from lockstitch.journal.requests import project
from lockstitch.journal.state import JournalState
from lockstitch.stores.base import Backend, StoreFault
from lockstitch.stores.opening import open_backend
from tests.oracles import problems

from .history import faults, logs_in

BEAT = 0.02


@dataclass(frozen=True, slots=True)
class Plan:
    """How large a campaign is and what goes wrong in it."""

    url: str
    folder: Path
    processes: int = 4
    turns: int = 5
    sessions: int = 1
    lease: float = 1.0
    seed: int = 1
    by: str = "backend"
    stops: float = 0.0
    deaths: float = 0.0
    outer_stops: float = 0.0
    outer_kills: float = 0.0
    cuts: float = 0.0
    cut: Callable[[], Any] | None = None

    @property
    def names(self) -> list[str]:
        return [f"s{number}" for number in range(1, self.sessions + 1)]

    @property
    def address(self) -> str:
        return f"{self.url}{'&' if '?' in self.url else '?'}lease={self.lease}"


@dataclass(slots=True)
class Report:
    """What came of it."""

    events: int = 0
    faults: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def __str__(self) -> str:
        """Say it in one line, and each fault in another."""
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        head = f"{self.events} events in {self.seconds:.1f} s; {counts}; {len(self.faults)} faults"
        return "\n".join([head, *self.faults[:20]])


@dataclass(slots=True)
class Child:
    """A worker's process, and when it may go on if it is stopped."""

    number: int
    pid: int
    wakes: float = 0.0
    held: tuple[str, int] = ("", 0)

    @property
    def is_awake(self) -> bool:
        return not self.wakes


class Nemesis:
    """Starts the workers, and sees to it that they have a hard time."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.dice = random.Random(plan.seed)  # noqa: S311 - luck, not secrets
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []
        self.read: dict[str, list[JournalRecord]] = {}

    def run(self) -> None:
        """Start one worker, and the others when it has stopped in the middle of its first turn."""
        children = [self.start(0)]
        try:
            with open_backend(self.plan.address) as backend:
                while children:
                    children = [child for child in children if self.looked_after(child)]
                    if self.counts["stopped"] and not self.counts["started"]:
                        children += self.start_others(children[0], backend)
                    self.wake(children, backend)
                    if self.counts["started"]:
                        self.strike(children)
                    self.look(backend)
                    time.sleep(BEAT)
        finally:
            for child in children:
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)

    def start_others(self, first: Child, backend: Backend) -> list[Child]:
        self.counts["started"] = self.plan.processes
        session = self.last(first.number, "holds")["session"]
        head = backend.head(session)
        first.held = (session, head.epoch if head else 0)
        return [self.start(number) for number in range(1, self.plan.processes)]

    def last(self, number: int, do: str) -> dict[str, Any]:
        [log] = [log for log in logs_in(self.plan.folder) if log.worker == f"w{number}"]
        return log.of(do)[-1]

    def wake(self, children: list[Child], backend: Backend) -> None:
        """Wake who slept long enough; the first one only when its session is another's."""
        for child in children:
            if child.is_awake or time.monotonic() < child.wakes:
                continue
            session, epoch = child.held
            head = backend.head(session) if session else None
            others = any(other.is_awake for other in children)
            if head is None or head.epoch > epoch or not others:
                child.wakes, child.held = 0.0, ("", 0)
                os.kill(child.pid, signal.SIGCONT)

    def start(self, number: int) -> Child:
        orders = json.dumps(self.orders(number))
        errors = str(self.plan.folder / f"w{number}.err")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        path = os.pathsep.join(filter(None, sys.path))
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "tests.concurrency.worker", orders],
            {**os.environ, "PYTHONPATH": path},
            file_actions=[(os.POSIX_SPAWN_OPEN, 2, errors, flags, 0o600)],
        )
        return Child(number, pid)

    def orders(self, number: int) -> dict[str, Any]:
        plan = self.plan
        first = self.begun(number) + 1
        # The first two always meet with what the campaign is about, in the middle of a turn.
        sure = {0: {"stop_at": (1, 3)}, 1: {"die_at": (1, 5)}}.get(number, {})
        return {
            "url": plan.address,
            "sessions": plan.names,
            "name": f"w{number}",
            "log": str(plan.folder / f"w{number}.log"),
            "seed": plan.seed * 1000 + number * 100 + first,
            "first": first,
            "turns": plan.turns,
            "by": plan.by,
            "stops": plan.stops,
            "deaths": plan.deaths,
            **sure,
        }

    def begun(self, number: int) -> int:
        """The last turn that a worker began before it died."""
        logs = [log for log in logs_in(self.plan.folder) if log.worker == f"w{number}"]
        return max((line["turn"] for log in logs for line in log.of("turn")), default=0)

    def looked_after(self, child: Child) -> bool:
        """See who fell asleep, replace who died; False for who has done its turns."""
        pid, status = os.waitpid(child.pid, os.WNOHANG | os.WUNTRACED)
        if not pid:
            return True
        if os.WIFSTOPPED(status):
            self.counts["stopped"] += 1
            child.wakes = time.monotonic() + self.plan.lease * self.dice.uniform(1.2, 2.0)
            return True
        if os.WIFSIGNALED(status):
            self.counts["killed"] += 1
            if self.begun(child.number) < self.plan.turns:
                child.pid, child.wakes = self.start(child.number).pid, 0.0
                return True
            return False
        if os.waitstatus_to_exitcode(status):
            text = (self.plan.folder / f"w{child.number}.err").read_text("utf-8", "replace")
            self.broken.append(f"worker {child.number} failed: {text[-1500:]}")
        return False

    def strike(self, children: list[Child]) -> None:
        awake = [child for child in children if child.is_awake]
        if awake and self.dice.random() < self.plan.outer_stops:
            os.kill(self.dice.choice(awake).pid, signal.SIGSTOP)
        elif awake and self.dice.random() < self.plan.outer_kills:
            os.kill(self.dice.choice(awake).pid, signal.SIGKILL)
        if self.plan.cut and self.dice.random() < self.plan.cuts:
            self.plan.cut()
            self.counts["connections cut"] += 1

    def look(self, backend: Backend) -> None:
        """A reader sees what it saw before, and perhaps more."""
        name = self.dice.choice(self.plan.names)
        with suppress(Unreadable):
            records = list(backend.read(name))
            before = self.read.get(name, [])
            if records[: len(before)] != before:
                self.broken.append(f"{name}: a reader saw records change")
            self.read[name] = records
            self.counts["reads"] += 1


def campaign(plan: Plan) -> Report:
    """Run it, and judge it."""
    begun = time.monotonic()
    nemesis = Nemesis(plan)
    nemesis.run()
    report = Report(counts=nemesis.counts, faults=list(nemesis.broken))
    logs = logs_in(plan.folder)
    with open_backend(plan.address) as backend:
        sessions = {name: list(backend.read(name)) for name in _made(backend, plan)}
        report.faults += [f.message for f in backend.verify() if isinstance(f, StoreFault)]
        report.faults += faults(logs, sessions, plan.by)
        for name, records in sessions.items():
            report.faults += [f"{name}: {fault}" for fault in invalid(backend, records, plan.seed)]
    report.events = sum(map(len, sessions.values()))
    report.counts["acknowledged"] = sum(len(line["ids"]) for log in logs for line in log.of("ack"))
    report.counts["turns"] = sum(len(log.of("turn")) for log in logs)
    report.counts["whole turns"] = sum(len(log.of("done")) for log in logs)
    for line in (line for log in logs for line in log.of("refused")):
        report.counts[line["why"]] += 1
    report.counts["epochs"] = sum(len({r.epoch for r in records}) for records in sessions.values())
    report.seconds = time.monotonic() - begun
    return report


def _made(backend: Backend, plan: Plan) -> list[str]:
    return [listed.session for listed in backend.sessions() if listed.session in plan.names]


def invalid(
    backend: Backend, records: list[JournalRecord], seed: int, samples: int = 12
) -> list[str]:
    """What is wrong with the requests of some prefixes, the whole among them."""
    dice = random.Random(seed)  # noqa: S311 - luck, not secrets
    chosen = {len(records), *(dice.randint(1, len(records)) for _ in range(samples) if records)}
    found: list[str] = []
    state = JournalState()
    for count, record in enumerate(records, 1):
        state.apply(record)
        if count in chosen:
            dialect = dice.choice(["anthropic", "openai-chat", "gemini", "openai-responses"])
            messages = project(state.view, dialect, blobs=backend.blobs(wanted_blobs(state.view)))
            found += [f"{count}: {f.message}" for f in lockstitch.check(messages, dialect)]
            found += [f"{count}: {text}" for text in problems(dialect, messages)]
    return found
