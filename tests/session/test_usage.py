"""What is no use of a session at all is said so, in the words of the library, before it counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from google.genai import types
from langchain_core.messages import AIMessage, HumanMessage

from lockstitch.errors import UsageError
from lockstitch.session.session import Session
from lockstitch.session.store import Store

from .talk import DIALECTS, faults, says
from .twins import Twin, check_everywhere

WRONG: dict[str, tuple[Callable[[Session], Any], str]] = {
    "no tools": (lambda s: s.run_tools(None), "a dictionary of names and functions"),  # type: ignore[arg-type]
    "a list of tools": (lambda s: s.run_tools([print]), "a dictionary of names"),  # type: ignore[arg-type]
    "a tool that is none": (lambda s: s.run_tools({"x": 5}), "a dictionary of names"),  # type: ignore[dict-item]
    "the output of an id": (lambda s: s.output("c1"), "output takes a call"),  # type: ignore[arg-type]
    "a budget in words": (lambda s: s.compact(budget="x"), "a budget must be at least 1 token"),  # type: ignore[arg-type]
    "a budget of nothing": (lambda s: s.compact(budget=0), "a budget must be at least 1 token"),
    "bytes in words": (
        lambda s: s.compact(budget=9, most_bytes="x"),
        "at least 1 token and 1 byte",
    ),  # type: ignore[arg-type]
    "a request's budget": (lambda s: s.request("anthropic", budget="x"), "a budget must be"),  # type: ignore[arg-type]
    "a model that is none": (lambda s: s.compact(5, budget=9), "summarize must be a function"),  # type: ignore[arg-type]
    "a budget of yes": (lambda s: s.compact(budget=True), "a budget must be at least 1 token"),
    "no deadline": (lambda s: s.compact(budget=9, deadline=None), "deadline must be a number"),  # type: ignore[arg-type]
    "no number": (lambda s: s.compact(budget=9, deadline=math.nan), "deadline must be a number"),
    "a late call": (
        lambda s: s.compact(budget=9, call_timeout=-1),
        "call_timeout must be a number",
    ),
    "no stream": (lambda s: s.stream(None), "an iterator of events, not a NoneType"),
    "a text as a stream": (lambda s: s.stream("abc"), "an iterator of events, not a str"),
    "a key that is none": (lambda s: s.say("Two", key=5), "a key must have 1 to 128"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("how", WRONG)
def test_wrong_usage_changes_nothing(store: Store, how: str) -> None:
    use, text = WRONG[how]
    with store.session("s") as session:
        session.say("One")
        with pytest.raises(UsageError, match=text):
            use(session)
        assert session.seq == 1


def test_names_and_times_of_a_store(store: Store) -> None:
    with store.session("s") as session:
        session.say("One")
    for name in (None, 5, "", "a/b"):
        with pytest.raises(UsageError, match="a session's name"):
            store.session(name)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="a session's name"):
            store.fork("s", name)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="wait must be a number of seconds"):
        store.session("s", wait="long")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="another name"):
        store.fork("s", "s")
    assert store.read("s").seq == 2


MESSAGES = {
    "anthropic": {"role": "user", "content": "hello"},
    "openai-chat": {"role": "user", "content": [{"type": "text", "text": "hello"}]},
    "openai-responses": {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "hello"}],
    },
    "gemini": types.Content(role="user", parts=[types.Part(text="hello")]),
    "bedrock": {"role": "user", "content": [{"text": "hello"}]},
    "langchain": HumanMessage("hello"),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_whole_message_of_the_users_is_what_it_says(
    twin: Twin, store: Store, dialect: str
) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say(MESSAGES[dialect], dialect=dialect)
            for other in DIALECTS:
                messages = await session.request(other)
                assert faults(other, messages) == []
                assert "hello" in str(messages)
            await check_everywhere(session)

    twin.run(body)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "content",
    [5, True, None, b"hello", [b"hello"], [5], {}, [{}], [MESSAGES["anthropic"]]],
    ids=str,
)
def test_what_no_message_could_hold_is_refused(store: Store, dialect: str, content: Any) -> None:
    with store.session("s") as session:
        with pytest.raises(UsageError, match="say takes a string, or content blocks"):
            session.say(content, dialect=dialect)
        assert session.seq == 0


def test_words_of_others_are_not_said(store: Store) -> None:
    with store.session("s") as session:
        for message in (AIMessage("hi"), {"role": "assistant", "content": "hi"}):
            with pytest.raises(UsageError, match="record takes replies"):
                session.say(message, dialect="langchain")
        with pytest.raises(UsageError, match="a block in it that has no type"):
            session.say([{"text": "hello"}], dialect="anthropic")
        session.say({"text": "hello"}, dialect="gemini")
        session.record(says("anthropic"))
        assert "hello" in str(session.request("anthropic"))


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (b"12 passed\n", "12 passed\n"),
        (bytearray("grün", "utf-8"), "grün"),
        (memoryview(b"ok"), "ok"),
        (b"\x89PNG", "[lockstitch] 4 bytes that are not UTF-8, as base64:\niVBORw=="),
    ],
    ids=["bytes", "bytearray", "memoryview", "no text"],
)
def test_the_bytes_of_a_program_are_text(twin: Twin, store: Store, output: Any, shown: str) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")
            call = {"type": "tool_use", "id": "c1", "name": "run", "input": {}}
            await session.record({"role": "assistant", "content": [call]}, "anthropic")
            (done,) = await session.run_tools({"run": twin.tool(lambda: output)})
            assert (done.outcome, await session.output(done)) == ("ok", shown)

    twin.run(body)
