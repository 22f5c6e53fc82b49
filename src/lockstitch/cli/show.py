"""``lockstitch show``: a stored session for a person to read, with the broken places marked."""

from __future__ import annotations

import shutil
import sys
from itertools import chain
from typing import TYPE_CHECKING

from lockstitch import sessions
from lockstitch.cli import CLEAN, FINDINGS, terminal, text
from lockstitch.cli.arguments import FORMAT, LAST, SESSION, Command, Operand, Option
from lockstitch.cli.rows import rows, several
from lockstitch.cli.targets import is_own, last_used, one, told
from lockstitch.cli.transcript import around, lines, paged, tail
from lockstitch.conversation.json_text import is_index
from lockstitch.errors import UsageError
from lockstitch.formats import doctor
from lockstitch.report import OWN
from lockstitch.rules.rule import is_broken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch.rules import Finding
    from lockstitch.stored import Journal


def run(  # noqa: PLR0913 - one keyword an option
    *,
    target: str | None,
    last: str | None,
    place: str | None,
    full: bool,
    dropped: bool,
    newest: bool,
    form: str | None,
    session: str | None,
) -> int:
    """Show one session, and return the exit status."""
    if newest:
        target, session = last_used(target, session)
    if is_own(target, form):
        if dropped:
            raise UsageError(
                "--dropped is for the sessions of other programs; nothing is dropped here"
            )
        return _show_journal(str(target), last, place, session, full=full)
    stored = sessions.opened(one(target, form, session), follow_symlinks=True)
    if dropped:
        paged(dropped_lines(stored, terminal.width(), full=full))
        return CLEAN
    findings = doctor.findings_of(stored.source.form, stored.transcript)
    paged(_page(stored, findings, last, place, full=full))
    return FINDINGS if is_broken(findings) else CLEAN


def _show_journal(
    target: str, last: str | None, place: str | None, session: str | None, *, full: bool
) -> int:
    from lockstitch import stored
    from lockstitch.cli import conversation

    with told(target):
        journal = stored.read(target, session)
    chosen = None
    if last is not None:
        chosen = conversation.tail(journal, _number(last, "--tail takes a number of turns"))
    elif place is not None:
        chosen = conversation.around(journal, _number(place, "--around takes a record's number"))
    width = shutil.get_terminal_size((100, 24)).columns
    shown = conversation.lines(journal, width, chosen=chosen, full=full)
    paged(chain(_journal_head(target, journal), shown))
    return FINDINGS if journal.fault else CLEAN


def _journal_head(target: str, journal: Journal) -> Iterator[str]:
    counts = f"{several(journal.turns, 'turn')}, {several(len(journal.records), 'record')}"
    title = f"{OWN} {journal.session}  {counts}"
    yield terminal.paint(terminal.harmless(title), "bold")
    if journal.fault is not None:
        name = text.labelled(target, OWN, journal.session)
        yield text.finding(name, journal.dialect, journal.fault, sys.stdout)
    yield ""


def _number(word: str, mistake: str) -> int:
    if not is_index(word):
        raise UsageError(mistake)
    return int(word)


def _page(
    stored: sessions.Opened,
    findings: list[Finding],
    last: str | None,
    place: str | None,
    *,
    full: bool,
) -> Iterator[str]:
    history = stored.transcript.history
    chosen = _chosen(stored, last, place)
    marks: dict[str, list[Finding]] = {}
    for found in doctor.sent_findings(stored.source.form, stored.transcript):
        marks.setdefault(found.place, []).append(found)
    yield from _head(stored, findings, marks)
    width = shutil.get_terminal_size((100, 24)).columns
    yield from lines(history.messages, history.dialect, marks, width, chosen=chosen, full=full)


def dropped_lines(stored: sessions.Opened, width: int, *, full: bool = False) -> Iterator[str]:
    """Give the turns that a resume would not send, piece by piece, each with the reason."""
    found = stored.source.form.dropped(stored.transcript)
    dialect = stored.transcript.history.dialect
    for piece in found:
        repair = "a repair leaves them alone" if piece.is_chosen else "a repair brings them back"
        count = several(len(piece.messages), "message")
        title = f"{count} from {piece.place} on: {piece.reason}; {repair}"
        for row in rows(title, width, None, prose=True):
            yield terminal.paint(row, "bold", "yellow")
        for block in lines(piece.messages, dialect, {}, width, full=full):
            yield from block.split("\n")
        yield ""
    if not found:
        yield "A resume sends everything that is stored here."


def _head(
    stored: sessions.Opened, findings: list[Finding], marks: dict[str, list[Finding]]
) -> Iterator[str]:
    """What is wrong outside of the messages themselves."""
    report = sessions.described(stored)
    shown = {found.code for group in marks.values() for found in group}
    title = f"{report.format} {report.session or ''}  {report.messages} messages"
    yield terminal.paint(terminal.harmless(title.strip()), "bold")
    for found in findings:
        if found.code not in shown:
            yield text.finding(text.named(report), str(report.dialect), found, sys.stdout)
    for note in report.notes:
        yield f"note: {terminal.harmless(note)}"
    yield ""


def _chosen(stored: sessions.Opened, last: str | None, place: str | None) -> range | None:
    history = stored.transcript.history
    if last is not None:
        turns = _number(last, "--tail takes a number of turns")
        return tail(history.messages, history.dialect, turns)
    if place is not None:
        return around(history.messages, history.dialect, _message_at(stored, place))
    return None


def _message_at(stored: sessions.Opened, place: str) -> int:
    """The message at a place: of the file, or of the list."""
    history = stored.transcript.history
    head, _, rest = place.partition(".")
    if not head.isdigit() and is_index(rest.split(".")[0]):
        return int(rest.split(".")[0])
    records = stored.transcript.records
    for number, sources in enumerate(history.sources):
        if any(records[source].place == head for source in sources if source >= 0):
            return number
    raise UsageError(f"a resume sends nothing from {place}")


COMMAND = Command(
    name="show",
    group="sessions",
    run=run,
    summary="Show a session for a person to read, calls joined with their results.",
    details=(
        "What is shown is what a resume would send; broken places are marked with their code. Of a "
        "session in a store of Lockstitch's own, every call is shown with what became of it, and "
        "the checkpoints are marked. On a terminal it goes through a pager. Control characters in "
        "the content are made harmless."
    ),
    examples=(
        "lockstitch show session.jsonl",
        "lockstitch show 4ee0c484 --tail 3",
        "lockstitch show --last --dropped",
        "lockstitch show session.jsonl --around 519",
        "lockstitch show sqlite:///agent.db --session ticket-42",
    ),
    operand=Operand("target", "TARGET", "A file, the id of a session, or a store's address."),
    options=(
        Option("last", ("--tail",), "Only the last N turns.", metavar="N"),
        Option(
            "place", ("--around",), "Only the turns around a place of a finding.", metavar="PLACE"
        ),
        Option("full", ("--full",), "Do not shorten long texts."),
        Option("dropped", ("--dropped",), "Show the turns that a resume would drop instead."),
        LAST,
        FORMAT,
        SESSION,
    ),
)
