"""A session of another store, taken in as it is."""

from __future__ import annotations

from lockstitch.journal.about import about_in
from lockstitch.journal.records import blob_name
from lockstitch.stores.base import Incoming
from lockstitch.stores.sqlite import listing, pieces, rows
from lockstitch.stores.sqlite.appending import write
from lockstitch.stores.sqlite.connections import Connection


def received(connection: Connection, incoming: Incoming, now: int, *, compress: bool) -> int:
    """Write a session that is not there, a record at a time; gives how many bytes it has."""
    number = rows.add_session(connection, incoming.session, incoming.head, now, incoming.changed)
    size = 0
    about = tail = None
    for record, values in incoming.pieces:
        blobs = [(blob_name(value), *rows.packed(value, compress=compress), 0) for value in values]
        made = pieces.encoded([record])
        tail = write(connection, number, made, blobs, compress=compress, tail=tail)
        about = about_in([record.body]) or about
        size += len(record.body) + sum(map(len, values))
    if compress:
        pieces.seal(connection, number, last=True)
    listing.describe(connection, number, [about] if about else [])
    return size
