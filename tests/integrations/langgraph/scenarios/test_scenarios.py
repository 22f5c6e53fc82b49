"""A run is broken off while its tools are at work, and the user sends another message.

Real LangGraph, its own savers, LangChain's client for Anthropic, and a provider that refuses what
Anthropic refuses.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from anthropic import BadRequestError
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_openai_messages

import lockstitch
from lockstitch.integrations.langgraph import areconcile, reconcile
from lockstitch.integrations.langgraph.report import Reconciled
from lockstitch.provider.replies import OK
from tests.integrations.langgraph.agents import (
    JOBS,
    Bench,
    Provider,
    agent,
    provided,
    replying,
    result_of,
)
from tests.integrations.langgraph.scenarios.runs import (
    COMMAND,
    INTERRUPTS,
    KILL,
    RUNS,
    SIGINT,
    THREAD,
    Run,
    broken_off,
)
from tests.postgres_server import shared

REFUSED = "`tool_use` ids were found without `tool_result` blocks immediately after"
_number = count()


class Scene:
    """Where the runs of this module are stored, and who answers them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self.loop = stack.enter_context(asyncio.Runner())
        self.addresses: dict[Run, str] = {}
        self.providers: dict[Run, Provider] = {}

    def prepare(self, run: Run) -> None:
        replies = [OK] * (run.path == COMMAND) + [replying(*JOBS)]
        place = self.folder / f"{run.name}.bodies"
        self.providers[run] = self.stack.enter_context(provided(place, *replies))
        is_file = run.store == "sqlite"
        self.addresses[run] = str(self.folder / run.name) if is_file else shared().fresh()

    def broken(self, run: Run) -> str:
        """Give the address of a database with this run in it, broken off."""
        if run not in self.addresses:
            if run.how in (SIGINT, KILL):
                self._break_in_a_child([other for other in RUNS if other.how == run.how])
            else:
                self.prepare(run)
                model, interrupt = self.providers[run].claude(), INTERRUPTS[run.how, run.is_async]
                broken_off(run, self.addresses[run], model, interrupt, self.loop)
        return self.copied(run)

    def copied(self, run: Run) -> str:
        address = self.addresses[run]
        if run.store == "sqlite":
            copy = f"{address}.{next(_number)}"
            shutil.copy(address, copy)
            if Path(f"{address}-wal").exists():
                shutil.copy(f"{address}-wal", f"{copy}-wal")
            return copy
        name = f"copy_{next(_number)}"
        source = address.rpartition("/")[2].partition("?")[0]
        shared().execute(f'CREATE DATABASE "{name}" TEMPLATE "{source}"')
        return shared().address(name)

    def _break_in_a_child(self, runs: list[Run]) -> None:
        for run in runs:
            self.prepare(run)
        command = [sys.executable, "-m", "tests.integrations.langgraph.scenarios.child"]
        lines = [
            {"run": asdict(run), "address": self.addresses[run], "url": self.providers[run].url}
            for run in runs
        ]
        given = "".join(json.dumps(line) + "\n" for line in lines).encode()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, **pipes) as child:  # type: ignore[call-overload]
            assert child.stdin
            assert child.stdout
            child.stdin.write(given)
            child.stdin.close()
            for _ in runs:
                assert child.stdout.readline() == b"ready\n"
                child.send_signal(signal.SIGKILL if runs[0].how == KILL else signal.SIGINT)
                if runs[0].how == KILL:
                    break
                assert child.stdout.readline() == b"interrupted\n"
            code = child.wait(60)
        assert code == (-signal.SIGKILL if runs[0].how == KILL else 0)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(tmp_path_factory.mktemp("runs"), stack)


