"""What can be read of a session's file in which lines are damaged, and putting it aside.

Every line has a checksum of its own, so one bit that changed in a line is found and put back, and
the lines behind it are as good as before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct

from lockstitch.errors import Damaged, Held
from lockstitch.files import os_files
from lockstitch.journal.records import START, Head
from lockstitch.journal.salvage import SEARCHED, Remains, Remnant, flip_each_bit
from lockstitch.stores.base import require_stamp
from lockstitch.stores.jsonl.files import Files, base_of
from lockstitch.stores.jsonl.log import (
    FORKED,
    VERSION,
    Line,
    OpeningLine,
    RecordLine,
    hidden_at,
    left_of,
    parse_line,
    split_lines,
    was_whole,
)

_BREAK = 0x0A


class _LinePiece(Struct):
    """A line, or what makes none, with its place; ``line`` may have been put right."""

    place: int
    data: bytes
    line: Line | None = None
    is_altered: bool = False


def remains(files: Files, session: str) -> Remains:
    """Read what is there of a session's file."""
    with files.reading(session) as handle:
        base = base_of(handle)
        kept = _kept(handle, session)
        stamp = _stamp(handle)
    while base is not None:
        # What a fork shares comes before what it has; a base may be a fork itself.
        try:
            other = os.open(files.base(base.name), os_files.READING)
        except OSError:
            break
        try:
            below = base_of(other)
            # What stands behind the record that was forked at is the other's alone.
            shared, seq = _kept(other, session), base.seq
            lines = ((n, one.line) for n, one in enumerate(shared))
            own = (n for n, a in lines if isinstance(a, RecordLine) and a.record.seq > seq)
            kept = [*shared[: next(own, len(shared))], *kept]
        finally:
            os.close(other)
        base = below
    openings = [one for one in kept if not isinstance(one.line, RecordLine)]
    remnants = _numbered(kept)
    # What a damaged line was is known by whether a number is missing where it stands.
    lumps = [one for one in openings if one.line is None]
    is_altered = any(one.is_altered for one in openings)
    extra = len(lumps) > sum(bool(one.raw) for one in remnants)
    notes = ("a line that begins a writer is not what was written",)
    sealed = [one.record for one in remnants if one.record and one.is_sealed]
    last = max(sealed, key=lambda record: record.seq, default=None)
    head = Head(last.seq, last.digest) if last else Head(0, START)
    if remnants and (last is None or remnants[-1].seq > last.seq):
        end = remnants[-1].record
        head = Head(remnants[-1].seq, end.digest if end else b"")
    return Remains(head, remnants, notes if is_altered or extra else (), stamp)


def _kept(handle: int, session: str) -> list[_LinePiece]:
    """Read the lines of a file that count."""
    size = os.fstat(handle).st_size
    found = [one for place, data in split_lines(handle, 0, size) for one in _read(place, data)]
    whole = [*_joined(found)]
    for one in whole:
        if isinstance(one.line, OpeningLine) and one.line.lockstitch not in {VERSION, FORKED}:
            known = f"{VERSION} or {FORKED}"
            raise Damaged(f"it is of version {one.line.lockstitch}, not {known}").about(
                session=session
            )
    return _counting(whole)


def exchange_files(files: Files, session: str, aside: str, successor: str, stamp: str) -> None:
    """Give a session's file another name, and its own name to another file, under both locks."""
    with files.reading(session) as handle:
        require_stamp(stamp, _stamp(handle), session)
    path, beside = files.log(session), files.log(aside)
    try:
        os.link(path, beside, follow_symlinks=False)
    except FileExistsError:
        raise Held("it is there already").about(session=aside) from None
    except (OSError, NotImplementedError):
        # No second names here: then the name is free for a moment.
        path.rename(beside)
    os_files.sync_folder(files.folder)
    files.log(successor).replace(path)
    os_files.sync_folder(files.folder)
    for name in (session, aside, successor):
        files.forget(name)


def _stamp(handle: int) -> str:
    found = os.fstat(handle)
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"


