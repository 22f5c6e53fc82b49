"""What holds for sessions holds on a real PostgreSQL: the tests of sessions, with that store."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType

import pytest

from lockstitch.session.store import Store
from lockstitch.stores.postgres import PostgresBackend
from tests.postgres_server import shared
from tests.session import test_conversation, test_streaming, test_tools
from tests.session.twins import Twin

KINDS = ("sync", "asyncio")


@pytest.fixture(params=KINDS)
def twin(request: pytest.FixtureRequest) -> Twin:
    """One of the twins; what differs between event loops is tested without a server."""
    return Twin(request.param)


@pytest.fixture
def store() -> Iterator[Store]:
    address = shared().prepared()
    with Store(PostgresBackend(address)) as store:
        yield store
    shared().recycle(address)


def _tests() -> Iterator[tuple[str, FunctionType]]:
    for module in (test_conversation, test_tools, test_streaming):
        for name, value in vars(module).items():
            if name.startswith("test_") and "store" in value.__annotations__:
                yield name, value


globals().update(_tests())
