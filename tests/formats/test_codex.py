from __future__ import annotations

from typing import Any

import pytest

from lockstitch.formats.codex import Codex

from .surgery import Json, joined, mend, read

FORM = Codex()
OWN = "019f0000-0000-7000-8000-000000000001"
OTHER = "019f0000-0000-7000-8000-000000000002"
NAME = f"rollout-2026-09-01T10-00-00-{OWN}.jsonl"


def line(kind: str, count: int, **payload: Any) -> Json:
    return {"timestamp": f"2026-09-01T10:00:{count:02d}.000Z", "type": kind, "payload": payload}


def rollout(*items: Json, mode: str = "legacy") -> list[Json]:
    """A file: the session's own data, then these; items are those without a time."""
    meta = line("session_meta", 0, id=OWN, timestamp="2026-09-01T10:00:00.000Z", cwd="/home/ada")
    meta["payload"] |= {"originator": "codex_cli_rs", "cli_version": "0.166.0"}
    meta["payload"]["history_mode"] = mode
    lines = [meta]
    for count, item in enumerate(items, start=1):
        lines.append(item if "timestamp" in item else line("response_item", count, **item))
    if mode == "paginated":
        lines = [
            {"timestamp": one["timestamp"], "ordinal": number, **one}
            for number, one in enumerate(lines)
        ]
    return lines


def said(role: str, text: str) -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def call(name: str, kind: str = "function_call") -> Json:
    given = {"input": "x"} if kind == "custom_tool_call" else {"arguments": "{}"}
    return {"type": kind, "name": "shell", "call_id": name, **given}


def output(name: str, text: str = "done", kind: str = "function_call_output") -> Json:
    return {"type": kind, "call_id": name, "output": text}


def event(kind: str, count: int = 50, **fields: Any) -> Json:
    return line("event_msg", count, type=kind, **fields)


ASK, REPLY = said("user", "Build it."), said("assistant", "Built.")
TURN = (ASK, call("c1"), output("c1"), REPLY)


def sent(lines: list[Json]) -> list[Any]:
    """What a resume sends, each item by its id, its text or its kind."""
    found = []
    for item in read(FORM, joined(*lines), NAME).history.messages:
        content = item.get("content")
        text = content[0]["text"] if isinstance(content, list) else None
        found.append(item.get("output") or item.get("call_id") or text)
    return found


@pytest.mark.parametrize("mode", ["legacy", "paginated"])
def test_a_healthy_rollout_keeps_every_byte(mode: str) -> None:
    data = joined(*rollout(*TURN, event("token_count", info=None), *TURN[:1], mode=mode))
    done = mend(FORM, data, name=NAME)
    assert (done.codes, done.data) == ([], data)
    assert done.before.session == OWN
    assert done.before.project == "/home/ada"
    assert done.before.turns == 2


def test_it_is_told_by_its_lines() -> None:
    assert FORM.claims("x.jsonl", rollout(*TURN))
    assert FORM.claims(NAME, [{"id": OWN, "timestamp": "2025", "instructions": None}, ASK])
    assert not FORM.claims("x.jsonl", [{"id": OWN, "timestamp": "2025", "instructions": None}])
    assert not FORM.claims("x.jsonl", [{"type": "user", "sessionId": "s"}])


def test_items_are_the_very_objects_of_the_lines() -> None:
    transcript = read(FORM, joined(*rollout(*TURN)), NAME)
    assert transcript.history.messages[1] is transcript.records[2].value["payload"]


def test_items_of_an_unknown_kind_are_kept() -> None:
    odd = {"type": "ghost_snapshot", "ghost_commit": {"id": "x"}}
    data = joined(*rollout(ASK, odd, REPLY))
    done = mend(FORM, data, name=NAME)
    assert (done.codes, done.data) == ([], data)
    assert len(done.before.history.messages) == 3


def test_the_first_versions_had_no_envelope() -> None:
    head = {"id": OWN, "timestamp": "2025-06-01T10:00:00.000Z", "instructions": None}
    data = joined(head, {"record_type": "state"}, *TURN)
    done = mend(FORM, data, name=NAME)
    assert (done.codes, done.data) == ([], data)
    assert len(done.before.history.messages) == 4
    assert done.before.session == OWN
    done = mend(FORM, joined(head, *TURN[:2]), name=NAME)
    assert done.codes == ["LS101"]
    assert done.values[-1]["type"] == "function_call_output"


