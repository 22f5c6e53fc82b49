"""Streams as particular servers send them, and streams that end in other ways than they should."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import lockstitch
from lockstitch.dialects.exchange import Accumulator, accumulator_for, calls_in, messages_in
from lockstitch.errors import UsageError
from lockstitch.session.replies import reply_event

from .spoken import SPEAKERS, Asked, Said, Thought


def fed(dialect: str, events: Iterable[Any]) -> Accumulator:
    made = accumulator_for(dialect)
    for event in events:
        made.feed(event)
    return made


def test_a_dialect_must_be_known() -> None:
    with pytest.raises(UsageError, match="unknown dialect"):
        accumulator_for("morse")


@pytest.mark.parametrize("dialect", [name for name in SPEAKERS if name != "langchain-blocks"])
def test_before_anything_came_there_is_nothing_to_keep(dialect: str) -> None:
    made = accumulator_for(dialect)
    assert made.closed() is None
    assert not made.complete
    assert made.blocks_closed == 0
    assert messages_in(dialect, made.whole()) == []


class TestAnthropic:
    def start(self, index: int, **block: Any) -> dict[str, Any]:
        return {"type": "content_block_start", "index": index, "content_block": block}

    def delta(self, index: int, kind: str, **fields: Any) -> dict[str, Any]:
        delta = {"type": kind, **fields}
        return {"type": "content_block_delta", "index": index, "delta": delta}

    def stop(self, index: int) -> dict[str, Any]:
        return {"type": "content_block_stop", "index": index}

    def call(self, text: str) -> list[dict[str, Any]]:
        begun = self.start(0, type="tool_use", id="toolu_1", name="look", input={})
        return [begun, self.delta(0, "input_json_delta", partial_json=text), self.stop(0)]

    @pytest.mark.parametrize("text", ['{"path": "/e', "[1]", "nonsense", '{"a": 1} {'])
    def test_arguments_that_cannot_be_read_are_told_and_never_guessed(self, text: str) -> None:
        made = fed("anthropic", self.call(text))
        assert made.closed() is None
        (call,) = made.whole()["content"]
        assert call["input"] == {"INVALID_JSON": text}

    def test_half_a_character_in_the_arguments(self) -> None:
        """The SDK reads it; what is kept of a broken stream must be valid, and leaves it out."""
        made = fed("anthropic", self.call('{"a": "\\ud83d"}'))
        assert made.whole()["content"][0]["input"] == {"a": "\ud83d"}
        assert made.closed() is None

    def test_half_a_character_at_the_cut(self) -> None:
        events = [
            self.start(0, type="text", text=""),
            self.delta(0, "text_delta", text="so \ud83d"),
        ]
        made = fed("anthropic", events)
        assert made.closed()["content"][0]["text"] == "so \ufffd"
        made.feed(self.delta(0, "text_delta", text="\ude00"))
        assert made.closed()["content"][0]["text"] == "so 😀"
        assert made.whole()["content"][0]["text"] == "so 😀"

    def test_no_arguments_are_none(self) -> None:
        made = fed("anthropic", self.call(""))
        assert made.whole()["content"][0]["input"] == {}
        closed = made.closed()
        assert calls_in("anthropic", [closed]) == [("toolu_1", "look")]

    def thinking(self, signature: str) -> list[dict[str, Any]]:
        return [
            self.start(0, type="thinking", thinking="", signature=""),
            self.delta(0, "thinking_delta", thinking="hm"),
            self.delta(0, "signature_delta", signature=signature),
            self.stop(0),
            self.start(1, type="text", text=""),
            self.delta(1, "text_delta", text="so"),
        ]

    def test_a_provider_that_does_not_sign_gets_its_thinking_back(self) -> None:
        signed = fed("anthropic", self.thinking("c2ln")).closed()
        assert [block["type"] for block in signed["content"]] == ["thinking", "text"]
        unsigned = fed("anthropic", self.thinking("")).closed()
        assert [block["type"] for block in unsigned["content"]] == ["text"]
        deepseek = fed("anthropic:deepseek", self.thinking("")).closed()
        assert [block["type"] for block in deepseek["content"]] == ["thinking", "text"]

    def test_citations(self) -> None:
        citation = {"type": "char_location", "cited_text": "x", "document_index": 0}
        events = [self.start(0, type="text", text="", citations=[])]
        events += [self.delta(0, "citations_delta", citation=citation)] * 2
        events += [self.delta(0, "text_delta", text="so")]
        made = fed("anthropic", events)
        assert made.closed()["content"][0]["citations"] == [citation, citation]

    def test_a_search_without_its_result_is_left_out(self) -> None:
        search = self.start(1, type="server_tool_use", id="s1", name="web_search", input={})
        events = [self.start(0, type="text", text="I look."), search, self.stop(1)]
        assert [b["type"] for b in fed("anthropic", events).closed()["content"]] == ["text"]
        found = self.start(2, type="web_search_tool_result", tool_use_id="s1", content=[])
        made = fed("anthropic", [*events, found, self.stop(2)])
        assert len(made.closed()["content"]) == 3

    def test_another_model_that_takes_over_gives_its_name(self) -> None:
        start = {"type": "message_start", "message": {"role": "assistant", "model": "one"}}
        took = self.start(0, type="fallback", to={"model": "two"})
        assert fed("anthropic", [start, took, self.stop(0)]).whole()["model"] == "two"

    def test_an_error_in_the_stream_leaves_it_incomplete(self) -> None:
        events = [self.start(0, type="text", text="half an ans")]
        error = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
        made = fed("anthropic", [*events, error])
        assert not made.complete
        assert made.closed()["content"] == [{"type": "text", "text": "half an ans"}]


class TestChat:
    def chunk(self, reason: str | None = None, **delta: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"object": "chat.completion.chunk", "choices": [choice]}

    def call(self, arguments: str, **fields: Any) -> dict[str, Any]:
        function = {"name": "look", "arguments": arguments}
        return self.chunk(tool_calls=[{"type": "function", "function": function, **fields}])

    def calls(self, made: Accumulator) -> list[tuple[str, str]]:
        calls = made.whole()["choices"][0]["message"]["tool_calls"]
        return [(call["id"], call["function"]["arguments"]) for call in calls]

    def test_ids_and_names_that_are_said_again_with_every_piece(self) -> None:
        events = [self.call(bit, index=0, id="c1") for bit in ('{"a"', ": 1", "}")]
        made = fed("openai-chat", events)
        assert self.calls(made) == [("c1", '{"a": 1}')]
        assert made.whole()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "look"

    def test_calls_that_all_have_the_same_index(self) -> None:
        events = [self.call('{"a": 1}', index=0, id="c1"), self.call("{}", index=0, id="c2")]
        assert self.calls(fed("openai-chat", events)) == [("c1", '{"a": 1}'), ("c2", "{}")]

    def test_calls_without_an_index(self) -> None:
        more = self.chunk(tool_calls=[{"function": {"arguments": ": 1}"}}])
        events = [self.call('{"a"', id="c1"), more, self.call("{}", id="c2")]
        assert self.calls(fed("openai-chat", events)) == [("c1", '{"a": 1}'), ("c2", "{}")]

    def test_calls_that_grow_side_by_side(self) -> None:
        events = [self.call("", index=1, id="c2"), self.call("", index=0, id="c1")]
        for index, bit in ((0, "{"), (1, "{"), (0, "}"), (1, "}")):
            delta = {"index": index, "function": {"arguments": bit}}
            events.append(self.chunk(tool_calls=[delta]))
        assert self.calls(fed("openai-chat", events)) == [("c1", "{}"), ("c2", "{}")]

    def test_a_call_that_was_cut_by_the_limit_is_not_kept(self) -> None:
        events = [self.call('{"a": "long', index=0, id="c1"), self.chunk("length")]
        made = fed("openai-chat", events)
        assert made.complete
        assert made.closed() is None

    def test_a_call_in_free_text_is_kept_once_something_follows_it(self) -> None:
        custom = {"type": "custom", "id": "c1", "custom": {"name": "sh", "input": "ls"}}
        begun = self.chunk(tool_calls=[{"index": 0, **custom}])
        more = self.chunk(tool_calls=[{"index": 0, "custom": {"input": " -l"}}])
        assert fed("openai-chat", [begun, more]).closed() is None
        closed = fed("openai-chat", [begun, more, self.chunk("tool_calls")]).closed()
        assert closed["tool_calls"][0]["custom"]["input"] == "ls -l"

    def test_a_refusal_is_words(self) -> None:
        events = [self.chunk(refusal="I ca"), self.chunk(refusal="nnot")]
        closed = fed("openai-chat", events).closed()
        assert closed == {"role": "assistant", "content": None, "refusal": "I cannot"}
        ask = {"role": "user", "content": "Go."}
        assert lockstitch.check([ask, closed], "openai-chat") == []

    def test_reasoning_is_kept_once_something_follows_it(self) -> None:
        thinking = [self.chunk(reasoning_content="let me"), self.chunk(reasoning_content=" see")]
        assert fed("openai-chat:deepseek", thinking).closed() is None
        closed = fed("openai-chat:deepseek", [*thinking, self.chunk(content="So")]).closed()
        assert closed["reasoning_content"] == "let me see"

    def test_reasoning_in_numbered_pieces(self) -> None:
        pieces = [
            {"type": "reasoning.text", "text": "let", "index": 0, "format": "anthropic-v1"},
            {"type": "reasoning.text", "text": " me", "index": 0, "format": "anthropic-v1"},
            {"type": "reasoning.text", "signature": "c2ln", "index": 0, "format": "anthropic-v1"},
        ]
        made = fed("openai-chat", [self.chunk(reasoning_details=[piece]) for piece in pieces])
        (detail,) = made.whole()["choices"][0]["message"]["reasoning_details"]
        assert detail == {**pieces[0], "text": "let me", "signature": "c2ln"}

    def test_content_in_blocks(self) -> None:
        thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
        events = [self.chunk(content=[thought]), self.chunk(content="So"), self.chunk(content=".")]
        message = fed("openai-chat:mistral", events).whole()["choices"][0]["message"]
        assert message["content"] == [thought, {"type": "text", "text": "So."}]

    def test_what_was_spoken_is_kept_as_text(self) -> None:
        bits = [{"id": "audio_1", "data": "AA"}, {"transcript": "Hel"}, {"transcript": "lo"}]
        made = fed("openai-chat", [self.chunk(audio=bit) for bit in bits])
        assert made.closed() == {"role": "assistant", "content": "Hello"}

    def test_several_choices(self) -> None:
        second = {"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"}]}
        made = fed("openai-chat", [self.chunk(content="a"), second])
        assert not made.complete
        contents = [choice["message"]["content"] for choice in made.whole()["choices"]]
        assert contents == ["a", "b"]
        assert made.closed() == {"role": "assistant", "content": "a"}


class TestResponses:
    def events(self) -> list[dict[str, Any]]:
        pieces = [Thought("hm", "c2ln"), Said("some words"), Asked("c1", "look", {"a": 1})]
        return [sent.event for sent in SPEAKERS["openai-responses"].events(pieces, 4)]

    def test_a_last_event_without_the_output(self) -> None:
        *events, last = self.events()
        full = last["response"]["output"]
        made = fed("openai-responses", [*events, {**last, "response": {"status": "completed"}}])
        assert made.complete
        assert made.whole()["output"] == full

    def test_a_response_that_hit_the_limit_is_over(self) -> None:
        *events, last = self.events()
        last = {"type": "response.incomplete", "response": {**last["response"], "status": "x"}}
        assert fed("openai-responses", [*events, last]).complete

    def test_a_response_that_failed_is_not_over(self) -> None:
        *events, last = self.events()
        failed = {"type": "response.failed", "response": {**last["response"], "status": "failed"}}
        made = fed("openai-responses", [*events, failed])
        assert not made.complete
        assert [item["type"] for item in made.closed()] == ["reasoning", "message", "function_call"]

    def test_a_call_that_is_marked_incomplete_is_not_kept(self) -> None:
        item = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
        done = {"type": "response.output_item.done", "output_index": 0}
        event = {**done, "item": {**item, "status": "incomplete"}}
        assert fed("openai-responses", [event]).closed() is None
        event = {**done, "item": {**item, "arguments": '{"a": '}}
        assert fed("openai-responses", [event]).closed() is None
        assert fed("openai-responses", [{**done, "item": item}]).closed() == [item]

    def test_text_of_a_message_that_was_never_announced(self) -> None:
        delta = {"type": "response.output_text.delta", "output_index": 0, "delta": "words"}
        (message,) = fed("openai-responses", [delta]).closed()
        assert message["role"] == "assistant"
        assert message["content"][0]["text"] == "words"


class TestGemini:
    def chunk(self, *parts: dict[str, Any], **rest: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **rest}]}

    def parts(self, made: Accumulator) -> list[Any]:
        parts: list[Any] = made.whole()["candidates"][0]["content"]["parts"]
        return parts

    def test_a_signed_part_is_never_joined_with_another(self) -> None:
        signed = {"text": "", "thoughtSignature": "c2ln"}
        events = [self.chunk({"text": "a"}), self.chunk({"text": "b"}), self.chunk(signed)]
        made = fed("gemini", [*events, self.chunk({"text": "c"})])
        assert self.parts(made) == [{"text": "ab"}, signed, {"text": "c"}]
        assert made.closed()["parts"] == self.parts(made)

    def test_a_signature_alone_says_nothing(self) -> None:
        event = self.chunk({"text": "", "thoughtSignature": "c2ln"})
        assert fed("gemini", [event]).closed() is None

    @pytest.mark.parametrize("spelled", [("functionCall", "partialArgs", "willContinue", "jsonPath",
                                          "stringValue", "numberValue", "nullValue"),
                                         ("function_call", "partial_args", "will_continue",
                                          "json_path", "string_value", "number_value",
                                          "null_value")])  # fmt: skip
    def test_arguments_that_are_streamed(self, spelled: tuple[str, ...]) -> None:
        call, args, more, path, text, number, null = spelled
        pieces: list[dict[str, Any]] = [
            {"name": "look", more: True},
            {args: [{path: "$.path", text: "/e", more: True}], more: True},
            {args: [{path: "$.path", text: "tc"}], more: True},
            {args: [{path: "$.at[0].x", number: 1}], more: True},
            {args: [{path: "$.at[1]['y z']", null: "NULL_VALUE"}], more: True},
            {},
        ]
        made = accumulator_for("gemini")
        for piece in pieces:
            assert made.closed() is None
            made.feed(self.chunk({call: piece}))
        args_seen = {"path": "/etc", "at": [{"x": 1}, {"y z": None}]}
        assert self.parts(made) == [{call: {"name": "look", "args": args_seen}}]
        assert calls_in("gemini", [made.closed()]) == [("", "look")]

    def test_a_prompt_that_was_blocked_is_an_empty_reply(self) -> None:
        made = fed("gemini", [{"promptFeedback": {"blockReason": "SAFETY"}}])
        assert made.complete
        assert reply_event(made.whole()).calls == ()


class TestBedrock:
    def test_a_thought_that_was_never_signed_is_left_out(self) -> None:
        deltas: list[Any] = [(0, {"reasoningContent": {"text": "hm"}}), (1, {"text": "so"})]
        events: list[dict[str, Any]] = [
            {"contentBlockDelta": {"delta": delta, "contentBlockIndex": index}}
            for index, delta in deltas
        ]
        events.append({"contentBlockStop": {"contentBlockIndex": 0}})
        assert fed("bedrock", events).closed()["content"] == [{"text": "so"}]

    def test_citations_make_another_kind_of_block(self) -> None:
        citation = {"title": "t", "location": {"documentChar": {"start": 0}}}
        deltas: list[dict[str, Any]] = [{"text": "so"}, {"citation": citation}]
        events = [
            {"contentBlockDelta": {"delta": delta, "contentBlockIndex": 0}} for delta in deltas
        ]
        (block,) = fed("bedrock", events).closed()["content"]
        assert block == {"citationsContent": {"content": [{"text": "so"}], "citations": [citation]}}

    def test_a_call_that_amazon_runs_waits_for_its_result(self) -> None:
        call = {"toolUseId": "t1", "name": "search", "type": "server_tool_use"}
        result = {"toolUseId": "t1", "type": "search_result", "status": "success"}
        events: list[dict[str, Any]] = [
            {"contentBlockDelta": {"delta": {"text": "I look."}, "contentBlockIndex": 0}},
            {"contentBlockStart": {"start": {"toolUse": call}, "contentBlockIndex": 1}},
            {"contentBlockStop": {"contentBlockIndex": 1}},
        ]
        assert fed("bedrock", events).closed()["content"] == [{"text": "I look."}]
        events += [
            {"contentBlockStart": {"start": {"toolResult": result}, "contentBlockIndex": 2}},
            {
                "contentBlockDelta": {
                    "delta": {"toolResult": [{"text": "x"}]},
                    "contentBlockIndex": 2,
                }
            },
            {"contentBlockStop": {"contentBlockIndex": 2}},
        ]
        _, called, answered = fed("bedrock", events).closed()["content"]
        assert called == {"toolUse": {**call, "input": {}}}
        assert answered == {"toolResult": {**result, "content": [{"text": "x"}]}}


class TestLangChain:
    def test_arguments_that_broke_off_are_not_completed(self) -> None:
        import langchain_core.messages as langchain

        chunks: list[Any] = [
            {"name": "wipe", "args": '{"path": "/etc', "id": "c1", "index": 0},
        ]
        chunk = langchain.AIMessageChunk(
            content="", tool_call_chunks=chunks, response_metadata={"finish_reason": "length"}
        )
        # the sum that LangChain gives looks like a whole call for another folder
        assert chunk.tool_calls[0]["args"] == {"path": "/etc"}
        made = fed("langchain", [chunk])
        assert made.complete
        assert made.closed() is None
        assert made.whole()["tool_calls"] == []
        assert made.whole()["invalid_tool_calls"][0]["args"] == '{"path": "/etc'

    def test_the_best_id_wins(self) -> None:
        for ids, best in (
            (["lc_1", "lc_run-2", "msg_3"], "msg_3"),
            (["lc_1", "lc_run-2"], "lc_run-2"),
            (["lc_1"], "lc_1"),
            ([], None),
        ):
            chunks = [{"type": "AIMessageChunk", "content": "x", "id": ident} for ident in ids]
            assert fed("langchain", chunks).whole()["id"] == best

    @pytest.mark.parametrize("form", ["bare", "data", "kwargs"])
    def test_every_form_of_a_chunk(self, form: str) -> None:
        bare = {"type": "AIMessageChunk", "content": "words"}
        path = ["langchain", "schema", "messages", "AIMessageChunk"]
        forms: dict[str, Any] = {
            "bare": bare,
            "data": {"type": "AIMessageChunk", "data": bare},
            "kwargs": {"lc": 1, "type": "constructor", "id": path, "kwargs": {"content": "words"}},
        }
        assert fed("langchain", [forms[form]] * 2).closed()["content"] == "wordswords"

    def test_what_the_user_or_a_tool_says_is_not_gathered(self) -> None:
        events = [{"type": "human", "content": "a"}, {"type": "tool", "content": "b"}]
        assert fed("langchain", events).closed() is None
