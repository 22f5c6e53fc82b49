"""Decide which lines of a session's file count: one rule for all readers and writers.

Lines are only ever appended, each by one write, so everybody sees them in the same order:

- The opening line of a writer counts if its epoch is higher than all before it.
- A record counts if it has the epoch of the last opening line, if its whole append is there in one
  piece, and if its number and digest continue the chain. A record of an older epoch came late, from
  a writer that had been replaced, and does not count.
- Any other bytes are the remains of an append that was never acknowledged, if the opening line of
  the next writer says so, or if they are at the end of the file and look like something that a
  crash can leave. Otherwise they are damage: no writer continues after such bytes without saying
  so, and no crash leaves a line of full length, with its proper end, but different content.
  Nothing is ever cut off or changed.

There are two kinds of lines. ``{"lockstitch":1,…,"epoch":3,…,"check":"…"}`` opens the file for a
writer. ``{"seq":7,…,"size":58,"body":{…},"digest":"…","check":"…"}`` is a record, with its body
byte for byte. ``check`` covers every byte before it, so a line that was cut, zeroed or joined to
another is not valid.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct, structs

from lockstitch.errors import Damaged, UsageError, Where
from lockstitch.journal.events import about_in
from lockstitch.journal.records import (
    START,
    Head,
    JournalEntry,
    JournalRecord,
    blob_name,
    digest_of,
)
from lockstitch.stores.leases import Holder

VERSION = 1
# In the opening line of a file whose first records are in another file.
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
    """The part that a fork shares: the name of a base, and the last shared record with its digest.

    ``about`` is how the session was described there.
    """

    name: str
    seq: int
    digest: str
    at: int
    about: bytes | None = None


class OpeningLine(Struct, frozen=True, gc=False, omit_defaults=True):
    """The line with which a writer begins: from here on, only its epoch or a higher one counts.

    ``torn`` says that the bytes from that place to this line are the remains of an append which was
    never acknowledged. ``token`` identifies the writer; it is "" for a fork, whose first line names
    in ``base`` the records that come before its own.
    """

    lockstitch: int
    session: str
    epoch: int
    at: int
    holder: str
    token: str
    torn: int | None = None
    base: Base | None = None


class RecordLine(Struct, frozen=True, gc=False):
    """A record that is number ``index`` of the ``count`` records appended at once."""

    record: JournalRecord
    index: int
    count: int
    blobs: tuple[str, ...]

    @property
    def first(self) -> int:
        """The number of the first record of its append."""
        return self.record.seq - self.index


Line = OpeningLine | RecordLine


def opening_line(
    session: str, epoch: int, at: int, holder: Holder | None, torn: int | None
) -> bytes:
    """Return the line with which a writer begins."""
    label, token = (holder.label, holder.token) if holder else ("", "")
    line = OpeningLine(VERSION, session, epoch, at, label, token, torn)
    return _sealed(msgspec.json.encode(line)[:-1])


def fork_line(session: str, epoch: int, at: int, base: Base) -> bytes:
    """Return the first line of a fork that nobody has written to yet."""
    line = OpeningLine(FORKED, session, epoch, at, "", "", None, base)
    return _sealed(msgspec.json.encode(line)[:-1])


def append_lines(records: Sequence[JournalRecord], entries: Sequence[JournalEntry]) -> bytes:
    """Return the lines of one append, to be written by one call of ``write``."""
    names = [tuple(map(blob_name, entry.blobs)) for entry in entries]
    count = len(records)
    return b"".join(
        record_line(RecordLine(record, index, count, blobs))
        for index, (record, blobs) in enumerate(zip(records, names, strict=True))
    )


def record_line(written: RecordLine) -> bytes:
    """Return the line of one record."""
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


def parse_line(line: bytes) -> Line | None:
    """Return the parsed line, given with its newline.

    None if it is not exactly as it was written.
    """
    if line.startswith(b'{"seq":'):
        return _parse_record(line)
    seal = _CHECK.fullmatch(line, max(len(line) - _CHECK_SIZE, 0))
    if not seal or not _is_sealed(line, seal[1]):
        return None
    try:
        return msgspec.json.decode(line, type=OpeningLine)
    except msgspec.MsgspecError:
        return None


def _is_sealed(line: bytes, check: bytes) -> bool:
    return zlib.crc32(memoryview(line)[:-_CHECK_SIZE]) == int(check, 16)


def _parse_record(line: bytes) -> RecordLine | None:
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
    record = JournalRecord(
        seq=int(seq),
        epoch=int(epoch),
        key=_key.decode(key),
        at=int(at),
        body=body,
        digest=bytes.fromhex(ending[1].decode("ascii")),
    )
    return RecordLine(
        record, int(index), int(count), _blobs.decode(blobs) if blobs != b"[]" else ()
    )


def left_of(line: bytes) -> JournalRecord | None:
    """Return what is left of a damaged record, if its line still ends with a digest."""
    ending = _ENDING.fullmatch(line, max(len(line) - _ENDING_SIZE, 0))
    if not ending:
        return None
    digest = bytes.fromhex(ending[1].decode("ascii"))
    start = _RECORD.match(line)
    if not start:
        return JournalRecord(0, 0, "", 0, line[: ending.start()], digest)
    seq, epoch, _, _, at, key, _, _ = start.groups()
    name = key[1:-1].decode("ascii", "backslashreplace")
    body = line[start.end() : ending.start()]
    return JournalRecord(int(seq), int(epoch), name, int(at), body, digest)


def was_whole(tail: bytes) -> bool:
    """Whether bytes begin with a line that was complete once and has changed since.

    A crash leaves only the beginning of a line, shorter than the line says it is, or zeros where
    the file had grown and was not filled yet. So a line that has the length it says, ends as a line
    does and contains no zeros was damaged later. If its beginning is damaged and no length can be
    read, its ending decides, unless that is the ending of a line which was written after it.
    """
    start = _RECORD.match(tail)
    end = start.end() + int(start[8]) + _ENDING_SIZE if start else 0
    if not start or not _ends_at(tail, end):
        end = tail.find(b"\n") + 1
        ending = _CHECK.fullmatch(tail, max(end - _CHECK_SIZE, 0), end)
        if not ending or any(hidden_lines(tail[:end])):
            return False
    return b"\0" not in tail[:end]


def _ends_at(tail: bytes, end: int) -> bool:
    """Whether a record's line ends here; one of the three signs of an end may be damaged."""
    ending = tail[end - _ENDING_SIZE : end]
    # The next writer begins with a space and a newline, and may have crashed right after.
    if end > len(tail) or b" \n" in ending or ending.endswith(b" "):
        return False
    # Another program may have appended to a line that lacks only its newline.
    is_line = ending.endswith(b"\n") or end == len(tail) or bool(_RECORD.match(tail, end))
    signs = ((_ENDING_SIZE, b',"digest":"'), (_CHECK_SIZE, b',"check":"'), (3, b'"}'))
    there = sum(tail.startswith(sign, end - place) for place, sign in signs)
    return is_line and there >= len(signs) - 1


