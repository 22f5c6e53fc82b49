"""Workflows of the functional API: broken off they stay resumable, and nothing is guessed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

import lockstitch
from lockstitch.errors import UsageError
from lockstitch.integrations.langgraph import areconcile, reconcile
from tests.integrations.langgraph.agents import calling
from tests.integrations.langgraph.reconcile.breaking import THREAD
from tests.integrations.langgraph.savers import CHECKPOINTERS, acheckpointer, checkpointer

every_checkpointer = pytest.mark.parametrize("name", CHECKPOINTERS)
both_sources = pytest.mark.parametrize("source", ["graph", "saver"])


class Failed(BaseException):
    """What a task that is broken off ends with."""


class Work:
    """Two tasks, of which the second is broken off the first time, and what they have done."""

    def __init__(self, saver: Any, *, first_fails: bool = False, asks: bool = False) -> None:
        self.ran: list[str] = []
        self.failing = True

        @task
        def look(text: str) -> BaseMessage:
            self.ran.append("look")
            if first_fails and self.failing:
                raise Failed
            return AIMessage(f"saw {text}", id=f"look-{text}")

        @task
        def write(text: str) -> BaseMessage:
            self.ran.append("write")
            if asks:
                return AIMessage(f"{interrupt('Sure?')}")
            if self.failing:
                raise Failed
            return AIMessage(f"wrote {text}", id=f"write-{text}")

        @entrypoint(checkpointer=saver)
        def flow(given: Any, *, previous: Any = None) -> Any:
            text = given["messages"][-1].text if isinstance(given, dict) else given[-1].text
            one = look(text).result()
            two = write(text).result()
            return entrypoint.final(
                value=two, save=[*(previous or []), HumanMessage(text), one, two]
            )

        self.flow = flow

    def break_off(self, given: Any) -> Work:
        with pytest.raises(Failed):
            self.flow.invoke(given, THREAD)
        self.failing = False
        self.ran.clear()
        return self


INPUTS = {"list": [HumanMessage("Go.")], "dict": {"messages": [HumanMessage("Go.")]}}


@pytest.mark.parametrize("given", INPUTS)
@both_sources
@every_checkpointer
def test_a_workflow_goes_on_with_its_finished_tasks(
    name: str, source: str, given: str, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        work = Work(saver).break_off(INPUTS[given])
        before = list(saver.list(THREAD))
        report = reconcile(work.flow if source == "graph" else saver, THREAD)
        assert not report.changed
        assert list(saver.list(THREAD)) == before
        (finding,) = report.findings
        assert (finding.code, finding.severity, finding.fixable) == ("LS901", "warning", False)
        assert finding.message.startswith("1 finished result")
        assert "invoke(None)" in finding.message
        assert work.flow.invoke(None, THREAD).text == "wrote Go."
        assert work.ran == ["write"]


@pytest.mark.parametrize("given", INPUTS)
@both_sources
@every_checkpointer
def test_a_workflow_of_which_nothing_has_finished_can_be_taken_up(
    name: str, source: str, given: str, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        work = Work(saver, first_fails=True).break_off(INPUTS[given])
        report = reconcile(work.flow if source == "graph" else saver, THREAD)
        assert (report.changed, report.codes) == (False, ["LS908"])
        assert work.flow.invoke(None, THREAD).text == "wrote Go."
        assert work.ran == ["look", "write"]


@both_sources
@every_checkpointer
def test_the_second_run_of_a_workflow_is_resumable_too(
    name: str, source: str, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        work = Work(saver)
        work.failing = False
        work.flow.invoke([HumanMessage("One.")], THREAD)
        work.failing = True
        work.break_off([HumanMessage("Two.")])
        report = reconcile(work.flow if source == "graph" else saver, THREAD)
        assert not report.changed
        assert (report.channel, len(report.messages)) == ("__previous__", 3)
        assert work.flow.invoke(None, THREAD).text == "wrote Two."
        assert work.ran == ["write"]


@every_checkpointer
def test_a_workflow_goes_on_in_an_event_loop(name: str, tmp_path: Path) -> None:
    async def run() -> Any:
        async with acheckpointer(name, tmp_path) as saver:
            work = Work(saver)
            with pytest.raises(Failed):
                await work.flow.ainvoke([HumanMessage("Go.")], THREAD)
            work.failing = False
            work.ran.clear()
            report = await areconcile(work.flow, THREAD)
            return report.changed, (await work.flow.ainvoke(None, THREAD)).text, work.ran

    assert asyncio.run(run()) == (False, "wrote Go.", ["write"])


@every_checkpointer
def test_a_new_input_is_as_with_the_checkpointer_of_langgraph(name: str, tmp_path: Path) -> None:
    wanted = Work(InMemorySaver()).break_off(INPUTS["list"])
    text = wanted.flow.invoke([HumanMessage("New.")], THREAD).text
    with checkpointer(name, tmp_path) as saver:
        work = Work(saver).break_off(INPUTS["list"])
        assert work.flow.invoke([HumanMessage("New.")], THREAD).text == text
        assert work.ran == wanted.ran == ["look", "write"]
        assert not reconcile(work.flow, THREAD).findings


@both_sources
@every_checkpointer
def test_a_workflow_that_asks_is_left_alone(name: str, source: str, tmp_path: Path) -> None:
    with checkpointer(name, tmp_path) as saver:
        work = Work(saver, asks=True)
        work.flow.invoke([HumanMessage("Go.")], THREAD)
        for force in (False, True):
            report = reconcile(
                work.flow if source == "graph" else saver, THREAD, force_cleanup=force
            )
            assert report.waiting
            assert not report.changed
        assert work.flow.invoke(Command(resume="yes"), THREAD).text == "yes"


@both_sources
@every_checkpointer
def test_what_a_workflow_keeps_for_its_next_run_is_healed(
    name: str, source: str, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        seen: list[Any] = []

        @entrypoint(checkpointer=saver)
        def flow(given: Any, *, previous: Any = None) -> Any:
            seen.append(previous)
            kept = [*(previous or []), HumanMessage(given), calling("one")]
            return entrypoint.final(value=given, save=kept)

        flow.invoke("Go.", THREAD)
        report = reconcile(flow if source == "graph" else saver, THREAD)
        assert (report.changed, report.channel, report.synthetic) == (True, "__previous__", 1)
        assert not reconcile(flow if source == "graph" else saver, THREAD).changed
        flow.invoke("Again.", THREAD)
        assert lockstitch.check(seen[-1], "langchain") == []


def test_a_workflow_without_a_list_of_messages_takes_none() -> None:
    @entrypoint(checkpointer=InMemorySaver())
    def flow(given: Any) -> Any:
        return entrypoint.final(value=given, save=len(given))

    flow.invoke("Go.", THREAD)
    for source in (flow, flow.checkpointer):
        assert not reconcile(source, THREAD).changed
        with pytest.raises(UsageError):
            reconcile(source, THREAD, [HumanMessage("mine")])


@every_checkpointer
def test_a_graph_whose_node_calls_a_task_is_no_workflow(name: str, tmp_path: Path) -> None:
    """What the task returned stands beside the checkpoint, as in a workflow that broke off."""

    @task
    def look() -> str:
        return "seen"

    def agent(_state: MessagesState) -> dict[str, Any]:
        return {"messages": [calling("one")]}

    def tool(_state: MessagesState) -> dict[str, Any]:
        look().result()
        raise Failed

    with checkpointer(name, tmp_path) as saver:
        graph = StateGraph(MessagesState)
        graph.add_node(agent)
        graph.add_node(tool)
        graph.add_edge(START, "agent")
        graph.add_edge("agent", "tool")
        app = graph.compile(checkpointer=saver)
        with pytest.raises(Failed):
            app.invoke({"messages": [HumanMessage("Hi", id="h1")]}, THREAD)
        report = reconcile(saver, THREAD)
    assert report.changed
    assert report.healed
    assert [message.type for message in report.messages] == ["human", "ai", "tool"]
