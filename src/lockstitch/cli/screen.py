"""A terminal whose cursor can be moved: keys in, whole screens out, and left as it was found."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from codecs import getincrementaldecoder
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from lockstitch.cli.terminal import harmless_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
# Terminals send an arrow at once; a person who hits Escape sends nothing behind it.
_REST_OF_A_KEY = 0.05
_SMALLEST = (20, 6)


def can_move() -> bool:
    """Whether this terminal can show a screen: a cursor that moves, and keys one by one."""
    if os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return False
    try:
        import termios  # noqa: F401 - not on every system
    except ImportError:
        return False
    columns, rows = shutil.get_terminal_size()
    return columns >= _SMALLEST[0] and rows >= _SMALLEST[1]


def keys_in(text: str) -> Iterator[str]:
    """Return the keys in what a terminal sent: names for those that are no characters."""
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
            # a key that has no meaning here: up to its last letter
            end = at + 1
            while end < len(text) and not text[end].isalpha() and text[end] != "~":
                end += 1
            at = end + 1
        else:
            yield "escape"


class Screen:
    """The terminal while a person looks at it; ``wake`` may be called by other threads."""

    def __init__(self) -> None:
        self.handle = sys.stdin.fileno()
        self.modes: list[Any] | None = None
        self.decoder = getincrementaldecoder("utf-8")("replace")
        self.waiting, self.signal = os.pipe()
        os.set_blocking(self.signal, False)
        self.handlers: list[tuple[int, Any]] = []
        self.shown: tuple[tuple[int, int], list[str]] | None = None

    def __enter__(self) -> Self:
        """Take the terminal."""
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
        """Draw anew, on a window of another size or one that was away."""
        if number == getattr(signal, "SIGCONT", None):
            with suppress(OSError):
                self._take()
        self.shown = None
        self.wake()

    def __exit__(self, *error: object) -> None:
        """Put the terminal back as it was."""
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
        """Let whoever waits for a key go on without one."""
        with suppress(OSError):
            os.write(self.signal, b"!")

    def keys(self, seconds: float | None) -> list[str]:
        """Wait for keys, or until somebody wakes us or the time is over; gives those there are."""
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
        """Return how many columns and rows there are now."""
        found = os.get_terminal_size(self.handle)
        return max(found.columns, 1), max(found.lines, 1)

    def show(self, lines: Sequence[str]) -> None:
        """Draw a screen, if it is another than the one that is there."""
        wanted = (self.size(), [*lines])
        if wanted == self.shown:
            return
        _, height = wanted[0]
        rows = [f"{harmless_line(line)}{_CLEAR_LINE}" for line in wanted[1][:height]]
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
