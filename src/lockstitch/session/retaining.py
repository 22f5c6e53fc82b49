"""Removing the sessions that are old, or more than shall be kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

from msgspec import Struct

from lockstitch.errors import Damaged, Held, Moved, Unreadable, UsageError
from lockstitch.journal.about import checked_tags
from lockstitch.journal.checkpoints import Begun, line_of, may_be_thread
from lockstitch.session.auditing import Removal, written_down
from lockstitch.session.core import turn_of
from lockstitch.session.listing import listed
from lockstitch.session.reading import Seen
from lockstitch.session.removing import Deleted, deleted
from lockstitch.stores.base import Backend, Lease, Listed, Listing

_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


class Spared(Struct, frozen=True):
    """A session that would have gone, and why it stays."""

    session: str
    reason: str


class Rule(Struct, frozen=True):
    """Which sessions go: those changed more than so many seconds ago, and those beyond so many.

    Of ``tags`` a session must have every one to be looked at.
    """

    older_than: float | None = None
    keep: int | None = None
    tags: tuple[str, ...] = ()
    including_open: bool = False


def rule_of(
    older_than: timedelta | float | None,
    keep: int | None,
    tags: Iterable[str],
    *,
    including_open: bool,
) -> Rule:
    """Make sense of what a caller wants; raises ``UsageError``."""
    if older_than is None and keep is None:
        raise UsageError("say which sessions shall go: older_than=, keep=, or both")
    seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
    if seconds is not None and not _is_number(seconds, int | float):
        raise UsageError("older_than is a timedelta, or a number of seconds")
    if keep is not None and not _is_number(keep, int):
        raise UsageError("keep is a number of sessions, 0 or more")
    return Rule(seconds, keep, checked_tags(tags), including_open)


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and value >= 0


def planned(
    backend: Backend, rule: Rule, *, including_held: bool = False
) -> Iterator[Removal | Spared]:
    """Say which sessions go, newest first, and which stay only because they are in use.

    Nothing is changed. A session without records is as old as itself, and is not counted. Whoever
    is going to take the lease of each finds out by that whether a holder is still alive.
    """
    now = time.time_ns() // 1_000_000
    number = 0
    tag = rule.tags[0] if rule.tags else ""
    for one in listed(backend, Listing(newest=True, tag=tag)):
        if not set(rule.tags) <= set(one.tags):
            continue
        number += 1 if one.seq else 0
        reason = _reason(rule, one, number, now)
        if not reason:
            continue
        is_held = bool(one.holder) and not including_held
        use = f"{one.holder} holds it" if is_held else _use(backend, one, rule)
        if use:
            yield Spared(one.session, use)
        else:
            yield Removal(one.session, one.seq, one.changed, reason, one.title)


def _reason(rule: Rule, one: Listed, number: int, now: int) -> str:
    age = (now - max(one.changed, one.created if not one.seq else 0)) / 1000
    if rule.older_than is not None and age > rule.older_than:
        return f"not changed for more than {_shown(rule.older_than)}"
    if rule.keep is not None and one.seq and number > rule.keep:
        return f"not among the {rule.keep} changed last"
    return ""


def _shown(seconds: float) -> str:
    size, name = next(
        ((size, name) for size, name in _UNITS if seconds >= size and seconds % size == 0),
        (1, "second"),
    )
    return f"{seconds / size:g} {name}{'s' * (seconds != size)}"


def _use(backend: Backend, one: Listed, rule: Rule) -> str:
    """Say why a session may still be needed, "" if it is not."""
    if rule.including_open:
        return ""
    try:
        if may_be_thread(one.session) and _is_thread(backend, one.session):
            return "it is a thread of LangGraph, and may wait for somebody"
        seen = Seen(backend, one.session)
        seen.refresh()
    except Damaged:
        return "it cannot be read to the end: `lockstitch check` says why"
    except Unreadable:
        return "it was removed meanwhile"
    state = seen.look(lambda state: turn_of(state.view).state)
    return f"its turn is {state}" if state in {"open", "waiting"} else ""


def _is_thread(backend: Backend, session: str) -> bool:
    first = next(iter(backend.read(session, upto=1)), None)
    return first is not None and isinstance(line_of(first.body), Begun)


def removed(backend: Backend, removal: Removal, by: str | None = None) -> Removal | Spared:
    """Remove a session that was planned to go, and write it down; not if it changed since."""

    def before(lease: Lease) -> None:
        if lease.head.seq != removal.records:
            raise Moved(f"session {removal.session}: it was changed meanwhile")
        written_down(backend, removal, by)

    try:
        deleted(backend, removal.session, before=before)
    except Held:
        return Spared(removal.session, "another writer holds it")
    except Moved:
        return Spared(removal.session, "it was changed meanwhile")
    except Unreadable as error:
        if isinstance(error, Damaged):
            return Spared(removal.session, "it is damaged: `lockstitch check` says where")
        return Spared(removal.session, "it was removed meanwhile")
    return removal


def deleted_for(
    backend: Backend, name: str, wait: float, reason: str | None, by: str | None = None
) -> Deleted:
    """Remove one session; with a reason it is written down."""

    def before(lease: Lease) -> None:
        if reason is not None:
            at = max((record.at for record in backend.read(name)), default=0)
            written_down(backend, Removal(name, lease.head.seq, at, reason), by)

    return deleted(backend, name, wait, before)


class Retention(Struct, frozen=True):
    """What was removed, or would be, and what stays although the rule is for it."""

    removed: list[Removal]
    spared: list[Spared]


def retained(
    backend: Backend,
    rule: Rule,
    *,
    dry_run: bool,
    by: str | None = None,
    advance: Callable[[Removal | Spared], object] = lambda _: None,
) -> Retention:
    """Remove what a rule is for, or only say what that is."""
    done = Retention([], [])
    for planned_one in planned(backend, rule, including_held=not dry_run):
        one = planned_one
        if isinstance(one, Removal) and not dry_run:
            one = removed(backend, one, by)
        if isinstance(one, Removal):
            done.removed.append(one)
        else:
            done.spared.append(one)
        advance(one)
    return done
