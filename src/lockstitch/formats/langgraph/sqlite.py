"""The rows of a thread in a database of ``SqliteSaver``: its head, and what belongs to it.

A checkpoint holds all of a thread's state, and a thread has one for every step, so that most of
a database is never looked at: of each thread the last checkpoint is read with the writes on it,
and its ancestors only where the conversation is stored as changes.

LangGraph: the checkpoints of ``SqliteSaver``, in a file that the program names.

Both of LangGraph for Python and of LangGraph.js. A repair adds one checkpoint behind the last one
of a thread; no row that LangGraph wrote is ever changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec import field, structs

from lockstitch.errors import Unreadable
from lockstitch.formats.langgraph.codec import Codec, Undecodable, codec_of, new_codecs
from lockstitch.formats.langgraph.format import ThreadFormat
from lockstitch.formats.langgraph.repair import unanswered_calls
from lockstitch.formats.langgraph.safety import KeptValue, find_unsafe
from lockstitch.formats.langgraph.snapshot import (
    ERROR,
    JSON,
    MARK,
    MSGPACK,
    TASK,
    Coded,
    LostBranch,
    RepairedCheckpoint,
    StoredCheckpoint,
    StoredWrite,
    ThreadSnapshot,
    UnsafeValue,
    branches,
    hangs_on,
    is_run_in,
    session_name,
    starts_of,
    wanted,
)
from lockstitch.sources.interface import Context
from lockstitch.sources.records import Record
from lockstitch.sources.sqlite import (
    GuardedConnection,
    bind_values,
    names_of,
    quoted,
    text_of,
    value_slot,
)
from lockstitch.sources.tables import (
    Columns,
    ProgramTable,
    Row,
    RowFormat,
    TableLayout,
    new_row,
    row_of,
    sorting,
)

CHECKPOINTS = ProgramTable(
    "checkpoints", session="thread_id", key="checkpoint_id", order=("checkpoint_ns",)
)
WRITES = ProgramTable("writes", session="thread_id", key="task_id", order=("task_id", "idx"))
_ALL = ("thread_id", "checkpoint_ns")
# Stands in a query for the number of a row and all its columns.
_EVERYTHING = "rowid, *"
_LAST = "\U0010ffff"
_MOST_LOST = 500
# How many steps back a result is looked for.
_FAR = 1000
_EPOCH = 0x01B21DD213814000
_TICKS = 10_000_000


class HeadRow(Row, eq=False):
    """The last checkpoint of a thread, with what the rest of the thread says about it."""

    lost: list[LostBranch] = field(default_factory=list)
    below: tuple[str, ...] = ()
    unsafe: list[UnsafeValue] = field(default_factory=list)


# Sessions


def list_threads(base: GuardedConnection) -> Iterator[tuple[Any, ...]]:
    """Give the threads, and the subgraphs that remember: id, project, time, title."""
    match = " AND ".join(f"{name} = CAST(? AS TEXT)" for name in _ALL)
    last = f"SELECT max(checkpoint_id) FROM checkpoints WHERE {match}"  # noqa: S608 - our own
    for pair in _pairs(base):
        [(head,)] = base.execute(last, bind_values(pair))
        yield session_name(*pair), None, seconds_of(str(head)), ""


def _pairs(base: GuardedConnection) -> Iterator[tuple[str, str]]:
    """Give each thread with each namespace that lasts, by jumps through the index."""
    query = (
        "SELECT thread_id, checkpoint_ns FROM checkpoints{} "
        "ORDER BY thread_id, checkpoint_ns LIMIT 1"
    )
    found = base.execute(query.format("")).fetchone()
    while found is not None:
        thread, namespace = found
        if type(thread) is str and type(namespace) is str:
            if TASK in namespace:
                # All runs of this subgraph, and of those in it, stand before this.
                namespace = namespace.partition(TASK)[0] + TASK + _LAST
            else:
                yield thread, namespace
        slots = f"({value_slot(thread)}, {value_slot(namespace)})"
        beyond = query.format(f" WHERE (thread_id, checkpoint_ns) > {slots}")
        found = base.execute(beyond, bind_values((thread, namespace))).fetchone()


def _find_head(base: GuardedConnection, session: str) -> HeadRow:
    """Give the head of the thread, or of the subgraph in a thread, that a name means."""
    head = _head(base, session, "")
    if head is None and MARK in session:
        thread, _, namespace = session.partition(MARK)
        head = _head(base, thread.replace("%23", MARK).replace("%25", "%"), namespace)
    if head is None:
        raise Unreadable("holds no such thread")
    return head


def seconds_of(checkpoint: str) -> float:
    """Tell from a checkpoint's id when it was made; 0 for an id that is no time."""
    try:
        found = UUID(checkpoint)
    except ValueError:
        return 0.0
    ticks = (found.int >> 80) << 12 | (found.int >> 64 & 0xFFF)
    return max((ticks - _EPOCH) / _TICKS, 0.0)


