"""All statements on the rows of the database, and what the rows mean; no decisions."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch.errors import Damaged, Where
from lockstitch.journal.events import About, about_of
from lockstitch.journal.records import DIGEST_SIZE, Head, JournalRecord
from lockstitch.stores.base import Listing
from lockstitch.stores.leases import Holder, read_holder
from lockstitch.stores.sqlite import pieces
from lockstitch.stores.sqlite.connections import (
    FORKS,
    MOST,
    MOST_OF_RECORDS,
    RATIO,
    Connection,
    Overfull,
    ask,
    inflate,
    overfull_error,
    version_of,
)

COMPRESSED = 1
SMALL = 512
CHUNK = 256
_LEVEL = 1

# Texts are read as bytes, because a flipped bit can make them impossible to decode.
_COLUMNS = (
    "s.number, cast(s.name as blob), s.seq, s.digest, s.epoch, s.created, s.changed,"
    " cast(s.holder as blob), s.deadline, s.term"
)
_SESSION = f"select {_COLUMNS} from sessions s"  # noqa: S608 - our own
# A number that no session ever has.
_NEXT_NUMBER = (
    "select max(coalesce((select max(number) from sessions), 0),"
    " coalesce((select max(number) from graves), 0)) + 1"
)
_RECORD = "select seq, epoch, cast(key as blob), at, body, digest, codec from events"
_RECORD_TYPES = (int, int, bytes, int, bytes, bytes, int)
_COLUMN_TYPES = [{kind} for kind in _RECORD_TYPES]

# The name of a large value, its codec and bytes, and which of the entries names it.
BlobRow = tuple[str, int, bytes, int]


class SessionHeadRow(Struct, frozen=True):
    """A row of ``sessions``."""

    number: int
    name: str
    head: Head
    created: int
    changed: int
    holder: Holder | None
    deadline: float
    term: float


def session_named(connection: Connection, name: str, where: Where) -> SessionHeadRow | None:
    """Return the row of the session with a name, or None."""
    row = connection.execute(f"{_SESSION} where name = ?", (name,)).fetchone()
    return None if row is None else decode_session(row, where)


def session_numbered(connection: Connection, number: int, where: Where) -> SessionHeadRow | None:
    """Return the row of the session with a number, or None."""
    row = connection.execute(f"{_SESSION} where number = ?", (number,)).fetchone()
    return None if row is None else decode_session(row, where)


def sessions_from(connection: Connection, number: int, count: int) -> list[Any]:
    """Return the next rows of ``sessions`` in the order of their numbers, not decoded."""
    query = f"{_SESSION} where number >= ? order by number limit ?"
    return connection.execute(query, (number, count)).fetchall()


def decode_session(row: Sequence[Any], where: Where) -> SessionHeadRow:
    """Return a decoded row of ``sessions``; raise ``Damaged`` if it makes no sense."""
    number, name, seq, digest, epoch, created, changed, holder, deadline, term = row
    is_right = (
        all(isinstance(value, int) for value in (number, seq, epoch, created, changed))
        and isinstance(name, bytes)
        and isinstance(digest, bytes)
        and len(digest) == DIGEST_SIZE
        and seq >= 0
    )
    if not is_right:
        shown = number if isinstance(number, int) else "unknown"
        raise Damaged(f"the row of session number {shown} is not what was written").about(*where)
    return SessionHeadRow(
        number,
        name.decode("ascii", "replace"),
        Head(seq, digest, epoch),
        created,
        changed,
        read_holder(holder) if isinstance(holder, bytes) else None,
        _number(deadline),
        _number(term),
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def add_session(connection: Connection, name: str, head: Head, created: int, changed: int) -> int:
    """Add a session without a holder; return its number."""
    cursor = connection.execute(
        "insert into sessions (number, name, seq, digest, epoch, created, changed)"
        f" {_NEXT_NUMBER}, ?, ?, ?, ?, ?, ?",
        (name, head.seq, head.digest, head.epoch, created, changed),
    )
    number = cursor.lastrowid
    assert number is not None  # noqa: S101
    return number


def take(  # noqa: PLR0913, PLR0917 - the columns of a row
    connection: Connection, number: int, epoch: int, holder: Holder, deadline: float, term: float
) -> None:
    """Give a session to a holder, under a new epoch."""
    connection.execute(
        "update sessions set epoch = ?, holder = ?, deadline = ?, term = ? where number = ?",
        (epoch, msgspec.json.encode(holder).decode("utf-8"), deadline, term, number),
    )


def give_back(connection: Connection, number: int, epoch: int) -> None:
    """Remove the holder of a session, if it is still the one of this epoch."""
    connection.execute(
        "update sessions set holder = null, deadline = null, term = null"
        " where number = ? and epoch = ?",
        (number, epoch),
    )


def keep(connection: Connection, number: int, epoch: int, deadline: float) -> bool:
    """Extend the deadline of a lease; return False if the session has another holder now."""
    cursor = connection.execute(
        "update sessions set deadline = ? where number = ? and epoch = ? and holder is not null",
        (deadline, number, epoch),
    )
    return cursor.rowcount == 1


def move_head(  # noqa: PLR0913, PLR0917 - the columns of a row
    connection: Connection, number: int, after: int, head: Head, changed: int, deadline: float
) -> bool:
    """Move a session's head on from ``after``; return False if head or holder are not as expected.

    ``changed`` is the time of its last record, 0 for none.
    """
    cursor = connection.execute(
        "update sessions set seq = ?, digest = ?, changed = coalesce(?, changed), deadline = ?"
        " where number = ? and epoch = ? and seq = ?",
        (head.seq, head.digest, changed or None, deadline, number, head.epoch, after),
    )
    return cursor.rowcount == 1


def leave_at(connection: Connection, number: int, head: Head, changed: int) -> None:
    """Set the head of a session that nobody holds."""
    connection.execute(
        "update sessions set seq = ?, digest = ?, epoch = ?, changed = ?, holder = null,"
        " deadline = null, term = null where number = ?",
        (head.seq, head.digest, head.epoch, changed, number),
    )


def cut_older(connection: Connection, number: int, upto: int) -> None:
    """Delete the records after one, and their large values, in the format of an earlier version."""
    connection.execute("delete from events where session = ? and seq > ?", (number, upto))
    # If it is unknown which record names a value, the first one may.
    least = upto or -1
    connection.execute(
        "delete from blobs where name in (select name from uses where session = ? and seq > ?)"
        " and name not in (select name from uses where session <> ? or seq <= ?)",
        (number, least, number, least),
    )
    connection.execute("delete from uses where session = ? and seq > ?", (number, least))


def remove_session(connection: Connection, number: int) -> None:
    """Delete the row of a session, and remember that its number was used."""
    connection.execute("delete from sessions where number = ?", (number,))
    connection.execute("update graves set number = max(number, ?)", (number,))


def older_records(
    connection: Connection, number: int, after: int, upto: int, where: Where
) -> Iterator[JournalRecord]:
    """Yield records between two numbers, in the format of an earlier version, in chunks."""
    cursor = connection.execute(
        f"{_RECORD} where session = ? and seq > ? and seq <= ? order by seq", (number, after, upto)
    )
    while rows := cursor.fetchmany(CHUNK):
        # If one is not valid, decode one by one up to it.
        one_by_one = (_record(row, seq, where) for seq, row in enumerate(rows, after + 1))
        yield from _plain(rows) or one_by_one
        after += len(rows)


def _plain(rows: Sequence[Sequence[Any]]) -> list[JournalRecord] | None:
    """Return records for rows, decoded by column; None if any of the rows is not valid."""
    columns = tuple(zip(*rows, strict=True))
    if [{*map(type, column)} for column in columns] != _COLUMN_TYPES:
        return None
    seqs, epochs, keys, ats, bodies, digests, codecs = columns
    if any(codecs):
        # One by one, because together they may exceed the limit.
        return None
    names = map(bytes.decode, keys, repeat("ascii"))
    try:
        return list(map(JournalRecord, seqs, epochs, names, ats, bodies, digests))
    except ValueError:
        return None


def _record(row: Sequence[Any], expected: int, where: Where) -> JournalRecord:
    try:
        if tuple(map(type, row)) != _RECORD_TYPES:
            raise Damaged(f"record {expected} is not what was written (types)").about(*where)
        seq, epoch, key, at, body, digest, codec = row
        return JournalRecord(seq, epoch, key.decode("ascii"), at, unpack(codec, body), digest)
    except Overfull as error:
        raise overfull_error(where, f"record {expected}", error.args[0]) from None
    except (ValueError, zlib.error):
        raise Damaged(f"record {expected} is not what was written (form)").about(*where) from None


# A fork does not copy its first records: it names the number of its source, and how far the
# source's records are shared. The source may be a fork itself. The records of a deleted session
# stay under its number as far and as long as a fork needs them.


def records(
    connection: Connection, number: int, after: int, upto: int, where: Where
) -> Iterator[JournalRecord]:
    """Yield a session's records between two numbers, wherever they are stored."""
    if version_of(connection) < FORKS:
        yield from older_records(connection, number, after, upto, where)
        return
    start = 0
    for part, last in parts(connection, number, where):
        end = upto if last is None else min(last, upto)
        first = max(start, after)
        if first < end:
            # Under each number, the records of an earlier version come first.
            older = ask(connection, "select max(seq) from events where session = ?", part)
            older = older if isinstance(older, int) else 0
            if first < older:
                yield from older_records(connection, part, first, min(end, older), where)
                first = older
            if first < end:
                yield from pieces.records(connection, part, first, end, where)
        start = end


