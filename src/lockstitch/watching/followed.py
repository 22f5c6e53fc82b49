"""One file that is followed: how far it was read, and what is known of it so far.

What a file held is looked at once. After that only what was appended is read: a proof is carried
on where its program has one, else the end of the file is viewed again from the last point at which
nothing was open. An end does not tell everything, such as a result that came a second time long
after the first. So the whole file is read again when it was replaced or cut, when the end says that
something may be wrong, and once it rests, unless it is large and has hardly grown since.
"""

from __future__ import annotations

import os

from msgspec import Struct, field

from lockstitch import inputs, sessions
from lockstitch.formats import packed
from lockstitch.formats.base import LINES, Proof, Quick
from lockstitch.formats.sources import Source
from lockstitch.report import HEALTHY as HEALTHY_STATES
from lockstitch.report import Report
from lockstitch.rules import Finding
from lockstitch.watching.tails import (
    HEALTHY,
    OPEN,
    SUSPECT,
    FileTail,
    judged,
    line_of,
    moved_on,
    tail_of,
    view_of,
    viewed,
)

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

    ``settled`` are the findings that no further line will take away. ``session`` and ``project``
    are those of the last time that all of it was read, and ``read`` counts bytes.
    """

    source: Source
    position: Position | None = None
    proof: Proof | None = None
    tail: FileTail | None = None
    whole: int = 0
    state: str = SUSPECT
    report: Report | None = None
    settled: list[Finding] = field(default_factory=list)
    session: str | None = None
    project: str | None = None
    read: int = 0

    def look(self) -> str:
        """Read what was appended and return what it says; the rest is not read."""
        fresh = self._appended()
        if fresh is None:
            self.state = SUSPECT
        elif fresh:
            self.report = None
            self.state = self._carried(fresh) if self.proof is not None else self._viewed()
        if self.settled and self.state == HEALTHY:
            self.state = OPEN
        return self.state

    @property
    def is_unsure(self) -> bool:
        """Whether it is to be read as a whole once it rests: only its end was viewed of late."""
        if self.position is None or self.proof is not None:
            return False
        fresh = self.position.offset - self.whole
        return fresh > 0 and (self.whole <= _MEDIUM or fresh > self.whole * _NEW_PART)

    def _appended(self) -> bytes | None:
        """Return the bytes behind those that were read, None if they cannot be told from others."""
        at = self.position
        if at is None:
            return None
        start = at.offset - len(at.last)
        with inputs.opened(self.source.path) as handle, inputs.told():
            status = os.fstat(handle)
            if (status.st_dev, status.st_ino) != at.identity or status.st_size < at.offset:
                return None
            data = _bytes(handle, start, status.st_size)
        self.read += len(data)
        return data[len(at.last) :] if data.startswith(at.last) else None

    def _carried(self, fresh: bytes) -> str:
        """Carry the proof on; bytes behind the last whole line stay for the next time."""
        proof, at = self.proof, self.position
        end = fresh.rfind(b"\n") + 1
        if proof is None or at is None or (end and not proof.advance(fresh[:end])):
            return SUSPECT
        if end:
            last = (at.last + fresh[:end])[-_PRINT:]
            self.position = Position(at.identity, at.offset + end, last)
        return _proven(proof, is_whole=end == len(fresh))

    def _viewed(self) -> str:
        at, tail = self.position, self.tail
        if at is None or tail is None or at.offset <= _SMALL:
            return SUSPECT
        with inputs.opened(self.source.path) as handle, inputs.told():
            data = _bytes(handle, tail.start, os.fstat(handle).st_size)
        self.read += len(data)
        end = tail.start + len(data)
        self.position = Position(at.identity, end, data[-_PRINT:])
        view = view_of(self.source, tail, data)
        found = judged(view, tail)
        if found != SUSPECT and len(data) > _LONG_TAIL and view.start > tail.start:
            self.tail = moved_on(self.source, tail, data, view)
        return found

    def examine(self) -> None:
        """Read all of the file, and see what is wrong with it."""
        self.proof = self.tail = self.position = None
        self.settled = []
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
        with inputs.opened(self.source.path) as handle, inputs.told():
            status = os.fstat(handle)
            inputs.require_size(status.st_size)
            offset, last = 0, b""
            while piece := os.pread(handle, _CHUNK, offset):
                end = piece.rfind(b"\n") + 1
                if not end and len(piece) < _CHUNK:
                    break
                # A line that is longer than a chunk, as one with a picture is.
                piece = piece if end else _line(handle, offset, status.st_size)
                end = end or piece.rfind(b"\n") + 1
                if not end or not proof.advance(piece[:end]):
                    return False
                offset, last = offset + end, piece[:end][-_PRINT:]
            self.read += offset
            is_whole = offset == os.fstat(handle).st_size
        state = _proven(proof, is_whole=is_whole)
        if state == SUSPECT:
            return False
        self.proof, self.state = proof, state
        self.report = self._proven_report(proof.verdict())
        self.position = Position((status.st_dev, status.st_ino), offset, last)
        return True

    def _proven_report(self, quick: Quick | None) -> Report | None:
        if quick is None:
            return None
        source = self.source
        return Report(source.path, source.format, quick.session, quick.project, quick.messages)

    def understand(self) -> Report:
        """Read all of the session with care, and return what is wrong with it."""
        status = os.stat(self.source.path)  # noqa: PTH116 - asked again and again
        report, transcript = sessions.examined(self.source)
        self.read += status.st_size
        self.proof, self.report = None, report
        self.session, self.project = report.session, report.project
        self.state = HEALTHY if report.status in HEALTHY_STATES else OPEN
        if transcript is None or not self._is_appended_to:
            return report
        data = transcript.context.data
        whole = viewed(transcript, report.findings)
        self.settled = [one for one in report.findings if line_of(one) < whole.line]
        self.whole = len(data)
        self.position = Position((status.st_dev, status.st_ino), len(data), bytes(data[-_PRINT:]))
        self.tail = tail_of(self.source, data, whole)
        return report

    @property
    def _is_appended_to(self) -> bool:
        return self.source.kind == LINES and not packed.is_packed(self.source.path)


def _proven(proof: Proof, *, is_whole: bool) -> str:
    if proof.is_open or not is_whole:
        return OPEN
    return HEALTHY if proof.verdict() is not None else SUSPECT


def _bytes(handle: int, start: int, end: int) -> bytes:
    """Read a stretch of a file; less, if it is cut meanwhile."""
    pieces = []
    while start < end and (piece := os.pread(handle, end - start, start)):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def _line(handle: int, start: int, end: int) -> bytes:
    """Read from the start of a line to the end of it, or of the file."""
    size = 2 * _CHUNK
    while b"\n" not in (data := _bytes(handle, start, min(start + size, end))):
        if start + size >= end:
            break
        size *= 2
    return data
