"""The SDKs' own streams, gathered: the same as what the SDK makes of them, and as the response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
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
from openai.lib.streaming.chat import ChatCompletionStreamState

from lockstitch.dialects.exchange import Accumulator, accumulator_for, plain_of
from lockstitch.dialects.recognize import dialect_of_event
from lockstitch.provider import Reply
from lockstitch.provider import ScriptedCall as Call
from tests.conftest import EXAMPLES
from tests.provider.conftest import BASH, Running, provider  # noqa: F401 - a fixture

from .sending import Sender, sending
from .spoken import SPEAKERS, Asked, LangChain, LangChainBlocks, Piece, Said, Thought, replies

ASK: list[Any] = [{"role": "user", "content": "Go."}]
few = settings(max_examples=int(EXAMPLES or 12))
RICH: list[Piece] = [
    Thought("let me see", "c2lnbmVk"),
    Said("Some words: é😀."),
    Asked("toolu_1", "look", {"path": "a b", "n": [1, {"é": None}]}),
    Asked("toolu_2", "look", {}),
]
ON_IT = Reply(
    "On it: two commands.", (Call("bash", {"command": "ls"}), Call("bash", {"command": "pwd é"}))
)


@pytest.fixture(scope="module")
def sender() -> Iterator[Sender]:
    with sending() as running:
        yield running


def gathered(dialect: str, stream: Any) -> Accumulator:
    made = accumulator_for(dialect)
    for event in stream:
        assert dialect_of_event(event) in (dialect, None)
        made.feed(event)
    assert made.complete
    return made


def set_fields(value: Any) -> Any:
    """A value without what is null: helpers of SDKs fill in what the provider did not send."""
    if isinstance(value, dict):
        return {key: set_fields(inner) for key, inner in value.items() if inner is not None}
    return [set_fields(item) for item in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def claude(sender: Sender) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=sender.url, api_key="x", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def gpt(sender: Sender) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=sender.url, api_key="x", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def gemini(sender: Sender) -> Iterator[genai.Client]:
    options = google.HttpOptions(base_url=sender.url)
    with genai.Client(api_key="x", vertexai=False, http_options=options) as client:
        yield client


@pytest.fixture(scope="module")
def bedrock(sender: Sender) -> Iterator[Any]:
    client = botocore.session.get_session().create_client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=sender.url,
        aws_access_key_id="x",
        aws_secret_access_key="x",  # noqa: S106 - nobody checks it
        config=botocore.config.Config(retries={"total_max_attempts": 1}),
    )
    with closing(client):
        yield client


CLAUDE: Any = {"model": "m", "max_tokens": 9, "messages": ASK}
CHAT: Any = {"model": "m", "messages": ASK}
RESPONSES: Any = {"model": "m", "input": ASK}


class TestAnthropic:
    @few
    @given(pieces=replies())
    def test_as_the_sdk_gathers_it(
        self, sender: Sender, claude: anthropic.Anthropic, pieces: list[Piece]
    ) -> None:
        speaker = SPEAKERS["anthropic"]
        sender.send_sse(sent.event for sent in speaker.events(pieces, 3))
        with claude.messages.stream(**CLAUDE) as stream:
            made = gathered("anthropic", stream)
            final = stream.get_final_message()
        raw = gathered("anthropic", claude.messages.create(stream=True, **CLAUDE))
        assert made.whole() == raw.whole() == speaker.whole(pieces)
        assert set_fields(made.whole()) == set_fields(plain_of(final))

    def test_in_an_event_loop(self, sender: Sender) -> None:
        speaker = SPEAKERS["anthropic"]
        sender.send_sse(sent.event for sent in speaker.events(RICH, 4))

        async def run() -> Accumulator:
            made = accumulator_for("anthropic")
            async with (
                anthropic.AsyncAnthropic(base_url=sender.url, api_key="x") as client,
                client.messages.stream(**CLAUDE) as stream,
            ):
                async for event in stream:
                    made.feed(event)
            return made

        assert asyncio.run(run()).whole() == speaker.whole(RICH)


class TestChat:
    @few
    @given(pieces=replies())
    def test_as_the_sdk_gathers_it(
        self, sender: Sender, gpt: openai.OpenAI, pieces: list[Piece]
    ) -> None:
        speaker = SPEAKERS["openai-chat"]
        pieces = speaker.fitting(pieces)
        sender.send_sse(sent.event for sent in speaker.events(pieces, 3))
        state: Any = ChatCompletionStreamState()
        chunks = list(gpt.chat.completions.create(stream=True, **CHAT))
        for chunk in chunks:
            state.handle_chunk(chunk)
        with gpt.chat.completions.stream(**CHAT) as stream:
            helped = gathered("openai-chat", stream)
        made = gathered("openai-chat", chunks)
        assert made.whole() == helped.whole() == speaker.whole(pieces)
        theirs = set_fields(plain_of(state.get_final_completion()))
        for call in theirs["choices"][0]["message"].get("tool_calls", ()):
            del call["index"]
        assert set_fields(made.whole()) == theirs


class TestResponses:
    @few
    @given(pieces=replies())
    def test_as_the_sdk_gathers_it(
        self, sender: Sender, gpt: openai.OpenAI, pieces: list[Piece]
    ) -> None:
        speaker = SPEAKERS["openai-responses"]
        sender.send_sse(sent.event for sent in speaker.events(pieces, 3))
        made = gathered("openai-responses", gpt.responses.create(stream=True, **RESPONSES))
        assert made.whole() == speaker.whole(pieces)


class TestGemini:
    @few
    @given(pieces=replies())
    def test_as_the_sdk_gives_it(
        self, sender: Sender, gemini: genai.Client, pieces: list[Piece]
    ) -> None:
        speaker = SPEAKERS["gemini"]
        pieces = speaker.fitting(pieces)
        sender.send_gemini(sent.event for sent in speaker.events(pieces, 3))
        stream = gemini.models.generate_content_stream(model="gemini-3-pro", contents="Go.")
        assert gathered("gemini", stream).whole() == speaker.whole(pieces)


class TestBedrock:
    @few
    @given(pieces=replies())
    def test_as_the_sdk_gives_it(self, sender: Sender, bedrock: Any, pieces: list[Piece]) -> None:
        speaker = SPEAKERS["bedrock"]
        pieces = speaker.fitting(pieces)
        sender.send_amazon(sent.event for sent in speaker.events(pieces, 3))
        assert self.streamed(bedrock).whole() == speaker.whole(pieces)

    def test_sealed_reasoning_comes_as_bytes(self, sender: Sender, bedrock: Any) -> None:
        halves = ({"redactedContent": "AP8="}, {"redactedContent": "/wA="})
        events: list[Any] = [
            {"contentBlockDelta": {"delta": {"reasoningContent": half}, "contentBlockIndex": 0}}
            for half in halves
        ]
        events += [{"contentBlockStop": {"contentBlockIndex": 0}}]
        events += [sent.event for sent in SPEAKERS["bedrock"].events([], 3)]
        sender.send_amazon(events)
        made = self.streamed(bedrock)
        sealed = {"reasoningContent": {"redactedContent": b"\x00\xff\xff\x00"}}
        assert made.whole()["output"]["message"]["content"] == [sealed]
        assert gathered("bedrock", events).whole() == made.whole()

    def streamed(self, bedrock: Any) -> Accumulator:
        messages = [{"role": "user", "content": [{"text": "Go."}]}]
        with closing(bedrock.converse_stream(modelId="m", messages=messages)["stream"]) as stream:
            return gathered("bedrock", stream)


class TestLangChain:
    @few
    @given(pieces=replies())
    @pytest.mark.parametrize("speaker", [LangChain(), LangChainBlocks()])
    def test_as_langchain_adds_it_up(self, speaker: LangChain, pieces: list[Piece]) -> None:
        pieces = speaker.fitting(pieces)
        chunks = [
            langchain.AIMessageChunk.model_validate(
                {key: value for key, value in sent.event.items() if key != "type"}
            )
            for sent in speaker.events(pieces, 3)
        ]
        made = gathered("langchain", chunks)
        total = langchain.message_chunk_to_message(sum(chunks[1:], chunks[0]))  # type: ignore[arg-type]
        theirs = set_fields(plain_of(total))
        # LangChain leaves the empty text it began with among the blocks
        if isinstance(theirs["content"], list):
            theirs["content"] = [block for block in theirs["content"] if block]
        theirs["content"] = theirs["content"] or ""
        assert set_fields(made.whole()) == theirs


class TestOurProvider:
    """The strict provider streams as the real ones do; the same script gives the same reply."""

    @pytest.fixture
    def openai(self) -> Iterator[Callable[[Running], Any]]:
        with ExitStack() as stack:
            yield lambda running: stack.enter_context(
                openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
            )

    def test_anthropic(self, provider: Callable[..., Running]) -> None:  # noqa: F811
        running = provider(ON_IT, ON_IT)
        tools: Any = [{"name": "bash", "input_schema": BASH}]
        body: Any = {"model": "claude-fable-5", "max_tokens": 9, "messages": ASK, "tools": tools}
        with anthropic.Anthropic(base_url=running.url, api_key="x", max_retries=0) as client:
            made = gathered("anthropic", client.messages.create(stream=True, **body))
            whole = plain_of(client.messages.create(**body))
        assert nameless(made.whole()) == nameless(whole)

    def test_chat(self, provider: Callable[..., Running], openai: Any) -> None:  # noqa: F811
        client = openai(provider(ON_IT, ON_IT))
        function = {"name": "bash", "parameters": BASH}
        body = {
            "model": "gpt-5",
            "messages": ASK,
            "tools": [{"type": "function", "function": function}],
        }
        stream = client.chat.completions.create(
            stream=True, stream_options={"include_usage": True}, **body
        )
        made = gathered("openai-chat", stream)
        whole = plain_of(client.chat.completions.create(**body))
        assert set_fields(nameless(made.whole())) == set_fields(nameless(whole))

    def test_responses(self, provider: Callable[..., Running], openai: Any) -> None:  # noqa: F811
        client = openai(provider(ON_IT, ON_IT, ON_IT))
        tool = {"type": "function", "name": "bash", "parameters": BASH, "strict": False}
        body = {"model": "gpt-5", "input": ASK, "tools": [tool]}
        made = gathered("openai-responses", client.responses.create(stream=True, **body))
        with client.responses.stream(**body) as stream:
            helped = gathered("openai-responses", stream)
            final = plain_of(stream.get_final_response())
        whole = plain_of(client.responses.create(**body))
        assert nameless(made.whole()) == nameless(helped.whole()) == nameless(final)
        assert nameless(made.whole()) == nameless(whole)


def nameless(value: Any) -> Any:
    """A response without ids and counts, which follow from the body that asked for it."""
    if isinstance(value, dict):
        left = ("id", "call_id", "usage")
        return {key: nameless(inner) for key, inner in value.items() if key not in left}
    return [nameless(item) for item in value] if isinstance(value, list) else value
