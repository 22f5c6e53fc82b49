"""The list from which a person picks a session, and the terminal on which it is drawn.

The list and its pages are pure: keys change them, and they are drawn again. If a key asks for more,
that is returned as a word, and the loop in ``pick`` does it. The screen reads keys and shows whole
screens, on a terminal that can move its cursor, and restores the terminal at the end.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from codecs import getincrementaldecoder
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct, field, structs

from lockstitch.cli import terminal
from lockstitch.cli.render import shorten_path
from lockstitch.cli.terminal import escape_line, fit, text_width, wrap_rows
from lockstitch.rules.rule import several
from lockstitch.sources.listing import BROKEN, HEALTHY, UNREADABLE, WARNINGS, Key, SessionSummary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


# What a key asks for.
OPEN, QUIT, BACK = "open", "quit", "back"
COLOURS = {BROKEN: "red", UNREADABLE: "red", WARNINGS: "yellow", HEALTHY: "green"}
WIDE = 60
_MOVES = {"up": -1, "k": -1, "down": 1, "j": 1}
_DIGITS = "123456789"


class Marks(Struct, frozen=True):
    """Characters other than letters, which not every terminal can show."""

    more: str = "…"
    dot: str = "·"
    cursor: str = "\u276f"
    bullet: str = "•"
    arrows: str = "↑↓"


PLAIN = Marks("...", "-", ">", "*", "j/k")


def choose_marks() -> Marks:
    """Return the marks that this terminal can show."""
    wanted = Marks()
    return wanted if terminal.can_encode("".join(structs.astuple(wanted)), sys.stdout) else PLAIN


class SessionList(Struct):
    """The sessions, which of them are shown, and where the cursor is."""

    home: str
    now: float
    marks: Marks = Marks()
    found: list[SessionSummary] = field(default_factory=list)
    places: dict[Key, int] = field(default_factory=dict)
    is_complete: bool = False
    words: str = ""
    is_typing: bool = False
    only_bad: bool = False
    at: int = 0
    top: int = 0
    page: int = 1

    def add(self, summary: SessionSummary) -> None:
        """Add a session at the end, unless it is a sub-agent's, which nobody resumes."""
        if not summary.is_aside:
            self.places[summary.key] = len(self.found)
            self.found.append(summary)

    def put(self, key: Key, summary: SessionSummary) -> None:
        """Replace what is known about a session."""
        if key in self.places:
            self.found[self.places[key]] = summary

    def shown(self) -> list[SessionSummary]:
        """Return the sessions that match what was typed, in order."""
        wanted = self.words.lower().split()
        listed: list[SessionSummary] = []
        for one in self.found:
            parts = (one.title, one.project, one.program, one.level, one.state, one.session)
            text = " ".join(part or "" for part in parts).lower() if wanted else ""
            is_bad = one.level not in ("", HEALTHY)
            if (is_bad or not self.only_bad) and all(word in text for word in wanted):
                listed.append(one)
        return listed

    def chosen(self) -> SessionSummary | None:
        """Return the session at the cursor."""
        listed = self.shown()
        return listed[min(self.at, len(listed) - 1)] if listed else None

    def key(self, key: str) -> str:
        """Handle a key; return what it asks for, if that is more than a move."""
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
            step = _step(key, self.page, count)
            self.at = max(0, min(self.at + step, count - 1))
        return {"enter": OPEN, "l": OPEN, "q": QUIT, "end of file": QUIT}.get(key, "")

    def _type(self, key: str) -> None:
        """Handle a key while words to search for are typed."""
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

    def draw(self, width: int, height: int) -> list[str]:
        """Return the whole screen."""
        listed = self.shown()
        each = 2 if width >= WIDE else 3
        room = max(height - 3, 1)
        self.page = max(room // each, 1)
        self.at = max(0, min(self.at, len(listed) - 1))
        self.top = max(0, min(self.top, len(listed) - self.page))
        self.top = min(max(self.top, self.at - self.page + 1), self.at)
        bad = sum(one.level in (BROKEN, UNREADABLE) for one in self.found)
        open_ = sum(not one.level for one in self.found)
        parts = [several(len(self.found), "session"), f"{bad} broken"]
        if open_ or not self.is_complete:
            parts.append(f"{open_} to check")
        lines = [terminal.paint(fit(f" {self.marks.dot} ".join(parts), width), "bold"), ""]
        for place, one in enumerate(listed[self.top : self.top + self.page]):
            number = str(place + 1) if place < len(_DIGITS) else " "
            lines += self.entry(one, number, width, is_here=self.top + place == self.at)
        if not listed:
            lines.append(fit("  Nothing fits." if self.found else "  Looking…", width))
        lines = lines[: height - 1]
        return [*lines, *[""] * (height - 1 - len(lines)), self._foot(width)]

    def entry(
        self, one: SessionSummary, number: str, width: int, *, is_here: bool = False
    ) -> list[str]:
        """Return the lines of one session: which one it is, and its state."""
        mark = self.marks.cursor if is_here else " "
        age = one.age(self.now)
        room = width - 4 - len(number) - text_width(age) - 2
        title = fit(one.title or f"({one.session or 'no title'})", room, self.marks.more)
        gap = " " * max(room - text_width(title) + 1, 1)
        head = f"{mark} {number} {title}{gap}{age}"
        style = ("bold",) if is_here else ()
        first = terminal.paint(fit(head, width - 1), *style) if style else fit(head, width)
        state = f"{one.level}: {one.state}" if one.level not in ("", HEALTHY) else one.level
        state = state or "not checked yet"
        project = shorten_path(one.project, self.home) if one.project else ""
        facts = f" {self.marks.dot} ".join(filter(None, (one.program, project)))
        if width < WIDE:
            indented = f"    {fit(facts, width - 4, self.marks.more)}"
            return [first, self._state(one, state, width), indented]
        state = fit(state, width - 4, self.marks.more)
        left = width - 4 - text_width(state) - 3
        painted = self._state(one, state, width)
        rest = f" {self.marks.dot} {fit(facts, left, self.marks.more)}" if left > 0 else ""
        return [first, f"{painted}{rest if facts else ''}"]

    def _state(self, one: SessionSummary, state: str, width: int) -> str:
        text = fit(state, width - 4, self.marks.more)
        return f"    {terminal.paint(text, COLOURS.get(one.level, 'dim'))}"

    def _foot(self, width: int) -> str:
        if self.is_typing:
            return fit(f"/{self.words}_", width)
        wide = f"{self.marks.arrows} move  Enter open  / search  b only broken  q quit"
        narrow = f"{self.marks.arrows} Enter / search q quit"
        text = wide if width >= len(wide) else narrow
        text = f"{text}  [/{self.words}]" if self.words else text
        return terminal.paint(fit(text, width), "dim")


def _step(key: str, page: int, count: int) -> int:
    """Return how far a key moves on a screen that shows ``page`` of ``count``."""
    far = {"page down": page, " ": page, "page up": -page}
    ends = {"home": -count, "g": -count, "end": count, "G": count}
    return _MOVES.get(key, 0) + far.get(key, 0) + ends.get(key, 0)


class TextPage(Struct):
    """A page of text that may be longer than the screen."""

    lines: Sequence[str]
    foot: str
    top: int = 0
    page: int = 1

    def key(self, key: str) -> str:
        """Handle a key; return it unless it moves the page."""
        step = 0 if key in ("g", "G") else _step(key, self.page, len(self.lines))
        self.top = max(0, min(self.top + step, len(self.lines) - self.page))
        return "" if step else key

    def draw(self, width: int, height: int) -> list[str]:
        """Return the whole screen; lines may be wider than it."""
        is_cut = len(self.lines) > self.top + self.page
        foot = [*wrap_text(f"{self.foot}  (more below)" if is_cut else self.foot, width)]
        self.page = max(height - len(foot), 1)
        self.top = max(0, min(self.top, len(self.lines) - self.page))
        shown = [*self.lines[self.top : self.top + self.page]]
        blank = [""] * (height - len(foot) - len(shown))
        return [*shown, *blank, *(terminal.paint(line, "bold") for line in foot)]


def wrap_text(text: str, width: int, indent: str = "", bullet: str = "") -> Iterator[str]:
    """Yield the lines of a text wrapped to a width, after a bullet."""
    lead = f"{indent}{bullet} " if bullet else indent
    for row in wrap_rows(text, max(width - len(lead), 8), None, prose=True):
        yield f"{lead}{row}"
        lead = " " * len(lead)


_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME = "\x1b[H"
_CLEAR_LINE = "\x1b[K"
_CLEAR_BELOW = "\x1b[J"
_SEQUENCES = {
    "[A": "up",
    "OA": "up",
    "[B": "down",
    "OB": "down",
    "[5~": "page up",
    "[6~": "page down",
    "[H": "home",
    "OH": "home",
    "[1~": "home",
    "[F": "end",
    "OF": "end",
    "[4~": "end",
}
_CONTROLS = {
    "\r": "enter",
    "\n": "enter",
    "\x7f": "erase",
    "\x08": "erase",
    "\x15": "clear",
    "\x04": "end of file",
}
# Terminals send an arrow key's characters at once; nothing follows a real Escape.
_REST_OF_A_KEY = 0.05
_SMALLEST = (20, 6)


def can_move() -> bool:
    """Whether this terminal can show a screen: it moves its cursor, and sends each key at once."""
    if os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return False
    try:
        import termios  # noqa: F401 - not on every system
    except ImportError:
        return False
    columns, rows = shutil.get_terminal_size()
    return columns >= _SMALLEST[0] and rows >= _SMALLEST[1]


def keys_in(text: str) -> Iterator[str]:
    """Yield the keys in what a terminal sent, by name if they are not characters."""
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\x1b":
            yield _CONTROLS.get(char, char if char.isprintable() else "")
            continue
        found = next((one for one in _SEQUENCES if text.startswith(one, at)), None)
        if found is not None:
            at += len(found)
            yield _SEQUENCES[found]
        elif text[at : at + 1] in ("[", "O"):
            # a key without a meaning here: skip to its last letter
            end = at + 1
            while end < len(text) and not text[end].isalpha() and text[end] != "~":
                end += 1
            at = end + 1
        else:
            yield "escape"


class Screen:
    """The terminal while a person looks at it; other threads may call ``wake``."""

    def __init__(self) -> None:
        self.handle = sys.stdin.fileno()
        self.modes: list[Any] | None = None
        self.decoder = getincrementaldecoder("utf-8")("replace")
        self.waiting, self.signal = os.pipe()
        os.set_blocking(self.signal, False)
        self.handlers: list[tuple[int, Any]] = []
        self.shown: tuple[tuple[int, int], list[str]] | None = None

    def __enter__(self) -> Self:
        """Take over the terminal."""
        import termios

        self.modes = termios.tcgetattr(self.handle)
        for name in ("SIGWINCH", "SIGCONT"):
            number = getattr(signal, name)
            self.handlers.append((number, signal.signal(number, self._again)))
        self._take()
        return self

    def _take(self) -> None:
        import tty

        tty.setcbreak(self.handle)
        self._write(_ENTER)

    def _again(self, number: int, _frame: object) -> None:
        """Draw again after the window was resized or the program was suspended."""
        if number == getattr(signal, "SIGCONT", None):
            with suppress(OSError):
                self._take()
        self.shown = None
        self.wake()

    def __exit__(self, *error: object) -> None:
        """Restore the terminal."""
        import termios

        for number, before in self.handlers:
            signal.signal(number, before)
        with suppress(OSError):
            self._write(_LEAVE)
        with suppress(termios.error):
            termios.tcsetattr(self.handle, termios.TCSADRAIN, self.modes or [])
        for handle in (self.waiting, self.signal):
            os.close(handle)

    def wake(self) -> None:
        """End the wait for a key."""
        with suppress(OSError):
            os.write(self.signal, b"!")

    def keys(self, seconds: float | None) -> list[str]:
        """Wait for keys, for a call of ``wake``, or for the time to end; return the keys."""
        ready, _, _ = select.select([self.handle, self.waiting], [], [], seconds)
        if self.waiting in ready:
            os.read(self.waiting, 1 << 12)
        if self.handle not in ready:
            return []
        data = os.read(self.handle, 1 << 12)
        if not data:
            return ["end of file"]
        while data.endswith(b"\x1b") or data[-2:] in (b"\x1b[", b"\x1bO"):
            if not select.select([self.handle], [], [], _REST_OF_A_KEY)[0]:
                break
            data += os.read(self.handle, 1 << 12)
        return [key for key in keys_in(self.decoder.decode(data)) if key]

    def size(self) -> tuple[int, int]:
        """Return the present number of columns and rows."""
        found = os.get_terminal_size(self.handle)
        return max(found.columns, 1), max(found.lines, 1)

    def show(self, lines: Sequence[str]) -> None:
        """Draw a screen, if it differs from the one that is shown."""
        wanted = (self.size(), [*lines])
        if wanted == self.shown:
            return
        _, height = wanted[0]
        rows = [f"{escape_line(line)}{_CLEAR_LINE}" for line in wanted[1][:height]]
        rest = _CLEAR_BELOW if len(rows) < height else ""
        self._write(_HOME + "\r\n".join(rows) + rest)
        self.shown = wanted

    def _write(self, text: str) -> None:
        if sys.stdout is None:
            return
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        data = memoryview(text.encode(encoding, "replace"))
        while data:
            data = data[os.write(sys.stdout.fileno(), data) :]
