"""Records: what a store holds of a session, each with its place and, in a file, its bytes.

A file of JSON lines is split into records and put together again without dropping anything. Good
records, torn pieces, runs of NUL bytes, blank lines and a byte order mark cover the file exactly,
and each carries the codes of the storage rules that it breaks. As much as possible is read from a
damaged line: records that ran together, a good record after a torn one, a record with NUL bytes or
broken characters inside, a record spread over several lines. Of a document that breaks off, all
whole elements are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from lockstitch.conversation import json_text
from lockstitch.conversation.json_text import dump, set_value
from lockstitch.conversation.parts import repr_without
from lockstitch.errors import Unreadable

JSON = "json"
DOCUMENT = "document"
BLANK = "blank"
TORN = "torn"
NUL = "nul"
BOM = "bom"
_KINDS_OF_RECORDS = frozenset({JSON, DOCUMENT})
# A path of keys, in which None stands for any element of a list.
Pattern = tuple[str | None, ...]

# The key of a hash, in a value of which only the links were read.
SLIM = "#"


class Record(Struct, eq=False):
    """One record of a store, or a piece of a file that is not a record.

    The pieces cover a file: ``start`` and ``end`` delimit the piece's bytes, and ``ending`` is the
    line end after it. ``fresh`` holds the new bytes of a changed or repaired record. A record that
    was never in the file has ``start`` -1. ``place`` names it in findings, by a line number or by
    table and key. ``codes`` are the storage rules that it breaks, and ``amended`` the paths at
    which it was given other values. A file that is one JSON document is one record of kind
    ``document``.
    """

    place: str
    value: Any = None
    kind: str = JSON
    start: int = -1
    end: int = -1
    ending: bytes = b"\n"
    fresh: bytes | None = None
    codes: tuple[str, ...] = ()
    amended: tuple[tuple[str | int, ...], ...] = ()

    __repr__ = repr_without("value", "fresh")

    @property
    def is_record(self) -> bool:
        """Whether this is an object, as every record of every program is."""
        return type(self.value) is dict and self.kind in _KINDS_OF_RECORDS

    @property
    def is_new(self) -> bool:
        """Whether the store does not hold it yet."""
        return self.start < 0

    @property
    def size(self) -> int:
        """The number of bytes that it takes in the store."""
        return self.end - self.start


def record_bytes(data: bytes, record: Record) -> bytes:
    """Return the bytes of a record as they will be written."""
    return data[record.start : record.end] if record.fresh is None else record.fresh


def amend_record(data: bytes, record: Record, path: tuple[str | int, ...], value: Any) -> Record:
    """Return a record with another value at a path; everything off the path keeps its bytes."""
    changed = with_value(record.value, path, value)
    old = data[record.start : record.end] if record.fresh is None else record.fresh
    text = old.decode("utf-8", "surrogatepass") if data else ""
    fresh = set_value(text, path, value).encode() if text else encode_record(changed)
    amended = (*record.amended, path)
    return structs.replace(record, value=changed, fresh=fresh, amended=amended)


def with_value(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    """Return a copy of a value with another one at a path."""
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(value, list) and isinstance(step, int):
        return [with_value(v, rest, new) if n == step else v for n, v in enumerate(value)]
    return {**value, step: with_value(value.get(step, {}), rest, new)}


def can_be_key(value: Any) -> bool:
    """Whether a value can be looked up: not a list, an object, or a value kept unread."""
    return type(value) not in (list, dict, Raw)


def as_str(value: Any) -> str | None:
    """Return a value that should be text, None if it is anything else."""
    return value if type(value) is str else None


def as_dict(value: Any) -> dict[str, Any]:
    """Return a value that should be an object, an empty one if it is anything else."""
    return value if type(value) is dict else {}


def as_list(value: Any) -> list[Any]:
    """Return a value that should be a list, an empty one if it is anything else."""
    return value if type(value) is list else []


def new_record(place: str, value: Any) -> Record:
    """Return a record that the store does not hold yet."""
    return Record(place=place, value=value, fresh=encode_record(value))


def encode_record(value: Any) -> bytes:
    """Return a record as programs write it: compact JSON, with text unescape where possible."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, ValueError, TypeError):
        # msgspec cannot write lone surrogates
        return dump(value, separators=(",", ":")).encode()


