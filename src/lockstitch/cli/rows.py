"""Any text as rows of a terminal: split, harmless, wrapped, and cut where it is too long."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING
from unicodedata import category, east_asian_width

from lockstitch.cli.terminal import harmless
from lockstitch.measures import several as several  # noqa: PLC0414 - asked for here, too
from lockstitch.measures import size as size  # noqa: PLC0414 - as above

if TYPE_CHECKING:
    from collections.abc import Iterator

_TAB = 4


def line_count(text: str) -> int:
    """How many lines a text has; a newline at the end starts none."""
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def rows(
    text: str, width: int, limit: int | None, *, prose: bool = False, more: str = "…"
) -> Iterator[str]:
    """Give a text row by row, without ever taking more of it than is shown.

    After ``limit`` rows (None: never) one more says how much is left. ``prose`` is wrapped between
    words, anything else where the row ends.
    """
    text = text.rstrip("\r\n")
    shown = start = 0
    while start <= len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        left = None if limit is None else limit - shown
        taken = end if left is None else min(end, start + (left + 1) * width)
        for row in _wrapped(_clean(text[start:taken]), width, prose=prose):
            if shown == limit:
                yield _left_over(text, start, end, more)
                return
            yield row
            shown += 1
        start = end + 1


def _left_over(text: str, start: int, end: int, more: str) -> str:
    lines = text.count("\n", start) + 1
    if lines == 1:
        return f"{more} {size(end - start)} in this line"
    return f"{more} {several(lines, 'more line')}"


def _clean(line: str) -> str:
    return harmless(line.removesuffix("\r").expandtabs(_TAB))


def _wrapped(line: str, width: int, *, prose: bool) -> Iterator[str]:
    """Give the rows of one harmless line."""
    start, is_plain = 0, line.isascii()
    while True:
        end = _fitting(line, start, width, is_plain=is_plain)
        if end >= len(line):
            yield line[start:]
            return
        space = line.rfind(" ", start + 1, end + 1) if prose else -1
        if space > start + width // 2:
            yield line[start:space]
            start = space + 1
        else:
            yield line[start:end]
            start = end


def _fitting(line: str, start: int, width: int, *, is_plain: bool) -> int:
    """Give the end of what fits into a row, at least one character."""
    if is_plain:
        return start + width
    end, used = start, 0
    while end < len(line):
        used += _cells(line[end])
        if used > width:
            break
        end += 1
    return max(end, start + 1)


@lru_cache(4096)
def _cells(char: str) -> int:
    if category(char) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(char) in ("W", "F") else 1


def fitted(text: str, width: int, more: str = "…") -> str:
    """Return a harmless line cut to a width of the terminal, with a mark where it was cut."""
    line = harmless(text.expandtabs(_TAB))
    is_plain = line.isascii()
    if width <= 0 or _fitting(line, 0, width, is_plain=is_plain) >= len(line):
        return line if width > 0 else ""
    end = _fitting(line, 0, max(width - len(more), 1), is_plain=is_plain)
    return f"{line[:end]}{more}" if width > len(more) else line[:end]


def cells(text: str) -> int:
    """Return how many columns of the terminal a line takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))
