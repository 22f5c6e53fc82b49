"""Forks: a session's first records are those of another one, which are not copied.

A fork names the number of its source and how far its records are taken from there; the source may
be a fork itself. The records of a session that was removed stay under its number as long as a fork
needs them, and no further than it does.
"""

from __future__ import annotations

from collections.abc import Iterator

from lockstitch.errors import Damaged
from lockstitch.journal.records import Record
from lockstitch.stores.sqlite import pieces, rows
from lockstitch.stores.sqlite.connections import FORKS, Connection, version_of


def records(
    connection: Connection, number: int, after: int, upto: int, where: str
) -> Iterator[Record]:
    """Read a session's records from behind one to another, from wherever they are kept."""
    if version_of(connection) < FORKS:
        yield from rows.records(connection, number, after, upto, where)
        return
    start = 0
    for part, last in parts(connection, number, where):
        end = upto if last is None else min(last, upto)
        first = max(start, after)
        if first < end:
            yield from _own(connection, part, first, end, where)
        start = end


def _own(
    connection: Connection, number: int, after: int, upto: int, where: str
) -> Iterator[Record]:
    """Read what is kept under one number: what an earlier version wrote comes first."""
    older = rows.last_seq(connection, number)
    if after < older:
        yield from rows.records(connection, number, after, min(upto, older), where)
        after = older
    if after < upto:
        yield from pieces.records(connection, number, after, upto, where)


def parts(connection: Connection, number: int, where: str) -> list[tuple[int, int | None]]:
    """List the numbers that hold a session's records, and how far each does, None to its end."""
    found: list[tuple[int, int | None]] = [(number, None)]
    if version_of(connection) < FORKS:
        return found
    seen = {number}
    while (link := _link(connection, number)) is not None:
        number, upto = link
        if number in seen:
            raise Damaged(f"{where}: its records are said to be those of a fork of itself")
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
    """Remove all that is kept under a number; gives the number that it forked."""
    pieces.cut(connection, number, 0)
    rows.cut(connection, number, 0)
    link = _link(connection, number)
    connection.execute("delete from forks where session = ?", (number,))
    return None if link is None else link[0]


def _needed(connection: Connection, number: int) -> int:
    """How many of a number's records forks need."""
    [(upto,)] = connection.execute("select max(upto) from forks where source = ?", (number,))
    return upto or 0


def strays(connection: Connection) -> list[int]:
    """List the numbers that have records, or are forks, and that nobody needs."""
    found = rows.numbers(connection)
    known = {row[0] for row in connection.execute("select number from sessions")}
    if version_of(connection) >= FORKS:
        found |= pieces.numbers(connection)
        found |= {row[0] for row in connection.execute("select session from forks")}
        known |= {row[0] for row in connection.execute("select source from forks")}
    return sorted(found - known)
