"""Sessions as rows: nothing that was said is missing, twice, or on the wrong line."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lockstitch.formats import repair
from lockstitch.inspector import actions, timeline
from lockstitch.inspector.plans import compare_lines, compare_records
from lockstitch.inspector.timeline import LONGEST, Timeline, shorten_row
from lockstitch.inspector.views import SessionPageCache, find_matches, slice_rows
from lockstitch.sessions import Difference
from lockstitch.sources.source import Source
from tests.formats.claude_cases import CASES
from tests.formats.claude_files import MARK, Case
from tests.inspector import scenes


def made(case: Case) -> tuple[Timeline, Any]:
    source = Source(f"{case.session}.jsonl", "claude-code", "lines")
    transcript = repair.parse_file(source.form, source.kind, source.path, case.data)
    findings = repair.findings_in(source.form, transcript)
    return timeline.transcript_timeline(source.form, transcript, findings), transcript


def marks_in(value: Any) -> list[str]:
    return MARK.findall(json.dumps(value))


def test_what_a_resume_sends_is_on_the_line_and_nothing_else() -> None:
    for case in CASES:
        found, transcript = made(case)
        sent = set(marks_in(transcript.history.messages))
        line = [row for row in found.rows if not row["lane"]]
        assert set(marks_in(line)) == sent, case
        numbers = {number for row in transcript.history.sources for number in row}
        form = Source("x.jsonl", "claude-code", "lines").form
        for aside in form.asides(transcript):
            assert not numbers & {n for row in aside.history.sources for n in row}, case


def test_what_is_left_behind_is_beside_the_line() -> None:
    count = 0
    for case in CASES:
        found, transcript = made(case)
        if transcript.left:
            count += 1
            assert any(one["kind"] == "lost" for one in found.asides), case
        for one in found.asides:
            head = found.rows[one["row"]]
            assert head["role"] == "aside"
            rows = found.rows[one["row"] + 1 : one["row"] + 1 + one["messages"]]
            assert all(row["lane"] == 1 for row in rows)
            assert rows[-1]["is_last"]
    assert count > 5


def test_every_finding_on_a_message_leads_to_its_row() -> None:
    for case in CASES:
        found, transcript = made(case)
        form = Source("x.jsonl", "claude-code", "lines").form
        for finding in repair.findings_in(form, transcript):
            row = found.row_of(finding.place)
            assert row is None or 0 <= row < len(found.rows)
            if finding.code in {"LS101", "LS102"}:
                assert row is not None
                codes = [
                    mark["code"]
                    for part in found.rows[row]["parts"]
                    for mark in part.get("marks", ())
                ]
                assert finding.code in codes, case  # fmt: skip


def test_calls_are_joined_to_their_results() -> None:
    for case in CASES:
        found, _ = made(case)
        for row in found.rows:
            for part in row["parts"]:
                if part["kind"] == "call":
                    assert part["state"] in {"open", "answered", "late"}
                    assert "result" in part
                    pairs = case.pairs
                    for result in marks_in(part["result"]):
                        calls = marks_in(part["arguments"])
                        assert not calls or pairs.get(result, calls[0]) in calls, case


def test_loose_ends_have_names(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "a", "name": "x", "input": {}},
            {"type": "tool_use", "id": "b", "name": "y", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            {"type": "tool_result", "tool_use_id": "zz", "content": "nobody asked"}]},
        {"role": "assistant", "content": "ok"},
    ]  # fmt: skip
    path = tmp_path / "list.json"
    path.write_text(json.dumps(messages))
    [(subject, _)] = actions.scan(str(path))
    rows = actions.read_session(subject).timeline.rows
    states = Counter(part["state"] for row in rows for part in row["parts"] if "state" in part)
    assert states == {"answered": 1, "open": 1, "duplicate": 1, "orphan": 1}


def test_a_rewind_leaves_its_piece_and_a_compaction_its_seam(tmp_path: Path) -> None:
    url = scenes.store(tmp_path / "agent.db", sessions=4)
    subjects = {subject.session: subject for subject, _ in actions.scan(url)}
    rewound = actions.read_session(subjects["ticket-40"]).timeline
    [piece] = rewound.asides
    assert (piece["kind"], piece["turns"]) == ("left", 2)
    assert "Refund the customer." in json.dumps(rewound.rows[piece["row"] + 1])
    assert "Ask the customer first." in json.dumps([r for r in rewound.rows if not r["lane"]])
    shorter = actions.read_session(subjects["ticket-43"]).timeline
    [piece] = shorter.asides
    assert piece["kind"] == "compacted"
    assert shorter.rows[piece["messages"]]["role"] == "seam"
    hidden = [row.get("is_summed_up", False) for row in shorter.rows if row["role"] != "between"]
    assert hidden == sorted(hidden, reverse=True)


def test_long_texts_are_cut_and_given_in_full_when_asked() -> None:
    text = "x" * (LONGEST + 7)
    call = {"kind": "call", "arguments": {"a": text}, "result": {"text": text}}
    row = {"place": "1", "parts": [{"kind": "text", "text": text}, call]}
    cut = shorten_row(row)
    assert [cut["parts"][0]["more"], cut["parts"][1]["more"]] == [7, 7]
    assert cut["parts"][1]["result"]["more"] == 7
    [whole] = slice_rows([row], 0, 1, full=True)
    assert whole["parts"][0]["text"] == text
    assert whole["parts"][1]["arguments"] == [["a", text]]
    assert row["parts"][0]["text"] == text


def test_secrets_are_masked_unless_asked_for(tmp_path: Path) -> None:
    scenes.secret(tmp_path)
    [(subject, _)] = actions.scan(str(tmp_path))
    view = SessionPageCache().read(subject)
    assert scenes.SECRET not in json.dumps(view.rows(reveal=False))
    assert scenes.SECRET in json.dumps(view.rows(reveal=True))
    assert find_matches(view.rows(reveal=False), scenes.SECRET)["count"] == 0
    assert find_matches(view.rows(reveal=True), scenes.SECRET)["count"] == 1


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        (["a", "b", "c"], ["a", "x", "c"], ["same", "changed", "same"]),
        ([], ["a"], ["new"]),
        (["a"], [], ["old"]),
        (["a"], ["a", "b"], ["same", "new"]),
        ([*"abcdefghij", "k"], [*"abcdefghij", "x"], ["fold", "same", "same", "changed"]),
    ],
)
def test_lines_beside_each_other(before: list[str], after: list[str], kinds: list[str]) -> None:
    assert [kind for kind, _, _ in compare_lines(before, after)] == kinds


def test_a_plan_masks_secrets_too() -> None:
    text = json.dumps({"key": f"ANTHROPIC_API_KEY={scenes.SECRET}"})
    one = Difference("3", text, text.replace("key", "other"))
    assert scenes.SECRET not in json.dumps(compare_records([one], reveal=False))
    assert scenes.SECRET in json.dumps(compare_records([one], reveal=True))