def test_an_open_call_is_answered_on_the_next_line() -> None:
    lines = rollout(ASK, call("c1"), said("user", "Well?"), REPLY)
    done = mend(FORM, joined(*lines), name=NAME)
    assert (done.codes, done.remaining) == (["LS101"], [])
    assert done.severities["LS101"] == "warning"
    assert done.values[:3] == lines[:3]
    assert done.values[4:] == lines[3:]
    fresh = done.values[3]
    assert fresh["type"] == "response_item"
    assert fresh["timestamp"] == lines[2]["timestamp"]
    assert fresh["payload"]["call_id"] == "c1"
    assert "[lockstitch]" in fresh["payload"]["output"]


def test_untouched_lines_keep_their_bytes() -> None:
    lines = joined(*rollout(ASK, call("c1"), REPLY)).split(b"\n")
    lines[1] = lines[1].replace(b": ", b":  ").replace(b"Build", b"\\u0042uild")
    done = mend(FORM, b"\n".join(lines), name=NAME)
    assert [each for each in lines if each not in done.lines] == []
    assert len(done.lines) == len(lines) + 1


def test_ordinals_go_on_counting_behind_a_new_line() -> None:
    lines = rollout(ASK, call("c1"), REPLY, ASK, mode="paginated")
    done = mend(FORM, joined(*lines), name=NAME)
    assert done.remaining == []
    assert [value["ordinal"] for value in done.values] == list(range(6))
    assert done.values[3]["payload"]["call_id"] == "c1"


@pytest.mark.parametrize(
    "ended",
    [
        event("exec_command_end", call_id="c1", aggregated_output="it works", exit_code=3),
        event(
            "item_completed",
            item={
                "type": "CommandExecution",
                "id": "c1",
                "aggregated_output": "it works",
                "exit_code": 3,
                "status": "failed",
            },
        ),
        event(
            "mcp_tool_call_end", call_id="c1", result={"Ok": {"content": [{"text": "it works"}]}}
        ),
        event("mcp_tool_call_end", call_id="c1", result={"Err": "it works"}),
        event("patch_apply_end", call_id="c1", stdout="it works", stderr="", success=True),
    ],
)
@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("function_call", "function_call_output"),
        ("custom_tool_call", "custom_tool_call_output"),
        ("local_shell_call", "function_call_output"),
    ],
)
def test_the_output_is_taken_from_the_event(ended: Json, kind: str, answer: str) -> None:
    done = mend(FORM, joined(*rollout(ASK, call("c1", kind), ended)), name=NAME)
    assert done.codes == ["LS101", "LS708"]
    assert set(done.severities.values()) == {"error"}
    assert done.remaining == []
    payload = done.values[3]["payload"]
    assert (payload["type"], payload["call_id"]) == (answer, "c1")
    assert "it works" in payload["output"]
    assert "[lockstitch]" not in payload["output"]
    if "exit_code" in str(ended):
        assert payload["output"].startswith("Exit code: 3\n")


def test_a_command_that_still_ran_is_no_evidence() -> None:
    item = {"type": "CommandExecution", "id": "c1", "status": "in_progress"}
    done = mend(FORM, joined(*rollout(ASK, call("c1"), event("item_completed", item=item))))
    assert done.codes == ["LS101"]


def test_a_real_output_replaces_a_placeholder() -> None:
    ended = event("exec_command_end", call_id="c1", formatted_output="as seen by the model")
    done = mend(FORM, joined(*rollout(ASK, call("c1"), output("c1", "aborted"), REPLY, ended)))
    assert (done.codes, done.remaining) == (["LS708"], [])
    assert "as seen by the model" in sent(done.values)
    assert "aborted" not in sent(done.values)