class Seat:
    """An application at work on one thread: the same words for both worlds."""

    def __init__(self, run: Run, saver: Any, provider: Provider) -> None:
        self.run = run
        self.saver = saver
        self.graph = agent(provider.claude(), Bench(), saver)

    async def call(self, name: str, *args: Any, **options: Any) -> Any:
        if self.run.is_async:
            return await getattr(self.graph, f"a{name}")(*args, **options)
        return getattr(self.graph, name)(*args, **options)

    async def messages(self) -> list[BaseMessage]:
        """What is in the checkpoint itself, not what LangGraph shows around it."""
        if self.run.is_async:
            saved = await self.saver.aget_tuple(THREAD)
        else:
            saved = self.saver.get_tuple(THREAD)
        found: list[BaseMessage] = saved.checkpoint["channel_values"]["messages"]
        return found

    async def reconcile(self, what: Any, messages: list[Any] | None) -> Reconciled:
        if self.run.is_async:
            return await areconcile(what, THREAD, messages)
        return reconcile(what, THREAD, messages)


def at_work(scene: Scene, run: Run, body: Any) -> None:
    """Sit down at a copy of what a run has left."""
    address = scene.broken(run)

    async def sit() -> None:
        opened = run.saver(address)
        provider = scene.providers[run]
        if run.is_async:
            async with opened as saver:
                await body(Seat(run, saver, provider), provider)
        else:
            with opened as saver:
                await body(Seat(run, saver, provider), provider)

    scene.loop.run(sit())


every_run = pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)


@every_run
def test_without_a_reconciliation_the_provider_refuses_the_next_message(
    scene: Scene, run: Run
) -> None:
    async def body(seat: Seat, _: Provider) -> None:
        with pytest.raises(BadRequestError, match=REFUSED):
            await seat.call("invoke", {"messages": [HumanMessage("And now?")]}, THREAD)

    at_work(scene, run, body)


def kept(messages: list[BaseMessage]) -> list[Any]:
    """An application that has the reply with its calls, and no results."""
    return [message for message in messages if message.type in ("human", "ai")]


def kept_as_dicts(messages: list[BaseMessage]) -> list[Any]:
    """The same, in an application that speaks OpenAI's format and knows no ids."""
    found: list[Any] = convert_to_openai_messages(kept(messages))
    return found


def cleaned(messages: list[BaseMessage]) -> list[Any]:
    """An application that has taken the reply with its calls back."""
    return [m for m in kept(messages) if not (isinstance(m, AIMessage) and m.tool_calls)]


def nothing(messages: list[BaseMessage]) -> None:
    """An application that holds no conversation of its own."""


@every_run
@pytest.mark.parametrize("memory", [nothing, kept, kept_as_dicts, cleaned])
def test_the_next_message_is_accepted_and_all_agree(scene: Scene, run: Run, memory: Any) -> None:
    async def body(seat: Seat, provider: Provider) -> None:
        report = await seat.reconcile(seat.graph, memory(await seat.messages()))
        await _agrees(seat, provider, report, with_results=memory is not cleaned)

    at_work(scene, run, body)


@every_run
def test_a_checkpointer_alone_will_do(scene: Scene, run: Run) -> None:
    async def body(seat: Seat, provider: Provider) -> None:
        report = await seat.reconcile(seat.saver, None)
        await _agrees(seat, provider, report, with_results=True)

    at_work(scene, run, body)


async def _agrees(
    seat: Seat, provider: Provider, report: Reconciled, *, with_results: bool
) -> None:
    assert report.changed
    assert not report.waiting
    held = report.messages
    assert lockstitch.check(held, "langchain") == []
    assert await seat.messages() == held
    state = await seat.call("get_state", THREAD)
    assert state.next == ()
    assert state.config["configurable"]["checkpoint_id"] == _place(report.after)
    again = await seat.reconcile(seat.graph, held)
    assert not again.changed
    assert again.after == again.before

    answer = await seat.call("invoke", {"messages": [HumanMessage("And now?")]}, THREAD)
    assert provider.log[-1].outcome == "accepted"
    said = json.dumps(provider.bodies[-1]["messages"])
    assert [result_of(job) in said for job in JOBS] == [with_results, False, with_results]
    assert (said.count("tool_use_id") == 3) is with_results
    assert answer["messages"][: len(held)] == held
    assert [message.type for message in answer["messages"][len(held) :]] == ["human", "ai"]


def _place(config: Any) -> str:
    found: str = config["configurable"]["checkpoint_id"]
    return found
