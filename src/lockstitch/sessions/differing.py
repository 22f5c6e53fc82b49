"""What a repair changes of a store, record by record: as it is, and as it will be."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from lockstitch.formats.base import Transcript
from lockstitch.formats.doctor import Mended
from lockstitch.formats.records import Record, encode, raw_of
from lockstitch.repair.edits import diff


class Difference(Struct, frozen=True):
    """One record that changes; ``before`` is None for a new one, ``after`` for one that goes.

    ``place`` is where the record stands, or for a new one where that stands which it follows;
    ``inner`` are the places in it of the values that change.
    """

    place: str
    before: str | None
    after: str | None
    inner: tuple[str, ...] = ()


def differences(mended: Mended) -> Iterator[Difference]:
    """Return the records that a repair changes and takes out, then those that it adds."""
    if not mended.changed:
        return
    after = {record.start: record for record in mended.after.records if not record.is_new}
    place = "0"
    for record in mended.before.records:
        new = after.get(record.start)
        if new is None or new.fresh is not record.fresh:
            changed = None if new is None else _text(mended.before, new)
            inner = () if new is None else _inner(record, new)
            yield Difference(record.place, _text(mended.before, record), changed, inner)
    for record in mended.after.records:
        if record.is_new:
            yield Difference(place, None, _text(mended.after, record))
        else:
            place = record.place or place


def _inner(old: Record, new: Record) -> tuple[str, ...]:
    if type(old.value) is not dict or type(new.value) is not dict:
        return ()
    return tuple(edit.place for edit in diff(old.value, new.value))


def _text(transcript: Transcript, record: Record) -> str:
    stored = getattr(record, "text", None)
    if type(stored) is str:
        return stored
    data = transcript.context.data
    raw = raw_of(data, record) if data or record.fresh else encode(record.value)
    return raw.decode("utf-8", "backslashreplace")
