"""Delete sessions, record what was deleted, and rewrite damaged sessions.

A damaged session is kept as it was found, under the name ``<session>.damaged-1``.
"""

from __future__ import annotations

import getpass
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch.conversation.json_text import is_index
from lockstitch.errors import Damaged, Held, LockstitchError, Moved, Unreadable, Unsure, UsageError
from lockstitch.journal.events import Noted, check_tags, entry_of, event_of
from lockstitch.journal.records import NEW, JournalEntry
from lockstitch.journal.salvage import (
    Salvage,
    judge_remains,
    names_in,
    readable_records,
    rebuild_entries,
)
from lockstitch.session.decisions import turn_of
from lockstitch.session.listing import (
    AUDIT,
    begins_thread,
    companions,
    list_sessions,
    may_be_thread,
)
from lockstitch.session.reader import SessionView
from lockstitch.stores.base import Backend, Lease, Listed, Listing
from lockstitch.stores.leases import myself, now

DELETED = "deleted"
_WAIT = 30.0
_TRIES = 1000


class Removal(Struct, frozen=True):
    """A session to delete, or a deleted one: its records, its last change, and the reason."""

    session: str
    records: int
    changed: int
    reason: str
    title: str = ""


class Audited(Struct, frozen=True, omit_defaults=True):
    """A deleted session: its number of records, its last change, the reason, and who deleted it.

    ``at`` is when it was deleted; times are milliseconds since 1970.
    """

    session: str
    records: int
    changed: int
    reason: str
    by: str
    at: int = 0


def write_down(backend: Backend, removal: Removal, by: str | None = None) -> Audited:
    """Record a deletion durably before it is done, so that none goes unrecorded.

    If a crash then prevents the deletion, the record stays, and the next attempt adds another one.
    """
    at, who = now(), by
    if not who:
        # The user, if the system knows, and the process.
        who = myself().label
        with suppress(OSError, KeyError, ImportError):
            who = f"{getpass.getuser()}, {who}"
    line = Audited(removal.session, removal.records, removal.changed, removal.reason, who, at)
    fact = Noted(name=DELETED, payload=msgspec.Raw(msgspec.json.encode(line)))
    entry = entry_of(fact, secrets.token_hex(12), at)
    for _ in range(_TRIES):
        try:
            backend.add(AUDIT, [entry], backend.head(AUDIT) or NEW, wait=_WAIT)
        except Moved:
            continue  # somebody else wrote a line at the same moment
        return line
    raise Moved("other writers keep adding to the store's audit; nothing was removed")


def read_audit(backend: Backend) -> Iterator[Audited]:
    """Yield all recorded deletions, oldest first."""
    if backend.head(AUDIT) is None:
        return
    for record in backend.read(AUDIT):
        event = event_of(record)
        if isinstance(event, Noted) and event.name == DELETED:
            try:
                yield msgspec.json.decode(event.payload, type=Audited)
            except msgspec.MsgspecError as error:
                raise Unreadable(
                    f"the audit's record {record.seq} was not written by this version"
                ) from error


class Deleted(Struct, frozen=True):
    """A deleted session: how many records it had, and which companions were deleted with it."""

    session: str
    records: int
    companions: tuple[str, ...] = ()


def delete_session(
    backend: Backend,
    name: str,
    wait: float = 0.0,
    before: Callable[[Lease], object] = lambda _: None,
) -> Deleted:
    """Delete a session with its records, its companions, and large values that only it uses.

    All leases are taken first, so that nothing is deleted if somebody writes one of them. Then
    ``before`` is called, which may refuse. The session itself is deleted last, so that after a
    crash it is still there and can be deleted again.
    """
    leases = [backend.acquire(name, wait=wait, create=False)]
    try:
        for other in companions(backend, name):
            try:
                leases.append(backend.acquire(other, wait=wait, create=False))
            except Damaged:
                raise
            except Unreadable:
                pass  # somebody removed it in the meantime
        before(leases[0])
        # The session's own lease is the first, so that the session is deleted last.
        for lease in reversed(leases):
            backend.delete(lease)
    except BaseException:
        for lease in leases:
            with suppress(LockstitchError):
                backend.release(lease)
        raise
    first, *others = leases
    return Deleted(name, first.head.seq, tuple(lease.session for lease in others))


_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


class Spared(Struct, frozen=True):
    """A session that a rule applies to, and why it stays."""

    session: str
    reason: str


