from __future__ import annotations

from collections.abc import Iterator

import pytest

from lockstitch.stores.postgres import PostgresBackend
from tests.postgres_server import shared


@pytest.fixture
def dsn() -> str:
    """The address of a new empty database."""
    return shared().fresh()


@pytest.fixture
def backend(dsn: str) -> Iterator[PostgresBackend]:
    with PostgresBackend(dsn) as made:
        yield made
