"""The recipe for apps with LangGraph.js: repaired while it runs, and on in the same process."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lockstitch.dialects.placeholders import FAILED

from .databases import Database, fresh
from .drive import Act, Json, Node, called
from .install import EXAMPLES
from .threads import FURTHER, HELLO, THREE

KINDS = ("sqlite", "sqlite with a rollback journal", "postgres")
GRAPHS = ("agent", "delta")
ENDED = ["contents of a", "contents of c"]
WAITING = called(("read", "a"), ("hang", "signal"), ("read", "c"))
DOCS = EXAMPLES.parent / "docs" / "langgraph.md"


def app(kind: str, folder: Path) -> tuple[Database, Node, list[Act]]:
    """A database, a program with it, and what it has to do first."""
    database = fresh(kind.partition(" ")[0], folder)
    schema = "?schema=agents" if kind == "postgres" else ""
    first = [Act("journal", "any", "agent", {"mode": "delete"})] if " " in kind else []
    return database, Node(database.address + schema, folder / "requests"), first


def begun(act: str, graph: str, reply: object = THREE) -> Act:
    return Act(act, graph, graph, {"text": HELLO, "finished": 2}, (reply,))  # type: ignore[arg-type]


def results(came: Json) -> list[str]:
    return [one["content"] for one in came["state"]["messages"] if one["type"] == "tool"]


def require_continued(node: Node, came: Json) -> None:
    """The next request was valid, and had all that was finished."""
    assert "error" not in came, came
    assert came["state"]["next"] == []
    *_, said, answer = came["state"]["messages"]
    assert (said["content"], answer["content"]) == (FURTHER, "ok")
    told = results(came)
    assert len(told) == 3
    assert sorted(text for text in told if text.startswith("contents")) == ENDED
    assert {entry.outcome for entry in node.log} == {"accepted"}
    blocks = [
        block
        for message in node.bodies()[-1]["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    assert len(blocks) == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_an_app_goes_on_in_the_process_that_was_aborted(
    kind: str, graph: str, tmp_path: Path
) -> None:
    database, node, first = app(kind, tmp_path)
    further = Act("goOn", graph, graph, {"text": FURTHER})
    *_, aborted, came = node.does(*first, begun("abort", graph), further)
    assert aborted["error"]
    require_continued(node, came)
    if "rollback" in kind:
        with closing(sqlite3.connect(database.address)) as base:
            assert base.execute("pragma journal_mode").fetchone() == ("delete",)


@pytest.mark.parametrize("kind", KINDS)
def test_an_app_goes_on_after_it_was_killed(kind: str, tmp_path: Path) -> None:
    _, node, first = app(kind, tmp_path)
    node.dies_in(*first, begun("begin", "agent"))
    *_, came = node.does(*first, Act("goOn", "agent", "agent", {"text": FURTHER}))
    require_continued(node, came)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_run_that_is_under_way_loses_nothing(kind: str, graph: str, tmp_path: Path) -> None:
    """The repair is a branch that nobody goes on from."""
    _, node, first = app(kind, tmp_path)
    acts = [
        begun("begin", graph, WAITING),
        Act("repair", graph, graph, {"signal": "signal"}),
        Act("finish", graph, graph),
        Act("goOn", graph, graph, {"text": FURTHER}),
    ]
    *_, repaired, finished, came = node.does(*first, *acts)
    assert [one["outcome"] for one in repaired["sessions"]] == ["repaired"]
    for each in (finished, came):
        assert "error" not in each, each
        assert sorted(results(each)) == sorted([*ENDED, "signal is there"])
        assert each["state"]["messages"][-1]["content"] == "ok"
    assert {entry.outcome for entry in node.log} == {"accepted"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_repair_has_nothing_to_do(kind: str, tmp_path: Path) -> None:
    _, node, first = app(kind, tmp_path)
    *_, repaired, again = node.does(
        *first,
        begun("abort", "agent"),
        Act("repair", "agent", "agent"),
        Act("repair", "agent", "agent"),
    )
    assert [one["outcome"] for one in repaired["sessions"]] == ["repaired"]
    assert [one["outcome"] for one in again["sessions"]] == ["ok"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_tool_that_failed_is_told_as_that(kind: str, tmp_path: Path) -> None:
    graph = "strict"
    _, node, first = app(kind, tmp_path)
    reply = called(("read", "a"), ("fail", "b"), ("read", "c"))
    *_, failed, came = node.does(
        *first,
        Act("say", graph, graph, {"text": HELLO}, (reply,)),
        Act("goOn", graph, graph, {"text": FURTHER}),
    )
    assert failed["error"] == "RangeError"
    assert "error" not in came, came
    error = f"{FAILED} RangeError: no room for b"
    assert sorted(results(came)) == [error, *ENDED]
    assert {entry.outcome for entry in node.log} == {"accepted"}


def test_the_page_prints_the_recipe_as_it_is_tested() -> None:
    recipe = (EXAMPLES / "langgraph.mjs").read_text()
    assert len(recipe.splitlines()) <= 30
    printed = re.findall(r"```js\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert recipe in printed
