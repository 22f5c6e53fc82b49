"""Recognize the dialect of a list, of a response, or of an event of a stream.

A list's dialect is recognized by marks that only one format leaves. Programs also keep
conversations in many shapes that share a word or two with a provider's: a ``role``, ``tool_calls``,
``parts``. Reading such a list as a dialect would find everything broken, and a repair would take it
apart, so any doubt is enough to leave it alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lockstitch.conversation.parts import UNKNOWN
from lockstitch.dialects.base import Dialect
from lockstitch.dialects.profiles import CLASSES, VIEWS, profile_named
from lockstitch.errors import AmbiguousDialect, UsageError

# Most formats leave only one kind of mark, so each list names the ones to ask for its kind.
_OWNERS = [view for view in reversed(VIEWS.values()) if view.own_keys]
_MARKERS = [view for view in VIEWS.values() if view.mark_keys]
_OWN_KEYS = frozenset().union(*(view.own_keys for view in _OWNERS))
_MARK_KEYS = frozenset().union(*(view.mark_keys for view in _MARKERS))
_BLOCK_MARKERS = [v for v in VIEWS.values() if type(v).marks_block is not Dialect.marks_block]
_BLOCK_OWNERS = {kind: view.name for view in VIEWS.values() for kind in view.own_blocks}
_LIST_KEYS = tuple(dict.fromkeys(profile_named(name).list_key for name in CLASSES))
# At most this many messages are looked at to recognize a list.
ENOUGH = 2000
# Fields that only a store puts around messages, for dialects with too many fields to list.
_ENVELOPE = frozenset(
    {
        *("sessionId", "sessionID", "session_id", "uuid", "parentUuid", "parentId", "parent_id"),
        *("timestamp", "ts", "time", "created", "createdAt", "messageId", "message_id"),
    }
)
_PLAIN = re.compile(r"[A-Za-z$_][\w$-]{0,29}")
_SHOWN = 3
_NAME_IT = "name its dialect (--dialect on the command line, dialect= in Python)"


def dialect_of(value: Any) -> str:
    """Return the dialect of a list or body; raise AmbiguousDialect unless exactly one fits."""
    marks = marks_of(value)
    if len(marks) == 1:
        [found] = marks
        why = _foreign_calls(messages_of(value)[:ENOUGH], VIEWS[found])
        if why:
            raise AmbiguousDialect(f"this looks like {found}, but {why}; {_NAME_IT}")
        return found
    if not isinstance(value, (list, dict)):
        kind = type(value).__name__
        raise UsageError(f"expected a list of messages or a request body, got {kind}")
    if not marks:
        raise AmbiguousDialect(
            f"cannot tell which API this list is for; {_NAME_IT}, one of {', '.join(CLASSES)}"
        )
    raise AmbiguousDialect(f"this list has signs of {' and '.join(sorted(marks))}; {_NAME_IT}")


def confirm_dialect(value: Any, dialect: str | None) -> str:
    """Return the dialect to use; raise UsageError if all marks speak against the one named.

    Reading a list as a dialect that it is not in would find everything broken, and healing it would
    take it apart.
    """
    if dialect is None:
        return dialect_of(value)
    named = profile_named(dialect).dialect
    marks = marks_of(value)
    if named in marks or len(marks) != 1 or marks <= VIEWS[named].also_reads:
        return dialect
    raise UsageError(f"this is {marks.pop()}, not {named}; leave out the dialect or name that one")


def messages_of(value: Any) -> list[Any]:
    """Return the messages of a list or a body; an empty list if it has none."""
    if isinstance(value, dict):
        lists = (value.get(key) for key in _LIST_KEYS)
        value = next((found for found in lists if isinstance(found, list)), None)
    return value if isinstance(value, list) else []


def marks_of(value: Any) -> set[str]:
    """Return the dialects that left a mark in a list or body."""
    found: set[str] = set()
    if isinstance(value, dict):
        found.update(name for name, view in VIEWS.items() if view.marks_body(value))
        value = value.get("messages")
    for message in value[:ENOUGH] if isinstance(value, list) else ():
        if not isinstance(message, dict):
            continue
        if not _OWN_KEYS.isdisjoint(message):
            owner = next((view.name for view in _OWNERS if view.owns(message)), "")
            if owner:
                found.add(owner)
                continue
        if not _MARK_KEYS.isdisjoint(message):
            found.update(view.name for view in _MARKERS if view.marks_message(message))
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            kind = block.get("type") if isinstance(block, dict) else UNKNOWN
            if kind is None:
                found.update(view.name for view in _BLOCK_MARKERS if view.marks_block(block))
            elif isinstance(kind, str) and kind in _BLOCK_OWNERS:
                found.add(_BLOCK_OWNERS[kind])
    return found


def find_doubt(messages: Sequence[Any], dialect: str) -> str:
    """Return why messages that look like a dialect's may not be; empty if they surely are."""
    view = VIEWS[dialect]
    calls = _foreign_calls(messages, view)
    if calls:
        return calls
    objects = [message for message in messages if type(message) is dict]
    known = view.message_fields
    extra = [
        fields
        for message in objects
        if (fields := message.keys() - known if known else message.keys() & _ENVELOPE)
    ]
    if 10 * len(extra) > len(messages):
        names = sorted({name for fields in extra for name in fields if _PLAIN.fullmatch(name)})
        some = f" ({', '.join(names[:_SHOWN])})" if names else ""
        return f"its messages have fields that no request has{some}"
    doubt = view.find_doubt(objects)
    if doubt:
        return doubt
    if 2 * (len(messages) - sum(map(view.fits, objects))) > len(messages):
        return "most of its messages have a different form"
    return ""


def _foreign_calls(messages: Sequence[Any], view: Dialect) -> str:
    """Return the doubt that most calls or results are written in another way, or ""."""
    verdicts = [
        verdict
        for message in messages
        if type(message) is dict
        for verdict in view.foreign_calls(message)
    ]
    if 2 * sum(verdicts) > len(verdicts):
        return "its calls or results have a different form"
    return ""


def dialect_of_class(value: Any) -> str | None:
    """Return the dialect of an SDK object by where its class was defined."""
    kind: type = type(value)
    homes = [f"{base.__module__}." for base in kind.__mro__]
    for view in VIEWS.values():
        if any(home.startswith(view.sdk_modules) for home in homes):
            return view.name
    return next((name for name, view in VIEWS.items() if view.is_sdk_class(kind)), None)


def dialect_of_response(value: Any) -> str | None:
    """Return the dialect of a whole response by its envelope; None if that is unknown."""
    if not isinstance(value, dict):
        return None
    return next((name for name, view in VIEWS.items() if view.is_response(value)), None)


def dialect_of_event(event: Any) -> str | None:
    """Return the dialect of a stream by one of its events; None if that does not tell."""
    if not isinstance(event, dict):
        return dialect_of_class(event)
    return next((name for name, view in VIEWS.items() if view.is_event(event)), None)
