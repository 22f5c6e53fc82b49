"""Running tools: started before they run, finished when they are, answered exactly once."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from lockstitch.dialects.placeholders import NOT_STARTED, TIMED_OUT, WAITING
from lockstitch.errors import UsageError
from lockstitch.journal.events import Finished, Interrupted, Started, text_payload
from lockstitch.session.store import Store
from lockstitch.session.tool_run import Result, Tool, current_call
from lockstitch.session.writing import SessionWriter

from .talk import asks, results, says
from .twins import Twin, check_everywhere

BOTH = pytest.mark.parametrize("dialect", ["anthropic", "openai-chat"])


async def asked(session: Any, *calls: tuple[str, str, dict[str, Any]], dialect: str = "") -> None:
    await session.say("Go")
    await session.record(asks(dialect or "anthropic", *calls))


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@BOTH
def test_they_run_in_parallel_and_answer_in_order(twin: Twin, store: Store, dialect: str) -> None:
    meeting = threading.Barrier(3, timeout=60)

    def meet(n: int) -> str:
        meeting.wait()
        return f"met {n}"

    async def body() -> None:
        async with twin.opened(store) as session:
            await asked(session, *((f"c{n}", "meet", {"n": n}) for n in range(3)), dialect=dialect)
            done = await session.run_tools({"meet": meet})
            assert [c.outcome for c in done] == ["ok"] * 3
            found = results(await session.request("openai-chat"))
            assert list(found.values()) == ["met 0", "met 1", "met 2"]
            await check_everywhere(session)
            assert await session.run_tools({"meet": meet}) == []

    twin.run(body)


def test_every_start_is_durable_before_any_tool_runs(twin: Twin, store: Store) -> None:
    seen: list[int] = []

    def look() -> str:
        facts = store.read("s").state.facts.values()
        seen.append(sum(isinstance(fact.event, Started) for fact in facts))
        return ""

    async def body() -> None:
        async with twin.opened(store) as session:
            await asked(session, *((f"c{n}", "look", {}) for n in range(3)))
            await session.run_tools({"look": twin.tool(look)})

    twin.run(body)
    assert seen == [3, 3, 3]


def test_each_result_is_there_before_the_others_are(twin: Twin, store: Store) -> None:
    first = threading.Event()

    def quick() -> str:
        return "quick"

    def slow() -> str:
        until(lambda: [c for c in store.read("s").calls if c.outcome == "ok"])
        first.set()
        return "slow"

    async def body() -> None:
        async with twin.opened(store) as session:
            await asked(session, ("c1", "slow", {}), ("c2", "quick", {}))
            await session.run_tools({"slow": slow, "quick": quick})

    twin.run(body)
    assert first.is_set()


def test_with_a_limit_those_that_wait_are_not_said_to_have_started(
    twin: Twin, store: Store
) -> None:
    most: list[int] = []

    def look() -> str:
        running = [c for c in store.read("s").calls if c.status == "started"]
        most.append(len(running))
        return ""

    async def body() -> None:
        async with twin.opened(store) as session:
            await asked(session, *((f"c{n}", "look", {}) for n in range(7)))
            done = await session.run_tools({"look": twin.tool(look)}, max_parallel=2)
            assert [c.outcome for c in done] == ["ok"] * 7
            with pytest.raises(UsageError):
                await session.run_tools({}, max_parallel=0)

    twin.run(body)
    assert max(most) <= 2


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("text", "text"),
        (3, "3"),
        (None, "null"),
        ({"a": [1, 2]}, '{"a":[1,2]}'),
        (Result("bad", error=True), "bad"),
        ("half an emoji \ud83d", "half an emoji ?"),
    ],
)
def test_what_a_tool_gives_is_what_the_model_sees(
    twin: Twin, store: Store, value: Any, shown: str
) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await asked(session, ("c1", "give", {}))
            (call,) = await session.run_tools({"give": twin.tool(lambda: value)})
            assert call.outcome == ("error" if isinstance(value, Result) else "ok")
            assert results(await session.request("openai-chat")) == {"c1": shown}
            await check_everywhere(session)

    twin.run(body)


def test_blocks_and_pictures_go_through(twin: Twin, store: Store) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    blocks = [{"type": "text", "text": "here"}, {"type": "image", "source": source}]

    async def body() -> None:
        async with twin.opened(store) as session:
            await asked(session, ("c1", "draw", {}))
            draw = twin.tool(lambda: Result(blocks, dialect="anthropic"))
            await session.run_tools({"draw": draw})
            assert (await session.request("anthropic"))[-1]["content"][0]["content"] == blocks
            await check_everywhere(session)

    twin.run(body)


def broken(**_: Any) -> None:
    raise RuntimeError("no such table")


class Mute(Exception):
    """Whoever asks what it says gets another exception."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def mute(**_: Any) -> None:
    raise Mute


