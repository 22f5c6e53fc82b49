"""A process whose agents' tools are at work when it is killed.

Takes a JSON list of agents, each with a kind, a store, an address and whether it asks a person,
and says ``here`` when all that is to finish is stored.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from typing import Any

from langchain_core.messages import HumanMessage

from lockstitch.integrations.langgraph.guard import Guard
from tests.integrations.langgraph.agents import (
    AGENTS,
    JOBS,
    SAVERS,
    Bench,
    calling,
    on,
    until_finished,
)
from tests.integrations.langgraph.scripted import Scripted


def thread_of(kind: str) -> Any:
    return on(f"a thread of {kind}")


def _work(kind: str, store: str, address: str) -> None:
    with SAVERS[store](address) as saver:
        graph = AGENTS[kind](Scripted(calling(*JOBS)), Bench(), Guard(saver))
        graph.invoke({"messages": [HumanMessage("go")]}, thread_of(kind))


def main() -> None:
    given = json.loads(sys.argv[1])
    for each in given:
        threading.Thread(target=_work, args=each, daemon=True).start()
    for kind, store, address in given:
        with SAVERS[store](address) as saver:
            until_finished(saver, thread_of(kind), 2)
    sys.stdout.write("here\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main()