BOM_BYTES = b"\xef\xbb\xbf"
# A program's file is recognized by this many of its first lines.
_HEAD_LINES = 40
_NULS = re.compile(rb"\0+")
_START = re.compile(r'\{[ \t]*"')
_SPACE = " \t\r\n"
_SPACES = b" \t\r\n\x0b\x0c"
_BLANKS = re.compile(rb"(?:[ \t\r\x0b\x0c]*\n)+")
# A hostile line must not cost more than this many attempts to find a record in it.
_ATTEMPTS = 2000
# For one deeply nested stretch, only this many attempts: each may read all of it.
_DEEP_ATTEMPTS = 8
# A record spread over several lines may take this many lines, and this many bytes.
_MOST_LINES = 5000
_MOST_BYTES = 4 << 20
# At first, this much is read of a possible record. No token but a text is longer than ``_TOKEN``.
_FIRST_LOOK = 256
_TOKEN = 400
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_CONTROLS = re.compile(rb"[\0-\x1f]")

IsRecord = Callable[[dict[str, Any]], bool]
# A value, and the codes of findings about its text.
JsonReading = tuple[Any, tuple[str, ...]]
DecodeLine = Callable[[bytes, int], JsonReading]


def read_lines(
    data: bytes, is_record: IsRecord, decode_at: DecodeLine | None = None
) -> list[Record]:
    """Split a file into records; ``is_record`` tells a format's records from objects inside them.

    ``decode_at`` decodes the line that starts at some byte, instead of decoding all of it.
    """
    records: list[Record] = []
    joining: _Joining | None = None
    start = 0
    number = 0
    if data[:3] == BOM_BYTES:
        records.append(Record("1", None, BOM, 0, 3, b"", codes=("LS604",)))
        start = 3
    while start < len(data):
        number += 1
        blank = _BLANKS.match(data, start) if data[start] in _SPACES else None
        if blank is not None:
            # any number of blank lines in a row is one piece
            records.append(Record(str(number), None, BLANK, start, blank.end() - 1))
            number += data.count(b"\n", start, blank.end()) - 1
            start = blank.end()
            continue
        stop = data.find(b"\n", start)
        stop = len(data) if stop < 0 else stop
        text = data[start:stop]
        try:
            value, codes = decode_at(text, start) if decode_at else read_json(text)
            codes = codes if type(value) is dict else ("LS606",)
            found = [Record(str(number), value, JSON, start, stop, codes=codes)]
        except ValueError:
            # the line's bytes are damaged, or it is blank
            joining = joining or _Joining(data, is_record)
            joined = joining.read_joined(start, number) if text.strip() else None
            if joined is not None:
                found = [joined]
                number += data[start : joined.end].count(b"\n")
                stop = joined.end
            elif text.strip():
                found = [*_salvage(data, start, stop, str(number), is_record)]
            else:
                found = [Record(str(number), None, BLANK, start, stop)]
        found[-1].ending = data[found[-1].end : stop + 1]
        records += found
        start = stop + 1
    if records and b"\n" not in records[-1].ending and records[-1].kind == JSON:
        records[-1].codes = (*records[-1].codes, "LS608")
    return records


def read_document(data: bytes, lists: Sequence[Pattern]) -> list[Record]:
    """Split a file that is one JSON document, whole or as far as :func:`close_document` goes.

    Raises Unreadable if it is neither.
    """
    text = data.removeprefix(BOM_BYTES)
    start = len(data) - len(text)
    bom = [Record("1", None, BOM, 0, start, b"", codes=("LS604",))] if start else []
    try:
        value, codes = read_json(text)
        return [*bom, Record("1", value, DOCUMENT, start, len(data), b"", codes=codes)]
    except ValueError:
        closed = close_document(text, lists)
    if closed is None:
        raise Unreadable("it is not JSON, or is cut off")
    end = start + closed.end
    whole = Record("1", closed.value, DOCUMENT, start, end, b"", closed.data)
    place = f"messages.{len(closed.value['messages'])}"
    return [*bom, whole, Record(place, None, TORN, end, len(data), b"", codes=("LS601",))]


def first_values(data: bytes) -> list[Any]:
    """Return the values on the first lines of a file, without lines that are not whole."""
    values: list[Any] = []
    for line in data.removeprefix(BOM_BYTES).split(b"\n", _HEAD_LINES)[:_HEAD_LINES]:
        if not line:
            continue
        try:
            values.append(read_json(line.strip(b"\0"))[0])
        except ValueError:
            continue
    return values


def write_lines(data: bytes, records: Iterable[Record]) -> bytes:
    """Put a file together: untouched records keep their bytes, and each its line end."""
    # Slices of a view are not copied: a large file is put together in one pass over its bytes.
    view = memoryview(data)
    out: list[bytes | memoryview] = []
    start = end = 0
    for record in records:
        behind = record.end + len(record.ending)
        is_as_read = record.fresh is None and data[record.end : behind] == record.ending
        # Neighbouring records that are as they were read are taken in one piece.
        if not is_as_read or record.start != end:
            out.append(view[start:end])
            start = end = record.start
        if is_as_read:
            end = behind
        else:
            out.append(view[record.start : record.end] if record.fresh is None else record.fresh)
            out.append(record.ending)
    out.append(view[start:end])
    return b"".join(out)


