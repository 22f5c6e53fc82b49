"""A repair that would take most of a session away is refused, whatever the rules say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lockstitch.formats import interface, repair
from lockstitch.formats.claude_code import ClaudeCode
from lockstitch.formats.interface import Context, Transcript, new_finding
from lockstitch.formats.plain import PlainList
from lockstitch.formats.records import Record
from lockstitch.formats.repair import RepairOptions
from lockstitch.repair.draft import Ledger
from lockstitch.rules import RULES
from tests.sessions import claude

from .surgery import joined, read

WORDS = [
    {"role": role, "content": f"{number} {role} said this, that and the other."}
    for number in range(8)
    for role in ("user", "assistant")
]


class Greedy(PlainList):
    """A list of which the repair takes lines away for no good reason, and says nothing of it."""

    def __init__(self, kept: int) -> None:
        self.kept = kept

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        transcript = super().parse(records, context)
        if len(transcript.history.messages) > self.kept:
            transcript.findings = [new_finding("LS610", "1", "is not to the taste of this rule")]
        return transcript

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        if len(transcript.records) > self.kept:
            ledger.note(RULES["LS610"], "removed", "1", "was taken out")
        return list(transcript.records[: self.kept])


@pytest.mark.parametrize("kept", [0, 1, 6])
def test_most_of_a_session_is_not_taken(kept: int) -> None:
    form = Greedy(kept)
    data = joined(*WORDS)
    done = repair.plan_repair(form, read(form, data), RepairOptions())
    assert not done.changed
    assert repair.file_bytes(done.after) == data
    assert (done.remaining, done.changes, done.quarantine) == (done.findings, [], [])
    [why] = done.before.notes
    assert "nothing was changed" in why
    assert "said this" not in why


@pytest.mark.parametrize(
    "options", [RepairOptions(strategy="rollback"), RepairOptions(force_cleanup=True)]
)
def test_a_person_may_ask_for_it(options: RepairOptions) -> None:
    form = Greedy(2)
    assert repair.plan_repair(form, read(form, joined(*WORDS)), options).changed


def test_less_than_half_may_go() -> None:
    form = Greedy(10)
    done = repair.plan_repair(form, read(form, joined(*WORDS)), RepairOptions())
    assert done.changed
    assert done.before.notes == []


@pytest.mark.parametrize("copies", [2, 5])
def test_a_file_that_was_written_again_and_again_counts_once(copies: int) -> None:
    form = ClaudeCode()
    data = claude.healthy().encode()
    done = repair.plan_repair(form, read(form, data * copies), RepairOptions())
    assert done.changed
    assert repair.file_bytes(done.after) == data


def test_records_that_no_resume_sends_count_too() -> None:
    """Another program's file, read by force as one whose messages it does not have."""
    lines = []
    for number in range(1, 9):
        value = json.loads(claude.line(number, number - 1 or None, "user", "x"))
        lines.append({**value, "message": {"role": "user", "parts": [{"text": "Words."}]}})
    form = ClaudeCode()
    done = repair.plan_repair(form, read(form, joined(*lines)), RepairOptions())
    assert not done.changed
    assert "records" in done.before.notes[-1]


def test_the_command_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lockstitch import cli

    monkeypatch.setitem(interface._loaded, "list", Greedy(0))  # noqa: SLF001 - a rule gone wrong
    path = tmp_path / "x.jsonl"
    data = joined(*WORDS)
    path.write_bytes(data)
    assert cli.run(["repair", "--yes", "--format", "list", str(path)]) == 1
    assert path.read_bytes() == data
    assert "nothing was changed" in capsys.readouterr().err
    assert cli.run(["repair", "--yes", "--json", "--format", "list", str(path)]) == 1
    report: dict[str, Any] = json.loads(capsys.readouterr().out)["sessions"][0]
    assert "nothing was changed" in report["notes"][0]
    assert report["edits"] == []
