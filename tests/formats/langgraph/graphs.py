"""Real graphs over the real ``SqliteSaver``: threads that are whole, cut off, or wait for a person.

``python -m tests.formats.langgraph.graphs DATABASE`` makes all threads, and ends by killing itself
in the middle of a batch. The same graphs then take the threads up again.
"""

from __future__ import annotations

import operator
import os
import signal
import sqlite3
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypedDict
from uuid import UUID

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.prebuilt import create_react_agent
from langgraph.types import Command, Send, interrupt

from tests.integrations.langgraph.scripted import Scripted

FAST, STUCK, ASKS = "fast", "stuck", "asks"
BATCH = (FAST, STUCK, FAST)
RESULT = "the result of {}"


class Halted(BaseException):
    """How a run ends here that a person, or the machine, breaks off."""


class Colour(Enum):
    """One of a state's own values."""

    RED = "red"


@dataclass
class Note:
    """An object of the application in its state."""

    text: str
    colour: Colour
    seen: set[str]


class State(TypedDict):
    """A conversation, and more."""

    messages: Annotated[list[AnyMessage], add_messages]
    steps: Annotated[list[str], operator.add]
    note: Note
    when: datetime
    token: UUID


class Deltas(TypedDict):
    """A conversation of which only changes are stored."""

    messages: Annotated[
        list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=5)
    ]
    steps: Annotated[list[str], operator.add]


class Plain(TypedDict):
    """Messages as plain maps, which no reducer makes objects of."""

    messages: Annotated[list[dict[str, Any]], operator.add]


def calling(*names: str, prefix: str = "call") -> AIMessage:
    """A reply that calls these tools at once."""
    calls = [
        {"name": name, "args": {"job": f"{prefix}_{n}"}, "id": f"{prefix}_{n}", "type": "tool_call"}
        for n, name in enumerate(names)
    ]
    return AIMessage("On it.", tool_calls=calls)


Stop = Callable[[], None]


def tools(stop: Stop) -> list[Any]:
    """A tool that returns, one that is broken off, and one that asks a person."""

    @tool
    def fast(job: str) -> str:
        """Do it at once."""
        return RESULT.format(job)

    @tool
    def stuck(job: str) -> str:
        """Never come to an end."""
        stop()
        return RESULT.format(job)

    @tool
    def asks(job: str) -> str:
        """Ask a person."""
        return f"a person said {interrupt(job)}"

    return [fast, stuck, asks]


def agent(model: Scripted, saver: Any, stop: Stop, **options: Any) -> Any:
    """The prebuilt agent, which refuses a conversation with open calls: a task for each call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return create_react_agent(model, tools(stop), checkpointer=saver, **options)


def stateful(model: Scripted, saver: Any, stop: Stop, state: Any = State, **options: Any) -> Any:
    """A graph of its own, with a state of its own: a task for each call."""

    def think(state: Any) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])], "steps": ["think"]}

    def act(call: dict[str, Any]) -> dict[str, Any]:
        named = {one.name: one for one in tools(stop)}
        message = named[call["name"]].invoke({**call, "type": "tool_call"})
        return {"messages": [message], "steps": [call["id"]]}

    def then(state: Any) -> Any:
        calls = getattr(state["messages"][-1], "tool_calls", ())
        return [Send("act", call) for call in calls] or END

    graph = StateGraph(state).add_node("think", think).add_node("act", act)
    graph.add_edge(START, "think").add_conditional_edges("think", then, ["act", END])
    return graph.add_edge("act", "think").compile(checkpointer=saver, **options)


def nested(model: Scripted, saver: Any, stop: Stop, *, remembers: bool) -> Any:
    """A graph around an agent that has a memory of its own, or not."""
    inner = agent(model, True if remembers else None, stop)
    graph = StateGraph(State).add_node("inner", inner)
    return graph.add_edge(START, "inner").compile(checkpointer=saver)


def plain(_model: Scripted, saver: Any, stop: Stop) -> Any:
    """A graph over plain maps; its one tool is never done."""
    call = {"id": "call_0", "name": FAST, "args": {}, "type": "tool_call"}
    reply = {"role": "assistant", "content": "On it.", "tool_calls": [call]}

    def think(state: Any) -> dict[str, Any]:
        asked = state["messages"][-1]["role"] == "user" and len(state["messages"]) == 1
        return {"messages": [reply if asked else {"role": "assistant", "content": "ok"}]}

    def act(_state: Any) -> dict[str, Any]:
        stop()
        return {"messages": []}

    def then(state: Any) -> Any:
        return "act" if "tool_calls" in state["messages"][-1] else END

    graph = StateGraph(Plain).add_node("think", think).add_node("act", act)
    graph.add_edge(START, "think").add_conditional_edges("think", then, ["act", END])
    return graph.add_edge("act", "think").compile(checkpointer=saver)


GRAPHS: dict[str, Callable[..., Any]] = {
    "agent": agent,
    "state": stateful,
    "delta": lambda *args, **options: stateful(*args, state=Deltas, **options),
    "remembering": lambda *args: nested(*args, remembers=True),
    "forgetting": lambda *args: nested(*args, remembers=False),
    "plain": plain,
    "halting": lambda *args: agent(*args, interrupt_before=["tools"]),
}


def graph_of(thread: str, model: Scripted, saver: Any, stop: Stop | None = None) -> Any:
    """The graph that a thread belongs to; its name begins with that of the graph."""
    return GRAPHS[thread.partition("-")[0]](model, saver, stop or (lambda: None))


def config(thread: str) -> dict[str, Any]:
    """What names a thread to LangGraph."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def values() -> dict[str, Any]:
    """Values of a state that no conversation is in."""
    return {
        "steps": ["begun"],
        "note": Note("mine", Colour.RED, {"a"}),
        "when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "token": UUID(int=7),
    }


