"""A writing program under strace: killed, failed or stopped at each of its system calls in turn."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lockstitch.stores.base import StoreFault
from lockstitch.stores.jsonl import JsonlBackend
from tests import tools
from tests.driven import Driven
from tests.stores import changes
from tests.stores.jsonl.driver import BEFORE, ENDS, SESSION, entry

PIPE = subprocess.PIPE
CHANGING = ("openat", "write", "pwrite64", "fdatasync", "fsync", "flock", "unlink", "rename")


class Writing(Driven):
    """The writing program, one child after the other, always on the same store."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        super().__init__(process)
        self.folder = folder
        self.path = folder / f"{SESSION}.jsonl"
        self.template = self.path.read_bytes() if self.path.exists() else b""
        self.files: dict[str, bytes] = {}

    def send(self, order: str) -> None:
        """Start a writer on the store as it was."""
        shutil.rmtree(self.folder)
        self.folder.mkdir(mode=0o700)
        if self.template:
            self.path.write_bytes(self.template)
        for name, data in self.files.items():
            (self.folder / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.folder / name).write_bytes(data)
        self.tell(order)

    def start(self, order: str, *options: str) -> tuple[int, subprocess.Popen[str]]:
        """Start a writer under strace."""
        tools.needed("strace")
        self.send(order)
        pid = int(self.read("started")[0])
        wait_until_stopped(pid)
        tracer = subprocess.Popen(tools.attached(pid, *options), stderr=PIPE, text=True)
        assert tracer.stderr
        said = tracer.stderr.readline()
        assert "attached" in said, said
        os.kill(pid, signal.SIGCONT)
        return pid, tracer

    def run(self, order: str, *options: str) -> tuple[str, list[str]]:
        """Run a writer under strace; its exit status and what it said."""
        _, tracer = self.start(order, *options)
        with tracer:
            ended = self.read("ended")
            assert tracer.stderr
            tracer.stderr.read()
        return ended

    def calls(self, order: str, log: Path) -> Counter[str]:
        """How often a writer makes which system call."""
        status, _ = self.run(order, "-o", str(log))
        assert status == "0"
        text = log.read_text("utf-8", "replace")
        return Counter(re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE))

    def keep(self) -> None:
        """Begin with all the files that are there now."""
        paths = [one for one in self.folder.rglob("*") if one.is_file()]
        self.files = {str(one.relative_to(self.folder)): one.read_bytes() for one in paths}
        self.template = b""

    def check_change(self, order: str, said: list[str]) -> bool:
        """A change is made or not, and made if that was said; then nothing of the old is left."""
        with JsonlBackend(self.folder) as store:
            is_done = changes.is_done(store, order)
            assert is_done or not acknowledged(said)
            changes.go_on(store, order)
        if order in changes.REMOVING:
            for path in self.folder.rglob("*"):
                assert path.is_dir() or changes.SECRET not in path.read_bytes(), path.name
        return is_done

    def check(self, said: list[str]) -> int:
        """All that was acknowledged is there, once, and the store goes on; its length before."""
        with JsonlBackend(self.folder) as store:
            assert not [one for one in store.verify() if isinstance(one, StoreFault)]
            lease = store.acquire(SESSION)
            seq = lease.head.seq
            found = [(one.key, one.body) for one in store.read(SESSION)]
            assert found == [(entry(n).key, entry(n).body) for n in range(1, seq + 1)]
            assert seq in ENDS
            assert seq >= max([BEFORE, *acknowledged(said)])
            store.append(lease, [entry(seq + 1)], seq)
        assert self.path.read_bytes().startswith(self.template)
        return seq


def acknowledged(said: list[str]) -> list[int]:
    return [int(line.split()[1]) for line in said if line.startswith("acked")]


def wait_until_stopped(pid: int) -> None:
    deadline = time.monotonic() + 30
    while not re.search(r"\) [Tt] ", Path(f"/proc/{pid}/stat").read_text("utf-8")):
        assert time.monotonic() < deadline
        time.sleep(0.001)


@contextmanager
def driving(store: Path, seconds: float) -> Iterator[Writing]:
    """Start the program on a store."""
    command = [sys.executable, "-m", "tests.stores.jsonl.driver", str(store), str(seconds)]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        yield Writing(process, store)
        assert process.stdin
        process.stdin.close()
