"""Worker processes on one thread, and the judgement on what is left of their turns."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage

from lockstitch.integrations.langgraph.guard import Guard
from tests.integrations.langgraph.guard import worker
from tests.integrations.langgraph.guard.worker import THREAD, graph_of
from tests.integrations.langgraph.savers import SAVERS


@cache
def _nursery() -> Any:
    """Where processes come from: a server that has imported everything, and is forked."""
    context = get_context("forkserver")
    context.set_forkserver_preload([worker.__name__])
    return context


class Worker:
    """One worker process."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.pipe, other = _nursery().Pipe()
        self.process = _nursery().Process(target=worker.main, args=(other, options), daemon=True)
        self.process.start()
        other.close()

    def go(self) -> None:
        self.pipe.send("go")

    def until(self, word: str) -> list[str]:
        """Listen until a word is said; what was said before."""
        before: list[str] = []
        for said in self.heard():
            if said.startswith(word):
                return before
            before.append(said)
        raise AssertionError(f"the worker ended before it said {word!r}: {before}")

    def heard(self) -> Iterator[str]:
        """Listen until its end."""
        with suppress(EOFError, ConnectionResetError):
            while True:
                yield self.pipe.recv()

    def rest(self) -> list[str]:
        """All that it says until its end, which is a good one."""
        said = list(self.heard())
        self.process.join(60)
        assert self.process.exitcode == 0
        return said

    def kill(self) -> None:
        self.process.kill()
        self.process.join(30)

    def freeze(self) -> None:
        """Stop the process, and return when none of its threads runs any more."""
        os.kill(self.process.pid, signal.SIGSTOP)
        threads = Path(f"/proc/{self.process.pid}/task")
        while not all(_is_stopped(thread) for thread in threads.iterdir()):
            time.sleep(0.001)

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def close(self) -> None:
        if self.process.is_alive():
            self.thaw()
            self.kill()
        self.process.close()
        self.pipe.close()


def _is_stopped(thread: Path) -> bool:
    # Its name stands in parentheses, and may contain spaces.
    return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"


@contextmanager
def workers(*options: dict[str, Any]) -> Iterator[list[Worker]]:
    """Start workers, one with each of the options, and end them afterwards."""
    started: list[Worker] = []
    try:
        started.extend(Worker(each) for each in options)
        yield started
    finally:
        for each in started:
            each.close()


def raced(store: str, address: str, count: int, turns: int, **more: Any) -> dict[str, list[str]]:
    """Let some workers have turns at the same time; the turns of each outcome."""
    with SAVERS[store](address) as saver:
        # LangGraph's SqliteSaver makes its tables when it is first used, and waits for nobody then.
        saver.get_tuple(THREAD)
    options = [
        {"store": store, "address": address, "name": f"w{number}", "turns": turns, **more}
        for number in range(count)
    ]
    said: dict[str, list[str]] = {"ok": [], "conflict": [], "again": []}
    with workers(*options) as started:
        for each in started:
            each.go()
        for line in [line for each in started for line in each.rest()]:
            outcome, _, name = line.partition(" ")
            said[outcome].append(name)
    return said


def history(store: str, address: str, *, guard: bool = True) -> list[Any]:
    """The conversation at the head of the thread."""
    with SAVERS[store](address) as saver:
        state = graph_of(Guard(saver) if guard else saver).get_state(THREAD)
        found: list[Any] = state.values.get("messages", [])
        return found


def kept(messages: list[Any]) -> set[str]:
    """The turns whose question and answer stand in a conversation, one behind the other."""
    return {
        question.content
        for question, answer in pairwise(messages)
        if isinstance(question, HumanMessage)
        and isinstance(answer, AIMessage)
        and answer.content == f"done {question.content}"
    }