def read_json(text: bytes) -> JsonReading:
    """Decode one JSON value, with msgspec first, then with the slow reader.

    Valid pieces that nothing here can read are left in the value as ``Raw``, with the code LS613.
    """
    try:
        return msgspec.json.decode(text), ()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_slowly(text.decode("utf-8"))


def _read_slowly(text: str, *, strict: bool = True) -> JsonReading:
    value = json_text.decode(text, strict=strict)
    return value, ("LS613",) if json_text.has_unread(value) else ()


class _Joining:
    """Reads records that span several lines; what it learns of a line is kept."""

    def __init__(self, data: bytes, is_record: IsRecord) -> None:
        self.data = data
        self.is_record = is_record
        self.whole: dict[int, bool] = {}

    def read_joined(self, start: int, number: int) -> Record | None:
        """Return the record that starts here and spans several lines, None if there is none.

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
        found = _read_with_controls(data[start:stop])
        if rest.strip() or b"\n" not in data[start:stop] or found is None:
            return None
        if not self.is_record(found[0]):
            return None
        stop += len(rest)
        codes = ("LS612" if _is_json(data[start:stop]) else "LS609", *found[1])
        fresh = _on_one_line(data[start:stop])
        return Record(str(number), found[0], JSON, start, stop, fresh=fresh, codes=codes)

    def _end_of_value(self, start: int) -> int | None:
        """Return where a value ends, reading no more than it takes to see that none does."""
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
        """Return where the lines end that may belong to one record, and whether these are all.

        They end before the next line that is whole by itself; no more is looked at than asked for.
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
        """Whether a line is a whole object of its own, so that no record runs into it."""
        if start not in self.whole:
            stop = self.data.find(b"\n", start)
            text = self.data[start : stop if stop >= 0 else len(self.data)]
            is_object = text.startswith(b'{"') and text.rstrip().endswith(b"}")
            self.whole[start] = is_object and _is_json(text)
        return self.whole[start]


def _is_json(text: bytes) -> bool:
    try:
        read_json(text)
    except ValueError:
        return False
    return True


def _on_one_line(text: bytes) -> bytes:
    """Return a value without line breaks: escaped inside strings, spaces between tokens."""

    def escape(string: re.Match[bytes]) -> bytes:
        return _CONTROLS.sub(lambda found: json.dumps(found[0].decode()).encode()[1:-1], string[0])

    out: list[bytes] = []
    at = 0
    for string in _STRING.finditer(text):
        out += [_CONTROLS.sub(b" ", text[at : string.start()]), escape(string)]
        at = string.end()
    return b"".join([*out, _CONTROLS.sub(b" ", text[at:])])


def _read_with_controls(text: bytes) -> JsonReading | None:
    try:
        found = _read_slowly(text.decode("utf-8"), strict=False)
    except ValueError:
        return None
    return found if type(found[0]) is dict else None


def _salvage(
    data: bytes, start: int, stop: int, place: str, is_record: IsRecord
) -> Iterator[Record]:
    """Yield what can be read of a damaged line: runs of NUL bytes, and the pieces between."""
    whole = _without_broken_bytes(data, start, stop, place, is_record)
    if whole is not None:
        yield whole
        return
    at = start
    for run in _NULS.finditer(data, start, stop):
        yield from _pieces(data, at, run.start(), place, is_record)
        yield Record(place, None, NUL, *run.span(), b"", codes=("LS603",))
        at = run.end()
    yield from _pieces(data, at, stop, place, is_record)


def _without_broken_bytes(
    data: bytes, start: int, stop: int, place: str, is_record: IsRecord
) -> Record | None:
    """Return a line that is one record once NUL bytes and broken characters are removed."""
    text = data[start:stop]
    codes = ("LS603",) if b"\0" in text else ()
    fresh = text.translate(None, b"\0")  # a hole of a file may be gigabytes of them
    if not _is_utf8(fresh):
        codes = (*codes, "LS605")
        fresh = fresh.decode("utf-8", "replace").encode()
    if not codes:
        return None
    try:
        value, more = read_json(fresh)
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
    """Yield the records and torn pieces in a stretch, one after the other."""
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
            last = _make_found_record(
                data, start + begin, start + end, place, welded=last is not None
            )
            yield last
        at = end


def _make_found_record(data: bytes, start: int, end: int, place: str, *, welded: bool) -> Record:
    codes = ("LS602",) if welded else ()
    text = data[start:end]
    fresh = None
    if not _is_utf8(text):
        codes = (*codes, "LS605")
        text = fresh = text.decode("utf-8", "replace").encode()
    value, more = _read_slowly(text.decode("utf-8"), strict=False)
    if not _is_json(text):
        codes, fresh = (*codes, "LS609"), encode_record(value)
    return Record(place, value, JSON, start, end, b"", fresh, (*codes, *more))


