"""Entries that are added without a lease, in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from lockstitch.errors import Held
from lockstitch.journal.records import NEW, Entry, Head, chained
from lockstitch.stores.base import require_same
from lockstitch.stores.sqlite import listing, pieces, rows
from lockstitch.stores.sqlite.appending import checked, true_head, weight, write
from lockstitch.stores.sqlite.connections import Connection
from lockstitch.stores.sqlite.rows import SessionRow


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

    def run(self, connection: Connection, is_held: Callable[[SessionRow], bool]) -> Head:
        """Write them; nothing is changed before all is known to be right."""
        row = rows.session_named(connection, self._session, self._where)
        if row is not None and is_held(row):
            assert row.holder is not None  # noqa: S101
            raise Held(f"{self._where} is held by {row.holder.label}")
        head = NEW if row is None else true_head(connection, row, self._where)
        require_same(head, self._after, self._session)
        # A holder that is gone is taken over, so that it cannot come back.
        epoch = max(head.epoch, 1) + (row is not None and row.holder is not None)
        return self._written(connection, row, head, epoch)

    def _written(
        self, connection: Connection, row: SessionRow | None, head: Head, epoch: int
    ) -> Head:
        records = chained(head, epoch, self._entries)
        if not records:
            return head
        last = records[-1]
        now = Head(last.seq, last.digest, epoch)
        if row is None:
            at = time.time_ns() // 1_000_000
            number = rows.add_session(connection, self._session, now, at, last.at)
        else:
            number = row.number
            rows.leave_at(connection, number, now, last.at)
        made = pieces.encoded(records)
        write(connection, number, made, self._blobs, compress=self._compress)
        listing.describe(connection, number, (entry.body for entry in self._entries))
        return now
