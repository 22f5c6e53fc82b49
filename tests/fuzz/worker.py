"""One process of a campaign: lives through some mutants, and says on its output how it goes.

It is killed by the system if a mutant takes too long, by processor time or by the clock; whoever
started it knows by then which one it was. ``python -m tests.fuzz`` starts it.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import resource
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from . import faults, shrinking
from .life import Failure, lived
from .mutants import Mutant, made
from .watch import Watch

ROOM = 2 << 30  # bytes of address space more than at the start
PATIENCE = 12  # times the processor time, by the clock: a busy machine is no hang


def main() -> None:
    """Do the task that is given on the input."""
    task: dict[str, Any] = json.loads(sys.stdin.readline())
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever is printed by the way is no report
    root = Path(task["root"])
    root.mkdir(parents=True)
    os.chdir(root)
    _limit()
    if task["fault"]:
        faults.plant(task["fault"])
    watch = Watch()
    gc.freeze()  # what was imported is never garbage
    gc.set_threshold(100_000, 20, 20)
    if task["saved"]:
        _shrink(task, root, watch, out)
    else:
        _live(task, root, watch, out)


def _live(task: dict[str, Any], root: Path, watch: Watch, out: IO[str]) -> None:
    for number in task["numbers"]:
        out.write(f"{json.dumps({'at': number})}\n")
        with_deadline(task["seconds"])
        mutant = made(task["format"], task["seed"], number, task["folder"])
        failure = lived(mutant, root, watch)
        if failure is not None:
            _tell(out, failed=number, **asdict(failure))
    with_deadline(0)
    _tell(out, done=True)


def _shrink(task: dict[str, Any], root: Path, watch: Watch, out: IO[str]) -> None:
    """Make a failing mutant smaller, step by step; each step is told, so that none is lost."""
    mutant = made(task["format"], task["seed"], task["saved"]["number"], task["folder"])
    wanted = Failure(**task["saved"]["failure"])

    def fails(changed: Mutant) -> bool:
        with_deadline(task["seconds"])
        found = lived(changed, root, watch)
        return found is not None and found.sign == wanted.sign

    for smaller in shrinking.smaller(mutant, fails):
        with_deadline(0)
        Path(task["saved"]["path"]).write_bytes(smaller.data)
        _tell(out, size=len(smaller.data))
    with_deadline(0)
    _tell(out, done=True)


def _tell(out: IO[str], **facts: Any) -> None:
    out.write(f"{json.dumps(facts)}\n")


def _limit() -> None:
    """Let deadlines end this process, with a word on where it was; bound its memory."""
    for name in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(name, signal.SIG_DFL)
        faulthandler.register(name, chain=True)
    with open("/proc/self/statm") as file:  # noqa: PTH123
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))


def with_deadline(seconds: float) -> None:
    """Give what follows so much processor time; none takes the deadline away."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds * PATIENCE)


if __name__ == "__main__":
    main()
