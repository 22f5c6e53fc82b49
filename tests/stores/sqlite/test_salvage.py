"""What is read past damaged rows, indexes and pages of a database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lockstitch import stored
from lockstitch.errors import LockstitchError
from lockstitch.journal.records import Entry, Record
from lockstitch.journal.salvage import Salvage
from lockstitch.session import salvaging
from lockstitch.stores.sqlite import SqliteBackend
from tests.stores.sqlite import older
from tests.stores.sqlite.test_damage import change
from tests.stores.talking import LAST, talked

MANY = 400
PAGE = 8192
INTERIOR = 5


MADE = [
    Entry(f"k{n}", n, b'{"kind":"noted","name":"n%s"}' % (b"%d" % n * 200)) for n in range(MANY)
]


def filled(path: Path, *, compress: bool = False) -> list[Record]:
    """Write a store as an earlier version did: a row for each record."""
    older.make(path, {"many": MADE, "other": MADE[:3]}, compress=compress)
    with SqliteBackend(path) as store:
        return list(store.read("many"))


def found_in(path: Path, session: str = "many") -> Salvage:
    with SqliteBackend(path, readonly=True) as store:
        return salvaging.salvage(store, session)


def right(found: Salvage, records: list[Record]) -> list[int]:
    read = {one.seq: one.record for one in found.records if one.is_readable}
    return [one.seq for one in records if (r := read.get(one.seq)) and r.body == one.body]


@pytest.mark.parametrize("bit", [0, 5, 40, 177, 1003])
def test_a_compressed_body_that_cannot_be_unpacked(tmp_path: Path, bit: int) -> None:
    path = tmp_path / "sessions.db"
    records = filled(path, compress=True)
    with closing(sqlite3.connect(path)) as base:
        [(body,)] = base.execute("select body from events where session = 1 and seq = 7")
    changed = bytearray(body)
    changed[bit // 8 % len(body)] ^= 1 << bit % 8
    change(path, "update events set body = ? where session = 1 and seq = 7", bytes(changed))
    found = found_in(path)
    assert right(found, records) == [*range(1, MANY + 1)]
    assert [one.seq for one in found.records if one.proof == "restored"] == [7]


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(
    "what",
    [
        "codec = 1 - codec",
        "codec = 7",
        "seq = 100000",
        "seq = 'five'",
        "session = 99",
        "digest = cast(digest as text)",
        "body = cast(body as text)",
    ],
)
def test_what_only_lost_its_place_or_type_is_put_right(
    tmp_path: Path, what: str, compress: bool
) -> None:
    path = tmp_path / "sessions.db"
    records = filled(path, compress=compress)
    change(path, f"update events set {what} where session = 1 and seq = 5")  # noqa: S608
    found = found_in(path)
    assert right(found, records) == [*range(1, MANY + 1)]
    first = next(one for one in found.records if one.proof != "intact")
    assert (first.seq, first.proof) == (5, "restored")
    assert found.behind == MANY - 5


@pytest.mark.parametrize(
    "what", ["number = 77", "digest = zeroblob(16)", "seq = 9", "seq = 5000000", "digest = 'text'"]
)
def test_damage_in_the_row_of_a_session_costs_no_record(tmp_path: Path, what: str) -> None:
    path = tmp_path / "sessions.db"
    with SqliteBackend(path) as store:
        records = talked(store)
        talked(store, "other")
    change(path, f"update sessions set {what} where name = 'talk'")  # noqa: S608
    found = found_in(path, "talk")
    assert right(found, records) == [*range(1, LAST + 1)]
    assert not found.is_whole or what == "number = 77"
    url = f"sqlite:///{path}"
    if not found.is_whole:
        assert stored.repair(url, "talk").aside == "talk.damaged-1"
    elif what == "number = 77":
        return
    reports = {one.session: one for one in stored.check(url)}
    assert {*reports} >= {"other", "talk"}
    assert not reports["talk"].findings
    assert reports["talk.damaged-1"].status == "notes"


def test_every_page_with_records_is_torn_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    records = filled(path)
    data = path.read_bytes()
    torn = rescued = 0
    for number in range(1, len(data) // PAGE):
        copy = tmp_path / "torn.db"
        for file in tmp_path.glob("torn.db*"):
            file.unlink()
        copy.write_bytes(data[: number * PAGE] + b"\xa5" * PAGE + data[(number + 1) * PAGE :])
        try:
            found = found_in(copy)
        except LockstitchError:
            continue  # The page with the session itself.
        there = right(found, records)
        if data[number * PAGE] == INTERIOR:
            continue  # Without the root of the table SQLite finds none of its rows.
        torn += 1
        # What had a byte on the page is lost, and nothing else.
        assert len(there) >= MANY - PAGE // 300
        list(stored.copy(f"sqlite:///{copy}", f"sqlite:///{tmp_path}/new-{number}.db"))
        with SqliteBackend(tmp_path / f"new-{number}.db") as store:
            assert len(list(store.read("many"))) >= len(there)
        rescued += 1
    print(torn, rescued, len(data) // PAGE)  # noqa: T201
    assert rescued == torn > 10
