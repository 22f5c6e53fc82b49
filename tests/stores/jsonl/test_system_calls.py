"""Killed, failed, stopped or out of space at every system call: what was acknowledged is there."""

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
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from lockstitch.stores.base import Fault
from lockstitch.stores.jsonl import JsonlBackend
from tests.driven import Driven
from tests.stores.contract import entries
from tests.stores.jsonl.driver import BEFORE, ENDS, LEASE, SESSION, entry

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strace is Linux's")
PIPE = subprocess.PIPE
BARE = "strace is not installed: apt install strace"
STEP = 1 if os.environ.get("LOCKSTITCH_FUZZ_EXAMPLES") else 11
CHANGING = ("openat", "write", "pwrite64", "fdatasync", "fsync", "flock", "unlink", "rename")


class Writing(Driven):
    """The writing program, one child after the other, always on the same store."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        super().__init__(process)
        self.folder = folder
        self.path = folder / f"{SESSION}.jsonl"
        self.template = self.path.read_bytes()

    def send(self, order: str) -> None:
        """Start a writer on the store as it was."""
        shutil.rmtree(self.folder)
        self.folder.mkdir(mode=0o700)
        if self.template:
            self.path.write_bytes(self.template)
        self.tell(order)

    def start(self, order: str, *options: str) -> tuple[int, subprocess.Popen[str]]:
        """Start a writer under strace."""
        strace = shutil.which("strace")
        assert strace, BARE
        self.send(order)
        pid = int(self.read("started")[0])
        wait_until_stopped(pid)
        command = [strace, "-f", "-p", str(pid), *options]
        tracer = subprocess.Popen(command, stderr=PIPE, text=True)
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

    def check(self, said: list[str]) -> int:
        """All that was acknowledged is there, once, and the store goes on; its length before."""
        with JsonlBackend(self.folder) as store:
            assert not [one for one in store.verify() if isinstance(one, Fault)]
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


@pytest.fixture
def seconds() -> float:
    """How long a lease lasts: so long that nothing but the writer's own steps is counted."""
    return 600


@pytest.fixture
def driven(folder: Path, seconds: float) -> Iterator[Writing]:
    store = folder / "store"
    with JsonlBackend(store) as backend:
        backend.append(backend.acquire(SESSION), [entry(n + 1) for n in range(BEFORE)], 0)
    command = [sys.executable, "-m", "tests.stores.jsonl.driver", str(store), str(seconds)]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        yield Writing(process, store)
        assert process.stdin
        process.stdin.close()


def test_killed_at_every_system_call(driven: Writing, tmp_path: Path) -> None:
    calls = driven.calls("all", tmp_path / "log")
    assert set(CHANGING) <= set(calls)
    outcomes: Counter[tuple[str, int]] = Counter()
    for name in CHANGING:
        for number in range(1, calls[name] + 1):
            inject = f"inject={name}:signal=SIGKILL:when={number}"
            status, said = driven.run("all", "-o", "/dev/null", "-e", inject)
            outcomes[status, driven.check(said)] += 1
    assert {("-9", seq) for seq in ENDS} <= set(outcomes) <= {("-9", seq) for seq in ENDS}
    assert outcomes.total() > 40


READING = ("pread64", "newfstatat", "fstat", "lseek", "flock", "unlink")
FALLIBLE = tuple(dict.fromkeys((*CHANGING, "mkdir", "link", *READING)))


@pytest.mark.parametrize(("error", "when"), [("EIO", ""), ("ENOSPC", ""), ("EIO", "+")])
def test_failed_at_every_system_call(
    driven: Writing, tmp_path: Path, error: str, when: str
) -> None:
    calls = driven.calls("all", tmp_path / "log")
    outcomes: Counter[tuple[str, int]] = Counter()
    # What says what was acknowledged is a write, too; and reading needs no space.
    left_out = ("write",) if when else READING if error == "ENOSPC" else ()
    for name in (one for one in FALLIBLE if one not in left_out):
        step = STEP if name in READING else 1
        for number in range(1, calls[name] + 1, step):
            inject = f"inject={name}:error={error}:when={number}{when}"
            status, said = driven.run("all", "-o", "/dev/null", "-e", inject)
            seq = driven.check(said)
            assert status in {"0", "1"}, (name, number, said)
            if status == "1" and not when:
                assert seq == ENDS[-1], (name, number, said)
            outcomes[status, seq] += 1
    assert outcomes["1", ENDS[0 if when else -1]] > 5


