"""Google's and Amazon's own clients against the provider, streamed or not, in a loop or not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from google import genai
from google.genai import errors, types

from lockstitch.provider import Reply
from lockstitch.provider import ScriptedCall as Call
from tests.provider.conftest import BASH, Running
from tests.provider.test_http import JSON, WORDS, send

Start = Callable[..., Running]
Client = Callable[[Running], Any]

ON_IT = Reply(
    "On it: two commands.",
    (Call("bash", {"command": "ls"}), Call("bash", {"command": "pwd é"})),
    thinking="Two commands will do.",
)
ARGUMENTS = [{"command": "ls"}, {"command": "pwd é"}]
GEMINI = "gemini-3-pro"
TOOL = types.FunctionDeclaration(name="bash", parameters_json_schema=BASH)
CONFIG = types.GenerateContentConfig(
    tools=[types.Tool(function_declarations=[TOOL])],
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
)
CLAUDE = "anthropic.claude-sonnet-5-v1:0"
TOOLS = {"tools": [{"toolSpec": {"name": "bash", "inputSchema": {"json": BASH}}}]}
ASK: list[Any] = [{"role": "user", "content": [{"text": "List the files."}]}]


@pytest.fixture
def gemini() -> Iterator[Client]:
    with ExitStack() as stack:
        yield lambda running: stack.enter_context(
            genai.Client(
                api_key="none",
                vertexai=False,
                http_options=types.HttpOptions(base_url=running.url),
            )
        )


@pytest.fixture
def bedrock() -> Iterator[Client]:
    with ExitStack() as stack:
        yield lambda running: stack.enter_context(closing(bedrock_client(running.url)))


def bedrock_client(url: str, **options: Any) -> Any:
    return boto3.session.Session().client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="none",
        aws_secret_access_key="none",  # noqa: S106 - nobody checks it
        config=Config(retries={"total_max_attempts": 1}, **options),
    )


def parts_of(response: Any) -> list[Any]:
    return list(response.candidates[0].content.parts)


class TestGemini:
    def test_ok(self, provider: Start, gemini: Client) -> None:
        running = provider()
        made = gemini(running).models.generate_content(model=GEMINI, contents="Hello")
        assert made.text == "ok"
        assert made.candidates[0].finish_reason == "STOP"
        assert (made.model_version, made.usage_metadata.prompt_token_count > 0) == (GEMINI, True)
        (entry,) = running.log
        assert entry.path.endswith(f"/models/{GEMINI}:generateContent")
        assert (entry.dialect, entry.outcome, entry.stream) == ("gemini", "accepted", False)

    def test_calls_go_back_and_are_accepted(self, provider: Start, gemini: Client) -> None:
        running = provider(ON_IT)
        client = gemini(running)
        ask = types.Content(role="user", parts=[types.Part(text="List the files.")])
        made = client.models.generate_content(model=GEMINI, contents=[ask], config=CONFIG)
        thought, said, *calls = parts_of(made)
        assert (thought.thought, thought.text, said.text) == (True, ON_IT.thinking, ON_IT.text)
        assert [part.function_call.args for part in calls] == ARGUMENTS
        assert len({part.function_call.id for part in calls}) == 2
        results = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=part.function_call.id, name="bash", response={"output": "done"}
                )
            )
            for part in calls
        ]
        history = [ask, made.candidates[0].content, types.Content(role="user", parts=results)]
        again = client.models.generate_content(model=GEMINI, contents=history, config=CONFIG)
        assert again.text == "ok"
        assert [entry.findings for entry in running.log] == [(), ()]

    def test_streamed(self, provider: Start, gemini: Client) -> None:
        stream = gemini(provider(ON_IT)).models.generate_content_stream(
            model=GEMINI, contents="Go.", config=CONFIG
        )
        chunks = list(stream)
        self._is_on_it(chunks)

    def test_streamed_in_a_loop(self, provider: Start, gemini: Client) -> None:
        async def read() -> list[Any]:
            client = gemini(running).aio
            try:
                whole = await client.models.generate_content(model=GEMINI, contents="Go.")
                assert whole.text == "ok"
                stream = await client.models.generate_content_stream(
                    model=GEMINI, contents="Go.", config=CONFIG
                )
                return [chunk async for chunk in stream]
            finally:
                await client.aclose()

        running = provider(Reply("ok"), ON_IT)
        self._is_on_it(asyncio.run(read()))

    def _is_on_it(self, chunks: list[Any]) -> None:
        parts = [part for chunk in chunks for part in parts_of(chunk)]
        assert "".join(part.text for part in parts if part.thought) == ON_IT.thinking
        said = [part.text for part in parts if part.text and not part.thought]
        assert (len(said) > 1, "".join(said)) == (True, ON_IT.text)
        assert [part.function_call.args for part in parts if part.function_call] == ARGUMENTS
        finishes = [chunk.candidates[0].finish_reason for chunk in chunks]
        assert (finishes[-1], set(finishes[:-1])) == ("STOP", {None})

    def test_a_chat_with_automatic_tools(self, provider: Start, gemini: Client) -> None:
        def bash(command: str) -> str:
            ran.append(command)
            return "done"

        ran: list[str] = []
        running = provider(ON_IT, Reply("Two are done."))
        chat = gemini(running).chats.create(
            model=GEMINI, config=types.GenerateContentConfig(tools=[bash])
        )
        assert chat.send_message("Go.").text == "Two are done."
        assert chat.send_message("And now?").text == "ok"
        assert ran == ["ls", "pwd é"]
        assert [entry.outcome for entry in running.log] == ["accepted"] * 3

    @pytest.mark.parametrize("stream", [False, True])
    def test_refused(self, provider: Start, gemini: Client, stream: bool) -> None:
        running = provider()
        models = gemini(running).models
        call = types.Part(function_call=types.FunctionCall(name="bash", args={}))
        history = [
            types.Content(role="user", parts=[types.Part(text="Go.")]),
            types.Content(role="model", parts=[call]),
            types.Content(role="user", parts=[types.Part(text="Well?")]),
        ]
        ask = models.generate_content_stream if stream else models.generate_content
        with pytest.raises(errors.ClientError) as caught:
            list(ask(model="gemini-2.5-flash", contents=history, config=CONFIG))
        assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")
        assert "number of function response parts is equal to" in str(caught.value.message)
        assert "LS101" in [found.code for found in running.log[0].findings]

    def test_the_model_in_the_path_counts(self, provider: Start, gemini: Client) -> None:
        """Gemini 3 wants its calls signed, and the ones before it do not mind."""
        call = types.Part(function_call=types.FunctionCall(name="bash", args={}))
        result = types.Part.from_function_response(name="bash", response={"output": "x"})
        history = [
            types.Content(role="user", parts=[types.Part(text="Go.")]),
            types.Content(role="model", parts=[call]),
            types.Content(role="user", parts=[result]),
        ]
        models = gemini(provider()).models
        models.generate_content(model="gemini-2.5-flash", contents=history, config=CONFIG)
        with pytest.raises(errors.ClientError, match="missing a thought_signature"):
            models.generate_content(model=GEMINI, contents=history, config=CONFIG)

    def test_counts_tokens(self, provider: Start, gemini: Client) -> None:
        counted = gemini(provider()).models.count_tokens(model=GEMINI, contents="Hello")
        assert counted.total_tokens > 0

    def test_models(self, provider: Start, gemini: Client) -> None:
        assert list(gemini(provider()).models.list()) == []

    def test_without_sse_a_stream_is_one_json_list(self, provider: Start) -> None:
        body = {"contents": [{"role": "user", "parts": [{"text": WORDS}]}]}
        path = f"/v1beta/models/{GEMINI}:streamGenerateContent"
        status, headers, data = send(provider(Reply("A longer answer.")), path, body)
        assert (status, headers["content-type"]) == (200, "application/json")
        chunks = json.loads(data)
        texts = [chunk["candidates"][0]["content"]["parts"][0]["text"] for chunk in chunks]
        assert (len(texts) > 1, "".join(texts)) == (True, "A longer answer.")

    @pytest.mark.parametrize(
        "prefix",
        ["/v1", "/v1beta", "/v1beta1/projects/p/locations/us-central1/publishers/google"],
    )
    def test_other_addresses_of_the_same(self, provider: Start, prefix: str) -> None:
        body = {"contents": [{"role": "user", "parts": [{"text": WORDS}]}]}
        running = provider()
        for method in ("generateContent", "streamGenerateContent?alt=sse", "countTokens"):
            assert send(running, f"{prefix}/models/{GEMINI}:{method}", body)[0] == 200
        wrapped = {"generateContentRequest": {"model": f"models/{GEMINI}", **body}}
        assert send(running, f"{prefix}/models/{GEMINI}:countTokens", wrapped)[0] == 200


class TestBedrock:
    def test_ok(self, provider: Start, bedrock: Client) -> None:
        running = provider()
        made = bedrock(running).converse(modelId=CLAUDE, messages=ASK)
        assert made["output"]["message"] == {"role": "assistant", "content": [{"text": "ok"}]}
        assert (made["stopReason"], made["usage"]["inputTokens"] > 0) == ("end_turn", True)
        (entry,) = running.log
        assert (entry.path, entry.dialect) == (f"/model/{CLAUDE}/converse", "bedrock")

    def test_calls_go_back_and_are_accepted(self, provider: Start, bedrock: Client) -> None:
        running = provider(ON_IT)
        client = bedrock(running)
        made = client.converse(modelId=CLAUDE, messages=ASK, toolConfig=TOOLS)
        message = made["output"]["message"]
        thought, said, *calls = message["content"]
        assert thought["reasoningContent"]["reasoningText"]["text"] == ON_IT.thinking
        assert (said, made["stopReason"]) == ({"text": ON_IT.text}, "tool_use")
        assert [call["toolUse"]["input"] for call in calls] == ARGUMENTS
        results = [
            {"toolResult": {"toolUseId": c["toolUse"]["toolUseId"], "content": [{"text": "x"}]}}
            for c in calls
        ]
        history = [*ASK, message, {"role": "user", "content": results}]
        again = client.converse(modelId=CLAUDE, messages=history, toolConfig=TOOLS)
        assert again["stopReason"] == "end_turn"
        assert [entry.findings for entry in running.log] == [(), ()]

    def test_streamed(self, provider: Start, bedrock: Client) -> None:
        client = bedrock(provider(ON_IT))
        made = client.converse_stream(modelId=CLAUDE, messages=ASK, toolConfig=TOOLS)
        events = list(made["stream"])
        assert events[0] == {"messageStart": {"role": "assistant"}}
        assert events[-2] == {"messageStop": {"stopReason": "tool_use"}}
        assert events[-1]["metadata"]["usage"]["totalTokens"] > 0
        deltas = [
            event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event
        ]
        assert "".join(delta.get("text", "") for delta in deltas) == ON_IT.text
        thought = [delta["reasoningContent"] for delta in deltas if "reasoningContent" in delta]
        assert "".join(piece.get("text", "") for piece in thought) == ON_IT.thinking
        assert thought[-1]["signature"]
        inputs = ["", ""]
        for event in events:
            delta = event.get("contentBlockDelta", {})
            if "toolUse" in delta.get("delta", ()):
                inputs[delta["contentBlockIndex"] - 2] += delta["delta"]["toolUse"]["input"]
        assert list(map(json.loads, inputs)) == ARGUMENTS

    def test_many_at_once(self, provider: Start) -> None:
        """Amazon's client has no loop of its own: programs use threads."""

        def ask() -> str:
            with closing(bedrock_client(running.url)) as client:
                made = client.converse_stream(modelId=CLAUDE, messages=ASK)
                return "".join(
                    event["contentBlockDelta"]["delta"]["text"]
                    for event in made["stream"]
                    if "contentBlockDelta" in event
                )

        async def all_of_them() -> list[str]:
            return await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(4)))

        running = provider()
        assert asyncio.run(all_of_them()) == ["ok"] * 4

    @pytest.mark.parametrize("method", ["converse", "converse_stream"])
    def test_refused(self, provider: Start, bedrock: Client, method: str) -> None:
        running = provider()
        use = {"toolUse": {"toolUseId": "tooluse_1", "name": "bash", "input": {}}}
        history = [*ASK, {"role": "assistant", "content": [use]}, *ASK]
        with pytest.raises(ClientError) as caught:
            getattr(bedrock(running), method)(modelId=CLAUDE, messages=history, toolConfig=TOOLS)
        assert type(caught.value).__name__ == "ValidationException"
        error = caught.value.response["Error"]
        assert error["Code"] == "ValidationException"
        assert error["Message"] == (
            "Expected toolResult blocks at messages.2.content for the following Ids: tooluse_1"
        )
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
        assert "LS101" in [found.code for found in running.log[0].findings]

    def test_an_arn_is_a_model(self, provider: Start, bedrock: Client) -> None:
        arn = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-x"
        running = provider()
        bedrock(running).converse(modelId=arn, messages=ASK)
        assert running.log[0].path == f"/model/{arn}/converse"

    def test_plain_http_works_too(self, provider: Start) -> None:
        answer = send(provider(), "/model/m/converse-stream", {"messages": ASK}, headers=JSON)
        assert answer[1]["content-type"] == "application/vnd.amazon.eventstream"
