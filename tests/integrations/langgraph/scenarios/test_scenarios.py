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

import psycopg
import pytest
from anthropic import BadRequestError as AnthropicRefusal
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_openai_messages
from openai import BadRequestError as OpenAIRefusal

import lockstitch
from lockstitch.integrations.langgraph import areconcile, reconcile
from lockstitch.integrations.langgraph.report import Reconciled
from lockstitch.provider import OK
from tests.integrations.langgraph.agents import (
    JOBS,
    Bench,
    Provider,
    agent,
    on,
    postgres,
    provided,
    replying,
    result_of,
)
from tests.integrations.langgraph.reconcile.breaking import THREAD as IN_MEMORY
from tests.integrations.langgraph.reconcile.breaking import Thread
from tests.integrations.langgraph.scenarios.runs import (
    COMMAND,
    INTERRUPTS,
    KILL,
    RUNS,
    SIGINT,
    Run,
    broken_off,
    question,
)
from tests.postgres_server import shared

REFUSED = "`tool_use` ids were found without `tool_result` blocks immediately after"
_number = count()


COPIES = (
    "checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint,"
    " metadata)",
    "checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)",
    "checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel,"
    " type, blob)",
)


class Scene:
    """Where the runs of this module are stored, and who answers them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self.loop = stack.enter_context(asyncio.Runner())
        self.database = shared().fresh()
        with postgres(self.database):
            pass
        self.addresses: dict[Run, str] = {}
        self.providers: dict[Run, Provider] = {}

    def prepare(self, run: Run) -> None:
        replies = [OK] * (run.path == COMMAND) + [replying(*JOBS)]
        place = self.folder / f"{run.name}.bodies"
        self.providers[run] = self.stack.enter_context(provided(place, *replies))
        is_file = run.store == "sqlite"
        self.addresses[run] = str(self.folder / run.name) if is_file else self.database

    def broken(self, run: Run) -> tuple[str, dict[str, Any]]:
        """Give the database and the thread of a copy of this run, broken off."""
        if run not in self.addresses:
            if run.how in (SIGINT, KILL):
                self._break_in_a_child([other for other in RUNS if other.how in (SIGINT, KILL)])
            else:
                self.prepare(run)
                model, interrupt = self.providers[run].claude(), INTERRUPTS[run.how, run.is_async]
                broken_off(run, self.addresses[run], model, interrupt, self.loop)
        return self._copied(run)

    def _copied(self, run: Run) -> tuple[str, dict[str, Any]]:
        address, name = self.addresses[run], f"{run.name}.{next(_number)}"
        if run.store == "sqlite":
            copy = str(self.folder / name)
            for end in ("", "-wal"):
                if Path(f"{address}{end}").exists():
                    shutil.copy(f"{address}{end}", f"{copy}{end}")
            return copy, run.thread
        with psycopg.connect(address) as connection:
            for table in COPIES:
                others = table.partition("thread_id, ")[2].removesuffix(")")
                source = table.partition(" ")[0]
                statement = f"INSERT INTO {table} SELECT %s, {others} FROM {source} "  # noqa: S608
                connection.execute(statement + "WHERE thread_id = %s", (name, run.name))
        return address, on(name)

    def _break_in_a_child(self, runs: list[Run]) -> None:
        for run in runs:
            self.prepare(run)
        command = [sys.executable, "-m", "tests.integrations.langgraph.scenarios.child"]
        lines = [
            {"run": asdict(run), "address": self.addresses[run], "url": self.providers[run].url}
            for run in runs
        ]
        given = "".join(json.dumps(line) + "\n" for line in lines).encode()
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, **pipes) as child:
            assert child.stdin
            assert child.stdout
            child.stdin.write(given)
            child.stdin.close()
            for _ in range(sum(run.how == SIGINT for run in runs)):
                assert child.stdout.readline() == b"ready\n"
                child.send_signal(signal.SIGINT)
                assert child.stdout.readline() == b"interrupted\n"
            assert child.stdout.readline() == b"ready\n"
            child.kill()
            assert child.wait(60) == -signal.SIGKILL


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(tmp_path_factory.mktemp("runs"), stack)


class Seat:
    """An application at work on one thread: the same words for both worlds."""

    def __init__(self, run: Run, thread: Any, saver: Any, provider: Provider) -> None:
        self.run = run
        self.thread = thread
        self.saver = saver
        self.graph = agent(provider.claude(), Bench(), saver)

    async def call(self, name: str, *args: Any, **options: Any) -> Any:
        if self.run.is_async:
            return await getattr(self.graph, f"a{name}")(*args, **options)
        return getattr(self.graph, name)(*args, **options)

    async def messages(self) -> list[BaseMessage]:
        """What is in the checkpoint itself, not what LangGraph shows around it."""
        if self.run.is_async:
            saved = await self.saver.aget_tuple(self.thread)
        else:
            saved = self.saver.get_tuple(self.thread)
        found: list[BaseMessage] = saved.checkpoint["channel_values"]["messages"]
        return found

    async def reconcile(self, what: Any, messages: list[Any] | None) -> Reconciled:
        if self.run.is_async:
            return await areconcile(what, self.thread, messages)
        return reconcile(what, self.thread, messages)


def at_work(scene: Scene, run: Run, body: Any) -> None:
    """Sit down at a copy of what a run has left."""
    address, thread = scene.broken(run)

    async def sit() -> None:
        opened = run.saver(address)
        provider = scene.providers[run]
        if run.is_async:
            async with opened as saver:
                await body(Seat(run, thread, saver, provider), provider)
        else:
            with opened as saver:
                await body(Seat(run, thread, saver, provider), provider)

    scene.loop.run(sit())


every_run = pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
killed_runs = [run for run in RUNS if run.how == KILL]
every_killed_run = pytest.mark.parametrize("run", killed_runs, ids=lambda run: run.name)


@every_run
def test_without_a_reconciliation_the_provider_refuses_the_next_message(
    scene: Scene, run: Run
) -> None:
    async def body(seat: Seat, _: Provider) -> None:
        with pytest.raises(AnthropicRefusal, match=REFUSED):
            await seat.call("invoke", {"messages": [HumanMessage("And now?")]}, seat.thread)

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
@pytest.mark.parametrize("memory", [nothing, cleaned])
def test_the_next_message_is_accepted_and_all_agree(scene: Scene, run: Run, memory: Any) -> None:
    _all_agree(scene, run, memory)


@every_killed_run
@pytest.mark.parametrize("memory", [kept, kept_as_dicts])
def test_an_application_that_lacks_the_results_gets_them(
    scene: Scene, run: Run, memory: Any
) -> None:
    _all_agree(scene, run, memory)


def _all_agree(scene: Scene, run: Run, memory: Any) -> None:
    async def body(seat: Seat, provider: Provider) -> None:
        report = await seat.reconcile(seat.graph, memory(await seat.messages()))
        await _agrees(seat, provider, report, with_results=memory is not cleaned)

    at_work(scene, run, body)


@every_killed_run
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
    state = await seat.call("get_state", seat.thread)
    assert state.next == report.next
    assert state.config["configurable"]["checkpoint_id"] == _place(report.after)
    again = await seat.reconcile(seat.graph, held)
    assert not again.changed
    assert again.after == again.before

    answer = await seat.call("invoke", {"messages": [HumanMessage("And now?")]}, seat.thread)
    assert provider.log[-1].outcome == "accepted"
    said = json.dumps(provider.bodies[-1]["messages"])
    assert [result_of(job) in said for job in JOBS] == [with_results, False, with_results]
    assert (said.count("tool_use_id") == 3) is with_results
    assert answer["messages"][: len(held)] == held
    assert [message.type for message in answer["messages"][len(held) :]] == ["human", "ai"]


def _place(config: Any) -> str:
    found: str = config["configurable"]["checkpoint_id"]
    return found


CLIENTS = [
    ("claude", {}, AnthropicRefusal),
    ("gpt", {}, OpenAIRefusal),
    ("gpt", {"use_responses_api": True}, OpenAIRefusal),
]


@pytest.mark.parametrize(("client", "options", "refusal"), CLIENTS)
def test_with_every_client(
    tmp_path: Path, client: str, options: Any, refusal: type[Exception]
) -> None:
    with provided(tmp_path, replying(*JOBS)) as provider:
        model = getattr(provider, client)(**options)
        thread = Thread("agent", model=model).break_off()
        with pytest.raises(refusal):
            thread.graph.invoke(question("And now?"), IN_MEMORY)
        assert provider.log[-1].outcome == "refused"
        report = reconcile(thread.graph, IN_MEMORY)
        assert (report.results, report.synthetic) == (2, 1)
        thread.graph.invoke(question("Go on."), IN_MEMORY)
        assert provider.log[-1].outcome == "accepted"
        said = json.dumps(provider.bodies[-1])
        assert [result_of(job) in said for job in JOBS] == [True, False, True]
