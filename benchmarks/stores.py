"""The stores side by side: with a bare file, with plain SQLite, and with what frameworks bring.

    python benchmarks/stores.py --keep      # writes benchmarks/results/DATE-stores.json

Everything that is compared is measured in one run, in rounds that alternate between the arms, on
one file system; figures are medians. PostgreSQL is started for the run, on loopback. ``--quick``
takes about two minutes; ``--long`` takes the conversation to turn 1 000 where a store can.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import stores_measures as measures  # noqa: E402
import stores_requests as requests  # noqa: E402
from stores_rivals import (  # noqa: E402
    AgentsSqlite,
    Journal,
    RawLines,
    RawSqlite,
    Rival,
    Sessions,
    StrandsFiles,
    langgraph_postgres,
    langgraph_sqlite,
    size_of,
)
from stores_workload import Talk  # noqa: E402

from tests import postgres_server  # noqa: E402

RESULTS = Path(__file__).parent / "results"
PEERS = (
    "lockstitch",
    "msgspec",
    "psycopg",
    "openai-agents",
    "strands-agents",
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
)
USER_TABLES = (
    "SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint FROM pg_stat_user_tables"
)
# The goals of DESIGN §9.
APPEND, LATE, OPEN, WAIT = 1.3, 1.1, 1.5, 0.1
OTHER, FLAT, LARGE_MS, LARGE_MB = 4.0, 4.0, 200.0, 60.0
BYTES = {"sqlite": 1.25, "sqlite compressed": 0.6, "jsonl": 1.25}
SIZES = (200, 500, 1000, 2000, 4000, 8000, 16_000, 64_000)
THREADS = {8: 3.0, 64: 6.0}
Row = dict[str, Any]


class Places:
    """Where the stores of one run are: a folder for each, and databases of one server."""

    def __init__(self, folder: Path, server: postgres_server.Server) -> None:
        self.folder, self.server = folder, server

    def store(self, kind: str) -> tuple[str, Callable[[], int]]:
        """Make room for a new store; gives its address, and what tells its size when closed."""
        name = tempfile.mkdtemp(prefix=f"{kind}-", dir=self.folder)
        if kind == "postgres":
            return self.database()
        if kind == "jsonl":
            return f"jsonl:///{name}/j", lambda: size_of(Path(name))
        more = "?compress=1" if kind == "sqlite compressed" else ""
        return f"sqlite:///{name.replace(' ', '%20')}/s.db{more}", lambda: size_of(Path(name))

    def database(self) -> tuple[str, Callable[[], int]]:
        """Make a new database; its size is that of its tables, with indexes."""
        dsn = self.server.fresh()

        def size() -> int:
            found: Any = self.server.execute(USER_TABLES, dsn.rpartition("/")[2])
            return int(found[0][0])

        return dsn, size

    def urls(self, *kinds: str) -> dict[str, str]:
        """Make room for new stores of some kinds."""
        return {kind: self.store(kind)[0] for kind in kinds}


class Table:
    """Prints what is found line by line, with the goal and whether it is met, and keeps it."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}
        self._section = ""

    def section(self, title: str) -> None:
        """Begin a table."""
        self._section = title
        self.rows[title] = []
        print(f"\n{title}", flush=True)

    def row(
        self, name: str, text: str, goal: str = "", met: bool | None = None, **keep: Any
    ) -> None:
        """Print a line and keep its figures."""
        verdict = "" if met is None else ("met" if met else "NOT MET")
        print(f"  {name:<34} {text:<58} {goal:<18} {verdict}", flush=True)
        figures = {key: _rounded(value) for key, value in keep.items()}
        self.rows[self._section].append(
            {"what": name, **figures, **({"goal": goal, "met": met} if goal else {})}
        )


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def appends(table: Table, places: Places, rounds: int) -> None:
    """Print the time of a durable append."""
    table.section("durable append of one event (2 KB result)")
    urls = places.urls("sqlite", "sqlite compressed", "jsonl", "postgres")
    times = measures.appends(urls, places.folder, rounds)
    base = statistics.median(times["raw fdatasync"])
    for name, values in times.items():
        middle, ratio = statistics.median(values), statistics.median(values) / base
        text = f"{middle:7.3f} ms  p99 {measures.p99(values):7.3f} ms  {ratio:5.2f} x raw"
        is_goal = name == "sqlite"
        goal = f"<= {APPEND} x" if is_goal else ""
        table.row(name, text, goal, ratio <= APPEND if is_goal else None, ms=middle, ratio=ratio)


