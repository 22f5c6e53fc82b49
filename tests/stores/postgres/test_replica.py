from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import pytest

from lockstitch.errors import UsageError
from lockstitch.stores.postgres import PostgresBackend
from tests.postgres_server import Server, free_port, programs, running, started
from tests.stores.postgres.making import entries, keys, run


@pytest.fixture(scope="module")
def primary() -> Iterator[Server]:
    with running({"fsync": "off"}) as server:
        yield server


@pytest.fixture(scope="module")
def replica(primary: Server) -> Iterator[Server]:
    server = Server({"fsync": "off"})
    try:
        shutil.rmtree(server.folder / "data")
        command = [str(programs() / "pg_basebackup"), "-D", str(server.folder / "data"), "-R"]
        command += [
            "-h",
            "127.0.0.1",
            "-p",
            str(primary.port),
            "-U",
            "postgres",
            "-c",
            "fast",
            "-N",
        ]
        assert started(command, server.folder, server.log).wait(60) == 0
        server.start()
        yield server
    finally:
        server.remove()


def test_nothing_is_written_to_a_replica_nor_decided_by_it(
    primary: Server, replica: Server
) -> None:
    dsn = primary.fresh()
    with PostgresBackend(dsn) as backend:
        backend.append(backend.acquire("s"), entries("a"), 0)
    caught_up = f"SELECT pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '{end_of(primary)}') >= 0"
    while run(replica.dsn, caught_up) != [(True,)]:
        time.sleep(0.01)
    copy = dsn.replace(str(primary.port), str(replica.port))
    with pytest.raises(UsageError, match="replica"):
        PostgresBackend(copy)
    with PostgresBackend(copy, create=False) as reader:
        assert keys(reader, "s") == ["a"]
        with pytest.raises(UsageError, match="name the primary"):
            reader.acquire("s")
        with pytest.raises(UsageError, match="name the primary"):
            reader.fork("s", 1, "t")
        assert not reader.wait("s", 1, 0.1)
        assert len(list(reader.verify())) == 1


def end_of(primary: Server) -> object:
    return primary.execute("SELECT pg_current_wal_flush_lsn()")[0][0]


def test_of_several_hosts_the_primary_is_found(primary: Server, replica: Server) -> None:
    name = primary.fresh().rpartition("/")[2]
    hosts = ",".join(f"127.0.0.1:{port}" for port in (free_port(), replica.port, primary.port))
    with PostgresBackend(f"postgresql://postgres@{hosts}/{name}") as backend:
        backend.append(backend.acquire("s"), entries("a"), 0)
        assert keys(backend, "s") == ["a"]
