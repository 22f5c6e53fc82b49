"""Read what a PostgreSQL store holds, damaged sessions included, and store copied sessions.

Records and large values are read in chunks, without a transaction or connection in between. Records
never change, so all records up to the end that was found first are one consistent view of a
session. They are deleted all at once, so if a session is replaced or deleted meanwhile, records are
missing, and the reader notices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, starmap
from operator import itemgetter
from typing import Any, LiteralString, TypeVar

import psycopg
from msgspec import Struct, structs

from lockstitch.errors import Damaged, LockstitchError, Unreadable, Unsure, Where
from lockstitch.journal.records import (
    DIGEST_SIZE,
    NEW,
    START,
    Head,
    JournalRecord,
    blob_name,
    verify_chain,
)
from lockstitch.journal.salvage import Remains, Remnant, large_names
from lockstitch.stores.base import IncomingSession, Listed, Listing, StoreFault
from lockstitch.stores.postgres import connections
from lockstitch.stores.postgres import schema as sql
from lockstitch.stores.postgres.connections import SLOW, Pool, Row, Server, ServerConnection

T = TypeVar("T")
Ask = Callable[[LiteralString, Any], list[Row]]
CHUNK = 1000
# The index over changes works in steps of this many milliseconds.
STEP = 65536
CHUNK_BYTES = 4 << 20


def records(
    server: Server, found: Row, after: Head, upto: int | None, where: Where
) -> Iterator[JournalRecord]:
    """Yield the verified records after ``after``, up to the end in the row ``found``."""
    seq, digest, _epoch, number, base = found
    last = seq if upto is None else min(seq, upto)
    chunks = _chunks(
        lambda what, values: server.ask(what, values, where), number, base, after.seq, last
    )
    return verify_chain(chunks, after, where, last=last, end=Head(seq, bytes(digest)))


def _chunks(ask: Ask, number: int, base: int, after: int, upto: int) -> Iterator[JournalRecord]:
    """Yield the records between two numbers; those up to ``base`` may belong to another session."""
    while after < upto:
        if after < base:
            last = min(upto, after + CHUNK)
            place = {"number": number, "after": after, "upto": last, "bytes": CHUNK_BYTES}
            rows = ask(sql.READ_PARTS, place)
        else:
            rows = ask(sql.READ, (number, after, upto, CHUNK, CHUNK_BYTES))
        if not rows:
            return
        yield from starmap(JournalRecord, rows)
        after = rows[-1][0]


def listing(asked: Listing, size: int) -> tuple[LiteralString, tuple[Any, ...]]:
    """Return the statement for a page of sessions, and its values."""
    tag = (asked.tag,) if asked.tag else ()
    if not asked.newest:
        if tag:
            return sql.LIST_TAGGED, (*tag, asked.name, asked.name, asked.since, size)
        return sql.LIST, (asked.name, asked.since, size)
    behind = (asked.since, asked.changed, asked.changed, asked.name, size)
    if tag:
        return sql.LIST_NEWEST_TAGGED, (*tag, *behind)
    # PostgreSQL rounds towards 0.
    minutes = (int(asked.since / STEP) - 1, int(asked.changed / STEP) + 1)
    return sql.LIST_NEWEST, (*minutes, *behind)


def blobs(server: Server, names: list[str], where: Where) -> dict[str, bytes]:
    """Return the large values that exist, fetched in batches."""
    found: dict[str, bytes] = {}
    sizes: dict[str, int] = dict(server.ask(sql.BLOB_SIZES, (names,), where))
    for group in _batches(names, lambda name: sizes.get(name, 0)):
        found.update(server.ask(sql.BLOBS, (group,), where))
    return found


def _batches(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield batches that are limited in their number of items and, but for one item, in bytes."""
    group: list[T] = []
    weight = 0
    for item in items:
        group.append(item)
        weight += size(item)
        if weight >= CHUNK_BYTES or len(group) >= CHUNK:
            yield group
            group, weight = [], 0
    if group:
        yield group


def receive_session(pool: Pool, incoming: IncomingSession) -> None:
    """Write a session that does not exist; raise ``Held`` if another one was faster."""
    where = Where(session=incoming.session)
    try:
        with pool.connection(pool.timeout * SLOW) as connection, connection.transaction():
            _write(connection, incoming)
    except psycopg.Error as error:
        problem: LockstitchError = Unsure(
            "the connection was lost while it was being copied; it is there whole or not at "
            "all: copy it again"
        ).about(*where)
        if connections.is_rolled_back(error):
            problem = connections.translate_error(error, where)
    else:
        return
    raise problem


