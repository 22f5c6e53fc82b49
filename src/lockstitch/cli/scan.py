"""``lockstitch scan``: every agent session of this machine, and what is wrong with it.

Many files are checked at once, on all cores. The result is a table by project, and a description of
each session that needs a look.
"""

from __future__ import annotations

import os
import signal
import time
from threading import Thread
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

from lockstitch.cli import render, terminal
from lockstitch.cli.options import JSON, SHARD, WORKERS, Command, Operand, option
from lockstitch.cli.picker import COLOURS, WIDE, wrap_text
from lockstitch.cli.render import home_folder, shorten_path
from lockstitch.cli.reports import REPORT_OPTIONS, ReportOptions
from lockstitch.cli.targets import survey_of
from lockstitch.cli.terminal import (
    CLEAN,
    FAILED,
    FINDINGS,
    ProgressBar,
    describe_bug,
    fit,
    text_width,
)
from lockstitch.files.os_files import count_cores
from lockstitch.rules.rule import several
from lockstitch.sources import operations
from lockstitch.sources.listing import (
    BROKEN,
    HEALTHY,
    UNREADABLE,
    WARNINGS,
    Key,
    SessionSummary,
    Summaries,
    ago,
    short_ids,
    state_in_words,
    summary_of_report,
)
from lockstitch.sources.own_stores import DATABASES, is_postgres, may_hold_many, path_of
from lockstitch.sources.source import OWN, Report, pasted
from lockstitch.sources.targets import searched_folders, session_paths
from lockstitch.stores.addresses import public
from lockstitch.transcript import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from multiprocessing.pool import Pool

# How many files of unknown programs are named, unless somebody asked for all of them.
_NAMED = 5
# Below this many bytes in all, starting other processes costs more than it saves.
WORTH_WORKERS = 32 << 20
_HEADS = ("program", "project", "sessions", "broken", "warnings", "last used", "size")
_ABSENT = "no such file or folder"
# A part of a file: its number, and the number of parts.
FilePart = tuple[str, int, int]


class ScanRequest(Struct, frozen=True):
    """The options on the command line, by name."""

    paths: list[str]
    workers: int | None
    shard: tuple[int, int] | None
    every: bool
    output: str
    select: str | None
    ignore: str | None
    statistics: bool
    as_json: bool


def run(request: ScanRequest) -> int:
    """Scan, print a table or a report, and return the exit status."""
    options = ReportOptions.of(request)
    # a store in a file or a folder is found there, however it is named
    paths = [
        path_of(path) if path.startswith(("sqlite:", "jsonl:")) else path for path in request.paths
    ]
    stores = [path for path in paths if is_postgres(path)]
    is_meant = len(stores) == len(paths)
    survey = survey_of(request.workers, request.shard, paths, are_threads=is_meant)
    missing = [path for path in paths if path not in stores and not os.path.lexists(path)]
    named = [path for path in paths if path not in stores and path not in missing]
    files = list(session_paths(named)) if named or not paths else []
    totals = ScanTotals()
    absent = [Report(public(path), error=_ABSENT) for path in missing]
    if stores:
        # Most of such a database is older checkpoints, which a scan does not read.
        survey = structs.replace(survey, search=False)

        def scan_everything() -> Iterator[Report]:
            yield from absent
            for report in _scan_files(files, request.workers):
                if not report.is_unknown:
                    yield report
            for url in stores:
                yield from operations.scan_server(url, survey)

        # printed as they come, because a database may hold millions; the table comes last
        reports = totals.count(options.select_findings(scan_everything()))
        if not options.emit(reports):
            titles, now, width = Summaries(), time.time(), terminal.width()
            for one in map(titles.of, reports):
                if one.level != HEALTHY or request.every:
                    for line in entry_lines(one, now, width, repair_command(one, {})):
                        terminal.say(line)
            for line in table_lines(totals.sorted(), width, home_folder()):
                terminal.say(line)
        return totals.say()
    for path in missing:
        terminal.complain(f"{render.target_name(path)}: {_ABSENT}")
    scanned = list(_scan_files(files, request.workers))
    known = (report for report in scanned if not report.is_unknown)
    found = list(totals.count(options.select_findings(known)))
    others = sorted((one for one in scanned if one.is_unknown), key=lambda one: one.target)
    hint = ""
    if not options.emit([*found, *absent], others):
        if not found and not paths:
            say_nothing_found()
        hint = _print_overview(found, totals, named, every=request.every)
        _say_unknown(others, named, every=request.every)
    # a file that was named is reported; one that only lies in a folder is not
    declined = any(report.target in named for report in others)
    status = totals.say(failed=bool(missing) or declined)
    if hint:
        terminal.note(hint)
    return status


