"""Every channel with a conversation is found and healed; all other lists keep their bytes."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send

from lockstitch.provider import Script
from lockstitch.provider.server import running
from lockstitch.provider.service import RequestEntry, Service, choose_rules

from .graphs import BATCH, RESULT, Halted, calling, tools
from .test_unfinished import KINDS, THREAD, fresh, opened, stored_results

Run = Callable[..., tuple[int, str]]
SUPERVISOR = "supervisor_messages"
# Lists that are no conversation, though some of them look like one.
LISTS: dict[str, Any] = {
    "texts": ["a", "b"],
    "roles": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [1]}],
    "mixed": [HumanMessage("hi", id="m"), "text", {"a": 1}],
    "replies": [AIMessage("x", id="r", tool_calls=[{"id": "c", "name": "n", "args": {}}])],
    "empty": [],
}


class State(TypedDict):
    """Two conversations and lists of other things."""

    messages: Annotated[list[AnyMessage], add_messages]
    supervisor_messages: Annotated[list[AnyMessage], add_messages]
    texts: list[Any]
    roles: list[Any]
    mixed: list[Any]
    replies: list[Any]
    empty: list[Any]


class Alone(TypedDict):
    """Two conversations of which none has the usual name."""

    supervisor_messages: Annotated[list[AnyMessage], add_messages]
    worker_messages: Annotated[list[AnyMessage], operator.add]


def graph(saver: Any, model: Callable[[list[Any]], Any], stop: Callable[[], None]) -> Any:
    """A supervisor with a conversation of its own, and a task for each of its calls."""

    def think(state: Any) -> Any:
        return {SUPERVISOR: [model(state[SUPERVISOR])]}

    def act(call: Any) -> Any:
        if call["name"] == "stuck":
            stop()
        return {SUPERVISOR: [ToolMessage(RESULT.format(call["id"]), tool_call_id=call["id"])]}

    def then(state: Any) -> Any:
        calls = getattr(state[SUPERVISOR][-1], "tool_calls", ())
        return [Send("act", call) for call in calls] or END

    made = StateGraph(State).add_node("think", think).add_node("act", act)
    made.add_edge(START, "think").add_conditional_edges("think", then, ["act", END])
    return made.add_edge("act", "think").compile(checkpointer=saver)


def halt() -> None:
    raise Halted


def broken(kind: str, address: str, *, has_results: bool = True) -> dict[str, Any]:
    """A turn that is broken off, with two results stored; gives the state as LangGraph has it."""

    def halt() -> None:
        with opened(kind, address) as other:
            while has_results and stored_results(other) < 2:
                time.sleep(0.01)
        raise Halted

    first = [HumanMessage("hi", id="first")]
    given = {"messages": first, SUPERVISOR: [HumanMessage("lead", id="lead")], **LISTS}
    with opened(kind, address) as saver:
        made = graph(saver, lambda _: calling(*BATCH), halt)
        with suppress(Halted):
            made.invoke(given, THREAD, durability="sync")
        values: dict[str, Any] = made.get_state(THREAD).values
        return values


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_conversation_is_found_and_healed(
    kind: str, tmp_path: Path, lockstitch: Run
) -> None:
    address = fresh(kind, tmp_path)
    before = broken(kind, address)
    status, printed = lockstitch("check", address)
    assert (status, "All clean" in printed) == (1, False)
    assert SUPERVISOR in printed
    assert lockstitch("repair", "--yes", address)[0] == 0
    status, printed = lockstitch("check", address)
    assert (status, "All clean" in printed) == (0, True), printed
    log: list[RequestEntry] = []
    desk = Service(choose_rules([]), Script([]), clock=time.time, log=log.append)
    with running(desk) as url, opened(kind, address) as saver:
        model: Any = ChatAnthropic(
            model="claude", base_url=url, api_key="none", default_headers={"Connection": "close"}
        )  # type: ignore[call-arg]
        made = graph(saver, model.bind_tools(tools(halt)).invoke, lambda: None)
        state = made.get_state(THREAD)
        assert state.next == ()
        kept = {name: state.values.get(name) for name in [*LISTS, "messages"]}
        assert kept == {name: before.get(name) for name in kept}
        told = {m.tool_call_id: m.content for m in state.values[SUPERVISOR] if m.type == "tool"}
        assert told.keys() == {"call_0", "call_1", "call_2"}
        assert (told["call_0"], told["call_2"]) == (
            RESULT.format("call_0"),
            RESULT.format("call_2"),
        )
        more = {"messages": [HumanMessage("more")], SUPERVISOR: [HumanMessage("more")]}
        made.invoke(more, THREAD)
    assert {entry.outcome for entry in log} == {"accepted"}


@pytest.mark.parametrize("kind", KINDS)
def test_lists_that_are_no_conversation_keep_their_bytes(
    kind: str, tmp_path: Path, lockstitch: Run
) -> None:
    address = fresh(kind, tmp_path)
    with opened(kind, address) as saver:
        made = StateGraph(State).add_node("n", lambda _: {"messages": [AIMessage("ok")]})
        made.add_edge(START, "n").compile(checkpointer=saver).invoke(  # type: ignore[call-overload]
            {"messages": [HumanMessage("hi")], **LISTS}, THREAD
        )
        before = list(saver.list(THREAD))
    status, printed = lockstitch("check", address)
    assert (status, "All clean" in printed) == (0, True), printed
    assert lockstitch("repair", "--yes", address)[0] == 0
    with opened(kind, address) as saver:
        assert list(saver.list(THREAD)) == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["texts", "roles", "mixed"])
def test_a_channel_that_is_called_messages_need_not_hold_any(
    kind: str, name: str, tmp_path: Path, lockstitch: Run
) -> None:
    class Other(TypedDict):
        messages: list[Any]

    address = fresh(kind, tmp_path)
    with opened(kind, address) as saver:
        made = StateGraph(Other).add_node("n", lambda _: {"messages": LISTS[name]})
        made.add_edge(START, "n").compile(checkpointer=saver).invoke(  # type: ignore[call-overload]
            {"messages": LISTS[name]}, THREAD
        )
        before = list(saver.list(THREAD))
    status, printed = lockstitch("check", address)
    if name != "roles":
        assert (status, "All clean" in printed) == (0, True), printed
    assert lockstitch("repair", "--yes", address)[0] in {0, 1}
    with opened(kind, address) as saver:
        found = list(saver.list(THREAD))
        assert found == before or name == "roles"


@pytest.mark.parametrize("kind", KINDS)
def test_conversations_of_any_name_are_healed(kind: str, tmp_path: Path, lockstitch: Run) -> None:
    address = fresh(kind, tmp_path)
    said = [HumanMessage("hi", id="1"), calling("fast")]
    with opened(kind, address) as saver:
        made: Any = StateGraph(Alone).add_node("n", lambda _: {"worker_messages": []})
        made = made.add_edge(START, "n").compile(checkpointer=saver)
        made.invoke({SUPERVISOR: said, "worker_messages": said}, THREAD)
    assert lockstitch("check", address)[0] == 1
    assert lockstitch("repair", "--yes", address)[0] == 0
    assert lockstitch("check", address)[0] == 0
    with opened(kind, address) as saver:
        found = saver.get_tuple(THREAD).checkpoint["channel_values"]
    for name in (SUPERVISOR, "worker_messages"):
        assert [m.type for m in found[name]] == ["human", "ai", "tool"]
    assert lockstitch("undo", "--yes", address)[0] == 0
    assert lockstitch("check", address)[0] == 1
