"""Making sessions shorter where they are, as their programs do, with a backup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field

from lockstitch import backups, places
from lockstitch.errors import Conflict, Unreadable
from lockstitch.files import snapshot
from lockstitch.formats.sources import Opened, Source
from lockstitch.repair.ledger import Change
from lockstitch.report import Report
from lockstitch.sessions.checking import described
from lockstitch.sessions.finding import opened, sources
from lockstitch.sessions.repairing import stored_bytes, until_it_stays, written

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from lockstitch.compaction.ladder import Compaction
    from lockstitch.compaction.running import Progress, Summarize
    from lockstitch.formats.compactor import Condensed

# What a compacted session may have, in tokens: three fifths of a usual window.
BUDGET = 120_000


class Shorter(Struct):
    """What a compaction did to one session, or would do; ``backup`` says where the original is.

    ``turns`` counts what the summary stands for, ``changes`` what had to be repaired first.
    """

    report: Report
    done: Compaction
    turns: int = 0
    changes: list[Change] = field(default_factory=list)
    backup: str | None = None
    carried: int = 0


def compact(  # noqa: PLR0913 - options, all by name
    source: Source | str,
    summarize: Summarize | None = None,
    *,
    budget: int = BUDGET,
    most_bytes: int | None = None,
    deadline: float = 60.0,
    call_timeout: float | None = None,
    session: str | None = None,
    on_progress: Progress | None = None,
    run: str | None = None,
    follow_symlinks: bool = False,
) -> Shorter:
    """Make a session shorter where it is, as its program does, with a backup.

    ``summarize`` is a function from a prompt to a summary; without it, and when it fails, a digest
    of what was said and done stands in. Raises ``Unmet`` if ``budget`` tokens, or ``most_bytes``
    bytes, cannot be met, and ``Conflict`` if it cannot be written safely; nothing is written then.
    A session in a store of Lockstitch's own is compacted by one more record.
    """
    options: dict[str, Any] = {
        "budget": budget,
        "most_bytes": most_bytes,
        "deadline": deadline,
        "call_timeout": call_timeout,
        "on_progress": on_progress,
    }
    if isinstance(source, str):
        if places.may_be(source) and places.place_of(source):
            from lockstitch import stored  # noqa: PLC0415 - most sessions are of other programs

            return stored.compact(source, session, summarize, **options)
        [source] = sources(source, session=session)
    known: dict[str, str] = {}
    chosen = source

    def attempt() -> Shorter:
        read = opened(chosen, follow_symlinks=follow_symlinks)
        made = condensed(read, summarize, known=known, **options)
        return shortened(read, made, run or backups.new_run())

    return until_it_stays(attempt)


def condensed(  # noqa: PLR0913 - options, all by name
    session: Opened,
    summarize: Summarize | None = None,
    *,
    budget: int = BUDGET,
    most_bytes: int | None = None,
    deadline: float = 60.0,
    call_timeout: float | None = None,
    on_progress: Progress | None = None,
    known: MutableMapping[str, str] | None = None,
) -> Condensed:
    """Work out the compaction of a session that was read; ``known`` keeps answers of the model."""
    from lockstitch.compaction.plan import budget_of  # noqa: PLC0415 - few commands need it
    from lockstitch.compaction.running import Clock, quiet  # noqa: PLC0415 - as above
    from lockstitch.formats import compactor  # noqa: PLC0415 - as above

    room = budget_of(budget, most_bytes)
    try:
        draft = compactor.drafted(session.source.form, session.transcript, room)
        answers = {} if known is None else known
        clock = Clock(deadline, call_timeout)
        return compactor.condensed(draft, summarize, clock, answers, on_progress or quiet)
    except (RecursionError, MemoryError):
        raise Unreadable("is too large or too deep") from None


def shorter(session: Opened, made: Condensed) -> Shorter:
    """Say what a compaction would come to, without writing it."""
    changes = list(made.draft.mended.changes) if made.changed else []
    return Shorter(described(session), made.left.done, made.left.turns, changes)


def shortened(session: Opened, made: Condensed, run: str) -> Shorter:
    """Write a compaction, with its backup; Conflict if the session has gone on since."""
    done = shorter(session, made)
    if not made.changed or session.before is None:
        return done
    before = session.before
    if snapshot(before.path).digest != before.digest:
        raise Conflict("has gone on since it was read; nothing was written")
    details = {
        "codes": sorted({finding.code for finding in made.draft.mended.findings}),
        "changes": msgspec.to_builtins(done.changes),
        "quarantine": msgspec.to_builtins(made.draft.mended.quarantine),
        "compaction": {"rung": done.done.rung, "turns": done.turns},
    }
    data = stored_bytes(session.source, made.after)
    done.backup, done.carried = written(session, data, run, details)
    return done
