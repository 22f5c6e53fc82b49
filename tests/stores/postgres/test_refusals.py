from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from lockstitch.errors import Busy, LockstitchError, Unreadable, UsageError
from lockstitch.stores.postgres import PostgresBackend
from tests.postgres_server import Server, free_port, running
from tests.stores.postgres.making import entries, entry, keys, run

SECRET = "hunter2-very-secret"  # noqa: S105
HBA = """
host all postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""


def told(error: BaseException) -> str:
    """Everything that a log of an error may show."""
    return "".join(traceback.format_exception(error)) + repr(error)


@pytest.fixture(scope="module")
def strict() -> Iterator[Server]:
    """A server that asks everybody but its superuser for a password."""
    with running({"fsync": "off"}) as server:
        (server.folder / "data" / "pg_hba.conf").write_text(HBA, "utf-8")
        server.execute("SELECT pg_reload_conf()")
        server.execute(f"CREATE ROLE ada LOGIN PASSWORD '{SECRET}'")
        yield server


@pytest.fixture
def place(strict: Server) -> str:
    return strict.fresh().rpartition("/")[2]


def test_a_wrong_password_says_so_and_not_which(strict: Server, place: str) -> None:
    with pytest.raises(Unreadable, match="password authentication failed") as caught:
        PostgresBackend(strict.address(place, "ada", "wrong-" + SECRET))
    assert SECRET not in told(caught.value)


def test_no_server_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(Unreadable, match="refused") as caught:
        PostgresBackend(f"postgresql://ada:{SECRET}@127.0.0.1:{free_port()}/nowhere")
    assert SECRET not in told(caught.value) + caplog.text


def test_no_database_says_so(strict: Server) -> None:
    with pytest.raises(Unreadable, match="does not exist") as caught:
        PostgresBackend(strict.address("nowhere", "ada", SECRET))
    assert SECRET not in told(caught.value)


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://ada:{SECRET}@host:notaport/x?{SECRET}",
        f"postgresql://ada:{SECRET}@[half/x",
        f"password={SECRET} oops",
        f"postgresql://ada:{SECRET}@host/x?nonsense={SECRET}",
        f"postgresql://ada:{SECRET}%zz@host/x",
    ],
)
def test_what_is_no_address_is_not_repeated(dsn: str) -> None:
    with pytest.raises((UsageError, Unreadable)) as caught:
        PostgresBackend(dsn)
    assert SECRET not in told(caught.value)


def test_the_address_is_shown_without_its_secret(strict: Server, place: str) -> None:
    strict.execute(f"GRANT CREATE ON DATABASE {place} TO ada")
    dsn = strict.address(place, "ada", SECRET) + f"?sslpassword={SECRET}"
    with PostgresBackend(dsn) as backend:
        assert backend.url == f"postgresql://ada@127.0.0.1:{strict.port}/{place}"
        assert SECRET not in repr(vars(backend))
    pairs = f"host=127.0.0.1 port={strict.port} user=ada password={SECRET} dbname={place}"
    with PostgresBackend(pairs) as backend:
        assert backend.url == f"postgresql://ada@127.0.0.1:{strict.port}/{place}"


def test_a_role_without_rights_is_told_which_right_it_lacks(strict: Server, place: str) -> None:
    with pytest.raises(Unreadable, match="privilege") as caught:
        PostgresBackend(strict.address(place, "ada", SECRET))
    assert SECRET not in told(caught.value)
    PostgresBackend(strict.address(place)).close()
    with pytest.raises(Unreadable, match="privilege"):
        PostgresBackend(strict.address(place, "ada", SECRET))


def test_a_role_with_the_least_rights_can_do_everything(strict: Server, place: str) -> None:
    PostgresBackend(strict.address(place)).close()
    strict.execute("GRANT USAGE ON SCHEMA lockstitch TO ada", place)
    strict.execute("GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA lockstitch TO ada", place)
    strict.execute("GRANT UPDATE ON lockstitch.sessions, lockstitch.blobs TO ada", place)
    with PostgresBackend(strict.address(place, "ada", SECRET)) as backend:
        lease = backend.acquire("s")
        backend.append(lease, [*entries("a"), entry("b", b"a large value")], 0)
        backend.fork("s", 1, "t")
        assert not backend.wait("s", 2, 0.05)
        assert keys(backend, "s") == ["a", "b"]
        assert [one.session for one in backend.sessions()] == ["s", "t"]  # type: ignore[union-attr]
        assert len(list(backend.verify())) == 2
        with pytest.raises(Unreadable, match="privilege"):
            backend.delete(lease)
        strict.execute("GRANT DELETE ON ALL TABLES IN SCHEMA lockstitch TO ada", place)
        backend.delete(lease)
        assert keys(backend, "t") == ["a"]


def test_a_role_that_reads_can_read_and_is_refused_the_rest(strict: Server, place: str) -> None:
    with PostgresBackend(strict.address(place)) as owner:
        owner.append(owner.acquire("s"), entries("a"), 0)
    strict.execute("GRANT USAGE ON SCHEMA lockstitch TO ada", place)
    strict.execute("GRANT SELECT ON ALL TABLES IN SCHEMA lockstitch TO ada", place)
    with PostgresBackend(strict.address(place, "ada", SECRET)) as backend:
        assert keys(backend, "s") == ["a"]
        for job in (
            lambda: backend.acquire("s"),
            lambda: backend.acquire("new"),
            lambda: backend.fork("s", 1, "t"),
        ):
            with pytest.raises(Unreadable, match=r"privilege.*nothing was written"):
                job()
        assert [one.epoch for one in backend.sessions()] == [1]


def test_rights_that_are_taken_away_refuse_the_append_and_leave_the_lease(
    strict: Server, place: str
) -> None:
    PostgresBackend(strict.address(place)).close()
    strict.execute("GRANT USAGE ON SCHEMA lockstitch TO ada", place)
    strict.execute("GRANT ALL ON ALL TABLES IN SCHEMA lockstitch TO ada", place)
    with PostgresBackend(strict.address(place, "ada", SECRET)) as backend:
        lease = backend.acquire("s")
        strict.execute("REVOKE INSERT ON lockstitch.records FROM ada", place)
        with pytest.raises(Unreadable, match="nothing was written"):
            backend.append(lease, entries("a"), 0)
        strict.execute("GRANT INSERT ON lockstitch.records TO ada", place)
        assert backend.append(lease, entries("a"), 0).seq == 1


def test_a_read_only_database_is_refused_for_writing(dsn: str) -> None:
    PostgresBackend(dsn).close()
    name = dsn.rpartition("/")[2]
    run(dsn, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(UsageError, match="replica or read-only"):
        PostgresBackend(dsn)
    with PostgresBackend(dsn, create=False) as backend:
        assert list(backend.sessions()) == []
        with pytest.raises(UsageError, match="name the primary"):
            backend.acquire("s")


def test_a_database_that_becomes_read_only_refuses_and_goes_on_later(
    dsn: str, backend: PostgresBackend
) -> None:
    lease = backend.acquire("s")
    server, _, name = dsn.rpartition("/")
    read_only = f"ALTER DATABASE {name} SET default_transaction_read_only = "
    run(f"{server}/postgres", read_only + "on")
    end_connections(dsn)
    with pytest.raises(UsageError, match="nothing was written"):
        backend.append(lease, entries("a"), 0)
    run(f"{server}/postgres", read_only + "off")
    end_connections(dsn)
    assert backend.append(lease, entries("a"), 0).seq == 1


def end_connections(dsn: str) -> None:
    server, _, name = dsn.rpartition("/")
    run(
        f"{server}/postgres",
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = %s AND application_name = 'lockstitch'",
        name,
    )


def test_a_dropped_database_says_so(dsn: str) -> None:
    name = dsn.rpartition("/")[2]
    admin = dsn.replace(name, "postgres")
    with PostgresBackend(dsn) as backend:
        lease = backend.acquire("s")
        run(admin, f"DROP DATABASE {name} WITH (FORCE)")
        for job in (
            lambda: backend.append(lease, entries("a"), 0),
            lambda: backend.head("s"),
            lambda: backend.acquire("t"),
        ):
            with pytest.raises(Unreadable, match="does not exist"):
                job()


def test_dropped_tables_say_so(dsn: str, backend: PostgresBackend) -> None:
    lease = backend.acquire("s")
    run(dsn, "DROP SCHEMA lockstitch CASCADE")
    with pytest.raises(Unreadable, match="is gone"):
        backend.append(lease, entries("a"), 0)
    with pytest.raises(Unreadable, match="is gone"):
        backend.head("s")


def test_a_time_limit_of_the_server_writes_nothing_and_leaves_the_lease(
    dsn: str, backend: PostgresBackend
) -> None:
    lease = backend.acquire("s")
    name = dsn.rpartition("/")[2]
    admin = dsn.replace(name, "postgres")
    for setting in ("lock_timeout", "statement_timeout"):
        run(admin, f"ALTER DATABASE {name} SET {setting} = '100ms'")
        end_connections(dsn)
        with locked(dsn), pytest.raises(Busy, match="nothing was written"):
            backend.append(lease, entries("a"), 0)
        run(admin, f"ALTER DATABASE {name} RESET {setting}")
    end_connections(dsn)
    assert backend.append(lease, entries("a"), 0).seq == 1


def test_readers_do_not_wait_for_writers(dsn: str, backend: PostgresBackend) -> None:
    backend.append(backend.acquire("s"), entries("a"), 0)
    with locked(dsn):
        assert keys(backend, "s") == ["a"]
        assert [one.seq for one in backend.sessions()] == [1]


@contextmanager
def locked(dsn: str) -> Iterator[None]:
    """Hold the lock of every session from outside."""
    with psycopg.connect(dsn) as connection:
        connection.execute("SELECT FROM lockstitch.sessions FOR UPDATE")
        yield


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_stricter_default_isolation_changes_nothing(dsn: str, level: str) -> None:
    name = dsn.rpartition("/")[2]
    run(dsn, f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
    with PostgresBackend(dsn) as one, PostgresBackend(dsn) as two:

        def take(backend: PostgresBackend) -> None:
            for _ in range(5):
                lease = backend.acquire("s", wait=60)
                backend.append(lease, entries(f"k{lease.epoch}"), lease.head.seq)
                backend.release(lease)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(take, [one, two, one, two]))
        assert keys(one, "s") == [f"k{number}" for number in range(1, 21)]


def test_too_many_connections_say_so() -> None:
    with running(
        {"max_connections": "5", "fsync": "off", "superuser_reserved_connections": "0"}
    ) as server:
        dsn = server.fresh()
        opened: list[PostgresBackend] = []
        with pytest.raises(LockstitchError, match=r"too many|no connection"):  # noqa: PT012
            for _ in range(8):
                opened.append(PostgresBackend(dsn))  # noqa: PERF401
        for one in opened:
            one.close()
