"""Reading a large Claude Code file without what no resume reads.

Of lines before the compaction in force, and of progress lines, only what links them is decoded:
that is most of a large file. Equal lines stay equal, different ones different, by their hash.
For a look only: a repair may bring such lines back, and reads all of them.
"""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec

from lockstitch.conversation import json_text
from lockstitch.formats.lines import Decode, Reading, reading
from lockstitch.formats.records import SLIM

_BOUNDARY = b'"compact_boundary"'
_PROGRESS = b'"type":"progress"'


class _Block(TypedDict, total=False):
    type: str
    id: str
    tool_use_id: str


class _Usage(TypedDict, total=False):
    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int


class _Message(TypedDict, total=False):
    id: str
    role: str
    model: str
    content: str | list[_Block]
    usage: _Usage


class _Note(TypedDict, total=False):
    type: str
    hookName: str
    hookEvent: str
    toolUseID: str
    isInitial: bool


class _Line(TypedDict, total=False):
    type: str
    subtype: str
    uuid: str
    parentUuid: str | None
    logicalParentUuid: str | None
    isSidechain: bool
    isMeta: bool
    isCompactSummary: bool
    isApiErrorMessage: bool
    teamName: str | None
    timestamp: str
    sessionId: str
    cwd: str
    version: str
    gitBranch: str
    userType: str
    entrypoint: str
    leafUuid: str
    messageId: str
    agentId: str
    compactMetadata: dict[str, Any]
    sourceToolAssistantUUID: str
    parentToolUseID: str
    messageCount: int
    explicit: bool
    turnPosition: dict[str, Any]
    data: _Note
    attachment: _Note
    message: _Message


_DECODER = msgspec.json.Decoder(_Line)


def slim_decoder(data: bytes) -> Decode:
    """Give a decoder for the lines of this file: whole lines where a resume reads them."""
    start = _first_read(data)

    def decode_at(text: bytes, at: int) -> Reading:
        if (at >= start and _PROGRESS not in text[:400]) or json_text.has_long_number(text):
            return reading(text)
        try:
            value: dict[str, Any] = {**_DECODER.decode(text)}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return reading(text)
        if not text.isascii():
            text.decode("utf-8")
        value[SLIM] = hash(text)
        return value, ()

    return decode_at


def _first_read(data: bytes) -> int:
    """Give the start of the first line that a resume may read."""
    at = data.rfind(_BOUNDARY)
    if at < 0:
        return 0
    line = data[data.rfind(b"\n", 0, at) + 1 : data.find(b"\n", at)]
    if b"preserved" in line:
        # what it keeps stands behind the compaction before it
        at = data.rfind(_BOUNDARY, 0, data.rfind(b"\n", 0, at) + 1)
    return data.rfind(b"\n", 0, at) + 1 if at >= 0 else 0
