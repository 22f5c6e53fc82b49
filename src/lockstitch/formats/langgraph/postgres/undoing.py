"""Repairs taken back: exactly the rows that they added, where nothing has gone on from them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any

from msgspec import Struct

from lockstitch.errors import Conflict, LockstitchError, UsageError
from lockstitch.formats.langgraph.postgres.database import Database, Gone
from lockstitch.formats.langgraph.postgres.repairs import has_table
from lockstitch.formats.langgraph.postgres.tables import Home
from lockstitch.formats.langgraph.snapshot import session_name
from lockstitch.stores.postgres.connections import Connection

_PAGE = 500
_NONE = "has no repair to take back"
_LAST_RUN = "SELECT run FROM {lockstitch_repairs} WHERE undone IS NULL ORDER BY id DESC LIMIT 1"
_RUNS = """
SELECT run, min(made), count(*), count(undone) FROM {lockstitch_repairs}
GROUP BY run ORDER BY min(id) DESC
"""
_OF_RUN = """
SELECT id, thread_id, checkpoint_ns FROM {lockstitch_repairs}
WHERE run = %(run)s AND id < %(before)s AND undone IS NULL ORDER BY id DESC LIMIT %(size)s
"""
_OF_THREAD = """
SELECT DISTINCT ON (checkpoint_ns) id, thread_id, checkpoint_ns FROM {lockstitch_repairs}
WHERE thread_id = %(thread)s AND undone IS NULL AND (%(run)s::text IS NULL OR run = %(run)s)
ORDER BY checkpoint_ns, id DESC
"""
_LOCKED = """
SELECT thread_id, checkpoint_ns, checkpoint_id, rows FROM {lockstitch_repairs}
WHERE id = %(number)s AND undone IS NULL FOR UPDATE
"""
_GONE_ON = """
SELECT EXISTS (SELECT FROM {checkpoint_writes} w WHERE w.thread_id = %(thread)s
    AND w.checkpoint_ns = %(namespace)s AND w.checkpoint_id = %(id)s)
OR EXISTS (SELECT FROM {checkpoints} c WHERE c.thread_id = %(thread)s
    AND c.checkpoint_ns = %(namespace)s AND c.checkpoint_id > %(id)s
    AND (c.parent_checkpoint_id = %(id)s OR EXISTS (
        SELECT FROM unnest(%(channels)s::text[], %(versions)s::text[]) AS b(channel, version)
        WHERE c.checkpoint -> 'channel_versions' ->> b.channel = b.version)))
"""
_DELETE_CHECKPOINT = """
DELETE FROM {checkpoints} c WHERE c.thread_id = %(thread)s AND c.checkpoint_ns = %(namespace)s
    AND c.checkpoint_id = %(id)s
    AND encode(sha256(convert_to(c.checkpoint::text || c.metadata::text, 'UTF8')), 'hex')
        = %(digest)s
"""
_DELETE_BLOB = """
DELETE FROM {checkpoint_blobs} b WHERE b.thread_id = %(thread)s AND b.checkpoint_ns = %(namespace)s
    AND b.channel = %(channel)s AND b.version = %(version)s
    AND encode(sha256(coalesce(b.blob, ''::bytea)), 'hex') = %(digest)s
"""
_IS_THERE = """
SELECT EXISTS (SELECT FROM {checkpoints} c WHERE c.thread_id = %(thread)s
    AND c.checkpoint_ns = %(namespace)s AND c.checkpoint_id = %(id)s)
