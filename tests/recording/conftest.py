from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstitch.stores.opening import open_backend
from tests.recording.talking import DIALECTS, Heard


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/conversations.db"


@pytest.fixture
def heard(url: str) -> Iterator[Heard]:
    heard = Heard(open_backend(url))
    yield heard
    heard.close()


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)
