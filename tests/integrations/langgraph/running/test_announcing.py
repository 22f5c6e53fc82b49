"""A graph announces its runs, and is otherwise the graph that it was."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import wraps
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.pregel import Pregel

from lockstitch.integrations.langgraph import Guard, Saver
from lockstitch.integrations.langgraph.run_ids import GraphRun, announce, calling_run
from tests.integrations.langgraph.guard.graphs import (
    THREAD,
    Notes,
    asking,
    chain,
    chat,
    noting,
    said,
)
from tests.integrations.langgraph.running.wrapped import KINDS
from tests.integrations.langgraph.savers import on

METHODS = ("stream", "astream", "bulk_update_state", "abulk_update_state")


class Watching(InMemorySaver):
    """A checkpointer that notes who calls it; each call in the order in which it comes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, GraphRun | None]] = []

    def get_tuple(self, config: Any) -> Any:
        self.calls.append(("load", calling_run(config)))
        return super().get_tuple(config)

    def put(self, config: Any, *words: Any) -> Any:
        self.calls.append(("put", calling_run(config)))
        return super().put(config, *words)

    def put_writes(self, config: Any, *words: Any) -> None:
        self.calls.append(("write", calling_run(config)))
        super().put_writes(config, *words)

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    async def aput(self, config: Any, *words: Any) -> Any:
        return self.put(config, *words)

    async def aput_writes(self, config: Any, *words: Any) -> None:
        self.put_writes(config, *words)

    @property
    def runs(self) -> list[GraphRun]:
        """All runs that have called, each once."""
        assert all(run is not None for _, run in self.calls)
        return list(dict.fromkeys(run for _, run in self.calls if run))


@pytest.fixture(autouse=True)
def _announcing() -> None:
    announce()


def _wide(saver: Any) -> Any:
    """Three nodes at once, so that they run in threads of their own."""
    graph = StateGraph(Notes)
    for name in ("a", "b", "c"):
        graph.add_node(name, noting(name))
        graph.add_edge(START, name)
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_all_calls_of_a_run_are_made_under_it(durability: Any) -> None:
    saver = Watching()
    graph = _wide(saver)
    graph.invoke({"notes": ["one"]}, THREAD, durability=durability)
    asyncio.run(graph.ainvoke({"notes": ["two"]}, THREAD, durability=durability))
    graph.update_state(THREAD, {"notes": ["three"]}, as_node="a")
    first, second, update = saver.runs
    assert [first.input, second.input, update.input] == [
        {"notes": ["one"]},
        {"notes": ["two"]},
        None,
    ]
    assert {run.graph for run in saver.runs} == {graph}
    assert {run.thread for run in saver.runs} == {"shared"}
    assert {run.durability for run in (first, second)} == {durability}


def test_whoever_looks_is_no_run() -> None:
    saver = Watching()
    graph = chat(saver)
    graph.invoke(said("a"), THREAD)
    saver.calls.clear()
    graph.get_state(THREAD)
    assert saver.calls == [("load", None)]


def test_a_graph_in_a_node_is_a_run_of_its_own() -> None:
    saver = Watching()
    inner = chain(True, noting("in"))
    apart = chain(saver, noting("apart"))

    def call(_: Any) -> Any:
        return apart.invoke({"notes": []}, on("another"))

    outer = StateGraph(Notes)
    outer.add_node("sub", inner)
    outer.add_node("call", call)
    outer.add_edge(START, "sub")
    outer.add_edge("sub", "call")
    graph = outer.compile(checkpointer=saver)
    graph.invoke({"notes": []}, THREAD)
    top, below, other = saver.runs
    assert [run.graph for run in saver.runs] == [graph, inner, apart]
    assert [run.thread for run in saver.runs] == ["shared", "shared", "another"]
    assert [run.name for run in (top, below, other)] == [
        run.name for run in {one.name: one for one in saver.runs}.values()
    ]


def test_the_reader_of_a_stream_is_not_the_run() -> None:
    saver = Watching()
    graph = chain(saver, noting("one"), noting("two"))
    for _ in graph.stream({"notes": []}, THREAD):
        assert calling_run({}) is None

    async def awaited() -> None:
        async for _ in graph.astream({"notes": []}, THREAD):
            assert calling_run({}) is None

    asyncio.run(awaited())
    assert calling_run({}) is None


def test_two_streams_of_one_graph_read_in_turns() -> None:
    saver = Watching()
    graph = chain(saver, noting("one"), noting("two"))
    one = graph.stream({"notes": ["a"]}, on("a"))
    two = graph.stream({"notes": ["b"]}, on("b"))
    for _ in zip(one, two, strict=True):
        pass
    assert [run.thread for run in saver.runs] == ["a", "b"]


