from __future__ import annotations

from pathlib import Path

import pytest

from lockstitch.journal.records import JournalEntry
from lockstitch.stores.sqlite import SqliteBackend

SECRET = b"do-not-tell-anybody"
BLOB = b"large " * 12_000


def entries(count: int, first: int = 1) -> list[JournalEntry]:
    """Records that differ in every part."""
    return [
        JournalEntry(
            f"key-{number}",
            1000 + number,
            b'{"n":%d,"text":"%s %s"}' % (number, SECRET, b"abc"[number % 3 :] * number * 50),
            (BLOB + b"%d" % number,) if number % 4 == 0 else (),
        )
        for number in range(first, first + count)
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "sessions.db"


@pytest.fixture
def filled(path: Path) -> Path:
    """A store with three sessions that nobody has open."""
    with SqliteBackend(path) as store:
        for session in ("a", "b", "c"):
            store.append(store.acquire(session), entries(8), 0)
    return path
