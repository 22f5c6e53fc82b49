"""Making sessions shorter where they are, as their programs do, with a backup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import msgspec
from msgspec import Struct, field

from lockstitch import backups, places
from lockstitch.errors import Conflict, Unreadable
from lockstitch.files import snapshot
from lockstitch.formats.sources import Opened, Source
from lockstitch.repair.draft import Change
from lockstitch.report import Report
from lockstitch.sessions.checking import described
from lockstitch.sessions.finding import opened, sources
from lockstitch.sessions.repairing import stored_bytes, until_it_stays, written

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from lockstitch.compaction.ladder import Compaction
    from lockstitch.compaction.running import CompactLimits, Summarize
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
    session: str | None = None,
    run: str | None = None,
    follow_symlinks: bool = False,
    **limits: Unpack[CompactLimits],
) -> Shorter:
    """Make a session shorter where it is, as its program does, with a backup.

    ``summarize`` is a function from a prompt to a summary; without it, and when it fails, a digest
    of what was said and done stands in. Raises ``Unmet`` if ``budget`` tokens, or ``most_bytes``
    bytes, cannot be met, and ``Conflict`` if it cannot be written safely; nothing is written then.
    A session in a store of Lockstitch's own is compacted by one more record. The options are those
    of ``Session.compact`` that make sense for both.
    """
    if isinstance(source, str):
        if places.may_be(source) and places.place_of(source):
            from lockstitch import stored  # noqa: PLC0415 - most sessions are of other programs

            return stored.compact(source, session, summarize, budget=budget, **limits)
        [source] = sources(source, session=session)
    known: dict[str, str] = {}
    chosen = source

    def attempt() -> Shorter:
        read = opened(chosen, follow_symlinks=follow_symlinks)
        made = condensed(read, summarize, budget=budget, known=known, **limits)
        return shortened(read, made, run or backups.new_run())

    return until_it_stays(attempt)


def condensed(
    session: Opened,
    summarize: Summarize | None = None,
    *,
    budget: int = BUDGET,
    known: MutableMapping[str, str] | None = None,
    **limits: Unpack[CompactLimits],
) -> Condensed:
    """Work out the compaction of a session that was read; ``known`` keeps answers of the model."""
    from lockstitch.compaction.running import CompactBounds  # noqa: PLC0415 - few commands need it
    from lockstitch.compaction.summarizer import Summarizer  # noqa: PLC0415 - as above
    from lockstitch.formats import compactor  # noqa: PLC0415 - as above

    bounds = CompactBounds(tokens=budget, **limits)
    asked = None
    if summarize is not None:
        asked = Summarizer(summarize, ignore_pause=bounds.ignore_pause)
    try:
        draft = compactor.drafted(session.source.form, session.transcript, bounds.budget)
        answers = {} if known is None else known
        return compactor.condensed(draft, asked, bounds.clock, answers, bounds.show)
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
        "quarantine": msgspec.to_builtins(
            made.draft.mended.quarantine, builtin_types=(msgspec.Raw,)
        ),
        "compaction": {"rung": done.done.rung, "turns": done.turns},
    }
    data = stored_bytes(session.source, made.after)
    done.backup, done.carried = written(session, data, run, details)
    return done
