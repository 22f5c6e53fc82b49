"""Records that are taken out of the database, and large values that nothing names any more."""

from __future__ import annotations

from collections.abc import Sequence

from lockstitch.errors import Fenced, Moved
from lockstitch.journal.records import NEW, Entry, Head, chained
from lockstitch.stores.sqlite import lineage, listing, pieces, rows
from lockstitch.stores.sqlite.appending import checked, weight, write
from lockstitch.stores.sqlite.connections import Connection
from lockstitch.stores.sqlite.leases import Hold


def removed(connection: Connection, hold: Hold, where: str) -> None:
    """Remove a session; its number is never given to another one."""
    _require_last(connection, hold, where)
    listing.forget(connection, hold.number)
    rows.remove_session(connection, hold.number)
    lineage.let_go(connection, hold.number)


def _require_last(connection: Connection, hold: Hold, where: str) -> Head:
    row = rows.session_numbered(connection, hold.number, where)
    if row is None or row.head.epoch != hold.epoch:
        raise Fenced(f"{where}: another writer took it over or removed it; nothing was written")
    return row.head


class Replacing:
    """Entries that take the place of all records of a session."""

    def __init__(
        self, hold: Hold, entries: Sequence[Entry], after: int, where: str, *, compress: bool
    ) -> None:
        self._hold = hold
        self._entries = entries
        self._after = after
        self._where = where
        self._compress = compress
        self._blobs = checked(entries, compress=compress)
        self.size = weight(entries, self._blobs)

    def run(self, connection: Connection, deadline: float) -> Head:
        """Write them, and remove what was there."""
        head = _require_last(connection, self._hold, self._where)
        if head.seq != self._after:
            raise Moved(
                f"{self._where} ends at record {head.seq}, not at {self._after}: read it again"
            )
        number, epoch = self._hold.number, self._hold.epoch
        records = chained(NEW, epoch, self._entries)
        last = records[-1] if records else None
        now = Head(last.seq, last.digest, epoch) if last else Head(0, NEW.digest, epoch)
        listing.forget(connection, number)
        lineage.remove(connection, number)
        move = rows.Move(number, self._after, now, last.at if last else 0, deadline)
        rows.move_head(connection, move)
        made = pieces.encoded(records)
        write(connection, number, made, self._blobs, compress=self._compress)
        listing.describe(connection, number, (entry.body for entry in self._entries))
        return now
