from __future__ import annotations

import json
from typing import Any

import pytest

from .surgery import joined, mend
from .test_codex import ASK, FORM, NAME, OTHER, OWN, TURN, line, rollout, said, sent

NEEDED = ("id", "timestamp", "cwd", "originator", "cli_version")


def payload_of(done: Any) -> dict[str, Any]:
    """The head that a repair wrote."""
    assert done.values[0]["type"] == "session_meta"
    found: dict[str, Any] = done.values[0]["payload"]
    assert all(type(found[key]) is str for key in NEEDED)
    return found


def test_a_lost_head_is_written_anew_from_the_name_and_the_lines() -> None:
    turn = line("turn_context", 1, cwd="/home/ada/project", model="gpt-5.5")
    lines = rollout(turn, *TURN)
    done = mend(FORM, joined(*lines[1:]), name=NAME)
    assert (done.codes, done.remaining) == (["LS610"], [])
    assert done.severities["LS610"] == "error"
    payload = payload_of(done)
    assert payload["id"] == payload["session_id"] == OWN
    assert payload["cwd"] == "/home/ada/project"
    assert "history_mode" not in payload
    assert "model_provider" not in payload
    assert done.values[1:] == lines[1:]
    assert mend(FORM, done.data, name=NAME).data == done.data


def test_its_time_is_that_of_the_id() -> None:
    done = mend(FORM, joined(*rollout(*TURN)[1:]), name=NAME)
    assert payload_of(done)["timestamp"] == "2026-06-25T18:17:07.840Z"


def test_its_folder_may_stand_in_what_the_model_was_told() -> None:
    told = said("user", "<environment_context>\n  <cwd>/home/ada</cwd>\n</environment_context>")
    done = mend(FORM, joined(*rollout(told, *TURN)[1:]), name=NAME)
    assert payload_of(done)["cwd"] == "/home/ada"


def test_a_lost_head_of_a_counted_file_gets_the_number_before() -> None:
    lines = rollout(*TURN, mode="paginated")
    done = mend(FORM, joined(*lines[1:]), name=NAME)
    assert done.remaining == []
    assert payload_of(done)["history_mode"] == "paginated"
    assert [value["ordinal"] for value in done.values] == list(range(5))


@pytest.mark.parametrize("missing", NEEDED)
def test_a_head_that_lacks_a_field_keeps_the_others(missing: str) -> None:
    lines = rollout(*TURN)
    lines[0]["payload"] |= {"model_provider": "custom", "git": {"branch": "main"}}
    del lines[0]["payload"][missing]
    done = mend(FORM, joined(*lines), name=NAME)
    assert (done.codes, done.remaining) == (["LS610"], [])
    assert done.severities["LS610"] == "error"
    payload = payload_of(done)
    assert payload["id"] == OWN
    assert payload.items() >= lines[0]["payload"].items()
    assert done.values[1:] == lines[1:]


def test_what_is_left_of_a_torn_head_is_used() -> None:
    lines = rollout(*TURN)
    lines[0]["payload"] |= {"cwd": '/a "b"', "model_provider": "custom", "base_instructions": "x"}
    head, *rest = joined(*lines).split(b"\n")
    done = mend(FORM, b"\n".join([head[: head.index(b"base_instr")], *rest]), name=NAME)
    assert done.remaining == []
    payload = payload_of(done)
    assert (payload["model_provider"], payload["cwd"]) == ("custom", '/a "b"')
    assert payload["cli_version"] == "0.166.0"


def test_the_head_of_the_session_it_was_forked_from_is_not_taken_for_its_own() -> None:
    lines = rollout(*TURN)
    lines[0]["payload"]["id"] = OTHER
    first = line("response_item", 1, **said("user", "First."))
    done = mend(FORM, joined(first, *lines), name=NAME)
    assert done.remaining == []
    assert payload_of(done)["id"] == OWN
    assert done.values[1:] == [first, *lines]


def test_without_an_id_there_is_no_new_head() -> None:
    data = joined(*rollout(*TURN)[1:])
    done = mend(FORM, data, name="session.jsonl")
    assert (done.codes, done.remaining, done.data) == (["LS610"], ["LS610"], data)
    assert any("contain the id" in message for message in done.messages)


def test_codex_reads_nothing_before_the_head() -> None:
    lines = rollout(*TURN)
    done = mend(FORM, b"null\n" + joined(*lines), name=NAME)
    assert done.codes == ["LS606", "LS610"]
    assert done.severities["LS610"] == "error"
    assert done.data == joined(*lines)


def test_a_head_of_the_first_versions_is_left_alone() -> None:
    head = {"id": OWN, "timestamp": "2025-06-01T10:00:00.000Z", "instructions": None}
    data = joined(head, *TURN)
    assert mend(FORM, data, name=NAME).data == data


def test_a_file_without_its_own_data_is_still_told_as_a_whole() -> None:
    data = joined(*rollout(*TURN, ASK)[1:])
    done = mend(FORM, data, name=NAME)
    assert done.before.session == OWN
    assert sent([json.loads(one) for one in data.splitlines()]) == sent(done.values)
