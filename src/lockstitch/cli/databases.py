"""Databases of LangGraph's in a PostgreSQL, for the commands that take one: streams, not lists."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, structs

from lockstitch.cli import render, terminal
from lockstitch.cli.parser import Option
from lockstitch.cli.terminal import CLEAN, FAILED, FINDINGS, ProgressBar
from lockstitch.conversation.json_text import is_index
from lockstitch.errors import LockstitchError, UnknownFormat, UsageError
from lockstitch.formats.langgraph.postgres import Shard
from lockstitch.sources import targets as places
from lockstitch.sources.source import Report
from lockstitch.sources.targets import pasted
from lockstitch.transcript import several

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lockstitch.formats.langgraph.postgres.work import SchemaTask, ThreadOutcome
    from lockstitch.sources.repair import RepairOptions

LANGGRAPH = "langgraph"
_NEITHER = "holds neither a store of Lockstitch's own nor checkpoints of LangGraph"

WORKERS = Option("workers", ("--workers", "-w"), "How many processes to use.", metavar="N")
SHARD = Option(
    "shard",
    ("--shard",),
    "PostgreSQL only: take part I of N of all threads, as in 2/4, one on each machine.",
    metavar="I/N",
)


def is_meant(target: str | None, form: str | None) -> bool:
    """Whether a target is a PostgreSQL with LangGraph's checkpoints, and they are meant."""
    if not places.is_postgres(target) or form not in (None, LANGGRAPH):
        return False
    if form == LANGGRAPH or places.names_schema(str(target)):
        return True
    from lockstitch.sessions import psycopg_hint

    with psycopg_hint():
        from lockstitch.formats.langgraph.postgres.database import look_into

        known = look_into(str(target))
    if not known.homes and not known.is_own:
        raise UnknownFormat(f"{places.public(str(target))}: {_NEITHER}")
    return not known.is_own


def seconds(text_given: str | None, option: str) -> float:
    """Read a number of seconds."""
    try:
        value = float(text_given or 0)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"{option} takes a number of seconds")
    return value


def number(text_given: str | None) -> int:
    """Read how many processes are asked for; all cores if nothing is said."""
    if text_given is not None and not is_index(text_given):
        raise UsageError("--workers takes a number")
    if text_given is not None:
        return max(int(text_given), 1)
    return cores()


def shard_of(
    part: str | None,
    targets: Sequence[str],
    form: str | None = None,
    session: str | None = None,
    *,
    meant: Callable[[str, str | None], bool] = is_meant,
) -> Shard:
    """Read which part of the threads is asked for; all of them if nothing is said."""
    if part is None:
        return Shard()
    first, slash, count = part.partition("/")
    if not (slash and is_index(first) and is_index(count) and 0 < int(first) <= int(count)):
        raise UsageError(
            "--shard takes a part and the number of parts, counted from 1:"
            " --shard 2/4 is the second of four"
        )
    if session is not None or not targets or not all(meant(one, form) for one in targets):
        raise UsageError(
            "--shard divides the threads of a PostgreSQL with LangGraph's checkpoints: give its"
            " address, and no --session"
        )
    return Shard(int(first), int(count))


