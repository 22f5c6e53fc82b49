"""Read a session with damaged rows, pieces or pages as far as possible, and rename it.

If a statement fails in SQLite itself, rows are read one by one, and unreadable pages are skipped.
Nothing here writes to a damaged row except its name.

Every piece says which record is the first to begin in it, and where. So between two pieces the
number of records is known, and where the first one begins. If the length of a record has changed,
the record ends where the rest can be read as exactly the missing number of records.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from msgspec import Struct

from lockstitch.errors import Damaged, Unreadable, Where
from lockstitch.journal.records import DIGEST_SIZE, START, Head, JournalRecord, digest_of
from lockstitch.journal.salvage import SEARCHED, Remains, Remnant, flip_each_bit
from lockstitch.stores.sqlite import pieces, rows
from lockstitch.stores.sqlite.connections import (
    FORKS,
    MOST_OF_RECORDS,
    RATIO,
    Connection,
    inflate,
    inflate_beginning,
    version_of,
)

_ROW = (
    "select id, first, start, codec, cast(body as blob), typeof(body) = 'blob' from pieces"
    " where id between ? and ?"
)
_LONGEST = 128
# Limits for unpacking a piece: a whole one, a damaged one, and one that is tried many times.
_WHOLE, _BEGUN, _PIECE_TRIED = 1 << 25, 1 << 22, 1 << 18


class _PieceRun(Struct):
    """Consecutive pieces: their bytes, and which record begins where.

    ``is_altered`` says that something was corrected, ``is_cut`` that the next piece is missing.
    """

    data: bytes = b""
    anchors: list[tuple[int, int]] = []
    is_altered: bool = False
    is_cut: bool = False


class PieceRecovery:
    """Reads what is stored under one number; ``is_torn`` says that pages could not be read."""

    def __init__(self, connection: Connection, number: int, last: int) -> None:
        self._connection = connection
        self._number = number
        self._last = last
        self._most = pieces.longest_of(connection)
        self.is_torn = False

    def remnants(self) -> Iterator[Remnant]:
        """Yield what is left of its records, in order."""
        before: bytes | None = START
        for run in self._runs():
            for remnant in _in_run(run, before, self._last):
                yield remnant
                before = None if remnant.record is None else remnant.record.digest
            before = None

    def _runs(self) -> Iterator[_PieceRun]:
        run = _PieceRun()
        expected: int | None = None
        for piece, first, start, codec, body, is_typed in self._rows():
            if expected is not None and piece != expected:
                run.is_cut = True
                yield run
                run = _PieceRun()
            data, is_whole, is_plain = _unpacked(codec, body)
            if len(run.data) + len(data) > self._most:
                # Nothing beyond this can be right, since compressed data may stand for any amount.
                data, is_whole = b"", False
            if type(first) is int and type(start) is int and first > 0 <= start:
                run.anchors.append((len(run.data) + start, first))
            run.data += data
            run.is_altered = run.is_altered or not is_plain or not is_typed
            # Merging pieces leaves unused numbers after the merged one.
            expected = None if codec == pieces.PACKED else piece + 1
            if not is_whole:
                run.is_cut = True
                yield run
                run = _PieceRun()
        yield run

    def _rows(self) -> list[tuple[Any, ...]]:
        low, high = pieces.span(self._number)
        try:
            return self._connection.execute(f"{_ROW} order by id", (low, high)).fetchall()
        except sqlite3.DatabaseError:
            self.is_torn = True
        found: list[tuple[Any, ...]] = []
        count = self._connection.execute("pragma page_count").fetchone()[0]
        for piece in range(low, low + count):
            try:
                found += self._connection.execute(_ROW, (piece, piece)).fetchall()
            except sqlite3.DatabaseError:
                continue
        return found


def _unpacked(codec: object, body: bytes) -> tuple[bytes, bool, bool]:
    """Return a piece's bytes, whether they are complete, and whether no guess was needed."""
    if codec == 0 and not (len(body) > 1 and _inflate_piece(body) is not None):
        return body, True, True
    whole = _inflate_piece(body)
    if whole is not None:
        return whole, True, codec == pieces.PACKED
    if codec != pieces.PACKED:
        return body, True, False
    # zlib's own checksum tells which bit has changed.
    if len(body) <= SEARCHED:
        for one in flip_each_bit(body):
            # This is tried so often that it must be quick, so variants that stand for much more are
            # skipped.
            whole = _inflate_piece(one, _PIECE_TRIED)
            if whole is not None:
                return whole, True, False
    return inflate_beginning(body, _BEGUN), False, False


