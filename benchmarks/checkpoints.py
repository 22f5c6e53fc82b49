"""LangGraph's checkpointers side by side with ours: time and bytes of one conversation.

    python benchmarks/checkpoints.py --keep      # writes benchmarks/results/DATE-checkpoints.json

A turn is one ``invoke``: a prompt, a reply with three calls, three results of 2 KB. All arms are
given the same turns, in turns, and each has a folder or a database of its own. ``--turns 1000``
takes every arm as far as ``--budget`` seconds of its own allow: LangGraph's savers grow with the
square of the conversation, to 16 GB at turn 1 000.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from checkpoints_rivals import (
    Bare,
    Ours,
    OursAwaited,
    counted,
    guarded_sqlite,
    postgres_awaited,
    sqlite_awaited,
)
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from stores import RESULTS, Places, Race, Row, Table, versions
from stores_rivals import Rival, langgraph_postgres, langgraph_sqlite
from stores_workload import Talk, lines

from lockstitch.integrations.langgraph import Guard
from tests import postgres_server

MARKS = (1, 100, 200, 500, 1000)
# The goals of DESIGN §9, at turn 200 against SqliteSaver with durability sync.
FASTER, SMALLER = 6.0, 150.0
# Ours with twice the turns must not be much more than twice as large.
LINEAR = 1.1
# A guard's time against that of its saver, and the calls of it in a turn of one node.
DEARER, CALLS = 1.15, 10


def arms(places: Places) -> dict[str, Callable[[], Rival]]:
    """Everybody who keeps the checkpoints of the graph."""
    folder = places.folder
    return {
        "no checkpointer": Bare,
        "Saver sqlite": lambda: Ours(*places.store("sqlite")),
        "Saver sqlite, durability async": lambda: Ours(*places.store("sqlite"), durability="async"),
        "Saver sqlite, awaited": lambda: OursAwaited(*places.store("sqlite")),
        "Saver postgres": lambda: Ours(*places.store("postgres")),
        "Saver postgres, awaited": lambda: OursAwaited(*places.store("postgres")),
        "SqliteSaver": lambda: langgraph_sqlite(folder),
        "SqliteSaver, durability async": lambda: langgraph_sqlite(folder, durability="async"),
        "SqliteSaver, DeltaChannel": lambda: langgraph_sqlite(folder, delta=True),
        "Guard of SqliteSaver": lambda: guarded_sqlite(folder),
        "Guard of SqliteSaver, durability async": lambda: guarded_sqlite(
            folder, durability="async"
        ),
        "AsyncSqliteSaver": lambda: sqlite_awaited(folder),
        "PostgresSaver": lambda: langgraph_postgres(*places.database()),
        "PostgresSaver, DeltaChannel": lambda: langgraph_postgres(*places.database(), delta=True),
        "AsyncPostgresSaver": lambda: postgres_awaited(*places.database()),
    }


def chosen(names: list[str], only: list[str]) -> list[str]:
    """Give the arms that are meant: by their whole names, or by what stands in them."""
    if not only:
        return names
    return [n for n in names if n in only or any(o in n for o in only if o not in names)]


def race(places: Places, turns: int, budget: float, only: list[str]) -> dict[str, Race]:
    """Take every arm through the conversation, as far as its seconds go."""
    built = arms(places)
    races = {name: Race(built[name](), turns) for name in chosen(list(built), only)}
    talk = Talk().turns()
    for number in range(turns):
        turn = next(talk)
        payload = sum(map(len, lines(turn)))
        for one in races.values():
            if sum(one.times) < budget * 1e3:
                one.turn(turn, payload)
        if (number + 1) % 50 == 0:
            print(f"  turn {number + 1}", flush=True)
    return races


def shown(table: Table, races: dict[str, Race], turns: int) -> dict[str, Row]:
    """Print what every arm took, and how large it is."""
    marks = [mark for mark in MARKS if mark <= turns]
    table.section(f"ms a turn at turn {' / '.join(map(str, marks))}, and bytes at its last turn")
    found: dict[str, Row] = {}
    for name, one in races.items():
        # While it is open a database has a log beside it.
        opened = one.rival.size()
        load, size = one.end()
        times = {f"turn {mark}": one.at(mark) for mark in marks}
        text = " ".join("      -" if ms is None else f"{ms:7.1f}" for ms in times.values())
        text += f"  {opened / 1e6:8.2f} MB open, {size / 1e6:8.2f} closed  load {load:6.1f} ms"
        sizes = {"MB": size / 1e6, "open_MB": opened / 1e6}
        found[name] = {**times, "last": len(one.times), **sizes, "load_ms": load}
        table.row(name, text, **found[name])
    return found


def compared(table: Table, races: dict[str, Race], found: dict[str, Row]) -> None:
    """Print how much faster and smaller, at the last turn that both reached."""
    table.section("against LangGraph's own")
    for ours, theirs, has_goal in (
        ("Saver sqlite", "SqliteSaver", True),
        ("Saver sqlite, awaited", "AsyncSqliteSaver", False),
        ("Saver sqlite", "SqliteSaver, DeltaChannel", False),
        ("Saver postgres", "PostgresSaver", False),
        ("Saver postgres, awaited", "AsyncPostgresSaver", False),
        ("Saver postgres", "PostgresSaver, DeltaChannel", False),
    ):
        if ours not in races or theirs not in races:
            continue
        turn = min(len(races[ours].times), len(races[theirs].times))
        faster = (races[theirs].at(turn) or 0) / (races[ours].at(turn) or 1)
        smaller, opened = (
            (found[theirs][size] / races[theirs].payload)
            / max(found[ours][size] / races[ours].payload, 1e-12)
            for size in ("MB", "open_MB")
        )
        text = f"{faster:6.1f} x faster, {smaller:6.0f} x smaller, {opened:.0f} x open, at {turn}"
        goal = f">= {FASTER:g} x, {SMALLER:g} x" if has_goal else ""
        met = (faster >= FASTER and min(smaller, opened) >= SMALLER) if has_goal else None
        figures = {"faster": faster, "smaller": smaller, "smaller_open": opened, "turn": turn}
        table.row(f"{ours} : {theirs}", text, goal, met, **figures)


def guarded(table: Table, races: dict[str, Race], turns: int) -> None:
    """Print what a guard costs: its time against that of its saver, and its calls."""
    table.section("a guard against its saver")
    for more in ("", ", durability async"):
        bare, guard = f"SqliteSaver{more}", f"Guard of SqliteSaver{more}"
        if bare not in races or guard not in races:
            continue
        for mark in (mark for mark in MARKS if mark <= turns):
            times = races[guard].at(mark), races[bare].at(mark)
            if times[0] and times[1]:
                ratio = times[0] / times[1]
                text, goal = f"{ratio:6.2f} x at turn {mark}", f"<= {DEARER:g} x"
                table.row(guard, text, goal, ratio <= DEARER, ratio=ratio, turn=mark)
    found = [calls(is_guarded=is_guarded) for is_guarded in (False, True)]
    text = f"{found[1]} calls of the saver in a turn of one node, {found[0]} without"
    table.row("Guard", text, f"<= {CALLS}", found[1] <= CALLS, calls=found[1], bare=found[0])


def calls(*, is_guarded: bool) -> int:
    """Count the calls of a saver in the third turn of a thread."""
    made: list[str] = []
    saver = counted(InMemorySaver(), made)
    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", lambda _state: {"messages": [AIMessage("x")]})
    graph.add_edge(START, "model")
    graph = graph.compile(checkpointer=Guard(saver) if is_guarded else saver)
    for _ in range(3):
        made.clear()
        given = {"messages": [HumanMessage("x")]}
        graph.invoke(given, {"configurable": {"thread_id": "1"}}, durability="sync")
    return len(made)


def growth(table: Table, places: Places, turns: int) -> None:
    """Print the bytes of ours after so many turns and after half of them."""
    table.section("growth of ours")
    for kind in ("sqlite", "postgres"):
        sizes = []
        for count in (turns // 2, turns):
            rival = Ours(*places.store(kind))
            talk = Talk().turns()
            for _ in range(count):
                rival.turn(next(talk))
            rival.close()
            sizes.append(rival.size())
        ratio = sizes[1] / sizes[0] / 2
        text = f"{sizes[0] / 1e6:.2f} MB at {turns // 2}, {sizes[1] / 1e6:.2f} MB at {turns}"
        table.row(f"Saver {kind}", text, f"<= {LINEAR} x line", ratio <= LINEAR, ratio=ratio)


def main() -> None:
    """Run everything, print it and keep it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=200, help="how long the conversation gets")
    parser.add_argument("--budget", type=float, default=120, help="seconds for each arm")
    parser.add_argument("--only", nargs="*", default=[], help="arms by name, or a part of names")
    parser.add_argument("--keep", action="store_true", help="write the results file")
    parser.add_argument("--folder", help="where to write: a disk that is to be measured")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    table = Table()
    with (
        tempfile.TemporaryDirectory(dir=options.folder, prefix="lockstitch-bench-") as name,
        postgres_server.running() as server,
    ):
        places = Places(Path(name), server)
        races = race(places, options.turns, options.budget, options.only)
        compared(table, races, shown(table, races, options.turns))
        guarded(table, races, options.turns)
        growth(table, places, options.turns)
    if options.keep:
        kept: dict[str, Any] = {"date": f"{datetime.now(tz=UTC):%Y-%m-%d}", "versions": versions()}
        path = RESULTS / f"{kept['date']}-checkpoints.json"
        path.write_text(json.dumps({**kept, "tables": table.rows}, indent=1) + "\n")
        print(f"\nkept in benchmarks/results/{path.name}")


if __name__ == "__main__":
    main()
