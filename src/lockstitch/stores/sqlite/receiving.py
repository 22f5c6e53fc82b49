"""A session of another store, taken in as it is."""

from __future__ import annotations

from lockstitch.journal.about import about_in
from lockstitch.journal.records import blob_name
from lockstitch.stores.base import Incoming
from lockstitch.stores.sqlite import listing, rows
from lockstitch.stores.sqlite.connections import Connection


def received(connection: Connection, incoming: Incoming, now: int, *, compress: bool) -> int:
    """Write a session that is not there, a record at a time; gives how many bytes it has."""
    number = rows.add_session(connection, incoming.session, incoming.head, now, incoming.changed)
    size = 0
    about = None
    for record, values in incoming.pieces:
        rows.add_events(connection, rows.event_rows(number, [record], compress=compress))
        blobs = [(blob_name(value), *rows.packed(value, compress=compress)) for value in values]
        rows.add_blobs(connection, number, blobs)
        about = about_in([record.body]) or about
        size += len(record.body) + sum(map(len, values))
    listing.describe(connection, number, [about] if about else [])
    return size
