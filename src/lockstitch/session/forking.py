"""Copying a session into a new one, to go on there."""

from __future__ import annotations

from lockstitch.errors import Held, UsageError
from lockstitch.journal.events import Event, Forked, Noted
from lockstitch.journal.fold import Fact, State
from lockstitch.journal.records import Head, checked_name
from lockstitch.journal.state import Checkpoint
from lockstitch.session import core
from lockstitch.session.reading import Seen
from lockstitch.session.writing import Writer
from lockstitch.stores.base import Backend


def forked(
    backend: Backend, source: str, target: str, at: Checkpoint | str | int | None = None
) -> Head:
    """Copy the first records of a session, and say in the copy where it came from."""
    if checked_name(target) == source:
        raise UsageError("a fork is a new session: give it another name")
    upto = _place(backend, source, at)
    fork = Forked(source=source, at=upto)
    done = _done(backend, target, fork)
    if done is not None:
        return done
    backend.fork(source, upto, target)
    return _told(backend, target, fork)


def _place(backend: Backend, source: str, at: Checkpoint | str | int | None) -> int:
    """Find where to fork; a record's number needs no reading, whatever is damaged behind it."""
    if at is None:
        head = backend.head(source)
        return head.seq if head else 0
    if isinstance(at, Checkpoint):
        return at.seq
    if isinstance(at, int) and not isinstance(at, bool) and at >= 0:
        return at
    seen = Seen(backend, source)
    seen.refresh()
    return seen.look(lambda state: core.place(state, at))


def _done(backend: Backend, target: str, fork: Forked) -> Head | None:
    """Return where the copy ends if this very fork was made before; raises ``Held`` for another."""
    head = backend.head(target)
    if head is None or head.seq <= fork.at:
        return None
    seen = Seen(backend, target)
    seen.refresh()
    found: Fact | None = seen.state.facts.get(fork.at + 1)
    if found is None or found.event != fork:
        raise Held(f"session {target}: it exists already, and is no fork of that place")
    return seen.head


def _told(backend: Backend, target: str, fork: Forked) -> Head:
    """Say where the copy came from; what runs in the original does not run in it."""
    lease = backend.acquire(target, create=False)
    writer = Writer(backend, lease)
    try:
        writer.decide(lambda state: _begun(state, fork))
        return writer.head
    finally:
        writer.close()


def _begun(state: State, fork: Forked) -> list[Event]:
    if state.seq != fork.at:
        return []
    left = core.orphaned(state, ())
    # said once more: the store keeps what a new session is called when a record says so
    left += [state.described] if state.described else []
    return [fork, *left, Noted(name=core.PAUSED)] if left else [fork]
