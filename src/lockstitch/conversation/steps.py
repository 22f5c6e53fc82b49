"""Drivers, sync and async, for generators that decide without reading or writing.

Such a generator yields steps: values that say what it needs (a checkpoint, a model's answer, a
pause). It is sent the outcome of each. An error raised by a step is raised inside the generator,
which may handle it; otherwise it leaves the driver.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


def drive(steps: Generator[S, Any, T], perform: Callable[[S], Any]) -> T:
    """Run a generator of steps, each performed by a plain call, and return its result."""
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
    """Run a generator of steps, each performed by an async call, and return its result."""
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
