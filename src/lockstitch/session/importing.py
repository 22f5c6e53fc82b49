"""Taking a message list in as a new session, from which an agent can go on."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct, structs

from lockstitch.conversation.parts import SYSTEM
from lockstitch.conversation.sdk_objects import is_plain, to_plain
from lockstitch.dialects.base import as_text
from lockstitch.dialects.fitting import SYSTEM_LABEL
from lockstitch.dialects.profiles import profile_named
from lockstitch.dialects.registry import dialect_of, new_dialect
from lockstitch.errors import Damaged, Held, Moved, Unreadable, UsageError
from lockstitch.heal import plan_stored
from lockstitch.journal.answers import said_as
from lockstitch.journal.events import (
    Ended,
    Event,
    Finished,
    Instructed,
    Noted,
    Replied,
    Role,
    Said,
    Started,
    entry_of,
    text_payload,
)
from lockstitch.journal.importing import imported
from lockstitch.journal.records import NEW, checked_session
from lockstitch.journal.searching import said_in
from lockstitch.session.companions import refuse_internal
from lockstitch.session.content import json_payload
from lockstitch.session.core import PAUSED
from lockstitch.stores.base import Backend

# The first record of such a session: what was taken in, and as what.
IMPORTED = "imported"
# Where a request says what the model is told before the conversation.
SYSTEMS = ("system", "instructions", "systemInstruction", "system_instruction")


class Taken(Struct, frozen=True):
    """A list that was taken in: as which session, in which dialect, how many messages and records.

    ``is_new`` is false if it was there already. ``healed`` says that the list was broken: then the
    first record holds it as it was. ``unknown`` counts calls at its end without a result.
    """

    session: str
    dialect: str
    messages: int
    records: int
    is_new: bool
    healed: bool = False
    unknown: int = 0


def taken_in(
    backend: Backend,
    name: str,
    messages: Any,
    dialect: str | None = None,
    system: Any = None,
) -> Taken:
    """Make a new session of a message list, or of a request's body, all of it or nothing.

    The same list again is done already, also when the session went on since; raises ``Held`` if
    the name is another session's, and ``UsageError`` for a list that cannot be made valid.
    """
    refuse_internal(checked_session(name))
    plain = messages if is_plain(messages) else to_plain(messages)[0]
    full_name = profile_named(dialect or dialect_of(plain)).full_name
    raw, own = _opened(plain, profile_named(full_name).list_key)
    system = own if system is None else to_plain(system)[0]
    plan = plan_stored(raw, full_name, None)
    if not plan.healed:
        codes = ", ".join(sorted({finding.code for finding in plan.remaining}))
        raise UsageError(f"session {name}: the list cannot be made valid ({codes})")
    healed = with_later_words(plan.plain, full_name)
    made = imported(healed, full_name)
    is_kept = not plan.changed and healed is plan.plain
    told_first = instructions(full_name, system, made.system)
    facts = _facts(made.events, first=2 + len(told_first))
    told = {"dialect": full_name, "messages": len(raw), "healed": plan.changed}
    told |= {"system": system} if system else {}
    told |= {"system_messages": made.system} if made.system else {}
    told |= {} if is_kept else {"original": raw}
    key = f"import/{_digest([full_name, raw, system])}"
    events = [Noted(name=IMPORTED, payload=json_payload(told)), *told_first, *facts]
    unknown = sum(isinstance(fact, Started) for fact in facts)
    is_new = _is_written(backend, name, events, key)
    return Taken(name, full_name, len(raw), len(events), is_new, plan.changed, unknown)


def _opened(plain: Any, key: str) -> tuple[list[Any], Any]:
    """Return the messages of a list or a body, and what the body says beside them."""
    if isinstance(plain, list):
        return plain, None
    if isinstance(plain, dict) and isinstance(plain.get(key), list):
        return plain[key], system_in(plain)
    raise UsageError("a list of messages is taken in, or a request's body with one")


def system_in(body: dict[str, Any]) -> Any:
    """Return what a request's body tells the model beside the messages, None for nothing."""
    return next((body[name] for name in SYSTEMS if body.get(name)), None)


