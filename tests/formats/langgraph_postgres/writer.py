"""A program that holds conversations with tools, turn after turn, while others repair.

In every other turn its tool takes so long that a repair comes in between.

python -m tests.formats.langgraph_postgres.writer DSN THREADS TURNS
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress

import psycopg

from . import graphs, stage

REPAIRS = "SELECT count(*) FROM lockstitch_repairs WHERE thread_id = %s"


def repairs(dsn: str, thread: str) -> int:
    """How often a thread was repaired so far."""
    with suppress(psycopg.errors.UndefinedTable):
        return int(stage.ask(dsn, REPAIRS, thread)[0][0])
    return 0


def until_it_is_repaired(dsn: str, thread: str) -> None:
    """Work until somebody has repaired the thread that one is at work on."""
    before = repairs(dsn, thread)
    for _ in range(60_000):
        if repairs(dsn, thread) > before:
            return
        time.sleep(0.01)
    raise AssertionError("nobody repairs")


def talk(dsn: str, thread: str, turns: int) -> None:
    """Have so many turns."""
    with graphs.saver(dsn) as saver:
        graph = graphs.graph("plain", saver)
        for number in range(turns):
            told = {"messages": [("user", f"please nap, turn {number}")]}
            slow[thread] = number % 2 == 1
            graph.invoke(told, graphs.config(thread), durability="sync")


slow: dict[str, bool] = {}


def main() -> None:
    dsn, threads, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    graphs.napping.append(
        lambda thread: until_it_is_repaired(dsn, thread) if slow[thread] else None
    )
    runs = [
        threading.Thread(target=talk, args=(dsn, f"live-{number}", turns))
        for number in range(threads)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()


if __name__ == "__main__":
    main()
