"""Kill a PostgreSQL again and again under writers, and compare what they were told with what is.

``python -m tests.stores.postgres.killing --kills 50 --writers 4`` is the long form of the test.
``--cuts`` ends the connections of all writers so many times, ``--stops`` stops one of them for
longer than its lease lasts.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable

from msgspec import Struct

from lockstitch.stores.postgres import PostgresBackend
from tests.postgres_server import Server, running
from tests.stores.postgres.making import faults, keys
from tests.stores.postgres.writer import LEASE_SECONDS

SHARED = "shared"
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lockstitch'"

Blow = Callable[[Server, list[subprocess.Popen[str]]], None]


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


def started(dsn: str, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.stores.postgres.writer", dsn, name, name, SHARED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> list[tuple[str, str, int]]:
    """End a writer in order and give what it was told."""
    told, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    lines = (line.split() for line in told.splitlines())
    return [(session, key, int(unknown)) for session, key, unknown in lines]


def killed(server: Server, _writers: list[subprocess.Popen[str]]) -> None:
    server.kill()
    server.start()


def cut(server: Server, _writers: list[subprocess.Popen[str]]) -> None:
    server.execute(CUT)


def stopped(_server: Server, writers: list[subprocess.Popen[str]]) -> None:
    """Stop a writer for longer than its lease lasts, as a suspended machine does."""
    writer = writers[time.monotonic_ns() % len(writers)]
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


def run(blows: list[Blow], writers: int, pause: float) -> Outcome:
    with running() as server:
        dsn = server.fresh()
        PostgresBackend(dsn).close()
        processes = [started(dsn, f"w{number}") for number in range(writers)]
        try:
            for blow in blows:
                time.sleep(pause * random.uniform(0.3, 1.7))  # noqa: S311
                blow(server, processes)
            time.sleep(pause)
            told = [line for process in processes for line in ended(process)]
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
        return judged(dsn, told, len(blows))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--stops", type=int, default=5)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.7)
    given = parser.parse_args()
    blows: list[Blow] = [killed] * given.kills + [cut] * given.cuts + [stopped] * given.stops
    random.shuffle(blows)
    outcome = run(blows, given.writers, given.pause)
    print(outcome)  # noqa: T201
    wrong = outcome.lost + outcome.doubled + outcome.strange + outcome.disordered + outcome.faults
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
