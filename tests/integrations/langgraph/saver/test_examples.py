"""LangGraph's own examples of persistence, time travel and forks, as its documentation has them."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, NotRequired, TypedDict

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt

from lockstitch.integrations.langgraph import Saver


class Joke(TypedDict):
    topic: NotRequired[str]
    joke: NotRequired[str]


def generate_topic(_state: Joke) -> dict[str, Any]:
    return {"topic": "socks in the dryer"}


def write_joke(state: Joke) -> dict[str, Any]:
    return {"joke": f"A joke about {state['topic']}"}


def jokes(saver: Saver) -> Any:
    workflow = StateGraph(Joke)
    workflow.add_node("generate_topic", generate_topic)
    workflow.add_node("write_joke", write_joke)
    workflow.add_edge(START, "generate_topic")
    workflow.add_edge("generate_topic", "write_joke")
    workflow.add_edge("write_joke", END)
    return workflow.compile(checkpointer=saver)


def test_time_travel(saver: Saver) -> None:
    graph = jokes(saver)
    config: Any = {"configurable": {"thread_id": uuid.uuid4()}}
    state = graph.invoke({}, config)
    assert state["joke"] == "A joke about socks in the dryer"

    states = list(graph.get_state_history(config))
    assert [one.next for one in states] == [
        (),
        ("write_joke",),
        ("generate_topic",),
        ("__start__",),
    ]

    selected_state = states[1]
    new_config = graph.update_state(selected_state.config, values={"topic": "chickens"})
    assert graph.invoke(None, new_config)["joke"] == "A joke about chickens"

    # The branch is the thread's end now, and the old one is still there.
    assert graph.get_state(config).values["joke"] == "A joke about chickens"
    assert graph.get_state(states[0].config).values["joke"] == "A joke about socks in the dryer"
    history = [
        one.config["configurable"]["checkpoint_id"] for one in graph.get_state_history(config)
    ]
    assert {one.config["configurable"]["checkpoint_id"] for one in states} < set(history)


def test_replay(saver: Saver) -> None:
    graph = jokes(saver)
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke({"topic": "x"}, config)
    before_joke = next(s for s in graph.get_state_history(config) if s.next == ("write_joke",))
    assert graph.invoke(None, before_joke.config)["joke"].endswith("dryer")
    assert graph.get_state(config).next == ()


class Persisted(TypedDict):
    foo: str
    bar: Annotated[list[str], lambda left, right: left + right]


def test_the_states_of_the_page_on_persistence(saver: Saver) -> None:
    workflow = StateGraph(Persisted)
    workflow.add_node("node_a", lambda _state: {"foo": "a", "bar": ["a"]})
    workflow.add_node("node_b", lambda _state: {"foo": "b", "bar": ["b"]})
    workflow.add_edge(START, "node_a")
    workflow.add_edge("node_a", "node_b")
    workflow.add_edge("node_b", END)
    graph = workflow.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke({"foo": "", "bar": []}, config)
    assert graph.get_state(config).values == {"foo": "b", "bar": ["a", "b"]}
    assert len(list(graph.get_state_history(config))) == 4
    graph.update_state(config, {"foo": "2", "bar": ["b"]})
    assert graph.get_state(config).values == {"foo": "2", "bar": ["a", "b", "b"]}
    assert [one.metadata["source"] for one in graph.get_state_history(config, limit=2)] == [
        "update", "loop"
    ]  # fmt: skip
    found = list(graph.get_state_history(config, filter={"source": "loop"}))
    assert [one.metadata["step"] for one in found] == [2, 1, 0]


class Asking(TypedDict):
    messages: Annotated[list[Any], add_messages]
    answers: Annotated[list[str], lambda left, right: left + right]


def test_a_person_is_asked_and_answers(saver: Saver) -> None:
    def ask(_state: Asking) -> dict[str, Any]:
        answer = interrupt("may I?")
        return {"answers": [answer], "messages": [AIMessage(f"you said {answer}")]}

    graph = StateGraph(Asking).add_node(ask).add_edge(START, "ask").compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke({"messages": [HumanMessage("go")], "answers": []}, config)
    assert graph.get_state(config).next == ("ask",)
    assert graph.get_state(config).interrupts[0].value == "may I?"
    done = graph.invoke(Command(resume="yes"), config)
    assert done["answers"] == ["yes"]
    assert [one.content for one in done["messages"]] == ["go", "you said yes"]
    # Asked once more, on a branch from before the question.
    before = next(s for s in graph.get_state_history(config) if s.next == ("__start__",))
    graph.invoke(None, before.config)
    assert graph.invoke(Command(resume="no"), config)["answers"] == ["no"]


def test_two_are_asked_at_once(saver: Saver) -> None:
    def ask(name: str) -> Any:
        def node(_state: Asking) -> dict[str, Any]:
            return {"answers": [f"{name} {interrupt(name)}"]}

        return node

    builder = StateGraph(Asking)
    for name in ("left", "right"):
        builder.add_node(name, ask(name))
        builder.add_edge(START, name)
    graph = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke({"messages": [], "answers": []}, config)
    asked = graph.get_state(config).interrupts
    assert sorted(one.value for one in asked) == ["left", "right"]
    resume = {one.id: f"answered {number}" for number, one in enumerate(asked)}
    done = graph.invoke(Command(resume=resume), config)
    assert sorted(done["answers"]) == ["left answered 0", "right answered 1"]
