"""What sessions are called and belong to, and the order in which they are listed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any

from lockstitch.journal.about import About, about_in, about_of
from lockstitch.stores.base import Listing
from lockstitch.stores.sqlite.connections import Connection, ask

# The version that keeps it beside the sessions.
_VERSION = 4
_COLUMNS = (
    "s.number, cast(s.name as blob), s.seq, s.digest, s.epoch, s.created, s.changed,"
    " cast(s.holder as blob), s.deadline, s.term"
)


def describe(connection: Connection, number: int, bodies: Iterable[bytes]) -> None:
    """Keep how new records describe their session, if any does."""
    body = about_in(bodies)
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
    """Forget what a session is called, since its records are going to be removed."""
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
    """Give the next rows of ``sessions``, not decoded, each with what the session is called.

    A store of an older version that may not be written is listed, too, but goes without.
    """
    is_new = ask(connection, "pragma user_version") >= _VERSION
    if listing.tag and not is_new:
        return []
    try:
        rows = _rows(connection, _query(listing, is_new=is_new), count)
    except sqlite3.DatabaseError:
        # past a damaged index
        rows = _rows(connection, _query(listing, is_new=is_new, past=" not indexed"), count)
    rows = [row for row in rows if isinstance(row[1], bytes)]
    return [(row[:-1], about_of(row[-1] if isinstance(row[-1], bytes) else None)) for row in rows]


def _rows(connection: Connection, query: tuple[str, tuple[Any, ...]], count: int) -> list[Any]:
    return connection.execute(f"{query[0]} limit ?", (*query[1], count)).fetchall()


def _query(listing: Listing, *, is_new: bool, past: str = "") -> tuple[str, tuple[Any, ...]]:
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
        return f"{select} where {where} and {name} > ? order by {name}", (*values, listing.name)
    place = f"{minute} <= ? and {minute} >= ? and (s.changed < ? or (s.changed = ? and s.name > ?))"
    minutes = (listing.changed >> 16, listing.since >> 16)
    values = (*values, *minutes, listing.changed, listing.changed, listing.name)
    order = f"{minute} desc, s.changed desc, s.name"
    return f"{select} where {where} and {place} order by {order}", values