def _inflated(body: bytes, most: int) -> bytes | None:
    """Return a body unpacked; None if that fails or exceeds the limit."""
    try:
        return inflate(body, max(most, len(body) * RATIO))
    except zlib.error:
        return None


def _inflate_piece(body: bytes, most: int = _WHOLE) -> bytes | None:
    return _inflated(body, most) if body.startswith(_ZLIB) else None


def _in_run(run: _PieceRun, before: bytes | None, last: int) -> Iterator[Remnant]:
    places: list[tuple[int, int]] = []
    for place, seq in run.anchors:
        if place > len(run.data):
            continue
        if not places or (place > places[-1][0] and seq > places[-1][1]):
            places.append((place, seq))
    for index, (place, seq) in enumerate(places):
        if index + 1 < len(places):
            end, following = places[index + 1]
            part = _RecordRun(run.data[place:end], seq, following - seq, run.is_altered)
        else:
            count = max(last - seq + 1, 0) if last and not run.is_cut else None
            part = _RecordRun(run.data[place:], seq, count, run.is_altered)
            part.count_by_bytes()
        for remnant in part.remnants(before):
            yield remnant
            before = None if remnant.record is None else remnant.record.digest


class _RecordRun:
    """Bytes that contain ``count`` records, None if the number is unknown."""

    def __init__(self, data: bytes, first: int, count: int | None, is_altered: bool) -> None:
        self._data = data
        self._first = first
        self._count = count
        self._is_altered = is_altered
        self._counts: dict[int, int | None] = {}

    def count_by_bytes(self) -> None:
        """Count the records if all bytes can be read, since the given number may be wrong."""
        found = self._until_end(0)
        if found is not None:
            self._count = found

    def remnants(self, before: bytes | None) -> Iterator[Remnant]:
        """Yield what is left of the records.

        ``before`` is the last checksum before them, if known.
        """
        place, seq = 0, self._first
        while place < len(self._data):
            left = None if self._count is None else self._first + self._count - seq - 1
            if left is not None and left < 0:
                return
            record, end = self._record(place, seq)
            if record is None or not (_proves(before, record) or self._fits(end, left)):
                end = self._next(place, left)
                if end == place:
                    if self._count is not None or record is None:
                        yield Remnant(seq, None, self._data[place:])
                    return
                following, _ = self._record(end, seq + 1)
                made = [*_guesses(self._data[place:end], seq)]
                guesses = [one for one in made if _proves(before, one)] or [
                    one for one in made[:2] if following and _proves(one.digest, following)
                ]
                for index, guess in enumerate(guesses):
                    yield Remnant(seq, guess, is_altered=True, is_guess=index > 0)
                if not guesses:
                    yield Remnant(seq, None, self._data[place:end])
                before = guesses[0].digest if guesses else None
            else:
                yield Remnant(seq, record, is_altered=self._is_altered)
                before = record.digest
            place, seq = end, seq + 1

    def _record(self, place: int, seq: int) -> tuple[JournalRecord | None, int]:
        end = place + pieces.length_at(self._data, place)
        try:
            found, length = pieces.decode_records(self._data[place:end], seq - 1, seq)
        except ValueError:
            return None, place
        return (found[0], place + length) if found else (None, place)

    def _fits(self, place: int, count: int | None) -> bool:
        """Whether exactly ``count`` records fill the bytes from a place to the end."""
        if count is None:
            return True
        return self._until_end(place) == count

    def _until_end(self, place: int) -> int | None:
        """Return how many records fill the bytes from a place to the end, None if they do not.

        Results are remembered, because every place is asked for many times.
        """
        walked: list[int] = []
        while place < len(self._data) and place not in self._counts:
            walked.append(place)
            size = pieces.length_at(self._data, place)
            if not size or place + size > len(self._data):
                self._counts[place] = None
                break
            place += size
        count = 0 if place == len(self._data) else self._counts.get(place)
        for one in reversed(walked):
            count = None if count is None else count + 1
            self._counts[one] = count
        return count

    def _next(self, place: int, count: int | None) -> int:
        """Return where the next record begins after one whose length cannot be right."""
        if count is None:
            return place
        for end in range(place + 1, len(self._data) + 1):
            if self._fits(end, count):
                return end
        return place


