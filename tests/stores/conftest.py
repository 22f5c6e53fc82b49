from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstitch.stores.base import Backend
from tests.stores.contract import KINDS, SHARED, Place


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty store of every kind; opened twice, it is the same store."""
    with Place(request.param, tmp_path) as made:
        yield made


@pytest.fixture(params=SHARED)
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty store of every kind that several processes can use."""
    with Place(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def backend(place: Place) -> Backend:
    return place.open()
