"""Runs that broke off in a sub-agent or in a workflow: what they had done is not lost by a repair.

What comes of a repair is told by LangGraph itself, with the strict provider behind the model.
"""

from __future__ import annotations

import json
import operator
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

from lockstitch.provider import Script
from lockstitch.provider.server import running
from lockstitch.provider.service import RequestEntry, Service, choose_rules
from tests.postgres_server import shared

from .graphs import BATCH, RESULT, Halted, Scripted, agent, calling, saving

Run = Callable[..., tuple[int, str]]
KINDS = ("sqlite", "postgres")
THREAD: Any = {"configurable": {"thread_id": "thread"}}
FINISHED = {"call_0": RESULT.format("call_0"), "call_2": RESULT.format("call_2")}


class State(TypedDict):
    """A conversation, and who spoke."""

    messages: Annotated[list[AnyMessage], add_messages]
    spoke: Annotated[list[str], operator.add]


@contextmanager
def opened(kind: str, address: str) -> Iterator[Any]:
    if kind == "sqlite":
        with saving(address) as saver:
            yield saver
    else:
        with PostgresSaver.from_conn_string(address) as saver:
            saver.setup()
            yield saver


def fresh(kind: str, folder: Path) -> str:
    return shared().fresh() if kind == "postgres" else str(folder / "threads.db")


# Graphs with an agent in a node


def node(model: Any, saver: Any, stop: Any) -> Any:
    graph = StateGraph(State).add_node("alice", agent(model, None, stop))
    return graph.add_edge(START, "alice").compile(checkpointer=saver)


def deeper(model: Any, saver: Any, stop: Any) -> Any:
    team = StateGraph(State).add_node("alice", agent(model, None, stop))
    inner = team.add_edge(START, "alice").compile()
    graph = StateGraph(State).add_node("team", inner)
    return graph.add_edge(START, "team").compile(checkpointer=saver)


def wrapped(model: Any, saver: Any, stop: Any) -> Any:
    """A node that gives its agent the conversation, and returns the last of its messages."""
    inner = agent(model, None, stop)

    def call(state: Any) -> Any:
        return {"messages": inner.invoke({"messages": state["messages"]})["messages"][-1:]}

    graph = StateGraph(State).add_node("alice", call)
    return graph.add_edge(START, "alice").compile(checkpointer=saver)


def delegated(model: Any, saver: Any, stop: Any) -> Any:
    """A node that gives its agent an order of its own, which nobody else sees."""
    inner = agent(model, None, stop)

    def call(_state: Any) -> Any:
        order = {"messages": [HumanMessage("do it", id="order")]}
        return {"messages": inner.invoke(order)["messages"][-1:]}

    graph = StateGraph(State).add_node("alice", call)
    return graph.add_edge(START, "alice").compile(checkpointer=saver)


GRAPHS = {"node": node, "deeper": deeper, "wrapped": wrapped, "delegated": delegated}
GOING_ON = ("node", "deeper", "wrapped")


def stored_results(saver: Any) -> int:
    """How many results of tools hang on any checkpoint of the thread."""
    found = saver.list({"configurable": {"thread_id": "thread"}})
    writes = [write for one in found for write in one.pending_writes or ()]
    return sum(getattr(value, "type", "") == "tool" for _, _, value in _messages(writes))


def _messages(writes: list[Any]) -> Iterator[tuple[Any, Any, Any]]:
    for owner, channel, value in writes:
        for one in value if isinstance(value, list) else [value]:
            yield owner, channel, one


def broken(kind: str, address: str, name: str, stop: Callable[[], None]) -> None:
    """A turn whose agent is stopped in the midst of a batch, with two of its results stored."""

    def halt() -> None:
        with opened(kind, address) as other:
            while stored_results(other) < 2:
                time.sleep(0.01)
        stop()

    with opened(kind, address) as saver, suppress(Halted):
        graph = GRAPHS[name](Scripted(calling(*BATCH)), saver, halt)
        graph.invoke({"messages": [HumanMessage("hi", id="first")]}, THREAD, durability="sync")


def halted() -> None:
    raise Halted


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def asked_again(kind: str, address: str, name: str, words: Any) -> tuple[list[RequestEntry], Any]:
    """Go on with the real client, which the strict provider answers; gives what it said to that."""
    log: list[RequestEntry] = []
    desk = Service(choose_rules([]), Script([]), clock=time.time, log=log.append)
    with running(desk) as url, opened(kind, address) as saver:
        model: Any = ChatAnthropic(
            model="claude", base_url=url, api_key="none", default_headers={"Connection": "close"}
        )  # type: ignore[call-arg]
        graph = GRAPHS[name](model, saver, lambda: None)
        told = None if words is None else {"messages": [HumanMessage(words)]}
        graph.invoke(told, THREAD)
        return log, graph.get_state(THREAD)


