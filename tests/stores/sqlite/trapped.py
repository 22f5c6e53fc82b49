"""A writer under whose hands other programs change the files; it prints what it is told.

``python -m tests.stores.sqlite.trapped FILE HOW``. A program of its own: what it does to its
SQLite cannot be undone.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from lockstitch.errors import LockstitchError
from lockstitch.stores.base import Lease
from lockstitch.stores.sqlite import SqliteBackend
from tests.stores.sqlite.conftest import entries

GLANCE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("select 1 from pieces")
connection.close()
"""


def checkpointed(path: Path) -> None:
    """Our own process opens and closes the file, and a tool that looks at it thinks it is alone."""
    with path.open("rb") as file:
        file.read(100)
    subprocess.run([sys.executable, "-c", GLANCE, str(path)], check=True)
    assert not path.with_name(f"{path.name}-wal").exists()


def unlinked(path: Path) -> None:
    """Somebody tidies up."""
    path.with_name(f"{path.name}-wal").unlink()


def replaced(path: Path) -> None:
    """Somebody puts a copy in place."""
    copy = path.with_name("copy.db")
    with sqlite3.connect(path) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    source.close()
    target.close()
    copy.replace(path)


def removed(path: Path) -> None:
    """Somebody removes everything."""
    shutil.rmtree(path.parent)


def told(call: Callable[[], object]) -> str:
    try:
        call()
    except LockstitchError as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def append(store: SqliteBackend, lease: Lease, after: int) -> str:
    return told(lambda: store.append(lease, entries(1, first=after + 1), after))


def main(path: Path, how: str) -> None:
    store = SqliteBackend(path)
    lease = store.acquire("s")
    for seq in range(10):
        print(append(store, lease, seq))  # noqa: T201
    globals()[how](path)
    print(append(store, lease, 10))  # noqa: T201
    print(append(store, lease, 10))  # noqa: T201
    print(told(lambda: store.acquire("s")))  # noqa: T201
    print(told(lambda: store.head("s")))  # noqa: T201
    print(told(lambda: SqliteBackend(path).acquire("s")), flush=True)  # noqa: T201
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
