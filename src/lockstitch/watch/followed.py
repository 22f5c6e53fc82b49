"""One watched file: how far it was read, and what is known about it so far.

The content of a file is checked once. After that, only appended bytes are read. If the format has a
proof, it is continued; otherwise the end of the file is viewed again, from the last point at which
nothing was open. The end does not show everything, such as a second copy of a result long after the
first. So the entire file is read again when it was replaced or truncated, when its end looks wrong,
and when it is at rest, unless it is large and has hardly grown since.

Read alone, the end of a file has findings that the whole file has not, because its first line
follows nothing. So a view of the end is only compared with an earlier view of the same end. New
findings make the whole file suspect; they are never reported directly.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, field

from lockstitch.conversation.json_text import is_index
from lockstitch.conversation.parts import CALL, RESULT
from lockstitch.dialects.profiles import new_dialect
from lockstitch.files import read
from lockstitch.formats.interface import LINES, HealthProof, Transcript
from lockstitch.formats.repair import findings_in, parse_file
from lockstitch.rules import NOTE, Finding
from lockstitch.sources import operations
from lockstitch.sources.source import HEALTHY as HEALTHY_STATES
from lockstitch.sources.source import Report, Source

# What a look at the end may say: nothing is wrong; something may be under way; read everything.
CLEAN_TAIL, OPEN_TAIL, SUSPECT_TAIL = "healthy", "open", "suspect"


class TailView(Struct):
    """The findings in a session before and after a point where no call is open.

    ``line`` and ``start``, a byte, say where that point is. ``final`` counts the findings before it
    by code, and ``moving`` those after it, which the next line may resolve.
    """

    line: int = 1
    start: int = 0
    final: Counter[str] = field(default_factory=Counter)
    moving: Counter[str] = field(default_factory=Counter)


class FileTail(Struct):
    """The place from which a file is read again: its first line, a byte, the view from there."""

    head: bytes
    start: int
    before: Counter[str] = field(default_factory=Counter)


def view_transcript(transcript: Transcript, findings: Iterable[Finding]) -> TailView:
    """Divide the findings in a session into final ones and those that may be under way."""
    line, start = rest_point(transcript)
    view = TailView(line, start)
    for found in findings:
        if found.severity != NOTE:
            counted = view.final if line_of(found) < line else view.moving
            counted[found.code] += 1
    return view


def rest_point(transcript: Transcript) -> tuple[int, int]:
    """Return the line and byte of the last message before which every call has its result.

    At least one message comes after it, so that the next message has something to follow.
    """
    history, records = transcript.history, transcript.records
    views = new_dialect(history.dialect).read(history.messages) if history.messages else []
    open_calls: Counter[str] = Counter()
    point = 0
    for number, view in enumerate(views):
        if not open_calls:
            point = number
        for part in view.parts:
            if part.kind == CALL and part.id:
                open_calls[part.id] += 1
            elif part.kind == RESULT and part.id and part.id in open_calls:
                open_calls -= Counter((part.id,))
    numbers = [one for row in history.sources[point:] for one in row if one >= 0]
    if not numbers:
        return 1, 0
    first = min((records[number] for number in numbers), key=lambda record: record.start)
    place = first.place.partition(".")[0]
    return int(place) if is_index(place) else 1, max(first.start, 0)


def line_of(found: Finding) -> int:
    """Return the line of a finding in a file of lines, 0 if it has none."""
    step = found.place.partition(".")[0]
    return int(step) if is_index(step) else 0


def view_tail(source: Source, tail: FileTail, data: bytes) -> TailView:
    """Return the view of a file's end, ``data``, read after its first line.

    Its ``start`` counts from the beginning of the file.
    """
    head = tail.head if tail.start else b""
    transcript = parse_file(source.form, source.kind, source.path, head + data)
    view = view_transcript(transcript, findings_in(source.form, transcript))
    view.start = tail.start + max(view.start - len(head), 0)
    return view


def take_up(
    source: Source, head: bytes, data: bytes, view: TailView, known: Counter[str]
) -> FileTail:
    """Return the tail that starts at the point of a view; ``data`` are the bytes from there on.

    A finding that is new in the view of these bytes alone, unless it was ``known``, is only there
    because they are read alone.
    """
    tail = FileTail(head, view.start)
    alone = view_tail(source, tail, data)
    tail.before = alone.final + alone.moving - (view.moving - known)
    return tail


# How many of the bytes read last are compared, since a file may be rewritten in place.
_PRINT = 64
_CHUNK = 1 << 20
# If the end is longer than this, later looks start further on.
_LONG_TAIL = 1 << 18
# Up to this size, reading the whole file costs no more than reading its end.
_SMALL = 1 << 18
# A file at rest of which only the end was viewed is read as a whole up to this size, or if this
# large a part of it is new.
_MEDIUM = 8 << 20
_NEW_PART = 0.02


class Position(Struct, frozen=True):
    """How far a file was read: which file it was, how many bytes, and the last of them."""

    identity: tuple[int, int]
    offset: int
    last: bytes


class Followed(Struct):
    """What is known about one session: how far its file was read, and the findings.

    ``final`` are findings that no further line can resolve. ``session`` and ``project`` are those
    of the last complete read, and ``read`` counts bytes.
    """

    source: Source
    position: Position | None = None
    proof: HealthProof | None = None
    tail: FileTail | None = None
    whole: int = 0
    state: str = SUSPECT_TAIL
    report: Report | None = None
    final: list[Finding] = field(default_factory=list)
    session: str | None = None
    project: str | None = None
    read: int = 0

    def look(self) -> str:
        """Read the appended bytes, and return what they say."""
        fresh = self._read_appended()
        if fresh is None:
            self.state = SUSPECT_TAIL
        elif fresh:
            self.report = None
            self.state = self._carry_proof(fresh) if self.proof is not None else self._view_end()
        if self.final and self.state == CLEAN_TAIL:
            self.state = OPEN_TAIL
        return self.state

    @property
    def is_unsure(self) -> bool:
        """Whether to read the whole file at rest, because only its end was viewed lately."""
        if self.position is None or self.proof is not None:
            return False
        fresh = self.position.offset - self.whole
        return fresh > 0 and (self.whole <= _MEDIUM or fresh > self.whole * _NEW_PART)

    def _read_appended(self) -> bytes | None:
        """Return the bytes after those read before; None if that is not certain."""
        at = self.position
        if at is None:
            return None
        start = at.offset - len(at.last)
        with read.open_regular(self.source.path) as handle:
            status = os.fstat(handle)
            if (status.st_dev, status.st_ino) != at.identity or status.st_size < at.offset:
                return None
            data = _read_bytes(handle, start, status.st_size)
        self.read += len(data)
        return data[len(at.last) :] if data.startswith(at.last) else None

    def _carry_proof(self, fresh: bytes) -> str:
        """Continue the proof; bytes after the last complete line wait for the next time."""
        proof, at = self.proof, self.position
        end = fresh.rfind(b"\n") + 1
        if proof is None or at is None or (end and not proof.advance(fresh[:end])):
            return SUSPECT_TAIL
        if end:
            last = (at.last + fresh[:end])[-_PRINT:]
            self.position = Position(at.identity, at.offset + end, last)
        return _state_of(proof, is_whole=end == len(fresh))

    def _view_end(self) -> str:
        at, tail = self.position, self.tail
        if at is None or tail is None or at.offset <= _SMALL:
            return SUSPECT_TAIL
        with read.open_regular(self.source.path) as handle:
            data = _read_bytes(handle, tail.start, os.fstat(handle).st_size)
        self.read += len(data)
        end = tail.start + len(data)
        self.position = Position(at.identity, end, data[-_PRINT:])
        view = view_tail(self.source, tail, data)
        # compared with what was seen when the whole file was checked
        if view.final - tail.before:
            return SUSPECT_TAIL
        if len(data) > _LONG_TAIL and view.start > tail.start:
            later = data[view.start - tail.start :]
            self.tail = take_up(self.source, tail.head, later, view, tail.before)
        return OPEN_TAIL if view.final + view.moving - tail.before else CLEAN_TAIL

    def examine(self) -> None:
        """Read the whole file, and find what is wrong with it."""
        self.proof = self.tail = self.position = None
        self.final = []
        if not self._prove():
            self.understand()

    def at_rest(self) -> Report:
        """Return the report now that nothing more is written; read the whole file if necessary."""
        return self.report or self.understand()

    def _prove(self) -> bool:
        """Make a new proof for the whole file, if its format has one."""
        proof = self.source.form.proof()
        if proof is None or not self._is_appended_to:
            return False
        with read.open_regular(self.source.path) as handle:
            status = os.fstat(handle)
            read.require_size(status.st_size)
            offset, last = 0, b""
            while piece := os.pread(handle, _CHUNK, offset):
                end = piece.rfind(b"\n") + 1
                if not end and len(piece) < _CHUNK:
                    break
                # A line longer than a chunk, such as one with an image.
                piece = piece if end else _read_line(handle, offset, status.st_size)
                end = end or piece.rfind(b"\n") + 1
                if not end or not proof.advance(piece[:end]):
                    return False
                offset, last = offset + end, piece[:end][-_PRINT:]
            self.read += offset
            is_whole = offset == os.fstat(handle).st_size
        state = _state_of(proof, is_whole=is_whole)
        if state == SUSPECT_TAIL:
            return False
        self.proof, self.state = proof, state
        found = proof.verdict()
        source = self.source
        if found is None:
            self.report = None
        else:
            facts = (found.session, found.project, found.messages)
            self.report = Report(source.path, source.format, *facts)
        self.position = Position((status.st_dev, status.st_ino), offset, last)
        return True

    def understand(self) -> Report:
        """Read the entire session carefully, and return the report."""
        status = os.stat(self.source.path)  # noqa: PTH116 - asked again and again
        report, transcript = operations.examine(self.source)
        self.read += status.st_size
        self.proof, self.report = None, report
        self.session, self.project = report.session, report.project
        self.state = CLEAN_TAIL if report.status in HEALTHY_STATES else OPEN_TAIL
        if transcript is None or not self._is_appended_to:
            return report
        data = transcript.context.data
        whole = view_transcript(transcript, report.findings)
        self.final = [one for one in report.findings if line_of(one) < whole.line]
        self.whole = len(data)
        self.position = Position((status.st_dev, status.st_ino), len(data), bytes(data[-_PRINT:]))
        head = bytes(data[: data.find(b"\n") + 1])
        rest = bytes(data[whole.start :])
        self.tail = take_up(self.source, head, rest, whole, Counter())
        return report

    @property
    def _is_appended_to(self) -> bool:
        return self.source.kind == LINES and not read.is_packed(self.source.path)


def _state_of(proof: HealthProof, *, is_whole: bool) -> str:
    if proof.is_open or not is_whole:
        return OPEN_TAIL
    return CLEAN_TAIL if proof.verdict() is not None else SUSPECT_TAIL


def _read_bytes(handle: int, start: int, end: int) -> bytes:
    """Read a range of a file; fewer bytes, if it is truncated meanwhile."""
    pieces = []
    while start < end and (piece := os.pread(handle, end - start, start)):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def _read_line(handle: int, start: int, end: int) -> bytes:
    """Read from the start of a line to its end, or to the end of the file."""
    size = 2 * _CHUNK
    while b"\n" not in (data := _read_bytes(handle, start, min(start + size, end))):
        if start + size >= end:
            break
        size *= 2
    return data
