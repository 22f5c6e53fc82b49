from __future__ import annotations

import json
from typing import Any

import pytest

from lockstitch.formats.interface import DOCUMENT, LINES
from lockstitch.formats.plain import PlainList

from .surgery import Json, joined, mend, read

FORM = PlainList()


def anthropic(*, answered: bool) -> list[Json]:
    call = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt"}
    asked: list[Json] = [
        {"role": "user", "content": "List."},
        {"role": "assistant", "content": [call]},
    ]
    middle: list[Json] = [{"role": "user", "content": [result]}] if answered else []
    return [*asked, *middle, {"role": "assistant", "content": "One."}]


def chat(*, answered: bool) -> list[Json]:
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    asked: list[Json] = [
        {"role": "user", "content": "List."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    middle = [{"role": "tool", "tool_call_id": "c1", "content": "a.txt"}] if answered else []
    return [*asked, *middle, {"role": "assistant", "content": "One."}]


def responses(*, answered: bool) -> list[Json]:
    call = {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "a.txt"}
    middle = [output] if answered else []
    return [{"role": "user", "content": "List."}, call, *middle]


def gemini(*, answered: bool) -> list[Json]:
    call = {"functionCall": {"name": "bash", "args": {}}}
    answer = {"functionResponse": {"name": "bash", "response": {"output": "a.txt"}}}
    middle = [{"role": "user", "parts": [answer]}] if answered else []
    asked = [{"role": "user", "parts": [{"text": "List."}]}, {"role": "model", "parts": [call]}]
    return [*asked, *middle, {"role": "model", "parts": [{"text": "One."}]}]


def bedrock(*, answered: bool) -> list[Json]:
    call = {"toolUse": {"toolUseId": "t1", "name": "bash", "input": {}}}
    result = {"toolResult": {"toolUseId": "t1", "content": [{"text": "a.txt"}]}}
    middle = [{"role": "user", "content": [result]}] if answered else []
    asked = [
        {"role": "user", "content": [{"text": "List."}]},
        {"role": "assistant", "content": [call]},
    ]
    return [*asked, *middle, {"role": "assistant", "content": [{"text": "One."}]}]


def langchain(*, answered: bool) -> list[Json]:
    call = {"name": "bash", "args": {}, "id": "c1", "type": "tool_call"}
    asked: list[Json] = [
        {"type": "human", "content": "List."},
        {"type": "ai", "content": "", "tool_calls": [call]},
    ]
    middle = [{"type": "tool", "content": "a.txt", "tool_call_id": "c1"}] if answered else []
    return [*asked, *middle, {"type": "ai", "content": "One."}]


LISTS = {
    "anthropic": anthropic,
    "openai-chat": chat,
    "openai-responses": responses,
    "gemini": gemini,
    "bedrock": bedrock,
    "langchain": langchain,
}
STYLES: list[Json] = [{}, {"indent": 2}, {"indent": "\t"}, {"separators": (",", ":")}]


@pytest.mark.parametrize("dialect", LISTS)
def test_lines_of_every_dialect(dialect: str) -> None:
    healthy, broken = (LISTS[dialect](answered=answered) for answered in (True, False))
    assert FORM.claims("x.jsonl", healthy)
    done = mend(FORM, joined(*healthy))
    assert (done.codes, done.data) == ([], joined(*healthy))
    assert done.before.history.dialect == dialect
    assert done.before.turns == 1
    done = mend(FORM, joined(*broken))
    assert ("LS101" in done.codes, done.remaining) == (True, [])
    assert len(done.values) == len(broken) + 1
    assert [value for value in done.values if value in broken] == broken
    assert [line for line in joined(*broken).split(b"\n") if line not in done.lines] == []


@pytest.mark.parametrize("dialect", LISTS)
@pytest.mark.parametrize("style", STYLES, ids=str)
def test_documents_of_every_dialect(dialect: str, style: Json) -> None:
    healthy, broken = (LISTS[dialect](answered=answered) for answered in (True, False))
    assert FORM.claims("x.json", [healthy])
    for end in ("", "\n"):
        data = json.dumps(healthy, **style).encode() + end.encode()
        done = mend(FORM, data, name="x.json", kind=DOCUMENT)
        assert (done.codes, done.data) == ([], data)
        data = json.dumps(broken, **style).encode() + end.encode()
        done = mend(FORM, data, name="x.json", kind=DOCUMENT)
        assert ("LS101" in done.codes, done.remaining) == (True, [])
        fresh = json.loads(done.data)
        assert len(fresh) == len(broken) + 1
        assert done.data == json.dumps(fresh, **style).encode() + end.encode()


KEYS = {"openai-responses": "input", "gemini": "contents"}


@pytest.mark.parametrize("dialect", LISTS)
def test_bodies_of_every_dialect(dialect: str) -> None:
    key = KEYS.get(dialect, "messages")
    body = {"model": "m", key: LISTS[dialect](answered=False), "temperature": 1.0, "n": 10**30}
    assert FORM.claims("x.json", [body])
    data = json.dumps(body, indent=1).replace("List.", "\\u004cist.").encode()
    done = mend(FORM, data, name="x.json", kind=DOCUMENT)
    assert ("LS101" in done.codes, done.remaining) == (True, [])
    fresh = json.loads(done.data)
    assert [fresh[k] for k in body if k != key] == [v for k, v in body.items() if k != key]
    assert b"\\u004cist." in done.data
    assert done.before.history.model == "m"


def test_messages_are_the_very_objects_of_the_file() -> None:
    data = json.dumps({"messages": chat(answered=True)}).encode()
    transcript = read(FORM, data, "x.json", DOCUMENT)
    assert transcript.history.messages[0] is transcript.records[0].value["messages"][0]


def test_places_name_the_way_to_a_message() -> None:
    from lockstitch.formats import repair

    data = json.dumps({"messages": anthropic(answered=False)}).encode()
    [found] = repair.findings_in(FORM, read(FORM, data, "x.json", DOCUMENT))
    assert found.place == "messages.1.content.0"
    [found] = repair.findings_in(FORM, read(FORM, joined(*anthropic(answered=False))))
    assert found.place == "2.content.0"


@pytest.mark.parametrize(
    "head",
    [
        [],
        [{"role": "user", "content": "Nothing tells the dialect."}],
        [[{"role": "user", "content": "Nothing tells the dialect."}]],
        [{"messages": [{"role": "user", "content": "Nothing tells the dialect."}]}],
        [{"input": "text"}],
        [{"name": "package", "version": "1"}],
        [{"messages": chat(answered=True)}, {"messages": chat(answered=True)}],
        [[1, 2, 3]],
        ["text"],
        [7],
        [None],
    ],
    ids=repr,
)
def test_what_is_no_list_is_not_claimed(head: list[Any]) -> None:
    assert not FORM.claims("x.json", head)


def test_a_torn_line_goes() -> None:
    data = joined(*chat(answered=True))
    done = mend(FORM, data + b'{"role": "user", "content": "And th')
    assert (done.codes, done.data) == (["LS601"], data)


def test_welded_lines_are_parted() -> None:
    lines = joined(*chat(answered=True)).split(b"\n")
    done = mend(FORM, b"\n".join([lines[0] + lines[1], *lines[2:]]))
    assert (done.codes, done.remaining) == (["LS602"], [])
    assert done.lines == lines


def test_a_moved_message_keeps_its_bytes() -> None:
    messages = chat(answered=True)
    late = [messages[0], messages[1], {"role": "user", "content": "Well?"}, messages[2]]
    data = joined(*late).replace(b"a.txt", b"\\u0061.txt")
    done = mend(FORM, data)
    assert done.remaining == []
    assert sorted(done.lines) == sorted(data.split(b"\n"))


def test_elements_that_are_no_messages_are_mended() -> None:
    data = json.dumps([*chat(answered=True), "Thanks.", None]).encode()
    done = mend(FORM, data, name="x.json", kind=DOCUMENT)
    assert set(done.codes) == {"LS414"}
    assert done.remaining == []
    assert "Thanks." in done.data.decode() + done.quarantine


def test_an_empty_line_object_is_mended() -> None:
    messages = chat(answered=True)
    assert FORM.claims("x.jsonl", [messages[0], {}, *messages[1:]])
    done = mend(FORM, joined(messages[0], {}, *messages[1:]))
    assert done.codes
    assert done.remaining == []
    assert [value for value in done.values if value in messages] == messages


def test_a_byte_order_mark_goes() -> None:
    data = json.dumps(chat(answered=True)).encode()
    done = mend(FORM, b"\xef\xbb\xbf" + data, name="x.json", kind=DOCUMENT)
    assert (done.codes, done.data) == (["LS604"], data)


def test_rolling_back_to_words_only() -> None:
    messages = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    broken = [*messages, *chat(answered=False)]
    for data, kind in ((joined(*broken), LINES), (json.dumps(broken).encode(), DOCUMENT)):
        done = mend(FORM, data, kind=kind, strategy="rollback")
        assert "List." in done.quarantine
        assert b"Hello." in done.data
        assert b"List." not in done.data


# Trajectories of SWE-agent.


def trajectory(*, answered: bool) -> Json:
    history = chat(answered=answered)
    for message in history:
        message["agent"] = "primary"
        if "tool_call_id" in message:
            message["tool_call_ids"] = [message.pop("tool_call_id")]
    first = {"role": "tool", "content": "b", "tool_call_ids": ["c0"]}
    call = {"id": "c0", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    before = [{"role": "assistant", "content": None, "tool_calls": [call]}, first]
    return {"trajectory": [], "history": [*before, *history], "info": {}}


def test_a_healthy_trajectory_keeps_every_byte() -> None:
    data = json.dumps(trajectory(answered=True), indent=2).encode()
    assert FORM.claims("x.traj", [json.loads(data)])
    done = mend(FORM, data, name="x.traj", kind=DOCUMENT)
    assert (done.codes, done.data) == ([], data)
    assert done.before.history.dialect == "openai-chat"


def test_a_trajectory_without_calls_is_one_too() -> None:
    words = {"trajectory": [], "history": [{"role": "user", "content": "Hi."}]}
    assert FORM.claims("x.traj", [words])
    assert not FORM.claims("x.json", [{"history": words["history"]}])


def test_a_trajectory_is_mended_in_its_own_spelling() -> None:
    data = json.dumps(trajectory(answered=False), indent=2).encode()
    done = mend(FORM, data, name="x.traj", kind=DOCUMENT)
    assert (done.codes, done.remaining) == (["LS101"], [])
    fresh = json.loads(done.data)["history"][4]
    assert (fresh["role"], fresh["tool_call_ids"]) == ("tool", ["c1"])
    assert "tool_call_id" not in fresh
    assert data[: data.index(b'"List."')] == done.data[: data.index(b'"List."')]


@pytest.mark.parametrize(
    "values",
    [
        [{"model": "gpt-5.2", "input": "Hello"}],
        [{"prompt": "Hello", "text": "a"}],
        [{"level": "info", "msg": "started"}, {"level": "info", "msg": "done"}],
    ],
)
def test_what_a_person_calls_a_list_and_is_none_is_left_alone(values: list[Json]) -> None:
    data = joined(*values)
    done = mend(FORM, data)
    assert done.data == data
    assert done.before.sealed
    assert done.codes
