"""Going back, replaying and branching: the same as with LangGraph's own checkpointer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, StateUpdate

from tests.integrations.langgraph.guard.graphs import THREAD, Notes, asking, chain, noting
from tests.integrations.langgraph.running.wrapped import KINDS


def _two(saver: Any) -> Any:
    """Two nodes; begun, and run to the end."""
    graph = chain(saver, noting("a"), noting("b"))
    graph.invoke({"notes": ["in"]}, THREAD)
    return graph


def _before(graph: Any, name: str) -> Any:
    """The newest state in front of a node."""
    return next(state for state in graph.get_state_history(THREAD) if state.next == (name,))


def _around(saver: Any, inner: Any) -> Any:
    graph = StateGraph(Notes)
    graph.add_node("before", noting("before"))
    graph.add_node("sub", inner)
    graph.add_node("after", noting("after"))
    graph.add_edge(START, "before")
    graph.add_edge("before", "sub")
    graph.add_edge("sub", "after")
    return graph.compile(checkpointer=saver)


def _replayed_memory(saver: Any) -> Any:
    """Replay a turn whose subgraph has a memory, and have another turn after that."""
    seen: list[Any] = []

    def remember(state: Any) -> Any:
        seen.append(list(state["notes"]))
        return {"notes": ["s"]}

    graph = _around(saver, chain(True, remember))
    for text in ("one", "two"):
        graph.invoke({"notes": [text]}, THREAD)
    graph.invoke(None, _before(graph, "before").config)
    graph.invoke({"notes": ["three"]}, THREAD)
    return seen, graph.get_state(THREAD).values


def _another_answer(saver: Any) -> Any:
    """Replay a question of a subgraph with a memory, and answer it differently."""
    graph = _around(saver, chain(True, noting("a"), asking("ok?")))
    graph.invoke({"notes": []}, THREAD)
    graph.invoke(Command(resume="OLD"), THREAD)
    graph.invoke(None, _before(graph, "sub").config)
    return graph.invoke(Command(resume="NEW"), THREAD)


def _another_answer_awaited(saver: Any) -> Any:
    graph = _around(saver, chain(True, noting("a"), asking("ok?")))

    async def main() -> Any:
        await graph.ainvoke({"notes": []}, THREAD)
        await graph.ainvoke(Command(resume="OLD"), THREAD)
        states = [state async for state in graph.aget_state_history(THREAD)]
        old = next(state for state in states if state.next == ("sub",))
        await graph.ainvoke(None, old.config)
        return await graph.ainvoke(Command(resume="NEW"), THREAD)

    return asyncio.run(main())


def _forked_memory(saver: Any) -> Any:
    """Change the past in front of a subgraph with a memory, twice, and go on from each."""
    graph = _around(saver, chain(True, noting("in")))
    for text in ("one", "two"):
        graph.invoke({"notes": [text]}, THREAD)
    old = _before(graph, "sub")
    made = []
    for text in ("x", "y"):
        fork = graph.update_state(old.config, {"notes": [text]}, as_node="before")
        made.append(graph.invoke(None, fork))
    graph.invoke({"notes": ["three"]}, THREAD)
    return made, graph.get_state(THREAD).values


def _inside_a_subgraph(saver: Any) -> Any:
    """Go back to a checkpoint of the subgraph itself."""
    graph = _around(saver, chain(True, noting("a"), asking("ok?"), noting("c")))
    graph.invoke({"notes": []}, THREAD)
    inner = graph.get_state(THREAD, subgraphs=True).tasks[0].state
    graph.invoke(Command(resume="OLD"), THREAD)
    graph.invoke(None, inner.config)
    return graph.invoke(Command(resume="NEW"), THREAD)


def _copied(saver: Any) -> Any:
    graph = _two(saver)
    copy = graph.update_state(_before(graph, "node1").config, None, as_node="__copy__")
    return graph.get_state(copy).metadata["source"], graph.invoke(None, copy)


def _copied_and_changed(saver: Any) -> Any:
    """A step that is edited and run again."""
    graph = _two(saver)
    step = [StateUpdate({"notes": ["a*"]}, "node0")]
    copy = graph.update_state(_before(graph, "node1").config, step, as_node="__copy__")
    return graph.invoke(None, copy)


def _beginning_copied(saver: Any) -> Any:
    graph = _two(saver)
    first = list(graph.get_state_history(THREAD))[-1]
    step = [StateUpdate({"notes": ["in*"]}, "__start__")]
    return graph.invoke(None, graph.update_state(first.config, step, as_node="__copy__"))


def _fork_of_a_fork(saver: Any) -> Any:
    made = [_beginning_copied(saver)]
    graph = chain(saver, noting("a"), noting("b"))
    step = [StateUpdate({"notes": ["a*"]}, "node0")]
    for _ in range(2):
        copy = graph.update_state(_before(graph, "node0").config, step, as_node="__copy__")
        made.append(graph.invoke(None, copy))
    graph.invoke({"notes": ["more"]}, THREAD)
    return made, graph.get_state(THREAD).values


def _copied_awaited(saver: Any) -> Any:
    graph = _two(saver)
    old = _before(graph, "node1")

    async def main() -> Any:
        copy = await graph.aupdate_state(old.config, None, as_node="__copy__")
        return await graph.ainvoke(None, copy)

    return asyncio.run(main())


def _several_steps(saver: Any) -> Any:
    graph = _two(saver)
    steps = [[StateUpdate({"notes": ["x"]}, "node0")], [StateUpdate({"notes": ["y"]}, "node1")]]
    made = graph.bulk_update_state(THREAD, steps)
    return graph.get_state(made).values


STORIES = {
    "a replay through a memory": _replayed_memory,
    "another answer": _another_answer,
    "another answer, awaited": _another_answer_awaited,
    "forks through a memory": _forked_memory,
    "inside a subgraph": _inside_a_subgraph,
    "a copy": _copied,
    "a copy that is changed": _copied_and_changed,
    "the beginning, copied": _beginning_copied,
    "a fork of a fork": _fork_of_a_fork,
    "a copy, awaited": _copied_awaited,
    "several steps": _several_steps,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("play", STORIES.values(), ids=STORIES)
def test_time_travel_is_the_same(play: Callable[[Any], Any], kind: str) -> None:
    assert play(KINDS[kind]()) == play(InMemorySaver())
