"""How a transcript looks: prompts, stitches, marks, in the characters and colours there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

from msgspec import Struct, structs

from lockstitch.cli.rows import line_count, rows, several, size
from lockstitch.cli.terminal import harmless, paint
from lockstitch.cli.text import COLOURS
from lockstitch.conversation.parts import ASSISTANT, USER
from lockstitch.dialects.base import as_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lockstitch.rules import Finding
    from lockstitch.transcript.pieces import Note

# How many rows of each are shown before the rest is only counted.
_OF_TEXT, _OF_A_NOTE, _OF_AN_OUTPUT, _OF_AN_ARGUMENT = 40, 8, 8, 6
_MOST_ARGUMENTS = 20
_TEXT, _STITCH = "text", "stitch"


class Glyphs(Struct, frozen=True):
    """The characters that are not letters."""

    prompt: str
    top: str
    side: str
    bottom: str
    cross: str
    more: str
    rule: str


BOX = Glyphs("\u276f", "╭─", "│", "╰─", "✗", "…", "─")
ASCII = Glyphs(">", ",-", "|", "`-", "x", "...", "-")


def glyphs_of(stream: TextIO | None) -> Glyphs:
    """Give box characters if the stream can encode them, else ASCII."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        "".join(structs.astuple(BOX)).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BOX


