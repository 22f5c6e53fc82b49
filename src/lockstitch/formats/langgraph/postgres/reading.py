"""Threads read from a live database: page by page, each in one short read-only transaction.

Memory holds one page of names and, for a group of threads, the heads with their values. A group is
so small that its values take a few megabytes, however large single threads are.

Each statement finds exactly its rows, by a primary key. Threads are listed by hopping over the
primary key from one thread to the next. Two sets of rows are joined by looking them up one by one
(``LATERAL`` with a ``LIMIT`` or an ``OFFSET``, which keep it from being turned into a join). A real
join would be planned from estimates, which are worst for the few threads that are huge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct, field
from psycopg import sql

from lockstitch.formats.langgraph.postgres.database import Database, LangGraphSchema
from lockstitch.formats.langgraph.repair import unanswered_calls
from lockstitch.formats.langgraph.safety import KeptValue, find_unsafe
from lockstitch.formats.langgraph.snapshot import (
    ERROR,
    JSON,
    MARK,
    MESSAGES,
    MSGPACK,
    OWN,
    TASKS,
    Coded,
    LostBranch,
    StoredCheckpoint,
    StoredWrite,
    ThreadSnapshot,
    branches,
    holders,
    is_attached_to,
    is_control,
    is_run_in,
    is_trigger,
    starts_of,
    wanted,
)
from lockstitch.stores.postgres.connections import Connection

# Threads and their namespaces after a key, in the order of the primary key.
KEYS = """
WITH RECURSIVE walk AS (
    (SELECT c.thread_id, c.checkpoint_ns, 1 AS number FROM {checkpoints} c
    WHERE {first} ORDER BY c.thread_id, c.checkpoint_ns, c.checkpoint_id LIMIT 1)
    UNION ALL
    SELECT f.thread_id, f.checkpoint_ns, w.number + 1 FROM walk w CROSS JOIN LATERAL (
        SELECT c.thread_id, c.checkpoint_ns FROM {checkpoints} c
        WHERE (c.thread_id, c.checkpoint_ns) > (w.thread_id, w.checkpoint_ns) {bound}
        ORDER BY c.thread_id, c.checkpoint_ns, c.checkpoint_id LIMIT 1
    ) f WHERE w.number < %(size)s
)
SELECT thread_id, checkpoint_ns FROM walk
"""
FIRST_OF_ALL = "true {bound}"
FIRST_BEHIND = "(c.thread_id, c.checkpoint_ns) > (%(thread)s, %(namespace)s) {bound}"
FIRST_OF_THREAD = "c.thread_id = %(thread)s {bound}"
BOUND = "AND c.thread_id <= %(thread)s"

_VERSIONS = """
jsonb_each_text(CASE jsonb_typeof(c.checkpoint -> 'channel_versions')
    WHEN 'object' THEN c.checkpoint -> 'channel_versions' ELSE '{{}}' END) v
"""
_BLOB = """
SELECT b.type, b.blob FROM {checkpoint_blobs} b WHERE b.thread_id = k.thread
AND b.checkpoint_ns = k.namespace AND b.channel = v.key AND b.version = v.value LIMIT 1
"""
_WRITE = """
FROM {checkpoint_writes} w WHERE w.thread_id = k.thread AND w.checkpoint_ns = k.namespace
AND w.checkpoint_id = c.checkpoint_id
"""

HEADS = (
    """
SELECT k.thread, k.namespace, c.checkpoint_id, c.parent_checkpoint_id, c.checkpoint, c.metadata,
    (SELECT coalesce(sum(octet_length(f.blob)), 0) FROM """  # noqa: S608 - all of it our own
    + _VERSIONS
    + " CROSS JOIN LATERAL ("
    + _BLOB
    + """) f) + (SELECT coalesce(sum(octet_length(w.blob)), 0) """
    + _WRITE
    + """)
FROM unnest(%(threads)s::text[], %(namespaces)s::text[]) WITH ORDINALITY
    AS k(thread, namespace, number)
CROSS JOIN LATERAL (
    SELECT checkpoint_id, parent_checkpoint_id, checkpoint, metadata FROM {checkpoints} c
    WHERE c.thread_id = k.thread AND c.checkpoint_ns = k.namespace
    ORDER BY c.thread_id DESC, c.checkpoint_ns DESC, c.checkpoint_id DESC LIMIT 1
) c
ORDER BY k.number
"""
)

_CHECKPOINT = """
FROM unnest(%(threads)s::text[], %(namespaces)s::text[], %(ids)s::text[]) WITH ORDINALITY
    AS k(thread, namespace, id, number)
