"""A database of its own for every test, on the one server of the test process."""

from __future__ import annotations

import pytest

from tests.postgres_server import shared


@pytest.fixture
def dsn() -> str:
    """The address of an empty database."""
    return shared().fresh()