def test_no_space_at_every_byte(driven: Writing) -> None:
    """Files may grow to every size in turn, so writes end in the middle of every line."""
    driven.send("run")
    assert driven.read("ended")[0] == "0"
    whole = len(driven.path.read_bytes())
    outcomes: Counter[str] = Counter()
    sizes = [*range(len(driven.template), whole - 9, STEP), whole + 9]
    for size in sizes:
        driven.send(f"limit {size}")
        status, said = driven.read("ended")
        assert status == ("1" if size < whole else "0")
        assert said[-1] == ("recovered" if status == "1" else f"acked {ENDS[-1]}")
        outcomes[status] += 1
        assert driven.check(said) == ENDS[-1]
    assert outcomes["1"] == len(sizes) - 1


DONE = re.compile(r'^\d+ +(\w+)\((?:\d+<([^>]*)>)?(?:.*?"([^"]*)")?(?:.*"([^"]*)")?.*\) += \d')


class Disk:
    """What would be lost if the power failed now, from a log of system calls."""

    def __init__(self) -> None:
        self.lost: set[str] = set()

    def take(self, name: str, handle: str, path: str, line: str) -> None:
        if name in {"write", "pwrite64"}:
            self.lost.add(handle)
        elif name in {"fsync", "fdatasync"}:
            self.lost -= {handle, f"names in {handle}"}
        elif name in {"mkdir", "rename"} or (name == "openat" and "O_CREAT" in line):
            self.lost.add(f"names in {Path(path).parent}")


@pytest.mark.parametrize("is_new", [False, True])
def test_what_is_acknowledged_survives_a_power_failure(
    driven: Writing, tmp_path: Path, is_new: bool
) -> None:
    """Nothing is named before it is durable, and nothing acknowledged."""
    if is_new:
        driven.template = b""
    log = tmp_path / "log"
    status, said = driven.run("all", "-y", "-s", "9", "-o", str(log))
    assert (status, acknowledged(said)) == ("0", [2, 4, 5] if is_new else [4, 5])
    disk = Disk()
    seen: Counter[str] = Counter()
    for line in log.read_text("utf-8", "replace").splitlines():
        found = DONE.match(line)
        if found and found[1] != "futex":
            name, handle, path = found[1], found[2] or "", found[4] or found[3] or ""
            lost = {one for one in disk.lost if ".leases" not in one and "pipe" not in one}
            if name == "write" and "pipe" in handle:
                assert lost == set()
            if name == "write" and handle == str(driven.path):
                assert not [one for one in lost if "blobs" in one]
            disk.take(name, handle, path, line)
            seen[name] += 1
    assert seen["fdatasync"] >= 3
    assert not [one for one in disk.lost if ".leases" not in one and "pipe" not in one]


STOPPING = ("flock", "write", "fdatasync", "lseek")


@pytest.mark.parametrize("seconds", [LEASE])
def test_stopped_at_system_calls_and_taken_over(driven: Writing, tmp_path: Path) -> None:
    """Also while it has the lock: then it is passed by, and what it writes later is no record."""
    calls = driven.calls("append", tmp_path / "log")
    outcomes: Counter[str] = Counter()
    for name in STOPPING:
        for number in range(1, calls[name] + 1):
            inject = f"inject={name}:signal=SIGSTOP:when={number}"
            pid, tracer = driven.start("append once", "-o", "/dev/null", "-e", inject)
            with tracer:
                wait_until_stopped(pid)
                said = taken_over(driven, pid)
                assert tracer.stderr
                tracer.stderr.read()
            outcomes[said[-1].split()[1]] += 1
    assert set(outcomes) <= {"Fenced", "Unsure", str(ENDS[-1])}
    assert outcomes["Fenced"] > 2


@contextmanager
def resumed(pid: int) -> Iterator[None]:
    """Let a process go on, also if it is only now about to be stopped."""
    ended = Event()

    def resume() -> None:
        while not ended.is_set():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            ended.wait(0.1)

    thread = Thread(target=resume)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def taken_over(driven: Writing, pid: int) -> list[str]:
    """Take the session over while its writer stands still, let that go on, and look; its words."""
    with JsonlBackend(driven.folder, lease_seconds=LEASE) as store:
        lease = store.acquire(SESSION, wait=60)
        head = store.append(lease, entries("mine", "too"), lease.head.seq)
        with resumed(pid):
            _, said = driven.read("ended")
        head = store.append(lease, entries("still"), head.seq)
        found = [record.key for record in store.read(SESSION)]
        assert found[-3:] == ["mine", "too", "still"]
        assert found[:-3] == [entry(n).key for n in range(1, lease.head.seq + 1)]
        assert max([BEFORE, *acknowledged(said)]) <= lease.head.seq
        assert not [one for one in store.verify() if isinstance(one, Fault)]
    return said
