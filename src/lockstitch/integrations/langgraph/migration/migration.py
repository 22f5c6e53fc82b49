"""``migrate``: threads of ``SqliteSaver`` or ``PostgresSaver`` for ``Saver``, and back out again.

A thread is made and compared in memory, and stored in one step: it is there as a whole or not at
all. Its records have the name of the migration in their keys, so that nothing else has to be
written down to tell later what was copied, what has gone on since, and what an undo takes away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

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
from lockstitch.formats.langgraph.journal import ThreadJournal, session_of
from lockstitch.integrations.langgraph.migration.origins import Origin, Stamp, ThreadView, origin_of
from lockstitch.integrations.langgraph.migration.thread_copy import (
    CarryingSerializer,
    Staged,
    Staging,
    entry_of,
)
from lockstitch.integrations.langgraph.saver import maintenance
from lockstitch.journal.records import JournalRecord
from lockstitch.sources.journals import open_store
from lockstitch.sources.source import place_of
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


class Migrated(Struct):
    """What became of a thread.

    ``state`` is ``copied``; ``there``, if it had been copied before and nothing is new; ``gone
    on``, if only the copy went on since; ``left``, if it came while others were copied; or
    ``failed``, with an ``error``. ``moved`` says that the source holds more of it by now. ``allow``
    are the classes that ``Saver(url, allow=…)`` has to be given for it, ``forms`` what it needs a
    ``serde`` for.
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
        """The session that keeps it in the store."""
        return session_of(self.thread)


class Migration(Struct, frozen=True):
    """What became of all threads; ``run`` is the name under which ``undo`` takes them away."""

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
    """Copy threads of LangGraph's ``SqliteSaver`` or ``PostgresSaver`` for ``Saver(target)``.

    Every thread is compared with what LangGraph reads from its own saver, and is there as a whole
    or not at all; what is there already is not copied again. So it can be done again after
    anything, and takes along what is new since. The source is never written. Nothing that is
    stored is imported or run: values of other classes than LangGraph counts as safe are carried
    as bytes. ``serde`` is the serialiser that the source was written with, if that is one of your
    own (such as one that encrypts): it reads the values, and has to be given to ``Saver``, too.
    ``advance`` is told of every checkpoint.
    """
    origin = origin_of(source)
    if origin is None:
        raise Unreadable(f"{public(source)}: holds no checkpoints of LangGraph's savers")
    with ExitStack() as stack:
        stack.enter_context(origin)
        known = origin.threads()
        if thread is not None and thread not in known:
            raise Unreadable(f"{public(source)}: there is no thread {thread}")
        store = _opened(target, create=not dry_run)
        if store is not None:
            stack.enter_context(store)
        work = _MigrationWork(origin, store, serde, dry_run=dry_run)
        done = [work.migrated(one, advance) for one in (known if thread is None else [thread])]
        if thread is None:
            came = set(origin.threads()) - set(known)
            done += [Migrated(one, LEFT, moved=True) for one in sorted(came)]
        work.look_again(done)
    return Migration(origin.run, done)


def count(source: str, thread: str | None = None) -> int:
    """Count the checkpoints that are going to be read."""
    origin = origin_of(source)
    if origin is None:
        return 0
    with origin:
        return origin.count(thread)


def _opened(target: str, *, create: bool) -> Backend | None:
    """Open the store to copy to; for looking only, None if there is none yet."""
    if create:
        return open_backend(address_of(target))
    place = place_of(target)
    if place is None:
        address_of(target)
    with suppress(Unreadable):
        return None if place is None else open_store(target)[0]
    return None


