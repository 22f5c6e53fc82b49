"""``lockstitch show``: a stored session for people to read, with the broken places marked."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TextIO

from msgspec import Struct, structs

from lockstitch.cli import render, terminal
from lockstitch.cli.options import FORMAT, LAST, SESSION, Command, Operand, option, read_number
from lockstitch.cli.render import COLOURS
from lockstitch.cli.targets import find_one, is_own_store, last_used_session, naming_target
from lockstitch.cli.terminal import (
    CLEAN,
    FINDINGS,
    can_encode,
    count_lines,
    escape_controls,
    page_lines,
    paint,
    wrap_rows,
)
from lockstitch.conversation.json_text import is_index
from lockstitch.conversation.parts import ASSISTANT, USER, Place
from lockstitch.dialects.base import as_json
from lockstitch.errors import UsageError
from lockstitch.formats.repair import findings_in, findings_in_history
from lockstitch.rules.rule import is_broken, several
from lockstitch.sources import operations
from lockstitch.sources.source import OWN, Opened
from lockstitch.transcript import size
from lockstitch.transcript.messages import (
    JournalTranscript,
    MessageTranscript,
    journal_turns_around,
    last_journal_turns,
    last_turns,
    turns_around,
)

if TYPE_CHECKING:
    from lockstitch.rules import Finding
    from lockstitch.transcript.messages import Marks, ShownPart


# How many rows of each text are shown before the rest is only counted.
_OF_TEXT, _OF_A_NOTE, _OF_AN_OUTPUT, _OF_AN_ARGUMENT = 40, 8, 8, 6
_MOST_ARGUMENTS = 20
_TEXT_BLOCK, _CALL_BLOCK = "text", "call"


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


class TerminalLayout:
    """Lays out the parts of a transcript, one row at a time."""

    def __init__(self, width: int, full: bool, stream: TextIO | None) -> None:
        self.width = max(width, 20)
        self.full = full
        self.stream = sys.stdout if stream is None else stream
        self.glyphs = BOX if can_encode("".join(structs.astuple(BOX)), self.stream) else ASCII
        self.last = ""

    def rows(self, parts: Iterable[ShownPart]) -> Iterator[str]:
        """Yield the rows of parts as they come, with an empty row between blocks."""
        for part in parts:
            kind = part["kind"]
            if kind not in ("answer", "mark"):
                block = _CALL_BLOCK if kind in ("call", "result") else _TEXT_BLOCK
                # no empty row between calls
                if self.last and not self.last == block == _CALL_BLOCK:
                    yield ""
                self.last = block
            yield from self._rows_of(part)

    def _rows_of(self, part: ShownPart) -> Iterator[str]:
        rule = self.glyphs.rule
        match part["kind"]:
            case "turn":
                title = f"{rule * 2} turn {part['number']} {rule * 2} {part['place']} "
                yield self._paint(title + rule * max(2, min(self.width, 72) - len(title)), "dim")
            case "left out":
                yield self._paint(f"{self.glyphs.more} {part['text']}", "dim")
            case "text":
                yield from self._said(part["text"], part["role"])
            case "note":
                style = "yellow" if part["is_warning"] else "dim"
                yield from self._block(part["text"], _OF_A_NOTE, "  ", style)
            case "checkpoint":
                yield self._paint(f"{rule * 2} {escape_controls(part['text'])}", "cyan")
            case "call":
                yield from self._call(part)
            case "answer" | "result":
                yield from self._result(part)
            case "mark" if not part["is_in_title"]:
                yield from self._mark(part["found"], part["indent"])

    def _paint(self, text: str, *styles: str) -> str:
        """Paint a safe text for this page's stream."""
        return paint(text, *styles, stream=self.stream) if styles and text else text

    def _block(
        self, text: str, limit: int, indent: str, *styles: str, first: str = "", prose: bool = True
    ) -> Iterator[str]:
        """Yield an indented text; ``first`` replaces the first indent."""
        most = None if self.full else limit
        room = max(1, self.width - len(indent))
        lead = first or indent
        for row in wrap_rows(text, room, most, prose=prose, more=self.glyphs.more):
            yield f"{lead}{self._paint(row, *styles)}"
            lead = indent

    def _said(self, text: str, role: str) -> Iterator[str]:
        """Yield words: a prompt with its mark, the model's plain, others with their speaker."""
        if role == USER:
            mark = self._paint(self.glyphs.prompt, "bold", "cyan")
            yield from self._block(text, _OF_TEXT, "  ", first=f"{mark} ")
        elif role == ASSISTANT:
            yield from self._block(text, _OF_TEXT, "")
        else:
            yield from self._block(f"[{role}] {text}", _OF_A_NOTE, "", "dim")

    def _call(self, part: ShownPart) -> Iterator[str]:
        """Yield a call: in one row if it fits, else with one argument in each row."""
        head, name, arguments = self.glyphs.top, escape_controls(part["tool"]), part["arguments"]
        by = part.get("by", "")
        by = f"{'  ' if by.startswith('attempt') else ' '}{by}" if by else ""
        line = self._in_line(arguments, self.width - len(head) - len(name) - len(by) - 3)
        if line is not None:
            yield f"{head} {self._paint(name, 'bold')}({line}){self._paint(by, 'dim')}"
            return
        yield f"{head} {self._paint(name[: self.width], 'bold')}{self._paint(by, 'dim')}"
        yield from self._arguments(arguments)

    def _in_line(self, arguments: dict[str, Any] | str, room: int) -> str | None:
        """Return arguments in one row, None if they do not fit."""
        if room < 0:
            return None
        if isinstance(arguments, str):
            fits = len(arguments) <= room and arguments.isprintable()
            return escape_controls(arguments) if fits else None
        shown: list[str] = []
        for key, value in arguments.items():
            room -= len(str(key)) + 3
            if isinstance(value, str) and (len(value) > room or not value.isprintable()):
                return None
            shown.append(escape_controls(f"{key}={as_json(value)}"))
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
            name = escape_controls(str(key)[: self.width])
            if "\n" in text or len(name) + len(text) + 5 > self.width:
                yield f"{side}{name}:"
                yield from self._block(text, _OF_AN_ARGUMENT, f"{side}  ", prose=False)
            else:
                yield f"{side}{name}: {escape_controls(text.expandtabs(4))}"

    def _result(self, part: ShownPart) -> Iterator[str]:
        """Yield a result's size and first rows, or else what is known instead."""
        title, state, broken = escape_controls(part["title"]), part["state"], part.get("broken")
        if part.get("failed"):
            title = title.replace("result", "error result", 1)
        if broken is not None:
            # the mark for something broken, and the code if there is a finding
            mark = f"{self.glyphs.cross} {escape_controls(broken)}".rstrip()
            title = f"{self._paint(mark, 'bold', 'red')} {title}"
        if state == "open":
            name = escape_controls(part["call"] or "")[: self.width]
            title += f"  {self._paint(name, 'dim')}" if name else ""
        elif state == "closed":
            title = self._paint(title, "yellow")
        else:
            text, pictures = part["text"], part["pictures"]
            measure = several(len(pictures), "attachment") if pictures else "empty"
            if text:
                bytes_ = size(len(text.encode("utf-8", "surrogatepass")))
                measure = f"{several(count_lines(text), 'line')}, {bytes_}"
            title += f" ({measure}{escape_controls(part['where'])})"
        yield f"{self.glyphs.bottom} {title}"
        if part["text"].strip():
            yield from self._block(part["text"], _OF_AN_OUTPUT, "     ", prose=False)
        for picture in part.get("pictures", ()):
            yield from self._block(picture, 2, "     ", prose=False)

    def _mark(self, found: Finding, indent: str) -> Iterator[str]:
        """Yield the mark of a broken place: the code, what is wrong, and where."""
        self.last = self.last or _TEXT_BLOCK
        colour = COLOURS.get(found.severity, "red")
        mark = self._paint(f"{self.glyphs.cross} {escape_controls(found.code)}", "bold", colour)
        text = f"{found.message} ({found.place})"
        hanging = f"{indent}{' ' * (len(found.code) + 3)}"
        yield from self._block(text, _OF_TEXT, hanging, colour, first=f"{indent}{mark} ")


