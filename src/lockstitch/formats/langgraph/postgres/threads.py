"""LangGraph's threads in a PostgreSQL, as the one doctor sees them.

The records of a thread are its head, with all that belongs to it, and a record for every write
that hangs on it. A repair adds one more: the checkpoint that will be stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from lockstitch.addresses import public
from lockstitch.formats.base import Context, Format, Transcript
from lockstitch.formats.langgraph.postgres import KIND
from lockstitch.formats.langgraph.postgres.reading import Loaded
from lockstitch.formats.langgraph.snapshot import (
    RepairedCheckpoint,
    StoredCheckpoint,
    ThreadSnapshot,
    session_name,
)
from lockstitch.formats.langgraph.thread import ThreadFormat
from lockstitch.formats.records import Record
from lockstitch.formats.sources import Source


class Held(Record, eq=False):
    """A record of a thread: the thread as it was read, a write on it, or the new checkpoint."""

    loaded: Loaded | None = None
    snapshot: ThreadSnapshot | None = None
    new: RepairedCheckpoint | None = None


class ThreadSource(Source, frozen=True):
    """A thread in a PostgreSQL: the path is the address of its database."""

    def __repr__(self) -> str:
        """Show the address without secrets."""
        return f"ThreadSource({public(self.path)!r}, {self.session!r})"

    @property
    def form(self) -> Format:
        """The format itself."""
        return FORM


class PostgresThreads(ThreadFormat):
    """The threads of LangGraph's savers for PostgreSQL, of Python and of LangGraph.js."""

    name = "langgraph"
    title = "LangGraph"
    kinds: tuple[str, ...] = (KIND,)

    def claims(self, name: str, head: Any) -> bool:
        return False

    def snapshot(self, records: Sequence[Record], context: Context) -> ThreadSnapshot:
        read = next(one.snapshot for one in records if isinstance(one, Held) and one.snapshot)
        new = new_in(records)
        if new is None:
            return read
        head = StoredCheckpoint(new.id, new.parent, new.body, new.values, new.metadata)
        head.record = len(records) - 1
        return structs.replace(read, head=head, ancestors=[read.head, *read.ancestors])

    def added(self, records: Sequence[Record], new: RepairedCheckpoint) -> list[Record]:
        kept = [one for one in records if not (isinstance(one, Held) and one.new)]
        return [*kept, Held(f"checkpoints.{new.id}", {"id": new.id}, fresh=b"", new=new)]


FORM = PostgresThreads()


def new_in(records: Sequence[Record]) -> RepairedCheckpoint | None:
    """Give the checkpoint that a repair adds to some records."""
    return next((one.new for one in records if isinstance(one, Held) and one.new), None)


def records_of(loaded: Loaded) -> list[Record]:
    """Give the records of a thread, each part of which is told the number of its record."""
    records: list[Record] = []
    snapshot = _numbered(loaded.snapshot, records)
    first = records[0]
    assert isinstance(first, Held)  # noqa: S101 - the head's own
    first.loaded, first.snapshot = loaded, snapshot
    return records


def _numbered(snapshot: ThreadSnapshot, records: list[Record]) -> ThreadSnapshot:
    """Give a snapshot with the numbers of its records, which are added to those that there are."""
    head = snapshot.head
    number = len(records)
    records.append(_held(f"checkpoints.{head.id}", number))
    parts = [[*head.writes], [*snapshot.earlier]]
    for part in parts:
        for place, write in enumerate(part):
            part[place] = structs.replace(write, record=len(records))
            records.append(_held(f"checkpoint_writes.{write.task}.{write.number}", len(records)))
    failed: list[StoredCheckpoint] = []
    for one in snapshot.failed:
        writes = [structs.replace(write, record=len(records)) for write in one.writes]
        records.append(_held(f"checkpoints.{one.id}", len(records)))
        failed.append(structs.replace(one, writes=writes))
    return structs.replace(
        snapshot,
        head=structs.replace(head, writes=parts[0], record=number),
        earlier=parts[1],
        failed=failed,
        runs=[_numbered(run, records) for run in snapshot.runs],
    )


def _held(place: str, number: int) -> Held:
    return Held(place, {"place": place}, start=number, end=number)


def loaded_of(transcript: Transcript) -> Loaded:
    """Give the thread as it was read, of which a transcript was made."""
    records = transcript.records
    return next(one.loaded for one in records if isinstance(one, Held) and one.loaded)


def opened(loaded: Loaded) -> Transcript:
    """Understand a thread that was read."""
    context = Context(b"", session_name(*loaded.key))
    return FORM.parse(records_of(loaded), context)
