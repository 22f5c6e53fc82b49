"""A session of Lockstitch's own for a person at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TextIO

from lockstitch.cli.page import Page, glyphs_of
from lockstitch.stored import Journal
from lockstitch.transcript.journals import Told, around, described, tail, when

__all__ = ["around", "described", "lines", "tail", "when"]


def lines(
    journal: Journal,
    width: int,
    *,
    chosen: range | None = None,
    full: bool = False,
    stream: TextIO | None = None,
) -> Iterator[str]:
    """Give a session line by line; ``chosen`` are the items to show, all unless given."""
    stream = sys.stdout if stream is None else stream
    page = Page(max(width, 20), full, stream, glyphs_of(stream))
    yield from Told(journal, page).lines(chosen)
