"""Shorten sessions of other programs in place, with a backup."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Unpack

from msgspec import structs

from lockstitch.compaction.running import CompactBounds, Summarizer
from lockstitch.errors import Conflict, Unreadable
from lockstitch.files import backup as backups
from lockstitch.files.replace import snapshot
from lockstitch.formats.compaction import Condensed, draft_compaction, run_compaction
from lockstitch.formats.repair import file_bytes
from lockstitch.sources.operations import retry_while_changing, write_plan
from lockstitch.sources.own_stores import may_be, place_of
from lockstitch.sources.source import Opened, Shorter, Source
from lockstitch.sources.targets import resolve_sources

if TYPE_CHECKING:
    from lockstitch.compaction.running import CompactLimits, Summarize

# The size of a compacted session, in tokens: three fifths of a usual context window.
BUDGET = 120_000


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
    """Shorten a session in place, in the way its program does it, with a backup.

    ``summarize`` is a function from a prompt to a summary. Without it, or if it fails, a digest of
    what was said and done is used. Raises ``Unmet`` if ``budget`` tokens or ``most_bytes`` bytes
    cannot be met, and ``Conflict`` if the session cannot be written safely; in both cases nothing
    was written. In a Lockstitch store the compaction is one more record. The other options are
    those of ``Session.compact`` that apply to both.
    """
    if isinstance(source, str):
        if may_be(source) and place_of(source):
            from lockstitch.sources.store_operations import compact_stored  # noqa: PLC0415

            return compact_stored(source, session, summarize, budget=budget, **limits)
        [source] = resolve_sources(source, session=session)
    known: dict[str, str] = {}
    chosen = source

    def attempt() -> Shorter:
        read = chosen.open(follow_symlinks=follow_symlinks)
        made = plan_compaction(read, summarize, budget=budget, known=known, **limits)
        return write_compaction(read, made, run or backups.new_run())

    return retry_while_changing(attempt)


def plan_compaction(
    session: Opened,
    summarize: Summarize | None = None,
    *,
    budget: int = BUDGET,
    known: MutableMapping[str, str] | None = None,
    **limits: Unpack[CompactLimits],
) -> Condensed:
    """Return the compaction of a session that was read; ``known`` stores answers of the model."""
    bounds = CompactBounds(tokens=budget, **limits)
    asked = None
    if summarize is not None:
        asked = Summarizer(summarize, ignore_pause=bounds.ignore_pause)
    try:
        draft = draft_compaction(session.source.form, session.transcript, bounds.budget)
        answers = {} if known is None else known
        return run_compaction(draft, asked, bounds.clock, answers, bounds.show)
    except (RecursionError, MemoryError):
        raise Unreadable("it is too large or too deep") from None


def preview_compaction(session: Opened, made: Condensed) -> Shorter:
    """Return what a compaction would do, without writing it."""
    changes = list(made.draft.repaired.changes) if made.changed else []
    report = session.source.describe(session.transcript)
    return Shorter(report, made.left.done, made.left.turns, changes)


def write_compaction(session: Opened, made: Condensed, run: str) -> Shorter:
    """Write a compaction with a backup; raise ``Conflict`` if the session has gone on since."""
    done = preview_compaction(session, made)
    if not made.changed or session.before is None:
        return done
    before = session.before
    if snapshot(before.path).digest != before.digest:
        raise Conflict(
            "this session was continued since it was read; nothing was written: read it again"
        )
    data = file_bytes(made.after)
    plan = structs.replace(
        made.draft.repaired, before=session.transcript, after=made.after, data=data
    )
    facts = {"rung": done.done.rung, "turns": done.turns}
    written = write_plan(session, plan, run, {"compaction": facts})
    done.backup, done.carried = written.backup, written.carried
    return done
