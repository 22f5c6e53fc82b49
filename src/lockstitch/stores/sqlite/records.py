"""The records of a session, through its forks, and whether they are what was written.

A fork's first records are those of another session, which are not copied: it names the number of
its source and how far its records are taken from there; the source may be a fork itself. The
records of a session that was removed stay under its number as long as a fork needs them, and no
further than it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lockstitch.errors import Damaged, LockstitchError, Where
from lockstitch.journal.records import Head, JournalRecord, blob_name, verify_chain
from lockstitch.stores.base import Listed, StoreFault
from lockstitch.stores.sqlite import pieces, rows
from lockstitch.stores.sqlite.connections import FORKS, Connection, Readers, version_of
from lockstitch.stores.sqlite.rows import SessionHeadRow


def records(
    connection: Connection, number: int, after: int, upto: int, where: Where
) -> Iterator[JournalRecord]:
    """Read a session's records from behind one to another, from wherever they are kept."""
    if version_of(connection) < FORKS:
        yield from rows.records(connection, number, after, upto, where)
        return
    start = 0
    for part, last in parts(connection, number, where):
        end = upto if last is None else min(last, upto)
        first = max(start, after)
        if first < end:
            # Of what is kept under one number, what an earlier version wrote comes first.
            older = rows.last_seq(connection, part)
            if first < older:
                yield from rows.records(connection, part, first, min(end, older), where)
                first = older
            if first < end:
                yield from pieces.records(connection, part, first, end, where)
        start = end


def parts(connection: Connection, number: int, where: Where) -> list[tuple[int, int | None]]:
    """List the numbers that hold a session's records, and how far each does, None to its end."""
    found: list[tuple[int, int | None]] = [(number, None)]
    if version_of(connection) < FORKS:
        return found
    seen = {number}
    while (link := _link(connection, number)) is not None:
        number, upto = link
        if number in seen:
            raise Damaged("its records are said to be those of a fork of itself").about(*where)
        seen.add(number)
        found.append((number, upto))
    return found[::-1]


def _link(connection: Connection, number: int) -> tuple[int, int] | None:
    row: tuple[int, int] | None = connection.execute(
        "select source, upto from forks where session = ?", (number,)
    ).fetchone()
    return row


def join(connection: Connection, number: int, source: int, upto: int) -> None:
    """Make the first records of a new session those of another one."""
    while (link := _link(connection, source)) is not None and upto <= link[1]:
        source = link[0]
    if upto:
        connection.execute(
            "insert into forks (session, source, upto) values (?, ?, ?)", (number, source, upto)
        )


def remove(connection: Connection, number: int) -> None:
    """Remove all records of a session that stays; forks keep what they need of them."""
    if not _needed(connection, number):
        source = _removed(connection, number)
        if source is not None:
            let_go(connection, source)
        return
    other = rows.spare_number(connection)
    pieces.move(connection, number, other)
    rows.move(connection, number, other)
    connection.execute("update forks set session = ? where session = ?", (other, number))
    connection.execute("update forks set source = ? where source = ?", (other, number))
    let_go(connection, other)


def let_go(connection: Connection, number: int | None) -> None:
    """Remove what no fork needs of the records of a session that is gone, if it is."""
    while number is not None and not rows.is_session(connection, number):
        needed = _needed(connection, number)
        if needed:
            pieces.cut(connection, number, needed)
            rows.cut(connection, number, needed)
            return
        number = _removed(connection, number)


def _removed(connection: Connection, number: int) -> int | None:
    """Remove all that is kept under a number; returns the number that it forked."""
    pieces.cut(connection, number, 0)
    rows.cut(connection, number, 0)
    link = _link(connection, number)
    connection.execute("delete from forks where session = ?", (number,))
    return None if link is None else link[0]


def _needed(connection: Connection, number: int) -> int:
    """How many of a number's records forks need."""
    [(upto,)] = connection.execute("select max(upto) from forks where source = ?", (number,))
    return upto or 0


