"""A stored session compacted: mended first where it has to be, and judged again at the end."""

from __future__ import annotations

from collections.abc import MutableMapping

from msgspec import Struct, structs

from lockstitch.compaction.plan import TokenBudget
from lockstitch.compaction.running import Clock, Progress, run
from lockstitch.compaction.summarizer import Summarizer
from lockstitch.errors import Unmet, Unreadable
from lockstitch.formats import doctor
from lockstitch.formats.base import Format, Transcript
from lockstitch.formats.compacting import Shortened, Story
from lockstitch.formats.doctor import Mended, Options
from lockstitch.rules import ERROR, Finding


class Draft(Struct, frozen=True):
    """A session that was read for a compaction; ``mended`` says what had to be repaired first."""

    form: Format
    mended: Mended
    story: Story
    budget: TokenBudget


class Condensed(Struct, frozen=True):
    """What a compaction of a session comes to: what is left, and the records that say so."""

    draft: Draft
    left: Shortened
    after: Transcript

    @property
    def changed(self) -> bool:
        """Tell whether there is anything to write."""
        return self.left.done.event is not None


def drafted(form: Format, transcript: Transcript, budget: TokenBudget) -> Draft:
    """Get a session ready; one that is broken is mended, or refused if it cannot be."""
    form.sorting(transcript)
    mended = doctor.mend(form, transcript, Options())
    # what is too large is what a compaction is for; it is judged by what it leaves
    _require_sound(mended.remaining, doctor.LOSSY, "`lockstitch check` tells what stays wrong")
    if not mended.after.history.messages:
        raise Unreadable("holds no conversation")
    story = Story(mended.after.history, form.sorting(mended.after))
    return Draft(form, mended, story, budget)


def condensed(
    draft: Draft,
    summarizer: Summarizer | None,
    clock: Clock,
    known: MutableMapping[str, str],
    on_progress: Progress,
) -> Condensed:
    """Make it shorter; raises ``Unmet`` if the budget cannot be met. Nothing is written here."""
    left = _left(draft, summarizer, clock, known, on_progress)
    before = draft.mended.after
    if left.done.event is None:
        return Condensed(draft, left, before)
    records = draft.form.compacted(before, draft.story, left)
    after = draft.form.parse(records, before.context)
    known_before = frozenset(finding.code for finding in draft.mended.remaining)
    found = doctor.findings_of(draft.form, after)
    _require_sound(found, known_before, "the compaction was not written")
    return Condensed(draft, left, after)


def _left(
    draft: Draft,
    summarizer: Summarizer | None,
    clock: Clock,
    known: MutableMapping[str, str],
    on_progress: Progress,
) -> Shortened:
    steps = draft.story.steps(draft.budget, has_model=summarizer is not None, known=known)
    try:
        done = run(steps, summarizer, clock, keep=known.__setitem__, on_progress=on_progress)
    except Unmet as error:
        raise draft.story.unmet(draft.budget, error.least) from error
    if summarizer is not None:
        summarizer.learn(done)
    try:
        return draft.story.shortened(done, draft.budget)
    except Unmet:
        if summarizer is None:
            raise
    # the model was asked for less than it wrote; a digest is as short as it has to be
    left = _left(draft, None, clock, {}, on_progress)
    failures = (*done.failures, "the summary was too long")
    return structs.replace(
        left, done=structs.replace(left.done, asked=done.asked, failures=failures)
    )


def _require_sound(findings: list[Finding], spared: frozenset[str], advice: str) -> None:
    codes = {finding.code for finding in findings if finding.severity == ERROR} - spared
    if codes:
        raise Unreadable(f"is not valid ({', '.join(sorted(codes))}); {advice}")
