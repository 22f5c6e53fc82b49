"""Threads that were broken off, in memory, for tests of what becomes of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from lockstitch.integrations.langgraph.checkpoint_repair import CheckpointRepair, NewCheckpoint
from tests.integrations.langgraph.agents import (
    AGENTS,
    JOBS,
    STUCK,
    Bench,
    Released,
    calling,
    on,
    until_finished,
)
from tests.integrations.langgraph.scripted import Scripted

THREAD = on("a thread")
FINISHED = tuple(job for job in JOBS if job != STUCK)


def asked(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def repair_checkpoint(
    saved: Any, *, next_version: Any, force: bool = False, ancestors: Iterable[Any] = ()
) -> NewCheckpoint | None:
    """Work out the checkpoint behind one, with nothing at hand but what was read."""
    task = CheckpointRepair(saved, next_version)
    calls = task.open_calls()
    for ancestor in ancestors:
        task.take(ancestor, calls)
    return task.new_checkpoint(None, force=force)


class Thread:
    """One thread with its graph, its model and its saver."""

    def __init__(self, kind: str, saver: Any = None, model: Any = None, **options: Any) -> None:
        self.saver = InMemorySaver() if saver is None else saver
        self.model = Scripted(calling(*JOBS)) if model is None else model
        self.bench = Bench()
        self.graph = AGENTS[kind](self.model, self.bench, self.saver, **options)
        self.finishing = 0 if kind == "plain" else len(FINISHED)

    def break_off(self, given: Any = None, **options: Any) -> Thread:
        """Run until all but one of the tools have finished, and end the run there."""
        waits = options.get("durability") != "exit"
        watcher = threading.Thread(target=self._release, args=(waits,))
        watcher.start()
        with suppress(Released):
            self.graph.invoke(given or asked("Go."), THREAD, **options)
        watcher.join()
        self.bench.released.clear()
        self.bench.stuck.clear()
        return self

    def _release(self, waits: bool) -> None:
        self.bench.stuck.wait(60)
        if waits:
            until_finished(self.saver, THREAD, self.finishing)
        self.bench.released.set()

    def invoke(self, given: Any = None, **options: Any) -> list[BaseMessage]:
        """Go on, and give what was sent to the model last."""
        self.graph.invoke(asked("And now?") if given is None else given, THREAD, **options)
        found: list[BaseMessage] = self.model.sent[-1]
        return found

    @property
    def state(self) -> Any:
        return self.graph.get_state(THREAD)

    @property
    def head(self) -> Any:
        return self.saver.get_tuple(THREAD)

    @property
    def stored(self) -> list[BaseMessage]:
        found = self.head.checkpoint["channel_values"]["messages"]
        return list(getattr(found, "value", found))

    def count(self) -> int:
        """How many checkpoints the thread has, in all namespaces."""
        return sum(1 for _ in self.saver.list(on("a thread")))


def texts(messages: list[BaseMessage]) -> list[str]:
    return [str(message.text) for message in messages if isinstance(message, ToolMessage)]


@contextmanager
def unwritten(thread: Thread) -> Iterator[None]:
    """Nothing is written to a thread meanwhile: no checkpoint, no write, no change."""
    before = list(thread.saver.list(on("a thread")))
    yield
    assert list(thread.saver.list(on("a thread"))) == before
