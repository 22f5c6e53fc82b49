"""Many mutants of a format on some processes, and what became of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from queue import SimpleQueue
from typing import Any

from .life import Failure
from .mutants import made

ENDS = {-signal.SIGPROF: "too slow", -signal.SIGALRM: "hangs"}
KEPT = 3  # mutants of one kind of failure that are kept
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be tried: so many mutants of a format, made from a seed, or only one of them."""

    format: str
    mutants: int
    seed: str
    jobs: int = 2
    seconds: float = 10.0
    folder: str = ""
    only: int | None = None
    fault: str = ""

    @property
    def numbers(self) -> list[int]:
        return list(range(self.mutants)) if self.only is None else [self.only]


@dataclass(slots=True)
class Outcome:
    """What a campaign came to: the failures by their sign, each with the numbers of its mutants."""

    task: Task
    seconds: float = 0.0
    tried: int = 0
    failures: dict[str, tuple[Failure, list[int]]] = field(default_factory=dict)

    def add(self, number: int, failure: Failure) -> None:
        self.failures.setdefault(failure.sign, (failure, []))[1].append(number)

    @property
    def failed(self) -> int:
        return sum(len(numbers) for _, numbers in self.failures.values())


def tried(task: Task, advance: Callable[[int], None] = lambda _: None) -> Outcome:
    """Let all mutants of a task live, in processes of their own."""
    outcome = Outcome(task)
    began = time.monotonic()
    events: SimpleQueue[Any] = SimpleQueue()
    with _workspace() as folder:
        shares = [task.numbers[job :: task.jobs] for job in range(task.jobs)]
        threads = [
            threading.Thread(
                target=_share, args=(task, share, folder / str(job), events), daemon=True
            )
            for job, share in enumerate(shares)
        ]
        for thread in threads:
            thread.start()
        running = len(threads)
        while running:
            event = events.get()
            if event is None:
                running -= 1
            elif isinstance(event, Exception):
                raise event
            elif isinstance(event, tuple):
                outcome.add(*event)
            else:
                outcome.tried += event
                advance(event)
    outcome.seconds = time.monotonic() - began
    return outcome


@contextmanager
def _workspace() -> Iterator[Path]:
    """Give a folder in memory, where there is one."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    with tempfile.TemporaryDirectory(prefix="lockstitch-fuzz-", dir=memory) as folder:
        yield Path(folder)


def _share(task: Task, numbers: list[int], folder: Path, events: SimpleQueue[Any]) -> None:
    """Let some mutants live; a process that one of them ends is followed by another one."""
    left, starts = numbers, 0
    try:
        while left:
            starts += 1
            at: int | None = None
            done = False
            for fact, code, said in _facts(task, folder / str(starts), numbers=left):
                if "at" in fact:
                    if at is not None:
                        events.put(1)
                    at = fact["at"]
                elif "failed" in fact:
                    events.put((fact.pop("failed"), Failure(**fact)))
                elif "done" in fact:
                    done = True
                elif at is None:
                    events.put(RuntimeError(f"a process ended before its first mutant: {said}"))
                elif not done:
                    kind = ENDS.get(code, f"the process ended with {code}")
                    events.put((at, Failure(kind, _innermost(said), said[-4000:])))
            events.put(1)
            left = [] if done or at is None else left[left.index(at) + 1 :]
    except Exception as error:  # noqa: BLE001  raised by whoever waits for this thread
        events.put(error)
    finally:
        events.put(None)


def _innermost(said: str) -> str:
    """Return the innermost place of ours in what a dying process said of where it was."""
    for line in said.splitlines():
        if "/lockstitch/" in line:
            path, _, rest = line.partition('", line ')
            return f"{PurePath(path).name}:{rest.partition(' in ')[2]}"
    return ""


def _facts(task: Task, root: Path, **more: Any) -> Iterator[tuple[dict[str, Any], int, str]]:
    """Start a process and give what it tells; at last nothing, with its status and last words."""
    given = {**asdict(task), "root": str(root), "saved": None, **more}
    with (
        tempfile.TemporaryFile() as words,
        subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            cwd=ROOT,
            env={**os.environ, "NO_COLOR": "1", "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)},
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # one that cannot even begin says why at its end
            process.stdin.write(json.dumps(given).encode() + b"\n")
            process.stdin.close()
        for line in process.stdout:
            yield json.loads(line), 0, ""
        code = process.wait()
        words.seek(0)
        yield {}, code, words.read().decode("utf-8", "replace")


def kept(outcome: Outcome, folder: Path) -> list[str]:
    """Save mutants of each failure, with a smaller one; returns lines that say how to go on."""
    lines: list[str] = []
    task = outcome.task
    for count, (failure, numbers) in enumerate(outcome.failures.values(), start=1):
        lines.append(f"{len(numbers)} of {failure.sign}")
        home = folder / task.format / f"{task.seed}-{count:02d}"
        home.mkdir(parents=True, exist_ok=True)
        for number in numbers[:KEPT]:
            mutant = made(task.format, task.seed, number, task.folder)
            suffix = PurePath(mutant.path).suffix
            (home / f"{number}{suffix}").write_bytes(mutant.data)
        again = f"--format {task.format} --seed {task.seed} --only {numbers[0]}"
        again += f" --seeds {task.folder}" if task.folder else ""
        suffix = PurePath(made(task.format, task.seed, numbers[0], task.folder).path).suffix
        small = _smaller(task, numbers[0], failure, home / f"smaller{suffix}")
        words = f"{failure.sign}\n{again}\nmutants: {numbers}\n{failure.detail}\n"
        (home / "failure.txt").write_text(words)
        lines.append(f"    python -m tests.fuzz {again}")
        lines.append(f"    kept in {home}" + (f", smaller in {small.name}" if small else ""))
    return lines


def _smaller(task: Task, number: int, failure: Failure, path: Path) -> Path | None:
    """Write a smaller mutant with the same failure, if one is found."""
    if failure.kind in ENDS.values():
        return None
    saved = {"number": number, "failure": asdict(failure), "path": str(path.resolve())}
    with _workspace() as folder:
        for _ in _facts(task, folder / "it", saved=saved, numbers=[]):
            pass
    return path if path.exists() else None
