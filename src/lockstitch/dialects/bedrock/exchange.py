"""Bedrock's side of an exchange: responses, ConverseStream, requests made from other dialects.

Streams are framed as Amazon's event stream, ``application/vnd.amazon.eventstream``. A frame
consists of a prelude (its length, the length of its headers, a checksum of these two), headers, a
payload, and a checksum of all that. Numbers are big-endian.
"""

from __future__ import annotations

import operator
import struct
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from zlib import crc32

import msgspec
from msgspec import UNSET, Struct

from lockstitch.conversation.parts import ASSISTANT, REASONING, USER, Part
from lockstitch.dialects.base import keep_if_same, replace_at, value_at
from lockstitch.dialects.exchange import (
    UNREADABLE,
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
    read_each,
    text_at,
)
from lockstitch.dialects.profiles import Profile
from lockstitch.dialects.script import (
    NEVER,
    Block,
    GroupedWriter,
    NeutralCall,
    NeutralResult,
    Piece,
    TextPiece,
    as_object,
)
from lockstitch.errors import Unreadable

MEDIA_TYPE = "application/vnd.amazon.eventstream"
LARGEST = 24 << 20
_PRELUDE = struct.Struct(">III")
_NUMBER = struct.Struct(">I")
_LENGTH = struct.Struct(">H")
_STRING = 7
# The number of bytes of a header's value, by its type; strings and byte strings carry their own.
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_SIZED = (6, _STRING)


class EventFrame(Struct, frozen=True):
    """One message of a stream; ``headers`` holds those that are strings."""

    headers: dict[str, str]
    payload: bytes

    @property
    def event(self) -> str:
        """The name of the event, such as ``contentBlockDelta``, or of the exception; else ""."""
        return self.headers.get(":event-type") or self.headers.get(":exception-type", "")


def encode_frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return one frame."""
    head = b"".join(map(_header, headers.items()))
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    frame = prelude + _NUMBER.pack(crc32(prelude)) + head + payload
    return frame + _NUMBER.pack(crc32(frame))


def encode_event(name: str, payload: bytes) -> bytes:
    """Return the frame of an event with a JSON payload."""
    marks = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    return encode_frame(marks, payload)


class EventDecoder:
    """Reads frames out of bytes, however those are cut into chunks."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def pending(self) -> int:
        """The number of bytes that are kept of a frame that is not whole yet."""
        return len(self._rest)

    def feed(self, data: bytes) -> Iterator[EventFrame]:
        """Take bytes and yield the frames that are whole now; raise Unreadable for damage."""
        self._rest += data
        while len(self._rest) >= _PRELUDE.size:
            length, head, checksum = _PRELUDE.unpack_from(self._rest)
            if crc32(self._rest[:8]) != checksum or not 16 + head <= length <= LARGEST:
                raise Unreadable(
                    "it is not an Amazon event stream: the start of a frame is damaged"
                )
            if len(self._rest) < length:
                return
            frame = bytes(self._rest[:length])
            del self._rest[:length]
            (whole,) = _NUMBER.unpack_from(frame, length - 4)
            if crc32(frame[:-4]) != whole:
                raise Unreadable("it is a damaged Amazon event stream: a checksum does not match")
            yield EventFrame(_headers(frame[12 : 12 + head]), frame[12 + head : -4])


def _header(item: tuple[str, str]) -> bytes:
    name, value = item[0].encode(), item[1].encode()
    return bytes((len(name),)) + name + bytes((_STRING,)) + _LENGTH.pack(len(value)) + value


def _headers(data: bytes) -> dict[str, str]:
    """Return the headers that are strings, skipping the others."""
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            end = at + 1 + data[at]
            name, kind = data[at + 1 : end].decode(), data[end]
            at = end + 1
            if kind in _SIZED:
                size = _LENGTH.unpack_from(data, at)[0]
                at += 2
            else:
                size = _SIZES[kind]
            if kind == _STRING:
                found[name] = data[at : at + size].decode()
            at += size
    except (IndexError, KeyError, UnicodeDecodeError, struct.error):
        at = len(data) + 1
    if at > len(data):
        raise Unreadable("it is a damaged Amazon event stream: its headers cannot be read")
    return found


# Fields in which AWS's SDK wants bytes; in JSON they are base64.
_BYTES = (("reasoningContent", "redactedContent"), ("image", "source", "bytes"))
_REASONING = "reasoningContent"