def cores() -> int:
    """How many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def tasks(url: str, **how: Any) -> list[SchemaTask]:
    """The work that a database means, one task for each schema."""
    from lockstitch.sessions import psycopg_hint

    with psycopg_hint():
        from lockstitch.formats.langgraph.postgres import work

        return work.schema_tasks(url, places.public, **how)


class How(Struct, frozen=True):
    """How a round through a database was asked for."""

    workers: int = 1
    session: str | None = None


def outcomes(task: SchemaTask, how: How, title: str) -> Iterator[ThreadOutcome]:
    """Go through the threads of a schema with a progress bar."""
    from lockstitch.formats.langgraph.postgres import work

    workers = 1 if how.session is not None else _worth(task, how.workers)
    with ProgressBar(title, _estimate(task) if how.session is None else 0, "threads") as advance:
        for page in work.work_through(task, workers, how.session):
            advance(len(page))
            yield from page


def _estimate(task: SchemaTask) -> int:
    from lockstitch.formats.langgraph.postgres.database import Database
    from lockstitch.formats.langgraph.postgres.reading import ThreadReader

    with Database(task.url, task.home.schema) as database:
        return ThreadReader(database, task.home).estimate() // task.shard.count


# Below so many threads, starting other processes costs more than it saves.
_WORTH_WORKERS = 2_000


def _worth(task: SchemaTask, workers: int) -> int:
    return workers if workers == 1 or _estimate(task) >= _WORTH_WORKERS else 1


# Scan and check


class Asked(Struct, frozen=True):
    """What a scan or a check asks of a database; ``search`` goes for older checkpoints, too."""

    workers: int = 1
    session: str | None = None
    shard: Shard = Shard()
    search: bool = True


def reports(target: str, asked: Asked, title: str = "Checking") -> Iterator[Report]:
    """Check the threads of a database; an error is a report, too."""
    name = places.public(target)
    try:
        for task in tasks(target, shard=asked.shard, search=asked.search):
            how = How(asked.workers, asked.session)
            for outcome in outcomes(task, how, title):
                yield outcome.report
    except LockstitchError as error:
        yield Report(name, LANGGRAPH, asked.session, error=places.brief(str(error), target))


def everything(target: str, asked: Asked) -> Iterator[Report]:
    """Check all that a PostgreSQL holds: a store of our own, threads of LangGraph, or both."""
    name = places.public(target)
    try:
        from lockstitch.sessions import psycopg_hint

        with psycopg_hint():
            from lockstitch.formats.langgraph.postgres.database import look_into

            known = look_into(target)
        if not known.is_own and not known.homes:
            raise UnknownFormat(_NEITHER)
        # A store of our own is not divided: it goes with the first shard.
        if known.is_own and asked.shard.number == 1:
            from lockstitch.cli.check import journals

            yield from journals(target, None, None, asked.session)
        if known.homes:
            # Most of such a database is older checkpoints, of which a scan reads none.
            yield from reports(target, structs.replace(asked, search=False), "Scanning")
    except LockstitchError as error:
        yield Report(name, error=places.brief(str(error), target))


# Repair


class Mending(Struct):
    """What a repair of a database has come to so far."""

    states: dict[str, int] = field(default_factory=dict)
    findings: dict[str, int] = field(default_factory=dict)
    left: int = 0
    failed: int = 0
    planned: int = 0

    def add(self, outcome: ThreadOutcome) -> None:
        """Count a thread in."""
        self.states[outcome.state] = self.states.get(outcome.state, 0) + 1
        for found in outcome.report.findings:
            self.findings[found.severity] = self.findings.get(found.severity, 0) + 1
        is_done = outcome.state == "repaired"
        self.left += len(outcome.remaining if is_done else outcome.report.findings)
        self.failed += outcome.report.error is not None
        self.planned += bool(outcome.changes)


class Wish(Struct, frozen=True):
    """How a repair was asked for."""

    options: RepairOptions
    yes: bool = False
    diff: bool = False
    quiet: bool = False
    workers: int = 1
    session: str | None = None
    shard: Shard = Shard()


def repair(target: str, wish: Wish) -> Iterator[ThreadOutcome]:
    """Repair the threads of a database: shown, and written if that is wanted."""
    from lockstitch.files import backup

    facts = {"run": backup.new_run(), "options": wish.options, "shard": wish.shard}
    for task in tasks(target, mends=True, writes=wish.yes and not wish.diff, **facts):
        for outcome in outcomes(task, How(wish.workers, wish.session), "Repairing"):
            if not wish.quiet:
                _show(outcome)
            yield outcome


def _show(outcome: ThreadOutcome) -> None:
    name = render.report_name(outcome.report)
    if outcome.report.error is not None:
        terminal.complain(f"{render.target_name(name)}: {outcome.report.error}")
    is_left = outcome.state == "went on"
    if outcome.changes and outcome.state == "broken":
        terminal.note(f"{render.target_name(name)}: {render.PLANNED}")
    for made in () if is_left else outcome.changes:
        terminal.note(render.describe_change(name, made, sys.stderr))
    for kept in () if is_left else outcome.quarantine:
        terminal.note(
            render.describe_quarantined(name, kept, sys.stderr, "still in the old checkpoint")
        )
    for found in outcome.report.findings if is_left else outcome.remaining:
        terminal.note(render.describe_finding(name, str(outcome.report.dialect), found, sys.stderr))
    for note in outcome.report.notes:
        terminal.note(f"{render.target_name(name)}: note: {note}")
    if is_left:
        terminal.note(f"{render.target_name(name)}: went on meanwhile; it was left alone")


def say_mended(target: str, done: Mending) -> None:
    """Print what a repair of a database came to."""
    repaired = done.states.get("repaired", 0)
    if repaired:
        total = sum(done.states.values())
        terminal.note(f"Repaired {repaired} of {several(total, 'thread')}.")
        terminal.note(f"To undo it: lockstitch undo {pasted(places.public(target))}")
    elif not sum(done.findings.values()) and not done.failed:
        terminal.note("All clean.")
    if done.states.get("went on"):
        terminal.note(f"Left alone: {several(done.states['went on'], 'thread')} (went on).")


def mended_status(done: Mending) -> int:
    """The exit status of a repair."""
    return FAILED if done.failed else FINDINGS if done.left else CLEAN


# Undo


def undo(target: str, session: str | None, run: str | None) -> Iterable[dict[str, Any]]:
    """Take repairs of a database back, and say of each thread what became of it."""
    from lockstitch.sessions import undo_threads

    for name, one in undo_threads(target, session, run):
        yield _undone(name, one)


def _undone(name: str, one: Any) -> dict[str, Any]:
    shown = render.SessionName(f"{name}:{one.session}")
    if one.error is not None:
        terminal.complain(f"{render.target_name(shown)}: {places.brief(one.error, name)}")
    return {
        "target": str(shown),
        "restored": None if one.error else one.session,
        "error": one.error,
    }


def past(target: str) -> list[dict[str, Any]]:
    """The runs that repaired something in a database, newest first."""
    from lockstitch.formats.langgraph.postgres import repairs
    from lockstitch.formats.langgraph.postgres.database import Database

    rows: list[dict[str, Any]] = []
    for task in tasks(target):
        with Database(task.url, task.home.schema) as database:
            for one in repairs.past_runs(database, task.home):
                status = "undone" if one.undone == one.repairs else "done"
                facts = {"target": task.name, "run": one.run, "time": one.made.isoformat()}
                counts = {"repairs": one.repairs, "undone": one.undone}
                rows.append({**facts, "status": status, **counts})
    return rows
