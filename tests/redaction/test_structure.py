"""What of a history is content, and what must not be touched."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from lockstitch.redaction import drop_broken_thinking, redact_value

from .samples import made

TOKEN = f"ghp_{made(36)}"
MARK = "[redacted:github-token:1]"


def thinking(text: str, signature: str = "EqMB") -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}


@pytest.mark.parametrize(
    "field",
    [
        *("id", "type", "role", "name", "model", "tool_use_id", "call_id", "tool_call_id", "uuid"),
        *("parentUuid", "toolUseId", "sessionId", "requestId", "signature", "thoughtSignature"),
        *("thought_signature", "encrypted_content", "timestamp", "media_type", "message_id"),
    ],
)
def test_structure_is_never_touched(field: str) -> None:
    value = [{"content": [{field: TOKEN, "more": {field: made(44)}}]}]
    assert redact_value(value)[0] is value


@pytest.mark.parametrize(
    "media",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": TOKEN}},
        {"inlineData": {"mimeType": "image/png", "data": TOKEN}},
        {"inline_data": {"mime_type": "image/png", "data": TOKEN}},
        {"image": {"format": "png", "source": {"bytes": TOKEN}}},
        {"type": "input_audio", "input_audio": {"format": "wav", "data": TOKEN}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{TOKEN}"}},
        {"type": "input_file", "file_data": TOKEN},
        {"type": "redacted_thinking", "data": TOKEN},
        {"reasoningContent": {"redactedContent": TOKEN}},
    ],
)
def test_media_are_never_touched(media: dict[str, Any]) -> None:
    value = [{"role": "user", "content": [media]}]
    assert redact_value(value)[0] is value


@pytest.mark.parametrize(
    "where",
    [
        {"type": "tool_use", "id": "toolu_1", "name": "x", "input": {"id": TOKEN, "name": TOKEN}},
        {"functionCall": {"name": "x", "args": {"data": TOKEN, "type": TOKEN}}},
        {"toolUse": {"toolUseId": "t", "name": "x", "input": {"list": [{"role": TOKEN}]}}},
        {"functionResponse": {"name": "x", "response": {"signature": TOKEN}}},
        {"type": "local_shell_call", "action": {"type": "exec", "env": {"X": TOKEN}}},
        {"toolUseResult": {"uuid": TOKEN}},
    ],
)
def test_what_a_tool_was_given_or_gave_is_content_throughout(where: dict[str, Any]) -> None:
    value, found = redact_value([where])
    assert TOKEN not in json.dumps(value)
    assert {one.placeholder for one in found} == {MARK}
    assert json.loads(json.dumps(where).replace(TOKEN, MARK)) == value[0]


def test_a_field_says_what_it_holds() -> None:
    given = {
        "input": {
            "password": "letmein",
            "api_keys": [made(20), made(21)],
            "max_tokens": "4096",
            "token_type": "bearer",
            "DB_PASSWORD_PROD": "hunter2",
            "page_token": made(20, seed=9),
            "token": "${TOKEN}",
            "description": "a password",
            "secret": {"nested": "words"},
        }
    }
    clean = redact_value([given])[0][0]["input"]
    kept = ("max_tokens", "token_type", "page_token", "token", "description", "secret")
    assert all(clean[key] is given["input"][key] for key in kept)
    assert [clean[key] for key in ("password", "DB_PASSWORD_PROD")] == [
        "[redacted:password:1]",
        "[redacted:password:2]",
    ]
    assert clean["api_keys"] == ["[redacted:api-key:1]", "[redacted:api-key:2]"]


@pytest.mark.parametrize("style", [{}, {"indent": 1}, {"separators": (",", ":")}])
def test_arguments_in_a_string_stay_json(style: dict[str, Any]) -> None:
    arguments = {
        "cmd": f'echo "{TOKEN}"\npassword="a\\"b1"',
        "n": 2**70,
        "deep": [{"api_key": "k1" * 9}],
    }
    text = json.dumps(arguments, **style)
    call = {"type": "function_call", "call_id": "c", "name": "x", "arguments": text}
    value, found = redact_value([call])
    clean = json.loads(value[0]["arguments"])
    assert clean["cmd"].startswith(f'echo "{MARK}"\n')
    assert clean["n"] == 2**70
    assert clean["deep"][0]["api_key"] == "[redacted:api-key:1]"
    assert {one.place for one in found} == {"0.arguments.cmd", "0.arguments.deep.0.api_key"}


def test_arguments_within_arguments() -> None:
    inner = json.dumps({"arguments": json.dumps({"x": TOKEN, "y": 1})})
    value, _ = redact_value([{"arguments": inner}, {"arguments": '{"clean": 1}'}])
    assert json.loads(json.loads(value[0]["arguments"])["arguments"]) == {"x": MARK, "y": 1}
    assert value[1] == {"arguments": '{"clean": 1}'}


def test_arguments_without_secrets_keep_every_byte() -> None:
    value = [{"arguments": '{ "a" : 1.0e2 , "b":"\\u00e9" }'}, {"arguments": "{cut"}]
    assert redact_value(value)[0] is value


def test_cut_arguments_are_a_text() -> None:
    value, _ = redact_value([{"arguments": f'{{"cmd": "{TOKEN}", "x'}])
    assert value == [{"arguments": f'{{"cmd": "{MARK}", "x'}]


def test_keys_that_are_keys() -> None:
    value, _ = redact_value([{"input": {TOKEN: {"x": TOKEN}, "y": 1}}])
    assert value == [{"input": {MARK: {"x": MARK}, "y": 1}}]


def test_what_is_clean_is_the_same_object_and_the_given_is_unchanged() -> None:
    clean, dirty = {"role": "user", "content": "hello"}, {"role": "user", "content": TOKEN}
    value = [clean, dirty, [1, None, True, 1.5, b"bytes"]]
    before = deepcopy(value)
    new, _ = redact_value(value)
    assert value == before
    assert new[0] is clean
    assert new[2] is value[2]
    assert new[1] == {"role": "user", "content": MARK}


def test_places() -> None:
    value = {"messages": [{"content": [{"text": TOKEN}]}]}
    assert [one.place for one in redact_value(value)[1]] == ["messages.0.content.0.text"]
    assert [one.place for one in redact_value(value["messages"], "messages")[1]] == [
        "messages.0.content.0.text"
    ]
    assert redact_value(TOKEN)[0] == MARK


def test_redactions_hold_no_secret() -> None:
    assert TOKEN not in repr(redact_value([TOKEN, {TOKEN: TOKEN}])[1])


def test_signed_thinking_is_redacted_and_reported() -> None:
    value = [
        {
            "role": "assistant",
            "content": [thinking(f"use {TOKEN}"), {"type": "text", "text": TOKEN}],
        },
        {"content": [{"reasoningContent": {"reasoningText": {"text": TOKEN, "signature": "s"}}}]},
        {"content": [thinking(TOKEN, signature="")]},
    ]
    clean, found = redact_value(value)
    assert TOKEN not in json.dumps(clean)
    assert {one.place for one in found if one.breaks_signature} == {
        "0.content.0.thinking",
        "1.content.0.reasoningContent.reasoningText.text",
    }


def conversation() -> list[Any]:
    return [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": [thinking("first"), {"type": "text", "text": "a"}]},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": [thinking(f"see {TOKEN}"), {"type": "text", "text": "b"}]},
        {"role": "user", "content": "three"},
        {"role": "assistant", "content": [thinking(TOKEN)]},
        {"role": "assistant", "content": [thinking("last"), {"type": "text", "text": "c"}]},
    ]


def test_thinking_that_no_longer_fits_is_dropped() -> None:
    clean, found = redact_value(conversation())
    left = drop_broken_thinking(clean, found, bound=False)
    shorter = {"role": "assistant", "content": clean[3]["content"][1:]}
    assert left == [*clean[:3], shorter, clean[4], clean[6]]
    assert left[0] is clean[0]
    assert left[1] is clean[1]


def test_thinking_behind_a_changed_prefix_is_dropped() -> None:
    clean, found = redact_value(conversation())
    left = drop_broken_thinking(clean, found)
    kinds = [
        [block["type"] for block in message["content"]]
        for message in left
        if message["role"] == "assistant"
    ]
    assert kinds == [["thinking", "text"], ["text"], ["text"]]
    for more in ({"system": TOKEN}, {"tools": [{}, {}, {"description": TOKEN}]}):
        clean_body, found = redact_value({**more, "messages": conversation()[:2]})
        left = drop_broken_thinking(clean_body["messages"], found)
        assert left[1]["content"] == [{"type": "text", "text": "a"}]


def test_nothing_redacted_nothing_dropped() -> None:
    value = conversation()[:3]
    assert drop_broken_thinking(*redact_value(value)) == value


def test_odd_values() -> None:
    deep: Any = TOKEN
    for _ in range(100):
        deep = [deep]
    assert MARK in json.dumps(redact_value(deep)[0])
    for value in (
        None,
        1,
        "",
        [],
        {},
        b"x",
        float("nan"),
        {1: "x", None: [TOKEN]},
        "\ud800",
        (1, 2),
    ):
        redact_value(value)
