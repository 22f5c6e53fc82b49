"""The head of a Codex rollout, its ``session_meta``: whether Codex reads it, and writing it anew.

Codex resumes no file that does not start with a head that it can read. Everything that a head must
have is in the name of the file or in its other lines, so that a lost one can be written again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from lockstitch.conversation.json_text import dump
from lockstitch.formats.records import BLANK, BOM, NUL, TORN, Record
from lockstitch.formats.salvage import unescaped

META = "session_meta"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NAME = re.compile(rf"(?:rollout-.*?)?({_UUID.pattern})")
_NEEDED = ("id", "timestamp", "cwd", "originator", "cli_version")
# The fields of a head that come before the long ones, as they stand in the text of a torn one.
_FIELD = re.compile(
    r'"(id|session_id|forked_from_id|timestamp|cwd|originator|cli_version|source|model_provider'
    r'|history_mode)"\s*:\s*"((?:[^"\\]|\\.)*)"'
)
_FOLDER = re.compile(r"<cwd>([^<\n]+)</cwd>")
_UNKNOWN_VERSION = "0.0.0"
_OWN_NAME = "lockstitch"


def id_in(name: str) -> str | None:
    """Return the id of the session that the name of a rollout tells, None if it tells none."""
    match = _NAME.match(name)
    return match[1] if match else None


def is_whole(value: dict[str, Any]) -> bool:
    """Whether a line is a head with all that Codex cannot do without."""
    payload = value.get("payload")
    if value.get("type") != META or type(payload) is not dict:
        return False
    texts = all(type(payload.get(key)) is str for key in _NEEDED)
    return texts and _UUID.fullmatch(payload["id"]) is not None


def rebuilt(records: Sequence[Record], data: bytes, name: str) -> dict[str, Any] | None:
    """Return a new head of a rollout, None if nothing tells the id of its session.

    What is left of the old head counts first, then the name of the file, then its lines.
    """
    known = _left(records, data)
    lines = [record.value for record in records if record.is_record]
    own = known.get("id") or id_in(name)
    if own is None:
        return None
    times = (one["timestamp"] for one in lines if type(one.get("timestamp")) is str)
    made = {
        "session_id": own,
        "timestamp": _time_of(own) or next(times, "1970-01-01T00:00:00.000Z"),
        "cwd": _folder(lines) or "/",
        "originator": _OWN_NAME,
        "cli_version": _UNKNOWN_VERSION,
    }
    counts = any(type(one.get("ordinal")) is int for one in lines)
    mode = {"history_mode": "paginated"} if counts else {}
    payload = {"id": own, **made, **mode, **known}
    head = {"timestamp": payload["timestamp"]} | ({"ordinal": _before(lines)} if counts else {})
    return {**head, "type": META, "payload": payload}


def _left(records: Sequence[Record], data: bytes) -> dict[str, Any]:
    """Return what can be read of a head that is torn, or lacks what it must have."""
    for record in records:
        value = record.value if record.is_record else {}
        payload = value.get("payload")
        if value.get("type") == META and type(payload) is dict and not is_whole(value):
            texts = {key for key in _NEEDED if type(payload.get(key)) is not str}
            return _checked({key: own for key, own in payload.items() if key not in texts})
    line = data[: data.find(b"\n")] if b"\n" in data else data
    if f'"{META}"'.encode() not in line or _is_json(line):
        return {}
    text = line.decode("utf-8", "replace").partition('"payload"')[2]
    found = {match[1]: unescaped(match[2]) for match in _FIELD.finditer(text)}
    return _checked(found)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _checked(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the fields without ids that are none: Codex refuses a head with such an id."""
    ids = ("id", "session_id", "forked_from_id")
    wrong = {key for key in ids if key in payload and not _UUID.fullmatch(str(payload[key]))}
    return {key: value for key, value in payload.items() if key not in wrong}


def _time_of(own: str) -> str | None:
    """Return the time that an id of version 7 begins with."""
    if own[14] != "7":
        return None
    when = datetime.fromtimestamp(int(own[:8] + own[9:13], 16) / 1000, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"


def _folder(lines: Iterable[dict[str, Any]]) -> str | None:
    """Return the first working directory that the lines tell of."""
    for value in lines:
        payload = value.get("payload")
        if value.get("type") == "turn_context" and type(payload) is dict:
            folder = payload.get("cwd")
            if type(folder) is str and folder:
                return folder
        elif value.get("type") == "response_item":
            match = _FOLDER.search(dump(payload))
            if match:
                return unescaped(match[1])
    return None


def _before(lines: Sequence[dict[str, Any]]) -> int:
    """Return the ordinal of a line before the first one that has any."""
    first: int = next(one["ordinal"] for one in lines if type(one.get("ordinal")) is int)
    return max(first - 1, 0)


def opening(records: Sequence[Record]) -> int:
    """Return the number of the first piece of a file that Codex must be able to read, or -1.

    Torn pieces and NUL bytes are findings of their own.
    """
    other = (BLANK, BOM, NUL, TORN)
    return next((n for n, record in enumerate(records) if record.kind not in other), -1)