# Rows


def load_thread(base: GuardedConnection, session: str) -> list[Row]:
    """Give the rows that tell the state of a thread: the head comes first."""
    head = _find_head(base, session)
    thread, namespace = (head.stored[name] for name in _ALL)
    head.lost = _lost(base, thread, namespace, str(head.stored["checkpoint_id"]))
    head.below = _below(base, thread, namespace)
    rows = [*_space(base, head), *_runs(base, head)]
    _number_rows(rows)
    channel, lacking = unanswered_calls(snapshot_of(rows))
    if lacking:
        known = {(row.table, row.rowid) for row in rows}
        parent = stored_of(head, 0, new_codecs()).parent
        earlier = _earlier(base, thread, namespace, parent, channel)
        rows += (row for row in earlier if (row.table, row.rowid) not in known)
        _number_rows(rows)
    return rows


def _space(base: GuardedConnection, head: Row) -> Iterator[Row]:
    """Give the rows of one namespace: its head, what hangs on it, and what it is computed from."""
    thread, namespace = (head.stored[name] for name in _ALL)
    yield head
    yield from _writes(base, thread, namespace, head.stored["checkpoint_id"])
    stored = stored_of(head, 0, new_codecs())
    for ancestor in _ancestors(base, thread, namespace, stored):
        yield ancestor
        channels = wanted(stored)
        yield from _writes(base, thread, namespace, ancestor.stored["checkpoint_id"], channels)


def _runs(base: GuardedConnection, head: Row) -> Iterator[Row]:
    """Give the rows of the runs of subgraphs that hang on a head, and of those within them."""
    thread, namespace = (head.stored[name] for name in _ALL)
    stored = stored_of(head, 0, new_codecs())
    query = (
        "SELECT checkpoint_ns FROM checkpoints WHERE thread_id = CAST(? AS TEXT) "
        "AND checkpoint_ns > '' AND checkpoint_id > CAST(? AS TEXT)"
    )
    # Told apart here, not by SQLite, which keeps what it groups in a place that nobody counts.
    found = base.execute(query, bind_values((thread, min(starts_of(stored)))))
    for own in sorted({name for (name,) in found if type(name) is str}):
        if not is_run_in(own, namespace):
            continue
        run = _head(base, thread, own)
        if run is not None and hangs_on(stored_of(run, 0, new_codecs()), namespace, stored):
            yield from _space(base, run)
            yield from _runs(base, run)


def _number_rows(rows: list[Row]) -> None:
    for number, row in enumerate(rows):
        row.start = row.end = number


def _earlier(
    base: GuardedConnection, thread: str, namespace: str, parent: str | None, channel: str
) -> Iterator[Row]:
    """Give what was written behind earlier checkpoints, nearest first, without most of these."""
    query = _where("checkpoints", (*_ALL, "checkpoint_id"), "")
    query = query.replace(_EVERYTHING, "parent_checkpoint_id")
    seen: set[str] = set()
    while type(parent) is str and parent not in seen and len(seen) < _FAR:
        seen.add(parent)
        hung = [*_writes(base, thread, namespace, parent, (channel, ERROR))]
        if any(row.stored.get("channel") == ERROR for row in hung):
            # Which call failed is told by the tasks of the checkpoint itself.
            own = _where("checkpoints", (*_ALL, "checkpoint_id"), "")
            yield from _select(base, CHECKPOINTS, own, (thread, namespace, parent))
        yield from hung
        found = base.execute(query, bind_values((thread, namespace, parent))).fetchone()
        parent = None if found is None else found[0]


def _head(base: GuardedConnection, thread: str, namespace: str) -> HeadRow | None:
    query = _where("checkpoints", (*_ALL,), "ORDER BY checkpoint_id DESC LIMIT 1")
    for row in _select(base, CHECKPOINTS, query, (thread, namespace)):
        return HeadRow(**{name: getattr(row, name) for name in Row.__struct_fields__})
    return None


