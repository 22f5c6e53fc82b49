"""Runs that have ids, as those of LangGraph Server: what they bring is not taken for a resume."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from lockstitch.integrations.langgraph import Guard, Saver, reconcile
from tests.integrations.langgraph.migrating.shapes import Broken, Tools, on

SAVERS: dict[str, Callable[[], Any]] = {
    "memory": lambda: Guard(InMemorySaver()),
    "saver": lambda: Saver("memory:"),
    "guarded saver": lambda: Guard(Saver("memory:")),
}
EXPECTED = ["new", "On it.", "result of one", "result of stuck", "result of three", "done"]


def broken(bench: Tools, saver: Any) -> None:
    with suppress(Broken):
        bench.graph(saver).invoke({"messages": [HumanMessage("go", id="h")]}, on("1", run_id="r1"))
    bench.is_whole = True


@pytest.mark.parametrize("kind", SAVERS)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_new_message_after_an_interrupt(kind: str, is_async: bool) -> None:
    saver = SAVERS[kind]()
    bench = Tools()
    broken(bench, saver)
    graph, given = bench.graph(saver), {"messages": [HumanMessage("new", id="h2")]}
    config = on("1", run_id="r2")
    state = asyncio.run(graph.ainvoke(given, config)) if is_async else graph.invoke(given, config)
    said = [one.content for one in state["messages"]]
    assert said[-6:] == EXPECTED
    assert said.count("result of one") == 2


def test_the_same_after_a_call_of_reconcile() -> None:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as base:
        saver = SqliteSaver(base)
        bench = Tools()
        broken(bench, saver)
        graph, config = bench.graph(saver), on("1", run_id="r2")
        reconcile(graph, config)
        head = saver.get_tuple(on("1"))
        assert head is not None
        assert "run_id" not in head.metadata
        state = graph.invoke({"messages": [HumanMessage("new", id="h2")]}, config)
        assert [one.content for one in state["messages"]][-6:] == EXPECTED
