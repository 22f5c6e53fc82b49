"""Streams: whole they are a reply, broken off at any event what had closed is kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from lockstitch.errors import Busy, UsageError
from lockstitch.journal.events import Interrupted, Partial, Replied
from lockstitch.journal.records import Head, JournalEntry
from lockstitch.session import replies
from lockstitch.session.store import Store
from lockstitch.stores.base import Lease
from lockstitch.stores.memory import MemoryBackend

from .events import WHOLE
from .talk import says, texts
from .twins import Twin, check_everywhere

BOTH = pytest.mark.parametrize("dialect", ["anthropic", "openai-chat"])


class Wire:
    """A source of events that may break, and that knows whether it was closed."""

    def __init__(self, events: list[Any], end: BaseException | None = None) -> None:
        self.events = events
        self.end = end
        self.closed = 0

    def __enter__(self) -> Iterator[Any]:
        return self._given()

    def _given(self) -> Iterator[Any]:
        yield from self.events
        if self.end is not None:
            raise self.end

    def __exit__(self, *_: object) -> None:
        self.closed += 1


class AsyncWire(Wire):
    """The same for async sessions."""

    async def __aenter__(self) -> AsyncIterator[Any]:
        self.given = self._later()
        return self.given

    async def _later(self) -> AsyncGenerator[Any, None]:
        for event in self._given():
            await anyio.lowlevel.checkpoint()
            yield event

    async def __aexit__(self, *_: object) -> None:
        await self.given.aclose()
        self.closed += 1


def wire(twin: Twin, events: list[Any], end: BaseException | None = None) -> Any:
    return Wire(events, end) if twin.kind == "sync" else AsyncWire(events, end)


async def read(twin: Twin, session: Any, source: Any, most: int = 10**6) -> Any:
    """Read a stream, all of it or some events, as a program would."""
    if twin.kind == "sync":
        with session.stream(source) as stream:
            for n, _ in enumerate(stream, 1):
                if n == most:
                    break
        return stream
    async with session.stream(source) as stream:
        n = 0
        async for _ in stream:
            n += 1
            if n == most:
                break
    return stream


def facts(session: Any, kind: type) -> list[Any]:
    return [fact.event for fact in session.state.facts.values() if isinstance(fact.event, kind)]


@BOTH
def test_a_whole_stream_is_a_reply(twin: Twin, store: Store, dialect: str) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")
            source = wire(twin, WHOLE[dialect]())
            stream = await read(twin, session, source)
            assert stream.complete
            assert stream.reply["model"]
            assert source.closed == 1
            (reply,) = facts(session, Replied)
            assert (reply.dialect, [call.id for call in reply.calls]) == (dialect, ["c1", "c2"])
            assert reply.model == stream.reply["model"]
            assert len(session.items) == 2
            done = await session.run_tools({"quick": twin.tool(lambda n: n)})
            assert [c.outcome for c in done] == ["ok", "ok"]
            await check_everywhere(session)

    twin.run(body)


def ways(dialect: str) -> Iterator[tuple[int, str]]:
    for count in range(len(WHOLE[dialect]())):
        for how in ("raised", "cut", "left"):
            if count or how != "left":
                yield count, how


@BOTH
@pytest.mark.parametrize("kind", ["sync", "asyncio"])
def test_broken_off_at_every_event(kind: str, dialect: str) -> None:
    twin = Twin(kind)
    for count, how in ways(dialect):
        store = Store(MemoryBackend())
        events = WHOLE[dialect]()

        async def body(
            store: Store = store, events: list[Any] = events, count: int = count, how: str = how
        ) -> None:
            async with twin.opened(store) as session:
                await session.say("Go")
                if how == "raised":
                    with pytest.raises(ConnectionError):
                        await read(twin, session, wire(twin, events[:count], ConnectionError()))
                elif how == "cut":
                    await read(twin, session, wire(twin, events[:count]))
                else:
                    await read(twin, session, wire(twin, events), count)
                if facts(session, Replied):
                    assert count >= len(events) - 1
                    return
                is_wanted = how == "left"
                reasons = [event.reason for event in facts(session, Interrupted)]
                assert reasons == (["user"] if is_wanted else [])
                assert session.turn.state == ("interrupted" if is_wanted else "open")
                assert session.pending == []
                assert await session.run_tools({"quick": lambda n: n}) == []
                await check_everywhere(session)
                said = texts(await session.request("openai-chat"), "assistant")
                assert not said or "Let me see.".startswith(said[0].rstrip())

        twin.run(body)


@BOTH
def test_what_closed_is_durable_while_the_stream_goes_on(
    twin: Twin, store: Store, dialect: str
) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")
            await read(twin, session, wire(twin, WHOLE[dialect]()))
            parts = facts(session, Partial)
            assert [len(part.calls) for part in parts][-1] == 2
            assert len({part.stream for part in parts}) == 1
            assert len(parts) >= 2

    twin.run(body)


@BOTH
def test_long_text_is_written_now_and_then(
    twin: Twin, store: Store, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "OFTEN", 0.0)
    seen: list[Any] = []

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")

            def watched() -> Iterator[Any]:
                for event in WHOLE[dialect]():
                    yield event
                    seen.extend(item.event.payload for item in store.read("s").items[1:])

            await read(twin, session, watched())

    twin.run(body)
    told = [bytes(payload).decode() for payload in seen]
    assert any('"Let me "' in text for text in told)
    assert any('"Let me see."' in text for text in told)


def test_a_source_that_does_not_open_can_be_tried_again(twin: Twin, store: Store) -> None:
    class Shut(AsyncWire):
        def __enter__(self) -> Any:
            raise ConnectionError

        async def __aenter__(self) -> Any:
            raise ConnectionError

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")
            with pytest.raises(ConnectionError):
                await read(twin, session, Shut([]))
            assert session.turn.state == "open"
            await read(twin, session, wire(twin, WHOLE["anthropic"]()))

    twin.run(body)


def test_a_source_that_is_left_early_is_closed(twin: Twin, store: Store) -> None:
    closed: list[str] = []

    def given() -> Iterator[Any]:
        try:
            yield from WHOLE["anthropic"]()
        finally:
            closed.append("sync")

    async def later() -> AsyncIterator[Any]:
        try:
            for event in WHOLE["anthropic"]():
                yield event
        finally:
            closed.append("async")

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")
            await read(twin, session, given(), 3)
            if twin.kind != "sync":
                await read(twin, session, later(), 3)

    twin.run(body)
    assert closed == ["sync"] if twin.kind == "sync" else ["sync", "async"]


def test_one_stream_at_a_time(store: Store) -> None:
    with store.session("s") as session:
        session.say("Go")
        with session.stream(Wire(WHOLE["anthropic"]())):
            with pytest.raises(UsageError, match="still open"):
                session.stream([])
            session.say("And quickly")
        with session.stream(WHOLE["openai-chat"]()) as stream:
            assert stream.finish().complete


def test_a_stream_that_is_never_read_changes_nothing(store: Store) -> None:
    with store.session("s") as session:
        session.say("Go")
        session.stream(WHOLE["anthropic"]())
        with session.stream(WHOLE["anthropic"]()) as stream:
            stream.finish()
        assert session.turn.state == "open"


class BusyOnce(MemoryBackend):
    """A store that is busy when it is first asked to keep a part of a reply."""

    def append(self, lease: Lease, entries: Sequence[JournalEntry], after: int) -> Head:
        if any(b'"partial"' in entry.body for entry in entries) and not hasattr(self, "was"):
            self.was = True
            raise Busy("another program has held the database for 5 seconds")
        return super().append(lease, entries, after)


def test_a_busy_store_does_not_end_a_stream(twin: Twin) -> None:
    store = Store(BusyOnce())

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")
            await read(twin, session, wire(twin, WHOLE["anthropic"]()), 6)
            messages = await session.request("openai-chat")
            assert texts(messages, "assistant") == ["Let me see."]

    twin.run(body)


def test_closing_the_session_ends_its_stream(store: Store) -> None:
    session = store.session("s")
    session.say("Go")
    stream = session.stream(Wire(WHOLE["anthropic"]()[:6]))
    stream.__enter__()
    assert len([next(stream) for _ in range(5)]) == 5
    session.close()
    reader = store.read("s")
    assert reader.turn.state == "interrupted"
    assert texts(reader.request("openai-chat"), "assistant") == ["Let me see."]


def test_what_was_said_while_it_came_stands_behind_it(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")
            await session.request("anthropic")
            inner = twin.inner(session)

            def events() -> Iterator[Any]:
                for n, event in enumerate(WHOLE["anthropic"]()):
                    if n == 7:
                        inner.say("Wait!")
                    yield event

            await read(twin, session, events())
            roles = [m["role"] for m in await session.request("openai-chat")]
            assert roles == ["user", "assistant", "tool", "tool", "user"]
            await check_everywhere(session)

    twin.run(body)


def test_a_stream_that_has_to_be_awaited(store: Store) -> None:
    async def create() -> Any:
        return AsyncWire(WHOLE["openai-chat"]())

    async def body() -> None:
        async with store.async_session("s") as session:
            await session.say("Go")
            async with session.stream(create()) as stream:
                await stream.finish()
            assert stream.complete
            with pytest.raises(UsageError):
                await anext(session.stream([]))

    anyio.run(body)


def test_botocores_stream_is_found_in_its_response(store: Store) -> None:
    events: list[Any] = [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"delta": {"text": "Hi"}, "contentBlockIndex": 0}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"messageStop": {"stopReason": "end_turn"}},
        {"metadata": {"usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}}},
    ]
    with store.session("s") as session:
        session.say("Go")
        with session.stream({"stream": iter(events), "ResponseMetadata": {}}) as stream:
            stream.finish()
        assert session.turn.state == "ended"
        assert texts(session.request("openai-chat"), "assistant") == ["Hi"]


@pytest.mark.parametrize("kind", ["asyncio", "trio"])
def test_a_cancelled_task_keeps_what_had_come(store: Store, kind: str) -> None:
    async def stalling() -> AsyncIterator[Any]:
        for event in WHOLE["anthropic"]()[:6]:
            yield event
        await anyio.sleep(60)

    async def work(ready: Callable[[], None]) -> None:
        async with store.async_session("s") as session:
            await session.say("Go")
            async with session.stream(stalling()) as stream:
                async for event in stream:
                    if event["type"] == "content_block_stop":
                        ready()

    async def body() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(work, group.cancel_scope.cancel)

    anyio.run(body, backend=kind)
    with store.session("s") as session:
        assert (session.turn.state, session.turn.reason) == ("interrupted", "cancelled")
        assert texts(session.request("openai-chat"), "assistant") == ["Let me see."]
        session.record(says("anthropic"))
