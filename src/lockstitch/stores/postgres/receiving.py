"""A session of another store, taken in as it is: many statements, one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import psycopg

from lockstitch.errors import LockstitchError, Unsure
from lockstitch.journal.records import Head, Record, blob_name
from lockstitch.stores.base import Incoming
from lockstitch.stores.postgres import errors
from lockstitch.stores.postgres import statements as sql
from lockstitch.stores.postgres.connections import Connection
from lockstitch.stores.postgres.pool import SLOW, Pool
from lockstitch.stores.postgres.reading import CHUNK, CHUNK_BYTES

Piece = tuple[Record, tuple[bytes, ...]]


def received(pool: Pool, incoming: Incoming) -> None:
    """Write a session that is not there; one that came at the same moment raises ``Held``."""
    where = f"session {incoming.session}"
    try:
        with pool.connection(pool.timeout * SLOW) as connection, connection.transaction():
            _write(connection, incoming)
    except psycopg.Error as error:
        problem: LockstitchError = Unsure(
            f"{where}: the connection was lost while it was copied; it is there as a whole or not"
            " at all: copy it again"
        )
        if errors.is_rolled_back(error):
            problem = errors.translated(error, where)
    else:
        return
    raise problem


def _write(connection: Connection, incoming: Incoming) -> None:
    head = incoming.head
    connection.execute(sql.DURABLY)
    values = (incoming.session, head.seq, head.digest, head.epoch, incoming.changed)
    row = connection.execute(sql.RECEIVE, values).fetchone()
    if row is None:
        # Another writer was quicker.
        for seq, digest, epoch, *_ in connection.execute(sql.HEAD, (incoming.session,)):
            incoming.is_there(Head(seq, bytes(digest), epoch))
        return
    (number,) = row
    for group in _groups(incoming.pieces):
        records = [record for record, _ in group]
        columns = [
            [record.seq for record in records],
            [record.epoch for record in records],
            [record.key for record in records],
            [record.at for record in records],
            [record.body for record in records],
            [record.digest for record in records],
        ]
        blobs = sorted({blob_name(value): value for _, values in group for value in values}.items())
        if blobs:
            connection.execute(
                sql.KEEP, (number, [name for name, _ in blobs], [value for _, value in blobs])
            )
        connection.execute(sql.RECORDS, (number, *columns))


def _groups(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    group: list[Piece] = []
    weight = 0
    for record, values in pieces:
        group.append((record, values))
        weight += len(record.body) + sum(map(len, values))
        if weight >= CHUNK_BYTES or len(group) >= CHUNK:
            yield group
            group, weight = [], 0
    if group:
        yield group