def test_an_orphan_output_stays_as_text() -> None:
    done = mend(FORM, joined(*rollout(ASK, output("gone", "precious"), REPLY)), name=NAME)
    assert (done.codes, done.remaining) == (["LS103"], [])
    assert done.severities["LS103"] == "error"
    assert "precious" in str(done.again.history.messages)
    payload = done.values[2]["payload"]
    assert (payload["type"], payload["role"]) == ("message", "user")
    assert payload["content"][0]["type"] == "input_text"


@pytest.mark.parametrize(
    "item",
    [
        {"type": "message", "role": "user", "content": "precious"},
        {"role": "user", "content": [{"type": "input_text", "text": "precious"}]},
        {"type": "message", "role": "user", "content": [{"type": "text", "text": "precious"}]},
        {"type": "message", "role": "user", "content": ["precious"]},
        {"type": None, "role": "user", "content": "precious"},
    ],
)
def test_words_that_codex_cannot_read_are_spelled_anew(item: Json) -> None:
    done = mend(FORM, joined(*rollout(*TURN, item)), name=NAME)
    assert (done.codes, done.remaining) == (["LS610"], [])
    assert done.severities["LS610"] == "error"
    assert "precious" not in str(done.before.history.messages)
    assert done.values[5]["payload"] == said("user", "precious")
    done = mend(FORM, joined(*rollout(compacted(item), ASK)), name=NAME)
    assert (done.codes, done.remaining) == (["LS610"], [])
    assert sent(done.values) == ["precious", "Build it."]


@pytest.mark.parametrize(
    ("given", "words"),
    [({"content": "precious", "success": True}, "precious"), ({"a": 1}, '{"a":1}'), (None, "")],
)
def test_outputs_that_codex_cannot_read_are_spelled_anew(given: Any, words: str) -> None:
    odd = {**output("c1"), "output": given}
    done = mend(FORM, joined(*rollout(ASK, call("c1"), odd, REPLY)), name=NAME)
    assert done.codes == ["LS101", "LS610"]
    assert done.remaining == []
    assert done.values[3]["payload"] == output("c1", words)


def test_an_output_goes_behind_its_call() -> None:
    lines = rollout(ASK, output("c1"), call("c1"), REPLY)
    done = mend(FORM, joined(*lines), name=NAME)
    assert done.remaining == []
    assert done.severities["LS104"] == "error"
    assert sent(done.values) == ["Build it.", "c1", "done", "Built."]
    assert sorted(done.lines) == sorted(joined(*lines).split(b"\n"))


def test_a_line_that_was_written_twice_goes() -> None:
    lines = rollout(*TURN)
    twice = joined(*lines[:4], lines[2], lines[3], *lines[4:])
    done = mend(FORM, twice, name=NAME)
    assert done.codes.count("LS607") == 2
    assert done.data == joined(*lines)


def test_a_second_call_with_the_id_of_another_is_kept_apart() -> None:
    lines = rollout(*TURN, ASK, call("c1"), output("c1", "second"), REPLY)
    done = mend(FORM, joined(*lines), name=NAME)
    assert done.remaining == []
    assert {"done", "second"} <= set(sent(done.values))


def test_a_local_shell_call_is_answered_as_codex_spells_it() -> None:
    done = mend(FORM, joined(*rollout(ASK, call("c1", "local_shell_call"), REPLY)), name=NAME)
    assert done.remaining == []
    assert done.values[3]["payload"]["type"] == "function_call_output"


def test_arguments_that_are_no_json_are_left_alone() -> None:
    bad = {**call("c1"), "arguments": '{"cmd": '}
    data = joined(*rollout(ASK, bad, output("c1"), REPLY))
    assert mend(FORM, data, name=NAME).data == data


# Compactions and rollbacks.


def compacted(*items: Json) -> Json:
    return line("compacted", 40, message="", replacement_history=list(items))


def test_a_compaction_replaces_what_was_before() -> None:
    lines = rollout(ASK, call("open"), compacted(said("user", "Summary.")), *TURN)
    data = joined(*lines)
    assert sent(lines) == ["Summary.", "Build it.", "c1", "done", "Built."]
    assert mend(FORM, data, name=NAME).data == data


