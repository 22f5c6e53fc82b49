"""A writer that is told of nothing but errors: run as a process of its own, against a dying server.

``python -m tests.stores.postgres.writer DSN NAME SESSION… `` adds events to each session in turn
until its standard input is closed, and prints the key of every event that was acknowledged.
"""

from __future__ import annotations

import sys
import threading
import time
from itertools import count

from lockstitch.errors import Conflict, Unreadable, Unsure
from lockstitch.journal.records import Head
from lockstitch.stores.base import Lease
from lockstitch.stores.postgres import PostgresBackend
from tests.driven import say
from tests.stores.postgres.making import entry

LEASE_SECONDS = 2.0


def opened(dsn: str) -> PostgresBackend:
    """Open the store, however long the server is away."""
    while True:
        try:
            return PostgresBackend(dsn, lease_seconds=LEASE_SECONDS)
        except Unreadable:
            time.sleep(0.02)


def taken(backend: PostgresBackend, session: str) -> Lease:
    """Take a session, however long the server is away or another writer has it."""
    while True:
        try:
            return backend.acquire(session, wait=1)
        except (Unreadable, Unsure, Conflict):
            time.sleep(0.02)


def is_there(backend: PostgresBackend, session: str, before: Head, key: str) -> bool:
    """Whether an event of unknown outcome is behind the place it was sent to."""
    while True:
        try:
            return any(record.key == key for record in backend.read(session, after=before))
        except Unreadable:
            time.sleep(0.02)


def add(backend: PostgresBackend, session: str, key: str) -> int:
    """Add one event once, whatever happens; gives how often its outcome was unknown."""
    first: Head | None = None
    for unknown in count():
        lease = taken(backend, session)
        first = first or lease.head
        try:
            if not unknown or not is_there(backend, session, first, key):
                backend.append(lease, [entry(key)], lease.head.seq)
        except (Unsure, Unreadable, Conflict):
            continue
        finally:
            # without a connection the lease is still ours, and would be kept alive for ever
            backend.release(lease)
        return unknown
    raise AssertionError


def main(dsn: str, name: str, *sessions: str) -> None:
    ending = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ending.set()), daemon=True).start()
    backend = opened(dsn)
    for number in count():
        if ending.is_set():
            break
        session = sessions[number % len(sessions)]
        key = f"{name}-{number}"
        unknown = add(backend, session, key)
        say(session, key, unknown)
    backend.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
