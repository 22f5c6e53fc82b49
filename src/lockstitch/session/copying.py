"""Create sessions from a session of another store, from a message list, or by a fork."""

from __future__ import annotations

import json
import re
import struct
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import IO, Any

import msgspec
from msgspec import Struct, structs

from lockstitch.conversation.parts import SYSTEM
from lockstitch.conversation.sdk_objects import is_plain, to_plain
from lockstitch.dialects.base import as_text
from lockstitch.dialects.profiles import new_dialect, profile_named
from lockstitch.dialects.recognize import dialect_of
from lockstitch.dialects.script import SYSTEM_LABEL
from lockstitch.errors import Damaged, Held, Moved, Unreadable, UsageError
from lockstitch.journal.events import (
    Ended,
    Event,
    Finished,
    Forked,
    Instructed,
    Noted,
    Replied,
    Role,
    Said,
    Started,
    Unknown,
    entry_of,
    event_of,
    text_payload,
)
from lockstitch.journal.messages import import_events, said_as
from lockstitch.journal.queries import said_in
from lockstitch.journal.records import NEW, Head, JournalRecord, check_name, check_session_name
from lockstitch.journal.salvage import large_names
from lockstitch.journal.state import Checkpoint, Fact, JournalState
from lockstitch.repair.plan import plan_stored
from lockstitch.session import decisions
from lockstitch.session.decisions import PAUSED
from lockstitch.session.listing import THREAD_RECORDS, begins_thread, companions, refuse_internal
from lockstitch.session.reader import SessionView
from lockstitch.session.replies import json_payload
from lockstitch.session.writing import SessionWriter
from lockstitch.stores.base import Backend, IncomingSession
from lockstitch.stores.leases import now

Advance = Callable[[int], object]
_IN_MEMORY = 32 << 20
_LENGTH = struct.Struct("<Q")
_NAMES = re.compile(rb'"(?:blob|x)":"([0-9a-f]{32})"')
_DECODER = msgspec.msgpack.Decoder(tuple[JournalRecord, tuple[bytes, ...]])


class Copy(Struct, frozen=True):
    """A copied session: its old and new name, and how many records it has.

    ``is_new`` is false if the copy existed already. ``companions`` were copied with it.
    """

    session: str
    name: str
    records: int
    is_new: bool
    companions: tuple[str, ...] = ()


def copy_session(
    source: Backend,
    name: str,
    target: Backend,
    new_name: str | None = None,
    advance: Advance = lambda _: None,
) -> Copy:
    """Copy a session as :meth:`Store.copy` does; ``advance`` gets the number of records read.

    The copy ends where the source ended when this began.
    """
    new = name if new_name is None else new_name
    for one in (name, new):
        refuse_internal(check_session_name(one))
    if source is target and new == name:
        raise UsageError("a copy in the same store needs another name").about(session=name)
    head = source.head(name)
    if head is None:
        raise Unreadable(f"it does not exist in {source.url}").about(session=name)
    # A thread of LangGraph is found by its id, which is also inside its journal.
    if new != name and begins_thread(source.read(name, upto=1)):
        raise UsageError("it is a LangGraph thread, which keeps its name").about(session=name)
    if _is_there(target, new, head):
        advance(head.seq)
        return Copy(name, new, head.seq, is_new=False)
    others = companions(source, name)
    # The session itself comes last, so that where it exists, its companions do.
    for other in others:
        _copy_companion(source, other, target, new + other.removeprefix(name))
    _copy(source, name, head, target, new, advance)
    return Copy(name, new, head.seq, is_new=True, companions=tuple(others))


def _copy_companion(source: Backend, name: str, target: Backend, new: str) -> None:
    """Copy a journal that belongs to a session, replacing an incomplete copy."""
    head = source.head(name)
    if head is None:
        return
    try:
        is_there = _is_there(target, new, head)
    except Held:
        target.delete(target.acquire(new, create=False))
        is_there = False
    if not is_there:
        _copy(source, name, head, target, new, lambda _: None)


