"""What carries a compaction out: its options, its clock, and the questions to the model.

Options are there as callers write them (``CompactLimits``, ``CompactOptions``) and, with what holds
where nothing is said, as they are read (``CompactBounds``, ``CompactSettings``).
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from queue import Empty, Queue
from typing import Any, TypedDict, TypeVar

from msgspec import Struct, structs

from lockstitch.compaction.ladder import (
    AcceptedAnswer,
    Answer,
    Compaction,
    Failure,
    PauseStep,
    Step,
    Steps,
    Unasked,
)
from lockstitch.compaction.plan import Counter, TokenBudget, budget_of
from lockstitch.compaction.summarizer import Question, Summarizer
from lockstitch.conversation.steps import drive
from lockstitch.errors import Unmet, UsageError

T = TypeVar("T")
Summarize = Callable[[str], str]
Keep = Callable[[str, str], None]
Progress = Callable[[int, int], None]


def quiet(_done: int, _total: int) -> None:
    """Take no notice of how far it is."""


class Clock:
    """How long a compaction may take, as a whole and for each question."""

    def __init__(self, deadline: float, call_timeout: float | None) -> None:
        self._end = time.monotonic() + _seconds(deadline, "deadline")
        self._each = None if call_timeout is None else _seconds(call_timeout, "call_timeout")

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return max(self._end - time.monotonic(), 0.0)

    @property
    def for_one(self) -> float:
        """The seconds that one question may take."""
        return self.left if self._each is None else min(self._each, self.left)


def _seconds(given: object, name: str) -> float:
    if isinstance(given, int | float) and not isinstance(given, bool) and given >= 0:
        return given
    raise UsageError(f"{name} is a number of seconds, 0 or more")


class Apart(Struct, frozen=True):
    """An action that takes a while: it weighs a conversation, or waits for a store.

    One that ``must_end`` is not left alone when whoever waits for it is cancelled.
    """

    function: Callable[[], Any]
    must_end: bool = False


class Sleep(Struct, frozen=True):
    """Time to let go by."""

    seconds: float


class PutQuestion(Struct, frozen=True):
    """A prompt for a model, which has the question's time to answer."""

    question: Question
    prompt: str


Action = Apart | Sleep | PutQuestion
Actions = Generator[Action, Any, T]


def compaction_actions(
    steps: Steps,
    summarizer: Summarizer | None,
    clock: Clock,
    *,
    keep: Keep,
    on_progress: Progress,
) -> Actions[Compaction]:
    """Go through the steps of a compaction; an exception from outside leaves nothing behind."""
    answer: Answer = None
    while True:
        # A long conversation takes a while to weigh.
        step = yield Apart(partial(_advance, steps, answer))
        answer = None
        if isinstance(step, Compaction):
            return step
        if isinstance(step, PauseStep):
            yield Sleep(min(step.seconds, clock.left))
        elif isinstance(step, AcceptedAnswer):
            yield Apart(partial(keep, step.key, step.text), must_end=True)
        elif isinstance(question := begin_question(summarizer, clock), Unasked):
            answer = question
        else:
            on_progress(step.number - 1, step.total)
            answer = yield PutQuestion(question, step.prompt)


def _advance(steps: Steps, answer: Answer) -> Step | Compaction:
    try:
        return steps.send(answer)
    except StopIteration as stop:
        done: Compaction = stop.value
        return done


def run(
    steps: Steps,
    summarizer: Summarizer | None,
    clock: Clock,
    *,
    keep: Keep,
    on_progress: Progress,
) -> Compaction:
    """Drive a compaction to its end."""
    actions = compaction_actions(steps, summarizer, clock, keep=keep, on_progress=on_progress)
    return drive(actions, perform)


def perform(action: Action) -> Any:
    """Carry an action out, here and now."""
    if isinstance(action, Apart):
        return action.function()
    if isinstance(action, Sleep):
        return time.sleep(action.seconds)
    question, answers = action.question, Queue[Any]()

    def ask() -> None:
        with question:
            answer = attempt(question.asked.function, action.prompt)
            if inspect.iscoroutine(answer):
                # Awaited in this thread, which has no event loop yet; it takes long to import.
                from asyncio import run  # noqa: PLC0415

                answer = attempt(run, answer)
            answers.put(answer)

    # A callable that never returns must not hold anybody up, at the end of the program either.
    threading.Thread(target=ask, name="lockstitch-summary", daemon=True).start()
    try:
        return check_answer(answers.get(timeout=question.seconds))
    except Empty:
        return silence(question)