def message_lines(  # noqa: PLR0913 - two by keyword
    messages: Sequence[Any],
    dialect: str,
    marks: Marks,
    width: int,
    *,
    chosen: range | None = None,
    full: bool = False,
    stream: TextIO | None = None,
) -> Iterator[str]:
    """Yield a history line by line, on demand.

    ``marks`` maps places in the list to their findings. ``chosen`` are the messages to show (see
    `last_turns` and `turns_around`), by default all. Long texts are shortened unless ``full``.
    Colours and box characters are chosen for ``stream``, by default stdout.
    """
    parts = MessageTranscript(messages, dialect, marks).lines(chosen)
    yield from TerminalLayout(width, full, stream).rows(parts)


# The command.


class ShowRequest(Struct, frozen=True):
    """The options on the command line, by name."""

    target: str | None
    last: int | None
    place: str | None
    full: bool
    dropped: bool
    newest: bool
    form: str | None
    session: str | None


def run(request: ShowRequest) -> int:
    """Show one session, and return the exit status."""
    target, session = request.target, request.session
    if request.newest:
        target, session = last_used_session(target, session)
    width = shutil.get_terminal_size((100, 24)).columns
    if is_own_store(target, request.form):
        if request.dropped:
            raise UsageError(
                "--dropped is for other programs' sessions; nothing is dropped in a Lockstitch "
                "store"
            )
        return _show_journal(str(target), session, width, request)
    source = find_one(target, request.form, session)
    with naming_target(source.path):
        stored = source.open(follow_symlinks=True)
    if request.dropped:
        page_lines(dropped_lines(stored, terminal.width(), full=request.full))
        return CLEAN
    form, transcript = stored.source.form, stored.transcript
    history = transcript.history
    findings = findings_in(form, transcript)
    chosen = None
    if request.last is not None:
        chosen = last_turns(history.messages, history.dialect, request.last)
    elif request.place is not None:
        at = _message_at(stored, request.place)
        chosen = turns_around(history.messages, history.dialect, at)
    marks: dict[str, list[Finding]] = {}
    for found in findings_in_history(form, transcript):
        marks.setdefault(found.place, []).append(found)
    lines = message_lines(
        history.messages, history.dialect, marks, width, chosen=chosen, full=request.full
    )
    page_lines(chain(_head_lines(stored, findings, marks), lines))
    return FINDINGS if is_broken(findings) else CLEAN