def parts(connection: Connection, number: int, where: Where) -> list[tuple[int, int | None]]:
    """Return the numbers that hold a session's records, and how far each does, None for the end."""
    found: list[tuple[int, int | None]] = [(number, None)]
    if version_of(connection) < FORKS:
        return found
    seen = {number}
    while (link := _link(connection, number)) is not None:
        number, upto = link
        if number in seen:
            raise Damaged("its records claim to be those of a fork of itself").about(*where)
        seen.add(number)
        found.append((number, upto))
    return found[::-1]


def _link(connection: Connection, number: int) -> tuple[int, int] | None:
    row: tuple[int, int] | None = connection.execute(
        "select source, upto from forks where session = ?", (number,)
    ).fetchone()
    return row


def join(connection: Connection, number: int, source: int, upto: int) -> None:
    """Share the first records of another session with a new one."""
    while (link := _link(connection, source)) is not None and upto <= link[1]:
        source = link[0]
    if upto:
        connection.execute(
            "insert into forks (session, source, upto) values (?, ?, ?)", (number, source, upto)
        )


def remove(connection: Connection, number: int) -> None:
    """Delete all records of a session that stays; its forks keep what they need."""
    if not _needed(connection, number):
        source = _removed(connection, number)
        if source is not None:
            drop_unneeded(connection, source)
        return
    # Move what forks need to a number that no session ever has.
    other = int(ask(connection, _NEXT_NUMBER))
    connection.execute("update graves set number = ?", (other,))
    pieces.move(connection, number, other)
    for table in ("events", "uses", "forks"):
        query = f"update {table} set session = ? where session = ?"  # noqa: S608 - our own
        connection.execute(query, (other, number))
    connection.execute("update forks set source = ? where source = ?", (other, number))
    drop_unneeded(connection, other)


