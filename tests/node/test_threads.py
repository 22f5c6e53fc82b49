"""Threads of LangGraph.js, on both of its savers: mended by the command, continued by Node."""

from __future__ import annotations

import json

import pytest

from tests.formats.campaign import Home

from . import threads
from .databases import Sqlite
from .drive import Json, Node
from .life import Life, sessions

OPEN = "`tool_use` ids were found without `tool_result` blocks immediately after"
REFUSED = {
    "kept-halves": "The request body is not valid JSON",
    "kept-nul": "The request body is not valid JSON",
    "kept-stray": "unexpected `tool_use_id` found in `tool_result` blocks",
}
APPROVED = {"asked-agent": "erased a", "asked-twice": "contents of b"}
# What is not said as it was: texts that no provider takes, a call that stands there twice.
REWRITTEN = REFUSED.keys() | {"kept-twice"}
# What had ended before the rest was cut off, by thread; one node for all calls leaves nothing.
ENDED = {
    "killed-agent": ["contents of a", "contents of c"],
    "killed-delta": ["contents of a", "contents of c"],
    "killed-later": ["contents of a", "contents of c"],
    "killed-plain": [],
    "aborted-agent": ["contents of a", "contents of c"],
    "aborted-delta": ["contents of a", "contents of c"],
    "aborted-plain": [],
    "evaded-agent": ["contents of a"],
}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def life(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Life:
    return Life(request.param, tmp_path_factory.mktemp("life"))


@pytest.mark.parametrize("thread", threads.BROKEN)
def test_without_a_repair_the_provider_refuses_every_further_message(
    life: Life, thread: str
) -> None:
    came = life.before.continued[thread]
    assert came["status"] == 400
    assert REFUSED.get(thread, OPEN) in came["text"]


def test_the_command_finds_what_is_broken_and_nothing_else(life: Life) -> None:
    found = sessions(life.checked)
    assert life.checked.status == 1
    assert set(found) == set(threads.GRAPHS)
    for thread in threads.BROKEN:
        assert found[thread]["status"] == "broken", thread
    for thread in threads.WHOLE:
        assert found[thread]["findings"] == [], thread


def test_looking_changes_nothing(life: Life) -> None:
    database = life.database.copy()
    before = database.data() if isinstance(database, Sqlite) else database.rows()
    for command in ("scan", "check"):
        ran = life.run(command, target=database.address)
        assert ran.status in {0, 1}, ran.err
    assert (database.data() if isinstance(database, Sqlite) else database.rows()) == before


@pytest.mark.parametrize("thread", threads.BROKEN)
def test_node_goes_on_with_a_mended_thread(life: Life, thread: str) -> None:
    came = life.after.continued[thread]
    assert "error" not in came
    assert came["state"]["next"] == []
    *_, said, answer = came["state"]["messages"]
    assert (said["content"], answer["content"]) == (threads.FURTHER, "ok")


@pytest.mark.parametrize("thread", ENDED)
def test_what_had_ended_is_what_the_model_is_told(life: Life, thread: str) -> None:
    messages = life.after.states[thread]["messages"]
    calls = [call["id"] for message in messages for call in message.get("calls", [])]
    results = _results(_request(life, thread))
    assert sorted(results) == sorted(calls)
    last = [results[call] for call in calls[-3:]]
    assert [text for text in last if "contents of" in text] == ENDED[thread]


@pytest.mark.parametrize("thread", threads.BROKEN)
def test_a_repair_adds_results_and_changes_nothing_else(life: Life, thread: str) -> None:
    before, after = life.before.states[thread], life.after.states[thread]
    assert after["next"] == []
    assert after["parent"] == before["checkpoint"]
    assert after["rest"] == before["rest"]
    if thread not in REWRITTEN:
        assert _without_results(after) == _without_results(before)


def test_the_rows_that_were_there_are_there_still(life: Life) -> None:
    assert life.repaired.status == 0, life.repaired.err
    now = life.mended.rows()
    for table, rows in life.rows.items():
        assert [row for row in rows if row not in now[table]] == [], table


@pytest.mark.parametrize("thread", threads.names(*threads.KILLED))
def test_what_was_before_the_repair_is_in_the_history(life: Life, thread: str) -> None:
    mended, *before = life.after.histories[thread]
    assert mended == life.after.states[thread]
    old = life.before.histories[thread]
    assert [_steady(state) for state in before] == [_steady(state) for state in old]


def test_a_second_repair_finds_nothing_to_do(life: Life) -> None:
    database = life.mended.copy()
    before = database.rows()
    found = sessions(life.run("check", target=database.address))
    assert [thread for thread in threads.BROKEN if found[thread]["findings"]] == []
    assert life.run("repair", "--yes", target=database.address).status == 0
    assert database.rows() == before


def test_the_command_reads_what_node_reads(life: Life) -> None:
    ran = Home(life.folder).run(
        "export", life.mended.address, "--session", "killed-agent", "--to", "anthropic"
    )
    assert ran.status == 0, ran.err
    exported = json.loads(ran.out)
    assert _results({"messages": exported}) == _results(_request(life, "killed-agent"))


@pytest.mark.parametrize("thread", [*threads.WHOLE, *threads.WAITING])
def test_what_is_not_broken_stays_as_it_is(life: Life, thread: str) -> None:
    assert _steady(life.after.states[thread]) == _steady(life.before.states[thread])


@pytest.mark.parametrize("thread", threads.WAITING)
def test_an_approval_that_was_pending_still_is_and_resumes(life: Life, thread: str) -> None:
    assert life.repaired.status == 0
    came = life.after.resumed[thread]
    assert "error" not in came
    assert came["state"]["next"] == []
    said = [message["content"] for message in came["state"]["messages"]]
    assert APPROVED.get(thread, "yes: b") in said
    assert said[-1] == "ok"


def test_an_approval_is_closed_when_that_is_asked_for(life: Life) -> None:
    database = life.mended.copy()
    ran = life.run("repair", "--yes", "--force-cleanup", target=database.address)
    assert ran.status == 0, ran.err
    for came in life.node(database).does(*threads.continued(threads.WAITING)):
        assert "error" not in came
        assert came["state"]["next"] == []
        assert came["state"]["messages"][-1]["content"] == "ok"


@pytest.mark.parametrize("thread", threads.names(*threads.DROPPED))
def test_a_message_that_nothing_was_done_about_is_not_lost(life: Life, thread: str) -> None:
    (message,) = life.after.states[thread]["messages"]
    assert (message["kind"], message["content"]) == ("HumanMessage", threads.HELLO)
    assert message["id"]


def test_undo_brings_every_row_back(life: Life) -> None:
    assert life.undone.status == 0, life.undone.err
    assert life.database.rows() == life.rows
    node = life.node(life.database.copy())
    for came in node.does(*threads.shown(threads.GRAPHS)):
        assert _steady(came["state"]) == _steady(life.before.states[came["thread"]])


def _request(life: Life, thread: str) -> Json:
    """The request that went on with a thread: each of them sent one, in order."""
    assert "error" not in life.after.continued[thread]
    bodies = Node(life.database.address, life.requests).bodies()
    return bodies[threads.BROKEN.index(thread)]


def _results(request: Json) -> dict[str, str]:
    """The results in a request, by the call of each."""
    blocks = [
        block
        for message in request["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    return {
        block["tool_use_id"]: _text(block["content"])
        for block in blocks
        if block["type"] == "tool_result"
    }


def _text(content: str | list[Json]) -> str:
    return content if isinstance(content, str) else json.dumps(content)


def _without_results(state: Json) -> list[Json]:
    return [message for message in state["messages"] if message["type"] != "tool"]


def _steady(state: Json) -> Json:
    """A state without the ids of results.

    One that only a write holds has none yet: Node makes one up each time it looks.
    """
    messages = [
        {**message, "id": None if message["type"] == "tool" else message["id"]}
        for message in state["messages"]
    ]
    return {**state, "messages": messages}
