from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstitch.session.store import Store
from lockstitch.stores.memory import MemoryBackend
from lockstitch.stores.sqlite import SqliteBackend

from .twins import KINDS, Twin


@pytest.fixture(params=KINDS)
def twin(request: pytest.FixtureRequest) -> Twin:
    return Twin(request.param)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(MemoryBackend()) as store:
        yield store


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Store]:
    with Store(SqliteBackend(tmp_path / "agent.db")) as store:
        yield store