def _next_record(text: str, at: int, is_record: IsRecord) -> tuple[int, int, Any]:
    """Return where the next whole record starts and ends; the end of the text if there is none.

    In a torn record, a whole object from inside it may come before the next record, so an object
    counts only if the format knows it as a record.
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


_SIGN = re.compile(r'"(?:[^"\\]|\\.)*"|["{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_CLOSERS = {"{": "}", "[": "]"}


class ClosedDocument(Struct, frozen=True):
    """A document that was cut off: its whole value, its bytes, and the start of the torn rest."""

    value: Any
    data: bytes
    end: int


class _OpenBracket(Struct):
    """A list or an object that has not ended; ``key`` belongs to the member being read."""

    opener: str
    key: str | None = None
    named: bool = False


def close_document(data: bytes, lists: Sequence[Pattern]) -> ClosedDocument | None:
    """Return the document up to the last whole element of one of some lists, None without one.

    The format says which lists may end early: what follows such a list in an object is lost with
    the rest.
    """
    scan = _DocumentScan(lists)
    # Latin-1 keeps every byte at its own index, and all signs of JSON are ASCII.
    for match in _SIGN.finditer(data.decode("latin-1")):
        if not scan.takes(match[0], match.end()):
            break
    if not scan.end:
        return None
    try:
        whole = data[: scan.end] + scan.closers.encode()
        return ClosedDocument(read_json(whole)[0], whole, scan.end)
    except (ValueError, RecursionError):
        return None


class _DocumentScan:
    """A walk over the tokens of a document; ``end`` is after the last whole element."""

    def __init__(self, lists: Sequence[Pattern]) -> None:
        self.lists = lists
        self.stack: list[_OpenBracket] = []
        self.end = 0
        self.closers = ""

    def takes(self, sign: str, end: int) -> bool:
        """Take the next token; return False if it cannot stand there."""
        if sign in _CLOSERS:
            self.stack.append(_OpenBracket(sign))
            return self._mark_end(end)
        if sign in _CLOSERS.values():
            opened = self.stack.pop().opener if self.stack else ""
            return _CLOSERS.get(opened) == sign and bool(self.stack) and self._mark_end(end)
        # a lone quotation mark opens the text in which the document breaks off
        if not self.stack or sign == '"':
            return False
        inner = self.stack[-1]
        if sign == ",":
            inner.named = False
        elif inner.opener == "{" and not inner.named and sign != ":":
            inner.key, inner.named = _name(sign), True
        elif sign.startswith('"'):
            # a number or a word might have continued; only a text shows its end
            return self._mark_end(end)
        return True

    def _mark_end(self, end: int) -> bool:
        """Record an end of an element, or start of a list, at which the document may be closed."""
        if self.stack[-1].opener == "[":
            path = tuple(None if one.opener == "[" else one.key for one in self.stack[:-1])
            if path in self.lists:
                self.end = end
                self.closers = "".join(_CLOSERS[one.opener] for one in reversed(self.stack))
        return True


def _name(sign: str) -> str:
    try:
        return str(json.loads(sign))
    except ValueError:
        return sign


_TEXT = re.compile(r'"text"\s*:\s*"((?:[^"\\]|\\.)*)("?)', re.DOTALL)
_LOST = "[lockstitch] What was stored here could not be read; it is kept in the backup."
_RESCUED = "[lockstitch] What was stored here was damaged; this could be read of it:"


def substitute_text(raw: str) -> str:
    """Return a text that replaces an unreadable value, with what could be read of it."""
    texts = [unescape(match[1]) for match in _TEXT.finditer(raw)]
    found = "\n".join(text for text in texts if text.strip())
    return f"{_RESCUED}\n{found}" if found else _LOST


def unescape(text: str) -> str:
    """Return what the inside of a JSON string says; an escape may be cut off at its end."""
    for cut in range(min(len(text), 6) + 1):
        try:
            found: str = json.loads(f'"{text[: len(text) - cut]}"', strict=False)
        except ValueError:
            continue
        return found.encode("utf-8", "replace").decode()
    return ""


def torn_fields(data: bytes, mark: str, field: re.Pattern[str], behind: str = "") -> dict[str, Any]:
    """Return the readable fields of a file's first line if that is torn and contains a mark."""
    line = data[: data.find(b"\n")] if b"\n" in data else data
    text = line.decode("utf-8", "replace")
    if not re.search(mark, text):
        return {}
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        text = text.partition(behind)[2] if behind else text
        return {match[1]: unescape(match[2]) for match in field.finditer(text)}
    return {}
