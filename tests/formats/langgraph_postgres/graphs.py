"""Real graphs of LangGraph's on its real saver for PostgreSQL, and ways to break them off.

As a program, it runs one turn and says on stdout when a tool is at work, so that it can be killed
there: python -m tests.formats.langgraph_postgres.graphs DSN THREAD KIND
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig  # noqa: TC002 - read by the tool
from langchain_core.tools import tool
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt
from typing_extensions import TypedDict

AT_WORK = "at work"
CALLS = [
    {"name": "quick", "args": {}, "id": "call_quick", "type": "tool_call"},
    {"name": "slow", "args": {}, "id": "call_slow", "type": "tool_call"},
]


@tool
def quick() -> str:
    """Answer at once."""
    return "a result that took an hour"


@tool
def slow() -> str:
    """Never come back, until somebody ends the process."""
    sys.stdout.write(f"{AT_WORK}\n")
    sys.stdout.flush()
    threading.Event().wait()
    return "never"


@tool
def stop() -> str:
    """Press Ctrl-C."""
    raise KeyboardInterrupt


# What the tool does that takes its time, given the thread that it works for.
napping: list[Callable[[str], None]] = []


@tool
def nap(config: RunnableConfig) -> str:
    """Take a moment."""
    for work in napping:
        work(config["configurable"]["thread_id"])
    return "rested"


@tool
def ask() -> str:
    """Ask a person."""
    return f"the person said {interrupt('may I?')}"


class Scripted(BaseChatModel):
    """A model that calls tools in its first reply to a prompt that says so, and else answers."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Scripted:
        return self

    def _generate(
        self, messages: list[Any], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=reply_to(messages))])


def reply_to(messages: Sequence[Any]) -> AIMessage:
    """What the model says to a conversation."""
    require_valid(messages)
    last = messages[-1]
    words = last.content if isinstance(last, HumanMessage) else ""
    if "work" in words:
        return AIMessage("", tool_calls=CALLS)
    if "stop" in words:
        call = {"name": "stop", "args": {}, "id": "call_stop", "type": "tool_call"}
        return AIMessage("", tool_calls=[call])
    if "nap" in words:
        call = {"name": "nap", "args": {}, "id": f"call_{len(messages)}", "type": "tool_call"}
        return AIMessage("", tool_calls=[call])
    if "ask" in words:
        call = {"name": "ask", "args": {}, "id": "call_ask", "type": "tool_call"}
        return AIMessage("", tool_calls=[call])
    return AIMessage(f"answer number {len(messages)}")


def require_valid(messages: Sequence[Any]) -> None:
    """Refuse what a provider refuses: calls without results right behind them, and the reverse."""
    waiting: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            assert message.tool_call_id in waiting, "a result without its call"
            waiting.discard(message.tool_call_id)
            continue
        assert not waiting, f"400: calls without results: {sorted(waiting)}"
        if isinstance(message, AIMessage):
            waiting = {str(call["id"]) for call in message.tool_calls}
    assert not waiting, f"400: calls without results: {sorted(waiting)}"


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    notes: dict[str, Any]


def _merge(state: list[AnyMessage], writes: Sequence[Any]) -> list[AnyMessage]:
    for write in writes:
        state = add_messages(state, write)  # type: ignore[assignment, arg-type]
    return state


class DeltaState(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_merge, snapshot_frequency=50)]
    notes: dict[str, Any]


class RareState(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_merge, snapshot_frequency=10_000)]
    notes: dict[str, Any]


STATES: dict[str, Any] = {"plain": State, "delta": DeltaState, "delta-rarely": RareState}


def _agent(state: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [reply_to(state["messages"])], "notes": {"kept": [1, 2, 3]}}


def graph(kind: str, saver: Any) -> Any:
    """Make one of the graphs: plain, delta, nested (a subgraph that remembers) or agent."""
    tools = [quick, slow, stop, nap, ask]
    made: Any
    if kind == "nested":
        made = StateGraph(State)
        made.add_node("inner", graph("plain", True))
        made.add_edge(START, "inner")
        return made.compile(checkpointer=saver)
    if kind == "agent":
        return create_agent(Scripted(), tools, checkpointer=saver)
    made = StateGraph(STATES[kind])
    made.add_node("agent", _agent)
    made.add_node("tools", ToolNode(tools))
    made.add_edge(START, "agent")
    made.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: END})
    made.add_edge("tools", "agent")
    return made.compile(checkpointer=saver)


def config(thread: str) -> dict[str, Any]:
    """The config of a thread."""
    return {"configurable": {"thread_id": thread}}


@contextmanager
def saver(dsn: str) -> Iterator[PostgresSaver]:
    """Open LangGraph's own saver, with its tables made."""
    with PostgresSaver.from_conn_string(dsn) as made:
        made.setup()
        yield made


def say(dsn: str, thread: str, words: str, kind: str = "plain") -> dict[str, Any]:
    """Run one turn to its end, or to where a person is asked."""
    with saver(dsn) as made:
        told = {"messages": [HumanMessage(words)]}
        result: dict[str, Any] = graph(kind, made).invoke(told, config(thread), durability="sync")
        return result


def killed(dsn: str, thread: str, kind: str = "plain", how: str = "sync") -> None:
    """Run a turn in a process of its own, and kill it with a tool at work.

    With an agent, every call is a task of its own, so that the other one's result is stored.
    """
    command = [sys.executable, "-m", __name__, dsn, thread, kind, how]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        with process.stdout:
            line = process.stdout.readline()
        if kind == "agent" and line:
            with PostgresSaver.from_conn_string(dsn) as made:
                _until_the_result_is_there(made, thread)
    finally:
        process.kill()
        process.wait()
    assert line.strip() == AT_WORK, line


def broken_off(dsn: str, thread: str, kind: str = "plain") -> None:
    """Leave a batch open in this process: a tool is interrupted as by Ctrl-C."""
    with saver(dsn) as made, suppress(KeyboardInterrupt):
        told = {"messages": [HumanMessage("please stop")]}
        graph(kind, made).invoke(told, config(thread), durability="sync")


def _until_the_result_is_there(made: PostgresSaver, thread: str) -> None:
    """Wait until what the quick tool returned is stored; the slow one is at work by then."""
    for _ in range(60_000):
        found = made.get_tuple(config(thread))  # type: ignore[arg-type]
        if found and any(write[1] == "messages" for write in found.pending_writes or []):
            return
        threading.Event().wait(0.01)
    raise AssertionError("no result was stored")


def main() -> None:
    dsn, thread, kind, how = sys.argv[1:]
    told = {"messages": [HumanMessage("please work")]}
    if how == "async":
        asyncio.run(_arun(dsn, thread, kind, told))
        return
    with saver(dsn) as made:
        graph(kind, made).invoke(told, config(thread), durability="sync")


async def _arun(dsn: str, thread: str, kind: str, told: dict[str, Any]) -> None:
    async with AsyncPostgresSaver.from_conn_string(dsn) as made:
        await made.setup()
        await graph(kind, made).ainvoke(told, config(thread), durability="sync")


if __name__ == "__main__":
    main()
