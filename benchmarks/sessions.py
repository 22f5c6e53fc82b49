"""Check Claude Code session files, as whole processes, side by side with what people use today.

    make bench                      # prints a table, writes benchmarks/results/DATE-sessions.json

Files of 5 and 200 MB are made first. Each figure is the best of some rounds that alternate between
the programs; seconds are processor time of the process and its children, memory is the peak.
The peers run with a home directory of their own: one of them writes into it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

RESULTS = Path(__file__).parent / "results"
BIN = Path(sys.executable).parent
COMPACT_EVERY = 15_000_000


class Writer:
    """Writes a session line by line, the way the program does."""

    def __init__(self, path: Path, seed: int = 1) -> None:
        self.random = random.Random(seed)  # noqa: S311 - the same file every time
        self.file = path.open("w", encoding="utf-8")
        self.parent: str | None = None
        self.size = self.segment = self.clock = 0
        self.session = self.uuid()
        words = ["".join(self.random.choices("etaoinshrdlu", k=k)) for k in range(2, 10)] * 50
        self.texts = [" ".join(self.random.choices(words, k=60)) for _ in range(40)]
        self.outputs = ["\n".join(self.random.choices(self.texts, k=35)) for _ in range(40)]

    def uuid(self) -> str:
        """A new id, the same in every run."""
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def text(self) -> str:
        """Some words."""
        return self.random.choice(self.texts)

    def line(self, **fields: Any) -> None:
        """Append one record."""
        self.clock += 1
        at = datetime.fromtimestamp(1_790_000_000 + self.clock, UTC)
        record = {
            "parentUuid": self.parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/home/ada/project",
            "sessionId": self.session,
            "version": "2.1.325",
            "gitBranch": "main",
            **fields,
            "uuid": self.uuid(),
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        text = json.dumps(record, separators=(",", ":")) + "\n"
        self.file.write(text)
        self.parent = str(record["uuid"])
        self.size += len(text)
        self.segment += len(text)

    def says(self, number: int, block: dict[str, Any]) -> None:
        """Append a line of the model."""
        message = {
            "id": f"msg_{number:08d}",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": [block],
            "stop_reason": None,
            "usage": {"input_tokens": 10, "output_tokens": 100},
        }
        self.line(type="assistant", message=message)

    def turn(self, numbers: count[int]) -> None:
        """Append a prompt, some steps with calls and results, and an answer."""
        self.line(type="user", message={"role": "user", "content": self.text()})
        for _ in range(self.random.randint(1, 6)):
            self.step(next(numbers))
        self.says(next(numbers), {"type": "text", "text": self.text()})

    def step(self, number: int) -> None:
        """Append a thought, some words, parallel calls and their results."""
        thought = {"type": "thinking", "thinking": self.text(), "signature": "E" * 400}
        self.says(number, thought)
        self.says(number, {"type": "text", "text": self.text()})
        ids = [f"toolu_{number:08d}_{n}" for n in range(self.random.choice((1, 1, 1, 2, 3)))]
        for name in ids:
            call = {"type": "tool_use", "id": name, "name": "Bash"}
            self.says(number, {**call, "input": {"command": self.text()}})
        for name in ids:
            text = self.random.choice(self.outputs)
            block = {"tool_use_id": name, "type": "tool_result", "content": text}
            content = {"role": "user", "content": [block]}
            self.line(type="user", message=content, toolUseResult={"stdout": text[:2000]})

    def compact(self) -> None:
        """Append a compaction."""
        self.parent = None
        self.segment = 0
        metadata = {"trigger": "auto", "preTokens": 150_000}
        self.line(type="system", subtype="compact_boundary", compactMetadata=metadata)
        summary = {"role": "user", "content": self.text()}
        self.line(type="user", isCompactSummary=True, message=summary)


def write(path: Path, size: int) -> None:
    """Write a healthy session of about this many bytes."""
    writer = Writer(path)
    numbers = count()
    while writer.size < size:
        if writer.segment > COMPACT_EVERY:
            writer.compact()
        writer.turn(numbers)
    writer.file.close()


def lose_a_result(source: Path, target: Path) -> None:
    """Copy a session without the last result that it holds."""
    lines = source.read_bytes().splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if b'"tool_result"' in line)
    target.write_bytes(b"".join(lines[:last] + lines[last + 1 :]))


PROGRAMS = {
    "lockstitch check": ["lockstitch", "check"],
    "cozempic diagnose": ["cozempic", "diagnose"],
    "claude-code-log": ["claude-code-log", "--output", os.devnull],
}


def measured(words: list[str], home: Path) -> tuple[float, float]:
    """Processor seconds and peak memory in MB of one whole process."""
    code = (
        "import os, resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "use = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(use.ru_utime + use.ru_stime, use.ru_maxrss)\n"
    )
    environ = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *words],
        env=environ,
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, kilobytes = done.stdout.split()
    return float(seconds), int(kilobytes) / 1024


def compare(path: Path, programs: list[str], rounds: int, home: Path) -> dict[str, Any]:
    """The best of some rounds, alternating between the programs."""
    best: dict[str, tuple[float, float]] = {}
    for _ in range(rounds):
        for name in programs:
            seconds, memory = measured([*PROGRAMS[name], str(path)], home)
            known = best.get(name, (seconds, memory))
            best[name] = (min(known[0], seconds), max(known[1], memory))
    return {name: {"seconds": round(s, 3), "MB": round(m)} for name, (s, m) in best.items()}


def installed(name: str) -> bool:
    """Whether a peer is there; the command `make bench` installs them."""
    return (BIN / PROGRAMS[name][0]).exists()


def table(size: float, found: dict[str, Any]) -> None:
    """Print one file's figures."""
    ours = found["lockstitch check"]["seconds"]
    for name, row in found.items():
        seconds = row["seconds"]
        figures = f"{seconds:>8.3f} s  {size / seconds:>7.0f} MB/s  {row['MB']:>6} MB"
        print(f"  {name:<20} {figures}  {seconds / ours:>6.1f}x")


def versions() -> dict[str, str]:
    """What was compared."""
    names = ("lockstitch", "msgspec", "cozempic", "claude-code-log")
    known = {}
    for name in names:
        try:
            known[name] = version(name)
        except PackageNotFoundError:
            known[name] = "not installed"
    return known


def main() -> None:
    """Make the files, run everything, print and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--keep", action="store_true", help="write the results file")
    given = parser.parse_args()
    programs = [name for name in PROGRAMS if installed(name)]
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for megabytes in (5, 200):
            healthy = home / f"{megabytes}mb.jsonl"
            broken = home / f"{megabytes}mb-broken.jsonl"
            write(healthy, megabytes * 1_000_000)
            lose_a_result(healthy, broken)
            for path in (healthy, broken):
                print(path.stem)
                rows[path.stem] = compare(path, programs, given.rounds, home)
                table(path.stat().st_size / 1e6, rows[path.stem])
    if given.keep:
        now = datetime.now(UTC)
        path = RESULTS / f"{now:%Y-%m-%d}-sessions.json"
        context = {"date": f"{now:%Y-%m-%d}", "python": platform.python_version()}
        path.write_text(
            json.dumps({**context, "versions": versions(), "rows": rows}, indent=2) + "\n"
        )
        print(f"kept in benchmarks/results/{path.name}")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
