"""What is left of a reply whose stream was broken off, and messages that share an id."""

from __future__ import annotations

from operator import add
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

import lockstitch
from lockstitch.integrations.langgraph import reconcile
from lockstitch.integrations.langgraph.message_repair import repair_messages
from tests.integrations.langgraph.agents import called
from tests.integrations.langgraph.reconcile.breaking import THREAD


class State(TypedDict):
    """A list that is added to without looking at ids, as many graphs have it."""

    messages: Annotated[list[AnyMessage], add]


def stored(*messages: BaseMessage) -> Any:
    """A graph in whose checkpoint these messages are, as they are."""
    graph = StateGraph(State)
    graph.add_node("say", lambda _: {})
    graph.add_edge(START, "say")
    graph.add_edge("say", END)
    made = graph.compile(checkpointer=InMemorySaver())
    made.update_state(THREAD, {"messages": list(messages)}, as_node="say")
    return made


ASKED = HumanMessage("Go.", id="1")
TEXT = "I will look"


def chunk(args: str, text: str = TEXT) -> AIMessageChunk:
    pieces = [{"name": "work", "args": args, "id": "call_one", "index": 0}]
    return AIMessageChunk(text, id="2", tool_call_chunks=pieces)


def in_blocks(partial: str) -> AIMessageChunk:
    use = {"type": "tool_use", "id": "call_one", "name": "work", "input": {}, "index": 1}
    text = {"type": "text", "text": TEXT, "index": 0}
    pieces = [{"name": "work", "args": partial, "id": "call_one", "index": 1}]
    content: list[Any] = [text, use | {"partial_json": partial}]
    return AIMessageChunk(content, id="2", tool_call_chunks=pieces)


def invalid() -> AIMessage:
    calls = [{"name": "work", "args": '{"job": "on', "id": "call_one", "error": None}]
    raw = [{"id": "call_one", "type": "function", "function": {"arguments": '{"job": "on'}}]
    kwargs = {"tool_calls": raw}
    return AIMessage(TEXT, id="2", invalid_tool_calls=calls, additional_kwargs=kwargs)


HALVES = [chunk('{"job": "on'), chunk('{"job": '), in_blocks('{"job": "on'), invalid()]


@pytest.mark.parametrize("half", HALVES, ids=["args", "key", "blocks", "invalid"])
def test_the_text_of_a_half_reply_stays_and_the_half_call_goes(half: AIMessage) -> None:
    graph = stored(ASKED, half)
    report = reconcile(graph, THREAD)
    assert report.partial == 1
    assert report.codes == ["LS207"]
    asked, reply = report.messages
    assert asked == ASKED
    assert (reply.type, reply.text, reply.id) == ("ai", TEXT, "2")
    assert not _calls_in(reply)
    assert report.messages == graph.get_state(THREAD).values["messages"]
    assert not reconcile(graph, THREAD).changed


def _calls_in(message: Any) -> list[Any]:
    blocks = message.content if isinstance(message.content, list) else []
    return [
        *message.tool_calls,
        *message.invalid_tool_calls,
        *message.additional_kwargs.get("tool_calls", ()),
        *(block for block in blocks if block.get("type") != "text"),
    ]


def test_a_call_that_arrived_whole_stays() -> None:
    whole = chunk('{"job": "one"}')
    report = reconcile(stored(ASKED, whole), THREAD)
    assert [message.type for message in report.messages][2:] == ["tool"]
    assert report.messages[1].tool_calls == called("one")  # type: ignore[attr-defined]


def test_of_two_calls_only_the_half_one_goes() -> None:
    pieces = [
        {"name": "work", "args": '{"job": "one"}', "id": "call_one", "index": 0},
        {"name": "work", "args": '{"job": "tw', "id": "call_two", "index": 1},
    ]
    reply = AIMessageChunk("", id="2", tool_call_chunks=pieces)
    report = reconcile(stored(ASKED, reply), THREAD)
    assert [call["id"] for call in report.messages[1].tool_calls] == ["call_one"]  # type: ignore[attr-defined]
    assert lockstitch.check(report.messages, "langchain") == []


def test_a_half_call_that_has_a_result_after_all_stays() -> None:
    done = ToolMessage("done", tool_call_id="call_one", id="3")
    report = reconcile(stored(ASKED, invalid(), done), THREAD)
    assert done in report.messages
    assert lockstitch.check(report.messages, "langchain") == []


def test_a_thought_that_was_not_signed_yet_goes_with_the_stream_that_was_cut() -> None:
    thought = {"type": "thinking", "thinking": "Let me", "index": 0}
    cut = AIMessageChunk([thought], id="2")
    report = reconcile(stored(ASKED, cut), THREAD)
    assert report.messages == [ASKED]
    signed = {"type": "thinking", "thinking": "Let me", "signature": "x", "index": 0}
    text = {"type": "text", "text": TEXT, "index": 1}
    whole = AIMessageChunk([signed, text], id="2")
    assert not reconcile(stored(ASKED, whole), THREAD).changed


@pytest.mark.parametrize("content", ["", "  \n", [], [{"type": "text", "text": ""}]])
@pytest.mark.parametrize("kind", [AIMessage, AIMessageChunk])
def test_a_reply_of_which_nothing_arrived_goes(kind: Any, content: Any) -> None:
    report = reconcile(stored(ASKED, kind(content, id="2")), THREAD)
    assert report.messages == [ASKED]
    assert report.partial == 1


def test_a_reply_that_ended_with_nothing_to_say_stays() -> None:
    ended = AIMessage("", id="2", response_metadata={"stop_reason": "end_turn"})
    refused = AIMessage("", id="3", additional_kwargs={"refusal": "No."})
    assert not reconcile(stored(ASKED, ended, refused), THREAD).changed


def test_equal_copies_of_a_message_become_one() -> None:
    twice = AIMessage(TEXT, id="2")
    report = reconcile(stored(ASKED, twice, twice.model_copy()), THREAD)
    assert report.messages == [ASKED, twice]
    assert report.duplicates == 1
    assert report.codes == ["LS906"]


def test_another_message_under_the_same_id_gets_its_own() -> None:
    other = HumanMessage("Really.", id="1")
    graph = stored(ASKED, AIMessage(TEXT, id="2"), other)
    report = reconcile(graph, THREAD)
    assert [message.text for message in report.messages] == ["Go.", TEXT, "Really."]
    assert len({message.id for message in report.messages}) == 3
    assert not reconcile(graph, THREAD).changed
    assert repair_messages([ASKED, other]).messages == repair_messages([ASKED, other]).messages
