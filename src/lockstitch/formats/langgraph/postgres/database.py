"""One connection to a PostgreSQL that others work with: short transactions, and clear errors.

Everything is named with its schema and every setting holds for one transaction, so that a pooler
which gives each transaction another connection changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self, TypeVar
from urllib.parse import parse_qsl

import psycopg
from msgspec import Struct
from psycopg import IsolationLevel

from lockstitch.errors import Busy, LockstitchError, Moved, Unreadable, Unsure, UsageError
from lockstitch.stores.postgres.errors import is_rolled_back, is_worth_another_try
from lockstitch.stores.postgres.pool import Address, Connection, address_of

LEASE = 60.0
# A statement of ours that takes longer stands in somebody's way.
_LIMITS = (
    "SELECT set_config('statement_timeout', '60s', true), set_config('lock_timeout', '5s', true), "
    "set_config('idle_in_transaction_session_timeout', '120s', true)"
)
_OURS = ("schema", "lease")
_TRIES = 3
_PAUSE = 0.5
_KINDS: dict[str, tuple[type[LockstitchError], str]] = {
    "25006": (UsageError, "the server is a replica or read-only; name the primary"),
    "42501": (Unreadable, "the role lacks a privilege that this needs"),
    "42P01": (Unreadable, "a table of LangGraph's checkpoints is gone"),
    "42703": (Unreadable, "a table of LangGraph's checkpoints lacks a column"),
    "23505": (Moved, "the thread went on meanwhile"),
    "53100": (Unreadable, "the server's disk is full"),
    "53200": (Unreadable, "the server is out of memory"),
    "53300": (Busy, "the server has no connection left"),
    "55P03": (Busy, "the server gave up waiting for a lock"),
    "57014": (Busy, "the server cancelled the statement, or its time was up"),
    "40001": (Busy, "the server could not put it in order with what others wrote"),
    "40P01": (Busy, "the server broke a deadlock"),
    "XX001": (Unreadable, "the server found damaged data"),
    "XX002": (Unreadable, "the server found a damaged index"),
}

T = TypeVar("T")


class Gone(Unreadable):
    """The server cannot be reached any more: going on with other threads is of no use."""


class Options(Struct, frozen=True):
    """What an address says beyond what libpq knows: a schema, and how long a claim lasts."""

    dsn: str
    schema: str | None = None
    lease: float = LEASE


def options_of(url: str) -> Options:
    """Take an address apart into what libpq reads and what is ours."""
    address, _, query = url.partition("?")
    given = dict(parse_qsl(query, keep_blank_values=True))
    rest = "&".join(one for one in query.split("&") if one.partition("=")[0] not in _OURS)
    return Options(
        f"{address}?{rest}" if rest else address,
        given.get("schema") or None,
        _seconds(given.get("lease", str(LEASE))),
    )


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise UsageError("lease is a number of seconds greater than 0, as in lease=30")


class Database:
    """A connection that is made when it is needed, and made again when it was lost."""

    def __init__(self, url: str) -> None:
        self.options = options_of(url)
        self.address: Address = address_of(self.options.dsn)
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        """Give the database itself; nothing is opened yet."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def reading(self, work: Callable[[Connection], T]) -> T:
        """Do some reading in one short transaction on one state of the database.

        It is done again over another connection if this one is lost on the way.
        """
        for tried in range(1, _TRIES + 1):
            try:
                with self._transaction(IsolationLevel.REPEATABLE_READ, read_only=True) as made:
                    return work(made)
            except psycopg.Error as error:
                self._after(error, may_repeat=tried < _TRIES, is_read=True)
            time.sleep(_PAUSE * tried)
        raise AssertionError("unreachable")

    def writing(self, work: Callable[[Connection], T]) -> T:
        """Write in one short transaction: all of it, or nothing.

        A connection that is lost on the way raises ``Unsure``: it may be written or not.
        """
        for tried in range(1, _TRIES + 1):
            try:
                with self._transaction(IsolationLevel.READ_COMMITTED, read_only=False) as made:
                    return work(made)
            except psycopg.Error as error:
                self._after(error, may_repeat=tried < _TRIES, is_read=False)
            time.sleep(_PAUSE * tried)
        raise AssertionError("unreachable")

    def settling(self, work: Callable[[Connection], T]) -> T:
        """Write what can be written twice without harm: again if a connection is lost."""
        for tried in range(1, _TRIES):
            try:
                return self.writing(work)
            except Unsure:
                time.sleep(_PAUSE * tried)
        return self.writing(work)

    @contextmanager
    def _transaction(self, level: IsolationLevel, *, read_only: bool) -> Iterator[Connection]:
        connection = self._connection
        if connection is None or connection.closed:
            connection = self._connection = self._connected()
        connection.isolation_level = level
        connection.read_only = read_only
        with connection.transaction():
            connection.execute(_LIMITS)
            yield connection

    def _connected(self) -> Connection:
        try:
            return self.address.connect()
        except Unreadable as error:
            raise Gone(str(error)) from None

    def _after(self, error: psycopg.Error, *, may_repeat: bool, is_read: bool) -> None:
        """Decide after an error: returns if the work may be done again."""
        if is_rolled_back(error):
            if may_repeat and is_worth_another_try(error):
                return
            raise translated(error, self.address.url) from None
        self.close()
        if not is_read:
            raise Unsure(f"{self.address.url}: the connection was lost in a write") from None
        if not may_repeat:
            text = "the connection was lost while reading, several times"
            raise Gone(f"{self.address.url}: {text}; nothing was written") from None


def translated(error: psycopg.Error, where: str) -> LockstitchError:
    """Say what a reported error means; its own text may quote what was stored."""
    code = error.sqlstate or ""
    kind, text = _KINDS.get(code, (Unreadable, "the server refused it"))
    return kind(f"{where}: {text} (SQLSTATE {code or 'none'}); nothing was written")


Row = tuple[Any, ...]