def _write(connection: ServerConnection, incoming: IncomingSession) -> None:
    head = incoming.head
    connection.execute(sql.DURABLY)
    values = (incoming.session, head.seq, head.digest, head.epoch, incoming.changed)
    row = connection.execute(sql.RECEIVE, values).fetchone()
    if row is None:
        # Another writer was faster.
        for seq, digest, epoch, *_ in connection.execute(sql.HEAD, (incoming.session,)):
            incoming.is_there(Head(seq, bytes(digest), epoch))
        return
    (number,) = row
    for group in _batches(incoming.pieces, lambda one: sum(map(len, (one[0].body, *one[1])))):
        columns = [*map(list, zip(*(structs.astuple(record) for record, _ in group), strict=True))]
        blobs = sorted({blob_name(value): value for _, values in group for value in values}.items())
        if blobs:
            connection.execute(
                sql.KEEP, (number, [name for name, _ in blobs], [value for _, value in blobs])
            )
        connection.execute(sql.RECORDS, (number, *columns))


PAGE = 100


class _CheckedSession(Struct, frozen=True):
    """The row of a session, and whether there are records after its end."""

    id: int
    digest: bytes
    listed: Listed
    has_more: bool
    base: int


def verify_all(ask: Ask, listed: Callable[[Row], Listed]) -> Iterator[StoreFault | Listed]:
    """Check every session, then records that belong to no session, then every large value."""
    last = 0
    ((end,),) = ask(sql.CHECK_END, ())
    while page := ask(sql.CHECK_HEADS, (last, end, PAGE)):
        sessions: list[_CheckedSession] = []
        for number, name, seq, digest, epoch, created, changed, holder, has_more, base in page:
            one = listed((name, seq, epoch, created, changed, holder))
            sessions.append(_CheckedSession(number, digest, one, has_more, base))
        yield from _page(ask, sessions, last)
        last = sessions[-1].id
    yield from _guarded(
        lambda: [
            StoreFault("", 0, f"{amount} records belong to no session (number {number})")
            for number, amount in ask(sql.CHECK_UNOWNED, ())
        ]
    )
    yield from _blobs(ask)


def _guarded(check: Callable[[], Iterable[StoreFault | Listed]]) -> list[StoreFault | Listed]:
    """Run a check; an error of the server while reading counts as a fault."""
    try:
        return list(check())
    except Damaged as error:
        return [StoreFault("", 0, error.message)]


def _page(ask: Ask, sessions: list[_CheckedSession], after: int) -> Iterator[StoreFault | Listed]:
    try:
        yield from list(_sessions(ask, sessions, after))
    except Damaged as error:
        if len(sessions) == 1:
            yield StoreFault(sessions[0].listed.session, 0, error.message)
            yield sessions[0].listed
            return
        # Check one by one, so that a session that the server cannot read does not hide the others.
        for session in sessions:
            yield from _page(ask, [session], session.id - 1)


def _sessions(
    ask: Ask, sessions: list[_CheckedSession], after: int
) -> Iterator[StoreFault | Listed]:
    groups = groupby(_records(ask, after, sessions[-1].id), key=itemgetter(0))
    number, group = next(groups, (None, iter(())))
    wanted: dict[str, tuple[str, int]] = {}
    faults: list[StoreFault] = []
    for session in sessions:
        while number is not None and number < session.id:
            number, group = next(groups, (None, iter(())))
        records = (JournalRecord(*row[1:]) for row in group) if number == session.id else iter(())
        if session.base:
            seq = session.listed.seq
            records = _chunks(ask, session.id, seq, 0, seq)
        faults += _checked(session, records, wanted)
    for (name,) in ask(sql.CHECK_NAMES, (sorted(wanted),)) if wanted else ():
        faults.append(StoreFault(*wanted[name], f"the large value {name} is missing"))
    # What was deleted or replaced in the meantime is not damaged.
    there = (
        {row[0] for row in ask(sql.CHECK_IDS, ([one.id for one in sessions],))} if faults else ()
    )
    for session in sessions:
        yield from (
            one for one in faults if one.session == session.listed.session and session.id in there
        )
        yield session.listed


def _records(ask: Ask, after: int, upto: int) -> Iterator[Row]:
    place = (after, 2**62)
    while rows := ask(sql.CHECK_RECORDS, (*place, upto, CHUNK, CHUNK_BYTES)):
        yield from rows
        place = rows[-1][:2]


