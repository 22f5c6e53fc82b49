from __future__ import annotations

import json
from typing import Any

import pytest

from lockstitch.formats.gemini_cli import GeminiCli
from lockstitch.formats.interface import DOCUMENT

from .surgery import Json, joined, mend, read

FORM = GeminiCli()
OWN = "0f0f0f0f-0000-4000-8000-000000000001"
HEAD = {"sessionId": OWN, "projectHash": "ab" * 32, "startTime": "t0", "lastUpdated": "t0"}
ANSWERED = "[lockstitch] No result was recorded"


def message(name: str, kind: str, content: Any, **fields: Any) -> Json:
    return {"id": name, "timestamp": f"t-{name}", "type": kind, "content": content, **fields}


def ask(name: str, text: str) -> Json:
    return message(name, "user", [{"text": text}])


def say(name: str, text: str, *calls: Json) -> Json:
    fields = {"toolCalls": list(calls)} if calls else {}
    return message(name, "gemini", text, thoughts=[], model="gemini-3-pro", **fields)


def response(name: str, output: str = "done") -> Json:
    return {"functionResponse": {"id": name, "name": "shell", "response": {"output": output}}}


def call(name: str, *result: Any) -> Json:
    made = {"id": name, "name": "shell", "args": {"command": "ls"}, "status": "success"}
    return {**made, **({"result": list(result)} if result else {}), "timestamp": "t"}


TURN = (ask("u1", "Build it."), say("g1", "I do.", call("c1", response("c1"))), say("g2", "Built."))


def contents(data: bytes, kind: str = "lines") -> list[tuple[str, list[str]]]:
    """What a resume sends, each part in a word."""
    sent = read(FORM, data, "session-x.jsonl", kind).history.messages
    return [(content["role"], [_word(part) for part in content["parts"]]) for content in sent]


def _word(part: Json) -> str:
    if "functionCall" in part:
        return f"call {part['functionCall'].get('id')}"
    if "functionResponse" in part:
        return f"result {part['functionResponse'].get('id')}"
    return part.get("text") or next(iter(part))


SENT = [
    ("user", ["Build it."]),
    ("model", ["I do.", "call c1"]),
    ("user", ["result c1"]),
    ("model", ["Built."]),
]


def test_a_healthy_chat_keeps_every_byte() -> None:
    info = message("i1", "info", "Checkpoint saved.")
    data = joined(HEAD, *TURN, info, {"$set": {"lastUpdated": "t9"}}, ask("u2", "Thanks."))
    done = mend(FORM, data)
    assert (done.codes, done.data) == ([], data)
    assert (done.before.session, done.before.turns) == (OWN, 2)
    assert contents(data) == [*SENT, ("user", ["Thanks."])]


def test_it_is_told_by_its_head() -> None:
    assert FORM.claims("x.jsonl", [HEAD, *TURN])
    assert FORM.claims("session-x.jsonl", [*TURN])
    assert not FORM.claims("x.jsonl", [*TURN])
    assert not FORM.claims("session-x.jsonl", [{"type": "human", "id": "m", "content": "Hi."}])
    assert not FORM.claims("x.json", [[{"role": "user", "parts": []}]])


def test_the_last_one_wins_where_the_first_one_stood() -> None:
    again = say("g1", "I do it.", call("c1", response("c1")))
    data = joined(HEAD, ask("u1", "Bild"), say("g1", "I"), say("g2", "Built."), TURN[0], again)
    assert contents(data) == [
        ("user", ["Build it."]),
        ("model", ["I do it.", "call c1"]),
        ("user", ["result c1"]),
        ("model", ["Built."]),
    ]
    assert mend(FORM, data).data == data


def test_a_rewind_takes_a_message_and_all_behind_it() -> None:
    data = joined(HEAD, *TURN, ask("u2", "No."), {"$rewindTo": "g2"}, ask("u3", "Yes."))
    assert contents(data) == [*SENT[:3], ("user", ["Yes."])]
    assert mend(FORM, data).data == data


def test_a_rewind_to_nowhere_is_taken_out() -> None:
    lines = [HEAD, *TURN, {"$rewindTo": "gone"}, ask("u3", "Yes.")]
    done = mend(FORM, joined(*lines))
    assert (done.codes, done.remaining) == (["LS704"], [])
    assert done.before.left == 1
    assert done.values == [*lines[:4], lines[5]]
    assert "gone" in done.quarantine


def test_a_checkpoint_replaces_all() -> None:
    data = joined(HEAD, ask("u0", "Old."), {"$set": {"messages": [*TURN]}}, ask("u2", "On."))
    assert contents(data) == [*SENT, ("user", ["On."])]
    assert mend(FORM, data).data == data