def begin_question(summarizer: Summarizer | None, clock: Clock) -> Question | Unasked:
    """Return the next question to the model, or why it is not put."""
    if summarizer is None:
        return Unasked("there is no summarizer")
    reason, seconds = summarizer.unasked, clock.for_one
    if reason or seconds <= 0:
        return Unasked(reason or "there was no time left")
    return Question(summarizer, seconds)


def silence(question: Question) -> Failure:
    """Return the failure of a question that was not answered in its time."""
    return Failure(f"no answer within {question.seconds:.1f} seconds")


def attempt(summarize: Callable[[Any], Any], prompt: Any) -> Any:
    """Call a model; what it raises is a failure."""
    try:
        return summarize(prompt)
    except BaseException as error:  # noqa: BLE001 - whatever a model's client raises
        return failure_of(error)


def failure_of(error: BaseException) -> Failure:
    """Return what kind of failure it was, without the words of it, which may be the user's."""
    status = getattr(error, "status_code", None)
    kind = type(error).__name__
    return Failure(f"{kind} ({status})" if isinstance(status, int) else kind)


def check_answer(answer: Any) -> str | Failure:
    """Take nothing but a text for an answer."""
    if isinstance(answer, str | Failure):
        return answer
    return Failure(f"the summary was a {type(answer).__name__}, not a text")


class CompactLimits(TypedDict, total=False):
    """How far a compaction of anything may go.

    ``most_bytes`` is what a request may have beside its tokens, ``deadline`` the seconds that
    asking a model may take in all, ``call_timeout`` those for each question, and ``on_progress``
    is told how many questions are done, and of how many. ``ignore_pause`` asks a model also while
    it is left alone because it failed.
    """

    most_bytes: int | None
    deadline: float
    call_timeout: float | None
    on_progress: Progress | None
    ignore_pause: bool


class CompactOptions(CompactLimits, total=False):
    """How a session of a store is compacted.

    ``counter`` counts the tokens of messages, and ``window`` is how many of them the model that
    sums up may be given at once.
    """

    counter: Counter | None
    window: int


class CompactBounds(Struct, frozen=True, kw_only=True):
    """``Limits`` with a budget of tokens; raises ``UsageError`` for what cannot be meant."""

    tokens: int
    most_bytes: int | None = None
    deadline: float = 60.0
    call_timeout: float | None = None
    on_progress: Progress | None = None
    ignore_pause: bool = False

    def __post_init__(self) -> None:
        """Read everything once: what is wrong is told also where nothing has to be done."""
        _ = self.budget, self.clock

    @property
    def budget(self) -> TokenBudget:
        """What a request may cost."""
        return budget_of(self.tokens, self.most_bytes)

    @property
    def clock(self) -> Clock:
        """How long asking may take, from now on."""
        return Clock(self.deadline, self.call_timeout)

    def show(self, done: int, total: int) -> None:
        """Report how far it is to whoever wants to know."""
        if self.on_progress is not None:
            self.on_progress(done, total)


class CompactSettings(CompactBounds, frozen=True, kw_only=True):
    """``Options`` with a budget of tokens, and the dialect of the request that has to meet it."""

    dialect: str | None = None
    counter: Counter | None = None
    window: int = 0

    def loosened(self, error: Unmet) -> CompactSettings:
        """Return the least that can be met instead; raises the error again if there is none."""
        if not error.least:
            raise error
        return structs.replace(self, tokens=error.least, most_bytes=None)


def compact_settings(
    budget: int | None, dialect: str, options: CompactOptions
) -> CompactSettings | None:
    """Return what a request has to keep to; None without a budget."""
    if budget is not None:
        return CompactSettings(tokens=budget, dialect=dialect, **options)
    if CompactSettings(tokens=1, **options).most_bytes is not None:
        raise UsageError("most_bytes= is for a compaction: give a budget= of tokens, too")
    return None