def _read(place: int, data: bytes) -> Iterator[_LinePiece]:
    """Read one line; what stands before a whole line on the same line is a piece of its own."""
    line = parse_line(data)
    if line is None:
        start = hidden_at(data)
        if start:
            yield from _read(place, data[:start])
            yield _LinePiece(place + start, data[start:], parse_line(data[start:]))
            return
        line = _corrected(data)
        yield _LinePiece(place, data, line, is_altered=line is not None)
        return
    yield _LinePiece(place, data, line)


def _corrected(data: bytes) -> Line | None:
    if len(data) > SEARCHED:
        return None
    lines = map(parse_line, flip_each_bit(data))
    return next((line for line in lines if line is not None), None)


def _joined(found: list[_LinePiece]) -> Iterator[_LinePiece]:
    """Join lines that were one before a bit of it became a line break."""
    waiting: _LinePiece | None = None
    for one in found:
        if waiting is not None and one.line is None:
            joined = _welded(waiting, one)
            if joined is not None:
                yield joined
                waiting = None
                continue
        if waiting is not None:
            yield waiting
        waiting = one if one.line is None else None
        if waiting is None:
            yield one
    if waiting is not None:
        yield waiting


def _welded(one: _LinePiece, other: _LinePiece) -> _LinePiece | None:
    if not one.data.endswith(b"\n"):
        return None
    for bit in range(8):
        data = b"%b%c%b" % (one.data[:-1], _BREAK ^ 1 << bit, other.data)
        if line := parse_line(data):
            return _LinePiece(one.place, data, line, is_altered=True)
    return None


def _counting(found: list[_LinePiece]) -> list[_LinePiece]:
    """Leave out what counts for nothing: late lines, and what crashes left of an append."""
    kept: list[_LinePiece] = []
    epoch = 0
    for one in found:
        if isinstance(one.line, OpeningLine):
            torn = one.line.torn
            if torn is not None:
                kept = [other for other in kept if other.place < torn]
            epoch = max(epoch, one.line.epoch)
        elif isinstance(one.line, RecordLine) and one.line.record.epoch < epoch:
            continue
        kept.append(one)
    while kept and kept[-1].line is None and not was_whole(kept[-1].data):
        kept.pop()
    return _without_part(kept)


def _without_part(kept: list[_LinePiece]) -> list[_LinePiece]:
    """Leave out the records at the end whose append is not whole, and was never acknowledged."""
    last = kept[-1].line if kept else None
    if not isinstance(last, RecordLine) or last.index + 1 == last.count:
        return kept
    first = last.first
    lines = (one.line for one in kept)
    if any(one is None for one in lines):
        return kept
    return [
        one for one in kept if not isinstance(one.line, RecordLine) or one.line.record.seq < first
    ]


def _numbered(kept: list[_LinePiece]) -> list[Remnant]:
    """Return a damaged line the number that is missing where it stands."""
    found: list[Remnant] = []
    lumps: list[bytes] = []
    seq = 0
    for one in kept:
        if isinstance(one.line, RecordLine):
            number = one.line.record.seq
            if lumps and number > seq + 1:
                found += _lumped(lumps, seq, number)
            lumps = []
            record, is_altered = one.line.record, one.is_altered
            found.append(Remnant(number, record, is_altered=is_altered, is_sealed=True))
            seq = number
        elif one.line is None:
            lumps.append(one.data)
    if lumps:
        found += _lumped(lumps, seq, seq + 1 + len(lumps))
    return found


def _lumped(lumps: list[bytes], seq: int, number: int) -> Iterator[Remnant]:
    """Spread damaged lines over the numbers between two; the last takes what is left of them."""
    room = number - seq - 1
    for place, raw in enumerate(lumps[: room - 1], 1):
        yield Remnant(seq + place, left_of(raw), raw)
    if rest := b"".join(lumps[room - 1 :]):
        yield Remnant(seq + min(room, len(lumps)), left_of(rest), rest)
