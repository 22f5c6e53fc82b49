"""What is wrong with the lines of a Codex rollout, before their items are looked at.

Mending a Codex rollout: its lines, then its items.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from lockstitch.repair.draft import Ledger
from lockstitch.rules import ERROR, RULES, Finding
from lockstitch.sources.interface import SourcedMessage, Transcript, new_finding
from lockstitch.sources.records import Record, amend_record, as_str, encode_record, new_record
from lockstitch.sources.write_back import TreeRepair, place_messages, value_at

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
    """Return items that are on disk twice, equal in everything, with the number of the first."""
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
    """Return the records that are whole but that the program does not read."""
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
    """Return the session_meta lines that only repeat that of the session itself."""
    own = thread.meta.get("id")
    return [
        number
        for number in thread.metas[1:]
        if thread.hidden and payload_of(thread.records[number].value).get("id") == own
    ]


def numbering(thread: CodexThread) -> dict[int, int]:
    """Return the ordinals that records of a paginated file should have, where they do not."""
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
    """Repair one kind of trouble with the lines; the same records if there is none."""
    repair = _CodexRepair(transcript, ledger)
    return repair.run(
        [
            repair.drop_repeats,
            repair.give_times,
            repair.spell,
            repair.drop_spare_metas,
            repair.put_meta_first,
            repair.number_anew,
        ]
    )


class _CodexRepair(TreeRepair):
    """One round of repairs on the lines of a rollout."""

    def __init__(self, transcript: Transcript, ledger: Ledger) -> None:
        super().__init__(transcript, ledger)
        self.thread: CodexThread = transcript.state
        self.name = transcript.context.name

    def drop_repeats(self) -> None:
        """Keep the first of equal records."""
        for number, _ in repeats(self.records):
            self.gone.add(number)
            self.note("LS607", "removed", number, "the same record comes before it in the file")

    def give_times(self) -> None:
        """Set the time of records that the program skips to a neighbour's; drop odd ordinals."""
        wrong = set(skipped(self.records))
        times = [as_str(r.value.get("timestamp")) if r.is_record else None for r in self.records]
        last = next(filter(None, times), None)
        if last is None:
            return
        for number, time in enumerate(times):
            last = time or last
            if number not in wrong:
                continue
            if not time:
                self.set(number, ("timestamp",), last)
            if type(self.records[number].value.get("ordinal", 0)) is not int:
                self.set(number, ("ordinal",), None)
            self.note("LS610", "rewritten", number, "got the time of its neighbour")

    def spell(self) -> None:
        """Spell items so that the program reads them."""
        for number, record in enumerate(self.records):
            for path in misspelled(record.value) if record.is_record else ():
                self.set(number, path, spelled(value_at(record.value, path)))
                self.note("LS610", "rewritten", number, "an item is spelled as Codex reads it")

    def drop_spare_metas(self) -> None:
        """Take out what repeats the session's own data and hides what stands before it."""
        for number in spare_metas(self.thread):
            text = "a second session_meta was taken out, so that all before it is read again"
            self.remove("LS704", number, text, self.records[number].value)

    def put_meta_first(self) -> None:
        """Put the session's own data in front: moved there, or written anew."""
        number = misplaced(self.thread)
        if number < 0:
            return
        own = own_meta(self.thread, self.name)
        if own >= 0:
            self.note("LS610", "moved", own, "session_meta was moved to the start of the file")
            self.put_first(own)
            return
        made = rebuilt(self.records, self.data, self.name)
        if made is None:
            return
        self.note("LS610", "inserted", number, "session_meta was rebuilt")
        self.head = [new_record("", made)]
        old = self.records[number]
        if old.is_record and old.value.get("type") == META:
            self.ledger.set_aside(RULES["LS610"], old.place, old.value)
            self.gone.add(number)

    def number_anew(self) -> None:
        """Renumber the records of a paginated file so that their ordinals count on."""
        wrong = numbering(self.thread)
        if wrong:
            text = f"{len(wrong)} ordinals were renumbered"
            self.note("LS610", "rewritten", min(wrong), text)
        for number, ordinal in wrong.items():
            self.set(number, ("ordinal",), ordinal)


def renumbered(thread: CodexThread, data: bytes) -> list[Record]:
    """Return the records of a thread with ordinals that count on."""
    wrong = numbering(thread)
    return [
        amend_record(data, record, ("ordinal",), wrong[number]) if number in wrong else record
        for number, record in enumerate(thread.records)
    ]


def write_back(transcript: Transcript, repaired: Sequence[SourcedMessage]) -> list[Record]:
    """Return the lines of the file whose items are the healed ones."""
    thread: CodexThread = transcript.state
    laid = [
        SourcedMessage(spelled(sourced.message), sourced.origin, sourced.parts)
        for sourced in repaired
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
