"""Amazon's framing: read as botocore reads it, at any cut, and never past damage."""

from __future__ import annotations

import struct

import pytest
from botocore.eventstream import EventStreamBuffer  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.dialects.bedrock.exchange import (
    EventDecoder,
    EventFrame,
    encode_event,
    encode_frame,
)
from lockstitch.errors import Unreadable

names = st.text("abc:-é", min_size=1, max_size=20)
frames = st.builds(
    EventFrame, st.dictionaries(names, st.text(max_size=50)), st.binary(max_size=300)
)


def read(data: bytes, size: int) -> list[EventFrame]:
    decoder = EventDecoder()
    found = [
        frame for at in range(0, len(data), size) for frame in decoder.feed(data[at : at + size])
    ]
    assert decoder.pending == 0
    return found


@given(st.lists(frames, max_size=5), st.integers(1, 400))
def test_what_is_written_is_read_however_it_is_cut(sent: list[EventFrame], size: int) -> None:
    data = b"".join(encode_frame(frame.headers, frame.payload) for frame in sent)
    assert read(data, size) == sent


@given(frames)
def test_botocore_reads_the_same(frame: EventFrame) -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(encode_frame(frame.headers, frame.payload))
    (read,) = buffer
    assert (read.headers, read.payload) == (frame.headers, frame.payload)


def test_headers_of_every_type_are_stepped_over() -> None:
    values = [
        b"\x00",
        b"\x01",
        b"\x02\xff",
        b"\x03\x00\x01",
        b"\x04" + bytes(4),
        b"\x05" + bytes(8),
        b"\x06\x00\x03abc",
        b"\x08" + bytes(8),
        b"\x09" + bytes(16),
        b"\x07\x00\x02ok",
    ]
    plain = encode_frame({}, b"{}")
    head = b"".join(b"\x01" + bytes([97 + n]) + value for n, value in enumerate(values))
    frame = _with_head(plain, head)
    assert read(frame, 7) == [EventFrame({"j": "ok"}, b"{}")]
    buffer = EventStreamBuffer()
    buffer.add_data(frame)
    assert next(iter(buffer)).headers["j"] == "ok"


def _with_head(plain: bytes, head: bytes) -> bytes:
    from zlib import crc32

    payload = plain[12:-4]
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    whole = prelude + struct.pack(">I", crc32(prelude)) + head + payload
    return whole + struct.pack(">I", crc32(whole))


@given(st.data())
def test_a_changed_byte_is_noticed(data: st.DataObject) -> None:
    frame = bytearray(encode_event("contentBlockDelta", b'{"delta": {"text": "words"}}'))
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Unreadable, match="event stream"):
        list(EventDecoder().feed(bytes(frame)))


@pytest.mark.parametrize(
    "head",
    [b"\xff", b"\x01a", b"\x01a\x07\x00", b"\x01a\x07\x00\x09x", b"\x01a\x63", b"\x01\xff\x00"],
)
def test_headers_that_are_none(head: bytes) -> None:
    with pytest.raises(Unreadable, match="headers cannot be read"):
        list(EventDecoder().feed(_with_head(encode_frame({}, b""), head)))


def test_half_a_frame_waits() -> None:
    frame = encode_event("messageStop", b"{}")
    decoder = EventDecoder()
    assert list(decoder.feed(frame[:-1])) == []
    assert decoder.pending == len(frame) - 1
    (read,) = decoder.feed(frame[-1:])
    assert (read.event, read.payload) == ("messageStop", b"{}")