def drop_unneeded(connection: Connection, number: int | None) -> None:
    """Delete the records that no fork needs, if their session is gone."""
    query = "select 1 from sessions where number = ?"
    while number is not None and ask(connection, query, number) is None:
        needed = _needed(connection, number)
        if needed:
            pieces.cut(connection, number, needed)
            cut_older(connection, number, needed)
            return
        number = _removed(connection, number)


def _removed(connection: Connection, number: int) -> int | None:
    """Delete everything stored under a number; return the number that it was a fork of."""
    pieces.cut(connection, number, 0)
    cut_older(connection, number, 0)
    link = _link(connection, number)
    connection.execute("delete from forks where session = ?", (number,))
    return None if link is None else link[0]


def _needed(connection: Connection, number: int) -> int:
    """Return how many of a number's records forks need."""
    return ask(connection, "select max(upto) from forks where source = ?", number) or 0


def unneeded_numbers(connection: Connection) -> list[int]:
    """Return the numbers that have records or are forks, and that nobody needs."""
    found = {row[0] for row in connection.execute("select distinct session from events")}
    known = {row[0] for row in connection.execute("select number from sessions")}
    if version_of(connection) >= FORKS:
        found |= pieces.numbers(connection)
        found |= {row[0] for row in connection.execute("select session from forks")}
        known |= {row[0] for row in connection.execute("select source from forks")}
    return sorted(found - known)


def add_blobs(connection: Connection, number: int, first: int, blobs: Iterable[BlobRow]) -> None:
    """Store the large values that records of a session name, beginning with number ``first``.

    A value that exists already is not written again if it is intact.
    """
    for name, codec, body, index in blobs:
        key = bytes.fromhex(name)
        row = connection.execute("select codec, body from blobs where name = ?", (key,)).fetchone()
        if row != (codec, body):
            connection.execute(
                "insert or replace into blobs (name, codec, body) values (?, ?, ?)",
                (key, codec, body),
            )
        connection.execute(
            "insert or ignore into uses (name, session, seq) values (?, ?, ?)",
            (key, number, first + index),
        )


def blob(connection: Connection, name: str) -> bytes | None:
    """Return a stored large value; None if it does not exist or makes no sense."""
    try:
        key = bytes.fromhex(name)
    except ValueError:
        return None
    row = connection.execute("select codec, body from blobs where name = ?", (key,)).fetchone()
    return None if row is None else _value(row[0], row[1], name)


def blob_size(connection: Connection, name: str) -> int | None:
    """Return the length of a large value that is stored uncompressed; None if it is not known."""
    query = "select length(body) from blobs where name = ? and codec = 0"
    size: int | None = ask(connection, query, bytes.fromhex(name))
    return size


def blob_ends(
    connection: Connection, name: str, head: int, tail: int
) -> tuple[bytes, bytes] | None:
    """Return both ends of a large value that is stored uncompressed; None if there is none."""
    # substr() would also read the entire value, and twice
    query = "select body from blobs where name = ? and codec = 0"
    body: bytes | None = ask(connection, query, bytes.fromhex(name))
    return None if body is None else (body[:head], body[len(body) - tail :])


