"""The measure itself, on a made-up folder and with a client of a few lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.formats.claude_cases import CASES
from tests.oracles import problems

from .clients import Sender, Session, still_true
from .evidence import BESIDE, CLEARED, COMMANDS, COMPACTED, reasons, records, spoken
from .sent import CALL, RESULT, TEXT, Difference, Piece, difference, of_entry, of_request
from .table import document, text
from .trial import Trial, ask, tried
from .verdict import HARMFUL, HARMLESS, TRUE, UNSURE, Sent, changed, is_right, unchanged, worst

BY_NAME = {str(case): case for case in CASES}
BAD = "Invalid"


class Simple(Sender):
    """Sends the way from the newest record to the root, and nothing beside it."""

    name = "simple"
    program = "claude-code"

    def send(self, session: Session) -> Sent:
        by_id = {r["uuid"]: r for _, r in records(session.data) if "uuid" in r}
        record = list(by_id.values())[-1]
        chain: list[dict[str, Any]] = []
        while record is not None and record not in chain:
            chain.append(record)
            record = by_id.get(record.get("parentUuid"))
        said = [r["message"] for r in reversed(chain) if r.get("message")]
        messages: list[dict[str, Any]] = []
        for message in said:
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if messages and messages[-1]["role"] == message["role"]:
                messages[-1]["content"] += blocks
            else:
                messages.append({"role": message["role"], "content": [*blocks]})
        pieces = tuple(piece for message in messages for piece in of_entry(message))
        messages.append({"role": "user", "content": "go on"})
        return Sent(pieces, tuple(problems("anthropic", messages)))


def made(folder: Path, names: Sequence[str], truths: dict[str, str] | None = None) -> list[Trial]:
    folder.mkdir()
    for name in names:
        (folder / f"{name}.jsonl").write_bytes(BY_NAME[name].data)
    if truths:
        (folder / "truth.json").write_text(json.dumps(truths), "utf-8")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    trials = tried([folder], folder.parent / "scratch")
    ask(trials, [Simple()], workers=2)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    return trials


def test_a_folder_is_measured(tmp_path: Path) -> None:
    names = ("00_healthy-linear", "02_open_call_in_middle-linear", "11_dangling_parent-linear")
    trials = made(tmp_path / "in", names, {"00_healthy-linear.jsonl": "healthy"})
    by_name = {trial.path.stem: trial for trial in trials}
    healthy, opened, dangling = (by_name[name] for name in names)
    assert (healthy.verdict, healthy.is_changed, healthy.truth) == (HARMLESS, False, "healthy")
    assert (opened.verdict, opened.is_changed) == (TRUE, True)
    assert opened.sent["simple"][0].refused
    assert dangling.verdict == TRUE
    assert dangling.verdicts["simple"].changes.more
    said = text(trials)
    assert "3 files, 3 resumed by a real client, 2 flagged" in said
    assert "true     11_dangling_parent-linear.jsonl" in said
    written = document(trials)
    assert {file["class"] for file in written["files"]} == {TRUE, HARMLESS}
    (errors,) = (
        row for row in written["precision"] if (row["code"], row["severity"]) == ("*", "error")
    )
    assert errors["precision"] == 1.0


def test_what_a_healthy_session_is_told_is_wrong(tmp_path: Path) -> None:
    name = "02_open_call_in_middle-linear"
    (trial,) = made(tmp_path / "in", [name], {f"{name}.jsonl": "healthy"})
    assert trial.verdict == HARMFUL
    assert not trial.is_right("error")
    assert "Healthy sessions that are flagged or changed: 1" in text([trial])


def test_known_damage_that_is_called_clean_is_listed(tmp_path: Path) -> None:
    name = "00_healthy-linear"
    (trial,) = made(tmp_path / "in", [name], {f"{name}.jsonl": "a second window"})
    assert "Damage that is known and was not found: 1" in text([trial])


def test_no_word_of_a_session_is_shown(tmp_path: Path) -> None:
    trials = made(tmp_path / "in", ["11_dangling_parent-linear", "07_two_of_three-linear"])
    assert "MARK-" not in text(trials)
    assert "MARK-" not in json.dumps(document(trials))


def piece(text: str, kind: str = TEXT, role: str = "user") -> Piece:
    return Piece(role, kind, text)


ONE, TWO, THREE = (piece(each) for each in ("one", "two", "three"))


def test_requests_are_compared_by_what_they_say() -> None:
    assert not difference([ONE, TWO], [ONE, TWO])
    assert difference([ONE, TWO], [ONE, TWO, THREE]) == Difference(more=(THREE,))
    assert difference([ONE, TWO], [ONE]) == Difference(less=(TWO,))
    assert difference([ONE, TWO], [ONE, ONE, TWO]) == Difference(repeated=(ONE,))
    assert difference([ONE, TWO], [TWO, ONE]) == Difference(is_moved=True)


def test_what_two_lines_say_may_be_sent_twice() -> None:
    assert difference([ONE], [ONE, ONE], {ONE: 2}) == Difference(more=(ONE,))
    assert difference([ONE], [ONE, ONE], {ONE: 1}) == Difference(repeated=(ONE,))


def test_a_note_of_the_client_may_come_and_go() -> None:
    assert not difference([ONE, TWO], [ONE, THREE], {ONE: 1})
    lost = piece(json.dumps(["id", "name", {}]), CALL)
    assert difference([lost], [], {}) == Difference(less=(lost,))


def test_a_record_that_stands_on_several_lines_says_something_too() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": "all\nof the output"}
    record = {"type": "user", "message": {"role": "user", "content": [result]}}
    said = piece(json.dumps(["a", "all\nof the output"]), RESULT)
    assert spoken(json.dumps(record).encode(), [said, ONE]) == {said: 1, ONE: 0}
    assert spoken(json.dumps(record, indent=2).encode(), [said, ONE]) == {said: 1, ONE: 0}


@pytest.mark.parametrize(
    "filler",
    [
        piece("[Request interrupted by user]"),
        piece("No response requested.", role="assistant"),
        piece(json.dumps(["id", "[Tool result missing due to internal error]"]), RESULT),
        piece(" \n"),
        piece("thoughts", "thinking", "assistant"),
    ],
)
def test_what_fills_a_gap_is_not_content(filler: Piece) -> None:
    assert not difference([ONE, filler], [ONE])
    assert not difference([ONE], [filler, ONE])


def test_pieces_of_both_apis() -> None:
    reminder = "<system-reminder>\nthe date\n</system-reminder>"
    typed = "<system-reminder>\nThe user sent a new message: hurry\n</system-reminder>"
    body = {
        "messages": [
            {"role": "user", "content": f"{reminder}in /scr/x/work"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "a", "name": "Bash", "input": {"b": 1}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": f"out\n{typed}"},
                    {"type": "text", "text": "go on"},
                ],
            },
        ]
    }
    said = of_request(body, "go on", "/scr/x")
    assert [each.kind for each in said] == [TEXT, CALL, RESULT, TEXT]
    assert said[0].text == "in /scratch/work"
    assert said[2].text == json.dumps(["a", "out"])
    assert "hurry" in said[3].text
    body = {
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "a", "name": "sh", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "out"},
        ]
    }
    assert [each.kind for each in of_request(body, "go on")] == [TEXT, CALL, RESULT]


TAKEN, REFUSED, SILENT = Sent((ONE,)), Sent((ONE,), (BAD,)), Sent(failed="sends nothing")


@pytest.mark.parametrize(
    ("before", "after", "changes", "why", "name"),
    [
        (TAKEN, TAKEN, Difference(), {}, HARMLESS),
        (TAKEN, TAKEN, Difference(more=(ONE,)), {}, TRUE),
        (TAKEN, TAKEN, Difference(more=(ONE,), less=(TWO,)), {}, HARMFUL),
        (TAKEN, TAKEN, Difference(repeated=(ONE,)), {}, HARMFUL),
        (TAKEN, TAKEN, Difference(is_moved=True), {}, UNSURE),
        (TAKEN, TAKEN, Difference(more=(ONE,)), {CLEARED: [1]}, HARMFUL),
        (TAKEN, TAKEN, Difference(more=(ONE,)), {COMPACTED: [1]}, HARMFUL),
        (TAKEN, TAKEN, Difference(more=(ONE,)), {COMMANDS: [1]}, HARMFUL),
        (TAKEN, TAKEN, Difference(more=(ONE,)), {BESIDE: [1]}, UNSURE),
        (TAKEN, REFUSED, Difference(), {}, HARMFUL),
        (TAKEN, SILENT, Difference(), {}, HARMFUL),
        (REFUSED, TAKEN, Difference(), {}, TRUE),
        (SILENT, TAKEN, Difference(), {}, TRUE),
        (REFUSED, REFUSED, Difference(), {}, HARMLESS),
        (SILENT, SILENT, Difference(), {}, UNSURE),
    ],
)
def test_classes(
    before: Sent, after: Sent, changes: Difference, why: dict[str, list[int]], name: str
) -> None:
    assert changed(before, after, changes, why).name == name


def test_a_session_that_is_left_as_it_is() -> None:
    assert unchanged(TAKEN).name == HARMLESS
    assert unchanged(REFUSED).name == TRUE


def test_harm_with_one_client_is_harm_and_use_with_one_is_use() -> None:
    assert worst([TRUE, HARMFUL, HARMLESS]) == HARMFUL
    assert worst([HARMLESS, TRUE]) == TRUE
    assert worst([]) == HARMLESS
    assert is_right("error", TRUE)
    assert not is_right("warning", HARMLESS)
    assert is_right("note", HARMLESS)


def test_what_a_session_has_outlived_is_no_reason_to_refuse_it() -> None:
    answer = {"role": "assistant", "content": "yes"}
    body = {"messages": [{"role": "user", "content": "\0"}, answer, answer]}
    assert still_true(["messages.0.content: NUL"], body) == []
    assert still_true(["messages.2.content: NUL"], body) == ["messages.2.content: NUL"]
    open_call = ["messages.0: a call without a result"]
    assert still_true(open_call, body) == open_call


def line(number: int, parent: int | None, text: str, **more: Any) -> bytes:
    record = {
        "type": "user",
        "uuid": str(number),
        "parentUuid": None if parent is None else str(parent),
        "message": {"role": "user", "content": text},
        **more,
    }
    return json.dumps(record).encode()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([line(1, None, "one"), line(2, None, "Implement the following plan: x")], CLEARED),
        ([line(1, None, "one"), line(2, None, "x", planContent="x")], CLEARED),
        (
            [
                line(1, None, "one"),
                json.dumps({"attachment": {"hookName": "SessionStart:clear"}}).encode(),
                line(2, None, "x"),
            ],
            CLEARED,
        ),
        (
            [
                line(1, None, "one"),
                json.dumps({"type": "system", "subtype": "compact_boundary"}).encode(),
                line(2, None, "x"),
            ],
            COMPACTED,
        ),
        ([line(0, None, "zero"), line(1, 0, "one"), line(2, 0, "two")], BESIDE),
        ([line(1, None, "one"), line(2, None, "two")], BESIDE),
        ([line(1, None, "one"), line(2, 1, "two")], None),
    ],
)
def test_the_file_itself_says_what_was_left_out_on_purpose(
    lines: list[bytes], expected: str | None
) -> None:
    found = reasons(b"\n".join(lines), [piece("zero"), TWO], [ONE])
    assert set(found) == ({expected} if expected else set())


def test_a_command_of_the_client_is_nothing_for_the_model() -> None:
    command = piece("<command-name>/exit</command-name>")
    assert set(reasons(b"", [], [command])) == {COMMANDS}
    assert reasons(b"", [], [command, ONE]) == {}
