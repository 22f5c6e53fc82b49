"""A process that is interrupted or killed while its agents' tools are at work.

Reads its runs, one JSON object a line, from the standard input. Says ``ready`` when all that is
to finish is stored; for an interrupt from the keyboard that is once a run, one after another.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

from tests.integrations.langgraph.agents import (
    SAVERS,
    Bench,
    Released,
    claude,
    until_finished,
)
from tests.integrations.langgraph.scenarios.runs import KILL, THREAD, Run, broken_off


def main() -> None:
    given = [json.loads(line) for line in sys.stdin]
    runs = [(Run(**each["run"]), each["address"], each["url"]) for each in given]
    if runs[0][0].how == KILL:
        for run in runs:
            threading.Thread(target=_go, args=run, daemon=True).start()
        for run, address, _ in runs:
            _wait(run, address)
        _say("ready")
        signal.pause()
    for run in runs:
        with suppress(KeyboardInterrupt, Released):
            _go(*run)
        _say("interrupted")


def _go(run: Run, address: str, url: str) -> None:
    model = claude(url)
    ready = None if run.how == KILL else lambda: _tell(run, address)
    interrupt = _ago if run.is_async else _gone
    broken_off(run, address, model, lambda *args: interrupt(*args, ready))


def _gone(graph: Any, _: Any, bench: Bench, given: Any, ready: Any) -> None:
    """A tool that a terminal has started gets the interrupt as well: it ends, too."""
    if ready is not None:
        signal.signal(signal.SIGINT, lambda *_: _interrupted(bench))
        ready()
    graph.invoke(given, THREAD)


async def _ago(graph: Any, _: Any, __: Bench, given: Any, ready: Any) -> None:
    if ready is not None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ready()
    await graph.ainvoke(given, THREAD)


def _interrupted(bench: Bench) -> None:
    bench.released.set()
    raise KeyboardInterrupt


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def _tell(run: Run, address: str) -> None:
    def tell() -> None:
        _wait(run, address)
        _say("ready")

    threading.Thread(target=tell, daemon=True).start()


def _wait(run: Run, address: str) -> None:
    with SAVERS[run.store](address) as saver:
        until_finished(saver, THREAD, 2)


if __name__ == "__main__":
    main()
