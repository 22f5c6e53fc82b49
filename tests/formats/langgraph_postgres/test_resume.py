"""Threads that real LangGraph was killed in, mended by the command and resumed by LangGraph."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.types import Command

from . import graphs, stage

KINDS = [("plain", "sync"), ("agent", "async"), ("delta", "sync")]


def state(dsn: str, thread: str, kind: str) -> Any:
    with graphs.saver(dsn) as saver:
        return graphs.graph(kind, saver).get_state(graphs.config(thread))


@pytest.mark.parametrize(("kind", "how"), KINDS)
def test_a_killed_batch_is_mended_and_goes_on(dsn: str, kind: str, how: str) -> None:
    graphs.say(dsn, "t", "hello", kind)
    graphs.killed(dsn, "t", kind, how)
    before = state(dsn, "t", kind)
    with pytest.raises(AssertionError, match="400: calls without results"):
        graphs.say(dsn, "t", "and then?", kind)
    graphs_head = state(dsn, "t", kind)
    done = stage.run("repair", dsn, "--yes")
    assert done.status == 0, done.err
    assert stage.run("check", dsn).status == 0
    after = state(dsn, "t", kind)
    assert after.next == ()
    assert after.values.get("notes") == before.values.get("notes")
    assert len(after.values["messages"]) >= len(graphs_head.values["messages"])
    assert after.metadata["source"] == "update"
    result = graphs.say(dsn, "t", "what came out?", kind)
    graphs.require_valid(result["messages"])
    if kind == "agent":
        # It hangs on an ancestor by now, since somebody wrote after the kill.
        assert "a result that took an hour" in [m.content for m in result["messages"]]
    assert result["messages"][-1].content.startswith("answer number")


def test_a_finished_result_is_kept(dsn: str) -> None:
    graphs.killed(dsn, "t", "agent")
    assert stage.run("repair", dsn, "--yes", "--session", "t").status == 0
    messages = state(dsn, "t", "agent").values["messages"]
    found = {m.tool_call_id: m for m in messages if isinstance(m, ToolMessage)}
    assert found["call_quick"].content == "a result that took an hour"
    assert found["call_slow"].status == "error"
    result = graphs.say(dsn, "t", "and now?", "agent")
    assert "a result that took an hour" in [m.content for m in result["messages"]]


def test_the_old_checkpoints_are_untouched(dsn: str) -> None:
    stage.templates(dsn)
    before = stage.content(dsn)
    assert stage.run("repair", dsn, "--yes").status == 0
    after = stage.content(dsn)
    for table in stage.TABLES:
        assert set(before[table]) <= set(after[table])
    added = {table: len(after[table]) - len(before[table]) for table in stage.TABLES}
    assert added == {"checkpoints": 1, "checkpoint_blobs": 1, "checkpoint_writes": 0}


def test_an_approval_stays_pending_and_is_answered_later(dsn: str) -> None:
    graphs.say(dsn, "t", "please ask")
    before = stage.content(dsn)
    done = stage.run("repair", dsn, "--yes")
    assert done.status == 0
    assert "waits for a person" in done.err
    assert stage.content(dsn) == before
    assert state(dsn, "t", "plain").next == ("tools",)
    with graphs.saver(dsn) as saver:
        graph = graphs.graph("plain", saver)
        result = graph.invoke(Command(resume="yes"), graphs.config("t"))
    assert [m.content for m in result["messages"]][2] == "the person said yes"


def test_an_approval_is_closed_if_that_is_asked_for(dsn: str) -> None:
    graphs.say(dsn, "t", "please ask")
    assert stage.run("repair", dsn, "--yes", "--force-cleanup").status == 0
    assert state(dsn, "t", "plain").next == ()
    graphs.say(dsn, "t", "never mind")


def test_healing_twice_changes_nothing(dsn: str) -> None:
    stage.templates(dsn)
    assert stage.run("repair", dsn, "--yes").status == 0
    once = stage.content(dsn)
    done = stage.run("repair", dsn, "--yes")
    assert done.status == 0
    assert "All clean." in done.err
    assert stage.content(dsn) == once


def test_show_and_export_take_a_thread(dsn: str) -> None:
    stage.templates(dsn)
    shown = stage.run("show", dsn, "--session", stage.BROKEN)
    assert shown.status == 1
    assert "please stop" in shown.out
    assert "LS101" in shown.out
    exported = stage.run("export", dsn, "--session", stage.BROKEN, "--to", "openai-chat")
    assert exported.status == 0
    assert '"tool_call_id"' in exported.out
    many = stage.run("show", dsn)
    assert many.status == 2
    assert "name one with --session" in many.err


def test_a_person_may_name_the_conversation_again(dsn: str) -> None:
    """A turn after a turn: the repair is an ancestor like any other."""
    stage.templates(dsn)
    assert stage.run("repair", dsn, "--yes").status == 0
    for number in range(3):
        graphs.say(dsn, stage.BROKEN, f"turn {number}")
    messages = state(dsn, stage.BROKEN, "plain").values["messages"]
    assert [m.content for m in messages if isinstance(m, HumanMessage)][-1] == "turn 2"
    assert stage.run("check", dsn).status == 0


def test_a_subgraph_that_remembers_is_mended_too(dsn: str) -> None:
    graphs.say(dsn, "t", "hello", "nested")
    graphs.broken_off(dsn, "t", "nested")
    found = stage.run("check", dsn, "--json").sessions
    assert [(one["session"], one["status"]) for one in found] == [
        ("t", "ok"),
        ("t#inner", "broken"),
    ]
    with pytest.raises(AssertionError, match="400: calls without results"):
        graphs.say(dsn, "t", "and then?", "nested")
    assert stage.run("show", dsn, "--session", "t#inner").status == 1
    assert stage.run("repair", dsn, "--yes", "--session", "t#inner").status == 0
    result = graphs.say(dsn, "t", "and now?", "nested")
    graphs.require_valid(result["messages"])


def test_names_of_threads_are_never_part_of_a_statement(dsn: str) -> None:
    stage.templates(dsn)
    names = ['it\'s "100%" %s; DROP TABLE checkpoints; --', "#1|x:y", "", " ü\t ", "{checkpoints}"]
    for name in names:
        stage.copies(dsn, stage.BROKEN, name, 1)
    found = [one for one in stage.run("check", dsn, "--json").sessions if one["findings"]]
    assert len(found) == len(names) + 1
    for name in names:
        thread = f"{name}00000001"
        assert stage.run("repair", dsn, "--yes", f"--session={thread}").status == 0
        assert stage.run("check", dsn, f"--session={thread}").status == 0
        assert stage.run("undo", dsn, f"--session={thread}").status == 0
    assert stage.run("repair", dsn, "--yes").status == 0
    assert stage.run("check", dsn).status == 0


def test_the_thread_without_a_name(dsn: str) -> None:
    stage.templates(dsn)
    for table in stage.TABLES:
        stage.ask(dsn, f"UPDATE {table} SET thread_id = '' WHERE thread_id = %s", stage.BROKEN)  # noqa: S608
    assert stage.run("repair", dsn, "--yes", "--shard", "1/1").status == 0
    assert stage.run("check", dsn).status == 0
