"""Replies as they come: what the provider sent is what is kept, and nothing else is taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import anthropic
import botocore.config  # type: ignore[import-untyped]
import botocore.session  # type: ignore[import-untyped]
import openai
import pytest
from google import genai
from google.genai import types as google
from hypothesis import given, settings
from langchain_core import messages as langchain

from lockstitch.dialects.exchange import messages_in
from lockstitch.errors import AmbiguousDialect, UsageError
from lockstitch.journal.events import bytes_of, entry_of, event_of, value_of
from lockstitch.journal.records import JournalRecord
from lockstitch.session.replies import reply_event
from tests.conftest import EXAMPLES
from tests.property.pieces import json_values

from .sending import Sender, sending
from .spoken import SPEAKERS, Asked, Piece, Said, Thought, replies

few = settings(max_examples=int(EXAMPLES or 25))
RICH: list[Piece] = [
    Thought("hm", "c2lnbmVk"),
    Said("Some words: é😀."),
    Asked("toolu_1", "look", {"path": "a b", "n": [1, {"é": None}]}),
]
SECRET = "swordfish"  # noqa: S105 - what must not be in an error
ASK: Any = [{"role": "user", "content": "Go."}]


@pytest.fixture(scope="module")
def sender() -> Iterator[Sender]:
    with sending() as running:
        yield running


def kept(event: Any) -> Any:
    return value_of(event.payload, inner=True)


class TestJson:
    @pytest.mark.parametrize("speaker", SPEAKERS.values(), ids=SPEAKERS)
    @pytest.mark.parametrize("indent", [None, 2])
    def test_bytes_are_kept_byte_for_byte(self, speaker: Any, indent: int | None) -> None:
        whole = speaker.whole(speaker.fitting(RICH))
        raw = json.dumps(whole, indent=indent, ensure_ascii=bool(indent)).encode() + b" "
        event = reply_event(raw)
        assert bytes_of(event.payload) == raw
        assert event.dialect == speaker.dialect
        assert [(call.id, call.name) for call in event.calls] == [("toolu_1", "look")]
        assert reply_event(raw.decode(), speaker.dialect) == event
        assert reply_event(bytearray(raw)) == event
        assert reply_event(whole).calls == event.calls

    @few
    @given(pieces=replies())
    @pytest.mark.parametrize("speaker", SPEAKERS.values(), ids=SPEAKERS)
    def test_it_goes_into_a_journal_and_comes_out_the_same(
        self, speaker: Any, pieces: list[Piece]
    ) -> None:
        whole = speaker.whole(speaker.fitting(pieces))
        event = reply_event(whole, speaker.dialect)
        entry = entry_of(event, "k", 0)
        assert event_of(JournalRecord(1, 1, "k", 0, entry.body, b"")) == event
        assert kept(event) == whole

    @pytest.mark.parametrize("text", ["", "Hello", "{", "[1,", b"\xff\xfe", '{"a": 1} x'])
    def test_what_is_no_json_is_no_reply(self, text: Any) -> None:
        with pytest.raises(UsageError, match="not JSON"):
            reply_event(text)

    def test_half_an_emoji(self) -> None:
        raw = b'{"role": "assistant", "content": "so \\ud83d"}'
        event = reply_event(raw, "anthropic")
        assert bytes_of(event.payload) == raw
        plain = {"role": "assistant", "content": "so \ud83d"}
        assert kept(reply_event(plain, "anthropic")) == plain
        block = {"type": "tool_use", "id": "t\ud83d", "name": "look", "input": {}}
        event = reply_event({"role": "assistant", "content": [block]}, "anthropic")
        assert event_of(JournalRecord(1, 1, "k", 0, entry_of(event, "k", 0).body, b"")) == event

    def test_bytes_in_plain_data_are_written_as_the_wire_has_them(self) -> None:
        sealed = {"reasoningContent": {"redactedContent": b"\x00\xff"}}
        message = {"role": "assistant", "content": [sealed, {"text": "so"}]}
        event = reply_event({"output": {"message": message}})
        content = kept(event)["output"]["message"]["content"]
        assert content[0] == {"reasoningContent": {"redactedContent": "AP8="}}
        assert messages_in("bedrock", kept(event)) == [message]


class TestObjects:
    """Whatever the provider's JSON holds, fields of tomorrow included, is what the event holds."""

    def test_anthropic(self, sender: Sender) -> None:
        whole = SPEAKERS["anthropic"].whole(RICH)
        whole["content"] += [{"type": "of_tomorrow", "a": [1]}, {**whole["content"][1], "b": None}]
        whole |= {"later": {"c": 1}, "usage": {**whole["usage"], "d": 2}}
        sender.send_json(whole)
        with anthropic.Anthropic(base_url=sender.url, api_key="x", max_retries=0) as client:
            message = client.messages.create(model="m", max_tokens=9, messages=ASK)
            beta = client.beta.messages.create(model="m", max_tokens=9, messages=ASK)
        assert kept(reply_event(message)) == kept(reply_event(beta)) == whole
        event = reply_event(message)
        assert (event.dialect, event.provider, event.model) == (
            "anthropic",
            "anthropic",
            "claude-fable-5",
        )
        content = {"role": "assistant", "content": message.content}
        assert kept(reply_event(content))["content"] == whole["content"]
        assert kept(reply_event(message.content, "anthropic")) == whole["content"]

    def test_chat(self, sender: Sender) -> None:
        speaker = SPEAKERS["openai-chat"]
        whole = speaker.whole(speaker.fitting(RICH))
        whole["choices"][0] |= {"content_filter_results": {"hate": {"filtered": False}}}
        whole["later"] = [1]
        sender.send_json(whole)
        with openai.OpenAI(base_url=sender.url, api_key="x", max_retries=0) as client:
            completion = client.chat.completions.create(model="m", messages=ASK)
            parsed = client.chat.completions.parse(model="m", messages=ASK)
        assert kept(reply_event(completion)) == whole
        assert kept(reply_event(completion.choices[0].message)) == whole["choices"][0]["message"]
        sent_back = messages_in("openai-chat", whole)
        assert messages_in("openai-chat", kept(reply_event(parsed))) == sent_back
        event = reply_event(completion, "openai-chat:deepseek", model="deepseek-chat")
        assert (event.dialect, event.provider, event.model) == (
            "openai-chat",
            "deepseek",
            "deepseek-chat",
        )

    def test_responses(self, sender: Sender) -> None:
        whole = SPEAKERS["openai-responses"].whole(RICH)
        with openai.OpenAI(base_url=sender.url, api_key="x", max_retries=0) as client:
            sender.send_json(whole)
            parsed = client.responses.parse(model="m", input=ASK)
            assert kept(reply_event(parsed))["output"] == whole["output"]
            whole["output"] += [{"type": "of_tomorrow", "id": "x_1", "a": [1]}]
            whole["later"] = {"b": 1}
            sender.send_json(whole)
            response = client.responses.create(model="m", input=ASK)
        assert kept(reply_event(response)) == whole
        items = reply_event(response.output)
        assert (items.dialect, kept(items)) == ("openai-responses", whole["output"])
        assert [call.id for call in items.calls] == ["toolu_1"]

    def test_gemini(self, sender: Sender) -> None:
        whole = SPEAKERS["gemini"].whole(RICH)
        image = {"inlineData": {"mimeType": "image/png", "data": "AP8="}}
        whole["candidates"][0]["content"]["parts"].append(image)
        whole["responseId"] = "r"
        sender.send_json(whole)
        options = google.HttpOptions(base_url=sender.url)
        with genai.Client(api_key="x", vertexai=False, http_options=options) as client:
            response = client.models.generate_content(model="gemini-3-pro", contents="Go.")
        event = reply_event(response)
        assert kept(event) == whole
        assert (event.provider, event.model) == ("google", "gemini-3-pro")
        candidates = response.candidates or []
        assert kept(reply_event(candidates[0].content)) == whole["candidates"][0]["content"]

    def test_bedrock(self, sender: Sender) -> None:
        speaker = SPEAKERS["bedrock"]
        whole = speaker.whole(speaker.fitting(RICH))
        whole["usage"] = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}
        sealed = {"reasoningContent": {"redactedContent": "AP8="}}
        whole["output"]["message"]["content"].insert(0, sealed)
        sender.send_json(whole)
        client = botocore.session.get_session().create_client(
            "bedrock-runtime",
            region_name="us-east-1",
            endpoint_url=sender.url,
            aws_access_key_id="x",
            aws_secret_access_key="x",  # noqa: S106 - nobody checks it
            config=botocore.config.Config(retries={"total_max_attempts": 1}),
        )
        with closing(client):
            messages = [{"role": "user", "content": [{"text": "Go."}]}]
            response = client.converse(modelId="m", messages=messages)
        event = reply_event(response)
        value = kept(event)
        del value["ResponseMetadata"]
        assert value == whole
        assert (event.dialect, event.provider, event.model) == ("bedrock", "aws", "")

    def test_langchain(self) -> None:
        call = langchain.ToolCall(name="look", args={"a": 1}, id="c1")
        odd = anthropic.types.TextBlock(type="text", text="x")
        metadata = {"model_name": "gpt-5", "raw": odd, "odd": object(), "bytes": b"\x00"}
        message = langchain.AIMessage("so", tool_calls=[call], response_metadata=metadata)
        event = reply_event(message)
        assert (event.dialect, event.provider, event.model) == ("langchain", "langchain", "gpt-5")
        value = kept(event)
        assert value["content"] == "so"
        assert value["response_metadata"]["raw"] == {"type": "text", "text": "x"}
        (again,) = langchain.convert_to_messages(messages_in("langchain", value))
        assert again.tool_calls == message.tool_calls  # type: ignore[attr-defined]
        listed = langchain.messages_to_dict([langchain.AIMessage("so", tool_calls=[call])])
        assert reply_event(listed).calls == event.calls
        chunk = langchain.AIMessageChunk(content="so")
        assert reply_event(chunk).dialect == "langchain"


