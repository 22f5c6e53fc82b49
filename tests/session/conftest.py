from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstitch.session.store import Store
from lockstitch.stores.memory import MemoryBackend
from lockstitch.stores.opening import open_backend

from .twins import KINDS, Twin


@pytest.fixture(params=KINDS)
def twin(request: pytest.FixtureRequest) -> Twin:
    return Twin(request.param)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(MemoryBackend()) as store:
        yield store


@pytest.fixture(params=["sqlite", "jsonl"])
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    with Store(open_backend(f"{request.param}:///{tmp_path}/agent")) as store:
        yield store
