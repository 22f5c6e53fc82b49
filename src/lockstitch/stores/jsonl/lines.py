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
# Of a file whose first records stand in another one.
FORKED = 2
_CHECK = re.compile(rb',"check":"([0-9a-f]{8})"\}\n')
_CHECK_SIZE = len(b',"check":"12345678"}\n')
_ENDING = re.compile(rb',"digest":"([0-9a-f]{32})","check":"([0-9a-f]{8})"\}\n')
_ENDING_SIZE = len(b',"digest":""') + 32 + _CHECK_SIZE
_RECORD = re.compile(
    rb'\{"seq":(\d{1,18}),"epoch":(\d{1,18}),"part":\[(\d{1,9}),(\d{1,9})\],"at":(-?\d{1,18}),'
    rb'"key":("(?:[^"\\]|\\.)*"),"blobs":(\[[0-9a-f",]*\]),"size":(\d{1,18}),"body":'
)
_key = msgspec.json.Decoder(str)
_blobs = msgspec.json.Decoder(tuple[str, ...])
_STARTS = re.compile(rb'\{"(?:seq|lockstitch)":')


class Base(Struct, frozen=True, gc=False):
    """What a fork shares: the file, and the last record taken from there with its digest.

    ``about`` is how the session was described there.
    """

    name: str
    seq: int
    digest: str
    at: int
    about: bytes | None = None


class Opened(Struct, frozen=True, gc=False, omit_defaults=True):
    """A writer begins: from here on only records of this epoch or a higher one count.

    ``torn`` says that the bytes from there to this line are what a crash or a full disk left of
    an append that was never acknowledged. ``token`` tells the writer, "" for a fork, whose first
    line says whose records come before its own: ``base``.
    """

    lockstitch: int
    session: str
    epoch: int
    at: int
    holder: str
    token: str
    torn: int | None = None
    base: Base | None = None


class Written(Struct, frozen=True, gc=False):
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


def forking(session: str, epoch: int, at: int, base: Base) -> bytes:
    """Write the first line of a fork, which nobody has written to yet."""
    line = Opened(FORKED, session, epoch, at, "", "", None, base)
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
    return _written(line) if line.startswith(b'{"seq":') else _opened(line)


def _is_sealed(line: bytes, check: bytes) -> bool:
    return zlib.crc32(memoryview(line)[:-_CHECK_SIZE]) == int(check, 16)


def _opened(line: bytes) -> Opened | None:
    seal = _CHECK.fullmatch(line, max(len(line) - _CHECK_SIZE, 0))
    if not seal or not _is_sealed(line, seal[1]):
        return None
    try:
        return msgspec.json.decode(line, type=Opened)
    except msgspec.MsgspecError:
        return None


def _written(line: bytes) -> Written | None:
    ending = _ENDING.fullmatch(line, max(len(line) - _ENDING_SIZE, 0))
    if not ending or not _is_sealed(line, ending[2]):
        return None
    start = _RECORD.match(line)
    if not start:
        return None
    seq, epoch, index, count, at, key, blobs, size = start.groups()
    body = line[start.end() : ending.start()]
    if len(body) != int(size):
        return None
    record = Record(
        seq=int(seq),
        epoch=int(epoch),
        key=_key.decode(key),
        at=int(at),
        body=body,
        digest=bytes.fromhex(ending[1].decode("ascii")),
    )
    return Written(record, int(index), int(count), _blobs.decode(blobs) if blobs != b"[]" else ())


def left_of(line: bytes) -> Record | None:
    """Read what is left of a damaged record's line, if its ending still says its digest."""
    ending = _ENDING.fullmatch(line, max(len(line) - _ENDING_SIZE, 0))
    if not ending:
        return None
    digest = bytes.fromhex(ending[1].decode("ascii"))
    start = _RECORD.match(line)
    if not start:
        return Record(0, 0, "", 0, line[: ending.start()], digest)
    seq, epoch, _, _, at, key, _, _ = start.groups()
    name = key[1:-1].decode("ascii", "backslashreplace")
    body = line[start.end() : ending.start()]
    return Record(int(seq), int(epoch), name, int(at), body, digest)


def was_whole(tail: bytes) -> bool:
    """Whether bytes begin with a line that was whole once and has changed since.

    What a crash leaves of a line is a part from its beginning on, shorter than it says, or has
    zeros wherever the file had grown and was not filled yet. So one that is as long as it says and
    ends as a line does, without zeros, was damaged later; where its beginning is damaged, so that
    it does not say, its ending tells, if that is its own and not that of a line written behind it.
    """
    start = _RECORD.match(tail)
    end = start.end() + int(start[8]) + _ENDING_SIZE if start else 0
    if not start or not _ends_at(tail, end):
        end = tail.find(b"\n") + 1
        ending = _CHECK.fullmatch(tail, max(end - _CHECK_SIZE, 0), end)
        if not ending or any(hidden(tail[:end])):
            return False
    return b"\0" not in tail[:end]


def _ends_at(tail: bytes, end: int) -> bool:
    """Whether a record's line ends there; one of the signs of it may be damaged."""
    ending = tail[end - _ENDING_SIZE : end]
    # The next writer begins with a space and a newline, and may have crashed, too.
    if end > len(tail) or b" \n" in ending or ending.endswith(b" "):
        return False
    # Another program may have written behind a line that lacks only its newline.
    is_line = ending.endswith(b"\n") or end == len(tail) or bool(_RECORD.match(tail, end))
    signs = ((_ENDING_SIZE, b',"digest":"'), (_CHECK_SIZE, b',"check":"'), (3, b'"}'))
    there = sum(tail.startswith(sign, end - place) for place, sign in signs)
    return is_line and there >= len(signs) - 1


def hidden(piece: bytes) -> Iterator[Line]:
    """Find a whole line at the end of a piece that begins with something else."""
    for start in _STARTS.finditer(piece, 1):
        line = parsed(piece[start.start() :])
        if line is not None:
            yield line


def hidden_at(piece: bytes) -> int:
    """Tell where a whole line begins in a piece that begins with something else, 0 for nowhere."""
    starts = (start.start() for start in _STARTS.finditer(piece, 1))
    return next((start for start in starts if parsed(piece[start:]) is not None), 0)
