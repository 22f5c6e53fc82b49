"""A session written anew from what can be read of it: the same records under the same numbers.

Where a record is lost, a note stands in its place and keeps what is left of it: facts name others
by their number, so every number has to stay. Nothing is made up: words and results whose large
value is gone say so, and a reply whose content is gone is a note, too, since nobody knows what it
asked for.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from lockstitch.journal.events import Finished, Noted, Said, entry_of, event_of, text_payload
from lockstitch.journal.records import Entry, Record, blob_name
from lockstitch.journal.salvage import Salvage, Salvaged

# The names of the notes that stand in the place of records.
DAMAGED = "damaged-record"
MISSING = "missing-record"
_LOST = {
    Said: "[A message of the user stood here; it was lost when the store was damaged.]",
    Finished: "[The result of this call was lost when the store was damaged.]",
}


class _Large(Struct):
    blobs: tuple[str, ...] = ()


def large_names(record: Record) -> tuple[str, ...]:
    """Return the names of the large values that a record names."""
    if b'"blobs":' in record.body:
        # The records of others, as those of a LangGraph thread are, list theirs under this name.
        with suppress(msgspec.MsgspecError):
            names = msgspec.json.decode(record.body, type=_Large).blobs
            if names:
                return names
    blob = event_of(record).blob if b'"blob":' in record.body else ""
    return (blob,) if blob else ()


def rebuilt(salvage: Salvage, blobs: Mapping[str, bytes]) -> list[Entry]:
    """Make the entries of a session anew; ``blobs`` are the large values that are there.

    A large value that is not among them is lost.
    """
    entries: list[Entry] = []
    at = 0
    last = salvage.records[-1] if salvage.records else None
    for one in salvage.records:
        if one.is_readable and one.record is not None:
            entries.append(_kept(one.record, blobs))
            at = one.record.at
            continue
        # Numbers behind the last record are named by nobody: one note stands for all.
        count = 1 if one is last else one.count
        entries += [_note(one, one.seq + number, at) for number in range(count)]
    return entries


def _kept(record: Record, blobs: Mapping[str, bytes]) -> Entry:
    names = large_names(record)
    if all(name in blobs for name in names):
        values = tuple(blobs[name] for name in names)
        return Entry(record.key, record.at, record.body, values)
    event = event_of(record)
    if isinstance(event, Said | Finished):
        words = text_payload(_LOST[type(event)])
        return entry_of(structs.replace(event, payload=words, blob=""), record.key, record.at)
    if isinstance(event, Noted):
        return entry_of(structs.replace(event, blob=""), record.key, record.at)
    why = f"its large value {event.blob} is gone" if event.blob else "its large values are gone"
    return _note(Salvaged(record.seq, "damaged", record, why=why), record.seq, record.at)


def _note(one: Salvaged, seq: int, at: int) -> Entry:
    """Make the note that keeps what is left of a record."""
    left: dict[str, Any] = {"why": one.why}
    raw = one.raw
    if one.record is not None:
        record = one.record
        about = {"epoch": record.epoch, "at": record.at, "key": record.key}
        left |= {**about, "digest": record.digest.hex()}
        raw = record.body
    if one.proof == "missing":
        left["count"] = one.count
    else:
        left |= _shown(raw)
    name = MISSING if one.proof == "missing" else DAMAGED
    label = f"record {seq}" if seq else "left over"
    event = Noted(name=name, label=label, payload=Raw(msgspec.json.encode(left)))
    # Pieces that have no number are told apart by what they are.
    return entry_of(event, f"{name}-{seq or blob_name(raw)}", at)


def _shown(raw: bytes) -> dict[str, str]:
    try:
        return {"body": raw.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": b64encode(raw).decode("ascii")}


def names_in(records: Iterable[Record]) -> dict[str, list[int]]:
    """Return the large values that records name, each with the numbers of those records."""
    found: dict[str, list[int]] = {}
    for record in records:
        for name in large_names(record):
            found.setdefault(name, []).append(record.seq)
    return found
