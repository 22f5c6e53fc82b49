"""What can be read of a session whose rows are damaged, past what the server itself cannot read."""

from __future__ import annotations

from collections.abc import Iterator

from lockstitch.errors import Damaged, Unreadable
from lockstitch.journal.records import DIGEST_SIZE, Head, Record
from lockstitch.journal.salvage import Remains, Remnant
from lockstitch.stores.postgres import statements as sql
from lockstitch.stores.postgres.server import Row, Server

_CHUNK = 1000
_MOST_STRAYS = 10_000
_OWNER = 6


def remains(server: Server, session: str, where: str) -> Remains:
    """Read what is there of a session; raises ``Unreadable`` if there is none of that name."""
    found = server.ask(sql.REMAINS_HEAD, (session,), where)
    if not found:
        raise Unreadable(f"{where}: there is none in this store")
    number, seq, digest = found[0]
    head = Head(seq, bytes(digest)) if len(digest) == DIGEST_SIZE and seq >= 0 else None
    reading = _Reading(server, number, seq, where)
    own = [*reading.rows()]
    strays = reading.strays()
    if not own and head is not None:
        # The row's own number may have changed: its records are those that end as it says.
        ends = {row[_OWNER] for row in strays if bytes(row[5]) == head.digest}
        own = [row[:_OWNER] for row in strays if row[_OWNER] in ends] if len(ends) == 1 else []
    remnants = [Remnant(record.seq, record) for record in map(_record, own)]
    others = (_record(row[:_OWNER]) for row in strays)
    remnants += [Remnant(0, record, is_altered=True, is_guess=True) for record in others]
    notes = ("the server cannot read all of its rows",) if reading.is_torn else ()
    return Remains(head, remnants, notes, f"{number} {seq} {bytes(digest).hex()}")


def stamp_of(stamp: str) -> tuple[int, int, bytes] | tuple[None, None, None]:
    """Give what a stamp says: a session's number, and where it ended."""
    if not stamp:
        return None, None, None
    number, seq, digest = stamp.split(" ")
    return int(number), int(seq), bytes.fromhex(digest)


def _record(row: Row) -> Record:
    seq, epoch, key, at, body, digest = row
    name = key.encode("ascii", "backslashreplace").decode("ascii")
    return Record(seq, epoch, name, at, bytes(body), bytes(digest))


class _Reading:
    """The rows of a session, in parts; one by one where the server finds damage."""

    def __init__(self, server: Server, number: int, last: int, where: str) -> None:
        self._server = server
        self._number = number
        self._last = last
        self._where = where
        self.is_torn = False

    def rows(self) -> Iterator[Row]:
        """Give what can be read, that which a fork has from others first."""
        furthest = 1 << 62
        shared = self._server.ask(sql.PARTS, (self._number,), self._where)
        for owner, after, upto in [*shared, (self._number, -furthest, furthest)]:
            yield from self._part(owner, after, upto)

    def _part(self, owner: int, after: int, upto: int) -> Iterator[Row]:
        while True:
            try:
                asked = (owner, after, upto, _CHUNK)
                found = self._server.ask(sql.REMAINS, asked, self._where)
            except Damaged:
                self.is_torn = True
                yield from self._one_by_one(owner, max(after, 0), min(upto, self._last))
                return
            if not found:
                return
            yield from found
            after = found[-1][0]

    def _one_by_one(self, owner: int, after: int, upto: int) -> Iterator[Row]:
        for seq in range(after + 1, upto + 1):
            for statement in (sql.REMAINS_ONE, sql.REMAINS_BARE):
                try:
                    yield from self._server.ask(statement, (owner, seq), self._where)
                except Damaged:
                    continue
                break

    def strays(self) -> list[Row]:
        """Give records that belong to no session."""
        try:
            return self._server.ask(sql.REMAINS_STRAYS, (_MOST_STRAYS,), self._where, is_slow=True)
        except Damaged:
            self.is_torn = True
            return []
