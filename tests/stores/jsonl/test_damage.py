"""A byte that changed behind the store's back is found, told, and never made worse."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from lockstitch.errors import Damaged
from lockstitch.journal.records import JournalRecord, blob_name
from lockstitch.stores.base import Backend, Listed, StoreFault
from lockstitch.stores.jsonl import JsonlBackend
from tests.stores.contract import entries, entry, keys
from tests.stores.jsonl.history import History, history, reopened

STEP = 1 if os.environ.get("LOCKSTITCH_FUZZ_EXAMPLES") else 5


def is_damaged(backend: Backend, past: History, path: Path) -> int:
    """Hold a damaged store to its promises; how many records it still gives."""
    data = path.read_bytes()
    found: list[JournalRecord] = []
    with pytest.raises(Damaged):
        found.extend(backend.read("s"))
    found = before_damage(backend)
    assert found == past.records[: len(found)]
    with pytest.raises(Damaged):
        backend.acquire("s")
    with pytest.raises(Damaged):
        backend.head("s")
    fault, listed = backend.verify()
    assert isinstance(fault, StoreFault)
    assert (fault.session, fault.seq) == ("s", len(found) + 1)
    assert isinstance(listed, Listed)
    assert listed.seq == len(found)
    assert path.read_bytes() == data
    return len(found)


def before_damage(backend: Backend) -> list[JournalRecord]:
    found = []
    try:
        for record in backend.read("s"):
            found.append(record)  # noqa: PERF402, those before the error are what is wanted
    except Damaged:
        pass
    return found


def test_bits_that_flip(folder: Path) -> None:
    past = history(folder)
    path = folder / "s.jsonl"
    chance = random.Random(4)  # noqa: S311
    last = past.acknowledged[-2][0]
    seen = set()
    for place in range(0, last, STEP):
        data = bytearray(past.data)
        data[place] ^= 1 << chance.randrange(8)
        with reopened(folder, bytes(data)) as backend:
            seen.add(is_damaged(backend, past, path))
    assert len(seen) > 5


@pytest.mark.parametrize("last", [["j"], ["k", "l", "m"]], ids=["one record", "three records"])
@pytest.mark.parametrize(
    "behind", [b"", b'{"seq":99,"epo'], ids=["at the end", "before a torn one"]
)
def test_bits_that_flip_in_the_last_append(folder: Path, last: list[str], behind: bytes) -> None:
    """No crash leaves that: it was acknowledged, and is not hidden."""
    past = history(folder)
    path = folder / "s.jsonl"
    start = past.acknowledged[-2][0]
    if last != ["j"]:
        with reopened(folder, past.data) as backend:
            lease = backend.acquire("s")
            start = path.stat().st_size
            backend.append(lease, entries(*last), len(past.records))
            records = list(backend.read("s"))
        past = History(path.read_bytes(), records, past.acknowledged)
    chance = random.Random(6)  # noqa: S311
    step = 1 if last == ["j"] and not behind else STEP
    for place in range(start, len(past.data) - bool(behind), step):
        data = bytearray(past.data + behind)
        data[place] ^= 1 << chance.randrange(8)
        # A zero is what a crash leaves, too.
        data[place] = data[place] or ord("?")
        with reopened(folder, bytes(data)) as backend:
            assert is_damaged(backend, past, path) >= len(past.records) - len(last)


@pytest.mark.parametrize("sector", [512, 4096])
def test_what_a_crash_leaves_of_the_last_append_is_no_damage(folder: Path, sector: int) -> None:
    """Sectors that were never written are zeros, and the others are as they were meant."""
    past = history(folder)
    path = folder / "s.jsonl"
    with reopened(folder, past.data) as backend:
        lease = backend.acquire("s")
        start = path.stat().st_size
        made = [entry(f"k{number}", b'"' + b"x" * 700 + b'"') for number in range(9)]
        backend.append(lease, made, len(past.records))
    whole = path.read_bytes()
    chance = random.Random(7)  # noqa: S311
    for number in range(300 // STEP):
        data = bytearray(whole)
        for first in range(start // sector * sector, len(whole), sector):
            if chance.random() < (number % 9 + 1) / 10:
                begin, end = max(first, start), min(first + sector, len(whole))
                data[begin:end] = bytes(end - begin)
        size = chance.choice([len(whole), chance.randrange(start, len(whole))])
        with reopened(folder, bytes(data[:size])) as backend:
            found = list(backend.read("s"))
            assert found == past.records or bytes(data[:size]) == whole
            backend.release(backend.acquire("s"))


def test_lines_that_are_missing_or_changed_places(folder: Path) -> None:
    past = history(folder)
    path = folder / "s.jsonl"
    lines = past.data.splitlines(keepends=True)
    for number in range(len(lines) - 1):
        without = b"".join(lines[:number] + lines[number + 1 :])
        swapped = b"".join(
            [*lines[:number], lines[number + 1], lines[number], *lines[number + 2 :]]
        )
        for data in (without, swapped):
            with reopened(folder, data) as backend:
                found = before_damage(backend)
                assert found == past.records[: len(found)]
                if found != past.records:
                    is_damaged_or_torn(backend, past, path)


def is_damaged_or_torn(backend: Backend, past: History, path: Path) -> None:
    """Without the file's last records the rest is only damage if something stands behind it."""
    try:
        found = list(backend.read("s"))
    except Damaged:
        is_damaged(backend, past, path)
    else:
        assert len(found) >= past.acknowledged[-3][1]


