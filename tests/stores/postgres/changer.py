"""A writer that adds to sessions, replaces and removes them, against a dying server.

``python -m tests.stores.postgres.changer DSN NAME`` carries out a plan on two sessions of its own
until its standard input is closed, and prints the number of every change that was made and how
often its outcome was unknown. A change that is neither made nor not made ends it with an error.
"""

from __future__ import annotations

import sys
import threading
import time

from lockstitch.errors import Conflict, Unreadable, Unsure
from lockstitch.stores.postgres import PostgresBackend
from tests.driven import say
from tests.stores import changes
from tests.stores.postgres.writer import opened

MOST = 2000


def names_of(name: str) -> tuple[str, str]:
    """The sessions of a writer."""
    return f"{name}-a", f"{name}-b"


def is_made(backend: PostgresBackend, name: str, possible: list[changes.Model]) -> bool:
    """Look what became of a change, however long the server is away."""
    while True:
        try:
            return changes.found_of(backend, names_of(name), possible) == possible[1]
        except Unreadable:
            time.sleep(0.02)


def make(backend: PostgresBackend, name: str, op: changes.Op, possible: list[changes.Model]) -> int:
    """Make a change once, whatever happens; gives how often its outcome was unknown."""
    unknown = 0
    while True:
        try:
            changes.carry_out(backend, op)
        except (Unsure, Unreadable, Conflict):
            unknown += 1
            if is_made(backend, name, possible):
                return unknown
        else:
            return unknown


def main(dsn: str, name: str) -> None:
    ending = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ending.set()), daemon=True).start()
    backend = opened(dsn)
    ops = changes.plan(MOST, names_of(name))
    models = changes.models(ops)
    for number, op in enumerate(ops):
        if ending.is_set():
            break
        unknown = make(backend, name, op, models[number : number + 2])
        say(name, number + 1, unknown)
    backend.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
