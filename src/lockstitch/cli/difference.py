"""The lines of a session that a repair changes, for a person to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstitch.cli import terminal, text
from lockstitch.sessions.differing import differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch.formats.doctor import Mended

_WIDTH = 400
_CONTEXT = 80


def difference(mended: Mended, name: str) -> Iterator[str]:
    """Give the difference record by record: ``-`` as it is, ``+`` as it will be."""
    if not mended.changed:
        return
    yield terminal.paint(f"--- {text.shown(name)}", "bold")
    yield terminal.paint(f"+++ {text.shown(name)} (repaired)", "bold")
    for one in differences(mended):
        where = terminal.harmless(one.place)
        head = f"@@ {where} @@" if one.before is not None else f"@@ behind {where} @@"
        yield terminal.paint(head, "cyan")
        before, after = one.before or "", one.after or ""
        at = 0 if one.before is None else _first_difference(before, after)
        if one.before is not None:
            yield _line("-", _cut(before, at))
        if one.after is not None:
            yield _line("+", _cut(after, at))


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
