"""Worker processes on one thread, and the judgement on what is left of their turns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage

from lockstitch.integrations.langgraph.guard import Guard
from tests.integrations.langgraph.guard.savers import SAVERS
from tests.integrations.langgraph.guard.worker import THREAD, graph_of

WORKER = "tests.integrations.langgraph.guard.worker"


class Worker:
    """One worker process."""

    def __init__(self, options: dict[str, Any]) -> None:
        command = [sys.executable, "-m", WORKER, json.dumps(options)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self.until("ready")

    def go(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def until(self, word: str) -> list[str]:
        """Read on to a line that begins with a word; the lines before it."""
        assert self.process.stdout
        before: list[str] = []
        for line in self.process.stdout:
            if line.startswith(word):
                return before
            before.append(line.strip())
        raise AssertionError(f"the worker ended before it said {word!r}: {before}")

    def rest(self) -> list[str]:
        """All that it says until its end, which is a good one."""
        assert self.process.stdout
        said = [line.strip() for line in self.process.stdout]
        assert self.process.wait(60) == 0
        return said

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        if self.process.poll() is None:
            self.thaw()
            self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


@contextmanager
def workers(*options: dict[str, Any]) -> Iterator[list[Worker]]:
    """Start workers, one with each of the options, and end them afterwards."""
    started: list[Worker] = []
    try:
        started += [Worker(each) for each in options]
        yield started
    finally:
        for worker in started:
            worker.close()


def raced(store: str, address: str, count: int, turns: int, **more: Any) -> dict[str, list[str]]:
    """Let some workers have turns at the same time; the turns of each outcome."""
    options = [
        {"store": store, "address": address, "name": f"w{number}", "turns": turns, **more}
        for number in range(count)
    ]
    said: dict[str, list[str]] = {"ok": [], "conflict": []}
    with workers(*options) as started:
        for worker in started:
            worker.go()
        for line in [line for worker in started for line in worker.rest()]:
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
