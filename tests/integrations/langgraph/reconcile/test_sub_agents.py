"""Sub-agents without a memory of their own: what they have done is not lost at a new message."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import InjectedState
from langgraph.types import Command

import lockstitch
from lockstitch.dialects.placeholders import is_placeholder
from lockstitch.integrations.langgraph import areconcile, reconcile
from tests.integrations.langgraph.agents import (
    ASKING,
    JOBS,
    STUCK,
    Bench,
    Released,
    calling,
    on,
    result_of,
)
from tests.integrations.langgraph.reconcile.breaking import FINISHED, THREAD, asked, texts
from tests.integrations.langgraph.savers import (
    CHECKPOINTERS,
    REPAIRING,
    acheckpointer,
    checkpointer,
)
from tests.integrations.langgraph.scripted import Scripted

every_checkpointer = pytest.mark.parametrize("name", CHECKPOINTERS)
both_sources = pytest.mark.parametrize("source", ["graph", "saver"])
HANDOFF = {"name": "transfer_to_researcher", "args": {}, "id": "h1", "type": "tool_call"}


@tool
def transfer_to_researcher(
    state: Annotated[Any, InjectedState], tool_call_id: Annotated[str, InjectedToolCallId]
) -> Any:
    """Hand the conversation over to another agent."""
    told = ToolMessage("Successfully transferred.", tool_call_id=tool_call_id)
    update = {"messages": [*state["messages"], told]}
    return Command(goto="researcher", graph=Command.PARENT, update=update)


class Team:
    """A graph with an agent in it, broken off while that was at work."""

    def __init__(self, shape: str, saver: Any) -> None:
        self.bench = Bench()
        self.model = Scripted(calling(*JOBS))
        self.front = Scripted(AIMessage("", tool_calls=[HANDOFF]))
        self.researcher = create_agent(self.model, [self.bench.tool], name="researcher")
        self.saver = saver
        self.graph = getattr(self, f"_{shape}")().compile(checkpointer=saver)

    def _node(self) -> Any:
        """The agent is a node of a graph."""
        return (
            StateGraph(MessagesState)
            .add_node("researcher", self.researcher)
            .add_edge(START, "researcher")
        )

    def _supervised(self) -> Any:
        """A supervisor hands over to it, and gets its last message back."""
        boss = create_agent(self.front, [transfer_to_researcher], name="boss")

        def work(given: Any) -> Any:
            done = self.researcher.invoke(given)
            return Command(goto="boss", update={"messages": done["messages"][-1:]})

        graph = StateGraph(MessagesState)
        graph.add_node("boss", boss, destinations=("researcher",))
        graph.add_node("researcher", work, destinations=("boss",))
        return graph.add_edge(START, "boss")

    def _swarm(self) -> Any:
        """Another agent hands over to it, and it goes on talking itself."""
        front = create_agent(self.front, [transfer_to_researcher], name="front")
        graph = StateGraph(MessagesState)
        graph.add_node("front", front, destinations=("researcher",))
        graph.add_node("researcher", self.researcher)
        return graph.add_edge(START, "front")

    def _nested(self) -> Any:
        """The agent is a node of a graph that is a node of a graph."""
        inner = self._node().compile()
        return StateGraph(MessagesState).add_node("team", inner).add_edge(START, "team")

    def _asked(self) -> Any:
        """A node asks the agent in words of its own, and returns its last words."""

        def ask(given: Any) -> Any:
            done = self.researcher.invoke({"messages": [HumanMessage("Look into it.")]})
            return {"messages": [AIMessage(f"{given['messages'][-1].text} {done}")]}

        return StateGraph(MessagesState).add_node("researcher", ask).add_edge(START, "researcher")

    def _elsewhere(self) -> Any:
        """A graph that keeps no messages asks the agent."""

        class Topics(TypedDict):
            topics: Annotated[list[str], lambda old, new: old + new]
            talk: Annotated[list[AnyMessage], add_messages]

        def ask(_: Any) -> Any:
            self.researcher.invoke({"messages": [HumanMessage("Look into it.")]})
            return {"topics": ["done"]}

        return StateGraph(Topics).add_node("researcher", ask).add_edge(START, "researcher")

    def _tool(self) -> Any:
        """The agent is a tool of another one."""

        @tool
        def transfer_to_researcher() -> str:
            """Ask the researcher."""
            done = self.researcher.invoke({"messages": [HumanMessage("Look into it.")]})
            return str(done["messages"][-1].text)

        return create_agent(self.front, [transfer_to_researcher]).builder

    def break_off(self, given: Any = None) -> Team:
        watcher = threading.Thread(target=self._release)
        watcher.start()
        with suppress(Released):
            self.graph.invoke(given or asked("Go."), THREAD)
        watcher.join()
        return self

    def _release(self) -> None:
        self.bench.stuck.wait(60)
        for _ in range(3000):
            if len(self._left()) >= len(FINISHED):
                break
            time.sleep(0.01)
        self.bench.released.set()

    def break_off_while_asking(self) -> Team:
        """One tool has finished, one asks a person, and one is at work when the process dies.

        Nobody can then write that the node of the agent asks.
        """
        self.model.replies = [calling("one", ASKING, STUCK)]

        def die() -> None:
            self.bench.stuck.wait(60)
            while len(self._left()) < 1 or not self._questions():
                time.sleep(0.01)
            self.saver.put_writes = lambda *_, **__: None
            self.bench.released.set()

        watcher = threading.Thread(target=die)
        watcher.start()
        with suppress(Released):
            self.graph.invoke(asked("Go."), THREAD)
        watcher.join()
        del self.saver.put_writes
        self.bench.released.set()
        return self

    def _questions(self) -> list[Any]:
        found = self.saver.list(on("a thread"))
        return [one for saved in found for one in saved.pending_writes if one[1] == "__interrupt__"]

    def _left(self) -> list[Any]:
        found = [one for one in self.saver.list(on("a thread")) if one.pending_writes]
        return [
            value
            for one in found
            for _, name, value in one.pending_writes
            if name == "messages" and "real result" in str(value)
        ]

    @property
    def messages(self) -> list[Any]:
        found: list[Any] = self.graph.get_state(THREAD).values["messages"]
        return found


SHAPES = ("node", "supervised", "swarm", "nested")


def agrees(messages: list[Any]) -> None:
    """The finished results are there, once, and the rest is closed."""
    assert lockstitch.check(messages, "langchain") == []
    ids = [message.id for message in messages]
    assert len(set(ids)) == len(ids)
    told = [text for text in texts(messages) if not text.startswith("Successfully")]
    assert [None if is_placeholder(text) else text for text in told] == [
        result_of("one"),
        None,
        result_of("three"),
    ]


@pytest.mark.parametrize("shape", SHAPES)
@both_sources
@every_checkpointer
def test_what_an_agent_has_done_comes_into_the_conversation(
    name: str, source: str, shape: str, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        team = Team(shape, saver).break_off()
        before = team.messages
        report = reconcile(getattr(team, source), THREAD)
        assert (report.changed, report.results, report.synthetic) == (True, 2, 1)
        assert report.messages == team.messages
        assert team.messages[: len(before)] == before
        agrees(team.messages)
        assert not reconcile(getattr(team, source), THREAD).changed


@pytest.mark.parametrize("shape", SHAPES)
@both_sources
@pytest.mark.parametrize("name", ["memory", "sqlite", "saver"])
def test_the_agent_itself_goes_on_with_it(
    name: str, source: str, shape: str, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        team = Team(shape, saver).break_off()
        report = reconcile(getattr(team, source), THREAD)
        assert report.next == (("team",) if shape == "nested" else ("researcher",))
        started = list(team.bench.started)
        team.graph.invoke(None, THREAD)
        assert team.bench.started == started
        assert team.model.sent[-1] == report.messages
        assert team.messages[-1].text == "ok"


@pytest.mark.parametrize("shape", SHAPES)
@both_sources
@pytest.mark.parametrize("name", ["memory", "sqlite", "saver"])
def test_what_an_agent_asks_a_person_is_left_alone(
    name: str, source: str, shape: str, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        team = Team(shape, saver).break_off_while_asking()
        before = list(saver.list(on("a thread")))
        report = reconcile(getattr(team, source), THREAD)
        assert (report.waiting, report.changed) == (True, False)
        assert list(saver.list(on("a thread"))) == before
        # It goes on from there: what has finished does not run again.
        with suppress(Released):
            team.graph.invoke(None, THREAD)
        assert team.bench.started.count("one") == 1


@both_sources
@pytest.mark.parametrize("name", ["memory", "sqlite", "saver"])
def test_a_breakpoint_of_an_agent_is_left_alone(name: str, source: str, tmp_path: Path) -> None:
    """The first one leaves no trace, so only the graph knows it; the second one does."""
    model, bench = Scripted(calling("one"), calling("two")), Bench()
    inner = create_agent(model, [bench.tool], interrupt_before=["tools"])
    outer = StateGraph(MessagesState).add_node("researcher", inner).add_edge(START, "researcher")
    with checkpointer(name, tmp_path) as saver:
        graph = outer.compile(checkpointer=saver)
        graph.invoke(asked("Go."), THREAD)
        for is_second in (False, True):
            if is_second or source == "graph":
                before = list(saver.list(on("a thread")))
                report = reconcile(graph if source == "graph" else saver, THREAD)
                assert (report.waiting, report.paused) == (True, "breakpoint")
                assert "waiting at a breakpoint" in str(report)
                assert list(saver.list(on("a thread"))) == before
            graph.invoke(None, THREAD)
        assert graph.get_state(THREAD).values["messages"][-1].text == "ok"
    assert bench.started == ["one", "two"]


@both_sources
def test_what_an_agent_asks_is_closed_by_force(source: str, tmp_path: Path) -> None:
    with checkpointer("memory", tmp_path) as saver:
        team = Team("node", saver).break_off_while_asking()
        report = reconcile(getattr(team, source), THREAD, force_cleanup=True)
        assert (report.waiting, report.results, report.synthetic) == (False, 1, 2)
        assert (report.next, team.graph.get_state(THREAD).next) == ((), ())
        assert lockstitch.check(team.messages, "langchain") == []


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", REPAIRING)
def test_a_new_message_has_it_before_it(name: str, shape: str, tmp_path: Path) -> None:
    with checkpointer(name, tmp_path) as saver:
        team = Team(shape, saver).break_off()
        team.graph.invoke(asked("And now?"), THREAD)
        sent = (team.front if shape in {"supervised", "swarm"} else team.model).sent[-1]
        assert sent[-1].text == "And now?"
        agrees(sent)


@pytest.mark.parametrize("name", CHECKPOINTERS)
def test_it_comes_along_in_an_event_loop(name: str, tmp_path: Path) -> None:
    async def run() -> Any:
        async with acheckpointer(name, tmp_path) as saver:
            team = Team("node", saver)
            running = asyncio.create_task(team.graph.ainvoke(asked("Go."), THREAD))
            while True:
                found = [one async for one in saver.alist(on("a thread"))]
                writes = [write for one in found for write in one.pending_writes]
                if sum("real result" in str(value) for _, _, value in writes) >= len(FINISHED):
                    break
                await asyncio.sleep(0.01)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            return await areconcile(team.graph, THREAD)

    report = asyncio.run(run())
    assert (report.changed, report.results, report.synthetic) == (True, 2, 1)
    agrees(report.messages)


@both_sources
@every_checkpointer
def test_of_an_agent_that_was_asked_in_other_words_only_its_own_come(
    name: str, source: str, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        team = Team("asked", saver).break_off()
        report = reconcile(getattr(team, source), THREAD)
        assert [message.type for message in report.messages] == ["human", "ai", *["tool"] * 3]
        agrees(report.messages)
        # It would be asked in those words again, and do it all once more.
        assert report.next == ()


@pytest.mark.parametrize("shape", ["elsewhere", "tool"])
@both_sources
@every_checkpointer
def test_what_cannot_be_taken_over_is_said(
    name: str, source: str, shape: str, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        given = {"talk": [HumanMessage("Go.")]} if shape == "elsewhere" else None
        team = Team(shape, saver).break_off(given)
        before = list(saver.list(on("a thread")))
        report = reconcile(getattr(team, source), THREAD)
        (finding,) = [found for found in report.findings if not found.fixable]
        assert (finding.code, finding.severity) == ("LS901", "warning")
        assert finding.message.startswith("2 finished results are in namespace ")
        assert ("tools:" if shape == "tool" else "researcher:") in finding.message
        if shape == "elsewhere":
            assert not report.changed
            assert list(saver.list(on("a thread"))) == before
            with suppress(Released):
                team.graph.invoke(None, THREAD)
            assert team.bench.started.count("one") == 1
        else:
            # The call is answered; what the agent said to itself is no answer to it.
            assert [message.type for message in report.messages] == ["human", "ai", "tool"]


@both_sources
def test_two_agents_at_once_both_come_along(source: str, tmp_path: Path) -> None:
    with checkpointer("memory", tmp_path) as saver:
        one, other = Team("node", saver), Team("node", saver)
        other.model.replies = [calling(*JOBS, prefix="other")]
        graph = StateGraph(MessagesState)
        graph.add_node("one", one.researcher)
        graph.add_node("other", other.researcher)
        graph.add_edge(START, "one")
        graph.add_edge(START, "other")
        made = graph.compile(checkpointer=saver)

        def release() -> None:
            one.bench.stuck.wait(60)
            other.bench.stuck.wait(60)
            while len(one._left()) < 2 * len(FINISHED):  # noqa: SLF001 - its own test
                time.sleep(0.01)
            one.bench.released.set()
            other.bench.released.set()

        watcher = threading.Thread(target=release)
        watcher.start()
        with suppress(Released):
            made.invoke(asked("Go."), THREAD)
        watcher.join()
        report = reconcile(made if source == "graph" else saver, THREAD)
        assert (report.results, report.synthetic) == (4, 2)
        assert lockstitch.check(report.messages, "langchain") == []
        assert set(report.next) == {"one", "other"}


def test_an_agent_of_which_nothing_is_there_yet_is_left_alone(tmp_path: Path) -> None:
    with checkpointer("memory", tmp_path) as saver:
        team = Team("node", saver)
        team.model.replies = [None]  # type: ignore[list-item]
        with pytest.raises(AttributeError):
            team.graph.invoke(asked("Go."), THREAD)
        report = reconcile(team.graph, THREAD)
        assert (report.changed, report.next) == (False, ("researcher",))


@pytest.mark.parametrize("name", REPAIRING)
def test_a_checkpoint_of_the_past_gets_nothing_of_the_run_that_went_on(
    name: str, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        team = Team("node", saver)
        team.model.replies = [calling("one", "two")]
        team.graph.invoke(asked("Go."), THREAD)
        own = list(saver.list(on("a thread", checkpoint_ns="")))
        past = next(one for one in own if one.metadata["step"] == 0)
        team.graph.invoke(asked("Something else."), past.config)
        assert [message.text for message in team.model.sent[-1]] == ["Go.", "Something else."]


@pytest.mark.parametrize("name", REPAIRING)
def test_what_a_new_message_drops_is_logged(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with checkpointer(name, tmp_path) as saver:
        team = Team("elsewhere", saver).break_off({"talk": [HumanMessage("Go.")]})
        team.bench.released.set()
        with suppress(Released):
            team.graph.invoke({"talk": [HumanMessage("And now?")]}, THREAD)
        assert any("2 finished results are in" in record.message for record in caplog.records)
        assert "Go." not in caplog.text


@both_sources
def test_a_run_below_a_subgraph_with_a_memory_is_not_the_own_of_the_root(
    source: str, tmp_path: Path
) -> None:
    """Its namespace is ``team|inner:…``, and its metadata name the root's head, too."""

    def fail(_: Any) -> Any:
        raise RuntimeError

    inner = StateGraph(MessagesState).add_node("think", lambda _: {"messages": AIMessage("Hm.")})
    inner.add_node("fail", fail).add_edge(START, "think").add_edge("think", "fail")
    team = StateGraph(MessagesState).add_node("inner", inner.compile()).add_edge(START, "inner")
    root = StateGraph(MessagesState).add_node("team", team.compile(checkpointer=True))
    with checkpointer("memory", tmp_path) as saver:
        graph = root.add_edge(START, "team").compile(checkpointer=saver)
        with pytest.raises(RuntimeError):
            graph.invoke(asked("Go."), THREAD)
        report = reconcile(graph if source == "graph" else saver, THREAD)
        assert (report.changed, report.next) == (False, ("team",))
        assert [one.text for one in report.messages] == ["Go."]
        assert [[one.text for one in below.messages] for below in report.subgraphs] == [
            ["Go.", "Hm."]
        ]
