"""A session with everything in it, and what its file holds up to every byte."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from lockstitch.journal.records import NEW, Head, JournalRecord
from lockstitch.stores.base import Backend, StoreFault
from lockstitch.stores.jsonl import JsonlBackend
from tests.stores.contract import entries, entry


class History(Struct, frozen=True):
    """The bytes of a file, its records, and which of them were acknowledged at which size."""

    data: bytes
    records: list[JournalRecord]
    acknowledged: list[tuple[int, int]]

    def upto(self, size: int) -> list[JournalRecord]:
        """The records that count in the first bytes of the file."""
        return self.records[: max(seq for end, seq in self.acknowledged if end <= size)]


APPENDS = (("a",), ("b", "c", "d"), (), ("e", "f"), ("g",), (), (), ("h", "i"), ("j",))


def history(folder: Path) -> History:
    """Write a session by several writers; an empty append stands for the next writer."""
    path = folder / "s.jsonl"
    acknowledged = [(0, 0)]
    with JsonlBackend(folder) as backend:
        lease, head = backend.acquire("s"), NEW
        for names in APPENDS:
            if names:
                sent = [entry(name, b'{"n":"%s \xc3\xa9"}' % name.encode()) for name in names]
                head = backend.append(lease, sent, head.seq)
                acknowledged.append((path.stat().st_size, head.seq))
            else:
                backend.release(lease)
                lease = backend.acquire("s")
        records = list(backend.read("s"))
    return History(path.read_bytes(), records, acknowledged)


def reopened(folder: Path, data: bytes) -> Backend:
    """A store whose only session has a file with these bytes."""
    (folder / "s.jsonl").write_bytes(data)
    return JsonlBackend(folder)


def goes_on(backend: Backend, path: Path, expected: list[JournalRecord]) -> None:
    """Hold a store to it: these records count, more can be added, and no byte was changed."""
    data = path.read_bytes()
    assert list(backend.read("s")) == expected
    lease = backend.acquire("s")
    digest = expected[-1].digest if expected else NEW.digest
    assert lease.head == Head(len(expected), digest, lease.epoch)
    assert lease.epoch > (expected[-1].epoch if expected else 0)
    backend.append(lease, entries("new", "newer"), len(expected))
    backend.append(lease, entries("newest"), len(expected) + 2)
    found = list(backend.read("s"))
    assert found[:-3] == expected
    assert [record.key for record in found[-3:]] == ["new", "newer", "newest"]
    assert path.read_bytes().startswith(data)
    assert [one for one in backend.verify() if isinstance(one, StoreFault)] == []
    backend.release(lease)
