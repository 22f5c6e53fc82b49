"""Real threads of LangGraph: mended by the command, and taken up again by LangGraph."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

from lockstitch import sessions
from lockstitch.dialects.placeholders import FAILED, UNKNOWN_OUTCOME
from lockstitch.formats.langgraph.snapshot import successor
from tests.formats.databases import rows

from . import soak
from .graphs import (
    FAST,
    RESULT,
    STUCK,
    Halted,
    Scripted,
    calling,
    config,
    graph_of,
    messages_of,
    open_calls,
    resumed,
    saving,
)


class Log(TypedDict):
    """A conversation under another name, beside a list of something else."""

    log: Annotated[list[AnyMessage], add_messages]
    other: list[str]


Run = Callable[..., tuple[int, str]]

HALTED = ("agent-killed", "agent-halted", "state-halted", "delta-halted")
HIDDEN = ("agent-again", "delta-again")
ASKED = ("agent-asked", "state-asked", "delta-asked")
HEALTHY = ("agent-healthy", "state-healthy", "delta-healthy")


def halt() -> None:
    raise Halted


def state_of(path: Path, thread: str) -> Any:
    with saving(path) as saver:
        return graph_of(thread, Scripted(), saver).get_state(config(thread))


def asked_again(path: Path, thread: str) -> tuple[list[BaseMessage], Any]:
    """Say something new with real LangGraph; what the model was sent, and the state after it."""
    model = Scripted()
    with saving(path) as saver:
        graph = graph_of(thread, model, saver)
        graph.invoke({"messages": [HumanMessage("go on", id="go-on")]}, config(thread))
        return model.sent[-1], graph.get_state(config(thread))


def results(messages: list[BaseMessage]) -> dict[str, Any]:
    return {m.tool_call_id: m.content for m in messages if isinstance(m, ToolMessage)}


def decoded(printed: str) -> Any:
    """The JSON at the beginning of what a command printed."""
    return json.JSONDecoder().raw_decode(printed)[0]


def codes(lockstitch: Run, path: Path, thread: str) -> list[str]:
    _, printed = lockstitch("check", path, "--session", thread, "--json")
    [session] = [one for one in decoded(printed)["sessions"] if one["session"] == thread]
    return sorted(finding["code"] for finding in session["findings"])


def stored(path: Path, thread: str) -> dict[str, Any]:
    """The values of a thread's last checkpoint, without what hangs on it."""
    with saving(path) as saver:
        found = saver.get_tuple(config(thread))
    assert found is not None
    return found.checkpoint["channel_values"]


def others(values: dict[str, Any]) -> dict[str, Any]:
    """What is neither the conversation nor what makes a node run."""
    steering = ("messages", "branch:", "__pregel_tasks")
    return {name: value for name, value in values.items() if not name.startswith(steering)}


def told(thread: str) -> str:
    """What is said of the call that was broken off; one that raised has left that on record."""
    return UNKNOWN_OUTCOME if thread.endswith("-killed") else f"{FAILED} Halted()"


@pytest.mark.parametrize("thread", [*HALTED, *HIDDEN])
def test_a_batch_that_was_broken_off_is_mended(thread: str, threads: Path, lockstitch: Run) -> None:
    before = stored(threads, thread)
    assert open_calls(messages_of(state_of(threads, thread)))
    status, printed = lockstitch("repair", "--yes", threads, "--session", thread)
    assert status == 0, printed
    after = state_of(threads, thread)
    assert after.next == ()
    assert others(stored(threads, thread)) == others(before)
    assert open_calls(messages_of(after)) == set()
    assert results(messages_of(after)) == {
        "call_0": RESULT.format("call_0"),
        "call_1": told(thread),
        "call_2": RESULT.format("call_2"),
    }
    sent, last = asked_again(threads, thread)
    assert results(sent) == results(messages_of(after))
    assert [message.content for message in sent][-1] == "go on"
    assert messages_of(last)[: len(messages_of(after))] == messages_of(after)
    assert set(codes(lockstitch, threads, thread)) == set()


@pytest.mark.parametrize("thread", HALTED)
def test_messages_that_were_there_stay_what_they_are(
    thread: str, threads: Path, lockstitch: Run
) -> None:
    before = {message.id: message for message in stored(threads, thread).get("messages", ())}
    lockstitch("repair", "--yes", threads, "--session", thread)
    after = messages_of(state_of(threads, thread))
    assert {message.id: message for message in after if message.id in before} == before
    ids = [message.id for message in after]
    assert len(set(ids)) == len(ids)
    assert all(ids)


