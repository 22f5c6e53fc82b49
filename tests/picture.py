"""Make the picture of the README: the bare command at a terminal, drawn from what it shows.

    python -m tests.picture            # writes docs/images/terminal.svg

The sessions are invented (``tests/inspector/scenes.py``), the screen is the real one: the command
runs in a pseudo terminal, and the cells of that terminal become text in an SVG.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

import pyte

from tests.inspector import scenes

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "terminal.svg"
COLUMNS, ROWS = 92, 24
_CELL, _LINE, _MARGIN, _BAR = 8.43, 19, 18, 34
_PATIENCE = 60.0
_COLOURS = {
    "default": "#d6deeb",
    "red": "#ff6b6b",
    "green": "#7ee08a",
    "brown": "#ffd166",
    "blue": "#82aaff",
    "magenta": "#c792ea",
    "cyan": "#7fdbca",
    "white": "#ffffff",
    "black": "#637777",
    "brightblack": "#8794a3",
}


class Terminal:
    """A program in a pseudo terminal, and what is on its screen."""

    def __init__(self, home: Path) -> None:
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self.screen)
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environ = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lockstitch"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environ,
            cwd=home,
            start_new_session=True,
        )
        os.close(theirs)

    def until(self, condition: Callable[[str], bool]) -> None:
        """Read until the screen is as wanted, and then until nothing more comes."""
        latest = time.monotonic() + _PATIENCE
        while True:
            ready, _, _ = select.select([self._ours], [], [], 0.5)
            if ready:
                self._stream.feed(os.read(self._ours, 1 << 16))
            elif condition("\n".join(self.screen.display)):
                return
            if time.monotonic() > latest:
                raise SystemExit("the screen never came to what was waited for")

    def press(self, keys: bytes) -> None:
        """Hit keys."""
        os.write(self._ours, keys)

    def close(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


def _colour(cell: pyte.screens.Char) -> str:
    return _COLOURS.get(cell.fg, f"#{cell.fg}" if len(cell.fg) == 6 else _COLOURS["default"])


def _row(cells: dict[int, pyte.screens.Char], top: float) -> str:
    """Return one line of the screen as pieces of text of one look each."""
    parts: list[str] = []
    at = 0
    while at < COLUMNS:
        first = cells[at]
        end = at
        text = ""
        while end < COLUMNS and (cells[end].fg, cells[end].bold) == (first.fg, first.bold):
            text += cells[end].data
            end += 1
        if text.strip():
            weight = ' font-weight="700"' if first.bold else ""
            left = _MARGIN + at * _CELL
            # Browsers draw several plain spaces as one.
            shown = escape(text.rstrip().replace(" ", "\N{NO-BREAK SPACE}"))
            parts.append(
                f'<text x="{left:.1f}" y="{top:.1f}" fill="{_colour(first)}"{weight} '
                f'textLength="{len(text.rstrip()) * _CELL:.1f}">{shown}</text>'
            )
        at = end
    return "".join(parts)


def picture(screen: pyte.Screen) -> str:
    """Return a screen as an SVG."""
    last = max(row for row in range(ROWS) if screen.display[row].strip())
    width, height = _MARGIN * 2 + COLUMNS * _CELL, _BAR + _MARGIN + (last + 1) * _LINE + 10
    rows = [_row(screen.buffer[row], _BAR + _MARGIN + row * _LINE + 6) for row in range(last + 1)]
    dots = "".join(
        f'<circle cx="{22 + 20 * place}" cy="17" r="6" fill="{colour}"/>'
        for place, colour in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))
    )
    body = "\n".join(row for row in rows if row)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'role="img" aria-label="lockstitch in a terminal">\n'
        f'<rect width="100%" height="100%" rx="10" fill="#0b1b2b"/>{dots}\n'
        f'<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="14">'
        f"\n{body}\n</g>\n</svg>\n"
    )


def main() -> int:
    """Draw the list of sessions, once all of them are checked."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "ada"
        home.mkdir()
        scenes.everything(home)
        terminal = Terminal(home)
        try:
            terminal.until(lambda text: "checking" not in text and "broken" in text)
            PICTURE.write_text(picture(terminal.screen), "utf-8")
        finally:
            terminal.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
