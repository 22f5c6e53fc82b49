"""Whatever is in a checkpoint and beside it: afterwards it is valid, and nothing real is lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver

import lockstitch
from lockstitch.dialects.placeholders import is_placeholder
from lockstitch.integrations.langgraph import reconcile
from lockstitch.integrations.langgraph.pending_writes import calls_in
from tests.integrations.langgraph.agents import AGENTS, Bench, on
from tests.integrations.langgraph.scripted import Scripted

THREAD = on("a thread", checkpoint_ns="")
CALLS = st.lists(st.sampled_from("abcde"), max_size=3, unique=True)
IDS = st.one_of(st.none(), st.sampled_from("123456"))
TASKS = [f"0000000{number}-0000-0000-0000-000000000001" for number in range(4)]


def reply(text: str, calls: list[str], own: str | None) -> AIMessage:
    made = [{"name": "work", "args": {}, "id": call, "type": "tool_call"} for call in calls]
    return AIMessage(text, id=own, tool_calls=made)


def half(text: str, calls: list[str], own: str | None) -> AIMessage:
    pieces = [
        {"name": "work", "args": '{"job": ' if number % 2 else "{}", "id": call, "index": number}
        for number, call in enumerate(calls)
    ]
    return AIMessageChunk(text, id=own, tool_call_chunks=pieces)


def invalid(text: str, calls: list[str], own: str | None) -> AIMessage:
    made = [{"name": "work", "args": "{", "id": call, "error": None} for call in calls]
    return AIMessage(text, id=own, invalid_tool_calls=made)


@st.composite
def conversations(draw: st.DrawFn, start: int = 0) -> list[BaseMessage]:
    """Messages that say each its own, with ids and calls that meet by chance."""
    found: list[BaseMessage] = []
    for number in range(draw(st.integers(0, 7))):
        text, own = f"<{start + number}>", draw(IDS)
        kind = draw(
            st.sampled_from(["human", "system", "tool", "tool", "reply", "half", "invalid"])
        )
        if kind == "human":
            found.append(HumanMessage(text, id=own))
        elif kind == "system":
            found.append(SystemMessage(text, id=own) if not found else HumanMessage(text, id=own))
        elif kind == "tool":
            call = draw(st.sampled_from("abcdef"))
            found.append(ToolMessage(text, tool_call_id=call, id=own))
        else:
            build: Any = {"reply": reply, "half": half, "invalid": invalid}[kind]
            said = draw(st.sampled_from([text, ""]))
            found.append(build(said, draw(CALLS), own))
    return found


@st.composite
def results(draw: st.DrawFn) -> list[tuple[str, ToolMessage]]:
    """Results of finished tasks that are kept beside the checkpoint."""
    count = draw(st.integers(0, 4))
    calls = [draw(st.sampled_from("abcdef")) for _ in range(count)]
    return [
        (TASKS[number], ToolMessage(f"<result {number}>", tool_call_id=call))
        for number, call in enumerate(calls)
    ]


def stored(held: list[BaseMessage], beside: list[tuple[str, ToolMessage]]) -> InMemorySaver:
    saver = InMemorySaver()
    checkpoint = empty_checkpoint()
    version = saver.get_next_version(None, None)
    checkpoint["channel_values"] = {"messages": held, "branch:to:tools": None}
    checkpoint["channel_versions"] = {"messages": version, "branch:to:tools": version}
    versions = dict(checkpoint["channel_versions"])
    config = saver.put(THREAD, checkpoint, {"source": "loop", "step": 3, "parents": {}}, versions)
    for task, message in beside:
        saver.put_writes(config, [("messages", [message])], task)
    return saver


def texts(messages: list[BaseMessage]) -> set[str]:
    return {str(message.text) for message in messages if str(message.text)}


few = settings(max_examples=max(settings().max_examples // 2, 1))


@few
@given(conversations(), results())
def test_afterwards_it_is_valid_and_nothing_real_is_lost(
    held: list[BaseMessage], beside: list[tuple[str, ToolMessage]]
) -> None:
    saver = stored(held, beside)
    report = reconcile(saver, THREAD)
    assert report.healed
    assert lockstitch.check(report.messages, "langchain") == []
    assert saver.get_tuple(THREAD).checkpoint["channel_values"]["messages"] == report.messages
    said = "".join(str(message.content) for message in report.messages)
    for text in texts(held) | texts([message for _, message in beside]):
        assert said.count(text) == 1
    ids = [message.id for message in report.messages if message.id]
    assert len(set(ids)) == len(ids)
    if report.changed:
        assert reconcile(saver, report.before).messages == report.messages
    head = saver.get_tuple(THREAD)
    assert not reconcile(saver, THREAD).changed
    assert not reconcile(saver, THREAD, report.messages).changed
    assert saver.get_tuple(THREAD) == head


@few
@given(conversations(), results())
def test_a_graph_that_does_not_know_the_tasks_loses_nothing_of_a_call(
    held: list[BaseMessage], beside: list[tuple[str, ToolMessage]]
) -> None:
    saver = stored(held, beside)
    graph = AGENTS["plain"](Scripted(), Bench(), saver)
    report = reconcile(graph, THREAD)
    assert report.healed
    assert lockstitch.check(report.messages, "langchain") == []
    assert saver.get_tuple(THREAD).checkpoint["channel_values"]["messages"] == report.messages
    assert graph.get_state(THREAD).next in ((), ("tools",), ("model",))
    said = "".join(str(message.content) for message in report.messages)
    assert all(said.count(text) == 1 for text in texts(held))
    made_up = {m.tool_call_id for m in report.messages if _stands_in(m)}
    used = Counter(call for call, _ in calls_in(report.messages))
    known = {message.tool_call_id for _, message in beside}
    assert all(used[call] > 1 for call in known & made_up)
    assert not reconcile(graph, THREAD).changed


def _stands_in(message: BaseMessage) -> bool:
    return isinstance(message, ToolMessage) and is_placeholder(str(message.text))


@few
@given(conversations(), results(), conversations(start=100), st.data())
def test_with_what_an_application_holds_both_agree(
    held: list[BaseMessage],
    beside: list[tuple[str, ToolMessage]],
    more: list[BaseMessage],
    data: st.DataObject,
) -> None:
    saver = stored(held, beside)
    kept = data.draw(st.lists(st.sampled_from(held), unique_by=id)) if held else []
    mine = [message for message in held if any(message is own for own in kept)] + more
    report = reconcile(saver, THREAD, mine)
    assert report.healed
    assert lockstitch.check(report.messages, "langchain") == []
    assert saver.get_tuple(THREAD).checkpoint["channel_values"]["messages"] == report.messages
    said = "".join(str(message.content) for message in report.messages)
    for text in texts(mine):
        assert said.count(text) == 1
    assert not reconcile(saver, THREAD, report.messages).changed
    assert not reconcile(saver, THREAD).changed
