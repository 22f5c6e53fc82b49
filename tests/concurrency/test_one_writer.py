"""Processes that stop and die in the middle of a turn lose, double and mix nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .campaign import Plan, Report, campaign
from .places import place

# A slow machine may keep processes from meeting: then they get another chance.
CHANCES = 20


def met(folder: Path, store: str, *wanted: tuple[str, ...], cut: bool = False, **plan: Any) -> None:
    """Run campaigns until one met with one of each kind that is wanted; none may have a fault."""
    for seed in range(1, CHANCES + 1):
        report = _report(folder / f"{seed}", store, cut=cut, seed=seed, **plan)
        assert report.faults == [], str(report)
        if all(any(report.counts[name] for name in names) for names in wanted):
            return
    raise AssertionError(f"{wanted} never happened: {report}")


def _report(folder: Path, store: str, *, cut: bool, **plan: Any) -> Report:
    folder.mkdir()
    with place(store, folder) as (url, cutting):
        return campaign(Plan(url, folder, processes=3, cut=cutting if cut else None, **plan))


@pytest.mark.parametrize("by", ["backend", "session"])
@pytest.mark.parametrize("store", ["sqlite", "jsonl", "postgres"])
def test_no_turn_is_lost_doubled_or_mixed(tmp_path: Path, store: str, by: str) -> None:
    """The first worker always stops for longer than its lease in mid-turn, the second dies."""
    wanted = [("stopped",), ("killed",), ("Fenced", "Unsure"), ("whole turns",)]
    met(tmp_path, store, *wanted, cut=True, turns=2, by=by, lease=0.6, cuts=0.05)


def test_turns_on_several_sessions(tmp_path: Path) -> None:
    met(tmp_path, "sqlite", ("killed",), turns=3, sessions=3, by="session", deaths=0.05)


@pytest.mark.parametrize("store", ["sqlite", "jsonl", "postgres"])
def test_leases_that_run_out_all_the_time(tmp_path: Path, store: str) -> None:
    """Writers take one another's place while both are well and writing: only epochs keep order."""
    met(tmp_path, store, ("Fenced",), turns=4, lease=0.02)