@pytest.mark.parametrize("thread", HALTED)
def test_a_result_written_after_the_repair_replaces_what_was_made_up(
    thread: str, threads: Path, lockstitch: Run
) -> None:
    with saving(threads) as saver:
        broken_off = saver.get_tuple(config(thread))
    assert lockstitch("repair", "--yes", threads, "--session", thread)[0] == 0
    assert results(messages_of(state_of(threads, thread)))["call_1"] == told(thread)
    late = ToolMessage("At last.", tool_call_id="call_1", id="late")
    with saving(threads) as saver:
        saver.put_writes(broken_off.config, [("messages", [late])], "late-task")
    assert codes(lockstitch, threads, thread) == ["LS901"]
    assert lockstitch("repair", "--yes", threads, "--session", thread)[0] == 0
    found = results(messages_of(state_of(threads, thread)))
    assert found == {
        "call_0": RESULT.format("call_0"),
        "call_1": "At last.",
        "call_2": RESULT.format("call_2"),
    }
    assert codes(lockstitch, threads, thread) == []
    assert results(asked_again(threads, thread)[0]) == found


def test_a_batch_whose_results_are_all_there_needs_nothing_made_up(
    threads: Path, lockstitch: Run
) -> None:
    thread = "agent-finished"
    assert codes(lockstitch, threads, thread) == ["LS901"] * 3
    assert lockstitch("repair", "--yes", threads, "--session", thread)[0] == 0
    found = results(messages_of(state_of(threads, thread)))
    assert found == {f"call_{n}": RESULT.format(f"call_{n}") for n in range(3)}
    assert state_of(threads, thread).next == ()
    assert results(asked_again(threads, thread)[0]) == found


def test_what_a_user_said_before_a_crash_is_not_lost(threads: Path, lockstitch: Run) -> None:
    thread = "agent-said"
    assert codes(lockstitch, threads, thread) == ["LS908"]
    assert lockstitch("repair", "--yes", threads, "--session", thread)[0] == 0
    [said] = messages_of(state_of(threads, thread))
    assert (said.content, said.type) == ("hi", "human")
    assert said.id
    assert [m.content for m in asked_again(threads, thread)[0]] == ["hi", "go on"]


def test_a_list_of_plain_maps_stays_one(threads: Path, lockstitch: Run) -> None:
    thread = "plain-halted"
    before = state_of(threads, thread).values["messages"]
    assert lockstitch("repair", "--yes", threads, "--session", thread)[0] == 0
    after = state_of(threads, thread)
    assert after.next == ()
    assert after.values["messages"][:2] == before
    [answer] = after.values["messages"][2:]
    assert type(answer) is dict
    assert answer["tool_call_id"] == "call_0"


def test_the_memory_of_a_subgraph_is_a_session_of_its_own(threads: Path, lockstitch: Run) -> None:
    session = "remembering#inner"
    assert codes(lockstitch, threads, "remembering") == []
    assert set(codes(lockstitch, threads, session)) == {"LS901"}
    assert lockstitch("repair", "--yes", threads, "--session", session)[0] == 0
    assert codes(lockstitch, threads, session) == []
    sent, state = asked_again(threads, "remembering")
    assert open_calls(sent) == set()
    assert results(sent)["call_2"] == RESULT.format("call_2")
    assert state.next == ()


def test_runs_of_a_subgraph_without_memory_are_part_of_the_thread(
    threads: Path, lockstitch: Run
) -> None:
    _, printed = lockstitch("check", threads, "--session", "forgetting")
    assert "1 run of subgraphs has checkpoints" not in printed
    assert set(codes(lockstitch, threads, "forgetting")) == {"LS901"}
    assert lockstitch("repair", "--yes", threads, "--session", "forgetting")[0] == 0
    _, printed = lockstitch("check", threads, "--session", "forgetting")
    assert "1 run of subgraphs has checkpoints" in printed
    sent, state = asked_again(threads, "forgetting")
    assert open_calls(sent) == set()
    assert results(sent)["call_2"] == RESULT.format("call_2")
    assert state.next == ()
    _, listed = lockstitch("scan", threads, "--json")
    names = [session["session"] for session in decoded(listed)["sessions"]]
    assert not any("forgetting#" in name for name in names)


@pytest.mark.parametrize("thread", ASKED)
def test_a_question_stays_pending_and_is_answered(
    thread: str, threads: Path, lockstitch: Run
) -> None:
    before = rows(threads)
    status, printed = lockstitch("repair", "--yes", threads, "--session", thread)
    assert status == 0
    assert "waits for a person" in printed
    # what waits is not marked as broken
    status, shown = lockstitch("show", threads, "--session", thread)
    assert (status, "LS101" in shown, "waits for a person" in shown) == (0, False, True), shown
    assert rows(threads) == before
    with saving(threads) as saver:
        graph = graph_of(thread, Scripted(), saver)
        [asked] = graph.get_state(config(thread)).interrupts
        graph.invoke(resumed("yes"), config(thread))
        state = graph.get_state(config(thread))
    assert asked.value == "call_1"
    assert results(messages_of(state))["call_1"] == "a person said yes"
    assert state.next == ()


@pytest.mark.parametrize("thread", [*ASKED, "halting-twice"])
def test_what_waits_is_closed_only_by_force(thread: str, threads: Path, lockstitch: Run) -> None:
    lockstitch("repair", "--yes", threads, "--session", thread, "--force-cleanup")
    state = state_of(threads, thread)
    assert state.next == ()
    assert not state.interrupts
    assert open_calls(messages_of(state)) == set()
    assert UNKNOWN_OUTCOME in results(messages_of(state)).values()
    if thread in ASKED:
        assert results(messages_of(state))["call_0"] == RESULT.format("call_0")
    sent, _ = asked_again(threads, thread)
    assert open_calls(sent) == set()


