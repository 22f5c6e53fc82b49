"""What is stored grows with what is new, not with what is sent."""

from __future__ import annotations

from pathlib import Path

from tests.recording.sizes import cost_of


def test_a_long_conversation_costs_little_more_than_what_is_new(tmp_path: Path) -> None:
    cost = cost_of(tmp_path, 200, 100)
    assert cost.ratio <= 1.3, cost


def test_each_turn_costs_the_same(tmp_path: Path) -> None:
    costs = []
    for turns in (50, 150, 250):
        folder = tmp_path / str(turns)
        folder.mkdir()
        costs.append(cost_of(folder, turns, 60).stored)
    assert costs[2] - costs[1] <= 1.2 * (costs[1] - costs[0])
