"""Store the records of a session as one sequence of bytes, cut into pieces that fill pages.

One row for each record would leave gaps: on pages of 8 KB, a record of a little more than 4 KB
fills half a page. So a record continues in the next piece where a page ends. The last piece of a
session grows in place with every append. That costs no more than a new row, because a commit writes
whole pages either way.

A record consists of a head and its body. Most records have the short head: a tag, epoch, length,
time, checksum and a key of 24 hexadecimal digits, 39 bytes. If anything does not fit, there is a
long one.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from struct import Struct
from typing import Any

import msgspec

from lockstitch.errors import Damaged, Where
from lockstitch.journal.records import JournalRecord
from lockstitch.stores.sqlite.connections import (
    DENSEST,
    MOST_OF_RECORDS,
    RATIO,
    Connection,
    Overfull,
    ask,
    inflate,
    overfull_error,
)

PACKED = 1
# How many pieces are merged into one when records are kept compressed.
SEALED = 32
_LEVEL = 6
_SHIFT = 24
_LAST = (1 << _SHIFT) - 1
# The bytes of a page that are not the body of a piece: the head of the page and that of the row.
_HEAD = 64
_BATCH = 64
_BATCH_BYTES = 1 << 23
# The fewest bytes that a row takes.
_LEAST = 8
_NEAR = 16

_SHORT = Struct("<BHHIH16s12s")
_LONG = Struct("<BIIq16sB")
_SIZE, _LONG_SIZE = _SHORT.size, _LONG.size
_PADDING = bytes(_SIZE)
_KEY = 24


class Encoded(msgspec.Struct, frozen=True):
    """Records as bytes: the number of the first one, and where each begins."""

    first: int
    starts: list[int]
    data: bytes


def encode_records(records: Sequence[JournalRecord]) -> Encoded:
    """Return consecutive records as bytes."""
    parts: list[bytes] = []
    starts: list[int] = []
    place = 0
    for record in records:
        epoch, size, at, key = record.epoch, len(record.body), record.at, record.key
        head = raw = None
        if epoch < 1 << 16 and size < 1 << 16 and 0 <= at < 1 << 48 and len(key) == _KEY:
            with suppress(ValueError):
                raw = bytes.fromhex(key)
            if raw is not None and raw.hex() == key:
                head = _SHORT.pack(0, epoch, size, at & 0xFFFFFFFF, at >> 32, record.digest, raw)
        if head is None:
            long = _LONG.pack(1, epoch, size, at, record.digest, len(key))
            head = long + key.encode("ascii")
        parts += [head, record.body]
        starts.append(place)
        place += len(head) + size
    return Encoded(records[0].seq if records else 0, starts, b"".join(parts))


def decode_records(data: bytes, seq: int, upto: int) -> tuple[list[JournalRecord], int]:
    """Return the records in some bytes, and where the first incomplete one begins.

    The first record has the number after ``seq``. Raises ``ValueError``, with the records so far,
    if bytes do not form a record.
    """
    records: list[JournalRecord] = []
    add, short = records.append, _SHORT.unpack_from
    padded = data + _PADDING
    place, length = 0, len(data)
    while seq < upto and place < length:
        tag, epoch, size, low, high, digest, name = short(padded, place)
        if not tag:
            key, at, begin = name.hex(), low | high << 32, place + _SIZE
        else:
            tag, epoch, size, at, digest, count = _LONG.unpack_from(padded, place)
            begin = place + _LONG_SIZE + count
            raw = data[begin - count : begin]
            if tag != 1 or not raw.isascii():
                raise ValueError(records)
            key = raw.decode("ascii")
        end = begin + size
        if end > length:
            break
        seq += 1
        add(JournalRecord(seq, epoch, key, at, data[begin:end], digest))
        place = end
    return records, place


def length_at(data: bytes, place: int) -> int:
    """Return the length of the record that begins at a place, 0 if none begins there."""
    head = data[place : place + max(_SIZE, _LONG_SIZE)]
    if not head:
        return 0
    head += _PADDING
    if not head[0]:
        return _SIZE + int(_SHORT.unpack_from(head)[2])
    tag, _, size, _, _, count = _LONG.unpack_from(head)
    key = data[place + _LONG_SIZE : place + _LONG_SIZE + count]
    return _LONG_SIZE + count + int(size) if tag == 1 and key.isascii() else 0


def as_short(data: bytes, seq: int) -> JournalRecord | None:
    """Read all bytes as one record with a short head, ignoring its tag and length."""
    if len(data) < _SIZE:
        return None
    _, epoch, _, low, high, digest, name = _SHORT.unpack_from(data)
    return JournalRecord(seq, epoch, name.hex(), low | high << 32, data[_SIZE:], digest)


def as_long(data: bytes, seq: int, length: int = 0) -> JournalRecord | None:
    """Read all bytes as one record with a long head, ignoring its tag and length.

    Its key has this ``length``, or else the one that the head says, and must be ASCII.
    """
    if len(data) < _LONG_SIZE:
        return None
    _, epoch, _, at, digest, said = _LONG.unpack_from(data)
    end = _LONG_SIZE + (length or said)
    key = bytes(one & 0x7F for one in data[_LONG_SIZE:end])
    return JournalRecord(seq, epoch, key.decode("ascii"), at, data[end:], digest)


class PieceTail(msgspec.Struct, frozen=True):
    """The place for a session's next record: its last piece, the size of that, and its capacity."""

    piece: int
    length: int
    room: int


