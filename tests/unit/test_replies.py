"""What of a response goes into the next request, and what of it only its issuer may get."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstitch
from lockstitch.dialects.exchange import calls_in, messages_in, provider_of, without_reasoning
from lockstitch.dialects.profiles import DIALECTS
from lockstitch.errors import UsageError
from tests.conftest import EXAMPLES
from tests.oracles import problems
from tests.property.pieces import json_values
from tests.property.strategies import HISTORIES, structured

few = settings(max_examples=int(EXAMPLES or 40))
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln", "later": 1}
TOOL_USE = {
    "type": "tool_use",
    "id": "t1",
    "name": "look",
    "input": {},
    "caller": {"type": "direct"},
}
SAID = {"type": "text", "text": "so", "citations": None}
AI = {"type": "ai", "content": "so", "tool_calls": [], "id": "run-1", "response_metadata": {"a": 1}}


def test_anthropic() -> None:
    content = [THOUGHT, SAID, TOOL_USE]
    response = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 1},
    }
    (message,) = messages_in("anthropic", response)
    assert message == {"role": "assistant", "content": content}
    assert message["content"] is content
    assert messages_in("anthropic", message)[0] is message
    assert messages_in("anthropic", content) == [message]
    assert calls_in("anthropic", [message]) == [("t1", "look")]


def test_chat() -> None:
    message = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "reasoning_content": "hm",
        "tool_calls": [{**CALL, "index": 0}, CALL],
    }
    second = {"role": "assistant", "content": "another answer"}
    response = {"id": "x", "choices": [{"index": 0, "message": message}, {"message": second}]}
    (kept,) = messages_in("openai-chat", response)
    assert kept == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "tool_calls": [CALL, CALL],
    }
    assert messages_in("openai-chat", kept)[0] is kept
    assert calls_in("openai-chat", [kept]) == [("c1", "look"), ("c1", "look")]


def test_chat_audio_is_named_and_not_sent_back() -> None:
    audio = {"id": "audio_1", "data": "AAAA", "transcript": "so", "expires_at": 1}
    (kept,) = messages_in("openai-chat", {"role": "assistant", "content": None, "audio": audio})
    assert kept["audio"] == {"id": "audio_1"}


def test_chat_takes_no_empty_list_of_calls() -> None:
    (kept,) = messages_in("openai-chat", {"role": "assistant", "content": "a", "tool_calls": []})
    assert "tool_calls" not in kept


def test_responses() -> None:
    sealed = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    message["content"] = [{"type": "output_text", "text": "so", "annotations": [], "logprobs": []}]  # type: ignore[assignment]
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look"}
    call["arguments"] = "{}"
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}}
    output = [
        {**sealed, "status": "completed", "content": None},
        search,
        message,
        {**call, "status": "completed", "parsed_arguments": None},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "g", "created_by": "me"},
    ]
    response = {"id": "resp_1", "object": "response", "status": "completed", "output": output}
    kept = messages_in("openai-responses", response)
    compaction = {"type": "compaction", "id": "cmp_1", "encrypted_content": "g"}
    assert kept == [sealed, search, message, call, compaction]
    assert kept[1] is search
    assert messages_in("openai-responses", output) == kept
    assert messages_in("openai-responses", kept) == kept
    assert calls_in("openai-responses", kept) == [("c1", "look")]


def test_a_call_that_the_reply_itself_answers_is_none() -> None:
    call = {"type": "shell_call", "call_id": "sh_1", "action": {"commands": ["ls"]}}
    output = {"type": "shell_call_output", "call_id": "sh_1", "output": []}
    other = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    assert calls_in("openai-responses", [call, output, other]) == [("c1", "look")]
    assert calls_in("openai-responses", [call]) == [("sh_1", "")]


def test_what_the_provider_ran_is_no_call() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    assert calls_in("anthropic", [{"role": "assistant", "content": [search, TOOL_USE]}]) == [
        ("t1", "look")
    ]


def test_gemini() -> None:
    parts = [
        {"text": "hm", "thought": True},
        {"functionCall": {"name": "look"}, "thoughtSignature": "c"},
    ]
    first = {"content": {"parts": parts, "role": "model"}, "finishReason": "STOP"}
    response = {"candidates": [first, {"content": {"parts": []}}], "usageMetadata": {}}
    (message,) = messages_in("gemini", response)
    assert message is first["content"]
    assert messages_in("gemini", message)[0] is message
    assert messages_in("gemini", parts) == [{"role": "model", "parts": parts}]
    assert calls_in("gemini", [message]) == [("", "look")]


def test_gemini_words_without_a_role_are_the_models() -> None:
    response = {"candidates": [{"content": {"parts": [{"text": "so"}]}}]}
    assert messages_in("gemini", response) == [{"role": "model", "parts": [{"text": "so"}]}]


def test_bedrock_has_bytes_where_the_sdk_wants_them() -> None:
    sealed = {"reasoningContent": {"redactedContent": "AP8="}}
    content = [sealed, {"toolUse": {"toolUseId": "t1", "name": "look", "input": {}}}]
    response = {"output": {"message": {"role": "assistant", "content": content}}, "usage": {}}
    (message,) = messages_in("bedrock", response)
    assert message["content"][0] == {"reasoningContent": {"redactedContent": b"\x00\xff"}}
    assert message["content"][1] is content[1]
    assert messages_in("bedrock", message)[0] is message
    assert calls_in("bedrock", [message]) == [("t1", "look")]


@pytest.mark.parametrize(
    "message",
    [
        AI,
        {"type": "ai", "data": AI},
        {"lc": 1, "type": "constructor", "id": ["AIMessage"], "kwargs": {"content": "so"}},
        {"role": "assistant", "content": "so"},
    ],
    ids=["bare", "data", "kwargs", "role"],
)
def test_langchain_messages_are_taken_as_they_are(message: Any) -> None:
    assert messages_in("langchain", message)[0] is message
    assert messages_in("langchain", [message])[0] is message


EMPTY: dict[str, list[Any]] = {
    "anthropic": [{"role": "assistant", "content": []}, {"role": "assistant", "content": ""}],
    "openai-chat": [{"choices": [{"message": {"role": "assistant", "content": ""}}]}],
    "openai-responses": [{"object": "response", "output": []}],
    "gemini": [{"candidates": []}, {"candidates": [{"finishReason": "SAFETY"}]}],
    "bedrock": [{"output": {"message": {"role": "assistant", "content": []}}}],
    "langchain": [{"type": "ai", "content": ""}],
}
ODD = (
    None, 1, "x", [], {}, [None], [[]], {"content": None}, {"choices": [None]}, {"choices": 3},
    {"choices": [{"message": 7}]}, {"candidates": [7]}, {"output": [None, 1]}, {"output": {}},
    {"output": {"message": None}}, {"type": "error", "error": {"message": "busy"}},
    {"error": {"code": 529}},
)  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_says_nothing_is_no_message(dialect: str) -> None:
    for value in (*EMPTY[dialect], *ODD):
        assert messages_in(dialect, value) == []


@pytest.mark.parametrize("dialect", DIALECTS)
@few
@given(value=json_values)
def test_no_value_is_too_odd(dialect: str, value: Any) -> None:
    for given_value in (
        value,
        [value],
        {"content": value},
        {"output": value},
        {"choices": [value]},
    ):
        messages = messages_in(dialect, given_value)
        calls_in(dialect, messages)
        without_reasoning(dialect, messages)


@pytest.mark.parametrize("dialect", DIALECTS)
@few
@given(data=st.data())
def test_no_message_is_too_odd(dialect: str, data: st.DataObject) -> None:
    messages = data.draw(structured(dialect))
    calls_in(dialect, messages)
    without_reasoning(dialect, messages)
    messages_in(dialect, messages)


def listed(history: Any) -> Any:
    if isinstance(history, list):
        return history
    return next(history[key] for key in ("messages", "input", "contents") if key in history)


HEALTHY = [
    pytest.param(dialect, history, id=f"{dialect}-{name}")
    for dialect, histories in HISTORIES.items()
    for name, history in histories.items()
    if isinstance(listed(history), list)
]
BOUND = frozenset(
    {"signature", "encrypted_content", "thoughtSignature", "thought_signature", "reasoning_content"}
)


def keys_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        for inner in value.values():
            yield from keys_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_in(inner)


@pytest.mark.parametrize(("dialect", "history"), HEALTHY)
def test_without_reasoning_a_history_is_still_accepted(dialect: str, history: Any) -> None:
    messages = listed(history)
    freed = without_reasoning(dialect, messages)
    before = {finding.code for finding in lockstitch.check(messages, dialect)}
    assert {finding.code for finding in lockstitch.check(freed, dialect)} <= before
    if not problems(dialect, messages):
        assert problems(dialect, freed) == []
    assert calls_in(dialect, freed) == calls_in(dialect, messages)
    spoken = [message for message in freed if message not in messages]
    assert not BOUND & set(keys_in(spoken))
    # what had nothing bound in it is the same object
    kept = [message for message in messages if message in freed]
    assert all(any(message is other for other in freed) for message in kept)
    assert without_reasoning(dialect, freed) == freed


def test_without_reasoning_of_anthropic() -> None:
    redacted = {"type": "redacted_thinking", "data": "AAAA"}
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}}
    page = {"type": "web_search_result", "url": "u", "encrypted_content": "E"}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [page]}
    cited = {"type": "web_search_result_location", "url": "u", "encrypted_index": "E"}
    plain = {"type": "char_location", "cited_text": "x"}
    text = {"type": "text", "text": "so", "citations": [cited, plain]}
    content = [THOUGHT, redacted, search, found, text, TOOL_USE]
    (message,) = without_reasoning("anthropic", [{"role": "assistant", "content": content}])
    assert message["content"] == [{"type": "text", "text": "so", "citations": [plain]}, TOOL_USE]
    assert message["content"][1] is TOOL_USE
    only = {"role": "assistant", "content": [THOUGHT]}
    user = {"role": "user", "content": "x"}
    assert without_reasoning("anthropic", [user, only]) == [user]


def test_without_reasoning_of_chat() -> None:
    signed = {**CALL, "extra_content": {"google": {"thought_signature": "c"}}}
    message = {"role": "assistant", "content": "so", "reasoning_content": "hm", "name": "n"}
    message["tool_calls"] = [signed]  # type: ignore[assignment]
    (freed,) = without_reasoning("openai-chat", [message])
    assert freed == {"role": "assistant", "content": "so", "name": "n", "tool_calls": [CALL]}
    assert without_reasoning("openai-chat", [freed])[0] is freed
    refusal = {"role": "assistant", "content": None, "refusal": "no", "reasoning": "hm"}
    assert without_reasoning("openai-chat", [refusal]) == [
        {"role": "assistant", "content": None, "refusal": "no"}
    ]


def test_without_reasoning_of_responses() -> None:
    items: list[Any] = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "g"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": "so"},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "local_shell_call", "id": "lsh_1", "call_id": "c2", "status": "completed"},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "g"},
    ]
    freed = without_reasoning("openai-responses", items)
    assert [item["type"] for item in freed] == ["message", "function_call", "local_shell_call"]
    assert ["id" in item for item in freed] == [False, False, True]


def test_without_reasoning_of_gemini() -> None:
    parts = [
        {"text": "hm", "thought": True},
        {"text": "so", "thoughtSignature": "c"},
        {"function_call": {"name": "look"}, "thought_signature": "c"},
        {"text": "", "thoughtSignature": "c"},
    ]
    (freed,) = without_reasoning("gemini", [{"role": "model", "parts": parts}])
    assert freed["parts"] == [{"text": "so"}, {"function_call": {"name": "look"}}]


def test_without_reasoning_of_bedrock() -> None:
    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c"}}}
    message = {"role": "assistant", "content": [thought, {"text": "so"}]}
    assert without_reasoning("bedrock", [message, {"role": "assistant", "content": [thought]}]) == [
        {"role": "assistant", "content": [{"text": "so"}]}
    ]


def test_without_reasoning_of_langchain() -> None:
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "c"},
        {"type": "text", "text": "so", "id": "msg_1", "extras": {"signature": "c"}},
    ]
    kwargs = {"reasoning_content": "hm", "refusal": None}
    message = {"type": "ai", "id": "msg_2", "content": content, "additional_kwargs": kwargs}
    freed = {"type": "ai", "content": [{"type": "text", "text": "so"}]}
    freed["additional_kwargs"] = {"refusal": None}
    assert without_reasoning("langchain", [message]) == [freed]
    wrapped = {"type": "ai", "data": message}
    assert without_reasoning("langchain", [wrapped]) == [{"type": "ai", "data": freed}]


def test_who_serves_a_dialect() -> None:
    assert {name: provider_of(name) for name in DIALECTS} == {
        "anthropic": "anthropic",
        "openai-chat": "openai",
        "openai-responses": "openai",
        "gemini": "google",
        "bedrock": "aws",
        "langchain": "langchain",
    }
    assert provider_of("openai-chat:deepseek") == "deepseek"
    assert provider_of("bedrock:classic") == "aws"


@pytest.mark.parametrize("call", [messages_in, calls_in, without_reasoning])
def test_an_unknown_dialect_is_an_error(call: Any) -> None:
    with pytest.raises(UsageError, match="unknown dialect"):
        call("morse", [])
