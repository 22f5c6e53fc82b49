"""A program that holds conversations with tools, turn after turn, while others repair.

python -m tests.formats.langgraph_postgres.writer DSN THREADS TURNS
"""

from __future__ import annotations

import sys
import threading

from . import graphs


def talk(dsn: str, thread: str, turns: int) -> None:
    """Have so many turns, each with a tool that takes its time."""
    with graphs.saver(dsn) as saver:
        graph = graphs.graph("plain", saver)
        for number in range(turns):
            told = {"messages": [("user", f"please nap, turn {number}")]}
            graph.invoke(told, graphs.config(thread), durability="sync")


def main() -> None:
    dsn, threads, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
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
