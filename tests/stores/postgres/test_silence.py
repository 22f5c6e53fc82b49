"""A server that was stopped, as by a frozen machine: nothing waits for it without end."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from lockstitch.errors import LockstitchError, Unreadable, Unsure
from lockstitch.journal.records import NEW
from lockstitch.stores.postgres import PostgresBackend, connections
from lockstitch.stores.postgres.connections import Pool, address_of
from tests.postgres_server import Server, children, running
from tests.stores.postgres.making import entries, faults, keys, run

OURS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'lockstitch'"
SHORT = 0.3


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running({"fsync": "off", "autovacuum": "off"}) as made:
        yield made


@pytest.fixture
def backend(server: Server) -> Iterator[PostgresBackend]:
    # No beat of its heart comes in between.
    with PostgresBackend(server.fresh(), lease_seconds=3600) as made:
        yield made


def stop(pid: int) -> None:
    """Stop a process, and wait until it stands still or is no more."""
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(pid, signal.SIGSTOP)
        stat = Path(f"/proc/{pid}/stat")
        while stat.read_text("utf-8").rpartition(") ")[2][:1] not in {"T", "Z", "X"}:
            time.sleep(0.001)


@contextmanager
def stopped(backend: PostgresBackend, pids: list[int]) -> Iterator[None]:
    """Stop processes of a server, and only meanwhile have little patience with it."""
    pool, patience = backend._pool, backend._pool.timeout  # noqa: SLF001
    try:
        for pid in pids:
            stop(pid)
        pool.timeout = SHORT
        yield
    finally:
        pool.timeout = patience
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def everything(server: Server) -> list[int]:
    """All processes of a server; those that it could start meanwhile cannot be asked for."""
    assert server.process
    stop(server.process.pid)
    return [server.process.pid, *children(server.process.pid)]


def lent(backend: PostgresBackend) -> list[int]:
    """The server's processes behind the connections of a store."""
    return [connection.info.backend_pid for connection, _ in backend._pool._idle]  # noqa: SLF001


def told(call: Callable[[], object]) -> LockstitchError | None:
    """What a call raises; it must come to an end."""
    raised: list[LockstitchError | None] = []

    def make() -> None:
        try:
            call()
        except LockstitchError as error:
            raised.append(error)
        else:
            raised.append(None)

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    thread.join(600)
    assert raised, "it waits without end"
    return raised[0]


def settled(backend: PostgresBackend, session: str, key: str, after: int) -> None:
    """Do what the error says: open the session again, look, and write it if it is not there."""
    lease = backend.acquire(session, wait=600)
    if lease.head.seq == after:
        backend.append(lease, entries(key), after)
    backend.release(lease)


def test_a_stopped_server_holds_nobody_for_ever(server: Server, backend: PostgresBackend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, entries("a"), 0)
    with stopped(backend, everything(server)):
        error = told(lambda: backend.append(lease, entries("b"), 1))
        assert isinstance(error, Unsure)
        assert re.search("no answer for 0.3 seconds.*same key", str(error))
        assert isinstance(told(lambda: backend.append(lease, entries("b"), 1)), Unsure)
        assert isinstance(told(lambda: list(backend.read("s"))), Unreadable)
        assert isinstance(told(lambda: backend.acquire("t")), Unreadable)
        assert told(backend._beat) is None  # noqa: SLF001
        assert told(lambda: backend.release(lease)) is None
    settled(backend, "s", "b", 1)
    assert keys(backend, "s") == ["a", "b"]
    assert faults(backend) == []


def test_a_stopped_server_is_not_opened_for_ever(server: Server, backend: PostgresBackend) -> None:
    dsn = server.address(backend.url.rpartition("/")[2])
    with stopped(backend, everything(server)):
        assert isinstance(told(lambda: PostgresBackend(dsn, timeout=SHORT)), Unreadable)
    PostgresBackend(dsn).close()


def test_one_stopped_connection_is_thrown_away(backend: PostgresBackend) -> None:
    """A new one works at once, while the old one still stands still."""
    lease = backend.acquire("s")
    calls: dict[str, Callable[[], object]] = {
        "append": lambda: backend.append(lease, entries("a"), 0),
        "read": lambda: list(backend.read("s")),
        "acquire": lambda: backend.acquire("t"),
        "add": lambda: backend.add("u", entries("a"), NEW),
        "fork": lambda: backend.fork("s", 0, "f"),
    }
    kinds = {"read": Unreadable}
    for name, call in calls.items():
        [pid] = lent(backend)
        with stopped(backend, [pid]):
            assert type(told(call)) is kinds.get(name, Unsure), name
            assert lent(backend) == []
            backend._pool.timeout = 600  # noqa: SLF001
            assert backend.head("s") is not None
            assert pid not in lent(backend)
    settled(backend, "s", "a", 0)
    assert keys(backend, "s") == ["a"]
    assert keys(backend, "u") in (["a"], [])
    assert faults(backend) == []


def test_a_late_write_of_a_connection_that_was_given_up_counts_for_nothing(
    server: Server, backend: PostgresBackend
) -> None:
    lease = backend.acquire("s")
    [pid] = lent(backend)
    with stopped(backend, [pid]):
        assert isinstance(told(lambda: backend.append(lease, entries("late"), 0)), Unsure)
        backend._pool.timeout = 600  # noqa: SLF001
        again = backend.acquire("s", wait=600)
        backend.append(again, entries("mine"), 0)
    while [pid] in [list(row) for row in run(server.dsn, OURS)]:
        time.sleep(0.001)
    assert keys(backend, "s") == ["mine"]


def test_leases_are_kept_alive_again_when_the_server_is_back(backend: PostgresBackend) -> None:
    lease = backend.acquire("s")
    with stopped(backend, lent(backend)):
        assert told(backend._beat) is None  # noqa: SLF001
    backend._beat()  # noqa: SLF001
    assert backend.append(lease, entries("a"), 0).seq == 1


def test_closing_comes_to_an_end(server: Server) -> None:
    backend = PostgresBackend(server.fresh(), lease_seconds=3600)
    backend.acquire("s")
    backend.wait("s", 1, 0.1)
    with stopped(backend, everything(server)):
        assert told(backend.close) is None


def test_whoever_waits_for_a_connection_is_let_go(server: Server) -> None:
    """Many threads on few connections: none of them waits for all the others in turn."""
    pool = Pool(address_of(server.dsn), 1, timeout=SHORT)
    with pool.connection():
        assert "in use" in str(told(lambda: pool.connection().__enter__()))
    pool.close()


def asking() -> Generator[int, int, str]:
    while (yield 1) != 9:
        pass
    return "done"


def test_silence_is_counted_and_what_comes_ends_it() -> None:
    waiting: Generator[Any, Any, str] = connections._bounded(asking(), 1e-9)  # noqa: SLF001
    assert next(waiting) == 1
    for _ in range(100):
        assert waiting.send(2) == 1
    with pytest.raises(connections.Silent):
        waiting.send(0)
    answered = connections._bounded(asking(), 1e-9)  # noqa: SLF001
    next(answered)
    with pytest.raises(StopIteration) as ended:
        answered.send(9)
    assert ended.value.value == "done"
