"""Real graphs for tests: agents of all makes, with tools that finish, stick or ask.

``claude`` and ``gpt`` are the real clients before the strict provider of this project
(``provided``). ``Bench`` holds the tool: what it is asked to do decides whether it returns, waits
to be released, or asks a person. ``SAVERS`` opens LangGraph's own checkpointers by name.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.types import Send, interrupt

from lockstitch.provider import Reply, Script
from lockstitch.provider import ScriptedCall as Call
from lockstitch.provider.server import running
from lockstitch.provider.service import Records, RequestEntry, Service, choose_rules
from tests.integrations.langgraph.savers import apostgres, asqlite, postgres, sqlite

STUCK = "stuck"
ASKING = "asking"
JOBS = ("one", STUCK, "three")
CLOSE = {"Connection": "close"}


def result_of(job: str) -> str:
    """What the tool returns for a job that it finishes."""
    return f"the real result of {job}"


def called(*jobs: str, prefix: str = "call") -> list[dict[str, Any]]:
    """Tool calls, one a job, with ids that can be told apart."""
    return [
        {"name": "work", "args": {"job": job}, "id": f"{prefix}_{job}", "type": "tool_call"}
        for job in jobs
    ]


def calling(*jobs: str, text: str = "On it.", prefix: str = "call") -> AIMessage:
    """A reply that calls the tool for each of the jobs."""
    return AIMessage(text, tool_calls=called(*jobs, prefix=prefix))


class Bench:
    """The tool ``work``, and what became of the jobs it was given.

    A job ``stuck`` waits until it is released, and then fails: it never has a result. A job
    ``asking`` asks a person and returns the answer.
    """

    def __init__(self) -> None:
        self.started: list[str] = []
        self.stuck = threading.Event()
        self.released = threading.Event()

    @property
    def tool(self) -> StructuredTool:
        text = "Do a job."
        return StructuredTool.from_function(self.work, self.awork, name="work", description=text)

    def work(self, job: str) -> str:
        self.started.append(job)
        if job == STUCK:
            self.stuck.set()
            self.released.wait(600)
            raise Released
        return self._done(job)

    async def awork(self, job: str) -> str:
        self.started.append(job)
        if job == STUCK:
            self.stuck.set()
            await asyncio.sleep(600)
            raise Released
        return self._done(job)

    def _done(self, job: str) -> str:
        return f"a person said {interrupt(job)}" if job == ASKING else result_of(job)


class Released(BaseException):
    """What a tool that is broken off ends with; nothing that a graph would answer for.

    LangGraph records it under the name by which an interrupt is known.
    """

    def __repr__(self) -> str:
        return "KeyboardInterrupt()"


class State(TypedDict):
    """Messages, and a second channel with a reducer of its own."""

    messages: Annotated[list[AnyMessage], add_messages]
    done: Annotated[list[str], add]


class DeltaState(TypedDict):
    """Messages of which every checkpoint holds only what is new."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]
    done: Annotated[list[str], add]


Agent = Callable[..., Any]


def agent(model: Any, bench: Bench, saver: Any, **options: Any) -> Any:
    """LangChain's agent: every call is a task of its own."""
    return create_agent(model, [bench.tool], checkpointer=saver, **options)


def react(model: Any, bench: Bench, saver: Any, **options: Any) -> Any:
    """The prebuilt agent of LangGraph."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return create_react_agent(model, [bench.tool], checkpointer=saver, **options)


def plain(model: Any, bench: Bench, saver: Any, **options: Any) -> Any:
    """A graph written by hand with LangGraph's tool node: all calls are one task."""
    return _compiled(model, ToolNode([bench.tool]), _to_tools, State, saver, options)


def fanned(model: Any, bench: Bench, saver: Any, **options: Any) -> Any:
    """A graph written by hand that sends each call to a task, which writes two channels."""
    state = options.pop("state", State)
    return _compiled(model, _working(bench), _fan_out, state, saver, options)


def changing(model: Any, bench: Bench, saver: Any, **options: Any) -> Any:
    """The same, with a channel that stores only changes."""
    return fanned(model, bench, saver, state=DeltaState, **options)


AGENTS: dict[str, Agent] = {
    "agent": agent,
    "react": react,
    "plain": plain,
    "fanned": fanned,
    "changing": changing,
}
# What a graph calls the node that asks the model: where a command goes to.
MODEL_NODES = {"agent": "model", "react": "agent", "plain": "model", "fanned": "model"}