def results_in(messages: list[AnyMessage]) -> dict[str, Any]:
    found = [message for message in messages if message.type == "tool"]
    return {message.tool_call_id: message.content for message in found}  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GOING_ON)
def test_what_a_sub_agent_had_done_is_in_the_next_request(
    kind: str, name: str, tmp_path: Path, lockstitch: Run
) -> None:
    address = fresh(kind, tmp_path)
    broken(kind, address, name, halted)
    status, printed = lockstitch("check", address)
    assert (status, "LS901" in printed) == (1, True)
    assert "subgraph" in printed
    assert lockstitch("repair", "--yes", address)[0] == 0
    status, printed = lockstitch("check", address)
    assert (status, "All clean" in printed) == (0, True), printed
    assert lockstitch("repair", "--yes", address)[0] == 0
    log, state = asked_again(kind, address, name, "and now?")
    assert {entry.outcome for entry in log} == {"accepted"}
    found = results_in(state.values["messages"])
    assert FINISHED.items() <= found.items()
    assert set(found) == {"call_0", "call_1", "call_2"}
    texts = [m.content for m in state.values["messages"] if m.type == "human"]
    assert texts == ["hi", "and now?"]


def test_without_a_repair_it_is_lost(tmp_path: Path) -> None:
    address = fresh("sqlite", tmp_path)
    broken("sqlite", address, "node", halted)
    _, state = asked_again("sqlite", address, "node", "and now?")
    assert results_in(state.values["messages"]) == {}


def test_what_a_killed_sub_agent_had_done_is_kept_and_undone(
    tmp_path: Path, lockstitch: Run
) -> None:
    address = fresh("sqlite", tmp_path)
    code = (
        "import sys; from tests.formats.langgraph.test_unfinished import broken, killed; "
        "broken('sqlite', sys.argv[1], 'deeper', killed)"
    )
    done = subprocess.run([sys.executable, "-c", code, address], check=False, timeout=600)
    assert done.returncode == -signal.SIGKILL
    assert lockstitch("repair", "--yes", address)[0] == 0
    assert lockstitch("undo", "--yes", address)[0] == 0
    assert lockstitch("check", address)[0] == 1
    assert lockstitch("repair", "--yes", address)[0] == 0
    log, state = asked_again("sqlite", address, "deeper", "and now?")
    assert {entry.outcome for entry in log} == {"accepted"}
    assert FINISHED.items() <= results_in(state.values["messages"]).items()


@pytest.mark.parametrize("kind", KINDS)
def test_what_only_its_node_can_use_is_counted(kind: str, tmp_path: Path, lockstitch: Run) -> None:
    address = fresh(kind, tmp_path)
    broken(kind, address, "delegated", halted)
    for command in (["check"], ["repair", "--yes"], ["check"]):
        status, printed = lockstitch(*command, address)
        assert (status, "LS909" in printed) == (1, True), printed
        assert "5 messages, 3 of them results" in printed
    log, state = asked_again(kind, address, "delegated", None)
    assert {entry.outcome for entry in log} == {"accepted"}
    assert state.next == ()


def test_a_breakpoint_of_a_sub_agent_is_left_alone(tmp_path: Path, lockstitch: Run) -> None:
    address = fresh("sqlite", tmp_path)

    def go_on(given: Any) -> Any:
        model = Scripted(calling("fast", prefix="first" if given else "second"))
        with opened("sqlite", address) as saver:
            inner = agent(model, None, lambda: None, interrupt_before=["tools"])
            outer = StateGraph(State).add_node("alice", inner).add_edge(START, "alice")
            graph = outer.compile(checkpointer=saver)
            graph.invoke(given, THREAD)
            return graph.get_state(THREAD)

    go_on({"messages": [HumanMessage("hi", id="first")]})
    # It is resumed once, which is how such a thread is told from one that was killed.
    assert go_on(None).next == ("alice",)
    status, printed = lockstitch("repair", "--yes", address)
    assert (status, "waits for a person" in printed) == (0, True), printed


# Workflows


class Counted:
    """A workflow of two tasks, of which the second one is broken off until it may end."""

    def __init__(self, saver: Any) -> None:
        self.ran: list[str] = []
        self.stops = True

        @task
        def fast(job: str) -> str:
            self.ran.append(job)
            return f"done {job}"

        @task
        def slow(job: str) -> str:
            if self.stops:
                raise Halted
            return f"done {job}"

        @entrypoint(checkpointer=saver)
        def flow(given: Any, *, previous: Any = None) -> Any:
            first = [] if given.get("at once") else [fast("one").result()]
            return [*(previous or []), *first, slow("two").result()]

        self.flow = flow

    def invoke(self, given: Any) -> Any:
        with suppress(Halted):
            return self.flow.invoke(given, THREAD, durability="sync")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("turns", [0, 1])
