"""What is told of databases: rows that are gone, lost turns, whose it is, in which schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.messages import HumanMessage

from lockstitch import open as open_store
from lockstitch import sessions
from tests.postgres_server import shared

from . import graphs, stage

if TYPE_CHECKING:
    import pytest


def codes(said: stage.Said) -> dict[str, set[str]]:
    return {one["session"]: {f["code"] for f in one["findings"]} for one in said.sessions}


def test_a_row_that_is_gone_is_told_and_nothing_is_written(dsn: str) -> None:
    """LangGraph's inner join shows such a thread as an empty one."""
    stage.templates(dsn)
    stage.ask(dsn, "DELETE FROM checkpoint_blobs WHERE channel = 'messages'")
    before = stage.content(dsn)
    found = codes(stage.run("check", dsn, "--json"))
    assert found == {stage.HEALTHY: {"LS903"}, stage.BROKEN: {"LS903"}}
    assert stage.run("repair", dsn, "--yes").status == 1
    assert stage.content(dsn) == before


def test_a_row_that_is_gone_in_a_chain_of_changes_is_told(dsn: str) -> None:
    for number in range(3):
        graphs.say(dsn, "t", f"hello {number}", "delta")
    assert stage.run("check", dsn).status == 0
    stage.ask(
        dsn,
        "DELETE FROM checkpoints WHERE checkpoint_id = (SELECT checkpoint_id FROM checkpoints "
        "ORDER BY checkpoint_id OFFSET 4 LIMIT 1)",
    )
    assert codes(stage.run("check", dsn, "--json")) == {"t": {"LS904"}}
    before = stage.content(dsn)
    stage.run("repair", dsn, "--yes")
    assert stage.content(dsn) == before


def test_a_long_chain_of_changes_is_walked(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstitch.formats.langgraph.postgres.reading._ANCESTORS", 32)
    with graphs.saver(dsn) as saver:
        graph = graphs.graph("delta-rarely", saver)
        for number in range(40):
            told = {"messages": [HumanMessage(f"turn {number}")]}
            graph.invoke(told, graphs.config("t"))
    assert stage.ask(dsn, "SELECT count(*) FROM checkpoint_blobs WHERE channel = 'messages'") == [
        (0,)
    ]
    [found] = stage.run("check", dsn, "--json").sessions
    assert (found["messages"], found["status"]) == (80, "ok")


def test_a_turn_that_another_writer_hid_is_told(dsn: str) -> None:
    graphs.say(dsn, "t", "hello")
    with graphs.saver(dsn) as saver:
        graph = graphs.graph("plain", saver)
        fork = graph.get_state(graphs.config("t")).config
        graph.invoke({"messages": [HumanMessage("of one")]}, graphs.config("t"))
        graph.invoke({"messages": [HumanMessage("of another")]}, fork)
    [found] = stage.run("check", dsn, "--json").sessions
    assert [f["code"] for f in found["findings"]] == ["LS905"]
    assert found["unreachable"] == 1


def test_a_repair_beside_a_live_turn_is_no_lost_turn(dsn: str) -> None:
    stage.templates(dsn)
    with graphs.saver(dsn) as saver:
        graph = graphs.graph("plain", saver)
        head = graph.get_state(graphs.config(stage.BROKEN)).config
        assert stage.run("repair", dsn, "--yes").status == 0
        graph.update_state(head, {"messages": [HumanMessage("went on")]}, as_node="tools")
    found = codes(stage.run("check", dsn, "--json"))
    assert "LS905" not in found[stage.BROKEN]


def test_every_schema_is_looked_at_or_the_one_that_is_named(dsn: str) -> None:
    stage.templates(dsn)
    stage.ask(dsn, 'CREATE SCHEMA "Other one"')
    for table in stage.TABLES:
        stage.ask(dsn, f'CREATE TABLE "Other one".{table} (LIKE {table} INCLUDING ALL)')
        stage.ask(dsn, f'INSERT INTO "Other one".{table} SELECT * FROM {table}')  # noqa: S608
    scanned = stage.run("scan", dsn)
    assert "4 sessions: 2 healthy, 2 broken." in scanned.err
    assert "?schema=Other%20one' --session a-broken-one" in scanned.out
    named = f"{dsn}?schema=Other%20one"
    by_path = f"{dsn}?options=-csearch_path%3Dpublic"
    assert "2 sessions: 1 healthy, 1 broken." in stage.run("scan", named).err
    assert "2 sessions: 1 healthy, 1 broken." in stage.run("scan", by_path).err
    assert stage.run("repair", named, "--yes").status == 0
    assert "3 healthy, 1 broken." in stage.run("scan", dsn).err
    assert stage.run("undo", named).status == 0
    missing = stage.run("check", f"{dsn}?schema=none")
    assert missing.status == 2
    assert "its schema none holds no LangGraph checkpoints" in missing.err


def test_a_database_may_hold_both(dsn: str) -> None:
    stage.templates(dsn)
    with open_store(dsn) as store, store.session("ours") as session:
        session.say("hello")
    own = stage.run("check", dsn)
    assert own.status == 0
    assert "Read 1 session with" in own.err
    assert stage.run("check", dsn, "--format", "langgraph").status == 1
    scanned = stage.run("scan", dsn)
    assert "3 sessions: 2 healthy, 1 broken." in scanned.err
    assert "All clean." in stage.run("repair", dsn, "--yes").err
    assert stage.run("repair", dsn, "--yes", "--format", "langgraph").status == 0
    assert "3 healthy, 0 broken." in stage.run("scan", dsn).err
    shown = stage.run("show", dsn, "--format", "langgraph", "--session", stage.BROKEN)
    assert "please stop" in shown.out
    assert stage.run("undo", dsn).status == 0


def test_python_has_it_too(dsn: str) -> None:
    stage.templates(dsn)
    reports = {report.session: report.status for report in sessions.scan([dsn])}
    assert reports == {stage.HEALTHY: "ok", stage.BROKEN: "broken"}
    [source] = sessions.sources(dsn, session=stage.BROKEN)
    assert sessions.check(source).status == "broken"
    repaired = sessions.repair(source)
    assert repaired.remaining == []
    assert repaired.backup == "public.lockstitch_repairs 1"
    assert sessions.check(source).status == "ok"


def test_an_empty_database_holds_nothing(dsn: str) -> None:
    with graphs.saver(dsn):
        pass
    assert stage.run("scan", dsn).status == 0
    nothing = stage.run("scan", shared().fresh())
    assert nothing.status == 2
    assert "neither a Lockstitch store nor LangGraph checkpoints" in nothing.out
