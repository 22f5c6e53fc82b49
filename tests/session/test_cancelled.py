"""Cancelled anywhere: every call has an outcome at once, and no write is torn."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from lockstitch.dialects.placeholders import CANCELLED, NOT_STARTED
from lockstitch.errors import Fenced, UsageError
from lockstitch.journal.records import JournalEntry
from lockstitch.session.store import Store
from lockstitch.stores.base import Lease
from lockstitch.stores.memory import MemoryBackend

from .talk import DIALECTS, asks, faults, results, says
from .twins import Twin, check_everywhere

LOOPS = pytest.mark.parametrize("kind", ["asyncio", "trio"])
CALLS = (
    ("done", "quick", {}),
    ("runs", "slow", {}),
    ("also", "slow", {}),
    ("queued", "slow", {}),
)


def settled(store: Store, name: str = "s") -> dict[str, str]:
    """The outcomes after reopening, where the request is valid in every dialect."""
    with store.session(name) as session:
        for dialect in DIALECTS:
            assert faults(dialect, session.request(dialect)) == []
        return {call.id: call.outcome for call in session.calls}


class Slow:
    """A tool that runs until it is let go, and tells when it has begun."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.release = threading.Event()

    def __call__(self) -> str:
        self.began.set()
        assert self.release.wait(60)
        return "late"


@pytest.fixture
def slow() -> Iterator[Slow]:
    tool = Slow()
    yield tool
    tool.release.set()


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def is_busy(store: Store) -> bool:
    """Whether, two at a time, one call is done, two run, and the last one waits for its place."""
    if not any(store.sessions()):
        return False
    found = {call.id: call for call in store.read("s").calls}
    return bool(found) and found["done"].outcome == "ok" and found["also"].status == "started"


async def until_busy(store: Store) -> None:
    while not is_busy(store):  # noqa: ASYNC110 - what is waited for is in the store
        await anyio.sleep(0.002)


def test_an_abort_signal_gives_every_call_an_outcome(twin: Twin, store: Store, slow: Slow) -> None:
    abort = threading.Event()

    def signal() -> None:
        wait_for(lambda: is_busy(store))
        abort.set()

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")
            await session.record(asks("anthropic", *CALLS))
            tools = {"quick": lambda: "quick", "slow": slow}
            done = await session.run_tools(tools, abort=abort, max_parallel=2)
            assert [c.outcome for c in done] == ["ok", "cancelled", "cancelled", "not-started"]
            assert session.turn.state == "interrupted"
            assert session.turn.reason == "aborted"
            shown = results(await session.request("openai-chat"))
            assert list(shown.values()) == ["quick", CANCELLED, CANCELLED, NOT_STARTED]
            await check_everywhere(session)
            slow.release.set()
            wait_for(lambda: session.calls[1].outcome == "ok")
            assert results(await session.request("openai-chat"))["runs"] == "late"

    thread = threading.Thread(target=signal)
    thread.start()
    twin.run(body)
    thread.join()


def test_an_abort_that_is_set_before_starts_nothing(twin: Twin, store: Store) -> None:
    abort = threading.Event()
    abort.set()

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")
            await session.record(asks("openai-chat", *CALLS))
            await session.run_tools({"quick": lambda: 1, "slow": lambda: 1}, abort=abort)
            assert [(c.outcome, c.attempts) for c in session.calls] == [("not-started", 0)] * 4

    twin.run(body)


@LOOPS
def test_a_cancelled_task_gives_every_call_an_outcome(store: Store, kind: str, slow: Slow) -> None:
    unwound: list[str] = []

    async def pause() -> None:
        try:
            await anyio.sleep(60)
        finally:
            unwound.append("pause")

    async def work() -> None:
        async with store.async_session("s") as session:
            await session.say("Go")
            calls = (CALLS[0], ("runs", "pause", {}), *CALLS[2:])
            await session.record(asks("anthropic", *calls))
            tools = {"quick": lambda: "quick", "slow": slow, "pause": pause}
            await session.run_tools(tools, max_parallel=2)

    async def body() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await until_busy(store)
            group.cancel_scope.cancel()

    anyio.run(body, backend=kind)
    assert unwound == ["pause"]
    assert list(settled(store).values()) == ["ok", "cancelled", "cancelled", "not-started"]


def test_asyncios_own_cancel_and_a_second_one(store: Store, slow: Slow) -> None:
    async def work() -> None:
        async with store.async_session("s") as session:
            await session.say("Go")
            await session.record(asks("anthropic", *CALLS))
            await session.run_tools({"quick": lambda: "quick", "slow": slow}, max_parallel=2)

    async def body() -> None:
        task = asyncio.create_task(work())
        await until_busy(store)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(body())
    assert list(settled(store).values()) == ["ok", "cancelled", "cancelled", "not-started"]


