"""Run a compaction: its options, its clock, and the calls of the model.

The summarizing function gets nothing but a prompt, whoever calls it. So if it fails, it fails for
every session. Its failures are therefore remembered here for the function itself, and in each
session under the function's name, for later processes. After a failure it is called again only
after a pause, which grows with every further failure.

Options exist in two forms: as callers write them (``CompactLimits``, ``CompactOptions``), and
validated, with defaults filled in (``CompactBounds``, ``CompactSettings``).
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from queue import Empty, Queue
from typing import Any, Self, TypedDict, TypeVar

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
from lockstitch.conversation.steps import drive
from lockstitch.errors import Unmet, UsageError

# Doubling more often would exceed any longest pause, and could overflow.
_DOUBLINGS = 64


class Pauses(Struct, frozen=True):
    """For how many seconds a summarizer is left alone; doubled with each failure in a row."""

    first: float = 30.0
    longest: float = 30 * 60.0

    def after(self, failures: int) -> float:
        """Return the length of the pause after this many failures in a row."""
        if failures < 1:
            return 0.0
        return min(self.first * 2.0 ** min(failures - 1, _DOUBLINGS), self.longest)


PAUSES = Pauses()


class SummarizerPast(Struct, frozen=True):
    """The record of a summarizer: its failures in a row, and when it was last asked.

    ``since`` is in seconds since 1970, so that other processes can use it.
    """

    failures: int = 0
    since: float = 0.0

    def paused_until(self, now: float, pauses: Pauses = PAUSES) -> float | None:
        """Return when it may be asked again; None if it may be asked now.

        Setting the clock back ends a pause; at worst, it is asked once too often.
        """
        until = self.since + pauses.after(self.failures)
        return until if self.since <= now < until else None

    def after(self, done: Compaction, now: float) -> SummarizerPast:
        """Return the record after a compaction; the same one if it asked nothing.

        A single answer shows that the summarizer works, so earlier failures no longer count.
        """
        if not done.asked:
            return self
        if done.rung == "summary":
            return SummarizerPast(0, now)
        is_down = len(done.failures) >= done.asked
        return SummarizerPast(self.failures + 1 if is_down else 1, now)


def latest_past(pasts: Iterable[SummarizerPast], now: float) -> SummarizerPast:
    """Return the latest of some records, ignoring those from the future."""
    begun = [past for past in pasts if past.since <= now]
    return max(begun, key=lambda past: past.since, default=SummarizerPast())


SILENT = "an earlier question to the summarizer has not been answered, and its time is up"
_UNKNOWN = SummarizerPast()
# The records of functions, for as long as the functions exist.
_PASTS: list[tuple[weakref.ref[Any], SummarizerPast]] = []
# The questions that are still unanswered.
_OPEN: set[Question] = set()
# Reentrant, because garbage collection may end a question in the thread that holds the lock.
_LOCK = threading.RLock()
_now = time.time


class Question:
    """A question to a summarizer, from its beginning until the function returns, however late."""

    def __init__(self, asked: Summarizer, seconds: float) -> None:
        self.asked = asked
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def is_overdue(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() >= self._end

    def __enter__(self) -> Self:
        """Count it among the open questions."""
        with _LOCK:
            _OPEN.add(self)
        return self

    def __exit__(self, *_exc: object) -> None:
        """Stop counting it, because it was answered."""
        with _LOCK:
            _OPEN.discard(self)


class Summarizer:
    """A function that one compaction may ask; ``past`` is its record in the session.

    ``scope`` names the session. With ``ignore_pause`` it is asked regardless of earlier failures.
    """

    def __init__(
        self,
        function: Callable[[str], str | Awaitable[str]],
        *,
        scope: str = "",
        past: SummarizerPast = _UNKNOWN,
        ignore_pause: bool = False,
    ) -> None:
        if not callable(function):
            raise UsageError("summarize must be a function from a prompt to a summary, or None")
        self.function = function
        self.name = name_of(function)
        self._scope = scope
        self._ignores = ignore_pause
        self._kept = past
        now = _now()
        with _LOCK:
            known = next((one for ref, one in _PASTS if _is_same(ref(), function)), _UNKNOWN)
        self.past = latest_past([past, known], now)
        self._until = self.past.paused_until(now)

    @property
    def unasked(self) -> str:
        """The reason why it is not asked now; empty if it is."""
        if self._ignores:
            return ""
        if self._until is not None:
            moment = datetime.fromtimestamp(self._until, UTC)
            until = moment.isoformat(sep=" ", timespec="seconds")
            failures = self.past.failures
            times = "once" if failures == 1 else f"{failures} times in a row"
            return f"the summarizer is paused until {until}: it failed {times}"
        with _LOCK:
            others = [one for one in _OPEN if one.asked.is_same(self)]
        return SILENT if any(one.is_overdue for one in others) else ""

    def is_same(self, other: Summarizer) -> bool:
        """Whether it is the same function or, in one session, one with the same name.

        Many are created anew for each request, by the same line of a program.
        """
        if self._scope and (self._scope, self.name) == (other._scope, other.name):
            return True
        return _is_same(self.function, other.function)

    def learn(self, done: Compaction) -> SummarizerPast | None:
        """Remember the outcome.

        Return the record to store in the session, None if nothing changed.
        """
        if not done.asked:
            return None
        self.past = self.past.after(done, _now())
        # Use a weak reference; functions that do not allow one are remembered only by their
        # session.
        is_method = inspect.ismethod(self.function)
        with _LOCK, suppress(TypeError):
            made = weakref.WeakMethod(self.function) if is_method else weakref.ref(self.function)
            known = [(ref(), ref, old) for ref, old in _PASTS]
            others = [(ref, old) for one, ref, old in known if not _is_same(one, self.function)]
            _PASTS[:] = [*(one for one in others if one[0]() is not None), (made, self.past)]
        return self.past if self.past.failures or self._kept.failures else None


def name_of(function: Callable[..., Any]) -> str:
    """Return a name by which another process recognizes a function."""
    while isinstance(function, functools.partial):
        function = function.func
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    module = getattr(named, "__module__", None) or "builtins"
    name = f"{module}.{named.__qualname__}"
    code = getattr(function, "__code__", None)
    # one module may have many functions without a name
    return f"{name}:{code.co_firstlineno}" if code and name.endswith("<lambda>") else name


def _is_same(one: object, other: object) -> bool:
    """Whether this is the same object; a bound method is a new object on every access."""
    return one is other or (inspect.ismethod(one) and one == other)


def forget() -> None:
    """Forget all functions and questions, as in a new process."""
    with _LOCK:
        _PASTS.clear()
        _OPEN.clear()


def _forget_questions() -> None:
    """Forget the questions of the parent in a forked child, which does not have its threads."""
    global _LOCK  # noqa: PLW0603 - somebody may have held it when the process forked
    _LOCK = threading.RLock()
    _OPEN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_questions)


T = TypeVar("T")
Summarize = Callable[[str], str]
Keep = Callable[[str, str], None]
Progress = Callable[[int, int], None]


def quiet(_done: int, _total: int) -> None:
    """Ignore the progress."""


class Clock:
    """The time limits of a compaction, in all and for each question."""

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


def _seconds(value: object, name: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return value
    raise UsageError(f"{name} must be a number of seconds, 0 or more")


class Apart(Struct, frozen=True):
    """An action that takes a while: it measures a conversation, or waits for a store.

    If it ``must_end``, it is completed even when the caller is cancelled.
    """

    function: Callable[[], Any]
    must_end: bool = False


class Sleep(Struct, frozen=True):
    """Wait for some time."""

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
    """Run the steps of a compaction as actions; an exception from outside cleans up."""
    answer: Answer = None
    while True:
        # Measuring a long conversation takes a while.
        step = yield Apart(partial(_advance, steps, answer))
        answer = None
        if isinstance(step, Compaction):
            return step
        if isinstance(step, PauseStep):
            yield Sleep(min(step.seconds, clock.left))
        elif isinstance(step, AcceptedAnswer):
            yield Apart(partial(keep, step.key, step.text), must_end=True)
        else:
            reason = summarizer.unasked if summarizer else "no summarizer was given"
            seconds = clock.for_one
            if summarizer is None or reason or seconds <= 0:
                answer = Unasked(reason or "there was no time left")
            else:
                on_progress(step.number - 1, step.total)
                answer = yield PutQuestion(Question(summarizer, seconds), step.prompt)


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
    """Run a compaction to its end."""
    actions = compaction_actions(steps, summarizer, clock, keep=keep, on_progress=on_progress)
    return drive(actions, perform)


def perform(action: Action) -> Any:
    """Perform an action synchronously."""
    if isinstance(action, Apart):
        return action.function()
    if isinstance(action, Sleep):
        return time.sleep(action.seconds)
    question, answers = action.question, Queue[Any]()

    def ask() -> None:
        with question:
            answer = attempt(question.asked.function, action.prompt)
            if inspect.iscoroutine(answer):
                # Awaited in this thread, which has no event loop; imported here because asyncio
                # loads slowly.
                from asyncio import run  # noqa: PLC0415

                answer = attempt(run, answer)
            answers.put(answer)

    # A function that never returns must not block anybody, not even the end of the program.
    threading.Thread(target=ask, name="lockstitch-summary", daemon=True).start()
    try:
        return check_answer(answers.get(timeout=question.seconds))
    except Empty:
        return silence(question)


def silence(question: Question) -> Failure:
    """Return the failure of a question that was not answered in time."""
    return Failure(f"no answer within {question.seconds:.1f} seconds")


def attempt(summarize: Callable[[Any], Any], prompt: Any) -> Any:
    """Call a model; return an exception as a failure."""
    try:
        return summarize(prompt)
    except BaseException as error:  # noqa: BLE001 - whatever a model's client raises
        return failure_of(error)


def failure_of(error: BaseException) -> Failure:
    """Return the kind of a failure without its message, which may contain the user's words."""
    status = getattr(error, "status_code", None)
    kind = type(error).__name__
    return Failure(f"{kind} ({status})" if isinstance(status, int) else kind)


