"""A graph that does what its input says, and programs of runs, forks and answers for it."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.errors import EmptyInputError
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.types import Command, Send, interrupt

Order = tuple[str, int]


class State(TypedDict, total=False):
    todo: list[Order]
    messages: Annotated[list[Any], add_messages]
    log: Annotated[list[Any], operator.add]
    total: Annotated[int, operator.add]
    note: dict[str, Any]


class DeltaState(TypedDict, total=False):
    todo: list[Order]
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer, snapshot_frequency=3)]
    log: Annotated[list[Any], operator.add]
    total: Annotated[int, operator.add]
    note: dict[str, Any]


def act(state: dict[str, Any]) -> dict[str, Any]:
    """Carry out the first order."""
    (name, number), *rest = state["todo"]
    messages = state.get("messages") or []
    return {"todo": rest, **_DEEDS[name](number, messages, state)}


def _say(number: int, messages: Sequence[Any], _state: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [AIMessage(f"reply {number}", id=f"ai-{len(messages)}-{number}")]}


def _call(number: int, messages: Sequence[Any], _state: dict[str, Any]) -> dict[str, Any]:
    calls = [{"name": "look", "args": {"n": number}, "id": f"c{len(messages)}"}]
    call = AIMessage("", id=f"call-{len(messages)}", tool_calls=calls)
    result = ToolMessage("found", tool_call_id=f"c{len(messages)}", id=f"r-{len(messages)}")
    return {"messages": [call, result], "log": [{"called": [number]}, number]}


def _remove(number: int, messages: Sequence[Any], _state: dict[str, Any]) -> dict[str, Any]:
    if not messages:
        return {"total": 1}
    return {"messages": [RemoveMessage(id=messages[number % len(messages)].id)]}


def _change(number: int, messages: Sequence[Any], _state: dict[str, Any]) -> dict[str, Any]:
    if not messages:
        return {"log": []}
    old = messages[number % len(messages)]
    return {"messages": [HumanMessage(f"changed {number}", id=old.id)]}


def _mutate(number: int, messages: Sequence[Any], _state: dict[str, Any]) -> dict[str, Any]:
    """What nobody should do: change a message in place, and say something else."""
    if messages:
        messages[number % len(messages)].additional_kwargs["touched"] = number
    return {"messages": [AIMessage("I changed it", id=f"m-{len(messages)}-{number}")]}


def _ask(number: int, _messages: Sequence[Any], _state: dict[str, Any]) -> dict[str, Any]:
    answer = interrupt({"may I": number})
    return {"note": {"answer": answer}, "log": [answer], "total": 10}


def _fan(number: int, _messages: Sequence[Any], _state: dict[str, Any]) -> dict[str, Any]:
    return {"note": {"fan": number % 4, "nested": {"list": [1, (2, 3)]}}}


def _fail(number: int, _messages: Sequence[Any], _state: dict[str, Any]) -> dict[str, Any]:
    raise RuntimeError(f"failed {number}")


_DEEDS: dict[str, Any] = {
    "say": _say,
    "call": _call,
    "remove": _remove,
    "change": _change,
    "mutate": _mutate,
    "ask": _ask,
    "fan": _fan,
    "fail": _fail,
}


def follow(state: dict[str, Any]) -> Any:
    note = state.get("note") or {}
    if fans := note.get("fan"):
        return [Send("work", {"n": n, "seen": (state.get("messages") or [])}) for n in range(fans)]
    return "act" if state.get("todo") else END


def work(arg: dict[str, Any]) -> dict[str, Any]:
    done = {"log": [f"work {arg['n']} after {len(arg['seen'])}"], "total": arg["n"]}
    return done if arg["n"] else {**done, "note": {"fan": 0}}


def after_work(state: dict[str, Any]) -> Any:
    return "act" if state.get("todo") else END


def built(saver: Any, *, delta: bool = False) -> Any:
    graph = StateGraph(DeltaState if delta else State)
    graph.add_node("act", act)
    graph.add_node("work", work)
    graph.add_conditional_edges(START, lambda state: "act" if state.get("todo") else END)
    graph.add_conditional_edges("act", follow, ["act", "work", END])
    graph.add_conditional_edges("work", after_work, ["act", END])
    return graph.compile(checkpointer=saver)


CONFIG = {"configurable": {"thread_id": "a thread / with § odd id"}}


def _orders(names: set[str]) -> st.SearchStrategy[list[Order]]:
    one = st.tuples(st.sampled_from(sorted(names)), st.integers(0, 5))
    return st.lists(one, min_size=1, max_size=5)


orders = _orders(set(_DEEDS))
# While a checkpoint is stored in the background, a change in place is in it by chance.
calm = _orders(set(_DEEDS) - {"mutate"})
# What a run's input may be, and where in the history it begins: -1 at the head.
steps = st.one_of(
    st.tuples(st.just("invoke"), orders, st.sampled_from(["sync", "exit"]), st.just(-1)),
    st.tuples(st.just("invoke"), calm, st.just("async"), st.just(-1)),
    st.tuples(st.just("update"), orders, st.just(""), st.integers(-1, 12)),
    st.tuples(st.just("replay"), st.just([]), st.just("sync"), st.integers(0, 12)),
    st.tuples(st.just("answer"), st.just([]), st.just("sync"), st.just(-1)),
    st.tuples(st.just("reopen"), st.just([]), st.just(""), st.just(-1)),
)
Step = tuple[str, list[Order], str, int]


def run(graph: Any, step: Step, number: int) -> str:
    """Do one step of a program; gives what it raised, as its orders may say."""
    place = step[3]
    config: Any = CONFIG
    if place >= 0:
        history = list(graph.get_state_history(CONFIG))
        if not history:
            return "nothing"
        config = history[place % len(history)].config
    try:
        _do(graph, step, number, config)
    except (RuntimeError, EmptyInputError) as error:
        return type(error).__name__
    return "done"


def _do(graph: Any, step: Step, number: int, config: Any) -> None:
    name, todo, durability, _place = step
    if name == "invoke":
        said = HumanMessage(f"turn {number}", id=f"h-{number}")
        graph.invoke({"todo": todo, "messages": [said]}, config, durability=durability)
    elif name == "update":
        update = {"todo": todo, "messages": [HumanMessage("edited", id=f"e-{number}")]}
        graph.update_state(config, update, as_node="act")
    elif name == "replay":
        graph.invoke(None, config, durability=durability)
    elif name == "answer":
        graph.invoke(Command(resume=f"yes {number}"), config, durability=durability)


def told(graph: Any) -> list[Any]:
    """What a graph's history says, without the ids that chance makes."""
    history = list(graph.get_state_history(CONFIG))
    place = {one.config["configurable"]["checkpoint_id"]: n for n, one in enumerate(history)}
    return [_told(one, place) for one in history]


def _told(one: Any, place: dict[str, int]) -> Any:
    parent = one.parent_config and one.parent_config["configurable"]["checkpoint_id"]
    tasks = [
        (task.name, task.error, [asked.value for asked in task.interrupts], _plain(task.result))
        for task in one.tasks
    ]
    return (_plain(one.values), one.next, _plain(one.metadata), place.get(parent), tasks)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return (type(value).__name__, value.model_dump())
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value
