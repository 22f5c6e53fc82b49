"""The list that a person picks a session from: keys change it, and it is drawn anew.

Pure: it knows neither files nor the terminal. What a key asks for is given back as a word, and the
loop in ``pick`` does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from lockstitch.cli import terminal
from lockstitch.cli.rows import cells, fitted, rows, several
from lockstitch.sessions.summary import BROKEN, HEALTHY, UNREADABLE, WARNINGS, Key, Summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What a key asks for.
OPEN, QUIT, BACK = "open", "quit", "back"
COLOURS = {BROKEN: "red", UNREADABLE: "red", WARNINGS: "yellow", HEALTHY: "green"}
WIDE = 60
_MOVES = {"up": -1, "k": -1, "down": 1, "j": 1}
_DIGITS = "123456789"


class Marks(Struct, frozen=True):
    """The characters that are not letters, of which not every terminal has all."""

    more: str = "…"
    dot: str = "·"
    cursor: str = "\u276f"
    bullet: str = "•"
    arrows: str = "↑↓"


PLAIN = Marks("...", "-", ">", "*", "j/k")


class List(Struct):
    """The sessions, which of them are shown, and which one the cursor is on."""

    home: str
    now: float
    marks: Marks = Marks()
    found: list[Summary] = field(default_factory=list)
    places: dict[Key, int] = field(default_factory=dict)
    is_complete: bool = False
    words: str = ""
    is_typing: bool = False
    only_bad: bool = False
    at: int = 0
    top: int = 0
    page: int = 1

    def add(self, summary: Summary) -> None:
        """Put one more session at the end; a sub-agent's is not one that a person resumes."""
        if not summary.is_aside:
            self.places[summary.key] = len(self.found)
            self.found.append(summary)

    def put(self, key: Key, summary: Summary) -> None:
        """Put what is known of a session now in its place."""
        if key in self.places:
            self.found[self.places[key]] = summary

    def shown(self) -> list[Summary]:
        """Return the sessions that fit what was typed, in their order."""
        wanted = self.words.lower().split()
        return [
            one
            for one in self.found
            if (not self.only_bad or one.level not in ("", HEALTHY))
            and all(word in _text(one) for word in wanted)
        ]

    def chosen(self) -> Summary | None:
        """Return the session that the cursor is on."""
        listed = self.shown()
        return listed[min(self.at, len(listed) - 1)] if listed else None

    def key(self, key: str) -> str:
        """Take a key; gives what it asks for, if that is more than a move."""
        if self.is_typing:
            self._type(key)
            return ""
        count = len(self.shown())
        if key in _DIGITS and key != "" and self.top + int(key) <= count:
            self.at = self.top + int(key) - 1
            return OPEN
        if key == "/":
            self.is_typing = True
        elif key == "b":
            self.only_bad, self.at = not self.only_bad, 0
        elif key == "escape":
            self.words, self.only_bad, self.at = "", False, 0
        else:
            self.at = max(0, min(self.at + self._steps(key, count), count - 1))
        return {"enter": OPEN, "l": OPEN, "q": QUIT, "end of file": QUIT}.get(key, "")

    def _steps(self, key: str, count: int) -> int:
        far = {"page down": self.page, " ": self.page, "page up": -self.page}
        ends = {"home": -count, "g": -count, "end": count, "G": count}
        return _MOVES.get(key, 0) + far.get(key, 0) + ends.get(key, 0)

    def _type(self, key: str) -> None:
        """Take a key of the words to look for."""
        self.at = 0
        if key in ("enter", "end of file", "up", "down"):
            self.is_typing = False
        elif key == "escape":
            self.is_typing, self.words = False, ""
        elif key == "erase":
            self.words = self.words[:-1]
        elif key == "clear":
            self.words = ""
        elif len(key) == 1:
            self.words += key

    def drawn(self, width: int, height: int) -> list[str]:
        """Return the whole screen."""
        listed = self.shown()
        each = 2 if width >= WIDE else 3
        room = max(height - 3, 1)
        self.page = max(room // each, 1)
        self.at = max(0, min(self.at, len(listed) - 1))
        self.top = max(0, min(self.top, len(listed) - self.page))
        self.top = min(max(self.top, self.at - self.page + 1), self.at)
        lines = [self._head(width), ""]
        for place, one in enumerate(listed[self.top : self.top + self.page]):
            number = str(place + 1) if place < len(_DIGITS) else " "
            lines += self.entry(one, number, width, is_here=self.top + place == self.at)
        if not listed:
            lines.append(fitted("  Nothing fits." if self.found else "  Looking…", width))
        lines = lines[: height - 1]
        return [*lines, *[""] * (height - 1 - len(lines)), self._foot(width)]

    def _head(self, width: int) -> str:
        bad = sum(one.level in (BROKEN, UNREADABLE) for one in self.found)
        open_ = sum(not one.level for one in self.found)
        parts = [several(len(self.found), "session"), f"{bad} broken"]
        if open_ or not self.is_complete:
            parts.append(f"{open_} to check")
        return terminal.paint(fitted(f" {self.marks.dot} ".join(parts), width), "bold")

    def entry(self, one: Summary, number: str, width: int, *, is_here: bool = False) -> list[str]:
        """Return the lines of one session: which one it is, and how it is."""
        mark = self.marks.cursor if is_here else " "
        age = one.age(self.now)
        room = width - 4 - len(number) - cells(age) - 2
        title = fitted(one.title or f"({one.session or 'no title'})", room, self.marks.more)
        gap = " " * max(room - cells(title) + 1, 1)
        head = f"{mark} {number} {title}{gap}{age}"
        style = ("bold",) if is_here else ()
        first = terminal.paint(fitted(head, width - 1), *style) if style else fitted(head, width)
        state = f"{one.level}: {one.state}" if one.level not in ("", HEALTHY) else one.level
        state = state or "not checked yet"
        facts = f" {self.marks.dot} ".join(filter(None, (one.program, self._project(one))))
        if width < WIDE:
            return [first, self._state(one, state, width), self._indented(facts, width)]
        state = fitted(state, width - 4, self.marks.more)
        left = width - 4 - cells(state) - 3
        painted = self._state(one, state, width)
        rest = f" {self.marks.dot} {fitted(facts, left, self.marks.more)}" if left > 0 else ""
        return [first, f"{painted}{rest if facts else ''}"]

    def _state(self, one: Summary, state: str, width: int) -> str:
        text = fitted(state, width - 4, self.marks.more)
        return f"    {terminal.paint(text, COLOURS.get(one.level, 'dim'))}"

    def _indented(self, text: str, width: int) -> str:
        return f"    {fitted(text, width - 4, self.marks.more)}"

    def _project(self, one: Summary) -> str:
        return shortened(one.project, self.home) if one.project else ""

    def _foot(self, width: int) -> str:
        if self.is_typing:
            return fitted(f"/{self.words}_", width)
        wide = f"{self.marks.arrows} move  Enter open  / search  b only broken  q quit"
        narrow = f"{self.marks.arrows} Enter / search q quit"
        text = wide if width >= len(wide) else narrow
        text = f"{text}  [/{self.words}]" if self.words else text
        return terminal.paint(fitted(text, width), "dim")


class Text(Struct):
    """A page of text that may be longer than the screen."""

    lines: Sequence[str]
    foot: str
    top: int = 0
    page: int = 1

    def key(self, key: str) -> str:
        """Take a key; gives it back unless it moves the page."""
        far = {"page down": self.page, " ": self.page, "page up": -self.page}
        ends = {"home": -len(self.lines), "end": len(self.lines)}
        step = _MOVES.get(key, 0) + far.get(key, 0) + ends.get(key, 0)
        self.top = max(0, min(self.top + step, len(self.lines) - self.page))
        return "" if step else key

    def drawn(self, width: int, height: int) -> list[str]:
        """Return the whole screen; the lines are as wide as they may be already."""
        is_cut = len(self.lines) > self.top + self.page
        foot = [*wrapped(f"{self.foot}  (more below)" if is_cut else self.foot, width)]
        self.page = max(height - len(foot), 1)
        self.top = max(0, min(self.top, len(self.lines) - self.page))
        shown = [*self.lines[self.top : self.top + self.page]]
        blank = [""] * (height - len(foot) - len(shown))
        return [*shown, *blank, *(terminal.paint(line, "bold") for line in foot)]


def wrapped(text: str, width: int, indent: str = "", bullet: str = "") -> Iterator[str]:
    """Give a text in lines of a width, behind a bullet."""
    lead = f"{indent}{bullet} " if bullet else indent
    for row in rows(text, max(width - len(lead), 8), None, prose=True):
        yield f"{lead}{row}"
        lead = " " * len(lead)


def shortened(path: str, home: str) -> str:
    """Return a path with ``~`` for the home directory."""
    if home and path != home and path.startswith(f"{home.rstrip('/')}/"):
        return f"~{path[len(home.rstrip('/')) :]}"
    return "~" if path == home else path


def _text(one: Summary) -> str:
    """Return what is looked through for what was typed."""
    parts = (one.title, one.project or "", one.program, one.level, one.state, one.session or "")
    return " ".join(parts).lower()