def _digest(value: Any) -> str:
    """Tell a list from every other one."""
    try:
        data = msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError):
        data = json.dumps(value, default=str).encode()
    return blake2b(data, digest_size=16).hexdigest()


def with_later_words(messages: list[Any], dialect: str) -> list[Any]:
    """Let words of the system that stand in the conversation be said where they stand."""
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
    """Return a message of the system as words in the conversation, labelled as what it is."""
    return said_as(dialect, f"{SYSTEM_LABEL}\n{_text(dialect, [raw]) or as_text(raw)}")


def instructions(dialect: str, system: Any, messages: Sequence[Any]) -> list[Instructed]:
    """Return what the model is told before the conversation, by who says it."""
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
    """Return the text of a request's parameter: a text, blocks with texts, or content parts."""
    if isinstance(value, dict):
        value = value.get("parts") or value.get("content") or value.get("text")
    if isinstance(value, list):
        return "\n".join(filter(None, map(_plain_text, value)))
    return value if isinstance(value, str) else ""


def _facts(events: Sequence[Event], first: int) -> list[Event]:
    """Return the facts from record ``first`` on, with where turns end.

    The calls of a reply at the end of the list that have no result are left as a writer would that
    died while they ran: nobody knows what became of them.
    """
    last = max((n for n, event in enumerate(events, 1) if isinstance(event, Replied)), default=0)
    is_open = last > 0 and not any(isinstance(event, Said) for event in events[last:])
    facts: list[Event] = []
    places: dict[int, int] = {}
    for number, event in enumerate(events, 1):
        if isinstance(event, Finished):
            facts.append(_placed(event, places, is_last=is_open and event.reply == last))
            continue
        facts.append(event)
        places[number] = len(facts) + first - 1
        if isinstance(event, Replied) and not event.calls:
            facts.append(Ended())
    if is_open:
        facts += _unanswered(events, last, places)
    return facts if facts and isinstance(facts[-1], Ended) else [*facts, Noted(name=PAUSED)]


def _placed(event: Finished, places: dict[int, int], *, is_last: bool) -> Event:
    reply = places[event.reply]
    if is_last and event.synthetic:
        return Started(reply=reply, index=event.index)
    return structs.replace(event, reply=reply)


def _unanswered(events: Sequence[Event], last: int, places: dict[int, int]) -> list[Event]:
    reply = events[last - 1]
    assert isinstance(reply, Replied)  # noqa: S101 - that is how it was found
    told = {e.index for e in events if isinstance(e, Finished) and e.reply == last}
    missing = [index for index in range(len(reply.calls)) if index not in told]
    return [Started(reply=places[last], index=index) for index in missing]


def _is_written(backend: Backend, name: str, events: Sequence[Event], key: str) -> bool:
    """Write a session's first records; False if this very list was taken in before."""
    now = time.time_ns() // 1_000_000
    keys = [key, *(f"{key}/{number}" for number in range(1, len(events)))]
    entries = [entry_of(event, one, now) for event, one in zip(events, keys, strict=True)]
    if _is_there(backend, name, key):
        return False
    try:
        backend.add(name, entries, NEW)
    except Moved:
        if _is_there(backend, name, key):
            return False
        raise
    return True


def _is_there(backend: Backend, name: str, key: str) -> bool:
    head = backend.head(name)
    if head is None or head.seq == 0:
        return False
    try:
        first = next(iter(backend.read(name, upto=1)), None)
    except Unreadable as error:
        if isinstance(error, Damaged):
            raise
        return False
    if first is None or first.key != key:
        raise Held(f"session {name}: it exists, and is not this list: give another name")
    return True
