from __future__ import annotations

from collections.abc import Iterator

import pytest

from lockstitch.stores.postgres import PostgresBackend
from tests.postgres_server import shared


@pytest.fixture
def dsn() -> Iterator[str]:
    """The address of an empty store."""
    address = shared().prepared()
    yield address
    shared().recycle(address)


@pytest.fixture
def backend(dsn: str) -> Iterator[PostgresBackend]:
    with PostgresBackend(dsn) as made:
        yield made
