"""LangGraph's checkpoints in a file of ``SqliteSaver``: the rows of a thread, read and added to.

This covers LangGraph for Python and LangGraph.js. A checkpoint holds all of a thread's state, and a
thread has one for every step, so most of a database is never looked at. Of each thread, the last
checkpoint is read with its writes, and ancestors only if the conversation is stored as changes. A
repair adds one checkpoint after the last one of a thread; no row that LangGraph wrote is ever
changed.

``ThreadFormat`` is what the threads in SQLite and PostgreSQL have in common: a whole format except
for two functions, one from records to a snapshot, and one that adds a checkpoint to records.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import field, structs

from lockstitch.dialects import LANGCHAIN
from lockstitch.errors import Unreadable
from lockstitch.formats.interface import Context, Format, SourcedMessage, Transcript, trace_sources
from lockstitch.formats.langgraph.codec import Undecodable, codec_of, new_codecs
from lockstitch.formats.langgraph.conversation import ThreadReading
from lockstitch.formats.langgraph.decisions import make_distinct, repeated_ids
from lockstitch.formats.langgraph.repair import (
    DROPPED,
    HIDDEN,
    read_thread,
    repair_checkpoint,
    repair_other,
    unanswered_calls,
)
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
    holders,
    is_attached_to,
    is_run_in,
    seconds_of,
    session_name,
    starts_of,
    wanted,
)
from lockstitch.formats.records import Record
from lockstitch.formats.sqlite import (
    GuardedConnection,
    bind_values,
    names_of,
    quoted,
    text_of,
    value_slot,
)
from lockstitch.formats.tables import (
    Columns,
    ProgramTable,
    Row,
    RowFormat,
    TableLayout,
    new_row,
    row_of,
    sorting,
)
from lockstitch.repair.draft import Ledger, RepairedMessage
from lockstitch.rules import RULES

DONE = "was put into the conversation"


class ThreadFormat(Format):
    """A store of LangGraph's threads."""

    dialect = LANGCHAIN
    survived = "LS901"

    @abstractmethod
    def snapshot(self, records: Sequence[Record], context: Context) -> ThreadSnapshot:
        """Return a snapshot of one namespace's records; the greatest id is the head."""

    @abstractmethod
    def add_checkpoint(self, records: Sequence[Record], new: RepairedCheckpoint) -> list[Record]:
        """Return the records with one more checkpoint.

        It replaces a checkpoint with the same id that is not stored yet (``is_new``).
        """

    def is_part_of(self, own: str | None, session: str) -> bool:
        """Whether a session is that thread, or a subgraph of it with its own memory."""
        return own == session or (own or "").startswith(session_name(session, "-")[:-1])

    def is_record(self, value: dict[str, Any]) -> bool:
        return True

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        return read_thread(self.snapshot(records, context), records, context)

    def forced(self, transcript: Transcript) -> Transcript:
        reading: ThreadReading = transcript.state
        return read_thread(
            reading.snapshot, transcript.records, transcript.context, reading.channel, forced=True
        )

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        """Merge what is attached to the head into its conversation, with an id for each message."""
        reading: ThreadReading = transcript.state
        views = [item.view for item in reading.items]
        beside = [other for other in reading.others if repair_other(other, transcript, ledger)]
        if not (reading.is_folded or repeated_ids(views) or transcript.forced or beside):
            return list(transcript.records)
        if transcript.forced:
            place = transcript.records[reading.snapshot.head.record].place
            ledger.note(RULES["LS101"], "closed", place, "nobody is asked any longer")
        for found in transcript.findings:
            if HIDDEN in found.message or DROPPED in found.message:
                text = found.message.replace(HIDDEN, DONE).replace(DROPPED, DONE)
                ledger.note(RULES[found.code], "brought back", found.place, text)
            elif found.code == "LS906":
                ledger.note(RULES["LS906"], "renamed", found.place, "it has a new id now")
        kept = [RepairedMessage(view, number) for number, view in make_distinct(views)]
        return self.write_back(transcript, trace_sources(transcript.history, kept), ledger)

    def write_back(
        self, transcript: Transcript, repaired: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        try:
            new = repair_checkpoint(
                transcript, repaired, {change.code for change in ledger.changes}
            )
        except Undecodable:
            return list(transcript.records)
        return (
            list(transcript.records)
            if new is None
            else self.add_checkpoint(transcript.records, new)
        )


CHECKPOINTS = ProgramTable(
    "checkpoints", session="thread_id", key="checkpoint_id", order=("checkpoint_ns",)
)
WRITES = ProgramTable("writes", session="thread_id", key="task_id", order=("task_id", "idx"))
_SPACE = ("thread_id", "checkpoint_ns")
_ONE = (*_SPACE, "checkpoint_id")
# Placeholder in a query for the number of a row and all its columns.
_EVERYTHING = "rowid, *"
# Sorts after every other character.
_LAST = "\U0010ffff"
_MOST_LOST = 500
# How many steps back a result is looked for.
_FAR = 1000


class HeadRow(Row, eq=False):
    """The last checkpoint of a thread, with what the rest of the thread says about it."""

    lost: list[LostBranch] = field(default_factory=list)
    below: tuple[str, ...] = ()
    unsafe: list[UnsafeValue] = field(default_factory=list)


# Reading rows


def _query(table: str, names: Iterable[str], rest: str = "", columns: str = _EVERYTHING) -> str:
    match = " AND ".join(f"{name} = CAST(? AS TEXT)" for name in names)
    return f"SELECT {columns} FROM {table} WHERE {match} {rest}"  # noqa: S608 - names of our own


def _select(
    base: GuardedConnection, table: ProgramTable, query: str, values: Iterable[str]
) -> Iterator[Row]:
    names = names_of(base, table.name)
    query = query.replace(_EVERYTHING, ", ".join(("rowid", *map(quoted, names))), 1)
    for rowid, *columns in base.execute(query, bind_values(values)):
        row = row_of(table, rowid, dict(zip(names, columns, strict=True)))
        if table is WRITES:
            row.place = f"writes.{row.stored.get('task_id')}.{row.stored.get('idx')}"
        yield row


class _Namespace:
    """The rows of one namespace of a thread."""

    def __init__(self, base: GuardedConnection, thread: str, namespace: str) -> None:
        self._base = base
        self._own = thread, namespace

    def head(self) -> HeadRow | None:
        """Return the last checkpoint; None if there is none."""
        query = _query("checkpoints", _SPACE, "ORDER BY checkpoint_id DESC LIMIT 1")
        for row in _select(self._base, CHECKPOINTS, query, self._own):
            return HeadRow(**{name: getattr(row, name) for name in Row.__struct_fields__})
        return None

    def rows(self, head: Row) -> Iterator[Row]:
        """Yield a head, its writes, what it is computed from, and the runs inside it."""
        thread, namespace = self._own
        yield head
        yield from self._writes(head.stored["checkpoint_id"])
        first = checkpoint_in(head, 0, new_codecs())
        ancestors: list[Row] = []

        def find(id_: str) -> StoredCheckpoint | None:
            for row in self._checkpoint(id_):
                ancestors.append(row)
                return checkpoint_in(row, 0, new_codecs())
            return None

        holders(first, find)
        for ancestor in ancestors:
            yield ancestor
            yield from self._writes(ancestor.stored["checkpoint_id"], wanted(first))
        query = (
            "SELECT checkpoint_ns FROM checkpoints WHERE thread_id = CAST(? AS TEXT) "
            "AND checkpoint_ns > '' AND checkpoint_id > CAST(? AS TEXT)"
        )
        # Group here, not in SQLite, whose temporary storage for groups nobody limits.
        found = self._base.execute(query, bind_values((thread, min(starts_of(first)))))
        for own in sorted({name for (name,) in found if type(name) is str}):
            if is_run_in(own, namespace):
                inner = _Namespace(self._base, thread, own)
                run = inner.head()
                about = {} if run is None else metadata_of(run.value.get("metadata"))
                if run is not None and is_attached_to(about, namespace, first):
                    yield from inner.rows(run)

    def earlier(self, parent: str | None, channel: str) -> Iterator[Row]:
        """Yield what was written at earlier checkpoints, the nearest first, up to a limit."""
        query = _query("checkpoints", _ONE, columns="parent_checkpoint_id")
        seen: set[str] = set()
        while type(parent) is str and parent not in seen and len(seen) < _FAR:
            seen.add(parent)
            hung = [*self._writes(parent, (channel, ERROR))]
            if any(row.stored.get("channel") == ERROR for row in hung):
                # The tasks of the checkpoint itself say which call failed.
                yield from self._checkpoint(parent)
            yield from hung
            found = self._base.execute(query, bind_values((*self._own, parent))).fetchone()
            parent = None if found is None else found[0]

    def lost(self, head: str) -> list[LostBranch]:
        """Return the branches with turns of their own from which the head does not descend."""
        query = _query("checkpoints", _SPACE, columns="checkpoint_id, parent_checkpoint_id")
        known = self._base.execute(query, bind_values(self._own))
        pairs = [(own, parent) for own, parent in known if type(own) is str]
        about = _query("checkpoints", _ONE, columns="metadata")
        found: list[LostBranch] = []
        for line in branches(head, pairs)[:_MOST_LOST]:
            turns = 0
            for own in line[:_MOST_LOST]:
                row = self._base.execute(about, bind_values((*self._own, own))).fetchone()
                turns += row is not None and metadata_of(row[0]).get("source") == "input"
            if turns:
                found.append(LostBranch(line[0], turns))
        return found

    def _checkpoint(self, id_: str) -> Iterator[Row]:
        return _select(self._base, CHECKPOINTS, _query("checkpoints", _ONE), (*self._own, id_))

    def _writes(self, checkpoint: str, channels: Iterable[str] | None = None) -> Iterator[Row]:
        chosen = None if channels is None else set(channels)
        query = _query("writes", _ONE)
        found = [*_select(self._base, WRITES, query, (*self._own, checkpoint))]
        found.sort(key=lambda row: [sorting(row.stored[name]) for name in WRITES.order])
        for row in found:
            if chosen is None or row.stored.get("channel") in chosen:
                yield row


# From rows to a snapshot


def snapshot_of(rows: list[Row]) -> ThreadSnapshot:
    """Return a snapshot of a thread's rows; the greatest id is the head."""
    first = rows[0]
    thread, namespace = (_text(first.value.get(name)) for name in _SPACE)
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
    """Return a snapshot of one of several namespaces, with the runs directly inside it."""
    codecs = new_codecs()
    rows = spaces[namespace]
    stored = [
        checkpoint_in(row, number, codecs) for number, row in rows if row.table == "checkpoints"
    ]
    known = {one.id: one for one in stored}
    head = max(stored, key=lambda one: one.id)
    columns = next(row for number, row in rows if number == head.record).value
    snapshot = ThreadSnapshot(thread, namespace, head, coding=coding_in(columns))
    for number, row in rows:
        if row.table == "writes":
            columns = row.value
            owner, index = known.get(_text(columns.get("checkpoint_id"))), columns.get("idx")
            write = StoredWrite(
                _text(columns.get("task_id")),
                _text(columns.get("task_path")),
                index if type(index) is int else 0,
                _text(columns.get("channel")),
                Coded(tag_of(columns), _raw(columns.get("value"))),
                number,
            )
            (snapshot.earlier if owner is None else owner.writes).append(write)
    snapshot.ancestors, snapshot.cut = holders(head, known.get)
    used = {head.id, *(one.id for one in snapshot.ancestors)}
    for one in stored:
        # all other checkpoints were read for the results and errors left beside them
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
    """Return the name of a row's coding; some savers leave it out of rows of JSON."""
    return _text(columns.get("type") or JSON)


def coding_in(columns: Columns) -> str:
    """Return the coding for what is put after a checkpoint."""
    return JSON if tag_of(columns) == JSON else MSGPACK


def checkpoint_in(row: Row, number: int, known: Any) -> StoredCheckpoint:
    """Split the checkpoint in a row into its parts; ``fault`` says why that is impossible."""
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
        values = coding.fields(fields.pop("channel_values", coding.join_map({})))
        stored.body = {
            name: coding.plain(data) if coding.is_plain(data) else Coded(value.tag, data)
            for name, data in fields.items()
        }
        stored.values = {name: Coded(value.tag, data) for name, data in values.items()}
    except Undecodable as error:
        stored.fault = str(error)
    return stored


def metadata_of(value: Any) -> dict[str, Any]:
    """Return a checkpoint's metadata, which is JSON; an empty dict if it is not."""
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


# The format


class LangGraph(ThreadFormat, RowFormat):
    """One session per thread, and one per subgraph of it with its own memory."""

    name = "langgraph"
    title = "LangGraph"
    layout = TableLayout((CHECKPOINTS, WRITES), "")
    adds = True

    def claims(self, name: str, head: Any) -> bool:
        return {"checkpoints", "writes"} <= {value for value in head if type(value) is str}

    def listed(self, base: GuardedConnection) -> Iterable[tuple[Any, ...]]:
        """Yield the threads, and the subgraphs with memory, by jumps through the index."""
        last = _query("checkpoints", _SPACE, columns="max(checkpoint_id)")
        query = (
            "SELECT thread_id, checkpoint_ns FROM checkpoints{} "
            "ORDER BY thread_id, checkpoint_ns LIMIT 1"
        )
        found = base.execute(query.format("")).fetchone()
        while found is not None:
            thread, namespace = found
            if type(thread) is str and type(namespace) is str:
                if TASK in namespace:
                    # All runs of this subgraph, and of those in it, come before this name.
                    namespace = namespace.partition(TASK)[0] + TASK + _LAST
                else:
                    [(head,)] = base.execute(last, bind_values(found))
                    yield session_name(thread, namespace), None, seconds_of(str(head)), ""
            slots = f"({value_slot(thread)}, {value_slot(namespace)})"
            beyond = query.format(f" WHERE (thread_id, checkpoint_ns) > {slots}")
            found = base.execute(beyond, bind_values((thread, namespace))).fetchone()

    def rows(self, base: GuardedConnection, session: str) -> list[Row]:
        """Return the rows that make up the state of a thread; the head comes first."""
        space = _Namespace(base, session, "")
        head = space.head()
        if head is None and MARK in session:
            thread, _, namespace = session.partition(MARK)
            space = _Namespace(base, thread.replace("%23", MARK).replace("%25", "%"), namespace)
            head = space.head()
        if head is None:
            raise Unreadable("it holds no such thread")
        thread, namespace = (head.stored[name] for name in _SPACE)
        head.lost = space.lost(str(head.stored["checkpoint_id"]))
        if not namespace:
            query = _query("checkpoints", ("thread_id",), "AND checkpoint_ns > ''", "checkpoint_ns")
            names = {name for (name,) in base.execute(query, bind_values((thread,)))}
            head.below = tuple(sorted(n for n in names if type(n) is str and TASK in n))
        rows = [*space.rows(head)]
        channel, lacking = unanswered_calls(snapshot_of(_number_rows(rows)))
        if lacking:
            known = {(row.table, row.rowid) for row in rows}
            earlier = space.earlier(checkpoint_in(head, 0, new_codecs()).parent, channel)
            rows += (row for row in earlier if (row.table, row.rowid) not in known)
        return _number_rows(rows)

    def search(self, base: GuardedConnection, rows: list[Row]) -> None:
        """Look for values that run code in all rows of a thread, and list them on its head row.

        Values in single runs of subgraphs belong to the thread itself.
        """
        head = next((row for row in rows if isinstance(row, HeadRow)), None)
        if head is None:
            return
        thread, namespace = (head.stored[name] for name in _SPACE)
        runs = "" if namespace else f" OR instr(checkpoint_ns, '{TASK}') > 0"
        where = f"AND (checkpoint_ns = CAST(? AS TEXT){runs})"

        def values() -> Iterator[KeptValue]:
            for table in (CHECKPOINTS, WRITES):
                query = _query(table.name, ("thread_id",), where)
                for row in _select(base, table, query, (thread, namespace)):
                    columns, space = row.stored, _text(row.stored.get("checkpoint_ns"))
                    value = columns.get("checkpoint" if table is CHECKPOINTS else "value")
                    yield KeptValue(row.place, space, Coded(tag_of(columns), _raw(value)))
                    if columns.get("metadata"):
                        # Metadata is always JSON; LangGraph.js and old versions load it as such.
                        about = Coded(JSON, _raw(columns["metadata"]))
                        yield KeptValue(f"{row.place}.metadata", space, about)

        head.unsafe = find_unsafe(values())

    def session_of(self, row: Row) -> str:
        return session_name(row.stored["thread_id"], row.stored["checkpoint_ns"])

    def is_followed(self, base: GuardedConnection, table: str, columns: Columns) -> bool:
        """Whether a checkpoint has another one after it, or writes attached to it."""
        if table != CHECKPOINTS.name:
            return False
        values = bind_values(columns[name] for name in _ONE)
        checkpoints = _query("checkpoints", (*_SPACE, "parent_checkpoint_id"), "LIMIT 1")
        queries = (checkpoints, _query("writes", _ONE, "LIMIT 1"))
        return any(base.execute(query, values).fetchone() for query in queries)

    def snapshot(self, records: Sequence[Record], context: Context) -> ThreadSnapshot:
        rows = [row for row in records if isinstance(row, Row)]
        if not rows:
            raise Unreadable("it holds no such thread")
        return snapshot_of(rows)

    def add_checkpoint(self, records: Sequence[Record], new: RepairedCheckpoint) -> list[Record]:
        kept = [row for row in records if not row.is_new]
        head: Columns = kept[0].value
        codec = new_codecs()[coding_in(head)]
        values = codec.join_map({name: value.data for name, value in new.values.items()})
        fields: dict[str, bytes] = {}
        for name, value in new.body.items():
            if name == "channel_versions":
                fields["channel_values"] = values
            fields[name] = value.data if isinstance(value, Coded) else codec.encode(value)
        blob = codec.join_map({**fields, "channel_values": values})
        separators = (",", ":") if coding_in(head) == JSON else (", ", ": ")
        metadata = json.dumps(new.metadata, ensure_ascii=False, separators=separators)
        # Use text where the head has text, and bytes where it has bytes.
        written = {"checkpoint": blob, "metadata": metadata.encode("utf-8", "replace")}
        columns = {
            **head,
            "checkpoint_id": new.id,
            "parent_checkpoint_id": new.parent,
            **{
                name: text_of(data) if type(head.get(name)) is str else data
                for name, data in written.items()
            },
        }
        # This is for a person to look at. It is not the state, which is that of the head.
        sizes = {name: len(new.values[name].data) for name in sorted(new.changed)}
        about = {"checkpoint": new.id, "behind": new.parent, "bytes": sizes}
        shown = json.dumps({**about, "metadata": new.metadata.get("lockstitch")}).encode()
        return [*kept, structs.replace(new_row(CHECKPOINTS, columns), fresh=shown)]


def _number_rows(rows: list[Row]) -> list[Row]:
    for number, row in enumerate(rows):
        row.start = row.end = number
    return rows
