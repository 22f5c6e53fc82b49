"""A file of JSON lines, taken apart into records and put together again.

Nothing is ever dropped here: good records, torn pieces, runs of NUL bytes, blank lines and a byte
order mark tile the file exactly, and each carries the codes of the storage rules it breaks.
What can be read of a damaged line is read: records welded together, a good record behind a torn
one, a record with NUL bytes or broken characters inside, a record spread over several lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from lockstitch.conversation import json_text
from lockstitch.formats.records import BLANK, BOM, JSON, NUL, TORN, Record, encode

_BOM = b"\xef\xbb\xbf"
_NULS = re.compile(rb"\0+")
_START = re.compile(r'\{[ \t]*"')
_SPACE = " \t\r\n"
_SPACES = b" \t\r\n\x0b\x0c"
_BLANKS = re.compile(rb"(?:[ \t\r\x0b\x0c]*\n)+")
# A hostile line must not cost more than this many attempts to find a record in it.
_ATTEMPTS = 2000
# Of one stretch that is nested deeply, this many: each may read all of it.
_DEEP_ATTEMPTS = 8
# A record that was written over several lines may take this many, and this many bytes.
_MOST_LINES = 5000
_MOST_BYTES = 4 << 20
# So much is read of what may be one at first, and no token but a text is longer than this.
_FIRST_LOOK = 256
_TOKEN = 400
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_CONTROLS = re.compile(rb"[\0-\x1f]")

IsRecord = Callable[[dict[str, Any]], bool]
# A value, and the codes of what is to be said of its text.
Reading = tuple[Any, tuple[str, ...]]
Decode = Callable[[bytes, int], Reading]


def read(data: bytes, is_record: IsRecord, decode_at: Decode | None = None) -> list[Record]:
    """Take a file apart; ``is_record`` tells a format's records from objects inside of them.

    ``decode_at`` decodes a line that starts at some byte, in place of decoding all of it.
    """
    records: list[Record] = []
    joining = _Joining(data, is_record)
    start = 0
    number = 0
    if data[:3] == _BOM:
        records.append(Record("1", None, BOM, 0, 3, b"", codes=("LS604",)))
        start = 3
    while start < len(data):
        number += 1
        blank = _BLANKS.match(data, start) if data[start] in _SPACES else None
        if blank is not None:
            # however many there are in a row, they are one piece
            records.append(Record(str(number), None, BLANK, start, blank.end() - 1))
            number += data.count(b"\n", start, blank.end()) - 1
            start = blank.end()
            continue
        stop = data.find(b"\n", start)
        stop = len(data) if stop < 0 else stop
        found = _line(data, (start, stop), str(number), decode_at)
        if found is None:
            joined = joining.joined(start, number)
            if joined is None:
                found = [*_salvaged(data, start, stop, str(number), is_record)]
            else:
                found = [joined]
                number += data[start : joined.end].count(b"\n")
                stop = joined.end
        found[-1].ending = data[found[-1].end : stop + 1]
        records += found
        start = stop + 1
    _note_missing_newline(records)
    return records


def write(data: bytes, records: Iterable[Record]) -> bytes:
    """Put a file together: untouched records keep their bytes, and every record ends its line."""
    out: list[bytes] = []
    for record in records:
        out.append(data[record.start : record.end] if record.fresh is None else record.fresh)
        out.append(record.ending)
    return b"".join(out)


def decode(text: bytes) -> Any:
    """Decode one JSON value; msgspec first, then what only others take.

    What nobody here takes, although it is valid, is left in the value as ``Raw``.
    """
    return reading(text)[0]


def reading(text: bytes) -> Reading:
    """Decode one JSON value; LS613 says that some of it is valid, but cannot be read here."""
    try:
        return msgspec.json.decode(text), ()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _slow_reading(text.decode("utf-8"))


def _slow_reading(text: str, *, strict: bool = True) -> Reading:
    value = json_text.decode(text, strict=strict)
    return value, ("LS613",) if json_text.has_unread(value) else ()


def _line(
    data: bytes, span: tuple[int, int], place: str, decode_at: Decode | None
) -> list[Record] | None:
    """Read an ordinary line; None if something is wrong with its bytes."""
    start, stop = span
    text = data[start:stop]
    try:
        value, codes = decode_at(text, start) if decode_at else reading(text)
    except ValueError:
        return [Record(place, None, BLANK, start, stop)] if not text.strip() else None
    codes = codes if type(value) is dict else ("LS606",)
    return [Record(place, value, JSON, start, stop, codes=codes)]


def _note_missing_newline(records: list[Record]) -> None:
    if records and b"\n" not in records[-1].ending and records[-1].kind == JSON:
        last = records[-1]
        last.codes = (*last.codes, "LS608")


class _Joining:
    """Reads records that stand on several lines; what it learns of a line it learns once."""

    def __init__(self, data: bytes, is_record: IsRecord) -> None:
        self.data = data
        self.is_record = is_record
        self.whole: dict[int, bool] = {}

    def joined(self, start: int, number: int) -> Record | None:
        """Read a record that starts here.

        Its text holds raw line breaks (LS609), or line breaks stand between its tokens (LS612).
        """
        data = self.data
        if not data[start : start + 80].lstrip().startswith(b"{"):
            return None
        stop = self._end_of_value(start)
        if stop is None:
            return None
        line_end = data.find(b"\n", stop)
        rest = data[stop : line_end if line_end >= 0 else len(data)]
        found = _escaped_reading(data[start:stop])
        if rest.strip() or b"\n" not in data[start:stop] or found is None:
            return None
        if not self.is_record(found[0]):
            return None
        stop += len(rest)
        codes = ("LS612" if _is_json(data[start:stop]) else "LS609", *found[1])
        fresh = _on_one_line(data[start:stop])
        return Record(str(number), found[0], JSON, start, stop, fresh=fresh, codes=codes)

    def _end_of_value(self, start: int) -> int | None:
        """Return where a value ends; as little is read as tells that none does."""
        size = _FIRST_LOOK
        while True:
            end, is_all = self._reach(start, size)
            # Latin-1 keeps every byte at its own index.
            text = self.data[start:end].decode("latin-1")
            begin = len(text) - len(text.lstrip())
            try:
                return start + json_text.raw_decode(text, begin, strict=False)[1]
            except json.JSONDecodeError as error:
                is_cut = error.pos + _TOKEN >= len(text) or error.msg.startswith("Unterminated")
            except json_text.TooDeep as error:
                is_cut = error.reached + _TOKEN >= len(text)
            if is_all or not is_cut:
                return None
            size *= 8

    def _reach(self, start: int, size: int) -> tuple[int, bool]:
        """Return where lines end that may belong to one record, and whether those are all.

        They end at the next line that is whole by itself; no more is looked at than asked for.
        """
        data = self.data
        stop = data.find(b"\n", start)
        for _ in range(_MOST_LINES):
            if stop < 0 or stop - start > _MOST_BYTES or self._starts_record(stop + 1):
                break
            if stop - start > size:
                return stop, False
            stop = data.find(b"\n", stop + 1)
        return len(data) if stop < 0 else stop, True

    def _starts_record(self, start: int) -> bool:
        """Whether the next line is a whole object of its own, so that nothing runs into it."""
        if start not in self.whole:
            stop = self.data.find(b"\n", start)
            text = self.data[start : stop if stop >= 0 else len(self.data)]
            is_object = text.startswith(b'{"') and text.rstrip().endswith(b"}")
            self.whole[start] = is_object and _is_json(text)
        return self.whole[start]


def _is_json(text: bytes) -> bool:
    try:
        decode(text)
    except ValueError:
        return False
    return True


def _on_one_line(text: bytes) -> bytes:
    """Return a value without line breaks: escaped inside of strings, a space between tokens."""

    def escaped(string: re.Match[bytes]) -> bytes:
        return _CONTROLS.sub(lambda found: json.dumps(found[0].decode()).encode()[1:-1], string[0])

    out: list[bytes] = []
    at = 0
    for string in _STRING.finditer(text):
        out += [_CONTROLS.sub(b" ", text[at : string.start()]), escaped(string)]
        at = string.end()
    return b"".join([*out, _CONTROLS.sub(b" ", text[at:])])


def _escaped_reading(text: bytes) -> Reading | None:
    try:
        found = _slow_reading(text.decode("utf-8"), strict=False)
    except ValueError:
        return None
    return found if type(found[0]) is dict else None


def _salvaged(
    data: bytes, start: int, stop: int, place: str, is_record: IsRecord
) -> Iterator[Record]:
    """Read what can be read of a damaged line: NUL runs apart, the rest piece by piece."""
    whole = _cleaned(data, start, stop, place, is_record)
    if whole is not None:
        yield whole
        return
    at = start
    for run in _NULS.finditer(data, start, stop):
        yield from _pieces(data, at, run.start(), place, is_record)
        yield Record(place, None, NUL, *run.span(), b"", codes=("LS603",))
        at = run.end()
    yield from _pieces(data, at, stop, place, is_record)


def _cleaned(data: bytes, start: int, stop: int, place: str, is_record: IsRecord) -> Record | None:
    """Read a line that is one record once NUL bytes and broken characters are out of it."""
    text = data[start:stop]
    codes = ("LS603",) if b"\0" in text else ()
    fresh = text.translate(None, b"\0")  # a hole of a file may be gigabytes of them
    if not _is_utf8(fresh):
        codes = (*codes, "LS605")
        fresh = fresh.decode("utf-8", "replace").encode()
    if not codes:
        return None
    try:
        value, more = reading(fresh)
    except ValueError:
        return None
    if type(value) is not dict or not is_record(value):
        return None
    return Record(place, value, JSON, start, stop, fresh=fresh.strip(), codes=(*codes, *more))


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _pieces(
    data: bytes, start: int, stop: int, place: str, is_record: IsRecord
) -> Iterator[Record]:
    """Read a stretch as records and torn pieces, one behind the other."""
    # Latin-1 keeps every byte at its own index, so that offsets in the text are offsets in bytes.
    text = data[start:stop].decode("latin-1")
    at = 0
    last: Record | None = None
    while at < len(text):
        begin, end, value = _next_record(text, at, is_record)
        gap = (start + at, start + begin)
        if text[at:begin].strip(_SPACE):
            last = Record(place, None, TORN, *gap, b"", codes=("LS601",))
            yield last
        elif last is not None:
            last.ending = data[slice(*gap)]
        elif begin:
            yield Record(place, None, BLANK, *gap, b"")
        if value is not None:
            last = _found(data, start + begin, start + end, place, welded=last is not None)
            yield last
        at = end


def _found(data: bytes, start: int, end: int, place: str, *, welded: bool) -> Record:
    codes = ("LS602",) if welded else ()
    text = data[start:end]
    fresh = None
    if not _is_utf8(text):
        codes = (*codes, "LS605")
        text = fresh = text.decode("utf-8", "replace").encode()
    value, more = _slow_reading(text.decode("utf-8"), strict=False)
    if not _is_json(text):
        codes, fresh = (*codes, "LS609"), encode(value)
    return Record(place, value, JSON, start, end, b"", fresh, (*codes, *more))


def _next_record(text: str, at: int, is_record: IsRecord) -> tuple[int, int, Any]:
    """Find the next whole record: where it starts and ends; the end of the text if there is none.

    In a torn record a whole object that was inside of it may come before the next record, so an
    object counts only if the format knows it as a record.
    """
    reached = deep = 0
    for tries, match in enumerate(_START.finditer(text, at)):
        if tries > _ATTEMPTS:
            break
        start = match.start()
        deep = _DEEP_ATTEMPTS if start >= reached else deep
        try:
            value, end = json_text.raw_decode(text, start, strict=False, deep=deep > 0)
        except json_text.TooDeep as error:
            reached, deep = max(reached, error.reached), deep - 1
            continue
        except ValueError:
            continue
        if is_record(value):
            return start, end, value
    return len(text), len(text), None
