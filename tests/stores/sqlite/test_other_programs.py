"""Other programs on the same files: what goes into a file that is gone is not acknowledged."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from lockstitch.errors import Busy, Unreadable
from lockstitch.stores.base import StoreFault
from lockstitch.stores.group_commit import LockFile
from lockstitch.stores.sqlite import SqliteBackend, connections, writer
from tests.stores.sqlite.conftest import entries


def trapped(path: Path, how: str) -> list[str]:
    command = [sys.executable, "-m", "tests.stores.sqlite.trapped", str(path), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = [line.partition(":")[0] for line in done.stdout.splitlines()]
    assert said[:10] == ["done"] * 10
    return said[10:]


def found(path: Path) -> int:
    with SqliteBackend(path) as store:
        assert not [one for one in store.verify() if isinstance(one, StoreFault)]
        return len(list(store.read("s")))


def test_a_log_that_others_checkpointed_away_is_noticed(path: Path) -> None:
    # The next write, the lease, a new lease, reading, a new store: all of one process.
    assert trapped(path, "checkpointed") == ["Unsure"] * 5
    assert found(path) == 10


def test_a_log_that_was_removed_is_noticed(path: Path) -> None:
    assert trapped(path, "unlinked") == ["Unsure"] * 5


def test_a_database_that_was_replaced_is_noticed(path: Path) -> None:
    # A new lease is on the new file, and tells the truth about it; then the session is held.
    assert trapped(path, "replaced") == ["Unsure", "Unsure", "done", "done", "Held"]
    assert found(path) in {10, 11}


def test_a_database_that_was_removed_is_noticed(path: Path) -> None:
    # Without its folder the lock cannot be taken, and nothing is even begun.
    assert trapped(path, "removed")[:2] == ["Unreadable", "Unreadable"]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who cannot get a lock soon, gives up."""
    for module in (connections, writer):
        monkeypatch.setattr(module, "BUSY_SECONDS", 0.1)


@pytest.mark.usefixtures("hurried")
def test_a_program_that_holds_the_database_is_busy_and_nothing_is_lost(filled: Path) -> None:
    with SqliteBackend(filled) as store:
        lease = store.acquire("a")
        with closing(sqlite3.connect(filled, isolation_level=None)) as other:
            other.execute("begin immediate")
            with pytest.raises(Busy, match="nothing was written"):
                store.append(lease, entries(1, first=9), 8)
            assert len(list(store.read("a"))) == 8
            other.execute("rollback")
        assert store.append(lease, entries(1, first=9), 8).seq == 9


@pytest.mark.usefixtures("hurried")
def test_a_process_that_stopped_with_the_lock_is_busy_and_then_waited_for(filled: Path) -> None:
    with SqliteBackend(filled) as store:
        lease = store.acquire("a")
        with LockFile(connections.lock_of(filled)).held(1):
            for _ in range(3):
                with pytest.raises(Busy, match="makes no progress"):
                    store.append(lease, entries(1, first=9), 8)
            assert store.head("a").seq == 8  # type: ignore[union-attr]
        assert store.append(lease, entries(1, first=9), 8).seq == 9


def test_a_lock_file_that_was_removed_is_made_again(filled: Path) -> None:
    with SqliteBackend(filled) as store:
        lease = store.acquire("a")
        connections.lock_of(filled).unlink()
        store.append(lease, entries(1, first=9), 8)
        assert connections.lock_of(filled).exists()


def test_nobody_checkpoints_but_we(filled: Path) -> None:
    """Neither a reader that is closed last nor one that is only looking moves the log."""
    with SqliteBackend(filled) as store:
        lease = store.acquire("a")
        store.append(lease, entries(8, first=9), 8)
        before = filled.read_bytes()
        with SqliteBackend(filled, readonly=True) as reader:
            assert len(list(reader.read("a"))) == 16
        with SqliteBackend(filled) as other:
            assert len(list(other.read("a"))) == 16
        assert filled.read_bytes() == before


def test_the_log_is_moved_when_it_has_grown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT", 64 * writer.PAGE)
    with SqliteBackend(path) as store:
        lease = store.acquire("s")
        for seq in range(200):
            store.append(lease, entries(1, first=seq + 1), seq)
        log = connections.wal_of(path).stat().st_size
        assert log < 2 * 64 * writer.PAGE + 200_000
        assert len(list(store.read("s"))) == 200


def test_a_huge_log_is_cut_down(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT", 8 * writer.PAGE)
    monkeypatch.setattr(writer, "HUGE", 16 * writer.PAGE)
    with SqliteBackend(path) as store:
        lease = store.acquire("s")
        reading = store.read("s")
        store.append(lease, entries(1), 0)
        next(reading)  # a reader holds the log where it is
        for seq in range(1, 60):
            store.append(lease, entries(1, first=seq + 1), seq)
        assert connections.wal_of(path).stat().st_size > 16 * writer.PAGE
        assert list(reading) == []
        for seq in range(60, 70):
            store.append(lease, entries(1, first=seq + 1), seq)
        assert connections.wal_of(path).stat().st_size <= 16 * writer.PAGE


def test_a_killed_holder_of_the_lock_leaves_it(filled: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from lockstitch.stores.group_commit import LockFile\n"
        "with LockFile(Path(sys.argv[1])).held(9): print('held', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(connections.lock_of(filled))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        holder.stdout.readline()
        os.kill(holder.pid, signal.SIGKILL)
    with SqliteBackend(filled) as store:
        assert store.acquire("a").head.seq == 8


def test_a_lock_that_is_no_file_is_refused(path: Path) -> None:
    path.parent.mkdir()
    connections.lock_of(path).mkdir()
    with pytest.raises(Unreadable, match="cannot be opened for locking"):
        SqliteBackend(path)
