from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from lockstitch.errors import Closed
from lockstitch.stores.postgres import PostgresBackend, connections
from tests.postgres_server import through_pooler
from tests.stores.postgres.making import entries, run

FOLLOWED = "SELECT told > beats FROM lockstitch.sessions WHERE session = 's'"
ALL_FOLLOWED = "SELECT bool_and(told > beats) FROM lockstitch.sessions"
LISTENING = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"


def until(dsn: str, statement: str, wanted: object) -> None:
    for _ in range(2000):
        if run(dsn, statement) == [(wanted,)]:
            return
        time.sleep(0.005)
    raise AssertionError(statement)


def followed(backend: PostgresBackend, dsn: str) -> None:
    """Wait for what does not come, until the server knows of it."""
    while run(dsn, FOLLOWED) != [(True,)]:
        assert not backend.wait("s", 99, 0.1)


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a notification wakes who waits; what is seen without one is seen too late."""
    monkeypatch.setattr("lockstitch.stores.postgres.LISTENING", 3600.0)


@pytest.mark.usefixtures("no_polling")
def test_a_notification_wakes_who_waits(dsn: str) -> None:
    with PostgresBackend(dsn) as writer, PostgresBackend(dsn) as reader:
        lease = writer.acquire("s")
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(reader.wait, "s", 0, 60)
            until(dsn, FOLLOWED, wanted=True)
            writer.append(lease, entries("a"), 0)
            assert waiting.result(30)


@pytest.mark.usefixtures("no_polling")
def test_no_record_falls_between_looking_and_waiting(dsn: str) -> None:
    amount = 150
    with PostgresBackend(dsn) as writer, PostgresBackend(dsn) as reader:
        lease = writer.acquire("s")

        def follow() -> int:
            seen = 0
            while seen < amount and reader.wait("s", seen, 60):
                head = reader.head("s")
                assert head
                seen = head.seq
            return seen

        with ThreadPoolExecutor(1) as thread:
            following = thread.submit(follow)
            for number in range(amount):
                writer.append(lease, entries(f"k{number}"), number)
            assert following.result(60) == amount


@pytest.mark.usefixtures("no_polling")
def test_many_wait_on_one_connection(dsn: str) -> None:
    with PostgresBackend(dsn) as writer, PostgresBackend(dsn) as reader:
        leases = [writer.acquire(f"s{number}") for number in range(10)]
        with ThreadPoolExecutor(20) as threads:
            waiting = [threads.submit(reader.wait, f"s{n % 10}", 0, 60) for n in range(20)]
            until(dsn, ALL_FOLLOWED, wanted=True)
            assert run(dsn, LISTENING) == [(1,)]
            for lease in leases:
                writer.append(lease, entries("a"), 0)
            assert all(one.result(30) for one in waiting)


def test_a_cut_line_is_made_anew(dsn: str) -> None:
    with PostgresBackend(dsn) as writer, PostgresBackend(dsn) as reader:
        lease = writer.acquire("s")
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(reader.wait, "s", 0, 60)
            until(dsn, FOLLOWED, wanted=True)
            run(
                dsn,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'",
            )
            until(dsn, LISTENING, wanted=0)
            writer.append(lease, entries("a"), 0)
            assert waiting.result(30)
            waiting = thread.submit(reader.wait, "s", 1, 60)
            until(dsn, LISTENING, wanted=1)
            writer.append(lease, entries("b"), 1)
            assert waiting.result(30)


def test_nobody_is_notified_of_what_nobody_follows(dsn: str, backend: PostgresBackend) -> None:
    lease = backend.acquire("s")
    with psycopg.connect(dsn, autocommit=True) as line:
        line.execute("LISTEN lockstitch")
        backend.append(lease, entries("a"), 0)
        followed(backend, dsn)
        backend.append(lease, entries("b"), 1)
        told = [one.payload for one in line.notifies(timeout=30, stop_after=1)]
    assert told == ["s 2"]


def test_through_a_pooler_one_looks_again_and_again(dsn: str) -> None:
    with PostgresBackend(through_pooler(dsn)) as backend:
        lease = backend.acquire("s")
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(backend.wait, "s", 0, 60)
            time.sleep(0.2)
            assert run(dsn, LISTENING) == [(0,)]
            backend.append(lease, entries("a"), 0)
            assert waiting.result(30)


def test_who_may_not_write_can_follow(dsn: str, backend: PostgresBackend) -> None:
    lease = backend.acquire("s")
    run(dsn, "CREATE ROLE follower LOGIN")
    run(dsn, "GRANT USAGE ON SCHEMA lockstitch TO follower")
    run(dsn, "GRANT SELECT ON ALL TABLES IN SCHEMA lockstitch TO follower")
    address = dsn.replace("postgres@", "follower@")
    with PostgresBackend(address, create=False) as reader, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(reader.wait, "s", 0, 60)
        backend.append(lease, entries("a"), 0)
        assert waiting.result(30)
    run(dsn, "DROP OWNED BY follower")
    run(dsn, "DROP ROLE follower")


def test_who_waits_is_told_when_the_store_is_closed(dsn: str) -> None:
    backend = PostgresBackend(dsn)
    backend.release(backend.acquire("s"))
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(backend.wait, "s", 0, 60)
        until(dsn, FOLLOWED, wanted=True)
        backend.close()
        with pytest.raises(Closed):
            waiting.result(30)
    assert not [one for one in threading.enumerate() if one.name == "lockstitch-news"]


def test_a_session_that_is_not_there_yet_can_be_waited_for(
    dsn: str, backend: PostgresBackend
) -> None:
    with PostgresBackend(dsn) as reader, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(reader.wait, "s", 0, 60)
        backend.append(backend.acquire("s"), entries("a"), 0)
        assert waiting.result(30)


def test_waiting_again_and_again_does_not_write_again_and_again(
    dsn: str, backend: PostgresBackend
) -> None:
    backend.acquire("s")
    followed(backend, dsn)
    first = run(dsn, "SELECT told FROM lockstitch.sessions")
    for _ in range(5):
        assert not backend.wait("s", 99, 0.01)
    assert run(dsn, "SELECT told FROM lockstitch.sessions") == first
    assert connections.FOLLOWED > 1
