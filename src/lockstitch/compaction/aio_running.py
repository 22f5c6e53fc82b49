"""Drives a compaction from asyncio or trio; the same as ``running``, with awaits."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from lockstitch.compaction.ladder import (
    Answer,
    Ask,
    Compaction,
    Failure,
    Found,
    Pause,
    Step,
    Steps,
    Unasked,
)
from lockstitch.compaction.running import (
    Clock,
    Progress,
    attempted,
    begun,
    checked,
    failure_of,
    silence,
)
from lockstitch.compaction.summarizer import Question, Summarizer
from lockstitch.threads import unless_cancelled

AsyncKeep = Callable[[str, str], Awaitable[None]]
T = TypeVar("T")

# Seconds that a model gets to clean up after its time is over, before it is left to itself.
GRACE = 0.5
# Nothing else may hold a task that would not be cancelled.
_left: set[asyncio.Future[Any]] = set()


async def run(
    steps: Steps,
    summarizer: Summarizer | None,
    clock: Clock,
    *,
    keep: AsyncKeep,
    on_progress: Progress,
) -> Compaction:
    """Go through the steps of a compaction; cancelled, it leaves nothing behind."""
    answer: Answer = None
    while True:
        # a long conversation takes a while to weigh, and the event loop has other things to do
        step = await _beside(partial(_advanced, steps, answer))
        if isinstance(step, Compaction):
            return step
        answer = None
        if isinstance(step, Pause):
            await anyio.sleep(min(step.seconds, clock.left))
        elif isinstance(step, Found):
            await keep(step.key, step.text)
        elif isinstance(question := begun(summarizer, clock), Unasked):
            answer = question
        else:
            on_progress(step.number - 1, step.total)
            answer = await _asked(step, question)


def _advanced(steps: Steps, answer: Answer) -> Step | Compaction:
    try:
        return steps.send(answer)
    except StopIteration as stop:
        done: Compaction = stop.value
        return done


async def _asked(step: Ask, question: Question) -> str | Failure:
    with anyio.move_on_after(question.seconds):
        return checked(await _called(question, step.prompt))
    return silence(question)


async def _called(question: Question, prompt: str) -> Any:
    summarize = question.asked.function
    if inspect.iscoroutinefunction(summarize):
        got = attempted(summarize, prompt)
    else:
        got = await _beside(partial(_heard, question, prompt))
    return await _awaited(question, got) if inspect.isawaitable(got) else got


def _heard(question: Question, prompt: str) -> Any:
    with question:
        return attempted(question.asked.function, prompt)


async def _awaited(question: Question, answer: Awaitable[Any]) -> Any:
    # trio has no task that could outlive its parent: there the model has to let go by itself
    if isinstance(anyio.lowlevel.current_token().native_token, asyncio.AbstractEventLoop):
        return await _apart(_answered(question, answer))
    return await _answered(question, answer)


async def _answered(question: Question, answer: Awaitable[Any]) -> Any:
    try:
        with question:
            return await answer
    except Exception as error:  # noqa: BLE001 - whatever a model's client raises
        return failure_of(error)


async def _apart(answer: Coroutine[Any, Any, Any]) -> Any:
    """Wait for a task of its own, so that one that swallows its cancellation holds nobody up."""
    task = asyncio.ensure_future(answer)
    try:
        await asyncio.wait({task})
    finally:
        if not task.done():
            await _let_go(task)
    return Failure("CancelledError") if task.cancelled() else task.result()


async def _let_go(task: asyncio.Future[Any]) -> None:
    _left.add(task)
    task.add_done_callback(_left.discard)
    task.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait({task}, timeout=GRACE)


async def _beside(function: Callable[[], T]) -> T:
    """Do something in a thread that nobody waits for once this is cancelled.

    Not even the end of the program does: a model that never answers must not hold it up.
    """
    return await unless_cancelled(function, lambda _: None)
