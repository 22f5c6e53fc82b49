"""One thread made anew in memory, and compared with what it was made of, before it is stored.

Two savers have to give the same, down to the types: 1, 1.0 and True are three values. Values are
built where that is harmless, and carried where it is not: one that names a class outside
LangGraph's list of safe ones is never imported. It stays the bytes that were stored, wherever in a
state it stands, and is written as these bytes again; so is a value in a form that only a serialiser
of the application's own can read (encrypted, pickled).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any

import ormsgpack
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple
from langgraph.checkpoint.serde import jsonplus
from msgspec import Struct

from lockstitch.errors import Unreadable
from lockstitch.formats.langgraph.journal import OpaqueValue, ThreadJournal, line_of, session_of
from lockstitch.integrations.langgraph.migration.origins import (
    Spot,
    ThreadView,
    WriteRow,
    config_at,
)
from lockstitch.integrations.langgraph.saver.saver import Saver
from lockstitch.integrations.langgraph.saver.serializer import SafeSerializer, names_in
from lockstitch.journal.records import NEW, Head, JournalEntry, JournalRecord
from lockstitch.session.copying import copy_session

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from lockstitch.integrations.langgraph.saver.codec import Serializer
    from lockstitch.stores.base import Backend


_PLACE = ("thread_id", "checkpoint_ns", "checkpoint_id")
_MOST = 50_000


class Comparison:
    """Compares checkpoints; messages that are the same objects again are compared once."""

    def __init__(self, serde: Serializer) -> None:
        self._serde = serde
        self._known: dict[tuple[int, int], tuple[BaseMessage, BaseMessage]] = {}

    def difference(
        self, one: CheckpointTuple, other: CheckpointTuple | None, *, with_writes: bool = True
    ) -> str:
        """Name what two savers do not give alike of a checkpoint; "" if there is nothing."""
        if other is None:
            return "state"
        pairs: dict[str, tuple[Any, Any]] = {
            "config": (_place(one.config), _place(other.config)),
            "parent": (_place(one.parent_config), _place(other.parent_config)),
            "metadata": (dict(one.metadata), dict(other.metadata)),
            "state": (one.checkpoint, other.checkpoint),
        }
        if with_writes:
            pairs["pending writes"] = (_listed(one), _listed(other))
        return next((what for what, (a, b) in pairs.items() if not self.same(a, b)), "")

    def same(self, one: Any, other: Any) -> bool:
        """Whether two values are the same."""
        if one is other:
            return True
        if type(one) is not type(other):
            return False
        if isinstance(one, dict):
            return one.keys() == other.keys() and all(
                self.same(value, other[name]) for name, value in one.items()
            )
        if isinstance(one, list | tuple):
            return len(one) == len(other) and all(map(self.same, one, other))
        if isinstance(one, BaseMessage):
            return self._messages(one, other)
        if isinstance(one, str | int | float):
            return bool(one == other) or one != one  # noqa: PLR0124 - not a number
        return self._others(one, other)

    def _messages(self, one: BaseMessage, other: BaseMessage) -> bool:
        pair = (id(one), id(other))
        if pair in self._known:
            return True
        if len(self._known) > _MOST:
            self._known.clear()
        is_same = self.same(one.__dict__, other.__dict__) and self.same(
            one.__pydantic_extra__, other.__pydantic_extra__
        )
        if is_same:
            # Kept, so that nothing else gets their identities.
            self._known[pair] = (one, other)
        return is_same

    def _others(self, one: Any, other: Any) -> bool:
        """Compare what is neither a container nor a message: by its bytes, else by its own word."""
        if self._serde.dumps_typed(one) == self._serde.dumps_typed(other):
            return True
        try:
            return bool(one == other)
        except Exception:  # noqa: BLE001 - a comparison of whatever class it is
            return False


def _place(config: Any) -> Any:
    conf = (config or {}).get("configurable", {})
    return [conf.get(name) for name in _PLACE]


def _listed(saved: CheckpointTuple) -> list[Any]:
    return [list(write) for write in saved.pending_writes or ()]


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
            store = saver.store
            holds_any = store.head(self._session) is not None
            entries = tuple(
                entry_of(store, record, f"{self._run}-{record.seq}")
                for record in (store.read(self._session, after) if holds_any else ())
            )
        return Staged(self._session, after, entries, len(spots), writes)

    def _copied(self, store: Backend) -> tuple[ThreadJournal, Head]:
        """Begin with what the target has."""
        thread = ThreadJournal()
        if self._target is None or self._target.head(self._session) is None:
            return thread, NEW
        copy_session(self._target, self._session, store)
        for record in store.read(self._session):
            thread.apply(record)
        return thread, thread.head

    def _there(self, saver: Saver, known: ThreadJournal, spot: Spot) -> CheckpointTuple | None:
        """Read what the target has of a checkpoint; a source may have written it once more."""
        if known.node(*spot) is None:
            return None
        return saver.get_tuple(config_at(self._view.thread, spot))

    def _put(self, saver: Saver, spot: Spot, found: CheckpointTuple) -> None:
        checkpoint: Any = found.checkpoint
        if isinstance(checkpoint, OpaqueValue):
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

    def _write(self, saver: Saver, known: ThreadJournal, comparison: Comparison) -> int:
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


def entry_of(store: Backend, record: JournalRecord, key: str) -> JournalEntry:
    """Return a record of a thread as what makes it again, with its large values."""
    names: Any = getattr(line_of(record.body), "blobs", ())
    blobs = tuple(store.blobs(names).values()) if names else ()
    return JournalEntry(key, record.at, record.body, blobs)


def index_of(row: WriteRow) -> int:
    """Return the index of a write; versions before had one for each signal, too."""
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


_MSGPACK = "msgpack"
_OPTION = ormsgpack.OPT_NON_STR_KEYS


class Carried(Struct, frozen=True):
    """A part of a value that is not built here: its kind in msgpack, and its bytes."""

    code: int
    data: bytes


class CarryingSerializer(SafeSerializer):
    """Reads any stored value and writes it again, and never imports what it names.

    Equal bytes are read as the very same object, so that whoever stores them again knows it.
    ``names`` are the classes that were carried, ``tags`` the forms that are not known here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: set[tuple[str, ...]] = set()
        self.tags: set[str] = set()
        self._built_before: dict[tuple[int, bytes], Any] = {}
        self._carried = 0

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read a value, as far as that is harmless."""
        tag, raw = data
        if tag != _MSGPACK:
            try:
                return super().loads_typed(data)
            except Unreadable:
                self.tags.add(tag)
                return OpaqueValue(tag, bytes(raw))
        before = self._carried
        try:
            value = ormsgpack.unpackb(raw, ext_hook=self._part, option=_OPTION)
        except ValueError:
            # Damaged: nobody can read it, here or there.
            return OpaqueValue(tag, bytes(raw))
        if self._carried > before:
            self.names.update(name for name in names_in(raw) if not self._is_allowed(name))
        return value

    def _part(self, code: int, data: bytes) -> Any:
        found = self._built_before.get((code, data))
        if found is None:
            before = self._carried
            inner = ormsgpack.unpackb(data, ext_hook=self._part, option=_OPTION)
            found = Carried(code, data)
            if self._carried == before:
                with suppress(Unreadable):
                    found = self._built(code, inner)
            self._built_before[code, data] = found
        self._carried += type(found) is Carried
        return found

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Write a value; what was carried is written as it was."""
        if isinstance(obj, OpaqueValue):
            return obj.tag, obj.data
        if obj is None or isinstance(obj, bytes | bytearray):
            return super().dumps_typed(obj)
        return _MSGPACK, ormsgpack.packb(obj, default=_packed, option=jsonplus._option)  # noqa: SLF001


def _packed(obj: Any) -> Any:
    if isinstance(obj, Carried):
        return ormsgpack.Ext(obj.code, obj.data)
    return jsonplus._msgpack_default(obj)  # noqa: SLF001