def _head_lines(
    stored: Opened, findings: list[Finding], marks: dict[str, list[Finding]]
) -> Iterator[str]:
    """Yield the findings outside the messages themselves."""
    report = operations.describe(stored)
    name, dialect = render.report_name(report), str(report.dialect)
    shown = {found.code for group in marks.values() for found in group}
    title = f"{report.format} {report.session or ''}  {report.messages} messages"
    yield terminal.paint(terminal.escape_controls(title.strip()), "bold")
    for found in findings:
        if found.code not in shown:
            yield render.describe_finding(name, dialect, found, sys.stdout)
    for note in report.notes:
        yield f"note: {terminal.escape_controls(note)}"
    yield ""


def _message_at(stored: Opened, text: str) -> int:
    """Return the number of the message at a place, which is one in the file or in the list."""
    place = Place.parse(text)
    if place.message is not None:
        return place.message
    records = stored.transcript.records
    head = text.partition(".")[0]
    for number, sources in enumerate(stored.transcript.history.sources):
        if any(records[source].place == head for source in sources if source >= 0):
            return number
    raise UsageError(f"no message that a resume sends is at {text}: name the place of a finding")


def dropped_lines(stored: Opened, width: int, *, full: bool = False) -> Iterator[str]:
    """Yield the turns that a resume would not send, piece by piece, each with the reason."""
    found = stored.source.form.dropped(stored.transcript)
    dialect = stored.transcript.history.dialect
    for piece in found:
        repair = "a repair leaves them alone" if piece.is_chosen else "a repair brings them back"
        count = several(len(piece.messages), "message")
        title = f"{count} from {piece.place} on: {piece.reason}; {repair}"
        for row in wrap_rows(title, width, None, prose=True):
            yield terminal.paint(row, "bold", "yellow")
        for block in message_lines(piece.messages, dialect, {}, width, full=full):
            yield from block.split("\n")
        yield ""
    if not found:
        yield "A resume sends everything that is stored here."


def _show_journal(target: str, session: str | None, width: int, request: ShowRequest) -> int:
    """Show a session of a Lockstitch store, with the outcome of every call."""
    from lockstitch import stored

    with naming_target(target):
        journal = stored.read(target, session)
    chosen = None
    if request.last is not None:
        chosen = last_journal_turns(journal, request.last)
    elif request.place is not None:
        if not is_index(request.place):
            raise UsageError(
                "--around takes the number of a record: `lockstitch checkpoints` lists some"
            )
        chosen = journal_turns_around(journal, int(request.place))
    counts = f"{several(journal.turns, 'turn')}, {several(len(journal.records), 'record')}"
    title = terminal.escape_controls(f"{OWN} {journal.session}  {counts}")
    head = [terminal.paint(title, "bold")]
    if journal.fault is not None:
        name = render.session_name(target, OWN, journal.session)
        head.append(render.describe_finding(name, journal.dialect, journal.fault, sys.stdout))
    parts = JournalTranscript(journal).lines(chosen)
    page_lines(chain(head, [""], TerminalLayout(width, request.full, None).rows(parts)))
    return FINDINGS if journal.fault else CLEAN


COMMAND = Command(
    name="show",
    run=run,
    bundle=ShowRequest,
    details=(
        "Shows what a resume would send, and marks broken places with their code. In a session "
        "of a Lockstitch store, every call is shown with its outcome, and checkpoints are "
        "marked. On a terminal the output goes through a pager. Control characters in the "
        "content are made harmless."
    ),
    examples=(
        "lockstitch show session.jsonl",
        "lockstitch show 4ee0c484 --tail 3",
        "lockstitch show --last --dropped",
        "lockstitch show session.jsonl --around 519",
        "lockstitch show sqlite:///agent.db --session ticket-42",
    ),
    operand=Operand("target", "TARGET", "A file, a session id, or the address of a store."),
    options=(
        option(
            "--tail N",
            "Show only the last N turns.",
            name="last",
            read=read_number("a number of turns"),
        ),
        option(
            "--around PLACE", "Show only the turns around the place of a finding.", name="place"
        ),
        option("--full", "Do not shorten long texts."),
        option("--dropped", "Show the turns that a resume would drop instead."),
        LAST,
        FORMAT,
        SESSION,
    ),
)
