"""Programs that append while the file is repaired; ``python -m tests.files.soak`` is longer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.files.soak import WAYS, soak

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a way to wait for stdin")


@pytest.mark.parametrize("how", WAYS)
def test_no_line_is_lost(tmp_path: Path, how: str) -> None:
    outcome = soak(tmp_path, how, megabytes=10, repairs=5)
    assert outcome.is_clean, outcome
    assert outcome.carried > 0


def test_no_line_is_lost_however_the_files_are_swapped(tmp_path: Path, swapping: str) -> None:
    outcome = soak(tmp_path, "whole", megabytes=1, repairs=10, writers=2)
    assert outcome.is_clean, (swapping, outcome)


@pytest.mark.usefixtures("without_leases")
def test_no_line_is_lost_where_there_are_no_leases(tmp_path: Path) -> None:
    outcome = soak(tmp_path, "whole", megabytes=1, repairs=10)
    assert outcome.is_clean, outcome
