"""Kill a PostgreSQL again and again under writers, and compare what they were told with what is.

``python -m tests.stores.postgres.killing --kills 50 --writers 4`` is the long form of the test.
``--cuts`` ends the connections of all writers so many times, ``--stops`` stops one of them for
longer than its lease lasts. ``--changes`` is for writers that replace and remove sessions, too.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

from msgspec import Struct

from lockstitch.stores.postgres import PostgresBackend
from tests.postgres_server import Server, running
from tests.stores import changes
from tests.stores.postgres import changer
from tests.stores.postgres.making import faults, keys
from tests.stores.postgres.writer import LEASE_SECONDS

SHARED = "shared"
# So often every writer is told something between two blows.
LEAST = 4
PATIENCE = 600
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lockstitch'"


class Outcome(Struct):
    """What came of it; ``unknown`` counts the appends whose outcome was not told."""

    blows: int = 0
    acknowledged: int = 0
    unknown: int = 0
    lost: int = 0
    doubled: int = 0
    strange: int = 0
    disordered: int = 0
    faults: int = 0


class Writer:
    """A writing process, and the lines it has said so far."""

    def __init__(self, dsn: str, name: str, kind: str) -> None:
        sessions = (name, SHARED) if kind == "writer" else ()
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"tests.stores.postgres.{kind}", dsn, name, *sessions],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._listening = threading.Thread(target=self._listen)
        self._listening.start()

    def _listen(self) -> None:
        assert self.process.stdout
        with self.process.stdout as stdout:
            self.lines.extend(stdout)

    def wait_for(self, count: int) -> None:
        """Wait until it has been told so much."""
        deadline = time.monotonic() + PATIENCE
        while len(self.lines) < count:
            assert self.process.poll() is None, "a writer ended by itself"
            assert time.monotonic() < deadline, "a writer gets nowhere"
            time.sleep(0.005)

    def end(self) -> list[tuple[str, str, int]]:
        """End it in order and give what it was told."""
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait(PATIENCE) == 0
        self._listening.join()
        lines = (line.split() for line in self.lines)
        return [(session, key, int(unknown)) for session, key, unknown in lines]

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdin
        self.process.stdin.close()
        self._listening.join()


Blow = Callable[[Server, list[Writer]], None]


def killed(server: Server, _writers: list[Writer]) -> None:
    server.kill()
    server.start()


def cut(server: Server, _writers: list[Writer]) -> None:
    server.execute(CUT)


def stopped(_server: Server, writers: list[Writer]) -> None:
    """Stop a writer for longer than its lease lasts, as a suspended machine does."""
    writer = writers[time.monotonic_ns() % len(writers)].process
    writer.send_signal(signal.SIGSTOP)
    time.sleep(LEASE_SECONDS * 1.2)
    writer.send_signal(signal.SIGCONT)


def judged(dsn: str, told: list[tuple[str, str, int]], blows: int) -> Outcome:
    """Compare what writers were told with what the store holds."""
    outcome = Outcome(blows=blows, acknowledged=len(told))
    outcome.unknown = sum(unknown for _, _, unknown in told)
    with PostgresBackend(dsn) as backend:
        outcome.faults = len(faults(backend))
        for session in {session for session, _, _ in told}:
            there = keys(backend, session)
            acknowledged = [key for where, key, _ in told if where == session]
            counted = Counter(there)
            outcome.lost += len(set(acknowledged) - set(there))
            outcome.strange += len(set(there) - set(acknowledged))
            outcome.doubled += sum(amount - 1 for amount in counted.values())
            for writer in {key.partition("-")[0] for key in there}:
                numbers = [
                    int(key.partition("-")[2]) for key in there if key.startswith(f"{writer}-")
                ]
                outcome.disordered += numbers != sorted(numbers)
    return outcome


def judged_changes(dsn: str, told: list[tuple[str, str, int]], blows: int) -> Outcome:
    """Every writer's sessions hold just what its last change left."""
    outcome = Outcome(blows=blows, acknowledged=len(told))
    outcome.unknown = sum(unknown for _, _, unknown in told)
    made = {name: int(number) for name, number, _ in told}
    with PostgresBackend(dsn) as backend:
        outcome.faults = len(faults(backend))
        for name, number in made.items():
            names = changer.names_of(name)
            model = changes.models(changes.plan(number, names))[-1]
            changes.found_of(backend, names, [model])
    return outcome


def progress(writers: list[Writer], rounds: int) -> None:
    """Let every writer get on, however slow the machine is."""
    for writer in writers:
        writer.wait_for(rounds * LEAST)


def run(blows: list[Blow], writers: int, pause: float, kind: str = "writer") -> Outcome:
    with running() as server:
        dsn = server.fresh()
        PostgresBackend(dsn).close()
        processes = [Writer(dsn, f"w{number}", kind) for number in range(writers)]
        try:
            for number, blow in enumerate(blows, 1):
                time.sleep(pause * random.uniform(0.3, 1.7))  # noqa: S311
                progress(processes, number)
                blow(server, processes)
            progress(processes, len(blows) + 1)
            told = [line for process in processes for line in process.end()]
        finally:
            for process in processes:
                process.kill()
        return (judged if kind == "writer" else judged_changes)(dsn, told, len(blows))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--stops", type=int, default=5)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.7)
    parser.add_argument("--changes", action="store_true")
    given = parser.parse_args()
    blows: list[Blow] = [killed] * given.kills + [cut] * given.cuts + [stopped] * given.stops
    random.shuffle(blows)
    kind = "changer" if given.changes else "writer"
    outcome = run(blows, given.writers, given.pause, kind)
    print(outcome)  # noqa: T201
    wrong = outcome.lost + outcome.doubled + outcome.strange + outcome.disordered + outcome.faults
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
