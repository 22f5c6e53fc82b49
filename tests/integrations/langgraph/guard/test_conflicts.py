"""A second writer on a thread: what the first one is told, when, and what is kept."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState
from langgraph.types import Command

from lockstitch.errors import Conflict
from lockstitch.integrations.langgraph import Guard, Saver
from lockstitch.integrations.langgraph.optimistic_lock import RUN
from tests.integrations.langgraph.guard.graphs import (
    THREAD,
    Delta,
    achat,
    asking,
    chain,
    chat,
    later,
    lose,
    noting,
    said,
    texts,
)
from tests.integrations.langgraph.savers import ASYNC_SAVERS, SAVERS, address_of, on

STORES = ("memory", "sqlite", "postgres")
STATES = {"whole": MessagesState, "delta": Delta}
DURABILITIES = ("sync", "async", "exit")


@pytest.fixture(params=STORES)
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with SAVERS[request.param](address_of(request.param, tmp_path)) as opened:
        yield opened


@pytest.fixture
def store() -> InMemorySaver:
    return InMemorySaver()


def _other(saver: Any, durability: Any = "sync", state: Any = MessagesState) -> Any:
    """Another process, in a word: the turn of another run through a guard of its own."""
    graph = chat(Guard(saver), state=state)

    def turn() -> None:
        # The first run may be about to save its last step in the background.
        for _ in range(99):
            with suppress(Conflict):
                graph.invoke(said("b"), THREAD, durability=durability)
                return
        raise AssertionError("the other run never comes through")

    return turn


def _aother(saver: Any, durability: Any = "async") -> Any:
    graph = achat(Guard(saver), lambda: asyncio.sleep(0))

    async def turn() -> None:
        for _ in range(99):
            with suppress(Conflict):
                await graph.ainvoke(said("b"), THREAD, durability=durability)
                return
        raise AssertionError("the other run never comes through")

    return turn


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_run_that_is_taken_over_raises_and_the_other_is_kept(
    saver: Any, durability: Any, state: Any
) -> None:
    chat(Guard(saver), state=state).invoke(said("before"), THREAD)
    graph = chat(Guard(saver), _other(saver, durability, state), state)
    with pytest.raises(Conflict, match="thread 'shared'"):
        graph.invoke(said("a"), THREAD, durability=durability)
    # With "async" the first step of the run may not have been stored when the other began.
    taken_over = {"sync": [["a"]], "async": [["a"], []], "exit": [[]]}[durability]
    assert texts(graph)[2:-2] in taken_over
    assert texts(graph)[:2] + texts(graph)[-2:] == ["before", "done before", "b", "done b"]
    graph = chat(Guard(saver), state=state)
    graph.invoke(said("after"), THREAD, durability=durability)
    assert texts(graph)[-4:] == ["b", "done b", "after", "done after"]


@pytest.mark.parametrize("durability", DURABILITIES)
def test_the_conflict_comes_out_of_a_stream(store: InMemorySaver, durability: Any) -> None:
    graph = chat(Guard(store), _other(store, durability))
    with pytest.raises(Conflict):
        for _ in graph.stream(said("a"), THREAD, durability=durability):
            pass
    assert texts(graph)[-2:] == ["b", "done b"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("name", STORES)
def test_the_conflict_comes_out_of_an_event_loop(
    name: str, durability: Any, stream: bool, tmp_path: Path
) -> None:
    async def main() -> None:
        async with ASYNC_SAVERS[name](address_of(name, tmp_path)) as saver:
            graph = achat(Guard(saver), _aother(saver, durability))
            with pytest.raises(Conflict):
                await _had(graph, durability, stream=stream)
            state = await graph.aget_state(THREAD)
            assert [m.content for m in state.values["messages"]][-2:] == ["b", "done b"]

    asyncio.run(main())


async def _had(graph: Any, durability: Any, *, stream: bool) -> None:
    if stream:
        async for _ in graph.astream(said("a"), THREAD, durability=durability):
            pass
    else:
        await graph.ainvoke(said("a"), THREAD, durability=durability)


def test_with_sync_the_next_step_does_not_run(store: InMemorySaver) -> None:
    ran: list[str] = []

    def first(_: Any) -> Any:
        chain(Guard(store), noting("b")).invoke({"notes": []}, THREAD)
        return {"notes": ["a"]}

    def second(_: Any) -> Any:
        ran.append("second")
        return {"notes": ["never"]}

    with pytest.raises(Conflict):
        chain(Guard(store), first, second).invoke({"notes": []}, THREAD, durability="sync")
    assert ran == []


def test_nothing_is_written_by_a_run_that_finds_the_thread_moved_on(store: InMemorySaver) -> None:
    chat(Guard(store)).invoke(said("before"), THREAD)
    before: list[Any] = []

    def meanwhile() -> None:
        _other(store, "exit")()
        before.extend(store.list(THREAD))

    graph = chat(Guard(store), meanwhile)
    with pytest.raises(Conflict, match="nothing was written"):
        graph.invoke(said("a"), THREAD, durability="exit")
    assert len(list(store.list(THREAD))) == len(before)


def test_an_error_of_ones_own_is_raised_and_the_conflict_is_logged(
    store: InMemorySaver, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_: Any) -> Any:
        chain(Guard(store), noting("b")).invoke({"notes": []}, THREAD)
        raise ZeroDivisionError

    with caplog.at_level(logging.WARNING), pytest.raises(ZeroDivisionError):
        chain(Guard(store), failing).invoke({"notes": []}, THREAD, durability="exit")
    assert "thread 'shared'" in caplog.text


def test_two_runs_that_begin_a_thread(saver: Any) -> None:
    graph = chat(Guard(saver), _other(saver, "exit"))
    with pytest.raises(Conflict):
        graph.invoke(said("a"), THREAD, durability="exit")
    assert texts(graph) == ["b", "done b"]


def test_two_runs_of_one_guard(store: InMemorySaver) -> None:
    guard = Guard(store)
    other = chat(guard)
    graph = chat(guard, lambda: other.invoke(said("b"), THREAD, durability="exit"))
    for count in (2, 4):
        with pytest.raises(Conflict):
            graph.invoke(said("a"), THREAD, durability="exit")
        assert texts(graph) == ["b", "done b"] * (count // 2)


def test_a_look_at_the_state_takes_nothing_over(store: InMemorySaver) -> None:
    guard = Guard(store)
    reader = chat(guard)

    def look() -> None:
        assert reader.get_state(THREAD).values
        assert list(reader.get_state_history(THREAD))
        assert list(chat(store).get_state_history(THREAD))

    for name in ("a", "b"):
        chat(guard, look).invoke(said(name), THREAD)
    assert texts(reader) == ["a", "done a", "b", "done b"]


def test_an_update_meanwhile_is_another_writer(store: InMemorySaver) -> None:
    chat(Guard(store)).invoke(said("before"), THREAD)
    other = chat(Guard(store))
    graph = chat(Guard(store), lambda: other.update_state(THREAD, said("update")))
    with pytest.raises(Conflict):
        graph.invoke(said("a"), THREAD, durability="sync")
    assert texts(graph)[-1] == "update"


def test_whoever_loads_and_puts_by_hand_is_told_as_well(saver: Any) -> None:
    chat(Guard(saver)).invoke(said("before"), THREAD)
    guard = Guard(saver)
    loaded = guard.get_tuple(THREAD)
    assert loaded
    _other(saver)()
    body: Any = {**loaded.checkpoint, "id": later(loaded.checkpoint["id"])}
    with pytest.raises(Conflict, match="nothing was written"):
        guard.put(loaded.config, body, {"source": "update", "step": 9, "parents": {}}, {})


def test_a_deleted_thread_is_not_brought_back(saver: Any) -> None:
    chat(Guard(saver)).invoke(said("before"), THREAD)

    def delete() -> None:
        saver.delete_thread("shared")
        # The node is at work for longer than a run relies on what it saw last.
        time.sleep(0.2)

    graph = chat(Guard(saver), delete)
    with pytest.raises(Conflict, match="was removed"):
        graph.invoke(said("a"), THREAD, durability="sync")
    assert saver.get_tuple(THREAD) is None


def test_a_thread_that_is_deleted_in_the_last_moment_is_told(
    saver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the machine is, the run relies on what it saw last.
    monkeypatch.setattr("lockstitch.integrations.langgraph.guarded_runs._MOMENT", 3600.0)
    chat(Guard(saver)).invoke(said("before"), THREAD)
    graph = chat(Guard(saver), lambda: saver.delete_thread("shared"))
    with pytest.raises(Conflict, match=r"was removed .* delete the thread again") as caught:
        graph.invoke(said("a"), THREAD, durability="sync")
    assert caught.value.kept == "beside"
    assert [saved.checkpoint["id"] for saved in saver.list(THREAD)] == [caught.value.checkpoint]
    assert Guard(saver).get_tuple(THREAD) is None
    chat(Guard(saver)).invoke(said("new"), THREAD)
    assert texts(chat(Guard(saver))) == ["new", "done new"]


# What became of the turn


def test_a_conflict_says_that_nothing_was_written(store: InMemorySaver) -> None:
    chat(Guard(store)).invoke(said("before"), THREAD)
    graph = chat(Guard(store), _other(store, "exit"))
    with pytest.raises(Conflict, match="nothing was written") as caught:
        graph.invoke(said("a"), THREAD, durability="exit")
    assert (caught.value.kept, caught.value.checkpoint) == ("nothing", None)
    assert "a" not in texts(graph)


def test_a_conflict_says_that_the_turn_stands_beside_the_history(store: InMemorySaver) -> None:
    chat(Guard(store)).invoke(said("before"), THREAD)
    real, others = store.put, [_other(store)]

    def meanwhile(*args: Any) -> Any:
        """Another run has its turn between the last look and the put."""
        if others:
            others.pop()()
        return real(*args)

    store.put = meanwhile  # type: ignore[method-assign]
    graph = chat(Guard(store))
    with pytest.raises(Conflict, match="is not in its history") as caught:
        graph.invoke(said("a"), THREAD, durability="sync")
    assert caught.value.kept == "beside"
    stored = store.get_tuple(on("shared", checkpoint_ns="", checkpoint_id=caught.value.checkpoint))
    assert stored
    assert "'a'" in str(stored.checkpoint)
    assert "a" not in texts(graph)


def _lose_the_beginning(store: InMemorySaver) -> None:
    """Have others begin the thread after the first look of the next run that begins it."""
    real, others = store.list, [_other(store)]

    def meanwhile(*args: Any, **options: Any) -> Any:
        found = list(real(*args, **options))
        if others:
            mine = next(iter(real(THREAD)))
            body = {**empty_checkpoint(), "id": later(mine.checkpoint["id"])}
            # One that died before it had claimed what it put, and one that takes its place.
            store.put(on("shared", checkpoint_ns=""), body, {**mine.metadata, RUN: "dead"}, {})
            others.pop()()
        return found

    store.list = meanwhile  # type: ignore[method-assign]


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_thread_that_is_lost_at_its_beginning(store: InMemorySaver, durability: Any) -> None:
    _lose_the_beginning(store)
    graph = chat(Guard(store))
    begun = "another writer has built on the beginning of thread 'shared'"
    with pytest.raises(Conflict, match=begun) as caught:
        graph.invoke(said("a"), THREAD, durability=durability)
    assert caught.value.kept == "beside"
    stored = store.get_tuple(on("shared", checkpoint_ns="", checkpoint_id=caught.value.checkpoint))
    assert stored
    assert "'a'" in str(stored.checkpoint)
    assert texts(graph) == ["b", "done b"]
    # The guard of the run that lost takes nothing of it for a part of the history.
    graph.invoke(said("after"), THREAD, durability=durability)
    assert texts(graph) == ["b", "done b", "after", "done after"]


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_fork_of_a_thread_that_is_lost_at_its_beginning(
    store: InMemorySaver, durability: Any
) -> None:
    _lose_the_beginning(store)
    guard = Guard(store, on_conflict="fork")
    graph = chat(guard)
    graph.invoke(said("a"), THREAD, durability=durability)
    (fork,) = guard.forks
    assert fork.checkpoint is None
    assert texts(graph, on(fork.fork)) == ["a", "done a"]
    assert texts(graph) == ["b", "done b"]


@pytest.mark.parametrize("make", [Guard, lambda saver: saver], ids=["Guard", "Saver"])
def test_a_conflict_says_that_the_question_is_in_the_history(make: Any) -> None:
    with Saver("memory:") as saver:
        chat(make(saver)).invoke(said("before"), THREAD)
        other = chat(make(saver))
        graph = chat(make(saver), lambda: other.invoke(said("b"), THREAD))
        mine = HumanMessage("a", id="mine")
        with pytest.raises(Conflict, match="the same message id") as caught:
            graph.invoke({"messages": [mine]}, THREAD, durability="sync")
        assert caught.value.kept == "part"
        history = {state.config["configurable"]["checkpoint_id"] for state in _line(graph)}
        assert caught.value.checkpoint in history
        assert texts(graph) == ["before", "done before", "a", "b", "done b"]
        # Sent again under its id, it is not there twice.
        chat(make(saver)).invoke({"messages": [mine]}, THREAD)
        assert texts(graph).count("a") == 1


def _line(graph: Any) -> Iterator[Any]:
    """The history of the head, and nothing beside it."""
    state = graph.get_state(THREAD)
    while True:
        yield state
        if not state.parent_config:
            return
        state = graph.get_state(state.parent_config)


# Waiting in one process


@pytest.mark.parametrize("kind", ["memory", "Saver"])
def test_threads_that_wait_are_never_refused(kind: str, tmp_path: Path) -> None:
    saver = Saver(f"sqlite:///{tmp_path / 'own.db'}") if kind == "Saver" else InMemorySaver()
    guard = Guard(saver, wait=60)
    chat(guard).invoke(said("before"), THREAD)
    names = [f"turn {number}" for number in range(12)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: chat(guard).invoke(said(name), THREAD), names))
    told = texts(chat(guard))
    assert sorted(told[2::2]) == sorted(names)
    assert told[3::2] == [f"done {name}" for name in told[2::2]]


def test_tasks_that_wait_are_never_refused() -> None:
    guard = Guard(InMemorySaver(), wait=60)
    graph = achat(guard, lambda: asyncio.sleep(0.01))

    async def main() -> None:
        await graph.ainvoke(said("before"), THREAD)
        await asyncio.gather(*(graph.ainvoke(said(f"{n}"), THREAD) for n in range(6)))

    asyncio.run(main())
    assert sorted(texts(graph)[2::2]) == [f"{n}" for n in range(6)]


def test_nobody_waits_for_what_is_not_under_way() -> None:
    """Were any of these waited for, the test would not come to its end."""
    guard = Guard(InMemorySaver(), wait=3600)
    graph = chain(guard, noting("one"), asking("ok?"), noting("two"))
    graph.invoke({"notes": []}, THREAD)
    graph.invoke({"notes": ["something else"]}, THREAD)
    assert graph.invoke(Command(resume="yes"), THREAD)["notes"][-2:] == ["ok?: yes", "two"]
    graph.update_state(THREAD, {"notes": ["by hand"]}, as_node="node0")
    graph.invoke({"notes": ["more"]}, THREAD)
    for options in ({"interrupt_before": ["node1"]}, {"interrupt_after": ["node0"]}):
        stopping = chain(guard, noting("one"), noting("two"), **options)
        stopping.invoke({"notes": []}, on("stopping"))
        chain(Guard(guard.saver, wait=3600), noting("one"), noting("two"), **options).invoke(
            {"notes": []}, on("stopping")
        )
    # Nothing to do: a run that claims and writes nothing.
    plain = chain(guard, noting("one"))
    for given in ({"notes": []}, None, None, {"notes": []}):
        plain.invoke(given, on("plain"))

    def fails(_: Any) -> Any:
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            chain(Guard(guard.saver, wait=3600), fails).invoke({"notes": []}, on("failing"))

    def calls_itself(_: Any) -> Any:
        return plain.invoke({"notes": ["inside"]}, THREAD)

    with pytest.raises(Conflict):
        chain(guard, calls_itself).invoke({"notes": []}, THREAD)


# Forks


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_run_that_lost_goes_on_in_a_thread_of_its_own(
    saver: Any, durability: Any, state: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("one", "two"):
        chat(Guard(saver), state=state).invoke(said(name), THREAD)
    guard = Guard(saver, on_conflict="fork")
    graph = chat(guard, _other(saver, durability, state), state)
    with caplog.at_level(logging.WARNING):
        result = graph.invoke(said("a"), THREAD, durability=durability)
    told = ["one", "done one", "two", "done two"]
    assert [message.content for message in result["messages"]] == [*told, "a", "done a"]
    (fork,) = guard.forks
    assert fork.thread == "shared"
    assert fork.fork.startswith("shared-fork-")
    assert fork.fork in caplog.text
    assert texts(graph, on(fork.fork)) == [*told, "a", "done a"]
    assert texts(graph)[-2:] == ["b", "done b"]
    for thread in ("shared", fork.fork):
        chat(Guard(saver), state=state).invoke(said("after"), on(thread), durability=durability)
        assert texts(graph, on(thread))[-2:] == ["after", "done after"]
    assert texts(graph, on(fork.fork)) == [*told, "a", "done a", "after", "done after"]


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_a_fork_in_an_event_loop(name: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with ASYNC_SAVERS[name](address_of(name, tmp_path)) as saver:
            guard = Guard(saver, on_conflict="fork")
            graph = achat(guard, _aother(saver))
            await graph.ainvoke(said("a"), THREAD)
            (fork,) = guard.forks
            kept = (await graph.aget_state(on(fork.fork))).values["messages"]
            assert [message.content for message in kept] == ["a", "done a"]
            kept = (await graph.aget_state(THREAD)).values["messages"]
            assert [message.content for message in kept][-2:] == ["b", "done b"]

    asyncio.run(main())


def test_an_update_that_lost_says_where_it_went(store: InMemorySaver) -> None:
    chat(Guard(store)).invoke(said("before"), THREAD)
    guard = Guard(store, on_conflict="fork")
    real = store.put_writes
    others = [_other(store)]

    def meanwhile(*args: Any, **options: Any) -> Any:
        if others:
            others.pop()()
        return real(*args, **options)

    store.put_writes = meanwhile  # type: ignore[method-assign]
    config = chat(guard).update_state(THREAD, said("update"))
    assert config["configurable"]["thread_id"] == guard.forks[0].fork
    assert texts(chat(guard), on(guard.forks[0].fork)) == ["before", "done before", "update"]
    assert texts(chat(guard)) == ["before", "done before", "b", "done b"]


# Before a checkpointer of this project


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_guard_before_our_own_saver(durability: Any, tmp_path: Path) -> None:
    with Saver(f"sqlite:///{tmp_path / 'own.db'}") as saver:
        chat(Guard(saver)).invoke(said("before"), THREAD)
        graph = chat(Guard(saver), _other(saver, durability))
        with pytest.raises(Conflict):
            graph.invoke(said("a"), THREAD, durability=durability)
        assert texts(graph)[-2:] == ["b", "done b"]
        guard = Guard(saver, on_conflict="fork")
        graph = chat(guard, _other(saver, durability))
        graph.invoke(said("a"), THREAD, durability=durability)
        assert texts(graph, on(guard.forks[0].fork))[-2:] == ["a", "done a"]


def test_our_own_saver_leaves_it_to_the_guard_what_counts(tmp_path: Path) -> None:
    """What lost is the saver's newest checkpoint; it must not refuse all that is built beside."""
    url = f"sqlite:///{tmp_path / 'own.db'}"
    with Saver(url) as saver:
        graph = chat(Guard(saver))
        graph.invoke(said("a"), THREAD)
        with Saver(url) as other:
            lose(other, Guard(other))
        for name in ("b", "c"):
            graph.invoke(said(name), THREAD)
        assert texts(graph) == ["a", "done a", "b", "done b", "c", "done c"]


