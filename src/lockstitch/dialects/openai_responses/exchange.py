"""OpenAI Responses' side of an exchange: responses, streams, requests made from other dialects.

The last event of a stream brings the whole response. Until then, the items that are done count as
they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET

from lockstitch.conversation.parts import ASSISTANT, CALL, USER, Message
from lockstitch.dialects.base import Dialect, keep_if_same
from lockstitch.dialects.exchange import (
    Accumulator,
    Exchange,
    Fields,
    Spoken,
    TextResult,
    arguments_in,
    fields_at,
    is_worded,
    list_at,
    number_at,
    text_at,
    without,
)
from lockstitch.dialects.openai_chat.exchange import decode_object
from lockstitch.dialects.openai_responses import CALL_KINDS
from lockstitch.dialects.profiles import Profile
from lockstitch.dialects.script import (
    Block,
    NeutralCall,
    NeutralResult,
    NeutralTurn,
    Picture,
    Piece,
    TurnWriter,
    address_of,
    join_texts,
)

_WRITTEN = ("created_by", "parsed_arguments")
_STATUS_UNREAD = ("reasoning", "function_call", "custom_tool_call")
_SPEAKERS = ("user", "assistant", "system", "developer", "tool", "model", "function")
# The API refuses these calls without an id, so they keep theirs.
_ID_REQUIRED = ("computer_call", "local_shell_call")
_SEALED = "encrypted_content"
_PLAIN_ITEM = frozenset({"id", "type", "role", "content", "status"})
_PLAIN_CALL = frozenset({"id", "type", "call_id", "name", "arguments"})
_STARTS = ("response.created", "response.in_progress", "response.queued")
_ENDS = ("response.completed", "response.incomplete")
_TEXTS = {
    "response.output_text.delta": ("output_text", "text"),
    "response.refusal.delta": ("refusal", "refusal"),
}


class ResponsesStream(Accumulator):
    """Gathers events; a partial reply is a list of items."""

    kinds = frozenset(
        {
            *_STARTS,
            *_ENDS,
            *_TEXTS,
            "response.output_item.added",
            "response.output_item.done",
            "response.output_text.annotation.added",
        }
    )

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self._response: Fields = {}
        self._items: dict[int, Fields] = {}
        self._parts: dict[tuple[int, int], Fields] = {}
        self._done: set[int] = set()

    def take(self, event: Fields) -> None:
        kind = event["type"]
        if kind in _STARTS or kind in _ENDS:
            self._response = dict(fields_at(event, "response"))
            self.complete = kind in _ENDS
            return
        index = number_at(event, "output_index", len(self._done))
        if kind.startswith("response.output_item."):
            self._items[index] = dict(fields_at(event, "item"))
            if kind.endswith(".done"):
                self._done.add(index)
                self.blocks_closed = len(self._done)
        elif kind in _TEXTS:
            self._grow(index, event, *_TEXTS[kind])
        else:
            part = self._parts.get((index, number_at(event, "content_index", 0)))
            if part is not None and "annotation" in event:
                part["annotations"] = [*list_at(part, "annotations"), event["annotation"]]

    def _grow(self, index: int, event: Fields, kind: str, key: str) -> None:
        self._items.setdefault(index, {"type": "message", "role": "assistant"})
        fresh = {"type": kind, key: "", **({"annotations": []} if key == "text" else {})}
        part = self._parts.setdefault((index, number_at(event, "content_index", 0)), fresh)
        part[key] = text_at(part, key) + text_at(event, "delta")

    def response_so_far(self) -> Fields:
        done = [self._items[index] for index in sorted(self._done)]
        # some servers leave out of the last event what they sent before
        return {**self._response, "output": list_at(self._response, "output") or done}

    def part_to_keep(self) -> list[Any] | None:
        items = [self._item_to_keep(index) for index in sorted(self._items)]
        kept: list[Any] = [item for item in items if item is not None]
        while kept and kept[-1].get("type") == "reasoning":
            kept.pop()
        return kept or None

    def _item_to_keep(self, index: int) -> Fields | None:
        """Return an item that may be kept: done and whole, or a message with its text so far."""
        item = self._items[index]
        kind = item.get("type")
        if index not in self._done:
            return self._unfinished_message(index) if kind == "message" else None
        if kind == "message":
            return item if any(map(_says, list_at(item, "content"))) else None
        is_whole = isinstance(kind, str) and (kind not in CALL_KINDS or _is_call(item, kind))
        return item if is_whole else None

    def _unfinished_message(self, index: int) -> Fields | None:
        places = sorted(place for place in self._parts if place[0] == index)
        parts = [dict(self._parts[place]) for place in places]
        said = list(filter(_says, parts))
        return {**self._items[index], "status": "incomplete", "content": said} if said else None


def _says(part: Any) -> bool:
    return isinstance(part, dict) and part.get("text") != "" and part.get("refusal") != ""


def _is_call(item: Fields, kind: str) -> bool:
    """Whether a call is whole: it can be answered, and its arguments are an object."""
    if item.get("status") == "incomplete":
        return False
    field = CALL_KINDS[kind].arguments
    is_named = "name" in item or kind != "function_call"
    is_readable = not field or arguments_in(text_at(item, field)) is not UNSET
    return is_named and is_readable and (bool(text_at(item, "call_id")) or _is_served(item))


def _is_served(item: Fields) -> bool:
    return item.get("execution") == "server" or item.get("type") == "tool_search_call"


class ResponsesWriter(TurnWriter):
    """Writes an item for each message, call and output."""

    def speech(self, turn: NeutralTurn) -> None:
        if turn.pieces or not turn.calls:
            content = self.blocks(turn.pieces, turn.role) or ""
            self.messages.append({"type": "message", "role": turn.role, "content": content})
        self.messages += [self.call(call) for call in turn.calls]

    def block(self, piece: Piece, role: str) -> Block:
        if isinstance(piece, Picture):
            return {"type": "input_image", "image_url": address_of(piece)}
        if role == ASSISTANT:
            return {"type": "output_text", "text": piece.text, "annotations": []}
        return {"type": "input_text", "text": piece.text}

    def call(self, call: NeutralCall) -> Block:
        """Write a call."""
        return {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": self.arguments(call),
        }

    def results(self, answers: list[NeutralResult]) -> None:
        for answer in answers:
            output = self.content(join_texts(answer.pieces), USER)
            item = {"type": "function_call_output", "call_id": answer.call.id, "output": output}
            self.messages.append(item)


class ResponsesExchange(Exchange):
    """Items: messages, calls, reasoning."""

    provider = "openai"
    writer = ResponsesWriter
    stream = ResponsesStream

    def messages_in(self, value: Any) -> list[Any]:
        if isinstance(value, list):
            return [item for inner in value for item in self.messages_in(inner)]
        if not isinstance(value, dict):
            return []
        kind = value.get("type")
        if not isinstance(kind, str) and isinstance(value.get("output"), list):
            return self.messages_in(value["output"])
        is_item = isinstance(kind, str) or value.get("role") in _SPEAKERS
        if not is_item or kind == "error":
            return []
        # a request does not accept marks of an item's progress and origin
        drop = {key for key in _WRITTEN if key in value}
        if kind in _STATUS_UNREAD:
            drop.add("status")
        if kind == "reasoning":
            drop.update(key for key in ("content", _SEALED) if value.get(key) is None)
        return [keep_if_same(value, {key: held for key, held in value.items() if key not in drop})]

    def text_message(self, text: str) -> Fields:
        return {
            "type": "message",
            "role": USER,
            "content": [{"type": "input_text", "text": text}],
        }

    def user_message(self, content: Any) -> Fields:
        return {"type": "message", "role": "user", "content": content}

    def plain_messages(self, value: Any) -> list[Fields] | None:
        """Return the items of a response, of which only calls and reasoning lose their status."""
        items = value.get("output") if type(value) is dict and "type" not in value else None
        if type(items) is not list:
            return None
        found: list[Fields] = []
        for item in items:
            kind = item.get("type") if type(item) is dict else None
            if kind == "message" and item.keys() <= _PLAIN_ITEM:
                blocks = item.get("content")
                if type(blocks) is not list or not blocks or not is_worded(blocks[0]):
                    return None
                found.append(item)
            elif kind == "function_call":
                kept = {key: inner for key, inner in item.items() if key != "status"}
                if not kept.keys() <= _PLAIN_CALL:
                    return None
                found.append(kept)
            elif kind == "reasoning":
                kept = {key: inner for key, inner in item.items() if key != "status"}
                if "created_by" in kept or None in (kept.get("content", 0), kept.get(_SEALED, 0)):
                    return None
                found.append(kept)
            else:
                return None
        return found or None

    def words_and_calls(self, messages: list[Any]) -> Spoken:
        words: list[Any] = []
        asked: list[tuple[Any, Any, Any]] = []
        is_said = False
        for item in messages:
            kind = item["type"]
            if kind == "message" and not asked and not is_said:
                is_said = True
                for block in item["content"]:
                    if block["type"] != "output_text":
                        raise ValueError("not an output_text")
                    words.append(block["text"])
            elif kind == "function_call":
                asked.append((item["call_id"], item["name"], decode_object(item["arguments"])))
            else:
                raise ValueError(kind)
        return words, asked

    def asked_in(self, messages: list[Fields]) -> list[tuple[str, str]]:
        calls = (item for item in messages if item["type"] == "function_call")
        return [(item.get("call_id", ""), item.get("name", "")) for item in calls]

    def plain_results(self, results: Iterable[TextResult]) -> list[Fields]:
        kind = "function_call_output"
        return [{"type": kind, "call_id": result.id, "output": result.text} for result in results]

    def leading_messages(self, texts: Mapping[Any, str], *, is_own: bool) -> list[Fields]:
        return [
            {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}
            for role, text in texts.items()
        ]

    def unbind(self, view: Dialect, message: Message) -> Any:
        """Free one item: messages and calls go without their id, other items are left out."""
        raw = message.raw
        if not isinstance(raw, dict):
            return raw
        part = message.parts[0] if len(message.parts) == 1 and not message.parts[0].at else None
        if part is None:
            return without(raw, ("id",))
        if part.kind != CALL:
            return None
        return raw if part.flavor in _ID_REQUIRED else without(raw, ("id", _SEALED))


EXCHANGE = ResponsesExchange()
