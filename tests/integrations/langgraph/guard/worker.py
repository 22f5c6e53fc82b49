"""A process that has turns on a thread, and says of each what became of it.

Waits for a word on its pipe before it begins, so that several begin at once. Says ``ok <turn>`` or
``conflict <turn>``; with ``retry`` it tries a turn again until it is done, and says ``again`` each
time. ``halt`` names places
in a turn where it says ``here`` and waits for another word, or to be killed or stopped: each is a
method of the saver, ``before`` or ``behind``, and the number of its call; or ``model``.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from lockstitch.errors import Conflict
from lockstitch.integrations.langgraph.guard import Guard
from tests.integrations.langgraph.savers import ASYNC_SAVERS, SAVERS, on

THREAD = on("shared")


class Line:
    """The pipe to the test, once there is one."""

    pipe: Connection


def say(text: str) -> None:
    Line.pipe.send(text)


def listen() -> None:
    Line.pipe.recv()


def halted() -> None:
    """Say where the process is, and wait for whatever becomes of it."""
    say("here")
    listen()


def halting(saver: Any, call: str, when: str, nth: int) -> None:
    """Make a saver stop once, in front of or behind one of its calls."""
    real, calls = getattr(saver, call), count(1)

    def stopping(*args: Any, **options: Any) -> Any:
        is_due = next(calls) == nth
        if is_due and when == "before":
            halted()
        result = real(*args, **options)
        if is_due and when == "behind":
            halted()
        return result

    setattr(saver, call, stopping)


def answering(pause: Callable[[], None] = lambda: None) -> Callable[[Any], Any]:
    """A model that answers every message with its name."""

    def model(state: Any) -> dict[str, Any]:
        pause()
        return {"messages": [AIMessage(f"done {state['messages'][-1].content}")]}

    return model


def graph_of(saver: Any, model: Callable[[Any], Any] | None = None) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("model", model or answering())
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    return graph.compile(checkpointer=saver)


def tried(turn: Callable[[], Any], *, retry: bool) -> bool:
    """Have a turn, again and again if need be; whether it was done."""
    for attempt in range(1000):
        try:
            turn()
        except Conflict:
            say("again")
            if not retry:
                return False
            time.sleep(random.random() * min(0.4, 0.01 * 2**attempt))  # noqa: S311 - to get apart
        else:
            return True
    raise AssertionError("a turn never came through")


def worked(options: dict[str, Any], saver: Any) -> None:
    places = options.get("halt", [])
    for place in places:
        if place != "model":
            halting(saver, *place)
    wait = options.get("wait", 0.0)
    checkpointer = Guard(saver, wait=wait) if options.get("guard", True) else saver
    graph = graph_of(checkpointer, answering(halted) if "model" in places else None)
    durability = options.get("durability", "sync")
    listen()
    for number in range(options["turns"]):
        name = f"{options['name']}-{number}"

        def turn(name: str = name) -> None:
            # A new message each time: LangGraph gives it an id, and the same id would be the
            # message that another run, which took this one over, has kept.
            graph.invoke({"messages": [HumanMessage(name)]}, THREAD, durability=durability)

        done = tried(turn, retry=options.get("retry", False))
        say(f"{'ok' if done else 'conflict'} {name}")


async def aworked(options: dict[str, Any], saver: Any) -> None:
    graph = graph_of(Guard(saver, wait=options.get("wait", 0.0)))
    durability = options.get("durability", "sync")
    listen()
    for number in range(options["turns"]):
        name = f"{options['name']}-{number}"
        while True:
            given = {"messages": [HumanMessage(name)]}
            try:
                await graph.ainvoke(given, THREAD, durability=durability)
            except Conflict:
                say("again")
                await asyncio.sleep(random.random() * 0.3)  # noqa: S311 - to get apart
            else:
                break
        say(f"ok {name}")


async def _amain(options: dict[str, Any]) -> None:
    async with ASYNC_SAVERS[options["store"]](options["address"]) as saver:
        await aworked(options, saver)


def main(pipe: Connection, options: dict[str, Any]) -> None:
    """What the process does."""
    Line.pipe = pipe
    logging.disable()
    if options.get("async"):
        asyncio.run(_amain(options))
        return
    opened: AbstractContextManager[Any] = SAVERS[options["store"]](options["address"])
    with opened as saver:
        worked(options, saver)
