"""Heal and check 40 000 messages, side by side with turnsafe, in one run.

    make bench                      # prints a table and writes benchmarks/results/DATE.json

Every figure is the best of several rounds that alternate between the two programs, in processor
time, so that a busy machine hurts both alike; the goals are ratios, from DESIGN §9.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import turnsafe
from lists import anthropic, openai

import lockstitch

ROUNDS = 7
RESULTS = Path(__file__).parent / "results"


CASES: tuple[tuple[str, str, str, Callable[[int], list[Any]], int, float], ...] = (
    ("heal, nothing to do", "anthropic", "anthropic", anthropic, 0, 20),
    ("heal, 1 turn in 100 broken", "anthropic", "anthropic", anthropic, 100, 5),
    ("heal, 1 turn in 10 broken", "anthropic", "anthropic", anthropic, 10, 5),
    ("heal, every turn broken", "anthropic", "anthropic", anthropic, 1, 0),
    ("heal, nothing to do", "openai-chat", "openai", openai, 0, 20),
    ("heal, 1 turn in 10 broken", "openai-chat", "openai", openai, 10, 5),
)


def measure(ours: Callable[[], Any], theirs: Callable[[], Any]) -> tuple[float, float]:
    """Return the best time of each, in milliseconds, rounds alternating."""
    best = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for index, call in enumerate((ours, theirs)):
            start = time.process_time()
            call()
            best[index] = min(best[index], (time.process_time() - start) * 1e3)
    return best[0], best[1]


def peak(call: Callable[[], Any]) -> float:
    """Return the peak of what a call allocates, in MiB."""
    tracemalloc.start()
    call()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most / 2**20


def rows() -> list[dict[str, Any]]:
    """Run every case."""
    found = []
    for name, dialect, provider, build, broken, goal in CASES:
        messages = build(broken)
        ours = partial(lockstitch.heal, messages, dialect)
        theirs = partial(turnsafe.repair, messages, provider=provider)
        mine, peer = measure(ours, theirs)
        found.append(row(f"{name} ({dialect})", len(messages), mine, peer, goal))
        found[-1] |= {
            "lockstitch_mib": round(peak(ours), 1),
            "turnsafe_mib": round(peak(theirs), 1),
        }
        if goal:
            checks = partial(lockstitch.check, messages, dialect)
            validates = partial(turnsafe.validate, messages, provider=provider)
            mine, peer = measure(checks, validates)
            found.append(
                row(f"{name.replace('heal', 'check')} ({dialect})", len(messages), mine, peer, 0)
            )
    return found


def row(name: str, count: int, mine: float, peer: float, goal: float) -> dict[str, Any]:
    """Make one line of the table."""
    return {
        "case": name,
        "messages": count,
        "lockstitch_ms": round(mine, 1),
        "turnsafe_ms": round(peer, 1),
        "ratio": round(peer / mine, 1),
        "goal": goal,
    }


def table(found: list[dict[str, Any]]) -> str:
    """Lay the rows out for a terminal."""
    lines = [f"{'case':47} {'lockstitch':>11} {'turnsafe':>9} {'ratio':>6} {'goal':>5}  peak MiB"]
    for entry in found:
        goal = f"{entry['goal']:.0f}x" if entry["goal"] else ""
        memory = (
            f"{entry['lockstitch_mib']} / {entry['turnsafe_mib']}"
            if "lockstitch_mib" in entry
            else ""
        )
        lines.append(
            f"{entry['case']:47} {entry['lockstitch_ms']:8.1f} ms {entry['turnsafe_ms']:6.1f} ms "
            f"{entry['ratio']:5.1f}x {goal:>5}  {memory}"
        )
    return "\n".join(lines)


def main() -> None:
    """Run, print, and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-save", action="store_true", help="do not write a result file")
    options = parser.parse_args()
    found = rows()
    print(table(found))
    if not options.no_save:
        now = datetime.now(tz=UTC)
        context = {
            "date": now.isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "lockstitch": lockstitch.__version__,
            "turnsafe": version("turnsafe"),
        }
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{now:%Y-%m-%d}.json"
        path.write_text(json.dumps({**context, "rows": found}, indent=2) + "\n")
        print(f"kept in benchmarks/results/{path.name}")


if __name__ == "__main__":
    main()
