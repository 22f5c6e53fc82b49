from __future__ import annotations

from lockstitch.stores.postgres import PostgresBackend
from tests.postgres_server import running
from tests.stores.postgres import killing
from tests.stores.postgres.making import entries, keys, run

# The server writes its log by itself only after so long: what did not wait for it is lost.
LAZY = {"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "synchronous_commit": "off"}


def test_a_server_killed_under_load_loses_and_doubles_nothing() -> None:
    blows = [killing.killed, killing.cut, killing.killed, killing.stopped, killing.killed]
    outcome = killing.run(blows, writers=3, pause=0.4)
    assert outcome.acknowledged > 50
    told = killing.Outcome(blows=5, acknowledged=outcome.acknowledged, unknown=outcome.unknown)
    assert outcome == told


def test_a_server_killed_under_changes_is_before_or_behind_each() -> None:
    blows = [killing.killed, killing.cut, killing.killed]
    outcome = killing.run(blows, writers=2, pause=0.3, kind="changer")
    assert outcome.acknowledged > 20
    told = killing.Outcome(blows=3, acknowledged=outcome.acknowledged, unknown=outcome.unknown)
    assert outcome == told


def test_an_append_waits_for_the_disk_whatever_the_default_is() -> None:
    with running(LAZY) as server:
        dsn = server.fresh()
        with PostgresBackend(dsn, lease_seconds=0.5) as backend:
            for _ in range(3):
                lease = backend.acquire("s")
                backend.append(lease, entries(f"k{lease.epoch}"), lease.head.seq)
                backend.release(lease)
            backend.fork("s", 3, "f")
            assert backend.acquire("s").epoch == 4
            run(dsn, "CREATE TABLE forgotten ()")
            server.kill()
        server.start()
        control = run(dsn, "SELECT to_regclass('forgotten')")
        assert control == [(None,)], "the server keeps what it was told not to wait for"
        with PostgresBackend(dsn) as backend:
            assert keys(backend, "s") == keys(backend, "f") == ["k1", "k2", "k3"]
            # An epoch that was given out is not given out again.
            assert backend.acquire("s", wait=60).epoch == 5