# Files.


def file_size(path: str) -> int:
    """Return the size of a file; 0 if it is unknown."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - there may be 100 000 of them
    except OSError:
        return 0


def count_parts(path: str) -> int:
    """Return the number of parts that a file is divided into: many, for a large database."""
    is_large = path.endswith(DATABASES) and file_size(path) >= WORTH_WORKERS
    return 4 * count_cores() if is_large else 1


def scan_file(path: str, *part: int) -> list[Report]:
    """Check the sessions of one file, or of a part of it.

    An internal error is reported and does not end the scan.
    """
    try:
        return operations.scan_file(path, *part)
    except Exception as error:  # noqa: BLE001 - reported like anything else that stands in the way
        return [Report(path, error=describe_bug(error))]


def scan_part(part: FilePart) -> list[Report]:
    """Check the sessions of a part of a file."""
    return scan_file(*part)


def start_workers(workers: int) -> Pool:
    """Start the workers, each a fresh interpreter that leaves Ctrl-C to this process."""
    from multiprocessing import get_context, resource_tracker

    if not hasattr(signal, "pthread_sigmask"):
        return get_context("spawn").Pool(workers)
    # The first worker would start this process, which unblocks Ctrl-C when it has been started.
    resource_tracker.ensure_running()
    # Signals that are blocked while a process is started stay blocked in it; here this only delays
    # a Ctrl-C.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return get_context("spawn").Pool(workers)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _scan_files(files: Sequence[str], workers: int | None) -> Iterator[Report]:
    """Check all files, the largest first, so that no core waits for a large one at the end."""
    order = [
        (path, part, parts)
        for path in sorted(files, key=file_size, reverse=True)
        for parts in [count_parts(path)]
        for part in range(parts)
    ]
    if workers is None:
        is_small = sum(map(file_size, files)) < WORTH_WORKERS
        workers = 1 if is_small else count_cores()
    # each is an interpreter of its own, and more than there are parts would do nothing
    workers = min(workers, len(order))
    if workers <= 1:
        yield from _with_progress(order, map(scan_part, order))
        return
    with start_workers(workers) as pool:
        yield from _with_progress(order, pool.imap(scan_part, order))


def _with_progress(order: Sequence[FilePart], reports: Iterable[list[Report]]) -> Iterator[Report]:
    sizes = [file_size(path) // parts for path, _, parts in order]
    with ProgressBar("Scanning", sum(sizes)) as advance:
        for done, found in zip(sizes, reports, strict=True):
            advance(done)
            yield from found


class BackgroundChecks:
    """Checks that run while a person looks at a list; ``wake`` is called when some are done."""

    def __init__(self, files: Sequence[str], wake: Callable[[], object]) -> None:
        from queue import SimpleQueue

        self.done: SimpleQueue[list[Report]] = SimpleQueue()
        self.wake = wake
        self.pool: Pool | None = None
        self.is_over = False
        if sum(map(file_size, files)) >= WORTH_WORKERS:
            self.pool = start_workers(max(count_cores() - 1, 1))
            for path in files:
                # the newest first, one by one, because a person looks at those
                self.pool.apply_async(scan_file, (path,), callback=self._checked)
            return

        Thread(target=self._all, args=(files,), daemon=True).start()

    def _all(self, files: Sequence[str]) -> None:
        for path in files:
            if self.is_over:
                return
            self._checked(scan_file(path))

    def _checked(self, reports: list[Report]) -> None:
        self.done.put(reports)
        self.wake()

    def reports(self) -> list[Report]:
        """Return the reports since the last time."""
        found: list[Report] = []
        while not self.done.empty():
            found += self.done.get()
        return found

    def close(self) -> None:
        """Stop; the remaining sessions stay unchecked."""
        self.is_over = True
        if self.pool is not None:
            self.pool.terminate()
            self.pool.join()


# What was found.


class ProjectRow(Struct):
    """One line of the table: the sessions of one program in one project."""

    program: str
    project: str
    sessions: int = 0
    broken: int = 0
    warned: int = 0
    size: int = 0
    updated: float = 0.0


class ScanTotals(Struct):
    """Counts of reports as they come: the table, and how many are in each state."""

    table: dict[tuple[str, str], ProjectRow] = field(default_factory=dict)
    states: dict[str, int] = field(default_factory=dict)
    noted: int = 0

    def count(self, reports: Iterable[Report]) -> Iterator[Report]:
        """Yield the same reports, and count them."""
        for report in reports:
            target, (level, _) = report.target, state_in_words(report)
            folder = target if is_postgres(target) else os.path.dirname(target)  # noqa: PTH120
            key = (report.format or "unknown", report.project or folder)
            row = self.table.setdefault(key, ProjectRow(*key))
            row.sessions += 1
            row.broken += level in (BROKEN, UNREADABLE)
            row.warned += level == WARNINGS
            row.size += report.size
            row.updated = max(row.updated, report.updated)
            self.states[level] = self.states.get(level, 0) + 1
            self.noted += report.status == "notes"
            yield report

    def sorted(self) -> list[ProjectRow]:
        """Return the table, by program and project, the last used first."""
        return sorted(self.table.values(), key=lambda row: (row.program, -row.updated))

    def say(self, *, failed: bool = False) -> int:
        """Print the counts; return the exit status."""
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


def _print_overview(
    found: Sequence[Report], totals: ScanTotals, named: Sequence[str], *, every: bool
) -> str:
    """Print the table, and below it each session that needs a look, the last used first.

    Returns what to type next, to be printed at the end.
    """
    if not found:
        return ""
    for line in table_lines(totals.sorted(), terminal.width(), home_folder()):
        terminal.say(line)
    titles, now = Summaries(), time.time()
    short = {} if named else short_ids(map(summary_of_report, found))
    bad = [titles.of(report) for report in found if every or state_in_words(report)[0] != HEALTHY]
    for one in sorted(bad, key=lambda one: (-one.updated, one.target, one.session or "")):
        terminal.say("")
        for line in entry_lines(one, now, terminal.width(), repair_command(one, short)):
            terminal.say(line)
    if sum(one.level in (BROKEN, WARNINGS) for one in bad) < 2:  # noqa: PLR2004 - several
        return ""
    where = " ".join(map(pasted, named)) or "--all"
    return f"To repair all of them: lockstitch repair {where}"


def say_nothing_found() -> None:
    """Print that there are no sessions, and where they were searched for."""
    terminal.note("No sessions were found. Lockstitch looked in:")
    for place in searched_folders():
        terminal.note(f"  {shorten_path(place, home_folder())}")
    terminal.note("`lockstitch scan FOLDER` looks elsewhere.")


def repair_command(one: SessionSummary, short: Mapping[Key, str]) -> str:
    """Return a command to paste that repairs a session; "" if none can."""
    if one.level in (HEALTHY, UNREADABLE):
        return ""
    if one.key in short:
        return f"lockstitch repair {pasted(short[one.key])}"
    is_one_of_many = one.session and (may_hold_many(one.target) or one.format in (OWN, "langgraph"))
    more = f" --session {pasted(str(one.session))}" if is_one_of_many else ""
    return f"lockstitch repair {pasted(public(one.target))}{more}"


def entry_lines(one: SessionSummary, now: float, width: int, command: str) -> Iterator[str]:
    """Yield the lines of one session: which one it is, what is wrong, and what to type next."""
    level = f"{one.level:<{len(UNREADABLE)}} "
    age = one.age(now)
    room = max(width - len(level) - text_width(age) - 2, 8)
    title = fit(one.title or one.session or os.path.basename(one.target), room)  # noqa: PTH119
    gap = " " * max(room - text_width(title) + 1, 1)
    yield f"{terminal.paint(level, COLOURS[one.level])}{title}{gap}{age}".rstrip()
    indent = " " * min(len(level), 2 if width < WIDE else len(level))
    facts = [one.program, shorten_path(one.project, home_folder()) if one.project else ""]
    about = " · ".join(filter(None, facts))
    if one.level == UNREADABLE:
        yield f"{indent}{pasted(public(one.target))}: {terminal.escape_controls(one.state)}"
    elif one.state != HEALTHY:
        yield from wrap_text(one.state, width, indent)
    yield from wrap_text(about, width, indent) if about else ()
    if command:
        yield f"{indent}{terminal.paint(command, 'bold')}"


def table_lines(found: Sequence[ProjectRow], width: int, own: str) -> Iterator[str]:
    """Yield the table in the available width: projects are cut, or a row becomes two lines."""
    now = time.time()
    lines = [_HEADS, *(_table_cells(row, now, own) for row in found)]
    if width < WIDE:
        for line in lines[1:]:
            yield fit(f"{line[0]} {line[1]}", width)
            counts = (
                f"{several(int(line[2]), 'session')}, {line[3]} broken, {line[4]} with warnings"
            )
            yield from wrap_text(f"{counts}, {line[5]}, {line[6]}", width, "  ")
        return
    widths = [max(text_width(line[place]) for line in lines) for place in range(len(_HEADS))]
    others = sum(widths) - widths[1] + 2 * (len(widths) - 1)
    widths[1] = min(widths[1], max(width - others, 8))
    for line in lines:
        cut = [fit(cell, size_) for cell, size_ in zip(line, widths, strict=True)]
        padded = [
            f"{cell}{' ' * (wide - text_width(cell))}" if place < 2 else cell.rjust(wide)  # noqa: PLR2004
            for place, (cell, wide) in enumerate(zip(cut, widths, strict=True))
        ]
        yield "  ".join(padded).rstrip()


def _table_cells(row: ProjectRow, now: float, own: str) -> tuple[str, ...]:
    counts = (row.sessions, row.broken, row.warned)
    age = ago(now - row.updated) if row.updated else ""
    return (row.program, shorten_path(row.project, own), *map(str, counts), age, size(row.size))


def _say_unknown(others: Sequence[Report], named: Sequence[str], *, every: bool) -> None:
    """Print which files belong to unknown programs: all of them, or the first of many."""
    shown = others if every else [one for one in others if one.target in named] or others[:_NAMED]
    for report in shown:
        terminal.note(
            f"{render.target_name(report.target)}: {terminal.escape_controls(report.error or '')}"
        )
    more = len(others) - len(shown)
    if more:
        skipped = several(more, "more file")
        terminal.note(f"Skipped {skipped} in no known session format; --all names them.")


COMMAND = Command(
    name="scan",
    run=run,
    bundle=ScanRequest,
    details=(
        "Looks where Claude Code, Codex, pi, OpenClaw, Gemini CLI, opencode and goose keep "
        "their sessions, reads every file on all cores and changes nothing. For each session "
        "that is not healthy it says what is wrong, and which command repairs it. PATH may be "
        "the address of a PostgreSQL database: scan then checks a Lockstitch store there, and "
        "the checkpoints that LangGraph keeps in it, in all schemas or in the one that "
        "?schema=NAME names. Tables that belong neither to the connecting role nor to a "
        "superuser are read only if ?owner=ROLE names their owner, because their code could run "
        "with your role's rights."
    ),
    examples=(
        "lockstitch scan",
        "lockstitch scan ~/.claude/projects",
        "lockstitch scan --json > report.json",
        "lockstitch scan postgresql://localhost/agents --workers 4",
        "lockstitch scan postgresql://localhost/agents --shard 1/3   # and 2/3, 3/3 elsewhere",
    ),
    operand=Operand(
        "paths",
        "PATH",
        "Files, folders or databases to look in, instead of the usual places.",
        many=True,
    ),
    options=(
        WORKERS,
        SHARD,
        option("--all -a", "List healthy sessions, too.", name="every"),
        *REPORT_OPTIONS,
        JSON,
    ),
)