def _compiled(
    model: Any, tools: Any, route: Any, state: Any, saver: Any, options: dict[str, Any]
) -> Any:
    bound = model.bind_tools([])

    def ask(given: Any) -> dict[str, Any]:
        return {"messages": [bound.invoke(given["messages"])]}

    async def aask(given: Any) -> dict[str, Any]:
        return {"messages": [await bound.ainvoke(given["messages"])]}

    graph = StateGraph(state)
    graph.add_node("model", RunnableLambda(ask, aask))
    graph.add_node("tools", tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", route, ["tools", END])
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver, **options)


def _to_tools(given: Any) -> str:
    return "tools" if given["messages"][-1].tool_calls else END


def _fan_out(given: Any) -> Any:
    calls = given["messages"][-1].tool_calls
    return [Send("tools", call) for call in calls] or END


def _working(bench: Bench) -> RunnableLambda[Any, Any]:
    def work(call: Any) -> dict[str, Any]:
        return _answered(call, bench.work(call["args"]["job"]))

    async def awork(call: Any) -> dict[str, Any]:
        return _answered(call, await bench.awork(call["args"]["job"]))

    return RunnableLambda(work, awork)


def _answered(call: Any, text: str) -> dict[str, Any]:
    return {
        "messages": [ToolMessage(text, tool_call_id=call["id"])],
        "done": [call["args"]["job"]],
    }


def on(thread: str, **place: Any) -> dict[str, Any]:
    """The config of a thread."""
    return {"configurable": {"thread_id": thread, **place}}


def finished_tasks(saved: Any) -> set[str]:
    """The tools whose results are stored beside a checkpoint."""
    writes = saved.pending_writes if saved else ()
    return {task for task, channel, value in writes if channel == "messages" and _answers(value)}


def _answers(value: Any) -> bool:
    found = value if isinstance(value, list) else [value]
    return all(isinstance(message, ToolMessage) for message in found)


def until_finished(saver: Any, config: Any, count: int) -> None:
    """Wait until so many tasks have left their results."""
    for _ in range(3000):
        if len(finished_tasks(saver.get_tuple(config))) >= count:
            return
        time.sleep(0.01)
    raise AssertionError("the tools never finished")


async def auntil_finished(saver: Any, config: Any, count: int) -> None:
    """Wait until so many tasks have left their results, in an event loop."""
    for _ in range(3000):
        if len(finished_tasks(await saver.aget_tuple(config))) >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the tools never finished")


class Provider:
    """The strict provider at work: where it is, what it logged, and the bodies it was sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.log: list[RequestEntry] = []

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes()) for path in sorted(self.folder.glob("*.json"))]

    def claude(self, **options: Any) -> ChatAnthropic:
        """LangChain's client for Anthropic, before this provider."""
        return claude(self.url, **options)

    def gpt(self, **options: Any) -> ChatOpenAI:
        """LangChain's client for OpenAI, before this provider."""
        fields = {"model": "gpt-5", "max_retries": 0, "default_headers": CLOSE} | options
        return ChatOpenAI(base_url=f"{self.url}/v1", api_key="none", **fields)


def claude(url: str, **options: Any) -> ChatAnthropic:
    """LangChain's client for Anthropic; LangChain shares its connections between event loops."""
    fields = {"model": "claude-fable-5", "max_retries": 0, "max_tokens": 100} | options
    return ChatAnthropic(base_url=url, api_key="none", default_headers=CLOSE, **fields)


def replying(*jobs: str) -> Reply:
    """A reply of the provider that calls the tool for each of the jobs."""
    return Reply("On it.", tuple(Call("work", {"job": job}) for job in jobs))


@contextmanager
def provided(folder: Path, *replies: Reply) -> Iterator[Provider]:
    """Run the strict provider with these replies, and keep the bodies in a folder."""
    made = Provider(folder)
    desk = Service(
        choose_rules([]),
        Script(replies),
        clock=time.time,
        log=made.log.append,
        records=Records(folder),
    )
    with running(desk) as made.url:
        yield made


SAVERS: dict[str, Callable[[str], Any]] = {"sqlite": sqlite, "postgres": postgres}
ASYNC_SAVERS: dict[str, Callable[[str], Any]] = {"sqlite": asqlite, "postgres": apostgres}
