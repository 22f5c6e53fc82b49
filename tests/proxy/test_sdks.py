"""The vendors' own clients through the proxy, unmodified: sync, async, streamed, with tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types

from lockstitch.provider import Reply
from lockstitch.provider import ScriptedCall as Call
from tests.provider.conftest import BASH, Running
from tests.provider.test_google_amazon import CLAUDE, GEMINI, TOOLS, bedrock_client
from tests.proxy.conftest import Start

Provider = Callable[..., Running]

ON_IT = Reply("On it: é.", (Call("bash", {"command": "ls"}), Call("bash", {"command": "pwd"})))
ARGUMENTS = [{"command": "ls"}, {"command": "pwd"}]
ASK: list[Any] = [{"role": "user", "content": "List the files."}]


@pytest.fixture
def url(proxy: Start, provider: Provider) -> Callable[..., str]:
    """The address of a proxy in front of a strict provider that gives some replies."""
    return lambda *replies: proxy(provider(*replies).url, retry=False).url


class TestAnthropic:
    more: dict[str, Any] = {  # noqa: RUF012 - a constant
        "model": "claude-sonnet-5",
        "max_tokens": 100,
        "tools": [{"name": "bash", "input_schema": BASH}],
    }
    broken: list[Any] = [  # noqa: RUF012 - as above
        *ASK,
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}],
        },
        *ASK,
    ]

    def test_sync(self, url: Callable[..., str]) -> None:
        with anthropic.Anthropic(base_url=url(ON_IT), api_key="none", max_retries=0) as client:
            made = client.messages.with_raw_response.create(messages=self.broken, **self.more)
            assert made.headers["lockstitch-repaired"] == "LS101=1"
            assert [block.input for block in made.parse().content[1:]] == ARGUMENTS
            with client.messages.stream(messages=self.broken, **self.more) as stream:
                assert "".join(stream.text_stream) == "ok"
            counted = client.messages.count_tokens(
                messages=self.broken, model="claude-sonnet-5", tools=self.more["tools"]
            )
            assert counted.input_tokens > 0
            assert list(client.models.list()) == []

    def test_async(self, url: Callable[..., str]) -> None:
        async def run() -> None:
            client = anthropic.AsyncAnthropic(base_url=url(ON_IT), api_key="none", max_retries=0)
            async with client, client.messages.stream(messages=self.broken, **self.more) as stream:
                made = await stream.get_final_message()
            assert [block.input for block in made.content[1:]] == ARGUMENTS

        asyncio.run(run())

    def test_tool_runner(self, url: Callable[..., str]) -> None:
        ran: list[str] = []

        @anthropic.beta_tool
        def bash(command: str) -> str:
            """Run a command.

            Args:
                command: The command.
            """
            ran.append(command)
            return "done"

        with anthropic.Anthropic(base_url=url(ON_IT), api_key="none", max_retries=0) as client:
            runner = client.beta.messages.tool_runner(
                model="claude-sonnet-5", max_tokens=100, tools=[bash], messages=ASK
            )
            assert runner.until_done().content[0].text == "ok"
        assert ran == ["ls", "pwd"]


class TestOpenAI:
    chat: dict[str, Any] = {  # noqa: RUF012 - a constant
        "model": "gpt-5",
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": BASH}}],
    }
    responses: dict[str, Any] = {  # noqa: RUF012 - as above
        "model": "gpt-5",
        "tools": [{"type": "function", "name": "bash", "parameters": BASH, "strict": False}],
    }
    call: dict[str, Any] = {  # noqa: RUF012 - as above
        "id": "call_1",
        "type": "function",
        "function": {"name": "bash", "arguments": "{}"},
    }
    open_chat: list[Any] = [  # noqa: RUF012 - as above
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        *ASK,
    ]
    item: dict[str, Any] = {  # noqa: RUF012 - as above
        "type": "function_call",
        "call_id": "call_1",
        "name": "bash",
        "arguments": "{}",
    }

    def test_sync(self, url: Callable[..., str]) -> None:
        with openai.OpenAI(base_url=f"{url(ON_IT)}/v1", api_key="x", max_retries=0) as client:
            made = client.chat.completions.create(messages=self.open_chat, **self.chat)
            calls = made.choices[0].message.tool_calls
            assert [json.loads(call.function.arguments) for call in calls] == ARGUMENTS  # type: ignore[union-attr]
            stream = client.chat.completions.create(
                messages=self.open_chat, stream=True, **self.chat
            )
            assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "ok"
            again = client.responses.create(input=[*ASK, self.item, *ASK], **self.responses)
            assert again.output_text == "ok"
            with client.responses.stream(input=[*ASK, self.item], **self.responses) as events:
                assert events.get_final_response().output_text == "ok"

    def test_async(self, url: Callable[..., str]) -> None:
        async def run() -> None:
            client = openai.AsyncOpenAI(base_url=f"{url(ON_IT)}/v1", api_key="x", max_retries=0)
            async with client:
                stream = await client.responses.create(
                    input=[*ASK, self.item], stream=True, **self.responses
                )
                kinds = [event.type async for event in stream]
            assert kinds[-1] == "response.completed"

        asyncio.run(run())


class TestGemini:
    config = types.GenerateContentConfig(
        tools=[
            types.Tool(
                function_declarations=[
                    types.FunctionDeclaration(name="bash", parameters_json_schema=BASH)
                ]
            )
        ],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    broken: list[Any] = [  # noqa: RUF012 - a constant
        types.Content(role="user", parts=[types.Part(text="go")]),
        types.Content(
            role="model",
            parts=[types.Part(function_call=types.FunctionCall(name="bash", args={}))],
        ),
        types.Content(role="user", parts=[types.Part(text="go on")]),
    ]

    def client(self, url: str) -> Any:
        options = types.HttpOptions(base_url=url)
        return genai.Client(api_key="none", vertexai=False, http_options=options)

    def test_sync(self, url: Callable[..., str]) -> None:
        with self.client(url(ON_IT)) as client:
            made = client.models.generate_content(
                model=GEMINI, contents=self.broken, config=self.config
            )
            assert [call.args for call in made.function_calls] == ARGUMENTS
            stream = client.models.generate_content_stream(model=GEMINI, contents=self.broken)
            assert "".join(chunk.text or "" for chunk in stream) == "ok"

    def test_async(self, url: Callable[..., str]) -> None:
        async def run() -> None:
            async with self.client(url()).aio as client:
                made = await client.models.generate_content(model=GEMINI, contents=self.broken)
                assert made.text == "ok"
                stream = await client.models.generate_content_stream(
                    model=GEMINI, contents=self.broken
                )
                assert "".join([chunk.text or "" async for chunk in stream]) == "ok"

        asyncio.run(run())


class TestBedrock:
    broken: list[Any] = [  # noqa: RUF012 - a constant
        {"role": "user", "content": [{"text": "go"}]},
        {
            "role": "assistant",
            "content": [{"toolUse": {"toolUseId": "t1", "name": "bash", "input": {}}}],
        },
        {"role": "user", "content": [{"text": "go on"}]},
    ]

    def test_sync(self, url: Callable[..., str]) -> None:
        with ExitStack() as stack:
            client = stack.enter_context(closing(bedrock_client(url(ON_IT))))
            made = client.converse(modelId=CLAUDE, messages=self.broken, toolConfig=TOOLS)
            said = made["output"]["message"]["content"]
            assert [part["toolUse"]["input"] for part in said if "toolUse" in part] == ARGUMENTS
            told = made["ResponseMetadata"]["HTTPHeaders"]["lockstitch-repaired"]
            assert told.startswith("LS101=1")
            made = client.converse_stream(modelId=CLAUDE, messages=self.broken, toolConfig=TOOLS)
            stream = stack.enter_context(closing(made["stream"]))
            deltas = [
                event["contentBlockDelta"] for event in stream if "contentBlockDelta" in event
            ]
            assert "".join(delta["delta"]["text"] for delta in deltas) == "ok"
