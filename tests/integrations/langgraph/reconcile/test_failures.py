"""An error that a tool ended with is told as that error, not as a result that nobody knows."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import TOOL_CALL_ERROR_TEMPLATE
from langgraph.types import Send

import lockstitch
from lockstitch.dialects.placeholders import UNKNOWN_OUTCOME, is_placeholder
from lockstitch.integrations.langgraph import areconcile, reconcile
from lockstitch.integrations.langgraph.pending_writes import ERROR_RESULT
from tests.integrations.langgraph.agents import AGENTS, Bench, calling
from tests.integrations.langgraph.reconcile.breaking import THREAD, asked, texts
from tests.integrations.langgraph.savers import (
    CHECKPOINTERS,
    REPAIRING,
    acheckpointer,
    checkpointer,
)
from tests.integrations.langgraph.scripted import Scripted

every_checkpointer = pytest.mark.parametrize("name", CHECKPOINTERS)
both_sources = pytest.mark.parametrize("source", ["graph", "saver"])
TOLD = "Error: RuntimeError('disk is full')\n Please fix your mistakes."
KEY = "sk-ant-api03-" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3hJ5kL7nP9rS1tV3xY5zA7cE9gI1kM3oQ5sU7w"
SENDING = [kind for kind in AGENTS if kind != "plain"]


class FailingBench(Bench):
    """A bench at which a job ``bad`` fails, and a job ``broken off`` is broken off."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__()
        self.error = error or RuntimeError("disk is full")

    def work(self, job: str) -> str:
        if job == "bad":
            # LangGraph loses the result of a tool that returns while the run is being broken off
            time.sleep(0.1)
            raise self.error
        return super().work(job)

    async def awork(self, job: str) -> str:
        return self.work(job)


def failed(kind: str, saver: Any, *jobs: str, error: BaseException | None = None) -> Any:
    """A thread of which one tool has failed, with its graph and its model."""
    model = Scripted(calling(*jobs))
    graph = AGENTS[kind](model, FailingBench(error), saver)
    with pytest.raises(type(error or RuntimeError())):
        graph.invoke(asked("Go."), THREAD)
    return graph, model


def batched(saver: Any, model: Any) -> Any:
    """A graph whose tool node does not answer for errors: all calls are one task."""
    tool = StructuredTool.from_function(FailingBench().work, name="work", description="Work.")
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda given: {"messages": [model.invoke(given["messages"])]})
    graph.add_node("tools", ToolNode([tool], handle_tool_errors=False))
    graph.add_edge(START, "model")
    graph.add_conditional_edges(
        "model", lambda given: "tools" if given["messages"][-1].tool_calls else END
    )
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("kind", SENDING)
@both_sources
@every_checkpointer
def test_the_model_is_told_what_the_tool_failed_with(
    name: str, source: str, kind: str, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        graph, _ = failed(kind, saver, "one", "bad", "three")
        report = reconcile(graph if source == "graph" else saver, THREAD)
        found = {m.tool_call_id: m for m in report.messages if isinstance(m, ToolMessage)}
        assert (
            found["call_bad"].text
            == TOLD
            == ERROR_RESULT.format(error="RuntimeError('disk is full')")
        )
        assert (found["call_bad"].status, found["call_bad"].name) == ("error", "work")
        assert report.errors == 1
        assert "LS901" in report.codes
        assert "disk" not in f"{report} {report.findings}"
        assert not reconcile(graph if source == "graph" else saver, THREAD).changed


def test_the_text_is_that_of_the_tool_node() -> None:
    assert ERROR_RESULT == TOOL_CALL_ERROR_TEMPLATE


@pytest.mark.parametrize("kind", SENDING)
@pytest.mark.parametrize("name", REPAIRING)
def test_a_new_message_brings_it_along(name: str, kind: str, tmp_path: Path) -> None:
    with checkpointer(name, tmp_path) as saver:
        graph, model = failed(kind, saver, "one", "bad")
        graph.invoke(asked("And now?"), THREAD)
        assert TOLD in texts(model.sent[-1])
        assert lockstitch.check(model.sent[-1], "langchain") == []


@both_sources
@every_checkpointer
def test_the_only_call_of_a_batch_has_the_error_of_the_batch(
    name: str, source: str, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        graph = batched(saver, Scripted(calling("bad")))
        with pytest.raises(RuntimeError):
            graph.invoke(asked("Go."), THREAD)
        report = reconcile(graph if source == "graph" else saver, THREAD)
        assert texts(report.messages) == [TOLD]


@both_sources
def test_of_several_calls_in_one_task_only_that_it_failed_is_known(
    source: str, tmp_path: Path
) -> None:
    with checkpointer("memory", tmp_path) as saver:
        graph = batched(saver, Scripted(calling("one", "bad")))
        with pytest.raises(RuntimeError):
            graph.invoke(asked("Go."), THREAD)
        report = reconcile(graph if source == "graph" else saver, THREAD)
        for text in texts(report.messages):
            assert "the step that ran this call failed" in text
            assert "RuntimeError('disk is full')" in text


def left_at(tools: Any, *messages: Any) -> Any:
    """A thread that stands before its tools, to which errors of its tasks can be added."""
    saver = InMemorySaver()
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda _: {})
    graph.add_node("tools", lambda _: {}).add_node("audit", lambda _: {})
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools, ["tools", "audit"])
    made = graph.compile(checkpointer=saver)
    made.update_state(THREAD, {"messages": list(messages)}, as_node="model")
    return made, saver


