"""Small makers that the tests of the PostgreSQL store share."""

from __future__ import annotations

from typing import Any

import psycopg

from lockstitch.journal.records import JournalEntry, JournalRecord
from lockstitch.stores.base import Backend, StoreFault


def entry(key: str, *blobs: bytes) -> JournalEntry:
    """An event whose body says its key."""
    return JournalEntry(
        key, 1_700_000_000_000, b'{"kind":"noted","name":"%s"}' % key.encode(), blobs
    )


def entries(*keys: str) -> list[JournalEntry]:
    return [entry(key) for key in keys]


def keys(backend: Backend, session: str) -> list[str]:
    return [record.key for record in backend.read(session)]


def records(backend: Backend, session: str) -> list[JournalRecord]:
    return list(backend.read(session))


def faults(backend: Backend) -> list[StoreFault]:
    return [one for one in backend.verify() if isinstance(one, StoreFault)]


def run(dsn: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Do something behind the store's back."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        done = connection.execute(statement.encode(), values or None)
        return done.fetchall() if done.description else []
