"""Mending a Codex rollout: its lines, then its items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lockstitch.formats.base import Transcript
from lockstitch.formats.codex_findings import (
    misplaced,
    numbering,
    own_meta,
    repeats,
    skipped,
    spare_metas,
)
from lockstitch.formats.codex_head import META, rebuilt
from lockstitch.formats.codex_items import spelled
from lockstitch.formats.codex_thread import ITEM, Thread, misspelled
from lockstitch.formats.history import SourcedMessage
from lockstitch.formats.records import Record, amended, new_record
from lockstitch.formats.slots import lay, value_at
from lockstitch.repair.draft import Ledger
from lockstitch.rules import RULES


def straighten(transcript: Transcript, ledger: Ledger) -> list[Record]:
    """Mend one kind of trouble with the lines; the same records if there is none."""
    round_ = _Round(transcript, ledger)
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


class _Round:
    """One round of repairs; each step gives the new records, or None if it had nothing to do."""

    def __init__(self, transcript: Transcript, ledger: Ledger) -> None:
        self.thread: Thread = transcript.state
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
            record = amended(self.data, record, ("timestamp",), time)
        if type(record.value.get("ordinal", 0)) is not int:
            record = amended(self.data, record, ("ordinal",), None)
        return record

    def spell(self) -> list[Record] | None:
        """Spell items so that the program reads them."""
        out = list(self.records)
        for number, record in enumerate(self.records):
            for path in misspelled(record.value) if record.is_record else ():
                item = spelled(value_at(record.value, path))
                out[number] = amended(self.data, out[number], path, item)
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


def renumbered(thread: Thread, data: bytes) -> list[Record]:
    """Give the records of a thread with ordinals that count on."""
    wrong = numbering(thread)
    return [
        amended(data, record, ("ordinal",), wrong[number]) if number in wrong else record
        for number, record in enumerate(thread.records)
    ]


def stitch(transcript: Transcript, strands: Sequence[SourcedMessage]) -> list[Record]:
    """Give the lines of the file whose items are the healed ones."""
    thread: Thread = transcript.state
    laid = [
        SourcedMessage(spelled(strand.message), strand.origin, strand.parts) for strand in strands
    ]
    records = lay(transcript, thread.homes, laid, _line)
    return renumbered(Thread(records), transcript.context.data)


def _line(item: Any, near: Record) -> Record:
    """Make the line of a new item, with the time of its neighbour."""
    value = near.value
    if "payload" not in value:
        return new_record("", item)
    ordinal = {"ordinal": value["ordinal"]} if "ordinal" in value else {}
    time = {"timestamp": value.get("timestamp")}
    return new_record("", {**time, **ordinal, "type": ITEM, "payload": item})
