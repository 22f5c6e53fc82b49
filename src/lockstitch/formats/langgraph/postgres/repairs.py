"""LangGraph's threads in PostgreSQL as a format, and each repair stored, recorded and undone.

To the repair procedure, the records of a thread are its head, with everything that belongs to it,
and one record for every write attached to it. A repair adds one more: the checkpoint to be stored,
in one short transaction.

Nothing that LangGraph stored is changed or deleted. The same transaction records what is added in a
table of our own, ``lockstitch_repairs`` in the same schema. An undo relies on that table: it
deletes exactly the rows that were added, if nothing has continued from them. The first repair
creates the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from msgspec import Struct, structs
from psycopg.types.json import Jsonb

from lockstitch.errors import Conflict, LockstitchError, Moved, Unreadable, Unsure, UsageError
from lockstitch.formats.interface import Context, Transcript
from lockstitch.formats.langgraph.postgres import KIND, UndoneThread
from lockstitch.formats.langgraph.postgres.database import Database, LangGraphSchema, ServerGone
from lockstitch.formats.langgraph.postgres.reading import LoadedThread, ThreadReader
from lockstitch.formats.langgraph.snapshot import (
    MSGPACK,
    Coded,
    RepairedCheckpoint,
    StoredCheckpoint,
    ThreadSnapshot,
    session_name,
)
from lockstitch.formats.langgraph.sqlite import ThreadFormat
from lockstitch.formats.records import Record
from lockstitch.stores.postgres.connections import Connection

_WENT_ON = "the thread was continued meanwhile; nothing was written"
# Any constant works that no other program uses for its own lock.
_LOCK = 0x6C6F636B73746A
_EXISTS = """
SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = 'lockstitch_repairs'
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
# Where an extension has its code, by its first byte.
_EXT_SIZES = {0xC7: 2, 0xC8: 3, 0xC9: 5, 0xD4: 1, 0xD5: 1, 0xD6: 1, 0xD7: 1, 0xD8: 1}
_UNDO_PAGE = 500
_NONE = "it has no repair to undo"
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


class ThreadRecord(Record, eq=False):
    """A record of a thread: the thread as it was read, a write on it, or the new checkpoint."""

    loaded: LoadedThread | None = None
    snapshot: ThreadSnapshot | None = None
    new: RepairedCheckpoint | None = None


class PostgresThreads(ThreadFormat):
    """The threads of LangGraph's PostgreSQL savers, for Python and LangGraph.js."""

    name = "langgraph"
    title = "LangGraph"
    kinds: tuple[str, ...] = (KIND,)

    def claims(self, name: str, head: Any) -> bool:
        return False

    def snapshot(self, records: Sequence[Record], context: Context) -> ThreadSnapshot:
        read = next(
            one.snapshot for one in records if isinstance(one, ThreadRecord) and one.snapshot
        )
        new = new_in(records)
        if new is None:
            return read
        head = StoredCheckpoint(new.id, new.parent, new.body, new.values, new.metadata)
        head.record = len(records) - 1
        return structs.replace(read, head=head, ancestors=[read.head, *read.ancestors])

    def add_checkpoint(self, records: Sequence[Record], new: RepairedCheckpoint) -> list[Record]:
        kept = [one for one in records if not (isinstance(one, ThreadRecord) and one.new)]
        return [*kept, ThreadRecord(f"checkpoints.{new.id}", {"id": new.id}, fresh=b"", new=new)]


THREADS = PostgresThreads()


def new_in(records: Sequence[Record]) -> RepairedCheckpoint | None:
    """Return the checkpoint that a repair adds to some records, None if there is none."""
    return next((one.new for one in records if isinstance(one, ThreadRecord) and one.new), None)


def _number_records(snapshot: ThreadSnapshot, records: list[Record]) -> ThreadSnapshot:
    """Return a snapshot with the numbers of its records, which are appended to ``records``."""

    def add(place: str) -> int:
        number = len(records)
        records.append(ThreadRecord(place, {"place": place}, start=number, end=number))
        return number

    number = add(f"checkpoints.{snapshot.head.id}")
    head, earlier = (
        [
            structs.replace(one, record=add(f"checkpoint_writes.{one.task}.{one.number}"))
            for one in writes
        ]
        for writes in (snapshot.head.writes, snapshot.earlier)
    )
    failed: list[StoredCheckpoint] = []
    for one in snapshot.failed:
        own = add(f"checkpoints.{one.id}")
        writes = [structs.replace(write, record=own) for write in one.writes]
        failed.append(structs.replace(one, writes=writes))
    return structs.replace(
        snapshot,
        head=structs.replace(snapshot.head, writes=head, record=number),
        earlier=earlier,
        failed=failed,
        runs=[_number_records(run, records) for run in snapshot.runs],
    )


