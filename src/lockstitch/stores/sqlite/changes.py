"""The changes that transactions make: entries are added, records deleted, sessions stored.

Leases.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from lockstitch.errors import Damaged, Fenced, Held, UsageError, Where
from lockstitch.journal.events import about_in
from lockstitch.journal.records import (
    NEW,
    START,
    Head,
    JournalEntry,
    blob_name,
    chain_entries,
    check_key,
)
from lockstitch.stores import leases
from lockstitch.stores.base import IncomingSession, are_there, moved, require_same
from lockstitch.stores.leases import now
from lockstitch.stores.sqlite import pieces, rows
from lockstitch.stores.sqlite.connections import Connection
from lockstitch.stores.sqlite.pieces import PieceTail
from lockstitch.stores.sqlite.rows import SessionHeadRow


class Hold(Struct):
    """A lease of ours; ``head`` is the end of its session after our last write.

    ``tail`` is the place for the record after the one with that digest, None if it has to be looked
    up.
    """

    number: int
    session: str
    epoch: int
    token: str
    generation: int
    head: Head
    tail: tuple[bytes, PieceTail] | None = None


class HeldLeases:
    """All leases taken through one store."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.me = leases.myself()
        self._guard = threading.Lock()
        # The leases, by token, that were not released or found to be taken over.
        self.held: dict[str, Hold] = {}
        self._given: set[str] = set()

    def add(self, hold: Hold) -> None:
        """Keep a lease that was taken."""
        with self._guard:
            self.held[hold.token] = hold
            self._given.add(hold.token)

    def live(self) -> list[Hold]:
        """Return the leases that are kept."""
        with self._guard:
            return list(self.held.values())

    def drop(self, token: str) -> Hold | None:
        """Stop keeping the lease with a token; return it if it was kept."""
        with self._guard:
            return self.held.pop(token, None)

    def forget(self, token: str) -> None:
        """Forget a lease that is no longer in the store."""
        with self._guard:
            self._given.discard(token)

    def drop_all(self) -> list[Hold]:
        """Stop keeping all leases; return them."""
        with self._guard:
            dropped, self.held = list(self.held.values()), {}
        return dropped

    def is_held(self, row: SessionHeadRow, generation: int) -> bool:
        """Whether a session's holder may still be alive."""
        holder = row.holder
        if holder is None:
            return False
        with self._guard:
            if holder.token in self._given:
                hold = self.held.get(holder.token)
                return hold is not None and hold.generation == generation
        # Processes of another boot cannot share a log with this one: they are gone, or on another
        # machine.
        is_elsewhere = holder.boot and self.me.boot and holder.boot != self.me.boot
        if is_elsewhere or leases.is_gone(holder):
            return False
        # A deadline further away than the length of the lease was set before the clock restarted.
        return 0 < row.deadline - leases.clock() <= row.term + 1


LARGEST = 512 * 1024 * 1024
# The head to continue from, the records, the rows written for them, and the last one's time.
Chain = tuple[Head, pieces.Encoded, int]


class CheckedEntries:
    """Entries to be written by a transaction, prepared as far as possible before it begins.

    ``size`` is how many bytes they and their large values add to the log. Raises ``UsageError`` for
    entries that must not be kept.
    """

    def __init__(self, entries: Sequence[JournalEntry], where: Where, *, compress: bool) -> None:
        self.entries = entries
        self.where = where
        self.compress = compress
        self.about = about_in(entry.body for entry in entries)
        self.blobs: list[rows.BlobRow] = []
        self.size = 0
        for index, entry in enumerate(entries):
            check_key(entry.key)
            if type(entry.at) is not int or not -(1 << 63) <= entry.at < 1 << 63:
                raise UsageError(
                    "an entry's time must be a whole number of milliseconds since 1970"
                )
            if b"\n" in entry.body:
                raise UsageError("an entry's body must be one line of JSON, without a line break")
            if max(len(entry.body), *map(len, entry.blobs), 0) > LARGEST:
                raise UsageError(f"an event or a large value may have at most {LARGEST} bytes")
            self.size += len(entry.body)
            for blob in entry.blobs:
                codec, body = rows.pack(blob, compress=compress)
                self.blobs.append((blob_name(blob), codec, body, index))
                self.size += len(body)

    def write(
        self,
        connection: Connection,
        number: int,
        made: pieces.Encoded,
        tail: pieces.PieceTail | None = None,
    ) -> pieces.PieceTail | None:
        """Write their records after the last one of a session; see ``write_records``."""
        tail = write_records(
            connection, number, made, self.blobs, compress=self.compress, tail=tail
        )
        if self.about is not None:
            rows.describe(connection, number, self.about)
        return tail