def check_answer(answer: Any) -> str | Failure:
    """Return an answer if it is a text, otherwise a failure."""
    if isinstance(answer, str | Failure):
        return answer
    return Failure(f"the summary was a {type(answer).__name__}, not a string")


class CompactLimits(TypedDict, total=False):
    """The limits for compacting any session.

    ``most_bytes`` limits the size of a request besides its tokens. ``deadline`` limits the seconds
    for asking a model in all, and ``call_timeout`` those for each question. ``on_progress`` is
    called with the number of questions that are done, and of all. ``ignore_pause`` asks a model
    even while it is left alone after a failure.
    """

    most_bytes: int | None
    deadline: float
    call_timeout: float | None
    on_progress: Progress | None
    ignore_pause: bool


class CompactOptions(CompactLimits, total=False):
    """The options for compacting a session of a store.

    ``counter`` counts the tokens of messages, and ``window`` is how many of them the summarizing
    model accepts at once.
    """

    counter: Counter | None
    window: int


class CompactBounds(Struct, frozen=True, kw_only=True):
    """``CompactLimits`` with a budget of tokens; raises ``UsageError`` if a value is not valid."""

    tokens: int
    most_bytes: int | None = None
    deadline: float = 60.0
    call_timeout: float | None = None
    on_progress: Progress | None = None
    ignore_pause: bool = False

    def __post_init__(self) -> None:
        """Check all values, so that errors are found even if nothing has to be done."""
        _ = self.budget, self.clock

    @property
    def budget(self) -> TokenBudget:
        """The most that a request may cost."""
        return budget_of(self.tokens, self.most_bytes)

    @property
    def clock(self) -> Clock:
        """The time limits, starting now."""
        return Clock(self.deadline, self.call_timeout)

    def show(self, done: int, total: int) -> None:
        """Report the progress."""
        if self.on_progress is not None:
            self.on_progress(done, total)


class CompactSettings(CompactBounds, frozen=True, kw_only=True):
    """``CompactOptions`` with a budget of tokens, and the dialect of the request to measure."""

    dialect: str | None = None
    counter: Counter | None = None
    window: int = 0

    def loosened(self, error: Unmet) -> CompactSettings:
        """Return settings with the least budget that can be met.

        Raise the error if there is none.
        """
        if not error.least:
            raise error
        return structs.replace(self, tokens=error.least, most_bytes=None)


def compact_settings(
    budget: int | None, dialect: str, options: CompactOptions
) -> CompactSettings | None:
    """Return the settings that a request has to meet; None without a budget."""
    if budget is not None:
        return CompactSettings(tokens=budget, dialect=dialect, **options)
    if CompactSettings(tokens=1, **options).most_bytes is not None:
        raise UsageError("most_bytes= is for a compaction: pass a budget= of tokens, too")
    return None
