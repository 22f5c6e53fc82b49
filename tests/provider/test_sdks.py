"""The vendors' own clients against the provider: answers, calls and refusals, streamed or not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from lockstitch.provider import Reply
from lockstitch.provider import ScriptedCall as Call
from tests.provider.conftest import BASH, Running

Start = Callable[..., Running]
Client = Callable[[Running], Any]

ON_IT = Reply(
    "On it: two commands.", (Call("bash", {"command": "ls"}), Call("bash", {"command": "pwd é"}))
)
ARGUMENTS = [{"command": "ls"}, {"command": "pwd é"}]


@pytest.fixture
def anthropic() -> Iterator[Callable[[Running], Any]]:
    sdk = pytest.importorskip("anthropic")
    with ExitStack() as stack:
        yield lambda running: stack.enter_context(
            sdk.Anthropic(base_url=running.url, api_key="none", max_retries=0)
        )


@pytest.fixture
def openai() -> Iterator[Callable[[Running], Any]]:
    sdk = pytest.importorskip("openai")
    with ExitStack() as stack:
        yield lambda running: stack.enter_context(
            sdk.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
        )


ANTHROPIC = {
    "model": "claude-fable-5",
    "max_tokens": 100,
    "tools": [{"name": "bash", "input_schema": BASH}],
}
CHAT = {
    "model": "gpt-5",
    "tools": [{"type": "function", "function": {"name": "bash", "parameters": BASH}}],
}
RESPONSES = {
    "model": "gpt-5",
    "tools": [{"type": "function", "name": "bash", "parameters": BASH, "strict": False}],
}
ASK: list[Any] = [{"role": "user", "content": "List the files."}]


def refused_by(sdk: str) -> type[Exception]:
    error: type[Exception] = pytest.importorskip(sdk).BadRequestError
    return error


class TestAnthropic:
    def test_ok(self, provider: Start, anthropic: Client) -> None:
        message = anthropic(provider()).messages.create(messages=ASK, **ANTHROPIC)
        assert message.content[0].text == "ok"
        assert message.stop_reason == "end_turn"
        assert message.model == ANTHROPIC["model"]
        assert message.usage.input_tokens > 0

    def test_calls(self, provider: Start, anthropic: Client) -> None:
        running = provider(ON_IT)
        client = anthropic(running)
        message = client.messages.create(messages=ASK, **ANTHROPIC)
        assert message.stop_reason == "tool_use"
        assert message.content[0].text == ON_IT.text
        calls = message.content[1:]
        assert [call.input for call in calls] == ARGUMENTS
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": "done"} for call in calls
        ]
        spoken = [block.model_dump(exclude_none=True) for block in message.content]
        history = [
            *ASK,
            {"role": "assistant", "content": spoken},
            {"role": "user", "content": results},
        ]
        assert client.messages.create(messages=history, **ANTHROPIC).content[0].text == "ok"
        assert [entry.outcome for entry in running.log] == ["accepted", "accepted"]

    def test_streamed(self, provider: Start, anthropic: Client) -> None:
        with anthropic(provider(ON_IT)).messages.stream(messages=ASK, **ANTHROPIC) as stream:
            assert "".join(stream.text_stream) == ON_IT.text
            final = stream.get_final_message()
        assert [block.input for block in final.content[1:]] == ARGUMENTS
        assert final.stop_reason == "tool_use"
        assert len({block.id for block in final.content[1:]}) == 2

    def test_thinking_is_signed(self, provider: Start, anthropic: Client) -> None:
        running = provider(Reply("Yes.", thinking="Is it so?"), Reply("Yes.", thinking="Is it so?"))
        whole = anthropic(running).messages.create(messages=ASK, **ANTHROPIC)
        with anthropic(running).messages.stream(messages=ASK, **ANTHROPIC) as stream:
            streamed = stream.get_final_message()
        for thinking, said in (whole.content, streamed.content):
            assert (thinking.type, thinking.thinking) == ("thinking", "Is it so?")
            assert thinking.signature
            assert said.text == "Yes."

    @pytest.mark.parametrize("stream", [False, True])
    def test_refused(self, provider: Start, anthropic: Client, stream: bool) -> None:
        running = provider()
        call = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}
        history = [*ASK, {"role": "assistant", "content": [call]}, *ASK]
        with pytest.raises(refused_by("anthropic")) as caught:
            anthropic(running).messages.create(messages=history, stream=stream, **ANTHROPIC)
        body: Any = caught.value.body
        assert body["type"] == "error"
        assert body["error"]["type"] == "invalid_request_error"
        assert "`tool_use` ids were found without `tool_result` blocks" in body["error"]["message"]
        (entry,) = running.log
        assert (entry.outcome, entry.status, entry.messages) == ("refused", 400, 3)
        assert "LS101" in [found.code for found in entry.findings]

    def test_counts_tokens(self, provider: Start, anthropic: Client) -> None:
        client = anthropic(provider())
        counted = client.messages.count_tokens(messages=ASK, model="claude-fable-5")
        assert counted.input_tokens > 0

    def test_count_of_a_broken_history_is_refused(self, provider: Start, anthropic: Client) -> None:
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}
        with pytest.raises(refused_by("anthropic"), match="unexpected `tool_use_id`"):
            anthropic(provider()).messages.count_tokens(
                messages=[{"role": "user", "content": [result]}], model="claude-fable-5"
            )

    def test_models(self, provider: Start, anthropic: Client) -> None:
        assert list(anthropic(provider()).models.list()) == []


class TestChat:
    def test_ok(self, provider: Start, openai: Client) -> None:
        made = openai(provider()).chat.completions.create(messages=ASK, **CHAT)
        assert made.choices[0].message.content == "ok"
        assert made.choices[0].finish_reason == "stop"
        assert made.created == 1_700_000_000

    def test_calls(self, provider: Start, openai: Client) -> None:
        running = provider(ON_IT)
        client = openai(running)
        message = client.chat.completions.create(messages=ASK, **CHAT).choices[0].message
        assert [json.loads(call.function.arguments) for call in message.tool_calls] == ARGUMENTS
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": "done"}
            for call in message.tool_calls
        ]
        history = [*ASK, message.model_dump(exclude_none=True), *results]
        again = client.chat.completions.create(messages=history, **CHAT)
        assert again.choices[0].message.content == "ok"

    def test_streamed(self, provider: Start, openai: Client) -> None:
        stream = openai(provider(ON_IT)).chat.completions.create(
            messages=ASK, stream=True, stream_options={"include_usage": True}, **CHAT
        )
        chunks = list(stream)
        deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
        assert "".join(delta.content or "" for delta in deltas) == ON_IT.text
        arguments = ["", ""]
        for delta in deltas:
            for call in delta.tool_calls or ():
                arguments[call.index] += call.function.arguments
        assert list(map(json.loads, arguments)) == ARGUMENTS
        assert chunks[-2].choices[0].finish_reason == "tool_calls"
        assert chunks[-1].usage.total_tokens > 0

    @pytest.mark.parametrize("stream", [False, True])
    def test_refused(self, provider: Start, openai: Client, stream: bool) -> None:
        function = {"name": "bash", "arguments": "{}"}
        call = {"id": "call_1", "type": "function", "function": function}
        history = [*ASK, {"role": "assistant", "tool_calls": [call]}, *ASK]
        with pytest.raises(refused_by("openai")) as caught:
            openai(provider()).chat.completions.create(messages=history, stream=stream, **CHAT)
        assert caught.value.type == "invalid_request_error"
        assert "must be followed by tool messages" in caught.value.message

    def test_a_profile_is_stricter(self, provider: Start, openai: Client) -> None:
        function = {"name": "bash", "arguments": "{}"}
        call = {"id": "call_too_long_for_mistral", "type": "function", "function": function}
        result = {"role": "tool", "tool_call_id": call["id"], "content": "x"}
        history = [*ASK, {"role": "assistant", "tool_calls": [call]}, result]
        lenient, strict = provider(), provider(profiles=("openai-chat:mistral",))
        openai(lenient).chat.completions.create(messages=history, **CHAT)
        with pytest.raises(refused_by("openai")):
            openai(strict).chat.completions.create(messages=history, **CHAT)


class TestResponses:
    def test_ok(self, provider: Start, openai: Client) -> None:
        made = openai(provider()).responses.create(input=ASK, **RESPONSES)
        assert made.output_text == "ok"
        assert made.status == "completed"

    def test_input_may_be_a_string(self, provider: Start, openai: Client) -> None:
        made = openai(provider()).responses.create(input="Hello", **RESPONSES)
        assert made.output_text == "ok"

    def test_calls(self, provider: Start, openai: Client) -> None:
        client = openai(provider(ON_IT))
        made = client.responses.create(input=ASK, **RESPONSES)
        assert made.output_text == ON_IT.text
        calls = [item for item in made.output if item.type == "function_call"]
        assert [json.loads(call.arguments) for call in calls] == ARGUMENTS
        spoken = [item.model_dump(exclude_none=True) for item in made.output]
        results = [
            {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
            for call in calls
        ]
        again = client.responses.create(input=[*ASK, *spoken, *results], **RESPONSES)
        assert again.output_text == "ok"

    def test_streamed(self, provider: Start, openai: Client) -> None:
        with openai(provider(ON_IT)).responses.stream(input=ASK, **RESPONSES) as stream:
            events = list(stream)
            final = stream.get_final_response()
        text = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(text) == ON_IT.text
        assert [event.sequence_number for event in events if hasattr(event, "sequence_number")] == (
            sorted({event.sequence_number for event in events if hasattr(event, "sequence_number")})
        )
        calls = [item for item in final.output if item.type == "function_call"]
        assert [json.loads(call.arguments) for call in calls] == ARGUMENTS

    @pytest.mark.parametrize("stream", [False, True])
    def test_refused(self, provider: Start, openai: Client, stream: bool) -> None:
        call = {"type": "function_call", "call_id": "call_1", "name": "bash", "arguments": "{}"}
        with pytest.raises(refused_by("openai")) as caught:
            openai(provider()).responses.create(input=[*ASK, call], stream=stream, **RESPONSES)
        assert "No tool output found for function call call_1" in caught.value.message

    def test_models(self, provider: Start, openai: Client) -> None:
        assert list(openai(provider()).models.list()) == []