"""
_MARK = "UPDATE {lockstitch_repairs} SET undone = clock_timestamp() WHERE id = %(number)s"


class Past(Struct, frozen=True):
    """A run of repairs: when it began, how many threads it mended, how many were taken back."""

    run: str
    made: datetime
    repairs: int
    undone: int


class Undone(Struct, frozen=True):
    """A thread whose repair was taken back; ``error`` says why it was not."""

    session: str
    error: str | None = None


def past(database: Database, home: Home) -> list[Past]:
    """Give the runs that repaired something here, newest first."""

    def read(connection: Connection) -> list[Past]:
        if not has_table(connection, home, "lockstitch_repairs"):
            return []
        return [Past(*row) for row in connection.execute(home.sql(_RUNS), {}).fetchall()]

    return database.reading(read, ours=True)


def undo(
    database: Database, home: Home, *, session: str | None = None, run: str | None = None
) -> Iterator[Undone]:
    """Take back the last run of repairs, that of a name, or the last repair of one thread.

    Every thread is one short transaction of its own; where one has gone on, it says so.
    """
    if session is not None:
        yield from _each(database, home, _of_thread(database, home, session, run))
        return
    name = run or _last_run(database, home)
    before = 1 << 62
    count = 0
    while True:
        page = _of_run(database, home, name, before)
        count += len(page)
        yield from _each(database, home, page)
        if len(page) < _PAGE:
            break
        before = page[-1][0]
    if not count:
        raise UsageError(_NONE if run is None else f"{_NONE} in a run {run}")


Listed = tuple[int, str, str]


def _last_run(database: Database, home: Home) -> str:
    def read(connection: Connection) -> str:
        if has_table(connection, home, "lockstitch_repairs"):
            for (name,) in connection.execute(home.sql(_LAST_RUN), {}).fetchall():
                return str(name)
        raise UsageError(_NONE)

    return database.reading(read, ours=True)


def _of_run(database: Database, home: Home, run: str, before: int) -> list[Listed]:
    values = {"run": run, "before": before, "size": _PAGE}

    def read(connection: Connection) -> list[Listed]:
        if not has_table(connection, home, "lockstitch_repairs"):
            raise UsageError(_NONE)
        rows = connection.execute(home.sql(_OF_RUN), values).fetchall()
        return [(number, thread, space) for number, thread, space in rows]

    return database.reading(read, ours=True)


def _of_thread(database: Database, home: Home, session: str, run: str | None) -> list[Listed]:
    def read(connection: Connection) -> list[Listed]:
        if not has_table(connection, home, "lockstitch_repairs"):
            raise UsageError(_NONE)
        values = {"thread": session, "run": run}
        rows = connection.execute(home.sql(_OF_THREAD), values).fetchall()
        return [(number, thread, space) for number, thread, space in rows]

    found = database.reading(read, ours=True)
    if not found:
        raise UsageError(f"{_NONE} of a thread {session}")
    return found


def _each(database: Database, home: Home, repairs: list[Listed]) -> Iterator[Undone]:
    for number, thread, namespace in repairs:
        name = session_name(thread, namespace)
        try:
            database.writing(partial(take_back, home=home, number=number))
        except Gone:
            raise
        except LockstitchError as error:
            yield Undone(name, str(error))
            continue
        yield Undone(name)


def _is_there(connection: Connection, home: Home, values: dict[str, Any]) -> bool:
    [(found,)] = connection.execute(home.sql(_IS_THERE), values).fetchall()
    return bool(found)


def take_back(connection: Connection, home: Home, number: int) -> None:
    """Delete the rows of one repair, if they are what it added and nothing hangs on them."""
    rows = connection.execute(home.sql(_LOCKED), {"number": number}).fetchall()
    if not rows:
        return
    [(thread, namespace, own, added)] = rows
    values: dict[str, Any] = {"thread": thread, "namespace": namespace, "id": own}
    values["channels"] = [channel for channel, _, _ in added["blobs"]]
    values["versions"] = [version for _, version, _ in added["blobs"]]
    [(gone_on,)] = connection.execute(home.sql(_GONE_ON), values).fetchall()
    if gone_on:
        raise Conflict("the thread has gone on from the repair; nothing was taken back")
    values["digest"] = added["checkpoint"]
    count = connection.execute(home.sql(_DELETE_CHECKPOINT), values).rowcount
    for channel, version, digest in added["blobs"]:
        values |= {"channel": channel, "version": version, "digest": digest}
        count += connection.execute(home.sql(_DELETE_BLOB), values).rowcount
    # A thread that was deleted as a whole has nothing left to take back.
    if count not in (0, 1 + len(added["blobs"])) or (
        not count and _is_there(connection, home, values)
    ):
        raise Conflict("the rows are no longer what the repair added; nothing was taken back")
    connection.execute(home.sql(_MARK), {"number": number})
