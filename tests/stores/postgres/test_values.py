from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from lockstitch.journal.records import NEW, JournalEntry, blob_name, chain_entries
from lockstitch.stores.postgres import PostgresBackend, reading
from tests.postgres_server import shared
from tests.stores.postgres.making import entries, entry, keys, records, run

ODD = [
    b"",
    b"\0",
    b'{"text":"\\u0000"}',
    b'{"text":"\\ud83d"}',
    "\ud83d".encode("utf-8", "surrogatepass"),
    b"\xff\xfe\x80",
    b'{"b":1,"a":2,"b":3, "big":123456789012345678901234567890}',
    b"\\x41\\\\'\"",
    b"%s %% %b {}",
    bytes(range(11, 256)),
]
LARGE = random.Random(4).randbytes(5_000_000).replace(b"\n", b"")  # noqa: S311


def test_odd_bytes_survive(dsn: str, backend: PostgresBackend) -> None:
    sent = [JournalEntry(f"k{number}", number, body) for number, body in enumerate(ODD)]
    backend.append(backend.acquire("s"), sent, 0)
    with PostgresBackend(dsn) as other:
        assert records(other, "s") == chain_entries(NEW, 1, sent)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP"])
def test_the_encoding_of_the_database_plays_no_part(encoding: str) -> None:
    server = shared()
    name = f"encoded_{encoding.lower()}"
    server.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0")
    with PostgresBackend(server.address(name)) as backend:
        sent = [JournalEntry(f"k{number}", number, body) for number, body in enumerate(ODD)]
        backend.append(backend.acquire("s"), sent, 0)
        assert records(backend, "s") == chain_entries(NEW, 1, sent)


def test_large_bodies_and_values_survive(dsn: str, backend: PostgresBackend) -> None:
    lease = backend.acquire("s")
    sent = [JournalEntry("a", 1, LARGE), JournalEntry("b", 2, b"{}", (LARGE, b"", LARGE[:70_000]))]
    backend.append(lease, sent, 0)
    with PostgresBackend(dsn) as other:
        assert records(other, "s") == chain_entries(
            NEW, 1, [JournalEntry("a", 1, LARGE), JournalEntry("b", 2, b"{}")]
        )
        names = [blob_name(value) for value in sent[1].blobs]
        assert other.blobs(names) == dict(zip(names, sent[1].blobs, strict=True))


def test_the_extremes_of_numbers_and_names(backend: PostgresBackend) -> None:
    session = "A" + "-._9" * 31 + "zzz"
    lease = backend.acquire(session)
    sent = [JournalEntry("~" * 128, 2**62, b"{}"), JournalEntry("!", -1, b"{}")]
    backend.append(lease, sent, 0)
    assert records(backend, session) == chain_entries(NEW, 1, sent)


def test_a_long_session_is_read_in_chunks(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = backend.acquire("s")
    wanted = [f"k{number}" for number in range(100)]
    backend.append(lease, entries(*wanted), 0)
    for records_a_chunk, bytes_a_chunk in ((1, 1 << 20), (7, 1 << 20), (100, 1), (1000, 100)):
        monkeypatch.setattr(reading, "CHUNK", records_a_chunk)
        monkeypatch.setattr(reading, "CHUNK_BYTES", bytes_a_chunk)
        assert keys(backend, "s") == wanted


def test_a_reading_is_one_view_although_it_comes_in_chunks(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CHUNK", 2)
    lease = backend.acquire("s")
    backend.append(lease, entries("a", "b", "c", "d", "e"), 0)
    rest = backend.read("s")
    assert next(rest).key == "a"
    backend.append(lease, entries("f"), 5)
    assert [record.key for record in rest] == ["b", "c", "d", "e"]


def test_a_reading_that_is_left_holds_no_connection(dsn: str) -> None:
    with PostgresBackend(dsn, connections=1) as backend:
        backend.append(backend.acquire("s"), entries("a", "b"), 0)
        readings = [backend.read("s") for _ in range(5)]
        assert [next(each).key for each in readings] == ["a"] * 5
        assert keys(backend, "s") == ["a", "b"]


def test_writers_of_the_same_large_values_in_any_order_do_not_deadlock(dsn: str) -> None:
    values = [b"%d" % number * 1000 for number in range(12)]
    run(dsn, "ALTER DATABASE " + dsn.rpartition("/")[2] + " SET deadlock_timeout = '10ms'")

    def write(number: int) -> None:
        order = random.Random(number).sample(values, len(values))  # noqa: S311
        lease = backend.acquire(f"s{number}")
        for count in range(5):
            fresh = [value + b"%d" % count for value in order]
            backend.append(lease, [entry(f"k{count}", *fresh)], count)

    with PostgresBackend(dsn) as backend, ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(8)))
        ((deadlocks,),) = run(
            dsn, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        assert deadlocks == 0
        assert run(dsn, "SELECT count(*) FROM lockstitch.blobs") == [(60,)]


def test_what_a_refused_append_brought_along_is_not_kept(
    dsn: str, backend: PostgresBackend
) -> None:
    from lockstitch.errors import Moved

    lease = backend.acquire("s")
    backend.append(lease, entries("a"), 0)
    with pytest.raises(Moved):
        backend.append(lease, [entry("b", b"large" * 1000)], 0)
    assert run(dsn, "SELECT count(*) FROM lockstitch.blobs") == [(0,)]