class RetentionRule(Struct, frozen=True):
    """Which sessions to delete: those not changed for some seconds, and all but the newest few.

    It applies only to sessions that have every one of ``tags``.
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
) -> RetentionRule:
    """Return the rule for a caller's arguments; raise ``UsageError`` if they are not valid."""
    if older_than is None and keep is None:
        raise UsageError("say which sessions should be deleted: older_than=, keep=, or both")
    seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
    if seconds is not None and not _is_number(seconds, int | float):
        raise UsageError("older_than must be a timedelta, or a number of seconds")
    if keep is not None and not _is_number(keep, int):
        raise UsageError("keep must be a number of sessions, 0 or more")
    return RetentionRule(seconds, keep, check_tags(tags), including_open)


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and value >= 0


def plan_removals(
    backend: Backend, rule: RetentionRule, *, including_held: bool = False
) -> Iterator[Removal | Spared]:
    """Yield the sessions to delete, newest first, and those that stay only because they are in use.

    Nothing is changed. A session without records has the age of its creation and does not count
    towards ``keep``. With ``including_held`` held sessions are planned as well: taking their leases
    later shows whether the holder is still alive.
    """
    at, number = now(), 0
    tag = rule.tags[0] if rule.tags else ""
    for one in list_sessions(backend, Listing(newest=True, tag=tag)):
        if not set(rule.tags) <= set(one.tags):
            continue
        number += 1 if one.seq else 0
        reason = _reason(rule, one, number, at)
        if not reason:
            continue
        is_held = bool(one.holder) and not including_held
        if use := f"{one.holder} holds it" if is_held else _use(backend, one, rule):
            yield Spared(one.session, use)
        else:
            yield Removal(one.session, one.seq, one.changed, reason, one.title)


def _reason(rule: RetentionRule, one: Listed, number: int, at: int) -> str:
    """Return why a session is to be deleted; "" if it is not."""
    age = (at - max(one.changed, one.created if not one.seq else 0)) / 1000
    if rule.older_than is not None and age > rule.older_than:
        seconds = rule.older_than
        units = (unit for unit in _UNITS if seconds >= unit[0] and seconds % unit[0] == 0)
        size, name = next(units, (1, "second"))
        return f"not changed for more than {seconds / size:g} {name}{'s' * (seconds != size)}"
    if rule.keep is not None and one.seq and number > rule.keep:
        return f"not among the {rule.keep} changed last"
    return ""


def _use(backend: Backend, one: Listed, rule: RetentionRule) -> str:
    """Return why a session may still be needed; "" if it is not."""
    if rule.including_open:
        return ""
    try:
        if may_be_thread(one.session) and begins_thread(backend.read(one.session, upto=1)):
            return "it is a LangGraph thread, and may be waiting for somebody"
        seen = SessionView(backend, one.session)
        seen.refresh()
    except Damaged:
        return "it cannot be read to the end: `lockstitch check` shows why"
    except Unreadable:
        return "it was removed meanwhile"
    state = seen.look(lambda state: turn_of(state.view).state)
    return f"its turn is {state}" if state in {"open", "waiting"} else ""


def remove_planned(backend: Backend, removal: Removal, by: str | None = None) -> Removal | Spared:
    """Record and delete a planned session; return why it stays if it has changed since."""

    def before(lease: Lease) -> None:
        if lease.head.seq != removal.records:
            raise Moved("it was changed meanwhile").about(session=removal.session)
        write_down(backend, removal, by)

    try:
        delete_session(backend, removal.session, before=before)
    except Held:
        return Spared(removal.session, "another writer holds it")
    except Moved:
        return Spared(removal.session, "it was changed meanwhile")
    except Damaged:
        return Spared(removal.session, "it is damaged: `lockstitch check` shows where")
    except Unreadable:
        return Spared(removal.session, "it was removed meanwhile")
    return removal


def delete_with_reason(
    backend: Backend, name: str, wait: float, reason: str | None, by: str | None = None
) -> Deleted:
    """Delete one session; if there is a reason, record the deletion."""

    def before(lease: Lease) -> None:
        if reason is not None:
            at = max((record.at for record in backend.read(name)), default=0)
            write_down(backend, Removal(name, lease.head.seq, at, reason), by)

    return delete_session(backend, name, wait, before)


class Retention(Struct, frozen=True):
    """What was deleted, or would be, and which sessions stay although a rule applies to them."""

    removed: list[Removal]
    spared: list[Spared]


