"""A few compressed bytes that stand for gigabytes are not unpacked, wherever they are."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from lockstitch.errors import Damaged
from lockstitch.stores.base import StoreFault
from lockstitch.stores.sqlite import SqliteBackend, connections, pieces
from tests.stores.sqlite.conftest import entries

MEGABYTES = 400
MEASURED = """
import resource, sys
from lockstitch.stores.sqlite import SqliteBackend
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with SqliteBackend(sys.argv[1], readonly=True) as store:
    try:
        {work}
        print("read")
    except Exception as error:
        print(type(error).__name__, error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most) // 1024)
"""


def bomb(size: int) -> bytes:
    """So many megabytes of zeros, compressed as much as zlib can."""
    packing = zlib.compressobj(9)
    opening = packing.compress(b"") + packing.flush(zlib.Z_FULL_FLUSH)
    block = packing.compress(bytes(1 << 20)) + packing.flush(zlib.Z_FULL_FLUSH)
    count = size >> 20
    # The checksum of zeros: the first half stays 1, the second counts them.
    check = ((count << 20) % 65521) << 16 | 1
    found = opening + block * count + b"\x03\x00" + check.to_bytes(4, "big")
    assert count > 4 or zlib.decompress(found) == bytes(size)
    return found


@pytest.fixture
def filled(path: Path) -> Path:
    with SqliteBackend(path) as store:
        lease = store.acquire("s")
        store.append(lease, entries(40), 0)
    return path


def changed(path: Path, *statements: tuple[str, tuple[object, ...]]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        for statement, values in statements:
            base.execute(statement, values)


def measured(path: Path, work: str) -> tuple[str, int]:
    command = [sys.executable, "-c", MEASURED.format(work=work), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    said, megabytes = done.stdout.splitlines()
    return said, int(megabytes)


READ = 'print(sum(1 for _ in store.read("s")), end=" ")'
VERIFY = 'print(*(str(one) for one in store.verify()), end=" ")'


@pytest.mark.parametrize("work", [READ, VERIFY])
def test_pieces_that_unpack_to_gigabytes(filled: Path, work: str) -> None:
    low, _ = pieces.span(1)
    insert = "insert or replace into pieces (id, first, start, codec, body) values (?, 2, 0, 1, ?)"
    packed = bomb(256 << 20)
    changed(filled, *[(insert, (low + 1 + number, packed)) for number in range(8)])
    changed(filled, ("update sessions set seq = 1000000", ()))
    assert filled.stat().st_size < 4 << 20
    said, megabytes = measured(filled, work)
    assert "unpack" in said
    assert megabytes < MEGABYTES


def test_a_record_that_says_it_is_huge(filled: Path) -> None:
    """Each piece is within its limit, and the record that goes on in all of them is not."""
    low, _ = pieces.span(1)
    head = pieces._LONG.pack(1, 1, 4_000_000_000, 0, bytes(16), 1) + b"k"  # noqa: SLF001
    insert = "insert or replace into pieces (id, first, start, codec, body) values (?, 1, 0, ?, ?)"
    packed = bomb(24 << 20)
    changed(filled, ("delete from pieces", ()), (insert, (low, 0, head)))
    changed(filled, *[(insert, (low + 1 + number, 1, packed)) for number in range(60)])
    assert filled.stat().st_size < 4 << 20
    said, megabytes = measured(filled, READ)
    assert "unpack" in said
    assert megabytes < MEGABYTES


def test_large_values_that_unpack_to_gigabytes(filled: Path) -> None:
    insert = "insert into blobs (name, codec, body) values (?, 1, ?)"
    packed = bomb(1 << 30)
    changed(filled, *[(insert, (bytes([number] * 16), packed)) for number in range(1)])
    said, megabytes = measured(filled, VERIFY)
    assert "unpack" in said
    assert megabytes < MEGABYTES
    with SqliteBackend(filled) as store, pytest.raises(Damaged, match="unpacks to more than"):
        store.blobs(["00" * 16])


def test_a_salvage_of_gigabytes(filled: Path) -> None:
    low, _ = pieces.span(1)
    insert = "insert or replace into pieces (id, first, start, codec, body) values (?, 2, 0, 1, ?)"
    changed(filled, (insert, (low + 1, bomb(512 << 20))))
    work = 'print(len(store.remains("s").remnants), end=" ")'
    _, megabytes = measured(filled, work)
    assert megabytes < MEGABYTES


def test_what_is_compressed_well_is_read(path: Path) -> None:
    """Hundreds of megabytes of the same line are no bomb if they are one large value."""
    value = b"the same line, again and again\n" * 200_000
    assert bomb(2 << 20) != bomb(3 << 20)
    assert connections.inflate(zlib.compress(value, 1), connections.MOST) == value
    with SqliteBackend(path, compress=True) as store:
        lease = store.acquire("s")
        store.append(lease, entries(200), 0)
        assert not [one for one in store.verify() if isinstance(one, StoreFault)]
