"""``lockstitch`` with nothing behind it: pick a session, see what is wrong, repair it, go on.

On a terminal whose cursor moves it is a screen, on any other a numbered list. The sessions are
listed at once and checked beside that, the newest first.
"""

from __future__ import annotations

import sys
import time
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import structs

from lockstitch import sessions
from lockstitch.cli import CLEAN, looks, terminal
from lockstitch.cli.checks import Background, scan_one
from lockstitch.cli.difference import difference
from lockstitch.cli.overview import nothing_found
from lockstitch.cli.picker import OPEN, PLAIN, QUIT, List, Marks, Text, wrapped
from lockstitch.cli.rows import several
from lockstitch.cli.screen import Screen, can_move
from lockstitch.sessions.summary import checked, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch.sessions.summary import Summary

# So many sessions are listed between two looks at the keyboard.
_BATCH = 25
_LISTED = 20
_MOST_LINES = 4000
_TURNS = 30


def run() -> int:
    """Let a person pick a session and see to it; gives the exit status."""
    paths = list(sessions.paths())
    if not paths:
        nothing_found()
        return CLEAN
    for line in _Loop(paths).run() if can_move() else _Lines(paths).run():
        terminal.say(line)
    return CLEAN


def _marks() -> Marks:
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "".join(structs.astuple(Marks())).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return PLAIN
    return Marks()


class _Loop:
    """The screen: keys and finished checks come in, screens go out."""

    def __init__(self, paths: list[str]) -> None:
        self.marks = _marks()
        self.list = List(looks.home(), time.time(), self.marks)
        self.left: Iterator[Summary] = sessions.listed(paths)
        self.checks: Background | None = None
        self.paths = paths
        self.view: looks.Look | None = None
        self.text: Text | None = None
        self.offered: set[str] = set()
        self.asks = False
        self.result: list[str] = []

    def run(self) -> list[str]:
        """Go on until the person leaves; gives what is to be said then."""
        with Screen() as screen:
            try:
                while self._step(screen):
                    pass
            finally:
                if self.checks is not None:
                    self.checks.close()
        return self._parting()

    def _parting(self) -> list[str]:
        """Return what stays on the terminal: the outcome, and the line that resumes."""
        if self.result:
            return self.result
        if self.view is None or self.view.report is None or self.view.can_repair:
            return []
        line = self.view.summary.resume_line(looks.here())
        return [line] if line else []

    def _step(self, screen: Screen) -> bool:
        self._list_more(screen)
        self._take_checks()
        width, height = screen.size()
        if self.text is not None:
            screen.show(self.text.drawn(width, height))
        else:
            screen.show(self.list.drawn(width, height))
        for key in screen.keys(0 if not self.list.is_complete else None):
            if not self._key(key, screen):
                return False
        return True

    def _list_more(self, screen: Screen) -> None:
        if self.list.is_complete:
            return
        found = list(islice(self.left, _BATCH))
        for one in found:
            self.list.add(one)
        if not found:
            self.list.is_complete = True
            newest = dict.fromkeys(one.target for one in self.list.found)
            self.checks = Background([*newest], screen.wake)

    def _take_checks(self) -> None:
        for report in self.checks.reports() if self.checks is not None else ():
            key = key_of(report.target, report.session)
            place = self.list.places.get(key)
            if place is not None:
                self.list.put(key, checked(self.list.found[place], report))

    # What keys do

    def _key(self, key: str, screen: Screen) -> bool:
        """Take a key; False if the person leaves."""
        if self.text is None:
            asked = self.list.key(key)
            if asked == OPEN:
                self._open(screen)
            return asked != QUIT
        key = self.text.key(key)
        if self.asks:
            return self._answer(key, screen)
        return self._on_page(key, screen)

    def _open(self, screen: Screen) -> None:
        one = self.list.chosen()
        if one is None:
            return
        width, height = screen.size()
        screen.show(Text(["Reading…"], "").drawn(width, height))
        self.view = looks.look(one)
        self.list.put(one.key, self.view.summary)
        self.result = []
        self._page(screen)

    def _page(self, screen: Screen) -> None:
        if self.view is None:
            return
        width, _ = screen.size()
        lines = looks.told(self.view, width - 1, self.marks, self.list.now)
        report = self.view.report
        keys = ["[r]epair", "[d]iff"] if self.view.can_repair else []
        keys += ["[s]how"] if report is not None else []
        keys += ["[t]urns dropped"] if report is not None and report.unreachable else []
        self.offered = {key[1] for key in keys}
        self.text = Text(lines, "  ".join([*keys, "[b]ack", "[q]uit"]))

    def _on_page(self, key: str, screen: Screen) -> bool:
        if key in ("q", "end of file") or (key == "enter" and self.result):
            return False
        if key in ("b", "escape", "h", "erase"):
            self._leave_page(screen)
        elif key == "r" and key in self.offered and not self.result:
            self._page(screen)
            self.asks = True
            if self.text is not None:
                self.text.foot = "Repair it? A backup is kept. [y]es [n]o"
        elif key in self.offered and not self.result:
            self._more(key, screen)
        return True

    def _leave_page(self, screen: Screen) -> None:
        is_inner = self.text is not None and self.text.foot.startswith("[b]ack")
        if is_inner and not self.result:
            self._page(screen)
        else:
            self.text = self.view = None
            self.result = []

    def _answer(self, key: str, screen: Screen) -> bool:
        """Take the answer to the question whether to repair."""
        if key in ("q", "end of file"):
            return False
        if key not in ("y", "n", "escape", "b") or self.view is None:
            return True
        self.asks = False
        if key != "y":
            self._page(screen)
            return True
        before = self.view.summary
        self.view, self.result = looks.repaired(self.view)
        self.list.put(before.key, self.view.summary)
        width, _ = screen.size()
        lines = [row for line in self.result for row in wrapped(line, width - 1)]
        self.text = Text(lines, "[b]ack to the list  [q]uit")
        return True

    def _more(self, key: str, screen: Screen) -> None:
        """Show the difference, the conversation, or what a resume drops."""
        if self.view is None or self.view.session is None or self.view.mended is None:
            return
        width, _ = screen.size()
        if key == "d":
            lines = difference(self.view.mended, self.view.summary.target, width - 1)
        elif key == "s":
            lines = _conversation(self.view.session, width - 1)
        else:
            from lockstitch.cli.show import dropped_lines

            lines = dropped_lines(self.view.session, width - 1)
        self.text = Text([*islice(lines, _MOST_LINES)], "[b]ack  [q]uit")


