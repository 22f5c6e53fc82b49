"""The whole contract again, through a real PgBouncer in transaction mode with three connections."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lockstitch.stores.base import Backend
from lockstitch.stores.postgres import PostgresBackend
from tests.postgres_server import pooled, running, through_pooler
from tests.stores.contract import Place
from tests.stores.postgres.making import entries, keys
from tests.stores.test_contract_append import *  # noqa: F403
from tests.stores.test_contract_closing import *  # noqa: F403
from tests.stores.test_contract_forks import *  # noqa: F403
from tests.stores.test_contract_leases import *  # noqa: F403
from tests.stores.test_contract_reading import *  # noqa: F403


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Place("postgres", tmp_path) as made:
        made.url = through_pooler(made.url)
        yield made


@pytest.fixture
def shared_place(place: Place) -> Place:
    return place


@pytest.fixture
def backend(place: Place) -> Backend:
    return place.open()


def test_more_writers_than_the_pooler_has_connections(place: Place) -> None:
    with PostgresBackend(place.url) as backend, ThreadPoolExecutor(12) as threads:

        def write(number: int) -> None:
            lease = backend.acquire(f"s{number}")
            for count in range(10):
                backend.append(lease, entries(f"k{count}"), count)
            backend.release(lease)

        list(threads.map(write, range(12)))
        for number in range(12):
            assert keys(backend, f"s{number}") == [f"k{count}" for count in range(10)]


def test_a_pooler_that_comes_back_is_used_again() -> None:
    with running({"fsync": "off"}) as server:
        dsn = server.fresh()
        with pooled(server.port) as port:
            address = dsn.replace(f":{server.port}/", f":{port}/")
            with PostgresBackend(address) as backend:
                lease = backend.acquire("s")
                backend.append(lease, entries("a"), 0)
                server.stop()
                server.start()
                again = backend.acquire("t")
                backend.append(again, entries("b"), 0)
                assert keys(backend, "s") == ["a"]
