"""How a stored history is made shorter, as its program does it.

A history is repaired first if it has to be, converted to the facts of a journal, and planned like
Lockstitch's own sessions. The outcome is messages again. Those that are kept are the same objects
as in the history, so that a format finds the bytes in which they stand. The outcome is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from lockstitch.compaction.ladder import Compaction, CompactionTask, Steps, ladder
from lockstitch.compaction.plan import Cost, Counter, TokenBudget, estimate, size_of
from lockstitch.compaction.running import Clock, Progress, Summarizer, run
from lockstitch.conversation.parts import ASSISTANT, RESULT, SYSTEM, USER
from lockstitch.dialects.exchange import without_reasoning
from lockstitch.dialects.profiles import new_dialect, profile_named, traits_of
from lockstitch.errors import Unmet, Unreadable
from lockstitch.formats import repair
from lockstitch.formats.interface import NEW, Format, History, Shortened, Sorting, Transcript
from lockstitch.formats.repair import RepairOptions, RepairPlan
from lockstitch.journal.events import (
    Compacted,
    Event,
    Finished,
    Noted,
    Replied,
    text_payload,
    value_of,
)
from lockstitch.journal.messages import Imported, import_events
from lockstitch.journal.projection import SUMMARY, each_item
from lockstitch.journal.state import Item, JournalState, JournalView, ModelReply, Spoken
from lockstitch.rules import ERROR, Finding

_POINTER = "; record {seq} has all of it."
_ELSEWHERE = "; the file as it was before has all of it."


def shortened_messages(story: Story, view: JournalView) -> dict[int, Any]:
    """Return, by number, the messages of which the view sends less than the history has."""
    if view.summary is None or not view.summary.event.shortened:
        return {}
    bare = structs.replace(view, summary=None)
    dialect = story.history.dialect
    pairs = zip(each_item(bare, dialect), each_item(view, dialect), strict=True)
    found: dict[int, Any] = {}
    for (item, whole), (_, short) in pairs:
        if whole != short and not view.hides(item.seq):
            _put(story, found, item, _point_to_original(item, short))
    return found


def _put(story: Story, found: dict[int, Any], item: Item, messages: list[Any]) -> None:
    """Put the messages of an item in their places; the reply itself stays as it came."""
    kind = "found" if isinstance(item, ModelReply) else "said"
    homes = [number for number, owners in story.owners.items() if (item.seq, kind) in owners]
    if not homes:
        return
    made = messages[-len(homes) :]
    if len(made) < len(homes) or (kind == "said" and len(messages) != len(homes)):
        return
    for number, message in zip(homes, made, strict=True):
        found[number] = _join_parts(
            story, found.get(number, story.history.messages[number]), message
        )


def _join_parts(story: Story, old: Any, new: Any) -> Any:
    """Return a message with new results, or new words, and the rest of the old one."""
    [before], [after] = story.dialect.read([old]), story.dialect.read([new])
    is_result = {part.kind == RESULT for part in after.parts}
    rest = [part for part in before.parts if (part.kind == RESULT) not in is_result]
    if not rest:
        return new
    parts = [*after.parts, *rest] if True in is_result else [*rest, *after.parts]
    return story.dialect.rebuild(structs.replace(before, parts=parts))


def _point_to_original(item: Item, messages: list[Any]) -> list[Any]:
    """Make the notes on what is left out point to where it still is."""
    if not isinstance(item, ModelReply):
        return messages
    text = msgspec.json.encode(messages)
    for call in item.calls:
        if call.outcome is not None:
            note = _POINTER.format(seq=call.outcome.seq)
            text = text.replace(note.encode(), _ELSEWHERE.encode())
    found: list[Any] = msgspec.json.decode(text)
    return found


SAID, REPLIED, FOUND, REST = "said", "replied", "found", "rest"
ItemOwner = tuple[int, str]
# Bounds for the factor between the provider's figures and our estimate; for fewer tokens than
# ``_ENOUGH`` the figures say too little.
_LEAST, _MOST = 0.25, 4.0
_ENOUGH = 2000
_TWO = 2


class Story:
    """One stored history on its way to a shorter one."""

    def __init__(self, history: History, sorting: Sorting) -> None:
        self.history = history
        self.sorting = sorting
        self.dialect = new_dialect(profile_named(history.dialect).dialect)
        self.messages = self.dialect.read(history.messages)
        instructions = {n for n, one in enumerate(self.messages) if one.role == SYSTEM}
        self.setup = (sorting.setup | instructions) - {sorting.summary}
        spared = {*self.setup, *sorting.aside, sorting.summary}
        self._numbers = [n for n in range(len(self.messages)) if n not in spared]
        said = import_events([history.messages[n] for n in self._numbers], history.dialect)
        # a note and a summary come before the facts of the messages
        self._shift = 0 if sorting.summary == NEW else 2
        self._events: list[Event] = []
        if self._shift:
            # the summary in force is a fact that follows what it stands for
            text = sorting.previous.removeprefix(SUMMARY).strip()
            in_force = Compacted(through=1, payload=text_payload(text))
            self._events += [Noted(name="before"), in_force]
        self._events += [
            structs.replace(event, reply=event.reply + self._shift)
            if isinstance(event, Finished)
            else event
            for event in said.events
        ]
        self.view = JournalState().snapshot(*self._events)
        self.owners = self._find_owners(said)
        self.counter = self._choose_counter()

    def _find_owners(self, said: Imported) -> dict[int, list[ItemOwner]]:
        """Return which items of the view stand in every message, and which part of each."""
        found: dict[int, list[ItemOwner]] = {}
        events = self._events[self._shift :]
        for place, (event, home) in enumerate(zip(events, said.homes, strict=True), start=1):
            owner = (place + self._shift, REPLIED if isinstance(event, Replied) else SAID)
            if isinstance(event, Finished):
                owner = (event.reply, FOUND)
            found.setdefault(self._numbers[home], []).append(owner)
        owners: dict[int, list[ItemOwner]] = {}
        last: list[ItemOwner] = []
        for number in range(len(self.messages)):
            if number not in self.setup and number != self.sorting.summary:
                last = found.get(number) or [(seq, REST) for seq, _ in last[-1:]]
                owners[number] = last
        return owners

    def _choose_counter(self) -> Counter:
        """Return a counter scaled to the provider's figures, if these say enough.

        Instructions and tools, which no file holds, are included equally in all figures.
        """
        if len(self.sorting.usage) < _TWO or self.sorting.summary != NEW:
            return estimate
        (first, least), (last, most) = self.sorting.usage[0], self.sorting.usage[-1]
        guess = estimate(self.history.messages[first:last])
        if guess < _ENOUGH or most <= least:
            return estimate
        factor = min(max((most - least) / guess, _LEAST), _MOST)
        return lambda messages, _dialect: round(estimate(messages) * factor)

    def _cost(self, messages: Sequence[Any]) -> Cost:
        return Cost(self.counter(messages, self.history.dialect), size_of(messages))

    def steps(self, budget: TokenBudget, *, has_model: bool, known: Mapping[str, str]) -> Steps:
        """Return the steps down to a history that fits; raise ``Unmet`` if none does."""
        setup = [self.history.messages[n] for n in self.setup]
        fixed = self._cost(setup) if setup else Cost()
        left = TokenBudget(
            budget.tokens - fixed.tokens, budget.bytes and budget.bytes - fixed.bytes
        )
        if left.tokens < 1 or left.bytes < 0 or (budget.bytes and not left.bytes):
            raise Unmet(
                f"what is always sent, such as instructions, has {fixed.tokens} tokens and "
                f"{fixed.bytes} bytes, and the budget is {budget}"
            )
        return ladder(
            CompactionTask(
                view=self.view,
                dialect=self.history.dialect,
                budget=self._scale(left),
                blobs={},
                has_model=has_model,
                counter=self.counter,
                known=known,
                shortens=self.sorting.shortens,
                weighs=True,
            )
        )

    def unmet(self, budget: TokenBudget, least: int) -> Unmet:
        """Return the error that a budget cannot be met, in the figures of the file."""
        before = self._cost(self.history.messages)
        stored, sent = self._sizes()
        least = least * max(stored.tokens, sent.tokens) // max(sent.tokens, 1)
        left = (
            f"with everything left out that can be, about {least}"
            if least
            else "none of it can be left out"
        )
        return Unmet(
            f"the session has {before.tokens} tokens and {before.bytes} bytes, {left};"
            f" the budget is {budget}",
            least,
        )

    def _sizes(self) -> tuple[Cost, Cost]:
        """Return the cost of the messages as they are stored, and as their facts are sent."""
        bare = structs.replace(self.view, summary=None)
        facts = [one for _, sent in each_item(bare, self.history.dialect) for one in sent]
        stored = [self.history.messages[number] for number in self.owners]
        return self._cost(stored), self._cost(facts)

    def _scale(self, left: TokenBudget) -> TokenBudget:
        """Scale a budget for the messages to one for the facts, which hold less."""
        stored, sent = self._sizes()
        return TokenBudget(
            max(left.tokens * sent.tokens // max(stored.tokens, sent.tokens, 1), 1),
            left.bytes and max(left.bytes * sent.bytes // max(stored.bytes, sent.bytes, 1), 1),
        )

    def shorten(self, done: Compaction, budget: TokenBudget) -> Shortened:
        """Return what is left; raise ``Unmet`` if it is no shorter, or still too much."""
        before = self._cost(self.history.messages)
        if done.event is None:
            same = structs.replace(done, before=before, after=before)
            everything = self.history.messages
            return Shortened([], None, [*enumerate(everything)], everything, 0, same)
        view = JournalState().snapshot(*self._events, done.event)
        kept = [*self._kept_messages(view)]
        summary = None
        if done.event.through:
            value = value_of(done.event.payload)
            summary = f"{SUMMARY}\n{value if isinstance(value, str) else ''}"
        first = min((n for n, _ in kept if n not in self.setup), default=len(self.messages))
        # instructions between kept messages stay where they are
        setup = [n for n in sorted(self.setup) if n < first]
        kept = [(n, message) for n, message in kept if n >= first]
        messages = [self.history.messages[n] for n in setup]
        messages += [] if summary is None else [self.user_message(summary)]
        messages += [message for _, message in kept]
        after = self._cost(messages)
        is_less = after.tokens < before.tokens or (budget.bytes and after.bytes < before.bytes)
        if not is_less or not budget.holds(after):
            raise Unmet(
                f"the session has {before.tokens} tokens and {before.bytes} bytes, with "
                f"everything left out that can be {after.tokens} and {after.bytes}; the budget "
                f"is {budget}"
            )
        return Shortened(
            setup=setup,
            summary=summary,
            kept=kept,
            messages=messages,
            turns=sum(isinstance(item, Spoken) and view.hides(item.seq) for item in view.items),
            done=structs.replace(done, before=before, after=after),
        )

    def user_message(self, text: str) -> Any:
        """Return a user message."""
        words = self.dialect.text_part(text, USER)
        return self.dialect.rebuild(self.dialect.new_message(USER, [words]))

    def _kept_messages(self, view: JournalView) -> Iterator[tuple[int, Any]]:
        """Yield the messages that no summary stands for; of some only a part."""
        is_cut = view.summary is not None and view.summary.cut > 0
        frees = is_cut and traits_of(self.history.model).binds_reasoning
        less = shortened_messages(self, view) if self.sorting.shortens else {}
        for number, message in enumerate(self.history.messages):
            if number in self.setup:
                yield number, message
            elif number in self.owners:
                left = self._rest_of(number, view, less.get(number, message))
                # for some models, thinking is void after another past than its own
                bare = frees and self.messages[number].role == ASSISTANT
                freed = without_reasoning(self.history.dialect, left) if bare else left
                yield from ((number, one) for one in freed)

    def _rest_of(self, number: int, view: JournalView, message: Any) -> list[Any]:
        owners = self.owners[number]
        shown = {kind for seq, kind in owners if not view.hides(seq)}
        hidden = {kind for seq, kind in owners if view.hides(seq)}
        if not shown:
            return []
        if not hidden or (FOUND in shown) == (FOUND in hidden):
            return [message]
        [read] = self.dialect.read([message])
        parts = [part for part in read.parts if (part.kind == RESULT) == (FOUND in shown)]
        return [self.dialect.rebuild(structs.replace(read, parts=parts))] if parts else []


class CompactionDraft(Struct, frozen=True):
    """A session that was read for a compaction; ``repaired`` is the repair that it needed first."""

    form: Format
    repaired: RepairPlan
    story: Story
    budget: TokenBudget


class Condensed(Struct, frozen=True):
    """The outcome of a session's compaction: what is left, and the records that say so."""

    draft: CompactionDraft
    left: Shortened
    after: Transcript

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return self.left.done.event is not None


