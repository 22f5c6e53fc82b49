"""Connections to a PostgreSQL server, running statements on them, and their outcomes.

A server that was stopped, or a network that drops all packets, closes no connection. The stopped
server's machine still acknowledges every packet, so no TCP timeout ends the wait, and the server's
own timeouts do not run either. So a connection here limits the wait itself.

An error that the server reports with severity ERROR has rolled the statement back: nothing was
written. After anything else, such as a lost connection, the outcome is unknown. The server's error
texts may quote the data that was sent, so only its codes are translated; its texts are not passed
on.

One connection of a backend listens on behalf of all threads that wait for new records. A
notification only wakes a thread, which then reads the session itself, because notifications get
lost with their connection and do not pass through poolers. Where none can come, waiting means
reading repeatedly.
"""

from __future__ import annotations

import math
import random
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, LiteralString, TypeVar

import psycopg
from msgspec import Struct
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from lockstitch.errors import (
    Busy,
    Closed,
    Damaged,
    LockstitchError,
    Unreadable,
    Unsure,
    UsageError,
    Where,
)
from lockstitch.stores import addresses

# A pause of this process counts as at most this many seconds of the server's silence.
_STEP = 1.0
_Result = TypeVar("_Result")


class Silent(psycopg.OperationalError):
    """The server has said nothing for as long as a statement may wait."""


class ServerConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that raises ``Silent`` if nothing is sent or received for ``patience`` seconds.

    With None it waits forever. After ``Silent`` it is unknown what the server does with what was
    sent, so the connection can only be closed.
    """

    patience: float | None = None

    def wait(self, gen: Generator[Any, Any, _Result], *args: Any, **options: Any) -> _Result:
        """Wait for the server as psycopg does, but check the time several times a second."""
        if self.patience is not None:
            gen = _bounded(gen, self.patience)
        return super().wait(gen, *args, **options)


def _bounded(gen: Generator[Any, Any, _Result], patience: float) -> Generator[Any, Any, _Result]:
    silence, last = 0.0, time.monotonic()
    try:
        wanted = next(gen)
        while True:
            is_ready = yield wanted
            now = time.monotonic()
            silence = 0.0 if is_ready else silence + min(now - last, _STEP)
            last = now
            if silence >= patience:
                raise Silent(f"no answer for {patience:g} seconds")
            wanted = gen.send(is_ready)
    except StopIteration as ended:
        result: _Result = ended.value
        return result
    finally:
        gen.close()


_RETRIED = {"40001", "40P01"}
_DOUBTFUL = {"40003"}
_SECRET = re.compile(r"(password|secret)\s*=\s*\S+", re.IGNORECASE)
_KINDS: dict[str, tuple[type[LockstitchError], str]] = {
    "25006": (UsageError, "the server is a replica or read-only; name the primary"),
    "42501": (Unreadable, "the role lacks a privilege on the schema lockstitch"),
    "3D000": (Unreadable, "the database does not exist"),
    "3F000": (Unreadable, "the schema lockstitch is gone"),
    "42P01": (Unreadable, "a table of the schema lockstitch is gone"),
    "42883": (Unreadable, "a function of the schema lockstitch is gone"),
    "53100": (Unreadable, "the server's disk is full"),
    "53200": (Unreadable, "the server is out of memory"),
    "53300": (Busy, "the server has no connection left"),
    "55P03": (Busy, "the server gave up waiting for a lock"),
    "57014": (Busy, "the server cancelled the statement, or its time was up"),
    "40001": (Busy, "the server could not serialize it with what others wrote"),
    "40P01": (Busy, "the server broke a deadlock"),
    "23505": (Damaged, "there are records after the session's end"),
    "XX001": (Damaged, "the server found damaged data"),
    "XX002": (Damaged, "the server found a damaged index"),
}


def is_rolled_back(error: psycopg.Error) -> bool:
    """Whether the server itself reported the failure, so that nothing of the statement was kept."""
    code = error.sqlstate or ""
    if not code or code in _DOUBTFUL or code.startswith("08"):
        return False
    return error.diag.severity_nonlocalized == "ERROR"


def is_worth_another_try(error: psycopg.Error) -> bool:
    """Whether the same statement, which was rolled back, may succeed if repeated at once."""
    return is_rolled_back(error) and error.sqlstate in _RETRIED


def translate_error(error: psycopg.Error, where: Where) -> LockstitchError:
    """Return our error for one that the server reported; nothing was written."""
    code = error.sqlstate or ""
    try:
        name = errors.lookup(code).__name__
    except KeyError:
        name = "an error of its own"
    kind, text = _KINDS.get(code, (Unreadable, f"the server refused it: {name}"))
    return kind(f"{text} (SQLSTATE {code or 'none'}); nothing was written").about(*where)


def reason_of(error: psycopg.Error, secrets: list[str]) -> str:
    """Return in one line why a connection failed, without secrets."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines) or "no reason given"
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return _SECRET.sub(r"\1=***", text)


