"""The page on LangGraph is run: its Python with real graphs, its commands on a real database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from tests.docs.pages import DOCS, blocks, run_page

PAGE = DOCS / "langgraph.md"
CALL = {"name": "bash", "args": {}, "id": "call_1"}


class Model(BaseChatModel):
    """Says one thing."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("done"))])


@pytest.fixture
def saver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteSaver]:
    monkeypatch.chdir(tmp_path)
    connection = sqlite3.connect("live.db", check_same_thread=False)
    yield SqliteSaver(connection)
    connection.close()


def _builder() -> StateGraph[Any]:
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [Model().invoke(state["messages"])]})
    builder.add_edge(START, "model")
    return builder


def _broken(graph: Any, thread: str) -> dict[str, Any]:
    """Leave a call open in a thread, as an app does that is interrupted."""
    config = {"configurable": {"thread_id": thread}}
    said = [HumanMessage("go", id="h"), AIMessage("I look.", id="a", tool_calls=[CALL])]
    graph.update_state(config, {"messages": said}, as_node="model")
    return config


def test_the_page_runs(saver: SqliteSaver, capsys: pytest.CaptureFixture[str]) -> None:
    builder = _builder()
    graph = builder.compile(checkpointer=saver)
    with sqlite3.connect("checkpoints.db") as base:
        _broken(builder.compile(checkpointer=SqliteSaver(base)), "thread-1")
    base.close()
    names: dict[str, Any] = {
        "graph": graph,
        "config": _broken(graph, "live"),
        "builder": builder,
        "saver": saver,
        "model": Model(),
        "tools": [],
    }
    run_page(PAGE, names)
    names["saver"].close()
    assert [message.type for message in names["messages"]] == ["human", "ai", "tool"]
    assert [one.state for one in names["done"].threads] == ["there"]
    said = capsys.readouterr().err
    assert "Copied 1 thread (1 checkpoint), verified." in said
    assert "LS101" in said


def test_every_language_is_known() -> None:
    # "js", "json" and "py" are files of applications, which other tests run.
    known = {"sh", "text", "python", "console", "js", "json", "py"}
    assert {language for _, language, _ in blocks(PAGE)} == known
