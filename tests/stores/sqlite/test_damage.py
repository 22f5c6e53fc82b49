"""What is not as it was written is found on reading and by verify, and nothing else is told."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lockstitch.errors import Damaged, LockstitchError
from lockstitch.journal.records import JournalEntry, blob_name
from lockstitch.stores.base import Listed, StoreFault
from lockstitch.stores.sqlite import SqliteBackend
from tests.stores.sqlite import older
from tests.stores.sqlite.conftest import SECRET, entries
from tests.stores.sqlite.spoiling import SHORT, flip, spoil

FLIPS = 150


def change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement, values).rowcount > 0


def faults(path: Path) -> list[StoreFault]:
    with SqliteBackend(path, readonly=True) as store:
        found = [one for one in store.verify() if isinstance(one, StoreFault)]
    assert not any(SECRET.decode() in one.message for one in found)
    return found


def test_a_whole_store_has_no_faults(filled: Path) -> None:
    with SqliteBackend(filled, readonly=True) as store:
        found = list(store.verify())
    assert [(one.session, one.seq) for one in found if isinstance(one, Listed)] == [
        ("a", 8),
        ("b", 8),
        ("c", 8),
    ]
    assert len(found) == 3


CHANGES = {
    "body": "body = cast(replace(cast(body as text), 'n', 'm') as blob)",
    "body made text": "body = cast(body as text)",
    "body compressed": "codec = 1",
    "unknown codec": "codec = 7",
    "digest": "digest = zeroblob(16)",
    "no digest": "digest = x''",
    "key": "key = key || 'x'",
    "key not ASCII": "key = 'schlüssel'",
    "key not text": "key = cast(x'ff' as text)",
    "time": "at = at + 1",
    "time no number": "at = 'noon'",
    "epoch": "epoch = epoch + 1",
    "number": "seq = 100",
    "session": "session = 99",
}


@pytest.fixture
def older_store(path: Path) -> Path:
    """The same three sessions as an earlier version wrote them."""
    older.make(path, dict.fromkeys("abc", entries(8)))
    return path


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("seq", [1, 5, 8])
def test_a_changed_record_of_an_earlier_version_is_found(
    older_store: Path, what: str, seq: int
) -> None:
    where = "session = (select number from sessions where name = 'b') and seq = ?"
    change(older_store, f"update events set {CHANGES[what]} where {where}", seq)  # noqa: S608
    require_found(older_store, seq)


@pytest.mark.parametrize("bit", [1, 128])
@pytest.mark.parametrize("part", SHORT)
@pytest.mark.parametrize("seq", [1, 5, 8])
def test_a_changed_record_is_found(path: Path, part: str, seq: int, bit: int) -> None:
    sent = [JournalEntry(f"{n:024x}", one.at, one.body) for n, one in enumerate(entries(8))]
    with SqliteBackend(path) as store:
        for session in ("a", "b", "c"):
            store.append(store.acquire(session), sent, 0)
    spoil(path, "b", seq, flip(SHORT[part], bit))
    require_found(path, seq)


@pytest.mark.parametrize("place", [0, 1, 5, 9, 20, 33, 34, 45])
def test_a_changed_record_with_a_long_head_is_found(filled: Path, place: int) -> None:
    spoil(filled, "b", 5, flip(place, 128))
    require_found(filled, 5)


def require_found(filled: Path, seq: int) -> None:
    found = [(one.session, one.seq) for one in faults(filled) if one.session]
    assert found == [("b", seq)]
    with SqliteBackend(filled) as store:
        good = []
        with pytest.raises(Damaged):
            good.extend(record.seq for record in store.read("b"))
        assert len(list(store.read("a"))) == len(list(store.read("c"))) == 8
        assert [record.seq for record in store.read("b", upto=seq - 1)] == list(range(1, seq))
        assert good == list(range(1, seq))


LOSSES = {
    "the first": "seq = 1",
    "one in the middle": "seq = 4",
    "the last": "seq = 8",
    "all": "seq > 0",
}


@pytest.mark.parametrize("what", LOSSES)
def test_a_missing_record_of_an_earlier_version_is_found(older_store: Path, what: str) -> None:
    change(older_store, f"delete from events where session = 1 and {LOSSES[what]}")  # noqa: S608
    assert [one.session for one in faults(older_store)] == ["a"]
    with SqliteBackend(older_store) as store, pytest.raises(Damaged):
        list(store.read("a"))


PIECES = {
    "the first is gone": "delete from pieces where id = (1 << 24)",
    "one in the middle is gone": "delete from pieces where id = (1 << 24) + 2",
    "the last is gone": "delete from pieces where id = (select max(id) from pieces)",
    "all are gone": "delete from pieces",
    "cut": "update pieces set body = substr(body, 1, 4000) where id = (1 << 24) + 2",
    "text": "update pieces set body = cast(hex(body) as text) where id = (1 << 24) + 2",
    "unknown codec": "update pieces set codec = 7 where id = (1 << 24) + 2",
    "compressed": "update pieces set codec = 1 where id = (1 << 24) + 2",
    "codec no number": "update pieces set codec = 'x' where id = (1 << 24) + 2",
    "another's": "update pieces set id = id + 100 where id = (1 << 24) + 2",
    "longer": "update pieces set body = cast(body || body as blob) where id >= (1 << 24) + 4",
}


@pytest.mark.parametrize("what", PIECES)
def test_a_spoilt_piece_is_found(path: Path, what: str) -> None:
    with SqliteBackend(path) as store:
        store.append(store.acquire("a"), entries(40), 0)
    change(path, PIECES[what])
    assert [one.session for one in faults(path)] == ["a"]
    with SqliteBackend(path, readonly=True) as store:
        good = []
        if what != "longer":
            with pytest.raises(Damaged):
                good.extend(one.body for one in store.read("a"))
        assert good == [one.body for one in entries(len(good))]


def test_a_fork_of_itself_is_found(filled: Path) -> None:
    change(filled, "insert into forks (session, source, upto) values (1, 2, 3), (2, 1, 3)")
    assert {one.session for one in faults(filled)} == {"a", "b"}
    with SqliteBackend(filled) as store, pytest.raises(Damaged, match="fork of itself"):
        list(store.read("a"))


@pytest.mark.parametrize("what", ["seq = 7", "seq = 9", "digest = zeroblob(16)", "seq = -1"])
def test_a_session_that_ends_elsewhere_is_found(filled: Path, what: str) -> None:
    change(filled, f"update sessions set {what} where name = 'a'")  # noqa: S608
    assert len(faults(filled)) == 1
    with SqliteBackend(filled) as store:
        with pytest.raises(Damaged):
            store.acquire("a")
        with pytest.raises(Damaged):
            list(store.read("a"))
        assert store.acquire("b").head.seq == 8


def test_an_epoch_that_went_back_is_found(filled: Path) -> None:
    change(filled, "update sessions set epoch = 0 where name = 'a'")
    assert [(one.session, one.seq) for one in faults(filled)] == [("a", 8)]


def test_records_of_no_session_are_found(filled: Path) -> None:
    change(filled, "delete from sessions where name = 'b'")
    assert len(faults(filled)) == 1


@pytest.mark.parametrize("what", ["body = zeroblob(100)", "body = 'text'", "codec = 'x'"])
def test_a_changed_large_value_is_found(filled: Path, what: str) -> None:
    name = blob_name(entries(8)[3].blobs[0])
    change(filled, f"update blobs set {what} where name = ?", bytes.fromhex(name))  # noqa: S608
    assert [name in one.message for one in faults(filled)] == [True]
    with SqliteBackend(filled) as store:
        with pytest.raises(Damaged):
            store.blobs([name])
        store.append(store.acquire("new"), entries(1, first=4), 0)
        assert store.blobs([name]) == {name: entries(8)[3].blobs[0]}


def test_a_missing_large_value_is_found(filled: Path) -> None:
    name = blob_name(entries(8)[3].blobs[0])
    change(filled, "delete from blobs where name = ?", bytes.fromhex(name))
    with SqliteBackend(filled) as store, pytest.raises(Damaged, match="missing"):
        store.blobs([name])


@pytest.mark.parametrize("compress", [False, True])
def test_flipped_bits_are_found_or_harmless(tmp_path: Path, compress: bool) -> None:
    path = tmp_path / "sessions.db"
    with SqliteBackend(path, compress=compress) as store:
        for session in ("a", "b"):
            store.append(store.acquire(session), entries(8), 0)
    whole = path.read_bytes()
    dice = random.Random(5)  # noqa: S311
    # a page may be nearly empty: what holds nothing cannot be damaged
    used = [place for place, byte in enumerate(whole) if byte]
    places = [dice.choice(used) for _ in range(FLIPS)]
    bits = [1 << dice.randrange(8) for _ in range(FLIPS)]
    flips = enumerate(zip(places, bits, strict=True))
    outcomes = [flipped(tmp_path / f"{n}.db", whole, *flip) for n, flip in flips]
    print({what: outcomes.count(what) for what in set(outcomes)})  # noqa: T201
    assert outcomes.count("found") > FLIPS // 20


def flipped(path: Path, whole: bytes, place: int, bit: int) -> str:
    """Flip a bit; nothing that was not written may be given out without a word."""
    data = bytearray(whole)
    data[place] ^= bit
    path.write_bytes(data)
    try:
        with SqliteBackend(path, readonly=True) as store:
            found = list(store.verify())
    except LockstitchError:
        return "found"
    finally:
        is_whole = _is_whole(path)
        path.unlink()
    if any(isinstance(one, StoreFault) for one in found):
        return "found"
    assert is_whole
    return "harmless"


def _is_whole(path: Path) -> bool:
    """Whether all is there; wrong answers are no answer."""
    names = {blob_name(blob): blob for entry in entries(8) for blob in entry.blobs}
    sent = [(entry.key, entry.at, entry.body) for entry in entries(8)]
    try:
        with SqliteBackend(path, readonly=True) as store:
            for session in ("a", "b"):
                given = [(one.key, one.at, one.body) for one in store.read(session)]
                assert given == sent
            assert store.blobs(names) == names
    except LockstitchError:
        return False
    return True
