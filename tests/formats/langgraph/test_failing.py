"""A tool that raised is told as one that failed, and not as one of which nothing is known."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.pregel._algo import task_path_str

from lockstitch.dialects.placeholders import CANCELLED, FAILED, UNKNOWN_OUTCOME

from .graphs import Halted, Scripted, calling
from .test_unfinished import KINDS, THREAD, fresh, opened, stored_results

Run = Callable[..., tuple[int, str]]

TOLD = f"{FAILED} ValueError('disk is full')"
KEY = "sk-ant-api03-" + "aB3dE5gH" * 11 + "-QQAA"


def tools(kind: str, address: str) -> list[Any]:
    """One that returns, and one that raises once the other's result is stored."""

    @tool
    def good(job: str) -> str:
        """Do it."""
        return f"did {job}"

    @tool
    def bad(job: str) -> str:
        """Fail."""
        with opened(kind, address) as other:
            while "one" not in job and not stored_results(other):
                threading.Event().wait(0.01)
        if "stop" in job:
            raise KeyboardInterrupt
        raise ValueError(f"401 for key {KEY}" if "key" in job else "disk is full")

    return [good, bad]


class Overloaded(Scripted):
    """A model that cannot be reached."""

    def _generate(self, *_: Any, **__: Any) -> Any:
        raise ValueError("overloaded")


