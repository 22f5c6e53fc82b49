"""Records in pieces: they come back from any place, and can be cut anywhere."""

from __future__ import annotations

import secrets
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstitch.journal.records import Head, JournalEntry, JournalRecord, chain_entries
from lockstitch.stores.sqlite import SqliteBackend, connections, pieces

PAGE = 512
MOST = 1 << 62


@pytest.fixture
def base() -> Iterator[sqlite3.Connection]:
    yield from _base()


def _base() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(f"pragma page_size={PAGE}")
    connections.migrate(connection)
    yield connection
    connection.close()


SIZES = st.one_of(st.integers(0, 60), st.integers(380, 460), st.integers(880, 920), st.just(70_000))
KEYS = st.sampled_from(["short", "k" * 128, "hex", "HEX", "f" * 24])
ENTRIES = st.tuples(SIZES, KEYS, st.sampled_from([0, 1_790_000_000_000, -5, (1 << 63) - 1]))
EPOCHS = st.sampled_from([1, 2, 65_535, 65_536, 4_000_000_000])


def made(head: Head, epoch: int, wanted: list[tuple[int, str, int]]) -> list[JournalRecord]:
    keys = {"hex": secrets.token_hex(12), "HEX": secrets.token_hex(12).upper()}
    entries = [
        JournalEntry(keys.get(key, key), at, b"\xff\0b" * (size // 3)) for size, key, at in wanted
    ]
    return chain_entries(head, epoch, entries)


@settings(max_examples=60, deadline=None)
@given(
    appends=st.lists(st.tuples(EPOCHS, st.lists(ENTRIES, min_size=1, max_size=4)), max_size=12),
    compress=st.booleans(),
    place=st.floats(0, 1),
    seals=st.booleans(),
)
def test_records_come_back(
    appends: list[tuple[int, list[tuple[int, str, int]]]],
    compress: bool,
    place: float,
    seals: bool,
) -> None:
    bases = _base()
    base = next(bases)
    sent: list[JournalRecord] = []
    tail = None
    for epoch, wanted in appends:
        head = Head(len(sent), sent[-1].digest, epoch) if sent else Head(0, bytes(16), epoch)
        more = made(head, epoch, wanted)
        tail = pieces.add(
            base, tail or pieces.tail_of(base, 7), pieces.encode_records(more), compress=compress
        )
        assert tail == pieces.tail_of(base, 7)
        # Another session grows beside it.
        beside = pieces.encode_records([] if sent else more[:1])
        pieces.add(base, pieces.tail_of(base, 8), beside, compress=False)
        sent += more
        if compress:
            pieces.seal(base, 7, last=seals)
            tail = None
    for after in range(len(sent) + 1):
        assert list(pieces.records(base, 7, after, MOST, "s")) == sent[after:]
        assert list(pieces.records(base, 7, after, after + 2, "s")) == sent[after : after + 2]
    upto = round(place * len(sent))
    pieces.move(base, 7, 9)
    pieces.cut(base, 9, upto)
    assert list(pieces.records(base, 9, 0, MOST, "s")) == sent[:upto]
    assert list(pieces.records(base, 8, 0, MOST, "s")) == sent[:1]
    assert pieces.numbers(base) == ({8} if sent else set()) | ({9} if upto else set())
    next(bases, None)


@pytest.mark.parametrize("size", [200, 500, 1000, 2000, 4000, 8000, 16_000, 64_000])
def test_bytes_on_disk_at_each_size(size: int) -> None:
    """A store has at most a quarter more bytes than its events, whatever size they are of."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sessions.db")
        payload = 0
        with SqliteBackend(path) as store:
            lease = store.acquire("s")
            for seq in range(0, max(4_000_000 // size, 100), 10):
                bodies = [secrets.token_hex(size // 2).encode() for _ in range(10)]
                payload += sum(map(len, bodies))
                batch = [
                    JournalEntry(secrets.token_hex(12), 1_790_000_000_000, one) for one in bodies
                ]
                store.append(lease, batch, seq)
        ratio = path.stat().st_size / payload
    print(f"{size}: {ratio:.3f}")  # noqa: T201
    assert ratio <= 1.25


def test_pages_are_filled_by_pieces(base: sqlite3.Connection) -> None:
    """A piece that is full has a page for itself, and no page besides."""
    more = pieces.encode_records(made(Head(), 1, [(1000, "hex", 1)] * 100))
    pieces.add(base, pieces.tail_of(base, 1), more, compress=False)
    sizes = [size for (size,) in base.execute("select length(body) from pieces order by id")]
    assert set(sizes[:-1]) == {PAGE - 64}
    [(count,)] = base.execute("pragma page_count")
    assert count < len(sizes) + 30
