"""Killed, failed, stopped or out of space at every system call: what was acknowledged is there."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from lockstitch.journal.records import blob_name
from lockstitch.stores.base import StoreFault
from lockstitch.stores.jsonl import JsonlBackend
from tests.stores import changes
from tests.stores.contract import entries
from tests.stores.jsonl.calls import CHANGING, Writing, acknowledged, driving, wait_until_stopped
from tests.stores.jsonl.driver import BEFORE, ENDS, LEASE, SESSION, entry

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strace is Linux's")
STEP = 1 if os.environ.get("LOCKSTITCH_FUZZ_EXAMPLES") else 11


@pytest.fixture
def seconds() -> float:
    """How long a lease lasts: so long that nothing but the writer's own steps is counted."""
    return 600


@pytest.fixture
def driven(folder: Path, seconds: float) -> Iterator[Writing]:
    store = folder / "store"
    with JsonlBackend(store) as backend:
        backend.append(backend.acquire(SESSION), [entry(n + 1) for n in range(BEFORE)], 0)
    with driving(store, seconds) as made:
        yield made


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


@pytest.fixture
def changing(folder: Path) -> Iterator[Writing]:
    """With a store in which something is about to change."""
    store = folder / "store"
    with JsonlBackend(store) as backend:
        changes.fill(backend)
    with driving(store, 600) as made:
        made.keep()
        yield made


OFTEN = 1 if STEP == 1 else 2


@pytest.mark.parametrize("order", changes.ORDERS)
def test_killed_at_every_call_of_a_change(changing: Writing, tmp_path: Path, order: str) -> None:
    calls = changing.calls(order, tmp_path / "log")
    outcomes: Counter[tuple[str, bool]] = Counter()
    for name in CHANGING:
        for number in range(1, calls[name] + 1, OFTEN):
            inject = f"inject={name}:signal=SIGKILL:when={number}"
            status, said = changing.run(order, "-o", "/dev/null", "-e", inject)
            outcomes[status, changing.check_change(order, said)] += 1
    print(order, {name: calls[name] for name in CHANGING}, dict(outcomes))  # noqa: T201
    assert {("-9", False), ("-9", True)} <= set(outcomes)
    assert set(outcomes) <= {("-9", False), ("-9", True), ("0", True)}


HOW = [("ENOSPC", ""), ("EIO", "+")]
EVERY = [(order, *how) for order in changes.ORDERS for how in HOW]
FAILED = [(order, *HOW[number % 2]) for number, order in enumerate(changes.ORDERS)]


@pytest.mark.parametrize(("order", "error", "when"), EVERY if STEP == 1 else FAILED)
def test_failed_at_calls_of_a_change(
    changing: Writing, tmp_path: Path, order: str, error: str, when: str
) -> None:
    calls = changing.calls(order, tmp_path / "log")
    outcomes: Counter[tuple[str, bool]] = Counter()
    # What says what was acknowledged is a write, too; and reading and removing need no space.
    left_out = ("write",) if when else READING
    for name in (one for one in FALLIBLE if one not in left_out):
        for number in range(1, calls[name] + 1, STEP if name in READING else OFTEN):
            inject = f"inject={name}:error={error}:when={number}{when}"
            told = f"{order} once" if when else order
            status, said = changing.run(told, "-o", "/dev/null", "-e", inject)
            assert status in {"0", "1"}, (name, number, said)
            outcomes[status, changing.check_change(order, said)] += 1
    print(order, dict(outcomes))  # noqa: T201
    assert outcomes["1", False] + outcomes["1", True] > 2


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


@pytest.mark.parametrize("order", ["add", "make", "replace"])
def test_no_space_at_some_bytes_of_a_change(changing: Writing, order: str) -> None:
    """Large values and lines end short at every part of their sizes in turn."""
    outcomes: Counter[str] = Counter()
    # A claim is written in place, which a full disk allows and this limit does not.
    for size in [*range(1024, 30_000, 97 * STEP), 1_000_000]:
        changing.send(f"limit {size} {order}")
        status, said = changing.read("ended")
        assert status == "0" or said[-1] == "acked 1"
        assert changing.check_change(order, said)
        outcomes[status] += 1
    print(order, dict(outcomes))  # noqa: T201
    assert outcomes["0"] >= 1
    assert outcomes["1"] > 5


DONE = re.compile(r'^\d+ +(\w+)\((?:\d+<([^>]*)>)?(?:.*?"([^"]*)")?(?:.*"([^"]*)")?.*\) += \d')