def _writes(
    base: GuardedConnection,
    thread: str,
    namespace: str,
    checkpoint: str,
    channels: Iterable[str] | None = None,
) -> Iterator[Row]:
    query = _where("writes", (*_ALL, "checkpoint_id"), "")
    chosen = None if channels is None else set(channels)
    found = [*_select(base, WRITES, query, (thread, namespace, checkpoint))]
    found.sort(key=lambda row: [sorting(row.stored[name]) for name in WRITES.order])
    for row in found:
        if chosen is None or row.stored.get("channel") in chosen:
            row.place = _place_of_write(row)
            yield row


def _ancestors(
    base: GuardedConnection, thread: str, namespace: str, head: StoredCheckpoint
) -> Iterator[Row]:
    """Give the ancestors that hold what the head lacks, nearest first."""
    lacking = set(wanted(head))
    seen = {head.id}
    parent = head.parent
    query = _where("checkpoints", (*_ALL, "checkpoint_id"), "")
    while lacking and parent is not None and parent not in seen:
        seen.add(parent)
        found = next(_select(base, CHECKPOINTS, query, (thread, namespace, parent)), None)
        if found is None:
            return
        yield found
        stored = stored_of(found, 0, new_codecs())
        lacking -= stored.values.keys()
        parent = stored.parent


def _where(table: str, names: Iterable[str], rest: str) -> str:
    match = " AND ".join(f"{name} = CAST(? AS TEXT)" for name in names)
    return f"SELECT {_EVERYTHING} FROM {table} WHERE {match} {rest}"  # noqa: S608 - names of our own


def _select(
    base: GuardedConnection, table: ProgramTable, query: str, values: Iterable[str]
) -> Iterator[Row]:
    names = names_of(base, table.name)
    query = query.replace(_EVERYTHING, ", ".join(("rowid", *map(quoted, names))), 1)
    for rowid, *columns in base.execute(query, bind_values(values)):
        yield row_of(table, rowid, dict(zip(names, columns, strict=True)))


def _lost(base: GuardedConnection, thread: str, namespace: str, head: str) -> list[LostBranch]:
    """Find the branches with turns of their own that the head does not come from."""
    query = _where("checkpoints", _ALL, "").replace(
        _EVERYTHING, "checkpoint_id, parent_checkpoint_id"
    )
    known = base.execute(query, bind_values((thread, namespace)))
    pairs = [(own, parent) for own, parent in known if type(own) is str]
    found: list[LostBranch] = []
    for line in branches(head, pairs)[:_MOST_LOST]:
        turns = sum(_is_turn(base, thread, namespace, own) for own in line[:_MOST_LOST])
        if turns:
            found.append(LostBranch(line[0], turns))
    return found


def _is_turn(base: GuardedConnection, thread: str, namespace: str, checkpoint: str) -> bool:
    query = _where("checkpoints", (*_ALL, "checkpoint_id"), "").replace(_EVERYTHING, "metadata")
    found = base.execute(query, bind_values((thread, namespace, checkpoint))).fetchone()
    return found is not None and metadata_of(found[0]).get("source") == "input"


def _below(base: GuardedConnection, thread: str, namespace: str) -> tuple[str, ...]:
    if namespace:
        return ()
    query = (
        "SELECT checkpoint_ns FROM checkpoints "
        "WHERE thread_id = CAST(? AS TEXT) AND checkpoint_ns > ''"
    )
    found = {name for (name,) in base.execute(query, bind_values((thread,)))}
    return tuple(sorted(name for name in found if type(name) is str and TASK in name))


def is_followed(base: GuardedConnection, columns: Columns) -> bool:
    """Tell whether anything hangs on a checkpoint: another one, or writes."""
    values = bind_values(columns[name] for name in (*_ALL, "checkpoint_id"))
    checkpoints = _where("checkpoints", (*_ALL, "parent_checkpoint_id"), "LIMIT 1")
    writes = _where("writes", (*_ALL, "checkpoint_id"), "LIMIT 1")
    return any(base.execute(query, values).fetchone() for query in (checkpoints, writes))


# All that a thread has


def search_thread(base: GuardedConnection, rows: list[Row]) -> None:
    """Look for values that run code in all rows of a thread; the head of some rows is told them.

    Those of single runs of subgraphs belong to the thread itself.
    """
    head = next((row for row in rows if isinstance(row, HeadRow)), None)
    if head is not None:
        thread, namespace = (head.stored[name] for name in _ALL)
        head.unsafe = find_unsafe(_kept(base, thread, namespace))


