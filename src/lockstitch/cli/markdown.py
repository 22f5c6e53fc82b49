"""Our own pages of Markdown as a terminal shows them: headings, tables, quoted text, paragraphs."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from lockstitch.cli.terminal import harmless, paint

if TYPE_CHECKING:
    from collections.abc import Iterator

_FENCE = re.compile(r"^```\w*\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`]+`")
# The last column of a table is never narrower than this, however wide the others are.
_LEAST = 24


def rendered(page: str, width: int) -> Iterator[str]:
    """The lines of a page, none longer than ``width`` but for words that are."""
    # Every second piece is the inside of a fence.
    for number, piece in enumerate(_FENCE.split(page)):
        if number % 2:
            yield from (paint(f"    {harmless(line)}", "dim") for line in piece.split("\n"))
            yield ""
            continue
        for block in re.split(r"\n{2,}", piece.strip("\n")):
            yield from _block(block, width) if block else ()


def _block(block: str, width: int) -> Iterator[str]:
    if block.startswith("|"):
        yield from _table(block.split("\n"), width)
    elif block.startswith("#"):
        yield paint(harmless(block.lstrip("# ")), "bold", "cyan")
    else:
        yield from (_marked(line) for line in _wrapped(" ".join(block.split("\n")), width))
    yield ""


def _table(lines: list[str], width: int) -> Iterator[str]:
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    rows = [row for row in cells if any(cell.strip("-| ") for cell in row)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    indent = sum(widths[:-1]) + 2 * (len(widths) - 1)
    room = max(width - indent, _LEAST)
    for row in rows:
        start = "  ".join(
            cell.ljust(size) for cell, size in zip(row[:-1], widths[:-1], strict=True)
        )
        for line in _wrapped(row[-1], room):
            yield f"{start.ljust(indent)}{_marked(line)}".rstrip()
            start = ""


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(harmless(text), width, break_long_words=False, break_on_hyphens=False)


def _marked(line: str) -> str:
    return _CODE.sub(lambda found: paint(found[0], "cyan"), line)
