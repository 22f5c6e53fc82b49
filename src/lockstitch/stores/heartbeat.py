"""The thread that keeps a store's leases alive."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable


class Heartbeat:
    """Calls a method of its owner every few seconds while there is something to keep alive.

    The owner is held weakly: a store that was dropped without being closed falls silent.
    ``beat`` must not raise.
    """

    def __init__(self, beat: Callable[[], None], seconds: float) -> None:
        self._beat = weakref.WeakMethod(beat)
        self._seconds = seconds
        self._guard = threading.Lock()
        self._ended: threading.Event | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Beat from now on, if it does not already."""
        with self._guard:
            if self._ended is None:
                self._ended = threading.Event()
                arguments = (self._beat, self._seconds, self._ended)
                self._thread = threading.Thread(
                    target=_run, args=arguments, name="lockstitch-heartbeat", daemon=True
                )
                self._thread.start()

    def stop(self, *, wait: bool = False) -> None:
        """Beat no more; ``wait`` until a beat that is under way is over."""
        with self._guard:
            ended, thread = self._ended, self._thread
            self._ended = self._thread = None
        if ended is not None:
            ended.set()
        if wait and thread is not None and thread is not threading.current_thread():
            thread.join()


def _run(
    method: weakref.WeakMethod[Callable[[], None]], seconds: float, ended: threading.Event
) -> None:
    while not ended.wait(seconds):
        beat = method()
        if beat is None:
            return
        beat()
        del beat
