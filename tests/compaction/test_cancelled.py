"""Cancelled at every await, interrupted at every question: as before, or compacted, never else."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from lockstitch.journal.projection import SUMMARY
from lockstitch.session.store import Store
from lockstitch.stores.memory import MemoryBackend
from tests.compaction.talks import GOOD, SMALL, bodies, compactions, grown, requests
from tests.session.test_cancelled import _Cancelling as Cancelling

LOOPS = pytest.mark.parametrize("kind", ["asyncio", "trio"])


async def answers(_prompt: str) -> str:
    await anyio.lowlevel.checkpoint()
    await anyio.lowlevel.checkpoint()
    return GOOD


async def compacted(store: Store, summarize: Any) -> None:
    async with store.async_session("s") as session:
        await session.compact(summarize, budget=SMALL)


def told(store: Store) -> list[bytes]:
    """The records, without the notes that a compaction keeps and those of opening and closing."""
    return [body for body in bodies(store) if b'"noted"' not in body]


@LOOPS
@pytest.mark.parametrize("how", ["async", "sync"])
def test_cancelled_at_every_await(kind: str, how: str) -> None:
    summarize: Any = answers if how == "async" else lambda _: GOOD
    ended, new = 0, 0
    for number in range(1, 200):
        store = Store(MemoryBackend())
        grown(store, turns=4, size=1500)
        before, old = requests(store), told(store)

        async def body(store: Store = store, number: int = number) -> bool:
            with anyio.CancelScope() as scope:
                await Cancelling(compacted(store, summarize), number, scope)
            return scope.cancel_called

        was_struck = anyio.run(body, backend=kind)
        after = requests(store)
        if compactions(store):
            assert compactions(store) == 1
            assert SUMMARY in str(after)
            assert told(store)[:-1] == old
            new += 1
        else:
            assert was_struck
            assert after == before
            assert told(store) == old
            ended += 1
        if not was_struck:
            assert ended > 5
            assert new
            return
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_an_exception_from_outside_leaves_nothing_behind(
    store: Store, error: type[BaseException]
) -> None:
    """Such as Ctrl-C: here it strikes where progress is told."""
    grown(store, turns=4, size=1500)
    before, old = requests(store), told(store)

    def progress(_done: int, _total: int) -> None:
        raise error

    with store.session("s") as session:
        with pytest.raises(error):
            session.compact(lambda _: GOOD, budget=SMALL, on_progress=progress)
        assert session.compact(lambda _: GOOD, budget=SMALL).rung == "summary"
        session.uncompact()
    assert requests(store) == before
    assert told(store)[: len(old)] == old


PROGRAM = """
import anyio, lockstitch, sys, threading
from tests.compaction.talks import grown

async def use(store):
    async with store.async_session("s") as session:
        done = await session.compact(lambda _: threading.Event().wait(), budget=6000, deadline=0.2)
        sys.stdout.write(done.rung)

store = lockstitch.open("memory:")
grown(store)
if sys.argv[1] == "sync":
    with store.session("s") as session:
        wait = threading.Event().wait
        done = session.compact(lambda _: wait(), budget=6000, deadline=0.2)
        sys.stdout.write(done.rung)
else:
    anyio.run(use, store, backend=sys.argv[1])
"""


@pytest.mark.parametrize("kind", ["sync", "asyncio", "trio"])
def test_a_model_that_never_returns_does_not_hold_up_the_end_of_the_program(kind: str) -> None:
    command = [sys.executable, "-c", PROGRAM, kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("digest", "", 0)
