"""Random lives of threads: runs that end, are broken off or wait, updates, repairs, undos.

``python -m tests.formats.langgraph.soak FIRST LAST`` lives one life for every number and graph.
After each repair LangGraph itself is asked what became of the thread.
"""

from __future__ import annotations

import logging
import random
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.types import Command

from lockstitch import sessions
from lockstitch.dialects.placeholders import is_placeholder
from lockstitch.files import backup
from lockstitch.formats.repair import RepairOptions
from lockstitch.rules import ERROR
from lockstitch.sources import rows
from tests.formats.databases import rows as every_row

from .graphs import (
    ASKS,
    FAST,
    STUCK,
    Halted,
    Scripted,
    calling,
    config,
    graph_of,
    open_calls,
    saving,
)

KINDS = ("agent", "state", "delta")
STEPS = 16
# What can happen; breaking off and repairing more often than the rest.
DEEDS = ("say", "work", "break", "break", "break", "ask", "update", "command", "remove")
STEERING = ("messages", "branch:", "__pregel", "__start__")


def halt() -> None:
    raise Halted


class Life:
    """One thread, from its first word on."""

    def __init__(self, path: Path, kind: str, seed: int) -> None:
        self.path, self.thread = path, f"{kind}-{seed}"
        self.node = "agent" if kind == "agent" else "think"
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self.log: list[str] = []
        self.repairs = 0

    def live(self) -> None:
        for number in range(STEPS):
            deed = self.chance.choice(DEEDS)
            self.log.append(deed)
            self.do(deed, number)
            if self.chance.random() < 1 / 3:
                self.log.append("repair")
                self.repair(number)

    def do(self, deed: str, number: int) -> None:
        batch = [self.chance.choice((FAST, STUCK, FAST)) for _ in range(self.chance.randint(1, 4))]
        tools = {"work": [FAST, FAST], "break": batch, "ask": [FAST, ASKS]}.get(deed, [])
        replies = [calling(*tools, prefix=f"{deed}{number}")] if tools else []
        how = {"durability": self.chance.choice(("sync", "async", "exit"))}
        with saving(self.path) as saver, suppress(Halted, ValueError):
            graph = graph_of(self.thread, Scripted(*replies), saver, halt)
            if deed == "update":
                self.update(graph, [AIMessage(f"update {number}")])
            elif deed == "command":
                update = {"messages": [HumanMessage(f"command {number}")]}
                graph.invoke(Command(update=update, goto=self.node), config(self.thread), **how)
            elif deed == "remove":
                said = graph.get_state(config(self.thread)).values.get("messages", ())
                humans = [message.id for message in said if message.type == "human"]
                if len(humans) > 1:
                    self.update(graph, [RemoveMessage(id=humans[1])])
            else:
                words = {"messages": [HumanMessage(f"{deed} {number}")]}
                graph.invoke(words, config(self.thread), **how)

    def update(self, graph: Any, messages: list[Any]) -> None:
        graph.update_state(config(self.thread), {"messages": messages}, as_node=self.node)

    def repair(self, number: int) -> None:
        """Repair the thread, sometimes by force, sometimes twice; then say something new."""
        found = sessions.sources(str(self.path), session=self.thread)
        if not found:
            return
        options = RepairOptions(force_cleanup=self.chance.random() < 1 / 3)
        before, state, kept = every_row(self.path), self.state(), self.others()
        done = sessions.repair(found[0], options)
        self.judge(found[0], state, done)
        assert self.others() == kept, self.log
        if done.backup is None:
            assert every_row(self.path) == before, self.log
            return
        self.repairs += 1
        if self.chance.random() < 1 / 2:
            backup.undo_backup(str(self.path), restore=rows.restore_rows)
            assert every_row(self.path) == before, self.log
            sessions.repair(found[0], options)
        self.go_on(number)

    def judge(self, source: Any, before: Any, done: Any) -> None:
        after = self.state()
        if done.backup is None:
            assert after.interrupts == before.interrupts, self.log
            waits = sessions.opened(source).transcript.waiting
            assert waits or not open_calls(list(before.values.get("messages", ()))), self.log
            return
        messages = list(after.values["messages"])
        assert after.next == (), self.log
        assert open_calls(messages) == set(), self.log
        assert not [found for found in done.remaining if found.severity == ERROR], self.log
        lost = results(before.values.get("messages", ())).items() - results(messages).items()
        assert not lost, self.log

    def go_on(self, number: int) -> None:
        model = Scripted()
        with saving(self.path) as saver:
            graph = graph_of(self.thread, model, saver)
            graph.invoke({"messages": [HumanMessage(f"go on {number}")]}, config(self.thread))
        assert open_calls(model.sent[-1]) == set(), self.log

    def state(self) -> Any:
        with saving(self.path) as saver:
            return graph_of(self.thread, Scripted(), saver).get_state(config(self.thread))

    def others(self) -> dict[str, Any]:
        with saving(self.path) as saver:
            found = saver.get_tuple(config(self.thread))
        assert found is not None
        values = found.checkpoint["channel_values"]
        return {name: value for name, value in values.items() if not name.startswith(STEERING)}


def results(messages: Any) -> dict[str, Any]:
    """The real results, by call."""
    return {
        message.tool_call_id: message.content
        for message in messages
        if isinstance(message, ToolMessage) and not is_placeholder(str(message.content))
    }


def lived(kind: str, seed: int) -> int:
    """Live one life; gives the number of its repairs."""
    with TemporaryDirectory() as folder:
        life = Life(Path(folder, "life.db"), kind, seed)
        life.live()
        return life.repairs


def main(first: int, last: int) -> None:
    """Live many lives and say how many repairs there were."""
    logging.disable(logging.CRITICAL)
    counts = [lived(kind, seed) for seed in range(first, last) for kind in KINDS]
    print(f"{len(counts)} lives, {sum(counts)} repairs, nothing lost")  # noqa: T201


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
