"""The conversation in a thread that the project's own checkpointer keeps as a journal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lockstitch.dialects.langchain import BARE, envelope_of, fields_of
from lockstitch.formats.langgraph.codec import StoredMessage, Undecodable, is_message, new_codecs
from lockstitch.formats.langgraph.conversation import open_calls
from lockstitch.formats.langgraph.journal import (
    CheckpointNode,
    Fetch,
    OpaqueValue,
    ThreadJournal,
    ValueDecoder,
)
from lockstitch.formats.langgraph.messages import merge_messages
from lockstitch.formats.langgraph.snapshot import INTERRUPT, MESSAGES, is_trigger
from lockstitch.journal.records import JournalRecord
from lockstitch.journal.threads import ThreadConversation

_NOTHING = (b'{"j":[]}', b'{"j":null}')


def read_conversation(records: Iterable[JournalRecord], fetch: Fetch) -> ThreadConversation:
    """Read the messages of a thread, in LangChain's envelopes."""
    thread = ThreadJournal()
    for record in records:
        thread.apply(record)
    count = sum(map(len, thread.spaces.values()))
    node = thread.node("", thread.latest())
    if node is None:
        return ThreadConversation([], [], count)
    reader = _MessageDecoder(thread, fetch)
    channel = _channel(reader, node)
    items = _items(reader, node, channel) if channel is not None else []
    settled = _settled(items) if _is_open(thread, node) else items
    return ThreadConversation([one.view for one in items], [one.view for one in settled], count)


class _MessageDecoder(ValueDecoder):
    """Reads messages also where only msgpack could hold them."""

    def __init__(self, thread: ThreadJournal, fetch: Fetch) -> None:
        super().__init__(thread, fetch)
        self._codings = new_codecs()

    def item(self, number: int) -> Any:
        form = self.form(number)
        if "t" not in form:
            return form
        found = self.opaque(form["t"], self._bytes(form))
        if isinstance(found, dict) and (fields := form.get("fields")):
            return {**found, **fields}
        return found

    def opaque(self, tag: str, data: bytes) -> Any:
        try:
            found = self._codings[tag].message(data) if tag in self._codings else None
        except Undecodable:
            found = None
        return OpaqueValue(tag, data) if found is None else found.view


def _items(reader: _MessageDecoder, node: CheckpointNode, channel: str) -> list[StoredMessage]:
    thread = reader.thread
    found = _stored(reader, node, channel)
    if found is None:
        found = []
        before: list[CheckpointNode] = []
        for one in thread.ancestors("", node.id):
            before.append(one)
            found = _stored(reader, one, channel) or []
            if channel in one.values:
                break
        for one in reversed(before):
            found = _with_writes(reader, found, one, channel)
    return _with_writes(reader, found, node, channel)


def _stored(
    reader: _MessageDecoder, node: CheckpointNode, channel: str
) -> list[StoredMessage] | None:
    if channel not in node.values:
        return None
    return _messages(reader.value(node.values[channel]))


def _with_writes(
    reader: _MessageDecoder, items: list[StoredMessage], node: CheckpointNode, channel: str
) -> list[StoredMessage]:
    for one in reader.thread.pending("", node.id):
        if one.channel == channel:
            items = merge_messages(items, _messages(reader.value(one.value)))
    return items


def _messages(value: Any) -> list[StoredMessage]:
    values: Iterable[Any] = value if isinstance(value, list) else [value]
    return [StoredMessage(one, b"", "") for one in values if _is_message(one)]


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return envelope_of(value) != BARE or is_message(fields_of(value))


def _channel(reader: _MessageDecoder, node: CheckpointNode) -> str | None:
    """Find the channel that holds the conversation: by its name, or the only one that may."""
    if MESSAGES in node.versions:
        return MESSAGES
    fitting = [name for name in node.values if not is_trigger(name) and _holds(reader, node, name)]
    return fitting[0] if len(fitting) == 1 else None


def _holds(reader: _MessageDecoder, node: CheckpointNode, name: str) -> bool:
    value = reader.value(node.values[name])
    return isinstance(value, list) and bool(value) and all(map(_is_message, value))


def _is_open(thread: ThreadJournal, node: CheckpointNode) -> bool:
    """Whether work is left to do from a checkpoint."""
    if any(one.channel == INTERRUPT for one in thread.pending("", node.id)):
        return True
    return any(
        is_trigger(name) and (name.startswith("branch:") or bytes(raw) not in _NOTHING)
        for name, raw in node.values.items()
    )


def _settled(items: Sequence[StoredMessage]) -> list[StoredMessage]:
    """Leave out the last calls, if some of them have no result yet, and all behind them."""
    asking = open_calls(items)
    for place, one in enumerate(items):
        if one.type in {"ai", "AIMessageChunk"} and asking & _ids(one.view):
            return list(items[:place])
    return list(items)


def _ids(view: Any) -> set[str]:
    calls = fields_of(view).get("tool_calls") or []
    return {call["id"] for call in calls if isinstance(call, dict) and call.get("id")}
