"""Many sessions at a glance: a table by project, and each one that needs a look in words."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from msgspec import Struct, field

from lockstitch import places, sessions
from lockstitch.cli import CLEAN, FAILED, FINDINGS, terminal
from lockstitch.cli.looks import home
from lockstitch.cli.picker import COLOURS, WIDE, shortened, wrapped
from lockstitch.cli.rows import cells, fitted, several, size
from lockstitch.places import pasted
from lockstitch.report import OWN, is_many
from lockstitch.sessions.summary import (
    BROKEN,
    HEALTHY,
    UNREADABLE,
    WARNINGS,
    Key,
    Summary,
    ago,
    described,
    short_ids,
    state_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lockstitch.report import Report

_HEADS = ("program", "project", "sessions", "broken", "warnings", "last used", "size")
_LEVEL = len(UNREADABLE)


class Row(Struct):
    """One line of the table: the sessions of one program in one project."""

    program: str
    project: str
    sessions: int = 0
    broken: int = 0
    warned: int = 0
    size: int = 0
    updated: float = 0.0

    def add(self, report: Report) -> None:
        """Count a session in."""
        self.sessions += 1
        level, _ = state_of(report)
        self.broken += level in (BROKEN, UNREADABLE)
        self.warned += level == WARNINGS
        self.size += report.size
        self.updated = max(self.updated, report.updated)


class Total(Struct):
    """What is counted of reports as they go by: the table, and how many are in which state."""

    table: dict[tuple[str, str], Row] = field(default_factory=dict)
    states: dict[str, int] = field(default_factory=dict)
    noted: int = 0

    def over(self, reports: Iterable[Report]) -> Iterator[Report]:
        """Pass reports on, and count them."""
        for report in reports:
            base = places.is_postgres(report.target)
            folder = report.target if base else os.path.dirname(report.target)  # noqa: PTH120
            key = (report.format or "unknown", report.project or folder)
            self.table.setdefault(key, Row(*key)).add(report)
            level, _ = state_of(report)
            self.states[level] = self.states.get(level, 0) + 1
            self.noted += report.status == "notes"
            yield report

    def sorted(self) -> list[Row]:
        """The table: by program and project, the last used first."""
        return sorted(self.table.values(), key=lambda row: (row.program, -row.updated))

    def status(self, *, failed: bool = False) -> int:
        """Say how many there are, and return the exit status."""
        count = sum(self.states.values())
        broken, warned, unreadable = map(self.states.get, (BROKEN, WARNINGS, UNREADABLE), (0, 0, 0))
        if count:
            noted = f" ({self.noted} with notes)" if self.noted else ""
            parts = [f"{several(count, 'session')}: {self.states.get(HEALTHY, 0)} healthy{noted}"]
            parts += [f"{warned} with warnings"] if warned else []
            parts += [f"{broken} broken"]
            parts += [f"{unreadable} unreadable"] if unreadable else []
            terminal.note(", ".join(parts) + ".")
        if failed or unreadable:
            return FAILED
        return FINDINGS if broken or warned else CLEAN


def rows(reports: Iterable[Report]) -> list[Row]:
    """The table: by program and project, the last used first."""
    total = Total()
    for _ in total.over(reports):
        pass
    return total.sorted()


def show(found: Sequence[Report], given: Sequence[str], *, every: bool) -> str:
    """Print the table, and below it each session that needs a look, the one used last first.

    Gives what to type next, for the end.
    """
    if not found:
        if not given:
            nothing_found()
        return ""
    for line in table(rows(found), terminal.width(), home()):
        terminal.say(line)
    titles, now = sessions.Summaries(), time.time()
    short = {} if given else short_ids(map(described, found))
    bad = [titles.of(report) for report in found if every or state_of(report)[0] != HEALTHY]
    for one in sorted(bad, key=lambda one: (-one.updated, one.target, one.session or "")):
        terminal.say("")
        for line in entry(one, now, terminal.width(), command_for(one, short)):
            terminal.say(line)
    if sum(one.level in (BROKEN, WARNINGS) for one in bad) < 2:  # noqa: PLR2004 - several
        return ""
    where = " ".join(map(pasted, given)) or "--all"
    return f"To repair all of them: lockstitch repair {where}"


def flow(total: Total, reports: Iterator[Report], *, every: bool) -> None:
    """Print sessions as they come, since a database may hold millions, and the table last."""
    titles, now, width = sessions.Summaries(), time.time(), terminal.width()
    for report in total.over(reports):
        one = titles.of(report)
        if one.level != HEALTHY or every:
            for line in entry(one, now, width, command_for(one, {})):
                terminal.say(line)
    for line in table(total.sorted(), width, home()):
        terminal.say(line)


def nothing_found() -> None:
    """Say that there are no sessions, and where they were looked for."""
    terminal.note("No sessions were found. Lockstitch looked in:")
    for place in sessions.searched():
        terminal.note(f"  {shortened(place, home())}")
    terminal.note("`lockstitch scan FOLDER` looks elsewhere.")


def command_for(one: Summary, short: Mapping[Key, str]) -> str:
    """Return the command that repairs a session, to be pasted; empty if none does."""
    if one.level in (HEALTHY, UNREADABLE):
        return ""
    if one.key in short:
        return f"lockstitch repair {pasted(short[one.key])}"
    is_one_of_many = one.session and (is_many(one.target) or one.format in (OWN, "langgraph"))
    more = f" --session {pasted(str(one.session))}" if is_one_of_many else ""
    return f"lockstitch repair {pasted(places.public(one.target))}{more}"


def entry(one: Summary, now: float, width: int, command: str) -> Iterator[str]:
    """Return the lines of one session: which one it is, what is wrong, and what to type next."""
    level = f"{one.level:<{_LEVEL}} "
    age = one.age(now)
    room = max(width - len(level) - cells(age) - 2, 8)
    title = fitted(one.title or one.session or os.path.basename(one.target), room)  # noqa: PTH119
    gap = " " * max(room - cells(title) + 1, 1)
    yield f"{terminal.paint(level, COLOURS[one.level])}{title}{gap}{age}".rstrip()
    indent = " " * min(len(level), 2 if width < WIDE else len(level))
    facts = [one.program, shortened(one.project, home()) if one.project else ""]
    about = " · ".join(filter(None, facts))
    if one.level == UNREADABLE:
        yield f"{indent}{pasted(places.public(one.target))}: {terminal.harmless(one.state)}"
    elif one.state != HEALTHY:
        yield from wrapped(one.state, width, indent)
    yield from wrapped(about, width, indent) if about else ()
    if command:
        yield f"{indent}{terminal.paint(command, 'bold')}"


def table(found: Sequence[Row], width: int, own: str) -> Iterator[str]:
    """Return the table, in the columns there are: projects are cut, or rows become two lines."""
    now = time.time()
    lines = [_HEADS, *(_cells_of(row, now, own) for row in found)]
    if width < WIDE:
        for line in lines[1:]:
            yield fitted(f"{line[0]} {line[1]}", width)
            counts = (
                f"{several(int(line[2]), 'session')}, {line[3]} broken, {line[4]} with warnings"
            )
            yield from wrapped(f"{counts}, {line[5]}, {line[6]}", width, "  ")
        return
    widths = [max(cells(line[place]) for line in lines) for place in range(len(_HEADS))]
    others = sum(widths) - widths[1] + 2 * (len(widths) - 1)
    widths[1] = min(widths[1], max(width - others, 8))
    for line in lines:
        cut = [fitted(cell, size_) for cell, size_ in zip(line, widths, strict=True)]
        padded = [
            f"{cell}{' ' * (wide - cells(cell))}" if place < 2 else cell.rjust(wide)  # noqa: PLR2004
            for place, (cell, wide) in enumerate(zip(cut, widths, strict=True))
        ]
        yield "  ".join(padded).rstrip()


def _cells_of(row: Row, now: float, own: str) -> tuple[str, ...]:
    counts = (row.sessions, row.broken, row.warned)
    age = ago(now - row.updated) if row.updated else ""
    return (row.program, shortened(row.project, own), *map(str, counts), age, size(row.size))
