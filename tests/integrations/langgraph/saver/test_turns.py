"""A run has its thread to itself, and others wait: in threads, event loops and processes."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.graph import START, StateGraph

from lockstitch.errors import Conflict, Held
from lockstitch.integrations.langgraph import Saver
from tests.integrations.langgraph.guard.graphs import THREAD, Notes, achat, chain, noting, texts
from tests.integrations.langgraph.saver.places import Where
from tests.integrations.langgraph.saver.test_writers import kept, other, wait_until, written
from tests.integrations.langgraph.saver.worker import CONFIG, State, answering

PROCESSES, TURNS = 4, 8


def said(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def test_processes_that_wait_are_never_refused(where: Where) -> None:
    answering(where.open()).invoke(said("before"), CONFIG)
    names = [f"w{number}-" for number in range(PROCESSES)]
    started = [other("turns", where.url, name, str(TURNS), "120") for name in names]
    refused = 0
    for process in started:
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0
        refused += int(output.split()[1])
    assert refused == 0
    messages = kept(where.open())
    # Nothing was refused, so nothing was asked twice, and every question has its answer behind it.
    assert len(messages) == 2 * (1 + PROCESSES * TURNS)
    assert messages[1::2] == [f"reply to {one}" for one in messages[::2]]


def test_a_killed_run_is_not_waited_for(where: Where, tmp_path: Path) -> None:
    answering(where.open()).invoke(said("before"), CONFIG)
    process = other("hang", where.url, str(tmp_path), "3600")
    saver = where.open(turn_wait=3600)
    wait_until(lambda: written(saver) >= 2)
    process.kill()
    process.wait()
    assert process.stdout
    process.stdout.close()
    done = answering(saver).invoke(said("and now?"), CONFIG)
    results = [one.content for one in done["messages"] if isinstance(one, ToolMessage)]
    assert results[:2] == ["result 0", "result 1"]


def test_who_has_waited_in_vain_is_told(where: Where) -> None:
    slow, quick = where.open(turn_wait=60), where.open(turn_wait=0.2)
    is_begun, may_go_on = threading.Event(), threading.Event()
    answering(slow).invoke(said("first"), CONFIG)

    def wait(_state: Any) -> dict[str, Any]:
        is_begun.set()
        assert may_go_on.wait(60)
        return {"messages": []}

    graph = StateGraph(State).add_node(wait).add_edge(START, "wait").compile(slow)
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(graph.invoke, said("slow"), CONFIG)
        assert is_begun.wait(60)
        with pytest.raises(Held) as caught:
            answering(quick).invoke(said("quick"), CONFIG)
        assert caught.value.kept == "nothing"
        # Whoever has more time comes next.
        waiting = pool.submit(answering(slow).invoke, said("patient"), CONFIG)
        may_go_on.set()
        running.result()
        waiting.result()
    assert kept(slow) == ["first", "reply to first", "slow", "patient", "reply to patient"]


def test_more_tasks_wait_than_there_are_threads() -> None:
    with Saver("memory:", turn_wait=600) as saver:
        graph = achat(saver, lambda: asyncio.sleep(0))

        async def main() -> None:
            await graph.ainvoke(said("before"), THREAD)
            await asyncio.gather(*(graph.ainvoke(said(f"{n}"), THREAD) for n in range(100)))

        asyncio.run(main())
        assert len(texts(graph)) == 202


def test_what_a_run_calls_itself_does_not_wait() -> None:
    with Saver("memory:", turn_wait=3600) as saver:
        plain = chain(saver, noting("inside"))
        plain.invoke({"notes": []}, THREAD)

        def call(_: Any) -> Any:
            plain.update_state(THREAD, {"notes": ["by hand"]})
            return plain.invoke({"notes": []}, THREAD)

        with pytest.raises(Conflict):
            chain(saver, call).invoke({"notes": []}, THREAD)
        outer = StateGraph(Notes).add_node("sub", chain(True, noting("in"))).add_edge(START, "sub")
        outer.compile(checkpointer=saver).invoke({"notes": []}, THREAD)
        # A run that fails, and one that is broken off, give their turns back.
        with pytest.raises(ZeroDivisionError):
            chain(saver, lambda _: 1 / 0).invoke({"notes": []}, THREAD)
        next(chain(saver, noting("one"), noting("two")).stream({"notes": []}, THREAD))
        plain.invoke({"notes": []}, THREAD)