class Appending(CheckedEntries):
    """Entries to be appended under a lease."""

    def __init__(
        self,
        hold: Hold,
        entries: Sequence[JournalEntry],
        after: int,
        where: Where,
        *,
        compress: bool,
    ) -> None:
        super().__init__(entries, where, compress=compress)
        self.hold = hold
        self.after = after
        head, tail = hold.head, hold.tail
        self.chain = self._chain(head) if head.seq == after else None
        # If other threads have written under the lease meanwhile, the head differs and this is not
        # used.
        self.known = tail[1] if tail is not None and tail[0] == head.digest else None
        self.tail: tuple[bytes, pieces.PieceTail] | None = None

    def run(self, connection: Connection, deadline: float) -> Head:
        """Append the entries, or find them there.

        May be called again if the transaction was undone.
        """
        head = self.tail = None
        if self.chain is not None:
            head = self._written(connection, self.chain, deadline, self.known)
        return self._looked_up(connection, deadline) if head is None else head

    def _chain(self, head: Head) -> Chain:
        records = chain_entries(head, self.hold.epoch, self.entries)
        made = pieces.encode_records(records)
        if not records:
            return Head(head.seq, head.digest, self.hold.epoch), made, 0
        last = records[-1]
        return Head(last.seq, last.digest, self.hold.epoch), made, last.at

    def _written(
        self, connection: Connection, chain: Chain, deadline: float, known: pieces.PieceTail | None
    ) -> Head | None:
        head, made, at = chain
        number = self.hold.number
        if not rows.move_head(connection, number, self.after, head, at, deadline):
            return None
        tail = self.write(connection, number, made, known)
        self.tail = None if tail is None else (head.digest, tail)
        return head

    def _looked_up(self, connection: Connection, deadline: float) -> Head:
        row = rows.session_numbered(connection, self.hold.number, self.where)
        if row is None:
            raise Fenced("it was removed; nothing was written").about(*self.where)
        if row.head.epoch != self.hold.epoch:
            raise Fenced("another writer took it over; nothing was written").about(*self.where)
        if row.head.seq == self.after:
            head = self._written(connection, self._chain(row.head), deadline, None)
            if head is not None:
                return head
        elif row.head.seq == self.after + len(self.entries):
            end = row.head.seq
            behind = rows.records(connection, self.hold.number, self.after, end, self.where)
            if are_there(behind, self.entries, self.hold.epoch):
                return row.head
        raise moved(self.where, row.head.seq, self.after)


def write_records(  # noqa: PLR0913 - all that a write consists of
    connection: Connection,
    number: int,
    made: pieces.Encoded,
    blobs: Sequence[rows.BlobRow],
    *,
    compress: bool,
    tail: pieces.PieceTail | None = None,
) -> pieces.PieceTail | None:
    """Add records after the last one of a session, and the large values that they name.

    ``tail`` is the place for them, if known. Returns the place for the next ones, if known.
    """
    found = tail or pieces.tail_of(connection, number)
    tail = pieces.add(connection, found, made, compress=compress)
    if compress and tail.piece != found.piece:
        pieces.seal(connection, number)
        tail = None
    if blobs:
        rows.add_blobs(connection, number, made.first, blobs)
    return tail


def true_head(connection: Connection, row: rows.SessionHeadRow, where: Where) -> Head:
    """Return the head in a session's row; raise ``Damaged`` if its last record is not there."""
    seq, digest = row.head.seq, START
    if seq:
        last = list(rows.records(connection, row.number, seq - 1, seq, where))
        digest = last[0].digest if last else b""
    if digest != row.head.digest:
        raise Damaged(f"record {seq} is not what was written").about(*where)
    return row.head


# How many sessions to remember.
_KNOWN = 256
_SEEN = "select data_version, total_changes() from pragma_data_version"


