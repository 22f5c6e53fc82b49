"""Sub-agents: a session of their own, named by the call, that shares its parent's fate."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import lockstitch
from lockstitch.session.store import Store
from lockstitch.session.tool_run import Tool, current_call

from .talk import asks, results, says, texts
from .twins import Twin


def asked(session: Any) -> None:
    session.say("Look into it")
    session.record(asks("anthropic", ("c1", "agent", {})))


def test_a_tool_leads_a_session_named_by_its_call(store: Store) -> None:
    def agent() -> str:
        with store.child(current_call()) as inner:
            inner.say("A part of it")
            inner.record(says("anthropic", "Found."))
            return inner.name

    with store.session("s") as session:
        asked(session)
        [call] = session.run_tools({"agent": agent})
        assert session.output(call) == f"s.{call.reply}-{call.index}"
    names = [listed.session for listed in store.sessions()]
    assert names == ["s", f"s.{call.reply}-0"]
    with store.session(f"s.{call.reply}-0.7-1"):
        pass  # somebody's own, though it looks like a child of the child
    assert store.delete("s").companions == (f"s.{call.reply}-0",)
    assert [listed.session for listed in store.sessions()] == [f"s.{call.reply}-0.7-1"]


def test_an_interrupt_of_the_parent_is_one_of_the_child(twin: Twin, store: Store) -> None:
    seen: list[str] = []
    inside = threading.Event()

    def agent() -> str:
        with store.child(current_call()) as inner:
            inner.say("A part of it")
            inner.record(asks("anthropic", ("d1", "slow", {})))
            inner.run_tools({"slow": slow})
            seen.append(inner.turn.state)
            return "left"

    def slow() -> str:
        inside.set()
        current_call().abort.wait(60)
        return "stopped"

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Look into it")
            await session.record(asks("anthropic", ("c1", "agent", {})))
            inner = twin.inner(session)

            def press() -> None:
                inside.wait(60)
                inner.interrupt()

            threading.Thread(target=press).start()
            await session.run_tools({"agent": agent})
            assert session.turn.state == "interrupted"

    twin.run(body)
    while not seen:
        threading.Event().wait(0.01)
    assert seen == ["interrupted"]


KILLED = """
import sys
import lockstitch
from tests.session.talk import asks
store = lockstitch.open(sys.argv[1])

def agent():
    with store.child(lockstitch.current_call()) as inner:
        inner.say("A part of it", key="part")
        inner.record(asks("anthropic", ("d1", "slow", {})))
        print("inside", flush=True)
        inner.run_tools({"slow": lambda: __import__("time").sleep(60)})

with store.session("s") as session:
    session.say("Look into it", key="it")
    session.record(asks("anthropic", ("c1", "agent", {})))
    session.run_tools({"agent": agent})
"""


def killed(folder: Path) -> str:
    address = f"sqlite:///{folder}/agent.db"
    command = [sys.executable, "-c", KILLED, address]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as child:
        assert child.stdout
        assert child.stdout.readline() == "inside\n"
        child.send_signal(signal.SIGKILL)
    return address


def test_a_child_goes_on_when_its_tool_is_run_again(tmp_path: Path) -> None:
    with lockstitch.open(killed(tmp_path)) as store, store.session("s") as session:

        def agent() -> str:
            with store.child(current_call()) as inner:
                inner.say("A part of it", key="part")
                while inner.turn.is_open:
                    inner.run_tools({"slow": Tool(lambda: "quick now", repeatable=True)})
                    inner.record(says("anthropic", "Found."))
                assert texts(inner.request("openai-chat"), "user") == ["A part of it"]
                assert results(inner.request("openai-chat")) == {"d1": "quick now"}
                return "found"

        [call] = session.run_tools({"agent": Tool(agent, repeatable=True)})
        assert (call.outcome, call.attempts) == ("ok", 2)
        assert session.turn.is_open


def test_a_child_that_nobody_runs_again_is_ended(tmp_path: Path) -> None:
    with lockstitch.open(killed(tmp_path)) as store:
        with store.session("s") as session:
            assert session.run_tools({"agent": lambda: "never"}) == []
            [call] = session.calls
        reader = store.read(f"s.{call.reply}-0")
        assert (reader.turn.state, reader.turn.reason) == ("interrupted", "parent")


def test_a_compaction_of_the_parent_is_one_of_the_child(store: Store) -> None:
    def agent() -> str:
        with store.child(current_call()) as inner:
            for number in range(8):
                inner.say(f"Part {number}: " + "words " * 400)
                inner.record(says("anthropic", f"Found {number}. " + "more " * 400))
            before = len(str(inner.request("anthropic")))
            session.compact(budget=2_500, dialect="anthropic")
            return f"{before > 3 * len(str(inner.request('anthropic')))}"

    with store.session("s") as session:
        for number in range(8):
            session.say(f"Case {number}: " + "words " * 400)
            session.record(says("anthropic", f"Done {number}. " + "more " * 400))
        asked(session)
        [call] = session.run_tools({"agent": agent})
        assert session.output(call) == "True"
