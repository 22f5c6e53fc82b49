"""What is wrong with the lines of a Codex rollout, before their items are looked at.

Mending a Codex rollout: its lines, then its items.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import structs

from lockstitch.conversation.parts import RESULT
from lockstitch.dialects import OPENAI_RESPONSES
from lockstitch.dialects.registry import new_dialect
from lockstitch.formats.codex.thread import (
    COMPACTED,
    ITEM,
    META,
    CodexThread,
    id_in,
    is_read,
    misspelled,
    opening,
    payload_of,
    rebuilt,
    spelled,
)
from lockstitch.formats.history import SourcedMessage
from lockstitch.repair.draft import Ledger
from lockstitch.rules import ERROR, RULES, Finding
from lockstitch.sources.interface import Transcript, new_finding
from lockstitch.sources.records import Record, amend_record, encode_record, new_record
from lockstitch.sources.write_back import place_messages, value_at

_HEAD_HELP = (
    "repair moves the head to the start of the file, or rebuilds it from what is left of it, "
    "the name of the file and its lines"
)


def store_findings(thread: CodexThread, transcript: Transcript) -> Iterator[Finding]:
    """Find everything that is wrong with the lines."""
    records = thread.records
    yield from _heading(thread, transcript)
    for number, first in repeats(records):
        text = f"repeats the record of line {records[first].place}"
        yield new_finding("LS607", records[number].place, text)
    for number in skipped(records):
        text = "has no time, or an ordinal that is not a number: Codex skips it"
        yield new_finding("LS610", records[number].place, text, ERROR)
    for number, record in enumerate(records):
        if number >= thread.start and record.is_record and misspelled(record.value):
            text = "Codex cannot read an item of this record, and skips the record"
            yield new_finding("LS610", record.place, text, ERROR)
    yield from _cut_off(thread, transcript)
    yield from _misnumbered(thread)
    yield from _stranded(thread, transcript)


def _heading(thread: CodexThread, transcript: Transcript) -> Iterator[Finding]:
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
    found = new_finding("LS610", record.place, text, ERROR, fixable=fixable)
    yield structs.replace(found, help=_HEAD_HELP) if fixable else found


def misplaced(thread: CodexThread) -> int:
    """Return the record that stands where the head must be, -1 if nothing is wrong there."""
    number = opening(thread.records)
    envelopes = any("payload" in r.value for r in thread.records if r.is_record)
    return number if envelopes and number not in thread.metas else -1


def own_meta(thread: CodexThread, name: str) -> int:
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
        first = seen.setdefault(encode_record(record.value), number)
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


def _cut_off(thread: CodexThread, transcript: Transcript) -> Iterator[Finding]:
    if thread.hidden:
        turns = f"{transcript.left} turn{'s' * (transcript.left != 1)}"
        text = (
            "a second session_meta hides all that is before it: "
            f"resuming will silently drop {turns} ({transcript.left_size} bytes)"
        )
        place = thread.records[thread.start].place
        yield new_finding("LS704", place, text, fixable=bool(spare_metas(thread)))


def spare_metas(thread: CodexThread) -> list[int]:
    """Give the session_meta lines that only repeat that of the session itself."""
    own = thread.meta.get("id")
    return [
        number
        for number in thread.metas[1:]
        if thread.hidden and payload_of(thread.records[number].value).get("id") == own
    ]


def numbering(thread: CodexThread) -> dict[int, int]:
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


def _misnumbered(thread: CodexThread) -> Iterator[Finding]:
    wrong = numbering(thread)
    if not wrong:
        return
    last = max(n for n, r in enumerate(thread.records) if r.is_record)
    ends_bare = type(thread.records[last].value.get("ordinal")) is not int
    text = f"{len(wrong)} ordinals from here on are missing, repeated or skipped"
    if ends_bare:
        text += ", and Codex refuses a file whose last line has none"
    place = thread.records[min(wrong)].place
    yield new_finding("LS610", place, text, ERROR if ends_bare else "")


def _stranded(thread: CodexThread, transcript: Transcript) -> Iterator[Finding]:
    """Find calls without a real output whose output an event holds."""
    if not transcript.evidence:
        return
    real = _really_answered(thread.items)
    for item, home in zip(thread.items, thread.homes, strict=True):
        call = str(item.get("call_id"))
        if call in transcript.evidence and call not in real:
            real.add(call)
            text = f"the output of call {call} is only in an event"
            yield new_finding("LS708", thread.records[home.number].place, text)


def _really_answered(items: list[dict[str, Any]]) -> set[Any]:
    dialect = new_dialect(OPENAI_RESPONSES)
    return {
        part.id
        for message in dialect.read(items)
        for part in message.parts
        if part.kind == RESULT and not dialect.is_placeholder(part)
    }


def repair_tree(transcript: Transcript, ledger: Ledger) -> list[Record]:
    """Mend one kind of trouble with the lines; the same records if there is none."""
    round_ = _CodexRepair(transcript, ledger)
    for step in (
        round_.drop_repeats,
        round_.give_times,
        round_.spell,
        round_.drop_spare_metas,
        round_.put_meta_first,
        round_.number_anew,
    ):
        mended = step()
        if mended is not None:
            return mended
    return list(transcript.records)


class _CodexRepair:
    """One round of repairs; each step gives the new records, or None if it had nothing to do."""

    def __init__(self, transcript: Transcript, ledger: Ledger) -> None:
        self.thread: CodexThread = transcript.state
        self.records = self.thread.records
        self.data = transcript.context.data
        self.name = transcript.context.name
        self.ledger = ledger

    def _note(self, code: str, action: str, number: int, text: str) -> None:
        self.ledger.note(RULES[code], action, self.records[number].place, text)

    def _without(self, gone: Iterable[int]) -> list[Record]:
        taken = set(gone)
        return [record for number, record in enumerate(self.records) if number not in taken]

    def drop_repeats(self) -> list[Record] | None:
        gone = [number for number, _ in repeats(self.records)]
        for number in gone:
            self._note("LS607", "removed", number, "the same record comes before it in the file")
        return self._without(gone) if gone else None

    def give_times(self) -> list[Record] | None:
        """Give records that the program skips the time of their neighbour, and no odd ordinal."""
        wrong = set(skipped(self.records))
        time = next((_time(record) for record in self.records if _time(record)), None)
        if not wrong or time is None:
            return None
        out: list[Record] = []
        for number, record in enumerate(self.records):
            time = _time(record) or time
            out.append(self._timed(record, time) if number in wrong else record)
            if number in wrong:
                self._note("LS610", "rewritten", number, "got the time of its neighbour")
        return out

    def _timed(self, record: Record, time: str) -> Record:
        if not _time(record):
            record = amend_record(self.data, record, ("timestamp",), time)
        if type(record.value.get("ordinal", 0)) is not int:
            record = amend_record(self.data, record, ("ordinal",), None)
        return record

    def spell(self) -> list[Record] | None:
        """Spell items so that the program reads them."""
        out = list(self.records)
        for number, record in enumerate(self.records):
            for path in misspelled(record.value) if record.is_record else ():
                item = spelled(value_at(record.value, path))
                out[number] = amend_record(self.data, out[number], path, item)
                self._note("LS610", "rewritten", number, "an item is spelled as Codex reads it")
        return out if any(a is not b for a, b in zip(out, self.records, strict=True)) else None

    def drop_spare_metas(self) -> list[Record] | None:
        gone = spare_metas(self.thread)
        for number in gone:
            text = "a second session_meta was taken out, so that all before it is read again"
            self._note("LS704", "removed", number, text)
            record = self.records[number]
            self.ledger.set_aside(RULES["LS704"], record.place, record.value)
        return self._without(gone) if gone else None

    def put_meta_first(self) -> list[Record] | None:
        """Put the session's own data in front: moved there, or written anew."""
        number = misplaced(self.thread)
        if number < 0:
            return None
        own = own_meta(self.thread, self.name)
        if own >= 0:
            self._note("LS610", "moved", own, "session_meta was moved to the start of the file")
            return [self.records[own], *self._without([own])]
        made = rebuilt(self.records, self.data, self.name)
        if made is None:
            return None
        self._note("LS610", "inserted", number, "session_meta was rebuilt")
        old = self.records[number]
        is_head = old.is_record and old.value.get("type") == META
        if is_head:
            self.ledger.set_aside(RULES["LS610"], old.place, old.value)
        return [new_record("", made), *self._without([number] if is_head else [])]

    def number_anew(self) -> list[Record] | None:
        wrong = numbering(self.thread)
        if not wrong:
            return None
        text = f"{len(wrong)} ordinals were renumbered"
        self._note("LS610", "rewritten", min(wrong), text)
        return renumbered(self.thread, self.data)


def _time(record: Record) -> str | None:
    time = record.value.get("timestamp") if record.is_record else None
    return time if type(time) is str else None


def renumbered(thread: CodexThread, data: bytes) -> list[Record]:
    """Give the records of a thread with ordinals that count on."""
    wrong = numbering(thread)
    return [
        amend_record(data, record, ("ordinal",), wrong[number]) if number in wrong else record
        for number, record in enumerate(thread.records)
    ]


def write_back(transcript: Transcript, strands: Sequence[SourcedMessage]) -> list[Record]:
    """Give the lines of the file whose items are the healed ones."""
    thread: CodexThread = transcript.state
    laid = [
        SourcedMessage(spelled(strand.message), strand.origin, strand.parts) for strand in strands
    ]
    records = place_messages(transcript, thread.homes, laid, _line)
    return renumbered(CodexThread(records), transcript.context.data)


def _line(item: Any, near: Record) -> Record:
    """Make the line of a new item, with the time of its neighbour."""
    value = near.value
    if "payload" not in value:
        return new_record("", item)
    ordinal = {"ordinal": value["ordinal"]} if "ordinal" in value else {}
    time = {"timestamp": value.get("timestamp")}
    return new_record("", {**time, **ordinal, "type": ITEM, "payload": item})