def early_and_late(table: Table, places: Places, rounds: int) -> None:
    """Print the time of an append at turn 1 000 against turn 10."""
    table.section("append at turn 1 000 against turn 10")
    urls = places.urls("sqlite", "jsonl", "postgres")
    for name, times in measures.early_and_late(urls, rounds).items():
        early, late = statistics.median(times["early"]), statistics.median(times["late"])
        text = f"{early:7.3f} ms  {late:7.3f} ms  {late / early:5.2f} x"
        table.row(name, text, f"<= {LATE} x", late / early <= LATE, early=early, late=late)


def bytes_on_disk(table: Table, places: Places) -> None:
    """Print bytes on disk against payload."""
    table.section("bytes on disk against payload (1 000 turns)")
    kinds = ("sqlite", "sqlite compressed", "jsonl", "postgres")
    made = {kind: places.store(kind) for kind in kinds}
    urls, sizes = ({kind: pair[n] for kind, pair in made.items()} for n in (0, 1))
    found = measures.bytes_on_disk(urls, sizes)
    for name in kinds:
        text = f"{found[name]:5.2f} x of {found['payload MB']} MB"
        limit = BYTES.get(name)
        met = None if limit is None else found[name] <= limit
        table.row(name, text, f"<= {limit} x" if limit else "", met, ratio=found[name])


def bytes_at_sizes(table: Table, places: Places) -> None:
    """Print bytes on disk against the events, for events that are all of one size."""
    for kind in ("sqlite", "sqlite compressed", "jsonl"):
        table.section(f"bytes at each event size, {kind}: closed, against the events given to it")
        for size in SIZES:
            found = measures.bytes_at(size, *places.store(kind))
            text = f"{found['payload']:5.2f} x  ({found['said']:5.2f} x their text,"
            text += f" {found['open']:5.2f} x with the log while open)"
            limit, met = BYTES[kind], found["payload"] <= BYTES[kind]
            is_goal = kind != "jsonl"
            goal = f"<= {limit} x" if is_goal else ""
            table.row(f"{size / 1000:g} KB", text, goal, met if is_goal else None, **found)


def crowds(table: Table, places: Places, seconds: float) -> None:
    """Print what many threads get done."""
    for count, faster in THREADS.items():
        table.section(f"{count} threads, a session each")
        urls = places.urls("sqlite", "jsonl", "postgres")
        found = measures.crowds(places.folder, urls, count, seconds)
        plain = found["a connection each"]
        for name, row in found.items():
            speed = row["a second"] / plain["a second"]
            wait = row["p99 of waiting ms"] / plain["p99 of waiting ms"]
            by_append = row["p99 ms"] / plain["p99 ms"]
            is_goal = name == "sqlite"
            text = f"{row['a second']:7.0f}/s {speed:5.1f} x  longest {row['longest ms']:8.1f} ms"
            goal, met = (f">= {faster:g} x", speed >= faster) if is_goal else ("", None)
            table.row(name, text, goal, met, **row, speed=speed)
            goal = f"<= {WAIT} x" if is_goal else ""
            text = f"p99 of waiting {row['p99 of waiting ms']:8.1f} ms {wait:6.3f} x"
            table.row("", text, goal, wait <= WAIT if is_goal else None, wait=wait)
            text = f"p99 over appends {row['p99 ms']:8.1f} ms {by_append:6.3f} x"
            met = by_append <= WAIT if is_goal else None
            table.row("", text, goal, met, wait_by_append=by_append)


def openings(table: Table, places: Places, count: int, rounds: int) -> None:
    """Print the time to open a long session."""
    urls = places.urls("sqlite", "sqlite compressed", "jsonl", "postgres", "memory")
    urls.pop("memory")
    for dialect, found in measures.openings(urls, places.folder, count, rounds).items():
        shape = f"{found['messages']} messages, {found['records']} records, {found['MB']} MB"
        table.section(f"open a session and get its request, {dialect} ({shape})")
        times = {name: min(values) for name, values in found["times"].items()}
        cpu = {name: min(values) for name, values in found["cpu"].items()}
        for name, best in times.items():
            ratio, share = best / times["json.loads"], cpu[name] / cpu["json.loads"]
            is_goal = name == "sqlite"
            goal = f"<= {OPEN} x" if is_goal else ""
            met = ratio <= OPEN if is_goal else None
            text = f"{best:7.1f} ms  {ratio:5.2f} x json.loads, processor {share:5.2f} x"
            table.row(name, text, goal, met, ms=best, cpu=cpu[name])


