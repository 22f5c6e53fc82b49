"""Mending a Codex rollout: its lines, then its items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lockstitch.formats.base import Transcript
from lockstitch.formats.codex_findings import (
    first_record,
    numbering,
    repeats,
    skipped,
    spare_metas,
)
from lockstitch.formats.codex_thread import ITEM, Thread
from lockstitch.formats.history import Strand
from lockstitch.formats.records import Record, amended, new_record
from lockstitch.formats.slots import lay
from lockstitch.repair.ledger import Ledger
from lockstitch.rules import RULES


def straighten(transcript: Transcript, ledger: Ledger) -> list[Record]:
    """Mend one kind of trouble with the lines; the same records if there is none."""
    thread: Thread = transcript.state
    records = list(transcript.records)
    for step in (_without_repeats, _timed, _without_spare_metas, _headed, _numbered):
        mended = step(thread, transcript.context.data, ledger)
        if mended is not None:
            return mended
    return records


def _without(thread: Thread, gone: Iterable[int]) -> list[Record]:
    taken = set(gone)
    return [record for number, record in enumerate(thread.records) if number not in taken]


def _without_repeats(thread: Thread, data: bytes, ledger: Ledger) -> list[Record] | None:
    gone = [number for number, _ in repeats(thread.records)]
    for number in gone:
        text = "the same record stands before it in the file"
        ledger.note(RULES["LS607"], "removed", thread.records[number].place, text)
    return _without(thread, gone) if gone else None


def _timed(thread: Thread, data: bytes, ledger: Ledger) -> list[Record] | None:
    """Give records that the program skips the time of their neighbour, and no odd ordinal."""
    wrong = set(skipped(thread.records))
    time = next((_time(r) for r in thread.records if _time(r)), None)
    if not wrong or time is None:
        return None
    records: list[Record] = []
    for number, record in enumerate(thread.records):
        time = _time(record) or time
        if number not in wrong:
            records.append(record)
            continue
        fields: dict[str, Any] = {} if _time(record) else {"timestamp": time}
        if type(record.value.get("ordinal")) is not int and "ordinal" in record.value:
            fields["ordinal"] = None
        fresh = record
        for key, value in fields.items():
            fresh = amended(data, fresh, (key,), value)
        records.append(fresh)
        ledger.note(RULES["LS610"], "rewritten", record.place, "got the time of its neighbour")
    return records


def _time(record: Record) -> str | None:
    time = record.value.get("timestamp") if record.is_record else None
    return time if type(time) is str else None


def _without_spare_metas(thread: Thread, data: bytes, ledger: Ledger) -> list[Record] | None:
    gone = spare_metas(thread)
    for number in gone:
        record = thread.records[number]
        text = "a second session_meta was taken out, so that all before it is read again"
        ledger.note(RULES["LS704"], "removed", record.place, text)
        ledger.set_aside(RULES["LS704"], record.place, record.value)
    return _without(thread, gone) if gone else None


def _headed(thread: Thread, data: bytes, ledger: Ledger) -> list[Record] | None:
    """Move the session's own data to the front, if they are in the file just once."""
    if len(thread.metas) != 1 or thread.metas[0] == first_record(thread.records):
        return None
    meta = thread.records[thread.metas[0]]
    text = "session_meta was moved to the start of the file"
    ledger.note(RULES["LS610"], "moved", meta.place, text)
    return [meta, *_without(thread, thread.metas)]


def _numbered(thread: Thread, data: bytes, ledger: Ledger) -> list[Record] | None:
    wrong = numbering(thread)
    if not wrong:
        return None
    place = thread.records[min(wrong)].place
    text = f"{len(wrong)} ordinals were numbered anew"
    ledger.note(RULES["LS610"], "rewritten", place, text)
    return _renumbered(thread, data)


def _renumbered(thread: Thread, data: bytes) -> list[Record]:
    wrong = numbering(thread)
    return [
        amended(data, record, ("ordinal",), wrong[number]) if number in wrong else record
        for number, record in enumerate(thread.records)
    ]


def stitch(transcript: Transcript, strands: Sequence[Strand]) -> list[Record]:
    """Give the lines of the file whose items are the healed ones."""
    thread: Thread = transcript.state
    spelled = [Strand(_spelled(strand.message), strand.origin, strand.parts) for strand in strands]
    records = lay(transcript, thread.homes, spelled, _line)
    return _renumbered(Thread(records), transcript.context.data)


def _spelled(item: dict[str, Any]) -> dict[str, Any]:
    """Spell an item as Codex does: it knows one kind of output for functions and shells."""
    if item.get("type") != "local_shell_call_output":
        return item
    fields = {"call_id": item.get("call_id"), "output": item.get("output")}
    return {"type": "function_call_output", **fields}


def _line(item: Any, near: Record) -> Record:
    """Make the line of a new item, with the time of its neighbour."""
    value = near.value
    if "payload" not in value:
        return new_record("", item)
    ordinal = {"ordinal": value["ordinal"]} if "ordinal" in value else {}
    time = {"timestamp": value.get("timestamp")}
    return new_record("", {**time, **ordinal, "type": ITEM, "payload": item})
