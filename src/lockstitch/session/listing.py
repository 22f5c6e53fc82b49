"""List and search the sessions of a store, and find what belongs to one of them.

A tool that leads a conversation of its own opens it with ``store.child(current_call())``. When the
tool runs again after a crash, it gets the same session and continues it. What happens to the parent
happens to the child: an interrupt, an outcome that stays unknown, a compaction, a deletion.

A webhook, a queue worker or another process puts a result into the session's inbox, a journal of
its own that anybody may write to for a moment. The holder of the session takes the result over
under the same key, so it counts once however often it is delivered or taken over. Inboxes, and the
journals of the store itself, are not listed as sessions.

Some sessions hold the thread of a graph for an integration. Only the integration can interpret
their records. For listing, copying, searching and deleting, this module needs to know less: whether
a session holds a thread, and what was said in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Literal, get_args

import msgspec
from msgspec import Raw, Struct

from lockstitch.conversation.parts import repr_without
from lockstitch.dialects import LANGCHAIN
from lockstitch.errors import Damaged, Moved, Unreadable, UsageError
from lockstitch.journal.events import Finished, Noted, as_stored, entry_of, event_of
from lockstitch.journal.queries import Match, SearchWords, SessionSearch, Spoken, said_in
from lockstitch.journal.records import NEW, Head, JournalRecord, check_key, inbox_of, is_inbox
from lockstitch.journal.state import JournalState
from lockstitch.session import decisions
from lockstitch.session.decisions import CHILD, Call
from lockstitch.session.reader import SessionView
from lockstitch.session.tool_run import make_finished
from lockstitch.stores.base import LATEST, Backend, Listed, Listing
from lockstitch.stores.leases import now

_NAME = re.compile(r"(?:\.\d+-\d+)+")
_PAGE = 256


class Parent(Struct, frozen=True):
    """The call that a child session belongs to."""

    session: str
    reply: int
    index: int

    @property
    def child(self) -> str:
        """The name of the child session."""
        return f"{self.session}.{self.reply}-{self.index}"


def descendants(backend: Backend, session: str) -> list[str]:
    """Return the names of the child sessions of a session, and of their children."""
    found: list[str] = []
    for one in backend.listed(Listing(f"{session}.")):
        # Names are sorted, so all candidates follow directly.
        if not one.session.startswith(f"{session}."):
            break
        if not _NAME.fullmatch(one.session.removeprefix(session)):
            continue
        # A user may choose such a name: only a real child has a note that says so.
        first = next(backend.read(one.session, upto=1), None)
        event = event_of(first) if first is not None else None
        if isinstance(event, Noted) and event.name == CHILD:
            found.append(one.session)
    return found


THREAD_NAMES = ("langgraph.", "langgraph-")
FIRST = b'{"kind":"thread"'
_LATER = (b'{"kind":"checkpoint"', b'{"kind":"writes"')
THREAD_RECORDS = (FIRST, *_LATER)


class ThreadConversation(Struct):
    """The messages of a thread's last checkpoint, with the results that its tasks have stored.

    ``settled`` are the messages that can be checked. In a run that was interrupted, or that waits
    for a person, the last calls are open on purpose.
    """

    messages: list[Any]
    settled: list[Any]
    checkpoints: int

    __repr__ = repr_without("messages", "settled")


class _ThreadItems(Struct):
    items: tuple[Raw, ...] = ()


def may_be_thread(session: str) -> bool:
    """Whether a session may hold a thread, judging by its name."""
    return session.startswith(THREAD_NAMES)


def begins_thread(records: Iterable[JournalRecord]) -> bool:
    """Whether the first of these records says that the session holds a thread."""
    return any(record.body.startswith(FIRST) for record in records)


def thread_spoken(
    body: bytes, may_match: Callable[[bytes], bool], payload: Callable[[str], bytes]
) -> Spoken | None:
    """Return who says what in the messages of a record; None if it is not a record of a thread.

    ``may_match`` is a quick look at its bytes, before anything is decoded.
    """
    if not body.startswith(_LATER):
        return None

    def spoken() -> Spoken:
        # A message may be in a blob, which the quick look at the body does not see.
        if b'{"x":"' not in body and not may_match(body):
            return
        try:
            items = msgspec.json.decode(body, type=_ThreadItems).items
        except msgspec.MsgspecError:
            return
        for item in items:
            value = msgspec.json.decode(item)
            if isinstance(value, dict) and "x" in value and "t" not in value:
                value = msgspec.json.decode(payload(value["x"]))
            if isinstance(value, dict) and isinstance(value.get("data"), dict):
                yield from ((who, text) for _, who, text in said_in(LANGCHAIN, [value]))

    return spoken()


# How long a delivery waits for other deliveries to the same session.
PATIENCE = 30.0


def deliver(
    backend: Backend, session: str, which: Call | str, result: Any, *, key: str | None = None
) -> bool:
    """Put a result into a session's inbox, as :meth:`Store.deliver` does."""
    seen = SessionView(backend, session)
    seen.refresh()
    event, name = delivered_outcome(seen.state, which, result, key)
    inbox = inbox_of(session)
    while True:
        records = list(backend.read(inbox)) if backend.head(inbox) is not None else []
        if _is_there(seen.state, records, name, event):
            return False
        last = records[-1] if records else None
        head = Head(last.seq, last.digest, last.epoch) if last else NEW
        try:
            backend.add(inbox, [entry_of(event, name, now())], head, wait=PATIENCE)
        except Moved:
            continue  # somebody else delivered something at the same moment
        return True


