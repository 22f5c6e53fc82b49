"""Some mutants of every format, always the same ones, and planted bugs that must be found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from . import campaign
from .__main__ import main
from .campaign import Task
from .faults import FAULTS
from .mutants import made
from .seeds import FORMATS, is_base, seeds

SEED = "slice"


@pytest.mark.parametrize("form", FORMATS)
def test_every_promise_holds_for_mutants(form: str) -> None:
    outcome = campaign.tried(Task(form, 40 if is_base(form) else 80, SEED, jobs=1))
    found = [
        f"{sign}: {numbers}\n{why.detail}" for sign, (why, numbers) in outcome.failures.items()
    ]
    assert not found, "\n".join(found)
    assert outcome.tried == len(outcome.task.numbers)


@pytest.mark.parametrize("form", FORMATS)
def test_a_mutant_is_made_again_from_its_number(form: str) -> None:
    assert [made(form, SEED, number) for number in range(9)] == [
        made(form, SEED, number) for number in range(9)
    ]
    assert len({made(form, SEED, number).data for number in range(30)}) > 9


FOUND = {
    "raise": "exception in repair",
    "quote": "repair prints what was said",
    "lose": "undo is not exact",
    "spoil": "more findings",
    "again": "left is other than told",
    "stray": "other files changed",
    "outside": "repair reached outside",
    "hang": "too slow",
    "grow": "too much memory",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_bug_is_found(fault: str) -> None:
    mutants = 2 if fault in ("hang", "grow") else 12
    outcome = campaign.tried(Task("codex", mutants, SEED, jobs=1, seconds=1, fault=fault))
    assert outcome.tried == mutants
    assert any(sign.startswith(FOUND[fault]) for sign in outcome.failures), outcome.failures


def test_a_failing_mutant_is_kept_and_made_smaller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--format", "codex", "--mutants", "4", "--seed", "slice", "--fault", "raise"]
    status = main([*words, "--jobs", "1", "--keep", str(tmp_path)])
    said = capsys.readouterr().out
    assert status == 1
    assert "exception in repair: IndexError" in said
    assert "python -m tests.fuzz --format codex --seed slice --only " in said
    [home] = (tmp_path / "codex").iterdir()
    assert "Traceback" in (home / "failure.txt").read_text()
    [small] = home.glob("smaller.*")
    number = int(said.partition("--only ")[2].split()[0])
    assert len(small.read_bytes()) < len(made("codex", "slice", number).data) / 4


def test_what_does_not_fail_exits_with_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--format", "requests", "--mutants", "3", "--seed", "slice"]) == 0
    assert "3 mutants      0 failed" in capsys.readouterr().out


def test_a_process_that_cannot_begin_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign.sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="ended before its first mutant"):
        campaign.tried(Task("requests", 3, SEED, jobs=1))


def test_real_files_can_be_the_seeds(tmp_path: Path) -> None:
    chosen = seeds("codex")[0]
    (tmp_path / "real.jsonl").write_bytes(chosen.data)
    (tmp_path / "other.txt").write_text("no session")
    (tmp_path / "list.json").write_text(json.dumps([{"role": "user", "content": "Hi."}]))
    assert [seed.data for seed in seeds("codex", str(tmp_path))] == [chosen.data]
    outcome = campaign.tried(Task("codex", 4, SEED, jobs=1, folder=str(tmp_path)))
    assert (outcome.tried, outcome.failed) == (4, 0)
