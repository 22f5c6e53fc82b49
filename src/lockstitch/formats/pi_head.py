"""The head of a file of pi: the first line, without which pi does not read the file.

What pi cannot do without is the id of the session, which is in the name of the file, too. Without
the folder that a head names, pi takes the one that it is started in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from lockstitch.formats.records import Record
from lockstitch.formats.salvage import unescaped

HEADER = "session"
# What a file whose entries have ids is; pi makes one of all older ones.
_VERSION = 3
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d)-(\d{3}Z)_")
_FIELD = re.compile(r'"(id|timestamp|cwd|parentSession)"\s*:\s*"((?:[^"\\]|\\.)*)"')


def is_header(value: dict[str, Any]) -> bool:
    """Whether a record is the head of a session's file."""
    return value.get("type") == HEADER and type(value.get("id")) is str


def id_in(name: str) -> str:
    """Return the id of the session that the name of a file tells."""
    stem = name.removesuffix(".jsonl")
    match = _UUID.search(stem)
    return match[0] if match else stem.rpartition("_")[2]


def rebuilt(records: Sequence[Record], data: bytes, name: str) -> dict[str, Any] | None:
    """Return a new head for a file, None if nothing tells the id of its session.

    What is left of the old head counts first, then the name of the file, then its entries.
    """
    known = _left(records, data)
    own = known.pop("id", None) or id_in(name)
    if not own:
        return None
    entries = [record.value for record in records if record.is_record]
    version = {"version": _VERSION} if any("parentId" in value for value in entries) else {}
    when = _time_in(name) or next(
        (value["timestamp"] for value in entries if type(value.get("timestamp")) is str), None
    )
    time = {"timestamp": when} if when else {}
    return {"type": HEADER, **version, "id": own, **time, **known}


def _left(records: Sequence[Record], data: bytes) -> dict[str, Any]:
    """Return what can be read of a head that is torn, or has no id."""
    for record in records:
        if record.is_record and record.value.get("type") == HEADER and not is_header(record.value):
            return {key: own for key, own in record.value.items() if key not in ("type", "id")}
    line = data[: data.find(b"\n")] if b"\n" in data else data
    text = line.decode("utf-8", "replace")
    if not re.search(rf'"type"\s*:\s*"{HEADER}"', text) or _is_json(text):
        return {}
    return {match[1]: unescaped(match[2]) for match in _FIELD.finditer(text)}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _time_in(name: str) -> str | None:
    """Return the time that the name of a file begins with."""
    match = _TIME.match(name)
    return f"{match[1]}T{match[2]}:{match[3]}:{match[4]}.{match[5]}" if match else None