def _conversation(session: sessions.Opened, width: int) -> Iterator[str]:
    from lockstitch.cli.transcript import lines, tail

    history = session.transcript.history
    chosen = tail(history.messages, history.dialect, _TURNS)
    for block in lines(history.messages, history.dialect, {}, width, chosen=chosen):
        yield from block.split("\n")


class _Lines:
    """The same on a terminal that can only print: a numbered list, and questions."""

    def __init__(self, paths: list[str]) -> None:
        self.marks = _marks()
        self.width = max(terminal.width() - 1, 20)
        listed = (one for one in sessions.listed(paths) if not one.is_aside)
        self.found = list(islice(listed, _LISTED))
        self.more = sum(1 for _ in listed)

    def run(self) -> list[str]:
        """Print the list, and see to the session that is named."""
        known = List(looks.home(), time.time(), self.marks)
        for one in self.found:
            known.add(_checked(one))
        self.found = known.found
        for number, one in enumerate(known.found, 1):
            for line in known.entry(one, f"{number:>2}", self.width):
                terminal.say(line)
        if self.more:
            terminal.say(
                f"{several(self.more, 'older session')} not shown; `lockstitch scan` has all."
            )
        answer = terminal.asked(f"Which one? [1-{len(self.found)}, q to quit] ")
        if not answer.isascii() or not answer.isdecimal() or not 0 < int(answer) <= len(self.found):
            return ["Nothing was changed."]
        return self._see_to(self.found[int(answer) - 1], known.now)

    def _see_to(self, one: Summary, now: float) -> list[str]:
        view = looks.look(one)
        for line in looks.told(view, self.width, self.marks, now):
            terminal.say(line)
        if not view.can_repair or view.mended is None:
            return []
        while True:
            answer = terminal.asked("Repair it? A backup is kept. [y]es [n]o [d]iff ")[:1].lower()
            if answer != "d":
                break
            for line in difference(view.mended, one.target, self.width):
                terminal.say(line)
        return looks.repaired(view)[1] if answer == "y" else ["Nothing was changed."]


def _checked(one: Summary) -> Summary:
    """Return a session with its state: the list is printed once, so it is checked before."""
    found = scan_one(one.target)
    own = [report for report in found if report.session == one.session] or found
    return checked(one, own[0]) if len(own) == 1 else one
