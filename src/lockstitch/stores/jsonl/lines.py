"""The two kinds of lines in a session's file, and how a whole one is told from anything else.

``{"lockstitch":1,…,"epoch":3,…,"check":"…"}`` opens the file for a writer, and
``{"seq":7,…,"size":58,"body":{…},"digest":"…","check":"…"}`` is a record, its body byte for byte.
``check`` covers every byte before it, so a line that was cut, zeroed or welded to another is none.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from lockstitch.journal.records import Entry, Record, blob_name
from lockstitch.stores.holders import Holder

VERSION = 1
_CHECK = re.compile(rb',"check":"([0-9a-f]{8})"\}\n')
_CHECK_SIZE = len(b',"check":"12345678"}\n')
_DIGEST = re.compile(rb',"digest":"([0-9a-f]{32})"')
_DIGEST_SIZE = len(b',"digest":""') + 32
_RECORD = re.compile(
    rb'\{"seq":(\d{1,18}),"epoch":(\d{1,18}),"part":\[(\d{1,9}),(\d{1,9})\],"at":(-?\d{1,18}),'
    rb'"key":("(?:[^"\\]|\\.)*"),"blobs":(\[[0-9a-f",]*\]),"size":(\d{1,18}),"body":'
)
_STARTS = re.compile(rb'\{"(?:seq|lockstitch)":')


class Opened(Struct, frozen=True):
    """A writer begins: from here on only records of this epoch or a higher one count.

    ``torn`` says that the bytes from there to this line are what a crash or a full disk left of
    an append that was never acknowledged. ``token`` tells the writer, "" for the copy of a fork.
    """

    lockstitch: int
    session: str
    epoch: int
    at: int
    holder: str
    token: str
    torn: int | None = None


class Written(Struct, frozen=True):
    """A record as the ``index``-th of ``count`` that were appended at once."""

    record: Record
    index: int
    count: int
    blobs: tuple[str, ...]

    @property
    def first(self) -> int:
        """The number of the first record of its append."""
        return self.record.seq - self.index


Line = Opened | Written


def opening(session: str, epoch: int, at: int, holder: Holder | None, torn: int | None) -> bytes:
    """Write the line with which a writer begins."""
    label, token = (holder.label, holder.token) if holder else ("", "")
    line = Opened(VERSION, session, epoch, at, label, token, torn)
    return _sealed(msgspec.json.encode(line)[:-1])


def writing(records: Sequence[Record], entries: Sequence[Entry]) -> bytes:
    """Write the lines of one append, for one call of ``write``."""
    names = [tuple(map(blob_name, entry.blobs)) for entry in entries]
    count = len(records)
    return b"".join(
        record_line(Written(record, index, count, blobs))
        for index, (record, blobs) in enumerate(zip(records, names, strict=True))
    )


def record_line(written: Written) -> bytes:
    """Write one record's line."""
    record = written.record
    start = b'{"seq":%d,"epoch":%d,"part":[%d,%d],"at":%d,"key":%s,"blobs":%s,"size":%d,"body":' % (
        record.seq,
        record.epoch,
        written.index,
        written.count,
        record.at,
        msgspec.json.encode(record.key),
        msgspec.json.encode(written.blobs),
        len(record.body),
    )
    digest = b',"digest":"%s"' % record.digest.hex().encode("ascii")
    return _sealed(b"".join((start, record.body, digest)))


def _sealed(line: bytes) -> bytes:
    return b'%s,"check":"%08x"}\n' % (line, zlib.crc32(line))


def parsed(line: bytes) -> Line | None:
    """Read a line with its newline; None if it is not exactly what was written once."""
    seal = _CHECK.fullmatch(line, max(len(line) - _CHECK_SIZE, 0))
    if not seal or zlib.crc32(memoryview(line)[: seal.start()]) != int(seal[1], 16):
        return None
    if line.startswith(b'{"seq":'):
        return _written(line, seal.start())
    return _opened(line)


def _opened(line: bytes) -> Opened | None:
    try:
        return msgspec.json.decode(line, type=Opened)
    except msgspec.MsgspecError:
        return None


def _written(line: bytes, end: int) -> Written | None:
    start = _RECORD.match(line)
    digest = _DIGEST.fullmatch(line, max(end - _DIGEST_SIZE, 0), end)
    if not start or not digest or start.end() + int(start[8]) != digest.start():
        return None
    seq, epoch, index, count, at = map(int, start.groups()[:5])
    key = msgspec.json.decode(start[6], type=str)
    blobs = msgspec.json.decode(start[7], type=tuple[str, ...])
    body = line[start.end() : digest.start()]
    record = Record(seq, epoch, key, at, body, bytes.fromhex(digest[1].decode("ascii")))
    return Written(record, index, count, blobs)


def hidden(piece: bytes) -> Iterator[Line]:
    """Find a whole line at the end of a piece that begins with something else."""
    for start in _STARTS.finditer(piece, 1):
        line = parsed(piece[start.start() :])
        if line is not None:
            yield line