def loaded_of(transcript: Transcript) -> LoadedThread:
    """Return the thread from which a transcript was made, as it was read."""
    records = transcript.records
    return next(one.loaded for one in records if isinstance(one, ThreadRecord) and one.loaded)


def parse_thread(loaded: LoadedThread) -> Transcript:
    """Return the transcript of a thread that was read."""
    records: list[Record] = []
    snapshot = _number_records(loaded.snapshot, records)
    first = records[0]
    assert isinstance(first, ThreadRecord)  # noqa: S101 - the head's own
    first.loaded, first.snapshot = loaded, snapshot
    return THREADS.parse(records, Context(b"", session_name(*loaded.key)))


# Storing repairs


class RepairNote(Struct, frozen=True):
    """What is recorded with a repair: the run it belongs to, and what was done."""

    run: str
    details: dict[str, Any]


def _has_table(connection: Connection, home: LangGraphSchema) -> bool:
    [(count,)] = connection.execute(_EXISTS, (home.schema,)).fetchall()
    return bool(count)


def make_repairs_table(database: Database, home: LangGraphSchema) -> None:
    """Create the table of repairs if it does not exist; several may try at once."""

    def make(connection: Connection) -> None:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if not _has_table(connection, home):
            connection.execute(home.sql(_MAKE), {})

    if not database.read(partial(_has_table, home=home), ours=True):
        try:
            database.write(make)
        except Unreadable as error:
            text = f"it needs to create lockstitch_repairs in the schema {home.schema}"
            raise Unreadable(f"{error}: {text}") from error


def store_repair(
    database: Database,
    reader: ThreadReader,
    loaded: LoadedThread,
    new: RepairedCheckpoint,
    note: RepairNote,
) -> int:
    """Store a checkpoint after the head that was read; return the number of the repair.

    Raises ``Moved``, with nothing written, if the thread is no longer as it was read.
    """
    home, before = reader.home, loaded.snapshot
    fitted = with_unique_versions(loaded, new)
    known = {"thread": before.thread, "namespace": before.namespace}
    known |= {"id": fitted.id, "run": note.run}

    def write(connection: Connection) -> int:
        now = reader.read_again(connection, loaded.key)
        if now is None or (now.snapshot.head, now.snapshot.ancestors, now.snapshot.runs) != (
            before.head,
            before.ancestors,
            before.runs,
        ):
            raise Moved(_WENT_ON)
        return _insert(connection, home, loaded, fitted, note)

    for _ in range(_TRIES):
        try:
            return database.write(write)
        except Unsure:
            # Our own table says whether it was written before the connection was lost.
            found = database.read(
                lambda connection: connection.execute(home.sql(_NOTED), known).fetchall(), ours=True
            )
        if found:
            return int(found[0][0])
    raise Unreadable("the connection was lost again and again; nothing was written")


