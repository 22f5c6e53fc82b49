"""``migrate``: copy threads of ``SqliteSaver`` or ``PostgresSaver`` to ``Saver``, and undo that.

A thread is built and compared in memory, and stored in one step, so it is copied completely or not
at all. The keys of its records contain the name of the migration. So nothing else has to be stored
in order to know later what was copied, what has gone on since, and what an undo deletes.

Both savers must return the same values of the same types: 1, 1.0 and True differ. Values are built
if that is harmless, and carried as bytes if it is not: a value that names a class outside
LangGraph's list of safe ones is never imported. It keeps its stored bytes, wherever in a state it
stands, and is written as the same bytes again. So is a value that only a serializer of the
application's own can read (encrypted, pickled).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any

import ormsgpack
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple
from langgraph.checkpoint.serde import jsonplus
from msgspec import Struct

from lockstitch.errors import (
    Conflict,
    Held,
    LockstitchError,
    Moved,
    Unreadable,
    Unsure,
    UsageError,
)
from lockstitch.formats.langgraph.journal import OpaqueValue, ThreadJournal, line_of, session_of
from lockstitch.integrations.langgraph.origins import (
    Origin,
    Spot,
    Stamp,
    ThreadView,
    WriteRow,
    origin_of,
)
from lockstitch.integrations.langgraph.run_ids import ThreadPlace
from lockstitch.integrations.langgraph.saver import Saver
from lockstitch.integrations.langgraph.saver.serializer import SafeSerializer, names_in
from lockstitch.integrations.langgraph.saver.threads import list_thread_ids
from lockstitch.journal.records import Head, JournalEntry, JournalRecord
from lockstitch.session.copying import copy_session
from lockstitch.sources.journals import open_store
from lockstitch.sources.own_stores import place_of
from lockstitch.sources.store_operations import address_of
from lockstitch.stores.addresses import public
from lockstitch.stores.opening import open_backend

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from lockstitch.stores.base import Backend

Advance = Callable[[int], object]
RUN = "migrate-"
COPIED, THERE, GONE_ON, LEFT, FAILED = "copied", "there", "gone on", "left", "failed"
_WAIT = 10.0
_TRIES = 3
_PLACE = ("thread_id", "checkpoint_ns", "checkpoint_id")
# How many pairs of equal messages are remembered.
_MOST = 50_000
_MSGPACK = "msgpack"
_OPTION = ormsgpack.OPT_NON_STR_KEYS


class Migrated(Struct):
    """The outcome for one thread.

    ``state`` is ``copied``; ``there`` if it had been copied before and nothing is new; ``gone on``
    if only the copy went on since; ``left`` if it was written while others were copied; or
    ``failed``, with an ``error``. ``moved`` says that the source has more of it by now. ``allow``
    are the classes to pass to ``Saver(url, allow=…)`` for it, and ``forms`` the forms of values
    that need a ``serde``.
    """

    thread: str
    state: str = COPIED
    checkpoints: int = 0
    writes: int = 0
    records: int = 0
    moved: bool = False
    allow: tuple[tuple[str, ...], ...] = ()
    forms: tuple[str, ...] = ()
    error: str | None = None

    @property
    def session(self) -> str:
        """The session in the store that holds the thread."""
        return session_of(self.thread)


class Migration(Struct, frozen=True):
    """What became of all threads; ``run`` is the name that ``undo`` takes."""

    run: str
    threads: list[Migrated]


def migrate(  # noqa: PLR0913 - options by name
    source: str,
    target: str,
    *,
    thread: str | None = None,
    serde: SerializerProtocol | None = None,
    dry_run: bool = False,
    advance: Advance = lambda _: None,
) -> Migration:
    """Copy threads of LangGraph's ``SqliteSaver`` or ``PostgresSaver`` to a store for ``Saver``.

    Every thread is compared with what LangGraph reads from its own saver, and is copied completely
    or not at all. A thread that is there already is not copied again, so this can be repeated after
    a crash, and then also copies what is new. The source is never written. Nothing that is stored
    is imported or run: values of classes that LangGraph does not consider safe are carried as
    bytes. ``serde`` is the serializer that the source was written with, if it is your own (such as
    one that encrypts): it reads the values, and ``Saver`` needs it, too. With ``dry_run`` nothing
    is stored. ``advance`` is called for every checkpoint.
    """
    origin = origin_of(source)
    if origin is None:
        raise Unreadable("it holds no checkpoints from LangGraph's savers").about(public(source))
    with ExitStack() as stack:
        stack.enter_context(origin)
        known = origin.threads()
        if thread is not None and thread not in known:
            raise Unreadable(f"there is no thread {thread}").about(public(source))
        store = _open_target(target, create=not dry_run)
        if store is not None:
            stack.enter_context(store)
        work = _MigrationWork(origin, store, serde, dry_run=dry_run)
        done = [work.migrate(one, advance) for one in (known if thread is None else [thread])]
        if thread is None:
            came = set(origin.threads()) - set(known)
            done += [Migrated(one, LEFT, moved=True) for one in sorted(came)]
        work.look_again(done)
    return Migration(origin.run, done)


def count(source: str, thread: str | None = None) -> int:
    """Return the number of checkpoints that a migration will read."""
    origin = origin_of(source)
    if origin is None:
        return 0
    with origin:
        return origin.count(thread)


def _open_target(target: str, *, create: bool) -> Backend | None:
    """Open the store to copy to; without ``create``, return None if it does not exist yet."""
    if create:
        return open_backend(address_of(target))
    place = place_of(target)
    if place is None:
        address_of(target)
    with suppress(Unreadable):
        return None if place is None else open_store(target)[0]
    return None


class _MigrationWork:
    """Copies threads one by one from a database to a store."""

    def __init__(
        self,
        origin: Origin,
        store: Backend | None,
        serde: SerializerProtocol | None,
        *,
        dry_run: bool,
    ) -> None:
        self._origin = origin
        self._store = store
        self._serde = serde
        self._is_dry = dry_run
        self._stamps: dict[str, Stamp] = {}

    def migrate(self, thread: str, advance: Advance) -> Migrated:
        """Copy a thread; if that fails, the other threads can still be copied."""
        try:
            return self._migrate(thread, advance)
        except self._origin.fatal:
            raise
        except (Conflict, Unreadable, Unsure, UsageError) as error:
            return Migrated(thread, FAILED, error=str(error))
        except UnicodeError:
            return Migrated(thread, FAILED, error="its id, or a text in it, is not valid Unicode")

    def _migrate(self, thread: str, advance: Advance) -> Migrated:
        for _ in range(_TRIES):
            serde = self._serde or CarryingSerializer()
            state, staged = self._origin.read(
                thread, serde, lambda view: self._stage(view, advance)
            )
            try:
                self._store_copy(staged)
            except Moved:
                # Another migration has written it, or somebody uses the copy: look at it again.
                continue
            done = Migrated(thread, state, staged.checkpoints, staged.writes, len(staged.entries))
            if isinstance(serde, CarryingSerializer):
                done.allow, done.forms = tuple(sorted(serde.names)), tuple(sorted(serde.tags))
            return done
        raise Conflict(f"thread {thread}: other writers keep writing to its copy")

    def _stage(self, view: ThreadView, advance: Advance) -> tuple[str, Staged]:
        self._stamps[view.thread] = view.stamp()
        copy = self._read_copy(view.thread)
        if copy and not copy[-1].key.startswith(RUN):
            # It is in use, so it is left alone.
            thread = ThreadJournal()
            for record in copy:
                thread.apply(record)
            spots = view.spots()
            new = [spot for spot in spots if thread.node(*spot) is None]
            if new:
                raise Held(
                    f"thread {view.thread}: both it and its copy have been continued since it "
                    f"was copied (checkpoint {new[0][1]} is new); the copy was left alone"
                )
            return GONE_ON, Staged(session_of(view.thread), thread.head, (), len(spots), 0)
        made = self._serde or CarryingSerializer
        again = made if isinstance(made, type) else lambda: made
        staged = Staging(view, self._store if copy else None, again, self._origin.run).make(advance)
        return COPIED if staged.entries else THERE, staged

    def _read_copy(self, thread: str) -> list[JournalRecord]:
        """Return the records of a thread in the store; raise ``Held`` if it is not a copy."""
        session = session_of(thread)
        if self._store is None or self._store.head(session) is None:
            return []
        records = list(self._store.read(session))
        if records and not records[0].key.startswith(RUN):
            raise Held(
                f"thread {thread}: a different thread in {self._store.url} has this id; delete "
                "that one, or copy to another store"
            )
        return records

    def _store_copy(self, staged: Staged) -> None:
        """Store a thread in one step, and verify that it is what was compared."""
        if self._is_dry or self._store is None or not staged.entries:
            return
        self._store.add(staged.session, staged.entries, staged.after, wait=_WAIT)
        found = self._store.read(staged.session, staged.after)
        if [(one.key, one.body) for one in found] != [(e.key, e.body) for e in staged.entries]:
            raise Unreadable("it does not match what was written; check the store").about(
                session=staged.session
            )

    def look_again(self, done: list[Migrated]) -> None:
        """Mark the threads that have gone on in the source since they were read."""
        for one in done:
            if one.thread in self._stamps:
                serde = CarryingSerializer()
                now = self._origin.read(one.thread, serde, lambda view: view.stamp())
                one.moved = now != self._stamps[one.thread]


# One thread


class Staged(Struct, frozen=True):
    """The entries to add to a session, the record they follow, and what the session holds then."""

    session: str
    after: Head
    entries: tuple[JournalEntry, ...]
    checkpoints: int
    writes: int


class Staging:
    """Builds the journal of a thread from what another saver holds of it.

    ``target`` is the store that it is for; the part of the thread that is there already is not
    built again. ``serde`` makes serializers, so that reading back does not use what another one
    remembers.
    """

    def __init__(self, view: ThreadView, target: Backend | None, serde: Any, run: str) -> None:
        self._view = view
        self._target = target
        self._serde: Callable[[], SerializerProtocol] = serde
        self._run = run
        self._session = session_of(view.thread)

    def make(self, advance: Advance = lambda _: None) -> Staged:
        """Build the thread, and compare all of it with what LangGraph reads from its own saver."""
        with Saver("memory:", serde=self._view.serde, reconcile=False) as saver:
            # Begin with what the target has.
            known = ThreadJournal()
            if self._target is not None and self._target.head(self._session) is not None:
                copy_session(self._target, self._session, saver.store)
                for record in saver.store.read(self._session):
                    known.apply(record)
            after = known.head
            comparison = Comparison(saver.serde)
            spots = self._view.spots()
            for spot in spots:
                found = self._view.tuple(spot)
                there = self._read_copy(saver, known, spot)
                if there is None or comparison.difference(found, there, with_writes=False):
                    self._put(saver, spot, found)
                advance(1)
            writes = self._put_writes(saver, known, comparison)
            self._compare(saver.store, spots)
            store = saver.store
            holds_any = store.head(self._session) is not None
            entries = tuple(
                entry_of(store, record, f"{self._run}-{record.seq}")
                for record in (store.read(self._session, after) if holds_any else ())
            )
        return Staged(self._session, after, entries, len(spots), writes)

    def _read_copy(self, saver: Saver, known: ThreadJournal, spot: Spot) -> CheckpointTuple | None:
        """Return the target's copy of a checkpoint; the source may have written it again since."""
        if known.node(*spot) is None:
            return None
        return saver.get_tuple(ThreadPlace(self._view.thread, *spot).config)

    def _put(self, saver: Saver, spot: Spot, found: CheckpointTuple) -> None:
        checkpoint: Any = found.checkpoint
        if isinstance(checkpoint, OpaqueValue):
            raise Unreadable(
                f"checkpoint {spot[1]} is stored as {checkpoint.tag!r}, which only the "
                "serialiser that wrote it can read: pass that one to migrate(source, target, "
                "serde=…)"
            )
        if not isinstance(checkpoint, dict) or "channel_versions" not in checkpoint:
            raise Unreadable(f"checkpoint {spot[1]} is damaged")
        parent = (found.parent_config or {}).get("configurable", {}).get("checkpoint_id", "")
        versions = checkpoint["channel_versions"]
        config = ThreadPlace(self._view.thread, spot[0], parent).config
        saver.put(config, found.checkpoint, found.metadata, versions)

    def _put_writes(self, saver: Saver, known: ThreadJournal, comparison: Comparison) -> int:
        count = 0
        rows = groupby(self._view.writes(), lambda row: (row.spot, row.task, row.path))
        for (spot, task, path), found in rows:
            group = [*found]
            count += len(group)
            there = self._read_copy(saver, known, spot)
            # Earlier versions gave each signal an index of its own, too.
            new = [
                row
                for row in group
                if (task, WRITES_IDX_MAP.get(row.channel, row.index))
                not in known.writes.get(spot, {})
            ]
            if there is not None:
                # A signal may have got another value since it was copied.
                kept = {one[1]: one[2] for one in there.pending_writes or () if one[0] == task}
                new += (
                    row
                    for row in group
                    if row.channel in WRITES_IDX_MAP
                    and not comparison.are_same(kept.get(row.channel), row.value)
                )
            if new:
                config = ThreadPlace(self._view.thread, *spot).config
                saver.put_writes(config, arrange_writes(group), task, path)
        return count

    def _compare(self, store: Backend, spots: list[Spot]) -> None:
        """Read the thread without any memory of it, and compare it with the source."""
        with Saver("memory:", serde=self._serde(), reconcile=False) as reader:
            copy_session(store, self._session, reader.store)
            comparison = Comparison(reader.serde)
            heads = dict(spots)
            for spot in [*spots, *((space, "") for space in heads)]:
                found = reader.get_tuple(ThreadPlace(self._view.thread, *spot).config)
                what = comparison.difference(self._view.tuple(spot), found)
                if what:
                    where = f"checkpoint {spot[1]}" if spot[1] else f"the head of {spot[0]!r}"
                    raise Unreadable(f"{where} cannot be kept as it is: its {what} would differ")


