"""The one connection that writes: a commit for many jobs, durable before any of them returns.

After any failure the connection is discarded and ``generation`` increases: leases taken under an
older generation are no longer certain.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from lockstitch.errors import Busy, Closed, LockstitchError, Unreadable, Unsure, Where, reason_of
from lockstitch.files import os_files
from lockstitch.stores.group_commit import (
    CommitJob,
    GroupCommit,
    LockFile,
    forget_in_children,
    own_copy,
)
from lockstitch.stores.sqlite import connections
from lockstitch.stores.sqlite.connections import BUSY_SECONDS, PAGE, Connect, Connection

T = TypeVar("T")


class WriteNotifier:
    """Wakes the threads of this process that wait for something to be written.

    It uses plain locks, because an interrupt can leave a condition locked, but not these.
    """

    def __init__(self) -> None:
        self._waiting: set[threading.Lock] = set()

    def notify(self) -> None:
        """Wake all waiting threads."""
        for lock in tuple(self._waiting):
            with suppress(RuntimeError):
                lock.release()

    @contextmanager
    def waiting(self) -> Iterator[Callable[[float], object]]:
        """Return a function that waits a number of seconds for the next write.

        If something was written since it was made, it returns at once.
        """
        lock = threading.Lock()
        lock.acquire()
        self._waiting.add(lock)
        try:
            yield lambda seconds: lock.acquire(timeout=max(seconds, 0.0))
        finally:
            self._waiting.discard(lock)


# Small enough that the log of an open database is no larger than its lasting content.
CHECKPOINT = 384 * PAGE
HUGE = 64 * 1024 * 1024
# How many seconds to wait for readers before the log of deleted content is emptied.
PATIENCE = 0.5
# The session's row, the record, its entry in the index, and sometimes a new page for one of these.
_COMMIT = 4 * PAGE


class SqliteWriter:
    """Writes to the database at a path; ``written`` is called after every commit.

    ``timeout`` is how many seconds to wait for another process that uses the database, unless a
    caller says otherwise.
    """

    def __init__(
        self,
        path: Path,
        connect: Connect,
        written: Callable[[], None],
        timeout: float | None = None,
    ) -> None:
        self.path = path
        self._timeout = BUSY_SECONDS if timeout is None else timeout
        self.generation = 0
        self._name = str(path)
        self._log = connections.WatchedName(connections.wal_of(path))
        self._connect = connect
        self._written = written
        self._lock = LockFile(connections.lock_of(path))
        self._connection: Connection | None = None
        self._files: tuple[connections.Identity, connections.Identity] | None = None
        # The bytes in the log that have not been moved to the database yet; each job adds its own.
        self.unchecked = 0
        self._patience = -1.0
        self._is_there = False
        self._is_committing = False
        self._is_ending = False
        self._must_scrub = False
        self._refusal: LockstitchError | None = None
        self._commits = GroupCommit(self._transact, Where(str(path)))
        self._look()
        forget_in_children(self)

    def do(self, run: Callable[[Connection], T], until: float | None = None) -> T:
        """Run a function in a transaction, perhaps together with others; return its result.

        The function may raise our errors, which concern it alone, if it has not changed anything.
        Raises ``Busy`` if it could not begin by ``until``.
        """
        until = time.monotonic() + self._timeout if until is None else until
        result: T = self._commits.do(run, until)
        return result

    def scrub(self, run: Callable[[Connection], T]) -> T:
        """Run a function that deletes rows, and make sure that the files keep nothing of them."""

        def job(connection: Connection) -> T:
            result = run(connection)
            self._must_scrub = True
            return result

        return self.do(job)

    def vacuum(self, until: float) -> int:
        """Rewrite the database without its free space; return the number of bytes saved."""

        def job(connection: Connection) -> int:
            before = self._size()
            try:
                connection.execute("vacuum")
                self._must_scrub = True
                self._shrink(connection, max(until - time.monotonic(), 0.0))
            except sqlite3.Error as error:
                # Nothing of it counts until it is complete.
                self._drop()
                if connections.is_busy(error):
                    raise self._busy() from error
                raise Unreadable(f"it cannot be rebuilt: {error}").about(self.path) from error
            if self._must_scrub:
                raise Busy(
                    "a program has been reading from it for longer than this would wait, and "
                    "what was removed is still in its log: try again"
                ).about(self.path)
            return max(before - self._size(), 0)

        freed: int = self._commits.do(job, until, alone=True)
        return freed

    def _size(self) -> int:
        return sum(
            connections.size_of(path) or 0 for path in (self.path, connections.wal_of(self.path))
        )

    def open(self) -> None:
        """Open the database now, and create it if it does not exist.

        An existing one that somebody is using is opened with the first write, so that a program
        which only reads need not wait.
        """
        try:
            self.do(lambda _connection: None, time.monotonic() if self._is_there else None)
        except Busy:
            if not self._is_there:
                raise
        except BaseException:
            self._lock.close()
            raise

    def close(self) -> None:
        """Stop writing; the connection is closed under the lock, because closing may checkpoint."""
        until = time.monotonic() + self._timeout
        with suppress(LockstitchError):
            self.do(self._end, until)
        self._refusal = self._closed()
        # Refuse in turn, after whoever uses the connection has finished.
        with suppress(LockstitchError):
            self.do(self._end, until)
        self._drop()
        self._lock.close()

    def _closed(self) -> Closed:
        return Closed("the store was closed").about(self.path)

    def forget(self) -> None:
        """In a forked child, leave the connection to the parent."""
        if self._connection is not None:
            connections.abandon(self._connection)

    def _end(self, _connection: Connection) -> None:
        self._is_ending = True

    def _transact(self, jobs: list[CommitJob]) -> None:
        until = jobs[0].until
        assert until is not None  # noqa: S101
        if self._refusal is not None:
            for job in jobs:
                job.end(own_copy(self._refusal))
            return
        try:
            with self._lock.held(max(until - time.monotonic(), 0.0)):
                self._is_committing = False
                try:
                    self._commit(self._connection or self._open(until), jobs, until)
                except LockstitchError:
                    raise
                except Exception as error:
                    self._fail()
                    raise connections.unsure_error(error, self.path) from error
                except BaseException as error:
                    self._interrupted(jobs, error)
                    raise
                # Nobody waits for this: move the log, and close the connection after the last job.
                self.unchecked += _COMMIT
                if self.unchecked >= CHECKPOINT or self._must_scrub:
                    self._checkpoint()
                if self._is_ending:
                    self._drop()
                    self._refusal = self._closed()
        except LockstitchError as error:
            for job in jobs:
                job.end(own_copy(error))
        except BaseException:
            self._commits.put_back(jobs)
            raise

    def _commit(self, connection: Connection, jobs: list[CommitJob], until: float) -> None:
        if jobs[0].alone:
            jobs[0].result = jobs[0].run(connection)
            self._acknowledge(jobs)
            return
        if self._patience:
            self._set_busy_timeout(connection, 0.0)
        try:
            connection.execute("begin immediate")
        except sqlite3.Error as error:
            self._begin_patiently(connection, error, until)
        self._commits.gather(jobs)
        is_changed = False
        for job in jobs:
            try:
                job.result = job.run(connection)
                is_changed = True
            except LockstitchError as error:
                job.error = error
        self._is_committing = is_changed
        connection.execute("commit" if is_changed else "rollback")
        self._acknowledge(jobs)

    def _begin_patiently(self, connection: Connection, error: sqlite3.Error, until: float) -> None:
        """Begin a transaction after another program's, if that is all that is in the way."""
        try:
            if not connections.is_busy(error):
                raise error
            self._set_busy_timeout(connection, max(until - time.monotonic(), 0.0))
            connection.execute("begin immediate")
        except sqlite3.Error as again:
            if not connections.is_busy(again):
                raise
            raise self._busy() from again
        finally:
            self._set_busy_timeout(connection, 0.0)

    def _busy(self) -> Busy:
        return Busy(
            "another program has locked the database and has not released it in the time that "
            "this write may wait; nothing was written: try again"
        ).about(self.path)

    def _set_busy_timeout(self, connection: Connection, seconds: float) -> None:
        """Set for how long SQLite waits for others, if that changes."""
        if seconds != self._patience:
            connection.execute(f"pragma busy_timeout={seconds * 1000:.0f}").fetchall()
            self._patience = seconds

    def _acknowledge(self, jobs: list[CommitJob]) -> None:
        """End committed jobs.

        Raise ``Unsure`` if the commit went to a file that is not the store's.
        """
        if (connections.identity(self._name), self._log.identity()) != self._files:
            self.generation += 1
            connection, self._connection = self._connection, None
            if connection is not None and self._files is not None:
                connections.abandon(connection)
                connections.mark_unusable(self._files[0])
            raise Unsure(
                "another program removed or replaced the database or its log while it was in "
                "use; the last write may be lost: open the session again"
            ).about(self.path)
        for job in jobs:
            job.end()
        self._written()

    def _interrupted(self, jobs: list[CommitJob], error: BaseException) -> None:
        """Finish cleanly after an interrupt: what SQLite has done is certain.

        SQLite's own calls run to their end, and an interrupt is raised before or after one. So a
        job whose transaction is still open is not done, and a commit that ended without an error
        is. Other threads' jobs that are not done are left for them to do.
        """
        connection = self._connection
        failure: Exception | None = None
        if isinstance(error.__context__, sqlite3.Error):
            failure = error.__context__
        if failure is None:
            try:
                if connection is not None and connection.in_transaction:
                    connection.execute("rollback")
                elif self._is_committing:
                    self._acknowledge(jobs)
            except Exception as other:  # noqa: BLE001
                failure = other
        if failure is not None:
            self._fail()
            for job in jobs:
                job.end(connections.unsure_error(failure, self.path))

    def _look(self) -> None:
        """Check what the database is before SQLite may create or recover any file."""
        connections.check_usable(self.path)
        connections.check_one_name(self.path)
        self._is_there = bool(connections.size_of(self.path))
        if not self._is_there:
            connections.make_folders(self.path.parent)
            return
        uri = connections.uri_of(self.path, mode="ro", immutable="1")
        try:
            with closing(self._connect(uri)) as connection:
                connections.check_kind(connection, self.path)
        except sqlite3.Error as error:
            # After a crash the log may hold pages that the database lacks, and SQLite will report
            # that.
            is_corrupt = connections.kind_of(error) == sqlite3.SQLITE_CORRUPT
            if not is_corrupt or not connections.size_of(connections.wal_of(self.path)):
                raise connections.translate_error(error, self.path) from error

    def _open(self, until: float) -> Connection:
        """Open the connection; create or migrate the database if necessary."""
        self._look()
        seconds = max(until - time.monotonic(), 0.0)
        try:
            if not connections.size_of(self.path):
                connections.check_alone(self.path)
                connections.create(self.path, lambda draft: connections.fill(self._connect, draft))
            connection = self._connect(connections.uri_of(self.path, mode="rw"))
            try:
                connections.ask(connection, f"pragma busy_timeout={seconds * 1000:.0f}")
                connections.prepare(connection, self.path)
                connection.execute("begin immediate")
                connections.check_kind(connection, self.path)
                connections.migrate(connection)
                connection.execute("commit")
                self._files = (connections.identity(self._name), self._log.identity())
                self.unchecked = connections.size_of(connections.wal_of(self.path)) or 0
                # SQLite ignores a failure to make the log's name durable.
                os_files.sync_folder(self.path.parent)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise connections.translate_error(error, self.path) from error
        except OSError as error:
            raise Unreadable(f"it cannot be opened: {reason_of(error)}").about(self.path) from error
        self._connection, self._patience = connection, seconds
        return connection

    def _fail(self) -> None:
        self.generation += 1
        self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("rollback")
        with suppress(sqlite3.Error):
            connection.close()

    def _checkpoint(self) -> None:
        """Move the log into the database; pages that cannot be moved now stay safe in the log."""
        self.unchecked = 0
        try:
            assert self._connection is not None  # noqa: S101
            self._connection.execute("pragma wal_checkpoint(passive)").fetchall()
            if self._must_scrub or (connections.size_of(connections.wal_of(self.path)) or 0) > HUGE:
                self._shrink(self._connection, PATIENCE if self._must_scrub else 0.0)
        except (sqlite3.Error, OSError):
            self._drop()

    def _shrink(self, connection: Connection, patience: float) -> None:
        """Empty the log unless somebody is reading; until then it keeps what was deleted."""
        self._set_busy_timeout(connection, patience)
        [(is_busy, *_)] = connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        self._must_scrub = self._must_scrub and bool(is_busy)
        self._set_busy_timeout(connection, 0.0)
