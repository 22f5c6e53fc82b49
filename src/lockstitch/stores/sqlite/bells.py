"""Who in this process waits for something to be written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Bells:
    """Wakes the threads that wait.

    Made of the interpreter's own locks, which an interrupt in the thread that writes cannot
    leave locked, as it can a condition.
    """

    def __init__(self) -> None:
        self._bells: set[threading.Lock] = set()

    def ring(self) -> None:
        """Wake all who wait."""
        for bell in tuple(self._bells):
            with suppress(RuntimeError):
                bell.release()

    @contextmanager
    def bell(self) -> Iterator[Bell]:
        """Wait for what is written from now on."""
        lock = threading.Lock()
        lock.acquire()
        self._bells.add(lock)
        try:
            yield Bell(lock)
        finally:
            self._bells.discard(lock)


class Bell:
    """What one thread waits for."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def wait(self, seconds: float) -> None:
        """Wait until it rings, or until the time is up; once it has rung, not at all."""
        self._lock.acquire(timeout=max(seconds, 0.0))
