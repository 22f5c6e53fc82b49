"""Threads of LangGraph's own savers, copied: LangGraph reads the same, and goes on the same."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from lockstitch.integrations.langgraph import Saver, migrate
from tests.integrations.langgraph.migrating.shapes import ALLOWED, ODD, SHAPES, Tools, on
from tests.integrations.langgraph.savers import ASYNC_SAVERS, SAVERS, address_of
from tests.postgres_server import shared

pytestmark = pytest.mark.filterwarnings("ignore:Deserializing unregistered type")


@pytest.fixture(params=["sqlite", "postgres"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A kind of saver, and the address of a new database for it."""
    return request.param, address_of(request.param, tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/agent.db" if request.param == "sqlite" else shared().fresh()


def told(saver: Any, config: Any) -> list[Any]:
    """All that a saver gives of a thread, without what a saver of ours adds to configs."""
    return [
        (
            place(one.config),
            one.checkpoint,
            one.metadata,
            place(one.parent_config),
            one.pending_writes,
        )
        for one in saver.list(config)
    ]


def place(config: Any) -> Any:
    names = ("thread_id", "checkpoint_ns", "checkpoint_id")
    return config and {name: config["configurable"][name] for name in names}


def history(graph: Any, config: Any) -> list[Any]:
    return [
        (
            one.values,
            one.next,
            place(one.config),
            one.metadata,
            one.created_at,
            place(one.parent_config),
            one.tasks,
            one.interrupts,
        )
        for one in graph.get_state_history(config)
    ]


def assert_same(old: Any, new: Any, thread: Any) -> None:
    expected = told(old, on(thread))
    assert expected
    assert told(new, on(thread)) == expected
    for space in {spot["checkpoint_ns"] for spot, *_ in expected}:
        assert told(new, on(thread, checkpoint_ns=space)) == told(
            old, on(thread, checkpoint_ns=space)
        )
        one, other = (saver.get_tuple(on(thread, checkpoint_ns=space)) for saver in (old, new))
        assert (other.checkpoint, other.pending_writes) == (one.checkpoint, one.pending_writes)
    for spot, *_ in expected:
        where = {"configurable": spot}
        for channels in (["messages"], ["items"]):
            assert new.get_delta_channel_history(
                config=where, channels=channels
            ) == old.get_delta_channel_history(config=where, channels=channels)


@pytest.mark.parametrize("shape", SHAPES)
def test_langgraph_reads_the_same_and_goes_on_the_same(
    source: tuple[str, str], target: str, shape: str
) -> None:
    kind, address = source
    with SAVERS[kind](address) as old:
        go_on = SHAPES[shape](old, "1")
        before = told(old, None)
        [done] = migrate(address, target).threads
        assert (done.thread, done.state, done.error) == ("1", "copied", None)
        assert done.checkpoints == len(before)
        assert not done.moved
        assert told(old, None) == before
        with Saver(target, allow=ALLOWED) as new:
            assert_same(old, new, "1")
            graph, given = go_on(new)
            twin, _ = go_on(old)
            assert history(graph, on("1")) == history(twin, on("1"))
            assert graph.get_state(on("1"), subgraphs=True).next == twin.get_state(on("1")).next
            assert content(graph.invoke(given, on("1"))) == content(twin.invoke(given, on("1")))
            again = {"messages": [HumanMessage("and now", id="now")]}
            if shape != "functional":
                assert content(graph.invoke(again, on("1"))) == content(twin.invoke(again, on("1")))


def content(state: Any) -> Any:
    """A state without ids that are drawn anew in every run."""
    if not isinstance(state, dict):
        return state
    messages = [(one.type, one.content) for one in state.get("messages", [])]
    rest = {name: one for name, one in state.items() if name not in {"messages", "__interrupt__"}}
    return messages, rest, [one.value for one in state.get("__interrupt__", [])]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_async_savers_and_an_async_graph(tmp_path: Path, kind: str) -> None:
    address = address_of(kind, tmp_path)
    target = f"sqlite:///{tmp_path}/agent.db"
    bench = Tools()

    async def broken() -> Any:
        async with ASYNC_SAVERS[kind](address) as old:
            graph = bench.graph(old)
            with pytest.raises(BaseException):  # noqa: B017, PT011
                await graph.ainvoke({"messages": [HumanMessage("go", id="h")]}, on("1"))
            return [one async for one in old.alist(on("1"))]

    async def goes_on() -> Any:
        async with Saver(target) as new:
            found = [one async for one in new.alist(on("1"))]
            bench.is_whole = True
            state = await bench.graph(new).ainvoke(None, on("1"))
            return found, [one.content for one in state["messages"]]

    expected = asyncio.run(broken())
    assert [one.state for one in migrate(address, target).threads] == ["copied"]
    found, said = asyncio.run(goes_on())
    assert [(one.checkpoint, one.metadata, one.pending_writes) for one in found] == [
        (one.checkpoint, one.metadata, one.pending_writes) for one in expected
    ]
    assert said == ["go", "On it.", "result of one", "result of stuck", "result of three", "done"]


def test_ids_of_any_spelling(source: tuple[str, str], tmp_path: Path) -> None:
    kind, address = source
    target = f"sqlite:///{tmp_path}/agent.db"
    with SAVERS[kind](address) as old:
        for thread in ODD:
            SHAPES["tools"](old, thread)
        done = migrate(address, target).threads
        assert {one.thread for one in done} == set(ODD)
        assert {one.state for one in done} == {"copied"}
        with Saver(target) as new:
            for thread in ODD:
                assert_same(old, new, thread)
            assert len(told(new, None)) == len(told(old, None))


def test_nothing_that_is_stored_is_run(source: tuple[str, str], tmp_path: Path) -> None:
    """Classes that nobody can import are carried, and named."""
    kind, address = source
    target = f"sqlite:///{tmp_path}/agent.db"
    with SAVERS[kind](address) as old:
        SHAPES["classes"](old, "1")
    program = f"""
import sys
sys.modules["tests"] = None
from lockstitch.integrations.langgraph import migrate
[done] = migrate({address!r}, {target!r}).threads
print(done.state, done.allow, done.forms)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True
    )
    home = "tests.integrations.langgraph.migrating.shapes"
    assert ran.stdout == f"copied {((home, 'Basket'), (home, 'Order'))} ()\n"
    with SAVERS[kind](address) as old, Saver(target, allow=ALLOWED) as new:
        assert_same(old, new, "1")