def test_a_workflow_that_broke_off_is_left_alone_and_resumes(
    kind: str, turns: int, tmp_path: Path, lockstitch: Run
) -> None:
    address = fresh(kind, tmp_path)
    given = {"messages": [HumanMessage("hi", id="first")]}
    with opened(kind, address) as saver:
        flow = Counted(saver)
        flow.stops = False
        for _ in range(turns):
            flow.invoke(given)
        flow.stops = True
        flow.invoke(given)
    status, printed = lockstitch("check", address)
    assert (status, "LS909" in printed, "1 result of finished tasks" in printed) == (1, True, True)
    for words in (["repair", "--yes"], ["repair", "--yes", "--force-cleanup"]):
        status, printed = lockstitch(*words, address)
        assert status == 1
        assert "invoke(None" in printed
        assert "Repaired" not in printed
    with opened(kind, address) as saver:
        flow = Counted(saver)
        flow.stops = False
        assert flow.invoke(None) == ["done one", "done two"] * (turns + 1)
        assert flow.ran == []
    assert lockstitch("check", address)[0] == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "message", [HumanMessage("hi", id="x"), HumanMessage("hi"), {"role": "user", "content": "hi"}]
)
def test_a_first_input_that_may_be_a_workflow_s_can_still_be_resumed(
    kind: str, message: Any, tmp_path: Path, lockstitch: Run
) -> None:
    address = fresh(kind, tmp_path)
    with opened(kind, address) as saver:
        Counted(saver).invoke({"messages": [message], "at once": True})
        saver_writes(kind, saver)
    assert lockstitch("repair", "--yes", address)[0] == 0
    assert lockstitch("check", address)[0] == 0
    with opened(kind, address) as saver:
        flow = Counted(saver)
        flow.stops = False
        assert flow.invoke(None) == ["done two"]


def saver_writes(kind: str, saver: Any) -> None:
    """Take the writes away: a process that is killed has no time to note its own end."""
    if kind == "sqlite":
        saver.conn.execute("delete from writes")
        saver.conn.commit()
    else:
        saver.conn.execute("DELETE FROM checkpoint_writes")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("words", ["and now?", None])
@pytest.mark.parametrize("message", [HumanMessage("hi"), {"role": "user", "content": "hi"}])
def test_a_first_input_of_a_graph_is_said_once(
    kind: str, words: str | None, message: Any, tmp_path: Path, lockstitch: Run
) -> None:
    address = fresh(kind, tmp_path)
    with opened(kind, address) as saver:

        class Stopping(type(saver)):  # type: ignore[misc]
            def put(self, config: Any, checkpoint: Any, metadata: Any, versions: Any) -> Any:
                if metadata["step"] == 0:
                    raise Halted
                return super().put(config, checkpoint, metadata, versions)

            def put_writes(self, *_: Any, **__: Any) -> None:
                return

        saver.__class__ = Stopping
        with suppress(Halted):
            graph = node(Scripted(), saver, halted)
            graph.invoke({"messages": [message]}, THREAD, durability="sync")
    status, printed = lockstitch("check", address)
    assert (status, "LS908" in printed) == (1, True)
    assert lockstitch("repair", "--yes", address)[0] == 0
    assert lockstitch("check", address)[0] == 0
    log, state = asked_again(kind, address, "node", words)
    assert {entry.outcome for entry in log} == {"accepted"}
    said = [m.content for m in state.values["messages"] if m.type == "human"]
    assert said == ["hi", *([words] if words else [])]


def test_what_a_workflow_keeps_for_its_next_run_is_healed(tmp_path: Path, lockstitch: Run) -> None:
    address = fresh("sqlite", tmp_path)
    with opened("sqlite", address) as saver:

        @entrypoint(checkpointer=saver)
        def flow(given: Any, *, previous: Any = None) -> Any:
            kept = [*(previous or []), *given]
            return entrypoint.final(value=len(kept), save=kept)

        flow.invoke([HumanMessage("hi", id="1"), calling("fast")], THREAD)
        status, printed = lockstitch("check", address)
        assert (status, "LS101" in printed or "LS102" in printed) == (1, True), printed
        assert lockstitch("repair", "--yes", address)[0] == 0
        assert flow.invoke([HumanMessage("more")], THREAD) == 4


def test_json_names_what_is_left(tmp_path: Path, lockstitch: Run) -> None:
    address = fresh("sqlite", tmp_path)
    broken("sqlite", address, "delegated", halted)
    _, printed = lockstitch("repair", "--yes", "--json", address)
    [session] = json.JSONDecoder().raw_decode(printed)[0]["sessions"]
    assert [one["code"] for one in session["remaining"]] == ["LS909"]