def test_a_question_without_a_call_is_closed_by_force_too(tmp_path: Path, lockstitch: Run) -> None:
    def ask(_state: Any) -> dict[str, Any]:
        return {"log": [AIMessage(f"you said {interrupt('well?')}")]}

    path = tmp_path / "asks.db"
    with saving(path) as saver:
        graph = StateGraph(Log).add_node("ask", ask).add_edge(START, "ask")
        made = graph.compile(checkpointer=saver)
        made.invoke({"log": [HumanMessage("hi")]}, config("t"))
        before = made.get_state(config("t"))
        assert before.next == ("ask",)
    assert "waits for a person" in lockstitch("repair", "--yes", path)[1]
    assert lockstitch("repair", "--yes", path, "--force-cleanup")[0] == 0
    with saving(path) as saver:
        after = graph.compile(checkpointer=saver).get_state(config("t"))
    assert (after.next, after.interrupts) == ((), ())
    assert after.values == before.values


def test_a_breakpoint_that_was_used_before_is_left_alone(threads: Path, lockstitch: Run) -> None:
    before = rows(threads)
    status, printed = lockstitch("repair", "--yes", threads, "--session", "halting-twice")
    assert (status, "waits for a person" in printed) == (0, True)
    assert rows(threads) == before
    with saving(threads) as saver:
        graph = graph_of("halting-twice", Scripted(), saver)
        graph.invoke(None, config("halting-twice"))
        assert graph.get_state(config("halting-twice")).next == ()


@pytest.mark.parametrize("thread", HALTED)
def test_a_rollback_goes_back_to_the_last_whole_turn(
    thread: str, threads: Path, lockstitch: Run
) -> None:
    whole = thread.replace("halted", "healthy").replace("killed", "healthy")
    lockstitch("repair", "--yes", threads, "--session", thread, "--strategy", "rollback")
    state = state_of(threads, thread)
    assert open_calls(messages_of(state)) == set()
    assert state.next == ()
    before = messages_of(state_of(threads, whole))
    with saving(threads) as saver, suppress(Halted):
        graph = graph_of(whole, Scripted(calling(FAST, STUCK)), saver, halt)
        graph.invoke({"messages": [HumanMessage("more")]}, config(whole))
    lockstitch("repair", "--yes", threads, "--session", whole, "--strategy", "rollback")
    assert messages_of(state_of(threads, whole)) == before


@pytest.mark.parametrize("thread", HEALTHY)
def test_a_healthy_thread_is_left_as_it_is(thread: str, threads: Path, lockstitch: Run) -> None:
    before = rows(threads)
    assert set(codes(lockstitch, threads, thread)) == set()
    lockstitch("repair", "--yes", threads, "--session", thread)
    assert rows(threads) == before


@pytest.mark.parametrize("thread", [*HEALTHY, *HIDDEN, *ASKED, "halting-twice"])
def test_the_conversation_is_what_langgraph_itself_makes_of_it(thread: str, threads: Path) -> None:
    [source] = sessions.sources(str(threads), session=thread)
    read = sessions.opened(source).transcript.history.messages
    own = messages_of(state_of(threads, thread))
    assert [m["content"] for m in read] == [m.content for m in own]
    assert [m.get("tool_calls", []) for m in read] == [getattr(m, "tool_calls", []) for m in own]
    assert [m["id"] for m in read if m["type"] == "ai"] == [m.id for m in own if m.type == "ai"]


def test_a_repair_is_one_checkpoint_right_behind_the_head(threads: Path, lockstitch: Run) -> None:
    thread = "agent-killed"
    before = rows(threads)
    head = state_of(threads, thread).config["configurable"]["checkpoint_id"]
    lockstitch("repair", "--yes", threads, "--session", thread)
    after = rows(threads)
    assert after["writes"] == before["writes"]
    new = [row for row in after["checkpoints"] if row not in before["checkpoints"]]
    assert len(new) == 1
    assert len(after["checkpoints"]) == len(before["checkpoints"]) + 1
    assert (new[0][3], new[0][4]) == (successor(head), head)
    metadata = json.loads(new[0][7])
    assert metadata["source"] == "update"
    assert metadata["step"] == 2
    assert metadata["lockstitch"] == {"repaired": head, "codes": ["LS102", "LS901"]}


def test_two_repairs_of_one_thread_say_the_same(threads: Path, lockstitch: Run) -> None:
    lockstitch("repair", "--yes", threads, "--session", "delta-halted")
    once = rows(threads)
    lockstitch("undo", "--yes", threads)
    lockstitch("repair", "--yes", threads, "--session", "delta-halted")
    assert [row[1:] for row in rows(threads)["checkpoints"]] == [
        row[1:] for row in once["checkpoints"]
    ]


@pytest.mark.parametrize("kind", soak.KINDS)
def test_a_random_life_survives_its_repairs(kind: str) -> None:
    assert soak.lived(kind, 3) > 0
