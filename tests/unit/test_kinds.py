from __future__ import annotations

import copy
import enum
import subprocess
import sys
import time
from collections import OrderedDict, UserDict, UserList, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import anthropic.types
import msgspec
import openai.types.chat
import openai.types.responses
import pydantic
import pytest
from google.genai import types as google
from hypothesis import given
from hypothesis import strategies as st
from langchain_core import messages as langchain

from lockstitch.conversation.sdk_objects import is_plain, to_plain
from lockstitch.errors import UsageError

TEXT = anthropic.types.TextBlock(type="text", text="hello", citations=None)
THINKING = anthropic.types.ThinkingBlock(type="thinking", thinking="hm", signature="sig")
CALL = anthropic.types.ToolUseBlock(type="tool_use", id="toolu_1", name="ls", input={"a": [1]})
CHAT = openai.types.chat.ChatCompletionMessage.model_validate(
    {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "reasoning_content": "not in the class",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        ],
    }
)
ITEM = openai.types.responses.ResponseFunctionToolCall(
    type="function_call", id="fc_1", call_id="c1", name="ls", arguments="{}", status="completed"
)
REASONING = openai.types.responses.ResponseReasoningItem(
    type="reasoning", id="rs_1", summary=[], encrypted_content="gAAA"
)
OUTPUT = openai.types.responses.ResponseOutputMessage.model_validate(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}],
    }
)
GOOGLE = google.Content(
    role="model",
    parts=[
        google.Part(text="hm", thought=True),
        google.Part(
            function_call=google.FunctionCall(id="i", name="ls", args={"path": "/", "deep": None}),
            thought_signature=b"\x00\xff",
        ),
    ],
)
AI = langchain.AIMessage(
    content=[{"type": "text", "text": "hello"}],
    tool_calls=[{"name": "ls", "args": {"a": 1}, "id": "1"}],
    id="run-1",
    usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
)


@dataclass
class Note:
    role: str
    content: str
    tool_calls: list[Any] | None = None


class Tagged(msgspec.Struct, tag="tool_use", tag_field="type", omit_defaults=True, rename="camel"):
    call_id: str
    caller: str | None = None
    extra: str | msgspec.UnsetType = msgspec.UNSET


class Own(pydantic.BaseModel):
    role: str = "user"
    content: str
    name: str | None = None
    call: str | None = pydantic.Field(default=None, alias="callId")


class Selective(pydantic.BaseModel):
    role: str
    content: str
    mood: str = "unset"

    @pydantic.model_serializer(mode="wrap")
    def _without_mood(self, dump: Any) -> Any:
        return {key: value for key, value in dump(self).items() if value != "unset"}


class Flavor(enum.StrEnum):
    USER = "user"


class Opaque:
    def __repr__(self) -> str:
        return "secret content"


class Pair(NamedTuple):
    first: Any
    second: Any


def say(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


# --- is_plain


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        "text",
        None,
        ["bare", say("hi")],
        [{"role": "user", "parts": [{"inline_data": {"data": b"\x00"}}]}],
        {"model": "m", "messages": [say("hi")], "tools": [{"name": "ls"}], "stream": False},
        [{"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text"}]}]}],
        [{"type": "ai", "data": {"content": "x", "tool_calls": []}}],
    ],
)
def test_plain_data_is_plain_and_thaws_to_itself(value: Any) -> None:
    assert is_plain(value)
    plain, freeze = to_plain(value)
    assert plain is value
    assert freeze(plain) is value
    other = [say("new")]
    assert freeze(other) is other