def delivered_outcome(
    state: JournalState, which: Call | str, result: Any, key: str | None
) -> tuple[Finished, str]:
    """Return the event for a delivered result, and its key."""
    place = find_call(state, which)
    attempts, _ = state.starts.get(place, (1, ""))
    name = f"deliver/{place[0]}-{place[1]}" if key is None else f"deliver/{check_key(key)}"
    return make_finished(place, attempts, result), check_key(name)


def find_call(state: JournalState, which: Call | str) -> decisions.Key:
    """Return the place of a call, given itself, its idempotency key, or an id that is unique.

    A call that was rewound is still found by its idempotency key: its result counts if the rewind
    is undone. Raises ``UsageError`` if there is no such call, or more than one.
    """
    if isinstance(which, Call):
        if which.key not in state.view.calls and which.key not in state.starts:
            raise UsageError("there is no such call in this session")
        return which.key
    if not isinstance(which, str):
        raise UsageError("name a call by the call itself, its effect, or its id")
    effects = [place for place, (_, effect) in state.starts.items() if effect == which]
    ids = [place for place, call in state.view.calls.items() if call.id == which]
    found = effects or ids
    if len(found) != 1:
        many = "several calls have" if found else "no call of this session has"
        raise UsageError(f"{many} the effect or id {which!r}: pass current_call().effect")
    return found[0]


def _is_there(state: JournalState, records: list[JournalRecord], key: str, event: Finished) -> bool:
    kept = [event_of(record) for record in records if record.key == key]
    if key in state.keys:
        kept.append(state.facts[state.keys[key]].event)
    if not kept:
        return False
    new = as_stored(event)
    if any(not decisions.is_same(before, new) for before in kept):
        raise UsageError(
            "another result was delivered under this key before: a key names one result for "
            "ever; nothing was delivered"
        )
    return True


# The journal in which a store records the deletions.
AUDIT = "lockstitch.audit"


def is_internal(name: object) -> bool:
    """Whether a name belongs to a journal that is not listed and cannot be opened as a session."""
    return name == AUDIT or (isinstance(name, str) and is_inbox(name))


def refuse_internal(name: str) -> None:
    """Raise ``UsageError`` for a name that users may not create, open or delete."""
    if is_internal(name):
        raise UsageError(f"{name} is where the store keeps records of its own: use another name")


