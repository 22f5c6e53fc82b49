"""The arithmetic of the capacity model, and what it must not claim."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from capacity_model import Constants, Load, breaks_at, disk, limits, row

FOUND = Constants(
    records_a_turn=10,
    bytes_a_turn=10_000,
    wal_a_turn=9_000,
    bytes_a_session=300,
    hot_a_session=300,
    turns_a_second=100,
    open_ms=5,
    open_growth=1.1,
    sessions_at_open=10_000,
    copy_mb_a_second=100,
    renewals_a_second=10_000,
)
LOAD = Load()
SIZES = [10**power for power in range(3, 9)]


@pytest.mark.parametrize("name", limits(FOUND, LOAD))
def test_it_breaks_where_it_says(name: str) -> None:
    share = limits(FOUND, LOAD)[name]
    place = int(breaks_at(share))
    assert name not in row(int(place * 0.99), FOUND, LOAD).broken
    assert name in row(int(place * 1.01) + 1, FOUND, LOAD).broken


def test_everything_grows_with_the_number_of_sessions() -> None:
    rows = [row(n, FOUND, LOAD) for n in SIZES]
    for before, after in pairwise(rows):
        assert after.disk_gb == pytest.approx(before.disk_gb * 10)
        assert after.partitions >= before.partitions
        assert after.open_ms >= before.open_ms
        assert set(before.broken) <= set(after.broken)
    assert rows[0].broken == []
    assert rows[-1].broken


def test_a_session_costs_its_row_and_its_turns() -> None:
    assert disk(1, FOUND, LOAD) == 300 + LOAD.turns * 10_000