def tail_of(connection: Connection, number: int) -> PieceTail:
    """Return the place for the next record of a session."""
    room = _room(connection)
    row = connection.execute(
        "select id, codec, length(body) from pieces where id between ? and ?"
        " order by id desc limit 1",
        span(number),
    ).fetchone()
    if row is None:
        return PieceTail((number << _SHIFT) - 1, room, room)
    return PieceTail(row[0], room if row[1] else row[2], room)


def add(connection: Connection, tail: PieceTail, more: Encoded, *, compress: bool) -> PieceTail:
    """Add records after the last one of a session; return the place for the next one."""
    data, piece, room = more.data, tail.piece, tail.room
    place = room - tail.length
    if place > 0:
        connection.execute(
            "update pieces set body = cast(body || ? as blob) where id = ?", (data[:place], piece)
        )
    if place >= len(data):
        return PieceTail(piece, tail.length + len(data), room)
    length = room
    while place < len(data):
        index = bisect_left(more.starts, place)
        start = (more.starts[index] if index < len(more.starts) else len(data)) - place
        is_much = compress and len(data) - place >= room * SEALED
        part = data[place : place + (room * SEALED if is_much else room)]
        place += len(part)
        piece += 1
        length = room if is_much else len(part)
        body = zlib.compress(part, _LEVEL) if is_much else part
        _insert(connection, (piece, more.first + index, start, PACKED * is_much, body))
    return PieceTail(piece, length, room)


def _room(connection: Connection) -> int:
    """Return how many bytes of a piece's body fill a page."""
    return int(ask(connection, "pragma page_size")) - _HEAD


def _insert(connection: Connection, row: tuple[int, int, int, int, bytes]) -> None:
    connection.execute(
        "insert into pieces (id, first, start, codec, body) values (?, ?, ?, ?, ?)", row
    )


def seal(connection: Connection, number: int, *, last: bool = False) -> None:
    """Merge pieces into one compressed piece if there are enough; with ``last``, in any case.

    Pieces that were written before the session was compressed stay as they are.
    """
    rows = connection.execute(
        "select id, first, start, codec, body from pieces where id between ? and ?"
        " order by id desc limit ?",
        (*span(number), 2 * SEALED + 2),
    ).fetchall()
    count = next((n for n, row in enumerate(rows) if row[3]), len(rows))
    if not count or (count <= SEALED and not last):
        return
    young, before = rows[0 if last else 1 : count][::-1], rows[count : count + 1]
    if last and before and len(before[0][4]) < _room(connection) * SEALED // 4:
        young = before + young
    most = most_of(connection)
    body = b"".join(_plain(row[1:], most) for row in young)
    connection.execute("delete from pieces where id between ? and ?", (young[0][0], young[-1][0]))
    _insert(connection, (*young[0][:3], PACKED, zlib.compress(body, _LEVEL)))