def entry_of(store: Backend, record: JournalRecord, key: str) -> JournalEntry:
    """Return an entry that recreates a record of a thread, with its large values."""
    names: Any = getattr(line_of(record.body), "blobs", ())
    blobs = tuple(store.blobs(names).values()) if names else ()
    return JournalEntry(key, record.at, record.body, blobs)


def arrange_writes(rows: list[WriteRow]) -> list[tuple[str, Any]]:
    """Order the writes of a task so that they get the indexes that they had.

    A signal, which has a special index below 0, leaves a gap at its place.
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


class Comparison:
    """Compares checkpoints; the same message objects are compared only once."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde
        self._known: dict[tuple[int, int], tuple[BaseMessage, BaseMessage]] = {}

    def difference(
        self, one: CheckpointTuple, other: CheckpointTuple | None, *, with_writes: bool = True
    ) -> str:
        """Return the name of what differs between two savers' checkpoints; "" if nothing does."""
        if other is None:
            return "state"

        def place(config: Any) -> list[Any]:
            conf = (config or {}).get("configurable", {})
            return [conf.get(name) for name in _PLACE]

        pairs: dict[str, tuple[Any, Any]] = {
            "config": (place(one.config), place(other.config)),
            "parent": (place(one.parent_config), place(other.parent_config)),
            "metadata": (dict(one.metadata), dict(other.metadata)),
            "state": (one.checkpoint, other.checkpoint),
        }
        if with_writes:
            writes, others = one.pending_writes or (), other.pending_writes or ()
            pairs["pending writes"] = ([*map(list, writes)], [*map(list, others)])
        return next((what for what, (a, b) in pairs.items() if not self.are_same(a, b)), "")

    def are_same(self, one: Any, other: Any) -> bool:
        """Whether two values are the same."""
        if one is other:
            return True
        if type(one) is not type(other):
            return False
        if isinstance(one, dict):
            return one.keys() == other.keys() and all(
                self.are_same(value, other[name]) for name, value in one.items()
            )
        if isinstance(one, list | tuple):
            return len(one) == len(other) and all(map(self.are_same, one, other))
        if isinstance(one, BaseMessage):
            return self._are_same_messages(one, other)
        if isinstance(one, str | int | float):
            return bool(one == other) or one != one  # noqa: PLR0124 - not a number
        # Anything that is not a container or a message is compared by its bytes, or else by ``==``.
        if self._serde.dumps_typed(one) == self._serde.dumps_typed(other):
            return True
        try:
            return bool(one == other)
        except Exception:  # noqa: BLE001 - a comparison of whatever class it is
            return False

    def _are_same_messages(self, one: BaseMessage, other: BaseMessage) -> bool:
        pair = (id(one), id(other))
        if pair in self._known:
            return True
        if len(self._known) > _MOST:
            self._known.clear()
        is_same = self.are_same(one.__dict__, other.__dict__) and self.are_same(
            one.__pydantic_extra__, other.__pydantic_extra__
        )
        if is_same:
            # Kept alive, so that no other objects get their identities.
            self._known[pair] = (one, other)
        return is_same


