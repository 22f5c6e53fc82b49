"""Updates merged into a conversation, as LangGraph's own reducers do it, over stored messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lockstitch.formats.langgraph.codec import (
    Codec,
    StoredMessage,
    Undecodable,
    codec_of,
    is_role,
)
from lockstitch.formats.langgraph.messages import merge_messages
from lockstitch.formats.langgraph.snapshot import StoredCheckpoint, StoredWrite, ThreadSnapshot

_PAIR = 2
_EMPTY = frozenset({"null", "empty"})


class BrokenChain(ValueError):
    """Says which checkpoint or write of a chain of changes is gone."""


def apply_writes(
    left: Sequence[StoredMessage], writes: Iterable[StoredWrite], codings: Mapping[str, Codec]
) -> list[StoredMessage]:
    """Merge writes, in the order in which LangGraph applies them."""
    found = list(left)
    for write in sorted(writes, key=lambda write: write.order):
        if write.value.tag in _EMPTY:
            continue
        coding = codec_of(codings, write.value)
        instead = coding.overwriting(write.value.data)
        if instead is None:
            found = merge_messages(found, read_update(coding, write.value.data, write.record))
        else:
            found = read_update(coding, instead, write.record)
    return found


def read_update(
    coding: Codec, data: bytes, record: int, path: tuple[str | int, ...] = ()
) -> list[StoredMessage]:
    """Read the messages of an update: one or a list of them, in any form that a reducer takes."""
    parts = coding.items(data)
    items = [_one(coding, part) for part in ([data] if parts is None else parts)]
    found: list[StoredMessage] = []
    for number, item in enumerate(items):
        if item is not None:
            item.record, item.path = record, (*path, number)
            found.append(item)
    return found


def _one(coding: Codec, data: bytes) -> StoredMessage | None:
    """Read one message of an update; what is none yet becomes one, as the reducer makes it."""
    found = coding.message(data)
    if found is not None and (found.frame is not None or not coding.objects):
        return found
    value = coding.plain(data)
    if value is None:
        return None
    view = _coerce(value)
    if view is None or not coding.is_plain(data):
        if found is None:
            raise Undecodable("it holds something that is no message")
        return found
    raw = coding.written(view, None)
    return coding.message(raw) or StoredMessage(view, raw, coding.tag)


def _coerce(value: Any) -> dict[str, Any] | None:
    """Make a message of a text, of a role and a text, or of a map with a role."""
    if type(value) is str:
        return {"content": value, "type": "human"}
    if type(value) is list and len(value) == _PAIR and is_role(value[0]):
        return {"content": value[1], "type": _TYPES.get(value[0], value[0])}
    if type(value) is not dict or "tool_calls" in value:
        return None
    kind = str(value.get("role") or value.get("type"))
    rest = {key: part for key, part in value.items() if key not in ("role", "type")}
    return {**rest, "type": _TYPES.get(kind, kind)} if is_role(kind) else None


_TYPES = {"user": "human", "assistant": "ai", "developer": "system"}


def read_stored(
    coding: Codec, data: bytes, record: int, path: tuple[str | int, ...]
) -> list[StoredMessage]:
    """Read the value of a channel that holds a conversation; raises if it holds anything else."""
    whole = coding.opened(data)
    parts = coding.items(whole)
    if parts is None:
        if coding.plain(whole) is None:
            return []
        raise Undecodable("it is no list of messages")
    found: list[StoredMessage] = []
    for number, part in enumerate(parts):
        item = coding.message(part)
        if item is None:
            raise Undecodable("it holds something that is no message")
        item.record, item.path = record, (*path, number)
        found.append(item)
    coding.objects = not found or any(item.frame is not None for item in found)
    return found


def replay_channel(
    snapshot: ThreadSnapshot, channel: str, codings: Mapping[str, Codec]
) -> list[StoredMessage]:
    """Compute a conversation of which only changes are stored: from the last full value on."""
    chain = _chain(snapshot, channel)
    items: list[StoredMessage] = []
    if channel in chain[-1].values:
        seed = chain[-1].values[channel]
        coding = codec_of(codings, seed)
        items = read_stored(coding, seed.data, chain[-1].record, (channel,))
    writes = (write for stored in reversed(chain) for write in _changes(stored, channel))
    for write in writes:
        items = apply_writes(items, [write], codings)
    return items


def _changes(stored: StoredCheckpoint, channel: str) -> list[StoredWrite]:
    found = [write for write in stored.writes if write.channel == channel]
    return sorted(found, key=lambda write: write.order)


def _chain(snapshot: ThreadSnapshot, channel: str) -> list[StoredCheckpoint]:
    """Return the ancestors that make up a value, nearest first; raises if one of them is gone."""
    chain: list[StoredCheckpoint] = []
    for stored in snapshot.ancestors:
        if stored.fault:
            raise Undecodable(stored.fault)
        chain.append(stored)
        if channel in stored.values:
            break
    if not chain or (channel not in chain[-1].values and snapshot.cut):
        gone = snapshot.cut or snapshot.head.parent
        raise BrokenChain(f"checkpoint {gone or 'before it'} is gone")
    children = [snapshot.head, *chain]
    for child, parent in zip(children, chain, strict=False):
        version = child.versions.get(channel)
        if version != parent.versions.get(channel) and not _changes(parent, channel):
            raise BrokenChain(f"what was written behind checkpoint {parent.id} is gone")
    return chain
