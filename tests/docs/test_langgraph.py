"""The page on LangGraph is run: its Python with real graphs, its commands on a real database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from tests.docs.graphs import Model, broken, builder
from tests.docs.pages import DOCS, blocks, check_outputs, run_page

PAGE = DOCS / "langgraph.md"


@pytest.fixture
def saver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteSaver]:
    monkeypatch.chdir(tmp_path)
    connection = sqlite3.connect("live.db", check_same_thread=False)
    yield SqliteSaver(connection)
    connection.close()


def test_the_page_runs(saver: SqliteSaver) -> None:
    graphs = builder()
    graph = graphs.compile(checkpointer=saver)
    with sqlite3.connect("checkpoints.db") as base:
        broken(graphs.compile(checkpointer=SqliteSaver(base)), "thread-1")
    base.close()
    names: dict[str, Any] = {
        "graph": graph,
        "config": broken(graph, "live"),
        "builder": graphs,
        "saver": saver,
        "model": Model(),
        "tools": [],
    }
    run = run_page(PAGE, names)
    names["saver"].close()
    assert [message.type for message in names["messages"]] == ["human", "ai", "tool"]
    assert [one.state for one in names["done"].threads] == ["there"]
    check_outputs(PAGE, run)


def test_every_language_is_known() -> None:
    # "js", "json" and "py" are files of applications, which other tests run.
    known = {"sh", "text", "python", "console", "js", "json", "py"}
    assert {language for _, language, _ in blocks(PAGE)} == known
