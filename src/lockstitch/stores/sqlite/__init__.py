"""The default store: all sessions in one SQLite database, for threads and processes."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from lockstitch.errors import (
    Closed,
    Damaged,
    Fenced,
    Held,
    LockstitchError,
    Unreadable,
    Unsure,
    UsageError,
    Where,
)
from lockstitch.journal.events import NO_ABOUT, About
from lockstitch.journal.records import (
    NEW,
    Head,
    JournalEntry,
    JournalRecord,
    blob_name,
    check_session_name,
    verify_chain,
)
from lockstitch.journal.salvage import Remains
from lockstitch.stores.addresses import encoded_path
from lockstitch.stores.base import (
    LEASE_SECONDS,
    VACUUM_SECONDS,
    Backend,
    IncomingSession,
    Lease,
    Listed,
    Listing,
    StoreFault,
    check_blob,
    check_lease_seconds,
    find_fork_point,
    require_stamp,
)
from lockstitch.stores.leases import Heartbeat, clock, now
from lockstitch.stores.sqlite import connections, pieces, rows, salvage
from lockstitch.stores.sqlite.changes import (
    Appending,
    CheckedEntries,
    HeldLeases,
    Hold,
    Tails,
    add_entries,
    receive_session,
    remove_records,
    replace_records,
    true_head,
)
from lockstitch.stores.sqlite.connections import Connect, Connection, Readers, ReadonlyReaders
from lockstitch.stores.sqlite.rows import SessionHeadRow, page
from lockstitch.stores.sqlite.writer import SqliteWriter, WriteNotifier

T = TypeVar("T")
PAUSES = (0.005, 0.01, 0.02, 0.05)
# How many seconds a caller with no wait of its own waits for another process's commit.
LEAST = 1.0


class SqliteBackend(Backend):
    """Sessions in the SQLite database at ``path``, which is created if it does not exist.

    ``compress`` makes new records smaller; existing ones stay as they are. With ``readonly``
    nothing is created or changed, not even a lock file, and nothing can be written; a database that
    this process may not write to is opened the same way. ``timeout`` is how many seconds a write
    waits for a process that was stopped while it used the database.
    """

    def __init__(  # noqa: PLR0913 - one keyword an option
        self,
        path: str | Path,
        *,
        compress: bool = False,
        lease_seconds: float = LEASE_SECONDS,
        readonly: bool = False,
        timeout: float | None = None,
        connect: Connect = connections.connect,
    ) -> None:
        connections.check_library()
        check_lease_seconds(lease_seconds)
        self.path = Path(path).absolute()
        self.url = f"sqlite:///{encoded_path(self.path)}{'?compress=1' if compress else ''}"
        self._process = os.getpid()
        self._compress = compress
        self._tails = Tails()
        self._notifier = WriteNotifier()
        self._is_closed = False
        self._is_protected = bool(connections.size_of(self.path)) and not connections.is_writable(
            self.path
        )
        readonly = readonly or self._is_protected
        self._writer = None
        if not readonly:
            self._writer = SqliteWriter(self.path, connect, self._notifier.notify, timeout)
        self._leases = HeldLeases(lease_seconds)
        self._heartbeat = Heartbeat(self._beat, lease_seconds / 3)
        if self._writer is not None:
            self._writer.open()
        self._readers = (ReadonlyReaders if readonly else Readers)(self.path, connect)

    # Leases.

    def acquire(self, session: str, *, wait: float = 0.0, create: bool = True) -> Lease:
        check_session_name(session)
        token = secrets.token_hex(8)
        take = partial(self._take, session=session, create=create, token=token)
        try:
            lease = self._do_when_free(session, take, wait)
        except BaseException:
            self._leases.drop(token)
            raise
        self._heartbeat.start()
        return lease

    def _take(self, connection: Connection, session: str, create: bool, token: str) -> Lease:
        self._for_writing()
        row = rows.session_named(connection, session, self._where(session))
        if row is None and not create:
            raise self._unknown(session)
        if row is not None and self._is_held(row):
            assert row.holder is not None  # noqa: S101
            raise Held(f"it is held by {row.holder.label}").about(*self._where(session))
        head = Head() if row is None else true_head(connection, row, self._where(session))
        number = row.number if row else rows.add_session(connection, session, head, now(), 0)
        hold = Hold(number, session, head.epoch + 1, token, self._generation(), head)
        self._leases.add(hold)
        seconds = self._leases.seconds
        holder = structs.replace(self._leases.me, token=token)
        rows.take(connection, number, hold.epoch, holder, clock() + seconds, seconds)
        return Lease(session, hold.epoch, hold.token, Head(head.seq, head.digest, hold.epoch))

    def _is_held(self, row: SessionHeadRow) -> bool:
        return self._leases.is_held(row, self._generation())

    def _do_when_free(self, session: str, run: Callable[[Connection], T], wait: float) -> T:
        """Run a function in a transaction.

        Repeat it, for as long as the caller waits, on ``Held``.
        """
        writer = self._for_writing()
        deadline, latest = _deadlines(wait)
        pauses = iter(PAUSES)
        while True:
            try:
                return writer.do(run, latest)
            except Held:
                if time.monotonic() >= deadline:
                    raise
            with self._notifier.waiting() as pause:
                while (left := deadline - time.monotonic()) > 0:
                    with self._readers.snapshot() as connection:
                        row = rows.session_named(connection, session, self._where(session))
                    if row is None or not self._is_held(row):
                        break
                    pause(min(left, next(pauses, PAUSES[-1])))

    def release(self, lease: Lease) -> None:
        hold = self._leases.drop(lease.token)
        if hold is not None and not self._is_closed and self._process == os.getpid():
            self._stop_idle_heartbeat()
            self._for_writing().do(lambda connection: self._give_back(connection, [hold]))
            self._leases.forget(hold.token)

    def _stop_idle_heartbeat(self) -> None:
        """Stop the heartbeat if there is no lease to keep alive, not even a very new one."""
        if not self._leases.live():
            self._heartbeat.stop()
            if self._leases.live():
                self._heartbeat.start()

    def _beat(self) -> None:
        """Keep the leases alive; drop those that were taken over, and ignore failures."""

        def keep(connection: Connection) -> None:
            deadline = clock() + self._leases.seconds
            for hold in self._leases.live():
                if hold.generation != self._generation():
                    continue
                if not rows.keep(connection, hold.number, hold.epoch, deadline):
                    self._leases.drop(hold.token)

        with suppress(LockstitchError):
            self._for_writing().do(keep)

    # Writing.

    def append(self, lease: Lease, entries: Sequence[JournalEntry], after: int) -> Head:
        writer = self._for_writing()
        hold = self._held(lease, writer)
        where = self._where(lease.session)
        appending = Appending(hold, entries, after, where, compress=self._compress)

        def run(connection: Connection) -> Head:
            self._held(lease, writer)
            writer.unchecked += appending.size
            return appending.run(connection, clock() + self._leases.seconds)

        hold.head, hold.tail = writer.do(run), appending.tail
        return hold.head

    def add(
        self, session: str, entries: Sequence[JournalEntry], after: Head, *, wait: float = 0.0
    ) -> Head:
        check_session_name(session)
        self._for_writing()
        checked = CheckedEntries(entries, self._where(session), compress=self._compress)

        def run(connection: Connection) -> Head:
            self._for_writing().unchecked += checked.size
            return add_entries(connection, checked, session, after, self._is_held, self._tails)

        return self._do_when_free(session, run, wait)

    def replace(self, lease: Lease, entries: Sequence[JournalEntry], after: int) -> Head:
        writer = self._for_writing()
        hold = self._held(lease, writer)
        checked = CheckedEntries(entries, self._where(lease.session), compress=self._compress)

        def run(connection: Connection) -> Head:
            self._held(lease, writer)
            writer.unchecked += checked.size
            deadline = clock() + self._leases.seconds
            return replace_records(connection, checked, hold, after, deadline)

        hold.head, hold.tail = writer.scrub(run), None
        return hold.head

    def delete(self, lease: Lease) -> None:
        writer = self._for_writing()
        hold = self._held(lease, writer)
        where = self._where(lease.session)

        def run(connection: Connection) -> None:
            self._held(lease, writer)
            remove_records(connection, hold, where)

        writer.scrub(run)
        self._leases.drop(hold.token)
        self._stop_idle_heartbeat()
        self._leases.forget(hold.token)

    def _held(self, lease: Lease, writer: SqliteWriter) -> Hold:
        """Return the lease as kept by this store.

        Raise an error if nothing may be written under it.
        """
        hold = self._leases.held.get(lease.token)
        if hold is None:
            raise Fenced("the lease was released or taken over; nothing was written").about(
                *self._where(lease.session)
            )
        if hold.generation != writer.generation:
            raise Unsure(
                "a write failed since this lease was taken, and what is in the store is not "
                "known: open the session again"
            ).about(*self._where(hold.session))
        return hold

    def fork(self, source: str, upto: int, target: str) -> Head:
        check_session_name(source)
        check_session_name(target)
        writer = self._for_writing()
        point = find_fork_point(self.read(source, upto=upto), upto, source)

        def run(connection: Connection) -> Head:
            there = rows.session_named(connection, target, self._where(target))
            if there is not None:
                return point.require_same(there.head, target)
            origin = rows.session_named(connection, source, self._where(source))
            if origin is None:
                raise self._unknown(source)
            number = rows.add_session(connection, target, point.head, now(), point.changed)
            rows.join(connection, number, origin.number, point.head.seq)
            rows.describe(connection, number, point.about)
            return point.head

        return writer.do(run)

    def receive(self, incoming: IncomingSession) -> Head:
        session = check_session_name(incoming.session)
        where = self._where(session)
        writer = self._for_writing()

        def run(connection: Connection) -> Head:
            writer = self._for_writing()
            found = rows.session_named(connection, session, where)
            if found is not None and incoming.is_there(found.head):
                return found.head
            writer.unchecked += receive_session(connection, incoming, compress=self._compress)
            return incoming.head

        return writer.do(run)

    # Reading.

    def read(
        self, session: str, after: Head = NEW, upto: int | None = None
    ) -> Iterator[JournalRecord]:
        if self.head(session) is None:
            raise self._unknown(session)
        return self._records(session, after, upto)

    def _records(self, session: str, after: Head, upto: int | None) -> Iterator[JournalRecord]:
        where = self._where(session)
        with self._readers.snapshot() as connection:
            row = rows.session_named(connection, session, where)
            if row is None:
                raise self._unknown(session)
            last = row.head.seq if upto is None else min(upto, row.head.seq)
            found = rows.records(connection, row.number, after.seq, last, where)
            yield from verify_chain(found, after, where, last=last, end=row.head)

    def head(self, session: str) -> Head | None:
        check_session_name(session)
        with self._readers.snapshot() as connection:
            row = rows.session_named(connection, session, self._where(session))
        return None if row is None else row.head

    def blobs(self, names: Iterable[str]) -> dict[str, bytes]:
        found = {}
        with self._readers.snapshot() as connection:
            for name in names:
                found[name] = check_blob(name, rows.blob(connection, name), Where(str(self.path)))
        return found

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        asked = list(names)
        with self._readers.snapshot() as connection:
            found = {name: rows.blob_size(connection, name) for name in asked}
        sizes = {name: size for name, size in found.items() if size is not None}
        return {**sizes, **super().sizes(name for name in asked if name not in sizes)}

    def ends(self, name: str, head: int, tail: int) -> tuple[bytes, bytes]:
        with self._readers.snapshot() as connection:
            found = rows.blob_ends(connection, name, head, tail)
        return found or super().ends(name, head, tail)

    def listed(self, listing: Listing, limit: int | None = None) -> Iterator[Listed]:
        readers = self._readers
        left = limit
        while left is None or left > 0:
            count = rows.CHUNK if left is None else min(left, rows.CHUNK)
            with readers.snapshot() as connection:
                found = page(connection, listing, count)
            for raw, about in found:
                try:
                    one = self._listed(rows.decode_session(raw, Where(str(self.path))), about)
                except Damaged:
                    # The row of the session is damaged, but its name is known.
                    one = Listed(raw[1].decode("ascii", "replace"), 0, 0, 0, 0)
                listing = listing.behind(one)
                yield one
            if len(found) < count:
                return
            left = None if left is None else left - count

    def _listed(self, row: SessionHeadRow, about: About = NO_ABOUT) -> Listed:
        label = row.holder.label if row.holder is not None and self._is_held(row) else ""
        head = (row.name, row.head.seq, row.head.epoch, row.created, row.changed, label)
        return Listed(*head, *structs.astuple(about))

    def remains(self, session: str) -> Remains:
        check_session_name(session)
        with self._readers.snapshot() as connection:
            return salvage.remains(connection, session, Where(str(self.path)))

    def exchange(self, session: str, aside: str, successor: str, stamp: str = "") -> None:
        for name in (session, aside, successor):
            check_session_name(name)

        where = Where(str(self.path))

        def run(connection: Connection) -> None:
            old = salvage.find_row(connection, session, where)
            new = salvage.find_row(connection, successor, where)
            for name in (session, successor, aside):
                row = None
                with suppress(Damaged):
                    row = rows.session_named(connection, name, where)
                if row is not None and (name == aside or self._is_held(row)):
                    raise Held(f"session {name} already exists, or is held by a writer").about(
                        *where
                    )
            require_stamp(stamp, salvage.stamp_of(*old[:3]), session)
            connection.execute(
                "update sessions set name = ?, epoch = epoch + 1, holder = null, deadline = null,"
                " term = null where number = ?",
                (aside, old[0]),
            )
            connection.execute(
                "update sessions set name = ?, epoch = max(epoch, ?) where number = ?",
                (session, old[3] if isinstance(old[3], int) else 0, new[0]),
            )

        self._for_writing().do(run)

    def wait(self, session: str, after: int, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        pause = iter(PAUSES)
        with self._notifier.waiting() as wait:
            while True:
                head = self.head(session)
                if head is not None and head.seq > after:
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                wait(min(left, next(pause, PAUSES[-1])))

    def verify(self) -> Iterator[StoreFault | Listed]:
        self._readers.require_open()
        return verify(self._readers, self._listed)

    def vacuum(self, *, wait: float = VACUUM_SECONDS) -> int:
        return self._for_writing().vacuum(_deadlines(wait)[1])

    def close(self) -> None:
        if self._is_closed or self._process != os.getpid():
            self._is_closed = True
            return
        self._is_closed = True
        self._notifier.notify()
        self._heartbeat.stop(wait=True)
        self._readers.close()
        if self._writer is not None:
            # A lease that cannot be released is taken over once this process is gone.
            with suppress(LockstitchError):
                self._writer.do(lambda one: self._give_back(one, self._leases.drop_all()))
            self._writer.close()

    def _give_back(self, connection: Connection, holds: list[Hold]) -> None:
        for hold in holds:
            rows.give_back(connection, hold.number, hold.epoch)
            if self._compress:
                pieces.seal(connection, hold.number, last=True)

    # Helpers of all methods.

    def _generation(self) -> int:
        return 0 if self._writer is None else self._writer.generation

    def _for_writing(self) -> SqliteWriter:
        if self._process != os.getpid():
            raise Closed("it was opened by another process, before a fork").about(self.path)
        if self._is_closed:
            raise Closed("the store was closed").about(self.path)
        if self._writer is None:
            why = ", because this process may not write to it" if self._is_protected else ""
            raise UsageError(f"it was opened for reading only{why}; nothing was written").about(
                self.path
            )
        return self._writer

    def _where(self, session: str) -> Where:
        return Where(str(self.path), session)

    def _unknown(self, session: str) -> Unreadable:
        return Unreadable(f"there is no session {session}").about(self.path)


def _deadlines(wait: float) -> tuple[float, float]:
    """Return until when to wait for a holder, and until when for a process that is committing."""
    now = time.monotonic()
    return now + wait, now + max(wait, LEAST)


_MOST = 100


def verify(
    readers: Readers, listed: Callable[[SessionHeadRow], Listed]
) -> Iterator[StoreFault | Listed]:
    """Check the database, every session and every large value; see ``Backend.verify``."""

    def ask(question: Callable[[Connection], list[StoreFault]]) -> list[StoreFault]:
        try:
            with readers.snapshot() as connection:
                return question(connection)
        except LockstitchError as error:
            return [StoreFault("", 0, error.message)]

    yield from ask(
        lambda connection: [
            StoreFault("", 0, f"SQLite: {line}")
            for (line,) in connection.execute(f"pragma integrity_check({_MOST})")
            if line != "ok"
        ]
    )
    yield from _sessions(readers, listed)
    yield from ask(
        lambda connection: [
            StoreFault("", 0, f"there are records of session number {number}, which does not exist")
            for number in rows.unneeded_numbers(connection)
        ]
    )
    yield from _blobs(readers)


def _sessions(
    readers: Readers, listed: Callable[[SessionHeadRow], Listed]
) -> Iterator[StoreFault | Listed]:
    number = -(1 << 63)
    while True:
        try:
            with readers.snapshot() as connection:
                found = rows.sessions_from(connection, number, rows.CHUNK)
        except LockstitchError as error:
            yield StoreFault(
                "", 0, f"sessions after number {number} cannot be listed: {error.message}"
            )
            return
        for raw in found:
            yield from _session(readers, raw, listed)
        if not found:
            return
        number = found[-1][0] + 1


def _session(
    readers: Readers, raw: Any, listed: Callable[[SessionHeadRow], Listed]
) -> Iterator[StoreFault | Listed]:
    try:
        row = rows.decode_session(raw, Where(str(readers.path)))
    except Damaged as error:
        name = raw[1].decode("ascii", "replace") if isinstance(raw[1], bytes) else ""
        yield StoreFault(name, 0, error.message)
        if name:
            yield Listed(name, 0, 0, 0, 0)
        return
    where = Where(str(readers.path), row.name)
    good = Head()
    try:
        with readers.snapshot() as connection:
            # Read it again: it may have gone on since it was listed, or been deleted.
            now = rows.session_numbered(connection, row.number, where)
            end = Head() if now is None else now.head
            found = rows.records(connection, row.number, 0, (1 << 63) - 1, where) if now else ()
            for record in verify_chain(found, Head(), where, last=end.seq, end=end):
                good = Head(record.seq, record.digest, record.epoch)
            if good.seq > end.seq:
                raise Damaged(f"there are records after its last one, {end.seq}").about(*where)
    except LockstitchError as error:
        yield StoreFault(row.name, good.seq + 1, error.message)
    else:
        if good.epoch > row.head.epoch:
            yield StoreFault(row.name, good.seq, "its row has too low an epoch")
    yield listed(row)


def _blobs(readers: Readers) -> Iterator[StoreFault]:
    name = b""
    while True:
        try:
            with readers.snapshot() as connection:
                found = rows.next_blob(connection, name)
        except LockstitchError as error:
            yield StoreFault(
                "", 0, f"large values after {name.hex()} cannot be read: {error.message}"
            )
            return
        if found is None:
            return
        name, value = found
        if isinstance(value, Damaged):
            yield StoreFault("", 0, str(value))
        elif blob_name(value) != name.hex():
            message = f"the large value {name.hex()} is not what was written (checksum)"
            yield StoreFault("", 0, message)
