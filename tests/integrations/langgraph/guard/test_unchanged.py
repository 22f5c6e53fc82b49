"""What one writer does through a guard leaves the same threads behind as without one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from lockstitch.integrations.langgraph.guard import Guard
from tests.integrations.langgraph.guard.graphs import (
    THREAD,
    Delta,
    Notes,
    asking,
    chain,
    chat,
    noting,
    said,
)

# With what an id is written in: a message may get its own while it is saved in the background.
RANDOM = re.compile(r"(, id=')?([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})'?")


def _story(saver: Any) -> list[Any]:
    """All that a saver holds, without what is random."""
    found = [saved for saved in saver.list(THREAD) if saved.config["configurable"]]
    order = {saved.checkpoint["id"]: len(found) - index for index, saved in enumerate(found)}
    return [_told(saved, order) for saved in found]


def _told(saved: Any, order: dict[str, int]) -> tuple[Any, ...]:
    parent = saved.parent_config["configurable"]["checkpoint_id"] if saved.parent_config else None
    metadata = {key: value for key, value in saved.metadata.items() if key != "parents"}
    writes = sorted(f"{channel} {value!r}" for _, channel, value in saved.pending_writes or ())
    values = sorted(saved.checkpoint["channel_values"].items())
    space = saved.config["configurable"]["checkpoint_ns"]
    parts = (space, repr(metadata), repr(values), *writes)
    return (order.get(parent or ""), *(RANDOM.sub("", part) for part in parts))


def _chatting(saver: Any) -> None:
    graph = chat(saver)
    for name in ("one", "two", "three"):
        graph.invoke(said(name), THREAD)


def _exit(saver: Any) -> None:
    graph = chat(saver)
    for name in ("one", "two", "three"):
        graph.invoke(said(name), THREAD, durability="exit")


def _delta(saver: Any) -> None:
    graph = chat(saver, state=Delta)
    for durability in ("sync", "exit", "async"):
        graph.invoke(said(durability), THREAD, durability=durability)
    assert len(graph.get_state(THREAD).values["messages"]) == 6


def _time_travel(saver: Any) -> None:
    """LangGraph's own example: go back, run on, go back again and change the past."""
    graph = chain(saver, noting("one"), noting("two"))
    graph.invoke({"notes": ["start"]}, THREAD)
    states = list(graph.get_state_history(THREAD))
    past = next(state for state in states if state.next == ("node1",))
    assert graph.invoke(None, past.config)["notes"] == ["start", "one", "two"]
    fork = graph.update_state(past.config, {"notes": ["changed"]})
    assert graph.invoke(None, fork)["notes"] == ["start", "one", "changed", "two"]
    assert graph.get_state(THREAD).values["notes"] == ["start", "one", "changed", "two"]


def _new_input_in_the_past(saver: Any) -> None:
    graph = chat(saver)
    for name in ("one", "two"):
        graph.invoke(said(name), THREAD)
    past = list(graph.get_state_history(THREAD))[3]
    graph.invoke(said("instead"), past.config)
    assert len(graph.get_state(THREAD).values["messages"]) == 4


def _copies(saver: Any) -> None:
    graph = chain(saver, noting("one"), noting("two"))
    graph.invoke({"notes": ["start"]}, THREAD)
    for state in list(graph.get_state_history(THREAD)):
        graph.update_state(state.config, None, as_node="__copy__")


def _updates(saver: Any) -> None:
    graph = chain(saver, noting("one"), noting("two"))
    graph.update_state(THREAD, {"notes": ["first"]}, as_node="__start__")
    graph.invoke({"notes": ["start"]}, THREAD)
    head = graph.get_state(THREAD)
    graph.update_state(head.config, {"notes": ["by id"]})
    graph.update_state(THREAD, {"notes": ["a"]}, as_node="node0")
    graph.invoke(None, THREAD)
    graph.update_state(THREAD, None, as_node="__end__")