class Counting(MemoryBackend):
    """A store that can be told to cancel somebody in the middle of its n-th write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.at = -1
        self.strike: Callable[[], None] = lambda: None

    def append(self, lease: Lease, entries: Any, after: int) -> Any:
        self.writes += 1
        if self.writes == self.at:
            self.strike()
            time.sleep(0.005)
        return super().append(lease, entries, after)


async def nap() -> str:
    await anyio.lowlevel.checkpoint()
    return "rested"


async def turn(store: Store) -> None:
    async with store.async_session("s") as session:
        await session.say("Go")
        await session.request("anthropic")
        await session.record(asks("anthropic", ("c1", "quick", {}), ("c2", "nap", {})))
        await session.run_tools({"quick": lambda: "quick", "nap": nap})
        await session.record(says("anthropic", "Bye"))


@LOOPS
def test_cancelled_in_the_middle_of_every_write(kind: str) -> None:
    whole = Counting()
    anyio.run(turn, Store(whole), backend=kind)
    assert whole.writes >= 6
    for number in range(1, whole.writes + 1):
        backend = Counting()
        backend.at = number
        store = Store(backend)

        async def body(backend: Counting = backend, store: Store = store) -> None:
            token = anyio.lowlevel.current_token().native_token
            soon = getattr(token, "call_soon_threadsafe", None) or token.run_sync_soon
            with anyio.CancelScope() as scope:
                backend.strike = lambda: soon(scope.cancel)
                await turn(store)

        anyio.run(body, backend=kind)
        settled(store)
        # a write that was begun was done to its end, and then nothing else but the closing
        assert backend.writes > number or number == whole.writes


@LOOPS
def test_cancelled_at_every_await(kind: str) -> None:
    """The n-th time the task comes to rest it is cancelled, for every n."""
    for number in range(1, 200):
        store = Store(MemoryBackend())

        async def body(store: Store = store, number: int = number) -> bool:
            with anyio.CancelScope() as scope:
                await _Cancelling(turn(store), number, scope)
            return scope.cancel_called

        was_struck = anyio.run(body, backend=kind)
        found = settled(store)
        if not was_struck:
            assert number > 6
            assert found == {"c1": "ok", "c2": "ok"}
            return
    raise AssertionError("it never came to its end")


class _Cancelling:
    """Await something, and cancel a scope at its n-th rest."""

    def __init__(self, coroutine: Any, number: int, scope: anyio.CancelScope) -> None:
        self._coroutine = coroutine
        self._number = number
        self._scope = scope

    def __await__(self) -> Any:
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                if error is not None:
                    rest = self._coroutine.throw(error)
                else:
                    rest = self._coroutine.send(value)
            except StopIteration as done:
                return done.value
            self._number -= 1
            if self._number == 0:
                self._scope.cancel()
            error = None
            try:
                value = yield rest
            except BaseException as thrown:  # noqa: BLE001 - handed on to where it belongs
                error = thrown


@LOOPS
def test_waiting_for_a_lease_can_be_cancelled_and_leaves_none(store: Store, kind: str) -> None:
    async def body() -> None:
        holder = await store.async_session("s")
        with anyio.move_on_after(0.05):
            await store.async_session("s", wait=60)
        await holder.close()
        async with store.async_session("s", wait=10) as session:
            await session.say("Mine")

    anyio.run(body, backend=kind)


class Failing(MemoryBackend):
    """A store that refuses every write from the n-th on."""

    def __init__(self, at: int, error: BaseException) -> None:
        super().__init__()
        self.at = at
        self.error = error

    def append(self, lease: Lease, entries: Any, after: int) -> Any:
        self.at -= 1
        if self.at <= 0:
            raise self.error
        return super().append(lease, entries, after)


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
def test_a_writer_that_was_fenced_says_so_and_writes_no_more(twin: Twin, at: int) -> None:
    store = Store(Failing(at, Fenced("another writer took it over")))
    release = threading.Event()

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")
            await session.record(asks("anthropic", ("c1", "quick", {}), ("c2", "quick", {})))
            try:
                await session.run_tools({"quick": lambda: "quick"})
            finally:
                seq = session.seq
                with pytest.raises(Fenced, match="open it again"):
                    await session.say("Again")
                assert session.seq == seq
                await check_everywhere(session)

    with pytest.raises(Fenced):
        twin.run(body)
    release.set()


def test_a_handler_that_writes_inside_a_write_is_told(store: Store) -> None:
    backend = Counting()
    store = Store(backend)
    with store.session("s") as session:

        def strike() -> None:
            with pytest.raises(UsageError, match="signal handler"):
                session.interrupt()
            with pytest.raises(UsageError, match="signal handler"):
                session.close()

        backend.at, backend.strike = 1, strike
        session.say("Go")
        assert session.turn.state == "open"


class Torn(MemoryBackend):
    """A store in which an exception strikes before or after the write itself."""

    def __init__(self) -> None:
        super().__init__()
        self.mode = ""

    def append(self, lease: Lease, entries: list[JournalEntry], after: int) -> Any:  # type: ignore[override]
        mode, self.mode = self.mode, ""
        if mode == "before":
            raise SystemExit(3)
        head = super().append(lease, entries, after)
        if mode == "after":
            raise SystemExit(3)
        return head


@pytest.mark.parametrize("mode", ["before", "after"])
def test_memory_and_store_agree_after_an_exception_inside_a_write(mode: str) -> None:
    backend = Torn()
    store = Store(backend)
    with store.session("s") as session:
        session.say("One")
        backend.mode = mode
        with pytest.raises(SystemExit):
            session.say("Two")
        session.say("Three")
        assert session.request("openai-chat") == store.read("s").request("openai-chat")
        said = [m["content"] for m in session.request("openai-chat")]
        assert "Two" in str(said)
        assert str(said).count("Two") == 1
    with suppress(SystemExit), store.session("t") as session:
        backend.mode = mode
        session.say("One")
    with store.session("t") as session:
        assert session.request("openai-chat") == store.read("t").request("openai-chat")
