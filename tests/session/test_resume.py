"""A turn that goes on: after a crash, a dead stream, an interrupt, a rewind, a repeated start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lockstitch.dialects.placeholders import UNKNOWN_OUTCOME
from lockstitch.errors import AmbiguousDialect, UsageError
from lockstitch.journal.events import Interrupted, Replied
from lockstitch.session.store import Store
from lockstitch.session.tool_run import Tool, current_call
from lockstitch.stores.sqlite import SqliteBackend

from .events import WHOLE
from .talk import DIALECTS, asks, faults, results, says, texts
from .twins import Twin, check_everywhere


class Overloaded(Exception):
    """What an SDK raises for a 529."""


async def failing(twin: Twin, store: Store) -> None:
    """A run that ends when the provider is overloaded, for the second request of the turn."""
    async with twin.opened(store) as session:
        await session.say("Look")
        await session.request("anthropic")
        await session.record(asks("anthropic", ("c1", "look", {})))
        await session.run_tools({"look": twin.tool(lambda: "seen")})
        await session.request("anthropic")
        raise Overloaded


def test_an_overloaded_provider_is_asked_again_without_new_words(twin: Twin, store: Store) -> None:
    async def body() -> None:
        with pytest.raises(Overloaded):
            await failing(twin, store)
        async with twin.opened(store) as session:
            assert session.turn.is_open
            messages = await session.request("openai-chat")
            assert (texts(messages, "user"), results(messages)) == (["Look"], {"c1": "seen"})
            assert (await session.record(says("anthropic"))).state == "ended"

    twin.run(body)


@pytest.mark.parametrize("kept", [3, 8])
def test_a_dead_stream_is_asked_for_again(twin: Twin, store: Store, kept: int) -> None:
    def dying() -> Any:
        yield from WHOLE["anthropic"]()[:kept]
        raise ConnectionError

    async def read(session: Any, source: Any) -> None:
        if twin.kind == "sync":
            with session.stream(source) as stream:
                stream.finish()
        else:
            async with session.stream(source) as stream:
                async for _ in stream:
                    pass

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")
            for _ in range(2):
                asked = await session.request("anthropic")
                assert [message["role"] for message in asked] == ["user"]
                with pytest.raises(ConnectionError):
                    await read(session, dying())
                assert session.turn.is_open
                await check_everywhere(session)
            await session.request("anthropic")
            await read(session, iter(WHOLE["anthropic"]()))
            messages = await session.request("openai-chat")
            assert texts(messages, "assistant") == ["Let me see."], "the new reply alone"
            assert texts(messages, "user") == ["Go"]
            await check_everywhere(session)

    twin.run(body)


def test_only_a_person_ends_a_turn_and_resume_takes_it_up(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Look")
            await session.record(asks("anthropic", ("c1", "look", {})))
            await session.interrupt()
            assert session.turn.state == "interrupted"
        async with twin.opened(store) as session:
            assert session.turn.state == "interrupted", "a new start does not overrule a person"
            assert (await session.resume()).state == "open"
            assert await session.run_tools({"look": twin.tool(lambda: "seen")}) == []
            assert texts(await session.request("openai-chat"), "user") == ["Look"]
            await check_everywhere(session)
            assert (await session.record(says("anthropic"))).state == "ended"
            assert (await session.resume()).state == "ended", "there is nothing to take up"

    twin.run(body)


def test_a_partial_reply_that_was_interrupted_is_asked_for_again(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")
            if twin.kind == "sync":
                with session.stream(WHOLE["anthropic"]()[:8]) as stream:
                    next(stream)
            else:
                async with session.stream(WHOLE["anthropic"]()[:8]) as stream:
                    await anext(stream)
            assert session.turn.state == "interrupted"
            await session.resume()
            assert [m["role"] for m in await session.request("anthropic")] == ["user"]

    twin.run(body)


def test_the_same_words_without_a_key_are_said_once_while_their_turn_is_open(
    twin: Twin, store: Store
) -> None:
    async def said() -> None:
        async with twin.opened(store) as session:
            await session.say("One")
            await session.say("Two")
            raise Overloaded

    async def body() -> None:
        with pytest.raises(Overloaded):
            await said()
        async with twin.opened(store) as session:
            await session.say("One")
            await session.say("Two")
            await session.say("Two")
            shown = texts(await session.request("openai-chat"), "user")
            assert shown == ["One", "Two", "Two"], "the third is new"
            await session.record(says("anthropic"))
        async with twin.opened(store) as session:
            await session.say("One")
            assert session.turn.is_open, "a new turn may begin with old words"

    twin.run(body)


def test_other_words_under_a_key_are_an_error(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("One", key="k")
            await session.say("One", key="k")
            with pytest.raises(UsageError, match="'k' was used before"):
                await session.say("Two", key="k")
            await session.say("x" * 100_000, key="large")
            await session.say("x" * 100_000, key="large")
            with pytest.raises(UsageError, match="'large' was used before"):
                await session.say("y" * 100_000, key="large")
            await session.record(says("anthropic", "Yes."), key="r")
            await session.record(says("anthropic", "Yes."), key="r")
            with pytest.raises(UsageError, match="'r' was used before"):
                await session.record(says("anthropic", "No."), key="r")
            await session.note("n", 1, key="n")
            with pytest.raises(UsageError, match="'n' was used before"):
                await session.note("n", 2, key="n")
            assert texts(await session.request("openai-chat"), "assistant") == ["Yes."]

    twin.run(body)


@pytest.mark.parametrize("dialect", ["anthropic", "openai-chat", "openai-chat:mistral"])
def test_a_plain_reply_is_in_the_dialect_of_the_request(
    twin: Twin, store: Store, dialect: str
) -> None:
    reply = {"role": "assistant", "content": "Done."}

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")
            with pytest.raises(AmbiguousDialect):
                await session.record(reply)
            await session.request(dialect)
            assert (await session.record(reply)).state == "ended"
        async with twin.opened(store) as session:
            await session.say("Again")
            await session.record(reply)  # the last reply's, where nobody has asked yet
            events = [fact.event for fact in session.state.facts.values()]
            kept = [event.dialect for event in events if isinstance(event, Replied)]
            assert kept == [dialect.partition(":")[0]] * 2

    twin.run(body)


@pytest.mark.parametrize("place", ["before", "batch"])
def test_a_rewind_while_tools_run_tells_them_to_stop(twin: Twin, store: Store, place: str) -> None:
    aborted: list[bool] = []

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Look")
            await session.checkpoint("before")
            await session.record(asks("anthropic", ("c1", "look", {}), ("c2", "quick", {})))
            inner = twin.inner(session)
            batch = next(c.seq for c in session.checkpoints if c.kind == "batch")

            def look() -> str:
                inner.rewind(batch if place == "batch" else place)
                aborted.append(current_call().abort.wait(60))
                return "seen"

            done = await session.run_tools({"look": look, "quick": lambda: "quick"})
            assert [call.id for call in done] == ["c1", "c2"]
            await check_everywhere(session)
        assert aborted == [True]

    twin.run(body)


def test_a_call_that_runs_again_after_a_rewind_has_the_same_key(twin: Twin, store: Store) -> None:
    seen: list[tuple[str, int]] = []

    def look() -> str:
        seen.append((current_call().effect, current_call().attempt))
        return f"attempt {len(seen)}"

    async def body() -> None:
        for attempt in (1, 2, 3):
            async with twin.opened(store) as session:
                if attempt == 1:
                    await session.say("Look")
                    await session.record(asks("anthropic", ("c1", "look", {})))
                else:
                    await session.rewind(session.checkpoints[-1])
                (call,) = await session.run_tools({"look": twin.tool(look)})
                assert (call.attempts, call.effect) == (attempt, seen[0][0])
                shown = results(await session.request("openai-chat"))
                assert shown == {"c1": f"attempt {attempt}"}
                await check_everywhere(session)
        assert [attempt for _, attempt in seen] == [1, 2, 3]
        assert len({effect for effect, _ in seen}) == 1

    twin.run(body)


def test_what_can_be_repeated_is_run_again_after_an_exception(twin: Twin, store: Store) -> None:
    """An exception that leaves the session while tools run is nobody's wish to end the turn."""
    ran: list[int] = []

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Look")
            await session.record(asks("anthropic", ("c1", "look", {}), ("c2", "once", {})))
            inner = twin.inner(session)

            def left() -> str:
                ran.append(current_call().attempt)
                if current_call().attempt == 1:
                    inner._close(Overloaded())  # noqa: SLF001
                return "seen"

            tools = {"look": Tool(left, repeatable=True), "once": left}
            # The session is closed under it: it raises, or has seen the end of its batch before.
            with suppress(Exception):
                await session.run_tools(tools, max_parallel=1)
        async with twin.opened(store) as session:
            assert session.turn.is_open
            done = await session.run_tools(tools)
            assert [(call.id, call.outcome) for call in done if call.id == "c1"] == [("c1", "ok")]
            assert ran.count(2) == 1

    twin.run(body)


