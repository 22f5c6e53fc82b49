"""Forks that come and go at once, on many connections: nothing is lost, nothing is left over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from lockstitch.errors import LockstitchError
from lockstitch.stores.postgres import PostgresBackend
from tests.stores.postgres.making import entry, faults, keys, run

ROUNDS = 12
LEFT = "SELECT count(*) FROM lockstitch.records"
PARTS = "SELECT count(*) FROM lockstitch.parts"


def filled(backend: PostgresBackend, session: str) -> None:
    lease = backend.acquire(session)
    backend.append(lease, [entry(f"k{n}") for n in range(20)], 0)
    backend.release(lease)


def test_the_last_of_several_that_go_at_once_clears_up(dsn: str) -> None:
    with PostgresBackend(dsn) as one, ThreadPoolExecutor(4) as threads:
        for number in range(ROUNDS):
            source = f"s{number}"
            filled(one, source)
            forks = [f"{source}-{n}" for n in range(4)]
            for n, name in enumerate(forks):
                one.fork(source, 5 * (n + 1), name)
            one.delete(one.acquire(source))
            assert faults(one) == []
            list(threads.map(lambda name: one.delete(one.acquire(name)), forks))
            assert run(dsn, LEFT) == run(dsn, PARTS) == [(0,)]


def test_a_source_that_goes_while_it_is_forked(dsn: str) -> None:
    with PostgresBackend(dsn) as one, ThreadPoolExecutor(4) as threads:
        for number in range(ROUNDS):
            source = f"s{number}"
            filled(one, source)
            going = threads.submit(lambda name=source: one.delete(one.acquire(name)))
            names = [f"{source}-{n}" for n in range(3)]
            forks = [threads.submit(one.fork, source, 15, name) for name in names]
            going.result()
            for name, fork in zip(names, forks, strict=True):
                try:
                    fork.result()
                except LockstitchError:
                    assert one.head(name) is None
                else:
                    assert keys(one, name) == [f"k{n}" for n in range(15)]
                    one.delete(one.acquire(name))
            assert faults(one) == []
        assert run(dsn, LEFT) == run(dsn, PARTS) == [(0,)]


def test_a_writer_is_not_kept_waiting_by_a_fork(dsn: str, backend: PostgresBackend) -> None:
    filled(backend, "s")
    lease = backend.acquire("s")
    backend.fork("s", 20, "t")
    backend.append(lease, [entry("more")], 20)
    backend.fork("t", 7, "u")
    assert keys(backend, "u") == [f"k{n}" for n in range(7)]
    assert run(dsn, LEFT) == [(21,)]