def _kept(base: GuardedConnection, thread: str, namespace: str) -> Iterator[KeptValue]:
    own = "checkpoint_ns = CAST(? AS TEXT)"
    runs = "" if namespace else f" OR instr(checkpoint_ns, '{TASK}') > 0"
    where = f"WHERE thread_id = CAST(? AS TEXT) AND ({own}{runs})"
    for table in (CHECKPOINTS, WRITES):
        query = f"SELECT {_EVERYTHING} FROM {table.name} {where}"  # noqa: S608 - names of our own
        for row in _select(base, table, query, (thread, namespace)):
            columns = row.stored
            space, tag = _text(columns.get("checkpoint_ns")), tag_of(columns)
            place = row.place if table is CHECKPOINTS else _place_of_write(row)
            value = columns.get("checkpoint" if table is CHECKPOINTS else "value")
            yield KeptValue(place, space, Coded(tag, _raw(value)))
            if columns.get("metadata"):
                # Always JSON, and loaded as that by LangGraph.js and by old versions.
                yield KeptValue(f"{place}.metadata", space, Coded(JSON, _raw(columns["metadata"])))


def _place_of_write(row: Row) -> str:
    return f"writes.{row.stored.get('task_id')}.{row.stored.get('idx')}"


# From rows to a snapshot


def snapshot_of(rows: list[Row]) -> ThreadSnapshot:
    """Make a snapshot of a thread's rows; the greatest id is the head."""
    first = rows[0]
    thread, namespace = (_text(first.value.get(name)) for name in _ALL)
    spaces: dict[str, list[tuple[int, Row]]] = {}
    for number, row in enumerate(rows):
        spaces.setdefault(_text(row.value.get("checkpoint_ns")), []).append((number, row))
    snapshot = _snapshot(thread, namespace, spaces)
    if isinstance(first, HeadRow):
        snapshot.lost, snapshot.below, snapshot.unsafe = first.lost, first.below, first.unsafe
    return snapshot


def _snapshot(
    thread: str, namespace: str, spaces: dict[str, list[tuple[int, Row]]]
) -> ThreadSnapshot:
    """Make a snapshot of one namespace of several, with the runs that are right within it."""
    known = new_codecs()
    rows = spaces[namespace]
    stored = [stored_of(row, number, known) for number, row in rows if row.table == "checkpoints"]
    by_id = {one.id: one for one in stored}
    earlier: list[StoredWrite] = []
    for number, row in rows:
        if row.table == "writes":
            owner = by_id.get(_text(row.value.get("checkpoint_id")))
            (earlier if owner is None else owner.writes).append(_write(row, number))
    head = max(stored, key=lambda one: one.id)
    columns = next(row for number, row in rows if number == head.record).value
    snapshot = ThreadSnapshot(thread, namespace, head, earlier=earlier, coding=coding_in(columns))
    _follow(snapshot, by_id)
    used = {head.id, *(one.id for one in snapshot.ancestors)}
    for one in stored:
        if one.id not in used:
            snapshot.earlier += one.writes
            snapshot.failed += [one] if any(w.channel == ERROR for w in one.writes) else []
    snapshot.runs = [
        _snapshot(thread, own, spaces)
        for own, held in spaces.items()
        if is_run_in(own, namespace) and any(row.table == "checkpoints" for _, row in held)
    ]
    return snapshot


def tag_of(columns: Columns) -> str:
    """Give the name of a row's coding; there is none in rows of JSON by some savers."""
    return _text(columns.get("type") or JSON)


def coding_in(columns: Columns) -> str:
    """Give the coding of what is put behind a checkpoint."""
    return JSON if tag_of(columns) == JSON else MSGPACK


def _follow(snapshot: ThreadSnapshot, known: dict[str, StoredCheckpoint]) -> None:
    lacking = set(wanted(snapshot.head))
    parent = snapshot.head.parent
    seen = {snapshot.head.id}
    while lacking and parent is not None and parent not in seen:
        seen.add(parent)
        if parent not in known:
            snapshot.cut = parent
            return
        snapshot.ancestors.append(known[parent])
        lacking -= known[parent].values.keys()
        parent = known[parent].parent


