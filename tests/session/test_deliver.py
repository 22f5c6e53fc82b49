"""Results from outside: from another thread or process, held or not, once, and they wake."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lockstitch
from lockstitch.dialects.placeholders import WAITING
from lockstitch.errors import Unreadable, UsageError
from lockstitch.journal.events import Finished
from lockstitch.session.store import Store
from lockstitch.session.tool_run import Later, Result, current_call
from tests import postgres_server

from .talk import asks, results, says, texts
from .twins import Twin, check_everywhere

KINDS = ("memory", "sqlite", "jsonl", "postgres")


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    addresses: dict[str, Callable[[], str]] = {
        "memory": lambda: "memory:",
        "sqlite": lambda: f"sqlite:///{tmp_path}/agent.db",
        "jsonl": lambda: f"jsonl:///{tmp_path}/agent",
        "postgres": lambda: postgres_server.shared().prepared(),
    }
    with lockstitch.open(addresses[request.param]()) as store:
        yield store


def ordering(effects: list[str]) -> Callable[[], Later]:
    """A tool that hands its work to somebody else."""

    def order() -> Later:
        effects.append(current_call().effect)
        return Later()

    return order


def ordered(store: Store, *, name: str = "s") -> str:
    """Leave a session whose one call waits for its result; gives the idempotency key."""
    effects: list[str] = []
    with store.session(name) as session:
        session.say("Order it")
        session.record(asks("anthropic", ("c1", "order", {})))
        session.run_tools({"order": ordering(effects)})
        assert session.turn.state == "waiting"
        assert [call.id for call in session.expected] == ["c1"]
        assert session.waiting == []
        assert results(session.request("openai-chat")) == {"c1": WAITING}
    return effects[0]


def test_a_result_is_there_when_the_session_is_opened_again(store: Store) -> None:
    effect = ordered(store)
    assert store.deliver("s", effect, "shipped")
    assert [listed.session for listed in store.sessions()] == ["s"]
    with store.session("s") as session:
        assert session.turn.is_open
        assert results(session.request("openai-chat")) == {"c1": "shipped"}
        assert session.run_tools({"order": lambda: "again"}) == []
        assert session.record(says("anthropic")).state == "ended"


def test_the_same_again_is_delivered_already_and_another_is_refused(store: Store) -> None:
    effect = ordered(store)
    assert store.deliver("s", effect, "x" * 200_000)
    assert not store.deliver("s", effect, "x" * 200_000)
    with pytest.raises(UsageError, match="another result was delivered"):
        store.deliver("s", effect, "y")
    with store.session("s") as session:
        assert results(session.request("openai-chat")) == {"c1": "x" * 200_000}
    assert not store.deliver("s", effect, "x" * 200_000)
    with store.session("s") as session:
        facts = [fact.event for fact in session.state.facts.values()]
        assert sum(isinstance(event, Finished) for event in facts) == 1


def test_a_session_that_waits_is_woken_while_it_is_held(twin: Twin, store: Store) -> None:
    effects: list[str] = []

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Order it")
            await session.record(asks("anthropic", ("c1", "order", {})))
            await session.run_tools({"order": ordering(effects)})
            assert (await session.wait(timeout=0.01)).state == "waiting"
            arguments = ("s", effects[0], Result("sold out", error=True))
            hook = threading.Timer(0.1, store.deliver, arguments)
            hook.start()
            assert (await session.wait(timeout=600)).is_open
            hook.join()
            assert results(await session.request("openai-chat")) == {"c1": "sold out"}
            await check_everywhere(session)

    twin.run(body)


def test_a_result_that_comes_when_the_model_has_gone_on_is_news(store: Store) -> None:
    effect = ordered(store)
    with store.session("s") as session:
        session.say("Anything new?")
        session.record(says("anthropic", "Not yet."))
        assert session.turn.state == "ended"
        before = session.request("anthropic")
    store.deliver("s", effect, "shipped")
    with store.session("s") as session:
        assert session.turn.is_open
        messages = session.request("anthropic")
        assert messages[: len(before)] == before, "what was sent stays as it was"
        assert "shipped" in str(messages[-1])
        assert messages[-1]["role"] == "user"
        session.record(says("anthropic", "It is on its way."))
        assert texts(session.request("openai-chat"), "assistant")[-1] == "It is on its way."


def test_a_person_who_broke_the_turn_off_is_not_overruled(store: Store) -> None:
    effect = ordered(store)
    with store.session("s") as session:
        session.interrupt()
    store.deliver("s", effect, "shipped")
    with store.session("s") as session:
        assert session.turn.state == "interrupted"
        session.say("And?")
        assert results(session.request("openai-chat")) == {"c1": "shipped"}


def test_the_holder_may_deliver_too(twin: Twin, store: Store) -> None:
    effects: list[str] = []

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Order it")
            await session.record(asks("anthropic", ("c1", "order", {}), ("c2", "order", {})))
            await session.run_tools({"order": ordering(effects)})
            assert (await session.deliver("c1", "one")).state == "waiting"
            second = next(call for call in session.calls if call.id == "c2")
            assert (await session.deliver(second, ValueError("no"))).state == "open"
            await session.deliver(second, ValueError("no"))
            with pytest.raises(UsageError, match="was used before"):
                await session.deliver(second, "yes")
            shown = results(await session.request("openai-chat"))
            assert shown == {"c1": "one", "c2": "ValueError: no"}

    twin.run(body)


def test_wrong_names_are_told(store: Store) -> None:
    ordered(store)
    with pytest.raises(Unreadable):
        store.deliver("nobody", "c1", "x")
    for wrong in ("c9", "", 5):
        with pytest.raises(UsageError):
            store.deliver("s", wrong, "x")  # type: ignore[arg-type]
    with store.session("s") as session:
        with pytest.raises(UsageError, match="deliver its result"):
            session.approve(session.expected[0])
        session.deny(session.expected[0], "too late")
        assert session.turn.is_open
    with pytest.raises(UsageError):
        store.session("s~inbox")


DELIVERS = """
import sys
import lockstitch
with lockstitch.open(sys.argv[1]) as store:
    for effect in sys.argv[2:]:
        store.deliver("s", effect, f"result of {effect}")
