"""Killed, failed, or out of space at every system call: what was acknowledged is there."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockstitch.stores.base import StoreFault
from lockstitch.stores.sqlite import SqliteBackend
from tests.stores import changes
from tests.stores.sqlite import calls, driver
from tests.stores.sqlite.calls import WRITING, Writing, failed
from tests.stores.sqlite.driver import BEFORE, SESSION, entry

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strace is Linux's")


@pytest.fixture
def driven() -> Iterator[Writing]:
    with calls.driving() as made:
        yield made


@pytest.fixture
def filled(driven: Writing) -> Writing:
    """With a store that holds two records."""
    with SqliteBackend(driven.path) as store:
        store.append(store.acquire(SESSION), [entry(n + 1) for n in range(BEFORE)], 0)
    driven.template = driven.path.read_bytes()
    return driven


def test_killed_at_every_system_call_of_an_append(filled: Writing, tmp_path: Path) -> None:
    outcomes = calls.killed(filled, "append", tmp_path / "log")
    assert set(outcomes) <= {("-9", BEFORE), ("-9", BEFORE + 1), ("0", BEFORE + 1)}
    assert outcomes["-9", BEFORE] > 10
    assert outcomes["-9", BEFORE + 1] > 10


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


@pytest.fixture
def changing(driven: Writing) -> Writing:
    """With a store in which something is about to change."""
    with SqliteBackend(driven.path) as store:
        changes.fill(store)
    driven.template = driven.path.read_bytes()
    return driven


@pytest.mark.parametrize("order", changes.ORDERS)
def test_killed_at_every_write_of_a_change(changing: Writing, tmp_path: Path, order: str) -> None:
    kinds = (*WRITING, "flock")
    outcomes = calls.killed(changing, order, tmp_path / "log", kinds, stride=(STRIDE + 1) // 2)
    assert set(outcomes) <= {("-9", False), ("-9", True), ("0", True)}
    assert outcomes["-9", False] > 1
    assert outcomes["-9", True] > 3


FAILED = [("add", "EIO"), ("make", "ENOSPC"), ("replace", "ENOSPC"), ("delete", "EIO")]
EVERY = [(order, error) for order in changes.ORDERS for error in ("EIO", "ENOSPC")]


@pytest.mark.parametrize(("order", "error"), FAILED if STRIDE > 1 else EVERY)
def test_failed_at_every_write_of_a_change(
    changing: Writing, tmp_path: Path, order: str, error: str
) -> None:
    outcomes = failed(changing, order, WRITING, error, tmp_path / "log", stride=STRIDE)
    assert set(outcomes) <= {("0", True), ("1", False), ("1", True)}
    assert outcomes["1", True] > 0
    assert outcomes["1", False] > 0


def test_out_of_space_at_every_length_of_the_log(tmp_path: Path) -> None:
    """A limit on the size of files makes a write end short, and the next one fail."""
    path = tmp_path / "sessions.db"
    outcomes: Counter[str] = Counter()
    for room in range(0, 1_000_000, 3_919):
        for one in tmp_path.glob("*"):
            one.unlink()
        with SqliteBackend(path) as store:
            store.append(store.acquire(SESSION), [entry(1), entry(2)], 0)
        told = short_of_space(path, room)
        with SqliteBackend(path) as store:
            assert not [one for one in store.verify() if isinstance(one, StoreFault)]
            keys = [one.key for one in store.read(SESSION)]
            assert keys[:2] == ["key-1", "key-2"]
            assert told != "done" or len(keys) == 3
        outcomes[told] += 1
        if told == "done":
            break
    print(dict(outcomes))  # noqa: T201
    assert outcomes["done"] == 1
    assert outcomes["Unsure"] > 3


@pytest.mark.parametrize("order", changes.ORDERS)
def test_out_of_space_at_lengths_of_the_log_of_a_change(tmp_path: Path, order: str) -> None:
    path = tmp_path / "sessions.db"
    with SqliteBackend(path) as store:
        changes.fill(store)
    template = path.read_bytes()
    outcomes: Counter[str] = Counter()
    for room in range(0, 2_000_000, 7_919 * STRIDE):
        for one in tmp_path.glob("*"):
            one.unlink()
        path.write_bytes(template)
        told = short_of_space(path, room, order)
        with SqliteBackend(path) as store:
            assert told != "done" or changes.is_done(store, order)
            changes.go_on(store, order)
        outcomes[told] += 1
        if told == "done":
            break
    print(order, dict(outcomes))  # noqa: T201
    assert outcomes["done"] == 1
    assert outcomes["Unsure"] > 0


def short_of_space(path: Path, room: int, order: str = "append") -> str:
    """Append or change under a limit in a child; what came of it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        told = "died"
        try:
            told = _written_within(path, room, order)
        finally:
            os.write(writing, told.encode())
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read().decode()


def _written_within(path: Path, room: int, order: str) -> str:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = SqliteBackend(path)
    write = changes.Change(store, order) if order in changes.ORDERS else _append(store)
    limit = path.with_name(f"{path.name}-wal").stat().st_size + room
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        write()
    except driver.LockstitchError as error:
        return type(error).__name__
    return "done"


def _append(store: SqliteBackend) -> Callable[[], object]:
    lease = store.acquire(SESSION)
    return lambda: store.append(lease, [entry(3)], BEFORE)
