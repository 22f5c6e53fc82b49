"""Random damage to lines of other programs' files: whatever happened, the promises are kept."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from .campaign import Home, Ran, session_of
from .damage import damaged_lines
from .stored import Stored

SEEDS = int(os.environ.get("LOCKSTITCH_FUZZ_EXAMPLES") or 25)
CASES = [
    damaged_lines(seed, form) for seed in range(SEEDS) for form in ("codex", "pi", "gemini-cli")
]


@dataclass(frozen=True, slots=True)
class Life:
    """What the repair reported, what a resume would send, the bytes after each command."""

    home: Home
    check: Ran
    repair: Ran
    problems: dict[str, list[str]]
    marks: dict[str, set[str]]
    first: dict[str, bytes]
    mended: dict[str, bytes]
    again: dict[str, bytes]
    undone: dict[str, bytes]


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    home = Home(tmp_path_factory.mktemp("home"))
    paths = [home.make(str(case), case.path, case.write) for case in CASES]
    first = home.read()
    check = home.each("check", "--json", targets=paths)
    repair = home.each("repair", "--yes", "--json", targets=paths)
    mended = home.read()
    problems = {str(case): case.problems(home.paths[str(case)]) for case in CASES}
    marks = {str(case): case.marks(home.paths[str(case)]) for case in CASES}
    home.each("repair", "--yes", "--json", targets=paths)
    again = home.read()
    home.run(
        "undo", "--yes", *[path for name, path in home.paths.items() if mended[name] != first[name]]
    )
    return Life(home, check, repair, problems, marks, first, mended, again, home.read())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_mended_file_is_valid_and_complete(life: Life, case: Stored) -> None:
    assert life.problems[str(case)] == []
    assert set(case.history) - life.marks[str(case)] == set()
    report = session_of(life.repair, life.home.paths[str(case)])
    assert (report["status"], report["remaining"]) == ("ok", [])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_check_and_repair_find_the_same(life: Life, case: Stored) -> None:
    path = life.home.paths[str(case)]
    assert session_of(life.check, path)["findings"] == session_of(life.repair, path)["findings"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_second_repair_changes_no_byte(life: Life, case: Stored) -> None:
    assert life.again[str(case)] == life.mended[str(case)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_undo_brings_every_byte_back(life: Life, case: Stored) -> None:
    assert life.undone[str(case)] == life.first[str(case)]
