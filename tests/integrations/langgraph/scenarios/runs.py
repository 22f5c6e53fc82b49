"""Runs that are broken off in the middle of three tools, of which two have finished.

``RUNS`` are all of them: every way to break off, in a chat and in a command, on every saver.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.types import Command

from tests.integrations.langgraph.agents import (
    ASYNC_SAVERS,
    SAVERS,
    Bench,
    Released,
    agent,
    auntil_finished,
    on,
    until_finished,
)

CHAT, COMMAND = "chat", "command"
SIGINT, KILL, CLOSED, STOPPED = "sigint", "kill", "closed", "stopped"


@dataclass(frozen=True)
class Run:
    """One run: how it is broken off, what began it, where it is stored, and in which world."""

    how: str
    path: str
    store: str
    is_async: bool

    @property
    def name(self) -> str:
        world = "async" if self.is_async else "sync"
        return f"{self.how}-{self.path}-{world}-{self.store}"

    @property
    def thread(self) -> dict[str, Any]:
        return on(self.name)

    def saver(self, address: str) -> Any:
        return (ASYNC_SAVERS if self.is_async else SAVERS)[self.store](address)


RUNS = [
    Run(how, path, store, is_async)
    for how in (STOPPED, CLOSED, SIGINT, KILL)
    for path in (CHAT, COMMAND)
    for store in SAVERS
    for is_async in (False, True)
]


def question(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def begun(run: Run) -> Any:
    """The input that makes the model call its tools."""
    if run.path == CHAT:
        return question("Go.")
    return Command(goto="model", update=question("Go."))


def broken_off(run: Run, address: str, model: Any, interrupt: Any, loop: Any = asyncio) -> None:
    """Run until two tools have finished, then break off with ``interrupt``, in one world."""
    if run.is_async:
        loop.run(_async_broken_off(run, address, model, interrupt))
        return
    bench = Bench()
    with run.saver(address) as saver:
        graph = agent(model, bench, saver)
        if run.path == COMMAND:
            graph.invoke(question("Hello."), run.thread)
        interrupt(Work(run, graph, saver, bench))


async def _async_broken_off(run: Run, address: str, model: Any, interrupt: Any) -> None:
    bench = Bench()
    async with run.saver(address) as saver:
        graph = agent(model, bench, saver)
        if run.path == COMMAND:
            await graph.ainvoke(question("Hello."), run.thread)
        await interrupt(Work(run, graph, saver, bench))


@dataclass
class Work:
    """What an interrupt needs to know of the run that it breaks off."""

    run: Run
    graph: Any
    saver: Any
    bench: Bench

    def invoke(self) -> None:
        self.graph.invoke(begun(self.run), self.run.thread)

    async def ainvoke(self) -> None:
        await self.graph.ainvoke(begun(self.run), self.run.thread)

    def until_finished(self) -> None:
        until_finished(self.saver, self.run.thread, 2)

    async def auntil_finished(self) -> None:
        await auntil_finished(self.saver, self.run.thread, 2)

    def release(self, later: float = 0.0) -> None:
        self.bench.stuck.wait(600)
        self.until_finished()
        time.sleep(later)
        self.bench.released.set()


def stop(work: Work) -> None:
    """The tool that is still at work is broken off: its error ends the run."""
    watcher = threading.Thread(target=work.release)
    watcher.start()
    with suppress(Released):
        work.invoke()
    watcher.join()


def close(work: Work) -> None:
    """Nobody reads the stream any more: the generator is closed.

    Closing waits for the tool that is at work. LangGraph sometimes holds an update back until the
    next one comes, and then the tool's end is what wakes the reader.
    """
    stream = work.graph.stream(begun(work.run), work.run.thread, stream_mode="updates")
    watcher = threading.Thread(target=work.release, args=(0.3,))
    watcher.start()
    with suppress(Released):
        while "tools" not in next(stream):
            pass
        work.until_finished()
        stream.close()
    watcher.join()


async def astop(work: Work) -> None:
    """The task is cancelled."""
    task = asyncio.create_task(work.ainvoke())
    await work.auntil_finished()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def aclose(work: Work) -> None:
    """Nobody reads the stream any more: the generator is closed."""
    stream = work.graph.astream(begun(work.run), work.run.thread, stream_mode="updates")
    while "tools" not in await anext(stream):
        pass
    await work.auntil_finished()
    await stream.aclose()


INTERRUPTS = {
    (STOPPED, False): stop,
    (STOPPED, True): astop,
    (CLOSED, False): close,
    (CLOSED, True): aclose,
}
