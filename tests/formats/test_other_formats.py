"""Sessions of other programs through the command: checked, repaired, again, undone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from . import codex_files, databases, gemini_files, pi_files, plain_files
from .campaign import Home, Ran, quarantined, session_of
from .stored import MARK, Stored

CASES = [
    *codex_files.CASES,
    *pi_files.CASES,
    *gemini_files.CASES,
    *plain_files.CASES,
    *databases.CASES,
]
HEALTHY = [case for case in CASES if case.healthy]
BROKEN = [case for case in CASES if not case.healthy]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_oracle_sees_what_is_broken_and_nothing_else(tmp_path: Path, case: Stored) -> None:
    path = tmp_path / "session"
    case.write(path)
    marks = case.marks(path)
    if case.healthy:
        assert case.problems(path) == []
        assert set(case.history) <= marks
        assert not set(case.aside) & marks
    else:
        assert case.problems(path) or set(case.history) - marks


@dataclass(frozen=True, slots=True)
class Life:
    """What the commands reported, and the state after each of them that writes."""

    home: Home
    first: dict[str, Any]
    mended: dict[str, Any]
    marks: dict[str, set[str]]
    problems: dict[str, list[str]]
    again: dict[str, Any]
    undone: dict[str, Any]
    runs: dict[str, Ran]
    kept: dict[str, str]

    def report(self, run: str, case: Stored) -> dict[str, Any]:
        return session_of(self.runs[run], self.home.paths[str(case)])


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    home = Home(tmp_path_factory.mktemp("home"))
    for case in CASES:
        home.make(str(case), case.path, case.write)
    broken = [home.paths[str(case)] for case in BROKEN]
    healthy = [home.paths[str(case)] for case in HEALTHY]
    first = _states(home)
    runs = {
        "check": home.each("check", "--json", targets=broken),
        "diff": home.run("repair", "--notes", "--diff", *broken),
        "healthy": home.each("repair", "--yes", "--json", targets=healthy),
        "repair": home.each("repair", "--notes", "--yes", "--json", targets=broken),
    }
    mended = _states(home)
    marks = {str(case): case.marks(home.paths[str(case)]) for case in CASES}
    problems = {str(case): case.problems(home.paths[str(case)]) for case in CASES}
    runs["second check"] = home.each("check", "--json", targets=broken)
    runs["second repair"] = home.each("repair", "--yes", "--json", targets=broken)
    again = _states(home)
    runs["undo"] = home.run("undo", "--yes", *broken)
    kept = {str(case): quarantined(runs["repair"], home.paths[str(case)]) for case in BROKEN}
    return Life(home, first, mended, marks, problems, again, _states(home), runs, kept)


def _states(home: Home) -> dict[str, Any]:
    return {str(case): case.state(home.paths[str(case)]) for case in CASES}


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_damage_is_found(life: Life, case: Stored) -> None:
    report = life.report("check", case)
    assert report["status"] == ("notes" if case.name == "no_final_newline" else "broken")
    assert report["format"] == case.format
    assert report["findings"]
    if case.session:
        assert report["session"] == case.session


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_check_and_repair_find_the_same(life: Life, case: Stored) -> None:
    assert life.report("check", case)["findings"] == life.report("repair", case)["findings"]


def test_findings_do_not_show_what_was_said(life: Life) -> None:
    assert life.runs["check"].status == 1
    assert not MARK.search(life.runs["check"].out.decode() + life.runs["check"].err)


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_the_mended_session_is_valid(life: Life, case: Stored) -> None:
    assert life.problems[str(case)] == []


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_nothing_is_lost(life: Life, case: Stored) -> None:
    sent = life.marks[str(case)]
    assert set(case.history) - sent == set()
    kept = life.kept[str(case)]
    assert {mark for mark in case.spare if mark not in sent and mark not in kept} == set()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_was_left_behind_on_purpose_stays_there(life: Life, case: Stored) -> None:
    assert not set(case.aside) & life.marks[str(case)]


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_a_second_check_is_clean(life: Life, case: Stored) -> None:
    report = life.report("second check", case)
    assert (report["status"], report["findings"]) == ("ok", [])
    assert life.report("repair", case)["remaining"] == []


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_a_second_repair_changes_nothing(life: Life, case: Stored) -> None:
    assert life.again[str(case)] == life.mended[str(case)]


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_undo_brings_everything_back(life: Life, case: Stored) -> None:
    assert life.undone[str(case)] == life.first[str(case)]


@pytest.mark.parametrize("case", HEALTHY, ids=str)
def test_a_healthy_session_is_left_alone(life: Life, case: Stored) -> None:
    report = life.report("healthy", case)
    assert (report["status"], report["findings"]) == ("ok", [])
    assert life.mended[str(case)] == life.first[str(case)]


@pytest.mark.parametrize("run", ["healthy", "repair", "second check", "second repair", "undo"])
def test_the_exit_status_is_zero(life: Life, run: str) -> None:
    assert life.runs[run].status == 0, life.runs[run].err


@pytest.mark.parametrize("run", ["check", "diff", "healthy", "second check", "second repair"])
def test_what_need_not_write_does_not_write(life: Life, run: str) -> None:
    assert life.runs[run].changed == ()


@pytest.mark.parametrize("form", ["codex", "pi", "gemini-cli"])
def test_a_missing_last_line_break_is_a_note_and_nothing_is_changed(
    tmp_path: Path, form: str
) -> None:
    case = next(case for case in HEALTHY if case.format == form)
    home = Home(tmp_path)
    path = home.make("it", case.path, case.write)
    data = path.read_bytes()
    path.write_bytes(data.removesuffix(b"\n"))
    check = home.run("check", "--json", path)
    assert (check.status, session_of(check, path)["status"]) == (0, "notes")
    assert home.run("repair", "--yes", path).changed == ()
    assert home.run("repair", "--yes", "--notes", path).status == 0
    assert path.read_bytes() == data