@contextmanager
def saving(path: Path | str, kind: type[SqliteSaver] = SqliteSaver) -> Iterator[SqliteSaver]:
    """The real saver over a database."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        yield kind(connection)


# The threads


class Making:
    """Makes the threads of a database, one after the other."""

    def __init__(self, path: str) -> None:
        self.path = path

    def said(self, thread: str, *replies: AIMessage, stop: Stop | None = None) -> None:
        """Say something in a thread; a run that is broken off is broken off."""
        with saving(self.path) as saver:
            graph = graph_of(thread, Scripted(*replies), saver, stop or (lambda: None))
            first = values() if thread.startswith("state") else {}
            words = {"role": "user", "content": "hi"}
            message = words if thread.startswith("plain") else HumanMessage("hi", id=f"{thread}-1")
            with suppress(Halted):
                graph.invoke({"messages": [message], **first}, config(thread))

    def halt(self, thread: str, results: int) -> Stop:
        """Break a run off once so many results of its batch are in the database."""

        def stop() -> None:
            self.wait_for(thread, results)
            raise Halted

        return stop

    def wait_for(self, thread: str, results: int) -> None:
        """Wait until the results of a batch are in the database."""
        query = """select count(*) from writes w where thread_id = ? and channel = 'messages' and
            task_path like '~__pregel_push%' and checkpoint_id =
            (select max(checkpoint_id) from checkpoints where thread_id = w.thread_id)"""
        pause = threading.Event()
        with closing(sqlite3.connect(self.path, timeout=600)) as base:
            while base.execute(query, (thread,)).fetchone()[0] < results:
                pause.wait(0.01)

    def kill(self, thread: str, results: int) -> Stop:
        """Kill this very process once so many results are in the database."""

        def stop() -> None:
            self.wait_for(thread, results)
            os.kill(os.getpid(), signal.SIGKILL)

        return stop

    def all(self) -> None:
        """Make every thread but the last one."""
        for name in ("agent", "state", "delta"):
            self.said(f"{name}-healthy", calling(FAST, FAST))
            self.said(f"{name}-healthy", *[calling(FAST, prefix=f"more{n}") for n in range(8)])
            thread = f"{name}-halted"
            self.said(thread, calling(*BATCH), stop=self.halt(thread, 2))
            self.said(f"{name}-asked", calling(FAST, ASKS))
        self.again("agent-again")
        self.again("delta-again")
        self.stopped("agent-finished", after=3, step=2)
        self.stopped("agent-said", after=0, step=0)
        self.breakpoints("halting-twice")
        for thread in ("remembering", "forgetting"):
            self.said(thread, calling(*BATCH), stop=self.halt(thread, 2))
        self.said("plain-halted", stop=self.halt("plain-halted", 0))

    def again(self, thread: str) -> None:
        """A batch that is broken off, and a new prompt that hides what it had done."""
        self.said(thread, calling(*BATCH), stop=self.halt(thread, 2))
        with saving(self.path) as saver, suppress(ValueError):
            graph = graph_of(thread, Scripted(), saver)
            graph.invoke({"messages": [HumanMessage("still there?", id="again")]}, config(thread))

    def stopped(self, thread: str, after: int, step: int) -> None:
        """A run whose checkpoint of some step never came to be, though all of it was done."""

        class Stopping(SqliteSaver):
            def put(self, config: Any, checkpoint: Any, metadata: Any, versions: Any) -> Any:
                if metadata["step"] == step:
                    raise Halted
                return super().put(config, checkpoint, metadata, versions)

            def put_writes(self, *args: Any, **options: Any) -> None:
                if after:
                    super().put_writes(*args, **options)

        with saving(self.path, Stopping) as saver, suppress(Halted):
            graph = graph_of(thread, Scripted(calling(*[FAST] * max(after, 1))), saver)
            graph.invoke({"messages": [("user", "hi")]}, config(thread), durability="sync")

    def breakpoints(self, thread: str) -> None:
        """A thread that halts before every batch, and was let on once."""
        self.said(thread, calling(FAST))
        with saving(self.path) as saver:
            graph = graph_of(thread, Scripted(calling(FAST, FAST, prefix="next")), saver)
            graph.invoke(None, config(thread))


def main(path: str) -> None:
    """Make all threads, and die in the middle of the last one."""
    making = Making(path)
    making.all()
    making.said("agent-killed", calling(*BATCH), stop=making.kill("agent-killed", 2))


def messages_of(state: Any) -> list[BaseMessage]:
    """The conversation of a state."""
    return list(state.values["messages"])


def open_calls(messages: list[BaseMessage]) -> set[str]:
    """The calls that no message answers right behind the reply that makes them."""
    missing: set[str] = set()
    for place, message in enumerate(messages):
        calls = {call["id"] for call in getattr(message, "tool_calls", ())}
        for after in messages[place + 1 :]:
            if not isinstance(after, ToolMessage):
                break
            calls.discard(after.tool_call_id)
        missing |= calls
    return missing


def resumed(answer: str) -> Command[Any]:
    """What a person says to a question."""
    return Command(resume=answer)


if __name__ == "__main__":
    main(sys.argv[1])
