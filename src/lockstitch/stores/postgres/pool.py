"""Connections to one PostgreSQL: as many as threads need, up to a limit, each lent to one thread.

A connection is made by the thread that wants it, so the reason why there is none reaches the
caller at once; and before it is lent again it is looked at, without a round trip, for whether the
server has closed it meanwhile.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from msgspec import Struct
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from lockstitch import addresses
from lockstitch.errors import Busy, Closed, Unreadable, UsageError
from lockstitch.stores.postgres import connections, errors

SIZE = 16
# Longer than the server waits for a lock, so that its word on that comes first.
TIMEOUT = 40.0
# What reads or rewrites whole tables may take so many times as long.
SLOW = 20
IDLE = 300.0
# A peer that is gone without a word is noticed within a minute.
_CONNECTING = 10
_DEFAULTS = {
    "application_name": "lockstitch",
    "connect_timeout": str(_CONNECTING),
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

Connection = connections.Connection


class Address(Struct, frozen=True):
    """Where a database is and how to get in; shown only without what must not be seen."""

    url: str
    parameters: dict[str, Any]
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Show the address without secrets."""
        return f"Address({self.url!r})"

    def connect(self, patience: float | None = None) -> Connection:
        """Make a connection, each statement on it a transaction; raises ``Unreadable``.

        With ``patience`` it gives a server up that is silent for so many seconds.
        """
        given: dict[str, Any] = {**self.parameters, "client_encoding": "UTF8"}
        if patience is not None and patience < _CONNECTING:
            given["connect_timeout"] = str(math.ceil(patience))
        try:
            made = Connection.connect(**given, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            reason = errors.reason_of(error, [*self.secrets])
        else:
            made.patience = patience
            return made
        raise Unreadable(f"{self.url}: no connection: {reason}")


def address_of(dsn: str) -> Address:
    """Read a connection string, as a URL or as ``name=value`` pairs."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error:
        given = None
    read = addresses.parsed(dsn)
    if given is None or read is None:
        # What libpq says about it quotes it, and with it a password.
        raise UsageError(f"{addresses.public(dsn)} {addresses.UNREAD}")
    if read.is_odd:
        # libpq would say that there is no host of that name, and name it.
        raise UsageError(
            f"{addresses.public(dsn)}: the host, the port or the database of this address is none,"
            " as when a password is not encoded: write %40 for an @ in it, %2F for a /, %3A for"
            " a :, and %25 for a %"
        )
    defaults = dict(_DEFAULTS)
    if "," in str(given.get("host", "")):
        defaults["target_session_attrs"] = "read-write"
    return Address(addresses.bare(read.values), defaults | given, tuple(read.secrets))


class Turnstile:
    """Lets so many in at a time, first come, first served: a semaphore would let some starve."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._queue: deque[threading.Lock] = deque()
        self._lock = threading.Lock()

    def enter(self, patience: float) -> bool:
        """Wait for one's turn; False if it does not come in time."""
        turn = threading.Lock()
        with self._lock:
            if self._free and not self._queue:
                self._free -= 1
                return True
            turn.acquire()
            self._queue.append(turn)
        is_in = False
        try:
            is_in = turn.acquire(timeout=patience)
        finally:
            if not is_in:
                self._step_out(turn)
        return is_in

    def leave(self) -> None:
        """Let the next one in."""
        with self._lock:
            if self._queue:
                self._queue.popleft().release()
            else:
                self._free += 1

    def _step_out(self, turn: threading.Lock) -> None:
        with self._lock:
            is_waiting = turn in self._queue
            if is_waiting:
                self._queue.remove(turn)
        if not is_waiting:
            # The turn came at the very moment that the patience ended: it is passed on.
            self.leave()


class Pool:
    """Connections that are lent, one to a thread at a time; ``timeout`` is for every wait."""

    def __init__(self, address: Address, size: int = SIZE, timeout: float = TIMEOUT) -> None:
        self.address = address
        self.timeout = timeout
        self._turnstile = Turnstile(size)
        self._idle: list[tuple[Connection, float]] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @contextmanager
    def connection(self, patience: float | None = None) -> Iterator[Connection]:
        """Lend a connection that works, as far as can be seen."""
        if not self._turnstile.enter(self.timeout):
            raise Busy(f"{self.address.url}: all connections are in use; nothing was written")
        try:
            with self.beyond(patience) as connection:
                yield connection
        finally:
            self._turnstile.leave()

    @contextmanager
    def beyond(self, patience: float | None = None) -> Iterator[Connection]:
        """Lend a connection beyond the limit: for what must not wait behind the writers.

        It waits for an answer for ``patience`` seconds, or as long as all others.
        """
        connection = self._taken() or self.address.connect(self.timeout)
        connection.patience = patience or self.timeout
        try:
            yield connection
        finally:
            self._returned(connection)

    def close(self) -> None:
        """Close what is idle now, and what is in use when it comes back."""
        self._is_closed = True
        self.drop_idle()

    def drop_idle(self) -> None:
        """Close what is idle now: if one was lost, the others may be, without a sign of it yet."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _since in idle:
            connection.close()

    def _taken(self) -> Connection | None:
        while True:
            with self._lock:
                if self._is_closed:
                    raise Closed(f"{self.address.url}: the store was closed")
                if not self._idle:
                    return None
                connection, since = self._idle.pop()
            if time.monotonic() - since < IDLE and _is_usable(connection):
                return connection
            connection.close()

    def _returned(self, connection: Connection) -> None:
        status = connection.pgconn.transaction_status
        with self._lock:
            if not self._is_closed and status == TransactionStatus.IDLE:
                self._idle.append((connection, time.monotonic()))
                return
        connection.close()


def _is_usable(connection: Connection) -> bool:
    """Whether the server has not closed a connection, as far as has got through to here."""
    try:
        # The first look may find only the server's parting words, the second finds the end.
        connection.pgconn.consume_input()
        connection.pgconn.consume_input()
    except psycopg.Error:
        return False
    return not connection.closed
