"""The only door to stdout and stderr: order, colours, harmless text, readers that went away."""

from __future__ import annotations

import os
import re
import sys
from typing import TextIO

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}

# What could move the cursor, reorder the line, hide, or not be encoded at all: control
# characters, line separators, bidirectional and invisible marks, lone surrogates.
_HIDDEN = (
    "\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_UNSAFE = re.compile(f"[\x00-\x1f{_HIDDEN}]")
# A whole line: besides, it may have our own colours, and go on below as findings do.
_STYLE = "\x1b\\[(?:0|(?:[12]|3[1236])(?:;(?:[12]|3[1236]))*)m"
_LINE = re.compile(f"({_STYLE}|\n(?:{_STYLE})?  = )|[\x00-\x1f{_HIDDEN}]")
# JSON has line breaks and tabs between its values only.
_IN_JSON = re.compile(f"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f{_HIDDEN}]")


def harmless(text: str) -> str:
    """Text from a file or a file name, with everything a terminal might obey written out."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def harmless_line(text: str) -> str:
    """A line of output with everything but our own colours written out, whoever put it there."""
    return _LINE.sub(lambda match: match[1] or harmless(match[0]), text)


def harmless_json(data: bytes) -> bytes:
    """A JSON document for a terminal: what that might obey is escaped, and it means the same."""
    import json

    text = data.decode(json.detect_encoding(data), "surrogatepass")
    return _IN_JSON.sub(_escaped, text).encode()


def _escaped(match: re.Match[str]) -> str:
    """One character as JSON writes it in a string; a lone return is a line break between values."""
    if match[0] == "\r":
        return "\n"
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


class _State:
    """How this command line wants its output, and what was written of it so far."""

    def __init__(self, quiet: bool = False, verbose: bool = False, color: str = "auto") -> None:
        self.quiet = quiet
        self.verbose = verbose
        self.color = color
        self.emitted = False
        self.passing = False
        self.done = ""


_state = _State()


def configure(quiet: bool = False, verbose: bool = False, color: str = "auto") -> None:
    """Begin a command line: how much is said, and whether in colours."""
    global _state  # noqa: PLW0603 - the streams are those of the process, too
    _state = _State(quiet, verbose, color)


def is_quiet() -> bool:
    """Whether only results and errors are wanted."""
    return _state.quiet


def is_verbose() -> bool:
    """Whether nothing shall be left out."""
    return _state.verbose


def has_emitted() -> bool:
    """Whether anything of a result has been written."""
    return _state.emitted


def achieve(done: str) -> None:
    """Remember in a sentence what this command has changed so far, for one that is interrupted."""
    _state.done = done


def done_so_far() -> list[str]:
    """What an interrupted command has changed already; nothing if it did not say."""
    return [_state.done] if _state.done else []


def shows_colour(stream: TextIO | None) -> bool:
    """Whether colours may be written: as --color says, else the environment, else on a terminal."""
    if stream is None or _state.color != "auto":
        return stream is not None and _state.color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    forced = os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE") or "0"
    if forced not in ("0", "false"):
        return True
    return os.environ.get("CLICOLOR") != "0" and is_terminal(stream)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal that can move its cursor."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, *styles: str, stream: TextIO | None = None) -> str:
    """The text in a style if the stream (stdout unless given) shows colours."""
    if not shows_colour(sys.stdout if stream is None else stream):
        return text
    return f"\x1b[{';'.join(STYLES[style] for style in styles)}m{text}\x1b[0m"


def emit(data: bytes) -> None:
    """Write bytes of the result to stdout, all of them."""
    if sys.stdout is None:
        raise BrokenPipeError
    take_away()
    _state.emitted = True
    # Under PYTHONUNBUFFERED this is the raw file, which may take less than it is given.
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]


def emit_json(data: bytes) -> None:
    """Write a JSON document of somebody's content to stdout; byte for byte unless to a terminal."""
    is_shown = sys.stdout is not None and sys.stdout.isatty()
    emit(harmless_json(data) if is_shown else data)


def say(text: str) -> None:
    """Write a line of the result to stdout."""
    encoding = getattr(sys.stdout, "encoding", "utf-8")
    emit(f"{harmless_line(text)}\n".encode(encoding, "backslashreplace"))


def emit_last(data: bytes) -> None:
    """Write the last bytes of a command that has failed already; never fails itself."""
    try:
        emit(data)
        flush()
    except OSError:
        _abandon(sys.stdout)


def note(text: str) -> None:
    """Write a line for people to stderr, after what stdout already holds; not if --quiet."""
    if not _state.quiet:
        _tell(text)


def _tell(text: str) -> None:
    flush()
    take_away()
    if sys.stderr is not None:
        sys.stderr.write(f"{harmless_line(text)}\n")


def pass_by(text: str) -> None:
    """Show a line on stderr that the next one takes the place of."""
    if sys.stderr is not None:
        sys.stderr.write(f"\r{harmless_line(text)}\x1b[K")
        sys.stderr.flush()
        _state.passing = True


def take_away() -> None:
    """Take the line away that `pass_by` shows, if any."""
    if _state.passing and sys.stderr is not None:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
        _state.passing = False


def complain(text: str) -> None:
    """Say on stderr why the command failed; never fails itself."""
    try:
        flush()
    except OSError:
        _abandon(sys.stdout)
    try:
        _tell(f"{paint('lockstitch:', 'bold', 'red', stream=sys.stderr)} {harmless(text)}")
    except OSError:
        _abandon(sys.stderr)


def leave_line() -> None:
    """Begin a new line on a terminal, where a question or ``^C`` may stand on the present one."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write("\n")


def agreed(question: str, otherwise: str) -> bool:
    """Ask the person at the terminal; nobody there means no, and ``otherwise`` says what to do."""
    if not is_asked():
        note(f"Nothing was changed: {otherwise}.")
        return False
    if asked(f"{question} [y/N] ").lower() in ("y", "yes"):
        return True
    note("Nothing was changed.")
    return False


def asked(question: str) -> str:
    """Ask the person at the terminal, and return the line that they type; empty at its end."""
    flush()
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline() if sys.stdin is not None else ""
    if not line.endswith("\n"):
        sys.stderr.write("\n")
    return line.strip()


def is_asked() -> bool:
    """Whether somebody is at a terminal to answer a question."""
    return sys.stdin is not None and sys.stdin.isatty()


def width() -> int:
    """Return how many columns a line may have: those of the terminal, 80 where there is none."""
    import shutil

    return shutil.get_terminal_size((80, 24)).columns


def flush() -> None:
    """Deliver what stdout still holds, or raise."""
    if sys.stdout is not None:
        sys.stdout.flush()


def abandon() -> None:
    """Stop writing: the reader has gone, and that is not worth a word."""
    _abandon(sys.stdout)


def _abandon(stream: TextIO | None) -> None:
    """Point a stream at nothing, so that the interpreter's own flush at exit cannot fail."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