class BedrockStream(Accumulator):
    """Gathers the events of ``converse_stream()["stream"]``."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self._role = "assistant"
        self._outer: Fields = {}
        self._blocks: dict[int, Fields] = {}
        self._stopped: set[int] = set()

    def take(self, event: Fields) -> None:
        if "messageStart" in event:
            self._role = text_at(event["messageStart"], "role") or "assistant"
        elif "contentBlockStart" in event:
            start = event["contentBlockStart"]
            self._block(start).update(fields_at(start, "start"))
        elif "contentBlockDelta" in event:
            delta = event["contentBlockDelta"]
            _grow(self._block(delta), fields_at(delta, "delta"))
        elif "contentBlockStop" in event:
            self._stopped.add(number_at(event["contentBlockStop"], "contentBlockIndex", 0))
            self.blocks_closed = len(self._stopped)
        elif "messageStop" in event:
            self._outer.update(fields_at(event, "messageStop"))
            self.complete = True
        elif "metadata" in event:
            self._outer.update(fields_at(event, "metadata"))

    def _block(self, event: Any) -> Fields:
        return self._blocks.setdefault(number_at(event, "contentBlockIndex", 0), {})

    def response_so_far(self) -> Fields:
        blocks = [_spell_whole(self._blocks[index]) for index in sorted(self._blocks)]
        content = [block for block in blocks if block]
        return {"output": {"message": {"role": self._role, "content": content}}, **self._outer}

    def part_to_keep(self) -> Fields | None:
        kept = [self._blocks[index] for index in sorted(self._blocks) if self._may_be_kept(index)]
        kept = [block for block in kept if not _is_unanswered(block, kept)]
        # a message must not end with reasoning
        while kept and _REASONING in kept[-1]:
            kept.pop()
        return {"role": "assistant", "content": [_spell_whole(b) for b in kept]} if kept else None

    def _may_be_kept(self, index: int) -> bool:
        """Whether a block may be kept as it is: it is closed and whole, or it is a text."""
        block = self._blocks[index]
        if "text" in block:
            return bool(text_at(block, "text").strip())
        if index not in self._stopped or not block:
            return False
        if _REASONING in block:
            thought = block[_REASONING]
            return "redactedContent" in thought or bool(thought.get("signature"))
        call = fields_at(block, "toolUse")
        if not call:
            return True
        is_named = bool(text_at(call, "toolUseId")) and bool(text_at(call, "name"))
        return is_named and arguments_in(text_at(call, "input") or "{}") is not UNSET


def _grow(block: Fields, delta: Fields) -> None:
    for key, value in delta.items():
        if key == "text":
            block["text"] = text_at(block, "text") + text_at(delta, "text")
        elif key == "citation":
            block["citations"] = [*list_at(block, "citations"), value]
        elif key == "toolResult":
            result = fields_at(block, key)
            content = [*list_at(result, "content"), *list_at(delta, key)]
            block[key] = {**result, "content": content}
        elif isinstance(value, dict):
            block[key] = _add_delta(fields_at(block, key), value)


def _add_delta(old: Fields, delta: Fields) -> Fields:
    """Add to a call's input, a thought or a picture: texts and bytes grow, the rest is replaced."""
    grown = dict(old)
    for key, value in delta.items():
        if key == "redactedContent":
            value = _bytes_of(value)  # noqa: PLW2901 - the same bytes, decoded
        before = old.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            grown[key] = _add_delta(before, value)
            continue
        joins = isinstance(before, (str, bytes)) and type(before) is type(value)
        grown[key] = before + value if joins else value
    return grown


def _bytes_of(value: Any) -> Any:
    """Return bytes as the SDK gives them; in JSON they come as base64."""
    try:
        return b64decode(value, validate=True) if isinstance(value, str) else value
    except ValueError:
        return value


def _spell_whole(block: Fields) -> Fields:
    """Return a block as a whole message spells it."""
    if "citations" in block:
        content = [{"text": text_at(block, "text")}] if block.get("text") else []
        return {"citationsContent": {"content": content, "citations": block["citations"]}}
    if "toolUse" in block:
        call = block["toolUse"]
        text = text_at(call, "input")
        value = arguments_in(text or "{}", lenient=True)
        return {"toolUse": {**call, "input": {UNREADABLE: text} if value is UNSET else value}}
    thought = fields_at(block, _REASONING)
    if thought and "redactedContent" not in thought:
        return {_REASONING: {"reasoningText": thought}}
    return dict(block)


