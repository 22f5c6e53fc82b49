"""Asking a person session by session: yes, no, all of them, the difference first, or no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from lockstitch.cli import terminal

if TYPE_CHECKING:
    from collections.abc import Callable

YES, NO, ALL, DIFF, QUIT = "y", "n", "a", "d", "q"
_WORDS = {YES: "[y]es", NO: "[n]o", ALL: "[a]ll", DIFF: "[d]iff", QUIT: "[q]uit"}
_SPELLED = {"yes": YES, "no": NO, "all": ALL, "diff": DIFF, "quit": QUIT}
_ANSWERS = {**dict(zip(_WORDS, _WORDS, strict=True)), **_SPELLED}


class Asking(Struct):
    """What was answered so far; ``total`` sessions are asked about, one after the other."""

    total: int = 1
    number: int = 0
    is_all: bool = False
    is_over: bool = False
    was_alone: bool = False

    def wants(self, difference: Callable[[], None]) -> bool:
        """Ask whether to repair the next session; ``difference`` shows what that changes."""
        self.number += 1
        if self.is_all:
            return True
        if not terminal.is_asked():
            self.was_alone = self.is_over = True
            return False
        while True:
            # whoever closes the terminal, or only hits Enter, has not said yes
            chosen = _ANSWERS.get(terminal.asked(self._question()).lower() or NO, "")
            if chosen == DIFF:
                difference()
            elif chosen:
                self.is_all = chosen == ALL
                self.is_over = chosen == QUIT
                return chosen in (YES, ALL)

    def _question(self) -> str:
        several = self.total > 1
        count = f" ({self.number} of {self.total})" if several else ""
        words = [word for key, word in _WORDS.items() if several or key != ALL]
        return f"Repair this session{count}? A backup is kept. {' '.join(words)} "
