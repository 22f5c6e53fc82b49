"""``lockstitch scan``: every agent session of this machine, and what is wrong with it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lockstitch import places, sessions
from lockstitch.cli import output as printing
from lockstitch.cli import terminal, text
from lockstitch.cli.arguments import JSON, Command, Operand, Option
from lockstitch.cli.checks import WORTH_WORKERS, Piece, parts_of, pool, scan_piece, size_of
from lockstitch.cli.databases import (
    SHARD,
    WORKERS,
    Asked,
    cores,
    everything,
    number,
    shard_of,
)
from lockstitch.cli.overview import Total, flow, show
from lockstitch.cli.progress import Progress
from lockstitch.cli.rows import several
from lockstitch.conversation.json_text import is_index
from lockstitch.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# So many files of programs that are not known are named where nobody asked for all of them.
_NAMED = 5


def run(  # noqa: PLR0913 - one keyword an option
    *,
    paths: list[str],
    workers: str | None,
    shard: str | None,
    every: bool,
    output: str,
    select: str | None,
    ignore: str | None,
    statistics: bool,
    as_json: bool,
) -> int:
    """Scan, print a table or a report, and return the exit status."""
    asked_for = printing.Asked.of(output, select, ignore, statistics, as_json=as_json)
    stores = [path for path in paths if places.is_postgres(path)]
    part = shard_of(shard, paths, meant=lambda path, _: places.is_postgres(path))
    if stores:
        asked = Asked(number(workers), shard=part)
        files = [path for path in paths if path not in stores]
        return _flow(_all_of(stores, files, workers, asked), asked_for, every=every)
    missing = [path for path in paths if not os.path.lexists(path)]
    for path in missing:
        terminal.complain(f"{text.shown(path)}: no such file or folder")
    given = [path for path in paths if path not in missing]
    files = [] if missing and not given else list(sessions.paths(given))
    scanned = list(_scanned(files, _workers(workers, files)))
    found = list(asked_for.over(report for report in scanned if not report.is_unknown))
    others = sorted((one for one in scanned if one.is_unknown), key=lambda one: one.target)
    absent = [Report(places.public(path), error="no such file or folder") for path in missing]
    hint = ""
    if not asked_for.emit([*found, *absent], others):
        hint = show(found, given, every=every)
        _name_others(others, given, every=every)
    # a file that was named is asked about; those that only lie in a folder are not
    declined = any(report.target in given for report in others)
    status = _status(found, failed=bool(missing) or declined)
    if hint:
        terminal.note(hint)
    return status


def _name_others(others: Sequence[Report], given: Sequence[str], *, every: bool) -> None:
    """Say which files are of programs that are not known: all, or the first of many."""
    named = others if every else [one for one in others if one.target in given] or others[:_NAMED]
    for report in named:
        terminal.note(f"{text.shown(report.target)}: {terminal.harmless(report.error or '')}")
    more = len(others) - len(named)
    if more:
        skipped = several(more, "more file")
        terminal.note(f"Skipped {skipped} in no known session format; --all names them.")


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


def _flow(reports: Iterator[Report], asked_for: printing.Asked, *, every: bool) -> int:
    """Print reports as they come, since a database may hold millions, and the table last."""
    total = Total()
    counted = asked_for.over(reports)
    if not asked_for.emit(total.over(counted)):
        flow(total, counted, every=every)
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


def _status(found: Sequence[Report], *, failed: bool) -> int:
    total = Total()
    for _ in total.over(found):
        pass
    return total.status(failed=failed)


COMMAND = Command(
    name="scan",
    group="sessions",
    run=run,
    summary="Find every agent session on this machine, or below PATH, and check them all.",
    details=(
        "Looks in the places where Claude Code, Codex, pi, OpenClaw, Gemini CLI, opencode and "
        "goose keep their sessions, reads every file on all cores and changes nothing. "
        "Says of each session that is not healthy what is wrong, and the command that repairs it. "
        "PATH may be the address of a PostgreSQL: then it looks through a store of Lockstitch's "
        "own there, and through the checkpoints that LangGraph keeps in it, of all schemas or of "
        "the one that ?schema=NAME names. Tables of other roles than the one that connects, and "
        "than superusers, are read if ?owner=ROLE names them: their code could run with its rights."
    ),
    examples=(
        "lockstitch scan",
        "lockstitch scan ~/.claude/projects",
        "lockstitch scan --json > report.json",
        "lockstitch scan postgresql://localhost/agents --workers 4",
        "lockstitch scan postgresql://localhost/agents --shard 1/3   # and 2/3, 3/3 elsewhere",
    ),
    operand=Operand(
        "paths", "PATH", "Files, folders or databases instead of the known places.", many=True
    ),
    options=(
        WORKERS,
        SHARD,
        Option("every", ("--all", "-a"), "List the healthy sessions, too."),
        *printing.OPTIONS,
        JSON,
    ),
)
