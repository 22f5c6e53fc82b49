"""The lines of a session that a repair changes, with the changed value marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstitch.cli import terminal, text
from lockstitch.cli.rows import cells, rows
from lockstitch.sessions.differing import differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch.formats.doctor import Mended

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
    for one in differences(mended):
        if one.before is None:
            yield "@", f"@@ new, after {one.place} @@"
            yield "+", f"+{_cut(str(one.after))}"
        elif one.after is None:
            yield "@", f"@@ {one.place}, removed @@"
            yield "-", f"-{_cut(one.before)}"
        else:
            yield "@", f"@@ {one.place}{_places(one.inner)} @@"
            yield from _changed(one.before, one.after, context)


def _changed(before: str, after: str, context: int) -> Iterator[tuple[str, str]]:
    start, end = _common(before, after)
    left = terminal.harmless(f"{'…' * (start > context)}{before[max(start - context, 0) : start]}")
    right = after[len(after) - end :][:context] + "…" * (end > context)
    was, will = (_cut(one[start : len(one) - end]) for one in (before, after))
    yield "-", f"-{left}{was}{right}"
    yield "+", f"+{left}{will}{right}"
    marked = max(cells(terminal.harmless(will)), 1)
    yield "^", f"{' ' * (1 + cells(left))}{'^' * marked}"


def _places(inner: tuple[str, ...]) -> str:
    """Return where in a record the values that change are."""
    more = ", …" if len(inner) > _MOST_PLACES else ""
    return f": {', '.join(inner[:_MOST_PLACES])}{more}" if inner else ""


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