def _insert(
    connection: Connection,
    home: LangGraphSchema,
    loaded: LoadedThread,
    new: RepairedCheckpoint,
    note: RepairNote,
) -> int:
    """Insert the rows of a checkpoint as the saver that wrote the head would have done."""
    fresh = _channels_with_new_version(loaded, new)
    blobs: list[tuple[str, str, bytes | None]] = []
    for name in sorted(fresh):
        if name in new.values:
            blobs.append((name, new.values[name].tag, new.values[name].data))
        elif loaded.is_js:
            # LangGraph.js also has a row for an empty channel.
            blobs.append((name, "empty", None))
    body = new.body
    if not loaded.is_js:
        kept = new.values.keys() - fresh
        inline = {name: value for name, value in loaded.inline.items() if name in kept}
        marked = [name for name in fresh & new.values.keys() if is_snapshot(new.values[name])]
        body = {**body, "channel_values": inline | dict.fromkeys(marked, True)}
    thread, namespace = loaded.key
    values: dict[str, Any] = {
        "thread": thread,
        "namespace": namespace,
        "id": new.id,
        "parent": new.parent,
        "checkpoint": Jsonb(body),
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


def _channels_with_new_version(loaded: LoadedThread, new: RepairedCheckpoint) -> set[str]:
    """Return the channels whose version differs from that in the stored head."""
    old, versions = loaded.snapshot.head.versions, new.body["channel_versions"]
    return {name for name, version in versions.items() if old.get(name) != version}


def is_snapshot(value: Coded) -> bool:
    """Whether a value belongs to a ``DeltaChannel``, which LangGraph marks in the row."""
    place = _EXT_SIZES.get(value.data[0]) if value.tag == MSGPACK and value.data else None
    return place is not None and value.data[place : place + 1] == bytes([_SNAPSHOT_EXT])


def with_unique_versions(loaded: LoadedThread, new: RepairedCheckpoint) -> RepairedCheckpoint:
    """Return a checkpoint whose new versions no run that is still alive can reach.

    Python's versions end in a random number. Those of LangGraph.js are whole numbers, so a live run
    would use the same next number, and what it stored under it would silently be dropped.
    """
    head = loaded.snapshot.head.versions
    numbers = [version for version in head.values() if type(version) in (int, float)]
    if len(numbers) != len(head) or not numbers:
        return new
    # A version after the last one that cannot be reached by adding whole numbers.
    last, step = max(numbers), 0.5
    while math.fmod(last, step * 2):
        step /= 2
    between = last + step if last + step > last else last + 1
    fresh = _channels_with_new_version(loaded, new)
    versions = {
        name: between if name in fresh else version
        for name, version in new.body["channel_versions"].items()
    }
    return structs.replace(new, body={**new.body, "channel_versions": versions})


# Undo


class PastRun(Struct, frozen=True):
    """A run of repairs: when it began, how many threads it repaired, how many were undone."""

    run: str
    made: datetime
    repairs: int
    undone: int


def past_runs(database: Database, home: LangGraphSchema) -> list[PastRun]:
    """Return the runs that repaired something here, newest first."""
    rows = _repairs(database, home, _RUNS, {})
    return [PastRun(*row) for row in rows or ()]


def _repairs(
    database: Database, home: LangGraphSchema, query: Any, values: dict[str, Any]
) -> list[Any] | None:
    """Query the table of repairs; return None if it does not exist."""

    def read(connection: Connection) -> list[Any] | None:
        if not _has_table(connection, home):
            return None
        return connection.execute(home.sql(query), values).fetchall()

    return database.read(read, ours=True)


def undo_repairs(
    database: Database, home: LangGraphSchema, *, session: str | None = None, run: str | None = None
) -> Iterator[UndoneThread]:
    """Undo the last run of repairs, a named run, or the last repair of one thread.

    Every thread is undone in one short transaction; a thread that has gone on yields an error.
    """
    if session is not None:
        found = _repairs(database, home, _OF_THREAD, {"thread": session, "run": run})
        if not found:
            raise UsageError(_NONE if found is None else f"{_NONE} of a thread {session}")
        yield from _undo_each(database, home, found)
        return
    last = [] if run else _repairs(database, home, _LAST_RUN, {})
    if not run and not last:
        raise UsageError(_NONE)
    values = {"run": last[0][0] if last else run, "before": 1 << 62, "size": _UNDO_PAGE}
    count = 0
    while page := _repairs(database, home, _OF_RUN, values):
        count += len(page)
        yield from _undo_each(database, home, page)
        values["before"] = page[-1][0]
    if page is None or not count:
        raise UsageError(_NONE if page is None or run is None else f"{_NONE} in a run {run}")


def _undo_each(
    database: Database, home: LangGraphSchema, repairs: list[tuple[int, str, str]]
) -> Iterator[UndoneThread]:
    for number, thread, namespace in repairs:
        name = session_name(thread, namespace)
        try:
            database.write(partial(_undo_one, home=home, number=number))
        except ServerGone:
            raise
        except LockstitchError as error:
            yield UndoneThread(name, error.message_with_session)
            continue
        yield UndoneThread(name)


def _undo_one(connection: Connection, home: LangGraphSchema, number: int) -> None:
    """Delete the rows of one repair, if they are as it added them and nothing depends on them."""
    rows = connection.execute(home.sql(_LOCKED), {"number": number}).fetchall()
    if not rows:
        return
    [(thread, namespace, own, added)] = rows
    values: dict[str, Any] = {"thread": thread, "namespace": namespace, "id": own}
    values["channels"] = [channel for channel, _, _ in added["blobs"]]
    values["versions"] = [version for _, version, _ in added["blobs"]]
    [(gone_on,)] = connection.execute(home.sql(_GONE_ON), values).fetchall()
    if gone_on:
        raise Conflict("the thread was continued since the repair; nothing was undone")
    values["digest"] = added["checkpoint"]
    count = connection.execute(home.sql(_DELETE_CHECKPOINT), values).rowcount
    for channel, version, digest in added["blobs"]:
        values |= {"channel": channel, "version": version, "digest": digest}
        count += connection.execute(home.sql(_DELETE_BLOB), values).rowcount
    if count != 1 + len(added["blobs"]):
        [(is_there,)] = connection.execute(home.sql(_IS_THERE), values).fetchall()
        # A thread that was deleted as a whole has nothing left to take back.
        if count or is_there:
            raise Conflict("the rows have changed since the repair; nothing was undone")
    connection.execute(home.sql(_MARK), {"number": number})
