from __future__ import annotations

from collections.abc import Iterator

import pytest

from lockstitch.compaction import running
from lockstitch.session.store import Store
from lockstitch.stores.memory import MemoryBackend
from tests.session.twins import KINDS, Twin


@pytest.fixture(params=KINDS)
def twin(request: pytest.FixtureRequest) -> Twin:
    return Twin(request.param)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(MemoryBackend()) as store:
        yield store


@pytest.fixture(autouse=True)
def _nobody_failed_before() -> None:
    """Other tests use the same functions, and a function that failed is left alone."""
    running.forget()
