"""A repair of a thread: one more checkpoint, stored in one short transaction, and noted down.

Nothing that LangGraph stored is changed or deleted. What is added is written down in a table of
our own, ``lockstitch_repairs`` in the same schema, in the same transaction: that is what an undo
goes by. The table is made by the first repair.

Repairs taken back: exactly the rows that they added, where nothing has gone on from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs
from psycopg.types.json import Jsonb

from lockstitch.errors import Conflict, LockstitchError, Moved, Unreadable, Unsure, UsageError
from lockstitch.formats.langgraph.postgres.database import Database, LangGraphSchema, ServerGone
from lockstitch.formats.langgraph.postgres.reading import Key, LoadedThread, ThreadReader
from lockstitch.formats.langgraph.snapshot import MSGPACK, Coded, RepairedCheckpoint, session_name
from lockstitch.stores.postgres.connections import Connection

if TYPE_CHECKING:
    from psycopg.sql import Composed


_WENT_ON = "the thread went on meanwhile; nothing was written"
# Any constant will do that no other program takes for its own lock.
_LOCK = 0x6C6F636B73746A
_EXISTS = """
SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(table)s
"""
_MAKE = """
CREATE TABLE IF NOT EXISTS {lockstitch_repairs} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run text NOT NULL,
    made timestamptz NOT NULL DEFAULT clock_timestamp(),
    thread_id text NOT NULL,
    checkpoint_ns text NOT NULL,
    checkpoint_id text NOT NULL,
    parent_checkpoint_id text NOT NULL,
    rows jsonb NOT NULL,
    details jsonb NOT NULL,
    undone timestamptz
);
CREATE INDEX IF NOT EXISTS lockstitch_repairs_thread
    ON {lockstitch_repairs} (thread_id, checkpoint_ns, id);
CREATE INDEX IF NOT EXISTS lockstitch_repairs_run ON {lockstitch_repairs} (run, id);
"""
_INSERT_BLOBS = """
INSERT INTO {checkpoint_blobs} (thread_id, checkpoint_ns, channel, version, type, blob)
SELECT %(thread)s, %(namespace)s, u.channel,
    %(checkpoint)s::jsonb -> 'channel_versions' ->> u.channel, u.type, u.blob
FROM unnest(%(channels)s::text[], %(types)s::text[], %(blobs)s::bytea[]) AS u(channel, type, blob)
RETURNING channel, version, encode(sha256(coalesce(blob, ''::bytea)), 'hex')
"""
_INSERT_CHECKPOINT = """
INSERT INTO {checkpoints} AS c
    (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)
VALUES (%(thread)s, %(namespace)s, %(id)s, %(parent)s, %(checkpoint)s::jsonb, %(metadata)s::jsonb)
RETURNING encode(sha256(convert_to(c.checkpoint::text || c.metadata::text, 'UTF8')), 'hex')
"""
_INSERT_REPAIR = """
INSERT INTO {lockstitch_repairs}
    (run, thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, rows, details)
VALUES (%(run)s, %(thread)s, %(namespace)s, %(id)s, %(parent)s, %(rows)s, %(details)s)
RETURNING id
"""
_NOTED = """
SELECT id FROM {lockstitch_repairs} WHERE thread_id = %(thread)s AND checkpoint_ns = %(namespace)s
    AND checkpoint_id = %(id)s AND run = %(run)s AND undone IS NULL