def draft_compaction(form: Format, transcript: Transcript, budget: TokenBudget) -> CompactionDraft:
    """Prepare a session for compaction; repair a broken one, or refuse it if that fails."""
    form.sorting(transcript)
    repaired = repair.plan_repair(form, transcript, RepairOptions())
    # a compaction is there for content that is too large, and is judged by what it leaves
    _require_sound(repaired.remaining, repair.LOSSY, "`lockstitch check` tells what stays wrong")
    if not repaired.after.history.messages:
        raise Unreadable("it holds no conversation")
    story = Story(repaired.after.history, form.sorting(repaired.after))
    return CompactionDraft(form, repaired, story, budget)


def run_compaction(
    draft: CompactionDraft,
    summarizer: Summarizer | None,
    clock: Clock,
    known: MutableMapping[str, str],
    on_progress: Progress,
) -> Condensed:
    """Shorten a session; raise ``Unmet`` if the budget cannot be met. Nothing is written here."""
    left = _shorten(draft, summarizer, clock, known, on_progress)
    before = draft.repaired.after
    if left.done.event is None:
        return Condensed(draft, left, before)
    records = draft.form.compacted(before, left)
    after = draft.form.parse(records, before.context)
    known_before = frozenset(finding.code for finding in draft.repaired.remaining)
    found = repair.findings_in(draft.form, after)
    _require_sound(found, known_before, "the compaction was not written")
    return Condensed(draft, left, after)


def _shorten(
    draft: CompactionDraft,
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
        return draft.story.shorten(done, draft.budget)
    except Unmet:
        if summarizer is None:
            raise
    # the model wrote more than it was asked for; a digest is as short as it has to be
    left = _shorten(draft, None, clock, {}, on_progress)
    failures = (*done.failures, "the summary was too long")
    return structs.replace(
        left, done=structs.replace(left.done, asked=done.asked, failures=failures)
    )


def _require_sound(findings: list[Finding], spared: frozenset[str], advice: str) -> None:
    codes = {finding.code for finding in findings if finding.severity == ERROR} - spared
    if codes:
        raise Unreadable(f"it is not valid ({', '.join(sorted(codes))}); {advice}")
