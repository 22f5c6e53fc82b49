"""What is read past damaged rows, indexes and pages of a database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lockstitch import stored
from lockstitch.errors import LockstitchError
from lockstitch.journal.records import JournalEntry, JournalRecord
from lockstitch.journal.salvage import Salvage
from lockstitch.session import maintenance
from lockstitch.stores.sqlite import SqliteBackend
from tests.stores.sqlite import older
from tests.stores.sqlite.spoiling import flip, spoil
from tests.stores.sqlite.test_damage import change
from tests.stores.talking import LAST, talked

MANY = 400
PAGE = 8192
INTERIOR = 5


MADE = [
    JournalEntry(f"k{n}", n, b'{"kind":"noted","name":"n%s"}' % (b"%d" % n * 200))
    for n in range(MANY)
]


def filled(path: Path, *, compress: bool = False) -> list[JournalRecord]:
    """Write a store as an earlier version did: a row for each record."""
    older.make(path, {"many": MADE, "other": MADE[:3]}, compress=compress)
    with SqliteBackend(path) as store:
        return list(store.read("many"))


def found_in(path: Path, session: str = "many") -> Salvage:
    with SqliteBackend(path, readonly=True) as store:
        return maintenance.read_salvage(store, session)


def right(found: Salvage, records: list[JournalRecord]) -> list[int]:
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


# Records in pieces.


def written(path: Path, *, compress: bool = False) -> list[JournalRecord]:
    with SqliteBackend(path, compress=compress) as store:
        for session in ("many", "other"):
            lease = store.acquire(session)
            for start in range(0, MANY, 20):
                store.append(lease, MADE[start : start + 20], start)
            store.release(lease)
        return list(store.read("many"))


@pytest.mark.parametrize("bit", [1, 4, 128])
@pytest.mark.parametrize("place", [0, 1, 5, 6, 9, 17, 20, 33, 34, 36, 60])
def test_one_bit_of_a_record_costs_nothing(tmp_path: Path, place: int, bit: int) -> None:
    path = tmp_path / "sessions.db"
    records = written(path)
    spoil(path, "many", 77, flip(place, bit))
    found = found_in(path)
    assert right(found, records) == [*range(1, MANY + 1)]
    assert [one.seq for one in found.records if one.proof == "restored"] == [77]
    assert found.behind == MANY - 77


@pytest.mark.parametrize("seq", [1, 2, 200, MANY])
def test_a_record_that_was_overwritten_costs_itself(tmp_path: Path, seq: int) -> None:
    path = tmp_path / "sessions.db"
    records = written(path)
    spoil(path, "many", seq, lambda data: b"\xa5" * len(data))
    found = found_in(path)
    assert right(found, records) == [n for n in range(1, MANY + 1) if n != seq]


@pytest.mark.parametrize("compress", [False, True])
def test_every_page_of_pieces_is_torn_in_turn(tmp_path: Path, compress: bool) -> None:
    """A page costs the records that lie on it, and nothing that was not written is given out."""
    path = tmp_path / "sessions.db"
    records = written(path, compress=compress)
    data = path.read_bytes()
    size = 4096
    least = MANY
    for number in range(1, len(data) // size, 3):
        copy = tmp_path / "torn.db"
        for file in tmp_path.glob("torn.db*"):
            file.unlink()
        copy.write_bytes(data[: number * size] + b"\xa5" * size + data[(number + 1) * size :])
        try:
            found = found_in(copy)
        except LockstitchError:
            continue
        sure = [one for one in found.records if one.proof in {"intact", "behind", "restored"}]
        for one in sure:
            assert one.record is not None
            assert one.record.body == records[one.seq - 1].body
        if sure:
            least = min(least, len(sure))
    assert least > (0 if compress else MANY * 0.8)


def test_a_fork_is_salvaged_through_its_source(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    records = written(path)
    with SqliteBackend(path) as store:
        store.fork("many", 100, "fork")
        store.append(store.acquire("fork"), MADE[100:110], 100)
    spoil(path, "many", 50, lambda data: b"\xa5" * len(data))
    found = found_in(path, "fork")
    assert right(found, records[:110]) == [n for n in range(1, 111) if n != 50]
