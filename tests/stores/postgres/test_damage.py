from __future__ import annotations

import pytest

from lockstitch.errors import Damaged
from lockstitch.journal.records import blob_name
from lockstitch.stores.base import Listed, StoreFault
from lockstitch.stores.postgres import PostgresBackend
from tests.postgres_server import Server, programs, running, started
from tests.stores.postgres.making import entries, entry, faults, keys, run

LARGE = b"x" * 100_000
NAMING = b'{"kind":"noted","name":"n","blob":"%s"}' % blob_name(LARGE).encode()
FLIP = "UPDATE lockstitch.records SET {0} = {1} WHERE seq = 3"
FLIP_ONE = (
    "UPDATE lockstitch.records SET body = set_bit(body, %s::int, 1 - get_bit(body, %s::int)) "
    "WHERE seq = 4"
)
EMPTY_ONE = (
    "UPDATE lockstitch.records SET body = '' WHERE seq = 2 AND session = "
    "(SELECT id FROM lockstitch.sessions WHERE session = %s)"
)
# What is done behind the store's back, and the first record that cannot be trusted.
DAMAGES = {
    "a bit of a body": (FLIP.format("body", "set_bit(body, 9, 1 - get_bit(body, 9))"), 3),
    "a bit of a digest": (FLIP.format("digest", "set_bit(digest, 5, 1 - get_bit(digest, 5))"), 3),
    "a shorter body": (FLIP.format("body", "substring(body FROM 2)"), 3),
    "an empty body": (FLIP.format("body", "''"), 3),
    "a key": (FLIP.format("key", "'other'"), 3),
    "a time": (FLIP.format("at", "at + 1"), 3),
    "an epoch": (FLIP.format("epoch", "epoch + 1"), 3),
    "a missing record": ("DELETE FROM lockstitch.records WHERE seq = 3", 3),
    "a missing first": ("DELETE FROM lockstitch.records WHERE seq = 1", 1),
    "a missing last": ("DELETE FROM lockstitch.records WHERE seq = 5", 5),
    "no records": ("DELETE FROM lockstitch.records", 1),
    "two that changed places": (
        "UPDATE lockstitch.records a SET body = b.body, key = b.key FROM lockstitch.records b "
        "WHERE (a.seq, b.seq) IN ((2, 3), (3, 2))",
        2,
    ),
    "a head of other bytes": (
        "UPDATE lockstitch.sessions SET digest = substring(digest FROM 2)",
        6,
    ),
    "a head too far": ("UPDATE lockstitch.sessions SET seq = 6", 6),
}


@pytest.fixture
def written(dsn: str) -> str:
    with PostgresBackend(dsn) as backend:
        lease = backend.acquire("s")
        backend.append(lease, entries("a", "b"), 0)
        backend.append(lease, entries("c", "d", "e"), 2)
    return dsn


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_changed_behind_our_back_is_found(written: str, damage: str) -> None:
    statement, seq = DAMAGES[damage]
    run(written, statement)
    with PostgresBackend(written) as backend:
        with pytest.raises(Damaged, match="session s"):
            keys(backend, "s")
        *found, listed = backend.verify()
        assert [(one.session, one.seq) for one in found if isinstance(one, StoreFault)] == [
            ("s", seq)
        ]
        assert isinstance(listed, Listed)


def test_every_bit_of_a_body_counts(written: str) -> None:
    ((size,),) = run(written, "SELECT octet_length(body) FROM lockstitch.records WHERE seq = 4")
    with PostgresBackend(written) as backend:
        for bit in range(0, size * 8, 5):
            run(written, FLIP_ONE, bit, bit)
            with pytest.raises(Damaged, match="record 4 "):
                keys(backend, "s")
            run(written, FLIP_ONE, bit, bit)
        assert keys(backend, "s") == [*"abcde"]


def test_a_head_moved_back_is_found_and_nothing_is_written_over(written: str) -> None:
    run(
        written,
        "UPDATE lockstitch.sessions s SET seq = 3, digest = r.digest "
        "FROM lockstitch.records r WHERE r.seq = 3",
    )
    with PostgresBackend(written) as backend:
        assert [(one.seq, one.message) for one in faults(backend)] == [
            (4, "there are records after its end")
        ]
        with pytest.raises(Damaged, match="nothing was written"):
            backend.append(backend.acquire("s"), entries("new"), 3)
    assert run(written, "SELECT string_agg(key, '' ORDER BY seq) FROM lockstitch.records") == [
        ("abcde",)
    ]