class Tails:
    """The ends of the sessions that this connection has appended to, until anybody else writes.

    SQLite tells whether another connection has committed, and how many rows this one has changed.
    If neither has moved on, the last record of a session is the one that was written here.
    """

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._seen: Any = None
        self._known: OrderedDict[int, tuple[Head, pieces.PieceTail | None]] = OrderedDict()

    def find(
        self, connection: Connection, row: SessionHeadRow | None
    ) -> tuple[bool, pieces.PieceTail | None]:
        """Return whether a session certainly ends as its row says, and its next record's place."""
        seen = connection.execute(_SEEN).fetchone()
        if connection is not self._connection or seen != self._seen:
            self._known.clear()
        self._connection, self._seen = connection, seen
        head, tail = (None, None) if row is None else self._known.get(row.number, (None, None))
        return (True, tail) if row is not None and head == row.head else (False, None)

    def keep(
        self, connection: Connection, number: int, head: Head, tail: pieces.PieceTail | None
    ) -> None:
        """Remember the end of a session, in the transaction that has just appended to it."""
        self._seen = connection.execute(_SEEN).fetchone()
        self._known[number] = (head, tail)
        self._known.move_to_end(number)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)


def add_entries(  # noqa: PLR0913, PLR0917 - where to, and what is known of it
    connection: Connection,
    checked: CheckedEntries,
    session: str,
    after: Head,
    is_held: Callable[[SessionHeadRow], bool],
    tails: Tails,
) -> Head:
    """Add entries after ``after``; nothing is changed before everything was checked."""
    row = rows.session_named(connection, session, checked.where)
    if row is not None and is_held(row):
        assert row.holder is not None  # noqa: S101
        raise Held(f"it is held by {row.holder.label}").about(*checked.where)
    is_known, tail = tails.find(connection, row)
    if row is None:
        head = NEW
    else:
        head = row.head if is_known else true_head(connection, row, checked.where)
    require_same(head, after, session)
    if not checked.entries:
        return head
    # Replace a holder that is gone, so that it cannot come back.
    epoch = max(head.epoch, 1) + (row is not None and row.holder is not None)
    records = chain_entries(head, epoch, checked.entries)
    last = records[-1]
    end = Head(last.seq, last.digest, epoch)
    if row is None:
        number = rows.add_session(connection, session, end, now(), last.at)
    else:
        number = row.number
        rows.leave_at(connection, number, end, last.at)
    tail = checked.write(connection, number, pieces.encode_records(records), tail)
    tails.keep(connection, number, end, tail)
    return end


def remove_records(connection: Connection, hold: Hold, where: Where) -> None:
    """Delete a session; its number is never used again."""
    _require_last(connection, hold, where)
    rows.forget(connection, hold.number)
    rows.remove_session(connection, hold.number)
    rows.drop_unneeded(connection, hold.number)


def _require_last(connection: Connection, hold: Hold, where: Where) -> Head:
    row = rows.session_numbered(connection, hold.number, where)
    if row is None or row.head.epoch != hold.epoch:
        raise Fenced("another writer took it over or removed it; nothing was written").about(*where)
    return row.head


def replace_records(
    connection: Connection, checked: CheckedEntries, hold: Hold, after: int, deadline: float
) -> Head:
    """Replace all records of a session by entries."""
    head = _require_last(connection, hold, checked.where)
    if head.seq != after:
        raise moved(checked.where, head.seq, after)
    number, epoch = hold.number, hold.epoch
    records = chain_entries(NEW, epoch, checked.entries)
    last = records[-1] if records else None
    end = Head(last.seq, last.digest, epoch) if last else Head(0, START, epoch)
    rows.forget(connection, number)
    rows.remove(connection, number)
    rows.move_head(connection, number, after, end, last.at if last else 0, deadline)
    checked.write(connection, number, pieces.encode_records(records))
    return end


def receive_session(connection: Connection, incoming: IncomingSession, *, compress: bool) -> int:
    """Write a session that does not exist, one record at a time; return its size in bytes."""
    number = rows.add_session(connection, incoming.session, incoming.head, now(), incoming.changed)
    size = 0
    about = tail = None
    for record, values in incoming.pieces:
        blobs = [(blob_name(value), *rows.pack(value, compress=compress), 0) for value in values]
        made = pieces.encode_records([record])
        tail = write_records(connection, number, made, blobs, compress=compress, tail=tail)
        about = about_in([record.body]) or about
        size += len(record.body) + sum(map(len, values))
    if compress:
        pieces.seal(connection, number, last=True)
    rows.describe(connection, number, about)
    return size
