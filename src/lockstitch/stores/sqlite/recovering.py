"""What can be read of records in pieces of which some are damaged.

Every piece says which record begins first in it, and where: so between two pieces it is known how
many records there are, and where the first one begins. A record whose length has changed ends
where the rest can be read as the records that are missing.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from lockstitch.journal.records import START, Record, digest_of
from lockstitch.journal.salvage import SEARCHED, Remnant, flipped
from lockstitch.stores.sqlite import pieces
from lockstitch.stores.sqlite.connections import Connection
from lockstitch.stores.sqlite.inflating import RATIO, beginning, inflated

_ROW = (
    "select id, first, start, codec, cast(body as blob), typeof(body) = 'blob' from pieces"
    " where id between ? and ?"
)
_ZLIB = b"\x78"
_LONGEST = 128
# What a piece may unpack to: one that is whole, one that is damaged, one that is tried often.
_WHOLE, _BEGUN, _TRIED = 1 << 25, 1 << 22, 1 << 18


class _Run(Struct):
    """Pieces that follow each other: their bytes, and where which record begins in them.

    ``is_altered`` says that something was put right, ``is_cut`` that the next piece is missing.
    """

    data: bytes = b""
    anchors: list[tuple[int, int]] = []
    is_altered: bool = False
    is_cut: bool = False


class Recovery:
    """Reads what is kept under one number; ``is_torn`` tells whether pages could not be read."""

    def __init__(self, connection: Connection, number: int, last: int) -> None:
        self._connection = connection
        self._number = number
        self._last = last
        self._most = pieces.longest_of(connection)
        self.is_torn = False

    def remnants(self) -> Iterator[Remnant]:
        """Give what is left of its records, in order."""
        before: bytes | None = START
        for run in self._runs():
            for remnant in _in_run(run, before, self._last):
                yield remnant
                before = None if remnant.record is None else remnant.record.digest
            before = None

    def _runs(self) -> Iterator[_Run]:
        run = _Run()
        expected: int | None = None
        for piece, first, start, codec, body, is_typed in self._rows():
            if expected is not None and piece != expected:
                run.is_cut = True
                yield run
                run = _Run()
            data, is_whole, is_plain = _unpacked(codec, body)
            if len(run.data) + len(data) > self._most:
                # No more of it can be right: what is compressed may stand for anything.
                data, is_whole = b"", False
            if type(first) is int and type(start) is int and first > 0 <= start:
                run.anchors.append((len(run.data) + start, first))
            run.data += data
            run.is_altered = run.is_altered or not is_plain or not is_typed
            # Those that were made one leave numbers free behind them.
            expected = None if codec == pieces.PACKED else piece + 1
            if not is_whole:
                run.is_cut = True
                yield run
                run = _Run()
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
    """Give the bytes of a piece, whether that is all of them, and whether it took no guess."""
    if codec == 0 and not (len(body) > 1 and _inflated(body) is not None):
        return body, True, True
    whole = _inflated(body)
    if whole is not None:
        return whole, True, codec == pieces.PACKED
    if codec != pieces.PACKED:
        return body, True, False
    # The checksum that zlib keeps itself tells which bit has changed.
    if len(body) <= SEARCHED:
        for one in flipped(body):
            # It is tried so often that it must be quick: what stands for much more is left out.
            whole = _inflated(one, max(_TRIED, len(body) * RATIO))
            if whole is not None:
                return whole, True, False
    return beginning(body, _BEGUN), False, False


def _inflated(body: bytes, most: int = _WHOLE) -> bytes | None:
    if not body.startswith(_ZLIB):
        return None
    try:
        return inflated(body, max(most, len(body) * RATIO))
    except zlib.error:
        return None


def _in_run(run: _Run, before: bytes | None, last: int) -> Iterator[Remnant]:
    places: list[tuple[int, int]] = []
    for place, seq in run.anchors:
        if place > len(run.data):
            continue
        if not places or (place > places[-1][0] and seq > places[-1][1]):
            places.append((place, seq))
    for index, (place, seq) in enumerate(places):
        if index + 1 < len(places):
            end, following = places[index + 1]
            part = _Part(run.data[place:end], seq, following - seq, run.is_altered)
        else:
            count = max(last - seq + 1, 0) if last and not run.is_cut else None
            part = _Part(run.data[place:], seq, count, run.is_altered)
            part.settle()
        for remnant in part.remnants(before):
            yield remnant
            before = None if remnant.record is None else remnant.record.digest


class _Part:
    """Bytes in which so many records stand, None where that is not known."""

    def __init__(self, data: bytes, first: int, count: int | None, is_altered: bool) -> None:
        self._data = data
        self._first = first
        self._count = count
        self._is_altered = is_altered
        self._counts: dict[int, int | None] = {}

    def settle(self) -> None:
        """Go by the bytes where they can be read to the end: how many were said may be wrong."""
        found = self._until_end(0)
        if found is not None:
            self._count = found

    def remnants(self, before: bytes | None) -> Iterator[Remnant]:
        """Give what is left of them; ``before`` is the checksum of the record before, if known."""
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

    def _record(self, place: int, seq: int) -> tuple[Record | None, int]:
        end = place + pieces.length_at(self._data, place)
        try:
            found, length = pieces.decoded(self._data[place:end], seq - 1, seq)
        except ValueError:
            return None, place
        return (found[0], place + length) if found else (None, place)

    def _fits(self, place: int, count: int | None) -> bool:
        """Whether exactly so many records stand from a place to the end."""
        if count is None:
            return True
        return self._until_end(place) == count

    def _until_end(self, place: int) -> int | None:
        """Say how many records stand from a place to the end, None if what stands there is none.

        What was found out once is remembered: it is asked for every place, again and again.
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
        """Find where the next record begins behind one whose length cannot be right."""
        if count is None:
            return place
        for end in range(place + 1, len(self._data) + 1):
            if self._fits(end, count):
                return end
        return place


def _proves(before: bytes | None, record: Record) -> bool:
    return before is not None and (
        digest_of(before, record.seq, record.epoch, record) == record.digest
    )


def _guesses(data: bytes, seq: int) -> Iterator[Record]:
    """Read bytes as one record, whatever it says of its kind, its length and that of its key."""
    found = [pieces.as_short(data, seq), pieces.as_long(data, seq)]
    yield from filter(None, found[:: -1 if data[:1] == b"\1" else 1])
    for count in range(1, _LONGEST + 1):
        other = pieces.as_long(data, seq, count)
        if other is not None:
            yield other
