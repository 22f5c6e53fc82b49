"""A quick proof that a Claude Code file is healthy: one streaming pass, a few fields of each line.

It knows only everyday shapes. Anything else makes it give up, and then the whole file is read with
care: giving up costs time, but never a finding. Memory is bounded by the ids of the lines, not by
the content.
"""

from __future__ import annotations

import mmap
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, TypedDict

import msgspec
from msgspec import Raw, Struct

from lockstitch.conversation.json_text import has_long_number, is_index
from lockstitch.errors import LockstitchError
from lockstitch.files import read
from lockstitch.formats.interface import Quick
from lockstitch.formats.records import SLIM, DecodeLine, JsonReading, read_json

_CHUNK = 1 << 20
# This many bytes of a mapped file are released at once.
_RELEASED = 8 << 20
# Requests near a provider's limit, and giant results, need a look.
_MOST_SENT = 24 << 20
_LARGEST_RESULT = 200_000
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOTHING = Raw()


class _FastInner(Struct, gc=False):
    type: str = ""
    text: str = ""


class _FastBlock(Struct, gc=False):
    type: str = ""
    id: str = ""
    tool_use_id: str = ""
    name: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    is_error: bool | None = None
    input: Raw = _NOTHING
    content: str | list[_FastInner] | None = None
    cache_control: Raw = _NOTHING


class _FastMessage(Struct, gc=False):
    content: str | list[_FastBlock]
    id: str = ""
    model: str = ""


class _FastAttachment(Struct, gc=False):
    type: str = ""


class _FastLine(Struct, gc=False):
    type: str = ""
    uuid: str = ""
    parentUuid: str | None = ""  # noqa: N815 - the program's own name
    message: _FastMessage | None = None
    isSidechain: bool | None = False  # noqa: N815 - as above
    isMeta: bool | None = False  # noqa: N815 - as above
    isCompactSummary: bool | None = False  # noqa: N815 - as above
    isApiErrorMessage: bool | None = False  # noqa: N815 - as above
    logicalParentUuid: str | None = None  # noqa: N815 - as above
    leafUuid: str | None = None  # noqa: N815 - as above
    subtype: str | None = None
    timestamp: str = ""
    version: str = ""
    sessionId: str = ""  # noqa: N815 - as above
    cwd: str = ""
    compactMetadata: dict[str, Raw] | None = None  # noqa: N815 - as above
    attachment: _FastAttachment | None = None


# The only way in which one record ends and the next begins; it cannot occur within a record.
_BREAK = b"}\n{"
_FAST_DECODER = msgspec.json.Decoder(_FastLine)


class Odd(Exception):
    """Raised for anything that this pass does not know."""


