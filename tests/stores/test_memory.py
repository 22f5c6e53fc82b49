"""What only the store in memory has: a clock of its own, and nothing that lasts."""

from __future__ import annotations

from threading import Thread

import pytest

from lockstitch.errors import Damaged, Held, UsageError
from lockstitch.journal.records import JournalRecord, blob_name
from lockstitch.stores.base import Listed, StoreFault
from lockstitch.stores.memory import MemoryBackend
from tests.stores.contract import entries, entry, keys


def test_two_stores_share_nothing() -> None:
    with MemoryBackend() as one, MemoryBackend() as other:
        one.append(one.acquire("s"), entries("a"), 0)
        assert other.head("s") is None
        assert one.url == other.url == "memory:"


def test_a_lease_does_not_run_out_by_itself() -> None:
    with MemoryBackend(lease_seconds=0.001) as backend:
        lease = backend.acquire("s")
        with pytest.raises(Held):
            backend.acquire("s", wait=0.05)
        backend.append(lease, entries("a"), 0)


def test_whoever_waits_sees_the_clock_move() -> None:
    now = [0.0]
    with MemoryBackend(lease_seconds=10, clock=lambda: now[0]) as backend:
        backend.acquire("s")
        got = []
        thread = Thread(target=lambda: got.append(backend.acquire("s", wait=60)))
        thread.start()
        now[0] = 10.0
        thread.join()
        assert got[0].epoch == 2


def test_a_lease_lasts_some_time() -> None:
    with pytest.raises(UsageError):
        MemoryBackend(lease_seconds=0)


def test_what_was_changed_behind_its_back_is_found() -> None:
    with MemoryBackend() as backend:
        lease = backend.acquire("s")
        backend.append(lease, [*entries("a", "b"), entry("c", b"{}", b"value")], 0)
        records = backend._sessions["s"].records  # noqa: SLF001
        records[1] = JournalRecord(2, 1, "b", 5, b'{"changed":1}', records[1].digest)
        backend._blobs[blob_name(b"value")] = b"other"  # noqa: SLF001
        with pytest.raises(Damaged):
            keys(backend, "s")
        first, listed, last = backend.verify()
        assert isinstance(first, StoreFault)
        assert (first.session, first.seq) == ("s", 2)
        assert isinstance(listed, Listed)
        assert isinstance(last, StoreFault)
        assert last.session == ""
