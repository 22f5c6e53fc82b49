"""The long version: more processes, more turns, kills in between, more orders of steps.

    python -m tests.integrations.langgraph.guard.soak --rounds 3 --turns 40 --seeds 20000

Prints one line a part, with what was kept of what was reported as done; ends with an error at the
first turn that is missing.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.integrations.langgraph.guard.interleaving import Game, at_random
from tests.integrations.langgraph.guard.processes import Worker, history, kept, raced
from tests.integrations.langgraph.guard.test_interleaving import CROWDS
from tests.integrations.langgraph.savers import address_of

WAYS: list[dict[str, Any]] = [
    {"durability": "sync"},
    {"durability": "async"},
    {"durability": "exit"},
    {"async": True, "durability": "sync"},
    {"async": True, "durability": "async"},
]


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def races(store: str, processes: int, turns: int, *, guard: bool = True) -> None:
    """Let processes have turns at once, in every way in which LangGraph saves."""
    for way in WAYS if guard else WAYS[:2]:
        with tempfile.TemporaryDirectory() as folder:
            address = address_of(store, Path(folder))
            begun = time.monotonic()
            said = raced(store, address, processes, turns, retry=guard, guard=guard, **way)
            found = kept(history(store, address, guard=guard))
            lost = set(said["ok"]) - found
            took = time.monotonic() - begun
            name = "guarded" if guard else "bare"
            tell(f"{store} {name} {way}: {len(said['ok'])} done, {len(lost)} lost, {took:.0f} s")
            assert not (guard and lost), sorted(lost)


def storm(store: str, processes: int, seconds: float, seed: int) -> None:
    """Kill processes at random while they have turns, and begin new ones, for some time."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    with tempfile.TemporaryDirectory() as folder:
        address = address_of(store, Path(folder))
        done: list[str] = []
        kills = 0
        ends = time.monotonic() + seconds
        number = 0
        while time.monotonic() < ends:
            started = [
                _started(store, address, f"s{number}-{index}", done) for index in range(processes)
            ]
            number += 1
            time.sleep(chance.uniform(0.1, 1.5))
            for worker, reader in started:
                worker.kill()
                kills += 1
                reader.join()
                worker.close()
        lost = set(done) - kept(history(store, address))
        tell(f"{store} storm: {kills} kills, {len(done)} done, {len(lost)} lost")
        assert not lost, sorted(lost)


def _started(
    store: str, address: str, name: str, done: list[str]
) -> tuple[Worker, threading.Thread]:
    options = {"store": store, "address": address, "name": name, "turns": 10_000, "retry": True}
    worker = Worker(options)
    reader = threading.Thread(target=_listen, args=(worker, done))
    reader.start()
    worker.go()
    return worker, reader


def _listen(worker: Worker, done: list[str]) -> None:
    for line in worker.heard():
        outcome, _, name = line.partition(" ")
        if outcome == "ok":
            done.append(name)


def orders(seeds: int) -> None:
    """Interleave the steps of several runs at random, of which some die."""
    for make in CROWDS:
        for seed in range(seeds):
            game: Game = at_random(make, seed, deaths=seed % 4 / 40)
            game.judge()
        tell(f"{make.__name__}: {seeds} orders, none lost")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", nargs="+", default=["sqlite", "postgres"])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30, help="of each storm")
    parser.add_argument("--seeds", type=int, default=5000)
    given = parser.parse_args()
    orders(given.seeds)
    for number in range(given.rounds):
        for store in given.stores:
            races(store, given.processes, given.turns, guard=False)
            races(store, given.processes, given.turns)
            races(store, given.processes + 1, given.turns // 2)
            storm(store, given.processes, given.seconds, number)


if __name__ == "__main__":
    main()