def test_a_run_that_two_event_loops_share(tmp_path: Path) -> None:
    """A lock of one loop wakes nobody in another; what waits in both must end."""
    with Saver(f"sqlite:///{tmp_path / 'own.db'}") as saver:
        guard = Guard(saver)
        chat(guard).invoke(said("a"), THREAD)
        loaded = guard.get_tuple(THREAD)
        assert loaded

        async def write(name: str) -> None:
            for number in range(20):
                task = f"{name}-{number}"
                await asyncio.gather(
                    *(guard.aput_writes(loaded.config, [("x", 1)], f"{task}-{n}") for n in range(3))
                )

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda name: asyncio.run(write(name)), ["one", "two"]))
        found = saver.get_tuple(loaded.config)
        assert found
        assert found.pending_writes
        assert len([each for each in found.pending_writes if each[1] == "x"]) == 120


class Late(InMemorySaver):
    """Where a run that was taken over writes once more, right before the next checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[Any] = []

    def put(self, config: Any, *words: Any) -> Any:
        for task in [self.late.pop() for _ in list(self.late)]:
            self.put_writes(config, [("messages", [AIMessage("late")])], task)
        return super().put(config, *words)


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_a_late_write_is_in_no_history_that_nobody_has_seen(state: Any) -> None:
    saver = Late()
    graph = chat(Guard(saver), state=state)
    graph.invoke(said("a"), THREAD)
    saver.late.append("00000000-0000-4000-8000-000000000000")
    if state is Delta:
        # What a delta channel holds is what was written: the run would not know its own thread.
        with pytest.raises(Conflict):
            graph.invoke(said("b"), THREAD, durability="sync")
    else:
        graph.invoke(said("b"), THREAD, durability="sync")
        assert texts(graph) == ["a", "done a", "b", "done b"]
    seen = graph.invoke(said("c"), THREAD, durability="sync")["messages"]
    assert [message.content for message in seen][-2:] == ["c", "done c"]
    assert texts(graph) == [message.content for message in seen]
