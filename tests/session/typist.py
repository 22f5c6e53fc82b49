"""Agents in a terminal of their own, for Ctrl-C: ``python -m tests.session.typist``.

Each says where it is, and what it was told when it is interrupted.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from . import agent
from .agent import TOOLS, opened, tell
from .talk import asks

CALLS = [("c1", "quick", {"n": 1}), ("c2", "quick", {"n": 2}), ("c3", "slow", {"n": 3})]


def request(url: str) -> None:
    """Wait for an answer that does not come."""
    with opened() as session:
        session.say("Go")
        session.record(asks("anthropic", CALLS[0]))
        session.run_tools(TOOLS)
        body = json.dumps({"messages": session.request("anthropic")}).encode()
        with urllib.request.urlopen(url, data=body, timeout=60) as answer:  # noqa: S310
            session.record(answer.read())


def stream(url: str) -> None:
    """Read a stream that stops in the middle."""
    with opened() as session:
        session.say("Go")
        with session.stream(_events(url)) as events:
            for event in events:
                if event["type"] == "content_block_stop":
                    tell(f"block {event['index']}")


def _events(url: str) -> Iterator[Any]:
    with urllib.request.urlopen(url, data=b"{}", timeout=60) as answer:  # noqa: S310
        for line in answer:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def tools() -> None:
    """Run tools of which one does not end."""
    with opened() as session:
        session.say("Go")
        session.record(asks("openai-chat", *CALLS))
        session.run_tools(TOOLS)


def caught() -> None:
    """Go on after the interrupt, as a chat program does."""
    with opened() as session:
        session.say("Go")
        session.record(asks("openai-chat", *CALLS))
        try:
            session.run_tools(TOOLS)
        except KeyboardInterrupt:
            tell(f"state {session.turn.state}")
        session.say("Something else")
        tell("went on")


async def _awaited(backend: Any) -> None:
    async with agent.store().async_session("s") as session:
        await session.say("Go")
        await session.record(asks("openai-chat", *CALLS))
        await session.run_tools(TOOLS)
    raise AssertionError(backend)


def on_asyncio() -> None:
    """The same on asyncio, whose first Ctrl-C cancels the task."""
    asyncio.run(_awaited("asyncio"))


def on_trio() -> None:
    """The same on trio, which raises in the main task."""
    import trio

    trio.run(_awaited, "trio")


def writing() -> None:
    """Write, and say which writes were acknowledged; the store is slow."""
    signal.signal(signal.SIGINT, _struck)
    with opened() as session:
        number = 0
        try:
            while True:
                number += 1
                tell(f"writing {number}")
                session.say(f"<{number}>")
        finally:
            tell(f"known {session.seq}")


def _struck(number: int, frame: Any) -> None:
    tell("struck")
    signal.default_int_handler(number, frame)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        globals()[sys.argv[1]](*sys.argv[3:])
        tell("end")
        sys.exit(0)
    tell("interrupted")