CROSS JOIN LATERAL (
    SELECT c.checkpoint_id, c.checkpoint FROM {checkpoints} c
    WHERE c.thread_id = k.thread AND c.checkpoint_ns = k.namespace AND c.checkpoint_id = k.id
    LIMIT 1
) c
"""
BLOBS = (
    "SELECT k.number - 1, v.key, f.type, f.blob "
    + _CHECKPOINT
    + " CROSS JOIN LATERAL "
    + _VERSIONS
    + " CROSS JOIN LATERAL ("
    + _BLOB
    + ") f WHERE %(channels)s::text[] IS NULL OR v.key = ANY(%(channels)s::text[])"
)
# The same, but only the tags of the values stored beside the row, without the values.
TAGS = BLOBS.replace("f.type, f.blob", "f.type, NULL::bytea", 1)
WRITES = (
    "SELECT k.number - 1, w.task_id, w.path, w.idx, w.channel, w.type, w.blob "
    + _CHECKPOINT
    + " CROSS JOIN LATERAL (SELECT w.task_id, {task_path} AS path, w.idx, w.channel, w.type, "
    + "w.blob "
    + _WRITE
    + " OFFSET 0) w WHERE %(channels)s::text[] IS NULL OR w.channel = ANY(%(channels)s::text[])"
)

# The last checkpoints of every namespace, and their parents.
PARENTS = """
SELECT k.number - 1, p.checkpoint_id, p.parent_checkpoint_id
FROM unnest(%(threads)s::text[], %(namespaces)s::text[]) WITH ORDINALITY
    AS k(thread, namespace, number)
CROSS JOIN LATERAL (
    SELECT c.checkpoint_id, c.parent_checkpoint_id FROM {checkpoints} c
    WHERE c.thread_id = k.thread AND c.checkpoint_ns = k.namespace
    ORDER BY c.thread_id DESC, c.checkpoint_ns DESC, c.checkpoint_id DESC LIMIT %(size)s
) p
"""
SOURCES = """
SELECT c.checkpoint_id, c.metadata ->> 'source', c.metadata ? 'lockstitch' FROM {checkpoints} c
WHERE c.thread_id = %(thread)s AND c.checkpoint_ns = %(namespace)s
    AND c.checkpoint_id = ANY(%(ids)s::text[])
"""
METADATA = """
SELECT c.checkpoint_id, c.metadata FROM {checkpoints} c
WHERE c.thread_id = %(thread)s AND c.checkpoint_ns = %(namespace)s
    AND c.checkpoint_id = ANY(%(ids)s::text[])
"""
ANCESTORS = """
SELECT c.checkpoint_id, c.parent_checkpoint_id, c.checkpoint, c.metadata FROM {checkpoints} c
WHERE c.thread_id = %(thread)s AND c.checkpoint_ns = %(namespace)s
    AND c.checkpoint_id < %(before)s
ORDER BY c.thread_id DESC, c.checkpoint_ns DESC, c.checkpoint_id DESC LIMIT %(size)s
"""
# The namespaces of a thread in which something was stored after a checkpoint.
LATER = """
SELECT c.checkpoint_ns FROM {checkpoints} c
WHERE c.thread_id = %(thread)s AND c.checkpoint_ns > '' GROUP BY c.checkpoint_ns
HAVING max(c.checkpoint_id) > %(behind)s
"""
# Roughly how many threads there are, from the server's statistics, or from the size.
ESTIMATE = """
SELECT CASE WHEN s.n_distinct < 0 THEN -s.n_distinct * c.reltuples
    ELSE coalesce(s.n_distinct, pg_relation_size(c.oid) / 4000) END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname
    AND s.attname = 'thread_id'
