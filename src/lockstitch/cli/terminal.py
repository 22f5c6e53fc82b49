"""All output and input of the terminal: order, colours, safe text, questions, pagers, progress.

Everything else prints through this module. Text from a file or a name is written so that a terminal
cannot interpret it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, TextIO
from unicodedata import category, east_asian_width

from msgspec import Struct

from lockstitch.rules.rule import several
from lockstitch.transcript import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# The exit statuses; there is no other.
CLEAN, FINDINGS, FAILED, INTERRUPTED = 0, 1, 2, 130
STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}

# Characters that could move the cursor, reorder the line, hide, or not be encoded at all: control
# characters, line separators, bidirectional and invisible marks, lone surrogates.
_HIDDEN = (
    "\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_UNSAFE = re.compile(f"[\x00-\x1f{_HIDDEN}]")
# A whole line may also have our own colours, and contain line breaks, as findings do.
_STYLE = "\x1b\\[(?:0|(?:[12]|3[1236])(?:;(?:[12]|3[1236]))*)m"
_UNSAFE_IN_LINE = re.compile(f"({_STYLE}|\n(?:{_STYLE})?  = )|[\x00-\x1f{_HIDDEN}]")
# In JSON, line breaks and tabs only occur between values.
_IN_JSON = re.compile(f"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f{_HIDDEN}]")


# Safe text.


def escape_controls(text: str) -> str:
    """Return text from a file or its name, with all control characters written out."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def escape_line(text: str) -> str:
    """Return a line of output in which everything but our own colours is written out."""
    return _UNSAFE_IN_LINE.sub(lambda match: match[1] or escape_controls(match[0]), text)


def escape_json(data: bytes) -> bytes:
    """Return a JSON document of the same meaning, with control characters escaped."""
    import json

    def escape(match: re.Match[str]) -> str:
        if match[0] == "\r":  # a line break by itself stands between values
            return "\n"
        units = match[0].encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))

    return _IN_JSON.sub(escape, data.decode(json.detect_encoding(data), "surrogatepass")).encode()


# State of the streams.


class _OutputState(Struct):
    """How this command line wants its output, and what was written so far."""

    quiet: bool = False
    verbose: bool = False
    color: str = "auto"
    emitted: bool = False
    has_temporary: bool = False
    done: str = ""


_state = _OutputState()


def configure(quiet: bool = False, verbose: bool = False, color: str = "auto") -> None:
    """Set the verbosity and the use of colours for a command line."""
    global _state  # noqa: PLW0603 - the streams are those of the process, too
    _state = _OutputState(quiet, verbose, color)


def is_verbose() -> bool:
    """Whether to leave nothing out."""
    return _state.verbose


def has_emitted() -> bool:
    """Whether any part of a result has been written."""
    return _state.emitted


def remember_done(done: str) -> None:
    """Remember a sentence on what this command has changed so far, in case it is interrupted."""
    _state.done = done


def done_so_far() -> list[str]:
    """Return what an interrupted command has changed already; empty if it did not say."""
    return [_state.done] if _state.done else []


def shows_colour(stream: TextIO | None) -> bool:
    """Whether to write colours, according to --color, the environment, or else the terminal."""
    if stream is None or _state.color != "auto":
        return stream is not None and _state.color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    forced = os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE") or "0"
    if forced not in ("0", "false"):
        return True
    is_able = os.environ.get("TERM") != "dumb" and os.environ.get("CLICOLOR") != "0"
    return is_able and stream.isatty()


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal that can move its cursor."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def can_encode(text: str, stream: TextIO | None) -> bool:
    """Whether a stream can write characters other than letters; one without encoding can."""
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def width() -> int:
    """Return the number of columns of a line: those of the terminal, or 80."""
    return shutil.get_terminal_size((80, 24)).columns


def paint(text: str, *styles: str, stream: TextIO | None = None) -> str:
    """Return the text in a style if the stream (stdout by default) shows colours."""
    if not shows_colour(sys.stdout if stream is None else stream):
        return text
    return f"\x1b[{';'.join(STYLES[style] for style in styles)}m{text}\x1b[0m"


# Writing.


def emit(data: bytes) -> None:
    """Write all of some bytes of the result to stdout."""
    if sys.stdout is None:
        raise BrokenPipeError
    clear_temporary()
    _state.emitted = True
    # Under PYTHONUNBUFFERED this is the raw file, which may write fewer bytes than it is given.
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]


def emit_json(data: bytes) -> None:
    """Write a JSON document of foreign content to stdout, unchanged unless that is a terminal."""
    is_shown = sys.stdout is not None and sys.stdout.isatty()
    emit(escape_json(data) if is_shown else data)


def emit_last(data: bytes) -> None:
    """Write the last bytes of a command that has already failed; never fail itself."""
    try:
        emit(data)
        flush()
    except OSError:
        abandon(sys.stdout)


def say(text: str) -> None:
    """Write a line of the result to stdout."""
    # A character that the terminal's encoding lacks must not end the command.
    encoding = getattr(sys.stdout, "encoding", "utf-8")
    emit(f"{escape_line(text)}\n".encode(encoding, "backslashreplace"))