def first_requests(table: Table, places: Places, rounds: int) -> None:
    """Print what it costs to open a session and get its first request, in every dialect."""
    table.section("open 10 000 messages and get the request, processor")
    for row in requests.first(lambda: places.store("sqlite")[0], rounds):
        limit = OPEN if row["own"] else OTHER
        text = f"{row['ms']:7.1f} ms  {row['ratio']:5.2f} x json.loads of {row['parse']:.1f} ms"
        figures = {"ms": row["ms"], "ratio": row["ratio"]}
        table.row(row["name"], text, f"<= {limit:g} x", row["ratio"] <= limit, **figures)


def later_requests(table: Table, places: Places, rounds: int) -> None:
    """Print what a request costs after one more turn; copying a list of pointers may show."""
    table.section("request after one more turn, processor, at 1 000 / 10 000 / 40 000 messages")
    for row in requests.later(lambda: places.store("sqlite")[0], rounds):
        times, growth = row["times"], row["growth"]
        text = " / ".join(f"{ms:6.2f}" for ms in times.values()) + f" ms  {growth:5.2f} x"
        figures = {f"ms at {count}": ms for count, ms in times.items()}
        table.row(row["name"], text, f"<= {FLAT:g} x", growth <= FLAT, **figures)


def large_requests(table: Table, places: Places) -> None:
    """Print what a request of far too much costs."""
    table.section("request of 150 results of 1 MB, processor and memory")
    for row in requests.large(lambda: places.store("sqlite")[0]):
        text = f"{row['ms']:7.1f} ms  +{row['MB']:5.1f} MB"
        met = row["ms"] <= LARGE_MS and row["MB"] <= LARGE_MB
        goal = f"<= {LARGE_MS:g} ms, {LARGE_MB:g} MB"
        table.row(row["name"], text, goal, met, ms=row["ms"], MB=row["MB"])


def rivals(places: Places) -> dict[str, Callable[[], Rival]]:
    """Everybody who keeps the conversation."""
    folder = places.folder
    return {
        "lockstitch sqlite": lambda: Journal(*places.store("sqlite")),
        "lockstitch sqlite compressed": lambda: Journal(*places.store("sqlite compressed")),
        "lockstitch sqlite, run_tools": lambda: Sessions(*places.store("sqlite")),
        "lockstitch jsonl": lambda: Journal(*places.store("jsonl")),
        "lockstitch postgres": lambda: Journal(*places.store("postgres")),
        "raw JSONL + fdatasync": lambda: RawLines(folder),
        "raw SQLite FULL": lambda: RawSqlite(folder),
        "openai-agents SQLiteSession": lambda: AgentsSqlite(folder),
        "strands FileSessionManager": lambda: StrandsFiles(folder),
        "LangGraph SqliteSaver, sync": lambda: langgraph_sqlite(folder),
        "LangGraph PostgresSaver, sync": lambda: langgraph_postgres(*places.database()),
    }


class Race:
    """One rival's way through the conversation."""

    def __init__(self, rival: Rival, last: int) -> None:
        self.rival, self.last = rival, last
        self.times: list[float] = []
        self.payload = 0

    def turn(self, turn: Any, payload: int) -> None:
        """Keep one more turn, unless this one's way is over."""
        if len(self.times) < self.last:
            start = time.perf_counter()
            self.rival.turn(turn)
            self.times.append((time.perf_counter() - start) * 1e3)
            self.payload += payload

    def at(self, turn: int) -> float | None:
        """The median of the last fifteen turns up to one; the first turn stands alone."""
        if turn > len(self.times):
            return None
        return statistics.median(self.times[max(turn - 15, 0) if turn > 1 else 0 : turn])

    def end(self) -> tuple[float, int]:
        """Close and load; gives milliseconds of the load, and bytes on disk."""
        loads = []
        for _ in range(3):
            start = time.perf_counter()
            self.rival.load()
            loads.append((time.perf_counter() - start) * 1e3)
        self.rival.close()
        return min(loads), self.rival.size()


def conversation(table: Table, places: Places, last: int, graphs: int) -> None:
    """Print every store's way through one conversation, turn by turn with the others."""
    marks = [1, *(mark for mark in (50, 100, 200, 1000) if mark <= last)]
    races = {}
    for name, build in rivals(places).items():
        try:
            rival = build()
        except ImportError as error:
            print(f"  {name}: not installed ({error.name})")
            continue
        races[name] = Race(rival, graphs if name.startswith("LangGraph") else last)
    talk = Talk().turns()
    for _ in range(last):
        turn = next(talk)
        payload = sum(map(len, measures.lines(turn)))
        for race in races.values():
            race.turn(turn, payload)
    table.section(f"a conversation, ms a turn of 5 events at turn {' / '.join(map(str, marks))}")
    _races(table, races, marks)


