"""What a session tells beside the conversation: notes, and what its replies cost."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from lockstitch.dialects.exchange import Tokens, tokens_in
from lockstitch.journal.events import INLINE
from lockstitch.session.store import Store

from .talk import asks, says
from .twins import Twin

LONG = "x" * (INLINE + 1)


def test_notes_are_read_with_name_value_time_and_record(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Hello")
            first = await session.note("ticket", {"id": 7})
            await session.note("other", LONG)
            await session.note("ticket")
            await session.checkpoint("here")
            found = await session.notes()
            assert [(n.name, n.value, n.is_rewound) for n in found] == [
                ("ticket", {"id": 7}, False),
                ("other", LONG, False),
                ("ticket", None, False),
            ]
            assert found[0].seq == first
            assert found[0].at > 0
            assert [n.value for n in await session.notes("ticket")] == [{"id": 7}, None]
            assert await session.notes("nothing") == []

    twin.run(body)


def test_a_rewind_leaves_notes_behind_that_can_still_be_asked_for(store: Store) -> None:
    with store.session("s") as session:
        session.note("kept", 1)
        place = session.checkpoint("here")
        session.note("left", 2)
        session.rewind(place)
        assert [note.name for note in session.notes()] == ["kept"]
        found = session.notes(rewound=True)
    assert [(note.name, note.is_rewound) for note in found] == [("kept", False), ("left", True)]


def test_a_reader_reads_notes_and_usage_too(store: Store) -> None:
    with store.session("s") as session:
        session.note("kept", 1)
        session.record(says("anthropic"))
        reader = store.read("s")
        assert [note.value for note in reader.notes()] == [1]
        assert reader.usage() == session.usage()

    async def body() -> None:
        reader = await store.async_read("s")
        assert [note.value for note in await reader.notes("kept")] == [1]
        assert (await reader.usage()).replies == 1

    anyio.run(body)


# What responses say, by provider: the fields as they come over the wire.
TOLD: dict[str, tuple[dict[str, Any], Tokens]] = {
    "anthropic": (
        {
            "usage": {
                "input_tokens": 10,
                "cache_creation_input_tokens": 20,
                "cache_read_input_tokens": 30,
                "output_tokens": 5,
                "output_tokens_details": {"thinking_tokens": 2},
            }
        },
        Tokens(60, 5, 30, 20, 2),
    ),
    "openai-chat": (
        {
            "usage": {
                "prompt_tokens": 60,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 30},
                "completion_tokens_details": {"reasoning_tokens": 2},
            }
        },
        Tokens(60, 5, 30, 0, 2),
    ),
    "openai-responses": (
        {
            "usage": {
                "input_tokens": 60,
                "output_tokens": 5,
                "input_tokens_details": {"cached_tokens": 30},
                "output_tokens_details": {"reasoning_tokens": 2},
            }
        },
        Tokens(60, 5, 30, 0, 2),
    ),
    "gemini": (
        {
            "usageMetadata": {
                "promptTokenCount": 50,
                "toolUsePromptTokenCount": 10,
                "candidatesTokenCount": 3,
                "thoughtsTokenCount": 2,
                "cachedContentTokenCount": 30,
            }
        },
        Tokens(60, 5, 30, 0, 2),
    ),
    "bedrock": (
        {
            "usage": {
                "inputTokens": 10,
                "outputTokens": 5,
                "cacheReadInputTokens": 30,
                "cacheWriteInputTokens": 20,
            }
        },
        Tokens(60, 5, 30, 20, 0),
    ),
    "langchain": (
        {
            "usage_metadata": {
                "input_tokens": 60,
                "output_tokens": 5,
                "input_token_details": {"cache_read": 30, "cache_creation": 20},
                "output_token_details": {"reasoning": 2},
            }
        },
        Tokens(60, 5, 30, 20, 2),
    ),
}


def replied(dialect: str, fields: dict[str, Any]) -> dict[str, Any]:
    if dialect == "bedrock":
        message = {"role": "assistant", "content": [{"text": "Done."}]}
        return {"output": {"message": message}, **fields}
    if dialect == "langchain":
        return {"type": "ai", "data": {"content": "Done.", **fields}}
    return {**says(dialect), **fields}


@pytest.mark.parametrize("dialect", TOLD)
def test_every_provider_is_counted_alike(dialect: str, twin: Twin, store: Store) -> None:
    fields, tokens = TOLD[dialect]

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Hello")
            for _ in range(2):
                await session.record(replied(dialect, fields), dialect, model="m")
            usage = await session.usage()
            assert usage.tokens == tokens + tokens
            assert (usage.replies, usage.unknown) == (2, 0)
            assert usage.models == {"m": usage.models["m"]}
            assert usage.models["m"].tokens == tokens + tokens

    twin.run(body)


def test_models_are_told_apart_and_silence_is_counted(store: Store) -> None:
    with store.session("s") as session:
        session.say("Hello")
        session.record(asks("anthropic", ("c1", "t", {})), model="one")
        session.record({**says("anthropic"), "content": [{"type": "text", "text": LONG}]})
        session.record({"role": "assistant", "content": "Bare."}, "openai-chat")
        usage = session.usage()
    assert (usage.input, usage.output, usage.replies, usage.unknown) == (2, 2, 3, 1)
    assert {name: (s.replies, s.unknown) for name, s in usage.models.items()} == {
        "one": (1, 0),
        "claude-sonnet-4-5": (1, 0),
        "": (1, 1),
    }


def test_what_was_rewound_was_paid_for_and_what_a_fork_brought_is_told(store: Store) -> None:
    with store.session("s") as session:
        session.say("Hello")
        session.record(says("anthropic"))
        session.rewind(1)
        session.record(says("anthropic"))
        assert session.usage().replies == 2
    store.fork("s", "t")
    with store.session("t") as session:
        session.say("More")
        session.record(says("anthropic"))
        usage = session.usage()
    assert (usage.replies, usage.copied.replies) == (3, 2)


def test_a_stream_is_one_reply_whole_or_broken_off(store: Store) -> None:
    start = {"type": "message_start", "message": {**says("anthropic"), "content": []}}
    events = [
        start,
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
    ]
    end = [
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 9},
        },
        {"type": "message_stop"},
    ]
    with store.session("s") as session:
        session.say("Hello")
        with session.stream(iter([*events, *end]), "anthropic") as stream:
            list(stream)
        assert (session.usage().replies, session.usage().output) == (1, 9)
        session.say("Again")
        with session.stream(iter(events), "anthropic") as stream:
            list(stream)
        assert session.usage().replies == 2


@pytest.mark.parametrize(
    "value",
    [None, 5, "x", [], {}, {"usage": None}, {"usage": {"input_tokens": "7"}}, {"usage": True}],
)
def test_what_says_nothing_is_unknown(value: Any) -> None:
    assert tokens_in(value) is None


def test_a_session_is_described_by_both_twins(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            about = await session.describe("A case", ["b", "a"], {"n": 1})
            assert (about.title, about.tags, about.metadata) == ("A case", ("a", "b"), {"n": 1})
            await session.describe(tags=["c"])
            assert (session.title, session.tags, session.metadata) == ("A case", ("c",), {"n": 1})

    twin.run(body)
