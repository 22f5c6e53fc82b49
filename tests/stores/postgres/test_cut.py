from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from lockstitch.errors import Unsure
from lockstitch.journal.records import Head
from lockstitch.stores.base import Lease
from lockstitch.stores.postgres import PostgresBackend, connections
from tests.stores.postgres.making import entries, faults, keys, run
from tests.stores.postgres.proxy import Proxy, proxied

CUT_OTHERS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%append%'
    AND application_name = 'lockstitch'
"""

END_ALL = """
SELECT pg_terminate_backend(pid, 600000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.fixture
def wire(dsn: str) -> Iterator[Proxy]:
    with proxied(int(conninfo_to_dict(dsn)["port"])) as proxy:
        yield proxy


def through(wire: Proxy, dsn: str) -> PostgresBackend:
    place = conninfo_to_dict(dsn)
    return PostgresBackend(
        f"postgresql://postgres@127.0.0.1:{wire.port}/{place['dbname']}?sslmode=disable"
    )


def sent_until_known(backend: PostgresBackend, lease: Lease, key: str, after: int) -> Lease:
    """Add one event as a careful writer does: an unknown outcome is looked up, then sent again."""
    while True:
        try:
            backend.append(lease, entries(key), after)
        except Unsure:
            with pytest.raises(Unsure):
                backend.append(lease, entries("never"), after)
        else:
            return lease
        lease = taken_again(backend, lease.session)
        assert lease.head.seq in {after, after + 1}
        if lease.head.seq == after + 1:
            return lease


def taken_again(backend: PostgresBackend, session: str) -> Lease:
    while True:
        with suppress(Unsure):
            return backend.acquire(session)


def test_an_append_cut_at_any_byte_is_there_once_or_known_to_be_unsure(
    wire: Proxy, dsn: str
) -> None:
    with through(wire, dsn) as backend:
        lease = backend.acquire("s")
        backend.append(lease, entries("warm"), 0)
        wire.allow(None, None)
        backend.append(lease, entries("k-0000"), 1)
        request, answer = wire.sent, wire.received
        places = [(at, None) for at in [*range(0, request, 31), request - 1]]
        places += [(None, at) for at in range(answer)]
        for number, place in enumerate(places, start=1):
            wire.allow(*place)
            lease = sent_until_known(backend, lease, f"k-{number:04}", number + 1)
            assert wire.cuts == 1, place
        assert keys(backend, "s") == [
            "warm",
            *[f"k-{number:04}" for number in range(len(places) + 1)],
        ]
        assert len(places) > 100
        assert faults(backend) == []


def test_an_answer_without_its_end_is_no_answer(wire: Proxy, dsn: str) -> None:
    # The server tells the rows before it commits, and that it has committed behind them.
    with through(wire, dsn) as backend:
        lease = backend.acquire("s")
        wire.allow(None, None)
        backend.append(lease, entries("a"), 0)
        wire.allow(None, wire.received - 6)
        with pytest.raises(Unsure):
            backend.append(lease, entries("b"), 1)


def test_one_cut_connection_leaves_all_other_leases_as_they_are(wire: Proxy, dsn: str) -> None:
    with through(wire, dsn) as backend:
        cut, *others = [backend.acquire(f"s{number}") for number in range(5)]
        wire.allow(0, None)
        with pytest.raises(Unsure):
            backend.append(cut, entries("a"), 0)
        for lease in others:
            assert backend.append(lease, entries("a"), 0).seq == 1
        with pytest.raises(Unsure):
            backend.append(cut, entries("a"), 0)
        assert backend.append(backend.acquire("s0"), entries("a"), 0).seq == 1


def test_an_unsure_lease_is_no_obstacle_to_others_once_given_back(wire: Proxy, dsn: str) -> None:
    with through(wire, dsn) as backend, PostgresBackend(dsn) as other:
        lease = backend.acquire("s")
        wire.allow(0, None)
        with pytest.raises(Unsure):
            backend.append(lease, entries("a"), 0)
        backend.release(lease)
        assert other.acquire("s").head == Head(0, lease.head.digest, 2)


def test_reading_goes_on_over_a_new_connection(wire: Proxy, dsn: str) -> None:
    with through(wire, dsn) as backend:
        lease = backend.acquire("s")
        backend.append(lease, entries("a", "b"), 0)
        for received in range(0, 300, 7):
            wire.allow(None, received)
            assert keys(backend, "s") == ["a", "b"]


def test_when_one_connection_is_lost_the_others_are_not_trusted(
    dsn: str, backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that ends them all may do so before the sign of it has come for each."""
    lease = backend.acquire("s")
    backend.append(lease, entries("a"), 0)
    for call in (lambda: keys(backend, "s"), lambda: backend.acquire("t")):
        with ExitStack() as lent:
            for _ in range(6):
                lent.enter_context(backend._pool.connection())  # noqa: SLF001
        run(dsn, END_ALL)
        monkeypatch.setattr(connections, "_is_usable", lambda _connection: True)
        call()
        monkeypatch.undo()


def test_taking_a_lease_goes_on_over_a_new_connection(wire: Proxy, dsn: str) -> None:
    with through(wire, dsn) as backend:
        for received in range(0, 120, 7):
            wire.allow(None, received)
            lease = backend.acquire("s")
            backend.append(lease, entries(f"k{received}"), lease.head.seq)
            wire.allow(None, received)
            backend.release(lease)
        epochs = [record.epoch for record in backend.read("s")]
        assert epochs == sorted(set(epochs))
        assert len(epochs) == 18


def test_forking_goes_on_over_a_new_connection(wire: Proxy, dsn: str) -> None:
    with through(wire, dsn) as backend:
        lease = backend.acquire("s")
        backend.append(lease, entries("a", "b"), 0)
        for received in range(0, 120, 13):
            wire.allow(None, received)
            assert backend.fork("s", 2, f"f{received}").seq == 2
            assert keys(backend, f"f{received}") == ["a", "b"]


def test_an_append_broken_off_by_a_signal_is_unsure(dsn: str, backend: PostgresBackend) -> None:
    def broken_off(*_: object) -> None:
        raise KeyboardInterrupt

    lease = backend.acquire("s")
    before = signal.signal(signal.SIGUSR1, broken_off)
    try:
        with psycopg.connect(dsn) as other:
            other.execute("SELECT FROM lockstitch.sessions FOR UPDATE")
            signaller = threading.Thread(target=signal_when_waiting, args=(dsn,))
            signaller.start()
            with pytest.raises(KeyboardInterrupt):
                backend.append(lease, entries("a"), 0)
            signaller.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(Unsure):
        backend.append(lease, entries("a"), 0)
    again = backend.acquire("s")
    assert backend.append(again, entries("a"), again.head.seq).seq == 1


def signal_when_waiting(dsn: str) -> None:
    for _ in range(2000):
        if run(dsn, "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            return
        time.sleep(0.005)


def test_servers_processes_are_ended_under_load(dsn: str) -> None:
    writers, amount = 4, 60
    done = threading.Event()

    def cut() -> int:
        total = 0
        while not done.wait(0.02):
            total += run(dsn, CUT_OTHERS)[0][0]
        return total

    def write(number: int) -> None:
        session = f"s{number}"
        lease = backend.acquire(session)
        for count in range(amount):
            lease = sent_until_known(backend, lease, f"k{count}", count)

    with PostgresBackend(dsn) as backend, ThreadPoolExecutor(writers + 1) as threads:
        cutting = threads.submit(cut)
        try:
            list(threads.map(write, range(writers)))
        finally:
            done.set()
        assert cutting.result() > 0
        for number in range(writers):
            assert keys(backend, f"s{number}") == [f"k{count}" for count in range(amount)]
        assert faults(backend) == []
