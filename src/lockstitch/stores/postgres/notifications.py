"""Being told of new records: one connection of a backend listens for all who wait.

A notification only wakes who waits, who then looks at the session itself: it may be lost with the
connection, and through a pooler it does not come at all. Where none can come, waiting is looking
again and again.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg

from lockstitch.errors import LockstitchError
from lockstitch.stores.postgres.connections import ServerAddress, ServerConnection

CHANNEL = "lockstitch"
FOLLOWED = 120.0
# The server tells of the next 1000 appends, and is asked again before they are over.
HEARD = 500
SHORTEST, LONGEST = 0.02, 0.5
# While notifications come, this is only a net below them.
LISTENING = 5.0
_START = 2.0

Follow = Callable[[str, float], bool]


class Notifications:
    """Events that are set when a session has new records."""

    def __init__(self, address: ServerAddress, timeout: float) -> None:
        self._address = address
        self._timeout = timeout
        self._lock = threading.Lock()
        self._waiting: dict[str, set[threading.Event]] = {}
        self._followed: dict[str, float] = {}
        self._heard: dict[str, int] = {}
        self._thread: threading.Thread | None = None
        self._connection: ServerConnection | None = None
        self._is_known = threading.Event()
        self._ending = threading.Event()

    @contextmanager
    def waiting(self, session: str) -> Iterator[threading.Event]:
        """Return an event that is set whenever the session may have new records."""
        event = threading.Event()
        with self._lock:
            self._waiting.setdefault(session, set()).add(event)
        try:
            yield event
        finally:
            with self._lock:
                self._waiting[session].discard(event)
                if not self._waiting[session]:
                    del self._waiting[session]

    def is_told(self, session: str, follow: Follow, patience: float) -> bool:
        """Ask to be told of a session; False if it has to be looked at again and again."""
        with self._lock:
            if self._thread is None and not self._ending.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="lockstitch-news", daemon=True
                )
                self._thread.start()
        self._is_known.wait(min(_START, patience))
        if self._connection is None:
            return False
        now = time.monotonic()
        is_old = self._followed.get(session, 0.0) < now + FOLLOWED / 2
        if is_old or self._heard.get(session, 0) >= HEARD:
            if not follow(session, FOLLOWED):
                return False
            with self._lock:
                self._followed[session] = now + FOLLOWED
                self._heard[session] = 0
        return True

    def close(self) -> None:
        """End the thread, and wake all who wait."""
        self._ending.set()
        with self._lock:
            thread, self._thread = self._thread, None
            self._hang_up()
        self._wake(None)
        if thread:
            thread.join()

    def _run(self) -> None:
        pause = SHORTEST
        while not self._ending.is_set():
            with (
                suppress(LockstitchError, psycopg.Error, OSError),
                self._address.connect(self._timeout) as line,
            ):
                # Whether the server itself is at the other end: a pooler shows a process of its own
                # making.
                row = line.execute("SELECT pg_backend_pid()").fetchone()
                if not (row is not None and row[0] == line.info.backend_pid):
                    self._is_known.set()
                    return
                pause = SHORTEST
                self._listen(line)
            # Nothing will be heard until there is a connection again: those who wait must look.
            with self._lock:
                self._connection = None
                self._followed.clear()
                self._heard.clear()
            self._is_known.set()
            self._wake(None)
            self._ending.wait(pause)
            pause = min(pause * 2, LISTENING)

    def _listen(self, line: ServerConnection) -> None:
        line.execute(f"LISTEN {CHANNEL}")
        with self._lock:
            if self._ending.is_set():
                return
            self._connection = line
        self._is_known.set()
        self._wake(None)
        # No news is no fault: those who wait look by themselves now and then.
        line.patience = None
        for notification in line.notifies():
            session = notification.payload.partition(" ")[0]
            with self._lock:
                if session in self._followed:
                    self._heard[session] = self._heard.get(session, 0) + 1
            self._wake(session)

    def _hang_up(self) -> None:
        """Wake the thread that reads from the connection: only it may close it."""
        if self._connection is None or self._connection.closed:
            return
        with suppress(OSError, psycopg.Error):
            handle = socket.socket(fileno=self._connection.fileno())
            try:
                handle.shutdown(socket.SHUT_RDWR)
            finally:
                handle.detach()

    def _wake(self, session: str | None) -> None:
        with self._lock:
            if session is None:
                events = [event for several in self._waiting.values() for event in several]
            else:
                events = list(self._waiting.get(session, ()))
        for event in events:
            event.set()