WHERE n.nspname = %(schema)s AND c.relname = 'checkpoints'
"""

# Everything that a thread has, to look for unsafe values; {runs} selects namespaces.
_EVERYWHERE = """
WHERE t.thread_id = %(thread)s AND (t.checkpoint_ns = %(namespace)s {runs})
"""
_EVERYTHING = {
    "checkpoints": (
        "SELECT t.checkpoint_ns, t.checkpoint_id, 'json', "
        "convert_to(t.checkpoint::text, 'UTF8'), convert_to(t.metadata::text, 'UTF8') "
        "FROM {checkpoints} t" + _EVERYWHERE
    ),
    "checkpoint_blobs": (
        "SELECT t.checkpoint_ns, t.channel || '.' || t.version, t.type, t.blob, NULL::bytea "
        "FROM {checkpoint_blobs} t" + _EVERYWHERE
    ),
    "checkpoint_writes": (
        "SELECT t.checkpoint_ns, t.task_id || '.' || t.idx, t.type, t.blob, NULL::bytea "
        "FROM {checkpoint_writes} t" + _EVERYWHERE
    ),
}
RUNS = "OR position(':' in t.checkpoint_ns) > 0"


PAGE = 200
# How many bytes of values are in memory at a time, unless one thread alone has more.
GROUP = 4 << 20
LINE = 64
WHOLE_LINE = 5000
_ANCESTORS = 256
# How many steps back a result is looked for.
_FARTHEST = 1000
_NAMESPACES = 10_000
# How many rows are fetched at a time when everything of a thread is read.
_AT_ONCE = 20

Key = tuple[str, str]
# The tag and the bytes of the values stored beside a row, by channel.
Blobs = dict[str, tuple[str, bytes | None]]


class LoadedThread(Struct):
    """A snapshot as it was read, and the values that LangGraph keeps in the row itself.

    ``inline`` are those values; LangGraph.js has none and leaves the field out of the row.
    """

    snapshot: ThreadSnapshot
    inline: dict[str, Any] = field(default_factory=dict)
    is_js: bool = False
    size: int = 0

    @property
    def key(self) -> Key:
        """The thread and its namespace."""
        return self.snapshot.thread, self.snapshot.namespace

    @property
    def updated(self) -> float:
        """When the head was written, in seconds since 1970; 0 if it does not say."""
        try:
            return datetime.fromisoformat(str(self.snapshot.head.body.get("ts"))).timestamp()
        except ValueError:
            return 0.0


class _CheckpointRow(Struct):
    key: Key
    id: str
    parent: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    size: int


def is_kept(namespace: str) -> bool:
    """Whether a new prompt resumes a namespace; that of a single subgraph call ends with it."""
    return ":" not in namespace


class ThreadReader:
    """Reads the threads of one schema.

    Lost turns are looked for among the last ``line`` checkpoints of a thread.
    """

    def __init__(self, database: Database, home: LangGraphSchema, line: int = LINE) -> None:
        self._database = database
        self.home = home
        self._line = line

    def estimate(self) -> int:
        """Return roughly how many threads there are; 0 if the server does not know."""
        values = {"schema": self.home.schema}
        found = self._database.read(
            lambda connection: connection.execute(ESTIMATE, values).fetchall()
        )
        return int(found[0][0] or 0) if found else 0

    def pages(self, size: int = PAGE) -> Iterator[list[Key]]:
        """Yield the threads and their namespaces, in the order of the database."""
        first, values = FIRST_OF_ALL, {"thread": "", "namespace": "", "size": size}
        while True:
            where, bound = sql.SQL(first), sql.SQL("")
            keys = self.home.sql(KEYS, first=where.format(bound=bound), bound=bound)
            page = self._database.read(partial(_keys, statement=keys, values=values))
            if page:
                yield page
            if len(page) < size:
                return
            first = FIRST_BEHIND
            values = {"thread": page[-1][0], "namespace": page[-1][1], "size": size}

    def of_session(self, session: str) -> list[Key]:
        """Return the namespaces of a thread, or the one that a session's name means."""
        found = self._of_thread(session)
        if not found and MARK in session:
            thread, _, namespace = session.partition(MARK)
            found = [key for key in self._of_thread(unquote(thread)) if key[1] == namespace]
        return found

    def _of_thread(self, thread: str) -> list[Key]:
        bound = sql.SQL(BOUND)
        first = sql.SQL(FIRST_OF_THREAD).format(bound=bound)
        statement = self.home.sql(KEYS, first=first, bound=bound)
        values = {"thread": thread, "size": _NAMESPACES}
        return self._database.read(partial(_keys, statement=statement, values=values))

    def load(self, keys: Sequence[Key]) -> Iterator[LoadedThread]:
        """Yield the threads with their values, without those that are gone by now."""
        left = list(keys)
        while left:
            read, left = self._database.read(partial(self._next_group, keys=left))
            yield from read

    def _next_group(
        self, connection: Connection, keys: Sequence[Key]
    ) -> tuple[list[LoadedThread], list[Key]]:
        """Read as many threads as fit into memory; return them and those that are left."""
        heads = self._heads(connection, keys)
        count = size = 0
        while count < len(heads) and (not count or size + heads[count].size <= GROUP):
            size += heads[count].size
            count += 1
        made = self._fill(connection, heads[:count])
        self._add_lost(connection, [one.snapshot for one in made])
        return made, [head.key for head in heads[count:]]

    def complete(self, loaded: LoadedThread) -> bool:
        """Look for results that an earlier step left; return whether there are any.

        A prompt that came after an interrupted batch hides the writes of earlier checkpoints.
        """
        channel, calls = unanswered_calls(loaded.snapshot)
        if calls:
            earlier = partial(self._add_earlier, snapshot=loaded.snapshot, channel=channel)
            self._database.read(earlier)
        return bool(loaded.snapshot.earlier or loaded.snapshot.failed)

    def _add_earlier(self, connection: Connection, snapshot: ThreadSnapshot, channel: str) -> None:
        """Read what was written to a channel at earlier checkpoints, nearest first."""
        key = snapshot.thread, snapshot.namespace
        values = {"threads": [key[0]], "namespaces": [key[1]], "size": _FARTHEST}
        rows = connection.execute(self.home.sql(PARENTS), values).fetchall()
        parents = {own: parent for _, own, parent in rows}
        known = {one.id for one in snapshot.ancestors}
        chain: list[str] = []
        own = snapshot.head.parent
        while own is not None and own in parents and own not in chain:
            chain.append(own)
            own = parents[own]
        left = [(key, one) for one in chain if one not in known]
        hung = self._writes(connection, left, [channel, ERROR])
        snapshot.earlier = [
            write for writes in hung for write in writes if write.channel == channel
        ]
        failed = {
            one: [write for write in writes if write.channel == ERROR]
            for (_, one), writes in zip(left, hung, strict=True)
            if any(write.channel == ERROR for write in writes)
        }
        # The tasks of the checkpoint say which call failed; without any tasks, the conversation
        # does.
        tasks = self._blobs(connection, [(key, one) for one in failed], [TASKS])
        alone = {
            one: blobs
            for (one, writes), blobs in zip(failed.items(), tasks, strict=True)
            if not blobs and len(writes) == 1
        }
        held = self._blobs(connection, [(key, one) for one in alone], [channel]) if alone else ()
        for blobs, conversation in zip(alone.values(), held, strict=True):
            blobs.update(conversation)
        about = {"thread": key[0], "namespace": key[1], "ids": [*failed]}
        found = dict(connection.execute(self.home.sql(METADATA), about).fetchall())
        snapshot.failed = [
            StoredCheckpoint(
                one, values=_coded_blobs(blobs), metadata=_dict(found.get(one)), writes=writes
            )
            for (one, writes), blobs in zip(failed.items(), tasks, strict=True)
        ]

    def search(self, loaded: LoadedThread) -> None:
        """Look for values that run code in all rows of a thread; list them on its snapshot.

        Values in single runs of subgraphs belong to the thread itself.
        """
        thread, namespace = loaded.key
        runs = sql.SQL("" if namespace else RUNS)
        known = {"thread": thread, "namespace": namespace}

        def values(connection: Connection) -> Iterator[KeptValue]:
            for table, query in _EVERYTHING.items():
                statement = self.home.sql(query, runs=runs)
                with connection.cursor(f"lockstitch_{table}", binary=True) as cursor:
                    cursor.itersize = _AT_ONCE
                    for space, own, tag, data, metadata in cursor.execute(statement, known):
                        place = f"{table}.{own}"
                        yield KeptValue(place, space, Coded(tag or "", data or b""))
                        if metadata:
                            # LangGraph.js loads metadata like values, as old versions of Python
                            # did.
                            yield KeptValue(f"{place}.metadata", space, Coded(JSON, metadata))

        loaded.snapshot.unsafe = self._database.read(
            lambda connection: find_unsafe(values(connection))
        )

    def read_again(self, connection: Connection, key: Key) -> LoadedThread | None:
        """Read a thread again in a connection's transaction; return None if it is gone."""
        found = self._fill(connection, self._heads(connection, [key]))
        return found[0] if found else None

    def _fill(self, connection: Connection, heads: Sequence[_CheckpointRow]) -> list[LoadedThread]:
        """Return the threads of some heads, with everything that belongs to them."""
        rows = [(head.key, head.id) for head in heads]
        blobs, writes = self._blobs(connection, rows), self._writes(connection, rows)
        made: list[LoadedThread] = []
        for head, found, hung in zip(heads, blobs, writes, strict=True):
            stored, inline = _split_row(head, found)
            stored.writes = hung
            is_js = "channel_values" not in head.checkpoint
            tag = found[MESSAGES][0] if MESSAGES in found else MSGPACK
            coding = JSON if is_js or tag == JSON else MSGPACK
            snapshot = ThreadSnapshot(*head.key, stored, coding=coding)
            made.append(LoadedThread(snapshot, inline, is_js, head.size))
        for one in made:
            self._add_ancestors(connection, one.snapshot)
            self._add_runs(connection, one.snapshot)
        return made

    def _add_runs(self, connection: Connection, snapshot: ThreadSnapshot) -> None:
        """Read the subgraph runs begun at a head; there are none if nothing was left to run."""
        head = snapshot.head
        if not any(map(is_trigger, head.values)) and OWN not in head.metadata:
            return
        values = {"thread": snapshot.thread, "behind": min(starts_of(head))}
        rows = connection.execute(self.home.sql(LATER), values).fetchall()
        keys = [(snapshot.thread, own) for (own,) in rows if is_run_in(own, snapshot.namespace)]
        heads = self._heads(connection, keys) if keys else []
        begun = [one for one in heads if is_attached_to(one.metadata, snapshot.namespace, head)]
        snapshot.runs = [one.snapshot for one in self._fill(connection, begun)]

    # Statements

    def _heads(self, connection: Connection, keys: Sequence[Key]) -> list[_CheckpointRow]:
        values = {"threads": [key[0] for key in keys], "namespaces": [key[1] for key in keys]}
        rows = connection.execute(self.home.sql(HEADS), values).fetchall()
        return [
            _CheckpointRow((thread, space), own, parent, _dict(body), _dict(metadata), int(size))
            for thread, space, own, parent, body, metadata, size in rows
        ]

    def _blobs(
        self,
        connection: Connection,
        rows: Sequence[tuple[Key, str]],
        channels: Sequence[str] | None = None,
        *,
        only_tags: bool = False,
    ) -> list[Blobs]:
        found: list[Blobs] = [{} for _ in rows]
        statement = self.home.sql(TAGS if only_tags else BLOBS)
        for number, channel, tag, blob in _fetch_binary(connection, statement, rows, channels):
            found[number][channel] = tag, blob
        return found

    def _writes(
        self,
        connection: Connection,
        rows: Sequence[tuple[Key, str]],
        channels: Sequence[str] | None = None,
    ) -> list[list[StoredWrite]]:
        found: list[list[StoredWrite]] = [[] for _ in rows]
        statement = self.home.sql(WRITES)
        for number, task, path, index, channel, tag, blob in _fetch_binary(
            connection, statement, rows, channels
        ):
            value = Coded(tag or "", blob)
            found[number].append(StoredWrite(task, path, index, channel, value))
        for writes in found:
            writes.sort(key=lambda write: write.order)
        return found

    def _add_ancestors(self, connection: Connection, snapshot: ThreadSnapshot) -> None:
        """Walk back from a head to where the last of its channels is stored, page by page."""
        head, channels = snapshot.head, wanted(snapshot.head)
        key = snapshot.thread, snapshot.namespace
        known: dict[str, StoredCheckpoint] = {}
        before, is_more = head.id, True

        def find(own: str) -> StoredCheckpoint | None:
            nonlocal known, before, is_more
            while own not in known and is_more:
                known, before, is_more = self._ancestors(connection, key, before, channels)
            return known.get(own)

        chain, snapshot.cut = holders(head, find)
        for start in range(0, len(chain), _ANCESTORS):
            part = chain[start : start + _ANCESTORS]
            rows = [(key, one.id) for one in part]
            hung = self._writes(connection, rows, channels)
            blobs = self._blobs(connection, rows, channels)
            for one, writes, inside in zip(part, hung, blobs, strict=True):
                one.writes = writes
                one.values |= _coded_blobs(inside)
        snapshot.ancestors = chain

    def _ancestors(
        self, connection: Connection, key: Key, before: str, channels: Sequence[str]
    ) -> tuple[dict[str, StoredCheckpoint], str, bool]:
        """Return one page of checkpoints before an id, its last id, and whether more follow."""
        values = {"thread": key[0], "namespace": key[1], "before": before, "size": _ANCESTORS}
        rows = connection.execute(self.home.sql(ANCESTORS), values).fetchall()
        owners = [(key, row[0]) for row in rows]
        blobs = self._blobs(connection, owners, channels, only_tags=True)
        found: dict[str, StoredCheckpoint] = {}
        for (own, parent, checkpoint, metadata), inside in zip(rows, blobs, strict=True):
            head = _CheckpointRow(key, own, parent, _dict(checkpoint), _dict(metadata), 0)
            stored, _ = _split_row(head, inside)
            stored.values = {name: v for name, v in stored.values.items() if name in channels}
            stored.missing = ()
            found[own] = stored
        return found, rows[-1][0] if rows else before, len(rows) == _ANCESTORS

    def _add_lost(self, connection: Connection, snapshots: Sequence[ThreadSnapshot]) -> None:
        """Count the turns of branches that nobody left on purpose."""
        values: dict[str, Any] = {"threads": [one.thread for one in snapshots], "size": self._line}
        values["namespaces"] = [one.namespace for one in snapshots]
        parents: list[list[tuple[str, str | None]]] = [[] for _ in snapshots]
        for number, own, parent in connection.execute(self.home.sql(PARENTS), values):
            parents[number].append((own, parent))
        for snapshot, rows in zip(snapshots, parents, strict=True):
            lines = branches(snapshot.head.id, rows)
            if not lines:
                continue
            known: dict[str, Any] = {"thread": snapshot.thread, "namespace": snapshot.namespace}
            known["ids"] = [own for line in lines for own in line]
            found = connection.execute(self.home.sql(SOURCES), known).fetchall()
            turns = {own for own, source, ours in found if source == "input" and not ours}
            counted = [LostBranch(line[0], sum(own in turns for own in line)) for line in lines]
            snapshot.lost = [lost for lost in counted if lost.turns]


