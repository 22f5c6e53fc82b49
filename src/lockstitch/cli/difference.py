"""The lines of a session that a repair changes, with the changed value marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstitch.cli import terminal, text
from lockstitch.cli.rows import cells, rows
from lockstitch.formats.records import encode, raw_of
from lockstitch.repair.edits import diff

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch.formats.base import Transcript
    from lockstitch.formats.doctor import Mended
    from lockstitch.formats.records import Record

# What is shown of a value, and of the line on both sides of it.
_WIDTH = 400
_CONTEXT = 60
_MOST_PLACES = 3
# Where a value in JSON begins or ends.
_EDGES = frozenset('":,{}[]')
_STYLES = {"-": "red", "+": "green", "@": "cyan", "^": "yellow", "=": "bold"}


def difference(mended: Mended, name: str, width: int | None = None) -> Iterator[str]:
    """Give the difference record by record: ``-`` as it is, ``+`` as it will be, ``^`` the value.

    Lines that are wider than ``width`` go on in the next one.
    """
    context = _CONTEXT if width is None else max(min(_CONTEXT, width // 4), 4)
    for sign, line in _lines(mended, name, context):
        safe = terminal.harmless(line)
        for row in [safe] if width is None else rows(safe, width, None):
            yield terminal.paint(row, _STYLES[sign])


def _lines(mended: Mended, name: str, context: int) -> Iterator[tuple[str, str]]:
    if not mended.changed:
        return
    yield "=", f"--- {text.shown(name)}"
    yield "=", f"+++ {text.shown(name)} (repaired)"
    after = {record.start: record for record in mended.after.records if not record.is_new}
    place = "0"
    for record in mended.before.records:
        if record.start not in after or after[record.start].fresh is not record.fresh:
            yield from _changed(mended.before, record, after.get(record.start), context)
    for record in mended.after.records:
        if record.is_new:
            yield "@", f"@@ new, after {place} @@"
            yield "+", f"+{_cut(_shown(mended.after, record))}"
        else:
            place = record.place or place


def _changed(
    transcript: Transcript, old: Record, new: Record | None, context: int
) -> Iterator[tuple[str, str]]:
    before = _shown(transcript, old)
    if new is None:
        yield "@", f"@@ {old.place}, removed @@"
        yield "-", f"-{_cut(before)}"
        return
    yield "@", f"@@ {old.place}{_places(old, new)} @@"
    after = _shown(transcript, new)
    start, end = _common(before, after)
    left = terminal.harmless(f"{'…' * (start > context)}{before[max(start - context, 0) : start]}")
    right = after[len(after) - end :][:context] + "…" * (end > context)
    was, will = (_cut(one[start : len(one) - end]) for one in (before, after))
    yield "-", f"-{left}{was}{right}"
    yield "+", f"+{left}{will}{right}"
    marked = max(cells(terminal.harmless(will)), 1)
    yield "^", f"{' ' * (1 + cells(left))}{'^' * marked}"


def _places(old: Record, new: Record) -> str:
    """Return where in a record the values that change are."""
    if type(old.value) is not dict or type(new.value) is not dict:
        return ""
    places = [edit.place for edit in diff(old.value, new.value)]
    more = ", …" if len(places) > _MOST_PLACES else ""
    return f": {', '.join(places[:_MOST_PLACES])}{more}" if places else ""


def _shown(transcript: Transcript, record: Record) -> str:
    stored = getattr(record, "text", None)
    if type(stored) is str:
        return stored
    data = transcript.context.data
    raw = raw_of(data, record) if data or record.fresh else encode(record.value)
    return raw.decode("utf-8", "backslashreplace")


def _common(before: str, after: str) -> tuple[int, int]:
    """Return how many characters two lines have in common at their beginning and at their end."""
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and before[start] == after[start]:
        start += 1
    end = 0
    while end < shorter - start and before[-1 - end] == after[-1 - end]:
        end += 1
    # the whole value, not only the characters of it that differ
    while start and before[start - 1] not in _EDGES:
        start -= 1
    while end and before[len(before) - end] not in _EDGES:
        end -= 1
    return start, end


def _cut(value: str) -> str:
    return value if len(value) <= _WIDTH else f"{value[:_WIDTH]}…"
