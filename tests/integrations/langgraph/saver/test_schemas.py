"""What the schemas of a graph name needs no ``allow``; everything else does."""

from __future__ import annotations

import asyncio
import operator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NewType, NotRequired

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import entrypoint
from langgraph.graph import START, StateGraph
from langgraph.types import Send, interrupt
from pydantic import BaseModel
from pydantic.v1 import BaseModel as OldModel
from typing_extensions import TypedDict

from lockstitch.errors import Unreadable, UsageError
from lockstitch.integrations.langgraph import Guard, Saver
from tests.integrations.langgraph.saver.test_safety import evil

CONFIG: Any = {"configurable": {"thread_id": "1"}}


class Colour(Enum):
    RED = "red"


class Spot(NamedTuple):
    x: int
    hue: Colour = Colour.RED


@dataclass
class Leaf:
    size: int
    twig: Leaf | None = None


class Part(BaseModel):
    name: str
    leaves: dict[str, list[Leaf]] = {}


class Old(OldModel):
    age: int


Mark = NewType("Mark", Spot)


class Payload(TypedDict):
    part: NotRequired[Part]


class Model(BaseModel):
    part: Part | None = None
    spots: Annotated[list[Spot], operator.add] = []
    payload: Payload = {}
    marks: tuple[Mark, ...] = ()


@dataclass
class Data:
    leaf: Leaf | None = None
    spots: Annotated[list[Spot], operator.add] = field(default_factory=list)
    colours: dict[str, Colour] = field(default_factory=dict)


class Typed(TypedDict, total=False):
    leaf: Leaf
    part: Part | None
    mark: Mark
    old: Old


class Other(BaseModel):
    word: str = ""


@dataclass
class Alone:
    value: Any = None


VALUES: dict[type, dict[str, Any]] = {
    Model: {
        "part": Part(name="p", leaves={"a": [Leaf(1, Leaf(2))]}),
        "spots": [Spot(1)],
        "payload": {"part": Part(name="q")},
        "marks": (Spot(5),),
    },
    Data: {"leaf": Leaf(1, Leaf(2)), "spots": [Spot(1)], "colours": {"r": Colour.RED}},
    Typed: {"leaf": Leaf(1), "part": Part(name="p"), "mark": Spot(2), "old": Old(age=3)},
}


def graph_of(schema: type, saver: Any, update: dict[str, Any]) -> Any:
    built = StateGraph(schema).add_node("act", lambda _state: update).add_edge(START, "act")
    return built.compile(checkpointer=saver)