@pytest.mark.parametrize("size", [1, 7, 512, 1500])
def test_zeros_in_the_middle(folder: Path, size: int) -> None:
    past = history(folder)
    last = past.acknowledged[-2][0]
    for place in range(0, last - size, 61):
        data = bytearray(past.data)
        data[place : place + size] = bytes(size)
        with reopened(folder, bytes(data)) as backend:
            is_damaged(backend, past, folder / "s.jsonl")


def test_what_stands_before_the_damage_can_be_forked(folder: Path) -> None:
    past = history(folder)
    data = past.data.replace(b'"key":"d"', b'"key":"D"')
    with reopened(folder, data) as backend:
        assert backend.fork("s", 3, "t").seq == 3
        assert list(backend.read("t")) == list(backend.read("s", upto=3)) == past.records[:3]
        with pytest.raises(Damaged):
            backend.fork("s", 4, "u")
        assert backend.head("u") is None


def test_a_torn_end_that_the_next_writer_named_may_change(folder: Path) -> None:
    past = history(folder)
    torn = past.data[:-9]
    with reopened(folder, torn) as backend:
        backend.append(backend.acquire("s"), entries("new"), 9)
    path = folder / "s.jsonl"
    data = path.read_bytes()
    start = past.acknowledged[-2][0]
    for place in range(start, len(torn)):
        changed = bytearray(data)
        changed[place] ^= 4
        with reopened(folder, bytes(changed)) as backend:
            assert keys(backend, "s") == [*"abcdefghi", "new"]


def test_large_values_that_changed_or_are_gone(tmp_path: Path) -> None:
    with JsonlBackend(tmp_path) as backend:
        backend.append(backend.acquire("s"), [entry("a", b"{}", b"one", b"two")], 0)
    one, two = blob_name(b"one"), blob_name(b"two")
    (tmp_path / "blobs" / one[:2] / one).write_bytes(b"One")
    (tmp_path / "blobs" / two[:2] / two).unlink()
    with JsonlBackend(tmp_path) as backend:
        for name in (one, two):
            with pytest.raises(Damaged, match=name):
                backend.blobs([name])
        faults = [(one.session, one.seq) for one in backend.verify() if isinstance(one, StoreFault)]
        assert faults == [("s", 1), ("", 0)]
        # Appended again, they are whole again.
        lease = backend.acquire("s")
        backend.append(lease, [entry("b", b"{}", b"one", b"two")], 1)
        assert backend.blobs([one, two]) == {one: b"one", two: b"two"}
        assert not [one for one in backend.verify() if isinstance(one, StoreFault)]


def test_a_file_of_a_later_version_is_left_alone(folder: Path) -> None:
    from lockstitch.stores.jsonl import log

    line = log.OpeningLine(2, "s", 1, 5, "", "", None)
    data = log._sealed(log.msgspec.json.encode(line)[:-1])  # noqa: SLF001
    with reopened(folder, data) as backend:
        with pytest.raises(Damaged, match="version 2"):
            backend.acquire("s")
        assert len(list(backend.verify())) == 2
    assert (folder / "s.jsonl").read_bytes() == data
