"""Entries on their way into a session."""

from __future__ import annotations

from collections.abc import Sequence

from lockstitch.errors import Fenced, Moved, UsageError
from lockstitch.journal.records import Entry, Head, blob_name, chained, checked_key
from lockstitch.stores.sqlite import listing, rows
from lockstitch.stores.sqlite.connections import Connection
from lockstitch.stores.sqlite.leases import Hold

LARGEST = 512 * 1024 * 1024


class Appending:
    """Entries to be added under a lease; what can be made ready before the commit is."""

    def __init__(
        self, hold: Hold, entries: Sequence[Entry], after: int, where: str, *, compress: bool
    ) -> None:
        self.hold = hold
        self.entries = entries
        self.after = after
        self.where = where
        self.compress = compress
        self.blobs = checked(entries, compress=compress)
        self.size = weight(entries, self.blobs)
        self.chain = self._chain(hold.head) if hold.head.seq == after else None

    def run(self, connection: Connection, deadline: float) -> Head:
        """Write them, or find that they are there."""
        head = None if self.chain is None else self._written(connection, *self.chain, deadline)
        return self._looked_up(connection, deadline) if head is None else head

    def _chain(self, head: Head) -> tuple[Head, list[rows.EventRow], int]:
        records = chained(head, self.hold.epoch, self.entries)
        if not records:
            return Head(head.seq, head.digest, self.hold.epoch), [], 0
        last = records[-1]
        made = rows.event_rows(self.hold.number, records, compress=self.compress)
        return Head(last.seq, last.digest, self.hold.epoch), made, last.at

    def _written(
        self,
        connection: Connection,
        head: Head,
        made: list[rows.EventRow],
        at: int,
        deadline: float,
    ) -> Head | None:
        move = rows.Move(self.hold.number, self.after, head, at, deadline)
        if not rows.move_head(connection, move):
            return None
        rows.add_events(connection, made)
        rows.add_blobs(connection, self.hold.number, self.blobs)
        listing.describe(connection, self.hold.number, (entry.body for entry in self.entries))
        return head

    def _looked_up(self, connection: Connection, deadline: float) -> Head:
        row = rows.session_numbered(connection, self.hold.number, self.where)
        if row is None:
            raise Fenced(f"{self.where}: it was removed; nothing was written")
        if row.head.epoch != self.hold.epoch:
            raise Fenced(f"{self.where}: another writer took it over; nothing was written")
        if row.head.seq == self.after:
            head = self._written(connection, *self._chain(row.head), deadline)
            if head is not None:
                return head
        elif self._are_there(connection, row.head):
            return row.head
        raise Moved(
            f"{self.where} ends at record {row.head.seq}, not at {self.after}: read it again"
        )

    def _are_there(self, connection: Connection, head: Head) -> bool:
        if not self.entries or head.seq != self.after + len(self.entries):
            return False
        found = rows.keys(connection, self.hold.number, self.after, head.seq)
        return found == [(self.hold.epoch, entry.key.encode("ascii")) for entry in self.entries]


def checked(entries: Sequence[Entry], *, compress: bool) -> list[rows.BlobRow]:
    """Make sure that entries can be kept; gives the rows of their large values."""
    for entry in entries:
        _check(entry)
    return [
        (blob_name(blob), *rows.packed(blob, compress=compress))
        for entry in entries
        for blob in entry.blobs
    ]


def weight(entries: Sequence[Entry], blobs: Sequence[rows.BlobRow]) -> int:
    """Count the bytes that entries add to the log."""
    return sum(len(entry.body) for entry in entries) + sum(len(blob[-1]) for blob in blobs)


def _check(entry: Entry) -> None:
    checked_key(entry.key)
    if type(entry.at) is not int or not -(1 << 63) <= entry.at < 1 << 63:
        raise UsageError("an entry's time is a whole number of milliseconds since 1970")
    if b"\n" in entry.body:
        raise UsageError("an entry's body is one line of JSON, without a line break")
    if max(len(entry.body), *map(len, entry.blobs), 0) > LARGEST:
        raise UsageError(f"an event or a large value has at most {LARGEST} bytes")
