"""Ctrl-C at every line of a turn: memory and store agree, and every call has an outcome."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import lockstitch
from lockstitch.session.store import Store
from lockstitch.session.sync import Session
from lockstitch.stores.memory import MemoryBackend

from .events import WHOLE
from .talk import asks, faults, says

HOME = os.path.dirname(lockstitch.__file__)  # noqa: PTH120 - compared with code objects' names
OURS = tuple(os.path.join(HOME, room) for room in ("session", "stores"))  # noqa: PTH118
STEP = int(os.environ.get("LOCKSTITCH_LINE_STEP", "23"))


class Striker:
    """Presses Ctrl-C at chosen lines of ours in the main thread, and counts the lines."""

    def __init__(self, *strikes: int) -> None:
        self.count = 0
        self.strikes = set(strikes)

    def __enter__(self) -> Striker:
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, _event: str, _: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(OURS) else None

    def _line(self, _frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.count += 1
            if self.count in self.strikes:
                signal.raise_signal(signal.SIGINT)
        return self._line


def tools_turn(session: Session) -> None:
    session.say("Go")
    session.record(asks("anthropic", *((f"c{n}", "look", {"n": n}) for n in range(3))))
    session.run_tools({"look": lambda n: f"seen {n}"}, timeout=30, max_parallel=2)
    session.record(says("anthropic"))


def stream_turn(session: Session) -> None:
    session.say("Go")
    with session.stream(WHOLE["anthropic"]()) as stream:
        stream.finish()
    session.run_tools({"quick": lambda n: n}, approve=lambda call: call.id == "c1")
    session.approve("c1")
    session.rewind(1)
    session.undo_rewind()
    session.run_tools({"quick": lambda n: n})


def struck(turn: Callable[[Session], None], *strikes: int) -> int:
    """Run a turn with Ctrl-C at some lines; gives how many lines there were."""
    store = Store(MemoryBackend())
    session: Session | None = None
    striker = Striker(*strikes)
    was_interrupted = False
    try:
        with store.session("s") as session, striker:
            turn(session)
    except KeyboardInterrupt:
        was_interrupted = True
    check(store, session)
    if was_interrupted and session is not None:
        assert store.read("s").turn.state in ("interrupted", "ended", "none", "waiting")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return striker.count


def check(store: Store, session: Session | None) -> None:
    if session is None:
        return
    reader = store.read("s")
    assert reader.request("anthropic") == session.request("anthropic")
    assert reader.seq == session.seq
    assert not [call.id for call in reader.calls if call.status == "started"]
    for dialect in ("anthropic", "openai-chat"):
        assert faults(dialect, reader.request(dialect)) == []
    with store.session("s") as again:
        assert not again.recovered


@pytest.mark.parametrize("turn", [tools_turn, stream_turn])
def test_once(turn: Callable[[Session], None]) -> None:
    lines = struck(turn)
    assert lines > 200
    for number in range(1, lines + 1, STEP):
        struck(turn, number)
    for thread in threading.enumerate():
        if thread.name.startswith("lockstitch"):
            thread.join(10)


@pytest.mark.parametrize("distance", [1, 7, 40])
def test_twice(distance: int) -> None:
    lines = struck(tools_turn)
    for number in range(1, lines + 1, 2 * STEP):
        struck(tools_turn, number, number + distance)
