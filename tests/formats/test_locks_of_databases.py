"""A look at a file drops no lock that this process has on it, whatever its name is."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from lockstitch.cli.targets import find_sessions
from lockstitch.errors import LockstitchError
from lockstitch.files import read
from lockstitch.sources import operations, own_stores, targets

from . import hostile

OTHER = """
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    base.execute("begin immediate")
except sqlite3.OperationalError as error:
    sys.exit(str(error))
"""

LOOKS: dict[str, Callable[[str], object]] = {
    "may be": own_stores.may_be,
    "place": own_stores.place_of,
    "scan": operations.scan_file,
    "sources": targets.resolve_sources,
    "stored": lambda path: find_sessions(path, None, None),
}


def descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def is_locked(path: Path) -> bool:
    """Whether another process finds the database locked."""
    done = subprocess.run([sys.executable, "-c", OTHER, str(path)], stderr=-1, check=False)
    return b"locked" in done.stderr


@pytest.mark.parametrize("name", ["agents", "agents.db", "agents.dat", "agents.jsonl"])
def test_a_look_keeps_the_locks_of_this_process(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    hostile.openai(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as live:
        live.execute("pragma journal_mode = delete")
        live.execute("begin immediate")
        assert is_locked(path)
        for look in LOOKS.values():
            with suppress(LockstitchError):
                look(str(path))
        assert is_locked(path)
        live.execute("rollback")
    assert not is_locked(path)


def test_a_database_that_is_empty_yet_keeps_its_locks(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with closing(sqlite3.connect(path, isolation_level=None)) as live:
        live.execute("begin immediate")
        assert is_locked(path)
        for look in LOOKS.values():
            with suppress(LockstitchError):
                look(str(path))
        assert is_locked(path)


def test_looking_often_takes_no_more_descriptors(tmp_path: Path) -> None:
    path = tmp_path / "agents"
    hostile.openai(path)
    with closing(sqlite3.connect(path)) as live:
        live.execute("pragma user_version").fetchall()
        read.read_head(path, 16)
        before = descriptors()
        for _ in range(20):
            assert read.read_head(path, 15) == b"SQLite format 3"
        assert descriptors() == before
    # Whoever looks next closes what had to stay open.
    read.read_head(__file__, 1)
    assert descriptors() < before