def _copy(  # noqa: PLR0913, PLR0917 - from where to where
    source: Backend, name: str, head: Head, target: Backend, new: str, advance: Advance
) -> None:
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:
        last = _read(source, name, head, spool, advance)
        end = Head(head.seq, head.digest, last.epoch if last else 0)
        spool.seek(0)
        sizes = iter(lambda: spool.read(_LENGTH.size), b"")
        pieces = (_DECODER.decode(spool.read(*_LENGTH.unpack(size))) for size in sizes)
        target.receive(IncomingSession(new, end, last.at if last else 0, pieces))
    # Verify that what was written is what was read.
    digest = NEW.digest
    for record in target.read(new, upto=head.seq):
        digest = record.digest
        event = event_of(record)
        if event.blob:
            target.blobs([event.blob])
    if digest != head.digest:
        raise Damaged(f"the copy in {target.url} does not match what was read").about(session=new)


def _is_there(target: Backend, new: str, head: Head) -> bool:
    """Whether the target is a copy, perhaps one that went on; raise ``Held`` if it is not."""
    found = target.head(new)
    if found is None:
        return False
    if found.seq >= head.seq and (head.seq or not found.seq):
        last = NEW.digest
        for record in target.read(new, upto=head.seq):
            last = record.digest
        if last == head.digest:
            return True
    raise Held(
        f"it exists in {target.url} with other records; give the copy another name,"
        " or delete the one that is there"
    ).about(session=new)


def _read(
    source: Backend, name: str, head: Head, spool: IO[bytes], advance: Advance
) -> JournalRecord | None:
    """Read and verify an entire session into ``spool``, before anything is written elsewhere."""
    last: JournalRecord | None = None
    for record in source.read(name, upto=head.seq):
        piece = msgspec.msgpack.encode((record, _values(source, record)))
        spool.write(_LENGTH.pack(len(piece)))
        spool.write(piece)
        last = record
        advance(1)
    if (last.digest if last else NEW.digest) != head.digest:
        raise Unreadable("it was replaced while it was being read: copy it again").about(
            session=name
        )
    return last


def _values(source: Backend, record: JournalRecord) -> tuple[bytes, ...]:
    """Return the large values that a record refers to."""
    if record.body.startswith(THREAD_RECORDS):
        names = dict.fromkeys(large_names(record))
        return tuple(source.blobs([name])[name] for name in names)
    event = event_of(record)
    if not isinstance(event, Unknown):
        return (source.blobs([event.blob])[event.blob],) if event.blob else ()
    # An event of a later version: anything in it that looks like a blob's name may be one.
    found: list[bytes] = []
    for name in dict.fromkeys(_NAMES.findall(record.body)):
        with suppress(Damaged):
            found += source.blobs([name.decode()]).values()
    return tuple(found)


# The first record of an imported session, which says what was imported.
IMPORTED = "imported"
# The parameters of a request that hold instructions.
SYSTEMS = ("system", "instructions", "systemInstruction", "system_instruction")


class Taken(Struct, frozen=True):
    """An imported list: its session's name, its dialect, and the number of messages and records.

    ``is_new`` is false if it was imported before. ``healed`` says that the list was broken: then
    the first record holds the original. ``unknown`` counts the calls at its end that have no
    result.
    """

    session: str
    dialect: str
    messages: int
    records: int
    is_new: bool
    healed: bool = False
    unknown: int = 0


def import_messages(
    backend: Backend,
    name: str,
    messages: Any,
    dialect: str | None = None,
    system: Any = None,
) -> Taken:
    """Create a session from a message list; see :meth:`Store.import_messages`."""
    return prepare_import(name, messages, dialect, system)(backend)