def companions(backend: Backend, name: str) -> list[str]:
    """Return the names of the journals that are deleted or copied together with a session.

    Each begins with the session's name, so that its name in a copy can be derived.
    """
    sessions = [name, *descendants(backend, name)]
    inboxes = [inbox_of(one) for one in sessions]
    return sessions[1:] + [inbox for inbox in inboxes if backend.head(inbox) is not None]


Order = Literal["name", "changed"]
_FEW = 8


def listing_of(
    order: str, after: Listed | str, tag: str, changed_after: datetime | int | None
) -> Listing:
    """Return the listing for a caller's arguments; raise ``UsageError`` if they are not valid."""
    if order not in get_args(Order):
        raise UsageError("sessions are listed in the order of 'name' or 'changed'")
    if isinstance(changed_after, datetime):
        changed_after = round(changed_after.timestamp() * 1000)
    if isinstance(changed_after, bool) or not isinstance(changed_after, int | None):
        raise UsageError("changed_after must be a date, or a number of milliseconds since 1970")
    since = -LATEST if changed_after is None else changed_after
    is_newest = order == "changed"
    cursor = after.cursor if isinstance(after, Listed) else after
    if not cursor:
        return Listing(newest=is_newest, tag=tag, since=since)
    changed, slash, name = cursor.rpartition("/")
    if slash:
        try:
            return Listing(name, int(changed), is_newest, tag, since)
        except ValueError:
            pass
    elif not is_newest:
        return Listing(name, tag=tag, since=since)
    raise UsageError("after must be the last session of the previous page, or its cursor")


def list_sessions(
    backend: Backend, listing: Listing, title: str = "", limit: int | None = None
) -> Iterator[Listed]:
    """Yield at most ``limit`` sessions, without the store's own journals."""
    wanted = title.casefold()
    left = LATEST if limit is None else limit
    while left > 0:
        # Fetch a few more than needed, since some may be the store's own.
        size = _PAGE if wanted else min(left + _FEW, _PAGE)
        found = list(backend.listed(listing, size))
        for one in found:
            if left and not is_internal(one.session) and wanted in one.title.casefold():
                yield one
                left -= 1
        if len(found) < size:
            return
        listing = listing.behind(found[-1])


def search_store(
    backend: Backend,
    text: str,
    limit: int | None = None,
    listing: Listing | None = None,
    advance: Callable[[Listed], object] = lambda _: None,
) -> Iterator[Match]:
    """Yield matching records, beginning with the sessions changed last.

    One record is in memory at a time. Damaged sessions are searched as far as possible, and
    ``Damaged`` is raised at the end.
    """
    words = SearchWords(text)

    def found() -> Iterator[Match]:
        left = -1 if limit is None else limit
        damaged: list[Damaged] = []
        for one in list_sessions(backend, listing or Listing(newest=True)):
            if left == 0:
                return
            for match in search_session(backend, one.session, words, damaged):
                yield match
                left -= 1
                if left == 0:
                    return
            advance(one)
        if damaged:
            first = damaged[0]
            more = f" (and {len(damaged) - 1} more)" if damaged[1:] else ""
            raise Damaged(
                f"{first.message}{more}: everything that can be read was searched; `lockstitch "
                "check` shows what cannot"
            ).about(first.target, first.session)

    return found()


def search_session(
    backend: Backend, session: str, words: SearchWords, damaged: list[Damaged]
) -> Iterator[Match]:
    """Yield the matching records of one session; add errors about damage to ``damaged``."""

    def payload(name: str) -> bytes:
        try:
            return backend.blobs([name])[name]
        except Damaged as error:
            damaged.append(error)
            return b"null"

    search = SessionSearch(session, words, payload, thread_spoken)
    try:
        for record in backend.read(session):
            match = search.look(record)
            if match is not None:
                yield match
    except Damaged as error:
        damaged.append(error)
    except Unreadable:
        if backend.head(session) is not None:
            raise
        return  # it was removed in the meantime
    yield from search.rest()