@pytest.mark.parametrize(
    "value",
    [
        (say("hi"),),
        deque([say("hi")]),
        iter([say("hi")]),
        [AI],
        [GOOGLE],
        [say("hi"), CHAT],
        [("human", "hi")],
        [UserDict(say("hi"))],
        [OrderedDict(say("hi"))],
        [{"role": "assistant", "content": [TEXT]}],
        [{"role": "assistant", "content": (CALL,)}],
        [{"role": "assistant", "content": None, "tool_calls": CHAT.tool_calls}],
        [{"role": "model", "parts": [{"function_call": google.FunctionCall(name="ls")}]}],
        [{"role": "user", "content": [{"type": "tool_result", "content": [TEXT]}]}],
        [{"role": Flavor.USER, "content": "hi"}],
        {"messages": [AI]},
        {"contents": (GOOGLE,)},
        {"messages": [say("hi")], "system": [TEXT]},
    ],
)
def test_an_object_anywhere_people_put_one_is_seen(value: Any) -> None:
    assert not is_plain(value)


def test_looking_for_objects_costs_little_more_than_looking() -> None:
    turn = [
        say("question"),
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "let me see"},
                {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"path": "/"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a b c"}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "there you are"}]},
    ]
    messages = copy.deepcopy(turn * 2_500)
    assert any(
        _seconds(lambda: is_plain(messages)) < 4 * _seconds(lambda: _look(messages))
        for _ in range(10)
    )


def _look(messages: list[Any]) -> None:
    for message in messages:
        for value in message.values():
            if type(value) is list:
                for block in value:
                    for _ in block.values():
                        pass


def _seconds(run: Any) -> float:
    def once() -> float:
        start = time.process_time()
        run()
        return time.process_time() - start

    return min(once() for _ in range(7))


# --- the wire form


@pytest.mark.parametrize("block", [TEXT, THINKING, CALL], ids=lambda block: block.type)
def test_anthropic_objects_thaw_to_what_their_sdk_sends(block: Any) -> None:
    plain, _ = to_plain([{"role": "assistant", "content": [block]}])
    sent = block.model_dump(exclude_unset=True, mode="json", by_alias=True)
    assert plain == [{"role": "assistant", "content": [sent]}]
    assert is_plain(plain)


@pytest.mark.parametrize("item", [CHAT, ITEM, REASONING, OUTPUT], ids=lambda i: type(i).__name__)
def test_openai_objects_thaw_to_what_their_sdk_sends(item: Any) -> None:
    plain, _ = to_plain([item])
    assert plain == [item.model_dump(exclude_unset=True, mode="json", by_alias=True)]
    assert is_plain(plain)


def test_what_an_sdk_keeps_from_the_wire_is_not_in_the_plain_form() -> None:
    block = anthropic.types.ParsedTextBlock[Any].model_validate(
        {"type": "text", "text": "{}", "parsed_output": {"a": 1}}
    )
    assert to_plain([{"role": "assistant", "content": [block]}])[0][0]["content"] == [
        {"type": "text", "text": "{}"}
    ]


def test_an_unknown_block_that_an_sdk_let_through_keeps_all_its_fields() -> None:
    given = {"type": "brand_new", "payload": {"x": 1}}
    reply = anthropic.types.Message.model_construct(role="assistant", content=[given])
    assert to_plain([{"role": "assistant", "content": reply.content}])[0][0]["content"] == [given]


def test_google_objects_thaw_to_snake_case_with_bytes() -> None:
    plain, _ = to_plain([GOOGLE])
    assert plain == [
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True},
                {
                    # a null that the model itself wrote into the arguments is not dropped
                    "function_call": {
                        "id": "i",
                        "name": "ls",
                        "args": {"path": "/", "deep": None},
                    },
                    "thought_signature": b"\x00\xff",
                },
            ],
        }
    ]


def test_google_enums_thaw_to_strings() -> None:
    ran = google.CodeExecutionResult(outcome=google.Outcome.OUTCOME_OK, output="1")
    plain, _ = to_plain(
        [google.Content(role="model", parts=[google.Part(code_execution_result=ran)])]
    )
    outcome = plain[0]["parts"][0]["code_execution_result"]["outcome"]
    assert type(outcome) is str
    assert outcome == "OUTCOME_OK"


