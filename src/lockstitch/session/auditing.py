"""What was removed from a store, written down in a journal of the store's own."""

from __future__ import annotations

import getpass
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec
from msgspec import Struct

from lockstitch.errors import Moved, Unreadable
from lockstitch.journal.events import Noted, entry_of, event_of
from lockstitch.journal.records import NEW
from lockstitch.session.companions import AUDIT
from lockstitch.stores.base import Backend
from lockstitch.stores.holders import myself

DELETED = "deleted"
_WAIT = 30.0
_TRIES = 1000


class Removal(Struct, frozen=True):
    """A session that goes, or went: its records, when it was changed last, and why."""

    session: str
    records: int
    changed: int
    reason: str
    title: str = ""


class Audited(Struct, frozen=True, omit_defaults=True):
    """A session that was removed: how many records it had, when it was changed last, why, by whom.

    ``at`` is when; times are milliseconds since 1970.
    """

    session: str
    records: int
    changed: int
    reason: str
    by: str
    at: int = 0


def written_down(backend: Backend, removal: Removal, by: str | None = None) -> Audited:
    """Write a removal down, durably, before it is done: none is ever without its line.

    One that a crash prevents at the last moment stands here all the same, and once more when it
    is done.
    """
    now = time.time_ns() // 1_000_000
    told = Audited(
        removal.session, removal.records, removal.changed, removal.reason, by or _myself(), now
    )
    fact = Noted(name=DELETED, payload=msgspec.Raw(msgspec.json.encode(told)))
    entry = entry_of(fact, secrets.token_hex(12), now)
    for _ in range(_TRIES):
        try:
            backend.add(AUDIT, [entry], backend.head(AUDIT) or NEW, wait=_WAIT)
        except Moved:
            continue  # somebody else wrote a line at the same moment
        return told
    raise Moved("the store's audit went on again and again meanwhile; nothing was removed")


def _myself() -> str:
    """Say who this is: the user, if the system tells, and the process."""
    label = myself().label
    with suppress(OSError, KeyError, ImportError):
        return f"{getpass.getuser()}, {label}"
    return label


def audit(backend: Backend) -> Iterator[Audited]:
    """Return all removals that were written down, oldest first."""
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