_UNKNOWN = (Odd, msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def quick(path: str) -> Quick | None:
    """Prove that a file is healthy, or return None; the file must end in a whole line."""
    proof = ClaudeProof()
    try:
        with read.open_regular(path) as handle:
            read.require_size(os.fstat(handle).st_size)
            rest = b""
            while piece := os.read(handle, _CHUNK):
                piece = rest + piece if rest else piece
                end = piece.rfind(b"\n") + 1
                proof.feed(piece, end)
                rest = piece[end:]
        return None if rest else proof.verdict()
    except (*_UNKNOWN, OSError, LockstitchError):
        return None


class ClaudeProof:
    """What is known after the lines so far.

    A *batch* is a message of the model with its results and the control lines around it, or a
    single prompt. The parent of the next speaker must be a line of the batch before it.
    """

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.batch: set[str] = set()
        self.message = ""
        self.role = ""
        self.open: set[str] = set()
        self.calls: set[str] = set()
        self.names: set[str] = set()
        self.results_end = False
        self.last_kind = ""
        self.summary_due = False
        self.last: _FastLine | None = None
        self.newest: _FastLine | None = None
        self.sent = 0
        self.turns = 0
        self.messages = 0

    def advance(self, lines: bytes) -> bool:
        """Look at more whole lines; return False if they hold anything unknown."""
        try:
            self.feed(lines, len(lines))
        except _UNKNOWN:
            return False
        return True

    @property
    def is_open(self) -> bool:
        """Whether something is in progress at the end, such as a call without a result."""
        is_thinking = self.role == "assistant" and self.last_kind == "thinking"
        return bool(self.open) or self.summary_due or is_thinking

    def feed(self, chunk: bytes, end: int) -> None:
        """Look at the lines up to ``end``; the rest comes again with the next chunk."""
        if b"\0" in chunk or has_long_number(chunk):
            raise Odd
        if not chunk.isascii():
            chunk[:end].decode("utf-8")
        lines = _FAST_DECODER.decode_lines(memoryview(chunk)[:end])
        # Otherwise two records on one line would pass unseen, and so would a line break inside a
        # record that makes up for them. With long lines, find is several times as fast as count.
        breaks, at = 0, chunk.find(b"\n", 0, end)
        while at >= 0:
            breaks += 1
            if at + 1 != end and chunk[at - 1 : at + 2] != _BREAK:
                raise Odd
            at = chunk.find(b"\n", at + 1, end)
        if len(lines) != breaks:
            raise Odd
        known = self.known
        for line in lines:
            parent, name = line.parentUuid, line.uuid
            if not name:
                stale = line.type == "last-prompt" and line.leafUuid not in (None, *self.batch)
                if parent != "" or stale:
                    raise Odd
                continue
            if name in known or (parent is not None and parent not in known):
                raise Odd
            known.add(name)
            if not line.isSidechain:
                self._look(line)

    def _look(self, line: _FastLine) -> None:
        """Look at one line of the conversation."""
        kind = line.type
        if kind in ("assistant", "user"):
            if kind == "assistant":
                self._assistant(line)
            else:
                self._user(line)
            self.last = line
            if self.newest is None or line.timestamp > self.newest.timestamp:
                self.newest = line
        elif line.subtype == "compact_boundary":
            if line.parentUuid is not None or "preserved" in "".join(line.compactMetadata or ()):
                raise Odd
            if line.logicalParentUuid and line.logicalParentUuid not in self.batch:
                raise Odd
            # everything starts again after a compaction
            self.batch = {line.uuid}
            self.role = self.message = ""
            self.open, self.calls = set(), set()
            self.sent = self.turns = self.messages = 0
            self.summary_due = True
        elif line.attachment is not None and line.attachment.type == "queued_command":
            raise Odd
        else:
            self._join_batch(line)

    def _join_batch(self, line: _FastLine) -> None:
        """Require that the parent of a line is in the batch, unless the line starts the file."""
        batch = self.batch
        if line.parentUuid not in batch and (line.parentUuid is not None or batch):
            raise Odd
        batch.add(line.uuid)

    def _begin(self, line: _FastLine, role: str, message: str) -> None:
        """Start the next batch, whose parent is in the one before."""
        if self.open or (self.summary_due and not line.isCompactSummary):
            raise Odd
        if self.role == "assistant" and self.last_kind not in ("text", "tool_use"):
            raise Odd
        self._join_batch(line)
        self.batch = {line.uuid}
        self.role, self.message = role, message
        self.results_end = False
        self.summary_due = False
        self.messages += 1

    def _assistant(self, line: _FastLine) -> None:
        """Look at a line of the model."""
        message = line.message
        if message is None or line.isApiErrorMessage or not message.id or line.isMeta:
            raise Odd
        content: Any = message.content
        if type(content) is str or not content:
            raise Odd
        if self.role == "assistant" and self.message == message.id:
            self._join_batch(line)
        elif self.role == "assistant" and not self.results_end:
            raise Odd
        else:
            self._begin(line, "assistant", message.id)
            self.last_kind = ""
        for block in content:
            kind = block.type
            if block.cache_control:
                raise Odd
            if kind == "text":
                # the usual order is thinking, then texts, then calls
                if self.last_kind == "tool_use" or not _is_text(block.text):
                    raise Odd
                self.sent += len(block.text)
            elif kind == "tool_use":
                self._call(block)
            elif kind == "thinking":
                if self.last_kind not in ("", "thinking") or not block.signature:
                    raise Odd
                if not message.model.startswith("claude") or "\0" in block.thinking:
                    raise Odd
            else:
                raise Odd
            self.last_kind = kind

    def _call(self, block: _FastBlock) -> None:
        if not block.id or block.id in self.calls:
            raise Odd
        if block.name not in self.names:
            if _NAME.fullmatch(block.name) is None or _ID.fullmatch(block.id) is None:
                raise Odd
            self.names.add(block.name)
        arguments = bytes(block.input)
        if arguments[:1] != b"{" or b"\\u0000" in arguments or b"\\ud" in arguments.lower():
            raise Odd
        self.sent += len(arguments)
        self.calls.add(block.id)
        self.open.add(block.id)

    def _user(self, line: _FastLine) -> None:
        """Look at a prompt or at results."""
        message = line.message
        if message is None or line.isMeta is None:
            raise Odd
        content: Any = message.content
        if type(content) is str:
            texts = [content]
        elif content and content[0].type == "tool_result":
            self._results(line, content)
            return
        else:
            texts = [block.text for block in content]
            for block in content:
                if block.type != "text" or block.cache_control:
                    raise Odd
        if not texts or not all(map(_is_text, texts)):
            raise Odd
        self._begin(line, "user", "")
        self.sent += sum(map(len, texts))
        self.turns += not line.isMeta and not line.isCompactSummary

    def _results(self, line: _FastLine, content: Sequence[Any]) -> None:
        """Look at the results of the batch."""
        if self.role != "assistant":
            raise Odd
        self._join_batch(line)
        self.messages += not self.results_end
        self.results_end = True
        for block in content:
            if block.type != "tool_result" or block.tool_use_id not in self.open:
                raise Odd
            self.open.discard(block.tool_use_id)
            carried = block.content
            if type(carried) is str:
                size = len(carried)
                if "\0" in carried:
                    raise Odd
            elif carried is None:
                raise Odd
            else:
                size = 0
                for inner in carried:
                    if inner.type != "text" or not _is_text(inner.text):
                        raise Odd
                    size += len(inner.text)
            if size > _LARGEST_RESULT:
                raise Odd
            self.sent += size

    def verdict(self) -> Quick | None:
        """Return what the file holds, once all of it was seen; None if that is no proof."""
        last = self.last
        if last is None or self.is_open or not last.timestamp or self.sent > _MOST_SENT:
            return None
        if self.newest is not last:
            # a client before 2.1.112 may continue at the newest line instead of the last
            steps = last.version.split(".")
            if not all(map(is_index, steps)) or [int(step) for step in steps] < [2, 1, 112]:
                return None
        return Quick(last.sessionId or None, last.cwd or None, self.messages, self.turns)


def _is_text(text: str) -> bool:
    """Whether a text may be sent: it is not blank and has no NUL characters."""
    return not text[:8].isspace() and bool(text) and "\0" not in text


# Reading a large file without what no resume reads. Of lines before the compaction in force, and of
# progress lines, only the fields that link them are decoded; these are most of a large file. Their
# hash keeps equal lines equal and different ones different. This is only for a check: a repair may
# bring such lines back, and reads all of them.
_BOUNDARY = b'"compact_boundary"'
_PROGRESS = b'"type":"progress"'


class _LinkBlock(TypedDict, total=False):
    type: str
    id: str
    tool_use_id: str


class _TokenUsage(TypedDict, total=False):
    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int


class _LinkMessage(TypedDict, total=False):
    id: str
    role: str
    model: str
    content: str | list[_LinkBlock]
    usage: _TokenUsage


class _LinkNote(TypedDict, total=False):
    type: str
    hookName: str
    hookEvent: str
    toolUseID: str
    isInitial: bool


class _LinkLine(TypedDict, total=False):
    type: str
    subtype: str
    uuid: str
    parentUuid: str | None
    logicalParentUuid: str | None
    isSidechain: bool
    isMeta: bool
    isCompactSummary: bool
    isApiErrorMessage: bool
    timestamp: str
    sessionId: str
    cwd: str
    version: str
    leafUuid: str
    messageId: str
    agentId: str
    compactMetadata: dict[str, Any]
    sourceToolAssistantUUID: str
    parentToolUseID: str
    messageCount: int
    explicit: bool
    turnPosition: dict[str, Any]
    data: _LinkNote
    attachment: _LinkNote
    message: _LinkMessage


_LINK_DECODER = msgspec.json.Decoder(_LinkLine)


def make_link_decoder(data: bytes) -> DecodeLine:
    """Return a decoder for this file's lines that decodes in full only what a resume reads."""
    start = 0
    at = data.rfind(_BOUNDARY)
    if at >= 0:
        line = data[data.rfind(b"\n", 0, at) + 1 : data.find(b"\n", at)]
        if b"preserved" in line:
            # the records that it keeps come after the compaction before it
            at = data.rfind(_BOUNDARY, 0, data.rfind(b"\n", 0, at) + 1)
        start = data.rfind(b"\n", 0, at) + 1 if at >= 0 else 0
    # Release the mapped pages of lines that were read, since most of them are not looked at again.
    held: Any = data
    mapped = held if isinstance(held, mmap.mmap) else None
    released = 0

    def decode_at(text: bytes, at: int) -> JsonReading:
        nonlocal released
        if sys.platform == "linux" and mapped is not None and at - released > _RELEASED:
            mapped.madvise(mmap.MADV_DONTNEED, released, _RELEASED)
            released += _RELEASED
        if (at >= start and _PROGRESS not in text[:400]) or has_long_number(text):
            return read_json(text)
        try:
            value: dict[str, Any] = {**_LINK_DECODER.decode(text)}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return read_json(text)
        if not text.isascii():
            text.decode("utf-8")
        value[SLIM] = hash(text)
        return value, ()

    return decode_at
