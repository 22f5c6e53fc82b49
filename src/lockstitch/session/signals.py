"""Signals: holding back what they raise until a write is done, and why they end something."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from lockstitch.errors import UsageError

PATIENCE = 5.0
_HELD_BACK = (signal.SIGINT, signal.SIGTERM)
_TERMINATED = threading.Event()
Handler = Callable[[int, FrameType | None], Any]


def handle_sigterm() -> None:
    """Let SIGTERM end this program in order, as Ctrl-C does, with exit status 143.

    Tools that run are told to abort, every call has an outcome, and leases are given back. But
    nobody said that the turn should end: it stays open, and the same program goes on with it when
    it is started again. For synchronous programs and asyncio; call it in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("handle_sigterm() sets a signal handler: call it in the main thread")
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, _frame: FrameType | None) -> None:
    _TERMINATED.set()
    raise SystemExit(128 + number)


def reason_of(error: BaseException) -> str:
    """Name what an exception breaks work off with.

    When a program is being terminated, asyncio cancels its tasks: that is the exit, too.
    """
    if isinstance(error, KeyboardInterrupt):
        return "user"
    if isinstance(error, SystemExit | GeneratorExit) or _TERMINATED.is_set():
        return "exit"
    return "error" if isinstance(error, Exception) else "cancelled"


class Deferred:
    """For the length of a block, Ctrl-C interrupts nothing; at its end it does. So does SIGTERM.

    The handler that was in force is called at once, so that whatever it sets is set; only what it
    raises is kept back, and ``wake`` is called. Who presses again after ``PATIENCE`` seconds, the
    store being stuck, gets through. Outside of the main thread, where signals raise nothing, and
    inside another such block this does nothing.
    """

    def __init__(self, wake: Callable[[], None] | None = None) -> None:
        self.raised: BaseException | None = None
        self._wake = wake
        self._old: dict[int, Handler] = {}
        self._since = 0.0

    def __enter__(self) -> Self:
        """Go in."""
        if threading.current_thread() is threading.main_thread():
            for number in _HELD_BACK:
                old = signal.getsignal(number)
                if callable(old) and not isinstance(getattr(old, "__self__", None), Deferred):
                    self._old[number] = old
                    signal.signal(number, self._came)
        return self

    def _came(self, number: int, frame: FrameType | None) -> None:
        old = self._old.get(number)
        if old is None:
            return
        try:
            old(number, frame)
        except BaseException as error:
            now = time.monotonic()
            if self.raised is None:
                self.raised, self._since = error, now
            elif now - self._since > PATIENCE:
                raise
            if self._wake is not None:
                self._wake()

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        """Go out, whatever happened."""
        for number, old in self._old.items():
            signal.signal(number, old)
        if self.raised is not None and error is not self.raised:
            raise self.raised.with_traceback(None)
