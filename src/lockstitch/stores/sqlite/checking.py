"""Whether what is in the database is what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lockstitch.errors import Damaged, LockstitchError
from lockstitch.journal.records import Head, Record, blob_name, verified
from lockstitch.stores.base import Fault, Listed
from lockstitch.stores.sqlite import lineage, rows
from lockstitch.stores.sqlite.connections import Connection
from lockstitch.stores.sqlite.reading import Readers
from lockstitch.stores.sqlite.rows import SessionRow

_MOST = 100


def whole(
    records: Iterable[Record], after: Head, last: int, head: Head, where: str
) -> Iterator[Record]:
    """Pass records on; raises ``Damaged`` if they end before the last, or not as the head says."""
    seq, digest = after.seq, after.digest
    for record in records:
        seq, digest = record.seq, record.digest
        yield record
    if seq < last:
        raise Damaged(f"{where}: record {seq + 1} is missing")
    if seq == head.seq and digest != head.digest:
        raise Damaged(f"{where}: record {seq} is not the one that the session ends with")


def verify(readers: Readers, listed: Callable[[SessionRow], Listed]) -> Iterator[Fault | Listed]:
    """Check the database, every session and every large value; see ``Backend.verify``."""
    yield from _answers(readers, _integrity)
    yield from _sessions(readers, listed)
    yield from _answers(readers, _strays)
    yield from _blobs(readers)


def _answers(readers: Readers, question: Callable[[Connection], list[Fault]]) -> list[Fault]:
    try:
        with readers.snapshot() as connection:
            return question(connection)
    except LockstitchError as error:
        return [Fault("", 0, str(error))]


def _integrity(connection: Connection) -> list[Fault]:
    found = connection.execute(f"pragma integrity_check({_MOST})").fetchall()
    return [Fault("", 0, f"SQLite: {line}") for (line,) in found if line != "ok"]


def _strays(connection: Connection) -> list[Fault]:
    return [
        Fault("", 0, f"there are records of session number {number}, which is gone")
        for number in lineage.strays(connection)
    ]


def _sessions(readers: Readers, listed: Callable[[SessionRow], Listed]) -> Iterator[Fault | Listed]:
    number = -(1 << 63)
    while True:
        try:
            with readers.snapshot() as connection:
                found = rows.sessions_from(connection, number, rows.CHUNK)
        except LockstitchError as error:
            yield Fault("", 0, f"sessions behind number {number} cannot be listed: {error}")
            return
        for raw in found:
            yield from _session(readers, raw, listed)
        if not found:
            return
        number = found[-1][0] + 1


def _session(
    readers: Readers, raw: Any, listed: Callable[[SessionRow], Listed]
) -> Iterator[Fault | Listed]:
    where = str(readers.path)
    try:
        row = rows.decoded_session(raw, where)
    except Damaged as error:
        name = raw[1].decode("ascii", "replace") if isinstance(raw[1], bytes) else ""
        yield Fault(name, 0, str(error))
        if name:
            yield Listed(name, 0, 0, 0, 0)
        return
    good = Head()
    try:
        for record in _chain(readers, row):
            good = Head(record.seq, record.digest, record.epoch)
    except LockstitchError as error:
        yield Fault(row.name, good.seq + 1, str(error))
    else:
        if good.epoch > row.head.epoch:
            yield Fault(row.name, good.seq, f"{where}: session {row.name} has too low an epoch")
    yield listed(row)


def _chain(readers: Readers, row: SessionRow) -> Iterator[Record]:
    """Read a session anew: it may have gone on since it was listed."""
    where = f"{readers.path}: session {row.name}"
    with readers.snapshot() as connection:
        now = rows.session_numbered(connection, row.number, where)
        if now is None:
            return  # It was removed meanwhile.
        beyond = lineage.records(connection, row.number, 0, (1 << 63) - 1, where)
        last = 0
        for record in whole(verified(beyond, Head(), where), Head(), now.head.seq, now.head, where):
            last = record.seq
            yield record
        if last > now.head.seq:
            raise Damaged(f"{where}: there are records behind its last one, {now.head.seq}")


def _blobs(readers: Readers) -> Iterator[Fault]:
    name = b""
    while True:
        try:
            with readers.snapshot() as connection:
                found = rows.next_blob(connection, name)
        except LockstitchError as error:
            yield Fault("", 0, f"large values behind {name.hex()} cannot be read: {error}")
            return
        if found is None:
            return
        name, value = found
        if isinstance(value, Damaged):
            yield Fault("", 0, str(value))
        elif blob_name(value) != name.hex():
            told = f"the large value {name.hex()} is not what was written (checksum)"
            yield Fault("", 0, told)
