"""LangGraph's threads in a PostgreSQL, as a format.

To the repair procedure the records of a thread are its head, with all that belongs to it, and a
record for every write that hangs on it. A repair adds one more: the checkpoint to be stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from lockstitch.formats.interface import Context, Transcript
from lockstitch.formats.langgraph.postgres import KIND
from lockstitch.formats.langgraph.postgres.reading import LoadedThread
from lockstitch.formats.langgraph.snapshot import (
    RepairedCheckpoint,
    StoredCheckpoint,
    ThreadSnapshot,
    session_name,
)
from lockstitch.formats.langgraph.sqlite import ThreadFormat
from lockstitch.formats.records import Record


class ThreadRecord(Record, eq=False):
    """A record of a thread: the thread as it was read, a write on it, or the new checkpoint."""

    loaded: LoadedThread | None = None
    snapshot: ThreadSnapshot | None = None
    new: RepairedCheckpoint | None = None


class PostgresThreads(ThreadFormat):
    """The threads of LangGraph's savers for PostgreSQL, of Python and of LangGraph.js."""

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
    """Return the checkpoint that a repair adds to some records."""
    return next((one.new for one in records if isinstance(one, ThreadRecord) and one.new), None)


def _number_records(snapshot: ThreadSnapshot, records: list[Record]) -> ThreadSnapshot:
    """Return a snapshot that knows the numbers of its records, which are added to the others."""

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
    """Return the thread as it was read, of which a transcript was made."""
    records = transcript.records
    return next(one.loaded for one in records if isinstance(one, ThreadRecord) and one.loaded)


def parse_thread(loaded: LoadedThread) -> Transcript:
    """Understand a thread that was read."""
    records: list[Record] = []
    snapshot = _number_records(loaded.snapshot, records)
    first = records[0]
    assert isinstance(first, ThreadRecord)  # noqa: S101 - the head's own
    first.loaded, first.snapshot = loaded, snapshot
    return THREADS.parse(records, Context(b"", session_name(*loaded.key)))
