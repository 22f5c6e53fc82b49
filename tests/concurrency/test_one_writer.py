"""Processes that stop and die in the middle of a turn lose, double and mix nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from .campaign import Plan, campaign
from .places import place


@pytest.mark.parametrize("by", ["backend", "session"])
@pytest.mark.parametrize("store", ["sqlite", "jsonl", "postgres"])
def test_no_turn_is_lost_doubled_or_mixed(tmp_path: Path, store: str, by: str) -> None:
    with place(store, tmp_path) as (url, cut):
        plan = Plan(url, tmp_path, processes=3, turns=2, by=by, lease=0.6, cuts=0.05, cut=cut)
        report = campaign(plan)
    assert report.faults == [], str(report)
    # The first worker always stops for longer than its lease in mid-turn, the second always dies.
    assert report.counts["stopped"] >= 1
    assert report.counts["killed"] >= 1
    assert report.counts["Fenced"] + report.counts["Unsure"] >= 1, str(report)
    assert report.counts["whole turns"] >= 1


def test_turns_on_several_sessions(tmp_path: Path) -> None:
    with place("sqlite", tmp_path) as (url, _):
        plan = Plan(url, tmp_path, processes=3, turns=3, sessions=3, by="session", deaths=0.05)
        report = campaign(plan)
    assert report.faults == [], str(report)
    assert report.counts["killed"] >= 1


@pytest.mark.parametrize("store", ["sqlite", "jsonl", "postgres"])
def test_leases_that_run_out_all_the_time(tmp_path: Path, store: str) -> None:
    """Writers take one another's place while both are well and writing: only epochs keep order."""
    with place(store, tmp_path) as (url, _):
        report = campaign(Plan(url, tmp_path, processes=3, turns=4, lease=0.02))
    assert report.faults == [], str(report)
    assert report.counts["Fenced"] >= 1, str(report)
