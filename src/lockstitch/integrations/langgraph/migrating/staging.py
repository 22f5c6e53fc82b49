"""One thread made anew in memory, and compared with what it was made of, before it is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple
from msgspec import Struct

from lockstitch.errors import Unreadable
from lockstitch.integrations.langgraph.migrating.comparing import Comparison
from lockstitch.integrations.langgraph.migrating.origins import (
    Spot,
    ThreadView,
    WriteRow,
    config_at,
)
from lockstitch.integrations.langgraph.saving.saver import Saver
from lockstitch.journal.checkpoints import Opaque, Thread, line_of, session_of
from lockstitch.journal.records import NEW, Head, JournalEntry, JournalRecord
from lockstitch.session.copying import copy_session

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from lockstitch.stores.base import Backend

Advance = Callable[[int], object]


class Staged(Struct, frozen=True):
    """What is to be added to a session, behind which record, and what it holds then."""

    session: str
    after: Head
    entries: tuple[JournalEntry, ...]
    checkpoints: int
    writes: int


class Staging:
    """Makes the journal of a thread out of what another saver holds of it.

    ``target`` is the store that it is for; what that has of the thread already is not made again.
    ``serde`` makes serialisers, so that what is read back is not what is still remembered.
    """

    def __init__(self, view: ThreadView, target: Backend | None, serde: Any, run: str) -> None:
        self._view = view
        self._target = target
        self._serde: Callable[[], SerializerProtocol] = serde
        self._run = run
        self._session = session_of(view.thread)

    def made(self, advance: Advance = lambda _: None) -> Staged:
        """Make the thread, and compare all of it with what LangGraph reads from its own saver."""
        with Saver("memory:", serde=self._view.serde, reconcile=False) as saver:
            known, after = self._copied(saver.store)
            comparison = Comparison(saver.serde)
            spots = self._view.spots()
            for spot in spots:
                found = self._view.tuple(spot)
                there = self._there(saver, known, spot)
                if there is None or comparison.difference(found, there, with_writes=False):
                    self._put(saver, spot, found)
                advance(1)
            writes = self._write(saver, known, comparison)
            self._compare(saver.store, spots)
            entries = tuple(self._entries(saver.store, after))
        return Staged(self._session, after, entries, len(spots), writes)

    def _copied(self, store: Backend) -> tuple[Thread, Head]:
        """Begin with what the target has."""
        thread = Thread()
        if self._target is None or self._target.head(self._session) is None:
            return thread, NEW
        copy_session(self._target, self._session, store)
        for record in store.read(self._session):
            thread.apply(record)
        return thread, thread.head

    def _there(self, saver: Saver, known: Thread, spot: Spot) -> CheckpointTuple | None:
        """Read what the target has of a checkpoint; a source may have written it once more."""
        if known.node(*spot) is None:
            return None
        return saver.get_tuple(config_at(self._view.thread, spot))

    def _put(self, saver: Saver, spot: Spot, found: CheckpointTuple) -> None:
        checkpoint: Any = found.checkpoint
        if isinstance(checkpoint, Opaque):
            raise Unreadable(
                f"checkpoint {spot[1]} is stored as {checkpoint.tag!r}, which only the serialiser"
                " that wrote it can read: give that one to migrate(source, target, serde=…)"
            )
        if not isinstance(checkpoint, dict) or "channel_versions" not in checkpoint:
            raise Unreadable(f"checkpoint {spot[1]} is damaged")
        parent = (found.parent_config or {}).get("configurable", {}).get("checkpoint_id", "")
        versions = checkpoint["channel_versions"]
        config = config_at(self._view.thread, (spot[0], parent))
        saver.put(config, found.checkpoint, found.metadata, versions)

    def _write(self, saver: Saver, known: Thread, comparison: Comparison) -> int:
        count = 0
        rows = groupby(self._view.writes(), lambda row: (row.spot, row.task, row.path))
        for (spot, task, path), found in rows:
            group = [*found]
            count += len(group)
            there = self._there(saver, known, spot)
            new = [row for row in group if (task, index_of(row)) not in known.writes.get(spot, {})]
            if there is not None:
                # A signal may have been given another value since it was copied.
                kept = {one[1]: one[2] for one in there.pending_writes or () if one[0] == task}
                new += (
                    row
                    for row in group
                    if row.channel in WRITES_IDX_MAP
                    and not comparison.same(kept.get(row.channel), row.value)
                )
            if new:
                config = config_at(self._view.thread, spot)
                saver.put_writes(config, arranged(group), task, path)
        return count

    def _compare(self, store: Backend, spots: Sequence[Spot]) -> None:
        """Read the thread as one who has never seen it, and compare it with the source."""
        with Saver("memory:", serde=self._serde(), reconcile=False) as reader:
            copy_session(store, self._session, reader.store)
            comparison = Comparison(reader.serde)
            heads = dict(spots)
            for spot in [*spots, *((space, "") for space in heads)]:
                found = reader.get_tuple(config_at(self._view.thread, spot))
                what = comparison.difference(self._view.tuple(spot), found)
                if what:
                    where = f"checkpoint {spot[1]}" if spot[1] else f"the head of {spot[0]!r}"
                    raise Unreadable(f"{where} cannot be kept as it is: its {what} would differ")

    def _entries(self, store: Backend, after: Head) -> Iterator[JournalEntry]:
        if store.head(self._session) is None:
            return
        for record in store.read(self._session, after):
            yield entry_of(store, record, f"{self._run}-{record.seq}")


def entry_of(store: Backend, record: JournalRecord, key: str) -> JournalEntry:
    """Give a record of a thread as what makes it again, with its large values."""
    names: Any = getattr(line_of(record.body), "blobs", ())
    blobs = tuple(store.blobs(names).values()) if names else ()
    return JournalEntry(key, record.at, record.body, blobs)


def index_of(row: WriteRow) -> int:
    """Give the index of a write; versions before had one for each signal, too."""
    return WRITES_IDX_MAP.get(row.channel, row.index)


def arranged(rows: Sequence[WriteRow]) -> list[tuple[str, Any]]:
    """Put the writes of a task where they get the indexes that they had.

    A signal, which has an index of its own below 0, leaves a gap where it stood.
    """
    signals = [(row.channel, row.value) for row in rows if row.channel in WRITES_IDX_MAP]
    left = iter(signals)
    made: list[tuple[str, Any]] = []
    for row in sorted(rows, key=lambda row: row.index):
        if row.channel in WRITES_IDX_MAP:
            continue
        while signals and len(made) < row.index:
            made.append(next(left, signals[-1]))
        made.append((row.channel, row.value))
    return [*made, *left]