class _MigrationWork:
    """Copies one thread after the other from one database into one store."""

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

    def migrated(self, thread: str, advance: Advance) -> Migrated:
        """Copy a thread; one that cannot be copied does not keep the others."""
        try:
            return self._migrated(thread, advance)
        except self._origin.fatal:
            raise
        except (Conflict, Unreadable, Unsure, UsageError) as error:
            return Migrated(thread, FAILED, error=str(error))
        except UnicodeError:
            return Migrated(thread, FAILED, error="its id, or a text in it, is no Unicode")

    def _migrated(self, thread: str, advance: Advance) -> Migrated:
        for _ in range(_TRIES):
            serde = self._serde or CarryingSerializer()
            state, staged = self._origin.reading(
                thread, serde, lambda view: self._staged(view, advance)
            )
            try:
                self._stored(staged)
            except Moved:
                # Another migration, or somebody who uses the copy: look what it is now.
                continue
            done = Migrated(thread, state, staged.checkpoints, staged.writes, len(staged.entries))
            if isinstance(serde, CarryingSerializer):
                done.allow, done.forms = tuple(sorted(serde.names)), tuple(sorted(serde.tags))
            return done
        raise Conflict(f"thread {thread}: others write to its copy again and again")

    def _staged(self, view: ThreadView, advance: Advance) -> tuple[str, Staged]:
        self._stamps[view.thread] = view.stamp()
        copy = self._copy(view.thread)
        if copy and not copy[-1].key.startswith(RUN):
            return GONE_ON, self._gone_on(view, copy)
        made = self._serde or CarryingSerializer
        again = made if isinstance(made, type) else lambda: made
        staged = Staging(view, self._store if copy else None, again, self._origin.run).made(advance)
        return COPIED if staged.entries else THERE, staged

    def _copy(self, thread: str) -> list[JournalRecord]:
        """Read what the store has of a thread; raises ``Held`` if that is not a copy."""
        session = session_of(thread)
        if self._store is None or self._store.head(session) is None:
            return []
        records = list(self._store.read(session))
        if records and not records[0].key.startswith(RUN):
            raise Held(
                f"thread {thread}: there is another one with this id in {self._store.url}; delete"
                " that one, or copy to another store"
            )
        return records

    def _gone_on(self, view: ThreadView, copy: list[JournalRecord]) -> Staged:
        """Leave a copy alone that is in use; raises ``Held`` if its source has gone on, too."""
        thread = ThreadJournal()
        for record in copy:
            thread.apply(record)
        spots = view.spots()
        new = [spot for spot in spots if thread.node(*spot) is None]
        if new:
            raise Held(
                f"thread {view.thread}: both it and its copy have gone on since it was copied"
                f" (checkpoint {new[0][1]} is new); the copy was left alone"
            )
        return Staged(session_of(view.thread), thread.head, (), len(spots), 0)

    def _stored(self, staged: Staged) -> None:
        """Store a thread in one step, and make sure that it is what was compared."""
        if self._is_dry or self._store is None or not staged.entries:
            return
        self._store.add(staged.session, staged.entries, staged.after, wait=_WAIT)
        found = self._store.read(staged.session, staged.after)
        if [(one.key, one.body) for one in found] != [(e.key, e.body) for e in staged.entries]:
            raise Unreadable(
                f"session {staged.session}: it is not what was written; check the store"
            )

    def look_again(self, done: list[Migrated]) -> None:
        """Mark the threads that have gone on in the source since they were read."""
        for one in done:
            if one.thread in self._stamps:
                serde = CarryingSerializer()
                now = self._origin.reading(one.thread, serde, lambda view: view.stamp())
                one.moved = now != self._stamps[one.thread]


# Taking it back


class UndoneMigration(Struct, frozen=True):
    """A thread that a migration had copied, and why it was left, if it was."""

    thread: str
    error: str | None = None


def undo(target: str, run: str, thread: str | None = None) -> Iterator[UndoneMigration]:
    """Take away what a migration brought into a store, unless somebody has used it since."""
    store = _opened(target, create=False)
    if store is None:
        raise Unreadable(f"{public(target)}: there is no such store")
    store.close()
    with open_backend(address_of(target)) as backend:
        found = [thread] if thread is not None else list(maintenance.list_thread_ids(backend))
        for one in found:
            records = list(backend.read(session_of(one)))
            ours = [record.key.startswith(f"{run}-") for record in records]
            if any(ours):
                yield _undone(backend, one, records, ours)


def _undone(
    backend: Backend, thread: str, records: list[JournalRecord], ours: list[bool]
) -> UndoneMigration:
    first = ours.index(True)
    if not all(ours[first:]):
        return UndoneMigration(thread, "it has gone on since it was copied, and was left alone")
    try:
        lease = backend.acquire(session_of(thread), wait=_WAIT, create=False)
        try:
            if lease.head.digest != records[-1].digest:
                return UndoneMigration(thread, "it goes on at this moment, and was left alone")
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