def note(text: str, *, always: bool = False) -> None:
    """Write a line for people to stderr, after what stdout already holds; nothing with --quiet."""
    if _state.quiet and not always:
        return
    # In a file that gets both streams, the lines keep their order.
    flush()
    if _state.has_temporary:
        clear_temporary()
    if sys.stderr is not None:
        sys.stderr.write(f"{escape_line(text)}\n")


def complain(text: str) -> None:
    """Write to stderr why the command failed; never fail itself."""
    try:
        flush()
    except OSError:
        abandon(sys.stdout)
    try:
        name = paint("lockstitch:", "bold", "red", stream=sys.stderr)
        note(f"{name} {escape_controls(text)}", always=True)
    except OSError:
        abandon(sys.stderr)


def show_temporary(text: str) -> None:
    """Show a line on stderr that the next output replaces."""
    if sys.stderr is not None:
        sys.stderr.write(f"\r{escape_line(text)}\x1b[K")
        sys.stderr.flush()
        _state.has_temporary = True


def clear_temporary() -> None:
    """Remove the line that `show_temporary` shows, if any."""
    if _state.has_temporary and sys.stderr is not None:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
        _state.has_temporary = False


def start_new_line() -> None:
    """Start a new line on a terminal, whose current line may contain a question or ``^C``."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write("\n")


def flush() -> None:
    """Flush stdout, or raise an error."""
    if sys.stdout is not None:
        sys.stdout.flush()


def abandon(stream: TextIO | None) -> None:
    """Point a stream at nothing, so that the interpreter's own flush at exit cannot fail."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def describe_bug(error: Exception) -> str:
    """Return the type and place of a bug; its text could contain message content."""
    where = [*raised_at(error), "unknown place"]
    return f"internal error: {type(error).__name__} at {where[0]}"


def raised_at(error: Exception) -> list[str]:
    """Return where an error was raised, and from where that was called, innermost first."""
    places: list[str] = []
    step = error.__traceback__
    while step:
        places.append(f"{step.tb_frame.f_code.co_filename}:{step.tb_lineno}")
        step = step.tb_next
    return places[::-1]


# Questions.


def can_ask() -> bool:
    """Whether a person is at a terminal to answer a question."""
    return sys.stdin is not None and sys.stdin.isatty()


def ask(question: str) -> str:
    """Ask the person at the terminal; return the line that they type, "" at the end of input."""
    flush()
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline() if sys.stdin is not None else ""
    if not line.endswith("\n"):
        sys.stderr.write("\n")
    return line.strip()


def confirm(question: str, otherwise: str) -> bool:
    """Ask the person at the terminal; without one the answer is no.

    ``otherwise`` says what to do in that case.
    """
    if not can_ask():
        note(f"Nothing was changed: {otherwise}.")
        return False
    if ask(f"{question} [y/N] ").lower() in ("y", "yes"):
        return True
    note("Nothing was changed.")
    return False


YES, NO, ALL, DIFF, QUIT = "y", "n", "a", "d", "q"
_CHOICES = {YES: "[y]es", NO: "[n]o", ALL: "[a]ll", DIFF: "[d]iff", QUIT: "[q]uit"}
_ANSWERS = {
    answer: key for key, word in _CHOICES.items() for answer in (key, re.sub(r"[\[\]]", "", word))
}


class RepairPrompt(Struct):
    """The answers so far; ``total`` sessions are asked about one after the other."""

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
        if not can_ask():
            self.was_alone = self.is_over = True
            return False
        is_one_of_many = self.total > 1
        count = f" ({self.number} of {self.total})" if is_one_of_many else ""
        choices = [word for key, word in _CHOICES.items() if is_one_of_many or key != ALL]
        question = f"Repair this session{count}? A backup is kept. {' '.join(choices)} "
        while True:
            # closing the terminal, or only hitting Enter, does not mean yes
            chosen = _ANSWERS.get(ask(question).lower() or NO, "")
            if chosen == DIFF:
                difference()
            elif chosen:
                self.is_all = chosen == ALL
                self.is_over = chosen == QUIT
                return chosen in (YES, ALL)


# Rows.

_TAB = 4


def count_lines(text: str) -> int:
    """Return the number of lines in a text; a newline at the end does not start one."""
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def wrap_rows(
    text: str, width: int, limit: int | None, *, prose: bool = False, more: str = "…"
) -> Iterator[str]:
    """Yield a text row by row, processing no more of it than is shown.

    After ``limit`` rows (None: never) one more row says how much is left. ``prose`` is wrapped
    between words, anything else at the end of the row.
    """
    text = text.rstrip("\r\n")
    shown = start = 0
    while start <= len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        # of a line of megabytes, only what may be shown is escaped and measured
        taken = end if limit is None else min(end, start + (limit - shown + 1) * width)
        line = escape_controls(text[start:taken].removesuffix("\r").expandtabs(_TAB))
        for row in _wrap_line(line, width, prose=prose):
            if shown == limit:
                lines = text.count("\n", start) + 1
                left = several(lines, "more line")
                yield f"{more} {left if lines > 1 else f'{size(end - start)} in this line'}"
                return
            yield row
            shown += 1
        start = end + 1


