"""Connections that read: a few are kept open, each sees one state of the store at a time.

Reading never waits for a writer. A reader's connection cannot checkpoint, not even when it is
the last one to be closed.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lockstitch.errors import Closed, Damaged, LockstitchError, Unreadable
from lockstitch.stores.sqlite import connections, files
from lockstitch.stores.sqlite.connections import Connect, Connection

IDLE = 8
_TRIES = 3


class Readers:
    """Reading connections to the database at a path, which exists and is known to be a store."""

    def __init__(self, path: Path, connect: Connect) -> None:
        self.path = path
        self._connect = connect
        self._guard = threading.Lock()
        self._idle: list[Connection] = []
        self._file = files.identity(str(path))
        self._is_closed = False
        connections.forget_in_children(self)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Give a connection on which everything is read in one and the same state."""
        try:
            connection = self._taken()
            try:
                connection.execute("begin")
                yield connection
                connection.execute("rollback")
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            self._check_open()
            raise connections.translated(error, self.path) from error
        except UnicodeDecodeError as error:
            # SQLite wants to say what it cannot read, and that is no text.
            raise Damaged(f"{self.path}: the database is damaged: its names are no text") from error
        self._give_back(connection)

    def close(self) -> None:
        """Close the connections that nobody uses; the others are closed when they come back."""
        with self._guard:
            idle, self._idle, self._is_closed = self._idle, [], True
        for connection in idle:
            connection.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed(f"{self.path}: the store was closed")

    def forget(self) -> None:
        """In a forked child: leave the connections to the parent."""
        for connection in self._idle:
            connections.abandon(connection)

    def open(self) -> Connection:
        """Open one more connection."""
        files.check_usable(self.path)
        return self._connect(connections.uri_of(self.path, mode="ro"))

    def _taken(self) -> Connection:
        found = files.identity(str(self.path))
        with self._guard:
            self._check_open()
            idle, self._idle = self._idle, []
            if idle and found == self._file:
                self._idle = idle
                return idle.pop()
            self._file = found
        for connection in idle:
            connection.close()
        connection = self.open()
        connection.execute("pragma cell_size_check=on")
        return connection

    def _give_back(self, connection: Connection) -> None:
        with self._guard:
            if not self._is_closed and len(self._idle) < IDLE:
                self._idle.append(connection)
                return
        connection.close()


class Onlookers(Readers):
    """Reads a store without leaving a trace: no file is made or changed, not even a lock.

    SQLite reads a log only together with the file beside it that says what is in the log. Where
    there is no log, the database is read as it lies there; where the log lies there alone, which
    a copy by hand can leave, both are copied aside.
    """

    def __init__(self, path: Path, connect: Connect) -> None:
        super().__init__(path, connect)
        self._lying: tuple[int, int, int, int] | None = None
        self._aside: tempfile.TemporaryDirectory[str] | None = None
        if files.size_of(path) is None:
            raise Unreadable(f"{path}: no such file")
        files.check_one_name(path)
        with self.snapshot() as connection:
            connections.check_kind(connection, path)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """As before; a database that lay there alone must still do so in the end."""
        try:
            with super().snapshot() as connection:
                yield connection
        except LockstitchError as error:
            if self._is_disturbed():
                raise Unreadable(f"{self.path}: was written while it was read") from error
            raise
        if self._is_disturbed():
            raise Unreadable(f"{self.path}: was written while it was read: read it again")

    def open(self) -> Connection:
        """Open one more connection; what lies there may change its form in that moment."""
        for _ in range(_TRIES):
            connection = self._opened()
            try:
                connections.ask(connection, "pragma schema_version")
            except sqlite3.OperationalError:
                connection.close()
            else:
                return connection
        return self._opened()

    def _opened(self) -> Connection:
        """Open the database in the way that fits what lies there now."""
        if files.size_of(files.shm_of(self.path)) is not None:
            self._lying = None
            return self._connect(connections.uri_of(self.path, mode="ro", readonly_shm="1"))
        if files.size_of(files.wal_of(self.path)):
            return self._connect(connections.uri_of(self._copied(), mode="ro"))
        self._lying = files.stamp(self.path)
        return self._connect(connections.uri_of(self.path, mode="ro", immutable="1"))

    def close(self) -> None:
        """Close the connections and remove the copy."""
        super().close()
        aside, self._aside = self._aside, None
        if aside is not None:
            aside.cleanup()

    def _give_back(self, connection: Connection) -> None:
        connection.close()

    def _is_disturbed(self) -> bool:
        with suppress(OSError):
            return self._lying is not None and files.stamp(self.path) != self._lying
        return True

    def _copied(self) -> Path:
        # Nobody has the database open, this process neither, or the missing file would be there.
        if self._aside is None:
            self._aside = tempfile.TemporaryDirectory(prefix="lockstitch-")
            for path in (self.path, files.wal_of(self.path)):
                shutil.copyfile(path, Path(self._aside.name, path.name), follow_symlinks=False)
        return Path(self._aside.name, self.path.name)