def test_the_newest_compaction_counts() -> None:
    lines = rollout(compacted(said("user", "One.")), ASK, compacted(said("user", "Two.")), REPLY)
    assert sent(lines) == ["Two.", "Built."]


def test_items_inside_of_a_compaction_are_mended_there() -> None:
    inside = compacted(said("user", "Summary."), call("c1"), said("assistant", "Well."))
    lines = rollout(ASK, inside, ASK)
    data = joined(*lines)
    done = mend(FORM, data, name=NAME)
    assert (done.codes, done.remaining) == (["LS101"], [])
    assert len(done.values) == len(lines)
    kept = done.values[2]["payload"]["replacement_history"]
    assert [item.get("call_id") for item in kept] == [None, "c1", "c1", None]
    old = data.split(b"\n")
    assert [n for n, each in enumerate(done.lines) if each != old[n]] == [2]
    assert read(FORM, data).history.paths[1] == [("payload", "replacement_history", 1)]


def test_items_may_leave_and_enter_a_compaction() -> None:
    inside = compacted(said("user", "Summary."), output("c1"), said("assistant", "Well."))
    done = mend(FORM, joined(*rollout(inside, call("c1"), REPLY)), name=NAME)
    assert (done.codes, done.remaining) == (["LS104"], [])
    items = sent(done.values)
    assert sorted(items) == sorted(["Summary.", "c1", "done", "Well.", "Built."])
    assert items.index("c1") < items.index("done")


def test_an_old_compaction_keeps_what_the_user_said() -> None:
    context = said("user", "<environment_context>\n</environment_context>")
    old = line("compacted", 40, message="We built it.")
    lines = rollout(context, *TURN, old, ASK)
    assert sent(lines) == ["Build it.", "We built it.", "Build it."]
    data = joined(*lines)
    assert mend(FORM, data, name=NAME).data == data


def test_an_old_compaction_stays_whatever_is_mended() -> None:
    old = line("compacted", 40, message="")
    lines = rollout(*TURN, old, ASK, call("c2"))
    done = mend(FORM, joined(*lines), name=NAME)
    assert done.values[: len(lines)] == lines
    assert sent(done.values)[1] == "(no summary available)"
    assert done.remaining == []


@pytest.mark.parametrize(
    ("turns", "left"), [(0, 3), (1, 2), (2, 1), (3, 0), (9, 0), (None, 3), (-1, 3)]
)
def test_a_rollback_drops_turns(turns: Any, left: int) -> None:
    back = event("thread_rolled_back", num_turns=turns)
    lines = rollout(*TURN, *TURN, *TURN, back)
    assert read(FORM, joined(*lines)).turns == left


def test_a_rollback_takes_the_context_before_a_turn_with_it() -> None:
    context = said("developer", "<permissions instructions>")
    back = event("thread_rolled_back", num_turns=1)
    lines = rollout(context, *TURN, context, said("user", "No."), back)
    assert sent(lines) == ["<permissions instructions>", "Build it.", "c1", "done", "Built."]
    assert "1 turn" in read(FORM, joined(*lines)).notes[0]


def test_open_calls_of_turns_that_were_taken_back_are_left_alone() -> None:
    back = event("thread_rolled_back", num_turns=1)
    data = joined(*rollout(*TURN, said("user", "No."), call("c9"), back, ASK))
    assert mend(FORM, data, name=NAME).data == data


# The session's own data, and the numbers of the lines.


def test_a_second_meta_hides_what_is_before_it() -> None:
    lines = rollout(*TURN, mode="paginated")
    again = {**lines[0], "ordinal": 5}
    more = rollout(*TURN, mode="paginated")[1:]
    tail = [{**each, "ordinal": n, "timestamp": "t"} for n, each in enumerate(more, start=6)]
    done = mend(FORM, joined(*lines, again, *tail), name=NAME)
    assert "LS704" in done.codes
    assert any("session_meta hides" in message for message in done.messages)
    assert (done.before.turns, done.before.left) == (1, 1)
    assert (done.again.turns, done.again.left) == (2, 0)
    assert done.remaining == []
    assert OWN in done.quarantine
    assert [value["ordinal"] for value in done.values] == list(range(9))


