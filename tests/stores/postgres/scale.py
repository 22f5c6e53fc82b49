"""Does a store stay as fast as it was when it is full? Times and pages touched, side by side.

``python -m tests.stores.postgres.scale`` fills one database with 100 000 sessions and one session
of 20 000 records; ``--sessions`` and ``--records`` say how many, the test takes a small slice.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import psycopg
from msgspec import Struct

from lockstitch.journal.records import NEW, START, JournalEntry, chain_entries
from lockstitch.stores.base import Listing
from lockstitch.stores.postgres import PostgresBackend, reading
from lockstitch.stores.postgres import schema as sql
from tests.postgres_server import running

BODY = b'{"kind":"said","payload":"%s"}' % (b"a word or two " * 40)
SESSIONS = "COPY lockstitch.sessions (session, seq, digest, epoch, created, changed) FROM STDIN"
RECORDS = "COPY lockstitch.records FROM STDIN"
WHOLE = "SELECT id, seq, digest, epoch, token FROM lockstitch.sessions WHERE session = %s"
LONG = "long"
SAMPLES = 60


class Row(Struct):
    """What one size cost: median milliseconds and pages touched, by what was done."""

    size: int
    milliseconds: dict[str, float]
    pages: dict[str, int]


def name_of(number: int) -> str:
    return f"session-{number:08}"


def filled(dsn: str, numbers: range) -> None:
    """Put sessions of three records each behind the store's back, as it would have written them."""
    entries = [JournalEntry(f"k{count}", 1_700_000_000_000, BODY) for count in range(3)]
    records = chain_entries(NEW, 1, entries)
    first = name_of(numbers.start)
    head = (3, records[-1].digest, 1, 1)
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        with cursor.copy(SESSIONS) as copy:
            for number in numbers:
                copy.write_row((name_of(number), *head, records[-1].at + number * 30_000))
        with cursor.copy("COPY lockstitch.labels (tag, session) FROM STDIN") as copy:
            for number in numbers[::10]:
                copy.write_row(("tenth", name_of(number)))
        cursor.execute("SELECT id FROM lockstitch.sessions WHERE session >= %s", (first,))
        fresh = [row[0] for row in cursor]
        with cursor.copy(RECORDS) as copy:
            for number in fresh:
                for one in records:
                    copy.write_row(
                        (number, one.seq, one.epoch, one.key, one.at, one.body, one.digest)
                    )


def timed(job: Callable[[Any], object], over: Iterable[Any]) -> float:
    taken = []
    for value in over:
        begun = time.perf_counter()
        job(value)
        taken.append(time.perf_counter() - begun)
    return round(statistics.median(taken) * 1000, 3)


def touched(dsn: str, statement: str, values: tuple[Any, ...]) -> int:
    """How many pages a statement touches; it is undone."""
    with psycopg.connect(dsn) as connection:
        for _ in range(3):
            asked = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
            row = connection.execute(asked.encode(), values).fetchone()
            connection.rollback()
        assert row
        plan = row[0][0]["Plan"]
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def pages(dsn: str, session: str) -> dict[str, int]:
    """How many pages the statements of an agent's turn touch."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(WHOLE, (session,)).fetchone()
        assert row
    number, seq, digest, epoch, token = row
    taking = (session, "token", "{}", 30.0, [token], "", 0, True, START)
    lists: tuple[Any, ...] = (["k"], [1], [BODY], [START], [], [])
    adding = (session, epoch, token, seq, digest, *lists, 30.0)
    return {
        "acquire": touched(dsn, sql.ACQUIRE, taking),
        "append": touched(dsn, sql.APPEND, adding),
        "head": touched(dsn, sql.HEAD, (session,)),
        "read 3": touched(dsn, sql.READ, (number, seq - 3, seq, 1000, 1 << 22)),
        "list 100": touched(dsn, *reading.listing(Listing(session), 100)),
        "list the newest": touched(dsn, *reading.listing(Listing(newest=True), 50)),
        "list a tag": touched(dsn, *reading.listing(Listing(session, tag="tenth"), 10)),
    }


def many(dsn: str, sizes: list[int]) -> Iterator[Row]:
    """Measure a store that holds more and more sessions."""
    there = 0
    with PostgresBackend(dsn) as backend:
        for size in sizes:
            filled(dsn, range(there, size))
            there = size
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")
            chance = random.Random(size)  # noqa: S311
            names = [name_of(number) for number in chance.sample(range(size), SAMPLES)]
            yield Row(size, times(backend, names), pages(dsn, name_of(size // 2)))


def times(backend: PostgresBackend, names: list[str]) -> dict[str, float]:
    leases = {}

    def take(name: str) -> None:
        leases[name] = backend.acquire(name)

    def add(name: str) -> None:
        lease = leases[name]
        backend.append(lease, [JournalEntry("new", 1, BODY)], lease.head.seq)

    return {
        "acquire": timed(take, names),
        "append": timed(add, names),
        "release": timed(lambda name: backend.release(leases[name]), names),
        "read": timed(lambda name: list(backend.read(name)), names),
        "list 100": timed(lambda name: list(backend.sessions(after=name, limit=100)), names[:20]),
    }


def long(dsn: str, sizes: list[int]) -> Iterator[Row]:
    """Measure a session that becomes longer and longer."""
    with PostgresBackend(dsn) as backend:
        lease = backend.acquire(LONG)
        head = lease.head
        for size in sizes:
            while head.seq < size:
                batch = [
                    JournalEntry(f"k{n}", 1, BODY)
                    for n in range(head.seq, min(head.seq + 200, size))
                ]
                head = backend.append(lease, batch, head.seq)
            known = head
            taken = []
            for _ in range(SAMPLES):
                begun = time.perf_counter()
                head = backend.append(lease, [JournalEntry(f"k{head.seq}", 1, BODY)], head.seq)
                taken.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            amount = sum(1 for _ in backend.read(LONG))
            whole = (time.perf_counter() - begun) / amount
            yield Row(
                size,
                {
                    "append": round(statistics.median(taken) * 1000, 3),
                    "read 60 new": timed(lambda at: list(backend.read(LONG, at)), [known] * 20),
                    "read all, 1000 records": round(whole * 1e6, 3),
                },
                pages(dsn, LONG),
            )


def shown(title: str, rows: Iterable[Row]) -> None:
    print(title)  # noqa: T201
    for row in rows:
        ms = ", ".join(f"{name} {value:.2f}" for name, value in row.milliseconds.items())
        counted = ", ".join(f"{name} {value}" for name, value in row.pages.items())
        print(f"  {row.size:>7}: ms: {ms}; pages: {counted}", flush=True)  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--records", type=int, nargs="+", default=[100, 1_000, 20_000])
    given = parser.parse_args()
    with running() as server:
        dsn = server.fresh()
        shown("sessions in a store", many(dsn, given.sessions))
        shown("records in a session", long(dsn, given.records))
        begun = time.perf_counter()
        with PostgresBackend(dsn) as backend:
            amount = sum(1 for _ in backend.verify())
        print(f"verify: {amount} sessions in {time.perf_counter() - begun:.1f} s")  # noqa: T201


if __name__ == "__main__":
    main()