"""


def test_many_processes_deliver_to_a_session_that_is_held(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/agent.db"
    effects: list[str] = []
    with lockstitch.open(address) as store, store.session("s") as session:
        session.say("Order it")
        calls = [(f"c{n}", "order", {}) for n in range(12)]
        session.record(asks("anthropic", *calls))
        session.run_tools({"order": ordering(effects)})
        command = [sys.executable, "-c", DELIVERS, address]
        # every result comes from two of them
        hooks = [subprocess.Popen([*command, *effects[n:], *effects[:n]]) for n in (0, 6)]
        while not session.wait(timeout=600).is_open:
            pass
        assert [hook.wait(600) for hook in hooks] == [0, 0]
        shown = results(session.request("openai-chat"))
        assert sorted(shown.values()) == sorted(f"result of {effect}" for effect in effects)
        assert len(texts(session.request("openai-chat"), "user")) == 1, "no result came twice"


def test_a_result_for_a_call_that_was_rewound_waits_for_it(store: Store) -> None:
    effects: list[str] = []
    tools: dict[str, Any] = {"order": ordering(effects)}
    with store.session("s") as session:
        session.say("Order it")
        session.checkpoint("before")
        session.record(asks("anthropic", ("c1", "order", {})))
        session.run_tools(tools)
        session.rewind("before")
        assert store.deliver("s", effects[0], "shipped")
        session.request("anthropic")
        session.undo_rewind()
        assert results(session.request("openai-chat")) == {"c1": "shipped"}