def prepare_import(
    name: str, messages: Any, dialect: str | None = None, system: Any = None
) -> Callable[[Backend], Taken]:
    """Return a function that writes a message list into a store, as a session.

    A list that cannot be a session is refused here, before any store is created for it.
    """
    refuse_internal(check_session_name(name))
    plain = messages if is_plain(messages) else to_plain(messages)[0]
    full_name = profile_named(dialect or dialect_of(plain)).full_name
    raw, own = _opened(plain, profile_named(full_name).list_key)
    system = own if system is None else to_plain(system)[0]
    plan = plan_stored(raw, full_name, None)
    if not plan.healed:
        codes = ", ".join(sorted({finding.code for finding in plan.remaining}))
        raise UsageError(f"the list cannot be made valid ({codes})").about(session=name)
    healed = with_later_words(plan.plain, full_name)
    made = import_events(healed, full_name)
    is_kept = not plan.changed and healed is plan.plain
    first = instructions(full_name, system, made.system)
    facts = _facts(made.events, first=2 + len(first))
    note = {"dialect": full_name, "messages": len(raw), "healed": plan.changed}
    note |= {"system": system} if system else {}
    note |= {"system_messages": made.system} if made.system else {}
    note |= {} if is_kept else {"original": raw}
    # The key is a hash of the entire list, so that the same list is recognized again.
    value = [full_name, raw, system]
    try:
        data = msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError):
        data = json.dumps(value, default=str).encode()
    key = f"import/{blake2b(data, digest_size=16).hexdigest()}"
    events = [Noted(name=IMPORTED, payload=json_payload(note)), *first, *facts]
    unknown = sum(isinstance(fact, Started) for fact in facts)

    def write(backend: Backend) -> Taken:
        is_new = _is_written(backend, name, events, key)
        return Taken(name, full_name, len(raw), len(events), is_new, plan.changed, unknown)

    return write


def _opened(plain: Any, key: str) -> tuple[list[Any], Any]:
    """Return the messages of a list or of a request's body, and the body's instructions."""
    if isinstance(plain, list):
        return plain, None
    if isinstance(plain, dict) and isinstance(plain.get(key), list):
        return plain[key], system_in(plain)
    raise UsageError("import takes a list of messages, or a request body with one")


def system_in(body: dict[str, Any]) -> Any:
    """Return the instructions in a request's body that stand beside the messages; None for none."""
    return next((body[name] for name in SYSTEMS if body.get(name)), None)


def with_later_words(messages: list[Any], dialect: str) -> list[Any]:
    """Turn system messages inside the conversation into labelled user messages in their place."""
    name = profile_named(dialect).dialect
    roles = [message.role for message in new_dialect(name).read(messages)]
    begun = next((n for n, role in enumerate(roles) if role != SYSTEM), len(roles))
    if SYSTEM not in roles[begun:]:
        return messages
    return [
        said_by_system(name, raw) if n > begun and role == SYSTEM else raw
        for n, (raw, role) in enumerate(zip(messages, roles, strict=True))
    ]


def said_by_system(dialect: str, raw: Any) -> Any:
    """Return a system message as a user message, with a label that says what it is."""
    return said_as(dialect, f"{SYSTEM_LABEL}\n{_text(dialect, [raw]) or as_text(raw)}")


def instructions(dialect: str, system: Any, messages: Sequence[Any]) -> list[Instructed]:
    """Return the events for instructions given beside the messages or in system messages."""
    name = profile_named(dialect).dialect
    found: dict[Role, list[str]] = {"system": [_plain_text(system)], "developer": []}
    for raw in messages:
        is_developer = isinstance(raw, dict) and raw.get("role") == "developer"
        found["developer" if is_developer else "system"].append(_text(name, [raw]))
    texts = {role: "\n\n".join(filter(None, said)) for role, said in found.items()}
    return [
        Instructed(payload=text_payload(text), role=role) for role, text in texts.items() if text
    ]


def _text(name: str, messages: list[Any]) -> str:
    return "\n".join(text for _, _, text in said_in(name, messages))


def _plain_text(value: Any) -> str:
    """Return the text of instructions, which may be a text, blocks with texts, or content parts."""
    if isinstance(value, dict):
        value = value.get("parts") or value.get("content") or value.get("text")
    if isinstance(value, list):
        return "\n".join(filter(None, map(_plain_text, value)))
    return value if isinstance(value, str) else ""