def records(
    connection: Connection, number: int, after: int, upto: int, where: Where
) -> Iterator[JournalRecord]:
    """Yield the records of a number that come after one and up to another, in order.

    Raises ``Damaged`` if bytes do not form records; it does not check that they are the right ones.
    """
    piece = _begin(connection, number, after + 1)
    cursor = connection.execute(
        "select first, start, codec, body from pieces where id between ? and ? order by id",
        (piece, span(number)[1]),
    )
    seq, rest, skip = -1, b"", 0
    most, longest = most_of(connection), longest_of(connection)
    # Damaged pages may refer to each other in circles, so read no more rows than can exist.
    found_rows = islice(cursor, size_of(connection) // _LEAST + _NEAR)
    while seq < upto and (row := next(found_rows, None)):
        if seq < 0:
            first, start = row[0], row[1]
            if type(first) is not int or type(start) is not int or first < 1 or start < 0:
                raise _damaged(where, after + 1)
            seq, skip = first - 1, start
        try:
            data = b"".join((rest, *_batch(found_rows, row, len(rest), most)))
        except Overfull:
            raise overfull_error(where, f"what is stored after record {seq}", most) from None
        if len(rest) > longest:
            raise overfull_error(where, f"record {seq + 1}", longest)
        if skip:
            data, skip = data[skip:], max(skip - len(data), 0)
        try:
            found, place = decode_records(data, seq, upto)
        except ValueError as error:
            yield from (one for one in error.args[0] if one.seq > after)
            raise _damaged(where, seq + len(error.args[0]) + 1) from None
        rest = data[place:]
        yield from found if seq >= after else (one for one in found if one.seq > after)
        seq += len(found)
    if rest and seq < upto:
        raise _damaged(where, seq + 1)


def _batch(rows: Iterator[Any], row: Any, length: int, most: int) -> Iterator[bytes]:
    """Return the bytes of a row and of more rows, at least as many as there are already.

    Doubling the amount avoids copying a very long record again with every row.
    """
    size = count = 0
    while row:
        part = _plain(row, most)
        yield part
        size += len(part)
        count += 1
        if size >= max(_BATCH_BYTES, length) or (count >= _BATCH and size >= length):
            return
        row = next(rows, None)


def most_of(connection: Connection) -> int:
    """Return the most bytes that a piece can unpack to.

    That is a compressed piece which is still small enough to be merged again, and all pieces that
    can be merged into it.
    """
    room = _room(connection)
    return SEALED // 4 * room * DENSEST + (2 * SEALED + 2) * room


def longest_of(connection: Connection) -> int:
    """Return the greatest length of a record; large values are not part of it."""
    return max(MOST_OF_RECORDS, size_of(connection) * RATIO)


def size_of(connection: Connection) -> int:
    """Return the number of bytes in all pages."""
    return int(ask(connection, "pragma page_size")) * int(ask(connection, "pragma page_count"))


def _begin(connection: Connection, number: int, seq: int) -> int:
    """Return the last piece that begins with record ``seq`` or earlier.

    The first if there is none.
    """
    low, high = span(number)
    last = "select id, first from pieces where id between ? and ? order by id desc limit ?"
    for piece, first in connection.execute(last, (low, high, _NEAR if seq > 1 else 0)):
        # Look near the end first, because most readers only want what is new.
        if type(first) is int and first <= seq:
            return int(piece)
        high = piece - 1
    found = low
    while seq > 1 and low <= high:
        middle = (low + high) // 2
        row = connection.execute(last, (found, middle, 1)).fetchone()
        if row is None:
            break
        if type(row[1]) is int and row[1] <= seq:
            found, low = row[0], middle + 1
        else:
            high = row[0] - 1
    return found


def _plain(row: Sequence[Any], most: int) -> bytes:
    """Return the bytes of a piece; one that cannot be unpacked yields none, which is noticed later.

    Raises ``Overfull`` if it stands for more than it can.
    """
    codec, body = row[2], row[3]
    if type(body) is not bytes or type(codec) is not int or codec not in (0, PACKED):
        return b""
    if not codec:
        return body
    try:
        return inflate(body, most)
    except Overfull:
        raise
    except zlib.error:
        return b""


def _damaged(where: Where, seq: int) -> Damaged:
    return Damaged(f"record {seq} is not what was written (form)").about(*where)


def cut(connection: Connection, number: int, upto: int) -> None:
    """Delete the records of a number that come after one."""
    low, high = span(number)
    piece = _begin(connection, number, upto + 1) if upto else low
    row = connection.execute(
        "select first, start, codec, body from pieces where id = ?", (piece,)
    ).fetchone()
    keeps = bool(upto) and row is not None and row[0] <= upto + 1
    if keeps:
        data = _plain(row, most_of(connection))
        seq, start = row[0] - 1, row[1]
        _, place = decode_records(data[start:], seq, upto)
        kept = data[: start + place]
        body = zlib.compress(kept, _LEVEL) if row[2] else kept
        connection.execute("update pieces set body = ? where id = ?", (body, piece))
    connection.execute("delete from pieces where id between ? and ?", (piece + keeps, high))


def move(connection: Connection, number: int, other: int) -> None:
    """Move all records of a number to another one that has none."""
    connection.execute(
        "update pieces set id = id + ? where id between ? and ?",
        ((other - number) << _SHIFT, *span(number)),
    )


def numbers(connection: Connection) -> set[int]:
    """Return all numbers that have records."""
    found = connection.execute("select distinct id >> ? from pieces", (_SHIFT,))
    return {number for (number,) in found}


def span(number: int) -> tuple[int, int]:
    """Return the first and last id that the pieces of a number may have."""
    low = number << _SHIFT
    return low, low | _LAST
