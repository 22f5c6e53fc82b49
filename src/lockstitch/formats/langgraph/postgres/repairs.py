"""A repair of a thread: one more checkpoint, stored in one short transaction, and noted down.

Nothing that LangGraph stored is changed or deleted. What is added is written down in a table of
our own, ``lockstitch_repairs`` in the same schema, in the same transaction: that is what an undo
goes by. The table is made by the first repair.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs
from psycopg.types.json import Jsonb

from lockstitch.errors import Moved, Unreadable, Unsure
from lockstitch.formats.langgraph.postgres.database import Database
from lockstitch.formats.langgraph.postgres.reading import Key, Loaded, Reader
from lockstitch.formats.langgraph.postgres.tables import Home
from lockstitch.formats.langgraph.snapshot import MSGPACK, Coded, RepairedCheckpoint
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


class Note(Struct, frozen=True):
    """What is written down with a repair: the run it belongs to, and what was done."""

    run: str
    details: dict[str, Any]


def has_table(connection: Connection, home: Home, table: str) -> bool:
    """Tell whether a table of ours is there."""
    values = {"schema": home.schema, "table": table}
    [(count,)] = connection.execute(_EXISTS, values).fetchall()
    return bool(count)


def make_tables(database: Database, home: Home, table: str, statements: Composed) -> None:
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


def prepare(database: Database, home: Home) -> None:
    """Make the table of repairs if it is not there yet."""
    make_tables(database, home, "lockstitch_repairs", home.sql(_MAKE))


def store(
    database: Database, reader: Reader, loaded: Loaded, new: RepairedCheckpoint, note: Note
) -> int:
    """Store a checkpoint behind the head that was read, and give the number of the repair.

    Raises ``Moved``, and nothing was written, if the thread is no longer what was read.
    """
    fitted = apart(loaded, new)

    def write(connection: Connection) -> int:
        _require_same(reader.now(connection, loaded.key), loaded)
        return _insert(connection, reader.home, loaded, fitted, note)

    for _ in range(_TRIES):
        try:
            return database.writing(write)
        except Unsure:
            noted = partial(_noted, home=reader.home, key=loaded.key, own=fitted.id, run=note.run)
            found = database.reading(noted, ours=True)
        if found is not None:
            return found
    raise Unreadable("the connection was lost again and again; nothing was written")


def _require_same(now: Loaded | None, before: Loaded) -> None:
    if now is None or now.snapshot.head != before.snapshot.head:
        raise Moved(_WENT_ON)
    if now.snapshot.ancestors != before.snapshot.ancestors or (
        now.snapshot.runs != before.snapshot.runs
    ):
        raise Moved(_WENT_ON)


def _noted(connection: Connection, home: Home, key: Key, own: str, run: str) -> int | None:
    values = {"thread": key[0], "namespace": key[1], "id": own, "run": run}
    rows = connection.execute(home.sql(_NOTED), values).fetchall()
    return rows[0][0] if rows else None


def _insert(
    connection: Connection, home: Home, loaded: Loaded, new: RepairedCheckpoint, note: Note
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


def _blobs(loaded: Loaded, new: RepairedCheckpoint) -> list[tuple[str, str, bytes | None]]:
    """Give the rows of new values; LangGraph.js has one for a channel that is empty, too."""
    rows: list[tuple[str, str, bytes | None]] = []
    for name in sorted(_fresh(loaded, new)):
        if name in new.values:
            rows.append((name, new.values[name].tag, new.values[name].data))
        elif loaded.is_js:
            rows.append((name, "empty", None))
    return rows


def _fresh(loaded: Loaded, new: RepairedCheckpoint) -> set[str]:
    """Give the channels whose version is another one than in the head that is stored."""
    old, versions = loaded.snapshot.head.versions, new.body["channel_versions"]
    return {name for name, version in versions.items() if old.get(name) != version}


def _checkpoint(loaded: Loaded, new: RepairedCheckpoint) -> dict[str, Any]:
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


def apart(loaded: Loaded, new: RepairedCheckpoint) -> RepairedCheckpoint:
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
