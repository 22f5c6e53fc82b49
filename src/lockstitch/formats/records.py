"""Records: what a store holds of a session, each with its place and, in a file, its bytes."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from lockstitch.conversation.json_text import dump, set_value

JSON = "json"
DOCUMENT = "document"
BLANK = "blank"
TORN = "torn"
NUL = "nul"
BOM = "bom"
# The key of a hash in a value of which only the links were read.
SLIM = "#"


class Record(Struct, eq=False):
    """One record of a store, or a piece of a file that is none.

    In a file, the pieces tile it: ``start`` and ``end`` are its bytes, ``ending`` is what ends the
    line behind it. ``fresh`` holds new bytes (of a changed or mended record), and a record that
    never was in the file has ``start`` -1. ``place`` names it in findings: a line number, or a
    table and a key. ``codes`` are the storage rules that it breaks. A file that is one JSON
    document is one record of that kind.
    """

    place: str
    value: Any = None
    kind: str = JSON
    start: int = -1
    end: int = -1
    ending: bytes = b"\n"
    fresh: bytes | None = None
    codes: tuple[str, ...] = ()

    @property
    def is_record(self) -> bool:
        """Tell whether this is an object, as every record of every program is."""
        return self.kind in (JSON, DOCUMENT) and type(self.value) is dict

    @property
    def is_new(self) -> bool:
        """Tell whether the store does not hold it yet."""
        return self.start < 0

    @property
    def size(self) -> int:
        """How many bytes it takes in the store."""
        return self.end - self.start


def raw_of(data: bytes, record: Record) -> bytes:
    """Give the bytes of a record as they will be written."""
    return data[record.start : record.end] if record.fresh is None else record.fresh


def amended(data: bytes, record: Record, path: tuple[str | int, ...], value: Any) -> Record:
    """Give a record with another value at a path; what is not on the path keeps its bytes."""
    changed = _with(record.value, path, value)
    text = raw_of(data, record).decode("utf-8", "surrogatepass") if data else ""
    fresh = set_value(text, path, value).encode() if text else encode(changed)
    return structs.replace(record, value=changed, fresh=fresh)


def _with(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(value, list) and isinstance(step, int):
        return [_with(v, rest, new) if n == step else v for n, v in enumerate(value)]
    return {**value, step: _with(value.get(step, {}), rest, new)}


def can_be_key(value: Any) -> bool:
    """Whether a value can be looked up: no list, no object, and nothing that is kept unread."""
    return type(value) not in (list, dict, Raw)


def as_str(value: Any) -> str | None:
    """Give a value that should be text, None if it is anything else."""
    return value if type(value) is str else None


def new_record(place: str, value: Any) -> Record:
    """Make a record that the store does not hold yet."""
    return Record(place=place, value=value, fresh=encode(value))


def encode(value: Any) -> bytes:
    """Write a record as the programs do: compact JSON, text unescaped where it can be."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, ValueError, TypeError):
        # what msgspec cannot write: lone surrogates
        return dump(value, separators=(",", ":")).encode()