def unneeded_numbers(connection: Connection) -> list[int]:
    """List the numbers that have records, or are forks, and that nobody needs."""
    found = rows.numbers(connection)
    known = {row[0] for row in connection.execute("select number from sessions")}
    if version_of(connection) >= FORKS:
        found |= pieces.numbers(connection)
        found |= {row[0] for row in connection.execute("select session from forks")}
        known |= {row[0] for row in connection.execute("select source from forks")}
    return sorted(found - known)


_MOST = 100


def verify(
    readers: Readers, listed: Callable[[SessionHeadRow], Listed]
) -> Iterator[StoreFault | Listed]:
    """Check the database, every session and every large value; see ``Backend.verify``."""
    yield from _answers(
        readers,
        lambda connection: [
            StoreFault("", 0, f"SQLite: {line}")
            for (line,) in connection.execute(f"pragma integrity_check({_MOST})")
            if line != "ok"
        ],
    )
    yield from _sessions(readers, listed)
    yield from _answers(
        readers,
        lambda connection: [
            StoreFault("", 0, f"there are records of session number {number}, which is gone")
            for number in unneeded_numbers(connection)
        ],
    )
    yield from _blobs(readers)


def _answers(
    readers: Readers, question: Callable[[Connection], list[StoreFault]]
) -> list[StoreFault]:
    try:
        with readers.snapshot() as connection:
            return question(connection)
    except LockstitchError as error:
        return [StoreFault("", 0, error.message)]


def _sessions(
    readers: Readers, listed: Callable[[SessionHeadRow], Listed]
) -> Iterator[StoreFault | Listed]:
    number = -(1 << 63)
    while True:
        try:
            with readers.snapshot() as connection:
                found = rows.sessions_from(connection, number, rows.CHUNK)
        except LockstitchError as error:
            yield StoreFault(
                "", 0, f"sessions behind number {number} cannot be listed: {error.message}"
            )
            return
        for raw in found:
            yield from _session(readers, raw, listed)
        if not found:
            return
        number = found[-1][0] + 1


def _session(
    readers: Readers, raw: Any, listed: Callable[[SessionHeadRow], Listed]
) -> Iterator[StoreFault | Listed]:
    where = Where(str(readers.path))
    try:
        row = rows.decode_session(raw, where)
    except Damaged as error:
        name = raw[1].decode("ascii", "replace") if isinstance(raw[1], bytes) else ""
        yield StoreFault(name, 0, error.message)
        if name:
            yield Listed(name, 0, 0, 0, 0)
        return
    good = Head()
    try:
        for record in _chain(readers, row):
            good = Head(record.seq, record.digest, record.epoch)
    except LockstitchError as error:
        yield StoreFault(row.name, good.seq + 1, error.message)
    else:
        if good.epoch > row.head.epoch:
            yield StoreFault(row.name, good.seq, "its row has too low an epoch")
    yield listed(row)


def _chain(readers: Readers, row: SessionHeadRow) -> Iterator[JournalRecord]:
    """Read a session anew: it may have gone on since it was listed."""
    where = Where(str(readers.path), row.name)
    with readers.snapshot() as connection:
        now = rows.session_numbered(connection, row.number, where)
        if now is None:
            return  # It was removed meanwhile.
        beyond = records(connection, row.number, 0, (1 << 63) - 1, where)
        last = 0
        for record in verify_chain(beyond, Head(), where, last=now.head.seq, end=now.head):
            last = record.seq
            yield record
        if last > now.head.seq:
            raise Damaged(f"there are records behind its last one, {now.head.seq}").about(*where)


def _blobs(readers: Readers) -> Iterator[StoreFault]:
    name = b""
    while True:
        try:
            with readers.snapshot() as connection:
                found = rows.next_blob(connection, name)
        except LockstitchError as error:
            yield StoreFault(
                "", 0, f"large values behind {name.hex()} cannot be read: {error.message}"
            )
            return
        if found is None:
            return
        name, value = found
        if isinstance(value, Damaged):
            yield StoreFault("", 0, str(value))
        elif blob_name(value) != name.hex():
            message = f"the large value {name.hex()} is not what was written (checksum)"
            yield StoreFault("", 0, message)
