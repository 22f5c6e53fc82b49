"""Ctrl-C at every line of a turn: memory and store agree, and every call has an outcome."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Self

import pytest

import lockstitch
from lockstitch.errors import Held
from lockstitch.session.session import Session
from lockstitch.session.store import Store
from lockstitch.stores.memory import MemoryBackend

from .events import WHOLE
from .talk import asks, faults, says

HOME = os.path.dirname(lockstitch.__file__)  # noqa: PTH120 - compared with code objects' names
OURS = tuple(os.path.join(HOME, room) for room in ("session", "stores"))  # noqa: PTH118
STEP = int(os.environ.get("LOCKSTITCH_LINE_STEP", "37"))


class Striker:
    """Presses Ctrl-C at chosen lines of ours in the main thread, and counts the lines."""

    def __init__(self, *strikes: int) -> None:
        self.count = 0
        self.strikes = set(strikes)

    def __enter__(self) -> Self:
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
    striker = Striker(*strikes)
    with suppress(KeyboardInterrupt), store.session("s") as session, striker:
        turn(session)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    reader = store.read("s")
    assert reader.seq == session.seq
    assert reader.request("anthropic") == session.request("anthropic")
    assert not [call.id for call in reader.calls if call.status == "started"]
    assert not store.session("s").recovered
    return striker.count


def reopened(store: Store) -> Session:
    try:
        return store.session("s")
    except Held:
        gc.collect()
        return store.session("s", wait=10)


def opened_and_closed(store: Store, turn: Callable[[Session], None]) -> None:
    with store.session("s") as session:
        turn(session)


def struck_at_the_edges(turn: Callable[[Session], None], *strikes: int) -> int:
    """The same, also while the session is opened and closed.

    There, Ctrl-C may come before anything can hold it back: then the next one to open it concludes.
    """
    store = Store(MemoryBackend())
    striker = Striker(*strikes)
    with suppress(KeyboardInterrupt), striker:
        opened_and_closed(store, turn)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with reopened(store) as session:
        assert not [call.id for call in session.calls if call.status == "started"]
        for dialect in ("anthropic", "openai-chat"):
            assert faults(dialect, session.request(dialect)) == []
    return striker.count


@pytest.mark.parametrize("run", [struck, struck_at_the_edges])
@pytest.mark.parametrize("turn", [tools_turn, stream_turn])
def test_once(run: Callable[..., int], turn: Callable[[Session], None]) -> None:
    lines = run(turn)
    assert lines > 200
    for number in range(1, lines + 1, STEP):
        run(turn, number)


@pytest.mark.parametrize("distance", [1, 7, 40])
def test_twice(distance: int) -> None:
    lines = struck(tools_turn)
    for number in range(1, lines + 1, 2 * STEP):
        struck(tools_turn, number, number + distance)
