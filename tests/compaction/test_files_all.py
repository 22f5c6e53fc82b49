"""Every kind of session file that the tests know, compacted as far as it goes.

``LOCKSTITCH_FILES=all`` takes all of them; without it a third is tried.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lockstitch import sessions
from lockstitch.errors import Unmet, Unreadable
from lockstitch.files import backup
from lockstitch.journal.projection import SUMMARY
from lockstitch.sources.source import HEALTHY
from tests.formats.claude_cases import CASES as CLAUDE
from tests.formats.claude_files import Case
from tests.formats.codex_files import CASES as CODEX
from tests.formats.stored import Stored, marks_in

SHARES = (0.9, 0.6, 0.35)
NOTES = "Notes of a conversation about settings, builds and tests, which went well so far."


def rotated(cases: list[Any]) -> list[tuple[Any, float]]:
    """Cases with one of the shares each: all shares are tried, and time is saved."""
    step = 1 if os.environ.get("LOCKSTITCH_FILES") == "all" else 3
    return [(case, SHARES[n % len(SHARES)]) for n, case in enumerate(cases[::step])]


@pytest.mark.parametrize(("case", "share"), rotated(CLAUDE), ids=str)
def test_claude_code(case: Case, share: float, tmp_path: Path) -> None:
    path = tmp_path / f"{case.session}.jsonl"
    path.write_bytes(case.data)
    for name, data in case.side.items():
        beside = tmp_path / name
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(data)
    go_through(path, share)


@pytest.mark.parametrize(("case", "share"), rotated(CODEX), ids=str)
def test_codex(case: Stored, share: float, tmp_path: Path) -> None:
    path = tmp_path / Path(case.path).name
    case.write(path)
    go_through(path, share)


def go_through(path: Path, share: float) -> None:
    """Compact to a share of what there is: a sound, smaller session, or the same as before."""
    before = path.read_bytes()
    try:
        [source] = sessions.sources(str(path))
        whole = sessions.condensed(sessions.opened(source))
    except Unreadable:
        return
    tokens = whole.left.done.before.tokens
    healed = whole.draft.repaired.after.history.messages
    try:
        done = sessions.compact(source, lambda _: NOTES, budget=max(int(tokens * share), 1))
    except Unmet:
        assert path.read_bytes() == before
        return
    require_sound(source, healed, is_smaller=done.done.after.tokens < tokens)
    backup.undo_backup(path)
    assert path.read_bytes() == before


def require_sound(source: sessions.Source, healed: list[Any], *, is_smaller: bool) -> None:
    assert is_smaller
    report = sessions.check(source)
    assert report.status in HEALTHY, (report.error, report.findings)
    sent = sessions.opened(source).transcript.history.messages
    at = next(n for n, message in enumerate(sent) if SUMMARY in json.dumps(message))
    whole = list(marks_in(healed))
    kept = list(marks_in(sent[at + 1 :]))
    rest = iter(whole)
    assert all(mark in rest for mark in kept), "in the same order"
    assert not kept or kept[-1] == whole[-1]
