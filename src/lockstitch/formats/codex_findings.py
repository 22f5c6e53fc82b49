"""What is wrong with the lines of a Codex rollout, before their items are looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from lockstitch.conversation.parts import RESULT
from lockstitch.dialects.registry import new_dialect
from lockstitch.formats.base import Transcript, find
from lockstitch.formats.codex_head import META, id_in, opening, rebuilt
from lockstitch.formats.codex_thread import (
    COMPACTED,
    ITEM,
    Thread,
    is_read,
    misspelled,
    payload_of,
)
from lockstitch.formats.records import Record, encode
from lockstitch.rules import ERROR, Finding

_HEAD_HELP = (
    "repair moves the head to the start of the file, or rebuilds it from what is left of it, "
    "the name of the file and its lines"
)


def store_findings(thread: Thread, transcript: Transcript) -> Iterator[Finding]:
    """Find everything that is wrong with the lines."""
    records = thread.records
    yield from _heading(thread, transcript)
    for number, first in repeats(records):
        text = f"repeats the record of line {records[first].place}"
        yield find("LS607", records[number].place, text)
    for number in skipped(records):
        text = "has no time, or an ordinal that is not a number: Codex skips it"
        yield find("LS610", records[number].place, text, ERROR)
    for number, record in enumerate(records):
        if number >= thread.start and record.is_record and misspelled(record.value):
            text = "Codex cannot read an item of this record, and skips the record"
            yield find("LS610", record.place, text, ERROR)
    yield from _cut_off(thread, transcript)
    yield from _misnumbered(thread)
    yield from _stranded(thread, transcript)


def _heading(thread: Thread, transcript: Transcript) -> Iterator[Finding]:
    """Find a file that does not start with a head that is whole; the first versions had none."""
    number = misplaced(thread)
    if number < 0:
        return
    record = thread.records[number]
    is_head = record.is_record and record.value.get("type") == META
    why = (
        "its session_meta lacks what it must have"
        if is_head
        else "the file does not start with its session_meta"
    )
    context = transcript.context
    made = rebuilt(thread.records, context.data, context.name)
    fixable = own_meta(thread, context.name) >= 0 or made is not None
    text = f"{why}: Codex refuses to resume it"
    if not fixable:
        text += ", and neither the name of the file nor its lines tell the id of the session"
    found = find("LS610", record.place, text, ERROR, fixable=fixable)
    yield structs.replace(found, help=_HEAD_HELP) if fixable else found


def misplaced(thread: Thread) -> int:
    """Return the record that stands where the head must be, -1 if nothing is wrong there."""
    number = opening(thread.records)
    envelopes = any("payload" in r.value for r in thread.records if r.is_record)
    return number if envelopes and number not in thread.metas else -1


def own_meta(thread: Thread, name: str) -> int:
    """Return the record with the data of the session that the file is named for, or -1."""
    own = id_in(name)
    metas = thread.metas
    return next((n for n in metas if own in (None, thread.records[n].value["payload"]["id"])), -1)


def repeats(records: Sequence[Record]) -> list[tuple[int, int]]:
    """Give items that are on disk twice, equal in everything, with the number of the first."""
    seen: dict[bytes, int] = {}
    found: list[tuple[int, int]] = []
    for number, record in enumerate(records):
        if not record.is_record or record.value.get("type") not in (ITEM, COMPACTED):
            continue
        if "timestamp" not in record.value:
            continue
        first = seen.setdefault(encode(record.value), number)
        if first != number:
            found.append((number, first))
    return found


def skipped(records: Sequence[Record]) -> list[int]:
    """Give the records that are whole but that the program does not read."""
    return [
        number
        for number, record in enumerate(records)
        if record.is_record
        and record.value.get("type") in (META, ITEM, COMPACTED)
        and payload_of(record.value)
        and not is_read(record.value)
    ]


def _cut_off(thread: Thread, transcript: Transcript) -> Iterator[Finding]:
    if thread.hidden:
        turns = f"{transcript.left} turn{'s' * (transcript.left != 1)}"
        text = (
            "a second session_meta hides all that is before it: "
            f"resuming will silently drop {turns} ({transcript.left_size} bytes)"
        )
        place = thread.records[thread.start].place
        yield find("LS704", place, text, fixable=bool(spare_metas(thread)))


def spare_metas(thread: Thread) -> list[int]:
    """Give the session_meta lines that only repeat that of the session itself."""
    own = thread.meta.get("id")
    return [
        number
        for number in thread.metas[1:]
        if thread.hidden and payload_of(thread.records[number].value).get("id") == own
    ]


def numbering(thread: Thread) -> dict[int, int]:
    """Give the ordinals that records of a paginated file should have, where they do not."""
    if not thread.is_paginated:
        return {}
    lines = [n for n, r in enumerate(thread.records) if r.is_record and "payload" in r.value]
    known = [
        (position, thread.records[number].value.get("ordinal"))
        for position, number in enumerate(lines)
    ]
    base = next((o - p for p, o in known if type(o) is int and o >= p), 0)
    return {lines[p]: base + p for p, ordinal in known if ordinal != base + p}


def _misnumbered(thread: Thread) -> Iterator[Finding]:
    wrong = numbering(thread)
    if not wrong:
        return
    last = max(n for n, r in enumerate(thread.records) if r.is_record)
    ends_bare = type(thread.records[last].value.get("ordinal")) is not int
    text = f"{len(wrong)} ordinals from here on are missing, repeated or skipped"
    if ends_bare:
        text += ", and Codex refuses a file whose last line has none"
    place = thread.records[min(wrong)].place
    yield find("LS610", place, text, ERROR if ends_bare else "")


def _stranded(thread: Thread, transcript: Transcript) -> Iterator[Finding]:
    """Find calls without a real output whose output an event holds."""
    if not transcript.evidence:
        return
    real = _really_answered(thread.items)
    for item, home in zip(thread.items, thread.homes, strict=True):
        call = str(item.get("call_id"))
        if call in transcript.evidence and call not in real:
            real.add(call)
            text = f"the output of call {call} is only in an event"
            yield find("LS708", thread.records[home.number].place, text)


def _really_answered(items: list[dict[str, Any]]) -> set[Any]:
    dialect = new_dialect("openai-responses")
    return {
        part.id
        for message in dialect.read(items)
        for part in message.parts
        if part.kind == RESULT and not dialect.is_placeholder(part)
    }
