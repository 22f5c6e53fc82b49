"""``python -m tests.watching.idle``: what a watch costs while nothing happens, and for one line.

Prints the CPU time of an idle watch over many sessions, and how many bytes it reads when one line
is appended to a large session that it has seen before.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from .made import Chat, Rollout
from .process import Watch

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def bytes_read(pid: int) -> int:
    """Return how many bytes a process has read so far, from wherever."""
    lines = Path(f"/proc/{pid}/io").read_text("ascii").splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])


def idle_cost(sessions: int, seconds: float) -> float:
    """Return the CPU seconds that a watch over so many idle sessions takes in so many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for number in range(sessions):
            chat = Chat(home / f".claude/projects/-project-{number % 50}/session-{number}.jsonl")
            chat.turns(3)
            chat.age()
        with Watch(home) as watch:
            watch.event("started")
            time.sleep(2)
            before = cpu_seconds(watch.process.pid)
            time.sleep(seconds)
            return cpu_seconds(watch.process.pid) - before


def appended_cost(kind: str, megabytes: int) -> tuple[int, int, float]:
    """Return the size of a session, and the bytes and CPU seconds that another turn of it takes.

    It is written to twice before, so that the watch knows it.
    """
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        session: Chat | Rollout
        if kind == "claude-code":
            session = Chat(home / ".claude/projects/-project/large.jsonl", aside=3000)
        else:
            day = home / ".codex/sessions/2026/09/01"
            name = "rollout-2026-09-01T00-00-00-00000000-0000-4000-8000-000000000001.jsonl"
            session = Rollout(day / name)
        while session.path.stat().st_size < megabytes << 20:
            session.turns(500)
        with Watch(home, "--idle", "1") as watch:
            watch.event("started")
            pid = watch.process.pid
            for _ in range(2):
                session.turns(1)
                _rest(pid)
            before, spent = bytes_read(pid), cpu_seconds(pid)
            session.turns(1)
            _rest(pid)
            size = session.path.stat().st_size
            return size, bytes_read(pid) - before, cpu_seconds(pid) - spent


def _rest(pid: int) -> None:
    """Wait until a process has done nothing for a while."""
    time.sleep(3)
    before = -1.0
    while cpu_seconds(pid) - before > 0.1:
        before = cpu_seconds(pid)
        time.sleep(3)


def main(words: list[str] | None = None) -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.watching.idle", description=__doc__)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--megabytes", type=int, default=50)
    given = parser.parse_args(words)
    spent = idle_cost(given.sessions, given.seconds)
    share = spent / given.seconds
    sys.stdout.write(
        f"idle, {given.sessions} sessions: {spent:.2f} CPU seconds in {given.seconds:.0f} s "
        f"({share:.2%})\n"
    )
    for kind in ("claude-code", "codex"):
        size, read, took = appended_cost(kind, given.megabytes)
        sys.stdout.write(
            f"{kind}, one more turn at {size / 1e6:.1f} MB: {read / 1e3:.1f} KB read, "
            f"{took:.2f} CPU seconds\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
