"""Open, append and list at three sizes of a store and two lengths of a session, by turns."""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from lockstitch.session.store import Store
from lockstitch.stores.base import Backend

from .filling import fill, multiply, name_of

SIZES = (100, 10_000, 100_000)
LENGTHS = (10, 2_000, 20_000)
PAGE = 50
FLAT = 1.5

Arm = Callable[[], Any]


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Site:
    """A store of so many sessions, and the operations on it."""

    def __init__(self, backend: Backend, count: int, seed: int) -> None:
        self.backend, self.count = backend, count
        self.random = random.Random(seed)  # noqa: S311 - the same choice in every run
        start = time.perf_counter()
        multiply(backend, count)
        self.seconds = time.perf_counter() - start
        self.names = sorted(map(name_of, range(count - 1)))

    def name(self) -> str:
        """Some session's name."""
        return self.random.choice(self.names)

    def open(self) -> None:
        """Take a session's lease, read all of it, add it up, and give it back."""
        Store(self.backend).session(self.name(), create=False).close()

    def append(self) -> Arm:
        """Make a function that appends one event to some session."""
        session = Store(self.backend).session(self.name(), create=False)
        return lambda: session.note("soak")

    def page(self) -> None:
        """List a page of sessions, from anywhere."""
        after = self.random.choice(self.names[:-PAGE])
        assert len(list(self.backend.sessions(after=after, limit=PAGE))) == PAGE


def alternating(arms: dict[Any, Arm], rounds: int) -> dict[Any, float]:
    """The median of each arm in milliseconds; one call of each by turns."""
    times: dict[Any, list[float]] = {name: [] for name in arms}
    for number in range(rounds + 3):
        for name, call in arms.items():
            start = time.perf_counter()
            call()
            if number >= 3:
                times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


class Report:
    """Prints medians, the last one against the first, and whether that is flat."""

    def __init__(self) -> None:
        self.is_flat = True

    def line(self, what: str, found: Iterable[float], unit: str = "ms") -> None:
        """Print one line of the table."""
        values = list(found)
        ratio = values[-1] / values[0]
        is_flat = ratio <= FLAT
        self.is_flat = self.is_flat and is_flat
        figures = "".join(f"{value:12.3f}" for value in values)
        verdict = "flat" if is_flat else "NOT FLAT"
        say(f"  {what:<26}{figures:>36} {unit:<12} {ratio:5.2f} x  {verdict}")


def sizes(report: Report, sites: dict[int, Site], rounds: int) -> None:
    """Measure stores of different sizes."""
    say("sessions in the store       " + "".join(f"{size:>12,}" for size in sites))
    say("  made in seconds           " + "".join(f"{s.seconds:12.1f}" for s in sites.values()))
    for what in ("open", "page"):
        arms = {size: getattr(site, what) for size, site in sites.items()}
        label = f"list a page of {PAGE}" if what == "page" else "open, 10 messages"
        report.line(label, alternating(arms, rounds).values())
    appends = {size: site.append() for size, site in sites.items()}
    report.line("append one event", alternating(appends, rounds).values())


def lengths(report: Report, backend: Backend, rounds: int, longest: int) -> None:
    """Measure sessions of different lengths in one store."""
    lasts = (LENGTHS[0], longest // 10, longest)
    say("messages in the session     " + "".join(f"{length:>12,}" for length in lasts))
    store = Store(backend)
    openings: dict[int, Arm] = {}
    for length in lasts:
        fill(backend, f"long-{length}", length)
        openings[length] = lambda name=f"long-{length}": store.session(name, create=False).close()
    found = alternating(openings, max(rounds // 10, 3))
    say("  open                      " + "".join(f"{ms:12.3f}" for ms in found.values()) + " ms")
    longer = [(ms - found[lasts[0]]) * 1000 / length for length, ms in found.items()][1:]
    report.line("open, each message more", longer, "us")
    writing = {length: store.session(f"long-{length}") for length in lasts}
    notes = {length: lambda own=session: own.note("soak") for length, session in writing.items()}
    report.line("append one event", alternating(notes, rounds).values())
    for session in writing.values():
        session.close()


def options(about: str) -> argparse.Namespace:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--sessions", type=int, default=SIZES[-1], help="of the largest store")
    parser.add_argument("--messages", type=int, default=LENGTHS[-1], help="of the longest session")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--folder", help="where to write")
    return parser.parse_args()


def run(backends: dict[int, Backend], given: argparse.Namespace) -> int:
    """Measure everything in stores that were just made; gives 1 if something is not flat."""
    report = Report()
    sites = {size: Site(backend, size, size) for size, backend in backends.items()}
    sizes(report, sites, given.rounds)
    lengths(report, list(backends.values())[-1], given.rounds, given.messages)
    return 0 if report.is_flat else 1


def steps(largest: int) -> list[int]:
    """The sizes to measure, up to the largest."""
    return [*(size for size in SIZES if size < largest), largest]
