"""The way down from a conversation that is too long to one that fits, each step only if needed.

Shorten old results; else have a model sum up the beginning; else sum it up without one. This is
a generator: it asks, and whoever drives it calls the model, keeps the time and sends answers in.
It never fails because a model did.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Literal

from msgspec import Raw, Struct, structs

from lockstitch.compaction import summaries
from lockstitch.compaction.plan import (
    BYTES_A_TOKEN,
    LIMITS,
    Cost,
    Counter,
    CutPlan,
    Planner,
    TokenBudget,
    calibrated,
    size_of,
    weights,
)
from lockstitch.compaction.summaries import SpokenLine, digest, spoken_lines
from lockstitch.errors import Unmet
from lockstitch.journal.events import NOTHING, Compacted, text_payload, value_of
from lockstitch.journal.projection import SUMMARY
from lockstitch.journal.state import JournalView

Rung = Literal["nothing", "shortened", "summary", "digest"]

ATTEMPTS = 3
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 20.0
_CHUNK_MOST = 60_000
_CHUNK_LEAST = 100
# Of a model's window, for notes; and how much longer than asked for they may be.
_NOTES_SHARE = 6
_OVERSIZE = 2


class Ask(Struct, frozen=True):
    """A question for the model, the ``number``-th of about ``total``; ``key`` names it."""

    prompt: str
    key: str
    number: int
    total: int


class PauseStep(Struct, frozen=True):
    """Time to let go by before the next question."""

    seconds: float


class AcceptedAnswer(Struct, frozen=True):
    """An answer of the model that was taken, to be kept under its key."""

    key: str
    text: str


class Failure(Struct, frozen=True):
    """A question that got no answer; ``reason`` has nothing of the conversation in it."""

    reason: str


class Unasked(Struct, frozen=True):
    """A question that was not put to the model, which is not asked again; ``reason`` says why."""

    reason: str


class Compaction(Struct, frozen=True):
    """What a compaction came to; ``event`` is the fact to be written, None if there is none.

    ``asked`` counts questions to the model, ``failures`` says what became of those in vain, and
    ``unasked`` why there were no more of them, if it could have been asked. ``is_tight`` says that
    by its figures it is over the budget: whoever writes it weighs it first.
    """

    rung: Rung
    before: Cost
    after: Cost
    event: Compacted | None = None
    asked: int = 0
    failures: tuple[str, ...] = ()
    is_tight: bool = False
    unasked: str = ""


class CompactionTask(Struct):
    """A conversation to be shortened, and by what means.

    ``window`` is how many tokens the model that sums up may be given at once, 0 if it is not
    known. ``known`` has answers from before, by key; ``random`` gives numbers from 0 to 1.
    Without ``shortens`` results stay whole, and a summary is the first thing to try. With
    ``weighs`` a compaction that may be too much is given as well, marked as tight.
    """

    view: JournalView
    dialect: str
    budget: TokenBudget
    blobs: Mapping[str, bytes]
    has_model: bool
    counter: Counter | None = None
    window: int = 0
    shortens: bool = True
    weighs: bool = False
    known: Mapping[str, str] = {}
    random: Callable[[], float] = lambda: 0.5


Step = Ask | PauseStep | AcceptedAnswer
Answer = str | Failure | Unasked | None
Steps = Generator[Step, Answer, Compaction]
Answers = Generator[Step, Answer, str | None]


def ladder(task: CompactionTask) -> Steps:
    """Go down as far as needed; raises ``Unmet`` if the budget cannot be met at all."""
    return (yield from _Descent(task).run())


class _Descent:
    def __init__(self, task: CompactionTask) -> None:
        self.task = task
        self.counter = task.counter or calibrated(task.view, task.dialect, task.blobs)
        weighed = weights(task.view, task.dialect, LIMITS, counter=self.counter, blobs=task.blobs)
        if not task.shortens:
            weighed = [
                structs.replace(one, short=dict.fromkeys(one.short, (one.tokens, one.bytes)))
                for one in weighed
            ]
        self.weighed = weighed
        self.asked = 0
        self.failures: list[str] = []
        self.unasked = ""
        self.is_tight = False

    def _planned(self) -> CutPlan:
        """Plan for the budget; if that cannot be met by the figures, for the least there is.

        The figures count more than comes out: thinking that goes with the past it belongs to.
        """
        task, carried = self.task, Cost()
        if self._previous:
            sent = [{"role": "user", "content": f"{SUMMARY}\n{self._previous}"}]
            carried = Cost(self.counter(sent, task.dialect), size_of(sent))
        planner = Planner(task.view, self.weighed, task.budget, carried)
        try:
            return planner.planned()
        except Unmet as error:
            if not task.weighs or not error.least:
                raise
            planner.budget = TokenBudget(error.least, task.budget.bytes)
            self.is_tight = True
        return planner.planned()

    def run(self) -> Steps:
        task = self.task
        plan = self._planned()
        if not plan.is_needed:
            return self._done("nothing", plan)
        if not plan.room:
            # Shorten, and keep the summary there is.
            fact, summary = self._fact(plan, NOTHING), task.view.summary
            if summary and summary.cut:
                kept = summary.event
                fact = structs.replace(fact, payload=kept.payload, blob=kept.blob)
            return self._done("shortened", plan, fact)
        notes = None
        if task.has_model and not self.is_tight:
            notes = yield from self._notes(plan)
        if notes is not None:
            return self._done("summary", plan, self._fact(plan, text_payload(notes)))
        lines = spoken_lines(task.view, plan.hidden, task.blobs)
        # A digest may take half of the headroom.
        left = task.budget.tokens - plan.after.tokens
        if task.budget.bytes:
            left = min(left, (task.budget.bytes - plan.after.bytes) // BYTES_A_TOKEN)
        most = plan.room + max(left, 0) // 2
        text = digest(lines, self._previous, plan.room, self._count, most)
        return self._done("digest", plan, self._fact(plan, text_payload(text)))

    def _done(self, rung: Rung, plan: CutPlan, event: Compacted | None = None) -> Compaction:
        return Compaction(
            rung,
            plan.before,
            plan.after,
            event,
            asked=self.asked,
            failures=tuple(self.failures),
            is_tight=self.is_tight,
            unasked=self.unasked,
        )

    def _fact(self, plan: CutPlan, payload: Raw) -> Compacted:
        through, shortened, limit = plan.through, plan.shortened, plan.limit
        return Compacted(through=through, shortened=shortened, limit=limit, payload=payload)

    def _count(self, text: str) -> int:
        """Count a text's tokens; not fewer than a plan counts on for its bytes."""
        tokens = self.counter([{"role": "user", "content": text}], self.task.dialect)
        return max(tokens, len(text.encode("utf-8", "replace")) // BYTES_A_TOKEN)

    @property
    def _previous(self) -> str:
        """The summary that is in force."""
        summary = self.task.view.summary
        if summary is None or not summary.cut:
            return ""
        event = summary.event
        raw = self.task.blobs.get(event.blob, b'""') if event.blob else bytes(event.payload)
        value = value_of(type(event.payload)(raw))
        return value if isinstance(value, str) else ""

    def _notes(self, plan: CutPlan) -> Answers:
        """Have a model write notes of what is hidden, one part after another."""
        asking = _QuestionSizes(plan, self.task, self._count)
        notes, lines = self._previous, spoken_lines(self.task.view, plan.hidden, self.task.blobs)
        if not plan.hidden or self._count(notes) > asking.longest:
            notes, lines = "", [SpokenLine(0, "assistant", notes), *lines]
        parts = summaries.split_parts(lines, asking.part, self._count)
        for number, part in enumerate(parts, start=1):
            is_last = number == len(parts)
            asked = summaries.prompt(part, notes, asking.room)
            most = asking.most if is_last else asking.longest
            answer = yield from self._answer(asked, number, len(parts), most)
            if answer is None:
                return None
            notes = answer
        return notes or None

    def _answer(self, asked: str, number: int, total: int, most: int) -> Answers:
        """Ask until there is an answer, or often enough, for this question and for them all."""
        key = summaries.key_of(asked)
        known = summaries.accept_summary(self.task.known.get(key), most, self._count)
        if known is not None:
            return known
        for attempt in range(ATTEMPTS):
            if len(self.failures) >= ATTEMPTS + total:
                return None
            if attempt:
                longest = min(_FIRST_PAUSE * 2.0**attempt, _LONGEST_PAUSE)
                yield PauseStep(longest * (0.5 + self.task.random() / 2))
            got = yield Ask(asked, key, number, total)
            if isinstance(got, Unasked):
                self.unasked = got.reason
                return None
            self.asked += 1
            if isinstance(got, Failure):
                self.failures.append(got.reason)
                continue
            text = summaries.accept_summary(got, most, self._count)
            if text is not None:
                yield AcceptedAnswer(key, text)
                return text
            self.failures.append("the answer was no summary")
        return None


class _QuestionSizes:
    """How much a model is asked at once, and how long its answers may be, in tokens.

    All of a question is within the model's window: instructions, notes, and a part.
    """

    def __init__(self, plan: CutPlan, task: CompactionTask, count: summaries.Count) -> None:
        window = task.window or task.budget.tokens
        spare = task.budget.tokens - plan.after.tokens
        self.room = min(plan.room, max(window // _NOTES_SHARE, 1))
        self.longest = self.room * _OVERSIZE
        self.most = max(min(self.longest, plan.room + spare), self.room)
        rest = window - count(summaries.prompt("", "", plan.room)) - self.longest
        self.part = max(min(rest * 9 // 10, _CHUNK_MOST), _CHUNK_LEAST)
