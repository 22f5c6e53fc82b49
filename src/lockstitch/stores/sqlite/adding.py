"""Entries that are added without a lease, in one transaction."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from lockstitch.errors import Held
from lockstitch.journal.records import NEW, Entry, Head, chained
from lockstitch.stores.base import require_same
from lockstitch.stores.sqlite import listing, pieces, rows
from lockstitch.stores.sqlite.appending import checked, true_head, weight, write
from lockstitch.stores.sqlite.connections import Connection
from lockstitch.stores.sqlite.rows import SessionRow

# So many sessions.
_KNOWN = 256
_SEEN = "select data_version, total_changes() from pragma_data_version"


class Tails:
    """Where the sessions end that this connection has added to, as long as nobody else wrote.

    SQLite tells whether another connection has committed anything, and how many rows this one has
    changed: if it is neither, the last record of a session is the one that was written here.
    """

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._seen: Any = None
        self._known: OrderedDict[int, tuple[Head, pieces.Tail | None]] = OrderedDict()

    def find(
        self, connection: Connection, row: SessionRow | None
    ) -> tuple[bool, pieces.Tail | None]:
        """Tell whether a session surely ends as its row says, and where its next record goes."""
        seen = connection.execute(_SEEN).fetchone()
        if connection is not self._connection or seen != self._seen:
            self._known.clear()
        self._connection, self._seen = connection, seen
        head, tail = (None, None) if row is None else self._known.get(row.number, (None, None))
        return (True, tail) if row is not None and head == row.head else (False, None)

    def keep(
        self, connection: Connection, number: int, head: Head, tail: pieces.Tail | None
    ) -> None:
        """Know where a session ends that was added to just now, in the same transaction."""
        self._seen = connection.execute(_SEEN).fetchone()
        self._known[number] = (head, tail)
        self._known.move_to_end(number)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)


class Adding:
    """Entries to be added behind ``after`` by nobody in particular."""

    def __init__(
        self, session: str, entries: Sequence[Entry], after: Head, where: str, *, compress: bool
    ) -> None:
        self._session = session
        self._entries = entries
        self._after = after
        self._where = where
        self._compress = compress
        self._blobs = checked(entries, compress=compress)
        self.size = weight(entries, self._blobs)

    def run(
        self, connection: Connection, is_held: Callable[[SessionRow], bool], tails: Tails
    ) -> Head:
        """Write them; nothing is changed before all is known to be right."""
        row = rows.session_named(connection, self._session, self._where)
        if row is not None and is_held(row):
            assert row.holder is not None  # noqa: S101
            raise Held(f"{self._where} is held by {row.holder.label}")
        is_known, tail = tails.find(connection, row)
        if row is None:
            head = NEW
        else:
            head = row.head if is_known else true_head(connection, row, self._where)
        require_same(head, self._after, self._session)
        if not self._entries:
            return head
        # A holder that is gone is taken over, so that it cannot come back.
        epoch = max(head.epoch, 1) + (row is not None and row.holder is not None)
        number, now, tail = self._written(connection, row, head, epoch, tail)
        tails.keep(connection, number, now, tail)
        return now

    def _written(
        self,
        connection: Connection,
        row: SessionRow | None,
        head: Head,
        epoch: int,
        tail: pieces.Tail | None,
    ) -> tuple[int, Head, pieces.Tail | None]:
        records = chained(head, epoch, self._entries)
        last = records[-1]
        now = Head(last.seq, last.digest, epoch)
        if row is None:
            at = time.time_ns() // 1_000_000
            number = rows.add_session(connection, self._session, now, at, last.at)
        else:
            number = row.number
            rows.leave_at(connection, number, now, last.at)
        made = pieces.encoded(records)
        tail = write(connection, number, made, self._blobs, compress=self._compress, tail=tail)
        listing.describe(connection, number, (entry.body for entry in self._entries))
        return number, now, tail
