"""A hundred thousand sessions, or one of 20 000 records, cost an operation nothing.

Not measured in time: SQLite counts the steps it takes, and they are the same for a small store.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from lockstitch.journal.records import Head, JournalEntry, chain_entries
from lockstitch.stores.base import Listing
from lockstitch.stores.sqlite import SqliteBackend, connections, pieces, rows
from lockstitch.stores.sqlite import rows as listing
from tests.stores.sqlite.conftest import entries

MANY = 100_000
LONG = 20_000
ABOUT = b'{"kind":"described","payload":{},"tags":["third"]}'


class Steps:
    """Connections that count SQLite's steps."""

    def __init__(self) -> None:
        self.count = 0

    def connect(self, uri: str) -> sqlite3.Connection:
        connection = connections.connect(uri)
        connection.set_progress_handler(self._step, 1)
        return connection

    def _step(self) -> int:
        self.count += 1
        return 0


def filled(path: Path, sessions: int, records: int) -> None:
    """A store with many short sessions and a long one."""
    chain = chain_entries(
        Head(), 1, [JournalEntry(f"k{n}", n, b"{}") for n in range(1, records + 1)]
    )

    def fill(connection: connections.Connection) -> None:
        last = Head(records, chain[-1].digest, 1)
        number = rows.add_session(connection, "long", last, 1, records)
        tail = pieces.tail_of(connection, number)
        pieces.add(connection, tail, pieces.encode_records(chain), compress=False)
        for name in range(sessions):
            number = rows.add_session(connection, f"s{name:06}", Head(), 1, name * 30_000)
            if name % 3 == 0:
                listing.describe(connection, number, ABOUT)

    with SqliteBackend(path) as store:
        store._writer.do(fill)  # type: ignore[union-attr]  # noqa: SLF001


def steps_of(path: Path) -> dict[str, int]:
    """How many steps each operation takes."""
    steps = Steps()
    found: dict[str, int] = {}
    with SqliteBackend(path, connect=steps.connect) as store:

        def note(name: str) -> None:
            found[name], steps.count = steps.count, 0

        steps.count = 0
        lease = store.acquire("long")
        note("acquire")
        head = store.append(lease, entries(3), lease.head.seq)
        note("append")
        assert len(list(store.read("long", after=lease.head))) == 3
        note("read on")
        assert store.head("long") == head
        note("head")
        assert store.wait("long", lease.head.seq, 0)
        note("wait")
        store.acquire("new")
        note("new")
        assert len(list(store.sessions(after="s000003", limit=5))) == 5
        note("list a page")
        newest = Listing(newest=True, changed=7 * 30_000, name="s000007")
        assert [one.session for one in store.listed(newest, 3)] == ["s000006", "s000005", "s000004"]
        note("list those changed last")
        tagged = Listing(name="s000003", tag="third")
        assert [one.session for one in store.listed(tagged, 2)] == ["s000006", "s000009"]
        note("list those with a tag")
        store.release(lease)
        note("release")
    return found


@pytest.mark.parametrize("what", ["many", "long"])
def test_size_costs_nothing(tmp_path: Path, what: str) -> None:
    filled(tmp_path / "small.db", 20, 20)
    big = (MANY, 20) if what == "many" else (20, LONG)
    filled(tmp_path / "big.db", *big)
    small, large = steps_of(tmp_path / "small.db"), steps_of(tmp_path / "big.db")
    assert small.keys() == large.keys()
    for name, steps in small.items():
        assert large[name] <= steps * 1.2 + 10, (name, steps, large[name])


def test_bytes_are_about_those_of_the_payload(tmp_path: Path) -> None:
    """Records of the sizes that a conversation with three tools has, as text of few words."""
    words = [b"error", b"in", b"file", b"line", b"def", b"return", b"the", b"value", b"is", b"not"]
    text = b" ".join(words[n * n * 7 % 10] + b"%d" % (n * 31 % 97) for n in range(4000))
    sizes = [200, 900, 2000, 2000, 2000] * 1000
    for compress, limit in ((False, 1.2), (True, 0.6)):
        path = tmp_path / f"{compress}.db"
        sent = [
            JournalEntry(
                f"{n:026}", n, b'{"n":%d,"text":"%s"}' % (n, text[n % 5000 : n % 5000 + size])
            )
            for n, size in enumerate(sizes)
        ]
        with SqliteBackend(path, compress=compress) as store:
            lease = store.acquire("s")
            for seq in range(0, len(sent), 50):
                store.append(lease, sent[seq : seq + 50], seq)
        ratio = path.stat().st_size / sum(len(one.body) for one in sent)
        print(f"compress={compress}: {ratio:.3f} bytes on disk for one of payload")  # noqa: T201
        assert ratio <= limit
