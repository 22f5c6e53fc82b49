"""``lockstitch scan``: every agent session of this machine, and what is wrong with it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from lockstitch import sessions
from lockstitch.cli import CLEAN, FAILED, FINDINGS, own_failure, terminal, text
from lockstitch.cli.arguments import JSON, Command, Operand, Option
from lockstitch.cli.progress import Progress
from lockstitch.cli.rows import size
from lockstitch.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from multiprocessing.pool import Pool

# Below this many bytes in all, starting other processes costs more than it saves.
_WORTH_WORKERS = 32 << 20


class Row(Struct):
    """One line of the table: the sessions of one program in one project."""

    program: str
    project: str
    sessions: int = 0
    broken: int = 0
    unreachable: int = 0
    size: int = 0
    updated: float = 0.0

    def add(self, report: Report) -> None:
        """Count a session in."""
        self.sessions += 1
        self.broken += report.status != "ok"
        self.unreachable += report.unreachable
        self.size += report.size
        self.updated = max(self.updated, report.updated)


def run(*, paths: list[str], workers: str | None, every: bool, as_json: bool) -> int:
    """Scan, print a table or a report, and return the exit status."""
    missing = [path for path in paths if not os.path.lexists(path)]
    for path in missing:
        terminal.complain(f"{text.shown(path)}: no such file or folder")
    given = [path for path in paths if path not in missing]
    files = [] if missing and not given else list(sessions.paths(given))
    found = list(_scanned(files, _workers(workers, files)))
    others = len(files) - len({report.target for report in found})
    if as_json:
        from lockstitch.cli import machine

        terminal.emit(machine.report(found))
    else:
        _print(found, every)
    if others:
        terminal.note(f"{others} other files belong to no program that is known.")
    return _status(found, failed=bool(missing))


def _workers(asked: str | None, files: Sequence[str]) -> int:
    if asked is not None and asked.isdigit():
        return max(int(asked), 1)
    small = sum(_size(path) for path in files) < _WORTH_WORKERS
    return 1 if small else min(_cores(), max(len(files), 1))


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - there may be 100 000 of them
    except OSError:
        return 0


def _scanned(files: Sequence[str], workers: int) -> Iterator[Report]:
    """Check all files, the largest first so that no core waits for one at the end."""
    order = sorted(files, key=_size, reverse=True)
    reports: Iterable[list[Report]]
    if workers == 1:
        reports = map(scan_one, order)
        yield from _gathered(order, reports)
        return
    with _pool(workers) as pool:
        yield from _gathered(order, pool.imap(scan_one, order))


def scan_one(path: str) -> list[Report]:
    """Check the sessions of one file; a failure of our own is said and does not end the scan."""
    try:
        return sessions.scan_file(path)
    except Exception as error:  # noqa: BLE001 - reported like anything else that stands in the way
        return [Report(path, error=own_failure(error))]


def _pool(workers: int) -> Pool:
    """Start the workers, each a fresh interpreter that leaves Ctrl-C to this process."""
    import signal
    from multiprocessing import get_context

    # What is ignored while a process is started stays ignored in it.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return get_context("spawn").Pool(workers)
    finally:
        signal.signal(signal.SIGINT, before)


def _gathered(order: Sequence[str], reports: Iterable[list[Report]]) -> Iterator[Report]:
    sizes = [_size(path) for path in order]
    with Progress("Scanning", sum(sizes)) as advance:
        for done, found in zip(sizes, reports, strict=True):
            advance(done)
            yield from found


def rows(reports: Iterable[Report]) -> list[Row]:
    """The table: by program and project, the last used first."""
    table: dict[tuple[str, str], Row] = {}
    for report in reports:
        key = (report.format or "unknown", report.project or os.path.dirname(report.target))  # noqa: PTH120
        table.setdefault(key, Row(*key)).add(report)
    return sorted(table.values(), key=lambda row: (row.program, -row.updated))


_HEADS = ("program", "project", "sessions", "healthy", "broken", "unreachable", "last used", "size")


def _print(found: Sequence[Report], every: bool) -> None:
    from datetime import UTC, datetime

    lines: list[tuple[str, ...]] = [_HEADS]
    for row in rows(found):
        when = datetime.fromtimestamp(row.updated, UTC).strftime("%Y-%m-%d")
        healthy = row.sessions - row.broken
        counts = (row.sessions, healthy, row.broken, row.unreachable)
        project = terminal.harmless(row.project)
        lines.append((row.program, project, *map(str, counts), when, size(row.size)))
    for line in _aligned(lines) if found else ():
        terminal.say(line)
    for report in sorted(found, key=lambda one: one.target):
        if report.status != "ok" or every:
            terminal.say(_line(report))


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
    name = terminal.harmless(report.target)
    if report.error is not None:
        return f"{name}: unreadable: {terminal.harmless(report.error)}"
    codes: dict[str, int] = {}
    for finding in report.findings:
        codes[finding.code] = codes.get(finding.code, 0) + 1
    listed = ", ".join(f"{code} x{n}" if n > 1 else code for code, n in sorted(codes.items()))
    left = f"; {report.unreachable} turns ({size(report.left)}) unreachable"
    return f"{name}: {listed or 'ok'}{left if report.unreachable else ''}"


def _status(found: Sequence[Report], *, failed: bool) -> int:
    broken = sum(report.status == "broken" for report in found)
    unreadable = sum(report.status == "unreadable" for report in found)
    healthy = len(found) - broken - unreadable
    parts = [f"{len(found)} sessions: {healthy} healthy", f"{broken} broken"]
    if unreadable:
        parts.append(f"{unreadable} unreadable")
    terminal.note(", ".join(parts) + ".")
    if broken:
        terminal.note("`lockstitch repair TARGET` mends them; `lockstitch show TARGET` shows them.")
    if failed or unreadable:
        return FAILED
    return FINDINGS if broken else CLEAN


COMMAND = Command(
    name="scan",
    run=run,
    summary="Find every agent session on this machine, or below PATH, and check them all.",
    details=(
        "Looks in the places where Claude Code, Codex, pi, OpenClaw, Gemini CLI, opencode and "
        "goose keep their sessions, reads every file on all cores and changes nothing. "
        "`unreachable` counts the turns that a resume would leave behind without a word."
    ),
    examples=(
        "lockstitch scan",
        "lockstitch scan ~/.claude/projects",
        "lockstitch scan --json > report.json",
    ),
    operand=Operand("paths", "PATH", "Files or folders instead of the known places.", many=True),
    options=(
        Option("workers", ("--workers", "-w"), "How many processes to use.", metavar="N"),
        Option("every", ("--all", "-a"), "List the healthy sessions, too."),
        JSON,
    ),
)
