"""Holding back what a signal raises until something that must not be torn is done."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

PATIENCE = 5.0


class Deferred:
    """For the length of a block, Ctrl-C interrupts nothing; at its end it does.

    The handler that was in force is called at once, so that whatever it sets is set; only what it
    raises is kept back, and ``wake`` is called. Who presses again after ``PATIENCE`` seconds, the
    store being stuck, gets through. Outside of the main thread, where signals raise nothing, and
    inside another such block this does nothing.
    """

    def __init__(self, wake: Callable[[], None] | None = None) -> None:
        self.raised: BaseException | None = None
        self._wake = wake
        self._old: Callable[[int, FrameType | None], Any] | None = None
        self._since = 0.0

    def __enter__(self) -> Self:
        """Go in."""
        if threading.current_thread() is threading.main_thread():
            old = signal.getsignal(signal.SIGINT)
            if callable(old) and not isinstance(getattr(old, "__self__", None), Deferred):
                self._old = old
                signal.signal(signal.SIGINT, self._came)
        return self

    def _came(self, number: int, frame: FrameType | None) -> None:
        if self._old is None:
            return
        try:
            self._old(number, frame)
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
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)
        if self.raised is not None and error is not self.raised:
            raise self.raised.with_traceback(None)