def _races(table: Table, races: dict[str, Race], marks: list[int]) -> None:
    found: dict[str, Row] = {}
    for name, race in races.items():
        load, size = race.end()
        turns = {f"turn {mark}": race.at(mark) for mark in marks}
        ratio = size / race.payload
        text = " ".join("      -" if ms is None else f"{ms:7.2f}" for ms in turns.values())
        text += f"  {size / 1e6:8.2f} MB {ratio:6.2f} x  load {load:7.1f} ms"
        found[name] = {**turns, "MB": size / 1e6, "payload_x": ratio, "load_ms": load}
        found[name]["durable"] = race.rival.durable
        table.row(name, text, race.rival.durable, **found[name])
    _against_langgraph(table, found, races)


def _against_langgraph(table: Table, found: dict[str, Row], races: dict[str, Race]) -> None:
    """Print how much faster and smaller than LangGraph's savers, at the last turn they reached."""
    for ours, theirs in (
        ("lockstitch sqlite", "LangGraph SqliteSaver, sync"),
        ("lockstitch sqlite, run_tools", "LangGraph SqliteSaver, sync"),
        ("lockstitch postgres", "LangGraph PostgresSaver, sync"),
    ):
        if theirs not in races:
            continue
        turn = len(races[theirs].times)
        faster = (races[theirs].at(turn) or 0) / (races[ours].at(turn) or 1)
        smaller = found[theirs]["payload_x"] / found[ours]["payload_x"]
        text = f"{faster:6.0f} x faster, {smaller:5.0f} x smaller at turn {turn}"
        table.row(f"{ours} : {theirs.split(',')[0][10:]}", text, faster=faster, smaller=smaller)


def versions() -> dict[str, str]:
    """What was compared."""
    known = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    for name in PEERS:
        try:
            known[name] = version(name)
        except PackageNotFoundError:
            known[name] = "not installed"
    return known


def keep(table: Table, path: Path, options: argparse.Namespace) -> None:
    """Write the results file."""
    head = {"date": f"{datetime.now(tz=UTC):%Y-%m-%d}", "versions": versions()}
    asked = {"quick": options.quick, "long": options.long}
    path.write_text(json.dumps({**head, **asked, "tables": table.rows}, indent=1) + "\n")
    print(f"\nkept in benchmarks/results/{path.name}")


def main() -> None:
    """Run everything, print it and keep it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds and turns")
    parser.add_argument("--long", action="store_true", help="take the conversation to turn 1 000")
    parser.add_argument("--keep", action="store_true", help="write the results file")
    parser.add_argument(
        "--only",
        nargs="*",
        help="some of: append late bytes sizes crowd open later large talk",
    )
    parser.add_argument("--folder", help="where to write: a disk that is to be measured")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    quick = options.quick
    turns = 1000 if options.long else 100 if quick else 200
    table = Table()
    with (
        tempfile.TemporaryDirectory(dir=options.folder, prefix="lockstitch-bench-") as name,
        postgres_server.running() as server,
    ):
        places = Places(Path(name), server)
        parts: dict[str, Callable[[], object]] = {
            "append": lambda: appends(table, places, 5 if quick else 25),
            "late": lambda: early_and_late(table, places, 5 if quick else 25),
            "bytes": lambda: bytes_on_disk(table, places),
            "sizes": lambda: bytes_at_sizes(table, places),
            "crowd": lambda: crowds(table, places, 1.0 if quick else 3.0),
            "open": lambda: (
                openings(table, places, 10_000, 3 if quick else 9),
                first_requests(table, places, 3 if quick else 9),
            ),
            "later": lambda: later_requests(table, places, 3 if quick else 9),
            "large": lambda: large_requests(table, places),
            "talk": lambda: conversation(table, places, turns, min(turns, 200)),
        }
        for part, run in parts.items():
            if not options.only or part in " ".join(options.only).split():
                run()
    if options.keep:
        RESULTS.mkdir(exist_ok=True)
        keep(table, RESULTS / f"{datetime.now(tz=UTC):%Y-%m-%d}-stores.json", options)


if __name__ == "__main__":
    main()
