"""A thread that waits for a person is left alone, and can be answered afterwards."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt

import lockstitch
from lockstitch.dialects.placeholders import is_placeholder
from lockstitch.integrations.langgraph import reconcile
from lockstitch.integrations.langgraph.report import Reconciled
from tests.integrations.langgraph.agents import ASKING, calling, result_of
from tests.integrations.langgraph.reconcile.breaking import THREAD, Thread, asked, texts, unwritten
from tests.integrations.langgraph.scripted import Scripted

SAID = "a person said yes"


def in_a_tool() -> Thread:
    """One of three tools asks, the others have finished."""
    thread = Thread("agent", model=Scripted(calling("one", ASKING, "three")))
    thread.graph.invoke(asked("Go."), THREAD)
    return thread


def by_hand() -> Thread:
    """The same in a graph written by hand."""
    thread = Thread("fanned", model=Scripted(calling("one", ASKING, "three")))
    thread.graph.invoke(asked("Go."), THREAD)
    return thread


def in_the_middleware() -> Thread:
    """LangChain's middleware asks before any tool runs."""
    approval = HumanInTheLoopMiddleware(interrupt_on={"work": True})
    thread = Thread("agent", model=Scripted(calling("one", "three")), middleware=[approval])
    thread.graph.invoke(asked("Go."), THREAD)
    return thread


def before_the_tools() -> Thread:
    """The graph stops before its tools."""
    model = Scripted(calling("one", "three"))
    thread = Thread("agent", model=model, interrupt_before=["tools"])
    thread.graph.invoke(asked("Go."), THREAD)
    return thread


def after_the_model() -> Thread:
    """The graph stops behind its model."""
    model = Scripted(calling("one", "three"))
    thread = Thread("fanned", model=model, interrupt_after=["model"])
    thread.graph.invoke(asked("Go."), THREAD)
    return thread


def before_everything() -> Thread:
    """The graph stops before every step, and was taken up once."""
    thread = Thread("react", model=Scripted(calling("one", "three")), interrupt_before="*")
    thread.graph.invoke(asked("Go."), THREAD)
    thread.graph.invoke(None, THREAD)
    return thread


APPROVED = Command(resume={"decisions": [{"type": "approve"}, {"type": "approve"}]})
ASKED = [(in_a_tool, Command(resume="yes")), (by_hand, Command(resume="yes"))]
STOPPED = [(before_the_tools, None), (after_the_model, None), (before_everything, None)]
EVERY = [*ASKED, (in_the_middleware, APPROVED), *STOPPED]
every_question = pytest.mark.parametrize(
    ("begin", "answer"), EVERY, ids=lambda v: v and v.__class__
)


def said(messages: list[Any]) -> list[tuple[str, str]]:
    """What is said; LangGraph draws new ids for results that are not in a checkpoint yet."""
    return [(message.type, message.text) for message in messages]


def settled(thread: Thread, source: str, **options: Any) -> Reconciled:
    return reconcile(getattr(thread, source), THREAD, **options)


@every_question
def test_a_pending_approval_survives_and_resumes(begin: Any, answer: Any) -> None:
    thread = begin()
    before = thread.state
    with unwritten(thread):
        report = reconcile(thread.graph, THREAD)
        reconcile(thread.graph, THREAD, before.values["messages"][:1])
    assert report.waiting
    assert not report.changed
    assert said(report.messages) == said(before.values["messages"])
    after = thread.state
    assert (after.next, after.interrupts, after.config) == (
        before.next,
        before.interrupts,
        before.config,
    )
    _resumed(thread, answer)


def _resumed(thread: Thread, answer: Any) -> None:
    for _ in range(5):
        thread.graph.invoke(answer, THREAD)
        if not thread.state.next:
            break
        answer = None
    said = texts(thread.state.values["messages"])
    assert result_of("one") in said
    assert not any(map(is_placeholder, said))
    assert SAID in said or ASKING not in thread.bench.started


@pytest.mark.parametrize(("begin", "answer"), [*ASKED, (in_the_middleware, APPROVED)])
def test_a_saver_alone_knows_a_question_too(begin: Any, answer: Any) -> None:
    thread = begin()
    with unwritten(thread):
        report = reconcile(thread.saver, THREAD)
    assert report.waiting
    assert report.paused == "interrupt"
    assert said(report.messages) == said(thread.state.values["messages"])
    _resumed(thread, answer)


def test_a_saver_alone_takes_a_thread_that_was_taken_up_before_for_one_at_a_breakpoint() -> None:
    thread = before_everything()
    with unwritten(thread):
        report = reconcile(thread.saver, THREAD)
    assert report.paused == "breakpoint"
    assert reconcile(thread.saver, THREAD, force_cleanup=True).changed


@pytest.mark.parametrize("begin", [begin for begin, _ in EVERY])
@pytest.mark.parametrize("source", ["graph", "saver"])
def test_a_forced_cleanup_closes_it(begin: Any, source: str) -> None:
    thread = begin()
    report = settled(thread, source, force_cleanup=True)
    assert report.changed
    assert not report.waiting
    assert lockstitch.check(report.messages, "langchain") == []
    assert thread.state.next == ()
    assert thread.state.interrupts == ()
    finished = result_of("one") in texts(report.messages)
    assert finished is (ASKING in thread.bench.started)
    with unwritten(thread):
        assert not settled(thread, source, force_cleanup=True).changed
    if not thread.graph.interrupt_before_nodes:
        assert lockstitch.check(thread.invoke(), "langchain") == []


def test_a_question_without_any_call_is_closed_by_force_only() -> None:
    graph = _asking_graph()
    graph.invoke(asked("Go."), THREAD)
    assert reconcile(graph, THREAD).waiting
    assert graph.get_state(THREAD).interrupts
    report = reconcile(graph, THREAD, force_cleanup=True)
    assert report.changed
    assert [message.text for message in report.messages] == ["Go."]
    assert graph.get_state(THREAD).next == ()


class _State(TypedDict):
    messages: Annotated[list[Any], add_messages]


def _asking_graph() -> Any:
    def ask(_: Any) -> dict[str, Any]:
        return {"messages": [("ai", str(interrupt("Well?")))]}

    graph = StateGraph(_State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    return graph.compile(checkpointer=InMemorySaver())


def test_a_tool_that_died_behind_a_breakpoint_is_no_longer_waited_for() -> None:
    thread = Thread("agent", interrupt_before=["tools"])
    thread.graph.invoke(asked("Go."), THREAD)
    assert reconcile(thread.graph, THREAD).waiting
    thread.break_off(Command(resume=True))
    report = reconcile(thread.graph, THREAD)
    assert report.changed
    assert not report.waiting
    assert report.results == 2


def test_a_new_message_instead_of_an_answer_gets_all_that_is_known() -> None:
    thread = in_a_tool()
    thread.graph.update_state(THREAD, asked("Never mind."), as_node="__start__")
    report = reconcile(thread.graph, THREAD)
    assert report.results == 2
    assert report.synthetic == 1
    assert lockstitch.check(thread.invoke(), "langchain") == []