class Disk:
    """What would be lost if the power failed now, from a log of system calls."""

    def __init__(self) -> None:
        self.lost: set[str] = set()

    def really_lost(self) -> set[str]:
        """What matters of it."""
        return {one for one in self.lost if ".leases" not in one and "pipe" not in one}

    def take(self, name: str, handle: str, path: str, line: str) -> None:
        if name in {"write", "pwrite64"}:
            self.lost.add(handle)
        elif name in {"fsync", "fdatasync"}:
            self.lost -= {handle, f"names in {handle}"}
        elif name == "unlink" and path.endswith((".tmp", ".doomed")):
            # Whether these are gone or come back matters to nobody.
            self.lost.discard(path)
        elif name in {"mkdir", "rename", "unlink"} or (name == "openat" and "O_CREAT" in line):
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
    seen: Counter[str] = Counter()
    for name, handle, _, lost in steps(log):
        if name == "write" and "pipe" in handle:
            assert lost == set()
        if name == "write" and handle == str(driven.path):
            assert not [one for one in lost if "blobs" in one]
        seen[name] += 1
    assert seen["fdatasync"] >= 3


def steps(log: Path) -> Iterator[tuple[str, str, str, set[str]]]:
    """The calls in a log, and what would be lost if the power failed before each."""
    disk = Disk()
    for line in log.read_text("utf-8", "replace").splitlines():
        found = DONE.match(line)
        if found and found[1] != "futex":
            name, handle, path = found[1], found[2] or "", found[4] or found[3] or ""
            yield name, handle, path, disk.really_lost()
            disk.take(name, handle, path, line)
    assert not disk.really_lost()


@pytest.mark.parametrize("order", changes.ORDERS)
def test_an_acknowledged_change_survives_a_power_failure(
    changing: Writing, tmp_path: Path, order: str
) -> None:
    """Nothing takes another's place, or goes, before what stands for it is durable."""
    log = tmp_path / "log"
    status, said = changing.run(order, "-y", "-s", "9", "-o", str(log))
    assert (status, said) == ("0", ["acked 1"])
    placed = 0
    for name, handle, path, lost in steps(log):
        if name == "write" and "pipe" in handle:
            assert lost == set()
        if name in {"rename", "unlink"} and path.endswith((".jsonl", ".doomed")):
            # The folder of a draft that is renamed is not synced yet, but the draft is.
            assert {one for one in lost if not one.startswith("names in ")} == set()
            placed += 1
    assert placed == (3 if order in changes.REMOVING else 0)


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
        assert not [one for one in store.verify() if isinstance(one, StoreFault)]
    return said


@pytest.mark.parametrize("order", changes.REMOVING)
def test_a_remover_that_was_stopped_and_taken_over(
    folder: Path, tmp_path: Path, order: str
) -> None:
    """It finds that when it goes on: what the next writer was told is there, stays."""
    store = folder / "store"
    with JsonlBackend(store) as backend:
        changes.fill(backend)
    outcomes: Counter[str] = Counter()
    with driving(store, LEASE) as made:
        made.keep()
        calls = made.calls(order, tmp_path / "log")
        for number in range(1, calls["fsync"] + 1, OFTEN):
            inject = f"inject=fsync:signal=SIGSTOP:when={number}"
            pid, tracer = made.start(f"{order} once", "-o", "/dev/null", "-e", inject)
            with tracer:
                wait_until_stopped(pid)
                outcomes[written_meanwhile(made, pid)] += 1
                assert tracer.stderr
                tracer.stderr.read()
    print(order, dict(outcomes))  # noqa: T201
    assert outcomes["Fenced"] > 0


def written_meanwhile(made: Writing, pid: int) -> str:
    """Take the session over, write, let the other one go on; the last it says."""
    with JsonlBackend(made.folder, lease_seconds=LEASE) as store:
        lease = store.acquire(changes.SESSION, wait=600)
        before = [record.key for record in store.read(changes.SESSION)]
        mine = changes.FRESH[0]
        head = store.append(lease, [mine, *entries("mine")], lease.head.seq)
        with resumed(pid):
            _, said = made.read("ended")
        store.append(lease, entries("still"), head.seq)
        found = [record.key for record in store.read(changes.SESSION)]
        assert found == [*before, mine.key, "mine", "still"]
        assert not [one for one in store.verify() if isinstance(one, StoreFault)]
        names = [blob_name(value) for value in mine.blobs]
        assert list(store.blobs(names).values()) == list(mine.blobs)
    return said[-1].split()[1]