def test_in_an_older_file_it_is_harmless() -> None:
    lines = rollout(*TURN)
    data = joined(*lines, lines[0], *rollout(ASK)[1:])
    done = mend(FORM, data.replace(b"10:00:01", b"10:00:09", 1), name=NAME)
    assert done.codes == []


def test_the_meta_of_another_session_is_not_taken_out() -> None:
    lines = rollout(*TURN, mode="paginated")
    other = {**lines[0], "ordinal": 5, "payload": {**lines[0]["payload"], "id": OTHER}}
    data = joined(*lines, other)
    done = mend(FORM, data, name=NAME)
    assert (done.codes, done.remaining, done.data) == (["LS704"], ["LS704"], data)


def test_the_own_data_are_moved_to_the_front() -> None:
    lines = rollout(*TURN)
    done = mend(FORM, joined(lines[1], lines[0], *lines[2:]), name=NAME)
    assert (done.codes, done.remaining) == (["LS610"], [])
    assert done.values == lines


def test_a_byte_order_mark_goes() -> None:
    data = joined(*rollout(*TURN))
    done = mend(FORM, b"\xef\xbb\xbf" + data, name=NAME)
    assert (done.codes, done.data) == (["LS604"], data)
    assert done.severities["LS604"] == "error"


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        (lambda lines: [each.pop("ordinal") for each in lines], "error"),
        (lambda lines: lines[-1].pop("ordinal"), "error"),
        (lambda lines: lines[2].update(ordinal=1), "warning"),
        (lambda lines: lines[2].update(ordinal=None), "warning"),
        (lambda lines: [lines[n].update(ordinal=n + 3) for n in (3, 4)], "warning"),
    ],
)
def test_lines_are_numbered_anew(change: Any, severity: str) -> None:
    lines = rollout(*TURN, mode="paginated")
    change(lines)
    done = mend(FORM, joined(*lines), name=NAME)
    assert (done.codes, done.remaining) == (["LS610"], [])
    assert done.severities["LS610"] == severity
    assert [value["ordinal"] for value in done.values] == list(range(5))


def test_a_fork_counts_from_where_it_began() -> None:
    lines = rollout(*TURN, mode="paginated")
    data = joined(*({**each, "ordinal": each["ordinal"] + 40} for each in lines))
    assert mend(FORM, data, name=NAME).data == data


def test_a_line_that_codex_skips_is_made_readable() -> None:
    lines = rollout(*TURN)
    del lines[3]["timestamp"]
    done = mend(FORM, joined(*lines), name=NAME)
    assert done.codes == ["LS101", "LS610"]
    assert done.remaining == []
    assert done.values[3]["timestamp"] == lines[2]["timestamp"]
    assert "done" in sent(done.values)


def test_a_number_that_is_text_is_made_one() -> None:
    lines = rollout(*TURN, mode="paginated")
    lines[3]["ordinal"] = "3"
    done = mend(FORM, joined(*lines), name=NAME)
    assert done.remaining == []
    assert done.values[3]["ordinal"] == 3
    assert "done" in sent(done.values)


def test_a_torn_line_leaves_no_gap_in_the_numbers() -> None:
    lines = joined(*rollout(*TURN, ASK, mode="paginated")).split(b"\n")
    lines[3] = lines[3][:40]
    done = mend(FORM, b"\n".join(lines), name=NAME)
    assert done.remaining == []
    assert "LS601" in done.codes
    assert [value["ordinal"] for value in done.values] == list(range(6))


def test_a_sub_agent_is_named() -> None:
    lines = rollout(*TURN)
    lines[0]["payload"]["parent_thread_id"] = "parent"
    assert "sub-agent" in read(FORM, joined(*lines)).notes[0]


def test_a_rollback_of_the_repair_kind_goes_to_the_last_whole_turn() -> None:
    lines = rollout(*TURN, said("user", "More."), output("gone"), event("task_complete"))
    done = mend(FORM, joined(*lines), name=NAME, strategy="rollback")
    assert sent(done.values) == ["Build it.", "c1", "done", "Built."]
    assert "More." in done.quarantine
    assert done.values[-1]["payload"]["type"] == "task_complete"
