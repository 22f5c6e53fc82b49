"""The checkpoint that a repair adds behind the head of a thread.

It differs from the head in its conversation, and in that nothing is left to run: whatever made a
node run next is gone from it. All other values are the head's, byte for byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from lockstitch.formats.base import Transcript
from lockstitch.formats.history import SourcedMessage
from lockstitch.formats.langgraph.beside import healed
from lockstitch.formats.langgraph.coding import Coding, Item, Undecodable, coding_of
from lockstitch.formats.langgraph.conversation import Reading
from lockstitch.formats.langgraph.identity import named
from lockstitch.formats.langgraph.naming import (
    COUNTERS,
    START,
    Version,
    is_first_input,
    next_version,
)
from lockstitch.formats.langgraph.snapshot import OWN, Coded, Settled, Stored
from lockstitch.formats.langgraph.understanding import following

_TASKS_INSIDE = 4
_NOT_CARRIED = frozenset({"writes", COUNTERS})


def settled(
    transcript: Transcript, strands: Sequence[SourcedMessage], codes: Iterable[str] = ()
) -> Settled | None:
    """Give the checkpoint with these messages, and nothing left to run; None if it has no id.

    The transcript is one of ``understood``; messages that are its own keep their bytes. A head
    that is not stored yet, since a repair is made in several steps, is not followed, but changed.
    """
    reading: Reading = transcript.state
    head = reading.snapshot.head
    new, version = following(head.id), _version(head)
    if new is None or version is None or reading.channel is None:
        return None
    value = _value(reading, strands)
    if transcript.records[head.record].is_new:
        return _again(reading, value, codes)
    start = _start(reading, value)
    due = [name for name in reading.due if not (start and name == START)]
    values = {name: kept for name, kept in head.values.items() if name not in due}
    beside = {
        str(other.channel): _value(other, mended)
        for other in reading.others
        if (mended := healed(other, transcript))
    }
    changed = {reading.channel: value, **beside, **({START: start} if start else {})}
    touched = {*changed, *due} - ({START} if start == head.values.get(START) else set())
    return Settled(
        new,
        head.id,
        _body(head, new, sorted(changed), dict.fromkeys(sorted(touched), version)),
        {**values, **changed},
        _metadata(reading, codes),
        frozenset(touched - set(due)),
        frozenset(due),
    )


def _start(reading: Reading, value: Coded) -> Coded | None:
    """Return the first input of a thread as it is kept, with the ids of its messages; None if not.

    Nobody can tell a graph of states that has not taken it up from a workflow, which cannot be
    resumed without it. In a graph, messages that come twice under one id come once.
    """
    head = reading.snapshot.head
    start = head.values.get(START)
    if start is None or not is_first_input(head.versions, (w.channel for w in head.writes)):
        return None
    try:
        coding = coding_of(reading.codings, start)
        fields = coding.fields(start.data)
        old, new = (coding.items(part) for part in (fields[str(reading.channel)], value.data))
    except (Undecodable, KeyError):
        return None
    if old is None or new is None or len(old) != len(new):
        return None
    kept = [_with_id(coding, one, other) for one, other in zip(old, new, strict=True)]
    if None in kept:
        return None
    listed = coding.listed(one for one in kept if one is not None)
    return Coded(start.tag, coding.mapped({**fields, str(reading.channel): listed}))


def _with_id(coding: Coding, given: bytes, new: bytes) -> bytes | None:
    """Return a message of an input under the id it has in the conversation; None if it has none."""
    found, known = coding.message(given), coding.message(new)
    if known is None or known.id is None:
        return None
    if found is not None and found.frame is not None:
        return given if found.id == known.id else new
    plain = coding.plain(given) if coding.is_plain(given) else None
    return coding.encoded({**plain, "id": known.id}) if type(plain) is dict else None


def _again(reading: Reading, value: Coded, codes: Iterable[str]) -> Settled:
    head, channel = reading.snapshot.head, str(reading.channel)
    own = head.metadata.get(OWN)
    known = own if type(own) is dict else {}
    metadata = {
        **head.metadata,
        OWN: {**known, "codes": sorted({*known.get("codes", ()), *codes})},
    }
    values = {**head.values, channel: value}
    version = head.versions.get(channel)
    gone = {name for name, own in head.versions.items() if own == version} - values.keys()
    return Settled(
        head.id,
        str(head.parent),
        head.body,
        values,
        metadata,
        frozenset({channel}),
        frozenset(gone),
    )


def _value(reading: Reading, strands: Sequence[SourcedMessage]) -> Coded:
    coding = reading.coding
    views = [strand.message for strand in strands]
    final = named(views, [item.view for item in reading.base])
    raws = [
        coding.written(view, _origin(reading, strand.origin))
        for view, strand in zip(final, strands, strict=True)
    ]
    whole = coding.listed(raws)
    return Coded(coding.tag, coding.snapshot(whole) if reading.changes else whole)


def _origin(reading: Reading, number: int) -> Item | None:
    """Give the message that one was made of, if its bytes can be used."""
    if not 0 <= number < len(reading.items):
        return None
    found = reading.items[number]
    return found if found.tag == reading.coding.tag else None


def _version(head: Stored) -> Version | None:
    """Give the version behind all of the head's; None if they are nothing that can be counted."""
    known = [found for found in head.versions.values() if isinstance(found, str | int | float)]
    try:
        found = next_version(known)
    except (ValueError, OverflowError):
        return None
    return found if isinstance(found, str) or math.isfinite(found) else None


def _body(
    head: Stored, new: str, updated: list[str], versions: dict[str, Version]
) -> dict[str, Any]:
    body = {**head.body, "id": new}
    body["channel_versions"] = {**head.versions, **versions}
    if "updated_channels" in body:
        body["updated_channels"] = updated
    if "pending_sends" in body:
        body["pending_sends"] = []
    # Before 4, a checkpoint's tasks are looked for among the writes of its parent.
    if type(body.get("v")) is int:
        body["v"] = max(body["v"], _TASKS_INSIDE)
    return body


def _metadata(reading: Reading, codes: Iterable[str]) -> dict[str, Any]:
    head = reading.snapshot.head
    old = head.metadata
    step = old.get("step")
    fresh = {key: value for key, value in old.items() if key not in _NOT_CARRIED}
    fresh |= {
        "source": "update",
        "step": step + 1 if type(step) is int else 0,
        "parents": old.get("parents") if type(old.get("parents")) is dict else {},
        OWN: {"repaired": head.id, "codes": sorted(set(codes))},
    }
    counters = _counters(old, reading.channel)
    return {**fresh, COUNTERS: counters} if counters else fresh


def _counters(old: dict[str, Any], channel: str | None) -> dict[str, Any]:
    """Count one more step for every channel that stores changes, but for the one stored in full."""
    found = old.get(COUNTERS)
    counters = found if type(found) is dict else {}
    return {
        name: [count[0], count[1] + 1]
        for name, count in counters.items()
        if name != channel and _is_count(count)
    }


def _is_count(value: Any) -> bool:
    return type(value) is list and [type(part) for part in value] == [int, int]
