"""Every write, truncation, sync and deletion of a store, recorded below SQLite.

``python -m tests.stores.sqlite.recorder FOLDER ROUNDS KIND`` works with a new store in a folder
through a file system layer of ``apsw`` that notes what it passes on, and prints the notes. It is a
program of its own because the writer must be dead when what it left behind is looked at, and two
SQLite libraries must not have one database open in one process.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
from msgspec import Struct

from lockstitch.journal.records import JournalEntry
from lockstitch.stores.base import Lease
from lockstitch.stores.sqlite import SqliteBackend, writer
from tests.stores import changes

NAME = "sessions.db"
PLAN = "plan"
PAGES = 24


class Step(Struct, frozen=True):
    """Something that happened to a file, or ``acked``: a session has records up to ``place``.

    What is acknowledged of a plan of changes is how many of them were made.
    """

    what: str
    name: str
    place: int = 0
    data: bytes = b""


class Recording(Struct):
    """The files at the beginning, and what happened from then on."""

    files: dict[str, bytes]
    steps: list[Step]


class Layer(apsw.VFS):
    """The file system, with a list of what was done to it."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        super().__init__("recorder", "unix")

    def xOpen(self, name: Any, flags: list[int]) -> File:  # noqa: N802
        return File(name, flags, self.steps)

    def xDelete(self, name: str, syncdir: bool) -> None:  # noqa: N802
        super().xDelete(name, syncdir)
        self.steps.append(Step("delete", Path(name).name))


class File(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], steps: list[Step]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        # A temporary file of SQLite's has no name, and nobody looks for it after a crash.
        self.name = Path(path or "").name
        self.steps = steps if path else []
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        super().xWrite(data, offset)
        self.steps.append(Step("write", self.name, offset, bytes(data)))

    def xTruncate(self, size: int) -> None:  # noqa: N802
        super().xTruncate(size)
        self.steps.append(Step("truncate", self.name, size))

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self.steps.append(Step("sync", self.name))


class Cursor:
    """A cursor of ``apsw`` as the standard library's."""

    def __init__(self, cursor: Any, connection: apsw.Connection) -> None:
        self._cursor = cursor
        self.rowcount = connection.changes()
        self.lastrowid = connection.last_insert_rowid()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)

    def fetchone(self) -> Any:
        return next(self._cursor, None)

    def fetchall(self) -> list[Any]:
        return list(self._cursor)

    def fetchmany(self, count: int) -> list[Any]:
        return [row for row, _ in zip(self._cursor, range(count), strict=False)]


class Connection:
    """A connection of ``apsw`` as the standard library's."""

    def __init__(self, uri: str) -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
        self._connection = apsw.Connection(uri, flags=flags, vfs="recorder")

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> Cursor:
        try:
            return Cursor(self._connection.execute(statement, values), self._connection)
        except apsw.Error as error:
            raise sqlite3.OperationalError(str(error)) from error

    def close(self) -> None:
        self._connection.close()


class Work:
    """A store at work; what it acknowledges is noted among the steps."""

    def __init__(self, folder: Path) -> None:
        self.steps: list[Step] = []
        self.layer = Layer(self.steps)
        self.path = folder / NAME
        self.store = SqliteBackend(self.path, connect=Connection, lease_seconds=3600)  # type: ignore[arg-type]
        self.steps.clear()
        names = [self.path, self.path.with_name(f"{NAME}-wal")]
        self.files = {path.name: path.read_bytes() for path in names}

    def open(self, session: str) -> Lease:
        lease = self.store.acquire(session)
        self.steps.append(Step("acked", session, lease.head.seq))
        return lease

    def append(self, lease: Lease, count: int, after: int) -> int:
        entries = [entry(lease.session, after + number) for number in range(1, count + 1)]
        head = self.store.append(lease, entries, after)
        self.steps.append(Step("acked", lease.session, head.seq))
        return head.seq

    def fork(self, source: str, upto: int, target: str) -> None:
        self.store.fork(source, upto, target)
        self.steps.append(Step("acked", target, upto))

    def change(self, number: int, op: changes.Op) -> None:
        changes.carry_out(self.store, op)
        self.steps.append(Step("acked", PLAN, number))


def entry(session: str, seq: int) -> JournalEntry:
    """The record that always stands there; its large value is named by what is in it."""
    letter = "abc"[seq % 3]
    text = letter * (seq * 977 % 5000)
    blobs = (letter.encode() * 70_000,) if seq % 5 == 0 else ()
    return JournalEntry(
        f"{session}-{seq}", seq, b'{"n":%d,"text":"%s"}' % (seq, text.encode()), blobs
    )


def work(folder: Path, rounds: int) -> Recording:
    """Write to several sessions, so much that the log is moved and begun anew many times."""
    writer.CHECKPOINT = PAGES * writer.PAGE
    at_work = Work(folder)
    one, other = at_work.open("one"), at_work.open("other")
    ends = {"one": 0, "other": 0}
    for number in range(rounds):
        lease = other if number % 3 == 2 else one
        ends[lease.session] = at_work.append(lease, number % 4 + 1, ends[lease.session])
    at_work.fork("one", ends["one"] // 2, "branch")
    at_work.store.release(other)
    at_work.append(at_work.open("other"), 1, ends["other"])
    at_work.store.close()
    return Recording(at_work.files, at_work.steps)


def changed(folder: Path, rounds: int) -> Recording:
    """Add to sessions, replace and remove them, and move the log now and then."""
    writer.CHECKPOINT = PAGES * writer.PAGE
    at_work = Work(folder)
    for number, op in enumerate(changes.plan(rounds), 1):
        at_work.change(number, op)
    at_work.store.close()
    return Recording(at_work.files, at_work.steps)


if __name__ == "__main__":
    made = {"work": work, "changed": changed}[sys.argv[3]](Path(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.buffer.write(msgspec.msgpack.encode(made))