def _proves(before: bytes | None, record: JournalRecord) -> bool:
    return before is not None and (
        digest_of(before, record.seq, record.epoch, record) == record.digest
    )


def _guesses(data: bytes, seq: int) -> Iterator[JournalRecord]:
    """Yield all readings of bytes as one record, whatever they say of kind and lengths."""
    found = [pieces.as_short(data, seq), pieces.as_long(data, seq)]
    yield from filter(None, found[:: -1 if data[:1] == b"\1" else 1])
    for count in range(1, _LONGEST + 1):
        other = pieces.as_long(data, seq, count)
        if other is not None:
            yield other


# The limit for unpacking things that are tried many times.
_TRIED = 1 << 18


def _whole(column: str) -> str:
    return f"case when typeof({column}) = 'integer' then {column} end"


# Texts and bytes are read as bytes, because a flipped bit may have changed their types.
_ABOUT = ", ".join(
    [
        "rowid",
        *map(_whole, ("seq", "epoch", "at", "codec")),
        "cast(key as blob), cast(digest as blob)",
        "typeof(key) = 'text' and typeof(digest) = 'blob' and typeof(body) = 'blob'",
    ]
)
_ALL = f"{_ABOUT}, cast(body as blob)"
_PLACES = f"select rowid, {_whole('session')} from events not indexed where rowid > ?"  # noqa: S608
_ZLIB = b"\x78"
_DIGEST = 6
_FURTHEST = 1 << 44
_LEAST = 16

Raw = tuple[Any, ...]


def remains(connection: Connection, name: str, where: Where) -> Remains:
    """Return what is left of a session; raise ``Unreadable`` if there is none with this name."""
    number, seq, digest = find_row(connection, name, where)[:3]
    is_right = isinstance(seq, int) and isinstance(digest, bytes) and len(digest) == DIGEST_SIZE
    head = Head(seq, digest) if is_right and seq >= 0 else None
    remnants, is_torn = _kept(connection, number, head)
    notes = ("SQLite cannot read all of its pages",) if is_torn else ()
    return Remains(head, remnants, notes, stamp_of(number, seq, digest))


def _kept(connection: Connection, number: int, head: Head | None) -> tuple[list[Remnant], bool]:
    """Return what is left of a session under all numbers that hold records of it."""
    try:
        parts = rows.parts(connection, number, Where())
    except (Damaged, sqlite3.DatabaseError):
        parts = [(number, None)]
    found: list[Remnant] = []
    start, is_torn = 0, False
    for part, last in parts:
        kept = _Rows(connection, part, head if last is None else None)
        newer = PieceRecovery(connection, part, last or (head.seq if head else 0))
        is_old = version_of(connection) < FORKS
        own = [*kept.remnants(), *(() if is_old else newer.remnants())]
        found += [one for one in own if not one.seq or start < one.seq <= (last or one.seq)]
        start, is_torn = last or start, is_torn or kept.is_torn or newer.is_torn
    if not found and head is not None and head.seq:
        # The number in the session's row may be damaged: its records are those that end as the row
        # says.
        for other in rows.unneeded_numbers(connection):
            found = [*PieceRecovery(connection, other, head.seq).remnants()]
            if any(one.record is not None and one.record.digest == head.digest for one in found):
                return found, is_torn
        found = []
    return found, is_torn


def stamp_of(number: object, seq: object, digest: object) -> str:
    """Return a text that tells later whether a session has changed."""
    return f"{number} {seq} {digest!r}"


def find_row(connection: Connection, name: str, where: Where) -> Raw:
    """Return a session's number, seq, digest and epoch; reads past a damaged index."""
    for table in ("sessions", "sessions not indexed"):
        asked = f"select number, seq, digest, epoch from {table} where name = ?"  # noqa: S608
        try:
            row: Raw | None = connection.execute(asked, (name,)).fetchone()
        except sqlite3.DatabaseError:
            continue
        if row is not None:
            return row
    raise Unreadable(f"there is no session {name}").about(*where)