TERMINATED = """
import sys, time
import lockstitch
from tests.session.talk import asks
lockstitch.handle_sigterm()

def slow():
    print("running", flush=True)
    lockstitch.current_call().abort.wait(60)
    return "stopped"

def main():
    with lockstitch.open(sys.argv[1]) as store, store.session("s") as session:
        session.say("Go")
        session.record(asks("anthropic", ("c1", "slow", {}), ("c2", "slow", {})))
        session.run_tools({"slow": slow}, max_parallel=1)

async def later():
    async with lockstitch.open(sys.argv[1]).async_session("s") as session:
        await session.say("Go")
        await session.record(asks("anthropic", ("c1", "slow", {}), ("c2", "slow", {})))
        await session.run_tools({"slow": slow}, max_parallel=1)

if sys.argv[2] == "sync":
    main()
else:
    import asyncio
    asyncio.run(later())
"""


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
def test_sigterm_leaves_in_order_and_the_turn_open(tmp_path: Path, kind: str) -> None:
    address = f"sqlite:///{tmp_path}/agent.db"
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", TERMINATED, address, kind]
    env = {**os.environ, "PYTHONPATH": root}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as child:
        assert child.stdout
        assert child.stdout.readline() == "running\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(600) == 128 + signal.SIGTERM
    with Store(SqliteBackend(tmp_path / "agent.db")) as store:
        listed = next(iter(store.sessions()))
        assert listed.holder == "", "the lease was released"
        with store.session("s") as session:
            facts = [fact.event for fact in session.state.facts.values()]
            assert not any(isinstance(event, Interrupted) for event in facts)
            assert session.turn.is_open
            shown = results(session.request("openai-chat"))
            assert shown["c1"] in (UNKNOWN_OUTCOME, "stopped")
            done = session.run_tools({"slow": lambda: "now"})
            assert [(call.id, call.outcome) for call in done] == [("c2", "ok")]
            for dialect in DIALECTS:
                assert faults(dialect, session.request(dialect)) == []


def test_sigterm_is_handled_in_the_main_thread_only() -> None:
    from lockstitch.session.writing import handle_sigterm

    errors: list[BaseException] = []

    def elsewhere() -> None:
        try:
            handle_sigterm()
        except UsageError as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert [str(error) for error in errors] == [
        "handle_sigterm() sets a signal handler: call it in the main thread"
    ]
