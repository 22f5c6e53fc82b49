"""Killed, failed, or out of space at every system call: what was acknowledged is there."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstitch.stores.base import Fault
from lockstitch.stores.sqlite import SqliteBackend
from tests.driven import Driven
from tests.stores.sqlite import driver
from tests.stores.sqlite.driver import BEFORE, SESSION, entry

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strace is Linux's")
PIPE = subprocess.PIPE
BARE = "strace is not installed: apt install strace"


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
        strace = shutil.which("strace")
        assert strace, BARE
        self.send(order)
        pid, _ = self.read("started")
        wait_until_stopped(pid)
        command = [strace, "-f", "-p", pid, *options]
        with subprocess.Popen(command, stderr=PIPE, text=True) as tracer:
            assert tracer.stderr
            said = tracer.stderr.readline()
            assert "attached" in said, said
            os.kill(int(pid), signal.SIGCONT)
            ended = self.read("ended")
            tracer.stderr.read()
        return ended

    def check(self, said: list[str]) -> int:
        """All that was acknowledged is there, once, and the store goes on; its length before."""
        acked = [int(line.split()[1]) for line in said if line.startswith("acked")]
        with SqliteBackend(self.path) as store:
            assert not [one for one in store.verify() if isinstance(one, Fault)]
            lease = store.acquire(SESSION)
            found = list(store.read(SESSION))
            seq = lease.head.seq
            assert [(one.key, one.body) for one in found] == [
                (entry(n).key, entry(n).body) for n in range(1, seq + 1)
            ]
            assert seq >= max([BEFORE if self.template else 0, *acked])
            assert store.append(lease, [entry(seq + 1)], seq).seq == seq + 1
        return seq


def wait_until_stopped(pid: str) -> None:
    deadline = time.monotonic() + 30
    while ") T " not in Path(f"/proc/{pid}/stat").read_text("utf-8"):
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def driven() -> Iterator[Writing]:
    # In memory if possible: a kill leaves the same there, and hundreds of them are quick.
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        path = Path(folder, "sessions.db")
        command = [sys.executable, "-m", "tests.stores.sqlite.driver", str(path)]
        with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
            yield Writing(process, path)
            assert process.stdin
            process.stdin.close()


@pytest.fixture
def filled(driven: Writing) -> Writing:
    """With a store that holds two records."""
    with SqliteBackend(driven.path) as store:
        store.append(store.acquire(SESSION), [entry(n + 1) for n in range(BEFORE)], 0)
    driven.template = driven.path.read_bytes()
    return driven


def calls_of(driven: Writing, order: str, log: Path) -> Counter[str]:
    """How often a writer makes which system call."""
    status, said = driven.run(order, "-o", str(log))
    assert status == "0", said
    text = log.read_text("utf-8", "replace")
    return Counter(re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE))


def test_killed_at_every_system_call_of_an_append(filled: Writing, tmp_path: Path) -> None:
    calls = calls_of(filled, "append", tmp_path / "log")
    assert {"pwrite64", "fdatasync", "flock", "unlink"} <= set(calls)
    outcomes: Counter[tuple[str, int]] = Counter()
    for name, count in calls.items():
        for number in range(1, count + 1):
            kill = f"inject={name}:signal=SIGKILL:when={number}"
            status, said = filled.run("append", "-o", "/dev/null", "-e", kill)
            outcomes[status, filled.check(said)] += 1
    print(dict(outcomes))  # noqa: T201
    assert set(outcomes) <= {("-9", BEFORE), ("-9", BEFORE + 1), ("0", BEFORE + 1)}
    assert outcomes["-9", BEFORE] > 10
    assert outcomes["-9", BEFORE + 1] > 10


WRITING = ("pwrite64", "fdatasync", "fsync", "ftruncate", "unlink")
LOCKING = ("flock", "fcntl")
STRIDE = int(os.environ.get("LOCKSTITCH_STRIDE", "4"))
MAKING = (*WRITING, "openat", "mkdir", "rename")


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_failed_at_every_write_of_an_append(filled: Writing, tmp_path: Path, error: str) -> None:
    outcomes = failed(filled, "append", WRITING, error, tmp_path / "log")
    assert set(outcomes) <= {("0", BEFORE + 1), ("1", BEFORE), ("1", BEFORE + 1)}
    assert outcomes["1", BEFORE] > 5
    assert outcomes["1", BEFORE + 1] > 5


def test_failed_at_every_lock_of_an_append(filled: Writing, tmp_path: Path) -> None:
    log = tmp_path / "log"
    outcomes = failed(filled, "append", LOCKING, "EIO", log, persistently=False, stride=2)
    assert set(outcomes) <= {("0", BEFORE + 1), ("1", BEFORE + 1)}


def test_failed_at_every_write_of_making_a_store(driven: Writing, tmp_path: Path) -> None:
    log = tmp_path / "log"
    outcomes = failed(driven, "open", MAKING, "EIO", log, persistently=False, stride=STRIDE)
    assert set(outcomes) <= {("0", 1), ("1", 1)}
    assert outcomes["1", 1] > 40 // STRIDE


def failed(
    driven: Writing,
    order: str,
    names: tuple[str, ...],
    error: str,
    log: Path,
    *,
    persistently: bool = True,
    stride: int = 1,
) -> Counter[tuple[str, int]]:
    """Fail each call once, and from then on; what the writer said must be so in any case."""
    calls = calls_of(driven, order, log)
    outcomes: Counter[tuple[str, int]] = Counter()
    for name in names:
        for number in range(1, calls[name] + 1, stride):
            for when in (number, f"{number}+") if persistently else (number,):
                fail = f"inject={name}:error={error}:when={when}"
                status, said = driven.run(order, "-o", "/dev/null", "-e", fail)
                assert status in {"0", "1"}, (name, when, said)
                outcomes[status, driven.check(said)] += 1
    print({name: calls[name] for name in names}, dict(outcomes))  # noqa: T201
    return outcomes


def test_out_of_space_at_every_length_of_the_log(tmp_path: Path) -> None:
    """A limit on the size of files makes a write end short, and the next one fail."""
    path = tmp_path / "sessions.db"
    outcomes: Counter[str] = Counter()
    for room in range(0, 1_000_000, 7_919):
        for one in tmp_path.glob("*"):
            one.unlink()
        with SqliteBackend(path) as store:
            store.append(store.acquire(SESSION), [entry(1), entry(2)], 0)
        told = short_of_space(path, room)
        with SqliteBackend(path) as store:
            assert not [one for one in store.verify() if isinstance(one, Fault)]
            keys = [one.key for one in store.read(SESSION)]
            assert keys[:2] == ["key-1", "key-2"]
            assert told != "done" or len(keys) == 3
        outcomes[told] += 1
        if told == "done":
            break
    print(dict(outcomes))  # noqa: T201
    assert outcomes["done"] == 1
    assert outcomes["Unsure"] > 3


def short_of_space(path: Path, room: int) -> str:
    """Append under a limit in a child; what came of it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        told = "died"
        try:
            told = _append_within(path, room)
        finally:
            os.write(writing, told.encode())
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read().decode()


def _append_within(path: Path, room: int) -> str:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = SqliteBackend(path)
    lease = store.acquire(SESSION)
    limit = path.with_name(f"{path.name}-wal").stat().st_size + room
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        store.append(lease, [entry(3)], BEFORE)
    except driver.LockstitchError as error:
        return type(error).__name__
    return "done"
