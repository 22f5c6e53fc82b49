"""Ids of messages: told apart where two are the same, and derived where there is none.

Nothing is random: healing the same conversation twice gives the same ids, and the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid5

from lockstitch.dialects.langchain import BARE, envelope_of, fields_of, type_of

_SPACE = UUID("6c6f636b-7374-5974-8368-6d6573736167")
_SAME = ("content", "tool_calls", "invalid_tool_calls", "tool_call_id")


def repeated_ids(views: Sequence[Any]) -> list[int]:
    """Give the places of messages whose id another one before them has."""
    seen: set[str] = set()
    found: list[int] = []
    for place, view in enumerate(views):
        own = id_of(view)
        if own is not None and own in seen:
            found.append(place)
        elif own is not None:
            seen.add(own)
    return found


def make_distinct(views: Sequence[Any]) -> list[Any]:
    """Give every message an id of its own: equal copies become one, others get a derived id."""
    seen: dict[str, Any] = {}
    kept: list[Any] = []
    for view in views:
        own = id_of(view)
        if own is None or own not in seen:
            kept.append(view)
        elif not is_copy(seen[own], view):
            own = derive_id(f"again:{own}", set(seen))
            view = with_id(view, own)  # noqa: PLW2901 - the one to remember
            kept.append(view)
        if own is not None:
            seen.setdefault(own, view)
    return kept


def add_ids(views: Sequence[Any], known: Sequence[Any]) -> list[Any]:
    """Give ids to messages that are new: derived from their call and which answer to it they are.

    Messages that were there before keep what they have; where none of them has an id, none gets
    one.
    """
    old = {id(view) for view in known}
    if known and not any(map(id_of, known)):
        return list(views)
    taken = {own for own in map(id_of, views) if own is not None}
    count: Counter[str] = Counter()
    out: list[Any] = []
    for view in views:
        source = _source(view)
        count[source] += 1
        if type(view) is dict and id(view) not in old and id_of(view) is None:
            view = with_id(view, derive_id(f"{source}:{count[source]}", taken))  # noqa: PLW2901
        out.append(view)
    return out


def id_of(view: Any) -> str | None:
    """Give the id of a message; None if it has none."""
    found = fields_of(view).get("id") if type(view) is dict else None
    return found if type(found) is str and found else None


def with_id(view: dict[str, Any], new: str) -> dict[str, Any]:
    """Give a message with another id."""
    envelope = envelope_of(view)
    fields = {**fields_of(view), "id": new}
    return fields if envelope == BARE else {**view, envelope: fields}


def is_copy(one: Any, other: Any) -> bool:
    """Tell whether two messages say the same, whatever came with them."""
    if type_of(one) != type_of(other):
        return False
    here, there = fields_of(one), fields_of(other)
    return all(here.get(name) == there.get(name) for name in _SAME)


def _source(view: Any) -> str:
    if type(view) is not dict:
        return ""
    fields, kind = fields_of(view), type_of(view)
    call = fields.get("tool_call_id")
    return f"answer:{call}" if kind == "tool" else f"{kind}:{fields.get('content')!r}"


def derive_id(source: str, taken: set[str]) -> str:
    """Derive an id from a text, one that is not taken yet, and take it."""
    number = 0
    source = source.encode("utf-8", "replace").decode()
    while (found := str(uuid5(_SPACE, f"{source}:{number}" if number else source))) in taken:
        number += 1
    taken.add(found)
    return found