@pytest.mark.parametrize("schema", VALUES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("is_guarded", [False, True], ids=["saver", "guard"])
def test_a_state_of_ones_own_classes_comes_back(path: Path, schema: type, is_guarded: bool) -> None:
    update = VALUES[schema]
    theirs = graph_of(schema, InMemorySaver(), update)
    theirs.invoke(schema(), CONFIG)
    expected = [one.values for one in theirs.get_state_history(CONFIG)]

    def opened(saver: Saver) -> Any:
        return graph_of(schema, Guard(saver) if is_guarded else saver, update)

    with Saver(f"sqlite:///{path}") as saver:
        opened(saver).invoke(schema(), CONFIG)
    # A new process has run nothing yet, and only looks.
    with Saver(f"sqlite:///{path}") as saver:
        graph = opened(saver)
        assert [one.values for one in graph.get_state_history(CONFIG)] == expected
        graph.invoke(schema(), CONFIG)
    with Saver(f"sqlite:///{path}") as saver:
        graph = opened(saver)
        assert [*saver.list(CONFIG)]


def test_it_is_so_for_who_awaits(path: Path) -> None:
    async def run() -> Any:
        async with Saver(f"sqlite:///{path}") as saver:
            await graph_of(Typed, saver, VALUES[Typed]).ainvoke({}, CONFIG)
        async with Saver(f"sqlite:///{path}") as saver:
            return await graph_of(Typed, saver, {}).aget_state(CONFIG)

    assert asyncio.run(run()).values == VALUES[Typed]


def test_the_classes_of_a_subgraph_are_known_to_its_parent(path: Path) -> None:
    def opened(saver: Any) -> Any:
        inner = StateGraph(Typed).add_node("ask", lambda _state: {"leaf": Leaf(interrupt("?"))})
        inner = inner.add_edge(START, "ask")
        outer = StateGraph(dict).add_node("inner", inner.compile()).add_edge(START, "inner")
        return outer.compile(checkpointer=saver)

    with Saver(f"sqlite:///{path}") as saver:
        opened(saver).invoke({"leaf": Leaf(1)}, CONFIG)
    with Saver(f"sqlite:///{path}") as saver:
        found = opened(saver).get_state(CONFIG, subgraphs=True)
        assert found.tasks[0].state.values == {"leaf": Leaf(1)}


def test_a_class_in_a_function_comes_back(path: Path) -> None:
    class Inside(BaseModel):
        text: str = ""

    class State(TypedDict):
        inside: Inside

    State.__annotations__["inside"] = Inside
    with Saver(f"sqlite:///{path}") as saver:
        graph = graph_of(State, saver, {"inside": Inside(text="x")})
        graph.invoke({"inside": Inside()}, CONFIG)
        assert graph.get_state(CONFIG).values == {"inside": Inside(text="x")}


def test_what_a_workflow_takes_and_gives_is_known(path: Path) -> None:
    def opened(saver: Any) -> Any:
        def work(given: Part) -> Leaf:
            return Leaf(len(given.name))

        # LangGraph does not read annotations that are texts.
        work.__annotations__.update({"given": Part, "return": Leaf})
        return entrypoint(checkpointer=saver)(work)

    with Saver(f"sqlite:///{path}") as saver:
        assert opened(saver).invoke(Part(name="four"), CONFIG) == Leaf(4)
    with Saver(f"sqlite:///{path}") as saver:
        assert opened(saver).get_state(CONFIG).values == Leaf(4)


def test_a_graph_that_is_given_its_saver_late_is_known(path: Path) -> None:
    with Saver(f"sqlite:///{path}") as saver:
        graph = graph_of(Typed, None, VALUES[Typed])
        graph.checkpointer = saver
        graph.invoke({}, CONFIG)
        assert graph.get_state(CONFIG).values == VALUES[Typed]


@pytest.mark.parametrize("value", [Other(word="it"), Alone(Other())], ids=repr)
def test_what_no_schema_names_is_refused_with_words(quick: Saver, value: Any) -> None:
    class State(TypedDict):
        anything: Any

    with pytest.raises(UsageError, match="nothing was written") as told:
        graph_of(State, quick, {"anything": value}).invoke({"anything": None}, CONFIG)
    assert type(value).__name__ in str(told.value) or "Other" in str(told.value)
    assert f"allow=[({__name__!r}" in str(told.value)
    assert "schemas" in str(told.value)
    assert "word" not in str(told.value)


def test_a_task_that_is_sent_is_known_by_its_node(path: Path) -> None:
    class Sent(TypedDict):
        leaf: Leaf

    class State(TypedDict):
        names: Annotated[list[str], operator.add]

    Sent.__annotations__["leaf"] = Leaf

    def work(state: Sent) -> dict[str, Any]:
        return {"names": [str(state["leaf"].size)]}

    work.__annotations__["state"] = Sent
    with Saver(f"sqlite:///{path}") as saver:
        built = StateGraph(State).add_node("go", lambda _state: None).add_node("work", work)
        built.add_conditional_edges("go", lambda _state: [Send("work", {"leaf": Leaf(7)})])
        graph = built.add_edge(START, "go").compile(checkpointer=saver)
        graph.invoke({"names": []}, CONFIG)
        assert graph.get_state(CONFIG).values == {"names": ["7"]}


def test_nothing_runs_of_a_class_that_is_not_named(path: Path, tmp_path: Path) -> None:
    mark = tmp_path / "it ran"
    with Saver(f"sqlite:///{path}") as saver:
        graph_of(Model, saver, {}).invoke(Model(), CONFIG)
        with pytest.raises(Unreadable, match=r"os\.system"):
            saver.serde.loads_typed(("msgpack", evil(mark)))
    assert not mark.exists()


def test_other_savers_are_left_alone(tmp_path: Path) -> None:
    """A graph with LangGraph's own saver does what it did before ours was there."""
    with Saver(f"sqlite:///{tmp_path}/a.db"), SqliteSaver.from_conn_string(":memory:") as theirs:
        graph = graph_of(Typed, theirs, {**VALUES[Typed], "part": None})
        graph.invoke({}, CONFIG)
        assert graph.checkpointer is theirs
        assert graph.get_state(CONFIG).values["leaf"] == Leaf(1)
