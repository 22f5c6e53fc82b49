"""The middleware finds results beside the checkpoints, and what it makes up gives way to them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage

import lockstitch
from lockstitch.dialects.placeholders import is_placeholder
from lockstitch.integrations.langgraph import HealMiddleware, heal_hook, reconcile
from lockstitch.integrations.langgraph.hooks import ResultSearch
from tests.integrations.langgraph.agents import (
    AGENTS,
    JOBS,
    STUCK,
    Bench,
    calling,
    result_of,
)
from tests.integrations.langgraph.reconcile.breaking import FINISHED, THREAD, Thread, asked, texts
from tests.integrations.langgraph.savers import (
    CHECKPOINTERS,
    REPAIRING,
    acheckpointer,
    checkpointer,
    on,
)
from tests.integrations.langgraph.scripted import Scripted

every_checkpointer = pytest.mark.parametrize("name", CHECKPOINTERS)
KNOWN = [None if job == STUCK else result_of(job) for job in JOBS]
OPTIONS: dict[str, dict[str, Any]] = {
    "agent": {"middleware": [HealMiddleware()]},
    "react": {"pre_model_hook": heal_hook},
}


def known(messages: list[Any]) -> list[str | None]:
    return [None if is_placeholder(text) else text for text in texts(messages)]


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("kind", OPTIONS)
@every_checkpointer
def test_a_finished_result_is_sent_and_stored(
    name: str, kind: str, durability: Any, tmp_path: Path
) -> None:
    with checkpointer(name, tmp_path) as saver:
        thread = Thread(kind, saver=saver, **OPTIONS[kind]).break_off()
        sent = thread.invoke(durability=durability)
        assert known(sent) == known(thread.stored) == KNOWN
        assert lockstitch.check(sent, "langchain") == []
        again = thread.invoke()
        assert again[: len(sent)] == sent


@every_checkpointer
def test_a_finished_result_is_found_in_an_event_loop(name: str, tmp_path: Path) -> None:
    async def run() -> Any:
        async with acheckpointer(name, tmp_path) as saver:
            bench, model = Bench(), Scripted(calling(*JOBS))
            graph = AGENTS["agent"](model, bench, saver, **OPTIONS["agent"])
            running = asyncio.create_task(graph.ainvoke(asked("Go."), THREAD))
            count = 0
            while count < len(FINISHED):
                await asyncio.sleep(0.01)
                found = [one async for one in saver.alist(on("a thread"), limit=1)]
                writes = [write for one in found for write in one.pending_writes]
                count = sum("real result" in str(value) for _, _, value in writes)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            await graph.ainvoke(asked("And now?"), THREAD)
            return model.sent[-1]

    assert known(asyncio.run(run())) == KNOWN


def _closed(thread: Thread) -> None:
    """Leave a thread as one that was closed without a look at the pending writes."""
    thread.graph.update_state(THREAD, asked("And now?"), as_node="__start__")
    update = ResultSearch(thread.stored).update()
    thread.graph.update_state(THREAD, {"messages": update}, as_node="__start__")
    assert known(thread.stored) == [None] * len(JOBS)


@pytest.mark.parametrize("name", ["memory", "sqlite", *REPAIRING])
def test_what_was_made_up_gives_way_at_the_next_message(name: str, tmp_path: Path) -> None:
    with checkpointer(name, tmp_path) as saver:
        options = OPTIONS["agent"] if name in {"memory", "sqlite"} else {}
        thread = Thread("agent", saver=saver, **options).break_off()
        _closed(thread)
        assert known(thread.invoke(asked("Really?"))) == KNOWN
        assert known(thread.stored) == KNOWN


@every_checkpointer
def test_what_was_made_up_gives_way_in_a_reconciliation(name: str, tmp_path: Path) -> None:
    with checkpointer(name, tmp_path) as saver:
        thread = Thread("agent", saver=saver).break_off()
        _closed(thread)
        assert reconcile(saver, THREAD).results == len(FINISHED)
        assert known(thread.stored) == KNOWN


def test_a_thread_without_a_checkpointer_is_healed_all_the_same() -> None:
    graph = AGENTS["agent"](model := Scripted(), Bench(), None, **OPTIONS["agent"])
    graph.invoke(
        {"messages": [*asked("Go.")["messages"], calling("one"), *asked("Now?")["messages"]]}
    )
    assert known(model.sent[-1]) == [None]


def test_an_error_of_a_tool_is_told(tmp_path: Path) -> None:
    class Failing(Bench):
        def work(self, job: str) -> str:
            if job == "bad":
                raise RuntimeError("disk is full")
            return super().work(job)

    with checkpointer("memory", tmp_path) as saver:
        model = Scripted(calling("one", "bad"))
        graph = AGENTS["agent"](model, Failing(), saver, **OPTIONS["agent"])
        with pytest.raises(RuntimeError):
            graph.invoke(asked("Go."), THREAD)
        graph.invoke(asked("And now?"), THREAD)
        told = [message for message in model.sent[-1] if isinstance(message, ToolMessage)]
        assert "RuntimeError('disk is full')" in told[-1].text
        assert [message.status for message in told] == ["success", "error"]
