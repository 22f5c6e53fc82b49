"""Removing, pruning and copying threads: what goes is gone, what stays is whole."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from lockstitch import stored
from lockstitch.errors import Conflict, UsageError
from lockstitch.integrations.langgraph import Saver
from lockstitch.stores.opening import open_backend
from tests.integrations.langgraph.saver.places import Where
from tests.integrations.langgraph.saver.programs import CONFIG, built, told
from tests.integrations.langgraph.saver.worker import answering

THREAD = CONFIG["configurable"]["thread_id"]
ORDERS = [("say", 1), ("call", 2), ("change", 0), ("fan", 3), ("say", 4), ("remove", 1)]


def talked(saver: Any, *, delta: bool, turns: int = 4) -> Any:
    graph = built(saver, delta=delta)
    for turn in range(turns):
        said = HumanMessage(f"turn {turn} " + "x" * 70_000 * (turn == 1), id=f"h{turn}")
        graph.invoke({"todo": ORDERS, "messages": [said]}, CONFIG, durability="sync")
    return graph


def is_whole(where: Where) -> bool:
    return all(report.status == "ok" for report in stored.check(where.url))


@pytest.mark.parametrize("delta", [False, True])
def test_only_the_last_checkpoint_stays_and_what_it_is_made_of(where: Where, delta: bool) -> None:
    saver = where.open()
    graph = talked(saver, delta=delta)
    if delta:
        until_it_is_made_of_others(graph, saver)
    before = graph.get_state(CONFIG)
    count = len(list(saver.list(CONFIG)))
    saver.prune([THREAD])
    after = graph.get_state(CONFIG)
    assert (after.values, after.next, after.metadata) == (
        before.values, before.next, before.metadata
    )  # fmt: skip
    left = len(list(saver.list(CONFIG)))
    assert left == 1 if not delta else 1 < left < count
    assert built(where.open(), delta=delta).get_state(CONFIG).values == before.values
    assert is_whole(where)
    graph.invoke({"todo": [("say", 1)], "messages": [HumanMessage("more", id="more")]}, CONFIG)
    now = built(where.open(), delta=delta).get_state(CONFIG).values["messages"]
    assert now[:-2] == before.values["messages"]


def until_it_is_made_of_others(graph: Any, saver: Saver) -> None:
    """Go on until the last checkpoint holds no snapshot of its messages."""
    for turn in range(3):
        found = saver.get_tuple(CONFIG)
        if found is not None and "messages" not in found.checkpoint["channel_values"]:
            return
        said = HumanMessage("one more", id=f"more-{turn}")
        graph.invoke({"todo": [("fan", 0)], "messages": [said]}, CONFIG, durability="sync")
    raise AssertionError


def test_a_thread_that_is_pruned_again_and_again_stays_small(where: Where) -> None:
    saver = where.open()
    graph = answering(saver)
    sizes = []
    for turn in range(6):
        graph.invoke({"messages": [HumanMessage(f"turn {turn}")]}, CONFIG)
        saver.prune([THREAD])
        sizes.append(saver._threads.get(THREAD).current().size)  # noqa: SLF001
    assert [one.content for one in graph.get_state(CONFIG).values["messages"]][::2] == [
        f"turn {turn}" for turn in range(6)
    ]
    grown = [after - before for before, after in pairwise(sizes)]
    assert max(grown) < 700


def test_runs_are_removed_and_their_neighbours_stay(where: Where) -> None:
    saver = where.open()
    graph = answering(saver)
    for turn in range(3):
        config = {**CONFIG, "metadata": {"run_id": f"run-{turn}"}}
        graph.invoke({"messages": [HumanMessage(f"SECRET {turn}")]}, config)
    saver.delete_for_runs(["run-1", "no such run"])
    left = [one.metadata.get("run_id") for one in saver.list(CONFIG)]
    assert set(left) == {"run-0", "run-2"}
    state = answering(where.open()).get_state(CONFIG)
    assert len(state.values["messages"]) == 6
    assert is_whole(where)


def test_what_a_delta_needs_is_not_removed_with_a_run(where: Where) -> None:
    saver = where.open()
    graph = built(saver, delta=True)
    for turn in range(6):
        config = {**CONFIG, "metadata": {"run_id": f"run-{turn}"}}
        said = HumanMessage("x", id=f"h{turn}")
        graph.invoke({"todo": [("fan", 0)], "messages": [said]}, config, durability="sync")
    before = told(graph)
    with pytest.raises(Conflict, match="DeltaChannel"):
        saver.delete_for_runs(["run-0", "run-1", "run-2", "run-3"])
    assert told(graph) == before


def test_a_copy_is_the_same_and_goes_its_own_way(where: Where) -> None:
    saver = where.open()
    talked(saver, delta=True)
    saver.copy_thread(THREAD, "copy")
    copied: Any = {"configurable": {"thread_id": "copy"}}
    graph = built(where.open(), delta=True)
    assert graph.get_state(copied).values == graph.get_state(CONFIG).values
    graph.invoke({"todo": [("say", 9)], "messages": []}, copied)
    assert len(graph.get_state(copied).values["messages"]) > len(
        graph.get_state(CONFIG).values["messages"]
    )
    with pytest.raises(Conflict, match="exists"):
        saver.copy_thread(THREAD, "copy")
    saver.delete_thread(THREAD)
    assert graph.get_state(copied).values["messages"]
    assert is_whole(where)


@pytest.mark.parametrize("how", ["delete", "prune", "async"])
def test_nothing_is_left_of_a_thread(where: Where, tmp_path: Path, how: str) -> None:
    saver = where.open()
    answering(saver).invoke({"messages": [HumanMessage("SECRET " * 20_000)]}, CONFIG)
    answering(saver).invoke(
        {"messages": [HumanMessage("kept")]}, {"configurable": {"thread_id": "2"}}
    )
    if how == "delete":
        saver.delete_thread(THREAD)
    elif how == "prune":
        saver.prune([THREAD], strategy="delete")
    else:
        asyncio.run(saver.adelete_thread(THREAD))
    assert saver.get_tuple(CONFIG) is None
    assert [one.config["configurable"]["thread_id"] for one in saver.list(None)] == ["2"] * 3
    with open_backend(where.url) as backend:
        assert len(list(backend.sessions())) == 1
    if where.kind == "sqlite":
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert not [path for path in files if b"SECRET" in path.read_bytes()]
    saver.delete_thread("never was")


def test_a_run_does_not_bring_back_what_was_removed(where: Where) -> None:
    saver = where.open()
    answering(saver).invoke({"messages": [HumanMessage("x")]}, CONFIG)
    loaded = saver.get_tuple(CONFIG)
    assert loaded is not None
    where.open().delete_thread(THREAD)
    with pytest.raises(Conflict, match="removed"):
        saver.put_writes(loaded.config, [("messages", "late")], "task")
    with pytest.raises(Conflict, match="removed"):
        saver.put(loaded.config, {**loaded.checkpoint, "id": "9"}, {}, {})
    with open_backend(where.url) as backend:
        assert [one for one in backend.sessions() if one.seq] == []
    # A new turn begins anew.
    done = answering(saver).invoke({"messages": [HumanMessage("again")]}, CONFIG)
    assert len(done["messages"]) == 2


def test_what_was_not_used_for_long_is_swept(where: Where) -> None:
    saver = where.open(ttl=0.5)
    for thread in ("old", "odd § name", "new"):
        if thread == "new":
            time.sleep(0.6)
        config: Any = {"configurable": {"thread_id": thread}}
        answering(saver).invoke({"messages": [HumanMessage("x")]}, config)
    with open_backend(where.url) as backend:
        lease = backend.acquire("somebody-elses")
        backend.release(lease)
    assert saver.sweep() == 2
    assert {one.config["configurable"]["thread_id"] for one in saver.list(None)} == {"new"}
    with open_backend(where.url) as backend:
        names = [one.session for one in backend.sessions()]
    assert names == ["langgraph.new", "somebody-elses"]
    with pytest.raises(UsageError, match="ttl"):
        where.open().sweep()


def test_a_session_of_another_kind_is_no_thread(where: Where) -> None:
    with open_backend(where.url) as backend:
        lease = backend.acquire("langgraph.1")
        from lockstitch.journal.records import JournalEntry

        backend.append(lease, [JournalEntry("k", 1, b'{"kind":"said"}')], 0)
        backend.release(lease)
    saver = where.open()
    with pytest.raises(UsageError, match="not a LangGraph thread"):
        saver.get_tuple({"configurable": {"thread_id": "1"}})
    assert list(saver.list(None)) == []