# Values that are carried


class Carried(Struct, frozen=True):
    """A part of a value that is not built here: its type code in msgpack, and its bytes."""

    code: int
    data: bytes


class CarryingSerializer(SafeSerializer):
    """Reads any stored value and writes it again, without importing what it names.

    Equal bytes are read as the very same object, so that storing them again recognizes it.
    ``names`` are the classes that were carried, ``tags`` the forms that are unknown here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: set[tuple[str, ...]] = set()
        self.tags: set[str] = set()
        self._built_before: dict[tuple[int, bytes], Any] = {}
        self._carried = 0

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read a value, and carry the parts that may not be harmless."""
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
            # It is damaged: nobody can read it, here or there.
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
                    found = self._build(code, inner)
            self._built_before[code, data] = found
        self._carried += type(found) is Carried
        return found

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Write a value; carried parts are written as they were."""
        if isinstance(obj, OpaqueValue):
            return obj.tag, obj.data
        if obj is None or isinstance(obj, bytes | bytearray):
            return super().dumps_typed(obj)
        return _MSGPACK, ormsgpack.packb(obj, default=_packed, option=jsonplus._option)  # noqa: SLF001


def _packed(obj: Any) -> Any:
    if isinstance(obj, Carried):
        return ormsgpack.Ext(obj.code, obj.data)
    return jsonplus._msgpack_default(obj)  # noqa: SLF001


# Taking it back


class UndoneMigration(Struct, frozen=True):
    """A thread that a migration had copied, and, if it was kept, why."""

    thread: str
    error: str | None = None


def undo(target: str, run: str, thread: str | None = None) -> Iterator[UndoneMigration]:
    """Delete what a migration brought into a store, unless somebody has used it since."""
    store = _open_target(target, create=False)
    if store is None:
        raise Unreadable("there is no such store").about(public(target))
    store.close()
    with open_backend(address_of(target)) as backend:
        found = [thread] if thread is not None else list(list_thread_ids(backend))
        for one in found:
            records = list(backend.read(session_of(one)))
            ours = [record.key.startswith(f"{run}-") for record in records]
            if any(ours):
                yield _undo_one(backend, one, records, ours)


def _undo_one(
    backend: Backend, thread: str, records: list[JournalRecord], ours: list[bool]
) -> UndoneMigration:
    first = ours.index(True)
    if not all(ours[first:]):
        return UndoneMigration(thread, "it was continued since it was copied, and was left alone")
    try:
        lease = backend.acquire(session_of(thread), wait=_WAIT, create=False)
        try:
            if lease.head.digest != records[-1].digest:
                return UndoneMigration(
                    thread, "it is being continued at this moment, and was left alone"
                )
            if first:
                kept = [entry_of(backend, one, one.key) for one in records[:first]]
                backend.replace(lease, kept, lease.head.seq)
            else:
                backend.delete(lease)
        finally:
            backend.release(lease)
    except LockstitchError as error:
        return UndoneMigration(thread, str(error))
    return UndoneMigration(thread)
