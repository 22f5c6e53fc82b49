"""What is decided alike about messages that were read, which are dicts, and about live objects.

The repair of a stored thread and the one of a running graph tell messages with one id apart, derive
ids for new ones and merge updates here. Nothing is random: repairing the same conversation twice
gives the same ids, and the same bytes; and an answer has the same id whoever writes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID, uuid5

from lockstitch.dialects.langchain import BARE, envelope_of, fields_of, type_of
from lockstitch.formats.langgraph.codec import REMOVED

M = TypeVar("M")

REMOVE_ALL = "__remove_all__"
_SPACE = UUID("6c6f636b-7374-5974-8368-6d6573736167")
_SAME = ("content", "tool_calls", "invalid_tool_calls", "tool_call_id")
_ANSWERS = frozenset({"tool", "ToolMessageChunk"})
# The keys under which a task is given its call, in several versions.
_CALL_KEYS = ("tool_call", "lg_tool_call", "toolCall")


def fields_in(message: Any) -> Mapping[str, Any]:
    """Return the fields of a message, whether it is a dict or an object; none of anything else."""
    found: Mapping[str, Any]
    found = fields_of(message) if type(message) is dict else getattr(message, "__dict__", {})
    return found


def kind_of(message: Any) -> str:
    """Return the type of a message as LangChain spells it."""
    return type_of(message) if type(message) is dict else str(getattr(message, "type", ""))


def id_of(message: Any) -> str | None:
    """Return the id of a message; None if it has none."""
    found = fields_in(message).get("id")
    return found if type(found) is str and found else None


def with_id(message: Any, new: str) -> Any:
    """Return a message with another id."""
    if type(message) is not dict:
        return message.model_copy(update={"id": new})
    envelope = envelope_of(message)
    fields = {**fields_of(message), "id": new}
    return fields if envelope == BARE else {**message, envelope: fields}


def is_copy(one: Any, other: Any) -> bool:
    """Whether two messages say the same, whatever came with them."""
    if kind_of(one) != kind_of(other):
        return False
    here, there = fields_in(one), fields_in(other)
    return all(here.get(name) == there.get(name) for name in _SAME)


def repeated_ids(messages: Sequence[Any]) -> list[int]:
    """Return the places of messages whose id another one before them has."""
    seen: set[str] = set()
    found: list[int] = []
    for place, message in enumerate(messages):
        own = id_of(message)
        if own is not None and own in seen:
            found.append(place)
        elif own is not None:
            seen.add(own)
    return found


def make_distinct(messages: Sequence[M]) -> list[tuple[int, M]]:
    """Make ids distinct: equal copies of a message become one, others get a derived id.

    Return each message that stays with its number among those given.
    """
    seen: dict[str, M] = {}
    kept: list[tuple[int, M]] = []
    for number, message in enumerate(messages):
        own = id_of(message)
        if own is None or own not in seen:
            kept.append((number, message))
        elif not is_copy(seen[own], message):
            own = derive_id(f"again:{own}", set(seen))
            message = with_id(message, own)  # noqa: PLW2901 - the one to remember
            kept.append((number, message))
        if own is not None:
            seen.setdefault(own, message)
    return kept


def add_ids(messages: Sequence[M], known: Sequence[M], *, always: bool = False) -> list[M]:
    """Add ids to messages that are new: derived from their call and which answer to it they are.

    Messages that were there before keep what they have; where none of them has an id, none gets
    one, unless they ``always`` do.
    """
    if known and not always and not any(map(id_of, known)):
        return list(messages)
    old = {id(message) for message in known}
    taken = {own for own in map(id_of, messages) if own is not None}
    count: Counter[str] = Counter()
    out: list[M] = []
    for message in messages:
        fields = fields_in(message)
        is_new = not fields.get("id") and bool(fields) and id(message) not in old
        is_answer = kind_of(message) in _ANSWERS
        if is_new or is_answer:
            call, content = fields.get("tool_call_id"), fields.get("content")
            source = f"answer:{call}" if is_answer else f"{kind_of(message)}:{content!r}"
            count[source] += 1
            if is_new:
                new = derive_id(f"{source}:{count[source]}", taken)
                message = with_id(message, new)  # noqa: PLW2901 - in its place
        out.append(message)
    return out


def derive_id(source: str, taken: set[str]) -> str:
    """Derive an id from a text, one that is not taken yet, and take it."""
    number = 0
    source = source.encode("utf-8", "replace").decode()
    while (found := str(uuid5(_SPACE, f"{source}:{number}" if number else source))) in taken:
        number += 1
    taken.add(found)
    return found


def merge_messages(left: Sequence[M], right: Sequence[M]) -> list[M]:
    """Merge an update as LangGraph's reducer does: a known id keeps its place, others go behind.

    Messages are objects with a ``type`` and an ``id``. The removal of a message that is not there,
    which LangGraph refuses, does nothing.
    """
    update: Sequence[Any] = right
    whole = [n for n, one in enumerate(update) if one.type == REMOVED and one.id == REMOVE_ALL]
    if whole:
        left, update = (), update[whole[-1] + 1 :]
    out: list[Any] = list(left)
    places = {one.id: place for place, one in enumerate(out) if one.id is not None}
    gone: set[str | None] = set()
    for one in update:
        if one.type == REMOVED:
            gone |= {one.id} & places.keys()
        elif one.id in places:
            out[places[one.id]] = one
            gone.discard(one.id)
        else:
            if one.id is not None:
                places[one.id] = len(out)
            out.append(one)
    return [one for one in out if one.id is None or one.id not in gone]


def fold_updates(left: Sequence[M], updates: Iterable[tuple[bool, Sequence[M]]]) -> list[M]:
    """Merge updates one after the other; each says whether it replaces what there was."""
    found = list(left)
    for replaces, new in updates:
        found = list(new) if replaces else merge_messages(found, new)
    return found


def failed_call(
    sent: Sequence[str | None],
    is_task: Callable[[int], bool],
    calls: Collection[str],
    *,
    is_batch: bool,
) -> str | None:
    """Return the one of these calls that failed with a task; None if that cannot be told.

    ``sent`` are the calls that the tasks of the step were sent, of which ``is_task`` knows the
    number; ``is_batch`` says that one node may have had all calls of a reply.
    """
    for number, call in enumerate(sent):
        if call is not None and call in calls and is_task(number):
            return call
    # With one call in a batch, there is no other that can have failed.
    return next(iter(calls)) if is_batch and len(calls) == 1 else None


def call_in(given: Any) -> str | None:
    """Return the id of the one call that a task was given: alone, in a list, or with a state."""
    found = given[0] if type(given) is list and len(given) == 1 else given
    if type(found) is not dict:
        return None
    found = next((found[key] for key in _CALL_KEYS if type(found.get(key)) is dict), found)
    call = found.get("id")
    return call if type(call) is str else None
