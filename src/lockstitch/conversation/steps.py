"""One pair of drivers for what decides without reading or writing: a generator of steps.

Such a generator yields values that say what it needs (a checkpoint, an answer of a model, a pause)
and is sent what came of it. What performs a step raises is raised in the generator, which may
handle it, and out of the driver otherwise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


def drive(steps: Generator[S, Any, T], perform: Callable[[S], Any]) -> T:
    """Return what a generator of steps comes to, each performed by a plain call."""
    try:
        step = next(steps)
        while True:
            try:
                result = perform(step)
            except BaseException as error:  # noqa: BLE001 - it is the generator's to handle
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()


async def adrive(steps: Generator[S, Any, T], perform: Callable[[S], Awaitable[Any]]) -> T:
    """Return what a generator of steps comes to, each performed by an async call."""
    try:
        step = next(steps)
        while True:
            try:
                result = await perform(step)
            except BaseException as error:  # noqa: BLE001 - it is the generator's to handle
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()
