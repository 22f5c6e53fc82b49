"""Random damage to Claude Code files: whatever happened, the repair keeps its promises."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from . import claude_oracle as oracle
from .campaign import Home, Ran, session_of
from .claude_files import LAYOUTS, Case
from .damage import damaged
from .test_claude_repair import put

SEEDS = int(os.environ.get("LOCKSTITCH_FUZZ_EXAMPLES") or 40)
CASES = [damaged(seed, layout) for seed in range(SEEDS) for layout in LAYOUTS]


@dataclass(frozen=True, slots=True)
class Life:
    """What the commands reported, and the bytes after each of them."""

    home: Home
    check: Ran
    repair: Ran
    mended: dict[str, bytes]
    again: dict[str, bytes]
    undone: dict[str, bytes]


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    home = Home(tmp_path_factory.mktemp("home"))
    paths = [put(home, case) for case in CASES]
    check = home.each("check", "--json", targets=paths)
    repair = home.each("repair", "--yes", "--json", targets=paths)
    mended = home.read()
    home.each("repair", "--yes", "--json", targets=paths)
    again = home.read()
    changed = [home.paths[str(case)] for case in CASES if mended[str(case)] != case.data]
    home.run("undo", "--yes", *changed)
    return Life(home, check, repair, mended, again, home.read())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_mended_file_is_valid_and_complete(life: Life, case: Case) -> None:
    data = life.mended[str(case)]
    assert oracle.violations(data) == []
    assert set(case.history) - oracle.marks(data) == set()
    assert not set(case.aside) & oracle.marks(data)
    paired = oracle.pairs(data)
    assert {mark: paired.get(mark) for mark in case.pairs} == dict(case.pairs)
    assert session_of(life.repair, life.home.paths[str(case)])["remaining"] == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_check_and_repair_find_the_same(life: Life, case: Case) -> None:
    path = life.home.paths[str(case)]
    assert session_of(life.check, path)["findings"] == session_of(life.repair, path)["findings"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_second_repair_changes_no_byte(life: Life, case: Case) -> None:
    assert life.again[str(case)] == life.mended[str(case)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_undo_brings_every_byte_back(life: Life, case: Case) -> None:
    assert life.undone[str(case)] == case.data


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_damage_hides_nothing_from_old_clients_that_it_did_not_before(
    life: Life, case: Case
) -> None:
    seen = oracle.marks(case.data, naive=True) & set(case.history)
    assert seen - oracle.marks(life.mended[str(case)], naive=True) == set()