def _questions(saver: Any) -> None:
    graph = chain(saver, noting("one"), asking("ok?"), asking("sure?"))
    graph.invoke({"notes": ["start"]}, THREAD)
    assert graph.get_state(THREAD).next == ("node1",)
    graph.invoke(Command(resume="yes"), THREAD)
    head = graph.get_state(THREAD)
    assert graph.invoke(Command(resume="no"), head.config)["notes"][-1] == "sure?: no"


def _breakpoints(saver: Any) -> None:
    graph = chain(saver, noting("one"), noting("two"), interrupt_before=["node1"])
    graph.invoke({"notes": ["start"]}, THREAD)
    graph.update_state(THREAD, {"notes": ["by hand"]})
    assert graph.invoke(None, THREAD)["notes"] == ["start", "one", "by hand", "two"]


def _failing(saver: Any) -> None:
    fails = [True]

    def second(_: Any) -> Any:
        if fails.pop():
            raise ZeroDivisionError
        return {"notes": ["two"]}

    graph = chain(saver, noting("one"), second)
    with suppress(ZeroDivisionError):
        graph.invoke({"notes": ["start"]}, THREAD)
    fails.append(False)
    assert graph.invoke(None, THREAD)["notes"] == ["start", "one", "two"]


def _nested(inner: Any) -> Callable[[Any], None]:
    def play(saver: Any) -> None:
        graph = StateGraph(Notes)
        graph.add_node("before", noting("before"))
        graph.add_node("sub", inner)
        graph.add_edge(START, "before")
        graph.add_edge("before", "sub")
        outer = graph.compile(checkpointer=saver)
        outer.invoke({"notes": ["start"]}, THREAD)
        outer.get_state(THREAD, subgraphs=True)
        outer.invoke(Command(resume="yes"), THREAD)
        outer.invoke({"notes": ["again"]}, THREAD)
        outer.invoke(Command(resume="no"), THREAD)
        assert outer.get_state(THREAD).values["notes"][-1] == "ok?: no"

    return play


def _asleep(saver: Any) -> None:
    graph = chain(saver, noting("one"), noting("two"))

    async def main() -> None:
        await graph.ainvoke({"notes": ["start"]}, THREAD)
        past = [state async for state in graph.aget_state_history(THREAD)][1]
        await graph.ainvoke(None, past.config)
        fork = await graph.aupdate_state(past.config, {"notes": ["changed"]})
        await graph.ainvoke(None, fork)

    asyncio.run(main())


STORIES = {
    "chat": _chatting,
    "exit": _exit,
    "delta": _delta,
    "time travel": _time_travel,
    "new input in the past": _new_input_in_the_past,
    "copies": _copies,
    "updates": _updates,
    "questions": _questions,
    "breakpoints": _breakpoints,
    "failing": _failing,
    "subgraph": _nested(chain(None, noting("in"), asking("ok?"))),
    "subgraph with a memory": _nested(chain(True, noting("in"), asking("ok?"))),
    "in an event loop": _asleep,
}


@pytest.mark.parametrize("play", STORIES.values(), ids=STORIES)
def test_the_same_story_is_told(play: Callable[[Any], None]) -> None:
    bare, guarded = InMemorySaver(), Guard(InMemorySaver())
    play(bare)
    play(guarded)
    assert _story(guarded) == _story(bare)
    assert not guarded.forks


def _events(saver: Any) -> Iterator[Any]:
    graph = chat(saver)
    for name in ("one", "two"):
        for mode, event in graph.stream(
            said(name), THREAD, stream_mode=["values", "updates", "checkpoints", "tasks"]
        ):
            yield RANDOM.sub("", f"{mode} {event!r}")


def test_the_same_is_streamed() -> None:
    assert list(_events(Guard(InMemorySaver()))) == list(_events(InMemorySaver()))


def test_the_state_shows_nothing_of_a_guard() -> None:
    graph = chat(Guard(InMemorySaver()))
    graph.invoke(said("one"), THREAD)
    graph.invoke(said("two"), THREAD)
    state = graph.get_state(THREAD)
    assert set(state.config["configurable"]) == {"thread_id", "checkpoint_ns", "checkpoint_id"}
    assert set(state.metadata) == {"source", "step", "parents"}
