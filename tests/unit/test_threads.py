"""Work beside an event loop comes to its end there, whatever strikes the loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import anyio
import anyio.to_thread
import pytest

from lockstitch.session.async_session import run_to_end, unless_cancelled


@pytest.mark.parametrize("way", ["through", "unless cancelled"])
def test_the_word_that_it_is_done_gets_lost(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when Ctrl-C is pressed twice under asyncio, and strikes the callback that brings it."""

    async def body() -> str:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *_: None)
        if way == "through":
            return await run_to_end(lambda: "done")
        return await unless_cancelled(lambda: "done", lambda _: None)

    assert anyio.run(body) == "done"


@pytest.mark.parametrize("kind", ["asyncio", "trio"])
def test_a_cancelled_task_sees_its_work_through(kind: str) -> None:
    begun, go = threading.Event(), threading.Event()
    done: list[str] = []

    def work() -> None:
        begun.set()
        go.wait()
        done.append("written")

    async def body() -> Any:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_to_end, work)
            await anyio.to_thread.run_sync(begun.wait)
            tasks.cancel_scope.cancel()
            go.set()
        return list(done)

    assert anyio.run(body, backend=kind) == ["written"]