def _checked(
    session: _CheckedSession, records: Iterator[JournalRecord], wanted: dict[str, tuple[str, int]]
) -> Iterator[StoreFault]:
    name, seq = session.listed.session, session.listed.seq
    last = JournalRecord(0, 0, "", 0, b"", START)
    # Records that were written after the session's row was read are not checked.
    until = (record for record in records if record.seq <= seq)
    try:
        for record in verify_chain(until, NEW, Where(session=name)):
            last = record
            for blob in large_names(record):
                wanted.setdefault(blob, (name, record.seq))
    except Damaged as error:
        yield StoreFault(name, last.seq + 1, error.message)
        return
    if problem := _problem(session, last):
        yield StoreFault(name, last.seq + 1, problem)


def _problem(session: _CheckedSession, last: JournalRecord) -> str:
    """Return how a session's row and its records differ; "" if they do not."""
    if last.seq != session.listed.seq:
        return f"record {last.seq + 1} is missing, and the session ends at {session.listed.seq}"
    if last.digest != session.digest:
        return "its last record is not the last one that was written (checksum)"
    if last.epoch > session.listed.epoch:
        return "its last record was written under a lease that never existed"
    return "there are records after its end" if session.has_more else ""


def _blobs(ask: Ask) -> Iterator[StoreFault | Listed]:
    place = ""
    while names := [row[0] for row in ask(sql.CHECK_BLOB_NAMES, (place, PAGE, CHUNK_BYTES))]:
        place = names[-1]
        try:
            yield from list(_page_of_blobs(ask, names))
        except Damaged:
            for name in names:
                yield from _guarded(lambda name=name: _page_of_blobs(ask, [name]))  # type: ignore[misc]


def _page_of_blobs(ask: Ask, names: list[str]) -> Iterator[StoreFault]:
    for name, body in ask(sql.BLOBS, (names,)):
        if blob_name(body) != name:
            yield StoreFault("", 0, f"the large value {name} is not what was written (checksum)")


_CHUNK = 1000
_MOST_UNOWNED = 10_000
_OWNER = 6


def remains(server: Server, session: str, where: Where) -> Remains:
    """Return what is left of a session; raise ``Unreadable`` if there is none with this name."""
    found = server.ask(sql.REMAINS_HEAD, (session,), where)
    if not found:
        raise Unreadable("it does not exist in this store").about(*where)
    number, seq, digest = found[0]
    head = Head(seq, bytes(digest)) if len(digest) == DIGEST_SIZE and seq >= 0 else None
    reading = _SalvageReader(server, number, seq, where)
    own = [*reading.rows()]
    unowned = reading.unowned()
    if not own and head is not None:
        # If the number in the row is damaged, look for the records that end as the row says.
        ends = {row[_OWNER] for row in unowned if bytes(row[5]) == head.digest}
        own = [row[:_OWNER] for row in unowned if row[_OWNER] in ends] if len(ends) == 1 else []
    remnants = [Remnant(record.seq, record) for record in map(_record, own)]
    others = (_record(row[:_OWNER]) for row in unowned)
    remnants += [Remnant(0, record, is_altered=True, is_guess=True) for record in others]
    notes = ("the server cannot read all of its rows",) if reading.is_torn else ()
    return Remains(head, remnants, notes, f"{number} {seq} {bytes(digest).hex()}")


def stamp_of(stamp: str) -> tuple[int, int, bytes] | tuple[None, None, None]:
    """Return the contents of a stamp: a session's number, and where it ended."""
    if not stamp:
        return None, None, None
    number, seq, digest = stamp.split(" ")
    return int(number), int(seq), bytes.fromhex(digest)


def _record(row: Row) -> JournalRecord:
    seq, epoch, key, at, body, digest = row
    name = key.encode("ascii", "backslashreplace").decode("ascii")
    return JournalRecord(seq, epoch, name, at, bytes(body), bytes(digest))


class _SalvageReader:
    """Reads the rows of a session in parts, and one by one where the server finds damage."""

    def __init__(self, server: Server, number: int, last: int, where: Where) -> None:
        self._server = server
        self._number = number
        self._last = last
        self._where = where
        self.is_torn = False

    def rows(self) -> Iterator[Row]:
        """Yield the rows that can be read; those that a fork shares come first."""
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

    def unowned(self) -> list[Row]:
        """Return the records that belong to no session."""
        try:
            return self._server.ask(
                sql.REMAINS_UNOWNED, (_MOST_UNOWNED,), self._where, is_slow=True
            )
        except Damaged:
            self.is_torn = True
            return []