def hidden_lines(piece: bytes) -> Iterator[tuple[int, Line]]:
    """Yield whole lines at the end of a piece that begins with other bytes, with their places."""
    for start in _STARTS.finditer(piece, 1):
        line = parse_line(piece[start.start() :])
        if line is not None:
            yield start.start(), line


def wrong_version(line: OpeningLine, where: Where) -> Damaged:
    """Return the error for a file that this version cannot read."""
    known = f"{VERSION} or {FORKED}"
    return Damaged(f"it has version {line.lockstitch}, not {known}").about(*where)


CHUNK = 1 << 20


class LogState(Struct, frozen=True, gc=False):
    """How much of a file counts: everything up to ``end``; the last append begins at ``last``.

    ``epoch`` and ``token`` belong to the last writer. ``made`` is the time of the first writer and
    ``changed`` that of the last record. ``about`` is the last description of the session, and
    ``base`` the part that a fork shares.
    """

    end: int = 0
    last: int = 0
    epoch: int = 0
    token: str = ""
    session: str = ""
    seq: int = 0
    digest: bytes = START
    made: int = 0
    changed: int = 0
    about: bytes | None = None
    base: Base | None = None

    @property
    def head(self) -> Head:
        """The end of the session."""
        return Head(self.seq, self.digest, self.epoch)


