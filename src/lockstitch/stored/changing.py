"""Going back in a session of a store, branching off, and making it shorter, from outside."""

from __future__ import annotations

from contextlib import suppress
from typing import Unpack

from msgspec import Struct

from lockstitch.compaction.ladder import Compaction, CompactionTask, ladder
from lockstitch.compaction.plan import budget_of, calibrated
from lockstitch.compaction.running import Clock, CompactOptions, Summarize, quiet, run
from lockstitch.errors import Damaged, UsageError
from lockstitch.formats.langgraph.journal import ThreadLine, line_of, may_be_thread
from lockstitch.journal.events import Forked, Rewound
from lockstitch.journal.state import Checkpoint, JournalView, ModelReply, Spoken
from lockstitch.places import Place, public
from lockstitch.report import OWN, Report
from lockstitch.session import decisions
from lockstitch.session.copying import fork_session
from lockstitch.session.reader import Reader
from lockstitch.session.session import Session
from lockstitch.sessions import Shorter
from lockstitch.stored.journal import Journal, chosen, opened, read, require
from lockstitch.stores.base import Backend
from lockstitch.stores.opening import open_backend


class Moved(Struct, frozen=True):
    """A session that was taken back: from which record to which, and where it ends now."""

    session: str
    was: int
    to: int
    seq: int


def checkpoints(target: str, session: str | None = None) -> list[Checkpoint]:
    """List the places to go back to, oldest first; each of them can be named by its ``seq``."""
    return list(read(target, session).view.checkpoints)


class Left(Struct, frozen=True):
    """How much of a conversation a rewind takes out of it."""

    turns: int
    replies: int
    calls: int


def aim(journal: Journal, to: int | str | None) -> int:
    """Tell which record a rewind would lead to, as :func:`rewind` finds it."""
    if to is not None:
        return decisions.find_place(journal.state, to)
    [event] = decisions.undo_rewind(journal.state)
    assert isinstance(event, Rewound)  # noqa: S101 - that is what undoing one is
    return event.to


def left_behind(journal: Journal, to: int) -> Left:
    """Count what of the conversation is not in it any more after a rewind to a record."""
    kept = {fact.seq for fact in journal.state.line(to)}
    gone = [item for item in journal.view.items if item.seq not in kept]
    replies = [item for item in gone if isinstance(item, ModelReply)]
    calls = sum(len(reply.calls) for reply in replies)
    return Left(sum(isinstance(item, Spoken) for item in gone), len(replies), calls)


def rewind(
    target: str,
    session: str | None = None,
    *,
    to: int | str | None = None,
    wait: float = 0.0,
) -> Moved:
    """Go back to a record, or to the checkpoint with a label; without ``to`` undo the last rewind.

    It is one more fact in the journal: nothing is deleted. Raises ``Held`` if another writer has
    the session for longer than ``wait`` seconds.
    """
    place, name = _existing(target, session)
    with open_backend(place.url) as backend:
        with Session(backend, name, wait=wait, create=False) as opened:
            was = opened.seq
            opened.undo_rewind() if to is None else opened.rewind(to)
            fact = opened.state.facts[was + 1]
        return Moved(name, was, fact.parent, fact.seq)


def outlook(journal: Journal, budget: int, most_bytes: int | None = None) -> Compaction:
    """Say what a compaction would come to without a model; nothing is written."""
    view, dialect = journal.view, journal.dialect
    counter = calibrated(view, dialect, journal.blobs)
    room = budget_of(budget, most_bytes)
    task = CompactionTask(view, dialect, room, journal.blobs, has_model=False, counter=counter)
    return run(ladder(task), None, Clock(0.0, None), keep=lambda *_: None, on_progress=quiet)


def shorter(target: str, journal: Journal, done: Compaction) -> Shorter:
    """Say of a compaction how many turns its summary is for."""
    view = journal.view if done.event is None else journal.state.snapshot(done.event)
    return _shorter(target, journal.session, view, done)


def _shorter(target: str, session: str, view: JournalView, done: Compaction) -> Shorter:
    hidden = [item for item in view.items if done.event and view.hides(item.seq)]
    turns = sum(isinstance(item, Spoken) for item in hidden)
    return Shorter(Report(public(target), OWN, session), done, turns)


def compact(
    target: str,
    session: str | None = None,
    summarize: Summarize | None = None,
    *,
    budget: int,
    dialect: str | None = None,
    **options: Unpack[CompactOptions],
) -> Shorter:
    """Compact a session as ``Session.compact`` does, with its options; one more record says so."""
    place, name = _existing(target, session)
    with open_backend(place.url) as backend, Session(backend, name, create=False) as opened:
        done = opened.compact(summarize, budget=budget, dialect=dialect, **options)
    return _shorter(target, name, read(target, name).view, done)


def uncompact(target: str, session: str | None = None) -> str:
    """Take every compaction of a session back; gives its name."""
    place, name = _existing(target, session)
    with open_backend(place.url) as backend, Session(backend, name, create=False) as opened:
        opened.uncompact()
    return name


def fork(target: str, session: str | None, new: str, *, at: int | str | None = None) -> int:
    """Make a new session of another's records, up to a record or a label; returns how many.

    The other one may have a writer: it is only read.
    """
    place, name = _existing(target, session)
    with open_backend(place.url) as backend:
        fork_session(backend, name, new, at)
        facts = Reader(backend, new).state.facts.values()
        return [fact.event.at for fact in facts if isinstance(fact.event, Forked)][-1]


def name_in(target: str, session: str | None = None) -> str:
    """Return the name of the session that is meant: the one named, or the only one there is."""
    return _existing(target, session)[1]


def _existing(target: str, session: str | None) -> tuple[Place, str]:
    """Make sure that a session is there before its store is opened for writing."""
    backend, place = opened(target)
    with backend:
        name = chosen(backend, session or place.session)
        require(backend, name)
        _refuse_thread(backend, name)
    return place, name


def _refuse_thread(backend: Backend, session: str) -> None:
    with suppress(Damaged):
        first = next(iter(backend.read(session, upto=1)), None) if may_be_thread(session) else None
        if first is not None and isinstance(line_of(first.body), ThreadLine):
            raise UsageError(
                "is a thread of LangGraph: its graph goes back and branches off"
                " (get_state_history, update_state), and its saver copies it (copy_thread)"
            )