class _Rows:
    """The rows of a session, read by the index and by the table, since either may be damaged."""

    def __init__(self, connection: Connection, number: int, head: Head | None) -> None:
        self._connection = connection
        self._number = number
        self._head = head
        self.is_torn = False

    def remnants(self) -> Iterator[Remnant]:
        """Yield the remnants; those that may belong to other sessions come last."""
        own: dict[int, Raw] = {}
        try:
            indexed = self._asked("where session = ? order by seq", self._number)
        except sqlite3.DatabaseError:
            self.is_torn = True
            indexed = [*self._one_by_one()]
        for row in indexed:
            own.setdefault(row[0], row)
        others: dict[int, list[Raw]] = {}
        known = {self._number}
        with suppress(sqlite3.DatabaseError):
            found = self._connection.execute("select number from sessions").fetchall()
            known = {number for (number,) in found}
        for place, session in self._places():
            if place not in own and (session == self._number or session not in known):
                for row in self._tried("where rowid = ?", place):
                    if session == self._number:
                        own[place] = row
                    else:
                        others.setdefault(session, []).append(row)
        if not own:
            # The number in the session's row may be damaged: its rows are those that end as it
            # says.
            digest = None if self._head is None else self._head.digest
            ends = [n for n, group in others.items() if any(r[_DIGEST] == digest for r in group)]
            if len(ends) == 1:
                own = {row[0]: row for row in others.pop(ends[0])}
        yield from (one for row in own.values() for one in _remnants(row))
        for one in (one for group in others.values() for row in group for one in _remnants(row)):
            yield Remnant(0, one.record, one.raw, is_altered=True, is_guess=True)

    def _asked(self, condition: str, *values: object, columns: str = _ALL) -> list[Raw]:
        asked = f"select {columns} from events {condition}"  # noqa: S608
        return self._connection.execute(asked, values).fetchall()

    def _one_by_one(self) -> Iterator[Raw]:
        most = pieces.size_of(self._connection) // _LEAST
        last = most if self._head is None else self._head.seq
        for seq in range(1, min(last, most) + 1):
            yield from self._tried("where session = ? and seq = ?", self._number, seq)

    def _tried(self, condition: str, *values: object) -> list[Raw]:
        """Return a row, or its columns that are not on unreadable pages."""
        for columns in (_ALL, f"{_ABOUT}, null"):
            try:
                return self._asked(condition, *values, columns=columns)
            except sqlite3.DatabaseError:
                self.is_torn = True
        return []

    def _places(self) -> Iterator[tuple[int, int]]:
        """Yield the place and session of every row in the table that can be read."""
        after: int | None = -1
        while after is not None:
            try:
                cursor = self._connection.execute(f"{_PLACES} order by rowid", (after,))
                for place, session in cursor:
                    after = place
                    yield place, session
            except sqlite3.DatabaseError:
                self.is_torn = True
                after = self._behind(after)
            else:
                return

    def _behind(self, after: int) -> int | None:
        """Return the next place at which the table can be read again; None if there is none."""
        step = 1
        while not self._is_readable(after + step):
            step *= 2
            if step > _FURTHEST:
                return None
        low, high = after + step // 2, after + step
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._is_readable(middle) else (middle, high)
        return high

    def _is_readable(self, place: int) -> bool:
        try:
            self._connection.execute(f"{_PLACES} order by rowid limit 1", (place,)).fetchone()
        except sqlite3.DatabaseError:
            return False
        return True


def _remnants(row: Raw) -> Iterator[Remnant]:
    """Yield the readings of a row: its body unpacked as the row says, or in other ways."""
    _, seq, epoch, at, codec, key, digest, is_typed, body = row
    raw = body if isinstance(body, bytes) else b""
    is_right = bool(is_typed) and None not in {epoch, at, codec}
    for place, (plain, is_plain) in enumerate(_plain(codec, raw)):
        name = (key or b"").decode("ascii", "backslashreplace")
        record = JournalRecord(seq or 0, epoch or 0, name, at or 0, plain, digest or b"")
        is_altered = not is_right or not is_plain
        yield Remnant(record.seq, record, is_altered=is_altered, is_guess=place > 0)


def _plain(codec: object, body: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield a body unpacked, and whether no guess was needed; there may be more than one way."""
    if codec != rows.COMPRESSED:
        yield body, codec == 0
        whole = _inflated(body, MOST_OF_RECORDS) if body.startswith(_ZLIB) else None
        if whole is not None:
            yield whole, False
        return
    whole = _inflated(body, MOST_OF_RECORDS)
    if whole is not None:
        yield whole, True
        return
    # zlib's own checksum tells which bit has changed.
    others = flip_each_bit(body) if len(body) <= SEARCHED else iter(())
    tried = (_inflated(one, _TRIED) for one in others)
    yield next((one for one in tried if one is not None), body), False
    yield body, False
