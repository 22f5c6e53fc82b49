from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstitch.integrations.langgraph import Saver
from tests.integrations.langgraph.saver.places import KINDS, Where


@pytest.fixture(params=KINDS)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Where]:
    """A new store of every kind that matters."""
    with Where(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def saver(where: Where) -> Saver:
    return where.open()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def quick(path: Path) -> Iterator[Saver]:
    """A saver on SQLite that mends nothing, for what is the same on every store."""
    with Saver(f"sqlite:///{path}", reconcile=False) as made:
        yield made