class Page:
    """Lays out pieces of a transcript, one row at a time."""

    def __init__(self, width: int, full: bool, stream: TextIO | None, glyphs: Glyphs) -> None:
        self.width = width
        self.full = full
        self.stream = stream
        self.glyphs = glyphs
        self.last = ""

    def paint(self, text: str, *styles: str) -> str:
        """Paint a harmless text for this page's stream."""
        return paint(text, *styles, stream=self.stream) if styles and text else text

    def _apart(self, kind: str) -> Iterator[str]:
        """Leave a row empty between blocks; stitches stand close together."""
        if self.last and not self.last == kind == _STITCH:
            yield ""
        self.last = kind

    def _block(
        self, text: str, limit: int, indent: str, *styles: str, first: str = "", prose: bool = True
    ) -> Iterator[str]:
        """Give a text behind an indent; ``first`` takes the place of the first one."""
        most = None if self.full else limit
        room = max(1, self.width - len(indent))
        lead = first or indent
        for row in rows(text, room, most, prose=prose, more=self.glyphs.more):
            yield f"{lead}{self.paint(row, *styles)}"
            lead = indent

    def turn(self, number: int, place: str) -> Iterator[str]:
        """Head a turn."""
        yield from self._apart(_TEXT)
        rule = self.glyphs.rule
        title = f"{rule * 2} turn {number} {rule * 2} {place} "
        yield self.paint(title + rule * max(2, min(self.width, 72) - len(title)), "dim")

    def left_out(self, what: str) -> Iterator[str]:
        """Say what of the history is not shown."""
        yield from self._apart(_TEXT)
        yield self.paint(f"{self.glyphs.more} {what}", "dim")

    def said(self, text: str, role: str) -> Iterator[str]:
        """Give words: a prompt with its mark, the model's plain, others with who said them."""
        yield from self._apart(_TEXT)
        if role == USER:
            mark = self.paint(self.glyphs.prompt, "bold", "cyan")
            yield from self._block(text, _OF_TEXT, "  ", first=f"{mark} ")
        elif role == ASSISTANT:
            yield from self._block(text, _OF_TEXT, "")
        else:
            yield from self._block(f"[{role}] {text}", _OF_A_NOTE, "", "dim")

    def note(self, note: Note) -> Iterator[str]:
        """Give what stands beside the conversation."""
        yield from self._apart(_TEXT)
        yield from self._block(note.text, _OF_A_NOTE, "  ", note.style)

    def call(self, name: str, arguments: dict[str, Any] | str, by: str = "") -> Iterator[str]:
        """Open a stitch: the call in one row if it fits, else an argument a row."""
        yield from self._apart(_STITCH)
        head, name = self.glyphs.top, harmless(name)
        line = self._in_line(arguments, self.width - len(head) - len(name) - len(by) - 3)
        if line is not None:
            yield f"{head} {self.paint(name, 'bold')}({line}){self.paint(by, 'dim')}"
            return
        yield f"{head} {self.paint(name[: self.width], 'bold')}{self.paint(by, 'dim')}"
        yield from self._arguments(arguments)

    def _in_line(self, arguments: dict[str, Any] | str, room: int) -> str | None:
        """Give arguments in one row, None if they take more room."""
        if room < 0:
            return None
        if isinstance(arguments, str):
            fits = len(arguments) <= room and arguments.isprintable()
            return harmless(arguments) if fits else None
        shown: list[str] = []
        for key, value in arguments.items():
            room -= len(str(key)) + 3
            if isinstance(value, str) and (len(value) > room or not value.isprintable()):
                return None
            shown.append(harmless(f"{key}={as_json(value)}"))
            room -= len(shown[-1]) - len(str(key)) - 1
            if room < 0:
                return None
        return ", ".join(shown)

    def _arguments(self, arguments: dict[str, Any] | str) -> Iterator[str]:
        side = f"{self.glyphs.side}  "
        if isinstance(arguments, str):
            yield from self._block(arguments, _OF_AN_ARGUMENT, side, prose=False)
            return
        for number, (key, value) in enumerate(arguments.items()):
            if number == _MOST_ARGUMENTS and not self.full:
                left = several(len(arguments) - number, "more argument")
                yield f"{side}{self.glyphs.more} {left}"
                return
            text = value if isinstance(value, str) else as_json(value)
            name = harmless(str(key)[: self.width])
            if "\n" in text or len(name) + len(text) + 5 > self.width:
                yield f"{side}{name}:"
                yield from self._block(text, _OF_AN_ARGUMENT, f"{side}  ", prose=False)
            else:
                yield f"{side}{name}: {harmless(text.expandtabs(4))}"

    def result(
        self,
        title: str,
        text: str,
        pictures: Sequence[str] = (),
        where: str = "",
        *,
        failed: bool = False,
    ) -> Iterator[str]:
        """Close a stitch: what came back, its measure, and its first rows."""
        word = title.replace("result", "error result", 1) if failed else title
        yield f"{self.glyphs.bottom} {word} ({_measure(text, pictures)}{harmless(where)})"
        if text.strip():
            yield from self._block(text, _OF_AN_OUTPUT, "     ", prose=False)
        for picture in pictures:
            yield from self._block(picture, 2, "     ", prose=False)

    def stray(self) -> Iterator[str]:
        """Set a result apart that stands under no call."""
        yield from self._apart(_STITCH)

    def named(self, name: str) -> str:
        """Give a name from the conversation, fit to stand in a title."""
        return harmless(name)

    def broken(self, title: str, found: Sequence[Finding]) -> str:
        """Give a title with the mark of something broken, and the code if one was found."""
        code = f" {harmless(found[0].code)}" if found else ""
        return f"{self.paint(self.glyphs.cross + code, 'bold', 'red')} {title}"

    def no_result(self, found: Sequence[Finding], call: str | None) -> Iterator[str]:
        """Close a stitch that nothing came back for."""
        title = self.broken("no result", found) if found else "no result"
        name = f"  {self.paint(harmless(call)[: self.width], 'dim')}" if call else ""
        yield f"{self.glyphs.bottom} {title}{name}"

    def closed(self, word: str) -> Iterator[str]:
        """Close a stitch with what is known instead of a result."""
        yield f"{self.glyphs.bottom} {self.paint(word, 'yellow')}"

    def checkpoint(self, text: str) -> Iterator[str]:
        """Mark a place to go back to."""
        yield from self._apart(_TEXT)
        yield self.paint(f"{self.glyphs.rule * 2} {harmless(text)}", "cyan")

    def mark(self, found: Finding, indent: str) -> Iterator[str]:
        """Mark a broken place: the code, what is wrong, and where."""
        self.last = self.last or _TEXT
        colour = COLOURS.get(found.severity, "red")
        mark = self.paint(f"{self.glyphs.cross} {harmless(found.code)}", "bold", colour)
        text = f"{found.message} ({found.place})"
        hanging = f"{indent}{' ' * (len(found.code) + 3)}"
        yield from self._block(text, _OF_TEXT, hanging, colour, first=f"{indent}{mark} ")


def _measure(text: str, pictures: Sequence[str]) -> str:
    if not text:
        return several(len(pictures), "attachment") if pictures else "empty"
    bytes_ = size(len(text.encode("utf-8", "surrogatepass")))
    return f"{several(line_count(text), 'line')}, {bytes_}"