LANGCHAIN = [
    AI,
    langchain.HumanMessage("hi", name="ada", additional_kwargs={"x": 1}),
    langchain.SystemMessage("be brief"),
    langchain.ToolMessage("out", tool_call_id="1", status="error", artifact={"rows": [1]}),
    langchain.ChatMessage(content="hi", role="critic"),
    langchain.AIMessageChunk(
        content="",
        tool_call_chunks=[
            {"name": "ls", "args": "{}", "id": "1", "index": 0, "type": "tool_call_chunk"}
        ],
    ),
]


@pytest.mark.parametrize("message", LANGCHAIN, ids=lambda message: message.type)
def test_langchain_messages_thaw_to_their_dump(message: Any) -> None:
    assert to_plain([message])[0] == [message.model_dump()]


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (Note("user", "hi"), {"role": "user", "content": "hi", "tool_calls": None}),
        (Tagged("c1"), {"type": "tool_use", "callId": "c1"}),
        (Tagged("c1", caller="me"), {"type": "tool_use", "callId": "c1", "caller": "me"}),
        (Own(content="hi", callId="c"), {"role": "user", "content": "hi", "callId": "c"}),
        (Selective(role="user", content="hi"), say("hi")),
        (UserDict(say("hi")), say("hi")),
        (MappingProxyType(say("hi")), say("hi")),
        (OrderedDict(say("hi")), say("hi")),
        ({"role": Flavor.USER, "content": "hi"}, say("hi")),
        (
            {"role": "user", "at": datetime(2026, 1, 2, tzinfo=UTC)},
            {"role": "user", "at": "2026-01-02T00:00:00+00:00"},
        ),
        (("human", "hi"), {"type": "human", "content": "hi"}),
        (
            ("ai", [{"type": "text", "text": "x"}]),
            {"type": "ai", "content": [{"type": "text", "text": "x"}]},
        ),
        ("hi", "hi"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_kinds_thaw_to_plain_messages(given: Any, plain: Any) -> None:
    thawed, freeze = to_plain((given,))
    assert thawed == [plain]
    assert is_plain(thawed)
    assert freeze(thawed)[0] is given


# --- identity


def test_plain_parts_keep_their_identity() -> None:
    block = {"type": "text", "text": "x"}
    given = [say("hi"), {"role": "assistant", "content": [block, CALL]}, AI]
    plain, _ = to_plain(given)
    assert plain[0] is given[0]
    assert plain[1]["content"][0] is block
    assert plain[1]["content"][1]["input"] is CALL.input
    assert plain[2]["content"] is AI.content


def test_untouched_messages_come_back_as_the_same_objects() -> None:
    given = [say("hi"), {"role": "assistant", "content": [TEXT, CALL]}, CHAT, ITEM, GOOGLE]
    plain, freeze = to_plain(given)
    assert freeze(plain) is given
    healed = freeze([*plain[:2], say("new"), *plain[2:]])
    assert healed[2] == say("new")
    for before, after in zip(given, healed[:2] + healed[3:], strict=True):
        assert after is before


def test_an_object_that_stands_twice_comes_back_twice() -> None:
    plain, freeze = to_plain([CHAT, say("hi"), CHAT])
    assert plain[0] is plain[2]
    healed = freeze([plain[0], plain[2]])
    assert healed == [CHAT, CHAT]
    assert healed[0] is healed[1] is CHAT


def test_a_block_that_moved_to_another_message_is_the_same_object() -> None:
    plain, freeze = to_plain([{"role": "assistant", "content": [TEXT, CALL]}])
    text, call = plain[0]["content"]
    healed = freeze(
        [{"role": "assistant", "content": [text]}, {"role": "assistant", "content": [call]}]
    )
    assert healed[0]["content"][0] is TEXT
    assert healed[1]["content"][0] is CALL


def test_nothing_given_is_ever_changed() -> None:
    given = [*LANGCHAIN, GOOGLE, CHAT, {"role": "assistant", "content": [TEXT, CALL]}]
    before = copy.deepcopy(given)
    plain, freeze = to_plain(given)
    freeze([{**message, "content": "changed"} for message in plain])
    assert given == before


# --- changed objects


def test_a_changed_block_is_an_object_of_its_class() -> None:
    plain, freeze = to_plain([{"role": "assistant", "content": [TEXT, CALL]}])
    text, call = plain[0]["content"]
    [message] = freeze([{**plain[0], "content": [text, {**call, "id": "toolu_2"}]}])
    assert message["content"][0] is TEXT
    assert message["content"][1] == CALL.model_copy(update={"id": "toolu_2"})
    assert type(message["content"][1]) is anthropic.types.ToolUseBlock


def test_a_changed_text_block_is_found_by_its_place() -> None:
    plain, freeze = to_plain([{"role": "assistant", "content": [THINKING, TEXT]}])
    thinking, text = plain[0]["content"]
    [message] = freeze([{**plain[0], "content": [thinking, {**text, "text": "shorter"}]}])
    assert message["content"][1] == TEXT.model_copy(update={"text": "shorter"})


def test_new_blocks_and_messages_among_sdk_objects_are_dicts() -> None:
    plain, freeze = to_plain([{"role": "assistant", "content": [CALL]}, CHAT, ITEM])
    block = {"type": "text", "text": "new"}
    healed = freeze([{**plain[0], "content": [*plain[0]["content"], block]}, *plain[1:], say("x")])
    assert healed[0]["content"] == [CALL, block]
    assert healed[0]["content"][1] is block
    assert healed[-1] == say("x")


def test_a_changed_chat_message_keeps_its_class_its_extras_and_its_calls() -> None:
    plain, freeze = to_plain([say("hi"), CHAT])
    message = freeze([plain[0], {**plain[1], "content": "said"}])[1]
    assert [type(message)] == [openai.types.chat.ChatCompletionMessage]
    assert message.content == "said"
    assert message.reasoning_content == "not in the class"
    assert CHAT.tool_calls is not None
    assert message.tool_calls[0] is CHAT.tool_calls[0]
    assert message.model_fields_set == CHAT.model_fields_set


def test_a_changed_response_item_keeps_its_class() -> None:
    plain, freeze = to_plain([REASONING, ITEM])
    healed = freeze([plain[0], {**plain[1], "call_id": "c2"}])
    assert healed == [REASONING, ITEM.model_copy(update={"call_id": "c2"})]


def test_what_a_class_cannot_say_stays_a_dict() -> None:
    plain, freeze = to_plain([{"role": "assistant", "content": [CALL]}, GOOGLE])
    call = {**plain[0]["content"][0], "input": "not an object"}
    content = {**plain[1], "surplus": 1}
    healed = freeze([{**plain[0], "content": [call]}, content])
    assert healed[0]["content"] == [call]
    assert type(healed[1]) is dict
    assert healed[1]["parts"] == GOOGLE.parts


def test_a_changed_google_content_keeps_its_class_and_its_untouched_parts() -> None:
    plain, freeze = to_plain([GOOGLE])
    answer = {"function_response": {"id": "i", "name": "ls", "response": {"error": "x"}}}
    changed = {**plain[0], "parts": [*plain[0]["parts"], answer]}
    [content] = freeze([changed])
    assert isinstance(content, google.Content)
    assert content.parts is not None
    assert GOOGLE.parts is not None
    assert content.parts[0] is GOOGLE.parts[0]
    assert content.parts[1] is GOOGLE.parts[1]
    assert content.parts[2] == google.Part.model_validate(answer)


def test_a_new_content_among_google_objects_is_one() -> None:
    plain, freeze = to_plain([GOOGLE])
    new = {"role": "user", "parts": [{"text": "go on"}]}
    assert freeze([*plain, new])[1] == google.Content(
        role="user", parts=[google.Part(text="go on")]
    )


def test_contents_of_a_special_class_become_ordinary_ones_when_they_change() -> None:
    plain, freeze = to_plain([google.UserContent("hi"), google.ModelContent("ho")])
    new = {"role": "model", "parts": [{"text": "new"}]}
    changed = {**plain[0], "parts": [{"text": "changed"}]}
    assert freeze([changed, plain[1], new])[::2] == [
        google.Content(role="user", parts=[google.Part(text="changed")]),
        google.Content(role="model", parts=[google.Part(text="new")]),
    ]


def test_a_new_part_among_google_parts_is_one() -> None:
    given = [{"role": "user", "parts": [google.Part(text="a")]}]
    plain, freeze = to_plain(given)
    [message] = freeze([{**plain[0], "parts": [*plain[0]["parts"], {"text": "b"}]}])
    assert message["parts"] == [google.Part(text="a"), google.Part(text="b")]
    assert message["parts"][0] is given[0]["parts"][0]


def test_new_messages_among_langchain_objects_are_objects() -> None:
    plain, freeze = to_plain([AI])
    healed = freeze(
        [
            {"type": "human", "content": "hi"},
            *plain,
            {"type": "tool", "content": "lost", "tool_call_id": "1", "status": "error"},
            {"type": "ai", "content": "", "tool_calls": [{"name": "a", "args": {}, "id": "9"}]},
            {"type": "system", "content": "x"},
        ]
    )
    assert [type(message) for message in healed] == [
        langchain.HumanMessage,
        langchain.AIMessage,
        langchain.ToolMessage,
        langchain.AIMessage,
        langchain.SystemMessage,
    ]
    assert healed[1] is AI
    assert healed[2].status == "error"
    assert healed[3].tool_calls[0]["id"] == "9"


@pytest.mark.parametrize("message", LANGCHAIN, ids=lambda message: message.type)
def test_a_changed_langchain_message_keeps_its_class_and_all_else(message: Any) -> None:
    plain, freeze = to_plain([message])
    [changed] = freeze([{**plain[0], "content": "changed"}])
    assert changed == message.model_copy(update={"content": "changed"})
    assert type(changed) is type(message)
    assert changed is not message


def test_an_artifact_that_nothing_can_read_survives_a_change() -> None:
    artifact = Opaque()
    message = langchain.ToolMessage("out", tool_call_id="1", artifact=artifact)
    plain, freeze = to_plain([message])
    assert freeze([{**plain[0], "tool_call_id": "2"}])[0].artifact is artifact


def test_a_chunk_with_changed_calls_is_a_chunk_with_those_calls() -> None:
    chunk = LANGCHAIN[-1]
    plain, freeze = to_plain([chunk])
    call = {**plain[0]["tool_calls"][0], "id": "2"}
    [changed] = freeze([{**plain[0], "tool_calls": [call]}])
    assert type(changed) is langchain.AIMessageChunk
    assert changed.tool_calls == [call]
    assert [part["id"] for part in changed.tool_call_chunks] == ["2"]
    assert (changed + langchain.AIMessageChunk(content="!")).tool_calls == [call]


def test_a_langchain_message_that_changed_its_role_changes_its_class() -> None:
    plain, freeze = to_plain([langchain.ToolMessage("out", tool_call_id="1")])
    [healed] = freeze([{"type": "human", "content": "Result of a lost call: out"}])
    assert type(healed) is langchain.HumanMessage
    assert plain[0]["type"] == "tool"


def test_a_class_of_ones_own_survives_a_change() -> None:
    class Mine(langchain.AIMessage):
        mood: str = "calm"

    plain, freeze = to_plain([Mine(content="hi", mood="cross"), langchain.AIMessage("ho")])
    healed = freeze([{**plain[0], "content": "oh"}, plain[1]])
    assert type(healed[0]) is Mine
    assert healed[0].mood == "cross"


def test_a_class_of_ones_own_that_cannot_be_made_again_gives_way_to_its_base() -> None:
    class Mine(langchain.AIMessage):
        def __init__(self, text: str) -> None:
            super().__init__(content=text)

    plain, freeze = to_plain([Mine("hi")])
    assert freeze([{**plain[0], "content": "oh"}]) == [langchain.AIMessage("oh")]


def test_shorthand_stays_shorthand_while_it_can() -> None:
    given = [("human", "hi"), ("user", "ho"), AI]
    plain, freeze = to_plain(given)
    healed = freeze([{**plain[0], "content": "changed"}, {**plain[1], "id": "7"}, plain[2]])
    assert healed[0] == ("human", "changed")
    assert healed[1] == langchain.HumanMessage("ho", id="7")
    assert healed[2] is AI


def test_a_new_message_among_shorthand_only_is_an_object() -> None:
    plain, freeze = to_plain([("human", "hi")])
    assert freeze([*plain, {"type": "ai", "content": "x"}])[1] == langchain.AIMessage("x")


def test_a_message_langchain_has_no_class_for_stays_a_dict() -> None:
    plain, freeze = to_plain([AI])
    odd = {"type": "Serializable", "content": "x"}
    assert freeze([*plain, odd, {"content": "y"}])[1:] == [odd, {"content": "y"}]


def test_changed_data_classes_structs_models_and_mappings_keep_their_class() -> None:
    given = [Note("user", "a"), Tagged("c1"), Own(content="a"), UserDict(say("a"))]
    plain, freeze = to_plain(given)
    note, tagged, own, mapping = freeze(
        [
            {**plain[0], "content": "b"},
            {**plain[1], "callId": "c2"},
            {**plain[2], "content": "b"},
            {**plain[3], "content": "b"},
        ]
    )
    assert note == Note("user", "b")
    assert tagged == Tagged("c2")
    assert own == Own(content="b")
    assert type(mapping) is UserDict
    assert mapping == say("b")


def test_changed_ones_that_their_class_refuses_are_dicts() -> None:
    given = [Note("user", "a"), Tagged("c1"), defaultdict(list, say("a"))]
    plain, freeze = to_plain(given)
    changed = [{**plain[0], "x": 1}, {**plain[1], "callId": 5}, {**plain[2], "content": "b"}]
    assert freeze(changed) == changed


# --- containers and bodies


@pytest.mark.parametrize("kind", [tuple, deque, UserList])
def test_the_list_comes_back_in_its_kind(kind: Any) -> None:
    given = kind([say("hi"), CHAT])
    plain, freeze = to_plain(given)
    assert type(plain) is list
    assert freeze(plain) is given
    healed = freeze([*plain, say("new")])
    assert type(healed) is kind
    assert list(healed) == [say("hi"), CHAT, say("new")]


def test_a_kind_that_cannot_hold_the_healed_list_gives_a_list() -> None:
    plain, freeze = to_plain(Pair(say("hi"), CHAT))
    assert freeze([*plain, say("new")]) == [say("hi"), CHAT, say("new")]


def test_a_tuple_of_blocks_stays_a_tuple() -> None:
    plain, freeze = to_plain([{"role": "assistant", "content": (TEXT, CALL)}])
    block = {"type": "text", "text": "new"}
    [message] = freeze([{**plain[0], "content": [*plain[0]["content"], block]}])
    assert message["content"] == (TEXT, CALL, block)


def test_an_iterator_comes_back_as_a_list_of_the_same_objects() -> None:
    plain, freeze = to_plain(message for message in [AI, ("human", "hi")])
    assert freeze(plain) == [AI, ("human", "hi")]
    assert freeze(plain)[0] is AI
    plain, freeze = to_plain(iter([say("hi")]))
    assert freeze(plain) == [say("hi")]


def test_an_iterator_in_a_body_comes_back_as_a_list() -> None:
    plain, freeze = to_plain({"model": "m", "messages": iter([CHAT])})
    assert freeze(plain) == {"model": "m", "messages": [CHAT]}


def test_a_body_comes_back_with_everything_around_the_messages() -> None:
    config = google.GenerateContentConfig(tools=[print])
    body = {"model": "gemini", "contents": (GOOGLE,), "config": config, "client": Opaque()}
    plain, freeze = to_plain(body)
    assert plain["client"] is body["client"]
    healed = freeze({**plain, "contents": [*plain["contents"], {"role": "user", "parts": []}]})
    assert healed["config"] is config
    assert healed["client"] is body["client"]
    assert healed["contents"] == (GOOGLE, google.Content(role="user", parts=[]))


def test_a_state_object_around_the_messages_keeps_its_class() -> None:
    @dataclass
    class State:
        messages: list[Any]
        notes: dict[str, Any] = field(default_factory=dict)

    notes: dict[str, Any] = {"a": 1}
    plain, freeze = to_plain(State([AI], notes))
    healed = freeze({**plain, "messages": [*plain["messages"], {"type": "human", "content": "x"}]})
    assert healed == State([AI, langchain.HumanMessage("x")], notes)
    assert healed.notes is notes


# --- what cannot be read


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ([say("hi"), Opaque()], "messages.1"),
        ([say("hi"), {"role": "user", "content": [TEXT, Opaque()]}], "messages.1.content.1"),
        ({"contents": [{"role": "user", "parts": [Opaque()]}]}, "contents.0.parts.0"),
        ({"input": [{"type": "message", "content": Opaque()}]}, "input.0.content"),
    ],
)
def test_an_unknown_object_is_named_by_type_and_place_but_not_shown(value: Any, place: str) -> None:
    with pytest.raises(UsageError) as error:
        to_plain(value)
    assert f"at {place}:" in str(error.value)
    assert "Opaque" in str(error.value)
    assert "secret" not in str(error.value)