def test_what_the_program_leaves_out_is_left_out() -> None:
    thought = message("g3", "gemini", [{"text": "hm", "thought": True}, {"text": "Yes."}])
    data = joined(
        HEAD,
        ask("a", "<session_context>x"),
        ask("b", "/help"),
        ask("c", " "),
        *TURN,
        thought,
        message("e", "error", "quota"),
        message("g4", "gemini", ""),
    )
    assert contents(data) == [*SENT[:3], ("model", ["Built.", "Yes."])]
    assert mend(FORM, data).data == data


def test_newer_chats_have_the_calls_in_the_content() -> None:
    asked = {"functionCall": {"id": "c1", "name": "shell", "args": {}}}
    modern = message("g1", "gemini", [{"text": "I do."}, asked], toolCalls=[call("c1")])
    answer = message("r1", "user", [response("c1")])
    data = joined(HEAD, TURN[0], modern, answer, TURN[2])
    assert contents(data) == SENT
    assert mend(FORM, data).data == data
    done = mend(FORM, joined(HEAD, TURN[0], modern, TURN[2]))
    assert (done.codes, done.remaining) == (["LS101"], [])
    [held] = done.values[2]["toolCalls"]
    assert ANSWERED in str(held["result"])
    bare = {key: value for key, value in modern.items() if key != "toolCalls"}
    done = mend(FORM, joined(HEAD, TURN[0], bare, TURN[2]))
    assert (done.codes, done.remaining) == (["LS101"], [])
    assert done.values[3]["type"] == "user"
    assert ANSWERED in str(done.values[3])


@pytest.mark.parametrize("result", [(), (None,), ("",)])
def test_a_missing_result_is_put_into_the_calls_record(result: tuple[Any, ...]) -> None:
    missing = {**call("c2"), **({"result": result[0]} if result else {})}
    both = say("g1", "I do.", call("c1", response("c1")), missing)
    lines = joined(HEAD, TURN[0], both, TURN[2]).split(b"\n")
    done = mend(FORM, b"\n".join(lines))
    assert (done.codes, done.remaining) == (["LS102"], [])
    assert done.severities["LS102"] == "error"
    assert [n for n, line in enumerate(done.lines) if line != lines[n]] == [2]
    first, second = done.values[2]["toolCalls"]
    assert first == both["toolCalls"][0]
    assert ANSWERED in str(second["result"])
    assert lines[2].split(b'"toolCalls"')[0] == done.lines[2].split(b'"toolCalls"')[0]


def test_a_result_that_is_a_string_is_one() -> None:
    held = {**call("c1"), "result": "done"}
    data = joined(HEAD, TURN[0], say("g1", "I do.", held), TURN[2])
    assert contents(data) == SENT
    assert mend(FORM, data).data == data


def test_pictures_beside_a_result_are_no_fault() -> None:
    picture = {"inlineData": {"mimeType": "text/plain", "data": "QQ=="}}
    data = joined(HEAD, TURN[0], say("g1", "I do.", call("c1", response("c1"), picture)), TURN[2])
    done = mend(FORM, data)
    assert (done.codes, done.data) == ([], data)


def test_results_that_the_program_recorded_twice_go() -> None:
    """What every chat with tools has, by a bug of the program."""
    repeated = message("r1", "user", [response("c1")])
    lines = [HEAD, *TURN[:2], repeated, TURN[2]]
    done = mend(FORM, joined(*lines))
    assert (done.codes, done.remaining) == (["LS106"], [])
    assert done.severities["LS106"] == "error"
    assert "a bug of Gemini CLI" in done.before.notes[0]
    assert done.values == [*lines[:3], lines[4]]
    assert contents(done.data) == SENT
    assert "'r1'" in done.quarantine


def test_all_copies_of_a_message_go_with_it() -> None:
    first = message("r1", "user", [response("c1", "do")])
    repeated = message("r1", "user", [response("c1")])
    done = mend(FORM, joined(HEAD, *TURN[:2], first, repeated, TURN[2]))
    assert done.remaining == []
    assert contents(done.data) == SENT


def test_words_beside_a_repeated_result_stay() -> None:
    repeated = message("r1", "user", [response("c1"), {"text": "Look again."}])
    done = mend(FORM, joined(HEAD, *TURN[:2], repeated, TURN[2]))
    assert done.remaining == []
    assert done.values[3] == message("r1", "user", [{"text": "Look again."}])


def test_an_orphan_result_stays_as_text() -> None:
    orphan = message("r1", "user", [response("gone", "precious")])
    done = mend(FORM, joined(HEAD, *TURN, orphan, say("g3", "I see.")))
    assert (done.codes, done.remaining) == (["LS103"], [])
    assert done.values[4]["id"] == "r1"
    assert "precious" in done.values[4]["content"][0]["text"]


def test_a_chat_that_starts_with_the_model_gets_a_start() -> None:
    done = mend(FORM, joined(HEAD, TURN[2], ask("u2", "On.")))
    assert (done.codes, done.remaining) == (["LS406"], [])
    assert done.values[1]["type"] == "user"
    assert done.values[2] == TURN[2]


