"""A history for a person at a terminal: turn by turn, every call joined with its result."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from lockstitch.cli.page import Page, glyphs_of
from lockstitch.cli.pager import paged
from lockstitch.transcript.messages import Marks, Show, around, tail

__all__ = ["Show", "around", "lines", "paged", "tail"]


def lines(  # noqa: PLR0913 - two by keyword
    messages: Sequence[Any],
    dialect: str,
    marks: Marks,
    width: int,
    *,
    chosen: range | None = None,
    full: bool = False,
    stream: TextIO | None = None,
) -> Iterator[str]:
    """Give a history line by line, as it is asked for.

    ``marks`` maps places in the list to what was found there; ``chosen`` are the messages to show
    (see ``tail`` and ``around``), all unless given. Long texts are shortened unless ``full``.
    Colours and box characters are those that ``stream`` (stdout unless given) can show.
    """
    stream = sys.stdout if stream is None else stream
    page = Page(max(width, 20), full, stream, glyphs_of(stream))
    yield from Show(messages, dialect, marks, page).lines(chosen)
