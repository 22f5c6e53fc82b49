from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lockstitch.errors import Busy, Closed
from lockstitch.stores.postgres import PostgresBackend
from lockstitch.stores.postgres.connections import FairSemaphore, Pool, address_of
from tests.stores.postgres.making import entries, keys, run

OPEN = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'lockstitch'
"""


def test_who_comes_first_is_served_first() -> None:
    gate = FairSemaphore(1)
    assert gate.enter(1)
    served: list[int] = []

    def go(number: int) -> None:
        assert gate.enter(60)
        served.append(number)
        gate.leave()

    threads = []
    for number in range(10):
        thread = threading.Thread(target=go, args=(number,))
        thread.start()
        threads.append(thread)
        while len(gate._queue) <= number:  # noqa: SLF001
            pass
    gate.leave()
    for thread in threads:
        thread.join(30)
    assert served == list(range(10))


def test_who_loses_patience_leaves_no_gap() -> None:
    gate = FairSemaphore(2)
    assert gate.enter(1)
    assert gate.enter(1)
    with ThreadPoolExecutor(8) as threads:
        assert not any(threads.map(gate.enter, [0.001] * 50))
    gate.leave()
    gate.leave()
    assert gate.enter(1)
    assert gate.enter(1)
    assert not gate.enter(0)


def test_a_turn_that_comes_at_the_last_moment_is_not_lost() -> None:
    gate = FairSemaphore(1)

    def go(_: int) -> int:
        got = 0
        for _ in range(200):
            if gate.enter(0.0001):
                got += 1
                gate.leave()
        return got

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(go, range(8))) > 0
    assert gate.enter(1)


def test_many_threads_share_few_connections(dsn: str) -> None:
    with PostgresBackend(dsn, connections=2) as backend, ThreadPoolExecutor(16) as threads:

        def write(number: int) -> None:
            lease = backend.acquire(f"s{number}")
            for count in range(5):
                backend.append(lease, entries(f"k{count}"), count)

        list(threads.map(write, range(16)))
        assert run(dsn, OPEN)[0][0] <= 3
        for number in range(16):
            assert keys(backend, f"s{number}") == [f"k{count}" for count in range(5)]


def test_waiting_for_a_connection_has_an_end(dsn: str) -> None:
    connections = Pool(address_of(dsn), 1, timeout=0.05)
    with connections.connection(), pytest.raises(Busy, match="in use"), connections.connection():
        pass
    connections.close()
    with pytest.raises(Closed), connections.connection():
        pass


def test_nothing_is_left_open(dsn: str) -> None:
    with PostgresBackend(dsn) as backend:
        backend.append(backend.acquire("s"), entries("a"), 0)
        backend.wait("s", 1, 0.3)
        assert run(dsn, OPEN)[0][0] > 0
    for _ in range(1000):
        if run(dsn, OPEN) == [(0,)]:
            return
    raise AssertionError


def test_a_failed_transaction_is_not_lent_to_the_next(dsn: str) -> None:
    connections = Pool(address_of(dsn), 1)
    with connections.connection() as first:
        first.execute("BEGIN")
    with connections.connection() as second:
        assert second is not first
    connections.close()


@pytest.mark.parametrize(
    ("dsn", "url"),
    [
        ("postgresql://a:b@h:1/d?sslmode=require", "postgresql://a@h:1/d"),
        ("postgres://h1:1,h2:2/d", "postgresql://h1:1,h2:2/d"),
        ("host=h1,h2 port=7 dbname=d password=x", "postgresql://h1:7,h2:7/d"),
        ("host=/var/run dbname='a b'", "postgresql://%2Fvar%2Frun/a%20b"),
        ("dbname=d", "postgresql:///d"),
    ],
)
def test_addresses_are_shown_without_secrets(dsn: str, url: str) -> None:
    address = address_of(dsn)
    assert address.url == url
    assert repr(address) == f"Address({url!r})"
    several = "h1" in dsn
    assert (address.parameters.get("target_session_attrs") == "read-write") == several
