"""Adding without a lease: what is known of the last one counts only while nobody else writes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lockstitch.errors import Damaged
from lockstitch.journal.records import NEW, Head, JournalEntry
from lockstitch.stores.sqlite import SqliteBackend, connections

ONE, OTHER = "langgraph.one", "langgraph.other"


def entry(number: int, size: int = 300) -> JournalEntry:
    return JournalEntry(f"key-{number}", 1, b'{"n":"%d %s"}' % (number, b"x" * size))


def told(backend: SqliteBackend, session: str) -> list[bytes]:
    return [record.body for record in backend.read(session)]


@pytest.mark.parametrize("compress", [False, True])
def test_many_who_add_and_do_other_things_in_between_lose_nothing(
    tmp_path: Path, compress: bool
) -> None:
    dice = Random(5)  # noqa: S311
    made: list[SqliteBackend] = [
        SqliteBackend(tmp_path / "s.db", compress=compress) for _ in range(3)
    ]
    heads: dict[str, Head] = {ONE: NEW, OTHER: NEW}
    expected: dict[str, list[bytes]] = {ONE: [], OTHER: []}
    for number in range(200):
        backend, session = dice.choice(made), dice.choice([ONE, OTHER, ONE])
        entries = [entry(number * 10 + more, dice.choice([5, 900, 6000])) for more in range(2)]
        what = dice.choice(["add", "add", "add", "append", "replace", "delete"])
        if what == "add" or not heads[session].seq:
            heads[session] = backend.add(session, entries, heads[session])
        else:
            lease = backend.acquire(session)
            if what == "append":
                heads[session] = backend.append(lease, entries, lease.head.seq)
            elif what == "replace":
                heads[session] = backend.replace(lease, entries, lease.head.seq)
                expected[session] = []
            else:
                backend.delete(lease)
                heads[session], expected[session] = NEW, []
                continue
            backend.release(lease)
            found = backend.head(session)
            assert found is not None
            heads[session] = found
        expected[session] += [one.body for one in entries]
    for session, bodies in expected.items():
        if heads[session].seq:
            assert told(made[0], session) == bodies
    for backend in made:
        backend.close()
    with SqliteBackend(tmp_path / "s.db") as backend:
        assert not [one for one in backend.verify() if hasattr(one, "message")]


def test_nothing_is_added_behind_a_record_that_another_program_has_changed(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "s.db"
    with SqliteBackend(path) as backend:
        head = backend.add(ONE, [entry(1)], NEW)
        head = backend.add(ONE, [entry(2)], head)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("update pieces set body = zeroblob(length(body))")
        with pytest.raises(Damaged):
            backend.add(ONE, [entry(3)], head)


def test_the_log_of_an_open_database_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    sizes: list[Any] = []
    with SqliteBackend(path) as backend:
        head = NEW
        for number in range(1200):
            head = backend.add(ONE, [entry(number, 2000)], head)
            sizes.append(connections.size_of(connections.wal_of(path)))
    assert max(sizes) < 2_000_000