def react(model: Any, made: list[Any], saver: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return create_react_agent(model, made, checkpointer=saver)


def agent(model: Any, made: list[Any], saver: Any) -> Any:
    return create_agent(model, made, checkpointer=saver)


def inner(model: Any, made: list[Any], saver: Any) -> Any:
    graph = StateGraph(MessagesState).add_node("alice", react(model, made, None))
    return graph.add_edge(START, "alice").compile(checkpointer=saver)


def batch(model: Any, made: list[Any], saver: Any) -> Any:
    """One node for all calls, so that which of them failed is only known if it is one."""
    graph = StateGraph(MessagesState)
    graph.add_node("think", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(made, handle_tool_errors=False))
    graph.add_edge(START, "think").add_edge("think", "tools")
    return graph.compile(checkpointer=saver)


def failed(kind: str, address: str, build: Any, *names: str, prefix: str = "call") -> None:
    with opened(kind, address) as saver:
        model = Scripted(calling(*names, prefix=prefix))
        graph = build(model, tools(kind, address), saver)
        with pytest.raises((ValueError, KeyboardInterrupt, Halted)):
            graph.invoke({"messages": [HumanMessage("hi")]}, THREAD, durability="sync")


def results(kind: str, address: str) -> dict[str, tuple[str, str]]:
    with opened(kind, address) as saver:
        found = saver.get_tuple(THREAD).checkpoint["channel_values"]["messages"]
    return {m.tool_call_id: (m.content, m.status) for m in found if m.type == "tool"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("build", [react, agent, inner])
def test_an_error_that_was_recorded_is_told(
    kind: str, build: Any, tmp_path: Path, lockstitch: Run
) -> None:
    address = fresh(kind, tmp_path)
    failed(kind, address, build, "good", "bad")
    status, printed = lockstitch("check", address)
    assert (status, "the error of call call_1" in printed) == (1, True)
    status, printed = lockstitch("repair", "--yes", address)
    assert (status, "neutral" in printed) == (0, False), printed
    found = results(kind, address)
    assert found == {"call_0": ("did call_0", "success"), "call_1": (TOLD, "error")}
    assert lockstitch("check", address)[0] == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("build", [react, agent])
def test_an_error_that_a_new_message_has_hidden_is_told(
    kind: str, build: Any, tmp_path: Path, lockstitch: Run
) -> None:
    address = fresh(kind, tmp_path)
    failed(kind, address, build, "good", "bad")
    with opened(kind, address) as saver, suppress(ValueError):
        graph = build(Scripted(), tools(kind, address), saver)
        graph.invoke({"messages": [HumanMessage("still there?")]}, THREAD)
    status, printed = lockstitch("check", address)
    assert (status, "the error of call call_1" in printed) == (1, True), printed
    assert lockstitch("repair", "--yes", address)[0] == 0
    found = results(kind, address)
    assert found == {"call_0": ("did call_0", "success"), "call_1": (TOLD, "error")}
    assert lockstitch("check", address)[0] == 0
    assert lockstitch("repair", "--yes", address)[0] == 0
    assert results(kind, address) == found


@pytest.mark.parametrize("kind", KINDS)
def test_a_tool_that_was_stopped_did_not_fail(kind: str, tmp_path: Path, lockstitch: Run) -> None:
    address = fresh(kind, tmp_path)
    failed(kind, address, react, "good", "bad", prefix="stop")
    assert lockstitch("repair", "--yes", address)[0] == 0
    assert CANCELLED in results(kind, address)["stop_1"][0]


@pytest.mark.parametrize("kind", KINDS)
def test_no_secret_in_an_error_is_told(kind: str, tmp_path: Path, lockstitch: Run) -> None:
    address = fresh(kind, tmp_path)
    failed(kind, address, react, "good", "bad", prefix="key")
    status, printed = lockstitch("repair", "--yes", address)
    assert (status, KEY in printed) == (0, False)
    text, _ = results(kind, address)["key_1"]
    assert (KEY in text, "401 for key" in text) == (False, True)


def test_of_several_calls_in_one_task_nobody_knows_which_failed(
    tmp_path: Path, lockstitch: Run
) -> None:
    address = fresh("sqlite", tmp_path)
    failed("sqlite", address, batch, "bad", "bad", prefix="one")
    assert lockstitch("repair", "--yes", address)[0] == 0
    assert [UNKNOWN_OUTCOME in text for text, _ in results("sqlite", address).values()] == [
        True,
        True,
    ]


def test_the_only_call_of_a_task_is_the_one_that_failed(tmp_path: Path, lockstitch: Run) -> None:
    address = fresh("sqlite", tmp_path)
    failed("sqlite", address, batch, "bad", prefix="one")
    assert lockstitch("repair", "--yes", address)[0] == 0
    assert results("sqlite", address) == {"one_0": (TOLD, "error")}


@pytest.mark.parametrize("kind", KINDS)
def test_the_only_call_of_a_task_failed_before_a_new_message(
    kind: str, tmp_path: Path, lockstitch: Run
) -> None:
    address = fresh(kind, tmp_path)
    failed(kind, address, batch, "bad", prefix="one")
    with opened(kind, address) as saver:
        graph = batch(Scripted(), tools(kind, address), saver)
        graph.update_state(THREAD, {"messages": [HumanMessage("hello?")]}, as_node=START)
    assert lockstitch("repair", "--yes", address)[0] == 0
    assert results(kind, address) == {"one_0": (TOLD, "error")}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_hidden", [False, True])
def test_an_error_of_the_model_is_not_that_of_an_older_call(
    kind: str, is_hidden: bool, tmp_path: Path, lockstitch: Run
) -> None:
    address = fresh(kind, tmp_path)
    with opened(kind, address) as saver:
        left = [HumanMessage("hi"), calling("bad")]
        graph = batch(Overloaded(), tools(kind, address), saver)
        graph.update_state(THREAD, {"messages": left}, as_node="think")
        with pytest.raises(ValueError, match="overloaded"):
            graph.invoke({"messages": [HumanMessage("still there?")]}, THREAD, durability="sync")
        if is_hidden:
            graph.update_state(THREAD, {"messages": [HumanMessage("hello?")]}, as_node=START)
    assert lockstitch("repair", "--yes", address)[0] == 0
    assert [text for text, _ in results(kind, address).values()] == [UNKNOWN_OUTCOME]


@pytest.mark.parametrize("kind", KINDS)
def test_an_id_that_was_answered_before_is_open_again(
    kind: str, tmp_path: Path, lockstitch: Run
) -> None:
    address = fresh(kind, tmp_path)
    with opened(kind, address) as saver:
        graph = react(Scripted(), tools(kind, address), saver)
        before = [ToolMessage(f"before {n}", tool_call_id=f"call_{n}") for n in range(2)]
        said = [HumanMessage("hi"), calling("good", "bad"), *before, AIMessage("ok")]
        said += [HumanMessage("again"), calling("good", "bad")]
        graph.update_state(THREAD, {"messages": said}, as_node="agent")
        state = graph.get_state(THREAD)
        task = state.tasks[0]
        left = ("messages", [ToolMessage("now", tool_call_id="call_0")])
        saver.put_writes(state.config, [left], task.id, task_path_str(task.path))
    status, printed = lockstitch("check", address)
    assert status == 1
    assert "error LS901" in printed
    assert "the result of call call_0" in printed
    assert lockstitch("repair", "--yes", address)[0] == 0
    assert results(kind, address) == {
        "call_0": ("now", "success"),
        "call_1": (UNKNOWN_OUTCOME, "error"),
    }
    assert lockstitch("check", address)[0] == 0
