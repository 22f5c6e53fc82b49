"""A new input after an interrupt finds a valid conversation; a run that goes on finds its tasks."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from lockstitch.integrations.langgraph.guard import Guard
from tests.integrations.langgraph.agents import (
    AGENTS,
    ASKING,
    ASYNC_SAVERS,
    SAVERS,
    Bench,
    calling,
    on,
    result_of,
)
from tests.integrations.langgraph.guard.victim import thread_of
from tests.integrations.langgraph.savers import (
    CHECKPOINTERS,
    REPAIRING,
    address_of,
    checkpointer,
)
from tests.integrations.langgraph.scripted import Scripted
from tests.oracles import problems

VICTIM = "tests.integrations.langgraph.guard.victim"
KILLED = [
    ("agent", "sqlite"),
    ("fanned", "sqlite"),
    ("changing", "sqlite"),
    ("agent", "postgres"),
    ("changing", "postgres"),
]
THREAD = on("asked")


def _said(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """Databases of agents whose process was killed while one of three tools was at work."""
    stores = {
        store: address_of(store, tmp_path_factory.mktemp(store)) for store in ("sqlite", "postgres")
    }
    given = [(kind, store, stores[store]) for kind, store in KILLED]
    with subprocess.Popen(
        [sys.executable, "-m", VICTIM, json.dumps(given)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "here\n"
        process.kill()
    return {(kind, store): stores[store] for kind, store in KILLED}


def _results(messages: list[Any]) -> dict[str, str]:
    return {
        message.tool_call_id: message.text
        for message in messages
        if isinstance(message, ToolMessage)
    }


def _check_request(messages: list[Any]) -> None:
    """See that a request is valid, and that it holds what had finished."""
    assert problems("langchain", messages) == []
    results = _results(messages)
    assert results["call_one"] == result_of("one")
    assert results["call_three"] == result_of("three")
    assert results["call_stuck"] != result_of("stuck")
    assert messages[-1].content == "and now?"


@pytest.mark.parametrize(("kind", "store"), KILLED)
def test_a_new_message_after_a_kill_in_mid_tools(
    killed: dict[tuple[str, str], str], kind: str, store: str
) -> None:
    thread = thread_of(kind)
    with SAVERS[store](killed[kind, store]) as saver:
        before = saver.get_tuple(thread)
        model, bench = Scripted(), Bench()
        graph = AGENTS[kind](model, bench, Guard(saver))
        result = graph.invoke(_said("and now?"), thread)
        _check_request(model.sent[0])
        assert bench.started == []
        kept = graph.get_state(thread).values
        assert [message.id for message in kept["messages"]] == [
            message.id for message in result["messages"]
        ]
        if kind in {"fanned", "changing"}:
            assert sorted(kept["done"]) == ["one", "three"]
        # Nothing that was there is changed.
        again = saver.get_tuple(before.config)
        assert again.checkpoint == before.checkpoint
        graph.invoke(_said("more"), thread)
        assert problems("langchain", model.sent[1]) == []


def _asked(saver: Any, *jobs: str, kind: str = "agent") -> tuple[Any, Scripted, Bench]:
    model, bench = Scripted(calling(*jobs)), Bench()
    graph = AGENTS[kind](model, bench, saver)
    graph.invoke(_said("go"), THREAD)
    return graph, model, bench


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("kind", ["agent", "fanned", "changing"])
def test_a_pending_approval_survives_and_resumes(kind: str, store: str, tmp_path: Path) -> None:
    address = address_of(store, tmp_path)
    with SAVERS[store](address) as saver:
        _asked(Guard(saver), "one", ASKING, "three", kind=kind)
    with SAVERS[store](address) as saver:
        guard = Guard(saver)
        model, bench = Scripted(), Bench()
        graph = AGENTS[kind](model, bench, guard)
        state = graph.get_state(THREAD)
        assert [interrupt.value for interrupt in state.interrupts] == [ASKING]
        assert guard.get_tuple(THREAD)
        graph.invoke(Command(resume="yes"), THREAD)
        # What had finished is not run again.
        assert bench.started == [ASKING]
        results = _results(model.sent[0])
        assert results[f"call_{ASKING}"] == "a person said yes"
        assert results["call_one"] == result_of("one")
        assert problems("langchain", model.sent[0]) == []


def test_a_run_without_an_input_goes_on_with_its_tasks() -> None:
    saver = InMemorySaver()
    _asked(Guard(saver), "one", ASKING)
    before = saver.get_tuple(THREAD)
    model, bench = Scripted(), Bench()
    graph = AGENTS["agent"](model, bench, Guard(saver))
    graph.invoke(None, THREAD)
    assert bench.started == [ASKING]
    assert graph.get_state(THREAD).interrupts
    after = saver.get_tuple(THREAD)
    assert before
    assert after
    assert after.checkpoint["id"] == before.checkpoint["id"]


@pytest.mark.parametrize("kind", ["agent", "react", "plain", "fanned", "changing"])
def test_a_new_message_instead_of_an_approval(kind: str) -> None:
    saver = InMemorySaver()
    _asked(Guard(saver), "one", ASKING, kind=kind)
    model, bench = Scripted(), Bench()
    graph = AGENTS[kind](model, bench, Guard(saver))
    graph.invoke(_said("something else"), THREAD)
    sent = model.sent[0]
    assert problems("langchain", sent) == []
    assert sent[-1].content == "something else"
    if kind in {"agent", "fanned", "changing"}:
        assert _results(sent)["call_one"] == result_of("one")
    assert not graph.get_state(THREAD).interrupts
    assert graph.get_state(THREAD).next == ()


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_new_message_in_an_event_loop(store: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with ASYNC_SAVERS[store](address_of(store, tmp_path)) as saver:
            first = AGENTS["agent"](Scripted(calling("one", ASKING)), Bench(), Guard(saver))
            await first.ainvoke(_said("go"), THREAD)
            model = Scripted()
            graph = AGENTS["agent"](model, Bench(), Guard(saver))
            await graph.ainvoke(_said("something else"), THREAD)
            assert problems("langchain", model.sent[0]) == []
            assert _results(model.sent[0])["call_one"] == result_of("one")

    asyncio.run(main())


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_reconciling_with_every_durability(durability: Any) -> None:
    saver = InMemorySaver()
    model = Scripted(calling("one", ASKING))
    graph = AGENTS["agent"](model, Bench(), Guard(saver))
    graph.invoke(_said("go"), THREAD, durability=durability)
    graph.invoke(_said("something else"), THREAD, durability=durability)
    assert problems("langchain", model.sent[1]) == []
    assert _results(model.sent[1])["call_one"] == result_of("one")


@pytest.mark.parametrize("name", REPAIRING)
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_new_message_in_the_past(name: str, is_async: bool, tmp_path: Path) -> None:
    with checkpointer(name, tmp_path) as saver:
        graph, model, _ = _asked(saver, "one", ASKING)
        past = graph.get_state(THREAD)
        graph.invoke(_said("something else"), THREAD)
        for text in ("back", "back again"):
            if is_async and "sqlite" not in name:
                asyncio.run(graph.ainvoke(_said(text), past.config))
            else:
                graph.invoke(_said(text), past.config)
            assert problems("langchain", model.sent[-1]) == []
            assert _results(model.sent[-1])["call_one"] == result_of("one")
            assert model.sent[-1][-1].content == text
            assert [m.content for m in model.sent[-1] if m.type == "human"] == ["go", text]
            assert graph.get_state(THREAD).values["messages"][-2].content == text


def test_without_reconciling_the_thread_is_left_as_it_is() -> None:
    saver = InMemorySaver()
    _asked(Guard(saver), "one", ASKING)
    model = Scripted()
    graph = AGENTS["agent"](model, Bench(), Guard(saver, reconcile=False))
    graph.invoke(_said("something else"), THREAD)
    assert problems("langchain", model.sent[0]) != []


def test_two_guards_that_settle_the_same_head() -> None:
    saver = InMemorySaver()
    _asked(Guard(saver), "one", ASKING)
    real, others = saver.put, [True]

    def meanwhile(*args: Any) -> Any:
        if others:
            others.pop()
            model = Scripted()
            other = AGENTS["agent"](model, Bench(), Guard(saver))
            other.invoke(_said("quicker"), THREAD)
        return real(*args)

    saver.put = meanwhile  # type: ignore[method-assign]
    model = Scripted()
    graph = AGENTS["agent"](model, Bench(), Guard(saver))
    graph.invoke(_said("something else"), THREAD)
    said = [message.content for message in model.sent[0] if isinstance(message, HumanMessage)]
    assert said == ["go", "quicker", "something else"]
    assert problems("langchain", model.sent[0]) == []


def test_a_new_message_when_a_subgraph_with_a_memory_asks() -> None:
    saver, model, bench = InMemorySaver(), Scripted(calling("one", ASKING)), Bench()
    outer = StateGraph(MessagesState)
    outer.add_node("inner", AGENTS["fanned"](model, bench, True))
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=Guard(saver))
    graph.invoke(_said("go"), THREAD)
    graph.invoke(_said("something else"), THREAD)
    assert problems("langchain", model.sent[1]) == []
    assert _results(model.sent[1])["call_one"] == result_of("one")
    graph.invoke(_said("and more"), THREAD)
    assert problems("langchain", model.sent[2]) == []


@pytest.mark.parametrize("place", ["input", "loop"])
@pytest.mark.parametrize("name", CHECKPOINTERS)
def test_another_message_at_a_place_of_the_past_stands_in_for_what_was_said_there(
    place: str, name: str, tmp_path: Path
) -> None:
    """As without a guard: an old run that went on from there and ended is no broken one."""
    with checkpointer(name, tmp_path) as saver:
        graph = AGENTS["agent"](Scripted(), Bench(), saver)
        for text in "123":
            graph.invoke(_said(text), THREAD)
        past = next(
            state
            for state in graph.get_state_history(THREAD)
            if state.metadata
            and state.metadata["source"] == place
            and len(state.values["messages"]) < 4
        )
        told = [message.text for message in past.values["messages"]]
        for text in ("other", "another"):
            after = graph.invoke(_said(text), past.config)
            assert [message.text for message in after["messages"]] == [*told, text, "ok"]
