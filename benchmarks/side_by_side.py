"""Compare this checkout with another one, in one run: is anything slower than it was?

    git worktree add ../before COMMIT
    python benchmarks/side_by_side.py ../before            # prints a table of ratios

Both are measured with the same interpreter on the same data, in turns, so that whatever else the
machine does hits both. Each figure is the least processor time of several rounds; a ratio below 1
is faster than before. Only public calls and commands are used, so that any two commits compare.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
# Run inside a fresh process: builds its data first, then prints the processor seconds of the call.
PRELUDE = """
import json, sys, time
import lockstitch
sys.path.insert(0, {benchmarks!r})
def timed(call, rounds):
    best = None
    for _ in range(rounds):
        begun = time.process_time()
        call()
        best = min(best or 1e9, time.process_time() - begun)
    print(best)
"""
LIBRARY = {
    "heal 40 000, nothing to do, Anthropic": """
from lists import anthropic
messages = anthropic(0)
timed(lambda: lockstitch.heal(messages, "anthropic"), 5)
""",
    "heal 40 000, 1 turn in 10 broken, Anthropic": """
from lists import anthropic
messages = anthropic(10)
timed(lambda: lockstitch.heal(messages, "anthropic"), 3)
""",
    "heal 40 000, nothing to do, Chat": """
from lists import openai
messages = openai(0)
timed(lambda: lockstitch.heal(messages, "openai-chat"), 5)
""",
    "heal 40 000, 1 turn in 10 broken, Chat": """
from lists import openai
messages = openai(10)
timed(lambda: lockstitch.heal(messages, "openai-chat"), 3)
""",
    "append 400 messages, SQLite": """
store = lockstitch.open("sqlite:///" + sys.argv[1] + "/append.db")
def append(numbers=iter(range(100))):
    with store.session(f"s{next(numbers)}") as session:
        for number in range(200):
            session.say(f"Question {number}: " + "x" * 300)
            session.record({"role": "assistant", "content": "Answer " + "y" * 300},
                           dialect="openai-chat")
append()
timed(append, 3)
""",
    "open 4 000 messages and make a request": """
store = lockstitch.open("sqlite:///" + sys.argv[1] + "/open.db")
with store.session("long") as session:
    for number in range(2000):
        session.say(f"Question {number}: " + "x" * 300)
        session.record({"role": "assistant", "content": "Answer " + "y" * 300},
                       dialect="openai-chat")
def again():
    with store.session("long") as session:
        session.request("openai-chat")
timed(again, 3)
""",
}
COMMANDS = {
    "--help": (["--help"], 9),
    "check 5 MB": (["check", "{small}"], 5),
    "check 200 MB": (["check", "{large}"], 2),
    "check 200 MB, broken": (["check", "{broken}"], 1),
    "scan 60 sessions": (["scan", "{folder}"], 3),
    "repair --diff 50 MB": (["repair", "{fifty}", "--diff"], 1),
}


def environment(checkout: Path) -> dict[str, str]:
    """Return the environment of a checkout; what it compiles is kept, as it is for users."""
    found = {"PYTHONPATH": str(checkout / "src"), "PYTHONDONTWRITEBYTECODE": "", "NO_COLOR": "1"}
    return {**os.environ, **found}


def seconds(argv: list[str], checkout: Path) -> float:
    """Return the processor seconds of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, capture_output=True, env=environment(checkout), check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr.decode(errors="replace"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def library(code: str, checkout: Path, folder: Path) -> float:
    """Return the seconds that a piece of code says it took."""
    place = folder / "library"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    text = PRELUDE.format(benchmarks=str(HERE)) + code
    argv = [sys.executable, "-c", text, str(place)]
    done = subprocess.run(
        argv, capture_output=True, env=environment(checkout), check=True, text=True
    )
    return float(done.stdout.split()[-1])


def repair(checkout: Path, source: Path, folder: Path) -> float:
    """Repair a copy of a session in place and return the seconds of that."""
    copy = folder / "repair" / source.name
    shutil.rmtree(copy.parent, ignore_errors=True)
    copy.parent.mkdir()
    shutil.copyfile(source, copy)
    return seconds([sys.executable, "-m", "lockstitch", "repair", str(copy), "--yes"], checkout)


def make_data(folder: Path) -> dict[str, str]:
    """Write the sessions that are read; their generator is that of ``sessions.py``."""
    sys.path.insert(0, str(HERE))
    from sessions import lose_a_result, write  # noqa: PLC0415 - a program beside this one

    sizes = {"small": 5_000_000, "large": 200_000_000, "whole": 50_000_000}
    paths = {name: folder / f"{name}.jsonl" for name in (*sizes, "broken", "fifty")}
    for name, size in sizes.items():
        write(paths[name], size)
    lose_a_result(paths["large"], paths["broken"])
    lose_a_result(paths["whole"], paths["fifty"])
    many = folder / "many"
    many.mkdir()
    for number in range(60):
        shutil.copyfile(paths["small"], many / f"{number}.jsonl")
    return {**{name: str(path) for name, path in paths.items()}, "folder": str(many)}


def compare(other: Path, only: str, folder: Path) -> dict[str, dict[str, float]]:
    """Measure everything in both checkouts, in turns."""
    data = make_data(folder)
    sides = {"before": other, "now": HERE.parent}
    calls: dict[str, tuple[Any, int]] = {}
    for name, (words, rounds) in COMMANDS.items():
        argv = [sys.executable, "-m", "lockstitch", *(word.format(**data) for word in words)]
        calls[name] = (lambda side, argv=argv: seconds(argv, side), rounds)
    calls["repair 50 MB"] = (lambda side: repair(side, Path(data["fifty"]), folder), 2)
    for name, code in LIBRARY.items():
        calls[name] = (lambda side, code=code: library(code, side, folder), 2)
    found: dict[str, dict[str, float]] = {}
    for name, (call, rounds) in calls.items():
        if only not in name:
            continue
        times: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(rounds):
            for side, checkout in sides.items():
                times[side].append(call(checkout))
        best = {side: min(values) for side, values in times.items()}
        found[name] = {**best, "ratio": best["now"] / best["before"]}
        row = found[name]
        print(f"{name:48}{row['before']:9.3f} s{row['now']:9.3f} s{row['ratio']:8.2f} x")
    return found


def main() -> None:
    """Compare two checkouts and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("--only", default="", help="measure only what has this in its name")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    print(f"{'':48}{'before':>11}{'now':>11}{'ratio':>10}")
    with tempfile.TemporaryDirectory() as name:
        found = compare(options.other.resolve(), options.only, Path(name))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
