"""One file that is followed: how far it was read, and what is known of it so far.

What a file held is looked at once. After that only what was appended is read: a proof is carried
on where its program has one, else the end of the file is viewed again from the last point at which
nothing was open. An end does not show everything, such as a result that came a second time long
after the first. So the whole file is read again when it was replaced or cut, when the end says that
something may be wrong, and once it rests, unless it is large and has hardly grown since.

Read alone, the end of a file has findings that the whole has not: its first line hangs on nothing.
So a view of it is only compared with an earlier one of the same end. What is new makes the whole
file suspect; it is never reported as it is.
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

# What a look at the end says: nothing is wrong; something may be under way; look at all of it.
CLEAN_TAIL, OPEN_TAIL, SUSPECT_TAIL = "healthy", "open", "suspect"


class TailView(Struct):
    """What is wrong with a session, before and behind a point where no call is open.

    ``line`` and ``start``, a byte, say where that is; ``final`` counts the findings before it by
    code, and ``moving`` those behind it, which may be gone with the next line.
    """

    line: int = 1
    start: int = 0
    final: Counter[str] = field(default_factory=Counter)
    moving: Counter[str] = field(default_factory=Counter)


class FileTail(Struct):
    """Where a file is taken up again: its first line, a byte, and what a view from there holds."""

    head: bytes
    start: int
    before: Counter[str] = field(default_factory=Counter)


def view_transcript(transcript: Transcript, findings: Iterable[Finding]) -> TailView:
    """Divide what is wrong with a session into what stays and what may be under way."""
    line, start = rest_point(transcript)
    view = TailView(line, start)
    for found in findings:
        if found.severity != NOTE:
            counted = view.final if line_of(found) < line else view.moving
            counted[found.code] += 1
    return view


def rest_point(transcript: Transcript) -> tuple[int, int]:
    """Return the line and the byte of the last message before which every call has its result.

    At least one message stays behind it, on which what comes next can hang.
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
    """Return the view of a file's end, ``data``, under its first line.

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

    What a view of these alone has and the given one has not, unless it was ``known``, is there only
    since it is read alone.
    """
    tail = FileTail(head, view.start)
    alone = view_tail(source, tail, data)
    tail.before = alone.final + alone.moving - (view.moving - known)
    return tail


# So many bytes before the end of what was read are compared: a file may be written anew in place.
_PRINT = 64
_CHUNK = 1 << 20
# An end that is longer than this is taken up later from then on.
_LONG_TAIL = 1 << 18
# A file up to this size costs no more as a whole than by its end.
_SMALL = 1 << 18
# At rest, a file of which only the end was viewed is read as a whole up to this size, or if so
# large a part of it is new.
_MEDIUM = 8 << 20
_NEW_PART = 0.02


class Position(Struct, frozen=True):
    """How far a file was read: which file it was, how many bytes, and the last of them."""

    identity: tuple[int, int]
    offset: int
    last: bytes


class Followed(Struct):
    """What is known of one session: how far its file was read, and what was found.

    ``final`` are the findings that no further line will take away. ``session`` and ``project``
    are those of the last time that all of it was read, and ``read`` counts bytes.
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
        """Read what was appended and return what it says; the rest is not read."""
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
        """Whether it is to be read as a whole once it rests: only its end was viewed of late."""
        if self.position is None or self.proof is not None:
            return False
        fresh = self.position.offset - self.whole
        return fresh > 0 and (self.whole <= _MEDIUM or fresh > self.whole * _NEW_PART)

    def _read_appended(self) -> bytes | None:
        """Return the bytes behind those that were read, None if that is not certain."""
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
        """Carry the proof on; bytes behind the last whole line stay for the next time."""
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
        # against what was seen when the whole file was checked
        if view.final - tail.before:
            return SUSPECT_TAIL
        if len(data) > _LONG_TAIL and view.start > tail.start:
            later = data[view.start - tail.start :]
            self.tail = take_up(self.source, tail.head, later, view, tail.before)
        return OPEN_TAIL if view.final + view.moving - tail.before else CLEAN_TAIL

    def examine(self) -> None:
        """Read all of the file, and see what is wrong with it."""
        self.proof = self.tail = self.position = None
        self.final = []
        if not self._prove():
            self.understand()

    def at_rest(self) -> Report:
        """Return what is wrong now that nothing more is written; reads it all if nobody has."""
        return self.report or self.understand()

    def _prove(self) -> bool:
        """Carry a new proof through the whole file, where its program has one."""
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
                # A line that is longer than a chunk, as one with a picture is.
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
        """Read all of the session with care, and return what is wrong with it."""
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
    """Read a stretch of a file; less, if it is cut meanwhile."""
    pieces = []
    while start < end and (piece := os.pread(handle, end - start, start)):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def _read_line(handle: int, start: int, end: int) -> bytes:
    """Read from the start of a line to the end of it, or of the file."""
    size = 2 * _CHUNK
    while b"\n" not in (data := _read_bytes(handle, start, min(start + size, end))):
        if start + size >= end:
            break
        size *= 2
    return data
