"""Channels that store only changes, rows that are gone, subgraphs, and checkpointers of ours."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Annotated, Any, TypedDict

import psycopg
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from pydantic import BaseModel

import lockstitch
from lockstitch.errors import UsageError
from lockstitch.integrations.langgraph import Guard, Saver, areconcile, reconcile
from tests.integrations.langgraph.agents import (
    AGENTS,
    ASKING,
    JOBS,
    Bench,
    Released,
    calling,
    on,
    postgres,
    sqlite,
    until_finished,
)
from tests.integrations.langgraph.reconcile.breaking import (
    FINISHED,
    THREAD,
    Thread,
    asked,
    unwritten,
)
from tests.integrations.langgraph.scripted import Scripted
from tests.postgres_server import shared

both_sources = pytest.mark.parametrize("source", ["graph", "saver"])


@both_sources
def test_a_channel_of_changes_is_stored_whole(source: str) -> None:
    model = Scripted(AIMessage("Hello!"), calling(*JOBS))
    thread = Thread("changing", model=model)
    thread.invoke(asked("Hello."))
    thread.break_off()
    assert "messages" not in thread.head.checkpoint["channel_values"]
    report = reconcile(getattr(thread, source), THREAD)
    assert report.results == len(FINISHED)
    kept = thread.head.checkpoint["channel_values"]["messages"]
    assert type(kept).__name__ == "_DeltaSnapshot"
    assert kept.value == report.messages == thread.state.values["messages"]
    assert "messages" not in thread.head.metadata.get("counters_since_delta_snapshot", {})
    thread.invoke()
    assert thread.state.values["messages"][: len(report.messages)] == report.messages


@both_sources
def test_a_lost_ancestor_of_such_a_channel_is_reported_and_nothing_written(source: str) -> None:
    thread = Thread("changing", model=Scripted(AIMessage("Hello!"), calling(*JOBS)))
    thread.invoke(asked("Hello."))
    thread.break_off()
    gone = list(thread.saver.list(THREAD))[-1]
    place = gone.config["configurable"]
    while True:
        del thread.saver.storage["a thread"][""][place["checkpoint_id"]]
        left = list(thread.saver.list(THREAD))[-1]
        if left.checkpoint["channel_values"].get("messages") is None:
            break
        place = left.config["configurable"]
    with unwritten(thread):
        report = reconcile(getattr(thread, source), THREAD)
    assert report.codes == ["LS904"]
    assert not report.healed


def test_a_lost_value_is_reported_and_nothing_written() -> None:
    address = shared().fresh()
    with postgres(address) as saver:
        thread = Thread("agent", saver=saver).break_off()
        version = thread.head.checkpoint["channel_versions"]["messages"]
        with psycopg.connect(address) as connection:
            statement = "DELETE FROM checkpoint_blobs WHERE channel = 'messages' AND version = %s"
            assert connection.execute(statement, (version,)).rowcount == 1
        with unwritten(thread):
            report = reconcile(thread.graph, THREAD)
    assert report.codes == ["LS903"]
    assert not report.changed


class Outer(TypedDict):
    messages: Annotated[list[Any], add_messages]


def nested(saver: Any, *jobs: str) -> Any:
    """A graph with a subgraph that keeps its own history, and the bench it works at."""
    bench = Bench()
    inner = AGENTS["fanned"](Scripted(calling(*jobs)), bench, True)

    def hand_over(given: Any) -> dict[str, Any]:
        told = inner.invoke({"messages": [HumanMessage(given["messages"][-1].text)]})
        return {"messages": [AIMessage(told["messages"][-1].text)]}

    graph = StateGraph(Outer)
    graph.add_node("helper", hand_over)
    graph.add_edge(START, "helper")
    graph.add_edge("helper", END)
    return graph.compile(checkpointer=saver), bench


HELPER = on("a thread", checkpoint_ns="helper")


@both_sources
def test_a_subgraph_with_a_history_of_its_own_is_mended_too(source: str) -> None:
    saver = InMemorySaver()
    graph, bench = nested(saver, *JOBS)

    def release() -> None:
        bench.stuck.wait(600)
        until_finished(saver, HELPER, 2)
        bench.released.set()

    watcher = threading.Thread(target=release)
    watcher.start()
    with suppress(Released):
        graph.invoke(asked("Go."), THREAD)
    watcher.join()
    report = reconcile(graph if source == "graph" else saver, THREAD)
    (below,) = report.subgraphs
    assert below.changed
    assert below.namespace == "helper"
    assert below.results == 2
    mended = saver.get_tuple(HELPER).checkpoint["channel_values"]["messages"]
    assert mended == below.messages
    assert lockstitch.check(mended, "langchain") == []
    again = reconcile(graph if source == "graph" else saver, THREAD)
    assert not any(found.changed for found in (again, *again.subgraphs))
    named = reconcile(graph if source == "graph" else saver, HELPER)
    assert named.messages == mended
    graph.invoke(asked("And now?"), THREAD)


@both_sources
def test_a_subgraph_that_asks_is_left_alone_with_its_parent(source: str) -> None:
    saver = InMemorySaver()
    graph, _ = nested(saver, "one", ASKING)
    graph.invoke(asked("Go."), THREAD)
    before = list(saver.list(on("a thread")))
    assert reconcile(graph if source == "graph" else saver, THREAD).waiting
    assert list(saver.list(on("a thread"))) == before
    forced = reconcile(graph if source == "graph" else saver, THREAD, force_cleanup=True)
    assert forced.changed
    assert [below.changed for below in forced.subgraphs] == [True]


def test_checkpointers_of_ours_are_reconciled_like_any_other(tmp_path: Any) -> None:
    with Saver(f"sqlite:///{tmp_path}/own.db") as own:
        _goes_on(Thread("agent", saver=own))
    with sqlite(str(tmp_path / "theirs.db")) as theirs:
        _goes_on(Thread("agent", saver=Guard(theirs)))


def _goes_on(thread: Thread) -> None:
    thread.break_off()
    report = reconcile(thread.graph, THREAD)
    assert report.results == len(FINISHED)
    assert thread.state.values["messages"] == report.messages
    assert not asyncio.run(areconcile(thread.saver, THREAD)).changed
    assert lockstitch.check(thread.invoke(), "langchain") == []


class Count(TypedDict):
    count: Annotated[int, lambda old, new: old + new]
    notes: Annotated[list[str], lambda old, new: old + new]


def test_a_graph_without_a_conversation_is_none_of_our_business() -> None:
    def fail(_: Any) -> Any:
        raise OSError("disk full")

    graph = StateGraph(Count)
    graph.add_node("one", lambda _: {"count": 1})
    graph.add_node("two", fail)
    graph.add_edge(START, "one")
    graph.add_edge(START, "two")
    made = graph.compile(checkpointer=InMemorySaver())
    with pytest.raises(OSError, match="disk"):
        made.invoke({"count": 1, "notes": []}, THREAD)
    before = made.get_state(THREAD)
    for source in (made, made.checkpointer):
        assert not reconcile(source, THREAD).changed
    assert made.get_state(THREAD) == before
    with pytest.raises(UsageError, match="no channel 'messages'"):
        reconcile(made, THREAD, [HumanMessage("Hello.")])


class Record(BaseModel):
    messages: Annotated[list[Any], add_messages]


def test_an_input_that_is_an_object_is_not_lost_either() -> None:
    graph = StateGraph(Record)
    graph.add_node("say", lambda _: {"messages": [("ai", "Yes.")]})
    graph.add_edge(START, "say")
    made = graph.compile(checkpointer=InMemorySaver())
    made.invoke(Record(messages=[HumanMessage("Go.")]), THREAD)
    first = list(made.checkpointer.list(THREAD))[-1]
    assert "__start__" in first.checkpoint["channel_values"]
    made.checkpointer.writes.clear()
    # Without the graph it may be the input of a workflow, which needs it to go on.
    assert not reconcile(made.checkpointer, first.config).changed
    report = reconcile(made, first.config)
    assert report.codes == ["LS908"]
    assert [message.text for message in report.messages] == ["Go."]
