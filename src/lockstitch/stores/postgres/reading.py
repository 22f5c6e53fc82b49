"""Reading records and large values in chunks: no transaction or connection is held in between.

Records never change, so all up to the end that was found at first are one view of a session. They
go all at once or not at all, so a session that is replaced or removed meanwhile is found short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import starmap
from typing import Any, LiteralString

from lockstitch.errors import Damaged
from lockstitch.journal.records import Head, Record, verified
from lockstitch.stores.base import Listing
from lockstitch.stores.postgres import statements as sql
from lockstitch.stores.postgres.server import Row, Server

Ask = Callable[[LiteralString, Any], list[Row]]
CHUNK = 1000
# So many milliseconds are one step of the index over changes.
STEP = 65536
CHUNK_BYTES = 4 << 20


def records(
    server: Server, found: Row, after: Head, upto: int | None, where: str
) -> Iterator[Record]:
    """Read what follows ``after`` in a session whose row was ``found``, verified up to its end."""
    seq, digest, _epoch, number, base = found
    last = seq if upto is None else min(seq, upto)
    reached = Record(after.seq, 0, "", 0, b"", after.digest)
    for record in verified(_chunks(server, number, base, after.seq, last, where), after, where):
        reached = record
        yield record
    if reached.seq < last:
        raise Damaged(f"{where}: record {reached.seq + 1} is missing, the session ends at {last}")
    if reached.seq == seq and reached.digest != digest:
        raise Damaged(f"{where}: record {seq} is not the one that was written last (checksum)")


def _chunks(  # noqa: PLR0913, PLR0917 - a place in a session
    server: Server, number: int, base: int, after: int, upto: int, where: str
) -> Iterator[Record]:
    while after < upto:
        if after < base:
            rows = shared(lambda what, place: server.ask(what, place, where), number, after, upto)
        else:
            rows = server.ask(sql.READ, (number, after, upto, CHUNK, CHUNK_BYTES), where)
        if not rows:
            return
        yield from starmap(Record, rows)
        after = rows[-1][0]


def shared(ask: Ask, number: int, after: int, upto: int) -> list[Row]:
    """Read the next records of a fork, whoever wrote them."""
    last = min(upto, after + CHUNK)
    place = {"number": number, "after": after, "upto": last, "bytes": CHUNK_BYTES}
    return ask(sql.READ_PARTS, place)


def listing(asked: Listing, size: int) -> tuple[LiteralString, tuple[Any, ...]]:
    """Give the statement for a page of sessions, and its values."""
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


def blobs(server: Server, names: list[str], where: str) -> dict[str, bytes]:
    """Read those large values that are there, not too many at once."""
    found: dict[str, bytes] = {}
    sizes: dict[str, int] = dict(server.ask(sql.BLOB_SIZES, (names,), where))
    for group in _groups(names, sizes):
        found.update(server.ask(sql.BLOBS, (group,), where))
    return found


def _groups(names: list[str], sizes: dict[str, int]) -> Iterator[list[str]]:
    group: list[str] = []
    weight = 0
    for name in names:
        group.append(name)
        weight += sizes.get(name, 0)
        if weight >= CHUNK_BYTES:
            yield group
            group, weight = [], 0
    if group:
        yield group
