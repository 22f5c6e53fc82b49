"""What comes after a repair: ``invoke(None)`` goes on where the turn has no end yet."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

import lockstitch
from lockstitch.integrations.langgraph import areconcile, reconcile
from tests.integrations.langgraph.agents import AGENTS, JOBS, STUCK, Bench, calling
from tests.integrations.langgraph.reconcile.breaking import THREAD, Thread, asked
from tests.integrations.langgraph.savers import CHECKPOINTERS, acheckpointer, checkpointer
from tests.integrations.langgraph.scripted import Scripted

every_kind = pytest.mark.parametrize("kind", AGENTS)
every_checkpointer = pytest.mark.parametrize("name", CHECKPOINTERS)
both_sources = pytest.mark.parametrize("source", ["graph", "saver"])


@every_kind
@both_sources
@every_checkpointer
def test_the_model_gets_the_results_of_a_turn_that_was_broken_off(
    name: str, source: str, kind: str, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        thread = Thread(kind, saver=saver).break_off()
        report = reconcile(getattr(thread, source), THREAD)
        assert thread.state.next == report.next
        done = list(thread.bench.started)
        before = len(thread.model.sent)
        thread.graph.invoke(None, THREAD)
        assert thread.bench.started == done
        if kind == "plain" and source == "saver":
            # One task for all calls, and nobody who knows the graph: something has to be said.
            assert report.next == ()
            assert len(thread.model.sent) == before
        else:
            assert report.next == (("agent",) if kind == "react" else ("model",))
            assert f"continues with {report.next[0]}" in str(report)
            assert thread.model.sent[before] == report.messages
            assert thread.state.values["messages"][-1].text == "ok"
        assert lockstitch.check(thread.invoke(), "langchain") == []


@every_kind
@both_sources
@every_checkpointer
def test_a_new_message_is_sent_once_behind_it(
    name: str, source: str, kind: str, tmp_path: Path
) -> None:
    """What is due is dropped by LangGraph when something new is said."""
    with checkpointer(name, tmp_path) as saver:
        thread = Thread(kind, saver=saver).break_off()
        report = reconcile(getattr(thread, source), THREAD)
        before = len(thread.model.sent)
        sent = thread.invoke()
        assert len(thread.model.sent) == before + 1
        assert sent[:-1] == report.messages
        assert thread.state.next == ()


def test_it_goes_on_in_an_event_loop(tmp_path: Path) -> None:
    async def run(name: str) -> Any:
        async with acheckpointer(name, tmp_path / name.replace(" ", "-")) as saver:
            thread = Thread("agent", saver=InMemorySaver()).break_off()
            graph = AGENTS["agent"](thread.model, Bench(), saver)
            (head, *_) = list(thread.saver.list(THREAD))
            config = {"configurable": {"thread_id": "a thread", "checkpoint_ns": ""}}
            versions = head.checkpoint["channel_versions"]
            put = await saver.aput(config, head.checkpoint, head.metadata, versions)
            for task, channel, value in head.pending_writes:
                await saver.aput_writes(put, [(channel, value)], f"{task}-{channel}")
            report = await areconcile(saver, THREAD)
            await graph.ainvoke(None, THREAD)
            return report, thread.model.sent[-1]

    for name in ("memory", "saver"):
        (tmp_path / name).mkdir()
        report, sent = asyncio.run(run(name))
        assert report.results == len(JOBS) - 1
        assert sent == report.messages


class Refusing(Scripted):
    """A model whose provider refuses a conversation with an open call."""

    def _generate(self, messages: Any, *args: Any, **options: Any) -> Any:
        if lockstitch.check(messages, "langchain"):
            raise ValueError("tool_use ids were found without tool_result blocks")
        return super()._generate(messages, *args, **options)


@both_sources
@pytest.mark.parametrize("name", ["memory", "sqlite"])
def test_a_refused_message_is_answered_without_being_said_again(
    name: str, source: str, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        thread = Thread("fanned", saver=saver, model=Refusing(calling(*JOBS))).break_off()
        with pytest.raises(ValueError, match="tool_use"):
            thread.graph.invoke(asked("And now?"), THREAD)
        report = reconcile(getattr(thread, source), THREAD)
        assert (report.changed, report.next) == (True, ("model",))
        thread.graph.invoke(None, THREAD)
        assert [message.text for message in thread.stored[-2:]] == ["And now?", "ok"]


@both_sources
def test_a_batch_that_never_began_is_answered_and_behind_it_it_goes_on(source: str) -> None:
    """The reply is beside the checkpoint, and its tools have not been begun."""
    saver = InMemorySaver()
    thread = Thread("fanned", saver=saver, model=Scripted(calling("one", "two")))
    thread.graph.invoke(asked("Go."), THREAD)
    first = next(found for found in saver.list(THREAD) if _asks(found))
    report = reconcile(getattr(thread, source), first.config)
    assert report.synthetic == 2
    state = thread.graph.get_state(report.after)
    assert state.next == report.next == (("model",) if source == "graph" else ())


def _asks(saved: Any) -> bool:
    values = [value for _, channel, value in saved.pending_writes if channel == "messages"]
    return any(isinstance(one, AIMessage) and one.tool_calls for value in values for one in value)


@both_sources
def test_what_the_application_has_taken_back_does_not_go_on(source: str) -> None:
    thread = Thread("agent").break_off()
    held = thread.stored[:1]
    report = reconcile(getattr(thread, source), THREAD, held)
    assert (report.removed > 0, report.next, thread.state.next) == (True, (), ())


def test_what_waits_for_a_person_and_is_closed_does_not_go_on() -> None:
    model = Scripted(calling("one", STUCK))
    thread = Thread("agent", model=model, interrupt_before=["tools"])
    thread.graph.invoke(asked("Go."), THREAD)
    assert reconcile(thread.graph, THREAD).next == ("tools",)
    report = reconcile(thread.graph, THREAD, force_cleanup=True)
    assert (report.changed, report.next, thread.state.next) == (True, (), ())