def _facts(events: Sequence[Event], first: int) -> list[Event]:
    """Return the events with ends of turns added; the first of them becomes record ``first``.

    Calls at the end of the list that have no result are left as by a writer that crashed while they
    ran: their outcome is unknown.
    """
    last = max((n for n, event in enumerate(events, 1) if isinstance(event, Replied)), default=0)
    is_open = last > 0 and not any(isinstance(event, Said) for event in events[last:])
    facts: list[Event] = []
    places: dict[int, int] = {}
    for number, event in enumerate(events, 1):
        if isinstance(event, Finished):
            reply = places[event.reply]
            if is_open and event.reply == last and event.synthetic:
                facts.append(Started(reply=reply, index=event.index))
            else:
                facts.append(structs.replace(event, reply=reply))
            continue
        facts.append(event)
        places[number] = len(facts) + first - 1
        if isinstance(event, Replied) and not event.calls:
            facts.append(Ended())
    if is_open:
        ending = events[last - 1]
        assert isinstance(ending, Replied)  # noqa: S101 - that is how it was found
        known = {e.index for e in events if isinstance(e, Finished) and e.reply == last}
        missing = [index for index in range(len(ending.calls)) if index not in known]
        facts += [Started(reply=places[last], index=index) for index in missing]
    # Without this note the first writer would report a crash that never happened.
    return facts if facts and isinstance(facts[-1], Ended) else [*facts, Noted(name=PAUSED)]


def _is_written(backend: Backend, name: str, events: Sequence[Event], key: str) -> bool:
    """Write a session's first records; return False if the same list was imported before."""
    at = now()
    keys = [key, *(f"{key}/{number}" for number in range(1, len(events)))]
    entries = [entry_of(event, one, at) for event, one in zip(events, keys, strict=True)]
    if _is_imported(backend, name, key):
        return False
    try:
        backend.add(name, entries, NEW)
    except Moved:
        if _is_imported(backend, name, key):
            return False
        raise
    return True


def _is_imported(backend: Backend, name: str, key: str) -> bool:
    head = backend.head(name)
    if head is None or head.seq == 0:
        return False
    try:
        first = next(backend.read(name, upto=1), None)
    except Damaged:
        raise
    except Unreadable:
        return False
    if first is None or first.key != key:
        raise Held("it exists, and is not this list: use another name").about(session=name)
    return True


def fork_session(
    backend: Backend, source: str, target: str, at: Checkpoint | str | int | None = None
) -> Head:
    """Copy the first records of a session, and record in the copy where they came from."""
    if check_name(target) == source:
        raise UsageError("a fork is a new session: give it another name")
    upto = _place(backend, source, at)
    fork = Forked(source=source, at=upto)
    head = backend.head(target)
    if head is not None and head.seq > upto:
        # The fork may have been made before.
        seen = SessionView(backend, target)
        seen.refresh()
        found: Fact | None = seen.state.facts.get(upto + 1)
        if found is None or found.event != fork:
            raise Held("it exists already, and is not a fork of that record").about(session=target)
        return seen.head

    def begin(state: JournalState) -> list[Event]:
        """Return the events that begin the fork; calls that run in the original do not run here."""
        if state.seq != upto:
            return []
        left = decisions.conclude_orphans(state, ())
        # Repeated because a store learns the description of a session only from newly written
        # records.
        left += [state.described] if state.described else []
        return [fork, *left, Noted(name=PAUSED)] if left else [fork]

    backend.fork(source, upto, target)
    writer = SessionWriter(backend, backend.acquire(target, create=False))
    try:
        writer.decide(begin)
        return writer.head
    finally:
        writer.close()


def _place(backend: Backend, source: str, at: Checkpoint | str | int | None) -> int:
    """Return the record to fork at.

    A number needs no reading, so damage after it does not matter.
    """
    if at is None:
        head = backend.head(source)
        return head.seq if head else 0
    if isinstance(at, Checkpoint):
        return at.seq
    if isinstance(at, int) and not isinstance(at, bool) and at >= 0:
        return at
    seen = SessionView(backend, source)
    seen.refresh()
    return seen.look(lambda state: decisions.find_place(state, at))