"""
_TRIES = 3
_SNAPSHOT_EXT = 7
_EXT_SIZES = {0xC7: 2, 0xC8: 3, 0xC9: 5, 0xD4: 1, 0xD5: 1, 0xD6: 1, 0xD7: 1, 0xD8: 1}


class RepairNote(Struct, frozen=True):
    """What is written down with a repair: the run it belongs to, and what was done."""

    run: str
    details: dict[str, Any]


def has_table(connection: Connection, home: LangGraphSchema, table: str) -> bool:
    """Tell whether a table of ours is there."""
    values = {"schema": home.schema, "table": table}
    [(count,)] = connection.execute(_EXISTS, values).fetchall()
    return bool(count)


def make_tables(
    database: Database, home: LangGraphSchema, table: str, statements: Composed
) -> None:
    """Make tables of ours if one of them is not there yet; several may try at once."""

    def make(connection: Connection) -> None:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if not has_table(connection, home, table):
            connection.execute(statements, {})

    if not database.reading(lambda connection: has_table(connection, home, table), ours=True):
        try:
            database.writing(make)
        except Unreadable as error:
            text = f"{error}: it needs to create {table} in the schema {home.schema}"
            raise Unreadable(text) from error


def make_repairs_table(database: Database, home: LangGraphSchema) -> None:
    """Make the table of repairs if it is not there yet."""
    make_tables(database, home, "lockstitch_repairs", home.sql(_MAKE))


def store_repair(
    database: Database,
    reader: ThreadReader,
    loaded: LoadedThread,
    new: RepairedCheckpoint,
    note: RepairNote,
) -> int:
    """Store a checkpoint behind the head that was read, and give the number of the repair.

    Raises ``Moved``, and nothing was written, if the thread is no longer what was read.
    """
    fitted = with_unique_versions(loaded, new)

    def write(connection: Connection) -> int:
        _require_same(reader.now(connection, loaded.key), loaded)
        return _insert(connection, reader.home, loaded, fitted, note)

    for _ in range(_TRIES):
        try:
            return database.writing(write)
        except Unsure:
            noted = partial(
                _find_noted, home=reader.home, key=loaded.key, own=fitted.id, run=note.run
            )
            found = database.reading(noted, ours=True)
        if found is not None:
            return found
    raise Unreadable("the connection was lost again and again; nothing was written")


def _require_same(now: LoadedThread | None, before: LoadedThread) -> None:
    if now is None or now.snapshot.head != before.snapshot.head:
        raise Moved(_WENT_ON)
    if now.snapshot.ancestors != before.snapshot.ancestors or (
        now.snapshot.runs != before.snapshot.runs
    ):
        raise Moved(_WENT_ON)


def _find_noted(
    connection: Connection, home: LangGraphSchema, key: Key, own: str, run: str
) -> int | None:
    values = {"thread": key[0], "namespace": key[1], "id": own, "run": run}
    rows = connection.execute(home.sql(_NOTED), values).fetchall()
    return rows[0][0] if rows else None


def _insert(
    connection: Connection,
    home: LangGraphSchema,
    loaded: LoadedThread,
    new: RepairedCheckpoint,
    note: RepairNote,
) -> int:
    thread, namespace = loaded.key
    blobs = _blobs(loaded, new)
    values: dict[str, Any] = {
        "thread": thread,
        "namespace": namespace,
        "id": new.id,
        "parent": new.parent,
        "checkpoint": Jsonb(_checkpoint(loaded, new)),
        "metadata": Jsonb(new.metadata),
        "channels": [channel for channel, _, _ in blobs],
        "types": [tag for _, tag, _ in blobs],
        "blobs": [blob for _, _, blob in blobs],
    }
    made = connection.execute(home.sql(_INSERT_BLOBS), values).fetchall() if blobs else []
    [(digest,)] = connection.execute(home.sql(_INSERT_CHECKPOINT), values).fetchall()
    rows = {"checkpoint": digest, "blobs": [list(row) for row in made]}
    values |= {"run": note.run, "rows": Jsonb(rows), "details": Jsonb(note.details)}
    [(number,)] = connection.execute(home.sql(_INSERT_REPAIR), values).fetchall()
    return int(number)


def _blobs(loaded: LoadedThread, new: RepairedCheckpoint) -> list[tuple[str, str, bytes | None]]:
    """Give the rows of new values; LangGraph.js has one for a channel that is empty, too."""
    rows: list[tuple[str, str, bytes | None]] = []
    for name in sorted(_fresh(loaded, new)):
        if name in new.values:
            rows.append((name, new.values[name].tag, new.values[name].data))
        elif loaded.is_js:
            rows.append((name, "empty", None))
    return rows


def _fresh(loaded: LoadedThread, new: RepairedCheckpoint) -> set[str]:
    """Give the channels whose version is another one than in the head that is stored."""
    old, versions = loaded.snapshot.head.versions, new.body["channel_versions"]
    return {name for name, version in versions.items() if old.get(name) != version}


def _checkpoint(loaded: LoadedThread, new: RepairedCheckpoint) -> dict[str, Any]:
    """Give the row's body as the saver that wrote the head would have written it."""
    if loaded.is_js:
        return new.body
    fresh = _fresh(loaded, new) & new.values.keys()
    kept = new.values.keys() - fresh
    inline = {name: value for name, value in loaded.inline.items() if name in kept}
    inline |= {name: True for name in fresh if is_snapshot(new.values[name])}
    return {**new.body, "channel_values": inline}


def is_snapshot(value: Coded) -> bool:
    """Tell the value of a ``DeltaChannel``, which LangGraph marks in the row, from any other."""
    place = _EXT_SIZES.get(value.data[0]) if value.tag == MSGPACK and value.data else None
    return place is not None and value.data[place : place + 1] == bytes([_SNAPSHOT_EXT])