def test_what_is_put_in_front_takes_no_place_of_what_comes_later() -> None:
    odd = say("g1", "I do.", call("c1", response("gone", "precious")))
    done = mend(FORM, joined(HEAD, odd, TURN[2]))
    assert done.remaining == []
    # the program sends a call's result as one content, in which only responses are accepted
    [answer] = done.values[2]["toolCalls"][0]["result"]
    assert answer["functionResponse"]["id"] == "c1"
    assert "precious" in done.values[3]["content"][0]["text"]
    assert [done.values[2]["id"], done.values[3]["type"], done.values[4]] == ["g1", "user", TURN[2]]


def test_a_message_of_which_nothing_is_left_keeps_its_record() -> None:
    empty = message("u2", "user", [{"nothing": "known"}])
    done = mend(FORM, joined(HEAD, *TURN, empty, say("g3", "I see.")))
    assert done.remaining == []
    assert [value["id"] for value in done.values[4:]] == ["u2", "g3"]
    assert done.values[4]["content"] == [{"text": "[lockstitch] This message was empty."}]


def test_a_checkpoint_is_mended_inside() -> None:
    broken = [TURN[0], say("g1", "I do.", call("c1")), message("r9", "user", [response("c9")])]
    done = mend(FORM, joined(HEAD, {"$set": {"messages": broken}}, TURN[2]))
    assert done.remaining == []
    assert len(done.values) == 3
    kept = done.values[1]["$set"]["messages"]
    assert [each["id"] for each in kept] == ["u1", "g1", "r9"]
    assert ANSWERED in str(kept[1])


def test_a_missing_head_is_reported() -> None:
    data = joined(*TURN)
    done = mend(FORM, data, name="session-x.jsonl")
    assert (done.codes, done.remaining, done.data) == (["LS610"], ["LS610"], data)
    assert done.severities["LS610"] == "error"


def test_records_that_hold_nothing_go() -> None:
    done = mend(FORM, joined({}, HEAD, *TURN))
    assert (done.codes, done.data) == (["LS610"], joined(HEAD, *TURN))


def test_a_torn_last_line_goes() -> None:
    data = joined(HEAD, *TURN)
    done = mend(FORM, data + joined(say("g3", "More."))[:50])
    assert (done.codes, done.data) == (["LS601"], data)


def test_a_sub_agent_is_named() -> None:
    assert "sub-agent" in read(FORM, joined({**HEAD, "kind": "subagent"}, *TURN)).notes[0]


# Until 2026 a chat was one document.


def document(*messages: Json) -> bytes:
    return json.dumps({**HEAD, "messages": list(messages)}, indent=2).encode()


def test_a_healthy_document_keeps_every_byte() -> None:
    data = document(*TURN)
    done = mend(FORM, data, name="session-x.json", kind=DOCUMENT)
    assert (done.codes, done.data) == ([], data)
    assert contents(data, DOCUMENT) == SENT


def test_a_document_is_mended_in_place() -> None:
    repeated = message("r1", "user", [response("c1")])
    data = document(*TURN[:2], repeated, say("g3", "And.", call("c2")), TURN[2])
    done = mend(FORM, data, name="session-x.json", kind=DOCUMENT)
    assert (done.codes, done.remaining) == (["LS101", "LS106"], [])
    kept = json.loads(done.data)["messages"]
    assert [each["id"] for each in kept] == ["u1", "g1", "g3", "g2"]
    assert data[: data.index(b'"r1"') - 40] == done.data[: data.index(b'"r1"') - 40]


def test_a_document_gets_a_start_in_its_style() -> None:
    data = document(TURN[2], ask("u2", "On."))
    done = mend(FORM, data, name="session-x.json", kind=DOCUMENT)
    assert done.remaining == []
    fresh = json.loads(done.data)
    assert json.dumps(fresh, indent=2).encode() == done.data
    assert [each["type"] for each in fresh["messages"]] == ["user", "gemini", "user"]


def test_rolling_back_goes_to_the_last_whole_turn() -> None:
    lines = [HEAD, *TURN, ask("u2", "More."), say("g3", "Yes.", call("c2"))]
    done = mend(FORM, joined(*lines), strategy="rollback")
    assert done.values == lines[:4]
    assert "More." in done.quarantine


def test_a_later_repair_makes_messages_of_its_own() -> None:
    """A message of the same id would take the place of the one that an earlier repair made."""

    def broken(number: int) -> Json:
        held = call(f"c{number}", response(f"c{number}"), response("gone", f"output {number}"))
        return say(f"g{number}", "I do.", held)

    first = mend(FORM, joined(HEAD, ask("u1", "Go."), broken(1), say("g2", "Done.")))
    more = joined(ask("u2", "Again."), broken(3), say("g4", "Done."))
    again = mend(FORM, first.data + more)
    assert again.remaining == []
    names = [value["id"] for value in again.values[1:]]
    assert len(names) == len(set(names)) == 8
    said = str(contents(again.data))
    assert said.index("output 1") < said.index("Again.") < said.index("output 3")
