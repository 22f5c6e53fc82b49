"""A process that is interrupted, and at last killed, while its agents' tools are at work.

Reads its runs, one JSON object a line, from the standard input. Those for an interrupt from the
keyboard come one after another: it says ``ready`` when all that is to finish is stored, and
``interrupted`` when it was. Then come all that are to be killed, at once.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from contextlib import suppress

from tests.integrations.langgraph.agents import SAVERS, Released, claude, until_finished
from tests.integrations.langgraph.scenarios.runs import KILL, Run, Work, broken_off


def main() -> None:
    given = [json.loads(line) for line in sys.stdin]
    runs = [(Run(**each["run"]), each["address"], each["url"]) for each in given]
    for run, *rest in runs:
        if run.how != KILL:
            with suppress(KeyboardInterrupt, Released):
                _go(run, *rest)
            _say("interrupted")
    killed = [each for each in runs if each[0].how == KILL]
    for each in killed:
        threading.Thread(target=_go, args=each, daemon=True).start()
    for run, address, _ in killed:
        _wait(run, address)
    _say("ready")
    signal.pause()


def _go(run: Run, address: str, url: str) -> None:
    def interrupted(work: Work) -> None:
        if run.how != KILL:
            signal.signal(signal.SIGINT, lambda *_: _interrupted(work))
            threading.Thread(target=_tell, args=(run, address), daemon=True).start()
        work.invoke()

    async def ainterrupted(work: Work) -> None:
        if run.how != KILL:
            threading.Thread(target=_tell, args=(run, address), daemon=True).start()
        await work.ainvoke()

    if run.how != KILL:
        # An event loop takes the interrupt into its own hands only if nobody else has.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    broken_off(run, address, claude(url), ainterrupted if run.is_async else interrupted)


def _interrupted(work: Work) -> None:
    """A tool that a terminal has started gets the interrupt as well: it ends, too."""
    work.bench.released.set()
    raise KeyboardInterrupt


def _tell(run: Run, address: str) -> None:
    _wait(run, address)
    _say("ready")


def _wait(run: Run, address: str) -> None:
    with SAVERS[run.store](address) as saver:
        until_finished(saver, run.thread, 2)


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
