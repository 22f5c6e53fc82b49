"""Twice as much of anything takes about twice as long: every rule and format, every dimension.

    python benchmarks/doubling.py [--only WORDS] [--seconds S] [--json] [--keep]

Each dimension is made larger until the work takes long enough to be measured, and then doubled
twice. Seconds are processor time, the least of three runs, with Python's garbage collector set as
the command sets it. Whatever takes more than 2.3 times as
long for twice as much is measured again, larger, before it is called too slow.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from lockstitch.cli import COLLECT_AFTER  # noqa: E402
from tests.scale.doubling import bases, lines, lists  # noqa: E402
from tests.scale.doubling.dimension import LIMIT, Dimension  # noqa: E402

RESULTS = Path(__file__).parent / "results"
SECONDS = 0.05
FIRST, MOST = 8, 1 << 15
RUNS = 3
# A run that takes so many seconds is not repeated: nothing else weighs much beside it.
LONG = 2.0
# What costs so many times as much is too slow, whatever else the machine did.
SURELY = 3.0
Row = dict[str, Any]


def dimensions() -> Iterator[Dimension]:
    """All of them."""
    yield from lists.dimensions()
    yield from lines.dimensions()
    yield from bases.dimensions()


def used() -> float:
    """Processor seconds of this process, and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def seconds_of(dimension: Dimension, count: int, runs: int, folder: Path) -> float:
    """The least that some runs of the work take."""
    best = float("inf")
    for _ in range(runs):
        place = Path(tempfile.mkdtemp(dir=folder))
        work = dimension.make(count, place)
        gc.collect()
        before = used()
        work()
        best = min(best, used() - before)
        shutil.rmtree(place, ignore_errors=True)
        if best > LONG:
            break
    return best


def measure(dimension: Dimension, least: float, folder: Path) -> Row:
    """Find a size at which the work takes long enough, and double it twice."""
    fixed = seconds_of(dimension, 1, 2, folder)
    count = FIRST
    while count < MOST:
        once = seconds_of(dimension, count, 1, folder)
        if once - fixed >= least:
            break
        count *= 2 if once - fixed > least / 8 else 4
    counts = [count, count * 2, count * 4]
    seconds = [seconds_of(dimension, each, RUNS, folder) for each in counts]
    # What every run costs, however small, is no part of it.
    net = [max(each - fixed, 1e-6) for each in seconds]
    ratios = [net[1] / net[0], net[2] / net[1]]
    return {
        "dimension": dimension.name,
        "n": count,
        "seconds": [round(each, 4) for each in seconds],
        "per doubling": round((ratios[0] * ratios[1]) ** 0.5, 2),
    }


def judged(dimension: Dimension, least: float, folder: Path) -> Row:
    """Measure; what looks too slow twice more, since the machine may have been at fault."""
    row = measure(dimension, least, folder)
    for factor in (1, 2):
        if not LIMIT < row["per doubling"] < SURELY:
            break
        again = measure(dimension, least * factor, folder)
        row = min(row, again, key=lambda each: float(each["per doubling"]))
    row["over"] = row["per doubling"] > LIMIT
    return row


def main() -> None:
    """Measure everything, print and keep the figures."""
    gc.set_threshold(COLLECT_AFTER)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="dimensions whose name holds all these words")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="what the smallest takes")
    parser.add_argument("--part", default="1/1", help="of so many parts, this one: 2/3")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--keep", action="store_true", help="write the results file")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    chosen = [one for one in dimensions() if all(word in one.name for word in given.only.split())]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for dimension in chosen[part - 1 :: parts]:
            row = judged(dimension, given.seconds, Path(folder))
            rows.append(row)
            if given.json:
                print(json.dumps(row), flush=True)
            else:
                figures = " ".join(f"{each:>8.3f}" for each in row["seconds"])
                mark = " OVER" if row["over"] else ""
                print(
                    f"{row['per doubling']:>6.2f} x {figures} s  n = {row['n']:<7}"
                    f" {row['dimension']}{mark}",
                    flush=True,
                )
    over = [row["dimension"] for row in rows if row["over"]]
    if not given.json:
        print(f"{len(rows)} dimensions, {len(over)} of them over {LIMIT} for twice as much")
    if given.keep:
        keep(rows)
    sys.exit(bool(over))


def keep(rows: list[Row]) -> None:
    """Write the results file."""
    now = datetime.now(UTC)
    path = RESULTS / f"{now:%Y-%m-%d}-doubling.json"
    context = {
        "date": f"{now:%Y-%m-%d}",
        "python": platform.python_version(),
        "lockstitch": version("lockstitch"),
        "limit": LIMIT,
    }
    slowest = sorted(rows, key=lambda row: -float(row["per doubling"]))
    shown = ",\n    ".join(json.dumps(row) for row in slowest)
    text = json.dumps(context, indent=2)[:-2] + f',\n  "rows": [\n    {shown}\n  ]\n}}\n'
    path.write_text(text)
    print(f"kept in benchmarks/results/{path.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