def next_blob(connection: Connection, after: bytes) -> tuple[bytes, bytes | Damaged] | None:
    """Return the next large value in the order of names, or why it cannot be read."""
    row = connection.execute(
        "select cast(name as blob), codec, body from blobs where name > ? order by name limit 1",
        (after,),
    ).fetchone()
    if row is None:
        return None
    name, codec, body = row
    try:
        return name or b"", _value(codec, body, (name or b"").hex())
    except Damaged as error:
        return name or b"", error


def _value(codec: object, body: object, name: str) -> bytes:
    """Return a value unpacked, or as it is if it cannot be: its checksum will not match then."""
    if not isinstance(codec, int) or not isinstance(body, bytes):
        return b""
    try:
        return unpack(codec, body, MOST)
    except Overfull as error:
        raise overfull_error(Where(), f"the large value {name}", error.args[0]) from None
    except (ValueError, zlib.error):
        return body


def pack(body: bytes, *, compress: bool) -> tuple[int, bytes]:
    """Compress a body if that is wanted and saves space; return the codec and the bytes."""
    if compress and len(body) >= SMALL:
        small = zlib.compress(body, _LEVEL)
        if len(small) < len(body):
            return COMPRESSED, small
    return 0, body


def unpack(codec: int, body: bytes, most: int = MOST_OF_RECORDS) -> bytes:
    """Undo :func:`pack`.

    Raise ``Overfull`` above a limit, which grows with the size of the body.
    """
    if codec == COMPRESSED:
        return inflate(body, max(most, len(body) * RATIO))
    if codec:
        raise ValueError("unknown codec")
    return body


# The version that stores descriptions beside the sessions.
_VERSION = 4


def describe(connection: Connection, number: int, body: bytes | None) -> None:
    """Store the last description of their session among new records, if there is one."""
    if body is None:
        return
    _drop_labels(connection, number)
    connection.execute("update sessions set about = ? where number = ?", (body, number))
    for tag in about_of(body).tags:
        connection.execute(
            "insert or replace into labels (tag, name, session)"
            " select ?, name, number from sessions where number = ?",
            (tag, number),
        )


def forget(connection: Connection, number: int) -> None:
    """Delete the description of a session whose records are about to be deleted."""
    _drop_labels(connection, number)
    connection.execute(
        "update sessions set about = null where number = ? and about is not null", (number,)
    )


def _drop_labels(connection: Connection, number: int) -> None:
    query = "select name, about from sessions where number = ? and about is not null"
    for name, body in connection.execute(query, (number,)).fetchall():
        for tag in about_of(body).tags:
            connection.execute("delete from labels where tag = ? and name = ?", (tag, name))


def page(connection: Connection, listing: Listing, count: int) -> list[tuple[Any, About]]:
    """Return the next rows of ``sessions``, not decoded, each with the session's description.

    A store of an older version that may not be written is listed without descriptions.
    """
    is_new = version_of(connection) >= _VERSION
    if listing.tag and not is_new:
        return []
    try:
        rows = connection.execute(*_query(listing, count, is_new=is_new)).fetchall()
    except sqlite3.DatabaseError:
        # do not use a damaged index
        query = _query(listing, count, is_new=is_new, past=" not indexed")
        rows = connection.execute(*query).fetchall()
    rows = [row for row in rows if isinstance(row[1], bytes)]
    return [(row[:-1], about_of(row[-1] if isinstance(row[-1], bytes) else None)) for row in rows]


def _query(
    listing: Listing, count: int, *, is_new: bool, past: str = ""
) -> tuple[str, tuple[Any, ...]]:
    minute = "s.minute" if is_new else "(s.changed >> 16)"
    about = "s.about" if is_new else "null"
    select = f"select {_COLUMNS}, {about} from sessions s{past}"  # noqa: S608
    where = "s.changed > ?"
    values: tuple[Any, ...] = (listing.since,)
    if listing.tag:
        select += " join labels l on l.session = s.number"
        where, values = f"{where} and l.tag = ?", (*values, listing.tag)
    if not listing.newest:
        name = "l.name" if listing.tag else "s.name"
        values = (*values, listing.name, count)
        return f"{select} where {where} and {name} > ? order by {name} limit ?", values
    place = f"{minute} <= ? and {minute} >= ? and (s.changed < ? or (s.changed = ? and s.name > ?))"
    minutes = (listing.changed >> 16, listing.since >> 16)
    values = (*values, *minutes, listing.changed, listing.changed, listing.name, count)
    order = f"{minute} desc, s.changed desc, s.name"
    return f"{select} where {where} and {place} order by {order} limit ?", values