def test_a_store_that_fails_in_a_way_of_its_own_ends_the_run(
    twin: Twin, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as for want of memory; the run does not wait for ever, nor does it look done."""

    async def body() -> None:
        async with twin.opened(store) as session:
            await asked(session, ("c1", "look", {}))

            def fail(_writer: SessionWriter, _outcome: Finished) -> None:
                monkeypatch.undo()
                raise MemoryError

            monkeypatch.setattr(SessionWriter, "add", fail)
            with pytest.raises(MemoryError):
                await session.run_tools({"look": twin.tool(lambda: "seen")})
            assert [call.status for call in session.calls] == ["closed"]
            await check_everywhere(session)

    twin.run(body)


@pytest.mark.parametrize(
    ("name", "arguments", "text", "ran"),
    [
        ("broken", {}, "RuntimeError: no such table", True),
        ("mute", {}, "Mute", True),
        ("nobody", {}, "There is no tool of that name", False),
        ("add", {"a": 1}, "missing a required argument: 'b'", False),
        ("add", {"a": 1, "b": 2, "c": 3}, "unexpected keyword argument 'c'", False),
        ("odd", {}, "UsageError: unknown dialect", True),
    ],
)
def test_what_goes_wrong_is_told_to_the_model(
    twin: Twin, store: Store, name: str, arguments: dict[str, Any], text: str, ran: bool
) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    async def body() -> None:
        async with twin.opened(store) as session:
            await asked(session, ("c1", name, arguments))
            tools = {"broken": broken, "mute": twin.tool(mute), "add": add}
            tools["odd"] = lambda: Result([], dialect="klingon")
            (call,) = await session.run_tools(tools)
            assert (call.outcome, call.attempts) == ("error", int(ran))
            shown = results(await session.request("openai-chat"))["c1"]
            assert text in shown
            assert "Traceback" not in shown
            await check_everywhere(session)

    twin.run(body)


@pytest.mark.parametrize("arguments", ["{broken", "[1]", '"text"', "12"])
def test_arguments_that_are_no_object_run_nothing(twin: Twin, store: Store, arguments: str) -> None:
    reply = asks("openai-chat", ("c1", "look", {}))
    reply["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = arguments

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")
            await session.record(reply)
            (call,) = await session.run_tools({"look": lambda: "seen"})
            assert (call.outcome, call.attempts, call.arguments) == ("error", 0, None)
            await check_everywhere(session)

    twin.run(body)


def test_async_tools_in_the_sync_twin_are_refused_before_anything_starts(store: Store) -> None:
    async def look() -> None: ...

    with store.session("s") as session:
        session.say("Go")
        session.record(asks("anthropic", ("c1", "fine", {}), ("c2", "look", {})))
        with pytest.raises(UsageError, match="async_session"):
            session.run_tools({"fine": lambda: "", "look": look})
        with pytest.raises(UsageError, match="dictionary"):
            session.run_tools({"fine": 3})  # type: ignore[dict-item]
        assert session.seq == 2
        session.run_tools({"fine": lambda: "", "look": lambda: look()})  # noqa: PLW0108
        assert [c.outcome for c in session.calls] == ["ok", "error"]


def test_a_tool_knows_what_it_runs_for(twin: Twin, store: Store) -> None:
    def look() -> dict[str, Any]:
        call = current_call()
        assert not call.abort.is_set()
        return {"id": call.id, "name": call.name, "effect": call.effect, "n": call.attempt}

    async def body() -> None:
        async with twin.opened(store) as session:
            await asked(session, ("c1", "look", {}))
            (call,) = await session.run_tools({"look": twin.tool(look)})
            told = json.loads(await session.output(call))
            assert told == {"id": "c1", "name": "look", "effect": call.effect, "n": 1}
            with pytest.raises(UsageError):
                current_call()

    twin.run(body)


def test_a_call_that_takes_too_long_is_not_waited_for(twin: Twin, store: Store) -> None:
    release = threading.Event()
    told: list[bool] = []

    def slow() -> str:
        told.append(current_call().abort.wait(60))
        release.wait(60)
        return "slow but sure"

    async def body() -> None:
        async with twin.opened(store) as session:
            await asked(session, ("c1", "slow", {}), ("c2", "quick", {}))
            tools = {"slow": Tool(slow, timeout=0.05), "quick": lambda: "quick"}
            done = await session.run_tools(tools, timeout=60)
            assert [(c.outcome, c.is_real) for c in done] == [("timed-out", False), ("ok", True)]
            assert results(await session.request("openai-chat"))["c1"] == TIMED_OUT
            await check_everywhere(session)
            release.set()
            until(lambda: session.calls[0].outcome == "ok")
            assert results(await session.request("openai-chat"))["c1"] == "slow but sure"
            await check_everywhere(session)

    twin.run(body)
    assert told == [True]


@pytest.mark.parametrize("kind", ["asyncio", "trio"])
def test_an_async_tool_that_takes_too_long_is_cancelled(store: Store, kind: str) -> None:
    cleaned: list[bool] = []

    async def slow() -> None:
        try:
            await anyio.sleep(60)
        finally:
            cleaned.append(True)

    async def body() -> None:
        async with store.async_session("s") as session:
            await asked(session, ("c1", "slow", {}))
            (call,) = await session.run_tools({"slow": slow}, timeout=0.05)
            assert call.outcome == "timed-out"
            assert session.turn.state == "open"

    anyio.run(body, backend=kind)
    assert cleaned == [True]


def test_a_second_real_result_becomes_a_note(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await asked(session, ("c1", "look", {}))
            await session.run_tools({"look": twin.tool(lambda: "one")})
            writer = twin.inner(session)._writer  # noqa: SLF001
            fact = writer.state.facts[session.seq].event
            assert isinstance(fact, Finished)
            other = Finished(reply=fact.reply, index=0, payload=text_payload("two"))
            writer.add(other)
            messages = await session.request("openai-chat")
            assert results(messages) == {"c1": "one"}
            assert "two" in json.dumps(messages)
            await check_everywhere(session)

    twin.run(body)


def test_a_late_result_is_there_when_a_rewind_is_taken_back(twin: Twin, store: Store) -> None:
    release = threading.Event()

    def slow() -> str:
        release.wait()
        return "late"

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("One")
            await session.record(says("anthropic", "First"))
            await session.checkpoint("here")
            await asked(session, ("c1", "slow", {}))
            await session.run_tools({"slow": slow}, timeout=0.02)
            await session.rewind("here")
            before = session.seq
            release.set()
            until(lambda: session.seq > before)
            assert session.calls == []
            assert (await session.undo_rewind()).state == "open"
            assert results(await session.request("openai-chat"))["c1"] == "late"
            await check_everywhere(session)

    twin.run(body)


def test_a_result_after_the_end_is_dropped_and_said_so(
    twin: Twin, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    def slow() -> str:
        release.wait(60)
        return "secret"

    async def body() -> None:
        async with twin.opened(store) as session:
            await asked(session, ("c1", "slow", {}))
            await session.run_tools({"slow": slow}, timeout=0.02)

    with caplog.at_level(logging.WARNING, "lockstitch"):
        twin.run(body)
        release.set()
        until(lambda: caplog.records)
    (record,) = caplog.records
    assert "c1" in record.getMessage()
    assert "secret" not in record.getMessage()
    with store.session("s") as session:
        assert [c.outcome for c in session.calls] == ["timed-out"]


@BOTH
def test_a_call_that_needs_approval_waits_over_a_restart(
    twin: Twin, disk: Store, dialect: str
) -> None:
    ran: list[str] = []

    def delete(path: str) -> str:
        ran.append(path)
        return "deleted"

    tools = {"delete": Tool(twin.tool(delete), approve=True), "look": twin.tool(lambda: "seen")}

    async def body() -> None:
        async with twin.opened(disk) as session:
            calls = (
                ("c1", "delete", {"path": "a"}),
                ("c2", "look", {}),
                ("c3", "delete", {"path": "b"}),
            )
            await asked(session, *calls, dialect=dialect)
            await session.run_tools(tools)
            assert [c.id for c in session.waiting] == ["c1", "c3"]
            assert session.turn.state == "waiting"
            assert results(await session.request("openai-chat"))["c1"] == WAITING
            await check_everywhere(session)
            assert await session.run_tools(tools) == []
        async with twin.opened(disk) as session:
            assert not session.recovered
            first, second = session.waiting
            assert (first.arguments, session.turn.state) == ({"path": "a"}, "waiting")
            await session.approve(first)
            await session.deny("c3", "too dangerous")
            await session.deny(second)
        async with twin.opened(disk) as session:
            assert session.turn.state == "open"
            (call,) = await session.run_tools(tools)
            assert (call.id, call.outcome) == ("c1", "ok")
            found = results(await session.request("openai-chat"))
            assert (found["c1"], found["c2"]) == ("deleted", "seen")
            assert "too dangerous" in found["c3"]
            await check_everywhere(session)
            assert (await session.record(says(dialect))).state == "ended"
            assert await session.run_tools(tools) == []

    twin.run(body)
    assert ran == ["a"]


def test_what_is_said_while_a_call_waits_is_answered_and_then_the_call(
    twin: Twin, store: Store
) -> None:
    tools = {"pay": Tool(twin.tool(lambda: "paid"), approve=True)}

    async def body() -> None:
        async with twin.opened(store) as session:
            await asked(session, ("c1", "pay", {}))
            await session.run_tools(tools)
            assert session.turn.state == "waiting"
            assert (await session.say("What does it cost?")).state == "open"
            await check_everywhere(session)
            assert (await session.record(says("anthropic", "30 euros"))).state == "ended"
            await session.approve("c1")
            assert session.turn.is_open
            await session.run_tools(tools)
            assert session.turn.is_open, "the model has not seen what the tool gave"
            messages = await session.request("openai-chat")
            assert results(messages)["c1"] == WAITING, "what the model was told then"
            assert "paid" in str(messages[-1]), "what it is told now"
            assert messages[-1]["role"] == "user"
            await check_everywhere(session)
            assert (await session.record(says("anthropic", "Paid"))).state == "ended"

    twin.run(body)


def test_a_denial_after_the_end_waits_for_the_next_message(twin: Twin, store: Store) -> None:
    tools = {"pay": Tool(twin.tool(lambda: "paid"), approve=True)}

    async def body() -> None:
        async with twin.opened(store) as session:
            await asked(session, ("c1", "pay", {}))
            await session.run_tools(tools)
            await session.interrupt()
            await session.deny("c1")
            assert session.turn.state == "interrupted", "nobody asked the model to go on"

    twin.run(body)


def test_who_decides_sees_the_call(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await asked(session, *((f"c{n}", "pay", {"sum": n}) for n in range(4)))

            def dear(call: Any) -> bool:
                return bool(call.arguments["sum"] > 2)

            tool = Tool(twin.tool(lambda sum: sum), approve=lambda call: call.id == "c0")  # noqa: A006
            await session.run_tools({"pay": tool}, approve=dear)
            assert [c.id for c in session.waiting] == ["c0", "c3"]
            assert [c.outcome for c in session.calls] == ["", "ok", "ok", ""]

    twin.run(body)


def test_approval_of_what_does_not_wait_is_refused(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await asked(session, ("same", "look", {}), ("same", "look", {}), ("c3", "look", {}))
            await session.run_tools({"look": twin.tool(lambda: "")}, approve=True)
            with pytest.raises(UsageError, match="several"):
                await session.approve("same")
            with pytest.raises(UsageError, match="no call"):
                await session.approve("nobody")
            one, two, three = session.waiting
            await session.approve(two)
            await session.approve(two)
            await session.approve("same")
            await session.approve(three)
            await session.run_tools({"look": twin.tool(lambda: "")})
            with pytest.raises(UsageError, match="is not waiting"):
                await session.deny(one)

    twin.run(body)


def test_an_approved_call_of_an_earlier_batch_still_runs(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            tools = {"pay": Tool(twin.tool(lambda: "paid"), approve=True)}
            await asked(session, ("c1", "pay", {}))
            await session.run_tools(tools)
            await session.say("Never mind, what time is it?")
            await session.record(says("anthropic", "Late."))
            await session.approve("c1")
            (call,) = await session.run_tools(tools)
            assert (call.id, call.outcome) == ("c1", "ok")
            assert "paid" in str((await session.request("openai-chat"))[-1])
            await check_everywhere(session)

    twin.run(body)


def test_never_started_calls_of_an_earlier_batch_do_not_run(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await asked(session, ("c1", "look", {}))
            await session.say("Something else")
            await session.record(says("anthropic"))
            assert await session.run_tools({"look": twin.tool(lambda: "")}) == []
            assert results(await session.request("openai-chat")) == {"c1": NOT_STARTED}
            await check_everywhere(session)

    twin.run(body)


def test_two_threads_never_run_a_call_twice(store: Store) -> None:
    ran: list[int] = []

    def look(n: int) -> int:
        ran.append(n)
        return n

    with store.session("s") as session:
        session.say("Go")
        session.record(asks("anthropic", *((f"c{n}", "look", {"n": n}) for n in range(20))))
        start = threading.Barrier(4)

        def work() -> None:
            start.wait(60)
            session.run_tools({"look": look})

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(ran) == list(range(20))
        assert all(c.outcome == "ok" for c in session.calls)


def test_a_message_while_tools_run_is_legal(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            inner = twin.inner(session)
            requests: list[Any] = []

            def look() -> str:
                inner.say("Are you there?")
                requests.append(inner.request("openai-chat"))
                return "seen"

            await asked(session, ("c1", "look", {}))
            await session.run_tools({"look": look})
            assert [m["role"] for m in requests[0]] == ["user", "assistant", "tool", "user"]
            assert results(await session.request("openai-chat")) == {"c1": "seen"}
            await check_everywhere(session)

    twin.run(body)


def test_interrupting_from_elsewhere_ends_the_run(twin: Twin, store: Store) -> None:
    release = threading.Event()

    async def body() -> None:
        async with twin.opened(store) as session:
            inner = twin.inner(session)

            def look() -> str:
                inner.interrupt("boss")
                release.wait(60)
                return "late"

            await asked(session, ("c1", "look", {}))
            (call,) = await session.run_tools({"look": look})
            assert (call.outcome, session.turn.state) == ("cancelled", "interrupted")
            release.set()
            until(lambda: session.calls[0].outcome == "ok")
            facts = store.read("s").state.facts.values()
            assert sum(isinstance(fact.event, Interrupted) for fact in facts) == 1
            await check_everywhere(session)

    twin.run(body)
