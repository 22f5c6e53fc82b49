"""One session looked at closely: what is wrong, what a repair will do, and how it is resumed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from lockstitch import backups, sessions
from lockstitch.cli import own_failure, terminal
from lockstitch.cli.picker import Marks, shortened, wrapped
from lockstitch.cli.plans import steps
from lockstitch.cli.rows import several, size
from lockstitch.cli.text import COLOURS
from lockstitch.dialects.profiles import profile_named
from lockstitch.errors import Conflict, LockstitchError, Moved
from lockstitch.places import pasted
from lockstitch.report import is_many
from lockstitch.rules import NOTE, is_broken
from lockstitch.sessions.summary import Summary, checked, problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch.formats.doctor import Mended
    from lockstitch.formats.sources import Opened
    from lockstitch.report import Report
    from lockstitch.sessions import Repaired

_KEPT = "The original is kept as a backup, and undo brings it back byte for byte."
_MOST_STEPS = 12


class Look(Struct):
    """A session that was opened and planned; ``error`` says why it was not."""

    summary: Summary
    session: Opened | None = None
    mended: Mended | None = None
    report: Report | None = None
    error: str = ""

    @property
    def can_repair(self) -> bool:
        """Whether a repair would change anything."""
        return self.mended is not None and self.mended.changed


def look(summary: Summary) -> Look:
    """Open a session, check it and plan its repair; nothing is changed."""
    try:
        own = summary.session if is_many(summary.target) else None
        found = sessions.sources(summary.target, session=own)
        session = sessions.opened(found[0])
        mended = sessions.planned(session)
        report = sessions.outlook(session, mended).report
    except LockstitchError as error:
        return Look(summary, error=str(error))
    except OSError as error:
        return Look(summary, error=error.strerror or type(error).__name__)
    except (RecursionError, MemoryError):
        return Look(summary, error="it is too large or too deep to be read")
    except Exception as error:  # noqa: BLE001 - said as any other
        return Look(summary, error=own_failure(error))
    return Look(checked(summary, report), session, mended, report)


def told(view: Look, width: int, marks: Marks, now: float) -> list[str]:
    """Return the page on a session: what it is, what is wrong, and what a repair will do."""
    return [*_head(view.summary, width, marks, now), *_body(view, width, marks)]


def _head(one: Summary, width: int, marks: Marks, now: float) -> Iterator[str]:
    title = one.title or f"({one.session or 'no title'})"
    for line in wrapped(title, width):
        yield terminal.paint(line, "bold")
    project = shortened(one.project, home()) if one.project else ""
    facts = (one.program, project, one.age(now), size(one.size) if one.size else "")
    yield from wrapped(f" {marks.dot} ".join(filter(None, facts)), width)
    yield ""


def _body(view: Look, width: int, marks: Marks) -> Iterator[str]:
    if view.report is None or view.mended is None:
        yield from wrapped(f"This session cannot be read: {view.error}.", width)
        return
    found = [one for one in problems(view.report.findings) if one.severity != NOTE]
    if not found:
        yield from wrapped("Nothing is wrong with this session.", width)
        yield from _notes(view.report, width)
        yield from _resumed(view.summary, width)
        return
    yield terminal.paint("What is wrong", "bold")
    vendor = profile_named(str(view.report.dialect)).vendor if view.report.dialect else ""
    if view.report.unreachable:
        turns = several(view.report.unreachable, "turn")
        left = f"A resume would drop {turns} ({size(view.report.left)}) without saying so."
        yield from wrapped(left, width, "  ")
    for one in found:
        colour = COLOURS[one.severity]
        lines = list(wrapped(f"{one.severity}: {one.words}", width, "  ", marks.bullet))
        yield from (terminal.paint(line, colour) for line in lines)
        yield from wrapped(one.meaning, width, "    ")
        if one.refusal and vendor:
            yield from wrapped(f"{vendor} answers: {one.refusal}", width, "    ")
    yield from _notes(view.report, width)
    yield ""
    yield from _plan(view, width, marks)


def _plan(view: Look, width: int, marks: Marks) -> Iterator[str]:
    mended = view.mended
    if mended is None or not mended.changed:
        yield from wrapped("A repair cannot change anything here. Nothing was changed.", width)
        return
    yield terminal.paint("What the repair will do", "bold")
    said = steps(mended.changes)
    for words in said[:_MOST_STEPS]:
        yield from wrapped(words, width, "  ", marks.bullet)
    if len(said) > _MOST_STEPS:
        yield from wrapped(f"and {several(len(said) - _MOST_STEPS, 'more step')}", width, "    ")
    if mended.quarantine:
        count = several(len(mended.quarantine), "piece")
        yield from wrapped(f"{count} cannot stay; the backup keeps them.", width, "  ")
    left = [one for one in mended.remaining if one.severity != NOTE]
    if left:
        yield from wrapped(f"{several(len(left), 'problem')} will be left.", width, "  ")
    yield from wrapped(_KEPT, width)


def _notes(report: Report, width: int) -> Iterator[str]:
    for note in report.notes:
        yield from wrapped(f"Note: {note}", width, "  ")


def _resumed(one: Summary, width: int) -> Iterator[str]:
    line = one.resume_line(here())
    if line:
        yield ""
        yield terminal.paint("Resume it with", "bold")
        # never wrapped within a word: the line is printed again at the end, to be pasted
        yield from wrapped(line, width, "  ")


def repaired(view: Look) -> tuple[Look, list[str]]:
    """Write the planned repair; gives the session as it is now, and what to say."""
    if view.session is None or view.mended is None:
        return view, ["Nothing was changed."]
    try:
        sessions.require_closed(view.session, is_named=True)
        done = _written(view)
    except (LockstitchError, OSError) as error:
        return view, [f"Nothing was changed: {error}."]
    again = look(view.summary)
    lines = ["Repaired." if not is_broken(done.remaining) else "Repaired as far as it can be."]
    if done.backup:
        lines.append(f"Backup: {pasted(done.backup)}")
        lines.append(f"To undo it: {undo_line(view.summary)}")
    line = again.summary.resume_line(here())
    if line:
        lines += ["", "Resume it with", f"  {line}"]
    return again, lines


def _written(view: Look) -> Repaired:
    session, mended = view.session, view.mended
    if session is None or mended is None:
        raise Moved("there is nothing to write")
    try:
        return sessions.applied(session, mended, backups.new_run())
    except Moved:
        raise
    except Conflict:
        return sessions.repair(session.source)


def undo_line(one: Summary) -> str:
    """Return the command that takes the last repair of a session back, to be pasted."""
    more = f" --session {pasted(one.session)}" if is_many(one.target) and one.session else ""
    return f"lockstitch undo {pasted(one.target)}{more}"


def home() -> str:
    """Return the home directory."""
    return os.path.expanduser("~")  # noqa: PTH111 - start-up time


def here() -> str:
    """Return the folder that the command was started in; empty if it is gone."""
    try:
        return os.getcwd()  # noqa: PTH109 - start-up time
    except OSError:
        return ""