def test_a_set_is_not_taken_for_a_list() -> None:
    with pytest.raises(UsageError, match=r"builtins\.set at messages\.0\.content"):
        to_plain([{"role": "user", "content": {"a"}}])


def test_values_that_contain_themselves_end() -> None:
    loop: dict[str, Any] = {"role": "user", "content": "x"}
    loop["self"] = [loop, loop]
    plain, freeze = to_plain([loop, CHAT])
    assert plain[0] is loop
    assert freeze(plain)[1] is CHAT


def test_hostile_depth_ends() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    plain, freeze = to_plain([{"role": "user", "content": deep}, CHAT])
    assert plain[0]["content"] is deep
    assert freeze([plain[1]]) == [CHAT]
    moved = freeze([plain[1], {"role": "assistant", "content": [plain[0]["content"]]}])
    assert moved[1]["content"][0] is deep


ALONE = """
import sys
from lockstitch.conversation.sdk_objects import to_plain
plain, freeze = to_plain([("human", "hi"), {"role": "user", "content": ("x",)}])
new = {"type": "ai", "content": "x"}
assert freeze([*plain, new])[2] == new
print(*{"pydantic", "langchain_core", "google", "anthropic", "openai"} & set(sys.modules))
"""


def test_no_package_is_imported_to_read_objects() -> None:
    run = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


