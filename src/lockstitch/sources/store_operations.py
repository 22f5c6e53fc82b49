"""Operations on Lockstitch stores from outside.

Rewind, fork, compact, delete, search and copy sessions, and import message lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any, Unpack

from msgspec import Struct

from lockstitch.compaction.ladder import Compaction, CompactionTask, ladder
from lockstitch.compaction.plan import budget_of, calibrated
from lockstitch.compaction.running import Clock, CompactOptions, Summarize, quiet, run
from lockstitch.errors import Conflict, Damaged, Unreadable, UsageError
from lockstitch.journal.events import Forked, Rewound
from lockstitch.journal.queries import Match, SearchWords
from lockstitch.journal.state import Checkpoint, JournalView, ModelReply, Spoken
from lockstitch.session import decisions
from lockstitch.session.copying import Copy, Taken, copy_session, fork_session, prepare_import
from lockstitch.session.listing import begins_thread, list_sessions, may_be_thread, search_session
from lockstitch.session.listing import search_store as listing_search_store
from lockstitch.session.maintenance import (
    Audited,
    Deleted,
    Removal,
    Retention,
    Spared,
    delete_with_reason,
    remove_planned,
)
from lockstitch.session.reader import Reader
from lockstitch.session.session import Session
from lockstitch.session.store import Store
from lockstitch.sources.journals import Journal, choose_session, open_store, read, require
from lockstitch.sources.own_stores import SCHEMES, StorePlace, place_of
from lockstitch.sources.source import OWN, Report, Shorter
from lockstitch.stores.addresses import public
from lockstitch.stores.base import Listed, Listing
from lockstitch.stores.opening import KNOWN, open_backend


class RewindDone(Struct, frozen=True):
    """A rewound session: from which record to which, and where it ends now."""

    session: str
    was: int
    to: int
    seq: int


def checkpoints(target: str, session: str | None = None) -> list[Checkpoint]:
    """Return the places to go back to, oldest first; each can be named by its ``seq``."""
    return list(read(target, session).view.checkpoints)


class LeftBehind(Struct, frozen=True):
    """How much of a conversation a rewind removes from it."""

    turns: int
    replies: int
    calls: int


def find_aim(journal: Journal, to: int | str | None) -> int:
    """Return the record that :func:`rewind` would go back to."""
    if to is not None:
        return decisions.find_place(journal.state, to)
    [event] = decisions.undo_rewind(journal.state)
    assert isinstance(event, Rewound)  # noqa: S101 - that is what undoing one is
    return event.to


def count_left_behind(journal: Journal, to: int) -> LeftBehind:
    """Return how much a rewind to a record removes from the conversation."""
    kept = {fact.seq for fact in journal.state.line(to)}
    gone = [item for item in journal.view.items if item.seq not in kept]
    replies = [item for item in gone if isinstance(item, ModelReply)]
    calls = sum(len(reply.calls) for reply in replies)
    return LeftBehind(sum(isinstance(item, Spoken) for item in gone), len(replies), calls)


def rewind(
    target: str,
    session: str | None = None,
    *,
    to: int | str | None = None,
    wait: float = 0.0,
) -> RewindDone:
    """Go back to a record or a labelled checkpoint; without ``to``, undo the last rewind.

    The rewind is one more record in the journal, and nothing is deleted. Raises ``Held`` if another
    writer holds the session for longer than ``wait`` seconds.
    """
    place, name = _find_session(target, session)
    with open_backend(place.url) as backend:
        with Session(backend, name, wait=wait, create=False) as opened:
            was = opened.seq
            opened.undo_rewind() if to is None else opened.rewind(to)
            fact = opened.state.facts[was + 1]
        return RewindDone(name, was, fact.parent, fact.seq)


def preview_journal_compaction(
    journal: Journal, budget: int, most_bytes: int | None = None
) -> Compaction:
    """Return what a compaction without a model would do; nothing is written."""
    view, dialect = journal.view, journal.dialect
    counter = calibrated(view, dialect, journal.blobs)
    room = budget_of(budget, most_bytes)
    task = CompactionTask(view, dialect, room, journal.blobs, has_model=False, counter=counter)
    return run(ladder(task), None, Clock(0.0, None), keep=lambda *_: None, on_progress=quiet)


def describe_journal_compaction(target: str, journal: Journal, done: Compaction) -> Shorter:
    """Return the description of a compaction, with the number of turns that its summary covers."""
    view = journal.view if done.event is None else journal.state.snapshot(done.event)
    return _shorter(target, journal.session, view, done)


def _shorter(target: str, session: str, view: JournalView, done: Compaction) -> Shorter:
    hidden = [item for item in view.items if done.event and view.hides(item.seq)]
    turns = sum(isinstance(item, Spoken) for item in hidden)
    return Shorter(Report(public(target), OWN, session), done, turns)


def compact_stored(
    target: str,
    session: str | None = None,
    summarize: Summarize | None = None,
    *,
    budget: int,
    dialect: str | None = None,
    **options: Unpack[CompactOptions],
) -> Shorter:
    """Compact a session as ``Session.compact`` does, with the same options."""
    place, name = _find_session(target, session)
    with open_backend(place.url) as backend, Session(backend, name, create=False) as opened:
        done = opened.compact(summarize, budget=budget, dialect=dialect, **options)
    return _shorter(target, name, read(target, name).view, done)


def uncompact(target: str, session: str | None = None) -> str:
    """Undo all compactions of a session; return its name."""
    place, name = _find_session(target, session)
    with open_backend(place.url) as backend, Session(backend, name, create=False) as opened:
        opened.uncompact()
    return name


def fork(target: str, session: str | None, new: str, *, at: int | str | None = None) -> int:
    """Create a session from another one's records, up to a record or a label; return how many.

    The other session may have a writer, because it is only read.
    """
    place, name = _find_session(target, session)
    with open_backend(place.url) as backend:
        fork_session(backend, name, new, at)
        facts = Reader(backend, new).state.facts.values()
        return [fact.event.at for fact in facts if isinstance(fact.event, Forked)][-1]


def name_in(target: str, session: str | None = None) -> str:
    """Return the name of the session that was named, or of the only one there is."""
    return _find_session(target, session)[1]


def _find_session(target: str, session: str | None) -> tuple[StorePlace, str]:
    """Make sure that a session exists before its store is opened for writing."""
    backend, place = open_store(target)
    with backend:
        name = choose_session(backend, session or place.session)
        require(backend, name)
        with suppress(Damaged):
            if may_be_thread(name) and begins_thread(backend.read(name, upto=1)):
                raise UsageError(
                    "it is a LangGraph thread: its graph goes back and branches off "
                    "(get_state_history, update_state), and its saver copies it (copy_thread)"
                )
    return place, name


Advance = Callable[[int], object]


class CopyFailed(Struct, frozen=True):
    """A session that could not be copied, and why."""

    session: str
    error: str


def address_of(target: str) -> str:
    """Return the address of a store to write to, which need not exist yet."""
    if target.startswith(SCHEMES):
        return target
    place = place_of(target)
    if place is None:
        known = KNOWN.rpartition(" or ")[0]
        error = UsageError(f"it does not exist yet, or is not a store; write its address: {known}")
        raise error.about(public(target))
    return place.url


def _find_store(target: str) -> StorePlace:
    """Make sure that a store exists before it is opened for writing."""
    backend, place = open_store(target)
    backend.close()
    return place


def describe_session(target: str, session: str | None = None) -> Listed:
    """Return the listing of the session that was named, or of the only one there is."""
    backend, place = open_store(target)
    with backend:
        name = choose_session(backend, session or place.session)
        require(backend, name)
        head = backend.head(name)
        seq = head.seq if head else 0
        # a text just before this name: its last character is one smaller
        before = f"{name[:-1]}{chr(ord(name[-1]) - 1)}\x7f"
        near = backend.listed(Listing(name=before), 1)
        return next((one for one in near if one.session == name), Listed(name, seq, 0, 0, 0))


def delete(
    target: str, session: str | None = None, *, wait: float = 0.0, reason: str | None = None
) -> Deleted:
    """Delete a session, as ``Store.delete`` does; a ``reason`` is recorded in the audit."""
    name = describe_session(target, session).session
    with open_backend(_find_store(target).url) as backend:
        return delete_with_reason(backend, name, wait, reason)


def vacuum(target: str) -> int:
    """Free the space of deleted sessions, as ``Store.vacuum`` does; return the bytes freed."""
    with open_backend(_find_store(target).url) as backend:
        return backend.vacuum()


def retain(  # noqa: PLR0913 - options, all by name
    target: str,
    *,
    older_than: timedelta | float | None = None,
    keep: int | None = None,
    tags: Iterable[str] = (),
    including_open: bool = False,
    dry_run: bool = False,
) -> Retention:
    """Delete old sessions, or all but the newest, as ``Store.retain`` does."""
    place = _find_store(target)
    with Store(open_backend(place.url, create=not dry_run)) as store:
        return store.retain(
            older_than=older_than,
            keep=keep,
            tags=tags,
            including_open=including_open,
            dry_run=dry_run,
        )


def remove(
    target: str, planned: Iterable[Removal], advance: Advance = lambda _: None
) -> Iterator[Removal | Spared]:
    """Delete the sessions that a dry run of :func:`retain` named, unless they changed since."""
    with open_backend(_find_store(target).url) as backend:
        for removal in planned:
            yield remove_planned(backend, removal)
            advance(1)


def audit(target: str) -> list[Audited]:
    """Return the recorded deletions, oldest first."""
    backend, _ = open_store(target)
    with Store(backend) as store:
        return list(store.audit())


def search_store(
    target: str,
    words: str,
    session: str | None = None,
    *,
    limit: int | None = None,
    advance: Advance = lambda _: None,
) -> Iterator[Match]:
    """Yield matching records of a store, or of one session, as ``Store.search`` does."""
    backend, place = open_store(target)
    name = session or place.session
    with backend:
        if name is None:
            yield from listing_search_store(
                backend, words, limit, advance=lambda one: advance(one.seq)
            )
            return
        require(backend, name)
        damaged: list[Damaged] = []
        matches = search_session(backend, name, SearchWords(words), damaged)
        for number, match in enumerate(matches, 1):
            yield match
            if number == limit:
                return
        if damaged:
            raise damaged[0]


def records_in(target: str, session: str | None = None) -> int:
    """Return the number of records that a search will read."""
    backend, place = open_store(target)
    with backend:
        name = session or place.session
        if name is None:
            return sum(one.seq for one in list_sessions(backend, Listing()))
        head = backend.head(name)
        return head.seq if head else 0


def migrate(
    source: str,
    target: str,
    session: str | None = None,
    *,
    name: str | None = None,
    advance: Advance = lambda _: None,
) -> Iterator[Copy | CopyFailed]:
    """Copy one session of a store, or all, into another store, as ``Store.copy`` does.

    The source stays as it is. Sessions that were copied already are not copied again, so this can
    be repeated after a crash. If one session cannot be copied, the others still are.
    """
    url = address_of(target)
    backend, place = open_store(source)
    wanted = session or place.session
    with backend:
        if wanted is not None:
            require(backend, wanted)
            with open_backend(url) as other:
                yield copy_session(backend, wanted, other, name, advance)
            return
        if name is not None:
            raise UsageError("another name is for one session: name that session, too")
        with open_backend(url) as other:
            for one in list_sessions(backend, Listing()):
                try:
                    yield copy_session(backend, one.session, other, None, advance)
                except (Conflict, Unreadable, UsageError) as error:
                    yield CopyFailed(one.session, str(error))


def take_in(
    target: str, name: str, messages: Any, dialect: str | None = None, *, system: Any = None
) -> Taken:
    """Create a session from a message list, as ``Store.import_messages`` does."""
    write = prepare_import(name, messages, dialect, system)
    with open_backend(address_of(target)) as backend:
        return write(backend)
