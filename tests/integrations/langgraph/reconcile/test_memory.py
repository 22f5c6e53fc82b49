"""The conversation that an application holds, and the one in its checkpoint, become one."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
    messages_to_dict,
)

import lockstitch
from lockstitch.errors import UsageError
from lockstitch.integrations.langgraph import reconcile
from lockstitch.integrations.langgraph.message_repair import align
from tests.integrations.langgraph.agents import JOBS, STUCK, calling, result_of
from tests.integrations.langgraph.reconcile.breaking import FINISHED, THREAD, Thread, asked, texts
from tests.integrations.langgraph.scripted import Scripted


@pytest.fixture
def thread() -> Thread:
    made = Thread("agent", model=Scripted(AIMessage("Hello!"), calling(*JOBS)))
    made.graph.invoke(asked("Hello."), THREAD)
    return made.break_off()


def held(thread: Thread) -> list[BaseMessage]:
    found: list[BaseMessage] = thread.head.checkpoint["channel_values"]["messages"]
    return found


def without_ids(messages: list[BaseMessage]) -> list[Any]:
    return [message.model_copy(update={"id": None}) for message in messages]


FORMS = [list, without_ids, convert_to_openai_messages, messages_to_dict]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_ids_survive_in_whatever_form_the_application_speaks(thread: Thread, form: Any) -> None:
    mine = held(thread)
    report = reconcile(thread.graph, THREAD, form(mine))
    assert report.messages[: len(mine)] == mine
    assert report.results == len(FINISHED)
    assert (report.added, report.removed) == (0, 0)
    assert thread.stored == report.messages


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_what_the_application_took_back_goes(thread: Thread, form: Any) -> None:
    mine = held(thread)[:-1]
    report = reconcile(thread.graph, THREAD, form(mine))
    assert report.messages == mine == thread.stored
    assert (report.removed, report.results) == (3, 0)
    assert thread.saver.get_tuple(report.before).pending_writes


def test_a_cut_in_the_middle_does_not_confuse_who_is_who(thread: Thread) -> None:
    """The number of messages is no cursor: what is behind a gap keeps its id."""
    old = held(thread)
    report = reconcile(thread.graph, THREAD, without_ids([old[0], *old[2:]]))
    assert [message.id for message in report.messages[:3]] == [
        old[0].id,
        old[2].id,
        old[3].id,
    ]
    sent = thread.invoke()
    assert sent[:-1] == report.messages


def test_words_that_the_application_changed_are_the_ones_that_count(thread: Thread) -> None:
    mine = held(thread)
    mine[0] = HumanMessage("Good day.", id=mine[0].id)
    report = reconcile(thread.graph, THREAD, mine)
    assert report.messages[0].text == "Good day."
    assert report.messages[0].id == mine[0].id
    assert report.messages == thread.stored


def test_what_only_the_application_has_is_added_with_ids_that_stay(thread: Thread) -> None:
    mine = [*held(thread), HumanMessage("Well?"), AIMessage("Sorry.")]
    report = reconcile(thread.graph, THREAD, mine)
    assert report.added == 2
    assert [message.text for message in report.messages[-2:]] == ["Well?", "Sorry."]
    assert all(message.id for message in report.messages)
    again = reconcile(thread.graph, THREAD, mine)
    assert not again.changed


def test_an_applications_own_answer_to_a_call_stands(thread: Thread) -> None:
    mine = [*held(thread), ToolMessage("the user pressed stop", tool_call_id=f"call_{STUCK}")]
    report = reconcile(thread.graph, THREAD, mine)
    assert report.synthetic == 0
    assert set(texts(report.messages)) == {
        "the user pressed stop",
        *(result_of(job) for job in FINISHED),
    }


def test_a_real_result_takes_the_place_of_a_stand_in(thread: Thread) -> None:
    mine = lockstitch.heal(held(thread), "langchain")
    report = reconcile(thread.graph, THREAD, mine)
    assert texts(report.messages)[0::2] == [result_of(job) for job in FINISHED]
    assert len(texts(report.messages)) == len(JOBS)


def test_the_same_words_said_twice_are_two_messages() -> None:
    old: list[BaseMessage] = [
        HumanMessage("Go on.", id="1"),
        AIMessage("Yes.", id="2"),
        HumanMessage("Go on.", id="3"),
        AIMessage("Yes.", id="4"),
    ]
    assert align(without_ids(old), old).messages == old
    assert align(without_ids(old[2:]), old).messages == old[:2]
    assert align([old[2]], old).messages == [old[2]]
    mixed = [*without_ids(old[:2]), old[2]]
    assert align(mixed, old).messages == old[:3]


def test_one_id_is_not_given_to_two() -> None:
    old: list[BaseMessage] = [HumanMessage("One.", id="1")]
    found = align([HumanMessage("One."), HumanMessage("One.")], old).messages
    assert found[0].id == "1"
    assert found[1].id not in (None, "1")


def test_a_message_of_another_kind_under_the_same_id_is_another() -> None:
    old: list[BaseMessage] = [HumanMessage("One.", id="1")]
    found = align([SystemMessage("One.", id="1")], old)
    assert (found.added, found.removed) == (1, 1)


def test_what_is_no_message_is_refused(thread: Thread) -> None:
    for wrong in (["text", 5], [{"content": "no role"}], [None]):
        with pytest.raises(UsageError, match="messages must be LangChain messages"):
            reconcile(thread.graph, THREAD, wrong)


def test_text_in_blocks_is_the_same_text() -> None:
    old: list[BaseMessage] = [HumanMessage("One.", id="1")]
    blocks: list[Any] = [{"type": "text", "text": "One."}]
    assert align([HumanMessage(blocks)], old).messages == old


def test_an_application_that_knows_a_call_for_a_half_one_is_believed() -> None:
    """LangGraph makes a whole message of a chunk, and forgets that its call was cut."""
    pieces = [{"name": "work", "args": '{"job": "one', "id": "call_one", "index": 0}]
    chunk = AIMessageChunk("On it.", id="2", tool_call_chunks=pieces)
    thread = Thread("agent", model=Scripted())
    mine = [HumanMessage("Go.", id="1"), chunk]
    thread.graph.update_state(THREAD, {"messages": mine}, as_node="model")
    assert thread.stored[1].tool_calls  # type: ignore[attr-defined]
    report = reconcile(thread.graph, THREAD, mine)
    assert [message.text for message in report.messages] == ["Go.", "On it."]
    assert not report.messages[1].tool_calls  # type: ignore[attr-defined]
    assert report.partial == 1
