"""How far a long read has come, on a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING

from lockstitch.cli import terminal
from lockstitch.cli.rows import size

if TYPE_CHECKING:
    from collections.abc import Callable

# So many seconds lie between two pictures of the bar.
_OFTEN = 0.1
_BAR = 24
_DONE, _LEFT = "\u2501", "\u2500"


class Progress:
    """A progress bar with an estimate on a terminal, nothing anywhere else.

    ``total`` is a number of bytes, or of what ``unit`` names.
    """

    def __init__(self, title: str, total: int, unit: str = "") -> None:
        self.title = title
        self.total = total
        self.unit = unit
        self.done = 0
        self.is_shown = bool(total and terminal.is_terminal(sys.stderr) and not terminal.is_quiet())

    def __enter__(self) -> Callable[[int], None]:
        """Show the bar; gives the function that moves it on."""
        self.start = self.last = time.monotonic()
        self._show(self.start)
        return self._advance

    def _advance(self, done: int) -> None:
        self.done += done
        now = time.monotonic()
        if now - self.last >= _OFTEN:
            self._show(now)

    def _show(self, now: float) -> None:
        self.last = now
        if self.is_shown:
            columns = shutil.get_terminal_size().columns
            terminal.pass_by(bar(self, now - self.start, columns, _encodable(sys.stderr.encoding)))

    def __exit__(self, *error: object) -> None:
        """Take the bar away."""
        if self.is_shown:
            terminal.take_away()


def bar(at: Progress, seconds: float, columns: int, glyphs: tuple[str, str]) -> str:
    """One line: how much is done of how much, and how long the rest may take."""
    part = min(at.done / at.total, 1.0)
    filled = round(part * _BAR)
    of_bytes = f"{size(at.done)} of {size(at.total)}"
    count = f"{at.done}/{at.total} {at.unit}" if at.unit else of_bytes
    left = f"  {_clock(seconds / part - seconds)} left" if part else ""
    line = f"{at.title} {glyphs[0] * filled}{glyphs[1] * (_BAR - filled)} {count}{left}"
    return line[: columns - 1]


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02}"


def _encodable(encoding: str) -> tuple[str, str]:
    try:
        (_DONE + _LEFT).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return "#", "-"
    return _DONE, _LEFT
