"""Entries on their way into a session."""

from __future__ import annotations

from collections.abc import Sequence

from lockstitch.errors import Damaged, Fenced, Moved, UsageError
from lockstitch.journal.records import START, Entry, Head, blob_name, chained, checked_key
from lockstitch.stores.sqlite import lineage, listing, pieces, rows
from lockstitch.stores.sqlite.connections import Connection
from lockstitch.stores.sqlite.leases import Hold

LARGEST = 512 * 1024 * 1024
# Where records lead to, what is written of them, and the time of the last one.
Chain = tuple[Head, pieces.Encoded, int]


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
        head, tail = hold.head, hold.tail
        self.chain = self._chain(head) if head.seq == after else None
        # Other threads may have written under the lease meanwhile: it is that of this head or none.
        self.known = tail[1] if tail is not None and tail[0] == head.digest else None
        self.tail: tuple[bytes, pieces.Tail] | None = None

    def run(self, connection: Connection, deadline: float) -> Head:
        """Write them, or find that they are there; it may be called again if that did not count."""
        head = self.tail = None
        if self.chain is not None:
            head = self._written(connection, self.chain, deadline, self.known)
        return self._looked_up(connection, deadline) if head is None else head

    def _chain(self, head: Head) -> Chain:
        records = chained(head, self.hold.epoch, self.entries)
        made = pieces.encoded(records)
        if not records:
            return Head(head.seq, head.digest, self.hold.epoch), made, 0
        last = records[-1]
        return Head(last.seq, last.digest, self.hold.epoch), made, last.at

    def _written(
        self, connection: Connection, chain: Chain, deadline: float, known: pieces.Tail | None
    ) -> Head | None:
        head, made, at = chain
        move = rows.Move(self.hold.number, self.after, head, at, deadline)
        if not rows.move_head(connection, move):
            return None
        tail = write(
            connection, self.hold.number, made, self.blobs, compress=self.compress, tail=known
        )
        self.tail = None if tail is None else (head.digest, tail)
        listing.describe(connection, self.hold.number, (entry.body for entry in self.entries))
        return head

    def _looked_up(self, connection: Connection, deadline: float) -> Head:
        row = rows.session_numbered(connection, self.hold.number, self.where)
        if row is None:
            raise Fenced(f"{self.where}: it was removed; nothing was written")
        if row.head.epoch != self.hold.epoch:
            raise Fenced(f"{self.where}: another writer took it over; nothing was written")
        if row.head.seq == self.after:
            head = self._written(connection, self._chain(row.head), deadline, None)
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
        found = lineage.records(connection, self.hold.number, self.after, head.seq, self.where)
        sent = [(self.hold.epoch, entry.key) for entry in self.entries]
        return [(record.epoch, record.key) for record in found] == sent


def checked(entries: Sequence[Entry], *, compress: bool) -> list[rows.BlobRow]:
    """Make sure that entries can be kept; gives the rows of their large values."""
    for entry in entries:
        _check(entry)
    return [
        (blob_name(blob), *rows.packed(blob, compress=compress), index)
        for index, entry in enumerate(entries)
        for blob in entry.blobs
    ]


def write(  # noqa: PLR0913 - all that a write consists of
    connection: Connection,
    number: int,
    made: pieces.Encoded,
    blobs: Sequence[rows.BlobRow],
    *,
    compress: bool,
    tail: pieces.Tail | None = None,
) -> pieces.Tail | None:
    """Add records and the large values that they name behind a session's last one.

    ``tail`` is where they go, if that is known; gives where the next ones go.
    """
    found = tail or pieces.tail_of(connection, number)
    tail = pieces.add(connection, found, made, compress=compress)
    if compress and tail.piece != found.piece:
        pieces.seal(connection, number)
        tail = None
    if blobs:
        rows.add_blobs(connection, number, made.first, blobs)
    return tail


def true_head(connection: Connection, row: rows.SessionRow, where: str) -> Head:
    """Give a session's head if its last record is there: nothing is built on what is not."""
    seq, digest = row.head.seq, START
    if seq:
        last = list(lineage.records(connection, row.number, seq - 1, seq, where))
        digest = last[0].digest if last else b""
    if digest != row.head.digest:
        raise Damaged(f"{where}: record {seq} is not what was written")
    return row.head


def weight(entries: Sequence[Entry], blobs: Sequence[rows.BlobRow]) -> int:
    """Count the bytes that entries add to the log."""
    return sum(len(entry.body) for entry in entries) + sum(len(blob[2]) for blob in blobs)


def _check(entry: Entry) -> None:
    checked_key(entry.key)
    if type(entry.at) is not int or not -(1 << 63) <= entry.at < 1 << 63:
        raise UsageError("an entry's time is a whole number of milliseconds since 1970")
    if b"\n" in entry.body:
        raise UsageError("an entry's body is one line of JSON, without a line break")
    if max(len(entry.body), *map(len, entry.blobs), 0) > LARGEST:
        raise UsageError(f"an event or a large value has at most {LARGEST} bytes")
