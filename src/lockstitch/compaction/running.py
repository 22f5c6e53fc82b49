"""Drives a compaction: calls the model, keeps the time, and never waits longer than it may."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from queue import Empty, Queue
from typing import Any

from lockstitch.compaction.ladder import (
    Answer,
    Ask,
    Compaction,
    Failure,
    Found,
    Pause,
    Steps,
    Unasked,
)
from lockstitch.compaction.summarizer import Question, Summarizer
from lockstitch.errors import UsageError

Summarize = Callable[[str], str]
Keep = Callable[[str, str], None]
Progress = Callable[[int, int], None]


def quiet(_done: int, _total: int) -> None:
    """Tell nobody how far it is."""


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


def run(
    steps: Steps,
    summarizer: Summarizer | None,
    clock: Clock,
    *,
    keep: Keep,
    on_progress: Progress,
) -> Compaction:
    """Go through the steps of a compaction; an exception from outside leaves nothing behind."""
    answer: Answer = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as stop:
            done: Compaction = stop.value
            return done
        if isinstance(step, Pause):
            time.sleep(min(step.seconds, clock.left))
            answer = None
            continue
        if isinstance(step, Found):
            keep(step.key, step.text)
            answer = None
            continue
        question = begun(summarizer, clock)
        if isinstance(question, Unasked):
            answer = question
            continue
        on_progress(step.number - 1, step.total)
        answer = _asked(step, question)


def begun(summarizer: Summarizer | None, clock: Clock) -> Question | Unasked:
    """Give the next question to the model, or why it is not put."""
    if summarizer is None:
        return Unasked("there is no summarizer")
    reason, seconds = summarizer.unasked, clock.for_one
    if reason or seconds <= 0:
        return Unasked(reason or "there was no time left")
    return Question(summarizer, seconds)


def _asked(step: Ask, question: Question) -> str | Failure:
    answers: Queue[Any] = Queue()

    def ask() -> None:
        with question:
            answers.put(_awaited(attempted(question.asked.function, step.prompt)))

    # a callable that never returns must not hold anybody up, at the end of the program either
    threading.Thread(target=ask, name="lockstitch-summary", daemon=True).start()
    try:
        answer = answers.get(timeout=question.seconds)
    except Empty:
        return silence(question)
    return checked(answer)


def silence(question: Question) -> Failure:
    """Say that a question was not answered in its time."""
    return Failure(f"no answer within {question.seconds:.1f} seconds")


def attempted(summarize: Callable[[Any], Any], prompt: Any) -> Any:
    """Call a model; what it raises is a failure."""
    try:
        return summarize(prompt)
    except BaseException as error:  # noqa: BLE001 - whatever a model's client raises
        return failure_of(error)


def _awaited(answer: Any) -> Any:
    """Wait for the answer of an async function, in a thread that has no event loop yet."""
    return attempted(asyncio.run, answer) if inspect.iscoroutine(answer) else answer


def failure_of(error: BaseException) -> Failure:
    """Say what kind of failure it was, without the words of it, which may be the user's."""
    status = getattr(error, "status_code", None)
    kind = type(error).__name__
    return Failure(f"{kind} ({status})" if isinstance(status, int) else kind)


def checked(answer: Any) -> str | Failure:
    """Take nothing but a text for an answer."""
    if isinstance(answer, str | Failure):
        return answer
    return Failure(f"the summary was a {type(answer).__name__}, not a text")
