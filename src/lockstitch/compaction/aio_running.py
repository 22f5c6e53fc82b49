"""Drives a compaction from asyncio or trio; the same as ``running``, with awaits."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread

from lockstitch.compaction.ladder import Ask, Compaction, Failure, Pause, Steps
from lockstitch.compaction.running import LATE, Clock, Progress, attempted, checked, failure_of

AsyncKeep = Callable[[str, str], Awaitable[None]]


async def run(
    steps: Steps,
    summarize: Callable[[str], Any] | None,
    clock: Clock,
    *,
    keep: AsyncKeep,
    on_progress: Progress,
) -> Compaction:
    """Go through the steps of a compaction; cancelled, it leaves nothing behind."""
    answer: str | Failure | None = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as stop:
            done: Compaction = stop.value
            return done
        if isinstance(step, Pause):
            await anyio.sleep(min(step.seconds, clock.left))
            answer = None
            continue
        on_progress(step.number - 1, step.total)
        answer = await _asked(step, summarize, clock.for_one)
        if isinstance(answer, str):
            await keep(step.key, answer)


async def _asked(
    step: Ask, summarize: Callable[[str], Any] | None, seconds: float
) -> str | Failure:
    if summarize is None or seconds <= 0:
        return Failure(LATE)
    with anyio.move_on_after(seconds):
        return checked(await _called(summarize, step.prompt))
    return Failure(f"no answer within {seconds:.1f} seconds")


async def _called(summarize: Callable[[str], Any], prompt: str) -> Any:
    if not inspect.iscoroutinefunction(summarize):
        call = anyio.to_thread.run_sync(attempted, summarize, prompt, abandon_on_cancel=True)
        got = await call
        return await _awaited(got) if inspect.isawaitable(got) else got
    return await _awaited(summarize(prompt))


async def _awaited(answer: Awaitable[Any]) -> Any:
    try:
        return await answer
    except Exception as error:  # noqa: BLE001 - whatever a model's client raises
        return failure_of(error)
