from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lockstitch.errors import Closed, Fenced, Held, Unreadable
from lockstitch.stores.base import Lease
from lockstitch.stores.postgres import PostgresBackend
from tests.postgres_server import running
from tests.stores.postgres.making import entries, keys, run

HOLD = """
import sys
from lockstitch.stores.postgres import PostgresBackend
lease = PostgresBackend(sys.argv[1], lease_seconds=float(sys.argv[2])).acquire("s")
print("held", flush=True)
sys.stdin.read()
"""


def holding(dsn: str, seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, dsn, str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_two_backends_race_for_a_session_and_no_epoch_is_given_twice(dsn: str) -> None:
    with PostgresBackend(dsn) as one, PostgresBackend(dsn) as two:
        taken: list[int] = []

        def take(backend: PostgresBackend) -> None:
            for _ in range(20):
                lease = backend.acquire("s", wait=60)
                taken.append(lease.epoch)
                backend.append(lease, entries(f"k{lease.epoch}"), lease.head.seq)
                backend.release(lease)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(take, [one, two, one, two]))
        assert sorted(taken) == list(range(1, 81))
        assert keys(one, "s") == [f"k{epoch}" for epoch in range(1, 81)]


def test_one_of_many_takes_a_new_session(dsn: str) -> None:
    with PostgresBackend(dsn) as one, PostgresBackend(dsn) as two:
        barrier = threading.Barrier(8)

        def take(number: int) -> Lease | None:
            barrier.wait()
            try:
                return (one, two)[number % 2].acquire("new")
            except Held:
                return None

        with ThreadPoolExecutor(8) as threads:
            got = [lease for lease in threads.map(take, range(8)) if lease]
        assert [lease.epoch for lease in got] == [1]


def test_the_lease_of_a_killed_process_is_taken_over_at_once(
    backend: PostgresBackend, dsn: str
) -> None:
    holder = holding(dsn, 600)
    with pytest.raises(Held, match=f"process {holder.pid} on"):
        backend.acquire("s")
    end(holder)
    assert backend.acquire("s").epoch == 2


def test_the_lease_of_another_machine_of_the_same_name_is_left_alone(
    backend: PostgresBackend, dsn: str
) -> None:
    end(holding(dsn, 600))
    run(
        dsn,
        "UPDATE lockstitch.sessions SET holder = regexp_replace(holder, "
        '\'"boot":"[^"]*"\', \'"boot":"another"\')',
    )
    with pytest.raises(Held):
        backend.acquire("s")


def test_a_stopped_holder_is_taken_over_when_its_time_is_up_and_fenced_when_it_wakes(
    backend: PostgresBackend, dsn: str
) -> None:
    holder = holding(dsn, 0.6)
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        assert backend.acquire("s", wait=60).epoch == 2
    finally:
        os.kill(holder.pid, signal.SIGCONT)
        end(holder)


def test_a_lease_is_kept_alive_without_appends(dsn: str) -> None:
    with PostgresBackend(dsn, lease_seconds=1.5) as one, PostgresBackend(dsn) as two:
        lease = one.acquire("s")
        with pytest.raises(Held):
            two.acquire("s", wait=3)
        one.append(lease, entries("a"), 0)


def test_a_beat_that_finds_the_lease_taken_over_drops_it(dsn: str) -> None:
    with PostgresBackend(dsn, lease_seconds=0.2) as one, PostgresBackend(dsn) as two:
        lease = one.acquire("s")
        run(dsn, "UPDATE lockstitch.sessions SET token = ''")
        taken = two.acquire("s", wait=60)
        assert not two.wait("s", 0, 0.3)
        with pytest.raises(Fenced):
            one.append(lease, entries("a"), 0)
        two.append(taken, entries("b"), 0)
        assert keys(two, "s") == ["b"]


def test_the_connections_of_a_holder_are_cut_and_it_keeps_its_leases(dsn: str) -> None:
    with PostgresBackend(dsn) as one, PostgresBackend(dsn) as two:
        leases = [one.acquire(f"s{number}") for number in range(5)]
        run(
            dsn,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'lockstitch'",
        )
        with pytest.raises(Held):
            two.acquire("s0")
        # What the server closed while nothing was under way is noticed before it is used.
        for lease in leases:
            assert one.append(lease, entries("a"), 0).seq == 1


def test_many_leases_are_kept_alive(dsn: str) -> None:
    with PostgresBackend(dsn, lease_seconds=3) as one, PostgresBackend(dsn) as two:
        for number in range(450):
            one.acquire(f"s{number}")
        assert not two.wait("s1", 0, 4.0)
        for number in (0, 199, 200, 449):
            with pytest.raises(Held):
                two.acquire(f"s{number}")
    with PostgresBackend(dsn) as three:
        assert {listed.holder for listed in three.sessions()} == {""}


def test_a_child_of_a_fork_must_open_its_own(backend: PostgresBackend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, entries("a"), 0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            backend.append(lease, entries("b"), 1)
        except Closed:
            backend.release(lease)
            backend.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    backend.append(lease, entries("b"), 1)
    assert keys(backend, "s") == ["a", "b"]


def test_a_forgotten_store_lets_go_of_everything(dsn: str) -> None:
    def forget() -> None:
        backend = PostgresBackend(dsn, lease_seconds=0.2)
        backend.acquire("s")
        backend.wait("s", 0, 0.01)

    before = threading.active_count()
    forget()
    with PostgresBackend(dsn) as other:
        assert other.acquire("s", wait=60).epoch == 2
    for thread in threading.enumerate():
        if thread.name.startswith("lockstitch"):
            thread.join(10)
    assert threading.active_count() <= before


def test_a_lease_outlives_a_server_that_was_away_until_it_is_given_back() -> None:
    """What could not be sent was not written, so the lease stays the caller's.

    The lease is longer than any start of a server: what ran out meanwhile may be taken.
    """
    with running() as server, PostgresBackend(server.fresh(), lease_seconds=120) as backend:
        lease = backend.acquire("s")
        server.kill()
        with pytest.raises(Unreadable):
            backend.append(lease, entries("a"), 0)
        server.start()
        with pytest.raises(Held):
            backend.acquire("s", wait=0.2)
        assert backend.append(lease, entries("a"), 0).seq == 1
        backend.release(lease)
        assert backend.acquire("s").head.seq == 1
