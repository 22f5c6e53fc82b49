"""Reading a session from an event loop, while somebody else writes it."""

from __future__ import annotations

import anyio
import pytest

from lockstitch.errors import Unreadable
from lockstitch.session.store import Store

from .talk import asks, faults, says

pytestmark = pytest.mark.parametrize("kind", ["asyncio", "trio"])


def test_it_reads_what_the_writer_would_send(store: Store, kind: str) -> None:
    async def body() -> None:
        async with store.async_session("s") as session:
            await session.say("One")
            reader = await store.async_read("s")
            await session.record(asks("anthropic", ("c1", "look", {})))
            assert (reader.turn.state, reader.calls) == ("open", [])
            kinds = [type(fact.event).__name__ for fact in await reader.refresh()]
            assert kinds == ["Replied"]
            await session.run_tools({"look": lambda: "seen"})
            await reader.refresh()
            assert await reader.output(reader.calls[0]) == "seen"
            assert await reader.request("anthropic") == await session.request("anthropic")
            mistral = await reader.request("openai-chat", profile="mistral")
            assert faults("openai-chat:mistral", mistral) == []
        with pytest.raises(Unreadable):
            await store.async_read("nobody")

    anyio.run(body, backend=kind)


def test_it_follows_a_writer_in_another_task(store: Store, kind: str) -> None:
    seen: list[str] = []

    async def follow(started: anyio.Event) -> None:
        reader = await store.async_read("s")
        started.set()
        async for fact in reader.follow():
            seen.append(type(fact.event).__name__)
            if seen[-1] == "Ended":
                return

    async def body() -> None:
        async with store.async_session("s") as session, anyio.create_task_group() as tasks:
            await session.say("One")
            started = anyio.Event()
            tasks.start_soon(follow, started)
            await started.wait()
            await session.record(says("anthropic", "First"))

    anyio.run(body, backend=kind)
    assert seen == ["Replied", "Ended"]


def test_it_ends_without_news_and_when_it_is_cancelled(store: Store, kind: str) -> None:
    async def body() -> bool:
        async with store.async_session("s") as session:
            await session.say("One")
            reader = await store.async_read("s")
            assert [fact async for fact in reader.follow(timeout=0)] == []
            with anyio.move_on_after(0.05) as scope:
                async for fact in reader.follow():
                    raise AssertionError(fact)
            return scope.cancelled_caught

    assert anyio.run(body, backend=kind)
