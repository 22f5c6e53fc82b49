"""What a saver and a guard have done is counted: heals by code, results kept, conflicts."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from lockstitch.errors import Conflict
from lockstitch.integrations.langgraph import Counters, Guard, Saver
from tests.integrations.langgraph.agents import STUCK, Bench, Released, calling
from tests.integrations.langgraph.saver.test_mending import CONFIG, results, said
from tests.integrations.langgraph.scripted import Scripted


@pytest.fixture(params=["saver", "guard", "guarded saver"])
def counted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "guard":
        yield Guard(InMemorySaver())
        return
    with Saver(f"sqlite:///{tmp_path}/agent.db") as made:
        yield Guard(made) if request.param == "guarded saver" else made


def broken_off(checkpointer: Any, thread: str) -> int:
    """A batch of three, of which the last is never answered, and a new message.

    Gives how many results the model was sent then: under load, some tool may be cut off as well.
    """
    model, bench = Scripted(calling("one", "three", STUCK)), Bench()
    bench.released.set()
    agent = create_agent(model, [bench.tool], checkpointer=checkpointer)
    config: Any = {"configurable": {"thread_id": thread}}
    with suppress(Released):
        agent.invoke(said("go"), config, durability="sync")
    agent.invoke(said("and now?"), config)
    return sum("unknown" not in text for text in results(model.sent[-1]).values())


def test_heals_are_counted_by_code_with_the_results_that_were_kept(counted: Any) -> None:
    assert counted.counters == Counters()
    before = counted.counters
    with ThreadPoolExecutor(4) as pool:
        kept = list(pool.map(lambda number: broken_off(counted, f"t{number}"), range(8)))
    found = counted.counters
    assert sum(kept) > 0
    assert (found.healed, found.results, found.conflicts) == (8, sum(kept), 0)
    codes = dict(found.codes)
    assert codes.pop("LS901") == sum(map(bool, kept))
    # Which other code a run has depends on how far its tools had come.
    assert sum(codes.values()) >= 8
    assert before == Counters()
    with pytest.raises(TypeError):
        found.codes["LS101"] = 0  # type: ignore[index]


def overtaken(checkpointer: Any) -> Any:
    """A graph that is called again on its own thread, in the middle of its run."""

    def act(state: MessagesState) -> dict[str, Any]:
        if state["messages"][-1].content == "first":
            graph.invoke(said("second"), CONFIG, durability="sync")
        return {"messages": [("ai", "done")]}

    graph: Any = StateGraph(MessagesState).add_node(act).add_edge(START, "act")
    graph = graph.compile(checkpointer=checkpointer)
    return graph


def test_conflicts_are_counted(counted: Any) -> None:
    with pytest.raises(Conflict):
        overtaken(counted).invoke(said("first"), CONFIG, durability="sync")
    assert counted.counters.conflicts == 1
    assert counted.counters.healed == 0


def test_a_fork_is_a_conflict_too() -> None:
    guard = Guard(InMemorySaver(), on_conflict="fork")
    overtaken(guard).invoke(said("first"), CONFIG, durability="sync")
    assert guard.counters.conflicts == len(guard.forks) == 1


def test_what_was_tried_again_is_counted(tmp_path: Path) -> None:
    """Another process has written in between: the record is made anew on top of that."""
    url = f"sqlite:///{tmp_path}/agent.db"
    with Saver(url) as one, Saver(url) as other:
        graph = StateGraph(MessagesState).add_node("act", lambda _: None).add_edge(START, "act")
        graph.compile(one).invoke(said("hello"), CONFIG)
        head = one.get_tuple(CONFIG)
        assert head is not None
        other.put_writes(head.config, [("messages", [])], "of the other")
        assert other.counters.retries == 0
        one.put_writes(head.config, [("messages", [])], "of this one")
        assert (one.counters.retries, one.counters.conflicts) == (1, 0)
        assert Guard(one).counters.retries == 1