def apply_retention(
    backend: Backend,
    rule: RetentionRule,
    *,
    dry_run: bool,
    by: str | None = None,
    advance: Callable[[Removal | Spared], object] = lambda _: None,
) -> Retention:
    """Delete the sessions that a rule applies to, or with ``dry_run`` only return them."""
    done = Retention([], [])
    for planned in plan_removals(backend, rule, including_held=not dry_run):
        one = planned
        if isinstance(planned, Removal) and not dry_run:
            one = remove_planned(backend, planned, by)
        if isinstance(one, Removal):
            done.removed.append(one)
        else:
            done.spared.append(one)
        advance(one)
    return done


_ASIDE = re.compile(r"(damaged|repaired)-\d+")
_LONGEST = 128
_ROOM = 16


class Exchanged(Struct, frozen=True):
    """A session that replaced another one, which is now named ``aside``."""

    session: str
    aside: str


def is_aside(session: str) -> bool:
    """Whether a session was put aside by a repair, or by the undo of one."""
    return bool(_ASIDE.fullmatch(session.rpartition(".")[2]))


def read_salvage(backend: Backend, session: str) -> Salvage:
    """Read everything that can be read of a session, with a verdict on each record."""
    remains = backend.remains(session)
    records, notes = judge_remains(remains)
    lost = {
        name: numbers
        for name, numbers in names_in(readable_records(records)).items()
        if not _fetched(backend, [name])
    }
    return Salvage(session, records, lost, (*remains.notes, *notes), remains.stamp)


def entries_of(backend: Backend, found: Salvage) -> list[JournalEntry]:
    """Return the entries to rewrite a session with."""
    names = names_in(readable_records(found.records))
    return rebuild_entries(found, _fetched(backend, names))


def _fetched(backend: Backend, names: Iterable[str]) -> dict[str, bytes]:
    values: dict[str, bytes] = {}
    for name in names:
        with suppress(Damaged):
            values |= backend.blobs([name])
    return values


def rewrite_damaged(backend: Backend, found: Salvage) -> Exchanged:
    """Rewrite a damaged session, and keep the damaged one beside it; both or neither.

    Raises ``Held`` if somebody writes the session, ``Moved`` if it went on since it was read,
    ``UsageError`` if it is not damaged or may not be rewritten, and ``Damaged`` if the store itself
    cannot be written.
    """
    session = found.session
    if found.is_whole:
        raise UsageError("every record is as it was written; there is nothing to repair").about(
            session=session
        )
    if (found.holes or found.lost) and is_thread(found):
        raise UsageError(
            "it is a LangGraph thread, and whatever is lost of it may be part of every later "
            "checkpoint: restore a backup, or delete the thread"
        ).about(session=session)
    fresh = _named(session, "salvaged")
    entries = entries_of(backend, found)
    try:
        # Remove what an earlier repair left that did not finish.
        with suppress(Unreadable):
            backend.delete(backend.acquire(fresh, create=False))
        backend.add(fresh, entries, NEW)
        aside = _free(backend, session, "damaged")
        backend.exchange(session, aside, fresh, found.stamp)
    except (Unsure, Damaged) as error:
        url = backend.url.partition("?")[0]
        raise Damaged(
            f"it cannot be rebuilt where it is ({error.message_with_session}). Next: `lockstitch "
            f"repair {url} -o NEW` writes everything that can be read into a new store"
        ).about(session=session) from error
    return Exchanged(session, aside)


def is_thread(found: Salvage) -> bool:
    """Whether a session holds a thread of LangGraph."""
    return may_be_thread(found.session) and begins_thread(readable_records(found.records))


def undo_rewrite(backend: Backend, session: str) -> Exchanged:
    """Undo the last repair of a session; keep the repaired session beside it."""
    last = _last(backend, session, "damaged")
    if not last:
        raise UsageError("it has no repair that could be undone").about(session=session)
    aside = _free(backend, session, "repaired")
    backend.exchange(session, aside, f"{_named(session, 'damaged')}-{last}")
    return Exchanged(session, aside)


def _named(session: str, end: str) -> str:
    return f"{session[: _LONGEST - _ROOM - 4]}.{end}"


def _free(backend: Backend, session: str, word: str) -> str:
    return f"{_named(session, word)}-{_last(backend, session, word) + 1}"


def _last(backend: Backend, session: str, word: str) -> int:
    """Return the highest number of the sessions put aside with this word, 0 for none."""
    start = f"{_named(session, word)}-"
    numbers = [0]
    for listed in backend.sessions(after=session):
        end = listed.session.removeprefix(start)
        if listed.session.startswith(start) and is_index(end):
            numbers.append(int(end))
        elif listed.session > f"{start}~":
            break
    return max(numbers)