def ended(graph: Any, saver: Any, **errors: str) -> None:
    """End the tasks of these nodes with these errors."""
    state = graph.get_state(THREAD)
    for task in state.tasks:
        if task.name in errors:
            saver.put_writes(state.config, [("__error__", errors[task.name])], task.id)


@both_sources
def test_an_error_of_a_node_beside_is_not_that_of_a_call(source: str) -> None:
    reply = calling("one")
    graph, saver = left_at(lambda _: [Send("tools", reply.tool_calls[0]), "audit"], reply)
    ended(graph, saver, audit="ValueError('audit')")
    report = reconcile(graph if source == "graph" else saver, THREAD)
    assert texts(report.messages) == [UNKNOWN_OUTCOME]


@both_sources
def test_of_two_nodes_that_ended_nobody_knows_which_had_the_call(source: str) -> None:
    graph, saver = left_at(lambda _: ["tools", "audit"], calling("one"))
    ended(graph, saver, tools="CancelledError()", audit="ValueError('audit')")
    report = reconcile(graph if source == "graph" else saver, THREAD)
    assert texts(report.messages) == [UNKNOWN_OUTCOME]


@both_sources
def test_a_batch_that_failed_has_only_the_calls_of_its_own_reply(source: str) -> None:
    said = [calling("old"), *asked("Go on.")["messages"], calling("one", "two")]
    graph, saver = left_at(lambda _: "tools", *said)
    ended(graph, saver, tools="ValueError('tools')")
    old, *rest = texts(reconcile(graph if source == "graph" else saver, THREAD).messages)
    assert old == UNKNOWN_OUTCOME
    assert ["the step that ran this call failed" in text for text in rest] == [True, True]


@both_sources
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_what_broke_a_run_off_is_no_error_of_the_tool(
    source: str, error: BaseException, tmp_path: Path
) -> None:
    with checkpointer("memory", tmp_path) as saver:
        graph, _ = failed("agent", saver, "bad", error=error)
        report = reconcile(graph if source == "graph" else saver, THREAD)
        assert (report.errors, report.synthetic) == (0, 1)
        assert all(map(is_placeholder, texts(report.messages)))


@both_sources
def test_no_secret_is_told(source: str, tmp_path: Path) -> None:
    with checkpointer("memory", tmp_path) as saver:
        graph, _ = failed("agent", saver, "bad", error=RuntimeError(f"401 for key {KEY}"))
        report = reconcile(graph if source == "graph" else saver, THREAD)
        (text,) = texts(report.messages)
        assert KEY not in text
        assert "401 for key" in text


@both_sources
def test_an_error_that_a_message_has_left_behind_is_found(source: str, tmp_path: Path) -> None:
    with checkpointer("memory", tmp_path) as saver:
        graph, _ = failed("agent", saver, "one", "bad")
        graph.update_state(THREAD, asked("And now?"), as_node="__start__")
        report = reconcile(graph if source == "graph" else saver, THREAD)
        assert (report.results, report.errors, report.synthetic) == (1, 1, 0)


@every_checkpointer
def test_it_is_told_in_an_event_loop(name: str, tmp_path: Path) -> None:
    async def run() -> Any:
        async with acheckpointer(name, tmp_path) as saver:
            graph = AGENTS["agent"](Scripted(calling("one", "bad")), FailingBench(), saver)
            with pytest.raises(RuntimeError):
                await graph.ainvoke(asked("Go."), THREAD)
            return await areconcile(graph, THREAD)

    report = asyncio.run(run())
    assert texts(report.messages)[-1] == TOLD
