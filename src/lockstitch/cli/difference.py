"""The lines of a session that a repair changes, for a person to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstitch.cli import terminal, text
from lockstitch.formats.records import encode, raw_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch.formats.base import Transcript
    from lockstitch.formats.doctor import Mended
    from lockstitch.formats.records import Record

_WIDTH = 400
_CONTEXT = 80


def difference(mended: Mended, name: str) -> Iterator[str]:
    """Give the difference record by record: ``-`` as it is, ``+`` as it will be."""
    if not mended.changed:
        return
    yield terminal.paint(f"--- {text.shown(name)}", "bold")
    yield terminal.paint(f"+++ {text.shown(name)} (repaired)", "bold")
    after = {record.start: record for record in mended.after.records if not record.is_new}
    place = "0"
    for record in mended.before.records:
        if record.start not in after or after[record.start].fresh is not record.fresh:
            yield from _changed(mended.before, record, after.get(record.start))
    for record in mended.after.records:
        if record.is_new:
            yield terminal.paint(f"@@ behind {terminal.harmless(place)} @@", "cyan")
            yield _line("+", _shown(mended.after, record))
        else:
            place = record.place or place


def _changed(transcript: Transcript, old: Record, new: Record | None) -> Iterator[str]:
    yield terminal.paint(f"@@ {terminal.harmless(old.place)} @@", "cyan")
    before = _shown(transcript, old)
    after = "" if new is None else _shown(transcript, new)
    at = _first_difference(before, after)
    yield _line("-", _cut(before, at))
    if new is not None:
        yield _line("+", _cut(after, at))


def _shown(transcript: Transcript, record: Record) -> str:
    stored = getattr(record, "text", None)
    if type(stored) is str:
        return stored
    data = transcript.context.data
    raw = raw_of(data, record) if data or record.fresh else encode(record.value)
    return raw.decode("utf-8", "backslashreplace")


def _first_difference(before: str, after: str) -> int:
    for place, (one, other) in enumerate(zip(before, after, strict=False)):
        if one != other:
            return place
    return 0


def _cut(line: str, at: int) -> str:
    """Give what matters of a long line: the stretch around the first difference."""
    start = max(at - _CONTEXT, 0)
    stretch = line[start : start + _WIDTH]
    left = "…" if start else ""
    return f"{left}{stretch}{'…' if start + _WIDTH < len(line) else ''}"


def _line(sign: str, line: str) -> str:
    style = "green" if sign == "+" else "red"
    return terminal.paint(f"{sign}{terminal.harmless(_cut(line, 0))}", style)