def test_a_head_changed_under_a_writer_is_found(written: str) -> None:
    with PostgresBackend(written) as backend:
        lease = backend.acquire("s")
        run(
            written,
            "UPDATE lockstitch.sessions SET digest = set_bit(digest, 1, 1 - get_bit(digest, 1))",
        )
        with pytest.raises(Damaged, match="record 5 "):
            backend.append(lease, entries("f"), 5)


def test_large_values_are_checked(dsn: str, backend: PostgresBackend) -> None:
    lease = backend.acquire("s")
    named = entry("a", LARGE)
    backend.append(lease, [type(named)("a", 1, NAMING, (LARGE,))], 0)
    assert faults(backend) == []
    name = blob_name(LARGE)
    run(dsn, "UPDATE lockstitch.blobs SET body = set_byte(body, 50000, 1)")
    assert [one.message for one in faults(backend)] == [
        f"the large value {name} is not what was written (checksum)"
    ]
    with pytest.raises(Damaged, match=name):
        backend.blobs([name])
    run(dsn, "DELETE FROM lockstitch.blobs")
    assert faults(backend) == [StoreFault("s", 1, f"the large value {name} is missing")]
    with pytest.raises(Damaged, match="is missing"):
        backend.blobs([name])


def test_records_of_nobody_are_found(written: str) -> None:
    run(written, "DELETE FROM lockstitch.sessions")
    with PostgresBackend(written) as backend:
        (fault,) = faults(backend)
        assert fault.message.startswith("5 records belong to no session")


def test_one_bad_session_does_not_hide_another(dsn: str, backend: PostgresBackend) -> None:
    for number in range(250):
        lease = backend.acquire(f"s{number:03}")
        backend.append(lease, entries("a", "b"), 0)
    bad = (7, 99, 100, 101, 249)
    for number in bad:
        run(dsn, EMPTY_ONE, f"s{number:03}")
    found = list(backend.verify())
    assert [one.session for one in found if isinstance(one, StoreFault)] == [
        f"s{n:03}" for n in bad
    ]
    assert [one.session for one in found if isinstance(one, Listed)] == [
        f"s{number:03}" for number in range(250)
    ]


def test_what_is_written_during_a_check_is_no_fault(dsn: str, backend: PostgresBackend) -> None:
    leases = [backend.acquire(f"s{number:03}") for number in range(120)]
    for lease in leases:
        backend.append(lease, entries("a"), 0)
    with PostgresBackend(dsn) as checker:
        for count, one in enumerate(checker.verify()):
            assert isinstance(one, Listed)
            backend.append(leases[count], entries("b"), 1)
            backend.acquire(f"new{count}")
    assert count == 119


def own_program(server: Server, name: str, *options: str) -> None:
    command = [str(programs() / name), "-D", str(server.folder / "data"), *options]
    assert started(command, server.folder, server.log).wait(60) == 0


@pytest.mark.parametrize("checksums", ["off", "on"])
def test_a_bit_that_rots_on_the_disk_is_found(checksums: str) -> None:
    with running({"fsync": "off", "full_page_writes": "on"}) as server:
        if server.execute("SHOW data_checksums") != [(checksums,)]:
            server.stop()
            switch = "--enable" if checksums == "on" else "--disable"
            own_program(server, "pg_checksums", switch, "--no-sync")
            server.start()
        dsn = server.fresh()
        with PostgresBackend(dsn) as backend:
            backend.append(backend.acquire("s"), [entry(f"k{n}") for n in range(50)], 0)
            backend.append(backend.acquire("t"), [entry(f"k{n}") for n in range(50)], 0)
        ((place,),) = run(dsn, "SELECT pg_relation_filepath('lockstitch.records')")
        server.stop()
        file = server.folder / "data" / str(place)
        data = bytearray(file.read_bytes())
        data[data.index(b'"name":"k20"') + 8] ^= 1
        file.write_bytes(data)
        server.start()
        with PostgresBackend(dsn) as backend:
            with pytest.raises(Damaged):
                keys(backend, "s")
            assert faults(backend)[0].session == "s"