def _wrap_line(line: str, width: int, *, prose: bool) -> Iterator[str]:
    """Yield the rows of one line, which is safe already."""
    start = 0
    while True:
        end = _end_of_row(line, start, width)
        if end >= len(line):
            yield line[start:]
            return
        space = line.rfind(" ", start + 1, end + 1) if prose else -1
        if space > start + width // 2:
            yield line[start:space]
            start = space + 1
        else:
            yield line[start:end]
            start = end


def _end_of_row(line: str, start: int, width: int) -> int:
    """Return the end of what fits into a row, which is at least one character."""
    if line.isascii():
        return start + width
    end, used = start, 0
    while end < len(line):
        used += _char_width(line[end])
        if used > width:
            break
        end += 1
    return max(end, start + 1)


@lru_cache(4096)
def _char_width(char: str) -> int:
    if category(char) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(char) in ("W", "F") else 1


def text_width(text: str) -> int:
    """Return the number of columns that a line takes."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def fit(text: str, width: int, more: str = "…") -> str:
    """Return a line made safe and cut to a width, with a mark where it was cut."""
    line = escape_controls(text.expandtabs(_TAB))
    if width <= 0 or _end_of_row(line, 0, width) >= len(line):
        return line if width > 0 else ""
    end = _end_of_row(line, 0, max(width - len(more), 1))
    return f"{line[:end]}{more}" if width > len(more) else line[:end]


# A pager.

# Quit if it fits on one screen, let colours through, do not clear the screen.
LESS = "-FRX"


def page_lines(lines: Iterable[str]) -> None:
    """Write lines for people: through ``$PAGER`` on a terminal, else to stdout.

    A pager that cannot be started is not used; one that quits early ends the output.
    """
    pager = None
    if sys.stdout is not None and sys.stdout.isatty():
        import shlex
        import subprocess

        environment = {"LESS": LESS, **os.environ}
        with suppress(OSError, ValueError):
            command = shlex.split(os.environ.get("PAGER", f"less {LESS}"))
            if command and command != ["cat"]:
                flush()
                pager = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)  # noqa: S603 - the user's own pager
    if pager is None or pager.stdin is None:
        for line in lines:
            say(line)
        return
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        with suppress(BrokenPipeError):
            for line in lines:
                pager.stdin.write(f"{escape_line(line)}\n".encode(encoding, "backslashreplace"))
    finally:
        with suppress(OSError):
            pager.stdin.close()
        while pager.returncode is None:
            # until the reader is done, Ctrl-C is for the pager
            with suppress(KeyboardInterrupt):
                pager.wait()


# Progress.

# How many seconds pass before the bar is drawn again.
_OFTEN = 0.1
_BAR_WIDTH = 24
_BAR_DONE, _BAR_LEFT = "\u2501", "\u2500"


class ProgressBar:
    """A progress bar with an estimate on a terminal, and nothing anywhere else.

    ``total`` is a number of bytes, or of what ``unit`` names.
    """

    def __init__(self, title: str, total: int, unit: str = "") -> None:
        self.title = title
        self.total = total
        self.unit = unit
        self.done = 0
        self.is_shown = bool(total and is_terminal(sys.stderr) and not _state.quiet)

    def __enter__(self) -> Callable[[int], None]:
        """Show the bar; return the function that advances it."""
        self.start = self.last = time.monotonic()
        self._show(self.start)
        return self.advance

    def advance(self, done: int) -> None:
        """Advance the bar."""
        self.done += done
        now = time.monotonic()
        if now - self.last >= _OFTEN:
            self._show(now)

    def _show(self, now: float) -> None:
        self.last = now
        if self.is_shown:
            drawn, plain = (_BAR_DONE, _BAR_LEFT), ("#", "-")
            glyphs = drawn if can_encode("".join(drawn), sys.stderr) else plain
            columns = shutil.get_terminal_size().columns
            show_temporary(draw_bar(self, now - self.start, columns, glyphs))

    def __exit__(self, *error: object) -> None:
        """Remove the bar."""
        if self.is_shown:
            clear_temporary()


def draw_bar(at: ProgressBar, seconds: float, columns: int, glyphs: tuple[str, str]) -> str:
    """Return one line: how much of the total is done, and how long the rest may take."""
    part = min(at.done / at.total, 1.0)
    filled = round(part * _BAR_WIDTH)
    of_bytes = f"{size(at.done)} of {size(at.total)}"
    count = f"{at.done}/{at.total} {at.unit}" if at.unit else of_bytes
    minutes, rest = divmod(round(seconds / part - seconds) if part else 0, 60)
    left = f"  {minutes}:{rest:02} left" if part else ""
    line = f"{at.title} {glyphs[0] * filled}{glyphs[1] * (_BAR_WIDTH - filled)} {count}{left}"
    return line[: columns - 1]