def test_a_stream_that_is_read_in_other_threads_and_contexts() -> None:
    saver = Watching()
    graph = chain(saver, noting("one"), noting("two"), noting("three"))
    stream = graph.stream({"notes": []}, THREAD, durability="sync")
    with ThreadPoolExecutor(1) as pool:
        chunks = [next(stream), pool.submit(next, stream).result()]
    chunks += [copy_context().run(next, stream), *stream]
    assert len(chunks) == 3
    (run,) = saver.runs
    assert run.graph is graph


def test_nothing_runs_before_the_first_step_is_asked_for() -> None:
    saver = Watching()
    stream = chat(saver).stream(said("a"), THREAD)
    assert saver.calls == []
    stream.close()
    assert saver.calls == []


def _ending(ended: list[str]) -> Any:
    """A graph of which it can be seen whether its stream was closed."""

    class Ending(Watching):
        def put(self, config: Any, *words: Any) -> Any:
            ended.append("put")
            return super().put(config, *words)

    return chain(Ending(), noting("one"), noting("two"))


def test_a_stream_that_is_closed_or_thrown_away_ends_at_once() -> None:
    ended: list[str] = []
    graph = _ending(ended)
    stream = graph.stream({"notes": []}, THREAD, durability="exit")
    next(stream)
    assert ended == []
    stream.close()
    # With "exit" all is stored when the stream is closed, and that is done by the run, too.
    assert ended == ["put"]
    stream = graph.stream({"notes": []}, THREAD, durability="exit")
    next(stream)
    del stream
    gc.collect()
    assert ended == ["put", "put"]
    assert len(graph.checkpointer.runs) == 2


def test_an_awaited_stream_that_is_closed_ends_at_once() -> None:
    ended: list[str] = []
    graph = _ending(ended)

    async def main() -> None:
        stream = graph.astream({"notes": []}, THREAD, durability="exit")
        await anext(stream)
        await stream.aclose()
        assert ended == ["put"]
        stream = graph.astream({"notes": []}, THREAD, durability="exit")
        await anext(stream)
        with pytest.raises(ZeroDivisionError):
            await stream.athrow(ZeroDivisionError())

    asyncio.run(main())
    assert len(graph.checkpointer.runs) == 2


def test_what_is_thrown_into_a_stream_passes_through() -> None:
    stream = chain(Watching(), noting("one"), noting("two")).stream({"notes": []}, THREAD)
    next(stream)
    with pytest.raises(ZeroDivisionError) as caught:
        stream.throw(ZeroDivisionError("mine"))
    assert caught.value.__context__ is None
    with pytest.raises(StopIteration):
        next(stream)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_what_it_was(name: str) -> None:
    found = getattr(Pregel, name)
    real = found.__wrapped__
    assert inspect.signature(found) == inspect.signature(real)
    for asks in (
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
        inspect.iscoroutinefunction,
    ):
        assert asks(found) == asks(real)
    assert (found.__name__, found.__doc__) == (real.__name__, real.__doc__)


def test_it_is_wrapped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: getattr(Pregel, name) for name in METHODS}
    threads = [threading.Thread(target=announce) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    Guard(InMemorySaver())
    with Saver("memory:"):
        pass
    assert {name: getattr(Pregel, name) for name in METHODS} == before

    @wraps(Pregel.stream)
    def traced(*words: Any, **options: Any) -> Iterator[Any]:
        yield from before["stream"](*words, **options)

    # Another package that wraps the same method.
    monkeypatch.setattr(Pregel, "stream", traced)
    announce()
    assert Pregel.stream is traced
    # One that takes everything away: the next checkpointer brings it back.
    monkeypatch.setattr(Pregel, "stream", before["stream"].__wrapped__)
    announce()
    assert Pregel.stream is not before["stream"].__wrapped__


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_ours_is_in_what_an_application_sees(kind: str) -> None:
    checkpointer = KINDS[kind]()
    graph = chain(checkpointer, noting("one"), asking("ok?"))
    seen: list[Any] = []
    for _ in range(2):
        seen += graph.stream(
            {"notes": ["go"]}, THREAD, stream_mode=["checkpoints", "debug", "tasks", "values"]
        )
    seen += [graph.get_state(THREAD), *graph.get_state_history(THREAD)]
    seen += [graph.update_state(THREAD, {"notes": ["by hand"]}), checkpointer.get_tuple(THREAD)]
    seen += [*checkpointer.list(THREAD)]
    assert len(seen) > 20
    assert "lockstitch" not in repr(seen)
    # Nor is it stored: a guard signs what it puts, and that is all.
    store = getattr(checkpointer, "saver", checkpointer)
    assert "pregel_lockstitch" not in repr([*store.list(THREAD)])