def with_unique_versions(loaded: LoadedThread, new: RepairedCheckpoint) -> RepairedCheckpoint:
    """Give a checkpoint whose new versions no run that is still alive can come to.

    Python's versions end in a random number. Those of LangGraph.js are whole numbers, the next of
    which a live run takes, too; and what it stored under it would be dropped without a word.
    """
    head = loaded.snapshot.head.versions
    numbers = [version for version in head.values() if type(version) in (int, float)]
    if len(numbers) != len(head) or not numbers:
        return new
    fresh = _fresh(loaded, new)
    between = _between(max(numbers))
    versions = {
        name: between if name in fresh else version
        for name, version in new.body["channel_versions"].items()
    }
    return structs.replace(new, body={**new.body, "channel_versions": versions})


def _between(last: float) -> float:
    """Give a version behind the last one that no number of whole steps leads to."""
    step = 0.5
    while math.fmod(last, step * 2):
        step /= 2
    return last + step if last + step > last else last + 1


_UNDO_PAGE = 500
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


class PastRun(Struct, frozen=True):
    """A run of repairs: when it began, how many threads it mended, how many were taken back."""

    run: str
    made: datetime
    repairs: int
    undone: int


class UndoneThread(Struct, frozen=True):
    """A thread whose repair was taken back; ``error`` says why it was not."""

    session: str
    error: str | None = None


def past_runs(database: Database, home: LangGraphSchema) -> list[PastRun]:
    """Give the runs that repaired something here, newest first."""

    def read(connection: Connection) -> list[PastRun]:
        if not has_table(connection, home, "lockstitch_repairs"):
            return []
        return [PastRun(*row) for row in connection.execute(home.sql(_RUNS), {}).fetchall()]

    return database.reading(read, ours=True)


def undo_repairs(
    database: Database, home: LangGraphSchema, *, session: str | None = None, run: str | None = None
) -> Iterator[UndoneThread]:
    """Take back the last run of repairs, that of a name, or the last repair of one thread.

    Every thread is one short transaction of its own; where one has gone on, it says so.
    """
    if session is not None:
        yield from _undo_each(database, home, _of_thread(database, home, session, run))
        return
    name = run or _last_run(database, home)
    before = 1 << 62
    count = 0
    while True:
        page = _of_run(database, home, name, before)
        count += len(page)
        yield from _undo_each(database, home, page)
        if len(page) < _UNDO_PAGE:
            break
        before = page[-1][0]
    if not count:
        raise UsageError(_NONE if run is None else f"{_NONE} in a run {run}")


ListedRepair = tuple[int, str, str]


def _last_run(database: Database, home: LangGraphSchema) -> str:
    def read(connection: Connection) -> str:
        if has_table(connection, home, "lockstitch_repairs"):
            for (name,) in connection.execute(home.sql(_LAST_RUN), {}).fetchall():
                return str(name)
        raise UsageError(_NONE)

    return database.reading(read, ours=True)


def _of_run(database: Database, home: LangGraphSchema, run: str, before: int) -> list[ListedRepair]:
    values = {"run": run, "before": before, "size": _UNDO_PAGE}

    def read(connection: Connection) -> list[ListedRepair]:
        if not has_table(connection, home, "lockstitch_repairs"):
            raise UsageError(_NONE)
        rows = connection.execute(home.sql(_OF_RUN), values).fetchall()
        return [(number, thread, space) for number, thread, space in rows]

    return database.reading(read, ours=True)


def _of_thread(
    database: Database, home: LangGraphSchema, session: str, run: str | None
) -> list[ListedRepair]:
    def read(connection: Connection) -> list[ListedRepair]:
        if not has_table(connection, home, "lockstitch_repairs"):
            raise UsageError(_NONE)
        values = {"thread": session, "run": run}
        rows = connection.execute(home.sql(_OF_THREAD), values).fetchall()
        return [(number, thread, space) for number, thread, space in rows]

    found = database.reading(read, ours=True)
    if not found:
        raise UsageError(f"{_NONE} of a thread {session}")
    return found


def _undo_each(
    database: Database, home: LangGraphSchema, repairs: list[ListedRepair]
) -> Iterator[UndoneThread]:
    for number, thread, namespace in repairs:
        name = session_name(thread, namespace)
        try:
            database.writing(partial(take_back, home=home, number=number))
        except ServerGone:
            raise
        except LockstitchError as error:
            yield UndoneThread(name, str(error))
            continue
        yield UndoneThread(name)


def _is_there(connection: Connection, home: LangGraphSchema, values: dict[str, Any]) -> bool:
    [(found,)] = connection.execute(home.sql(_IS_THERE), values).fetchall()
    return bool(found)


def take_back(connection: Connection, home: LangGraphSchema, number: int) -> None:
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
