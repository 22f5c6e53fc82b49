"""Many threads and interrupts on one store: nothing lost, nothing twice, nobody spoils another."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from lockstitch.errors import Closed, Fenced, Moved, Unsure, UsageError
from lockstitch.journal.records import JournalEntry
from lockstitch.stores.base import Lease, StoreFault
from lockstitch.stores.sqlite import SqliteBackend
from lockstitch.stores.sqlite import writer as writing
from lockstitch.stores.sqlite.connections import connect
from tests.stores.sqlite.conftest import entries

THREADS = 16
EACH = 40


def in_threads(work: object, count: int = THREADS) -> None:
    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()


def test_each_thread_its_session(path: Path) -> None:
    with SqliteBackend(path) as store:

        def work(number: int) -> None:
            lease = store.acquire(f"s{number}")
            for seq in range(EACH):
                assert store.append(lease, entries(1, first=seq + 1), seq).seq == seq + 1

        in_threads(work)
        assert not [one for one in store.verify() if isinstance(one, StoreFault)]
        for number in range(THREADS):
            assert [one.body for one in store.read(f"s{number}")] == [
                one.body for one in entries(EACH)
            ]


def test_one_session_of_all_threads(path: Path) -> None:
    with SqliteBackend(path) as store:
        lease = store.acquire("s")
        conflicts: list[int] = []

        def work(number: int) -> None:
            done = 0
            while done < EACH:
                head = store.head("s")
                assert head is not None
                try:
                    store.append(lease, [JournalEntry(f"{number}-{done}", 1, b"{}")], head.seq)
                    done += 1
                except Moved:
                    conflicts.append(number)

        in_threads(work, 4)
        keys = [one.key for one in store.read("s")]
        assert sorted(keys) == sorted(f"{n}-{i}" for n in range(4) for i in range(EACH))


def test_one_that_is_fenced_or_late_does_not_spoil_the_batch(path: Path) -> None:
    with SqliteBackend(path) as store:
        leases = [store.acquire(f"s{number}") for number in range(THREADS)]
        store.append(leases[3], entries(1), 0)
        store.release(leases[5])
        store.acquire("s5")
        outcomes: dict[int, object] = {}

        def work(number: int) -> None:
            try:
                outcomes[number] = store.append(
                    leases[number], [JournalEntry("k", 1, b"{}")], 0
                ).seq
            except (Fenced, Moved) as error:
                outcomes[number] = type(error)

        in_threads(work)
        assert outcomes.pop(3) is Moved
        assert outcomes.pop(5) is Fenced
        assert set(outcomes.values()) == {1}


class Failing:
    """A connection that fails at a statement, as on a broken disk, after doing it or not."""

    def __init__(self, uri: str) -> None:
        self._connection = connect(uri)
        self.is_writing = uri.endswith("sessions.db?mode=rw")
        self.statement = ""
        self.error: BaseException = sqlite3.OperationalError("disk I/O error")
        self.does_it = False
        ALL.append(self)

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        if self.statement and statement.startswith(self.statement):
            self.statement = ""
            if self.does_it:
                self._connection.execute(statement, *values)  # type: ignore[arg-type]
            raise self.error
        return self._connection.execute(statement, *values)  # type: ignore[arg-type]

    def close(self) -> None:
        self.is_writing = False
        self._connection.close()


ALL: list[Failing] = []
STATEMENTS = ("begin immediate", "update sessions", "update pieces", "commit")


@pytest.fixture
def failing(path: Path) -> SqliteBackend:
    ALL.clear()
    return SqliteBackend(path, connect=Failing)  # type: ignore[arg-type]


def fail_at(statement: str, error: BaseException | None = None, *, does_it: bool = False) -> None:
    [writer] = [one for one in ALL if one.is_writing]
    writer.statement, writer.does_it = statement, does_it
    writer.error = error or writer.error


@pytest.mark.parametrize("does_it", [False, True])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_after_a_failure_all_older_leases_are_unsure(
    failing: SqliteBackend, statement: str, does_it: bool
) -> None:
    with failing as store:
        one, other = store.acquire("one"), store.acquire("other")
        store.append(one, entries(2), 0)
        fail_at(statement, does_it=does_it)
        with pytest.raises(Unsure):
            store.append(one, entries(1, first=3), 2)
        for lease in (one, other):
            with pytest.raises(Unsure):
                store.append(lease, entries(1), lease.head.seq)
        again = store.acquire("one")
        is_there = again.head.seq == 3
        assert is_there == (does_it and statement == "commit")
        assert store.append(again, entries(1, first=again.head.seq + 1), again.head.seq)
        assert store.acquire("other").epoch == 2


@pytest.mark.parametrize("does_it", [False, True])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_an_interrupt_leaves_the_lease_and_a_certain_state(
    failing: SqliteBackend, statement: str, does_it: bool
) -> None:
    """An interrupt comes behind or before a statement, never inside: what was done is known."""
    with failing as store:
        lease = store.acquire("one")
        store.append(lease, entries(2), 0)
        fail_at(statement, KeyboardInterrupt(), does_it=does_it)
        with pytest.raises(KeyboardInterrupt):
            store.append(lease, entries(1, first=3), 2)
        # The same again under its key: written now, or found.
        assert store.append(lease, entries(1, first=3), 2).seq == 3
        assert store.append(lease, entries(1, first=4), 3).seq == 4
        assert len(list(store.read("one"))) == 4


def test_an_interrupted_leader_spoils_nobody(failing: SqliteBackend) -> None:
    with failing as store:
        leases = [store.acquire(f"s{number}") for number in range(THREADS)]
        interrupted: list[int] = []

        def work(number: int) -> None:
            for seq in range(EACH):
                if seq == number % 7 + 3:
                    fail_at("update pieces", KeyboardInterrupt())
                while True:
                    try:
                        store.append(leases[number], entries(1, first=seq + 1), seq)
                        break
                    except KeyboardInterrupt:
                        interrupted.append(number)

        in_threads(work, 6)
        assert interrupted
        assert not [one for one in store.verify() if isinstance(one, StoreFault)]
        seqs = {one.session: one.seq for one in store.sessions()}
        assert [seqs[f"s{number}"] for number in range(8)] == [EACH] * 6 + [0, 0]


def test_what_a_broken_off_leader_did_for_others_is_done_anew(failing: SqliteBackend) -> None:
    """Jobs that ran in a transaction that was rolled back run again, as if for the first time."""
    with failing as store:
        leases = [store.acquire(f"s{number}") for number in range(THREADS)]

        def work(number: int) -> None:
            for seq in range(EACH):
                if seq % 10 == number % 10:
                    fail_at("commit", KeyboardInterrupt())
                while True:
                    try:
                        store.append(leases[number], [JournalEntry(f"{seq}", 1, b"x" * 3000)], seq)
                        break
                    except KeyboardInterrupt:
                        pass

        in_threads(work, 8)
        assert not [one for one in store.verify() if isinstance(one, StoreFault)]
        for number in range(8):
            assert [one.key for one in store.read(f"s{number}")] == [f"{n}" for n in range(EACH)]


def test_real_interrupts_while_writing(path: Path) -> None:
    """Interrupted wherever it happens to be: every record once, and the lease mostly goes on."""
    command = [sys.executable, "-m", "tests.stores.sqlite.interrupted", str(path), "300"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    caught, opened, seq = map(int, done.stdout.split())
    print(f"{caught} interrupts, {opened} of them cost the lease, {seq} records")  # noqa: T201
    assert opened < caught / 20
    with SqliteBackend(path) as store:
        assert [one.key for one in store.read("s")] == [f"key-{n + 1}" for n in range(seq)]
        assert not [one for one in store.verify() if isinstance(one, StoreFault)]


def test_a_forked_child_leaves_the_store_to_its_parent(path: Path) -> None:
    with SqliteBackend(path) as store:
        lease = store.acquire("s")
        store.append(lease, entries(1), 0)
        assert store.head("s") is not None
        pid = os.fork()
        if not pid:
            os._exit(_use(store, lease))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert store.append(lease, entries(1, first=2), 1).seq == 2
    with SqliteBackend(path) as store:
        assert len(list(store.read("s"))) == 2


def _use(store: SqliteBackend, lease: Lease) -> int:
    """Use what the parent opened; 0 if all of it is refused."""
    for call in (lambda: store.head("s"), lambda: store.append(lease, entries(1), 1)):
        try:
            call()
        except Closed:
            continue
        return 1
    store.release(lease)
    store.close()
    return 0


def test_a_wrong_entry_spoils_nobody(path: Path) -> None:
    with SqliteBackend(path) as store:
        lease = store.acquire("s")
        for wrong in (JournalEntry("k", 1 << 63, b"{}"), JournalEntry("k k", 1, b"{}")):
            with pytest.raises(UsageError):
                store.append(lease, [wrong], 0)
        assert store.append(lease, entries(1), 0).seq == 1


def test_leases_from_before_a_failure_are_not_kept_alive(failing: SqliteBackend) -> None:
    with failing as store:
        lease = store.acquire("s")
        fail_at("commit")
        with pytest.raises(Unsure):
            store.append(lease, entries(1), 0)
        before = deadline_of(store)
        store._beat()  # noqa: SLF001
        assert deadline_of(store) == before
        store.acquire("s")
        store._beat()  # noqa: SLF001
        assert deadline_of(store) > before


def deadline_of(store: SqliteBackend) -> float:
    with closing(connect(f"file:{store.path}?mode=ro")) as connection:
        return connection.execute("select deadline from sessions").fetchone()[0]


def test_a_failed_checkpoint_costs_nothing(
    failing: SqliteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "CHECKPOINT", 1)
    with failing as store:
        lease = store.acquire("s")
        fail_at("pragma wal_checkpoint")
        assert store.append(lease, entries(1), 0).seq == 1
        assert store.append(lease, entries(1, first=2), 1).seq == 2
