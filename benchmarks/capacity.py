"""How many sessions one PostgreSQL holds, from what it is measured to do in this run.

    python benchmarks/capacity.py --keep        # writes benchmarks/results/DATE-capacity.json
    python benchmarks/capacity.py --turns 50 --active 0.01 --memory-gb 256 --disk-tb 30
    python benchmarks/capacity.py --measured benchmarks/results/DATE-capacity.json --active 0.01

A server is started for the run, on loopback, with its tables partitioned as docs/capacity.md says
and with commits that wait for the disk. The constants are those of this machine; the model
multiplies them out for 10^3 to 10^8 sessions and says what runs out first.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from psycopg import sql

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from capacity_model import Constants, Load, breaks_at, limits, row  # noqa: E402
from stores_workload import Talk, Turn, anthropic  # noqa: E402

import lockstitch  # noqa: E402
from lockstitch.stores.postgres import PostgresBackend, schema  # noqa: E402
from tests import postgres_server  # noqa: E402

RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "capacity.md"
THOUSAND = 1000
SIZES = [10**power for power in range(3, 9)]
SCHEMA = "SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint FROM pg_stat_user_tables"
OF_SESSIONS = "SELECT pg_total_relation_size('lockstitch.sessions')::bigint"
COUNT = "SELECT count(*) FROM lockstitch.sessions"
WAL = "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"
BULK = """
INSERT INTO lockstitch.sessions (session, seq, digest, epoch, created, changed)
SELECT 'bulk-' || n, 0, decode(md5(n::text), 'hex'), 1, 1790000000000, 1790000000000 + n
FROM generate_series(%d, %d) AS n
"""


class Bench:
    """A partitioned store on a server of its own."""

    def __init__(self, server: postgres_server.Server) -> None:
        self.server = server
        self.url = server.fresh()
        self.database = self.url.rpartition("/")[2]
        lockstitch.open(self.url).close()
        server.execute(partitioning(), self.database)

    def ask(self, question: str) -> int:
        """One number."""
        [(number,)] = self.server.execute(question, self.database)
        return int(str(number))


def partitioning() -> str:
    """The statements of the page on capacity: what is measured is what is written there."""
    text = PAGE.read_text("utf-8")
    return text.partition("```sql\n")[2].partition("```")[0]


def talk_to(session: lockstitch.Session, turn: Turn) -> None:
    """One turn as an agent has it: a prompt, three tools, an answer."""
    session.say(turn.prompt)
    session.record(anthropic(turn)[0], "anthropic")
    results = iter(turn.results)
    lock = threading.Lock()

    def bash(**_: str) -> str:
        with lock:
            return next(results)

    session.run_tools({"bash": bash})
    answer = [{"type": "text", "text": turn.answer}]
    session.record({"role": "assistant", "content": answer}, "anthropic")


def sizes(bench: Bench, turns: int, count: int) -> dict[str, float]:
    """Bytes of a session, of a turn, and of the log for one."""
    talk = Talk()
    with lockstitch.open(bench.url) as store:
        before = bench.ask(SCHEMA)
        for number in range(count):
            store.session(f"empty-{number}").close()
        empty = (bench.ask(SCHEMA) - before) / count
        records, start, wal = 0, bench.ask(SCHEMA), bench.ask(WAL)
        for number in range(count):
            with store.session(f"talk-{number}") as session:
                for turn in range(turns):
                    talk_to(session, talk.turn(turn))
                records += session.seq
        taken = bench.ask(SCHEMA) - start - empty * count
        logged = bench.ask(WAL) - wal
    made = count * turns
    return {
        "records_a_turn": records / made,
        "bytes_a_turn": taken / made,
        "wal_a_turn": logged / made,
    }


def rate(bench: Bench, threads: int, seconds: float) -> float:
    """Turns a second of so many sessions at once."""
    done = [0] * threads
    end = time.monotonic() + seconds
    with lockstitch.open(bench.url) as store:

        def work(number: int) -> None:
            talk = Talk(number)
            with store.session(f"rate-{threads}-{number}") as session:
                while time.monotonic() < end:
                    talk_to(session, talk.turn(done[number]))
                    done[number] += 1

        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        began = time.monotonic()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return sum(done) / (time.monotonic() - began)


def opening(bench: Bench, tries: int) -> float:
    """Milliseconds to open a session, say something and give it back, in the middle."""
    times = []
    with lockstitch.open(bench.url) as store:
        for number in range(tries):
            began = time.perf_counter()
            with store.session(f"talk-{number % 5}") as session:
                session.note("open")
            times.append((time.perf_counter() - began) * 1000)
            list(store.sessions(order="changed", limit=20))
    return statistics.median(times)


def growth(bench: Bench, most: int, tries: int) -> tuple[float, float, float, int]:
    """Time to open a session among many, how that grows tenfold by tenfold, and bytes of a row."""
    first, few = opening(bench, tries), bench.ask(COUNT)
    before = bench.ask(OF_SESSIONS)
    bench.server.execute(BULK % (1, most), bench.database)
    bench.server.execute("ANALYZE lockstitch.sessions", bench.database)
    last = opening(bench, tries)
    factor = (last / first) ** (1 / math.log10(most / few))
    return last, max(1.0, factor), (bench.ask(OF_SESSIONS) - before) / most, most


def renewing(bench: Bench, held: int, seconds: float) -> float:
    """Leases renewed a second: what a process does for the sessions it keeps open, all at once."""
    with PostgresBackend(bench.url) as backend, psycopg.connect(bench.url, autocommit=True) as line:
        leases = [backend.acquire(f"held-{number}") for number in range(held)]
        named = [lease.token for lease in leases], [lease.session for lease in leases], 30.0
        began, rounds = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            line.execute(schema.RENEW, named)
            rounds += 1
        taken = time.monotonic() - began
    return rounds * held / taken


def copying(bench: Bench) -> float:
    """Megabytes a second at which everything is read and sent: a backup without its disk."""
    size = 0
    began = time.monotonic()
    with psycopg.connect(bench.url) as connection:
        for table in ("records", "sessions", "blobs"):
            source = sql.SQL("SELECT * FROM {}").format(sql.Identifier("lockstitch", table))
            statement = sql.SQL("COPY ({}) TO STDOUT (FORMAT binary)").format(source)
            with connection.cursor().copy(statement) as copy:
                size += sum(len(piece) for piece in copy)
    return size / 1e6 / (time.monotonic() - began)


def measured(quick: bool) -> tuple[Constants, dict[str, float]]:
    """Run everything on a server of this run."""
    seconds, count, most = (1.0, 3, 10_000) if quick else (6.0, 40, 1_000_000)
    with postgres_server.running({"shared_buffers": "256MB", "fsync": "on"}) as server:
        bench = Bench(server)
        found = sizes(bench, 5 if quick else 20, count)
        rates = {f"{threads}": rate(bench, threads, seconds) for threads in (1, 8, 32)}
        renewals = renewing(bench, 100, seconds / 2)
        open_ms, factor, row_bytes, have = growth(bench, most, 20 if quick else 200)
        copied = copying(bench)
    constants = Constants(
        **found,
        bytes_a_session=row_bytes,
        hot_a_session=row_bytes,
        turns_a_second=max(rates.values()),
        open_ms=open_ms,
        open_growth=factor,
        sessions_at_open=have,
        copy_mb_a_second=copied,
        renewals_a_second=renewals,
    )
    return constants, rates


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= THOUSAND or value == int(value) else f"{value:.3g}"


def show(constants: Constants, rates: dict[str, float], load: Load) -> dict[str, Any]:
    """Print the constants, the table, and where it breaks; gives all of it."""
    print("Measured on one machine, in one run:")
    for name, value in msgspec.structs.asdict(constants).items():
        print(
            f"  {name:<20} {value:>14,.4g}" if value < THOUSAND else f"  {name:<20} {value:>14,.0f}"
        )
    print("  turns a second with " + ", ".join(f"{k} threads {v:.0f}" for k, v in rates.items()))
    print(
        "\nFor this load:", ", ".join(f"{k}={v}" for k, v in msgspec.structs.asdict(load).items())
    )
    heads = ("disk GB", "parts", "hot GB", "turns/s", "servers", "WAL GB/d", "open ms", "backup h")
    print(f"\n{'sessions':>11} " + " ".join(f"{head:>8}" for head in heads) + "  limits passed")
    rows = [row(n, constants, load) for n in SIZES]
    for one in rows:
        figures = (
            one.disk_gb, one.partitions, one.hot_gb, one.turns_a_second, one.servers_for_writes,
            one.wal_gb_a_day, one.open_ms, one.backup_hours,
        )  # fmt: skip
        cells = " ".join(f"{_shown(value):>8}" for value in figures)
        print(f"{one.sessions:>11,} {cells}  {len(one.broken) or '-'}")
    breaks = {name: breaks_at(share) for name, share in limits(constants, load).items()}
    print("\nOne server runs out of:")
    for name, sessions in sorted(breaks.items(), key=lambda item: item[1]):
        print(f"  {name:<26} at {sessions:>16,.0f} sessions")
    return {
        "constants": msgspec.structs.asdict(constants),
        "turns_a_second_by_threads": rates,
        "load": msgspec.structs.asdict(load),
        "rows": [msgspec.structs.asdict(one) for one in rows],
        "breaks_at_sessions": breaks,
    }


def main() -> None:
    """Measure, multiply, print, and keep it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keep", action="store_true", help="write benchmarks/results")
    parser.add_argument("--quick", action="store_true", help="a few seconds, rough figures")
    parser.add_argument("--measured", metavar="FILE", help="take the constants of a kept result")
    defaults = msgspec.structs.asdict(Load())
    for name, value in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    given = vars(parser.parse_args())
    load = Load(**{name: given[name] for name in defaults})
    if given["measured"]:
        kept = json.loads(Path(given["measured"]).read_text("utf-8"))
        constants, rates = Constants(**kept["constants"]), kept["turns_a_second_by_threads"]
    else:
        constants, rates = measured(given["quick"])
    found = show(constants, rates, load)
    if given["keep"]:
        today = datetime.now(UTC).date().isoformat()
        machine = {"cores": os.cpu_count(), "load": os.getloadavg(), "system": platform.system()}
        whole = {"date": today, "machine": machine, "quick": given["quick"], **found}
        path = RESULTS / f"{today}-capacity.json"
        path.write_text(json.dumps(whole, indent=1) + "\n", "utf-8")
        print(f"\nKept in {path.relative_to(ROOT)}.")


if __name__ == "__main__":
    main()
