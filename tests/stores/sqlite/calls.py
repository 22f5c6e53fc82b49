"""A writing program under strace: killed or failed at each of its system calls in turn."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lockstitch.stores.base import StoreFault
from lockstitch.stores.sqlite import SqliteBackend
from tests import tools
from tests.driven import Driven
from tests.stores import changes
from tests.stores.sqlite.driver import BEFORE, SESSION, entry

PIPE = subprocess.PIPE
WRITING = ("pwrite64", "fdatasync", "fsync", "ftruncate", "unlink")

Outcomes = Counter[tuple[str, int]]


class Writing(Driven):
    """The writing program, one child after the other, always on the same store."""

    def __init__(self, process: subprocess.Popen[str], path: Path) -> None:
        super().__init__(process)
        self.path = path
        self.template = b""

    def send(self, order: str) -> None:
        """Start a writer on the store as it was, or on none."""
        for path in self.path.parent.glob("*"):
            path.unlink()
        if self.template:
            self.path.write_bytes(self.template)
        self.tell(order)

    def run(self, order: str, *options: str) -> tuple[str, list[str]]:
        """Run a writer under strace; its exit status and what it said."""
        tools.needed("strace")
        self.send(order)
        pid, _ = self.read("started")
        wait_until_stopped(pid)
        command = tools.attached(pid, *options)
        with subprocess.Popen(command, stderr=PIPE, text=True) as tracer:
            assert tracer.stderr
            said = tracer.stderr.readline()
            assert "attached" in said, said
            os.kill(int(pid), signal.SIGCONT)
            ended = self.read("ended")
            tracer.stderr.read()
        return ended

    def check(self, order: str, said: list[str]) -> int:
        """All that was acknowledged is there, once, and the store goes on; how far it was."""
        acked = [int(line.split()[1]) for line in said if line.startswith("acked")]
        return self._check_change(order, acked) if order in changes.ORDERS else self._check(acked)

    def _check(self, acked: list[int]) -> int:
        with SqliteBackend(self.path) as store:
            assert not [one for one in store.verify() if isinstance(one, StoreFault)]
            lease = store.acquire(SESSION)
            found = list(store.read(SESSION))
            seq = lease.head.seq
            assert [(one.key, one.body) for one in found] == [
                (entry(n).key, entry(n).body) for n in range(1, seq + 1)
            ]
            assert seq >= max([BEFORE if self.template else 0, *acked])
            assert store.append(lease, [entry(seq + 1)], seq).seq == seq + 1
        return seq

    def _check_change(self, order: str, acked: list[int]) -> int:
        """A change is made or not, and made if that was said; then nothing of the old is left."""
        with SqliteBackend(self.path) as store:
            is_done = changes.is_done(store, order)
            if is_done:
                changes.require_gone(store, order)
        assert is_done or not acked
        if is_done and order in changes.REMOVING:
            for path in self.path.parent.glob("*"):
                assert changes.SECRET not in path.read_bytes(), path.name
        with SqliteBackend(self.path) as store:
            changes.go_on(store, order)
        return is_done


def wait_until_stopped(pid: str) -> None:
    deadline = time.monotonic() + 30
    while ") T " not in Path(f"/proc/{pid}/stat").read_text("utf-8"):
        assert time.monotonic() < deadline
        time.sleep(0.001)


@contextmanager
def driving() -> Iterator[Writing]:
    """Start the program, without a store yet."""
    # In memory if possible: a kill leaves the same there, and hundreds of them are quick.
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        path = Path(folder, "sessions.db")
        command = [sys.executable, "-m", "tests.stores.sqlite.driver", str(path)]
        with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
            yield Writing(process, path)
            assert process.stdin
            process.stdin.close()


def calls_of(driven: Writing, order: str, log: Path) -> Counter[str]:
    """How often a writer makes which system call."""
    status, said = driven.run(order, "-o", str(log))
    assert status == "0", said
    text = log.read_text("utf-8", "replace")
    return Counter(re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE))


def killed(
    driven: Writing, order: str, log: Path, only: tuple[str, ...] = (), stride: int = 1
) -> Outcomes:
    """Kill it at each call, or at each of some kinds."""
    calls = calls_of(driven, order, log)
    assert {"pwrite64", "fdatasync", "flock", "unlink"} <= set(calls)
    outcomes: Outcomes = Counter()
    for name in only or calls:
        for number in range(1, calls[name] + 1, stride):
            kill = f"inject={name}:signal=SIGKILL:when={number}"
            status, said = driven.run(order, "-o", "/dev/null", "-e", kill)
            outcomes[status, driven.check(order, said)] += 1
    print(order, {name: calls[name] for name in only or calls}, dict(outcomes))  # noqa: T201
    return outcomes


def failed(
    driven: Writing,
    order: str,
    names: tuple[str, ...],
    error: str,
    log: Path,
    *,
    persistently: bool = True,
    stride: int = 1,
) -> Outcomes:
    """Fail each call once, and from then on; what the writer said must be so in any case."""
    calls = calls_of(driven, order, log)
    outcomes: Outcomes = Counter()
    for name in names:
        for number in range(1, calls[name] + 1, stride):
            for when in (number, f"{number}+") if persistently else (number,):
                fail = f"inject={name}:error={error}:when={when}"
                status, said = driven.run(order, "-o", "/dev/null", "-e", fail)
                assert status in {"0", "1"}, (name, when, said)
                outcomes[status, driven.check(order, said)] += 1
    print({name: calls[name] for name in names}, dict(outcomes))  # noqa: T201
    return outcomes
