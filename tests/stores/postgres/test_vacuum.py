"""The server clears away what was removed, if the role may ask for it."""

from __future__ import annotations

import pytest

from lockstitch.errors import Closed, UsageError
from lockstitch.stores.postgres import PostgresBackend
from tests.postgres_server import shared, through_pooler
from tests.stores.postgres.making import entries, entry, faults, keys, run


def test_room_at_the_end_is_given_back(backend: PostgresBackend) -> None:
    kept = backend.acquire("kept")
    backend.append(kept, entries("a"), 0)
    lease = backend.acquire("s")
    for number in range(20):
        # What cannot be compressed takes its room.
        noise = shared().execute(
            "SELECT string_agg(sha512(random()::text::bytea), '') FROM generate_series(1, 2000)"
        )
        value = bytes(noise[0][0])  # type: ignore[call-overload]
        backend.append(lease, [entry(f"k{number}", value)], number)
    backend.delete(lease)
    freed = backend.vacuum()
    print(freed)  # noqa: T201
    assert freed > 1_000_000
    assert backend.vacuum() >= 0
    assert backend.append(kept, entries("b"), 1).seq == 2
    assert keys(backend, "kept") == ["a", "b"]
    assert faults(backend) == []


def test_through_a_pooler(dsn: str) -> None:
    with PostgresBackend(through_pooler(dsn)) as backend:
        backend.append(backend.acquire("s"), entries("a"), 0)
        assert backend.vacuum() >= 0


def test_a_role_that_only_writes_is_told_so(dsn: str) -> None:
    role = f"writer_{dsn.rpartition('/')[2]}"
    run(dsn, f"CREATE ROLE {role} LOGIN")
    try:
        run(dsn, f"GRANT USAGE ON SCHEMA lockstitch TO {role}")
        run(dsn, f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA lockstitch TO {role}")
        with PostgresBackend(dsn.replace("postgres@", f"{role}@")) as other:
            other.append(other.acquire("s"), entries("a"), 0)
            with pytest.raises(UsageError, match="only the owner"):
                other.vacuum()
    finally:
        run(dsn, f"DROP OWNED BY {role}")
        run(dsn, f"DROP ROLE {role}")


def test_a_closed_store_is_not_touched(dsn: str) -> None:
    backend = PostgresBackend(dsn)
    backend.close()
    with pytest.raises(Closed):
        backend.vacuum()
