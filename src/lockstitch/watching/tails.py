"""A view of the end of a session, taken up again at the last point where no call was open.

Read alone, the end of a file has findings that the whole has not: its first line hangs on nothing.
So a view is only compared with an earlier one of the same end. What is new in it makes the whole
file suspect; it is never told as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, field

from lockstitch.conversation.json_text import is_index
from lockstitch.conversation.parts import CALL, RESULT
from lockstitch.dialects.registry import new_dialect
from lockstitch.formats.base import Transcript
from lockstitch.formats.doctor import findings_of
from lockstitch.formats.sources import Source, understood
from lockstitch.rules import NOTE, Finding

# What a look at the end says: nothing is wrong; something may be under way; look at all of it.
HEALTHY, OPEN, SUSPECT = "healthy", "open", "suspect"


class TailView(Struct):
    """What is wrong with a session, before and behind a point where no call is open.

    ``line`` and ``start``, a byte, say where that is; ``settled`` counts the findings before it by
    code, and ``moving`` those behind it, which may be gone with the next line.
    """

    line: int = 1
    start: int = 0
    settled: Counter[str] = field(default_factory=Counter)
    moving: Counter[str] = field(default_factory=Counter)


class FileTail(Struct):
    """Where a file is taken up again: its first line, a byte, and what a view from there holds."""

    head: bytes
    start: int
    before: Counter[str] = field(default_factory=Counter)


def viewed(transcript: Transcript, findings: Iterable[Finding]) -> TailView:
    """Divide what is wrong with a session into what stays and what may be under way."""
    line, start = rest_point(transcript)
    view = TailView(line, start)
    for found in findings:
        if found.severity != NOTE:
            counted = view.settled if line_of(found) < line else view.moving
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


def view_of(source: Source, tail: FileTail, data: bytes) -> TailView:
    """Return the view of a file's end, ``data``, under its first line.

    Its ``start`` counts from the beginning of the file.
    """
    head = tail.head if tail.start else b""
    transcript = understood(source, head + data)
    view = viewed(transcript, findings_of(source.form, transcript))
    view.start = tail.start + max(view.start - len(head), 0)
    return view


def tail_of(source: Source, data: bytes, whole: TailView) -> FileTail:
    """Return where a file of these bytes is taken up again, once all of it was viewed."""
    tail = FileTail(bytes(data[: data.find(b"\n") + 1]), whole.start)
    alone = view_of(source, tail, bytes(data[tail.start :]))
    tail.before = alone.settled + alone.moving - whole.moving
    return tail


def moved_on(source: Source, tail: FileTail, data: bytes, view: TailView) -> FileTail:
    """Return a tail that starts later, where a view of ``data`` has its point."""
    later = FileTail(tail.head, view.start)
    alone = view_of(source, later, data[view.start - tail.start :])
    later.before = alone.settled + alone.moving - (view.moving - tail.before)
    return later


def judged(view: TailView, tail: FileTail) -> str:
    """Return what a view says of the whole file, against what was seen when that was checked."""
    if view.settled - tail.before:
        return SUSPECT
    return OPEN if view.settled + view.moving - tail.before else HEALTHY
