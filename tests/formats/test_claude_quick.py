"""The quick pass and the slim reading of large files against the careful way."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstitch.formats import records, repair
from lockstitch.formats.claude_code import ClaudeCode
from lockstitch.formats.claude_code.fast import quick
from lockstitch.formats.interface import Context, Transcript
from lockstitch.sources import source

from .claude_cases import CASES, HEALTHY
from .claude_files import Case
from .damage import damaged

FORM = ClaudeCode()
DAMAGED = [damaged(seed, layout) for seed in range(60) for layout in ("linear", "tree")]


def careful(data: bytes) -> Transcript:
    return FORM.parse(records.read_lines(data, FORM.is_record), Context(data, "session.jsonl"))


@pytest.mark.parametrize("case", [*CASES, *DAMAGED], ids=str)
def test_what_the_quick_pass_proves_is_so(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(case.data)
    proven = quick(str(path))
    if proven is None:
        return
    transcript = careful(case.data)
    assert repair.findings_in(FORM, transcript) == []
    assert transcript.left == 0
    found = (transcript.session, len(transcript.history.messages), transcript.turns)
    assert (proven.session, proven.messages, proven.turns) == found


def test_the_quick_pass_proves_most_of_what_is_healthy(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    proven = 0
    for case in HEALTHY:
        path.write_bytes(case.data)
        proven += quick(str(path)) is not None
    assert proven * 3 > len(HEALTHY)


def test_a_line_longer_than_a_chunk(tmp_path: Path) -> None:
    [case] = [case for case in HEALTHY if str(case) == "00_healthy-linear"]
    long = case.data.replace(b'"content":"', b'"content":"' + b"word " * 600_000, 1)
    path = tmp_path / "session.jsonl"
    path.write_bytes(long)
    assert quick(str(path)) is not None


@pytest.mark.parametrize("case", [*CASES, *DAMAGED], ids=str)
def test_a_glance_at_a_large_file_finds_the_same(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(case.data)
    monkeypatch.setattr(source, "_LARGE", 0)
    glanced = source.Source(str(path), "claude-code", "lines").glance().transcript
    full = careful(case.data)
    assert repair.findings_in(FORM, glanced) == repair.findings_in(FORM, full)
    assert (glanced.turns, glanced.left) == (full.turns, full.left)