SIZE = 16
# Longer than the server waits for a lock, so that its error about the lock arrives first.
TIMEOUT = 40.0
# How many times as long statements may take that read or rewrite entire tables.
SLOW = 20
IDLE = 300.0
# Keepalives notice within a minute that the other side is gone.
_CONNECTING = 10
_DEFAULTS = {
    "application_name": "lockstitch",
    "connect_timeout": str(_CONNECTING),
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

Connection = ServerConnection


class ServerAddress(Struct, frozen=True):
    """The address of a database with its credentials; only shown without secrets."""

    url: str
    parameters: dict[str, Any]
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the address without secrets."""
        return f"Address({self.url!r})"

    def connect(self, patience: float | None = None) -> Connection:
        """Open a connection in autocommit mode; raise ``Unreadable`` if that fails.

        With ``patience`` it gives up on a server that is silent for that many seconds.
        """
        options: dict[str, Any] = {**self.parameters, "client_encoding": "UTF8"}
        if patience is not None and patience < _CONNECTING:
            options["connect_timeout"] = str(math.ceil(patience))
        try:
            made = Connection.connect(**options, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            reason = reason_of(error, [*self.secrets])
        else:
            made.patience = patience
            return made
        raise Unreadable(f"no connection: {reason}").about(self.url)


def address_of(dsn: str) -> ServerAddress:
    """Return the address in a connection string, a URL or ``name=value`` pairs."""
    try:
        found = conninfo_to_dict(dsn)
    except psycopg.Error:
        found = None
    read = addresses.parsed(dsn)
    if found is None or read is None:
        # The error text of libpq would quote the address and with it a password.
        raise UsageError(addresses.UNREAD).about(addresses.public(dsn))
    if read.is_odd:
        # libpq would say that there is no such host, and name the password as the host.
        raise UsageError(
            "the host, the port or the database in this address is not valid; a password may be "
            "unencoded: write %40 for an @ in it, %2F for a /, %3A for a :, and %25 for a %"
        ).about(addresses.public(dsn))
    defaults = dict(_DEFAULTS)
    if "," in str(found.get("host", "")):
        defaults["target_session_attrs"] = "read-write"
    return ServerAddress(
        addresses.short_address(read.values), defaults | found, tuple(read.secrets)
    )


class FairSemaphore:
    """Admits a number of threads at a time, first come, first served, so that none starves."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._queue: deque[threading.Lock] = deque()
        self._lock = threading.Lock()

    def enter(self, patience: float) -> bool:
        """Wait for admission; return False if it does not come in time."""
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
                with self._lock:
                    is_waiting = turn in self._queue
                    if is_waiting:
                        self._queue.remove(turn)
                if not is_waiting:
                    # Admission came at the very moment the wait ended, so pass it on.
                    self.leave()
        return is_in

    def leave(self) -> None:
        """Admit the next thread."""
        with self._lock:
            if self._queue:
                self._queue.popleft().release()
            else:
                self._free += 1


# Why not psycopg_pool (3.3 was tried): its workers connect in the background, so a caller learns
# nothing but PoolTimeout, and only after its full timeout, even if a port is closed or a password
# wrong. Here the thread that wants a connection opens it, and gets the reason at once.
# psycopg_pool's null pool does connect in the caller, but under a lock: of four callers of a silent
# server, with 8 seconds each, the last one returned after 32.
class Pool:
    """Lends connections, one to a thread at a time; ``timeout`` limits every wait.

    Before a connection is lent again, it is checked without a round trip whether the server has
    closed it.
    """

    def __init__(self, address: ServerAddress, size: int = SIZE, timeout: float = TIMEOUT) -> None:
        self.address = address
        self.timeout = timeout
        self._places = FairSemaphore(size)
        self._idle: list[tuple[Connection, float]] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @contextmanager
    def connection(self, patience: float | None = None) -> Iterator[Connection]:
        """Lend a connection that works as far as can be seen."""
        if not self._places.enter(self.timeout):
            raise Busy("all connections are in use; nothing was written").about(self.address.url)
        try:
            with self.beyond(patience) as connection:
                yield connection
        finally:
            self._places.leave()

    @contextmanager
    def beyond(self, patience: float | None = None) -> Iterator[Connection]:
        """Lend a connection beyond the limit, for work that must not wait for the writers.

        It waits for an answer for ``patience`` seconds, by default as long as all others.
        """
        connection = self._take_idle() or self.address.connect(self.timeout)
        connection.patience = patience or self.timeout
        try:
            yield connection
        finally:
            is_sound = connection.pgconn.transaction_status == TransactionStatus.IDLE
            with self._lock:
                is_kept = is_sound and not self._is_closed
                if is_kept:
                    self._idle.append((connection, time.monotonic()))
            if not is_kept:
                connection.close()

    def close(self) -> None:
        """Close the idle connections, and each of the others when it is returned."""
        self._is_closed = True
        self.drop_idle()

    def drop_idle(self) -> None:
        """Close the idle connections: if one connection was lost, they may be lost as well."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _since in idle:
            connection.close()

    def _take_idle(self) -> Connection | None:
        while True:
            with self._lock:
                if self._is_closed:
                    raise Closed("the store was closed").about(self.address.url)
                if not self._idle:
                    return None
                connection, since = self._idle.pop()
            if time.monotonic() - since < IDLE and _is_usable(connection):
                return connection
            connection.close()


def _is_usable(connection: Connection) -> bool:
    """Whether no sign has arrived that the server has closed a connection."""
    try:
        # The first look may only find the server's last message; the second finds the end.
        connection.pgconn.consume_input()
        connection.pgconn.consume_input()
    except psycopg.Error:
        return False
    return not connection.closed


TRIES = 8
_LOST = "the connection was lost"

Row = tuple[Any, ...]
Values = Row | dict[str, Any]


class ConnectionLost(Exception):
    """A statement has an unknown outcome; the text says why."""


class ServerSilent(ConnectionLost):
    """The server is silent, so trying again at once would only wait again."""


class Server:
    """Runs statements over the connections of a pool; ``where`` tells errors what they concern.

    A statement that the server reports as failed was rolled back; it raises an error that says so.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def ask(
        self, statement: LiteralString, values: Values, where: Where, *, is_slow: bool = False
    ) -> list[Row]:
        """Run a query; repeat it once over a new connection if the first connection is lost."""
        patience = self._pool.timeout * SLOW if is_slow else None
        try:
            return self._twice(statement, values, where, patience)
        except ServerSilent as error:
            raise Unreadable(f"{error}; read it again when the server answers").about(
                *where
            ) from None
        except ConnectionLost:
            raise Unreadable("the connection was lost twice while reading").about(*where) from None

    def ensure(self, statement: LiteralString, values: Values, where: Where) -> list[Row]:
        """Run a write that can be repeated without harm.

        Repeat it once if its outcome is unknown.
        """
        try:
            return self._twice(statement, values, where, None)
        except ServerSilent as error:
            raise Unsure(f"{error}; do it again when the server answers").about(*where) from None
        except ConnectionLost:
            raise Unsure("the connection was lost twice in the middle of a write").about(
                *where
            ) from None

    def _twice(
        self, statement: LiteralString, values: Values, where: Where, patience: float | None
    ) -> list[Row]:
        try:
            return self.tell(statement, values, where, patience)
        except ServerSilent:
            raise
        except ConnectionLost:
            self._pool.drop_idle()
            return self.tell(statement, values, where, patience)

    def tell(
        self, statement: LiteralString, values: Values, where: Where, patience: float | None = None
    ) -> list[Row]:
        """Run a statement; raise ``ConnectionLost`` if its outcome is unknown.

        It is repeated only if the server rolled it back for a reason that may not recur.
        """
        for tried in range(TRIES):
            try:
                return self.run(statement, values, patience)
            except psycopg.Error as error:
                problem = _problem(error, where, is_last=tried == TRIES - 1)
            if problem:
                raise problem
            time.sleep(random.uniform(0, 0.005 * 2**tried))  # noqa: S311
        raise ConnectionLost(_LOST)

    def vacuum(self, statement: LiteralString, where: Where) -> None:
        """Run a statement that returns no rows, may take long and can be repeated."""
        problem: Exception | None
        try:
            with self._pool.connection(self._pool.timeout * SLOW) as lent:
                lent.execute(statement)
        except psycopg.Error as error:
            problem = _problem(error, where, is_last=True)
        else:
            return
        if problem is None or isinstance(problem, ConnectionLost):
            raise Unreadable("the connection was lost; vacuum it again").about(*where) from None
        raise problem

    def run(
        self, statement: LiteralString, values: Values, patience: float | None = None
    ) -> list[Row]:
        """Run a statement once; raise psycopg's errors."""
        with self._pool.connection(patience) as lent, lent.cursor(binary=True) as cursor:
            return cursor.execute(statement, values).fetchall()


def _problem(error: psycopg.Error, where: Where, *, is_last: bool) -> Exception | None:
    """Return the error that a failed statement amounts to; None if it may be repeated."""
    if isinstance(error, Silent):
        return ServerSilent(f"PostgreSQL gave {error}")
    if not is_rolled_back(error):
        return ConnectionLost(_LOST)
    if is_worth_another_try(error) and not is_last:
        return None
    return translate_error(error, where)


CHANNEL = "lockstitch"
FOLLOWED = 120.0
# The server announces the next 1000 appends, and is asked again before they are used up.
HEARD = 500
SHORTEST, LONGEST = 0.02, 0.5
# While notifications arrive, this interval is only a safety net.
LISTENING = 5.0
_START = 2.0

Follow = Callable[[str, float], bool]


class Notifications:
    """Sets events when sessions get new records."""

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

    def subscribe(self, session: str, follow: Follow, patience: float) -> bool:
        """Ask for notifications of a session.

        Return False if it has to be read repeatedly instead.
        """
        with self._lock:
            if self._thread is None and not self._ending.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="lockstitch-notifications", daemon=True
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
        """End the thread, and wake all that wait."""
        self._ending.set()
        with self._lock:
            thread, self._thread = self._thread, None
            line = self._connection
            if line is not None and not line.closed:
                # Wake the thread that reads from the connection, since only that thread may close
                # it.
                with suppress(OSError, psycopg.Error):
                    handle = socket.socket(fileno=line.fileno())
                    try:
                        handle.shutdown(socket.SHUT_RDWR)
                    finally:
                        handle.detach()
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
                # Check that the server itself is at the other end: a pooler reports a process
                # number of its own.
                row = line.execute("SELECT pg_backend_pid()").fetchone()
                if not (row is not None and row[0] == line.info.backend_pid):
                    self._is_known.set()
                    return
                pause = SHORTEST
                self._listen(line)
            # No notification arrives until there is a connection again, so those that wait have to
            # look.
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
        # Silence is no error here: those that wait look by themselves from time to time.
        line.patience = None
        for notification in line.notifies():
            session = notification.payload.partition(" ")[0]
            with self._lock:
                if session in self._followed:
                    self._heard[session] = self._heard.get(session, 0) + 1
            self._wake(session)

    def _wake(self, session: str | None) -> None:
        with self._lock:
            if session is None:
                events = [event for several in self._waiting.values() for event in several]
            else:
                events = list(self._waiting.get(session, ()))
        for event in events:
            event.set()
