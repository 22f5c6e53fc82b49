"""``lockstitch scan``: every agent session of this machine, and what is wrong with it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct, field

from lockstitch import places, sessions
from lockstitch.cli import CLEAN, FAILED, FINDINGS, terminal, text
from lockstitch.cli.arguments import JSON, Command, Operand, Option
from lockstitch.cli.checks import WORTH_WORKERS, Piece, parts_of, pool, scan_piece, size_of
from lockstitch.cli.databases import PAUSE, RUN, WORKERS, Asked, cores, everything, number, seconds
from lockstitch.cli.databases import scan as shared_scan
from lockstitch.cli.progress import Progress
from lockstitch.cli.rows import several, size
from lockstitch.errors import UsageError
from lockstitch.report import HEALTHY, Report
from lockstitch.unread import is_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_ADVICE = "`lockstitch repair TARGET` mends them; `lockstitch show TARGET` shows them."
# So many files of programs that are not known are named where nobody asked for all of them.
_NAMED = 5


class Row(Struct):
    """One line of the table: the sessions of one program in one project."""

    program: str
    project: str
    sessions: int = 0
    broken: int = 0
    noted: int = 0
    unreachable: int = 0
    size: int = 0
    updated: float = 0.0

    def add(self, report: Report) -> None:
        """Count a session in."""
        self.sessions += 1
        self.broken += report.status not in HEALTHY
        self.noted += report.status == "notes"
        self.unreachable += report.unreachable
        self.size += report.size
        self.updated = max(self.updated, report.updated)


def run(  # noqa: PLR0913 - one keyword an option
    *,
    paths: list[str],
    workers: str | None,
    pause: str | None,
    run_name: str | None,
    every: bool,
    as_json: bool,
) -> int:
    """Scan, print a table or a report, and return the exit status."""
    stores = [path for path in paths if places.is_postgres(path)]
    if run_name is not None and (len(paths) != 1 or not stores):
        raise UsageError("--run is for one PostgreSQL")
    if stores:
        asked = Asked(number(workers), seconds(pause, "--pause"), run=run_name)
        files = [path for path in paths if path not in stores]
        if run_name is not None:
            return shared_scan(stores[0], asked, as_json=as_json)
        return _flow(_all_of(stores, files, workers, asked), every=every, as_json=as_json)
    missing = [path for path in paths if not os.path.lexists(path)]
    for path in missing:
        terminal.complain(f"{text.shown(path)}: no such file or folder")
    given = [path for path in paths if path not in missing]
    files = [] if missing and not given else list(sessions.paths(given))
    scanned = list(_scanned(files, _workers(workers, files)))
    found = [report for report in scanned if not report.is_unknown]
    others = sorted((one for one in scanned if one.is_unknown), key=lambda one: one.target)
    if as_json:
        from lockstitch.cli import machine

        terminal.emit(machine.scanned(found, others))
    else:
        _print(found, every)
        _name_others(others, given, every=every)
    # a file that was named is asked about; those that only lie in a folder are not
    declined = any(report.target in given for report in others)
    return _status(found, failed=bool(missing) or declined)


def _name_others(others: Sequence[Report], given: Sequence[str], *, every: bool) -> None:
    """Say which files are of programs that are not known: all, or the first of many."""
    named = others if every else [one for one in others if one.target in given] or others[:_NAMED]
    for report in named:
        terminal.note(f"{text.shown(report.target)}: {terminal.harmless(report.error or '')}")
    more = len(others) - len(named)
    if more:
        noun = "other file is" if more == 1 else "other files are"
        terminal.note(f"{more} {noun} not of a program that is known; --all names them.")


def _all_of(
    stores: list[str], paths: list[str], workers: str | None, asked: Asked
) -> Iterator[Report]:
    """The reports of databases, and of files and folders that were named with them."""
    for path in paths:
        if not os.path.lexists(path):
            yield Report(path, error="no such file or folder")
    files = list(sessions.paths([path for path in paths if os.path.lexists(path)])) if paths else []
    for report in _scanned(files, _workers(workers, files)):
        if not report.is_unknown:
            yield report
    for url in stores:
        yield from everything(url, asked)


def _flow(reports: Iterator[Report], *, every: bool, as_json: bool) -> int:
    """Print reports as they come, since a database may hold millions, and the table last."""
    total = Total()
    if as_json:
        from lockstitch.cli import machine

        for piece in machine.streamed(total.over(reports)):
            terminal.emit(piece)
    else:
        for report in total.over(reports):
            if report.status not in HEALTHY or every:
                terminal.say(_line(report))
        _print_table(total.sorted())
    return total.status()


def _workers(asked: str | None, files: Sequence[str]) -> int:
    if asked is not None and is_index(asked):
        return max(int(asked), 1)
    small = sum(size_of(path) for path in files) < WORTH_WORKERS
    return 1 if small else min(cores(), max(sum(map(parts_of, files)), 1))


def _scanned(files: Sequence[str], workers: int) -> Iterator[Report]:
    """Check all files, the largest first so that no core waits for one at the end."""
    order = sorted(files, key=size_of, reverse=True)
    pieces = [
        (path, part, parts) for path in order for parts in [parts_of(path)] for part in range(parts)
    ]
    reports: Iterable[list[Report]]
    if workers == 1:
        reports = map(scan_piece, pieces)
        yield from _gathered(pieces, reports)
        return
    with pool(workers) as started:
        yield from _gathered(pieces, started.imap(scan_piece, pieces))


def _gathered(order: Sequence[Piece], reports: Iterable[list[Report]]) -> Iterator[Report]:
    sizes = [size_of(path) // parts for path, _, parts in order]
    with Progress("Scanning", sum(sizes)) as advance:
        for done, found in zip(sizes, reports, strict=True):
            advance(done)
            yield from found


class Total(Struct):
    """What is counted of reports as they go by: the table, and how many are in which state."""

    table: dict[tuple[str, str], Row] = field(default_factory=dict)
    states: dict[str, int] = field(default_factory=dict)

    def over(self, reports: Iterable[Report]) -> Iterator[Report]:
        """Give reports on, and count them."""
        for report in reports:
            base = places.is_postgres(report.target)
            folder = report.target if base else os.path.dirname(report.target)  # noqa: PTH120
            key = (report.format or "unknown", report.project or folder)
            self.table.setdefault(key, Row(*key)).add(report)
            self.states[report.status] = self.states.get(report.status, 0) + 1
            yield report

    def sorted(self) -> list[Row]:
        """The table: by program and project, the last used first."""
        return sorted(self.table.values(), key=lambda row: (row.program, -row.updated))

    def status(self, *, failed: bool = False) -> int:
        """Say how many there are, and return the exit status."""
        broken, unreadable = self.states.get("broken", 0), self.states.get("unreadable", 0)
        count = sum(self.states.values())
        healthy = count - broken - unreadable
        noted = self.states.get("notes", 0)
        aside = f" ({noted} with notes)" if noted else ""
        parts = [f"{several(count, 'session')}: {healthy} healthy{aside}", f"{broken} broken"]
        if unreadable:
            parts.append(f"{unreadable} unreadable")
        terminal.note(", ".join(parts) + ".")
        if broken:
            terminal.note(_ADVICE)
        if failed or unreadable:
            return FAILED
        return FINDINGS if broken else CLEAN


def rows(reports: Iterable[Report]) -> list[Row]:
    """The table: by program and project, the last used first."""
    total = Total()
    for _ in total.over(reports):
        pass
    return total.sorted()


_HEADS = ("program", "project", "sessions", "healthy", "broken", "unreachable", "last used", "size")


def _print(found: Sequence[Report], every: bool) -> None:
    _print_table(rows(found))
    for report in sorted(found, key=lambda one: one.target):
        if report.status not in HEALTHY or every:
            terminal.say(_line(report))


def _print_table(table: Sequence[Row]) -> None:
    from datetime import UTC, datetime

    lines: list[tuple[str, ...]] = [_HEADS]
    for row in table:
        when = datetime.fromtimestamp(row.updated, UTC).strftime("%Y-%m-%d")
        aside = f" ({row.noted} with notes)" if row.noted else ""
        healthy = f"{row.sessions - row.broken}{aside}"
        counts = (row.sessions, healthy, row.broken, row.unreachable)
        project = terminal.harmless(row.project)
        lines.append((row.program, project, *map(str, counts), when, size(row.size)))
    for line in _aligned(lines) if table else ():
        terminal.say(line)


def _aligned(lines: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Columns of equal width: names to the left, numbers to the right."""
    widths = [max(len(line[place]) for line in lines) for place in range(len(_HEADS))]
    for line in lines:
        cells = [
            cell.ljust(width) if place < 2 else cell.rjust(width)  # noqa: PLR2004 - two names first
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _line(report: Report) -> str:
    """One session: what is wrong with it, by code."""
    name = text.shown(text.named(report))
    if report.error is not None:
        return f"{name}: unreadable: {terminal.harmless(report.error)}"
    codes: dict[str, int] = {}
    for finding in report.findings:
        codes[finding.code] = codes.get(finding.code, 0) + 1
    listed = ", ".join(f"{code} x{n}" if n > 1 else code for code, n in sorted(codes.items()))
    lost = f"{several(report.unreachable, 'turn')} ({size(report.left)})"
    left = f"; {lost} unreachable"
    state = "healthy with notes: " if report.status == "notes" else ""
    return f"{name}: {state}{listed or 'ok'}{left if report.unreachable else ''}"


def _status(found: Sequence[Report], *, failed: bool) -> int:
    total = Total()
    for _ in total.over(found):
        pass
    return total.status(failed=failed)


COMMAND = Command(
    name="scan",
    run=run,
    summary="Find every agent session on this machine, or below PATH, and check them all.",
    details=(
        "Looks in the places where Claude Code, Codex, pi, OpenClaw, Gemini CLI, opencode and "
        "goose keep their sessions, reads every file on all cores and changes nothing. "
        "`unreachable` counts the turns that a resume would leave behind without a word. "
        "PATH may be the address of a PostgreSQL: then it looks through a store of Lockstitch's "
        "own there, and through the checkpoints that LangGraph keeps in it, of all schemas or of "
        "the one that ?schema=NAME names. Tables of other roles than the one that connects, and "
        "than superusers, are read if ?owner=ROLE names them: their code could run with its rights."
    ),
    examples=(
        "lockstitch scan",
        "lockstitch scan ~/.claude/projects",
        "lockstitch scan --json > report.json",
        "lockstitch scan postgresql://localhost/agents --pause 0.1",
        "lockstitch scan postgresql://localhost/agents --run nightly   # on several machines",
    ),
    operand=Operand(
        "paths", "PATH", "Files, folders or databases instead of the known places.", many=True
    ),
    options=(
        WORKERS,
        PAUSE,
        RUN,
        Option("every", ("--all", "-a"), "List the healthy sessions, too."),
        JSON,
    ),
)