def _keys(connection: Connection, statement: sql.Composed, values: dict[str, Any]) -> list[Key]:
    return [(thread, space) for thread, space in connection.execute(statement, values)]


def _dict(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}


def _fetch_binary(
    connection: Connection,
    statement: sql.Composed,
    rows: Sequence[tuple[Key, str]],
    channels: Sequence[str] | None,
) -> Iterable[tuple[Any, ...]]:
    """Run a statement whose rows hold bytes; the binary format halves them on the wire."""
    values = {
        "threads": [key[0] for key, _ in rows],
        "namespaces": [key[1] for key, _ in rows],
        "ids": [own for _, own in rows],
        "channels": None if channels is None else list(channels),
    }
    return connection.execute(statement, values, binary=True).fetchall() if rows else []


def _split_row(head: _CheckpointRow, blobs: Blobs) -> tuple[StoredCheckpoint, dict[str, Any]]:
    """Return a checkpoint with its values, and those of them that are in the row itself."""
    is_js = "channel_values" not in head.checkpoint
    inline = _dict(head.checkpoint.get("channel_values"))
    body = {name: value for name, value in head.checkpoint.items() if name != "channel_values"}
    # Encode them like those stored beside the row.
    values = {
        name: Coded("null", b"") if one is None else Coded(MSGPACK, msgspec.msgpack.encode(one))
        for name, one in inline.items()
    }
    values |= _coded_blobs(blobs)
    stored = StoredCheckpoint(head.id, head.parent, body, values, head.metadata)
    # LangGraph.js writes a row for every version, including that of an empty channel. Python writes
    # none for an empty one, and only the messages surely have a value once they have a version.
    known = {*blobs, *values, *stored.counters}
    stored.missing = tuple(
        name
        for name in stored.versions
        if name not in known and not is_control(name) and (is_js or name == MESSAGES)
    )
    return stored, inline


def _coded_blobs(blobs: Blobs) -> dict[str, Coded]:
    return {name: Coded(tag, blob or b"") for name, (tag, blob) in blobs.items() if tag != "empty"}
