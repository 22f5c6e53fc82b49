"""What a Claude Code file itself says about lines that were not sent: cleared, compacted, beside.

This is read from the words of the client, not from any rule of Lockstitch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from .sent import RESULT, Piece, of_entry

Json = dict[str, Any]

CLEARED, COMPACTED, BESIDE, COMMANDS = "cleared", "compacted", "beside", "commands"
_PLAN = "Implement the following plan:"


def places(data: bytes, pieces: Iterable[Piece]) -> dict[Piece, list[int]]:
    """Return the lines, counted from 1, of a file that say each piece."""
    wanted = {(piece.kind, piece.text): piece for piece in pieces}
    found: dict[Piece, list[int]] = {piece: [] for piece in wanted.values()}
    for number, record in records(data):
        entry = record.get("message") or record.get("payload") or record
        for said in of_entry(entry) if isinstance(entry, dict) else ():
            piece = wanted.get((said.kind, said.text))
            if piece is not None:
                found[piece].append(number)
    return found


def spoken(data: bytes, pieces: Iterable[Piece]) -> dict[Piece, int]:
    """Return how many lines say each piece; one that stands on several lines counts as well."""
    found = {piece: len(numbers) for piece, numbers in places(data, pieces).items()}
    for piece, lines in found.items():
        if not lines and _is_written(data, piece):
            found[piece] = 1
    return found


def _is_written(data: bytes, piece: Piece) -> bool:
    """Whether the longest line of a piece stands anywhere in the file."""
    text = json.loads(piece.text)[1] if piece.kind == RESULT else piece.text
    line = max(text.splitlines(), key=len, default="")
    ways = (json.dumps(line, ensure_ascii=plain)[1:-1] for plain in (False, True))
    return bool(line) and any(way.encode(errors="replace") in data for way in ways)


def records(data: bytes) -> list[tuple[int, Json]]:
    """Return the lines that are JSON objects, with their numbers from 1."""
    listed = []
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            listed.append((number, value))
    return listed


def reasons(data: bytes, before: Iterable[Piece], more: Iterable[Piece]) -> dict[str, list[int]]:
    """Return why lines that are sent only after a repair may have been left out on purpose."""
    more = list(more)
    lines = records(data)
    found: dict[str, list[int]] = {}
    held = places(data, more)
    spoken = sorted(number for numbers in held.values() for number in numbers)
    for name, start in ((CLEARED, _cleared_at(lines)), (COMPACTED, _compacted_at(lines))):
        early = [number for number in spoken if number < start]
        if early:
            found[name] = early
    if more and all(piece.is_command for piece in more):
        found[COMMANDS] = spoken
    sent = {number for numbers in places(data, before).values() for number in numbers}
    beside = _beside(lines, sent, set(spoken))
    if beside:
        found[BESIDE] = beside
    return found


def _cleared_at(lines: list[tuple[int, Json]]) -> int:
    """Return the line at which the client's user last cleared the context, or 0."""
    last = 0
    for number, record in lines:
        attached = record.get("attachment") or record
        hooked = attached.get("hookName") == "SessionStart:clear" or "planContent" in record
        text = _first_text(record) if record.get("type") == "user" else ""
        is_new = record.get("parentUuid") is None and not record.get("isSidechain")
        if hooked or "<command-name>/clear<" in text or (is_new and text.startswith(_PLAN)):
            last = number
    return last


def _compacted_at(lines: list[tuple[int, Json]]) -> int:
    ends = [number for number, record in lines if record.get("subtype") == "compact_boundary"]
    return max(ends, default=0)


def _beside(lines: list[tuple[int, Json]], sent: set[int], more: set[int]) -> list[int]:
    """Return the prompts among *more* whose parent has another prompt after it that was sent."""
    prompts = {number: record.get("parentUuid") for number, record in lines if _is_prompt(record)}
    taken = {parent for number, parent in prompts.items() if number in sent}
    return [number for number in sorted(more) if number in prompts and prompts[number] in taken]


def _is_prompt(record: Json) -> bool:
    return (
        record.get("type") == "user" and "toolUseResult" not in record and bool(_first_text(record))
    )


def _first_text(record: Json) -> str:
    message = record.get("message")
    return next((said.text for said in of_entry(message) if said.kind == "text"), "")
