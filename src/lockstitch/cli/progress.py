"""How far a long read has come, on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lockstitch.cli import terminal

if TYPE_CHECKING:
    from collections.abc import Callable


class Progress:
    """A progress bar with an estimate on a terminal, nothing anywhere else.

    ``total`` is a number of bytes, or of what ``unit`` names.
    """

    def __init__(self, title: str, total: int, unit: str = "") -> None:
        self.bar = None
        if total and sys.stderr is not None and terminal.shows_colour(sys.stderr):
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
            )

            self.bar = Progress(
                TextColumn(title),
                BarColumn(),
                *((MofNCompleteColumn(), TextColumn(unit)) if unit else (DownloadColumn(),)),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self.task = self.bar.add_task(title, total=total)

    def __enter__(self) -> Callable[[int], None]:
        """Show the bar; gives the function that moves it on."""
        if self.bar is not None:
            self.bar.start()
        return self._advance

    def _advance(self, done: int) -> None:
        if self.bar is not None:
            self.bar.advance(self.task, done)

    def __exit__(self, *error: object) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.stop()
