"""Ids that are made at collection are found before two workers disagree about them."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import pytest_collection_modifyitems
from tests.naming import RANDOM, is_made_up


@pytest.mark.parametrize(
    "made",
    [
        lambda: str(uuid.uuid4()),
        lambda: f"key-{uuid.uuid4()}-x",
        lambda: uuid.uuid4().hex,
        lambda: repr(object()),
        lambda: "1794783600.25",
        lambda: "1794783600",
        lambda: "1794783600123456789",
        lambda: "2026-11-15T23:00:00",
        lambda: f"{tempfile.gettempdir()}/pytest-1/x",
    ],
    ids=["uuid", "within", "hex", "object", "float", "seconds", "nanoseconds", "date", "folder"],
)
def test_what_differs_from_process_to_process_is_seen(made: object) -> None:
    assert callable(made)
    assert RANDOM.search(f"{made()}-sqlite")


@pytest.mark.parametrize(
    "made", ["words0", "LS101-orphan-call", "2.1.325-01_open_batch", "deadbee"]
)
def test_what_people_write_is_not(made: str) -> None:
    assert not RANDOM.search(made)


@pytest.mark.parametrize("given", ["7b4f0ad0-6c38-4a3e-9a43-6a8c6a5a2f10"])
def test_what_stands_in_the_source_is_fine(given: str, request: pytest.FixtureRequest) -> None:
    assert RANDOM.search(given)
    assert not is_made_up(request.node)


def test_a_test_with_such_an_id_is_refused() -> None:
    item: Any = SimpleNamespace(nodeid=f"test_it.py::test_it[{uuid.uuid4()}]", path=Path(__file__))
    with pytest.raises(pytest.UsageError, match=r"from process to process: test_it\.py::test_it"):
        pytest_collection_modifyitems(SimpleNamespace(), [item])  # type: ignore[arg-type]