class LogWalk:
    """Walks through the lines of a file, starting from a state, and decides which of them count.

    ``torn`` is where bytes begin that do not count, None if there are none. ``broken`` are the
    records at the beginning of an incomplete append there. ``strange`` is where the first of these
    bytes are that form no line.
    """

    def __init__(self, state: LogState, session: str) -> None:
        self.state = state
        self.session = session
        self.where = Where(session=session)
        self.torn: int | None = None
        self.strange: int | None = None
        self.broken: list[RecordLine] = []
        self._parts: list[RecordLine] = []
        self._parts_start = 0

    def feed(self, place: int, piece: bytes) -> list[RecordLine]:
        """Process the next piece, usually a line; return the append that it completes, if any."""
        line = parse_line(piece)
        if self.torn is None:
            if isinstance(line, OpeningLine) and not self._parts:
                self._open(line, place + len(piece))
                return []
            if isinstance(line, RecordLine) and self._continues(line):
                size = len(piece)
                if not self._parts:
                    self._parts_start = place
                self._parts.append(line)
                if len(self._parts) < line.count:
                    return []
                parts, self._parts = self._parts, []
                self.state = structs.replace(
                    self.state,
                    end=place + size,
                    last=self._parts_start,
                    seq=line.record.seq,
                    digest=line.record.digest,
                    changed=line.record.at,
                    about=about_in(part.record.body for part in parts) or self.state.about,
                )
                return parts
            is_late = isinstance(line, RecordLine) and line.record.epoch < self.state.epoch
            if is_late and not self._parts:
                self.state = structs.replace(self.state, end=place + len(piece))
                return []
            self._break(place)
            self.strange = place if line is None else None
        # After bytes that do not count: either a new writer accounts for them, or they are damage.
        torn = self.torn
        if isinstance(line, OpeningLine) and line.epoch > self.state.epoch and line.torn == torn:
            self.torn = self.strange = None
            self._open(line, place + len(piece))
        else:
            hidden = (one for _, one in hidden_lines(piece))
            if any(self._is_proof(one, place) for one in (line, *hidden)):
                raise self._damage("and more follows it")
        return []

    def finish(self, rest: bytes) -> None:
        """Process the end of the file: an incomplete append does not count.

        ``rest`` are the bytes from ``strange`` on. Raises ``Damaged`` if they were a whole line
        once.
        """
        if self._parts:
            self._break(self._parts_start)
        if was_whole(rest):
            raise self._damage("though it has its whole length")

    def _break(self, place: int) -> None:
        self.torn = self._parts_start if self._parts else place
        self.broken, self._parts = self._parts, []

    def _open(self, line: OpeningLine, end: int) -> None:
        if line.lockstitch != (FORKED if line.base else VERSION):
            raise wrong_version(line, self.where)
        if line.session != self.session and line.session.lower() == self.session.lower():
            raise UsageError(f"the file system does not distinguish it from {line.session}").about(
                session=self.session
            )
        if line.base is not None:
            # A fork continues after the records that it shares; only its first line names these.
            if self.state.made:
                raise Damaged("it is listed as a fork, but its first line does not say so").about(
                    *self.where
                )
            digest = bytes.fromhex(line.base.digest)
            self.state = structs.replace(
                self.state,
                seq=line.base.seq,
                digest=digest,
                changed=line.base.at,
                about=line.base.about,
                base=line.base,
            )
        if line.epoch > self.state.epoch or not self.state.made:
            self.state = structs.replace(
                self.state,
                epoch=line.epoch,
                token=line.token,
                session=line.session,
                made=self.state.made or line.at,
            )
        self.state = structs.replace(self.state, end=end)

    def _continues(self, line: RecordLine) -> bool:
        """Whether a record is the next one of this writer."""
        record, state, parts = line.record, self.state, self._parts
        before = parts[-1].record.digest if parts else state.digest
        return (
            record.epoch == state.epoch
            and record.seq == state.seq + 1 + len(parts)
            and line.index == len(parts)
            and line.index < line.count == (parts[0].count if parts else line.count)
            and record.digest == digest_of(before, record.seq, record.epoch, record)
        )

    def _damage(self, why: str) -> Damaged:
        number = self.state.seq + len(self.broken) + 1
        return Damaged(
            f"record {number} is not what was written, {why} (from byte {self.torn} on)"
        ).about(*self.where)

    def _is_proof(self, line: OpeningLine | RecordLine | None, place: int) -> bool:
        """Whether a line proves that the bytes before it had been acknowledged."""
        if isinstance(line, OpeningLine):
            return line.epoch > self.state.epoch
        if not isinstance(line, RecordLine) or line.record.epoch < self.state.epoch:
            return False
        if line.record.epoch > self.state.epoch or line.first > self.state.seq + 1:
            return True
        is_known = place == self.torn or line.record in [part.record for part in self.broken]
        return line.first == self.state.seq + 1 and line.index == 0 and not is_known


def split_lines(handle: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines in a part of an open file, each with its place.

    The last may be incomplete.
    """
    rest: list[bytes] = []
    place = start
    while start < end and (read := os.pread(handle, min(CHUNK, end - start), start)):
        start += len(read)
        first, *lines = read.split(b"\n")
        rest.append(first)
        for line in lines:
            whole = b"".join((*rest, b"\n"))
            yield place, whole
            place += len(whole)
            rest = [line]
    if place < start:
        yield place, b"".join(rest)


def walk_file(walk: LogWalk, handle: int, end: int) -> Iterator[list[RecordLine]]:
    """Walk through an open file up to ``end``; yield one append after the other."""
    try:
        for place, piece in split_lines(handle, walk.state.end, end):
            if whole := walk.feed(place, piece):
                yield whole
        place = end if walk.strange is None else walk.strange
        walk.finish(os.pread(handle, end - place, place))
    except Damaged:
        # There would be no damage if the append had not been acknowledged, so its intact records
        # count.
        if walk.broken:
            yield walk.broken
        raise
