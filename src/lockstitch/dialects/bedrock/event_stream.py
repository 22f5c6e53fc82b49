"""Amazon's event stream, ``application/vnd.amazon.eventstream``: Bedrock streams are framed in it.

A frame is a prelude (its length, the length of its headers, a checksum of these two), headers, a
payload, and a checksum of all that. Numbers are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from zlib import crc32

from msgspec import Struct

from lockstitch.errors import Unreadable

MEDIA_TYPE = "application/vnd.amazon.eventstream"
LARGEST = 24 << 20
_PRELUDE = struct.Struct(">III")
_NUMBER = struct.Struct(">I")
_LENGTH = struct.Struct(">H")
_STRING = 7
# How many bytes a header's value has, by its type; strings and byte strings say so themselves.
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_SIZED = (6, _STRING)


class EventFrame(Struct, frozen=True):
    """One message of a stream; ``headers`` are those that are strings."""

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
        """How many bytes of a frame that is not whole yet are kept."""
        return len(self._rest)

    def feed(self, data: bytes) -> Iterator[EventFrame]:
        """Take bytes and return the frames that are whole now; raise Unreadable for damage."""
        self._rest += data
        while len(self._rest) >= _PRELUDE.size:
            length, head, checksum = _PRELUDE.unpack_from(self._rest)
            if crc32(self._rest[:8]) != checksum or not 16 + head <= length <= LARGEST:
                raise Unreadable("is not an Amazon event stream: the start of a frame is damaged")
            if len(self._rest) < length:
                return
            frame = bytes(self._rest[:length])
            del self._rest[:length]
            (whole,) = _NUMBER.unpack_from(frame, length - 4)
            if crc32(frame[:-4]) != whole:
                raise Unreadable("is a damaged Amazon event stream: a checksum does not match")
            yield EventFrame(_headers(frame[12 : 12 + head]), frame[12 + head : -4])


def _header(item: tuple[str, str]) -> bytes:
    name, value = item[0].encode(), item[1].encode()
    return bytes((len(name),)) + name + bytes((_STRING,)) + _LENGTH.pack(len(value)) + value


def _headers(data: bytes) -> dict[str, str]:
    """Return the headers that are strings; the others are stepped over."""
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
        raise Unreadable("is a damaged Amazon event stream: its headers cannot be read")
    return found