# --- in general

SCALAR = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=3)
TREE = st.recursive(
    SCALAR
    | st.sampled_from([TEXT, CALL, CHAT, GOOGLE, AI])
    | st.builds(Note, st.text(), st.text()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(UserDict)
    ),
    max_leaves=12,
)


@given(st.lists(TREE, max_size=5))
def test_thawing_and_freezing_gives_the_very_same_things(given_: list[Any]) -> None:
    plain, freeze = to_plain(given_)
    assert freeze(plain) is given_
    assert _is_all_plain(plain)
    again = freeze([*plain, "new"])
    assert all(after is before for before, after in zip(given_, again, strict=False))


@given(st.lists(TREE, max_size=5))
def test_a_healed_value_says_the_same_frozen_as_plain(given_: list[Any]) -> None:
    plain, freeze = to_plain(given_)
    rebuilt = _rebuilt(plain)
    assert _without_nulls(to_plain(freeze(rebuilt))[0]) == _without_nulls(rebuilt)


def _rebuilt(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rebuilt(part) for key, part in value.items()}
    return [_rebuilt(part) for part in value] if isinstance(value, list) else value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def _is_all_plain(value: Any) -> bool:
    if type(value) is dict:
        return all(map(_is_all_plain, value.values()))
    if type(value) is list:
        return all(map(_is_all_plain, value))
    return type(value) in (str, int, float, bool, bytes, type(None))