def _is_unanswered(block: Fields, blocks: list[Fields]) -> bool:
    """Whether a call that the provider runs itself has no result yet."""
    call = fields_at(block, "toolUse")
    if not call.get("type"):
        return False
    ids = [text_at(other.get("toolResult"), "toolUseId") for other in blocks]
    return text_at(call, "toolUseId") not in ids


class BedrockWriter(GroupedWriter):
    """Writes ``text``, ``image``, ``toolUse`` and ``toolResult`` blocks."""

    takes_addresses = False
    system_turns = NEVER

    def block(self, piece: Piece, role: str) -> Block:
        if isinstance(piece, TextPiece):
            return {"text": piece.text}
        kind = piece.kind.removeprefix("image/")
        return {"image": {"format": kind, "source": {"bytes": piece.data}}}

    def call(self, call: NeutralCall) -> Block:
        arguments = as_object(call.arguments)
        return {"toolUse": {"toolUseId": call.id, "name": call.name, "input": arguments}}

    def result(self, answer: NeutralResult) -> Block:
        block = {"toolUseId": answer.call.id, "content": self.result_blocks(answer)}
        return {"toolResult": {**block, "status": "error"} if answer.failed else block}


class BedrockExchange(Exchange):
    """Messages, and blocks without a type inside them."""

    provider = "aws"
    writer = BedrockWriter
    stream = BedrockStream
    results_by_id = True
    marks_failures = True
    joins_user_messages = True
    has_typed_blocks = False
    takes_blank = False

    def messages_in(self, value: Any) -> list[Any]:
        if isinstance(value, list):
            return read_each(
                value, self.messages_in, lambda blocks: {"role": "assistant", "content": blocks}
            )
        output = value.get("output") if isinstance(value, dict) else None
        message = output.get("message") if isinstance(output, dict) else value
        if not isinstance(message, dict) or "content" not in message:
            return []
        role, content = message.get("role") or "assistant", message["content"]
        if isinstance(content, list):
            spelled = list(map(_with_bytes, content))
            content = content if all(map(operator.is_, spelled, content)) else spelled
        return [keep_if_same(message, {"role": role, "content": content})]

    def events_in(self, data: bytes) -> Iterator[Any]:
        if data[:64].lstrip()[:1] == b"{":
            return
        with suppress(Unreadable, ValueError):
            for frame in EventDecoder().feed(data):
                yield {frame.event: msgspec.json.decode(frame.payload or b"{}")}

    def text_message(self, text: str) -> Fields:
        return {"role": USER, "content": [{"text": text}]}

    def plain_messages(self, value: Any) -> list[Fields] | None:
        output = value.get("output") if type(value) is dict else None
        message = output.get("message") if type(output) is dict else None
        if type(message) is not dict or message.get("role") != ASSISTANT:
            return None
        content = message.get("content")
        is_bare = len(message) == 2  # noqa: PLR2004 - role and content
        if not is_bare or type(content) is not list or not content:
            return None
        return [message] if all(is_worded(b) or "toolUse" in b for b in content) else None

    def words_and_calls(self, messages: list[Any]) -> Spoken:
        words: list[Any] = []
        asked: list[tuple[Any, Any, Any]] = []
        for block in messages[0]["content"]:
            if block.keys() == {"text"}:
                words.append(block["text"])
            elif block.keys() == {"toolUse"} and "type" not in block["toolUse"]:
                call = block["toolUse"]
                asked.append((call["toolUseId"], call["name"], call["input"]))
            else:
                raise ValueError("another block")
        return words, asked

    def plain_results(self, results: Iterable[TextResult]) -> list[Fields]:
        blocks: list[Fields] = []
        for result in results:
            block: Fields = {"toolUseId": result.id, "content": [{"text": result.text}]}
            if result.failed:
                block["status"] = "error"
            blocks.append({"toolResult": block})
        return [{"role": USER, "content": blocks}]

    def system_parameter(self, text: str) -> Any:
        return [{"text": text}]

    def free_part(self, part: Part, parts: list[Part]) -> Part | None:
        return None if part.kind == REASONING else part


def _with_bytes(block: Any) -> Any:
    for path in _BYTES:
        value = value_at(block, path)
        if isinstance(value, str):
            with suppress(ValueError):
                return replace_at(block, path, b64decode(value, validate=True))
    return block


EXCHANGE = BedrockExchange()
