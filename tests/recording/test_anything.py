"""Whatever a client sends and a provider answers, it is kept, and nothing is raised."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import lockstitch
from lockstitch.stores.memory import MemoryBackend
from tests.recording.talking import DIALECTS, LIST, Client, Heard, answer, streamed

WORDS = st.sampled_from(
    [
        *("role", "content", "parts", "text", "type", "id", "tool_use", "tool_result", "user"),
        *("assistant", "model", "tool", "system", "toolUse", "toolResult", "functionCall"),
        *("functionResponse", "function_call", "function_call_output", "call_id", "message"),
        *("tool_use_id", "toolUseId", "tool_call_id", "tool_calls", "name", "input", "args"),
        *("thinking", "reasoning", "cache_control", "cachePoint", "output", "", "x", "\ud83d"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
BYTES = st.binary(max_size=60) | st.builds(lambda value: json.dumps(value).encode(), VALUES)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, bytes]:
    """A request: nearly right, or anything."""
    dialect = draw(st.sampled_from(DIALECTS))
    client = Client(dialect).say("Hello").hear(answer(dialect, 1, "Hello!", "call_a"))
    client.give([("call_a", "look", "yes")]).say("Go on")
    messages: list[Any] = draw(st.lists(VALUES | st.sampled_from(client.messages), max_size=6))
    body = {LIST.get(dialect, "messages"): messages, **draw(st.dictionaries(WORDS, VALUES))}
    return dialect, draw(st.just(json.dumps(body).encode()) | BYTES)


@settings(max_examples=60, deadline=None)
@given(st.lists(bodies(), min_size=1, max_size=4), st.lists(BYTES, min_size=4, max_size=4))
def test_anything_is_kept(asked: list[tuple[str, bytes]], replies: list[bytes]) -> None:
    heard = Heard(MemoryBackend())
    try:
        for (dialect, body), reply in zip(asked, replies, strict=False):
            begun = heard.run(heard.recorder.begin(dialect, body, streamed=False))
            name = heard.commit(begun, reply)
            # what is there makes a request that is valid
            assert not lockstitch.check(heard.request(name, "openai-chat"), "openai-chat")
    finally:
        heard.close()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(DIALECTS), st.floats(0, 1), st.binary(max_size=20))
def test_streams_that_are_cut_and_garbled(dialect: str, share: float, noise: bytes) -> None:
    heard = Heard(MemoryBackend())
    try:
        data = b"".join(streamed(dialect, "A reply, in pieces.", "call_a", "call_b")[0])
        at = int(len(data) * share)
        client = Client(dialect).say("Hello")
        name = heard.commit(heard.begin(client), data[:at] + noise + data[at + 20 :])
        assert heard.said(name)[0] == "user: Hello"
    finally:
        heard.close()