EMPTY: list[Any] = [
    {"type": "message", "role": "assistant", "model": "m", "content": []},
    {"choices": [{"message": {"role": "assistant", "content": None}}]},
    {"object": "response", "status": "completed", "output": []},
    {"candidates": [{"finishReason": "SAFETY"}]},
    {"promptFeedback": {"blockReason": "SAFETY"}},
    {"output": {"message": {"role": "assistant", "content": []}}},
    {"type": "ai", "content": ""},
    {"type": "ai", "data": {"content": ""}},
]
NO_REPLIES: list[Any] = [
    {"type": "error", "error": {"type": "overloaded_error", "message": SECRET}},
    {"error": {"message": SECRET, "code": 429}},
    {"error": {"message": SECRET}, "choices": []},
    {"object": "response", "status": "failed", "output": [], "error": {"message": SECRET}},
    {"object": "response", "status": "in_progress", "output": []},
    {"model": "m", "messages": [{"role": "user", "content": SECRET}]},
    {"model": "m", "input": [{"role": "user", "content": SECRET}]},
    {"contents": [{"role": "user", "parts": [{"text": SECRET}]}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": SECRET}]},
    {"role": "user", "parts": [{"text": SECRET}]},
    {"role": "user", "content": [{"toolResult": {"toolUseId": "t", "content": []}}]},
    {"role": "tool", "tool_call_id": "c", "content": SECRET},
    {"type": "function_call_output", "call_id": "c", "output": SECRET},
    {"type": "human", "content": SECRET},
    [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": SECRET}]}],
    {},
    [],
    [SECRET],
    {"text": SECRET},
    f'"{SECRET}"',
    SECRET,
    3,
    None,
    object(),
    iter([SECRET]),
    ValueError(SECRET),
]


class TestRefused:
    @pytest.mark.parametrize("reply", EMPTY)
    def test_a_reply_may_be_empty(self, reply: Any) -> None:
        event = reply_event(reply)
        assert event.calls == ()
        assert kept(event) == reply

    @pytest.mark.parametrize("reply", NO_REPLIES, ids=range(len(NO_REPLIES)))
    def test_what_is_no_reply_is_refused_without_telling_what_it_says(self, reply: Any) -> None:
        with pytest.raises(UsageError) as caught:
            reply_event(reply)
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None

    @pytest.mark.parametrize("dialect", ["anthropic", "openai-chat", "openai-responses", "gemini"])
    @pytest.mark.parametrize("reply", NO_REPLIES, ids=range(len(NO_REPLIES)))
    def test_naming_a_dialect_makes_it_no_reply(self, reply: Any, dialect: str) -> None:
        with pytest.raises(UsageError):
            reply_event(reply, dialect)

    def test_a_reply_that_several_dialects_could_be(self) -> None:
        reply = {"role": "assistant", "content": SECRET}
        with pytest.raises(AmbiguousDialect) as caught:
            reply_event(reply)
        assert SECRET not in str(caught.value)
        assert reply_event(reply, "anthropic").dialect == "anthropic"
        assert reply_event(reply, "openai-chat").dialect == "openai-chat"

    def test_a_reply_in_another_dialect_than_was_named(self) -> None:
        with pytest.raises(UsageError, match="this is a reply in openai-chat, not in anthropic"):
            reply_event(SPEAKERS["openai-chat"].whole([]), "anthropic")
        with pytest.raises(UsageError, match="unknown dialect"):
            reply_event({"role": "assistant", "content": "x"}, "morse")

    def test_a_value_that_json_cannot_say(self) -> None:
        block = {"type": "text", "text": "x", "odd": object()}
        with pytest.raises(UsageError, match="as JSON"):
            reply_event({"role": "assistant", "content": [block]}, "anthropic")
        loop: dict[str, Any] = {"role": "assistant"}
        loop["content"] = [loop]
        with pytest.raises(UsageError):
            reply_event(loop, "anthropic")

    @few
    @given(value=json_values)
    def test_odd_values_are_refused_or_taken_and_nothing_else(self, value: Any) -> None:
        for dialect in (None, *SPEAKERS):
            name = dialect and SPEAKERS[dialect].dialect
            for reply in (value, {"role": "assistant", "content": value}, {"choices": [value]}):
                try:
                    event = reply_event(reply, name)
                except UsageError:
                    continue
                entry_of(event, "k", 0)


def test_the_one_who_records_has_the_last_word() -> None:
    reply = SPEAKERS["anthropic"].whole(RICH)
    event = reply_event(reply, provider="bedrock", model="mine")
    assert (event.provider, event.model) == ("bedrock", "mine")
    assert reply_event(reply, provider="").provider == ""
