"""A program appends to its session while it is repaired again and again: no line may be lost.

``python -m tests.sessions.live --megabytes 50 --repairs 20`` is the long run, with the command
itself; the tests do a short one. The writer opens the file for every line, as Claude Code does,
and breaks something every so often, so that each repair has work to do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.sessions import claude
from tests.sessions.command import run as run_command

PAUSE = 0.01
# The bytes of a line that is appended, at most.
LINE = 500


def write(path: Path, start: int, flag: Path) -> int:
    """Append a hundred lines a second until the flag is there; gives how many there were."""
    number = start
    while not flag.exists():
        number += 1
        # now and then the parent of a line is missing
        parent = number + 10_000_000 if number % 40 == 0 else number - 1
        kind = "user" if number % 2 else "assistant"
        content = claude.said(f"line {number}") if kind == "assistant" else f"line {number}"
        with path.open("a", encoding="utf-8") as file:
            file.write(claude.line(number, parent, kind, content))
        time.sleep(PAUSE)
    return number - start


def wait_for_work(path: Path, writer: subprocess.Popen[str]) -> None:
    """Wait until so much was appended that something in it is broken."""
    size = path.stat().st_size
    while path.stat().st_size < size + 50 * LINE:
        assert writer.poll() is None, "the writer has ended"
        time.sleep(PAUSE)


def lost(path: Path, start: int, count: int) -> tuple[int, int]:
    """How many appended lines are missing, and how many are there more than once."""
    found: Counter[str] = Counter()
    for text in path.read_bytes().splitlines():
        found[json.loads(text).get("uuid")] += 1
    names = [claude.uuid(number) for number in range(start + 1, start + count + 1)]
    return sum(not found[name] for name in names), sum(found[name] > 1 for name in names)


def run(megabytes: float, repairs: int) -> dict[str, int]:
    """Repair while somebody writes; gives what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        path, flag = Path(folder) / "session.jsonl", Path(folder) / "flag"
        start = claude.long_session(path, int(megabytes * 1_000_000))
        words = [sys.executable, "-m", "tests.sessions.live", "write", path, str(start), flag]
        writer = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True)
        statuses: Counter[int] = Counter()
        changed = 0
        for _ in range(repairs):
            wait_for_work(path, writer)
            before = path.stat().st_ino
            done = run_command("repair", "--yes", path)
            statuses[done.returncode] += 1
            changed += path.stat().st_ino != before
        flag.touch()
        count = int(writer.communicate()[0])
        missing, doubled = lost(path, start, count)
    return {
        "appended": count,
        "lost": missing,
        "doubled": doubled,
        "replaced": changed,
        "failed": statuses[2],
    }


def main() -> None:
    """The long run, or one writer."""
    if sys.argv[1:2] == ["write"]:
        print(write(Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))  # noqa: T201
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--repairs", type=int, default=20)
    given = parser.parse_args()
    print(json.dumps(run(given.megabytes, given.repairs)))  # noqa: T201


if __name__ == "__main__":
    main()