def stored_of(row: Row, number: int, known: Any) -> StoredCheckpoint:
    """Take the checkpoint in a row apart."""
    columns = row.value
    parent = columns.get("parent_checkpoint_id")
    stored = StoredCheckpoint(
        _text(columns.get("checkpoint_id")),
        parent if type(parent) is str and parent else None,
        metadata=metadata_of(columns.get("metadata")),
        record=number,
    )
    stored.whole = value = Coded(tag_of(columns), _raw(columns.get("checkpoint")))
    try:
        coding = codec_of(known, value)
        fields = coding.fields(value.data)
        values = coding.fields(fields.pop("channel_values", coding.mapped({})))
        stored.body = {
            name: coding.plain(data) if coding.is_plain(data) else Coded(value.tag, data)
            for name, data in fields.items()
        }
        stored.values = {name: Coded(value.tag, data) for name, data in values.items()}
    except Undecodable as error:
        stored.fault = str(error)
    return stored


def _write(row: Row, number: int) -> StoredWrite:
    columns = row.value
    index = columns.get("idx")
    return StoredWrite(
        _text(columns.get("task_id")),
        _text(columns.get("task_path")),
        index if type(index) is int else 0,
        _text(columns.get("channel")),
        Coded(tag_of(columns), _raw(columns.get("value"))),
        number,
    )


def metadata_of(value: Any) -> dict[str, Any]:
    """Read a checkpoint's metadata, which is JSON; nothing if it is not."""
    try:
        found = msgspec.json.decode(_raw(value))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return found if type(found) is dict else {}


def _text(value: Any) -> str:
    return value if type(value) is str else ""


def _raw(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    return value.encode("utf-8", "surrogateescape") if type(value) is str else b""


class LangGraph(ThreadFormat, RowFormat):
    """One session a thread, and one a subgraph of it that has a memory of its own."""

    name = "langgraph"
    title = "LangGraph"
    layout = TableLayout((CHECKPOINTS, WRITES), "")
    adds = True

    def claims(self, name: str, head: Any) -> bool:
        return {"checkpoints", "writes"} <= {value for value in head if type(value) is str}

    def listed(self, base: GuardedConnection) -> Iterable[tuple[Any, ...]]:
        return list_threads(base)

    def rows(self, base: GuardedConnection, session: str) -> list[Row]:
        return load_thread(base, session)

    def search(self, base: GuardedConnection, rows: list[Row]) -> None:
        search_thread(base, rows)

    def session_of(self, row: Row) -> str:
        return session_name(row.stored["thread_id"], row.stored["checkpoint_ns"])

    def is_followed(self, base: GuardedConnection, table: str, columns: Columns) -> bool:
        return table == CHECKPOINTS.name and is_followed(base, columns)

    def snapshot(self, records: Sequence[Record], context: Context) -> ThreadSnapshot:
        rows = [row for row in records if isinstance(row, Row)]
        if not rows:
            raise Unreadable("holds no such thread")
        return snapshot_of(rows)

    def added(self, records: Sequence[Record], new: RepairedCheckpoint) -> list[Record]:
        kept = [row for row in records if not row.is_new]
        head = kept[0]
        columns = _columns(head.value, new)
        made = new_row(CHECKPOINTS, {**columns, "checkpoint_id": new.id})
        return [*kept, structs.replace(made, fresh=_shown(new))]


def _columns(head: Columns, new: RepairedCheckpoint) -> Columns:
    """Give the columns of a new checkpoint, of the same kinds as those of the head."""
    coding = new_codecs()[coding_in(head)]
    metadata = json.dumps(new.metadata, ensure_ascii=False, separators=_separators(head))
    return {
        **head,
        "checkpoint_id": new.id,
        "parent_checkpoint_id": new.parent,
        "checkpoint": _alike(head.get("checkpoint"), _blob(coding, new)),
        "metadata": _alike(head.get("metadata"), metadata.encode("utf-8", "replace")),
    }


def _blob(coding: Codec, new: RepairedCheckpoint) -> bytes:
    values = coding.mapped({name: value.data for name, value in new.values.items()})
    fields: dict[str, bytes] = {}
    for name, value in new.body.items():
        if name == "channel_versions":
            fields["channel_values"] = values
        fields[name] = value.data if isinstance(value, Coded) else coding.encoded(value)
    return coding.mapped({**fields, "channel_values": values})


def _alike(old: Any, new: bytes) -> Any:
    return text_of(new) if type(old) is str else new


def _separators(head: Columns) -> tuple[str, str]:
    return (",", ":") if coding_in(head) == JSON else (", ", ": ")


def _shown(new: RepairedCheckpoint) -> bytes:
    """Say what is new, for a person to look at: not the state, which is that of the head."""
    sizes = {name: len(new.values[name].data) for name in sorted(new.changed)}
    about = {"checkpoint": new.id, "behind": new.parent, "bytes": sizes}
    return json.dumps({**about, "metadata": new.metadata.get("lockstitch")}).encode()
